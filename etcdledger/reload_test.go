package etcdledger

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

// compactIdly ends a ledger's watch while other clients use etcd, and compacts etcd before the ledger watches again. So
// the ledger reads all records again although its own history has no gap.
func (d *desk) compactIdly(i int) {
	d.Helper()
	reloads := d.ledgers[i].Stats().Reloads
	d.plans[i].mu.Lock()
	d.plans[i].events = []fault{{lostBefore, 0}}
	d.plans[i].mu.Unlock()
	d.store.write("other/key", "1")
	synctest.Wait()
	d.store.write("other/key", "2")
	d.store.write("other/key", "3")
	d.store.compact()
	time.Sleep(time.Second)
	require.Greater(d, d.ledgers[i].Stats().Reloads, reloads)
}

// A mirror that has read all records again numbers its nodes anew, even if nothing was committed in between. A reader
// with an older state of the same revision gets ErrCompacted, so that a view does not take one node's report for
// another's.
func TestViewAfterIdleReload(t *testing.T) {
	bubble(t, 1, Options{GCInterval: -1}, func(d *desk) {
		l, board, view := d.ledgers[0], &telemetry.Board{}, orbit.View{}
		for _, id := range []orbit.NodeID{"z", "y", "x"} { // not in the order of the ids
			d.do(l, node(id, 1))
			require.NoError(d, board.Report(orbit.Report{Node: id, At: time.Now(), FreeSlots: int(id[0])}))
		}
		require.NoError(d, view.Refresh(bg, l, board, time.Now()))
		_, cursor, _ := view.Changed(0)
		d.compactIdly(0)
		d.do(l, orbit.Mark{Key: "m", Value: "v"})
		require.NoError(d, view.Refresh(bg, l, board, time.Now()))
		for n := range view.State().Nodes() {
			require.Equal(d, n.Node.ID, view.Report(n).Node)
			require.Equal(d, int(n.Node.ID[0]), view.Report(n).FreeSlots)
		}
		_, _, all := view.Changed(cursor)
		require.True(d, all, "slots are others now")
		at := view.Revision()
		d.do(l, orbit.Mark{Key: "m", Value: "w"})
		changes, err := l.Changes(bg, at)
		require.NoError(d, err)
		require.Len(d, changes, 1, "and then the history goes on")
	})
}

// nominate claims cores on nodes for a capsule, or with an empty capsule for gang g.
func nominate(c orbit.CapsuleID, cores int64, nodes ...orbit.NodeID) orbit.Nominate {
	n := orbit.Nominate{Capsule: c, Ends: time.Unix(1e9, 0)}
	if c == "" {
		n.Gang = "g"
	}
	for _, id := range nodes {
		n.Parts = append(n.Parts, orbit.NominatedRoom{Node: id, Room: orbit.Resources{cores}, Devices: 1, Milli: 400})
	}
	return n
}

// populateNominations nominates a capsule and a gang, each after it was nominated before, and leaves capsule c3 with what is
// kept of a nomination that has ended.
func populateNominations(d *desk, l *Ledger) {
	for _, id := range []orbit.NodeID{"n1", "n2"} {
		d.do(l, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{8}, Devices: orbit.Devices{Model: "A100", Count: 1}}})
	}
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{5}}, Devices: orbit.DeviceRequest{Count: 1, Milli: 400}}
	d.do(l, orbit.Submit{IDs: []orbit.CapsuleID{"c1", "c2", "c3"}, Spec: spec})
	d.do(l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: spec, Members: []orbit.CapsuleID{"g1", "g2"}, Min: 1}}}})
	d.do(l, nominate("c3", 1, "n1"))
	d.do(l, orbit.Nominate{Capsule: "c3"})
	d.do(l, nominate("c1", 1, "n1"))
	d.do(l, nominate("", 1, "n2"))
	d.do(l, nominate("c1", 5, "n1"))
	d.do(l, nominate("", 3, "n1", "n2"))
}

// TestNominationsAfterReload: a ledger that reads all records again, or for the first time, finds the nominations of capsules
// and gangs as they were, with the place in the order that those have had, and judges by them.
func TestNominationsAfterReload(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1, Bounds: orbit.Limits{NominatedShare: 100}}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		populateNominations(d, a)
		before := d.look(a)
		d.compactIdly(1)
		after := d.look(b)
		c1, was := after.Capsule("c1").Nomination(), before.Capsule("c1").Nomination()
		require.Equal(d, was, c1)
		require.Less(d, c1.First, c1.Made)
		require.Equal(d, before.Gang("g").Nomination, after.Gang("g").Nomination)
		require.Equal(d, before.Capsule("c3").Nomination(), after.Capsule("c3").Nomination())
		require.False(d, after.Capsule("c3").Nomination().Lives())
		for _, l := range d.ledgers {
			for _, id := range []orbit.CapsuleID{"c2", "g1"} { // the gang was nominated later than c1
				_, err := l.Propose(bg, orbit.Proposal{View: after.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: "n1", Devices: 1}}})
				require.ErrorIs(d, err, orbit.ErrInfeasible)
				require.ErrorContains(d, err, "nominated for capsule c1")
			}
		}
		d.do(b, orbit.Nominate{Capsule: "c1", Since: c1.Made})
		d.do(a, orbit.Place{Capsule: "g1", Node: "n1", Devices: 1})
		require.Nil(d, d.look(b).Gang("g").Nomination)
		d.agree()
	})
}

