package nav_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// dumbNode is a node of the brute-force packing: what is free, and what is free of each device.
type dumbNode struct {
	node    *orbit.Node
	free    orbit.Resources
	devices []int
}

// optimum tries all ways to place the capsules, each on every node and on every set of its devices, and returns
// the most that can be placed.
func optimum(nodes []dumbNode, specs []*orbit.Spec) int {
	if len(specs) == 0 {
		return 0
	}
	s, rest := specs[0], specs[1:]
	best := optimum(nodes, rest)
	if best == len(rest)+1 {
		return best
	}
	for i := range nodes {
		for _, set := range dumbSets(&nodes[i], s) {
			was := nodes[i]
			nodes[i].free, _ = was.free.Sub(s.Envelope.Reservation)
			nodes[i].devices = slices.Clone(was.devices)
			for d := range was.devices {
				if set>>d&1 == 1 {
					nodes[i].devices[d] -= s.Devices.Milli
				}
			}
			best = max(best, 1+optimum(nodes, rest))
			nodes[i] = was
		}
	}
	return best
}

// dumbSets lists the sets of devices on which the node could take a capsule; none if it cannot.
func dumbSets(n *dumbNode, s *orbit.Spec) (sets []int) {
	r := &s.Devices
	for d, want := range s.Envelope.Reservation {
		if want > 0 && want > n.free[d] {
			return nil
		}
	}
	for _, p := range s.Require {
		if !p.On(n.node) {
			return nil
		}
	}
	if r.Count > 0 && len(r.Models) > 0 && !slices.Contains(r.Models, n.node.Devices.Model) {
		return nil
	}
	for set := range 1 << len(n.devices) {
		fits := bits.OnesCount(uint(set)) == r.Count
		for d, free := range n.devices {
			fits = fits && (set>>d&1 == 0 || free >= r.Milli)
		}
		if fits {
			sets = append(sets, set)
		}
	}
	return sets
}

func dumbNodes(s *orbit.State) (out []dumbNode) {
	for n := range s.Nodes() {
		if !n.Node.Schedulable() {
			continue
		}
		d := dumbNode{node: n.Node, free: n.Free()}
		for i := range n.Node.Devices.Count {
			d.devices = append(d.devices, n.DeviceFree(i))
		}
		out = append(out, d)
	}
	return out
}

// drawCrowd is few nodes with room for some capsules each, and more of those than fit.
func drawCrowd(t *rapid.T) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	part := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)).Int64N // small numbers no likelier than others
	for i := range 1 + part(3) {
		n := node(fmt.Sprint("n", i), 7+part(9))
		n.Node.Capacity[orbit.Memory] = 7 + part(9)
		n.Node.Devices = orbit.Devices{Model: "A", Count: int(part(3))}
		commit(t, l, n)
	}
	for i := range 5 + part(3) {
		s := task(1+part(6), 1+part(6))
		if part(3) == 0 {
			s.Devices = orbit.DeviceRequest{Count: 1, Milli: int(200 + 100*part(7))}
		}
		commit(t, l, tasks(fmt.Sprint("c", i), 1, s))
	}
	return l
}

// No way of placing the capsules, in whatever order and without regard to priorities, places more than the bound; so
// the navigator does not either.
func TestBatchBoundIsABound(t *testing.T) {
	for reached := range scale.Reach(t, "not all fit, and the bound is the optimum") {
		rapid.Check(t, func(t *rapid.T) {
			l := drawBatch(t, 3, 6)
			if rapid.Bool().Draw(t, "crowded") {
				l = drawCrowd(t)
			}
			s := snapshot(t, l)
			var specs []*orbit.Spec
			for c := range s.Capsules() {
				if c.Pending() {
					specs = append(specs, c.Spec)
				}
			}
			if len(specs) == 0 {
				return
			}
			most := optimum(dumbNodes(s), specs)
			round := batchPass(t, l, &nav.Batch{})
			require.LessOrEqual(t, most, noted(t, round, "bound"))
			require.LessOrEqual(t, round.Committed, most)
			if most < len(specs) && noted(t, round, "bound") == most {
				reached["not all fit, and the bound is the optimum"]++
			}
		})
	}
}

// Where many nodes differ the bound adds some of them up, and gets larger by little.
func TestBatchBoundOfManyKinds(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	l := &orbit.MemoryLedger{}
	for i := range 3000 {
		n := node(fmt.Sprintf("n%04d", i), int64(3000+i*7919%5000))
		n.Node.Capacity[orbit.Memory] = int64(3000 + i*104729%5000)
		n.Node.Labels = map[string]string{"host": fmt.Sprint("h", i%500)}
		commit(t, l, n)
	}
	picky := task(400, 400)
	picky.Require = []orbit.Predicate{{Key: "host", Op: "In", Values: []string{"h7", "h9"}}}
	commit(t, l, tasks("p", 200, picky))
	for i := range 150 {
		commit(t, l, tasks(fmt.Sprint("c", i), 400, task(int64(250+i), int64(400-i))))
	}
	round := batchPass(t, l, &nav.Batch{})
	require.LessOrEqual(t, round.Committed, noted(t, round, "bound"))
	require.Greater(t, float64(round.Committed), 0.9*float64(noted(t, round, "bound")))
	t.Logf("%d of %d, bound %d, in %v", round.Committed, round.Pending, noted(t, round, "bound"), round.Planning)
}
