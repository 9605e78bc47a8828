package sandbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// If the only node is the one that has failed, the error names that failure. It does not claim that no node has the
// template or that the caller should change the request, and no retry was made.
func TestGatewayStartFailsOnTheOnlyNode(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 9, 0)
	g := f.gateway()
	f.create(g, "parent")
	g.Start = func(context.Context, sandbox.Created) (bool, error) { return false, errors.New("refused") }
	_, err := g.Create(context.Background(), "x", bootSpec(code))
	require.EqualError(t, err, `sandbox: create "x": start failed on node "a": refused; no retry: template "code-interpreter": `+
		`no other node: 0 of 1 nodes fit: 1 failed to start it; bring up another host, or try again`)
	require.NotErrorIs(t, err, sandbox.ErrNoNode)

	fork := bootSpec(code)
	fork.Start.Parent = "parent"
	_, err = g.Create(context.Background(), "y", fork)
	require.ErrorContains(t, err, `fork of "parent" on node "a": no other node: 0 of 1 nodes fit: 1 failed to start it`)

	f.join("b", 9) // it has never reported
	_, err = g.Create(context.Background(), "z", bootSpec(code))
	require.ErrorIs(t, err, sandbox.ErrAllStale)
	require.ErrorIs(t, err, sandbox.ErrStart)

	f.report("b", 9, 0, 0)
	fork.Start.CrossHost = true
	_, err = g.Create(context.Background(), "v", fork)
	require.ErrorIs(t, err, sandbox.ErrNoOther)
	require.ErrorContains(t, err, "1 is its parent's, 1 failed to start it")
	_, err = g.Create(context.Background(), "u", bootSpec("none"))
	require.ErrorIs(t, err, sandbox.ErrNoTemplate)
	require.NotErrorIs(t, err, sandbox.ErrStart)
	s := g.Stats()
	require.Equal(t, []uint64{1, 5, 4, 0}, []uint64{s.Created, s.Failed, s.Unstarted, s.Retried})
	require.Equal(t, []uint64{0, 0, 0, 1}, []uint64{s.AllStale, s.NoSlot, s.NoNode, s.NoTemplate})
}

// What has failed to start never waits before it is on the next node: the engine that its owner runs would place it, and the
// caller would be told that the id is taken.
func TestGatewayRetriesBesideTheOwnersEngine(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 9, 0)
	f.host("b", 9, 0, 0)
	start := snapshot(t, f.ledger).Revision()
	g := f.gateway()
	g.Owner = "queue"
	g.Start = func(_ context.Context, c sandbox.Created) (bool, error) {
		if c.Node == "a" {
			return false, errors.New("503")
		}
		return c.Warm, nil
	}
	require.Equal(t, orbit.NodeID("b"), f.create(g, "x").Node)
	changes, err := f.ledger.Changes(t.Context(), start)
	require.NoError(t, err)
	placedAt := map[orbit.Revision]bool{}
	for _, c := range changes {
		switch c.Do.(type) {
		case orbit.Place:
			placedAt[c.Revision] = true
		case orbit.Release:
			placedAt[c.Revision] = false // before the Place of the same commit
		}
	}
	require.Len(t, placedAt, 2)
	for revision, placed := range placedAt {
		require.True(t, placed, "revision %d releases and does not place", revision)
	}
}

// A node that has failed to start a sandbox is believed to have none of the template warm until it reports again, by all
// who read the board, so that others do not go there first. That is no lie, and a caller who goes away says nothing of the
// node.
func TestGatewayShunsWhatFailedToStart(t *testing.T) {
	f := newFleet(t)
	f.host("a", 99, 18, 0)
	f.host("b", 99, 6, 0)
	g, other := f.gateway(), f.gateway()
	_, err := other.Create(context.Background(), "view", bootSpec("none"))
	require.ErrorIs(t, err, sandbox.ErrNoTemplate)
	g.Start = func(ctx context.Context, c sandbox.Created) (bool, error) {
		if c.Node == "a" {
			return false, errors.New("503")
		}
		return c.Warm, ctx.Err()
	}
	require.True(t, f.create(g, "c0").Retried)
	made := f.create(g, "c1")
	require.True(t, made.Node == "b" && !made.Retried)
	require.Equal(t, orbit.NodeID("b"), f.create(other, "c2").Node)

	gone, leave := context.WithCancel(context.Background())
	g.Start = func(context.Context, sandbox.Created) (bool, error) { leave(); return false, gone.Err() }
	_, err = g.Create(gone, "c3", bootSpec(code))
	require.ErrorIs(t, err, context.Canceled)
	g.Start = func(context.Context, sandbox.Created) (bool, error) { panic("mine") }
	_, err = g.Create(context.Background(), "c4", bootSpec(code))
	require.ErrorIs(t, err, sandbox.ErrStart)
	g.Start = nil
	require.True(t, f.create(g, "c5").Promised, "b had six")
	require.False(t, f.create(g, "c6").Promised)
	s := g.Stats()
	require.Equal(t, []uint64{0, 1}, []uint64{s.Lies, s.Retried})
}
