package promorbit

import (
	"math/bits"

	"github.com/orbitsched/orbit"
)

// devices is the position behind the resources at which sums count device instances, in thousandths of one.
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

// float returns the sum, which must not be negative, as a number of Prometheus.
func (w wide) float() float64 { return float64(w.hi)*(1<<64) + float64(w.lo) }

// amounts are sums of each resource, and of devices.
type amounts [orbit.Dimensions + 1]wide

// add adds amounts of resources, where they are not negative, and thousandths of devices.
func (a *amounts) add(r *orbit.Resources, milli int) {
	for d := range r {
		a[d].add(max(0, r[d]))
	}
	a[devices].add(int64(milli))
}

// census is what all nodes have together.
type census struct {
	// By orbit.Condition.
	nodes [orbit.Lost + 1]int
	// Capsules placed and live holds, and how many of both are on nodes that are not lost.
	placed, holds, users int
	// Of all nodes that are not lost. Devices that are not healthy are left out.
	capacity, used amounts
	// Of ready nodes: what is free there, and how much of that is on nodes that have no room for a typical capsule.
	free, stranded amounts
}

// countNodes looks at each node twice: the second time it knows what a typical capsule takes. If that is not given, it is what
// placements and holds take in the mean.
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

// devicesOf returns how much a node has of healthy devices, and how much of that is free, in thousandths of a device.
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
