package ledgertest

import (
	"maps"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// This file checks the life of a capsule, from its submission until its record is dropped.

// checkOnce places one capsule twice, one proposal after the other. The second one gets a conflict, and a snapshot at
// the revision of its receipt shows the first one.
func checkOnce(t *trial) {
	t.commits(node("n", 5), node("m", 5), submit(cpu(3), "a"))
	view := t.view()
	won := t.commits(place("a", "n"))
	r := t.loses(view, place("a", "m"))
	if r.TakenAt != won || r.At < won {
		t.Failf("the receipt says taken at %d, judged at %d; capsule a was placed at %d", r.TakenAt, r.At, won)
	}
	if s := t.now(); s.Revision() < r.At {
		t.Failf("the receipt asks for a view at %d; a snapshot taken afterwards is at %d", r.At, s.Revision())
	}
	t.isOn("a", "n")
	if used := t.member("m").Used(); used != (orbit.Resources{}) {
		t.Failf("the loser has left %v used on its node", used)
	}
	t.mistakes(place("a", "m"))
	t.mistakes(place("absent", "m"))
	t.mistakes(submit(cpu(1), "b"), place("b", "n"), place("b", "m"))
	t.commits(submit(cpu(1), "b"), place("b", "m")) // submitted and placed at once
}

// checkFinal releases a capsule for good, and then tries every commitment on it.
func checkFinal(t *trial) {
	t.commits(node("n", 3), submit(cpu(1), "a", "b"), place("b", "n"))
	view := t.view()
	t.commits(cancel("a"))
	t.commits(cancel("b"))
	for _, id := range []orbit.CapsuleID{"a", "b"} {
		for _, late := range []orbit.Commitment{place(id, "n"), stopped(id), cancel(id), orbit.Assign{Capsule: id, Owner: "o"}} {
			t.loses(view, late)
			t.mistakes(late)
		}
		if c := t.capsule(id); !c.Released() || c.Pending() || c.Placed() {
			t.Failf("capsule %q is released: %v, pending: %v, placed: %v", id, c.Released(), c.Pending(), c.Placed())
		}
	}
	if free := t.free("n"); free != 3 {
		t.Failf("node n has %d free; nothing is on it", free)
	}
}

// checkReuse submits ids again whose capsules have ended: alone, as members of a gang, and in the proposal that ends them.
func checkReuse(t *trial) {
	t.commits(node("n", 9), node("old", 4), submit(cpu(1), "db-0"))
	early, start := t.view(), t.now()
	placed := planned(early, place("db-0", "old"))
	at := t.admits(placed)
	t.mistakes(submit(cpu(2), "db-0"))
	t.commits(cancel("db-0"))
	t.commits(submit(cpu(2), "db-0"))
	t.again(placed, at)
	if c := t.capsule("db-0"); !c.Pending() || c.PlacedAt != 0 || c.Spec.Envelope.Reservation[orbit.CPU] != 2 {
		t.Failf("db-0, submitted again, is pending: %v; it was placed at %d, and asks for %v", c.Pending(), c.PlacedAt, c.Spec.Envelope.Reservation)
	}
	t.commits(place("db-0", "n"))
	for _, late := range []orbit.Commitment{cancel("db-0"), stopped("db-0"), orbit.Assign{Capsule: "db-0", Owner: "o"}} {
		t.loses(early, late)
	}
	t.isOn("db-0", "n")
	t.again(placed, at)
	t.commits(cancel("db-0"), submit(cpu(1), "first", "second"), submit(cpu(1), "db-0"), submit(cpu(1), "last"), place("db-0", "n"))
	t.submittedInOrder("first", "second", "db-0", "last")
	t.commits(cancel("db-0"))
	t.commits(submit(cpu(1), "third"), submit(cpu(1), "db-0"), place("db-0", "n"))
	t.submittedInOrder("last", "third", "db-0")
	found := orbit.Adopt{Capsule: "found", Spec: cpu(1), Node: "n"}
	t.commits(found, submit(cpu(1), "fourth"), cancel("found"), submit(cpu(1), "found"))
	t.submittedInOrder("db-0", "fourth", "found")
	t.follows(start, t.peer)
}

// submittedInOrder checks that capsules were submitted one after the other.
func (t *trial) submittedInOrder(ids ...orbit.CapsuleID) {
	for i := range ids[1:] {
		if a, b := t.capsule(ids[i]).Submitted, t.capsule(ids[i+1]).Submitted; a >= b {
			t.Failf("capsule %q has number %d in the order of submission, capsule %q, which was submitted after it, %d", ids[i], a, ids[i+1], b)
		}
	}
}

// checkReuseWaits submits an id again while its former capsule still runs.
func checkReuseWaits(t *trial) {
	for _, id := range []orbit.NodeID{"a", "b"} {
		n := node(id, 4)
		n.Node.Confirms = true
		t.commits(n)
	}
	t.commits(submit(cpu(1), "db-0"), place("db-0", "a"))
	t.commits(t.begins("db-0"))
	start, since := t.now(), t.capsule("db-0").PlacedAt
	t.commits(cancel("db-0"))
	t.commits(submit(cpu(2), "db-0"))
	t.commits(place("db-0", "b"))
	t.mistakes(t.begins("db-0"))
	t.mistakes(orbit.RemoveNode{Node: "a"})
	t.commits(orbit.Confirm{Capsule: "db-0", Since: since, Stopped: true})
	t.commits(t.begins("db-0"))
	t.follows(start, t.peer)
}

// checkReuseOfGangs submits gangs under ids of gangs that have ended, and capsules under ids of their members.
func checkReuseOfGangs(t *trial) {
	t.commits(node("n", 9), gang("g", 0, "m1", "m2"))
	start := t.now()
	t.commits(place("m1", "n"), place("m2", "n"))
	t.commits(cancel("m1"))
	t.mistakes(gang("g", 0, "m1", "m2"))
	t.commits(cancel("m2"))
	t.mistakes(gang("g", 0, "m1"))
	t.commits(gang("g", 0, "m2", "m3", "m1"))
	t.mistakes(place("m1", "n"))
	t.commits(place("m1", "n"), place("m2", "n"), place("m3", "n"))
	t.commits(cancel("m1"), submit(cpu(1), "m1"), place("m1", "n"))
	if c, g := t.capsule("m1"), t.now().Gang("g"); c.Gang() != "" || g.Total() != 2 {
		t.Failf("m1 is a capsule of its own; its gang is %q, and that has %d members placed", c.Gang(), g.Total())
	}
	t.follows(start, t.peer)
}

// checkRelease checks that a release gives capacity back once.
func checkRelease(t *trial) {
	t.commits(node("n", 3), node("m", 3), submit(cpu(3), "a"), place("a", "n"), node("k", 1), hold("h", "k", 1))
	view := t.view()
	for _, end := range []orbit.Release{unhold("h"), {Capsule: "a", From: "n", Stopped: true}} {
		t.mistakes(end, end)
		t.commits(end)
		t.loses(view, end)
		t.mistakes(end)
	}
	if c := t.capsule("a"); !c.Pending() {
		t.Failf("capsule a does not wait after its release")
	}
	t.commits(place("a", "m"))
	t.loses(view, orbit.Release{Capsule: "a", From: "n", Stopped: true}) // the capsule has moved since the view
	t.isOn("a", "m")
	t.commits(orbit.Release{Capsule: "a", From: "m", Stopped: true}, place("a", "n")) // placed anew: never pending in between
	t.isOn("a", "n")
	t.commits(submit(cpu(1), "b"))
	t.invalid(stopped("a"), place("b", "n"))
	t.invalid(place("a", "m"), stopped("a"))
	t.commits(stopped("a"), place("a", "m"))
	for range 3 { // room is free exactly from the revision that freed it
		t.mistakes(hold("x", "m", 1))
		t.commits(stopped("a"))
		t.commits(place("a", "m"))
	}
}

// checkOwner checks that Assign is a compare-and-swap of the owner.
func checkOwner(t *trial) {
	t.commits(orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: cpu(1), Owner: "one"}, submit(cpu(1), "b"))
	view := t.view()
	t.commits(orbit.Assign{Capsule: "a", From: "one", Owner: "two"}, orbit.Assign{Capsule: "b", Owner: "two"})
	t.loses(view, orbit.Assign{Capsule: "a", From: "one", Owner: "three"})
	t.loses(view, orbit.Assign{Capsule: "b", Owner: "three"})
	t.mistakes(orbit.Assign{Capsule: "absent", Owner: "three"})
	t.commits(orbit.Assign{Capsule: "a", From: "two"})
	if a, b := t.capsule("a").Owner(), t.capsule("b").Owner(); a != "" || b != "two" {
		t.Failf("the owners of a and b are %q and %q; they must be none and two", a, b)
	}
}

