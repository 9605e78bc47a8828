package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// meeting lets navigators plan on the same view and propose at the same moment: after its plan each navigator waits
// until all the others have planned, or have found nothing to plan.
type meeting struct {
	mu   sync.Mutex
	cond *sync.Cond
	// missing is the number of racers that have not arrived in this turn. It is guarded by mu, as is every racer's arrived.
	missing int
}

// begin begins a turn of n racers.
func (m *meeting) begin(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.missing = n; m.cond == nil {
		m.cond = sync.NewCond(&m.mu)
	}
}

// racer is a navigator that takes part in a meeting.
type racer struct {
	orbit.Navigator
	name    string
	meeting *meeting
	// arrived says that the racer has arrived in this turn. The meeting's mu guards it, because a pass may return before its
	// Plan, which then comes later.
	arrived bool

	// The sums of the racer's passes, and the number of the last pass that has committed something.
	proposed, committed, conflicts, last int
}

// arrive notes, at most once in a turn, that the racer has planned or will not plan. If wait is set, it waits for the
// other racers.
func (r *racer) arrive(wait bool) {
	m := r.meeting
	m.mu.Lock()
	defer m.mu.Unlock()
	if !r.arrived {
		r.arrived = true
		m.missing--
	}
	for m.cond.Broadcast(); wait && m.missing > 0; {
		m.cond.Wait()
	}
}

// Plan calls the navigator, and waits for the other racers.
func (r *racer) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := r.Navigator.Plan(ctx, view, pending)
	r.arrive(true)
	return plan, err
}

// pass does one pass of the racer's engine in a turn.
func (r *racer) pass(ctx context.Context, e *orbit.Engine, turn int) error {
	r.meeting.mu.Lock()
	r.arrived = false
	r.meeting.mu.Unlock()
	round := e.Pass(ctx)
	r.arrive(false)
	r.proposed += round.Proposed
	r.committed += round.Committed
	r.conflicts += round.Conflicts
	if round.Committed > 0 {
		r.last = turn
	}
	return errors.Join(round.Errors...)
}

// turns is the number of passes of each navigator in the race.
const turns = 20

// race lets a Services, a Batch and a Gang navigator plan at the same time on a constellation that is nearly full, and
// prints how many conflicts they have.
func race(ctx context.Context, o options, out io.Writer) error {
	w := makeWorld(options{nodes: 100, capsules: 2300, seed: o.seed})
	ledger, err := w.fill(ctx, (*group).gang)
	if err != nil {
		return err
	}
	m := &meeting{}
	racers := []*racer{
		{name: "services", meeting: m, Navigator: &nav.Services{}},
		{name: "batch", meeting: m, Navigator: &nav.Batch{}},
		{name: "gang", meeting: m, Navigator: &nav.Gang{}},
	}
	engines := make([]*orbit.Engine, len(racers))
	for i, r := range racers {
		engines[i] = &orbit.Engine{Name: r.name, Ledger: ledger, Navigator: r, MaxPlan: 100}
	}
	for turn := range turns {
		m.begin(len(racers))
		var group errgroup.Group
		for i, r := range racers {
			group.Go(func() error { return r.pass(ctx, engines[i], turn+1) })
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("race: %w", err)
		}
	}
	state, err := ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := state.Verify(); err != nil {
		return fmt.Errorf("race: the ledger's books are wrong: %w", err)
	}
	printRace(out, w, racers, state)
	return nil
}

// stillFits counts the pending capsules that a node could take. It does not count members of gangs, which need more
// than one node.
func stillFits(state *orbit.State) (n int) {
	for _, c := range state.Pending() {
		if c.Gang() != "" {
			continue
		}
		for node := range state.Nodes() {
			if node.Fits(c.Spec) {
				n++
				break
			}
		}
	}
	return n
}
