package ledgertest

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// This file checks malformed input and the limits.

// checkInvalid sends malformed commitments, alone and after a correct one.
func checkInvalid(t *trial) {
	t.commits(node("n", 5), submit(cpu(1), "a", "b"), place("a", "n"))
	before := t.now()
	for i, bad := range t.malformed() {
		for at, do := range [][]orbit.Commitment{{bad}, {place("b", "n"), bad}} {
			p := planned(math.MaxUint64*orbit.Revision(at), do...)
			_, err := t.ledger.Propose(t.ctx, p)
			if r := t.receipt(orbit.ErrInvalid, p, err); r.Do != at {
				t.Failf("hostile input %d, %s: the receipt blames commitment %d, not %d: %v", i, harness.Describe(p), r.Do, at, r)
			}
		}
	}
	for _, bad := range []orbit.Precondition{
		nil, &orbit.NodeFreeOf{Node: "n"}, (*orbit.MarkAt)(nil), orbit.NodeFreeOf{}, orbit.NodeFreeOf{Node: "n", AtLeast: orbit.Resources{7: -1}},
		orbit.GangUnplaced{}, orbit.NodeAt{}, orbit.GroupIn{}, orbit.GroupIn{Group: "g", Domain: "d"}, orbit.GroupIn{Group: "g", Level: "l"}, orbit.MarkAt{},
	} {
		p := bets(0, bad)
		_, err := t.ledger.Propose(t.ctx, p)
		t.receipt(orbit.ErrInvalid, p, err)
	}
	_, err := t.ledger.Propose(t.ctx, orbit.Proposal{})
	t.receipt(orbit.ErrInvalid, orbit.Proposal{}, err)
	t.unchanged(before, "hostile input")
	t.mistakes(place("b", "\xff")) // a malformed id that only refers to a node is not invalid: there is no such node
	t.commits(place("b", "n"))
}

