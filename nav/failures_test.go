package nav_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// badNodes has every start on some nodes fail, a tenth of a second after the capsule is placed there, and counts the starts of each capsule.
type badNodes struct {
	ledger orbit.Ledger
	bad    func(orbit.NodeID) bool

	mu     sync.Mutex
	starts map[orbit.CapsuleID]int
}

func (b *badNodes) run(ctx context.Context) {
	b.starts = map[orbit.CapsuleID]int{}
	for changes, err := range orbit.Follow(ctx, b.ledger, 0) {
		if err != nil {
			return
		}
		for _, c := range changes {
			do, ok := c.Do.(orbit.Place)
			if !ok {
				continue
			}
			b.mu.Lock()
			b.starts[do.Capsule]++
			b.mu.Unlock()
			if b.bad(do.Node) {
				go func() {
					time.Sleep(100 * time.Millisecond)
					_, _ = b.ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
						orbit.Release{Capsule: do.Capsule, From: do.Node, Stopped: true, At: orbit.Instant(time.Now().UnixNano())}}})
				}()
			}
		}
	}
}

// most returns how many starts the capsule with the most had.
func (b *badNodes) most() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, starts := range b.starts {
		n = max(n, starts)
	}
	return n
}

// failing runs a navigator on a ledger with a node on which every start fails, until time has passed.
func failing(t *testing.T, l orbit.Ledger, n orbit.Navigator, bad func(orbit.NodeID) bool, passes time.Duration) *badNodes {
	ctx, cancel := context.WithCancel(t.Context())
	b := &badNodes{ledger: l, bad: bad}
	e := &orbit.Engine{Name: "e", Ledger: l, Navigator: n, OnError: func(err error) { t.Error(err) }}
	go b.run(ctx)
	synctest.Wait()
	var g sync.WaitGroup
	g.Go(func() { _ = e.Run(ctx) })
	time.Sleep(passes)
	cancel()
	g.Wait()
	return b
}

func isBad(id orbit.NodeID) bool { return id == "bad" }

// TestAFailingNodeBesideTwoGoodOnes: work of one spec and of several runs on a good node within three starts, whoever plans it; when most starts on
// the bad node have failed, nobody goes there any more.
func TestAFailingNodeBesideTwoGoodOnes(t *testing.T) {
	single := func(class orbit.AppClass) func(i int) []orbit.Commitment {
		return func(i int) []orbit.Commitment {
			s := spec(1000, 0)
			s.Class, s.Module = class, fmt.Sprint("m", i%3)
			return []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: s}}
		}
	}
	gangs := func(levels ...string) func(i int) []orbit.Commitment {
		return func(i int) []orbit.Commitment {
			g := &orbit.Gang{ID: orbit.GangID(fmt.Sprint("g", i)), Levels: levels, Roles: []orbit.Role{{Name: "w", Spec: gangSpec(1000)}}}
			for k := range 2 {
				g.Roles[0].Members = append(g.Roles[0].Members, orbit.CapsuleID(fmt.Sprintf("g%d-%d", i, k)))
			}
			return []orbit.Commitment{orbit.Submit{Gang: g}}
		}
	}
	near := func(i int) []orbit.Commitment {
		s := spec(1000, 0)
		s.Group = fmt.Sprint("group", i)
		s.Near = orbit.Near{Group: s.Group, Level: "rack"}
		return []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprintf("n%d-a", i)), orbit.CapsuleID(fmt.Sprintf("n%d-b", i))}, Spec: s}}
	}
	for name, test := range map[string]struct {
		navigator orbit.Navigator
		work      func(i int) []orbit.Commitment
	}{
		"services":            {&nav.Services{}, single(orbit.LatencySensitive)},
		"services, all rated": {&nav.Services{Placement: &place.Exhaustive{}}, single(orbit.LatencySensitive)},
		"services, sampled":   {&nav.Services{Placement: &place.Sampled{}}, single(orbit.LatencySensitive)},
		"batch":               {&nav.Batch{}, single(orbit.Batch)},
		"patient":             {&nav.Patient{Navigator: &nav.Services{}}, single(orbit.LatencySensitive)},
		"preempting":          {&nav.Preempting{Navigator: &nav.Services{}}, single(orbit.LatencySensitive)},
		"gangs":               {&nav.Gang{}, gangs()},
		"gangs in racks":      {&nav.Gang{}, gangs("rack")},
		"anchor":              {&nav.Anchor{Navigator: &nav.Services{}}, near},
	} {
		for _, burst := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", burst ", burst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := &orbit.MemoryLedger{}
					for _, id := range []string{"bad", "good-1", "good-2"} {
						n := node(id, 40_000)
						n.Node.Labels = map[string]string{"rack": "of " + id}
						commit(t, l, n)
					}
					go func() {
						count := 12
						if name == "anchor" { // each group starts on a node of its own
							count = 2
						}
						for i := range count {
							_, err := l.Propose(t.Context(), orbit.Proposal{Do: test.work(i)})
							assert.NoError(t, err)
							if !burst {
								time.Sleep(3 * time.Second)
							}
						}
					}()
					b := failing(t, l, test.navigator, isBad, 2*time.Minute)
					s, wasted := snapshot(t, l), 0
					for c := range s.Capsules() {
						assert.True(t, c.Placed() && c.Node != "bad", "%s is on %q", c.ID, c.Node)
						assert.LessOrEqual(t, b.starts[c.ID], 3, "%s", c.ID)
						wasted += b.starts[c.ID] - 1
					}
					require.Positive(t, s.CapsuleCount())
					if !burst && name != "anchor" {
						assert.Less(t, wasted, s.CapsuleCount()*2/3, "the node that fails does not draw all work")
					}
				})
			})
		}
	}
}

