package shard

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// fataler is what tests and properties have in common.
type fataler interface {
	require.TestingT
	Helper()
}

// commit proposes and requires success.
func commit(t fataler, ledger orbit.Ledger, do ...orbit.Commitment) orbit.Revision {
	t.Helper()
	rev, err := ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
	return rev
}

// snapshot returns the state of a ledger.
func snapshot(t fataler, ledger orbit.Ledger) *orbit.State {
	t.Helper()
	state, err := ledger.Snapshot(context.Background())
	require.NoError(t, err)
	return state
}

// fleet returns equal nodes, "n00" and so on.
func fleet(count int, capacity orbit.Resources) (do []orbit.Commitment) {
	for i := range count {
		do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%02d", i)), Capacity: capacity}})
	}
	return do
}

// use places a capsule on a node.
func use(id string, node orbit.NodeID, room orbit.Resources) orbit.Hold {
	return orbit.Hold{ID: orbit.HoldID(id), Node: node, Room: room, Ends: time.Unix(1<<33, 0)}
}

// ownerOf returns the living scheduler that owns a node when all handoffs have ended.
func ownerOf(state *orbit.State, live []string, id orbit.NodeID) string {
	for _, kind := range []string{"leaving/", "group/"} {
		if who, _ := state.Mark(kind + string(id)); slices.Contains(live, who) {
			return who
		}
	}
	return ""
}

// model computes the weights of groups anew from a state, in the simplest way.
type model struct {
	live  []string
	nodes []*orbit.NodeState
	owner []string
	// weights, slack and mean are by quantity, as shares of the whole capacity.
	weights   [][]float64
	slack     []float64
	mean      []float64
	tolerance float64
}

// modelOf computes the model of a state.
func modelOf(state *orbit.State, live []string, tolerance float64) *model {
	m := &model{live: live, tolerance: tolerance, slack: make([]float64, 18), mean: make([]float64, 18)}
	var raw [][]float64
	for n := range state.Nodes() {
		if !n.Node.Schedulable() {
			continue
		}
		m.nodes, m.owner = append(m.nodes, n), append(m.owner, ownerOf(state, live, n.Node.ID))
		w := make([]float64, 18)
		for d := range orbit.Dimensions {
			w[d] = float64(n.Node.Capacity[d])
			w[9+d] = math.Max(0, float64(n.Free()[d]))
		}
		for i := range n.Node.Devices.Count {
			if !n.Node.Devices.Unhealthy.Has(i) {
				w[8] += 1000
				w[17] += float64(n.DeviceFree(i))
			}
		}
		raw = append(raw, w)
	}
	s := float64(len(live))
	for k := range 18 {
		total, most, sum := 0.0, 0.0, 0.0
		for _, w := range raw {
			total += w[k%9]
			most = max(most, w[k%9])
			sum += w[k]
		}
		if total == 0 {
			for _, w := range raw {
				w[k] = 0
			}
			continue
		}
		m.slack[k] = max(tolerance/s, most/total*(s-1)/s)
		m.mean[k] = sum / total / s
	}
	for _, w := range raw {
		out := make([]float64, 18)
		for k := range 18 {
			total := 0.0
			for _, other := range raw {
				total += other[k%9]
			}
			if total > 0 {
				out[k] = w[k] / total
			}
		}
		m.weights = append(m.weights, out)
	}
	return m
}

// excess returns the sum of squares of the excess, if the nodes had these owners.
func (m *model) excess(owner []string) (sum float64) {
	for _, name := range m.live {
		for k := range 18 {
			has := 0.0
			for i, w := range m.weights {
				if owner[i] == name {
					has += w[k]
				}
			}
			over := max(0, math.Abs(has-m.mean[k])-m.slack[k]*(1+1e-9)-1e-15)
			sum += over * over
		}
	}
	return sum
}

// improvable returns a single move that reduces the excess, if there is one, of a node that is not in a handoff.
func (m *model) improvable(before *orbit.State) (string, bool) {
	now := m.excess(m.owner)
	if now < 1e-24 {
		return "", false
	}
	owner := slices.Clone(m.owner)
	for i := range owner {
		was := owner[i]
		leaving, _ := before.Mark("leaving/" + string(m.nodes[i].Node.ID))
		left, _ := before.Mark("left/" + string(m.nodes[i].Node.ID))
		if leaving+left != "" {
			continue
		}
		for _, to := range m.live {
			owner[i] = to
			if then := m.excess(owner); now-then > 1e-8*now {
				return fmt.Sprintf("node %s from %q to %q: %g to %g", m.nodes[i].Node.ID, was, to, now, then), true
			}
		}
		owner[i] = was
	}
	return "", false
}

// least returns the fewest moves that reach an excess of at most this, by trying all.
func (m *model) least(most float64) int {
	owner, best := slices.Clone(m.owner), len(m.owner)+1
	var try func(i, moves int)
	try = func(i, moves int) {
		if moves >= best {
			return
		}
		if i == len(owner) {
			if m.excess(owner) <= most*(1+1e-6)+1e-20 {
				best = moves
			}
			return
		}
		was := m.owner[i]
		for _, to := range m.live {
			owner[i] = to
			moved := 0
			if was != "" && to != was {
				moved = 1
			}
			try(i+1, moves+moved)
		}
		owner[i] = was
	}
	try(0, 0)
	return best
}
