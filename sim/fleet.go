package sim

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/orbitsched/orbit"
)

// Fleet describes a constellation. The zero value has no nodes; every other field has a default.
type Fleet struct {
	// Seed decides the kind of each node: the same seed gives the same fleet.
	Seed uint64
	// Nodes is the number of nodes.
	Nodes int
	// Kinds are the kinds of nodes to draw from; nil: Machines().
	Kinds []Kind

	// Zones is the number of zones, which divide the nodes evenly; 0: 3.
	Zones int
	// RacksPerBlock is the number of racks in each block; 0: 10.
	RacksPerBlock int
	// NodesPerRack is the number of nodes in each rack; 0: 20.
	NodesPerRack int
}

// Kind is a kind of machine.
type Kind struct {
	// Name identifies the kind.
	Name string
	// Weight is how frequent the kind is, relative to the other kinds; it must not be negative.
	Weight float64
	// Capacity is the capacity of each node of the kind.
	Capacity orbit.Resources
	// Devices are the devices of each node of the kind.
	Devices orbit.Devices
	// Labels are added to the labels that every node has.
	Labels map[string]string
}

// gib is a GiB in bytes, the unit of memory and disk.
const gib = int64(1) << 30

// machine returns a kind with these cores, and memory and disk in GiB. It has 110 slots, the number of pods that
// Kubernetes allows on a node by default.
func machine(name string, weight float64, cores, memory, disk int64, labels map[string]string) Kind {
	return Kind{Name: name, Weight: weight, Labels: labels, Capacity: orbit.Resources{
		orbit.CPU: 1000 * cores, orbit.Memory: memory * gib, orbit.Disk: disk * gib, orbit.Slots: 110,
	}}
}

// Machines returns the kinds of a mixed fleet. A node has 56 cores and 265 GiB on average; 5% of the nodes have 8 GPUs.
func Machines() []Kind {
	kinds := []Kind{
		machine("standard", 50, 32, 128, 500, map[string]string{"arch": "amd64", "disk": "ssd"}),
		machine("large", 25, 96, 384, 2000, map[string]string{"arch": "amd64", "disk": "ssd"}),
		machine("memory", 10, 48, 768, 1000, map[string]string{"arch": "amd64", "disk": "ssd"}),
		machine("arm", 10, 64, 256, 4000, map[string]string{"arch": "arm64", "disk": "hdd"}),
		machine("gpu", 5, 96, 512, 2000, map[string]string{"arch": "amd64", "disk": "ssd"}),
	}
	kinds[4].Devices = orbit.Devices{Model: "A100", Count: 8}
	return kinds
}

// Constellation returns the nodes of a fleet, named "node-000000" and so on. Zones consist of blocks, and blocks of
// racks. Every node has the labels zone ("z1"), block ("z1-b01"), rack ("z1-b01-r01") and kind. The kinds come in exact
// proportion to their weights, in random order. Nodes of one rack and kind share one map of labels; treat it as
// read-only.
func Constellation(f Fleet) []orbit.Node {
	f = f.withDefaults()
	order := f.order()
	type place struct {
		rack string
		kind int
	}
	labels := map[place]map[string]string{}
	nodes := make([]orbit.Node, f.Nodes)
	for i := range nodes {
		zone, block, rack := f.domains(i)
		kind := &f.Kinds[order[i]]
		at := place{rack, order[i]}
		if labels[at] == nil {
			labels[at] = map[string]string{"zone": zone, "block": block, "rack": rack, "kind": kind.Name}
			maps.Copy(labels[at], kind.Labels)
		}
		nodes[i] = orbit.Node{
			ID: orbit.NodeID("node-" + number(i, 6)), Capacity: kind.Capacity, Devices: kind.Devices, Labels: labels[at],
		}
	}
	return nodes
}

func (f Fleet) withDefaults() Fleet {
	f.Nodes = max(f.Nodes, 0)
	f.Zones = cmp.Or(max(f.Zones, 0), 3)
	f.RacksPerBlock = cmp.Or(max(f.RacksPerBlock, 0), 10)
	f.NodesPerRack = cmp.Or(max(f.NodesPerRack, 0), 20)
	if len(f.Kinds) == 0 {
		f.Kinds = Machines()
	}
	return f
}

// order returns the kind of every node, as an index into Kinds.
func (f Fleet) order() []int {
	weights := make([]float64, len(f.Kinds))
	for i := range f.Kinds {
		weights[i] = f.Kinds[i].Weight
	}
	return deal(f.Nodes, weights, f.Seed, "kinds")
}

// domains returns the zone, the block and the rack of node i. Each zone has a run of consecutive nodes, which fill its
// racks one after another.
func (f Fleet) domains(i int) (zone, block, rack string) {
	z := i * f.Zones / f.Nodes
	first := (z*f.Nodes + f.Zones - 1) / f.Zones
	r := (i - first) / f.NodesPerRack
	zone = zoneName(z)
	block = fmt.Sprintf("%s-b%02d", zone, r/f.RacksPerBlock+1)
	return zone, block, fmt.Sprintf("%s-r%02d", block, r%f.RacksPerBlock+1)
}

// deal returns n indices of weights in random order. Each index occurs in proportion to its weight, as exactly as whole
// numbers allow. Seed and purpose decide the order.
func deal(n int, weights []float64, seed uint64, purpose string) []int {
	out := make([]int, 0, n)
	for kind, count := range apportion(n, weights) {
		for range count {
			out = append(out, kind)
		}
	}
	r := source(seed, purpose)
	r.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