// checkPins checks that the owner to whom a capsule or a gang is pinned is not changed by a proposal that does not know
// of the pin.
func checkPins(t *trial) {
	for _, pinned := range []struct {
		id  orbit.CapsuleID
		key string
	}{{"a", orbit.PinPrefix + "a"}, {"m", orbit.PinGangPrefix + "g"}} {
		assign := func(from, to string) orbit.Assign { return orbit.Assign{Capsule: pinned.id, From: from, Owner: to} }
		if pinned.id == "a" {
			t.commits(submit(cpu(1), "a"))
		} else {
			t.commits(gang("g", 1, "m"))
		}
		t.commits(assign("", "one"))
		view := t.view()
		t.commits(mark(pinned.key, "one"))
		t.loses(view, assign("one", "two"))
		t.mistakes(assign("one", "two"))
		t.commits(assign("one", "")) // to take it from everybody passes no pin
		t.mistakes(assign("", "two"))
		t.commits(assign("", "one"))
		t.commits(mark(pinned.key, "two"), assign("one", "two")) // the pin of the same proposal
		t.commits(mark(pinned.key, ""), assign("two", "three"))
		at := t.commits(mark(pinned.key, "one"))
		t.mistakes(mark(pinned.key, "five"), assign("three", "six")) // it contradicts itself
		t.mistakes(assign("three", "four"))
		aware := planned(t.view(), assign("three", "four"))
		aware.If = []orbit.Precondition{orbit.MarkAt{Key: pinned.key, Revision: at}}
		t.admits(aware)
	}
}

