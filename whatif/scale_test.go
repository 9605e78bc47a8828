package whatif_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/whatif"
)

// kind returns a kind of nodes with so much cpu.
func kind(name string, cpu int64, price float64) whatif.NodeKind {
	return whatif.NodeKind{Name: name, Price: price, Node: orbit.Node{Capacity: orbit.Resources{orbit.CPU: cpu}}}
}

// smallScale is a world that brute force can search.
type smallScale struct {
	ledger *orbit.MemoryLedger
	state  *orbit.State
}

// scaleSpec draws a spec: devices, a group, rules that keep it off others, nodes that it needs, and whether it may move.
func scaleSpec(t *rapid.T, label string) *orbit.Spec {
	s := wants(int64(rapid.IntRange(1, 4).Draw(t, label+" cpu")), 0)
	s.Movable = rapid.IntRange(0, 3).Draw(t, label+" movable") > 0
	s.Groups = []string{rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, label+" group")}
	switch rapid.IntRange(0, 9).Draw(t, label+" rule") {
	case 0, 1:
		s.Apart = []orbit.Apart{{Group: rapid.SampledFrom([]string{"a", "b"}).Draw(t, label+" from"), Level: orbit.NodeKey}}
	case 2:
		s.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{"z0"}}}
	case 3:
		s.Devices = orbit.DeviceRequest{Count: rapid.IntRange(1, 2).Draw(t, label+" devices"), Milli: 1000}
	}
	return s
}

func scaleNode(t *rapid.T, label string) orbit.Node {
	n := orbit.Node{Capacity: orbit.Resources{orbit.CPU: int64(rapid.IntRange(3, 7).Draw(t, label+" capacity"))},
		Labels: map[string]string{"zone": rapid.SampledFrom([]string{"z0", "z1"}).Draw(t, label+" zone")}}
	if rapid.IntRange(0, 2).Draw(t, label+" has devices") == 0 {
		n.Devices = orbit.Devices{Model: "g", Count: 2}
	}
	return n
}

// drawScale draws nodes with capsules on them, a budget, a gang on some, and perhaps capsules and a gang that wait.
func drawScale(t *rapid.T, nodes, placed, waiting int) *smallScale {
	w := &smallScale{ledger: &orbit.MemoryLedger{}}
	do := func(all ...orbit.Commitment) error {
		_, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: all})
		return err
	}
	for i := range nodes {
		n := scaleNode(t, fmt.Sprint("n", i))
		n.ID = nodeID(i)
		require.NoError(t, do(orbit.PutNode{Node: n}))
	}
	for i := range placed {
		id, spec := orbit.CapsuleID(fmt.Sprint("c", i)), scaleSpec(t, fmt.Sprint("c", i))
		to := nodeID(rapid.IntRange(0, nodes-1).Draw(t, string(id)+" on"))
		n := snapshot(t, w.ledger).Node(to)
		devices, ok := n.PickDevices(spec)
		place := []orbit.Commitment{orbit.Place{Capsule: id, Node: to, Devices: devices}}
		if rapid.IntRange(0, 3).Draw(t, "runs in a gang") == 0 {
			b, other := id+"b", rapid.IntRange(0, nodes-1).Draw(t, "its other member on")
			if snapshot(t, w.ledger).Node(nodeID(other)).Node.Labels["zone"] != n.Node.Labels["zone"] {
				continue
			}
			spec.Class, spec.Devices = orbit.GangClass, orbit.DeviceRequest{}
			require.NoError(t, do(orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID("g" + id), Levels: rapid.SampledFrom([][]string{nil, {"zone"}}).Draw(t, "levels"),
				Roles: []orbit.Role{{Name: "r", Members: []orbit.CapsuleID{id, b}, Spec: spec, Min: rapid.IntRange(1, 2).Draw(t, "min")}}}}))
			place = []orbit.Commitment{orbit.Place{Capsule: id, Node: to}, orbit.Place{Capsule: b, Node: nodeID(other)}}
			if do(place...) != nil {
				require.NoError(t, do(orbit.Release{Capsule: id, Final: true}, orbit.Release{Capsule: b, Final: true}))
			}
			continue
		}
		require.NoError(t, do(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}))
		if rapid.IntRange(0, 7).Draw(t, "protected") == 0 {
			place = append(place, orbit.Protect{Capsule: id, For: time.Minute})
		}
		if !ok || do(place...) != nil {
			require.NoError(t, do(orbit.Release{Capsule: id, Final: true}))
		}
	}
	if rapid.Bool().Draw(t, "budget") {
		b := orbit.Budget{ID: "b", Group: "a", Expected: rapid.IntRange(1, 4).Draw(t, "expected"), Missing: rapid.IntRange(0, 2).Draw(t, "missing")}
		require.NoError(t, do(orbit.PutBudget{Budget: b}))
	}
	for i := 0; i < waiting; i++ {
		id, spec := orbit.CapsuleID(fmt.Sprint("w", i)), scaleSpec(t, fmt.Sprint("w", i))
		if i+1 < waiting && rapid.IntRange(0, 3).Draw(t, "gang") == 0 {
			spec.Class, spec.Require = orbit.GangClass, nil
			g := &orbit.Gang{ID: orbit.GangID("g" + id), Levels: rapid.SampledFrom([][]string{nil, {"zone"}}).Draw(t, "levels"),
				Roles: []orbit.Role{{Name: "r", Members: []orbit.CapsuleID{id, id + "b"}, Spec: spec, Min: 2}}}
			require.NoError(t, do(orbit.Submit{Gang: g}))
			i++
			continue
		}
		require.NoError(t, do(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}))
	}
	w.state = snapshot(t, w.ledger)
	return w
}

