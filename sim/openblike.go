package sim

import (
	"github.com/orbitsched/orbit"
)

// The numbers of nodes and pods in the openb trace, which are those at scale 1.
const (
	openbNodes = 1213
	openbPods  = 8152
)

// openbKinds are the kinds of machines in the openb trace, with rounded frequencies.
var openbKinds = []struct {
	percent       float64
	cores, memory int64 // GiB
	devices       int
	model         string
}{
	{45, 96, 384, 8, "G2"},
	{32, 104, 512, 2, "T4"},
	{9, 16, 120, 2, "P100"},
	{3, 128, 768, 8, "G3"},
	{2.5, 32, 128, 4, "V100M16"},
	{2, 64, 256, 2, "P100"},
	{2, 96, 768, 8, "V100M32"},
	{2, 8, 32, 1, "V100M16"},
	{1.5, 96, 384, 4, "T4"},
	{1, 48, 368, 4, "V100M32"},
}

// openbShapes are the pods of the openb trace, reduced to some twenty shapes.
var openbShapes = []struct {
	percent     float64
	cpu, memory int64 // milli-cores, GiB
	devices     int
	milli       int
}{
	{13, 3200, 6, 1, 810}, // a share of a device: 38%
	{7, 12000, 46, 1, 480},
	{4.5, 8000, 30, 1, 460},
	{4.5, 4000, 22, 1, 320},
	{3, 12000, 46, 1, 650},
	{3, 5000, 24, 1, 200},
	{3, 4000, 8, 1, 570},
	{17, 11400, 48, 1, 1000}, // a whole device: 48%
	{7, 3200, 6, 1, 1000},
	{6, 8000, 20, 1, 1000},
	{6, 12000, 30, 1, 1000},
	{5, 15500, 60, 1, 1000},
	{5, 18700, 64, 1, 1000},
	{2, 24000, 92, 1, 1000},
	{5, 12500, 56, 0, 0}, // none: 13%
	{3.5, 32000, 48, 0, 0},
	{2.5, 16000, 50, 0, 0},
	{2, 8000, 30, 0, 0},
	{0.2, 16000, 64, 2, 1000}, // several: 1%
	{0.2, 32000, 128, 4, 1000},
	{0.5, 80000, 300, 8, 1000},
}

// OpenbLike makes up a GPU cluster and its workload. It has the shape of the openb trace but none of its data: machines
// and pods in about the same proportions, scale × 1213 nodes, and scale × 8152 capsules that ask for almost all
// devices. The seed decides which name gets which shape. A scale that is not positive counts as 1.
func OpenbLike(seed uint64, scale float64) ([]orbit.Node, []Capsule) {
	if !(scale > 0) {
		scale = 1
	}
	return openbLikeNodes(seed, int(openbNodes*scale+0.5)), openbLikePods(seed, int(openbPods*scale+0.5))
}

// openbLikeNodes deals the kinds out to n nodes.
func openbLikeNodes(seed uint64, n int) []orbit.Node {
	weights := make([]float64, len(openbKinds))
	for i := range openbKinds {
		weights[i] = openbKinds[i].percent
	}
	nodes := make([]orbit.Node, n)
	for i, kind := range deal(n, weights, seed, "openb nodes") {
		k := &openbKinds[kind]
		nodes[i] = orbit.Node{
			ID: orbit.NodeID("node-" + number(i, 6)),
			Capacity: orbit.Resources{
				orbit.CPU: 1000 * k.cores, orbit.Memory: k.memory * gib, orbit.Slots: openbPodsPerNode,
			},
			Devices: orbit.Devices{Model: k.model, Count: k.devices},
		}
	}
	return nodes
}

// openbLikePods deals the shapes out to n pods. Every other shape is best effort, about as many pods as in
// the trace.
func openbLikePods(seed uint64, n int) []Capsule {
	weights, specs := make([]float64, len(openbShapes)), make([]*orbit.Spec, len(openbShapes))
	for i, s := range openbShapes {
		weights[i] = s.percent
		specs[i] = podShape{cpu: s.cpu, memory: s.memory * gib, count: s.devices, milli: s.milli}.spec()
		if i%2 == 1 {
			specs[i].Class = orbit.BestEffort
		}
	}
	pods := make([]Capsule, n)
	for i, shape := range deal(n, weights, seed, "openb pods") {
		pods[i] = Capsule{ID: orbit.CapsuleID("pod-" + number(i, 6)), Spec: specs[shape]}
	}
	return pods
}
