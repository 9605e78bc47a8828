package etcdledger

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// members is a desk with members x, y and z of the group db on cordoned nodes of the same names, beside a plain capsule p.
func (d *desk) members() (a, b *Ledger) {
	a, b = d.ledgers[0], d.ledgers[1]
	db := &orbit.Spec{Group: "db", Module: "db"}
	d.do(a, orbit.Submit{IDs: []orbit.CapsuleID{"x", "y", "z", "w"}, Spec: db}, submit("p", "free"), node("on", 9), orbit.Place{Capsule: "p", Node: "on"})
	for _, id := range []string{"x", "y", "z"} {
		n := node(orbit.NodeID(id), 1)
		d.do(a, n, orbit.Place{Capsule: orbit.CapsuleID(id), Node: n.Node.ID})
		n.Node.State = orbit.Cordoned
		d.do(a, n)
	}
	d.look(b)
	return a, b
}

func budgetOf(expected, missing int) orbit.PutBudget {
	return orbit.PutBudget{Budget: orbit.Budget{ID: "db", Group: "db", Expected: expected, Missing: missing}}
}

// wish releases a member from its cordoned node.
func wish(view orbit.Revision, id orbit.CapsuleID) orbit.Proposal {
	return orbit.Proposal{View: view, Do: []orbit.Commitment{orbit.Release{Capsule: id}}}
}

// TestWishesSeeWhoLeaves: a wish that was judged on a mirror that is behind does not commit if another process has wished, ended or lost a
// member meanwhile, or made the budget stricter.
func TestWishesSeeWhoLeaves(t *testing.T) {
	for name, meanwhile := range map[string]orbit.Commitment{
		"a wish":   orbit.Release{Capsule: "z"},
		"an end":   orbit.Release{Capsule: "z", Final: true},
		"a stop":   orbit.Release{Capsule: "z", Stopped: true},
		"a loss":   orbit.PutNode{Node: orbit.Node{ID: "z", State: orbit.Lost}},
		"a budget": budgetOf(3, 0),
		"another":  orbit.PutBudget{Budget: orbit.Budget{ID: "module", Module: "db", Expected: 3}},
		"one more": orbit.PutBudget{Budget: orbit.Budget{ID: "more", Group: "db", Expected: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, Options{GCInterval: -1}, func(d *desk) {
				a, b := d.members()
				view := d.do(a, budgetOf(3, 1))
				d.look(b)
				d.plans[1].lags(time.Second) // b does not receive what follows
				d.do(a, meanwhile)
				_, err := b.Propose(bg, wish(view, "y"))
				require.ErrorIs(d, err, orbit.ErrConflict)
				var r *orbit.Rejection
				require.ErrorAs(d, err, &r)
				require.NotEmpty(d, r.Budget)
				require.NotZero(d, b.Stats().Retries+b.Stats().Reads)
				d.agree()
			})
		})
	}
}

