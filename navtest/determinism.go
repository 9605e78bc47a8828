package navtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// The rule: two navigators of the factory that plan the same work on the same views make equal plans.
//
// How: both navigators plan within one pass on the same view, and the plan of the first one is committed. Plans are
// equal if they have the same proposals in the same order, and the same unplaced capsules in the same order with
// reasons that park alike. Proposal ids, notes, texts and the ends of holds are not compared. New holds are compared by
// the order in which they appear, because their ids may be random. If the ids differ, the navigators are not compared
// any further in that world, because only one of them will recognize its holds.

func checkDeterminism(t *trial) {
	t.scripts(func(w *world) {
		twin, parted := w.t.navigator(), false
		var difference error
		w.ask = func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
			plan, err := w.under.Plan(ctx, view, slices.Clone(pending))
			again, errAgain := twin.Plan(ctx, view, slices.Clone(pending))
			if !parted {
				difference = differ(view.State(), plan, err, again, errAgain)
			}
			parted = parted || !slices.Equal(newHolds(view.State(), plan), newHolds(view.State(), again))
			return plan, err
		}
		w.during = func(*call) error { return difference }
	}, nil)
}

// differ returns an error if two plans differ.
func differ(s *orbit.State, a orbit.Plan, errA error, b orbit.Plan, errB error) error {
	if (errA == nil) != (errB == nil) {
		return fmt.Errorf("plan on revision %d: one navigator returns the error %w, its twin %w", s.Revision(), errA, errB)
	}
	one, two := normal(s, a), normal(s, b)
	for i := range min(len(one), len(two)) {
		if one[i] != two[i] {
			return fmt.Errorf("plan on revision %d: one navigator says\n\t%s\nand its twin\n\t%s", s.Revision(), one[i], two[i])
		}
	}
	if len(one) != len(two) {
		return fmt.Errorf("plan on revision %d: one navigator says %d things and its twin %d, of which the first %d are equal",
			s.Revision(), len(one), len(two), min(len(one), len(two)))
	}
	return nil
}

// normal writes a plan as text, without what may be random.
func normal(s *orbit.State, plan orbit.Plan) (lines []string) {
	names := map[orbit.HoldID]orbit.HoldID{}
	for i, id := range newHolds(s, plan) {
		names[id] = orbit.HoldID(fmt.Sprint("new hold ", i))
	}
	for i, p := range plan.Proposals {
		if p.View == 0 {
			p.View = s.Revision()
		}
		line := []string{fmt.Sprintf("proposal %d on revision %d", i, p.View)}
		for _, do := range p.Do {
			line = append(line, fmt.Sprintf("%T%+v", do, rename(do, names)))
		}
		for _, bet := range p.If {
			line = append(line, fmt.Sprintf("if %T%+v", bet, bet))
		}
		lines = append(lines, strings.Join(line, "; "))
	}
	for _, u := range plan.Unplaced {
		lines = append(lines, fmt.Sprintf("unplaced %s, parked %v", idOf(u.Capsule), parks(u.Why)))
	}
	return lines
}

// rename gives new holds other names, and removes their ends.
func rename(do orbit.Commitment, names map[orbit.HoldID]orbit.HoldID) orbit.Commitment {
	switch do := do.(type) {
	case orbit.Hold:
		if name, is := names[do.ID]; is {
			do.ID, do.Ends = name, time.Time{}
		}
		return do
	case orbit.Release:
		if name, is := names[do.Hold]; is {
			do.Hold = name
		}
		return do
	}
	return do
}

// newHolds returns the ids of the holds that a plan makes, in order.
func newHolds(s *orbit.State, plan orbit.Plan) (ids []orbit.HoldID) {
	for _, p := range plan.Proposals {
		for _, do := range p.Do {
			if h, ok := do.(orbit.Hold); ok {
				if _, there := s.Hold(h.ID); !there {
					ids = append(ids, h.ID)
				}
			}
		}
	}
	return ids
}
