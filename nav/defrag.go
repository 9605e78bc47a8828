package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/moves"
	"github.com/orbitsched/orbit/internal/send"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// Defrag moves running capsules where that is worth the disruption: so that work of a certain shape has room
// ([RoomFor]), nodes become empty ([EmptyNodes]), groups are spread evenly again ([EvenSpread]), or devices are not
// stranded beside work without devices ([OffDevices]). Like [Drain] it is no navigator and needs no engine.
//
//	defrag := &nav.Defrag{Ledger: ledger, Goal: nav.RoomFor{Spec: eightGPUs}, Moves: 20}
//	go defrag.Run(ctx)
//
// Defrag stops by itself. Each set that it proposes takes the cluster a step closer to the goal, which nothing that Defrag does
// takes back; where no set is worth its disruption, it moves nothing. A capsule that was placed less than MinStay ago, by
// Defrag or by another, is not moved. Defrags with different goals do not know each other's: after MinStay one may move
// back what another has moved, as a step towards its own goal.
//
// A pass looks at all nodes and capsules. Set the fields before first use, and call Pass or Run from one goroutine at a
// time.
type Defrag struct {
	// Ledger is the ledger whose capsules are moved. Required.
	Ledger orbit.Ledger
	// Telemetry gives the placement engine the reports of nodes; nil: it gets none.
	Telemetry orbit.Telemetry
	// Goal is what the moves are for. Required.
	Goal DefragGoal
	// Every is how long Run pauses between two passes; default 10 minutes.
	Every time.Duration
	// Moves is how many capsules one pass moves at most; default 100.
	Moves int
	// MinGain is what a set of moves must be worth: its gain divided by its disruption, both counted in nodes. The
	// disruption is the sum of the parts of their nodes that the moved capsules take. The gain of RoomFor is the part of a
	// node that the new room takes, of EmptyNodes and EvenSpread one for each node emptied and each member moved to where it
	// belongs, of OffDevices the disruption itself. Default 0.5.
	MinGain float64
	// MinStay is how long a capsule stays at least where it was placed; default one hour.
	MinStay time.Duration
	// Filter excludes nodes to which capsules may not move, as the filter of a placement engine does; nil: none.
	Filter place.Filter
	// OnRound is called by Run after each pass that moved something or met an error; nil: it is not called.
	OnRound func(DefragRound)

	view   orbit.View
	draft  orbit.Draft
	search moves.Search
}

// DefragRound is what one pass of [Defrag] did.
type DefragRound struct {
	// View is the revision of the ledger that the pass planned on.
	View orbit.Revision
	// Moved are the capsules that were moved, and Steps is how many steps towards the goal their commits made: rooms,
	// nodes, members or capsules, as the goal counts.
	Moved []orbit.CapsuleID
	Steps int
	// Gain and Work are the gain of these sets of moves and their disruption, in nodes, as [Defrag].MinGain compares them.
	Gain, Work float64
	// Emptied are the nodes that [EmptyNodes] has emptied.
	Emptied []orbit.NodeID
	// TooDear counts the steps that were possible, but not worth their disruption by MinGain; Spent says that Moves did
	// not allow more.
	TooDear int
	Spent   bool
	// Conflicts counts the proposals that lost to another commit. The next pass plans anew.
	Conflicts int
	// Errors are the errors of the ledger and of the telemetry.
	Errors []error

	// There is nothing to do until the ledger has changed.
	idle bool
}

// String sums the round up in one line.
func (r DefragRound) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "defrag at %d: %d steps by %d moves, %d too dear, %d conflicts, %d errors", r.View, r.Steps, len(r.Moved), r.TooDear, r.Conflicts, len(r.Errors))
	for _, id := range r.Emptied {
		fmt.Fprintf(&b, ", %s is empty", id)
	}
	return b.String()
}

// Run calls Pass, and again after each pause of Every, until ctx ends, and then returns nil. While the ledger does not
// change, and no MinStay ends, it does not look again for what it has not found. Without a Ledger or a Goal, or
// with a setting that makes no sense, it returns an error that wraps [orbit.ErrInvalid].
func (d *Defrag) Run(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	still := orbit.Revision(0)
	for ctx.Err() == nil {
		round := d.pass(ctx, still)
		if still = 0; round.idle && d.Telemetry == nil && d.Filter == nil {
			still = round.View
		}
		if d.OnRound != nil && ctx.Err() == nil && len(round.Moved)+len(round.Errors) > 0 {
			d.OnRound(round)
		}
		send.Pause(ctx, cmp.Or(d.Every, 10*time.Minute))
	}
	return nil
}

func (d *Defrag) check() error {
	var why string
	switch {
	case d.Ledger == nil:
		why = "Defrag.Ledger is nil"
	case d.Goal == nil:
		why = "Defrag.Goal is nil; set it to one of RoomFor, EmptyNodes, EvenSpread and OffDevices"
	case d.Every < 0 || d.Moves < 0 || d.MinStay < 0 || !(d.MinGain >= 0):
		why = "Defrag.Every, Moves, MinStay and MinGain must not be negative"
	default:
		return d.Goal.check()
	}
	return fmt.Errorf("nav: %w: %s", orbit.ErrInvalid, why)
}

// Pass does one round: it proposes the sets of moves that are worth their disruption, as far as Moves allows.
//
// Each proposal is a set of moves that reaches one step of the goal: all capsules of the set leave their nodes and are
// placed again in one commit, so the set may be a swap or a cycle, and no capsule is ever without a place. Only what consents
// moves ([orbit.State.Movable]); the ledger judges budgets, protections, gangs and rules of company, and no group becomes
// more uneven.
func (d *Defrag) Pass(ctx context.Context) DefragRound { return d.pass(ctx, 0) }

