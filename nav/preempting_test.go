package nav_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/nav"
)

// cores returns a spec of so many milli-cores and a priority.
func cores(milli int64, priority int32) *orbit.Spec {
	s := spec(milli, 0)
	s.Priority = priority
	return s
}

// full returns a ledger of nodes of 4 CPU with four capsules of 900m on each.
func full(t require.TestingT, nodes int) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	low := cores(900, 0)
	for i := range nodes {
		id := fmt.Sprintf("n%04d", i)
		do := []orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: 4000}}}}
		for k := range 4 {
			c := orbit.CapsuleID(fmt.Sprintf("low-%s-%d", id, k))
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: low}, orbit.Place{Capsule: c, Node: orbit.NodeID(id)})
		}
		commit(t, l, do...)
	}
	return l
}

// evictions counts by capsule how often each was evicted, and for whom, as the history has it.
func evictions(t require.TestingT, l orbit.Ledger, after orbit.Revision) (by map[orbit.CapsuleID]int, total int) {
	by = map[orbit.CapsuleID]int{}
	changes, err := l.Changes(context.Background(), after)
	require.NoError(t, err)
	for _, c := range changes {
		if e, ok := c.Do.(orbit.Evict); ok {
			by[e.Capsule]++
			total++
		}
	}
	return by, total
}

// runOut passes until nothing is committed any more, at most so many times.
func runOut(t require.TestingT, passes int, engines ...*orbit.Engine) {
	for range passes {
		committed := 0
		for _, e := range engines {
			round := e.Pass(context.Background())
			require.Empty(t, round.Errors)
			committed += round.Committed + round.Conflicts
		}
		if committed == 0 {
			return
		}
	}
}

// TestPreemptionBasic is the benchmark of kube-scheduler of that name: on 1,000 nodes that are full of 4,000 capsules, 1,000 of higher
// priority are all placed, with 3 victims each, which is the fewest, and nobody is evicted twice. What each placement takes
// is told beside the same work without preemption.
func TestPreemptionBasic(t *testing.T) {
	nodes := 1000
	if testing.Short() {
		nodes = 100
	}
	urgent := func(l orbit.Ledger) (took time.Duration) {
		submit(t, l, "urgent", nodes, cores(3000, 10))
		e := &orbit.Engine{Name: "urgent", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
		start := cputime.Process()
		runOut(t, 5, e)
		return cputime.Process() - start
	}
	l := full(t, nodes)
	before := snapshot(t, l).Revision()
	took := urgent(l)
	state := snapshot(t, l)
	for c := range state.Capsules() {
		require.Equal(t, c.Spec.Priority == 10, c.Placed() && c.Spec.Priority == 10, c.ID)
	}
	by, total := evictions(t, l, before)
	require.Equal(t, 3*nodes, total, "victims")
	require.Len(t, by, 3*nodes, "nobody is evicted twice")
	empty := &orbit.MemoryLedger{}
	for i := range nodes {
		commit(t, empty, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%04d", i)), Capacity: orbit.Resources{orbit.CPU: 4000}}})
	}
	without := urgent(empty)
	t.Logf("%.0f placements a second of %s, %.0f without preemption", float64(nodes)/took.Seconds(), cputime.Name, float64(nodes)/without.Seconds())
}

// slow is a ledger to which a proposal takes a while.
type slow struct {
	orbit.Ledger
	takes time.Duration
}

func (s slow) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	time.Sleep(s.takes)
	return s.Ledger.Propose(ctx, p)
}

// causes requires that everybody who was evicted made way for what the same commit placed.
func causes(t require.TestingT, l orbit.Ledger, after orbit.Revision) {
	changes, err := l.Changes(context.Background(), after)
	require.NoError(t, err)
	placed := map[orbit.Revision]map[orbit.CapsuleID]bool{}
	for _, c := range changes {
		if p, ok := c.Do.(orbit.Place); ok {
			if placed[c.Revision] == nil {
				placed[c.Revision] = map[orbit.CapsuleID]bool{}
			}
			placed[c.Revision][p.Capsule] = true
		}
	}
	for _, c := range changes {
		if e, ok := c.Do.(orbit.Evict); ok && e.For != "" {
			require.True(t, placed[c.Revision][e.For], "%s was evicted for %s, which was not placed by that commit", e.Capsule, e.For)
		}
	}
}

// TestTwoPreemptorsAndAControllerEvictNobodyTwice: two preempting engines want the room of the same work, commits take 20 ms, and a controller
// submits a new capsule for each that is evicted. kube-scheduler evicts for ever there (kubernetes/kubernetes#130429).
func TestTwoPreemptorsAndAControllerEvictNobodyTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 20
		l := full(t, nodes)
		before := snapshot(t, l).Revision()
		for i := range nodes {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("urgent", i))}, Owner: fmt.Sprint("e", i%2), Spec: cores(3000, 10)})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		run := func(e *orbit.Engine) {
			e.Ledger = slow{l, 20 * time.Millisecond}
			all.Go(func() { _ = e.Run(ctx) })
		}
		for i := range 2 {
			run(&orbit.Engine{Name: fmt.Sprint("e", i), Navigator: &nav.Preempting{Navigator: nav.Func((&nav.Services{}).Plan)}})
		}
		run(&orbit.Engine{Name: "services", Navigator: &nav.Services{}})
		all.Go(func() { // the controller: what was evicted is ended, and comes again under another name
			seen := before
			for ctx.Err() == nil {
				changes, err := l.Changes(ctx, seen)
				require.NoError(t, err)
				for _, c := range changes {
					seen = c.Revision
					if e, ok := c.Do.(orbit.Evict); ok {
						_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: e.Capsule, Final: true},
							orbit.Submit{IDs: []orbit.CapsuleID{e.Capsule + "'"}, Spec: cores(900, 0)}}})
						require.NoError(t, err)
					}
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
		all.Wait()
		state := snapshot(t, l)
		for i := range nodes {
			require.True(t, state.Capsule(orbit.CapsuleID(fmt.Sprint("urgent", i))).Placed())
		}
		by, total := evictions(t, l, before)
		require.Equal(t, 3*nodes, total, "as many as have to")
		require.Len(t, by, total, "repeats")
		causes(t, l, before)
	})
}

