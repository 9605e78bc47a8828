package orbit_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

// storageWorld is a constellation that holds capsules which take nothing.
type storageWorld struct {
	ledger *orbit.MemoryLedger
	spec   *orbit.Spec
	nodes  int
	next   int
	// What capsules carry.
	at     orbit.Instant
	labels map[string]string
}

func newStorageWorld(t testing.TB, nodes int) *storageWorld {
	w := &storageWorld{ledger: &orbit.MemoryLedger{}, spec: &orbit.Spec{Module: "storage"}, nodes: nodes}
	for i := 0; i < nodes; i += 1000 {
		var do []orbit.Commitment
		for k := i; k < min(i+1000, nodes); k++ {
			do = append(do, orbit.PutNode{Node: orbit.Node{ID: w.node(k), Capacity: orbit.Resources{orbit.CPU: 1}, Labels: map[string]string{"zone": strconv.Itoa(3 * k / nodes)}}})
		}
		w.propose(t, orbit.Proposal{Do: do})
	}
	return w
}

func (w *storageWorld) node(i int) orbit.NodeID { return orbit.NodeID("node-" + strconv.Itoa(i)) }

func (w *storageWorld) propose(t testing.TB, p orbit.Proposal) orbit.Revision {
	rev, err := w.ledger.Propose(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func (w *storageWorld) snapshot(t testing.TB) *orbit.State {
	s, err := w.ledger.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// submit submits and places n capsules, on nodes in turn that lie between two positions.
func (w *storageWorld) submit(t testing.TB, spec *orbit.Spec, n, from, to int) (ids []orbit.CapsuleID) {
	for len(ids) < n {
		do := make([]orbit.Commitment, 1, 1001)
		first := len(ids)
		for range min(1000, n-len(ids)) {
			id := orbit.CapsuleID("capsule-" + strconv.Itoa(w.next))
			w.next++
			do = append(do, orbit.Place{Capsule: id, Node: w.node(from + len(ids)%(to-from)), At: w.at})
			ids = append(ids, id)
		}
		do[0] = orbit.Submit{IDs: ids[first:], Spec: spec, At: w.at, Labels: w.labels}
		w.propose(t, orbit.Proposal{Do: do})
	}
	return ids
}

// one submits and places a capsule, each in a commit after a snapshot, and releases it after another.
func (w *storageWorld) one(t testing.TB) {
	id := []orbit.CapsuleID{orbit.CapsuleID("one-" + strconv.Itoa(w.next))}
	w.next++
	w.snapshot(t)
	w.propose(t, orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: id, Spec: w.spec}}})
	w.snapshot(t)
	w.propose(t, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: id[0], Node: w.node(w.next * 7919 % w.nodes)}}})
	w.snapshot(t)
	w.propose(t, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: id[0], Final: true}}})
}

// allocated returns how many bytes a call allocates, in the mean of many.
func allocated(call func()) float64 {
	const calls = 512 // a page of the history, so that each measurement sees as many of them
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		call()
	}
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / calls
}

// What a commit after a snapshot copies does not grow with what is placed.
func TestCommitAfterSnapshotCopiesLittle(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	const nodes = 1000
	few, many := newStorageWorld(t, nodes), newStorageWorld(t, nodes)
	few.submit(t, few.spec, 1000, 0, nodes)
	n := scale.Of(300_000, 1_000_000)
	many.submit(t, many.spec, n, 0, nodes)
	one, other := allocated(func() { few.one(t) }), allocated(func() { many.one(t) })
	t.Logf("three commits allocate %.0f bytes with 1,000 placed, %.0f with %d", one, other, n)
	require.Less(t, other, 1.5*one)
}

// No commit pays for a table that grows: what one allocates stays about the same from the first to the last.
func TestGrowthStallsNoCommit(t *testing.T) {
	scale.Long(t)
	w := newStorageWorld(t, 10)
	var costs []uint64
	for i := range 200 {
		ids := make([]orbit.CapsuleID, 1000)
		for k := range ids {
			ids[k] = orbit.CapsuleID("capsule-" + strconv.Itoa(i*1000+k))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w.propose(t, orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: ids, Spec: w.spec}}})
		runtime.ReadMemStats(&after)
		costs = append(costs, after.TotalAlloc-before.TotalAlloc)
	}
	slices.Sort(costs[1:]) // the first makes what all use
	median, most := costs[100], costs[199]
	t.Logf("a commit of 1,000 allocates %d bytes in the median, %d at most", median, most)
	require.Less(t, most, 2*median)
}

