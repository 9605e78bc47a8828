package orbit

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestEqualPutNode puts a description that the node has already: nothing changes, and nobody is woken.
func TestEqualPutNode(t *testing.T) {
	ctx := context.Background()
	node := Node{ID: "n", Capacity: Resources{CPU: 4}, Labels: map[string]string{"zone": "a"}, Taints: []Taint{{Key: "k", Effect: "NoSchedule"}}, Extras: []Extra{{Name: "b", Amount: 1}, {Name: "a", Amount: 2}}}
	l := &MemoryLedger{}
	propose := func(p Proposal) Revision {
		t.Helper()
		rev, err := l.Propose(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	made := propose(Proposal{Do: []Commitment{PutNode{node}}})
	if rev := propose(Proposal{Do: []Commitment{PutNode{node.Clone()}, PutNode{node}}}); rev != made {
		t.Errorf("an equal description makes revision %d after %d", rev, made)
	}
	// A proposal with an id is remembered, so it takes a revision, and nothing else.
	again := Proposal{ID: NewProposalID(), Do: []Commitment{PutNode{node}}}
	rev := propose(again)
	other := node.Clone()
	other.Labels["zone"] = "b"
	propose(Proposal{Do: []Commitment{PutNode{other}}})
	if got := propose(again); got != rev {
		t.Errorf("sent again, the proposal was committed at %d; the first time at %d", got, rev)
	}
	changed := propose(Proposal{Do: []Commitment{PutNode{other}, Mark{Key: "m", Value: "v"}, PutNode{other}}})
	s, _ := l.Snapshot(ctx)
	n := s.Node("n")
	if n.Node.Labels["zone"] != "b" || n.Specification != rev+1 {
		t.Errorf("the node is in zone %q, described at %d; it must be b, at %d", n.Node.Labels["zone"], n.Specification, rev+1)
	}
	changes, _ := l.Changes(ctx, 0)
	if len(changes) != 4 {
		t.Fatalf("%d changes: %v", len(changes), changes)
	}
	if nothing, is := changes[1].Do.(Submit); !is || len(nothing.IDs) > 0 || nothing.Gang != nil || changes[1].ID != again.ID {
		t.Errorf("in place of the equal description the history has %#v", changes[1])
	}
	if mark, is := changes[3].Do.(Mark); !is || mark.Key != "m" || changes[3].Revision != changed || changes[3].Seq != 0 {
		t.Errorf("beside equal descriptions the history has %#v", changes[3])
	}
	copied, err := newState(Limits{}, [Dimensions]string{}).Apply(changes)
	if err != nil {
		t.Fatal(err)
	}
	if d := diffStates(copied, s); d != "" {
		t.Errorf("the history leads to another state:\n%s", d)
	}
}

// TestNodeGone removes a node with all that is on it: capsules, one of them protected and under a budget, a whole gang and
// a part of one, a capsule that still stops, a hold, and nominations of a capsule and of a gang.
func TestNodeGone(t *testing.T) {
	ctx := context.Background()
	l := &MemoryLedger{}
	propose := func(p Proposal) Revision {
		t.Helper()
		rev, err := l.Propose(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := l.Snapshot(ctx)
		if err := s.Verify(); err != nil {
			t.Fatal(err)
		}
		return rev
	}
	someday := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	node := func(id NodeID) PutNode {
		return PutNode{Node{ID: id, Capacity: Resources{CPU: 20}, Devices: Devices{Model: "m", Count: 2}, Confirms: true}}
	}
	one := Envelope{Reservation: Resources{CPU: 1}}
	of := func(group string) *Spec { return &Spec{Class: GangClass, Envelope: one, Group: group} }
	gang := func(id GangID, members ...CapsuleID) Submit {
		return Submit{Gang: &Gang{ID: id, Roles: []Role{{Name: "w", Spec: of(""), Members: members}}}}
	}
	room := func(n NodeID) []NominatedRoom { return []NominatedRoom{{Node: n, Room: Resources{CPU: 1}}} }
	propose(Proposal{Do: []Commitment{
		node("n"), node("m"), PutBudget{Budget{ID: "b", Group: "g", Expected: 1}},
		Submit{IDs: []CapsuleID{"a", "old", "next"}, Spec: of("g")}, Submit{IDs: []CapsuleID{"d"}, Spec: &Spec{Envelope: one, Devices: DeviceRequest{Count: 1, Milli: 1000}}},
		gang("whole", "w1", "w2"), gang("part", "p1", "p2"), gang("waits", "x1", "x2"),
		Place{Capsule: "a", Node: "n"}, Protect{Capsule: "a", For: 1}, Place{Capsule: "old", Node: "n"}, Place{Capsule: "d", Node: "n", Devices: 2},
		Place{Capsule: "w1", Node: "n"}, Place{Capsule: "w2", Node: "n"}, Place{Capsule: "p1", Node: "n"}, Place{Capsule: "p2", Node: "m"},
		Hold{ID: "h", Node: "n", Room: Resources{CPU: 1}, Ends: someday}, Hold{ID: "kept", Node: "m", Room: Resources{CPU: 1}, Ends: someday},
		Nominate{Capsule: "next", Parts: room("n"), Ends: someday}, Nominate{Gang: "waits", Parts: append(room("n"), room("m")...), Ends: someday},
	}})
	propose(Proposal{Do: []Commitment{Confirm{Capsule: "old", Since: 1, Begun: true}, Confirm{Capsule: "a", Since: 1, Begun: true}}})
	propose(Proposal{Do: []Commitment{Release{Capsule: "old", Final: true}}})
	view := propose(Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{"late"}, Spec: of("")}, Place{Capsule: "late", Node: "n"}}})

	gone := Proposal{ID: NewProposalID(), View: view - 1, Do: []Commitment{RemoveNode{Node: "n", Gone: true}}}
	before, _ := l.Snapshot(ctx)
	reduced, err := before.Judge(gone)
	if err != nil {
		t.Fatal(err)
	}
	rev := propose(gone)
	if again := propose(gone); again != rev {
		t.Errorf("sent again, it was committed at %d; the first time at %d", again, rev)
	}
	s, _ := l.Snapshot(ctx)
	for _, id := range []CapsuleID{"a", "d", "w1", "w2", "p1", "late"} {
		if c := s.Capsule(id); !c.Pending() || c.Begun || c.Devices != 0 || s.Failures(id).Attempts > 0 {
			t.Errorf("capsule %q was lost with its node; its record is %+v", id, c)
		}
	}
	if s.Node("n") != nil || s.Capsule("old").Remains() != nil || s.Protected("a") != 0 {
		t.Errorf("node %v, remains %v and protection %d are left", s.Node("n"), s.Capsule("old").Remains(), s.Protected("a"))
	}
	if !s.Gang("part").Broken() || s.Gang("whole").Total() != 0 || s.Capsule("p2").Node != "m" {
		t.Errorf("of gang \"part\" %v are placed, of \"whole\" %v", s.Gang("part").Placed, s.Gang("whole").Placed)
	}
	_, held := s.Hold("h")
	_, kept := s.Hold("kept")
	if held || !kept || s.Capsule("next").Nomination().Lives() || s.Gang("waits").Nomination.Lives() {
		t.Error("a hold or a nomination has outlived the node, or a hold of another node has not")
	}
	changes, _ := l.Changes(ctx, before.Revision())
	copied, err := before.Apply(changes)
	if err != nil {
		t.Fatal(err)
	}
	if d := diffStates(copied, s); d != "" || len(changes) != len(reduced.Do) {
		t.Errorf("the %d changes, of %d that Judge has said, lead to another state:\n%s", len(changes), len(reduced.Do), d)
	}

	// The machine has come back empty, and takes what it had.
	propose(Proposal{Do: []Commitment{RemoveNode{Node: "m", Gone: true}, node("m"), Place{Capsule: "a", Node: "m"}}})
	s, _ = l.Snapshot(ctx)
	if n := s.Node("m"); n.Capsules != 1 || n.Used() != one.Reservation || !s.Capsule("p2").Pending() {
		t.Errorf("the node that has come back has %d capsules, which use %v", n.Capsules, n.Used())
	}
	for _, p := range []Proposal{{Do: []Commitment{RemoveNode{Node: "n", Gone: true}}}, {Do: []Commitment{Mark{Key: "k", Value: "v"}, RemoveNode{Node: "m", Gone: true}, RemoveNode{Node: "m", Gone: true}}}} {
		var r *Rejection
		if _, err := l.Propose(ctx, p); !errors.As(err, &r) || r.Do != len(p.Do)-1 {
			t.Errorf("%v: %v; the last commitment must be refused: there is no such node", p.Do, err)
		}
	}
}
