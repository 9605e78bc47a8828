package logledger_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// BenchmarkFollower measures what a process spends on each placement that another one has committed: it reads the entries from a
// log in memory, decodes and applies them. The row "judged" is a MemoryLedger that is proposed the same placements instead, so the
// difference is what the way over a log costs. An entry holds one placement, or a batch of them.
func BenchmarkFollower(b *testing.B) {
	for _, size := range []int{1, 1000} {
		b.Run(fmt.Sprintf("followed/entry=%d", size), func(b *testing.B) { following(b, size) })
		b.Run(fmt.Sprintf("judged/entry=%d", size), func(b *testing.B) {
			l := &orbit.MemoryLedger{}
			proposeAll(b, l, register(b.N))
			list := placements(b.N, size)
			measured(b, func() { proposeAll(b, l, list) })
		})
	}
}

// following lets one ledger commit b.N placements while the log handle of another one is paused, and measures how long that one takes to
// catch up.
func following(b *testing.B, size int) {
	var store logtest.Store
	options := logledger.Options{CheckpointEvery: 1 << 40}
	behind := store.Open(logtest.Faults{})
	first, err := logledger.Open(b.Context(), store.Open(logtest.Faults{}), options)
	require.NoError(b, err)
	follower, err := logledger.Open(b.Context(), behind, options)
	require.NoError(b, err)
	proposeAll(b, first, register(b.N))
	_, err = follower.Snapshot(b.Context())
	require.NoError(b, err)
	behind.Pause()
	proposeAll(b, first, placements(b.N, size))
	measured(b, func() {
		behind.Resume()
		state, err := follower.Snapshot(b.Context())
		require.NoError(b, err)
		require.Zero(b, state.PendingCount(), "all placements have arrived")
	})
	require.NoError(b, follower.Close())
	require.NoError(b, first.Close())
}

// measured runs f and reports how much processor time of the whole process it takes for each placement, garbage collection included.
func measured(b *testing.B, f func()) {
	runtime.GC()
	start := cputime.Process()
	b.ResetTimer()
	f()
	b.StopTimer()
	b.ReportMetric(float64(cputime.Process()-start)/float64(b.N), "cpu-ns/placement")
	b.ReportMetric(0, "ns/op")
}

const benchNodes = 1000

func benchCapsule(i int) orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprintf("capsule-%07d", i)) }
func benchNode(i int) orbit.NodeID       { return orbit.NodeID(fmt.Sprintf("node-%04d", i%benchNodes)) }

// register returns the proposals that register the nodes and submit n capsules.
func register(n int) []orbit.Proposal {
	var nodes orbit.Proposal
	for i := range benchNodes {
		nodes.Do = append(nodes.Do, orbit.PutNode{Node: orbit.Node{ID: benchNode(i), Capacity: orbit.Resources{orbit.CPU: 1 << 40}}})
	}
	list := []orbit.Proposal{nodes}
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}
	for i := 0; i < n; i += 20_000 {
		var ids []orbit.CapsuleID
		for k := i; k < min(i+20_000, n); k++ {
			ids = append(ids, benchCapsule(k))
		}
		list = append(list, orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: ids, Spec: spec}}})
	}
	return list
}

// placements returns the proposals that place n capsules, so many in each.
func placements(n, size int) (list []orbit.Proposal) {
	for i := 0; i < n; i += size {
		var p orbit.Proposal
		for k := i; k < min(i+size, n); k++ {
			p.Do = append(p.Do, orbit.Place{Capsule: benchCapsule(k), Node: benchNode(k)})
		}
		list = append(list, p)
	}
	return list
}

func proposeAll(b *testing.B, l orbit.Ledger, list []orbit.Proposal) {
	for _, p := range list {
		_, err := l.Propose(b.Context(), p)
		require.NoError(b, err)
	}
}