// What a release copies does not grow with what is on the node.
func TestReleaseCopiesLittle(t *testing.T) {
	w := newStorageWorld(t, 2)
	release := func(ids []orbit.CapsuleID) float64 {
		i := 0
		return allocated(func() {
			w.snapshot(t)
			w.propose(t, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: ids[i], Stopped: true}}})
			i++
		})
	}
	few, many := w.submit(t, w.spec, 600, 0, 1), w.submit(t, w.spec, 30_000, 1, 2)
	one, other := release(few), release(many)
	t.Logf("a release allocates %.0f bytes on a node with 600, %.0f with 30,000", one, other)
	require.Less(t, other, 1.5*one)
}

// burst submits n capsules, releases them for good, and commits as much as makes their records and changes be forgotten.
func (w *storageWorld) burst(t testing.TB, n int) {
	for _, id := range w.submit(t, w.spec, n, 0, w.nodes) {
		w.propose(t, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: id, Final: true}}})
	}
	for range 300 {
		w.one(t)
	}
}

// After a burst, the ledger needs no more memory than before it, and a look at all records costs no more.
func TestBurstLeavesNothingBehind(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	w := newStorageWorld(t, 10)
	bounded := &orbit.MemoryLedger{Bounds: orbit.Limits{Terminal: 100, History: 500, ProposalIDs: 100}}
	for n := range w.snapshot(t).Nodes() {
		_, err := bounded.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: *n.Node}}})
		require.NoError(t, err)
	}
	w.ledger = bounded
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	w.burst(t, 1000)
	before := heap()
	w.burst(t, 100_000)
	after := heap()
	t.Logf("heap: %d KiB before, %d KiB after", before>>10, after>>10)
	require.Less(t, after-before, 1<<20, "100,000 records were 20 MiB and more")
	require.NoError(t, w.snapshot(t).Verify())
	runtime.KeepAlive(w)
}

// Times take no more memory where they are known, and labels only once for each submission.
func TestCarriedTakesNoMemory(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	each := func(at orbit.Instant, labels map[string]string) float64 {
		w := newStorageWorld(t, 1000)
		w.at, w.labels = at, labels
		heap := func() float64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc)
		}
		n, before := scale.Of(100_000, 1_000_000), heap()
		w.submit(t, w.spec, n, 0, 1000)
		defer runtime.KeepAlive(w)
		return (heap() - before) / float64(n)
	}
	plain, carried := each(0, nil), each(1e18, map[string]string{"team": "a"})
	t.Logf("a placed capsule takes %.1f bytes, with times and labels %.1f", plain, carried)
	require.Less(t, carried, plain+2)
}

// BenchmarkCommitsAfterSnapshots submits, places and releases a capsule, with a snapshot before each commit.
func BenchmarkCommitsAfterSnapshots(b *testing.B) {
	for _, placed := range []int{0, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("nodes=50000/placed=%d", placed), func(b *testing.B) {
			w := newStorageWorld(b, 50_000)
			w.submit(b, w.spec, placed, 0, w.nodes)
			runtime.GC()
			b.ReportAllocs()
			for b.Loop() {
				w.one(b)
			}
		})
	}
}

// BenchmarkReleaseOnFullNode releases a capsule from a node that holds many, after a snapshot, and places it again.
func BenchmarkReleaseOnFullNode(b *testing.B) {
	for _, placed := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("placed=%d", placed), func(b *testing.B) {
			w := newStorageWorld(b, 10)
			ids := w.submit(b, w.spec, placed, 0, 1)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				id := ids[i*7%placed]
				w.snapshot(b)
				w.propose(b, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: id, Stopped: true}}})
				w.snapshot(b)
				w.propose(b, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: w.node(0)}}})
			}
		})
	}
}

// BenchmarkGroupIn commits with a bet on a group with a member on each node; the domain is the last. It reports the first
// such commit apart, because it divides the group.
func BenchmarkGroupIn(b *testing.B) {
	for _, nodes := range []int{10, 1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := newStorageWorld(b, nodes)
			w.submit(b, &orbit.Spec{Module: "group", Group: "g"}, nodes, 0, nodes)
			bet := []orbit.Precondition{orbit.GroupIn{Group: "g", Level: "zone", Domain: "2"}}
			commit := func(i int) {
				w.propose(b, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: strconv.Itoa(i)}}, If: bet})
			}
			start := time.Now()
			commit(0)
			first := time.Since(start)
			for i := 1; b.Loop(); i++ {
				commit(i)
			}
			b.ReportMetric(float64(first.Microseconds()), "first-µs")
		})
	}
}

// BenchmarkChanges reads the last change, and a long history.
func BenchmarkChanges(b *testing.B) {
	w := newStorageWorld(b, 10)
	w.submit(b, w.spec, 1, 0, 1)
	var last orbit.Revision
	for i := range 200_000 {
		last = w.propose(b, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: strconv.Itoa(i)}}})
	}
	for name, after := range map[string]orbit.Revision{"last": last - 1, "all": last - 60_000} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.ledger.Changes(context.Background(), after); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
