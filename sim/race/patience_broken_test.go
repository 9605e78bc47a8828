package race_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/sim/race"
)

// impatient is a ledger that breaks a rule of nominations.
type impatient struct {
	orbit.MemoryLedger
	// judge is asked before a proposal is committed, and may change it.
	judge func(s *orbit.State, p *orbit.Proposal) error
	// drops returns the nominations that a proposal ends by mistake.
	drops func(s *orbit.State, p *orbit.Proposal) []orbit.Commitment
	known map[orbit.ProposalID]bool
	// What each revision has dropped, of which the history says nothing.
	dropped map[orbit.Revision]int
}

// in makes it the ledger of a race, which finds it by its own rules alone, and not because State.Check would refuse.
func (l *impatient) in(r *race.Config) *race.Config {
	r.Check = -1
	r.Ledger = func() orbit.Ledger {
		return &impatient{judge: l.judge, drops: l.drops, MemoryLedger: orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}}
	}
	return r
}

func (l *impatient) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if l.known[p.ID] {
		return l.MemoryLedger.Propose(ctx, p)
	}
	s, err := l.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	if l.judge != nil {
		if err := l.judge(s, &p); err != nil {
			return 0, err
		}
	}
	n := 0
	if l.drops != nil {
		ends := l.drops(s, &p)
		also := p
		also.Do = append(ends, p.Do...)
		if s.Check(also) == nil {
			p, n = also, len(ends)
		}
	}
	rev, err := l.MemoryLedger.Propose(ctx, p)
	if err == nil {
		if l.known == nil {
			l.known, l.dropped = map[orbit.ProposalID]bool{}, map[orbit.Revision]int{}
		}
		l.known[p.ID], l.dropped[rev] = true, n
	}
	return rev, err
}

func (l *impatient) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	return oneByOne(ctx, l, batch)
}

func (l *impatient) Changes(ctx context.Context, after orbit.Revision) (out []orbit.Change, err error) {
	changes, err := l.MemoryLedger.Changes(ctx, after)
	at, skip := orbit.Revision(0), 0
	for _, c := range changes {
		if c.Revision != at {
			at, skip = c.Revision, l.dropped[c.Revision]
		}
		if skip--; skip < 0 {
			out = append(out, c)
		}
	}
	return out, err
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
	if g := s.Gang(c.Gang()); g != nil && g.Nomination.Lives() {
		return g.Nomination
	}
	if c.Nomination().Lives() {
		return c.Nomination()
	}
	return nil
}

