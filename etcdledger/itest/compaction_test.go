package itest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
)

// follower makes a state from a ledger's changes alone, with State.Apply. It takes a snapshot only after ErrCompacted.
type follower struct {
	ledger    orbit.Ledger
	state     *orbit.State
	compacted int
}

// follow applies all changes up to the newest revision.
func (f *follower) follow(ctx context.Context) (err error) {
	if f.state == nil {
		f.state, err = f.ledger.Snapshot(ctx)
		return err
	}
	changes, err := f.ledger.Changes(ctx, f.state.Revision())
	if errors.Is(err, orbit.ErrCompacted) {
		f.compacted++
		f.state, err = f.ledger.Snapshot(ctx)
		return err
	}
	if err != nil || len(changes) == 0 {
		return err
	}
	f.state, err = f.state.Apply(changes)
	return err
}

// reach follows until a revision is reached.
func (f *follower) reach(t *testing.T, rev orbit.Revision) {
	t.Helper()
	ctx := within(t, time.Minute)
	for f.state == nil || f.state.Revision() < rev {
		if err := f.follow(ctx); err != nil {
			require.NoError(t, ctx.Err(), "follow: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}

// compact compacts etcd's history up to the present revision.
func compact(t *testing.T, client *clientv3.Client) {
	got, err := client.Get(within(t, time.Minute), "orbit/head")
	require.NoError(t, err)
	_, err = client.Compact(within(t, time.Minute), got.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
}

// same compares the nodes and capsules of two states.
func same(t *testing.T, want, got *orbit.State) {
	t.Helper()
	require.Equal(t, want.Revision(), got.Revision())
	require.NoError(t, got.Verify())
	require.Equal(t, picture(want), picture(got))
}

// picture writes a state as text.
func picture(s *orbit.State) (out []string) {
	for n := range s.Nodes() {
		out = append(out, fmt.Sprintf("%+v %v", n.Node, n.Used()))
	}
	for c := range s.Capsules() {
		out = append(out, fmt.Sprintf("%s on %q, ended %v, changed %d, placed %d by %v", c.ID, c.Node, c.Released(), c.Changed, c.PlacedAt, c.PlacedBy))
	}
	slices.Sort(out)
	return out
}

// A reader that is delayed while others write and etcd compacts its history catches up by itself, and then has the
// writers' state. So does a reader that has only lost its connections, and one that was delayed and
// has missed nothing.
func TestCompactionUnderASlowReader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		stop, goOn func(*cluster.Link)
		compacts   bool
	}{
		{"held up, compacted", (*cluster.Link).Hold, (*cluster.Link).Release, true},
		{"held up", (*cluster.Link).Hold, (*cluster.Link).Release, false},
		{"disconnected, compacted", (*cluster.Link).Break, (*cluster.Link).Mend, true},
		{"disconnected", (*cluster.Link).Break, (*cluster.Link).Mend, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			one := start(t, cluster.Options{})
			client := connect(t, one)
			link := &cluster.Link{}
			over, err := one.ClientOver(link)
			require.NoError(t, err)
			t.Cleanup(func() { _ = over.Close() })
			writing := newLoad(t, client, 4)
			slow := &follower{ledger: open(t, over, options())}
			slow.reach(t, 1)

			c.stop(link)
			ctx, cancel := context.WithCancel(t.Context())
			var writer sync.WaitGroup
			writer.Go(func() { writing.fill(ctx) })
			for range 4 {
				require.True(t, writing.advance(20, time.Minute), "nothing is written")
				if c.compacts {
					compact(t, client)
				}
			}
			cancel()
			writer.Wait()
			if c.compacts {
				compact(t, client)
			}
			want := snapshot(t, writing.ledger)
			c.goOn(link)

			slow.reach(t, want.Revision())
			same(t, want, slow.state)
			same(t, want, snapshot(t, slow.ledger))
			stats := slow.ledger.(*etcdledger.Ledger).Stats()
			t.Logf("missed %d revisions; told %d times that they are compacted, %d entries read", want.Revision(), slow.compacted, stats.Followed)
			require.Zero(t, slow.compacted, "the log is read from its entries, which a compaction of etcd does not remove")
			require.Zero(t, stats.Jumps)

			// It goes on by itself.
			rev := put(t, writing.ledger, "another")
			slow.reach(t, rev)
			same(t, snapshot(t, writing.ledger), slow.state)
		})
	}
}

// Readers that are merely busy keep up while etcd compacts all the time: their states, made from changes alone, become
// the writers' state.
func TestCompactionAllTheTime(t *testing.T) {
	t.Parallel()
	one := start(t, cluster.Options{})
	client := connect(t, one)
	writing := newLoad(t, client, 5)
	slow := &follower{ledger: open(t, connect(t, one), options())}
	slow.reach(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(scale(t, 2))*time.Second)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { writing.fill(ctx) })
	all.Go(func() {
		for ctx.Err() == nil {
			if err := slow.follow(t.Context()); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	for ctx.Err() == nil {
		compact(t, client)
		time.Sleep(20 * time.Millisecond)
	}
	all.Wait()
	want := snapshot(t, writing.ledger)
	slow.reach(t, want.Revision())
	same(t, want, slow.state)
	t.Logf("%d revisions; told %d times that changes are compacted", want.Revision(), slow.compacted)
}