// checkSubmit reads submitted capsules back in their order, and checks that equal specs are shared.
func checkSubmit(t *trial) {
	first, second := cpu(1), cpu(1)
	first.Module, second.Module = "web", "web"
	urgent := cpu(2)
	urgent.Priority = 7
	t.commits(submit(first, "b", "a"))
	t.commits(submit(urgent, "c"), submit(second, "d"))
	s := t.now()
	want := []orbit.CapsuleID{"c", "b", "a", "d"}
	for i, c := range s.Pending() {
		if i >= len(want) || c.ID != want[i] {
			t.Failf("capsule %q is number %d in the queue; the order must be %v: by priority, then by submission", c.ID, i, want)
		}
	}
	if s.PendingCount() != 4 || s.CapsuleCount() != 4 {
		t.Failf("%d capsules wait, of %d; 4 were submitted", s.PendingCount(), s.CapsuleCount())
	}
	if s.Capsule("a").Spec != s.Capsule("d").Spec {
		t.Failf("equal specs have two copies; what is computed for a class would be computed for each")
	}
	if got := harness.Text(s.Capsule("a").Spec); got != harness.Text(t.canonical(first)) {
		t.Failf("the spec reads %s", got)
	}
	t.mistakes(submit(cpu(1), "a"))
	t.mistakes(submit(cpu(1), "e"), submit(cpu(1), "f"), gang("g", 0, "a"))
}

