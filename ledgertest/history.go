package ledgertest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// This file checks that the history has each commit once, whole and in order, and that following it leads to the
// ledger's state.

// changes returns the changes after a revision, and requires that they are in order.
func (t *trial) changes(l orbit.Ledger, after orbit.Revision) []orbit.Change {
	list, err := l.Changes(t.ctx, after)
	t.Must(err, fmt.Sprintf("changes after %d", after))
	t.Must(ordered(list, after), fmt.Sprintf("changes after %d", after))
	return list
}

// ordered returns an error if changes are not in order of revision and sequence, or if a sequence does not begin with
// 0.
func ordered(list []orbit.Change, after orbit.Revision) error {
	seq := 0
	for i, c := range list {
		if c.Revision != after {
			seq = 0
		}
		if c.Revision < after || i == 0 && c.Revision == after || c.Seq != seq {
			return fmt.Errorf("change %d is number %d.%d; it follows revision %d and must be newer, or number %d of it", i, c.Revision, c.Seq, after, seq)
		}
		after, seq = c.Revision, seq+1
	}
	return nil
}

// follows requires that the changes after the state from, as handle l shows them, lead to the present state.
func (t *trial) follows(from *orbit.State, l orbit.Ledger) []orbit.Change {
	now := t.now()
	if l != t.ledger {
		t.catchUp(l, now.Revision())
	}
	list := t.changes(l, from.Revision())
	s, err := from.Apply(list)
	t.Must(err, fmt.Sprintf("applying the %d changes after %d", len(list), from.Revision()))
	if d := difference(s, now); d != "" {
		t.Failf("the changes after %d lead to another state (-) than the snapshot (+):\n%s", from.Revision(), d)
	}
	return list
}

// catchUp waits until a handle has reached a revision.
func (t *trial) catchUp(l orbit.Ledger, rev orbit.Revision) {
	got, err := l.Wait(t.ctx, rev-1)
	t.Must(err, fmt.Sprintf("wait for revision %d", rev))
	if got < rev {
		t.Failf("wait for a revision after %d returns %d", rev-1, got)
	}
}

// checkHistory makes every kind of commit and reads them back, change by change.
func checkHistory(t *trial) {
	if list := t.changes(t.ledger, t.base.Revision()); len(list) != 0 {
		t.Failf("a fresh ledger has %d changes after its revision %d", len(list), t.base.Revision())
	}
	var revs []orbit.Revision
	var sent []orbit.Proposal
	for _, do := range [][]orbit.Commitment{
		{node("n", 9), node("m", 9)},
		{submit(movable(cpu(1)), "a", "b"), gang("g", 0, "x", "y"), mark("m", "v")},
		{place("a", "n"), place("x", "m"), place("y", "m"), hold("h", "n", 2)},
		{orbit.Evict{Capsule: "a"}, place("a", "m"), orbit.Assign{Capsule: "b", Owner: "o"}, unhold("h"), mark("m", "")},
		{cancel("a"), orbit.RemoveNode{Node: "n"}, node("n", 1)},
	} {
		if e, ok := do[0].(orbit.Evict); ok {
			do[0] = t.evict(e.Capsule)
		}
		p := planned(t.view(), do...)
		sent, revs = append(sent, p), append(revs, t.admits(p))
		t.mistakes(place("absent", "m")) // a refused proposal leaves no trace in the history
	}
	list := t.follows(t.base, t.ledger)
	for i, p := range sent {
		if i > 0 && revs[i] <= revs[i-1] {
			t.Failf("a commit is at revision %d, the one before at %d; they must rise", revs[i], revs[i-1])
		}
		n := min(len(p.Do), len(list))
		if err := sameChanges(list[:n], p, revs[i]); err != nil {
			t.Failf("the history of %s: %w", harness.Describe(p), err)
		}
		list = list[n:]
	}
	if len(list) > 0 {
		t.Failf("the history ends with %d changes that were not committed, such as %v", len(list), list[0])
	}
	for i := range revs {
		tail := t.changes(t.ledger, revs[i])
		if i == len(revs)-1 && len(tail) > 0 {
			t.Failf("changes after the newest revision are %v; there must be none", tail)
		}
		if len(tail) > 0 && tail[0].Revision != revs[i+1] {
			t.Failf("changes after %d begin at %d; the next commit was at %d", revs[i], tail[0].Revision, revs[i+1])
		}
	}
	t.touched()
}

// touched requires that changes name the node that they change; for a release that is the node that was left.
func (t *trial) touched() {
	at := t.view()
	t.commits(place("b", "m"), hold("h2", "m", 1))
	t.commits(cancel("b"), unhold("h2"), mark("k", "v"))
	for i, c := range t.changes(t.ledger, at) {
		if want := []orbit.NodeID{"m", "m", "m", "m", ""}[i]; c.Node != want {
			t.Failf("change %d.%d, %T%s, names node %q; it touched %q", c.Revision, c.Seq, c.Do, harness.Text(c.Do), c.Node, want)
		}
	}
}

