package promorbit

import (
	"math/bits"

	"github.com/orbitsched/orbit"
)

// devices is the index, after those of the resources, at which amounts have device instances, in thousandths of one.
const devices = orbit.Dimensions

// wide is a sum of amounts that does not overflow.
type wide struct {
	hi int64
	lo uint64
}

// add adds an amount, which may be negative.
func (w *wide) add(amount int64) {
	lo, carry := bits.Add64(w.lo, uint64(amount), 0)
	w.lo, w.hi = lo, w.hi+int64(carry)+amount>>63
}

// float returns the sum as a float64. The sum must not be negative.
func (w wide) float() float64 { return float64(w.hi)*(1<<64) + float64(w.lo) }

// amounts are sums of each resource, and of devices.
type amounts [orbit.Dimensions + 1]wide

// add adds amounts of resources and thousandths of devices. Negative amounts of resources count as 0.
func (a *amounts) add(r *orbit.Resources, milli int) {
	for d := range r {
		a[d].add(max(0, r[d]))
	}
	a[devices].add(int64(milli))
}

// census has the sums over all nodes.
type census struct {
	// nodes is the number of nodes by orbit.Condition.
	nodes [orbit.Lost + 1]int
	// placed is the number of placed capsules, holds that of live holds, users that of both on nodes that are not lost.
	placed, holds, users int
	// capacity and used are sums over all nodes that are not lost. Unhealthy devices are left out.
	capacity, used amounts
	// free is the free capacity of ready nodes. stranded is the part of it on nodes on which a typical capsule does not
	// fit.
	free, stranded amounts
}

// countNodes counts all nodes. If typical is zero, a typical capsule takes the mean of all placements and holds. That
// mean is known only after the first pass over the nodes, so a second pass counts what is stranded.
func countNodes(state *orbit.State, typical orbit.Resources) (c census) {
	bound := state.NodeBound()
	for i := range bound {
		if n := state.NodeByIndex(i); n != nil {
			c.count(n)
		}
	}
	if typical == (orbit.Resources{}) && c.users > 0 {
		for d := range typical {
			typical[d] = int64(min(c.used[d].float()/float64(c.users), 1<<62))
		}
	}
	for i := range bound {
		if n := state.NodeByIndex(i); n != nil && n.Node.Schedulable() {
			if free := n.Free(); !typical.Within(free) {
				_, milli := devicesOf(n)
				c.stranded.add(&free, milli)
			}
		}
	}
	return c
}

// count adds a node.
func (c *census) count(n *orbit.NodeState) {
	c.nodes[min(n.Node.State, orbit.Lost)]++
	c.placed += n.Capsules
	c.holds += n.Holds()
	if n.Node.State == orbit.Lost {
		return
	}
	c.users += n.Capsules + n.Holds()
	used, free := n.Used(), n.Free()
	all, unused := devicesOf(n)
	c.capacity.add(&n.Node.Capacity, all)
	c.used.add(&used, all-unused)
	if n.Node.Schedulable() {
		c.free.add(&free, unused)
	}
}

// devicesOf returns the capacity of a node's healthy devices, and the free part of it, in thousandths of a device.
func devicesOf(n *orbit.NodeState) (all, free int) {
	d := &n.Node.Devices
	for i := range d.Count {
		if !d.Unhealthy.Has(i) {
			all += 1000
			free += n.DeviceFree(i)
		}
	}
	return all, free
}