// checkCarried reads back the times and labels of capsules. Times may even run backwards, because no rule reads them.
func checkCarried(t *trial) {
	labels := map[string]string{"team": "a", "cost centre": ""}
	first, crew := submit(cpu(1), "a", "b"), gang("g", 0, "m1", "m2")
	first.At, first.Labels = 2e18, labels
	crew.At, crew.Labels = 1, map[string]string{"team": "b"}
	own := map[string]string{"uid": "7", "team": "c"}
	first.LabelsOf = map[orbit.CapsuleID]map[string]string{"b": {"uid": "6"}}
	crew.LabelsOf = map[orbit.CapsuleID]map[string]string{"m2": own}
	t.commits(node("n", 9), first, crew, submit(cpu(1), "plain"))
	a, m := place("a", "n"), place("m1", "n")
	a.At, m.At = 1e18, 7
	t.commits(a, m, place("m2", "n"), place("plain", "n"))
	t.carries("a", 2e18, 1e18, labels)
	t.carries("b", 2e18, 0, map[string]string{"team": "a", "cost centre": "", "uid": "6"})
	t.carries("m1", 1, 7, crew.Labels)
	t.carries("m2", 1, 0, own)
	t.carries("plain", 0, 0, nil)
	t.commits(stopped("a"))
	t.carries("a", 2e18, 1e18, labels) // of the last placement, as PlacedAt is
	t.commits(place("a", "n"))
	t.carries("a", 2e18, 0, labels)
}

// carries checks the times and labels of a capsule.
func (t *trial) carries(id orbit.CapsuleID, submitted, placed orbit.Instant, labels map[string]string) {
	if c := t.capsule(id); c.SubmitTime() != submitted || c.PlaceTime != placed || !maps.Equal(c.Labels(), labels) {
		t.Failf("capsule %q was submitted at %d, placed at %d, with labels %v; it must be %d, %d and %v", id, c.SubmitTime(), c.PlaceTime, c.Labels(), submitted, placed, labels)
	}
}

// canonical returns the copy of a spec that all ledgers of this process share.
func (t *trial) canonical(spec *orbit.Spec) *orbit.Spec {
	l := &orbit.MemoryLedger{}
	_, err := l.Propose(t.ctx, orbit.Proposal{Do: []orbit.Commitment{submit(spec, "x")}})
	t.Must(err, "submit to a ledger in memory")
	s, err := l.Snapshot(t.ctx)
	t.Must(err, "snapshot of a ledger in memory")
	return s.Capsule("x").Spec
}

// checkTerminal releases more capsules for good than the ledger keeps records of.
func checkTerminal(t *trial) {
	n := t.limits.Terminal
	if n > t.scaled(20_000) {
		t.Skipf("%d capsules would have to be released; open a ledger that keeps fewer records", n)
	}
	list := ids[orbit.CapsuleID]("c", n+2)
	t.submitted(cpu(1), append(list, "live")...)
	for from := 0; from < len(list); from += t.limits.Commitments {
		var do []orbit.Commitment
		for _, id := range list[from:min(from+t.limits.Commitments, len(list))] {
			do = append(do, cancel(id))
		}
		t.commits(do...)
	}
	s := t.now()
	for i, id := range list {
		if kept := s.Capsule(id) != nil; kept != (i >= 2) {
			t.Failf("capsule %s was released before %d others; its record is there: %v; %d are kept", id, len(list)-1-i, kept, n)
		}
	}
	if c := s.Capsule("live"); c == nil || !c.Pending() {
		t.Failf("a capsule that waits was dropped with those that have ended")
	}
	t.mistakes(place(list[0], "nowhere"))
	t.commits(submit(cpu(2), list[0], list[1]))
	if c := t.capsule(list[0]); !c.Pending() || c.Spec.Envelope.Reservation[orbit.CPU] != 2 {
		t.Failf("a new capsule under an id that is free again is pending: %v, with %v", c.Pending(), c.Spec.Envelope.Reservation)
	}
	t.follows(s, t.peer)
}
