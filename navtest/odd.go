package navtest

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/orbitsched/orbit"
)

// The rule: no constellation and no work that a ledger accepts makes a navigator panic, fail, leave a capsule out or
// make an infeasible plan.

// oddWorlds are unusual constellations, and what happens to them after the first passes; nil: nothing.
var oddWorlds = []struct {
	name string
	make func(*world)
	then func(*world)
}{
	{"there are no nodes", func(*world) {}, func(w *world) { w.racks(1) }},
	{"all nodes are drained", func(w *world) { w.racks(2); w.drain(true) }, func(w *world) { w.drain(false) }},
	{"one node has nothing", func(w *world) { w.put(orbit.Node{ID: "empty"}) }, nil},
	{"one node has all there can be", func(w *world) { w.put(immense("immense")) }, func(w *world) { w.put(immense("another")) }},
	{"all nodes have gone", func(w *world) { w.racks(1) }, func(w *world) { w.goAway() }},
	{"nodes have left and come back", func(w *world) { w.racks(1) }, func(w *world) { w.goAway(); w.racks(1) }},
	{"capacity has shrunk to nothing", func(w *world) { w.racks(1) }, func(w *world) { w.shrink() }},
	{"the ledger takes 8 commitments in a proposal", func(w *world) { w.takesLittle() }, func(w *world) { w.racks(2) }},
	{"no node has a label", func(w *world) { w.racks(1); w.strip(nil) }, func(w *world) { w.strip(map[string]string{"rack": ""}) }},
}

func checkOddWorlds(t *trial) {
	for _, odd := range oddWorlds {
		t.Where = odd.name + ": "
		w := t.world()
		odd.make(w)
		for _, p := range t.mine {
			for _, spec := range oddSpecs(p) {
				w.submit(spec, 3)
			}
		}
		w.oddPasses(t.gangs())
		if odd.then != nil {
			odd.then(w)
			w.oddPasses(false)
		}
	}
	t.Where = "nothing is pending: "
	w := t.world()
	w.racks(1)
	w.submit(small(t.mine[0]), 1)
	w.ask = func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		for _, none := range [][]*orbit.Capsule{nil, {}} {
			if plan, err := w.under.Plan(ctx, view, none); err != nil || len(plan.Unplaced) > 0 {
				return plan, fmt.Errorf("of nothing %d capsules are unplaced, and the error is %w", len(plan.Unplaced), err)
			}
		}
		return w.under.Plan(ctx, view, pending)
	}
	w.pass()
}

// oddPasses plans a few times. If lone is set, it first submits capsules of GangClass that are in no gang.
func (w *world) oddPasses(lone bool) {
	for _, p := range w.t.mine {
		if lone && p.class == orbit.GangClass {
			w.commit(orbit.Submit{IDs: w.ids(2), Spec: w.adapt(small(p))})
		}
	}
	w.passes(3, func(c *call) error { return cmp.Or(c.replays(), w.t.trespass(c), c.unaccounted()) })
}

// oddSpecs returns specs that ask for nothing, for everything, or for unusual things.
func oddSpecs(p pair) []*orbit.Spec {
	nothing := &orbit.Spec{Module: p.module, Class: p.class}
	most, half, wish, devices := small(p), small(p), small(p), small(p)
	for d := range most.Envelope.Reservation {
		most.Envelope.Reservation[d] = math.MaxInt64
		half.Envelope.Reservation[d] = math.MaxInt64/2 + 1
	}
	most.Priority, nothing.Priority = math.MaxInt32, math.MinInt32
	wish.Prefer = []orbit.Preference{
		{Predicate: orbit.Predicate{Key: "rack", Op: "Exists"}, Weight: 1e100},
		{Predicate: orbit.Predicate{Key: "rack", Op: "DoesNotExist"}, Weight: -1e100},
	}
	wish.Spread = orbit.Domains{Level: "no such level", Names: []string{"", "x"}}
	wish.PreferCompany = []orbit.Company{{Group: "nobody", Level: "no such level", Weight: 1e100}, {Group: "nobody", Level: orbit.NodeKey, Weight: -1e100}}
	devices.Devices = orbit.DeviceRequest{Count: orbit.MaxDevices, Milli: 1000, Models: []string{"", "no such model"}}
	return []*orbit.Spec{nothing, most, half, small(p), wish, devices}
}

// takesLittle makes a world whose ledger takes short proposals only, with more capsules of one class than fit into one.
func (w *world) takesLittle() {
	w.ledger.Bounds = orbit.Limits{Commitments: 8, Preconditions: 8}
	w.racks(1)
	for _, p := range w.t.singles() {
		w.submit(small(p), 30)
	}
}

// immense returns a node with the greatest capacity in every dimension.
func immense(id orbit.NodeID) orbit.Node {
	n := orbit.Node{ID: id, Labels: map[string]string{"rack": "r0"}, Devices: orbit.Devices{Model: "m1", Count: orbit.MaxDevices}}
	for d := range n.Capacity {
		n.Capacity[d] = math.MaxInt64
	}
	return n
}

// change puts every node again as f has changed it.
func (w *world) change(f func(*orbit.Node)) {
	for n := range w.state().Nodes() {
		node := *n.Node
		f(&node)
		w.commit(orbit.PutNode{Node: node})
	}
}

// drain makes all nodes unschedulable, or schedulable again.
func (w *world) drain(on bool) { w.change(func(n *orbit.Node) { n.Cordon(on) }) }

// shrink sets all capacities to zero and all devices to unhealthy.
func (w *world) shrink() {
	w.change(func(n *orbit.Node) {
		n.Capacity = orbit.Resources{}
		n.Devices.Unhealthy = 1<<n.Devices.Count - 1
	})
}

// strip gives all nodes these labels.
func (w *world) strip(labels map[string]string) {
	w.change(func(n *orbit.Node) { n.Labels = labels })
}

// goAway releases all capsules and holds, and removes all nodes.
func (w *world) goAway() {
	s := w.state()
	for n := range s.Nodes() {
		do := []orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: n.Node.ID, State: orbit.Lost}}}
		for c := range s.On(n.Node.ID) {
			do = append(do, orbit.Release{Capsule: c.ID})
		}
		for h := range s.Holds() {
			if h.Node == n.Node.ID {
				do = append(do, orbit.Release{Hold: h.ID})
			}
		}
		w.commit(append(do, orbit.RemoveNode{Node: n.Node.ID})...)
	}
}
