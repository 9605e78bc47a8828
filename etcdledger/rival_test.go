package etcdledger

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// desk is a store with ledgers over it, in a bubble.
type desk struct {
	*testing.T
	store   *store
	plans   []*plan
	ledgers []*Ledger
	// errors are those that the ledgers have reported.
	errors chan error
}

// bubble runs a test with some ledgers over one store, and requires that no request or watch is left at the end.
func bubble(t *testing.T, ledgers int, o Options, test func(d *desk)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{T: t, store: newStore(), errors: make(chan error, 1000)}
		o.OnError = func(err error) { d.errors <- err }
		for range ledgers {
			d.open(o)
		}
		defer func() {
			for _, l := range d.ledgers {
				require.NoError(t, l.Close())
			}
			synctest.Wait()
			require.Zero(t, d.store.busy(), "requests or watches are left")
		}()
		test(d)
	})
}

// open opens one more ledger.
func (d *desk) open(o Options) *Ledger {
	p := &plan{}
	l, err := Open(bg, d.store.client(p), o)
	require.NoError(d, err)
	d.plans, d.ledgers = append(d.plans, p), append(d.ledgers, l)
	return l
}

// do commits through a ledger.
func (d *desk) do(l *Ledger, do ...orbit.Commitment) orbit.Revision {
	d.Helper()
	rev, err := l.Propose(bg, orbit.Proposal{Do: do})
	require.NoError(d, err)
	return rev
}

func (d *desk) look(l *Ledger) *orbit.State {
	d.Helper()
	s, err := l.Snapshot(bg)
	require.NoError(d, err)
	require.NoError(d, s.Verify())
	return s
}

// agree requires that all ledgers, and a new one, have the same state.
func (d *desk) agree() {
	d.Helper()
	fresh, err := Open(bg, d.store.client(&plan{}), Options{OnError: func(error) {}})
	require.NoError(d, err)
	defer fresh.Close()
	want := textOf(d.look(fresh), same)
	for i, l := range d.ledgers {
		require.Empty(d, differ(textOf(d.look(l), same), want), "ledger %d", i)
	}
}

func node(id orbit.NodeID, cpu int64) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{cpu}}}
}

func submit(ids ...orbit.CapsuleID) orbit.Submit {
	return orbit.Submit{IDs: ids, Spec: &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{1}}}}
}

// proposing proposes from another goroutine.
func proposing(ctx context.Context, l *Ledger, p orbit.Proposal) <-chan orbit.Outcome {
	out := make(chan orbit.Outcome, 1)
	go func() {
		rev, err := l.Propose(ctx, p)
		out <- orbit.Outcome{Revision: rev, Err: err}
	}()
	return out
}

// place returns a proposal with an id of its own.
func place(n uint64, c orbit.CapsuleID, on orbit.NodeID) orbit.Proposal {
	return orbit.Proposal{ID: idOf(n), Do: []orbit.Commitment{orbit.Place{Capsule: c, Node: on}}}
}

// Two ledgers place on one node that has room for both. The compare of the second one fails, so that it judges again,
// and then it commits.
func TestFineGrained(t *testing.T) {
	bubble(t, 2, Options{}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		d.do(a, node("n", 2), submit("c", "d", "e"))
		view := d.look(b).Revision()
		d.plans[1].lags(time.Second) // b has not received it yet
		time.Sleep(2 * time.Second)
		first, err := a.Propose(bg, place(1, "c", "n"))
		require.NoError(d, err)
		p := place(2, "d", "n")
		p.View, p.If = view, []orbit.Precondition{orbit.NodeFreeOf{Node: "n", AtLeast: orbit.Resources{1}}}
		_, err = b.Propose(bg, p)
		require.NoError(d, err, "there is room for both")
		require.Positive(d, b.Stats().Retries)
		p = place(3, "e", "n")
		p.View = view
		d.conflict(b, p, 2, first)
		d.agree()
	})
}

// conflict requires that a proposal is a conflict whose receipt names the winner.
func (d *desk) conflict(l *Ledger, p orbit.Proposal, by uint64, since orbit.Revision) {
	d.Helper()
	_, err := l.Propose(bg, p)
	require.ErrorIs(d, err, orbit.ErrConflict)
	var r *orbit.Rejection
	require.ErrorAs(d, err, &r)
	require.Equal(d, idOf(by), r.TakenBy)
	require.GreaterOrEqual(d, r.At, r.TakenAt)
	require.GreaterOrEqual(d, r.TakenAt, since)
	require.Equal(d, d.look(l).Revision(), r.At, "the next view must have reached it")
}

