package score

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
)

// Extent has the least or the most of each quantity over a set of nodes: all that a bound may use. The extent of a
// single node is both. Read it with its methods.
type Extent [kd.Dims]int64

// The coordinates of an Extent. The ones that scores read most come first, so that they share a cache line.
const (
	extentCapsules  = 0
	extentFree      = 1
	extentDevices   = orbit.Dimensions + 1
	extentIdle      = orbit.Dimensions + 2
	extentLargest   = orbit.Dimensions + 3
	extentInstances = orbit.Dimensions + 4
	extentCapacity  = orbit.Dimensions + 5
	extentSecond    = 2*orbit.Dimensions + 5
	extentFourth    = 2*orbit.Dimensions + 6
	extentEighth    = 2*orbit.Dimensions + 7
)

// Free returns the free capacity of a dimension. It is negative where capacity has shrunk below what is used.
func (e *Extent) Free(d int) int64 { return e[extentFree+d] }

// Capacity returns the capacity of a dimension.
func (e *Extent) Capacity(d int) int64 { return e[extentCapacity+d] }

// Capsules returns the number of capsules on the node.
func (e *Extent) Capsules() int { return int(e[extentCapsules]) }

// DevicesFree returns the free capacity of all device instances together, in milli.
func (e *Extent) DevicesFree() int64 { return e[extentDevices] }

// DevicesIdle returns the number of device instances that are free as a whole.
func (e *Extent) DevicesIdle() int { return int(e[extentIdle]) }

// DeviceLargest returns the largest free capacity of one device instance, in milli.
func (e *Extent) DeviceLargest() int { return int(e[extentLargest]) }

// DevicesWith returns an upper bound of how many instances have this much free each, in milli, on any of the nodes of
// which e is the most. It may be too high, because an extent has only the free capacity of the freest instance, and of
// the second, fourth and eighth freest.
func (e *Extent) DevicesWith(milli int) int {
	want := int64(milli)
	switch {
	case want >= wholeDevice:
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
	return orbit.MaxDevices
}

// Devices returns the number of device instances, including unhealthy ones.
func (e *Extent) Devices() int { return int(e[extentInstances]) }

// ExtentOf returns the extent of one node, which is both its least and its most.
func ExtentOf(n *orbit.NodeState) (e Extent) {
	for d, free := range n.Free() {
		e[extentFree+d] = free
		e[extentCapacity+d] = n.Node.Capacity[d]
	}
	e[extentCapsules] = int64(n.Capsules)
	e[extentInstances] = int64(n.Node.Devices.Count)
	if n.Node.Devices.Count > 0 {
		e.takeDevices(n)
	}
	return e
}

// takeDevices fills in the free capacity of the node's device instances.
func (e *Extent) takeDevices(n *orbit.NodeState) {
	var freest [8]int64 // in falling order
	for i := range n.Node.Devices.Count {
		free := int64(n.DeviceFree(i))
		e[extentDevices] += free
		if free == wholeDevice {
			e[extentIdle]++
		}
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
