package orbit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// confirmed is a world with two nodes whose agents confirm, and with db-0, which has begun on the first.
func confirmed(t *testing.T, l Limits) *MemoryLedger {
	t.Helper()
	ledger := &MemoryLedger{Bounds: l}
	for _, id := range []NodeID{"n1", "n2"} {
		commit(t, ledger, PutNode{Node{ID: id, Capacity: Resources{CPU: 4}, Confirms: true}})
	}
	commit(t, ledger, Submit{IDs: []CapsuleID{"db-0"}, Spec: cpuSpec(4)})
	commit(t, ledger, Place{Capsule: "db-0", Node: "n1"})
	commit(t, ledger, Confirm{Capsule: "db-0", Since: snapshotOf(t, ledger).Capsule("db-0").PlacedAt, Begun: true})
	return ledger
}

// TestRecordsAreKeptWhileTheyRun: db-0 has begun on n1 and is ended; its record is kept until it has stopped, however many have ended
// since. If it is submitted and placed again meanwhile, it waits, so that it never runs twice. The records that have ended meanwhile are
// dropped in their order.
func TestRecordsAreKeptWhileTheyRun(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*Capsule) Commitment{
		"stopped": func(c *Capsule) Commitment {
			return Confirm{Capsule: c.ID, Since: c.Remains().Since, Stopped: true}
		},
		"lost": func(*Capsule) Commitment { return PutNode{Node{ID: "n1", State: Lost}} },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			l := confirmed(t, Limits{Terminal: 2})
			commit(t, l, Release{Capsule: "db-0", Final: true})
			for i := range 4 {
				id := CapsuleID(fmt.Sprint("job-", i))
				commit(t, l, Submit{IDs: []CapsuleID{id}, Spec: cpuSpec(1)}, Release{Capsule: id, Final: true})
			}
			again := Submit{IDs: []CapsuleID{"db-0"}, Spec: cpuSpec(4)}
			s := snapshotOf(t, l)
			tried, err := s.Apply([]Change{{Revision: s.rev + 1, Do: again}, {Revision: s.rev + 1, Seq: 1, Do: Place{Capsule: "db-0", Node: "n2"}}})
			require.NoError(t, err)
			begins := Confirm{Capsule: "db-0", Since: tried.rev, Begun: true}
			require.ErrorContains(t, tried.Check(Proposal{Do: []Commitment{begins}}), "has not stopped")
			require.Equal(t, 3, tried.CapsuleCount(), "it, and the last two jobs")
			tried, err = tried.Apply([]Change{{Revision: tried.rev + 1, Do: end(tried.Capsule("db-0"))}, {Revision: tried.rev + 2, Do: begins}})
			require.NoError(t, err)
			require.NoError(t, tried.Verify())
			require.Equal(t, 3, s.CapsuleCount(), "it, and the last two jobs")
			require.Nil(t, s.Capsule("job-1"))
			back, err := rebuilt(s)
			require.NoError(t, err)
			require.Equal(t, 3, back.CapsuleCount())
			commit(t, l, end(s.Capsule("db-0")))
			require.Nil(t, snapshotOf(t, l).Capsule("db-0"))
			require.Equal(t, 2, snapshotOf(t, l).CapsuleCount())
			commit(t, l, again, Place{Capsule: "db-0", Node: "n2"})
			require.NoError(t, snapshotOf(t, l).Verify())
		})
	}
}

// TestDraftKnowsWhoWaits: a draft does not place where nobody confirms what still runs elsewhere.
func TestDraftKnowsWhoWaits(t *testing.T) {
	t.Parallel()
	l := confirmed(t, Limits{})
	commit(t, l, PutNode{Node{ID: "plain", Capacity: Resources{CPU: 4}}}, PutNode{Node{ID: "n1", Capacity: Resources{CPU: 4}, Confirms: true, State: Cordoned}})
	commit(t, l, Release{Capsule: "db-0"})
	s := snapshotOf(t, l)
	var d Draft
	v, _ := viewOf(t, l, nil)
	d.Sync(v)
	c := s.Capsule("db-0")
	require.ErrorContains(t, d.Place(c, Choice{Node: s.Node("plain")}), "does not confirm")
	require.NoError(t, d.Place(c, Choice{Node: s.Node("n2")}))
	require.NoError(t, s.Check(d.Propose()))
}