// TestWishesSeeWhoIsReady: the same where nodes confirm, if a member fails its health check meanwhile, or its node begins to confirm, or
// the one that is to leave because it fails has recovered; but nothing that becomes ready is in the way of a wish.
func TestWishesSeeWhoIsReady(t *testing.T) {
	says := func(s *orbit.State, id orbit.CapsuleID, say orbit.Confirm) orbit.Confirm {
		say.Capsule, say.Since = id, s.Capsule(id).PlacedAt
		return say
	}
	confirming := node("z", 1)
	confirming.Node.Confirms, confirming.Node.State = true, orbit.Cordoned
	for name, run := range map[string]struct {
		of        orbit.CapsuleID
		refused   bool
		meanwhile func(*orbit.State) orbit.Commitment
	}{
		"fails":     {"y", true, func(s *orbit.State) orbit.Commitment { return says(s, "x", orbit.Confirm{NotReady: true}) }},
		"confirms":  {"y", true, func(*orbit.State) orbit.Commitment { return confirming }},
		"recovers":  {"w", true, func(s *orbit.State) orbit.Commitment { return says(s, "w", orbit.Confirm{Ready: true}) }},
		"beside it": {"y", false, func(s *orbit.State) orbit.Commitment { return says(s, "w", orbit.Confirm{Ready: true}) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, Options{GCInterval: -1}, func(d *desk) {
				a, b := d.members()
				for _, id := range []orbit.CapsuleID{"w", "x", "y"} {
					n := node(orbit.NodeID(id), 1)
					n.Node.Confirms = true
					d.do(a, n)
					if id == "w" {
						d.do(a, orbit.Place{Capsule: "w", Node: "w"})
					}
					d.do(a, says(d.look(a), id, orbit.Confirm{Begun: id == "w", Ready: id != "w"}))
					n.Node.State = orbit.Cordoned
					d.do(a, n)
				}
				budget := budgetOf(3, 1) // x, y and z are healthy, and w is not
				budget.Budget.FreeUnready = true
				if run.of == "w" {
					budget.Budget.Expected = 9
				}
				view := d.do(a, budget)
				d.look(b)
				d.plans[1].lags(time.Second) // b does not receive what follows
				d.do(a, run.meanwhile(d.look(a)))
				retries := b.Stats().Retries
				_, err := b.Propose(bg, wish(view, run.of))
				if run.refused {
					var r *orbit.Rejection
					require.ErrorIs(d, err, orbit.ErrConflict)
					require.ErrorAs(d, err, &r)
					require.NotEmpty(d, r.Budget)
				} else {
					require.NoError(d, err)
					require.Equal(d, retries, b.Stats().Retries, "what helps touches nothing")
				}
				d.agree()
			})
		})
	}
}

// TestEndsSeeNewBudgets: what ends a member without knowing of its first budget does not commit, so a wish cannot miss it.
func TestEndsSeeNewBudgets(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1}, func(d *desk) {
		a, b := d.members()
		d.plans[0].lags(time.Second)
		d.plans[1].lags(5 * time.Second)
		view := d.do(a, budgetOf(3, 1))
		time.Sleep(500 * time.Millisecond)
		end := proposing(bg, b, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: "z", Final: true}}})
		time.Sleep(700 * time.Millisecond) // a has its budget back, and nothing that b may have committed since
		wished, err := a.Propose(bg, wish(view, "y"))
		require.NoError(d, err, "three are healthy")
		ended := <-end
		require.NoError(d, ended.Err)
		require.Greater(d, ended.Revision, wished, "the end was judged without the budget, and the wish without the end")
		require.Positive(d, b.Stats().Retries)
		d.agree()
	})
}

// TestEndsCommute: members end at the same time in different transactions, and a wish waits for all of them.
func TestEndsCommute(t *testing.T) {
	bubble(t, 2, Options{}, func(d *desk) {
		a, _ := d.members()
		view := d.do(a, budgetOf(3, 2))
		d.look(a) // else what is judged before it knows of the budget is judged again
		d.plans[0].sendsNext(fault{slow, time.Second})
		d.plans[0].sendsNext(fault{slow, time.Second})
		began := time.Now()
		first := proposing(bg, a, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: "x", Final: true}}})
		synctest.Wait()
		second := proposing(bg, a, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: "y", Final: true}}})
		synctest.Wait()
		third := proposing(bg, a, wish(view, "z"))
		require.NoError(d, (<-first).Err)
		require.NoError(d, (<-second).Err)
		require.Less(d, time.Since(began), 1500*time.Millisecond, "one end waits for the other")
		require.ErrorIs(d, (<-third).Err, orbit.ErrConflict)
		require.Zero(d, a.Stats().Retries, "a ledger conflicts with itself")
		d.agree()
	})
}