// takes reports whether placements take room that is nominated for any other.
func takes(s *orbit.State, p *orbit.Proposal) bool {
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
			if other != own {
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
func asUse(s *orbit.State, p *orbit.Proposal) error {
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
	if takes(s, p) {
		return conflict(s, "it is nominated for another")
	}
	return nil
}

// unranked keeps nominated room from everybody else, whatever the ranks.
func unranked(s *orbit.State, p *orbit.Proposal) error {
	if takes(s, p) {
		return conflict(s, "it is nominated for another")
	}
	return nil
}

// lasting ends no nomination for which nobody has a place.
func lasting(s *orbit.State, p *orbit.Proposal) error {
	for _, do := range p.Do {
		if n, ok := do.(orbit.Nominate); !ok || len(n.Parts) > 0 {
			return nil
		}
	}
	return conflict(s, "it goes on")
}

// earned lets what a proposal frees on a node be taken by what it places there, whatever is nominated.
func earned(s *orbit.State, p *orbit.Proposal) []orbit.Commitment {
	if len(p.Do) == 2 {
		release, frees := p.Do[0].(orbit.Release)
		if place, takes := p.Do[1].(orbit.Place); frees && takes && release.Final {
			return endsOn(s, place.Node, place.Capsule)
		}
	}
	return nil
}

// forgotten drops what is nominated on a node when the node's use is written.
func forgotten(s *orbit.State, p *orbit.Proposal) (ends []orbit.Commitment) {
	for _, do := range p.Do {
		switch do := do.(type) {
		case orbit.Place:
			return endsOn(s, do.Node, do.Capsule)
		case orbit.Release:
			if c := s.Capsule(do.Capsule); c != nil {
				return endsOn(s, c.Node, do.Capsule)
			}
		}
	}
	return nil
}

// endsOn ends what is nominated on a node, but not for the one that is placed there.
func endsOn(s *orbit.State, on orbit.NodeID, own orbit.CapsuleID) (ends []orbit.Commitment) {
	for n := range s.Nominations() {
		if n != nominationOf(s, own) && slices.ContainsFunc(n.Parts, func(r orbit.NominatedRoom) bool { return r.Node == on }) {
			ends = append(ends, orbit.Nominate{Capsule: n.Capsule, Gang: n.Gang})
		}
	}
	return ends
}

// Each way to get nominations wrong is found within so many races as its case says, and the failure is made small.
func TestPatienceFindsWhatIsBroken(t *testing.T) {
	scale.Sweep(t)
	scale.Sequential(t)
	for _, c := range scale.Some(2, []struct {
		name   string
		ledger *impatient
		rule   string
		most   int
	}{
		{"releases earn room", &impatient{drops: earned}, "overtaken", 100},
		{"dropped when the node is written", &impatient{drops: forgotten}, "overtaken", 50},
		{"nominations never lapse", &impatient{judge: lasting}, "never lapses", 500}, // these take seconds to be made small
		{"nominations counted as use", &impatient{judge: asUse}, "waits too long", 50},
	}...) {
		t.Run(c.name, func(t *testing.T) {
			res := finds(t, c.most, c.rule, func(seed uint64) *race.Config {
				return c.ledger.in(race.Patience(seed))
			})
			assert.LessOrEqual(t, len(res.Config.Jobs), 3, "jobs")
		})
	}
}

// finds hunts for a failure by a rule, and tells it.
func finds(t *testing.T, most int, rule string, s race.Scenario) (res *race.Result) {
	synctest.Test(t, func(t *testing.T) {
		res = s.Hunt(1, most)
		require.NotNil(t, res, "not found")
		is, _, _ := strings.Cut(res.Err.Error(), ":")
		assert.Equal(t, rule, is)
		t.Log("\n" + res.Story())
		assert.Equal(t, res.History, res.Config.Replay(res.Decisions).History)
	})
	return res
}

// hoarder is a navigator of one gang that nominates each node on which a member has room, as soon as it has, and begins when
// there are enough. It keeps to the ranks, and ends nothing of others.
type hoarder struct{ draft orbit.Draft }

func (h *hoarder) Claims(string, orbit.AppClass) bool { return true }

func (h *hoarder) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	h.draft.Sync(view)
	n := orbit.Nominate{Gang: pending[0].Gang(), Ends: view.Now().Add(time.Hour)}
	placed := 0
	for node := range view.State().Nodes() {
		if node.Free()[orbit.CPU] < pending[0].Spec.Envelope.Reservation[orbit.CPU] {
			continue
		}
		n.Parts = append(n.Parts, orbit.NominatedRoom{Node: node.Node.ID, Room: pending[0].Spec.Envelope.Reservation})
		if placed < len(pending) && h.draft.Place(pending[placed], orbit.Choice{Node: node}) == nil {
			placed++
		}
	}
	for _, c := range pending {
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: errors.New("waits for more nodes")})
	}
	switch standing := view.State().Gang(n.Gang).Nomination; {
	case placed == len(pending):
		return orbit.Plan{Proposals: []orbit.Proposal{h.draft.Propose(orbit.GangUnplaced{Gang: n.Gang})}}, nil
	case len(n.Parts) > 0 && (standing == nil || len(standing.Parts) < len(n.Parts)):
		plan.Proposals = []orbit.Proposal{{View: view.Revision(), Do: []orbit.Commitment{n}}}
	}
	return plan, nil
}

// halfServed is two gangs of which each needs two nodes, of which one becomes free after the other.
func halfServed(uint64) *race.Config {
	r := &race.Config{Nodes: cpus(2, 2)}
	for i := range 3 { // too small, so that the share of all nodes does not stand in the way
		r.Nodes = append(r.Nodes, orbit.Node{ID: orbit.NodeID(fmt.Sprint("small", i)), Capacity: orbit.Resources{orbit.CPU: 1999}})
	}
	for i, owner := range []string{"a", "b"} {
		r.Schedulers = append(r.Schedulers, race.Scheduler{Name: owner, Together: -1, Navigator: func() orbit.Navigator { return &hoarder{} }})
		r.Jobs = append(r.Jobs, race.Job{Owner: owner, Tasks: 2, Gang: true, Spec: cores(2, owner, orbit.GangClass), At: 10 * ms, Lasts: 50 * ms, Within: time.Second},
			race.Job{Owner: "s", Tasks: 1, Spec: cores(2, fmt.Sprint("s", i), orbit.Batch), Lasts: time.Duration(100+60*i) * ms})
	}
	r.Schedulers = append(r.Schedulers, race.Scheduler{Name: "s", Navigator: services(1)})
	return r
}