// TestWorkThatFailsEverywhereIsDelayed: a capsule or a gang that fails wherever it is placed is placed some dozen times in an hour, and on all nodes.
func TestWorkThatFailsEverywhereIsDelayed(t *testing.T) {
	for name, test := range map[string]struct {
		navigator orbit.Navigator
		work      orbit.Submit
		nodes     int
	}{
		"one node":     {&nav.Services{}, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: spec(1, 0)}, 1},
		"many nodes":   {&nav.Services{}, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: spec(1, 0)}, 9},
		"a whole gang": {&nav.Gang{}, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Spec: gangSpec(1), Members: []orbit.CapsuleID{"a", "b", "c"}}}}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				for i := range test.nodes {
					commit(t, l, node(fmt.Sprint("n", i), 10))
				}
				commit(t, l, test.work)
				b := failing(t, l, test.navigator, func(orbit.NodeID) bool { return true }, time.Hour)
				// 0, 1, 2, 4, ... 256 s and then 300 s: ten in the first nine minutes, and ten more in the rest of the hour
				assert.InDelta(t, 21, b.most(), 2)
				nodes := map[orbit.NodeID]bool{}
				for _, n := range snapshot(t, l).Failures("c").Nodes {
					nodes[n.Node] = true
				}
				assert.Len(t, nodes, min(test.nodes, 4))
			})
		})
	}
}

// confirmingNode is a node with an agent.
func confirmingNode(id string, cpu int64) orbit.PutNode {
	n := node(id, cpu)
	n.Node.Confirms = true
	n.Node.Labels = map[string]string{"rack": id[:1]}
	return n
}

// begin says that capsules begin where they are placed.
func begin(t require.TestingT, l orbit.Ledger, ids ...orbit.CapsuleID) {
	for _, id := range ids {
		commit(t, l, orbit.Confirm{Capsule: id, Since: snapshot(t, l).Capsule(id).PlacedAt, Begun: true})
	}
}

