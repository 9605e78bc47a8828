package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// hourly is a Retry that comes too late to help.
var hourly = orbit.Backoff{Initial: time.Hour, Max: time.Hour, Jitter: -1}

// respec returns a Respec of a capsule as it is now.
func (s *stage) respec(id orbit.CapsuleID, spec *orbit.Spec) orbit.Respec {
	return orbit.Respec{Capsule: id, Since: s.state().Capsule(id).PlacedAt, Spec: spec}
}

// What all schedulers have failed goes to one again as soon as a spec changes: its own, that of a member of its gang, or
// that of what takes the room. So it does, too, if its gang gets another member. Run wakes for it.
func TestAnotherSpecIsTriedAtOnce(t *testing.T) {
	gang := func(role string, spec *orbit.Spec, join bool, members ...orbit.CapsuleID) orbit.Submit {
		return orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: role, Spec: spec, Members: members, Min: 1}}}, Join: join}
	}
	for name, c := range map[string]struct {
		submit orbit.Submit
		change func(*stage) orbit.Commitment
	}{
		"its own":                 {orbit.Submit{IDs: ids("x", 1), Spec: cpu(5)}, func(s *stage) orbit.Commitment { return s.respec("x000", cpu(1)) }},
		"that of a member":        {gang("w", cpu(5), false, "x000", "x001"), func(s *stage) orbit.Commitment { return s.respec("x001", cpu(1)) }},
		"that of what runs there": {orbit.Submit{IDs: ids("x", 1), Spec: cpu(3)}, func(s *stage) orbit.Commitment { return s.respec("runs", cpu(1)) }},
		"it gets another member":  {gang("w", cpu(5), false, "x000"), func(*stage) orbit.Commitment { return gang("more", cpu(1), true, "x001") }},
		"it gets one of a scheduler": {gang("w", cpu(5), false, "x000"), func(*stage) orbit.Commitment {
			join := gang("more", cpu(1), true, "x001")
			join.Owner = "a"
			return join
		}},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t)
					s.live("a", "b")
					s.do(node("n", 4), orbit.Submit{IDs: []orbit.CapsuleID{"runs"}, Spec: cpu(2)}, orbit.Place{Capsule: "runs", Node: "n"},
						orbit.Mark{Key: groupMark.key("n"), Value: "a"})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Retry: hourly, Strict: strict}
					go d.Run(ctx)
					wait := func() { time.Sleep(10 * time.Millisecond); synctest.Wait() }
					s.do(c.submit)
					wait()
					for range 2 {
						s.giveBack(s.owner("x000"), "x000")
						wait()
					}
					require.Empty(t, s.owner("x000"), "all have failed it")
					s.do(c.change(s))
					wait()
					require.NotEmpty(t, s.owner("x000"))
				})
			})
		}
	}
}

// A failure that was planned on the spec of before is cleared although it is reported after the change; one that was
// planned on the new spec is not, and neither does the room count that the former spec would take.
func TestFailuresOfTheFormerSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.live("a")
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Retry: hourly}
		s.do(orbit.Submit{IDs: ids("x", 1), Spec: cpu(5)})
		s.settle(d)
		view := s.state().Revision()
		s.do(s.respec("x000", cpu(3)))
		s.settle(d)
		failed := func(view orbit.Revision) {
			s.do(orbit.Assign{Capsule: "x000", From: "a"}, orbit.Mark{Key: "plan/capsule/failed/x000", Value: failures{list: []Failure{{"a", view, "no"}}}.value(1000)})
		}
		failed(view)
		s.settle(d)
		require.Equal(t, "a", s.owner("x000"), "it has failed the former spec")
		failed(s.state().Revision())
		s.settle(d)
		require.Empty(t, s.owner("x000"))
		s.do(node("n", 2))
		require.Empty(t, s.settle(d))
		s.do(node("n", 3))
		s.settle(d)
		require.Equal(t, "a", s.owner("x000"), "there is room for the new spec")
	})
}

// A dispatcher that starts tries what has another spec once, because it cannot know on which spec the failure rests.
func TestARestartTriesAnotherSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.live("a")
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Retry: hourly}
		s.do(orbit.Submit{IDs: ids("x", 2), Spec: cpu(5)})
		s.settle(d)
		s.giveBack("a", ids("x", 2)...)
		s.settle(d)
		s.do(s.respec("x000", cpu(3)))
		again := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Retry: hourly}
		s.settle(again)
		require.Equal(t, "a", s.owner("x000"))
		require.Empty(t, s.owner("x001"))
		s.giveBack("a", "x000")
		require.Len(t, s.settle(again), 1)
		require.Empty(t, s.owner("x000"))
	})
}

// What is adopted while it waits for a retry needs its failed mark no longer.
func TestAdoptedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.live("a")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go (&Dispatcher{Ledger: s.ledger, Leases: s.leases, Retry: hourly}).Run(ctx)
		wait := func() { time.Sleep(10 * time.Millisecond); synctest.Wait() }
		s.do(node("n", 1), orbit.Submit{IDs: ids("x", 1), Spec: cpu(5)})
		wait()
		s.giveBack("a", "x000")
		wait()
		require.NotEmpty(t, s.mark("plan/capsule/failed/x000"))
		s.do(orbit.Adopt{Capsule: "x000", Node: "n"})
		wait()
		require.Empty(t, s.mark("plan/capsule/failed/x000"))
	})
}

// Also while it may not be cleared again so soon, it is filed by its new spec, so that room for that helps it later.
func TestFiledByItsNewSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.live("a")
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Retry: hourly}
		s.do(orbit.Submit{IDs: ids("x", 1), Spec: cpu(20)})
		for i := range int64(freely + 1) {
			s.settle(d)
			s.giveBack("a", "x000")
			s.settle(d)
			s.do(s.respec("x000", cpu(10-i)))
		}
		s.settle(d)
		require.Empty(t, s.owner("x000"), "it has had another spec too often")
		spec := s.state().Capsule("x000").Spec
		require.Equal(t, []*orbit.Spec{spec}, d.failing.units[unit{id: "x000"}].specs)
		require.Len(t, d.failing.classes, 1)
		require.Same(t, spec, d.failing.classes[0].spec)
		s.do(orbit.Release{Capsule: "x000", Final: true})
		s.settle(d)
		require.Empty(t, d.altered)
	})
}
