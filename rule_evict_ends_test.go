package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// endings is a ledger with work that ends when it is taken off its node.
type endings struct {
	*testing.T
	l *MemoryLedger
}

func (e *endings) commits(do ...Commitment) Revision {
	e.Helper()
	rev, err := e.l.Propose(context.Background(), Proposal{ID: NewProposalID(), View: e.now().rev, Do: do})
	if err != nil {
		e.Fatal(err)
	}
	if err := e.now().Verify(); err != nil {
		e.Fatal(err)
	}
	return rev
}

func (e *endings) refuses(says string, do ...Commitment) {
	e.Helper()
	_, err := e.l.Propose(context.Background(), Proposal{View: e.now().rev, Do: do})
	if !errors.Is(err, ErrInfeasible) || !strings.Contains(err.Error(), says) {
		e.Errorf("%v: %v; it must be infeasible: %s", do, err, says)
	}
}

func (e *endings) now() *State {
	s, _ := e.l.Snapshot(context.Background())
	return s
}

// is requires what has become of a capsule: "placed", "pending" or "ended".
func (e *endings) is(want string, ids ...CapsuleID) {
	e.Helper()
	for _, id := range ids {
		c := e.now().Capsule(id)
		if got := map[bool]string{c.Placed(): "placed", c.Pending(): "pending", c.Released(): "ended"}[true]; got != want {
			e.Errorf("capsule %q is %s; it must be %s", id, got, want)
		}
	}
}

func (e *endings) off(id CapsuleID, cause CapsuleID) Evict {
	c := e.now().Capsule(id)
	return Evict{Capsule: id, From: c.Node, Since: c.PlacedAt, For: cause}
}

func (e *endings) begun(ids ...CapsuleID) (do []Commitment) {
	for _, id := range ids {
		do = append(do, Confirm{Capsule: id, Since: e.now().Capsule(id).PlacedAt, Begun: true})
	}
	return do
}

func newEndings(t *testing.T, capacity int64) *endings {
	e := &endings{t, &MemoryLedger{}}
	e.commits(PutNode{Node{ID: "n", Capacity: Resources{CPU: capacity}, Confirms: true}}, PutNode{Node{ID: "m", Capacity: Resources{CPU: capacity}}})
	return e
}

func pod(priority int32, cpu int64) *Spec {
	return &Spec{Priority: priority, Envelope: Envelope{Reservation: Resources{CPU: cpu}}, Ends: true}
}

// TestEvictedEnds evicts work that ends with that: if it has begun, its record is final and it still stops on its node;
// if it has not, it is pending again; and a victim that is spared runs on.
func TestEvictedEnds(t *testing.T) {
	e := newEndings(t, 4)
	e.commits(Submit{IDs: []CapsuleID{"a", "b", "c", "d"}, Spec: pod(0, 1)}, Submit{IDs: []CapsuleID{"x"}, Spec: pod(9, 2)}, Submit{IDs: []CapsuleID{"y"}, Spec: pod(9, 1)})
	e.commits(Place{Capsule: "a", Node: "n"}, Place{Capsule: "b", Node: "n"}, Place{Capsule: "c", Node: "n"}, Place{Capsule: "d", Node: "m"})
	e.commits(e.begun("a", "b")...)
	e.refuses("ends by this proposal", e.off("a", "x"), e.off("b", "x"), Place{Capsule: "x", Node: "n"}, Place{Capsule: "a", Node: "m"})
	e.commits(e.off("a", "x"), e.off("b", "x"), Place{Capsule: "x", Node: "n"}) // of the two, one is needed
	e.is("placed", "a", "c", "x")
	e.is("ended", "b")
	if r := e.now().Capsule("b").Remains(); r == nil || !e.now().Capsule("x").Waits {
		t.Errorf("the victim has begun: it leaves %v, and %v", r, e.now().Capsule("x"))
	}
	e.commits(e.off("c", "y"), Place{Capsule: "y", Node: "n"})
	e.is("pending", "c")
	e.commits(Submit{IDs: []CapsuleID{"z"}, Spec: pod(9, 4)}, e.off("d", "z"), Place{Capsule: "z", Node: "m"}) // on a node without an agent, what is placed runs
	e.is("ended", "d")
	e.refuses("released for good", Place{Capsule: "d", Node: "n"})
	e.commits(Submit{IDs: []CapsuleID{"d"}, Spec: pod(0, 1)})
	e.is("pending", "d")
}

