package itest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
)

// put adds a node and returns the revision. It sends the proposal again while its outcome is unknown or the ledger is unavailable:
// on a loaded machine an election may take longer than the patience of the ledger.
func put(t *testing.T, l orbit.Ledger, name string) orbit.Revision {
	t.Helper()
	ctx := within(t, time.Minute)
	p := orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(name), Capacity: orbit.Resources{orbit.Slots: 1}}},
	}}
	for {
		rev, err := l.Propose(ctx, p)
		if k := audit.KindOf(err); k != audit.Unknown && k != audit.Unavailable || ctx.Err() != nil {
			require.NoError(t, err)
			return rev
		}
	}
}

// A member that is cut off from the others, leader or follower, answers readers with an error and not with an old
// state, and commits nothing. When it is connected again its readers see what they have missed.
func TestReadersOfAMemberThatIsCutOffAreNotStale(t *testing.T) {
	t.Parallel()
	c := start(t, fast)
	for _, leads := range []bool{true, false} {
		t.Run(fmt.Sprintf("leader=%v", leads), func(t *testing.T) {
			victim, err := c.Leader(within(t, time.Minute))
			require.NoError(t, err)
			if !leads {
				victim = (victim + 1) % c.Size()
			}
			o := etcdledger.Options{Prefix: t.Name(), Timeout: 500 * time.Millisecond, Patience: 2 * time.Second}
			alone := open(t, connect(t, c, victim), o)
			others := open(t, connect(t, c, (victim+1)%c.Size(), (victim+2)%c.Size()), o)
			before := put(t, alone, "before")

			require.NoError(t, c.Cut(within(t, time.Minute), victim))
			missed := put(t, others, "missed")
			for i := range 5 {
				state, err := alone.Snapshot(within(t, 300*time.Millisecond))
				require.ErrorIs(t, err, orbit.ErrUnavailable, "read %d of a member that is alone: %v", i, state)
			}
			_, err = alone.Propose(within(t, time.Second), orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.RemoveNode{Node: "before"}}})
			require.Contains(t, []audit.Kind{audit.Unknown, audit.Unavailable}, audit.KindOf(err), "%v", err)
			state, err := others.Snapshot(within(t, time.Minute))
			require.NoError(t, err)
			require.NotNil(t, state.Node("before"), "what was proposed at revision %d to a member that is alone was committed", before)

			require.NoError(t, c.Mend(within(t, time.Minute), victim))
			seen := snapshot(t, alone)
			require.GreaterOrEqual(t, seen.Revision(), missed)
			require.NotNil(t, seen.Node("missed"))
			again := put(t, alone, "again")
			require.GreaterOrEqual(t, snapshot(t, others).Revision(), again)
			require.NoError(t, snapshot(t, others).Verify())
		})
	}
}

// receive returns the next value of a channel.
func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-within(t, time.Minute).Done():
		require.FailNow(t, "it has not come")
	}
	return got
}

// snapshot takes a snapshot, and tries again until it succeeds.
func snapshot(t *testing.T, l orbit.Ledger) *orbit.State {
	t.Helper()
	ctx := within(t, time.Minute)
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		state, err := l.Snapshot(try)
		cancel()
		if err == nil {
			return state
		}
		require.NoError(t, ctx.Err(), "%v", err)
	}
}

// While leaders change, a snapshot through any member shows every commit that was complete before the call.
func TestReadersAreNotStaleWhileLeadersChange(t *testing.T) {
	t.Parallel()
	c := start(t, fast)
	writer := open(t, connect(t, c), options())
	var acknowledged atomic.Uint64
	var reads atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for i := range c.Size() {
		l := open(t, connect(t, c, i), options())
		readers.Go(func() {
			for ctx.Err() == nil {
				try, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				floor := orbit.Revision(acknowledged.Load())
				state, err := l.Snapshot(try)
				cancel()
				if err == nil {
					assert.GreaterOrEqual(t, state.Revision(), floor, "member %d", i)
					reads.Add(1)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	defer readers.Wait()
	defer stop()
	commits := 0
	for i := range scale(t, 2) {
		leader, err := c.Leader(within(t, time.Minute))
		require.NoError(t, err)
		require.NoError(t, c.Cut(within(t, time.Minute), leader))
		for range 20 {
			acknowledged.Store(uint64(put(t, writer, fmt.Sprintf("node-%d", i))))
			commits++
		}
		require.NoError(t, c.Mend(within(t, time.Minute), leader))
	}
	require.Positive(t, reads.Load())
	t.Logf("%d reads and %d commits while leaders were cut off", reads.Load(), commits)
}

// Each snapshot needs a read that begins after its call: the answer to a read that began before a commit does not do, even
// if it comes later. The same holds for the read that confirms a rejection.
func TestReadsThatBeganBeforeACommit(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{})
	link := &cluster.Link{}
	over, err := c.ClientOver(link)
	require.NoError(t, err)
	t.Cleanup(func() { _ = over.Close() })
	patient := etcdledger.Options{Timeout: time.Minute, Patience: time.Minute}
	late, other := open(t, over, patient), open(t, connect(t, c), etcdledger.Options{})
	put(t, late, "node")

	answered := link.HoldAnswers()
	var reads sync.WaitGroup
	reads.Go(func() { _, _ = late.Snapshot(t.Context()) })
	for receive(t, answered) != "Range" { // answers of the watch to the first put may come before
	}
	rev := put(t, other, "missed")
	reads.Go(func() {
		state, err := late.Snapshot(t.Context())
		assert.NoError(t, err)
		assert.GreaterOrEqual(t, state.Revision(), rev)
	})
	reads.Go(func() { // this ledger does not have the node yet
		_, err := late.Propose(t.Context(), orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.RemoveNode{Node: "missed"}}})
		assert.NoError(t, err)
	})
	for receive(t, answered) != "Range" {
	}
	link.Release()
	reads.Wait()
}
