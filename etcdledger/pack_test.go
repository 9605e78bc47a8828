package etcdledger

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// wholeGang returns a gang, its nodes, and the proposal that places it on them, one member on each.
func wholeGang(members int) (nodes []orbit.Commitment, gang orbit.Submit, p orbit.Proposal) {
	role := orbit.Role{Name: "r", Spec: &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{1}}}}
	p = orbit.Proposal{ID: idOf(7), If: []orbit.Precondition{orbit.GangUnplaced{Gang: "g"}}}
	for i := range members {
		c, n := orbit.CapsuleID(fmt.Sprint("c", i)), orbit.NodeID(fmt.Sprint("n", i))
		role.Members = append(role.Members, c)
		nodes = append(nodes, node(n, 1))
		p.Do = append(p.Do, orbit.Place{Capsule: c, Node: n})
		p.If = append(p.If, orbit.NodeFreeOf{Node: n, AtLeast: orbit.Resources{1}})
	}
	return nodes, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{role}}}, p
}

// A gang of as many members as Limits allow fits, each on a node of its own with a bet on each. A gang with one member
// more is refused before it is planned.
func TestLargestGang(t *testing.T) {
	for _, ops := range []int{defaultMaxOps, leastOps, 64} {
		t.Run(fmt.Sprint(ops), func(t *testing.T) {
			bubble(t, 1, Options{MaxOps: ops}, func(d *desk) {
				l := d.ledgers[0]
				d.store.maxOps = ops
				most := l.Limits().GangMembers
				nodes, gang, p := wholeGang(most)
				for _, n := range nodes {
					d.do(l, n)
				}
				d.do(l, gang)
				rev, err := l.Propose(bg, p)
				require.NoError(d, err)
				require.Equal(d, most, d.look(l).Gang("g").Total())
				changes, err := l.Changes(bg, rev-1)
				require.NoError(d, err)
				require.Len(d, changes, most, "all of it is one commit")
				_, more, _ := wholeGang(most + 1)
				more.Gang.ID = "more"
				_, err = l.Propose(bg, orbit.Proposal{Do: []orbit.Commitment{more}})
				require.ErrorIs(d, err, orbit.ErrInvalid)
				require.LessOrEqual(d, d.store.mostOps, ops)
				d.agree()
			})
		})
	}
}

// ids returns ids that begin with a number.
func ids(n int, names ...string) (out []orbit.CapsuleID) {
	for _, name := range names {
		out = append(out, orbit.CapsuleID(fmt.Sprint(n, name)))
	}
	return out
}

// A proposal that does not fit into one transaction is invalid, with the reason. It is never divided, and does not
// affect other proposals.
func TestTooMuch(t *testing.T) {
	bubble(t, 1, Options{MaxBytes: 1 << 16, Bounds: orbit.Limits{ValueBytes: 4096, Commitments: 120}}, func(d *desk) {
		l := d.ledgers[0]
		d.store.maxBytes = 1 << 16
		var nodes, marks []orbit.Commitment
		for i := range l.Limits().Commitments {
			nodes = append(nodes, submit(ids(i, "a", "b", "c", "d", "e")...))
			marks = append(marks, orbit.Mark{Key: fmt.Sprint(i), Value: strings.Repeat("<", 4000)})
		}
		good := orbit.Proposal{ID: idOf(1), Do: []orbit.Commitment{orbit.Mark{Key: "good", Value: "x"}}}
		out := l.ProposeBatch(bg, []orbit.Proposal{{Do: nodes}, good, {Do: marks}, {}, {Do: marks[:1]}})
		require.ErrorIs(d, out[0].Err, orbit.ErrInvalid)
		require.ErrorContains(d, out[0].Err, "--max-txn-ops")
		require.NoError(d, out[1].Err)
		require.ErrorIs(d, out[2].Err, orbit.ErrInvalid)
		require.ErrorContains(d, out[2].Err, "--max-request-bytes")
		require.ErrorIs(d, out[3].Err, orbit.ErrInvalid)
		require.NoError(d, out[4].Err)
		require.Zero(d, d.look(l).CapsuleCount())
		d.agree()
	})
}

// TestPackingFits: for all batches, no transaction is larger than the server accepts or names a key twice, few are
// sent, and each proposal has its outcome.
func TestPackingFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			s := newStore()
			s.maxOps, s.maxBytes = rapid.IntRange(leastOps, 40).Draw(t, "ops"), 1<<16
			l, err := Open(bg, s.client(&plan{}), Options{MaxOps: s.maxOps, MaxBytes: s.maxBytes, Prefix: strings.Repeat("p", 100)})
			require.NoError(t, err)
			defer l.Close()
			ids := rapid.SliceOfNDistinct(rapid.StringOfN(rapid.RuneFrom([]rune("a/%ü")), 1, 200, 253), 10, 30, rapid.ID).Draw(t, "ids")
			big := rapid.SampledFrom([]int{1, 500, 4000})
			var batch []orbit.Proposal
			for i, id := range ids {
				p := orbit.Proposal{ID: idOf(uint64(i + 1)), Do: []orbit.Commitment{node(orbit.NodeID(id), 5)}}
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					p.Do = []orbit.Commitment{orbit.Mark{Key: id, Value: strings.Repeat("&", big.Draw(t, "size"))}}
				case 1:
					p.Do = []orbit.Commitment{submit(orbit.CapsuleID(id), orbit.CapsuleID(fmt.Sprint("second ", i)))}
				case 2:
					p.Do = append(p.Do, orbit.RemoveNode{Node: orbit.NodeID(id)}, node(orbit.NodeID(id), 6))
				}
				if rapid.IntRange(0, 9).Draw(t, "bad") == 0 {
					p.Do = append(p.Do, orbit.Place{Capsule: "unknown", Node: "nowhere"})
				}
				batch = append(batch, p)
				if rapid.IntRange(0, 9).Draw(t, "twice") == 0 {
					batch = append(batch, p)
				}
			}
			out := l.ProposeBatch(bg, batch)
			for i, p := range batch {
				last, _ := p.Do[len(p.Do)-1].(orbit.Place)
				require.Equal(t, last.Capsule == "unknown", out[i].Err != nil, "%d: %v", i, out[i].Err)
			}
			require.LessOrEqual(t, s.mostOps, s.maxOps)
			require.LessOrEqual(t, s.mostBytes, s.maxBytes)
			seen := map[orbit.ProposalID]bool{}
			for _, c := range s.history(t, l.keys) {
				if c.Seq == 0 || c.ID.IsZero() {
					continue
				}
				seen[c.ID] = true
			}
			require.NoError(t, l.mirror.look().state.Verify())
		})
	})
}