// TestNewWorkGoesWhereItCanBegin: a node that something has left which does not stop comes after all others, whoever plans.
func TestNewWorkGoesWhereItCanBegin(t *testing.T) {
	gang := &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Spec: gangSpec(4), Members: []orbit.CapsuleID{"c", "d"}}}}
	batch := spec(4, 0)
	batch.Class = orbit.Batch
	for name, test := range map[string]struct {
		navigator orbit.Navigator
		work      orbit.Submit
	}{
		"services": {&nav.Services{}, orbit.Submit{IDs: []orbit.CapsuleID{"c", "d"}, Spec: spec(4, 0)}},
		"batch":    {&nav.Batch{}, orbit.Submit{IDs: []orbit.CapsuleID{"c", "d"}, Spec: batch}},
		"gang":     {&nav.Gang{}, orbit.Submit{Gang: gang}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, confirmingNode("a", 8), confirmingNode("b", 5), confirmingNode("c", 5), orbit.Submit{IDs: []orbit.CapsuleID{"old"}, Spec: spec(8, 0)}, orbit.Place{Capsule: "old", Node: "a"})
			begin(t, l, "old")
			commit(t, l, orbit.Release{Capsule: "old", Final: true}, test.work)
			e := orbit.Engine{Ledger: l, Navigator: test.navigator}
			e.Pass(t.Context())
			s := snapshot(t, l)
			assert.ElementsMatch(t, []orbit.NodeID{"b", "c"}, []orbit.NodeID{s.Capsule("c").Node, s.Capsule("d").Node}, "the largest node by far is not free yet")
			more := test.work
			more.IDs = []orbit.CapsuleID{"e"}
			if more.Gang != nil {
				more = orbit.Submit{Gang: &orbit.Gang{ID: "h", Roles: []orbit.Role{{Name: "w", Spec: gangSpec(4), Members: []orbit.CapsuleID{"e"}}}}}
			}
			commit(t, l, more)
			e.Pass(t.Context())
			assert.Equal(t, orbit.NodeID("a"), snapshot(t, l).Capsule("e").Node, "it waits there rather than nowhere")
		})
	}
}

// TestAGangEvictsWhereNoneOfItHasFailed: of nodes and of racks with equal victims a gang takes those on which none of its members has failed.
func TestAGangEvictsWhereNoneOfItHasFailed(t *testing.T) {
	for name, levels := range map[string][]string{"nodes": nil, "racks": {"rack"}} {
		for _, failed := range []orbit.CapsuleID{"x", "y"} {
			t.Run(fmt.Sprint(name, ", failed: ", failed), func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				low, gang := spec(4, 0), gangSpec(4)
				gang.Priority = 100
				for _, id := range []string{"a1", "a2", "b1", "b2"} {
					n := node(id, 4)
					n.Node.Labels = map[string]string{"rack": id[:1]}
					filler := orbit.CapsuleID("on " + id)
					commit(t, l, n, orbit.Submit{IDs: []orbit.CapsuleID{filler}, Spec: low})
				}
				commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: levels, Roles: []orbit.Role{{Name: "w", Spec: gang, Members: []orbit.CapsuleID{"x", "y"}}}}},
					orbit.Place{Capsule: "x", Node: "a1"}, orbit.Place{Capsule: "y", Node: "a2"})
				at, now := snapshot(t, l).Capsule(failed).Node, orbit.Instant(time.Now().UnixNano())
				commit(t, l, orbit.Release{Capsule: failed, Stopped: true, At: now})
				other := map[orbit.CapsuleID]orbit.CapsuleID{"x": "y", "y": "x"}[failed]
				commit(t, l, orbit.Release{Capsule: other, Stopped: true, At: 1}) // long ago
				for _, id := range []orbit.NodeID{"a1", "a2", "b1", "b2"} {
					commit(t, l, orbit.Place{Capsule: orbit.CapsuleID("on " + id), Node: id, At: 1})
				}
				e := orbit.Engine{Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}}
				e.Pass(t.Context())
				s := snapshot(t, l)
				for _, id := range []orbit.CapsuleID{"x", "y"} {
					require.True(t, s.Capsule(id).Placed())
					assert.NotEqual(t, at, s.Capsule(id).Node)
					assert.True(t, levels == nil || s.Capsule(id).Node[0] == 'b')
				}
			})
		}
	}
}

// TestAVictimThatNeverStops: work that waits on a node for a victim that does not stop goes to another node as soon as one is free, after a minute at the
// earliest; if none is, it stays.
func TestAVictimThatNeverStops(t *testing.T) {
	for name, inner := range map[string]orbit.Navigator{
		"services": &nav.Services{}, "patient": &nav.Patient{Navigator: &nav.Services{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				commit(t, l, confirmingNode("a", 4), confirmingNode("b", 4), orbit.Submit{IDs: []orbit.CapsuleID{"low-a", "low-b"}, Spec: spec(4, 0)},
					orbit.Place{Capsule: "low-a", Node: "a"}, orbit.Place{Capsule: "low-b", Node: "b"})
				begin(t, l, "low-a", "low-b")
				high := spec(4, 100)
				high.Class = orbit.BestEffort
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"high"}, Spec: high})
				e := orbit.Engine{Ledger: l, Navigator: &nav.Preempting{Navigator: inner}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _ = e.Run(ctx) }()
				time.Sleep(time.Hour)
				at := snapshot(t, l).Capsule("high")
				require.True(t, at.Waits, "nothing else is free")
				other := orbit.CapsuleID("low-b")
				if at.Node == "b" {
					other = "low-a"
				}
				commit(t, l, orbit.Release{Capsule: other, Final: true}, orbit.Confirm{Capsule: other, Since: snapshot(t, l).Capsule(other).PlacedAt, Stopped: true})
				time.Sleep(10 * time.Second)
				now := snapshot(t, l).Capsule("high")
				assert.NotEqual(t, at.Node, now.Node)
				begin(t, l, "high")
			})
		})
	}
}