// Two proposals at the same time for a node with room for one: the loser is a conflict, once, with its receipt.
func TestRoomForOne(t *testing.T) {
	bubble(t, 2, Options{}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		d.do(a, node("n", 1), submit("c", "d"))
		d.look(b)
		d.plans[0].sendsNext(fault{slow, time.Second})
		d.plans[1].sendsNext(fault{slow, time.Second})
		one, other := proposing(bg, a, place(1, "c", "n")), proposing(bg, b, place(2, "d", "n"))
		won, lost, by := <-one, <-other, idOf(1)
		if won.Err != nil {
			won, lost, by = lost, won, idOf(2)
		}
		require.NoError(d, won.Err)
		require.ErrorIs(d, lost.Err, orbit.ErrConflict)
		var r *orbit.Rejection
		require.ErrorAs(d, lost.Err, &r)
		require.Equal(d, by, r.TakenBy)
		require.Equal(d, won.Revision, r.TakenAt)
		require.Equal(d, won.Revision, r.At)
		require.Equal(d, int64(1), r.Want)
		require.Equal(d, int64(0), r.Free)
		require.Equal(d, uint64(1), a.Stats().Retries+b.Stats().Retries)
		d.agree()
	})
}

// A rejection and a snapshot are never older than a commit that another ledger has completed before, however far the
// watch is behind.
func TestFresh(t *testing.T) {
	bubble(t, 2, Options{}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		d.do(a, node("n", 1), submit("c", "d"), orbit.Submit{IDs: []orbit.CapsuleID{"w1", "w2"}, Spec: &orbit.Spec{Group: "web"}})
		d.look(b)
		d.plans[1].lags(time.Second)
		time.Sleep(2 * time.Second)
		for i := range 5 {
			rev := d.do(a, orbit.Mark{Key: "m", Value: fmt.Sprint(i)})
			require.GreaterOrEqual(d, d.look(b).Revision(), rev)
		}
		d.do(a, orbit.Place{Capsule: "c", Node: "n"})
		d.look(b)
		d.do(a, orbit.Release{Capsule: "c", Stopped: true}) // b still has c on n
		_, err := b.Propose(bg, place(1, "d", "n"))
		require.NoError(d, err, "n was free before the call")
		d.do(a, orbit.Release{Capsule: "d", Stopped: true})
		rev, err := b.Propose(bg, orbit.Proposal{If: []orbit.Precondition{orbit.NodeFreeOf{Node: "n", AtLeast: orbit.Resources{1}}}, Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}}})
		require.NoError(d, err, "n is free")
		changes, err := b.Changes(bg, rev-1)
		require.NoError(d, err)
		require.Len(d, changes, 1, "what has been answered is in the history")
	})
}

// A bet on a group is judged by one member of the group. If that member has left, the bet may still hold, because
// another member may have been there before the call.
func TestFreshWitness(t *testing.T) {
	bubble(t, 2, Options{}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		web := &orbit.Spec{Group: "web"}
		n1, n2 := node("n1", 1), node("n2", 1)
		n1.Node.Labels, n2.Node.Labels = map[string]string{"rack": "r"}, map[string]string{"rack": "r"}
		d.do(a, n1, n2, orbit.Submit{IDs: []orbit.CapsuleID{"w1", "w2"}, Spec: web}, orbit.Place{Capsule: "w1", Node: "n1"})
		d.look(b)
		view := d.do(a, orbit.Place{Capsule: "w2", Node: "n2"})
		d.look(b)
		d.do(a, orbit.Release{Capsule: "w2", Stopped: true})
		d.look(b)
		d.plans[1].lags(time.Second)
		time.Sleep(2 * time.Second)
		d.do(a, orbit.Release{Capsule: "w1", Stopped: true}) // the member that b's bet rests on
		time.Sleep(100 * time.Millisecond)
		d.do(a, orbit.Place{Capsule: "w2", Node: "n2"})
		bet := orbit.GroupIn{Group: "web", Level: "rack", Domain: "r"}
		_, err := b.Propose(bg, orbit.Proposal{View: view, If: []orbit.Precondition{bet}, Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}}})
		require.NoError(d, err, "w2 was there before the call")
	})
}