// What was placed by an eviction and has lost its node since has lost no proposal: it evicts at once again.
func TestPreemptingAgainForWhatHasLostItsNode(t *testing.T) {
	l := full(t, 2)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: cores(1000, 10), Owner: "urgent"})
	e := &orbit.Engine{Name: "urgent", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
	require.Equal(t, 1, e.Pass(t.Context()).Committed)
	lost := *snapshot(t, l).Node(snapshot(t, l).Capsule("urgent").Node).Node
	lost.State = orbit.Lost
	commit(t, l, orbit.PutNode{Node: lost})
	commit(t, l, orbit.Release{Capsule: "urgent", From: lost.ID})
	require.True(t, snapshot(t, l).Capsule("urgent").Pending())
	e.Pass(t.Context())
	require.True(t, snapshot(t, l).Capsule("urgent").Placed())
}

// What nobody may make way for is parked; when the budget that forbids it is put anew, it is planned at once.
func TestPreemptingWaitsForABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, web := &orbit.MemoryLedger{}, cores(900, 0)
		web.Group = "web"
		commit(t, l, node("n", 4000), orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "web", Expected: 4}})
		for i := range 4 {
			put(t, l, fmt.Sprint("web", i), "n", web)
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: cores(1000, 10), Owner: "urgent"})
		e := &orbit.Engine{Name: "urgent", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}, ParkFor: time.Hour, Backoff: orbit.Backoff{Max: time.Hour}}
		go func() { _ = e.Run(t.Context()) }()
		time.Sleep(10 * time.Minute)
		require.True(t, snapshot(t, l).Capsule("urgent").Pending())
		commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "web", Expected: 4, Missing: 2}})
		synctest.Wait()
		require.True(t, snapshot(t, l).Capsule("urgent").Placed())
	})
}

// TestPreemptingGetsThroughSmallWork: on full nodes tasks end every 10 ms and others come in their room at once, and a commit takes 20
// ms, in which the room that a preemption counts on is taken again. After one proposal that is lost the room is nominated.
func TestPreemptingGetsThroughSmallWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, each = 4, 10
		l := &orbit.MemoryLedger{}
		tasks := map[orbit.CapsuleID]orbit.NodeID{}
		start := func(i int, on string) error {
			id := orbit.CapsuleID(fmt.Sprint("task", i))
			_, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: cores(1, 0), Owner: "tasks"},
				orbit.Place{Capsule: id, Node: orbit.NodeID(on)}}})
			if err == nil {
				tasks[id] = orbit.NodeID(on)
			}
			return err
		}
		n := 0
		for i := range nodes {
			commit(t, l, node(fmt.Sprint("n", i), each))
			for range each {
				n++
				require.NoError(t, start(n, fmt.Sprint("n", i)))
			}
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: cores(each, 10), Owner: "urgent"})
		before := snapshot(t, l).Revision()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		conflicts := 0
		e := &orbit.Engine{Name: "urgent", Ledger: slow{l, 20 * time.Millisecond}, Navigator: &nav.Preempting{Navigator: &nav.Services{}},
			OnRound: func(r orbit.Round) { conflicts += r.Conflicts }}
		all.Go(func() { _ = e.Run(ctx) })
		for ctx.Err() == nil && !snapshot(t, l).Capsule("urgent").Placed() {
			time.Sleep(10 * time.Millisecond)
			for i := range nodes { // one ends on every node, and one comes
				at := orbit.NodeID(fmt.Sprint("n", i))
				for c := range snapshot(t, l).On(at) {
					if c.Owner == "tasks" {
						commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
						break
					}
				}
				n++
				_ = start(n, string(at)) // if there is room for it
			}
		}
		waited := snapshot(t, l).Capsule("urgent")
		cancel()
		all.Wait()
		require.True(t, waited.Placed(), "%d conflicts", conflicts)
		require.InDelta(t, 1, conflicts, 1)
		_, total := evictions(t, l, before)
		require.LessOrEqual(t, total, each)
	})
}
