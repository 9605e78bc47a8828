package moves_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/moves"
	"github.com/orbitsched/orbit/place"
)

// small is a world of few nodes on which moves are searched by brute force.
type small struct {
	state *orbit.State
	view  *orbit.View
	draft *orbit.Draft
	// The newcomers, and the nodes that they may go to.
	newcomers []*orbit.Capsule
	within    map[orbit.NodeID]bool
}

func open(t require.TestingT, l orbit.Ledger) *small {
	view := &orbit.View{}
	require.NoError(t, view.Refresh(context.Background(), l, nil, time.Unix(1000, 0)))
	w := &small{state: view.State(), view: view, draft: &orbit.Draft{}}
	w.draft.Sync(view)
	return w
}

func sized(cpu int64, devices int) *orbit.Spec {
	return &orbit.Spec{
		Module: "m", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}},
		Devices: orbit.DeviceRequest{Count: devices, Milli: 1000 * min(devices, 1)},
	}
}

// drawSpec draws a spec of one group, which a rule may keep apart from another one on each node.
func drawSpec(t *rapid.T, label string) *orbit.Spec {
	s := sized(int64(rapid.IntRange(1, 4).Draw(t, label+" cpu")), rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, label+" devices"))
	s.Movable = rapid.IntRange(0, 5).Draw(t, label+" movable") > 0
	s.Groups = []string{rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, label+" group")}
	if rapid.IntRange(0, 3).Draw(t, label+" apart") == 0 {
		s.Apart = []orbit.Apart{{Group: rapid.SampledFrom([]string{"a", "b"}).Draw(t, label+" from"), Level: orbit.NodeKey}}
	}
	if rapid.IntRange(0, 5).Draw(t, label+" bound") == 0 {
		s.Require = []orbit.Predicate{{Key: orbit.NodeKey, Op: "In", Values: []string{"n0"}}}
	}
	return s
}

// drawWorld draws nodes, capsules on them, perhaps a budget, and the newcomer "new".
func drawWorld(t *rapid.T) *small {
	l, nodes := &orbit.MemoryLedger{}, rapid.IntRange(1, 4).Draw(t, "nodes")
	do := func(all ...orbit.Commitment) error {
		_, err := l.Propose(context.Background(), orbit.Proposal{Do: all})
		return err
	}
	for i := range nodes {
		n := orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: orbit.Resources{orbit.CPU: int64(rapid.IntRange(3, 6).Draw(t, "capacity"))}}
		if count := rapid.SampledFrom([]int{0, 0, 2, 3}).Draw(t, "devices"); count > 0 {
			n.Devices = orbit.Devices{Model: "g", Count: count}
		}
		require.NoError(t, do(orbit.PutNode{Node: n}))
	}
	for i := range rapid.IntRange(3, 9).Draw(t, "capsules") {
		id, to := orbit.CapsuleID(fmt.Sprint("c", i)), orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, nodes-1).Draw(t, "to")))
		require.NoError(t, do(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: drawSpec(t, string(id))}))
		w := open(t, l)
		n, c := w.state.Node(to), w.state.Capsule(id)
		devices, ok := n.PickDevices(c.Spec)
		if !ok || do(orbit.Place{Capsule: id, Node: to, Devices: devices}) != nil { // or on any node; a rule may refuse all
			_ = w.draft.PlaceBest(&place.Exhaustive{}, c)
			_ = do(w.draft.Propose().Do...)
		}
	}
	if rapid.Bool().Draw(t, "budgeted") {
		b := orbit.Budget{ID: "b", Group: "a", Expected: rapid.IntRange(1, 4).Draw(t, "expected"), Missing: rapid.IntRange(0, 2).Draw(t, "missing")}
		require.NoError(t, do(orbit.PutBudget{Budget: b}))
	}
	newcomer := drawSpec(t, "new")
	newcomer.Envelope.Reservation[orbit.CPU] = int64(rapid.IntRange(2, 6).Draw(t, "asks"))
	ids := []orbit.CapsuleID{"new", "next"}[:rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "newcomers")]
	require.NoError(t, do(orbit.Submit{IDs: ids, Spec: newcomer}))
	w := open(t, l)
	for _, id := range ids {
		w.newcomers = append(w.newcomers, w.state.Capsule(id))
	}
	w.within = map[orbit.NodeID]bool{}
	for i := range rapid.IntRange(1, nodes).Draw(t, "within") {
		w.within[orbit.NodeID(fmt.Sprint("n", i))] = true
	}
	return w
}

// domain returns the indices of the nodes that newcomers may go to; nil: all.
func (w *small) domain() (in []int32) {
	if len(w.within) == w.state.NodeCount() {
		return nil
	}
	for n := range w.state.Nodes() {
		if w.within[n.Node.ID] {
			in = append(in, int32(n.Index()))
		}
	}
	return in
}

// brute tries every set of so many moves, with every node for each, and returns the least work; ok: there is a set.
func (w *small) brute(count int) (work float64, ok bool) {
	var all []*orbit.Capsule
	for c := range w.state.Capsules() {
		if c.Placed() {
			all = append(all, c)
		}
	}
	var choose func(from int, set []*orbit.Capsule, sum float64)
	choose = func(from int, set []*orbit.Capsule, sum float64) {
		if len(set) == count {
			if (!ok || sum < work) && w.seats(set, append(slices.Clone(w.newcomers), set...), nil) {
				work, ok = sum, true
			}
			return
		}
		for i := from; i < len(all); i++ {
			choose(i+1, append(set[:len(set):len(set)], all[i]), sum+moves.Size(all[i], w.state.Node(all[i].Node).Node))
		}
	}
	choose(0, nil, 0)
	return work, ok
}

