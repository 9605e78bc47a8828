package place

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/score"
)

// haunt makes most nodes of a country a last resort for some: starts fail there, or what has left them does not stop.
func (r *rivals) haunt(t *rapid.T) {
	fails := rapid.Bool().Draw(t, "fails")
	for _, n := range r.some(few(t)) {
		for range 1 + r.rng.IntN(3) {
			spec := r.specs[r.rng.IntN(len(r.specs))]
			r.serial++
			id := orbit.CapsuleID(fmt.Sprint("w", r.serial))
			set, _ := snapshotOf(t, r.ledger).Node(n.Node.ID).PickDevices(spec)
			if !r.try(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: n.Node.ID, Devices: set}) {
				continue
			}
			if fails {
				r.try(orbit.Release{Capsule: id, Stopped: true, At: orbit.Instant(r.now.UnixNano())})
				continue
			}
			r.try(orbit.Confirm{Capsule: id, Since: snapshotOf(t, r.ledger).Capsule(id).PlacedAt, Begun: true})
			r.try(orbit.Release{Capsule: id, Final: true})
		}
	}
	r.sync(t)
}

// again has one that has failed wait again and asks for it.
func (r *rivals) again(t *rapid.T) {
	var all []*orbit.Capsule
	s := r.engines[0].View().State()
	for c := range s.Failed() {
		if c.Pending() && c.Gang() == "" {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return
	}
	c := rapid.SampledFrom(all).Draw(t, "failed")
	for _, e := range r.engines {
		e.LookAs(c)
	}
	choices, ok := r.ask(t, c.Spec)
	if ok && rapid.Bool().Draw(t, "is placed") && !r.engines[0].Uses(c.ID) {
		want := fmt.Sprint(r.engines[0].Place(c, choices[0]))
		for i, e := range r.engines[1:] {
			require.Equal(t, want, fmt.Sprint(e.Place(c, choices[i+1])))
		}
		for i, e := range r.engines {
			if p := e.Propose(); i == 0 && want == "<nil>" {
				r.plan = append(r.plan, reserved{proposal: p})
			}
		}
		return
	}
	for _, e := range r.engines {
		e.LookAs(nil)
	}
}

// TestLastResortsComeLast: where starts fail, and where what has left does not stop, all engines choose what Exhaustive chooses, and that is a last
// resort only if nothing else would do: for specs, and for single capsules that have failed somewhere.
func TestLastResortsComeLast(t *testing.T) {
	for total := range scale.Reach(t, "chosen", "passed over") {
		rapid.Check(t, func(t *rapid.T) {
			r := newRivals(t, false)
			r.haunt(t)
			r.haunt(t)
			actions := map[string]func(*rapid.T){
				"": r.checkIndex, "batch": r.batch, "mixture": r.mixture, "again": r.again, "again more": r.again, "haunt": r.haunt, "haunt more": r.haunt, "work": r.work, "stop": r.stop,
				"release": r.release, "mark": r.mark, "rollback": r.rollback, "commit": r.commit, "sync": r.sync, "collide": r.collide, "change": r.change, "report": r.report,
			}
			t.Repeat(actions)
			total["chosen"] += r.last
			total["passed over"] += r.passed
		})
	}
}

// TestAskPassesOverWhereACapsuleHasFailed: while a draft is asked for a capsule that has failed on the best node, another is the best, in a search under
// way, among scores that are kept, and among few nodes; afterwards it is the first again. When nothing else is left, the capsule goes there.
func TestAskPassesOverWhereACapsuleHasFailed(t *testing.T) {
	now := orbit.Instant(time.Unix(1000, 0).UnixNano())
	few := ofModule("m", 3)
	few.Require = predicates("orbit/node in (n098, n099)")
	for name, test := range map[string]struct {
		engine orbit.PlacementEngine
		spec   *orbit.Spec
	}{
		"search": {&Indexed{}, ofModule("m", 3)}, "kept": {&Indexed{Score: roomyWithoutBound}, ofModule("m", 3)}, "few": {&Indexed{}, few}, "all": {&Exhaustive{}, ofModule("m", 3)},
	} {
		t.Run(name, func(t *testing.T) {
			l, v, refresh, _ := attackWorld(t)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"failed", "other"}, Spec: test.spec})
			refresh()
			e := draftFor(test.engine)
			node := func(c *orbit.Capsule) orbit.NodeID {
				e.LookAs(c)
				choice, err := e.best(v.State().Capsule("failed").Spec)
				require.NoError(t, err)
				return choice.Node.Node.ID
			}
			e.Sync(v)
			first := node(nil)
			commit(t, l, orbit.Place{Capsule: "failed", Node: first})
			commit(t, l, orbit.Release{Capsule: "failed", Stopped: true, At: now})
			refresh()
			e.Sync(v)
			require.Equal(t, first, node(nil), "one failure says nothing about others")
			second := node(v.State().Capsule("failed"))
			require.NotEqual(t, first, second)
			require.Equal(t, first, node(v.State().Capsule("other")))
			require.Equal(t, second, node(v.State().Capsule("failed")))
			for n := range v.State().Nodes() {
				if n.Node.ID != first {
					cordoned := *n.Node
					cordoned.Cordon(true)
					commit(t, l, orbit.PutNode{Node: cordoned})
				}
			}
			refresh()
			e.Sync(v)
			require.Equal(t, first, node(v.State().Capsule("failed")), "nothing else is left")
		})
	}
}

// roomyWithoutBound is a score that an index cannot search.
var roomyWithoutBound = score.Func(func(n *orbit.NodeState, r *orbit.Report, s *orbit.Spec) (value, tie float64) {
	return roomy.Score(n, r, s)
})
