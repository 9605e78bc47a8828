package orbit

import "github.com/orbitsched/orbit/internal/kd"

// Score rates a node for a spec: lower is better, and equal values go by tie. It sees the node as it is now
// (with what the plan has reserved), its telemetry report and the shared spec, never the capsule, and it
// must be a pure function of the three: that is what makes equivalence classes and caching exact. A value
// that is NaN or infinite takes the node out of the choice.
//
// A score may also have a method PickDevices(node *NodeState, spec *Spec) (DeviceSet, bool) that chooses the
// device instances; the default is [NodeState.PickDevices]. Package score has ready scores, and the interfaces of a
// score that can bound itself (Bounded), and of one that reads more than its arguments and must say so (Versioned).
//
// A score that draws lots has a method Draw(decision uint64) (Score, bool). It returns the score for one decision,
// and false if it draws none after all. Engines ask for it before every choice, with a number that is another one in
// every view, after every Place, and with every Seed; and rate all nodes with it.
type Score interface {
	Score(node *NodeState, report *Report, spec *Spec) (value, tie float64)
}

// Extent is what a score can know of a set of nodes without looking at each: the least or the most of every
// quantity. The extent of a single node is both. It is read with its methods.
type Extent [kd.Dims]int64

// The coordinates of an Extent: those first that scores read most, so that they share a cache line.
const (
	extentCapsules  = 0
	extentFree      = 1
	extentDevices   = Dimensions + 1
	extentIdle      = Dimensions + 2
	extentLargest   = Dimensions + 3
	extentInstances = Dimensions + 4
	extentCapacity  = Dimensions + 5
	extentSecond    = 2*Dimensions + 5
	extentFourth    = 2*Dimensions + 6
	extentEighth    = 2*Dimensions + 7
)

// Free is what is free of a dimension; negative where capacity has shrunk below what is used.
func (e *Extent) Free(d Dimension) int64 { return e[extentFree+d] }

// Capacity is the capacity in a dimension.
func (e *Extent) Capacity(d Dimension) int64 { return e[extentCapacity+d] }

// Capsules is the number of capsules on the node.
func (e *Extent) Capsules() int { return int(e[extentCapsules]) }

// DevicesFree is what is free of all device instances together, in milli.
func (e *Extent) DevicesFree() int64 { return e[extentDevices] }

// DevicesIdle is the number of instances of which nothing is taken.
func (e *Extent) DevicesIdle() int { return int(e[extentIdle]) }

// DeviceLargest is the most that is free on one instance, in milli.
func (e *Extent) DeviceLargest() int { return int(e[extentLargest]) }

// DevicesWith is at most how many instances have so much free each, in milli, on any of the nodes of which e is the most.
// It may be more than there are, because what is known is how much is free on the freest instance, and on the second,
// the fourth and the eighth after that order.
func (e *Extent) DevicesWith(milli int) int {
	want := int64(milli)
	switch {
	case want >= deviceMilli:
		return e.DevicesIdle()
	case e[extentLargest] < want:
		return 0
	case e[extentSecond] < want:
		return 1
	case e[extentFourth] < want:
		return 3
	case e[extentEighth] < want:
		return 7
	}
	return MaxDevices
}

// Devices is the number of instances, those that are out of order included.
func (e *Extent) Devices() int { return int(e[extentInstances]) }

// Extent returns the extent of one node: both its least and its most.
func (n *NodeState) Extent() (e Extent) {
	for d, capacity := range n.Node.Capacity {
		e[extentFree+d] = capacity - n.used[d]
		e[extentCapacity+d] = capacity
	}
	e[extentCapsules] = int64(n.Capsules)
	e[extentInstances] = int64(n.Node.Devices.Count)
	if n.Node.Devices.Count > 0 {
		n.deviceExtent(&e)
	}
	return e
}

// deviceExtent fills in what is free on the node's device instances.
func (n *NodeState) deviceExtent(e *Extent) {
	var freest [8]int64 // in falling order
	for i := range n.Node.Devices.Count {
		free := int64(n.DeviceFree(i))
		e[extentDevices] += free
		e[extentIdle] += int64(btoi(free == deviceMilli))
		at := min(i, len(freest)-1)
		if free <= freest[at] {
			continue
		}
		for ; at > 0 && freest[at-1] < free; at-- {
			freest[at] = freest[at-1]
		}
		freest[at] = free
	}
	e[extentLargest], e[extentSecond], e[extentFourth], e[extentEighth] = freest[0], freest[1], freest[3], freest[7]
}

// SpreadsAcross reports whether the node is in one of the failure domains that the spec names.
func (s *Spec) SpreadsAcross(n *Node) bool {
	if len(s.Spread.Names) == 0 {
		return false
	}
	domain, ok := n.Labels[s.Spread.Level]
	if !ok {
		return false
	}
	for _, name := range s.Spread.Names {
		if name == domain {
			return true
		}
	}
	return false
}