// seats tries every node for each capsule.
func (w *small) seats(moved, open []*orbit.Capsule, to []orbit.NodeID) bool {
	if len(open) > 0 {
		for n := range w.state.Nodes() {
			if open[0].Pending() && !w.within[n.Node.ID] {
				continue
			}
			if n.Node.ID != open[0].Node && w.seats(moved, open[1:], append(to[:len(to):len(to)], n.Node.ID)) {
				return true
			}
		}
		return false
	}
	taken := map[orbit.NodeID]orbit.DeviceSet{} // whole devices: it does not matter which
	for c := range w.state.Capsules() {
		if c.Placed() {
			taken[c.Node] |= c.Devices
		}
	}
	p := orbit.Proposal{View: w.state.Revision()}
	for _, c := range moved {
		taken[c.Node] &^= c.Devices
		p.Do = append(p.Do, orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt})
	}
	for i, c := range append(slices.Clone(w.newcomers), moved...) {
		var set orbit.DeviceSet
		for d := 0; d < w.state.Node(to[i]).Node.Devices.Count && set.Len() < c.Spec.Devices.Count; d++ {
			if !taken[to[i]].Has(d) {
				set |= 1 << d
			}
		}
		taken[to[i]] |= set
		p.Do = append(p.Do, orbit.Place{Capsule: c.ID, Node: to[i], Devices: set})
	}
	return w.state.Check(p) == nil
}

// Where any set of at most 3 moves makes room, for a capsule or for a gang in a domain, one is found, with the fewest moves and among these the least work. The ledger
// takes it, and the search leaves the draft as it was.
func TestRoomIsExactOnSmallWorlds(t *testing.T) {
	seen := map[int]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		s := moves.Search{Draft: w.draft, Engine: &place.Exhaustive{}, Most: 3, Steps: 1 << 24}
		start := w.draft.Checkpoint()
		f := s.Room(w.newcomers, w.domain())
		require.Equal(t, start, w.draft.Checkpoint())
		for count := range 4 {
			work, ok := w.brute(count)
			if !ok {
				require.False(t, f != nil && len(f.Moved) <= count, "%d moves were found, brute force finds none", count)
				continue
			}
			require.NotNil(t, f, "brute force finds %d moves", count)
			require.Len(t, f.Moved, count, "brute force finds %d moves", count)
			require.InDelta(t, work, f.Work, 1e-9)
			require.NoError(t, f.On(w.draft))
			require.NoError(t, w.state.Check(w.draft.Propose()))
			seen[count]++
			return
		}
		require.Nil(t, f, "found what brute force does not find")
		seen[-1]++
	})
	t.Log("worlds by moves, -1: no set of 3 makes room:", seen)
}

// What has to leave a node and fits on no other does not move at all.
func TestAwayIsAway(t *testing.T) {
	l := &orbit.MemoryLedger{}
	spec := sized(2, 0)
	spec.Movable = true
	_, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "n0", Capacity: orbit.Resources{orbit.CPU: 4}}},
		orbit.PutNode{Node: orbit.Node{ID: "n1", Capacity: orbit.Resources{orbit.CPU: 1}}},
		orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: spec}, orbit.Place{Capsule: "c", Node: "n0"},
	}})
	require.NoError(t, err)
	w := open(t, l)
	s := moves.Search{Draft: w.draft, Engine: &place.Exhaustive{}, Most: 3}
	require.Nil(t, s.Away(w.state.Capsule("c")))
}

// More than three moves are found also behind many nodes from which fewer would have to leave that fit nowhere else.
func TestRoomPastNodesThatKeepTheirs(t *testing.T) {
	l := &orbit.MemoryLedger{}
	do := func(all ...orbit.Commitment) {
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: all})
		require.NoError(t, err)
	}
	full := func(node orbit.NodeID, count int, capacity int64, label map[string]string, spec *orbit.Spec) {
		do(orbit.PutNode{Node: orbit.Node{ID: node, Capacity: orbit.Resources{orbit.CPU: capacity}, Labels: label}})
		for i := range count {
			id := orbit.CapsuleID(fmt.Sprint(node, "-", i))
			do(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: node})
		}
	}
	bound, free := sized(5, 0), sized(4, 0)
	bound.Movable, free.Movable = true, true
	bound.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"fast"}}}
	for i := range 100 {
		full(orbit.NodeID(fmt.Sprint("full", i)), 4, 20, map[string]string{"disk": "fast"}, bound)
	}
	full("last", 5, 20, nil, free)
	for i := range 5 {
		full(orbit.NodeID(fmt.Sprint("small", i)), 0, 4, nil, free)
	}
	do(orbit.Submit{IDs: []orbit.CapsuleID{"new"}, Spec: sized(20, 0)})
	w := open(t, l)
	s := moves.Search{Draft: w.draft, Engine: &place.Exhaustive{}, Most: 16}
	f := s.Room([]*orbit.Capsule{w.state.Capsule("new")}, nil)
	require.NotNil(t, f)
	require.Len(t, f.Moved, 5)
	require.NoError(t, f.On(w.draft))
}
