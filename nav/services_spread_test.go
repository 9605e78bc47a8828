package nav_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// spreading is 1,000 nodes in three zones, of which the first has the most nodes and the last the largest, and four engines that plan at once. None of them is told
// more than to be a Services.
type spreading struct {
	*testing.T
	ledger  *orbit.MemoryLedger
	engines []*orbit.Engine
	serial  int
}

func newSpreading(t *testing.T) *spreading {
	s := &spreading{T: t, ledger: &orbit.MemoryLedger{}}
	s.join("a", 500, func(i int) int64 { return 2 + int64(i%5) })
	s.join("b", 300, func(i int) int64 { return 4 + int64(i%9) })
	s.join("c", 200, func(i int) int64 { return 8 + int64(i%25) })
	for i := range 4 {
		s.engines = append(s.engines, &orbit.Engine{Name: fmt.Sprint("e", i), Ledger: s.ledger, MaxPlan: 50, Navigator: &nav.Services{}})
	}
	return s
}

// join adds the nodes of a zone.
func (s *spreading) join(zone string, nodes int, cpu func(i int) int64) {
	var do []orbit.Commitment
	for i := range nodes {
		n := node(fmt.Sprintf("%s%03d", zone, i), cpu(i))
		n.Node.Labels = map[string]string{"zone": zone}
		do = append(do, n)
	}
	commit(s, s.ledger, do...)
}