// TestLoansAfterReload: a ledger that reads all records again, or for the first time, knows who borrows nominated room, and from whom.
func TestLoansAfterReload(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1, Bounds: orbit.Limits{NominatedShare: 100}}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		top := &orbit.Spec{Priority: 5, Envelope: orbit.Envelope{Reservation: orbit.Resources{8}}}
		fill := &orbit.Spec{Module: "fill", RunsAtMost: time.Minute, Backfills: true, Envelope: orbit.Envelope{Reservation: orbit.Resources{4}}}
		d.do(a, node("n1", 8), orbit.Submit{IDs: []orbit.CapsuleID{"top"}, Spec: top}, orbit.Submit{IDs: []orbit.CapsuleID{"f1", "f2"}, Spec: fill})
		lent := orbit.Nominate{Capsule: "top", Lends: time.Minute, Ends: time.Unix(1e9, 0), Parts: []orbit.NominatedRoom{{Node: "n1", Room: orbit.Resources{8}}}}
		d.do(a, lent)
		d.do(a, orbit.Place{Capsule: "f1", Node: "n1"})
		d.do(a, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Module: "fill", Expected: 1}})
		d.compactIdly(1)
		after := d.look(b)
		require.Equal(d, &orbit.Nominee{Capsule: "top"}, after.Capsule("f1").Borrows())
		require.Equal(d, time.Minute, after.Capsule("top").Nomination().Lends)
		for _, l := range d.ledgers {
			_, err := l.Propose(bg, orbit.Proposal{View: after.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: "top", Node: "n1"}}})
			require.ErrorIs(d, err, orbit.ErrInfeasible)
		}
		d.do(b, orbit.Place{Capsule: "f2", Node: "n1"})
		var do []orbit.Commitment
		for _, id := range []orbit.CapsuleID{"f1", "f2"} {
			do = append(do, orbit.Evict{Capsule: id, From: "n1", Since: d.look(b).Capsule(id).PlacedAt, For: "top"})
		}
		d.do(a, append(do, orbit.Place{Capsule: "top", Node: "n1"})...)
		require.Nil(d, d.look(b).Capsule("f1").Borrows())
		d.agree()
	})
}

// TestLoanAndRecall: one process places in room that is lent while another takes that back. One of the two is judged again, and nothing is
// borrowed from a nomination that lends no more.
func TestLoanAndRecall(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1, Bounds: orbit.Limits{NominatedShare: 100}}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		fill := &orbit.Spec{RunsAtMost: time.Minute, Backfills: true, Envelope: orbit.Envelope{Reservation: orbit.Resources{4}}}
		lent := orbit.Nominate{Capsule: "top", Lends: time.Minute, Ends: time.Unix(1e9, 0), Parts: []orbit.NominatedRoom{{Node: "n1", Room: orbit.Resources{8}}}}
		d.do(a, node("n1", 8), orbit.Submit{IDs: []orbit.CapsuleID{"fill"}, Spec: fill},
			orbit.Submit{IDs: []orbit.CapsuleID{"top"}, Spec: &orbit.Spec{Priority: 5, Envelope: orbit.Envelope{Reservation: orbit.Resources{8}}}})
		for _, end := range []orbit.Nominate{{Capsule: "top"}, {Capsule: "top", Ends: lent.Ends, Parts: lent.Parts}} {
			d.do(a, lent)
			view := d.look(b).Revision()
			d.plans[0].sendsNext(fault{slow, time.Second})
			d.plans[1].sendsNext(fault{slow, time.Second})
			first := proposing(bg, a, orbit.Proposal{View: view, Do: []orbit.Commitment{end}})
			second := proposing(bg, b, orbit.Proposal{View: view, Do: []orbit.Commitment{orbit.Place{Capsule: "fill", Node: "n1"}}})
			ended, placed := <-first, <-second
			require.NoError(d, ended.Err)
			c := d.look(a).Capsule("fill")
			switch {
			case placed.Err != nil:
				require.ErrorIs(d, placed.Err, orbit.ErrConflict)
				require.Nil(d, c.Borrows())
			case placed.Revision > ended.Revision:
				require.Nil(d, c.Borrows())
			default:
				require.NotNil(d, c.Borrows())
			}
			d.agree()
			if c.Placed() {
				d.do(a, orbit.Release{Capsule: "fill", Stopped: true})
			}
		}
	})
}

// TestShareOfTwoProcesses: two processes nominate different capsules on different nodes at the same time. The record of the
// share orders them: the second one is judged again, with the first, and refused.
func TestShareOfTwoProcesses(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1, Bounds: orbit.Limits{NominatedShare: 50}}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		large := submit("c1", "c2")
		large.Spec.Envelope.Reservation[orbit.CPU] = 5
		d.do(a, node("n1", 8), node("n2", 8), large)
		view := d.look(b).Revision()
		claim := func(c orbit.CapsuleID, on orbit.NodeID) orbit.Proposal {
			n := orbit.Nominate{Capsule: c, Ends: time.Unix(1e9, 0), Parts: []orbit.NominatedRoom{{Node: on, Room: orbit.Resources{5}}}}
			return orbit.Proposal{View: view, Do: []orbit.Commitment{n}}
		}
		d.plans[0].sendsNext(fault{slow, time.Second})
		d.plans[1].sendsNext(fault{slow, time.Second})
		first, second := proposing(bg, a, claim("c1", "n1")), proposing(bg, b, claim("c2", "n2"))
		outcomes := []orbit.Outcome{<-first, <-second}
		taken := 0
		for _, o := range outcomes {
			if o.Err == nil {
				taken++
				continue
			}
			require.ErrorIs(d, o.Err, orbit.ErrConflict)
			require.ErrorContains(d, o.Err, "more than 50 percent of cpu")
		}
		require.Equal(d, 1, taken)
		require.Equal(d, uint64(1), a.Stats().Retries+b.Stats().Retries)
		d.agree()
	})
}