// A batch goes into few transactions. Two proposals of one id in it have one effect.
func TestBatchIsFewTransactions(t *testing.T) {
	bubble(t, 1, Options{}, func(d *desk) {
		l := d.ledgers[0]
		var batch []orbit.Proposal
		for i := range 200 {
			batch = append(batch, orbit.Proposal{ID: idOf(uint64(i + 1)), Do: []orbit.Commitment{orbit.Mark{Key: fmt.Sprint(i), Value: "x"}}})
		}
		batch = append(batch, batch[0], batch[199])
		out := l.ProposeBatch(bg, batch)
		for _, o := range out {
			require.NoError(d, o.Err)
		}
		require.Equal(d, out[0].Revision, out[200].Revision)
		require.Equal(d, out[199].Revision, out[201].Revision)
		require.LessOrEqual(d, l.Stats().Transactions, uint64(5))
		require.Equal(d, uint64(200), l.Stats().Commits)
		require.Len(d, d.store.history(d, l.keys), 200)
		d.agree()
	})
}

// TestConfirmingCostsNoKey: placements read and write the same records whether nodes have agents that confirm or not, and what
// agents say takes two.
func TestConfirmingCostsNoKey(t *testing.T) {
	var before accessSet
	for _, confirms := range []bool{false, true} {
		m := &orbit.MemoryLedger{}
		say := func(do ...orbit.Commitment) *orbit.State {
			_, err := m.Propose(bg, orbit.Proposal{Do: do})
			require.NoError(t, err)
			s, err := m.Snapshot(bg)
			require.NoError(t, err)
			return s
		}
		n := node("n", 4)
		n.Node.Confirms = confirms
		web := submit("a", "b")
		web.Spec.Module = "web"
		s := say(n, web)
		place := accessesOf(s, orbit.Proposal{ID: idOf(1), View: s.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: "a", Node: "n"}}})
		require.Equal(t, accessSet{{kindCapsule, "a"}: writes, {kindUse, "n"}: writes}, withoutIDs(place))
		s = say(orbit.Place{Capsule: "a", Node: "n"})
		end := accessesOf(s, orbit.Proposal{ID: idOf(2), View: s.Revision(), Do: []orbit.Commitment{orbit.Release{Capsule: "a", Final: true}, orbit.Place{Capsule: "b", Node: "n"}}})
		if !confirms {
			before = end
			continue
		}
		require.Equal(t, before, end)
		begin := orbit.Confirm{Capsule: "a", Since: s.Capsule("a").PlacedAt, Begun: true}
		require.Equal(t, accessSet{{kindCapsule, "a"}: writes, {kindUse, "n"}: reads}, withoutIDs(accessesOf(s, orbit.Proposal{Do: []orbit.Commitment{begin}})))
		s = say(begin)
		ready, failed := begin, begin
		ready.Begun, ready.Ready, failed.Begun, failed.NotReady = false, true, false, true
		said := accessSet{{kindCapsule, "a"}: writes, {kindUse, "n"}: reads}
		require.Equal(t, said, withoutIDs(accessesOf(s, orbit.Proposal{Do: []orbit.Commitment{ready}})))
		s = say(ready)
		require.Equal(t, said, withoutIDs(accessesOf(s, orbit.Proposal{Do: []orbit.Commitment{failed}})))
		s = say(orbit.PutBudget{Budget: orbit.Budget{ID: "web", Module: "web", Expected: 1}})
		said[ref{kindFence, "module/web"}] = puts
		require.Equal(t, said, withoutIDs(accessesOf(s, orbit.Proposal{Do: []orbit.Commitment{failed}})))
		s = say(failed)
		delete(said, ref{kindFence, "module/web"})
		require.Equal(t, said, withoutIDs(accessesOf(s, orbit.Proposal{Do: []orbit.Commitment{ready}})))
		s = say(orbit.Release{Capsule: "a", Final: true}, orbit.RemoveBudget{Budget: "web"})
		stop := orbit.Confirm{Capsule: "a", Since: begin.Since, Stopped: true}
		require.Equal(t, accessSet{{kindCapsule, "a"}: reads, {kindUse, "n"}: writes}, withoutIDs(accessesOf(s, orbit.Proposal{Do: []orbit.Commitment{stop}})))
	}
}

// withoutIDs leaves out the ids of proposals, and the log, which every commit writes.
func withoutIDs(r accessSet) accessSet {
	for name := range r {
		if name.kind == kindProposal || name == (ref{kind: kindLog}) && r[name] == puts {
			delete(r, name)
		}
	}
	return r
}