// eightOfEight is a service of low priority that waits for a whole node, one core of which is taken for long, and a capsule of
// high priority that needs a core of those that are free.
func eightOfEight(uint64) *race.Config {
	high := cores(1, "high", orbit.LatencySensitive)
	high.Priority = 1000
	return &race.Config{
		Nodes: cpus(1, 8),
		Schedulers: []race.Scheduler{
			{Name: "low", ParkFor: 20 * ms, Navigator: func() orbit.Navigator { return &nav.Patient{Navigator: &nav.Services{}, After: 20 * ms} }},
			{Name: "high", Navigator: services(1)},
		},
		Jobs: []race.Job{
			{Owner: "high", Tasks: 1, Spec: cores(1, "long", orbit.Batch), Lasts: 5 * time.Second},
			{Owner: "low", Tasks: 1, At: 100 * ms, Spec: cores(8, "low", orbit.LatencySensitive), Lasts: 50 * ms},
			{Owner: "high", Tasks: 1, At: 800 * ms, Spec: high, Lasts: 50 * ms, Within: time.Second},
		},
	}
}

// What first claims must not do: none of it happens in any order of steps, and the ledger that does it is found.
func TestPatienceOfFewSteps(t *testing.T) {
	scale.Long(t)
	scale.Sequential(t)
	for _, c := range scale.Some(1, []struct {
		name   string
		draw   race.Scenario
		broken *impatient
	}{
		{"8 of 8 cores of priority 0 refuse one of priority 1000", eightOfEight, &impatient{judge: unranked}},
		{"two gangs, each with half of what both need", halfServed, &impatient{judge: asUse}}, // takes seconds to be made small
	}...) {
		t.Run(c.name, func(t *testing.T) {
			draw := func(seed uint64) *race.Config {
				r := c.draw(seed)
				r.Faults, r.Sleep = race.Faults{Delay: 0.3, Longest: 64 * ms}, time.Sleep
				r.Ledger = func() orbit.Ledger { return &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}} }
				return r
			}
			synctest.Test(t, func(t *testing.T) {
				if res := race.Scenario(draw).Hunt(1, scale.Of(200, 2_000)); res != nil {
					t.Fatal(res.Story())
				}
			})
			finds(t, 100, "waits too long", func(seed uint64) *race.Config { return c.broken.in(draw(seed)) })
		})
	}
}

// besideASlowCommit is a service of a whole node whose engine takes 20 ms from the view to the commit. A task is known to run on the node
// for 200 ms, and beside it tasks of 10 ms and of 60 ms come without end that borrow what is nominated for the service.
func besideASlowCommit(uint64) *race.Config {
	quick, slow := cores(1, "quick", orbit.BestEffort), cores(1, "slow", orbit.BestEffort)
	long, large := cores(1, "long", orbit.Batch), cores(4, "large", orbit.LatencySensitive)
	quick.RunsAtMost, quick.Backfills, slow.RunsAtMost, slow.Backfills = 10*ms, true, 60*ms, true
	long.RunsAtMost = 200 * ms
	large.Priority = 5
	return &race.Config{
		Nodes: cpus(1, 4),
		Schedulers: []race.Scheduler{
			{Name: "large", ParkFor: 20 * ms, JobTime: 20 * ms, Navigator: func() orbit.Navigator { return &nav.Patient{Navigator: &nav.Services{}, After: 20 * ms} }},
			{Name: "quick", Navigator: services(1), Backoff: orbit.Backoff{Initial: ms, Max: 4 * ms}},
		},
		Jobs: []race.Job{
			{Owner: "quick", Tasks: 1, Spec: long, Lasts: 200 * ms},
			{Owner: "quick", Tasks: 8, Again: true, At: 5 * ms, Spec: quick, Lasts: 10 * ms},
			{Owner: "quick", Tasks: 2, Again: true, At: 5 * ms, Spec: slow, Lasts: 60 * ms},
			{Owner: "large", Tasks: 1, At: 20 * ms, Spec: large, Lasts: 50 * ms, Within: 600 * ms},
		},
	}
}

// Tasks that end every 10 ms cannot keep a nominee out by borrowing its room, in whatever order they come and go.
func TestLendingBesideASlowCommit(t *testing.T) {
	scale.Long(t)
	evicted := 0
	draw := func(seed uint64) *race.Config {
		r := besideASlowCommit(seed)
		r.Faults, r.Sleep, r.Serve = race.Faults{Delay: 0.3, Longest: 16 * ms}, time.Sleep, 300*ms
		r.Ledger = func() orbit.Ledger { return &orbit.MemoryLedger{} }
		return r
	}
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(20) {
			res := draw(seed).Run(seed)
			require.NoError(t, res.Err, res.Story())
			evicted += res.Evictions
		}
		if res := race.Scenario(draw).Hunt(1, scale.Of(100, 2_000)); res != nil {
			t.Fatal(res.Story())
		}
	})
	t.Log(evicted, "evictions in 20 races")
	require.Positive(t, evicted)
}
