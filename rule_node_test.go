package orbit

import (
	"context"
	"testing"
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