// devicesFor returns the first free instances, of those that are not taken; whole devices, so it does not matter which.
func devicesFor(n *orbit.Node, taken orbit.DeviceSet, count int) (set orbit.DeviceSet) {
	for d := 0; d < n.Devices.Count && set.Len() < count; d++ {
		if !taken.Has(d) {
			set |= 1 << d
		}
	}
	return set
}

// takes reports whether the ledger takes it that these capsules are placed on these nodes, after nodes have joined. What is
// placed already moves.
func takes(state *orbit.State, nodes []orbit.Node, capsules []*orbit.Capsule, to []orbit.Node) bool {
	p := orbit.Proposal{View: state.Revision()}
	for i := range nodes {
		p.Do = append(p.Do, orbit.PutNode{Node: nodes[i]})
	}
	taken := map[orbit.NodeID]orbit.DeviceSet{}
	for c := range state.Capsules() {
		if c.Placed() {
			taken[c.Node] |= c.Devices
		}
	}
	for _, c := range capsules {
		if c.Placed() {
			taken[c.Node] &^= c.Devices
			p.Do = append(p.Do, orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt})
		}
	}
	for i, c := range capsules {
		set := devicesFor(&to[i], taken[to[i].ID], c.Spec.Devices.Count)
		taken[to[i].ID] |= set
		p.Do = append(p.Do, orbit.Place{Capsule: c.ID, Node: to[i].ID, Devices: set})
	}
	return state.Check(p) == nil
}

// fitsSomehow tries every node for each capsule that waits, and every set of at most so many others that move.
func fitsSomehow(state *orbit.State, nodes []orbit.Node, moves int) bool {
	var all []orbit.Node
	for n := range state.Nodes() {
		all = append(all, *n.Node)
	}
	all = append(all, nodes...)
	waits := state.Pending()
	var others []*orbit.Capsule
	for c := range state.Capsules() {
		if c.Placed() && state.Movable(c) {
			others = append(others, c)
		}
	}
	var assign func(capsules []*orbit.Capsule, to []orbit.Node) bool
	assign = func(capsules []*orbit.Capsule, to []orbit.Node) bool {
		if len(to) == len(capsules) {
			return inDomains(state, capsules, to) && takes(state, nodes, capsules, to)
		}
		c := capsules[len(to)]
		for _, n := range all {
			if n.ID != c.Node && mayEverTake(&n, c.Spec) && assign(capsules, append(to[:len(to):len(to)], n)) {
				return true
			}
		}
		return false
	}
	var choose func(from int, set []*orbit.Capsule) bool
	choose = func(from int, set []*orbit.Capsule) bool {
		if assign(append(waits[:len(waits):len(waits)], set...), nil) {
			return true
		}
		for i := from; i < len(others) && len(set) < moves; i++ {
			if choose(i+1, append(set[:len(set):len(set)], others[i])) {
				return true
			}
		}
		return false
	}
	return choose(0, nil)
}

func mayEverTake(n *orbit.Node, s *orbit.Spec) bool {
	return n.Capacity[orbit.CPU] >= s.Envelope.Reservation[orbit.CPU] && n.Devices.Count >= s.Devices.Count
}

// inDomains reports whether the members of each gang are in one domain of one of its levels.
func inDomains(state *orbit.State, capsules []*orbit.Capsule, to []orbit.Node) bool {
	in := map[orbit.GangID]string{}
	for i, c := range capsules {
		g := state.Gang(c.Gang())
		if g == nil || len(g.Gang.Levels) == 0 {
			continue
		}
		domain := to[i].Labels[g.Gang.Levels[0]]
		if c.Placed() && !joins(state, c, domain) {
			return false
		}
		if was, ok := in[c.Gang()]; !c.Placed() && ok && was != domain {
			return false
		}
		in[c.Gang()] = domain
	}
	return true
}

