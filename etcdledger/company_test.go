package etcdledger

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// in returns a node in a rack.
func in(rack string, id orbit.NodeID) orbit.PutNode {
	n := node(id, 9)
	n.Node.Labels = map[string]string{"rack": rack}
	return n
}

func member(id orbit.CapsuleID, spec orbit.Spec) orbit.Submit {
	return orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &spec}
}

func at(capsule orbit.CapsuleID, n orbit.NodeID) orbit.Place {
	return orbit.Place{Capsule: capsule, Node: n}
}

// TestCompanyAcrossProcesses: a placement that one process has judged by a rule of company is judged again if another process commits in
// between what the rule counts, and only then. Each case names what is there, what the other process does meanwhile, and what is placed.
func TestCompanyAcrossProcesses(t *testing.T) {
	plain := orbit.Spec{Module: "m", Group: "g"}
	apart := orbit.Spec{Module: "m", Group: "g", Apart: []orbit.Apart{{Group: "g", Level: "rack"}}}
	against := orbit.Spec{Module: "m", Group: "h", Apart: []orbit.Apart{{Group: "g", Level: "rack"}}}
	byNode := orbit.Spec{Module: "m", Group: "h", Apart: []orbit.Apart{{Group: "g", Level: orbit.NodeKey}}}
	even := orbit.Spec{Module: "m", Group: "g", Even: []orbit.Even{{Group: "g", Level: "rack"}}}
	world := []orbit.Commitment{in("r0", "a"), in("r0", "b"), in("r1", "c"), in("r1", "d")}
	for _, c := range []struct {
		name     string
		there    []orbit.Commitment
		first    []orbit.Commitment
		second   []orbit.Commitment
		refused  bool
		conflict bool // the second process has to judge again
	}{
		{"Apart, in one rack", []orbit.Commitment{member("x", apart), member("y", apart)}, []orbit.Commitment{at("x", "a")}, []orbit.Commitment{at("y", "b")}, true, true},
		{"Apart, in two racks", []orbit.Commitment{member("x", apart), member("y", apart)}, []orbit.Commitment{at("x", "a")}, []orbit.Commitment{at("y", "c")}, false, false},
		{"Apart of one from the other, which has no rule", []orbit.Commitment{member("x", against), member("y", plain)}, []orbit.Commitment{at("x", "a")}, []orbit.Commitment{at("y", "b")}, true, true},
		{"Apart of one from the other, which was first", []orbit.Commitment{member("x", plain), member("y", against)}, []orbit.Commitment{at("x", "a")}, []orbit.Commitment{at("y", "b")}, true, true},
		{"the first rule about a group", []orbit.Commitment{member("y", plain)}, []orbit.Commitment{member("x", against), at("x", "a")}, []orbit.Commitment{at("y", "b")}, true, true},
		{"the first rule about another group", []orbit.Commitment{member("y", orbit.Spec{Group: "other"})}, []orbit.Commitment{member("x", against), at("x", "a")}, []orbit.Commitment{at("y", "b")}, false, false},
		{
			"a member before the first rule about its group", []orbit.Commitment{member("y", plain)},
			[]orbit.Commitment{at("y", "b")},
			[]orbit.Commitment{member("x", against), at("x", "a")}, true, true,
		},
		{
			"a departure before the first rule Even", []orbit.Commitment{member("y", plain), member("z", plain), at("y", "b"), at("z", "c")},
			[]orbit.Commitment{orbit.Release{Capsule: "z", Final: true}},
			[]orbit.Commitment{member("x", even), at("x", "a")}, true, true,
		},
		{
			"a departure before the first rule Even, after rules Apart", []orbit.Commitment{member("y", plain), member("z", plain), member("w", against), at("y", "b"), at("z", "c")},
			[]orbit.Commitment{orbit.Release{Capsule: "z", Final: true}},
			[]orbit.Commitment{member("x", even), at("x", "a")}, true, true,
		},
		{
			"anything before the first rule about a group", []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}},
			[]orbit.Commitment{orbit.Mark{Key: "k", Value: "w"}},
			[]orbit.Commitment{member("x", against), at("x", "a")}, false, true,
		},
		{
			"a member before the first rule, which places nothing", []orbit.Commitment{member("y", plain)},
			[]orbit.Commitment{at("y", "b")},
			[]orbit.Commitment{member("x", against)}, false, false,
		},
		{
			"a member elsewhere before the first rule Apart by node", []orbit.Commitment{member("y", plain)},
			[]orbit.Commitment{at("y", "b")},
			[]orbit.Commitment{member("x", byNode), at("x", "a")}, false, false,
		},
		{
			"a rack that is relabelled", []orbit.Commitment{member("x", apart), member("y", apart), at("x", "a")},
			[]orbit.Commitment{in("r1", "a")},
			[]orbit.Commitment{at("y", "c")}, true, true,
		},
		{"Even, in one rack", []orbit.Commitment{member("x", even), member("y", even)}, []orbit.Commitment{at("x", "a")}, []orbit.Commitment{at("y", "b")}, true, true},
		{"Even, in two racks", []orbit.Commitment{member("x", even), member("y", even)}, []orbit.Commitment{at("x", "a")}, []orbit.Commitment{at("y", "c")}, false, false},
		{
			"Even, and a departure elsewhere", []orbit.Commitment{member("x", even), member("z", even), member("y", even), at("x", "a"), at("z", "c")},
			[]orbit.Commitment{orbit.Release{Capsule: "x", Final: true}},
			[]orbit.Commitment{at("y", "d")}, true, true,
		},
		{
			"Even, and a new rack", []orbit.Commitment{member("x", even), member("z", even), member("y", even), at("x", "a"), at("z", "c")},
			[]orbit.Commitment{in("r2", "e")},
			[]orbit.Commitment{at("y", "d")}, true, true,
		},
		{
			"Even, and a rack that is lost", []orbit.Commitment{member("x", even), member("y", even), at("x", "a")},
			[]orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: "c", State: orbit.Lost, Labels: map[string]string{"rack": "r1"}}}},
			[]orbit.Commitment{at("y", "d")}, false, true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 2, Options{GCInterval: -1}, func(d *desk) {
				a, b := d.ledgers[0], d.ledgers[1]
				d.do(a, world...)
				d.do(a, c.there...)
				view := d.look(b).Revision()
				d.plans[1].sendsNext(fault{slow, time.Second})
				second := proposing(bg, b, orbit.Proposal{View: view, Do: c.second})
				synctest.Wait()
				d.do(a, c.first...)
				if err := (<-second).Err; c.refused {
					require.ErrorIs(d, err, orbit.ErrConflict)
				} else {
					require.NoError(d, err)
				}
				if c.conflict {
					require.Positive(d, b.Stats().Retries)
				} else {
					require.Zero(d, b.Stats().Retries)
				}
				require.NoError(d, d.look(b).Verify())
				d.agree()
			})
		})
	}
}