// TestKeysOfBudgets counts the keys that a transaction compares and writes: budgets cost nothing where there are none, and nothing for a
// placement. Members of a group compare one key more when they arrive or leave, that of the rules about the group.
func TestKeysOfBudgets(t *testing.T) {
	bubble(t, 2, Options{}, func(d *desk) {
		a, _ := d.members()
		d.look(a) // else its mirror may still be behind what it has committed
		keys := func(do ...orbit.Commitment) [2]int {
			g := a.mirror.look()
			b := newPack(a.keys, g.state, g.pos, packLimits{defaultMaxOps, defaultMaxBytes})
			p := orbit.Proposal{ID: idOf(1000), Do: do}
			reading, writing, touched, err := g.state.Footprint(p)
			require.NoError(d, err)
			require.NoError(d, b.add(&p, touched, accessSetOf(&reading, &writing)))
			compares, then, _, err := b.transaction("me", 1)
			require.NoError(d, err)
			c, w := operations(b.accesses)
			require.Equal(d, []int{c - 1, w}, []int{len(compares), len(then)}) // the log is read, and not compared
			return [2]int{len(compares), len(then)}
		}
		placed := orbit.Place{Capsule: "w", Node: "on"}
		require.Equal(d, [2]int{4, 3}, keys(placed, orbit.Protect{Capsule: "w", For: 1})) // in the capsule's record
		free := orbit.Place{Capsule: "free", Node: "on"}
		end, plain := orbit.Release{Capsule: "z", Final: true}, orbit.Release{Capsule: "p", Final: true}
		lost := orbit.PutNode{Node: orbit.Node{ID: "z", State: orbit.Lost}}
		require.Equal(d, [2]int{3, 3}, keys(free))   // gc, node, capsule; log, node, capsule
		require.Equal(d, [2]int{4, 3}, keys(placed)) // and whether there is a first rule about its group
		require.Equal(d, [2]int{5, 4}, keys(end))    // and the proposal's id
		require.Equal(d, [2]int{4, 4}, keys(plain))
		require.Equal(d, [2]int{5, 4}, keys(orbit.Release{Capsule: "z"}))
		before := keys(lost)
		require.Equal(d, [2]int{3, 5}, keys(budgetOf(3, 1))) // gc, budget, id; log, budget, id, fence, gc
		d.do(a, budgetOf(3, 1))
		d.look(a)
		require.Equal(d, [2]int{3, 3}, keys(free))
		require.Equal(d, [2]int{4, 3}, keys(placed))
		require.Equal(d, [2]int{5, 5}, keys(end)) // puts the fence
		require.Equal(d, [2]int{4, 4}, keys(plain))
		require.Equal(d, [2]int{7, 5}, keys(orbit.Release{Capsule: "z"})) // compares it, and who is lost
		require.Equal(d, [2]int{before[0], before[1] + 1}, keys(lost))
		require.Equal(d, [2]int{3, 4}, keys(budgetOf(2, 1)))
	})
}

// TestWishesSeeProtection: a wish that was judged before another process placed the capsule anew, protected, does not commit; and the
// protection is there in a ledger that is opened later.
func TestWishesSeeProtection(t *testing.T) {
	bubble(t, 2, Options{GCInterval: -1}, func(d *desk) {
		a, b := d.members()
		view := d.look(b).Revision()
		d.plans[1].lags(time.Second) // b does not receive what follows
		n := node("x", 1)
		d.do(a, orbit.Release{Capsule: "x", Stopped: true})
		d.do(a, n, orbit.Place{Capsule: "x", Node: "x"}, orbit.Protect{Capsule: "x", For: time.Minute})
		n.Node.State = orbit.Cordoned
		d.do(a, n)
		_, err := b.Propose(bg, wish(view, "x"))
		var r *orbit.Rejection
		require.ErrorIs(d, err, orbit.ErrConflict)
		require.ErrorAs(d, err, &r)
		require.Equal(d, time.Minute, r.Protected)
		d.agree()
		require.Equal(d, time.Minute, d.look(b).Protected("x"))
		d.do(b, orbit.Protect{Capsule: "x", Since: d.look(b).Capsule("x").PlacedAt})
		d.do(a, orbit.Release{Capsule: "x"})
		d.agree()
	})
}
