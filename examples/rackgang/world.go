package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

const gib = int64(1) << 30

// world has the nodes and the capsules. They are the same for each way to start groups, except for the fields of the
// specs that name a group.
type world struct {
	nodes  []orbit.Node
	single []sim.Capsule // services and batch work
	groups []group
}

// group is a set of capsules of the same size that must share a rack.
type group struct {
	name     string
	members  int
	envelope orbit.Resources
}

// archetype is a kind of group.
type archetype struct {
	name         string
	fewest, most int // members
	cpu, memory  int64
	percent      int // of all capsules
}

// A training job takes a large part of a rack, a database in memory takes a few large nodes of it.
var archetypes = []archetype{
	{name: "training", fewest: 8, most: 16, cpu: 8_000, memory: 32 * gib, percent: 10},
	{name: "memory-db", fewest: 3, most: 6, cpu: 4_000, memory: 96 * gib, percent: 5},
}

// makeWorld generates nodes and capsules: 15% of the capsules in groups, the others services, batch sweeps and best
// effort.
func makeWorld(o options) *world {
	w := &world{nodes: sim.Constellation(sim.Fleet{Seed: o.seed, Nodes: o.nodes, Zones: max(1, o.nodes/100), NodesPerRack: 20})}
	r := rand.New(rand.NewPCG(o.seed, 25))
	for _, a := range archetypes {
		for n := o.capsules * a.percent / 100; n > 0; {
			g := group{name: fmt.Sprintf("%s-%03d", a.name, len(w.groups)), envelope: orbit.Resources{orbit.CPU: a.cpu, orbit.Memory: a.memory, orbit.Slots: 1}}
			g.members = min(n, a.fewest+r.IntN(a.most-a.fewest+1))
			w.groups = append(w.groups, g)
			n -= g.members
		}
	}
	for _, class := range sim.Workload(sim.Mix{Seed: o.seed, Capsules: o.capsules - w.grouped(), Classes: 40, Zones: max(1, o.nodes/100)}) {
		w.single = append(w.single, sim.Expand([]sim.Class{class})...)
	}
	sim.Shuffle(w.single, o.seed)
	return w
}

func (w *world) grouped() (n int) {
	for _, g := range w.groups {
		n += g.members
	}
	return n
}

func (w *world) capsules() int { return len(w.single) + w.grouped() }

// racks returns the number of racks.
func (w *world) racks() int {
	seen := map[string]bool{}
	for i := range w.nodes {
		seen[w.nodes[i].Labels["rack"]] = true
	}
	return len(seen)
}

// ids returns the ids of the members.
func (g *group) ids() []orbit.CapsuleID {
	out := make([]orbit.CapsuleID, g.members)
	for i := range out {
		out[i] = orbit.CapsuleID(fmt.Sprintf("%s-%02d", g.name, i))
	}
	return out
}

// near submits the group with affinity: each member must be in a rack where another member runs.
func (g *group) near() orbit.Submit {
	return orbit.Submit{IDs: g.ids(), Spec: &orbit.Spec{
		Module: g.name, Envelope: orbit.Envelope{Reservation: g.envelope}, Priority: 100,
		Group: g.name, Near: orbit.Near{Group: g.name, Level: "rack"},
	}}
}

// gang submits the group as a gang.
func (g *group) gang() orbit.Submit {
	spec := &orbit.Spec{Module: g.name, Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: g.envelope}, Priority: 100}
	return orbit.Submit{Gang: &orbit.Gang{
		ID: orbit.GangID(g.name), Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "member", Spec: spec, Members: g.ids()}},
	}}
}

// fill returns a ledger with the nodes and all capsules. Ask submits a group in one way or the other.
func (w *world) fill(ctx context.Context, ask func(*group) orbit.Submit) (*orbit.MemoryLedger, error) {
	ledger := &orbit.MemoryLedger{}
	var p orbit.Proposal
	for i := range w.nodes {
		p.Do = append(p.Do, orbit.PutNode{Node: w.nodes[i]})
	}
	each := max(1, len(w.single)/max(1, len(w.groups)))
	for i := range w.single {
		p.Do = append(p.Do, orbit.Submit{IDs: []orbit.CapsuleID{w.single[i].ID}, Spec: w.single[i].Spec})
		if k := i / each; i%each == 0 && k < len(w.groups) { // groups come in between
			p.Do = append(p.Do, ask(&w.groups[k]))
		}
	}
	_, err := ledger.Propose(ctx, p)
	return ledger, err
}