// pass does what Pass does, unless the ledger still is at a revision at which there was nothing to do.
func (d *Defrag) pass(ctx context.Context, still orbit.Revision) (round DefragRound) {
	if err := d.check(); err != nil {
		round.Errors = append(round.Errors, err)
		return round
	}
	now := time.Now()
	if err := d.view.Refresh(ctx, d.Ledger, d.Telemetry, now); err != nil {
		round.Errors = append(round.Errors, fmt.Errorf("nav: defrag: view: %w", err))
	}
	if round.View = d.view.Revision(); !d.view.Now().Equal(now) { // the ledger has failed; telemetry may
		return round
	}
	if round.idle = round.View == still; round.idle {
		return round
	}
	d.draft.Sync(&d.view)
	p := &defragPass{Defrag: d, state: d.view.State(), round: &round, left: cmp.Or(d.Moves, 100)}
	d.Goal.plan(ctx, p)
	round.idle = len(p.batch) == 0 && !p.later && ctx.Err() == nil
	p.send(ctx)
	return round
}

// defragPass is the state of one pass of a Defrag.
type defragPass struct {
	*Defrag
	state *orbit.State
	round *DefragRound
	// How many more capsules may move.
	left int
	// The proposals, and what each does.
	batch []orbit.Proposal
	steps []defragStep
	// A capsule may move later that was placed too short a time ago.
	later bool
}

// defragStep is what one proposal does.
type defragStep struct {
	moved   []*orbit.Capsule
	gain    float64
	work    float64
	emptied orbit.NodeID
}

// searching returns the search for moves to nodes that neither the Defrag's filter nor shun excludes.
func (p *defragPass) searching(shun func(*orbit.NodeState, *orbit.Spec) bool) *moves.Search {
	excluded := func(n *orbit.NodeState, spec *orbit.Spec) bool {
		return shun != nil && shun(n, spec) || p.Filter != nil && p.Filter(n, p.view.Report(n), spec) != ""
	}
	filter := func(n *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) string {
		if excluded(n, spec) {
			return "are not for capsules that move"
		}
		return ""
	}
	p.search = moves.Search{
		Draft: &p.draft, Engine: &place.Indexed{Score: score.MostAllocated{}, Filter: filter}, Excluded: excluded,
		Stays: p.stays, Most: min(p.left, mostMovedFor), Steps: defragSteps, Note: "defragmented",
	}
	return &p.search
}

// defragSteps bounds the search for one set of moves.
const defragSteps = 50_000

// stays reports whether a capsule was placed too short a time ago to move again.
func (p *defragPass) stays(c *orbit.Capsule) bool {
	stays := p.view.Now().Sub(c.PlaceTime.Time()) < cmp.Or(p.MinStay, time.Hour)
	p.later = p.later || stays
	return stays
}

// worth reports whether a set of moves is worth its disruption, and counts it if not.
func (p *defragPass) worth(f *moves.Found, gain float64) bool {
	if gain >= f.Work*cmp.Or(p.MinGain, 0.5) {
		return true
	}
	p.round.TooDear++
	return false
}

// full reports whether the pass may move no more, and says so in the round.
func (p *defragPass) full(ctx context.Context) bool {
	p.round.Spent = p.round.Spent || p.left <= 0
	return p.left <= 0 || ctx.Err() != nil
}

// propose adds a proposal to the batch. Of the draft's steps it leaves out those of probes, which are no capsules.
func (p *defragPass) propose(f *moves.Found, step defragStep, probes []orbit.CapsuleID, more ...orbit.Commitment) {
	made := p.draft.Propose()
	made.ID = orbit.NewProposalID()
	made.Do = slices.DeleteFunc(slices.Clone(made.Do), func(do orbit.Commitment) bool {
		place, places := do.(orbit.Place)
		_, submits := do.(orbit.Submit)
		return submits || places && slices.Contains(probes, place.Capsule)
	})
	if made.Do = append(made.Do, more...); step.emptied != "" {
		n := p.state.Node(step.emptied)
		made.If = append(made.If, orbit.NodeAt{Node: n.Node.ID, Usage: n.Usage, Specification: n.Specification})
	}
	step.moved, step.work = f.Moved, f.Work
	p.batch, p.steps = append(p.batch, made), append(p.steps, step)
	p.left -= len(f.Moved)
}

// away moves capsules off their nodes, if that is worth a gain, and reports whether it does.
func (p *defragPass) away(s *moves.Search, gain float64, step defragStep, more []orbit.Commitment, leaving ...*orbit.Capsule) bool {
	if s.Most = min(p.left, max(mostMovedFor, len(leaving))); len(leaving) > s.Most {
		return false
	}
	f := s.Away(leaving...)
	if f == nil || !p.worth(f, gain) || f.On(&p.draft) != nil {
		return false
	}
	step.gain = gain
	p.propose(f, step, nil, more...)
	return true
}

// send proposes the batch to the ledger and records the outcomes in the round.
func (p *defragPass) send(ctx context.Context) {
	for i, o := range send.All(ctx, p.Ledger, p.batch) {
		switch {
		case o.Err == nil:
			p.round.Steps++
			p.round.Gain += p.steps[i].gain
			p.round.Work += p.steps[i].work
			for _, c := range p.steps[i].moved {
				p.round.Moved = append(p.round.Moved, c.ID)
			}
			if p.steps[i].emptied != "" {
				p.round.Emptied = append(p.round.Emptied, p.steps[i].emptied)
			}
		case errors.Is(o.Err, orbit.ErrConflict):
			p.round.Conflicts++
		default:
			p.round.Errors = append(p.round.Errors, fmt.Errorf("nav: defrag: %w", o.Err))
		}
	}
}
