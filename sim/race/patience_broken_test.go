package race_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/sim/race"
)

// impatient is a ledger that breaks a rule of nominations: judge is asked before each proposal, which it may change, and
// after is told of each that was committed.
type impatient struct {
	hiding
	judge func(l *impatient, s *orbit.State, p *orbit.Proposal) error
	after func(l *impatient, s *orbit.State, p *orbit.Proposal)
	// What is refused is committed all the same.
	force func(p *orbit.Proposal) (on orbit.NodeID)
}

func (l *impatient) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	s, err := l.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	if l.judge != nil {
		if err := l.judge(l, s, &p); err != nil {
			return 0, err
		}
	}
	rev, err := l.MemoryLedger.Propose(ctx, p)
	if err != nil && l.force != nil {
		if on := l.force(&p); on != "" && s.Node(on) != nil {
			return l.hiding.force(p, on)
		}
	}
	if err == nil && l.after != nil {
		l.after(l, s, &p)
	}
	return rev, err
}

func (l *impatient) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	return oneByOne(ctx, l, batch)
}

// conflict is an answer that sends an engine back to a newer view.
func conflict(s *orbit.State, why string) error {
	return &orbit.Rejection{Kind: orbit.ErrConflict, Do: -1, Reason: why, At: s.Revision()}
}

// nominationOf returns the living nomination of a capsule or its gang; nil: there is none.
func nominationOf(s *orbit.State, id orbit.CapsuleID) *orbit.Nomination {
	c := s.Capsule(id)
	if c == nil {
		return nil
	}
	if g := s.Gang(c.Gang); g != nil && g.Nomination.Lives() {
		return g.Nomination
	}
	if c.Nomination.Lives() {
		return c.Nomination
	}
	return nil
}

// takes reports whether placements take room that is nominated for any other that counts.
func takes(s *orbit.State, p *orbit.Proposal, counts func(other, own *orbit.Nomination) bool) bool {
	want := map[orbit.NodeID]int64{}
	for _, do := range p.Do {
		place, ok := do.(orbit.Place)
		if !ok || s.Capsule(place.Capsule) == nil || s.Node(place.Node) == nil {
			continue
		}
		want[place.Node] += s.Capsule(place.Capsule).Spec.Envelope.Reservation[orbit.CPU]
		own, n := nominationOf(s, place.Capsule), s.Node(place.Node)
		free := n.Free()[orbit.CPU] - want[place.Node]
		for other, part := range n.Nominated {
			if other != own && counts(other, own) {
				free -= part.Room[orbit.CPU]
			}
		}
		if free < 0 {
			return true
		}
	}
	return false
}

// asUse counts nominations as use: one is made only of the parts for which there is room, and nobody may have what is
// nominated for another. Two gangs of which each has half of what both need wait for each other.
func asUse(_ *impatient, s *orbit.State, p *orbit.Proposal) error {
	p.Do = slices.Clone(p.Do)
	for i, do := range p.Do {
		n, ok := do.(orbit.Nominate)
		if !ok || len(n.Parts) == 0 {
			continue
		}
		n.Parts = slices.DeleteFunc(slices.Clone(n.Parts), func(r orbit.NominatedRoom) bool {
			free := s.Node(r.Node).Free()[orbit.CPU]
			for other, part := range s.Node(r.Node).Nominated {
				if other.Capsule != n.Capsule || other.Gang != n.Gang {
					free -= part.Room[orbit.CPU]
				}
			}
			return free < r.Room[orbit.CPU]
		})
		if len(n.Parts) == 0 {
			return conflict(s, "no room for the nomination")
		}
		p.Do[i] = n
	}
	if takes(s, p, func(_, _ *orbit.Nomination) bool { return true }) {
		return conflict(s, "it is nominated for another")
	}
	return nil
}

// unranked leaves nominated room to whoever was nominated first, whatever the ranks.
func unranked(_ *impatient, s *orbit.State, p *orbit.Proposal) error {
	if takes(s, p, func(other, own *orbit.Nomination) bool { return own == nil || other.First < own.First }) {
		return conflict(s, "it is nominated for one who came first")
	}
	return nil
}

// lasting ends no nomination for which nobody has a place.
func lasting(_ *impatient, s *orbit.State, p *orbit.Proposal) error {
	for _, do := range p.Do {
		if n, ok := do.(orbit.Nominate); !ok || len(n.Parts) > 0 {
			return nil
		}
	}
	return conflict(s, "it goes on")
}

// earned lets what a proposal frees on a node be taken by what it places there, whatever is nominated.
func earned(p *orbit.Proposal) orbit.NodeID {
	if len(p.Do) == 2 {
		release, frees := p.Do[0].(orbit.Release)
		if place, takes := p.Do[1].(orbit.Place); frees && takes && release.Final {
			return place.Node
		}
	}
	return ""
}

// forgotten drops what is nominated on a node when the node's use is written.
func forgotten(l *impatient, s *orbit.State, p *orbit.Proposal) {
	for _, do := range p.Do {
		var on orbit.NodeID
		switch do := do.(type) {
		case orbit.Place:
			on = do.Node
		case orbit.Release:
			if c := s.Capsule(do.Capsule); c != nil {
				on = c.Node
			}
		}
		now, _ := l.Snapshot(context.Background())
		for n := range now.Nominations() {
			if slices.ContainsFunc(n.Parts, func(r orbit.NominatedRoom) bool { return r.Node == on }) {
				l.hide(orbit.Nominate{Capsule: n.Capsule, Gang: n.Gang})
			}
		}
	}
}

// Each way to get nominations wrong is found within so many schedules, and told as one that is made small.
func TestPatienceFindsWhatIsBroken(t *testing.T) {
	scale.Long(t)
	for _, c := range []struct {
		name   string
		ledger func() orbit.Ledger
		rule   string
		most   int
	}{
		{"nominations counted as use", func() orbit.Ledger { return &impatient{judge: asUse} }, "not served", 50},
		{"releases earn room", func() orbit.Ledger { return &impatient{force: earned} }, "overtaken", 100},
		{"rank ignored", func() orbit.Ledger { return &impatient{judge: unranked} }, "not served", 100},
		{"nominations never lapse", func() orbit.Ledger { return &impatient{judge: lasting} }, "never lapses", 100},
		{"dropped when the node is written", func() orbit.Ledger { return &impatient{after: forgotten} }, "overtaken", 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				res := race.Scenario(func(seed uint64) *race.Config {
					r := race.Patience(seed)
					r.Ledger = c.ledger
					return r
				}).Hunt(1, c.most)
				require.NotNil(t, res, "not found")
				rule, _, _ := strings.Cut(res.Err.Error(), ":")
				assert.Equal(t, c.rule, rule)
				t.Log("\n" + res.Story())
				assert.LessOrEqual(t, len(res.Config.Jobs), 3, "jobs")
				assert.Equal(t, res.History, res.Config.Replay(res.Decisions).History)
			})
		})
	}
}