// joins reports whether a domain is that of the other placed members of a gang, if they are all in one.
func joins(state *orbit.State, c *orbit.Capsule, domain string) bool {
	others := map[string]bool{}
	for m := range state.Members(c.Gang()) {
		if m.Placed() && m.ID != c.ID {
			others[state.Node(m.Node).Node.Labels["zone"]] = true
		}
	}
	return len(others) != 1 || others[domain]
}

// Where brute force finds nodes with which all that waits has a place, ScaleUp finds nodes of the same price, and the
// ledger takes its answer. Where brute force finds none, something still waits.
func TestScaleUpCostsLeastOnSmallWorlds(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := drawScale(t, rapid.IntRange(1, 2).Draw(t, "nodes"), rapid.IntRange(0, 4).Draw(t, "placed"), rapid.IntRange(1, 4).Draw(t, "waiting"))
		up := &whatif.ScaleUp{Moves: rapid.SampledFrom([]int{-1, 1, 2}).Draw(t, "moves")}
		for i := range rapid.IntRange(1, 2).Draw(t, "kinds") {
			k := whatif.NodeKind{Name: fmt.Sprint("k", i), Node: scaleNode(t, fmt.Sprint("k", i)), Price: float64(rapid.IntRange(1, 4).Draw(t, "price")),
				Max: rapid.IntRange(1, 2).Draw(t, "max")}
			up.Kinds = append(up.Kinds, k)
		}
		answer, err := up.Plan(t.Context(), w.state)
		require.NoError(t, err)
		require.NoError(t, answer.After.Verify())
		require.LessOrEqual(t, len(answer.Moved), max(up.Moves, 0))
		least, found := bruteUp(w.state, up)
		if found {
			require.Empty(t, answer.Unplaced, "brute force places all for %v", least)
			require.Equal(t, least, answer.Price, "%v", answer)
			seen[fmt.Sprint("nodes ", len(answer.Nodes), ", moves ", len(answer.Moved))]++
		} else {
			require.NotEmpty(t, answer.Unplaced)
			seen["something waits"]++
		}
		require.LessOrEqual(t, answer.Bound, answer.Price+1e-9)
		before := w.state.Revision()
		done, err := answer.Commit(t.Context(), w.ledger)
		require.NoError(t, err)
		require.LessOrEqual(t, done, 1, "one proposal")
		now := snapshot(t, w.ledger)
		require.Equal(t, before+orbit.Revision(done), now.Revision())
		require.Len(t, now.Pending(), len(answer.Unplaced))
		again := &whatif.ScaleDown{Of: func(n *orbit.Node) bool { return w.state.Node(n.ID) == nil }, Moves: max(up.Moves, 0) - 1}
		if up.Moves < 0 {
			down, err := again.Plan(t.Context(), now)
			require.NoError(t, err)
			require.Empty(t, down.Nodes, "an empty node was added")
		}
	})
	t.Log(seen)
}

// bruteUp tries all numbers of nodes of each kind.
func bruteUp(state *orbit.State, up *whatif.ScaleUp) (least float64, found bool) {
	var choose func(k int, nodes []orbit.Node, price float64)
	choose = func(k int, nodes []orbit.Node, price float64) {
		if found && price >= least {
			return
		}
		if k == len(up.Kinds) {
			if fitsSomehow(state, nodes, max(up.Moves, 0)) {
				least, found = price, true
			}
			return
		}
		for count := 0; count <= up.Kinds[k].Max; count++ {
			choose(k+1, nodes, price)
			n := up.Kinds[k].Node
			n.ID = orbit.NodeID(fmt.Sprint("new-", k, "-", count))
			nodes, price = append(nodes[:len(nodes):len(nodes)], n), price+up.Kinds[k].Price
		}
	}
	choose(0, nil, 0)
	return least, found
}