// TestGangsThatWaitForWhatNeverStops: a gang of which no member has begun starts anew in another rack; one that runs takes the member that waits to
// another node of its rack, and to no other rack.
func TestGangsThatWaitForWhatNeverStops(t *testing.T) {
	gang := orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "w", Spec: gangSpec(4), Members: []orbit.CapsuleID{"x", "y"}}}}}
	for _, begun := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, confirmingNode("a1", 4), confirmingNode("a2", 4), orbit.Submit{IDs: []orbit.CapsuleID{"old1", "old2"}, Spec: spec(4, 0)},
				orbit.Place{Capsule: "old1", Node: "a1"}, orbit.Place{Capsule: "old2", Node: "a2"})
			begin(t, l, "old1", "old2")
			commit(t, l, orbit.Release{Capsule: "old1", Final: true}, orbit.Release{Capsule: "old2", Final: true})
			commit(t, l, gang)
			e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
			go func() { _ = e.Run(t.Context()) }()
			time.Sleep(time.Second)
			on := map[orbit.NodeID]*orbit.Capsule{}
			for c := range snapshot(t, l).Members("g") {
				require.True(t, c.Waits)
				on[c.Node] = c
			}
			if begun {
				commit(t, l, orbit.Confirm{Capsule: "old2", Since: snapshot(t, l).Capsule("old2").Remains().Since, Stopped: true})
				begin(t, l, on["a2"].ID)
			}
			commit(t, l, confirmingNode("b1", 4), confirmingNode("b2", 4))
			time.Sleep(5 * time.Minute)
			s := snapshot(t, l)
			if !begun {
				assert.Equal(t, []string{"b", "b"}, []string{string(s.Capsule("x").Node[:1]), string(s.Capsule("y").Node[:1])})
				return
			}
			assert.Equal(t, on["a1"].PlacedAt, s.Capsule(on["a1"].ID).PlacedAt, "the other rack is no place for it")
			commit(t, l, confirmingNode("a3", 4))
			time.Sleep(5 * time.Minute)
			s = snapshot(t, l)
			assert.Equal(t, []orbit.NodeID{"a3", "a2"}, []orbit.NodeID{s.Capsule(on["a1"].ID).Node, s.Capsule(on["a2"].ID).Node})
		})
	}
}

// TestWhatCouldNotBeginStaysWhereItIs: placements are given up only for capacity on which they can begin, one for each.
func TestWhatCouldNotBeginStaysWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		ids := []orbit.CapsuleID{"w1", "w2", "w3"}
		commit(t, l, confirmingNode("a", 12), orbit.Submit{IDs: []orbit.CapsuleID{"old"}, Spec: spec(12, 0)}, orbit.Place{Capsule: "old", Node: "a"})
		begin(t, l, "old")
		commit(t, l, orbit.Release{Capsule: "old", Final: true}, orbit.Submit{IDs: ids, Spec: spec(4, 0)})
		e := orbit.Engine{Ledger: l, Navigator: &nav.Services{}}
		go func() { _ = e.Run(t.Context()) }()
		time.Sleep(5 * time.Minute)
		commit(t, l, confirmingNode("b", 5))
		time.Sleep(5 * time.Minute)
		s, on := snapshot(t, l), map[orbit.NodeID]int{}
		waiting := 0
		for range s.Waiting() {
			waiting++
		}
		for _, id := range ids {
			on[s.Capsule(id).Node]++
		}
		assert.Equal(t, map[orbit.NodeID]int{"a": 2, "b": 1}, on)
		assert.Equal(t, 2, waiting)
		assert.Len(t, slices.Collect(func(yield func(orbit.CapsuleID) bool) {
			for c := range s.Failed() {
				yield(c.ID)
			}
		}), 1, "one placement was given up")
	})
}