// malformed returns commitments that no ledger accepts.
func (t *trial) malformed() []orbit.Commitment {
	long := strings.Repeat("x", t.limits.IDBytes+1)
	spec := func(change func(s *orbit.Spec)) orbit.Commitment {
		s := cpu(1)
		change(s)
		return submit(s, "z")
	}
	weight := func(w float64) orbit.Commitment {
		return spec(func(s *orbit.Spec) {
			s.Prefer = []orbit.Preference{{Predicate: orbit.Predicate{Key: "k", Op: "Exists"}, Weight: w}}
		})
	}
	company := func(c orbit.Company) orbit.Commitment {
		return spec(func(s *orbit.Spec) { s.PreferCompany = []orbit.Company{c} })
	}
	described := func(n orbit.Node) orbit.Commitment { return orbit.PutNode{Node: n} }
	holds := func(h orbit.Hold) orbit.Commitment { return h }
	year := func(y int) orbit.Commitment {
		return orbit.Hold{ID: "h", Node: "n", Room: orbit.Resources{1}, Ends: time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	return []orbit.Commitment{
		nil, &orbit.Place{Capsule: "b", Node: "n"}, (*orbit.Mark)(nil),
		orbit.Place{}, place("b", ""), place("", "n"), place(orbit.CapsuleID(long), "n"), orbit.Place{Capsule: "b", Node: "n", Note: "\xff"},
		orbit.Place{Capsule: "b", Node: "n", At: -1}, orbit.Submit{IDs: []orbit.CapsuleID{"z"}, Spec: cpu(1), At: -1},
		orbit.Submit{IDs: []orbit.CapsuleID{"z"}, Spec: cpu(1), Labels: map[string]string{"": "x"}},
		orbit.Release{}, orbit.Release{Capsule: "a", Hold: "h"}, orbit.Release{Hold: "h", Final: true}, orbit.Release{Hold: "h", From: "n"},
		orbit.Submit{Spec: cpu(-1)}, submit(nil, "z"), submit(cpu(1), ""), submit(cpu(1), "z", "z"), submit(cpu(-1), "z"), submit(cpu(math.MinInt64), "z"),
		submit(cpu(1), "\xff"), submit(cpu(1), orbit.CapsuleID(long)),
		gang("", 0, "z"), gang("g", -1, "z"), gang("g", 2, "z"), gang("g", 0), gang("g", 0, "z", "z"), orbit.Submit{Gang: &orbit.Gang{ID: "g"}},
		orbit.Submit{Gang: gang("g", 0, "z").Gang, Spec: cpu(1), IDs: []orbit.CapsuleID{"y"}},
		weight(math.NaN()), weight(math.Inf(1)), weight(math.Inf(-1)),
		company(orbit.Company{}), company(orbit.Company{Group: "g", Weight: 1}), company(orbit.Company{Level: "rack", Weight: 1}),
		company(orbit.Company{Group: "g", Level: "rack", Weight: math.NaN()}), company(orbit.Company{Group: "g", Level: "rack", Weight: math.Inf(1)}), company(orbit.Company{Group: "g", Level: "rack", Weight: 1e101}),
		spec(func(s *orbit.Spec) {
			s.PreferCompany = slices.Repeat([]orbit.Company{{Group: "g", Level: "rack", Weight: 1}}, 17)
		}),
		spec(func(s *orbit.Spec) { s.Envelope.Limit[orbit.Memory] = -1 }), spec(func(s *orbit.Spec) { s.Class = 9 }), spec(func(s *orbit.Spec) { s.RunsAtMost = -1 }),
		spec(func(s *orbit.Spec) { s.Require = []orbit.Predicate{{Key: "k", Op: "Equals"}} }), spec(func(s *orbit.Spec) { s.Near.Group = "g" }),
		spec(func(s *orbit.Spec) { s.Devices.Milli = 5 }), spec(func(s *orbit.Spec) { s.Devices = orbit.DeviceRequest{Count: 1, Milli: 1001} }),
		spec(func(s *orbit.Spec) { s.Devices = orbit.DeviceRequest{Count: 17, Milli: 1} }),
		described(orbit.Node{}), node("n", -1), gpuNode("n", 17), gpuNode("n", -1), described(orbit.Node{ID: "n", Devices: orbit.Devices{Count: 1}}),
		described(orbit.Node{ID: "n", Labels: map[string]string{"": "x"}}), described(orbit.Node{ID: "n", Labels: map[string]string{"k": "\xff"}}),
		described(orbit.Node{ID: "n", Devices: orbit.Devices{Model: "A", Count: 1, Unhealthy: 2}}), orbit.RemoveNode{},
		hold("", "n", 1), hold("h", "", 1), hold("h", "n", -1), hold("h", "n", 0), year(10000), year(0), holds(orbit.Hold{ID: "h", Node: "n", Room: orbit.Resources{1}}),
		holds(orbit.Hold{ID: "h", Node: "n", Devices: 1, Ends: someday}), holds(orbit.Hold{ID: "h", Node: "n", Devices: 1, Milli: 1001, Ends: someday}),
		orbit.Assign{}, orbit.Assign{Capsule: "a", Owner: long}, mark("", "v"), mark(long, "v"), mark("\xff", "v"),
		mark("k", strings.Repeat("x", t.limits.ValueBytes+1)),
	}
}

// most is the largest limit that the suite tries out.
const most = 1 << 17

// checkLimits uses each limit fully, and exceeds it by one.
func checkLimits(t *trial) {
	l := t.limits
	if again := t.peer.Limits(); again != l || t.now().Limits() != l {
		t.Failf("limits are %+v; the other handle says %+v, and the state %+v", l, again, t.now().Limits())
	}
	for _, n := range []int{l.Commitments, l.Preconditions, l.Capsules, l.GangMembers, l.IDBytes, l.SpecBytes, l.ValueBytes, l.History, l.Terminal, l.ProposalIDs, l.PlacementIDs} {
		if n <= 0 {
			t.Failf("a limit is %d; all are filled in and positive: %+v", n, l)
		}
	}
	t.commits(node("n", 1))
	before := t.now()
	for _, over := range t.overTheLimits() {
		_, err := t.ledger.Propose(t.ctx, over)
		if r := t.receipt(orbit.ErrInvalid, over, err); len(r.Error()) > 10_000 {
			t.Failf("the receipt has %d bytes; faults must not be listed without end", len(r.Error()))
		}
	}
	t.unchanged(before, "what is over the limits")
	full := mark(strings.Repeat("k", l.IDBytes), strings.Repeat("v", l.ValueBytes))
	t.commits(full, submit(cpu(1), orbit.CapsuleID(strings.Repeat("c", l.IDBytes))))
	if value, _ := t.now().Mark(full.Key); value != full.Value {
		t.Failf("a mark of %d bytes reads back with %d", len(full.Value), len(value))
	}
	if l.Commitments <= most {
		t.commits(marks("m", l.Commitments)...)
	}
	if l.Capsules <= most {
		t.commits(submit(cpu(1), ids[orbit.CapsuleID]("c", l.Capsules)...))
	}
	t.Notef("%+v", l)
}

// marks returns n commitments that set a mark each.
func marks(prefix string, n int) []orbit.Commitment {
	do := make([]orbit.Commitment, n)
	for i, key := range ids[string](prefix, n) {
		do[i] = mark(key, "v")
	}
	return do
}

// overTheLimits returns proposals that exceed one limit each, except limits above most.
func (t *trial) overTheLimits() (out []orbit.Proposal) {
	l := t.limits
	add := func(do ...orbit.Commitment) {
		out = append(out, planned(t.base.Revision(), do...))
	}
	if l.Commitments <= most {
		add(marks("m", l.Commitments+1)...)
	}
	if l.Preconditions <= most {
		out = append(out, bets(0, slices.Repeat([]orbit.Precondition{orbit.MarkAt{Key: "none"}}, l.Preconditions+1)...))
	}
	if l.Capsules <= most {
		add(submit(cpu(1), ids[orbit.CapsuleID]("c", l.Capsules+1)...))
	}
	if l.GangMembers <= most {
		add(gang("g", 1, ids[orbit.CapsuleID]("c", l.GangMembers+1)...))
	}
	if l.SpecBytes <= most {
		long := cpu(1)
		for _, v := range ids[string]("value", l.SpecBytes/9+1) {
			long.Prefer = append(long.Prefer, orbit.Preference{Predicate: orbit.Predicate{Key: "k", Op: "In", Values: []string{v}}, Weight: 1})
		}
		add(submit(long, "c"))
		labelled := node("n", 1)
		labelled.Node.Labels["long"] = strings.Repeat("x", l.SpecBytes+1)
		add(labelled)
		add(orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: cpu(1), Labels: labelled.Node.Labels})
	}
	add(orbit.Place{Capsule: "c", Node: "n", Note: strings.Repeat("x", l.ValueBytes+1)})
	return out
}
