package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// way is a way to start groups.
type way struct {
	name       string
	ask        func(*group) orbit.Submit
	navigators func() []orbit.Navigator
}

var ways = []way{
	{"affinity", (*group).near, func() []orbit.Navigator { return []orbit.Navigator{&nav.Services{}, &nav.Batch{}} }},
	{"anchors", (*group).near, func() []orbit.Navigator {
		return []orbit.Navigator{&nav.Anchor{Navigator: &nav.Services{}}, &nav.Batch{}}
	}},
	{"gang", (*group).gang, func() []orbit.Navigator {
		return []orbit.Navigator{&nav.Services{}, &nav.Batch{}, &nav.Gang{}}
	}},
}

// start is the state of one way, on a ledger of its own.
type start struct {
	way     way
	world   *world
	ledger  *orbit.MemoryLedger
	engines []*orbit.Engine
	watch   nav.GroupWatch
	// bound is the number of bound capsules after each pass of all navigators.
	bound     []int
	conflicts int
	errors    []error

	// The results of the groups at the end.
	whole, racks int
	why          string
}

func begin(ctx context.Context, way way, w *world, o options) (*start, error) {
	ledger, err := w.fill(ctx, way.ask)
	if err != nil {
		return nil, err
	}
	s := &start{way: way, world: w, ledger: ledger}
	if _, err := s.watch.Refresh(ctx, ledger, time.Time{}); err != nil {
		return nil, err
	}
	for i, n := range way.navigators() {
		s.engines = append(s.engines, &orbit.Engine{Name: fmt.Sprintf("%s-%d", way.name, i), Ledger: ledger, Navigator: n, MaxPlan: o.plan})
	}
	return s, nil
}

// pass lets each navigator pass once. They pass one after another, so that a run can be repeated.
func (s *start) pass(ctx context.Context) {
	for _, e := range s.engines {
		round := e.Pass(ctx)
		s.conflicts += round.Conflicts
		s.errors = append(s.errors, round.Errors...)
		for _, u := range round.Unplaced {
			s.why = fmt.Sprintf("%s: %v", u.Capsule.ID, u.Why)
		}
	}
	state, err := s.ledger.Snapshot(ctx)
	if err != nil {
		return // the context has ended
	}
	s.bound = append(s.bound, s.world.capsules()-state.PendingCount())
}

// share returns which part of the capsules is bound, in percent.
func (s *start) share() float64 {
	if len(s.bound) == 0 {
		return 0
	}
	return percent(s.bound[len(s.bound)-1], s.world.capsules())
}

// finish verifies the state, and counts the groups that are whole and the racks of their members.
func (s *start) finish(ctx context.Context) error {
	state, err := s.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := state.Verify(); err != nil {
		return fmt.Errorf("%s: the ledger's books are wrong: %w", s.way.name, err)
	}
	if len(s.errors) > 0 {
		return fmt.Errorf("%s: %d errors, the first: %w", s.way.name, len(s.errors), s.errors[0])
	}
	if _, err := s.watch.Refresh(ctx, s.ledger, time.Time{}); err != nil {
		return err
	}
	for i := range s.world.groups {
		placed, racks := 0, map[string]bool{}
		for _, id := range s.world.groups[i].ids() {
			c := state.Capsule(id)
			if !c.Placed() {
				continue
			}
			placed++
			racks[state.Node(c.Node).Node.Labels["rack"]] = true
		}
		if placed == s.world.groups[i].members {
			s.whole++
		}
		s.racks = max(s.racks, len(racks))
	}
	if state.PendingCount() == 0 {
		s.why = ""
	}
	return nil
}