// TestReleasedEnds takes work off nodes that are lost, cordoned and gone, and moves it.
func TestReleasedEnds(t *testing.T) {
	e := newEndings(t, 9)
	movable := pod(0, 1)
	movable.Movable = true
	e.commits(Submit{IDs: []CapsuleID{"a", "b", "c", "d", "waits"}, Spec: pod(0, 1)}, Submit{IDs: []CapsuleID{"v"}, Spec: movable}, PutBudget{Budget{ID: "b", Group: "g"}})
	for _, id := range []CapsuleID{"a", "b", "c", "d", "waits", "v"} {
		e.commits(Place{Capsule: id, Node: "n"})
	}
	e.commits(e.begun("a", "b", "c", "d", "v")...)
	e.refuses("ready", Release{Capsule: "a"})
	e.commits(PutNode{Node{ID: "k", Capacity: Resources{CPU: 1}, Confirms: true}})
	e.commits(e.off("v", ""), Place{Capsule: "v", Node: "k"}) // a move is no end
	e.is("placed", "v")
	e.commits(Release{Capsule: "d", Stopped: true}) // its start has failed
	e.is("pending", "d")
	e.commits(PutNode{Node{ID: "n", Capacity: Resources{CPU: 9}, Confirms: true, State: Cordoned}})
	e.refuses("not movable", e.off("a", ""), Place{Capsule: "a", Node: "m"}) // though the node is cordoned
	e.commits(Release{Capsule: "a"})
	e.is("ended", "a")
	e.refuses("ends by this proposal", PutNode{Node{ID: "n", State: Lost}}, Release{Capsule: "b"}, Place{Capsule: "b", Node: "m"})
	e.commits(PutNode{Node{ID: "n", State: Lost, Confirms: true}}, Release{Capsule: "b"})
	e.is("ended", "b")
	e.commits(RemoveNode{Node: "n", Gone: true})
	e.is("ended", "c")
	e.is("pending", "waits", "d")
}

// TestMembersEnd evicts members of gangs that end with that. A gang may not be evicted below its minimum because its
// members end; afterwards those that have ended are done, and the gang needs as many fewer.
func TestMembersEnd(t *testing.T) {
	e := newEndings(t, 6)
	low := pod(0, 1)
	low.Class = GangClass
	e.commits(Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "w", Spec: low, Members: []CapsuleID{"a", "b", "c"}, Min: 2}}}}, Submit{IDs: []CapsuleID{"x", "y"}, Spec: pod(9, 4)},
		Submit{Gang: &Gang{ID: "all", Roles: []Role{{Name: "w", Spec: low, Members: []CapsuleID{"p", "q"}}}}}, Submit{IDs: []CapsuleID{"z"}, Spec: pod(9, 5)})
	e.commits(Place{Capsule: "a", Node: "m"}, Place{Capsule: "b", Node: "m"}, Place{Capsule: "c", Node: "m"}, Place{Capsule: "p", Node: "n"}, Place{Capsule: "q", Node: "n"})
	e.commits(e.begun("p", "q")...)
	e.refuses("at least 2", e.off("p", "z"), Place{Capsule: "z", Node: "n"})
	e.commits(e.off("a", "x"), Place{Capsule: "x", Node: "m"})
	e.is("ended", "a")
	g := e.now().Gang("g")
	if g.Done[0] != 1 || g.Minimum(0) != 2 || g.Broken() {
		t.Errorf("gang %+v has %d done, and needs %d", g, g.Done, g.Minimum(0))
	}
	e.commits(Release{Capsule: "x", Final: true}, e.off("b", "y"), e.off("c", "y"), Submit{IDs: []CapsuleID{"w"}, Spec: pod(9, 2)}, Place{Capsule: "y", Node: "m"}, Place{Capsule: "w", Node: "m"})
	e.is("ended", "b", "c")
	e.commits(RemoveNode{Node: "n", Gone: true})
	e.is("ended", "p", "q")
}

// TestEndsIsStored reads a spec that ends from its JSON form, from a dump, and from a history.
func TestEndsIsStored(t *testing.T) {
	e := newEndings(t, 4)
	e.commits(Submit{IDs: []CapsuleID{"a"}, Spec: pod(1, 1)}, Submit{IDs: []CapsuleID{"b"}, Spec: &Spec{}})
	text, err := json.Marshal(e.now().Capsule("a").Spec)
	if err != nil || !strings.Contains(string(text), `"ends":true`) {
		t.Errorf("%s, %v", text, err)
	}
	if text, _ := json.Marshal(e.now().Capsule("b").Spec); strings.Contains(string(text), "ends") {
		t.Errorf("%s", text)
	}
	var dump strings.Builder
	if err := e.now().Dump(&dump); err != nil {
		t.Fatal(err)
	}
	s := &State{}
	if err := s.Restore(strings.NewReader(dump.String())); err != nil {
		t.Fatal(err)
	}
	if s.Capsule("a").Spec != e.now().Capsule("a").Spec || s.Capsule("b").Spec.Ends {
		t.Error("the dump has other specs")
	}
	change := Change{Revision: 3, Do: RemoveNode{Node: "n", Gone: true}}
	text, err = json.Marshal(change)
	var back Change
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || back.Do != change.Do || !strings.Contains(string(text), `"gone":true`) {
		t.Errorf("%s, %v, %v", text, back, err)
	}
}
