package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/orbitsched/orbit"
)

// world has the nodes of a constellation and the capsules that are submitted to it in waves.
type world struct {
	nodes []orbit.Node
	specs []*orbit.Spec
	// waves have the capsules of each wave. The sum up to a wave is the part of the CPU that waveFills says.
	waves [][]orbit.Submit
}

// waveFills says which part of the CPU is requested by all waves up to each one.
var waveFills = []float64{0.5, 0.8, 0.97}

func fills() string {
	var parts []string
	for _, f := range waveFills {
		parts = append(parts, fmt.Sprintf("%.0f%%", 100*f))
	}
	return strings.Join(parts, ", ")
}

func makeWorld(o options) *world {
	w, rng := &world{}, rand.New(rand.NewPCG(o.seed, 1))
	total := int64(0)
	for i := range o.nodes {
		n := orbit.Node{ID: orbit.NodeID(fmt.Sprintf("node%05d", i))}
		cpus := []int64{16, 16, 32, 64}[rng.IntN(4)]
		n.Capacity = orbit.Resources{orbit.CPU: 1000 * cpus, orbit.Memory: cpus << 32}
		total += n.Capacity[orbit.CPU]
		w.nodes = append(w.nodes, n)
	}
	for i := range 20 {
		cpu := int64(250) << rng.IntN(6) // up to half of the smallest machine
		memory := cpu << 22 * (50 + rng.Int64N(60)) / 100
		w.specs = append(w.specs, &orbit.Spec{
			Module:   fmt.Sprintf("module%02d", i),
			Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu, orbit.Memory: memory}},
		})
	}
	asked := int64(0)
	for wave, fill := range waveFills {
		var submits []orbit.Submit
		for float64(asked) < fill*float64(total) {
			spec := w.specs[rng.IntN(len(w.specs))]
			id := orbit.CapsuleID(fmt.Sprintf("%s/%d/%d", spec.Module, wave, len(submits)))
			submits = append(submits, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec})
			asked += spec.Envelope.Reservation[orbit.CPU]
		}
		w.waves = append(w.waves, submits)
	}
	return w
}

func (w *world) capsules() (n int) {
	for _, wave := range w.waves {
		n += len(wave)
	}
	return n
}

// join returns the commitments that add the nodes.
func (w *world) join() []orbit.Commitment {
	do := make([]orbit.Commitment, len(w.nodes))
	for i := range w.nodes {
		do[i] = orbit.PutNode{Node: w.nodes[i]}
	}
	return do
}