// A ledger never conflicts with itself: proposals that share a record are sent one after another.
func TestNotWithItself(t *testing.T) {
	bubble(t, 1, Options{}, func(d *desk) {
		l := d.ledgers[0]
		d.do(l, node("n", 50))
		var waits []<-chan orbit.Outcome
		for i := range 50 {
			id := orbit.CapsuleID(fmt.Sprint(i))
			d.plans[0].sendsNext(fault{slow, time.Duration(i%3) * time.Millisecond})
			waits = append(waits, proposing(bg, l, orbit.Proposal{Do: []orbit.Commitment{submit(id), orbit.Place{Capsule: id, Node: "n"}}}))
		}
		for _, w := range waits {
			require.NoError(d, (<-w).Err)
		}
		require.Zero(d, l.Stats().Retries)
		require.Equal(d, 50, d.look(l).Node("n").Capsules)
	})
}

// A node that all callers compete for does not delay proposals for other nodes.
func TestHotNode(t *testing.T) {
	bubble(t, 2, Options{InFlight: 2}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		d.do(a, node("hot", 100), node("cold", 100), submit("h", "c1", "c2"))
		d.look(b)
		d.plans[1].sendsNext(fault{slow, 3 * time.Second}) // the first transaction of b on the busy node takes long
		hot := proposing(bg, b, place(1, "h", "hot"))
		synctest.Wait()
		more := proposing(bg, b, orbit.Proposal{Do: []orbit.Commitment{orbit.Hold{ID: "x", Node: "hot", Room: orbit.Resources{1}, Ends: time.Unix(1e9, 0)}}})
		began := time.Now()
		for _, id := range []orbit.CapsuleID{"c1", "c2"} {
			_, err := b.Propose(bg, place(0, id, "cold"))
			require.NoError(d, err)
		}
		require.Less(d, time.Since(began), time.Second, "the cold node waits for the hot one")
		require.NoError(d, (<-hot).Err)
		require.NoError(d, (<-more).Err)
	})
}

// Proposals that have conflicted with another process are packed apart, by the record that they compete for, and all
// are committed.
func TestManyContended(t *testing.T) {
	bubble(t, 2, Options{}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		var batch []orbit.Proposal
		for i := range 20 {
			n, c := orbit.NodeID(fmt.Sprintf("n%d", i)), orbit.CapsuleID(fmt.Sprintf("c%d", i))
			d.do(a, node(n, 2), submit(c))
			batch = append(batch, place(uint64(i+1), c, n))
		}
		d.look(b)
		d.plans[1].lags(time.Second)
		time.Sleep(2 * time.Second)
		for i := range 20 { // b has received none of these yet
			d.do(a, node(orbit.NodeID(fmt.Sprintf("n%d", i)), 3))
		}
		for i, out := range b.ProposeBatch(bg, batch) {
			require.NoError(d, out.Err, "proposal %d", i)
		}
		require.Positive(d, b.Stats().Retries)
		d.agree()
	})
}

// TestWitnessIsCompared: a GroupIn bet that was judged on a mirror that is behind does not commit if the only member
// has left meanwhile, although no other record of the proposal has changed.
func TestWitnessIsCompared(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		n0, n1 := node("n0", 10), node("n1", 10)
		n0.Node.Labels, n1.Node.Labels = map[string]string{"rack": "r"}, map[string]string{"rack": "r"}
		d.do(a, n0, n1, submit("late"), orbit.Submit{IDs: []orbit.CapsuleID{"member"}, Spec: &orbit.Spec{Group: "db"}})
		d.do(a, orbit.Place{Capsule: "member", Node: "n0"})
		synctest.Wait()
		d.plans[1].lags(time.Second) // b does not receive what follows
		d.do(a, orbit.Release{Capsule: "member", Stopped: true})
		_, err := b.Propose(bg, orbit.Proposal{
			View: d.look(a).Revision() - 1,
			If:   []orbit.Precondition{orbit.GroupIn{Group: "db", Level: "rack", Domain: "r"}},
			Do:   []orbit.Commitment{orbit.Place{Capsule: "late", Node: "n1"}},
		})
		require.ErrorIs(d, err, orbit.ErrConflict)
		d.agree()
	})
}
