package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/sim"
)

// small returns a cluster of 300 nodes after waves of work.
func small(t *testing.T, seed uint64) (*world, []sim.Capsule) {
	nodes, pods := sim.OpenbLike(seed, 0.25)
	w := &world{ledger: &orbit.MemoryLedger{}, seed: seed}
	require.NoError(t, w.fill(t.Context(), nodes, pods, 0.15))
	return w, pods
}

func (w *world) state(t *testing.T) *orbit.State {
	state, err := w.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	require.NoError(t, state.Verify())
	return state
}

// On any seed, moves make room for more gangs and lose nothing: each capsule that ran still runs, no budget is broken at any
// commit, the count that is printed is that of the ledger, and a second run finds nothing to move.
func TestMovesMakeRoom(t *testing.T) {
	scale.Sequential(t)
	for seed := range uint64(2) {
		w, _ := small(t, seed)
		start := w.state(t)
		var out bytes.Buffer
		moved, broken, err := w.defrag(t.Context(), &out, 20)
		require.NoError(t, err)
		require.Zero(t, broken)
		after := w.state(t)
		require.Greater(t, rooms(after), rooms(start), out.String())
		placed := 0
		for c := range start.Capsules() {
			if c.Placed() {
				require.True(t, after.Capsule(c.ID).Placed(), c.ID)
				placed++
			}
		}
		require.Len(t, w.alive, placed)
		changes, err := w.ledger.Changes(t.Context(), start.Revision())
		require.NoError(t, err)
		evicted := 0
		for _, c := range changes {
			if _, ok := c.Do.(orbit.Evict); ok {
				evicted++
			}
		}
		require.Equal(t, moved, evicted)
		again, _, err := w.defrag(t.Context(), &out, 20)
		require.NoError(t, err)
		require.Zero(t, again)
	}
}

// brokenSince counts each commit that moves more members of a service than may be missing.
func TestBrokenBudgetsAreSeen(t *testing.T) {
	w, _ := small(t, 1)
	start := w.state(t)
	for b := range start.Budgets() {
		free := b.Budget
		free.Missing = free.Expected
		require.NoError(t, w.do(t.Context(), orbit.PutBudget{Budget: free}))
	}
	var evictions, placements []orbit.Commitment
	for c := range start.Capsules() {
		if c.Placed() && c.Spec.Group == "service-0" {
			evictions = append(evictions, orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt})
			placements = append(placements, orbit.Place{Capsule: c.ID, Node: c.Node, Devices: c.Devices})
		}
	}
	require.NoError(t, w.do(t.Context(), append(evictions, placements...)...))
	broken, err := brokenSince(t.Context(), w.ledger, start)
	require.NoError(t, err)
	require.Equal(t, 1, broken)
}

// Defrag makes at least as much room with each number of moves as one move at a time does, however that is chosen; and random moves
// make none. What each way leaves is measured on a copy, with the same work.
func TestDefragBesideOneMoveAtATime(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	for seed := range uint64(3) {
		w, pods := small(t, seed)
		start, best := w.state(t), map[string]int{}
		for _, way := range ways(seed) {
			ledger := &orbit.MemoryLedger{Start: start}
			for moved := 0; moved < 60; {
				more, err := way.move(t.Context(), ledger, 60-moved)
				require.NoError(t, err)
				if moved += more; more == 0 {
					break
				}
			}
			state, err := ledger.Snapshot(t.Context())
			require.NoError(t, err)
			require.NoError(t, state.Verify())
			left, err := unallocated(t.Context(), state, pods)
			require.NoError(t, err)
			require.Positive(t, left)
			best[way.name] = rooms(state)
		}
		require.GreaterOrEqual(t, best["nav.Defrag"], best["greedy"], best)
		require.Greater(t, best["nav.Defrag"], best["random"], best)
		require.GreaterOrEqual(t, best["greedy"], rooms(start), best)
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range []string{"-nodes file", "-pods file", "-moves 0", "-free 1", "-free NaN", "-seeds -1", "more"} {
		_, err := parse(strings.Fields(args), &bytes.Buffer{})
		require.Error(t, err, args)
	}
}