// submit adds replicas to a set, which is of one engine or of all of them.
func (s *spreading) submit(set string, replicas int, cpu int64, owner string) {
	spec := &orbit.Spec{Group: set, Spread: orbit.Domains{Level: "zone"}, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
	var ids []orbit.CapsuleID
	for range replicas {
		s.serial++
		ids = append(ids, orbit.CapsuleID(fmt.Sprintf("c%04d", s.serial)))
	}
	commit(s, s.ledger, orbit.Submit{IDs: ids, Spec: spec, Owner: owner})
}

// rest lets all engines plan at once until they have nothing more to do. What waits then fits nowhere.
func (s *spreading) rest() *orbit.State {
	for quiet := 0; quiet < 4; quiet++ {
		var wg sync.WaitGroup
		before := snapshot(s, s.ledger).Revision()
		for _, e := range s.engines {
			wg.Go(func() { e.Pass(s.Context()) })
		}
		wg.Wait()
		if snapshot(s, s.ledger).Revision() != before {
			quiet = 0
		}
	}
	state := snapshot(s, s.ledger)
	require.NoError(s, state.Verify())
	for _, c := range state.Pending() {
		for n := range state.Nodes() {
			require.False(s, n.Fits(c.Spec), "%s waits and fits on %s", c.ID, n.Node.ID)
		}
	}
	return state
}

// in counts the placed members of a set by zone.
func in(state *orbit.State, set string) (a, b, c int) {
	count := map[string]int{}
	for n, members := range state.GroupNodes(set) {
		count[n.Node.Labels["zone"]] += members
	}
	return count["a"], count["b"], count["c"]
}

func apart(counts ...int) int {
	least, most := counts[0], counts[0]
	for _, n := range counts {
		least, most = min(least, n), max(most, n)
	}
	return most - least
}

// A spec that has nothing but a group and a level is spread: whatever the zones are like and whoever takes their room meanwhile, no two zones are more than one apart
// while there is room. That holds for sets of one engine each. A fifth of them is of no engine, so all plan them at once, and each counts what it sees: these are placed.
func TestServicesSpread(t *testing.T) {
	scale.Long(t)
	s := newSpreading(t)
	owner := func(set int) string { return []string{"e0", "e1", "e2", "e3", ""}[set%5] }
	name := func(set int) string { return fmt.Sprint("set", set) }
	even := func(state *orbit.State, of func(state *orbit.State, set string) []int) {
		t.Helper()
		for set := range 20 {
			counts := of(state, name(set))
			if owner(set) != "" {
				require.LessOrEqual(t, apart(counts...), 1, "%s has %v", name(set), counts)
			}
		}
	}
	all := func(state *orbit.State, set string) []int { a, b, c := in(state, set); return []int{a, b, c} }
	for set := range 20 {
		s.submit(name(set), 1+4*set, int64(1+set%3), owner(set))
	}
	state := s.rest()
	require.Zero(t, state.PendingCount())
	even(state, all)

	// Zone b fails. What ran there goes to the others, evenly.
	var lost []orbit.Commitment
	for n := range state.Nodes() {
		if n.Node.Labels["zone"] == "b" {
			gone := *n.Node
			gone.State = orbit.Lost
			lost = append(lost, orbit.PutNode{Node: gone})
			for c := range state.On(n.Node.ID) {
				lost = append(lost, orbit.Release{Capsule: c.ID})
			}
		}
	}
	commit(t, s.ledger, lost...)
	state = s.rest()
	require.Zero(t, state.PendingCount())
	even(state, func(state *orbit.State, set string) []int { a, _, c := in(state, set); return []int{a, c} })

	// It comes back. Nothing that runs is moved; all that arrives goes there until it has as many.
	var back []orbit.Commitment
	for n := range state.Nodes() {
		if n.Node.State == orbit.Lost {
			back = append(back, orbit.RemoveNode{Node: n.Node.ID})
		}
	}
	commit(t, s.ledger, back...)
	s.join("b", 300, func(i int) int64 { return 4 + int64(i%9) })
	a, b, c := in(s.rest(), name(18))
	require.Zero(t, b)
	s.submit(name(18), 10, 2, owner(18))
	a2, b2, c2 := in(s.rest(), name(18))
	require.Equal(t, []int{a, 10, c}, []int{a2, b2, c2})
	for set := range 20 {
		s.submit(name(set), 2+4*set, int64(1+set%3), owner(set))
	}
	state = s.rest()
	require.Zero(t, state.PendingCount())
	even(state, all)

	// When a zone is full, the rest goes elsewhere, evenly, until nothing fits any more.
	room := func(state *orbit.State) (a, b, c int64) {
		free := map[string]int64{}
		for n := range state.Nodes() {
			free[n.Node.Labels["zone"]] += n.Free()[orbit.CPU]
		}
		return free["a"], free["b"], free["c"]
	}
	s.submit("large", 3000, 1, "e1")
	state = s.rest()
	a, b, c = in(state, "large")
	require.Equal(t, 3000, a+b+c)
	left, beside, _ := room(state)
	require.Zero(t, left)
	require.Positive(t, beside)
	require.Less(t, a, b)
	require.LessOrEqual(t, apart(b, c), 1)
	s.submit("larger", 5000, 1, "e2")
	state = s.rest()
	require.NotZero(t, state.PendingCount())
	left, beside, last := room(state)
	require.Zero(t, left+beside+last)
}

// A spec that names a level and domains is spread over these domains, with a group or without, whatever the order of ids and
// however many nodes a zone has. Other zones come last.
func TestServicesSpreadOverNamedDomains(t *testing.T) {
	for _, group := range []string{"", "web"} {
		for _, nodes := range []int{3, 30} {
			l := &orbit.MemoryLedger{}
			for i, zone := range []string{"other", "a", "b"} {
				for k := range nodes * (i + 1) {
					n := node(fmt.Sprint(i, "-", k), 10)
					n.Node.Labels = map[string]string{"zone": zone}
					commit(t, l, n)
				}
			}
			s := spec(1, 0)
			s.Group, s.Spread = group, orbit.Domains{Level: "zone", Names: []string{"a", "b"}}
			for i := range 6 {
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: s})
			}
			(&orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Services{}}).Pass(t.Context())
			count := map[string]int{}
			for c := range snapshot(t, l).Capsules() {
				count[snapshot(t, l).Node(c.Node).Node.Labels["zone"]]++
			}
			require.Equal(t, map[string]int{"a": 3, "b": 3}, count, "group %q, %d nodes", group, nodes)
		}
	}
}

// A level that no node has, such as a misspelt one, spreads nothing, and the round says for how many capsules.
func TestServicesSayWhatIsNotSpread(t *testing.T) {
	for _, placement := range []orbit.PlacementEngine{nil, &place.Sampled{}} {
		for level, want := range map[string]int64{"zone": 0, "zoen": 6, "": 0} {
			l := &orbit.MemoryLedger{}
			for i := range 30 {
				n := node(fmt.Sprint("n", i), 10)
				n.Node.Labels = map[string]string{"zone": string("ab"[i%2])}
				commit(t, l, n)
			}
			s := spec(1, 0)
			s.Spread.Level = level
			for i := range 6 {
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: s})
			}
			r := (&orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Services{Placement: placement}}).Pass(t.Context())
			require.Equal(t, 6, r.Committed)
			require.Equal(t, want, noteOf(r.Notes, "unspread"), "level %q, %T", level, placement)
		}
	}
}