// TestFirstRulesDelayNoOthers: a transaction with a proposal that brings the first rule about a group has conflicted with a commit of
// another process, as any commit does. The proposal then goes on by itself, and the others that were with it do not wait for it.
func TestFirstRulesDelayNoOthers(t *testing.T) {
	apart := orbit.Spec{Module: "m", Apart: []orbit.Apart{{Group: "g", Level: "rack"}}}
	bubble(t, 2, Options{GCInterval: -1}, func(d *desk) {
		a, b := d.ledgers[0], d.ledgers[1]
		d.do(a, in("r0", "a"), submit("x"))
		d.look(b)
		before := b.Stats().Transactions
		d.plans[1].sendsNext(fault{slow, time.Second})
		out := make(chan []orbit.Outcome, 1)
		go func() {
			first := []orbit.Commitment{member("y", apart), at("y", "a")}
			out <- b.ProposeBatch(bg, []orbit.Proposal{{ID: idOf(1), Do: first}, {ID: idOf(2), Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}}}})
		}()
		synctest.Wait()
		d.do(a, orbit.Mark{Key: "other", Value: "v"})
		for _, o := range <-out {
			require.NoError(d, o.Err)
		}
		require.EqualValues(d, 1, b.Stats().Retries)
		require.EqualValues(d, 3, b.Stats().Transactions-before, "both, and then each by itself")
		d.agree()
	})
}