// TestRemainsInADump: what still runs survives a dump, and a dump that contradicts itself about it is refused.
func TestRemainsInADump(t *testing.T) {
	t.Parallel()
	l := confirmed(t, Limits{})
	commit(t, l, Submit{IDs: []CapsuleID{"p"}, Spec: cpuSpec(4)}, Release{Capsule: "db-0", Final: true}, Place{Capsule: "p", Node: "n1"})
	s := snapshotOf(t, l)
	require.True(t, s.Capsule("p").Waits)
	require.Equal(t, []Remains{{Capsule: "db-0", Spec: s.Capsule("db-0").Spec, Node: "n1", Since: 4, Left: 6}}, remainsOf(s, "n1"))
	text := dumpOf(t, s)
	for _, c := range [][2]string{
		{`"remains":{"node":"n1"`, `"remains":{"node":"n3"`},
		{`"since":4`, `"since":0`},
		{`"since":4`, `"since":7`},
		{`"left":6`, `"left":99`},
		{`"waits":true`, `"begun":true,"waits":true`},
		{`"confirms":true`, `"state":"lost","confirms":true`},
	} {
		bad := strings.Replace(text, c[0], c[1], 1)
		require.NotEqual(t, text, bad, "%v", c)
		refused(t, bad, 0, fmt.Sprint(c))
	}
}

// remainsOf lists what has left a node and still runs there.
func remainsOf(s *State, id NodeID) (out []Remains) {
	for r := range s.Remains(id) {
		out = append(out, *r)
	}
	return out
}

// TestWhatHasStoppedIsPlacedAtOnce: where all other nodes do not confirm, what still runs waits, and its engine passes as soon as it has
// stopped.
func TestWhatHasStoppedIsPlacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		n := machine("n", 4)
		n.Confirms = true
		commit(t, l, PutNode{n}, Submit{IDs: []CapsuleID{"a"}, Spec: ofModule("mine", 1)})
		commit(t, l, Place{Capsule: "a", Node: "n"})
		commit(t, l, Confirm{Capsule: "a", Since: snapshotOf(t, l).Capsule("a").PlacedAt, Begun: true})
		n.State = Cordoned
		commit(t, l, PutNode{n}, PutNode{machine("plain", 4)})
		commit(t, l, Release{Capsule: "a"})
		idle(t, l)
		require.Empty(t, where(t, l, "a"))
		commit(t, l, Confirm{Capsule: "a", Since: snapshotOf(t, l).Capsule("a").Remains().Since, Stopped: true})
		synctest.Wait()
		require.Equal(t, NodeID("plain"), where(t, l, "a"))
	})
}

// Of a node that is lost only that something has stopped there is taken: what its agent says late neither begins nor serves.
func TestNothingBeginsOnALostNode(t *testing.T) {
	c := newCourt(t, confirmingNode("n", 2), submitOf(cpuSpec(1), "a", "b"), placeOn("a", "n"), placeOn("b", "n"))
	c.commits(c.says("a", Confirm{Ready: true}))
	lost := confirmingNode("n", 2)
	lost.Node.State = Lost
	c.commits(lost)
	require.ErrorContains(t, c.mistakes(c.says("b", Confirm{Begun: true})), "the node is lost, or does not confirm")
	require.ErrorContains(t, c.mistakes(c.says("b", Confirm{Ready: true})), "the node is lost, or does not confirm")
	require.ErrorContains(t, c.mistakes(c.says("a", Confirm{NotReady: true})), "the node is lost, or does not confirm")
}

// What a proposal places cannot begin by the same proposal, though its revision can be guessed: nothing has been started that is not
// placed yet.
func TestNothingBeginsWithItsOwnPlacement(t *testing.T) {
	c := newCourt(t, confirmingNode("n", 2), submitOf(cpuSpec(1), "a"), placeOn("a", "n"))
	next := c.now().Revision() + 1
	why := c.mistakes(Release{Capsule: "a", Stopped: true}, placeOn("a", "n"), Confirm{Capsule: "a", Since: next, Begun: true})
	require.ErrorContains(t, why, `capsule "a" has no placement made at revision`)
}

// TestRemainsHaveRulesOfTheirOwn: a capsule is adopted with a spec that has rules of company, ends, and its id is used again, all by one proposal. What still stops
// has rules that neither record has, before or after, and they hold until it has stopped.
func TestRemainsHaveRulesOfTheirOwn(t *testing.T) {
	for name, before := range map[string][]Commitment{"unknown": nil, "pending": {submitOf(cpuSpec(1), "x")}} {
		t.Run(name, func(t *testing.T) {
			n := cpuNode("n", 9)
			n.Node.Confirms = true
			web, lone := cpuSpec(1), cpuSpec(1)
			web.Group = "web"
			lone.Apart = []Apart{{Group: "web", Level: NodeKey}}
			c := newCourt(t, append([]Commitment{n, submitOf(web, "w", "v")}, before...)...)
			again := []Commitment{Adopt{Capsule: "x", Spec: lone, Node: "n"}, Release{Capsule: "x", Final: true}, submitOf(cpuSpec(1), "x")}
			since := c.commits(again...)
			require.Equal(t, "web", c.mistakes(placeOn("w", "n")).Group)
			c.commits(Confirm{Capsule: "x", Since: since, Stopped: true})
			c.commits(placeOn("w", "n"))
		})
	}
}