// checkFollowing makes random commits in steps, and follows them through both handles.
func checkFollowing(t *trial) {
	states := map[orbit.Ledger]*orbit.State{t.ledger: t.base, t.peer: t.base}
	w := newWalk(t)
	for range 6 {
		for range min(t.scaled(12), t.limits.History/40) { // few enough that the history keeps all changes from the beginning
			w.step()
		}
		for _, l := range t.handles() {
			t.follows(states[l], l)
			states[l] = t.seenBy(l)
		}
	}
	t.follows(t.base, t.peer)
	t.Must(t.now().Verify(), "the state at the end")
}

// checkCompaction commits more changes than the history has to keep. Changes must return a complete answer or an error.
// The history must reach back as far as the limits say, and not to the beginning.
func checkCompaction(t *trial) {
	step := min(t.limits.Commitments, t.limits.History)
	if rounds := 2*t.limits.History/step + 2; rounds > t.scaled(2500) {
		t.Skipf("%d commits would be needed to fill a history of %d changes; open a ledger with a shorter one", rounds, t.limits.History)
	}
	revs := []orbit.Revision{t.view()}
	for total := 0; total < 2*t.limits.History; total += step {
		rev, err := t.ledger.Propose(t.ctx, planned(revs[0], marks("m", step)...))
		t.Must(err, "a proposal of marks")
		revs = append(revs, rev)
	}
	if _, err := t.ledger.Changes(t.ctx, revs[0]); !errors.Is(err, orbit.ErrCompacted) {
		t.Failf("changes after %d, with %d newer ones and a history of %d: error %v; it must be %q",
			revs[0], step*(len(revs)-1), t.limits.History, err, orbit.ErrCompacted)
	}
	kept := min(t.limits.History/step, len(revs)-1)
	for back := 0; back <= kept; back += max(1, kept/5) {
		after := revs[len(revs)-1-back]
		if list := t.changes(t.ledger, after); len(list) != back*step {
			t.Failf("changes after %d are %d; %d commits of %d have followed", after, len(list), back, step)
		}
	}
	t.wholeOrNothing(revs, step)
	s := t.now() // a reader that has got ErrCompacted continues from a snapshot
	t.commits(mark("m", "v"))
	t.follows(s, t.ledger)
	t.Notef("%d commits of %d marks", len(revs)-1, step)
}

// wholeOrNothing asks for the changes after revisions of all ages. An answer that lacks changes must not come without
// an error.
func (t *trial) wholeOrNothing(revs []orbit.Revision, step int) {
	for i := 0; i < len(revs); i += max(1, len(revs)/10) {
		after := revs[i]
		list, err := t.ledger.Changes(t.ctx, after)
		if err != nil && !errors.Is(err, orbit.ErrCompacted) {
			t.Failf("changes after %d: %w", after, err)
		}
		if want := step * (len(revs) - 1 - i); err == nil && len(list) != want {
			t.Failf("changes after %d are %d, without an error; there were %d: some are missing", after, len(list), want)
		}
	}
}

// checkSnapshots keeps a state while the ledger changes, and iterates over it meanwhile. The state must stay the same.
func checkSnapshots(t *trial) {
	t.commits(node("n", 5), node("m", 5), submit(movable(cpu(1)), "a", "b"), place("a", "n"), mark("m", "v"))
	s := t.now()
	before := content(s)
	for c := range s.On("n") {
		t.commits(lost("n"), release(c.ID), orbit.RemoveNode{Node: "n"}, place(c.ID, "m"))
	}
	t.commits(node("k", 1), node("l", 1), cancel("b"), mark("m", "w"), gang("g", 0, "x"))
	for range 30 {
		t.commits(t.evict("a"), place("a", "m"))
	}
	if after := content(s); !slices.Equal(before, after) {
		t.Failf("a state that was taken at %d has changed since", s.Revision())
	}
	if s.Node("n") == nil || s.Revision() >= t.view() {
		t.Failf("a state that was taken at %d reads as if it were newer", s.Revision())
	}
}

// checkFresh takes a snapshot after each commit, through either handle. The snapshot must include the commit.
func checkFresh(t *trial) {
	handles := t.handles()
	for i := range t.scaled(60) {
		from, to := handles[i%len(handles)], handles[(i/2)%len(handles)]
		rev, err := from.Propose(t.ctx, planned(0, mark("m", strconv.Itoa(i))))
		t.Must(err, "a mark without bets")
		s := t.seenBy(to)
		if value, at := s.Mark("m"); s.Revision() < rev || value != strconv.Itoa(i) || at != rev {
			t.Failf("a commit at %d through handle %d was complete; a snapshot of handle %d taken afterwards is at %d, with the mark %q of %d",
				rev, i%len(handles), (i/2)%len(handles), s.Revision(), value, at)
		}
		list := t.changes(from, rev-1) // the handle that has committed must show its commit at once
		if len(list) != 1 || list[0].Revision != rev {
			t.Failf("a commit at %d was complete; changes of the same handle after %d are %v", rev, rev-1, list)
		}
	}
}