// Where brute force finds nodes that can go, ScaleDown finds nodes that save as much, and more only by moves of others. All
// its proposals commit, and leave the nodes empty and cordoned.
func TestScaleDownSavesMostOnSmallWorlds(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := drawScale(t, rapid.IntRange(2, 4).Draw(t, "nodes"), rapid.IntRange(0, 6).Draw(t, "placed"), 0)
		prices := map[orbit.NodeID]float64{}
		for n := range w.state.Nodes() {
			prices[n.Node.ID] = float64(rapid.IntRange(1, 5).Draw(t, "price"))
		}
		keeps := nodeID(rapid.IntRange(0, 4).Draw(t, "keeps"))
		down := &whatif.ScaleDown{Of: func(n *orbit.Node) bool { return n.ID != keeps }, Price: func(n *orbit.Node) float64 { return prices[n.ID] },
			Moves: rapid.SampledFrom([]int{-1, 1, 3, 9}).Draw(t, "moves")}
		answer, err := down.Plan(t.Context(), w.state)
		require.NoError(t, err)
		require.NoError(t, answer.After.Verify())
		require.LessOrEqual(t, len(answer.Moved), max(down.Moves, 0))
		require.GreaterOrEqual(t, answer.Bound, answer.Price)
		goes, sum := map[orbit.NodeID]bool{}, 0.0
		for _, n := range answer.Nodes {
			sum += prices[n.ID]
			goes[n.ID] = true
			require.NotEqual(t, keeps, n.ID)
			require.Zero(t, answer.After.Node(n.ID).Capsules)
			require.Equal(t, orbit.Cordoned, answer.After.Node(n.ID).Node.State)
		}
		require.Equal(t, sum, answer.Price)
		others := 0
		for _, m := range answer.Moved {
			if require.False(t, goes[m.To]); !goes[m.From] {
				others++
			}
		}
		most := bruteDown(w.state, down)
		require.GreaterOrEqual(t, answer.Price, most, "%v", answer)
		if others == 0 {
			require.Equal(t, most, answer.Price, "more than brute force: %v", answer)
		}
		seen[fmt.Sprint("nodes ", len(answer.Nodes), ", moves ", len(answer.Moved), ", of others ", others)]++
		done, err := answer.Commit(t.Context(), w.ledger)
		require.NoError(t, err)
		require.Equal(t, len(answer.Nodes), done, "one proposal for each node")
	})
	t.Log(seen)
}

// bruteDown tries all sets of nodes, in each order, and all nodes for their capsules, and returns the most that is saved.
func bruteDown(state *orbit.State, down *whatif.ScaleDown) (most float64) {
	var all []*orbit.NodeState
	for n := range state.Nodes() {
		all = append(all, n)
	}
	for bits := range 1 << len(all) {
		var set []*orbit.NodeState
		sum, size, may := 0.0, 0, true
		for i, n := range all {
			if bits&(1<<i) != 0 {
				set, sum, size, may = append(set, n), sum+down.Price(n.Node), size+n.Capsules, may && down.Of(n.Node)
			}
		}
		if may && sum > most && size <= max(0, down.Moves) && goSomehow(state, set, set) {
			most = sum
		}
	}
	return most
}

// goSomehow reports whether these nodes can go one after the other, in some order, if what is on them goes to none of a set.
func goSomehow(state *orbit.State, left, set []*orbit.NodeState) bool {
	if len(left) == 0 {
		return true
	}
	for i, n := range left {
		rest := append(left[:i:i], left[i+1:]...)
		var capsules []*orbit.Capsule
		for c := range state.On(n.Node.ID) {
			capsules = append(capsules, c)
		}
		var assign func(to []orbit.Node) bool
		assign = func(to []orbit.Node) bool {
			if len(to) == len(capsules) {
				next, ok := goTo(state, n, capsules, to)
				return ok && inDomains(state, capsules, to) && goSomehow(next, rest, set)
			}
			for other := range state.Nodes() {
				goes := false
				for _, o := range set {
					goes = goes || o.Node.ID == other.Node.ID
				}
				if !goes && mayEverTake(other.Node, capsules[len(to)].Spec) && assign(append(to[:len(to):len(to)], *other.Node)) {
					return true
				}
			}
			return false
		}
		if assign(nil) {
			return true
		}
	}
	return false
}

// goTo moves all capsules of a node and cordons it, as one proposal.
func goTo(state *orbit.State, n *orbit.NodeState, capsules []*orbit.Capsule, to []orbit.Node) (*orbit.State, bool) {
	cordoned := n.Node.Clone()
	cordoned.State = orbit.Cordoned
	p := orbit.Proposal{View: state.Revision()}
	taken := map[orbit.NodeID]orbit.DeviceSet{}
	for c := range state.Capsules() {
		if c.Placed() {
			taken[c.Node] |= c.Devices
		}
	}
	for _, c := range capsules {
		p.Do = append(p.Do, orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt})
	}
	for i, c := range capsules {
		set := devicesFor(&to[i], taken[to[i].ID], c.Spec.Devices.Count)
		taken[to[i].ID] |= set
		p.Do = append(p.Do, orbit.Place{Capsule: c.ID, Node: to[i].ID, Devices: set})
	}
	p.Do = append(p.Do, orbit.PutNode{Node: cordoned})
	next, err := state.With(p)
	return next, err == nil
}
