package score

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
)

// Extent is what a score can know of a set of nodes without looking at each: the least or the most of every
// quantity. The extent of a single node is both. It is read with its methods.
type Extent [kd.Dims]int64

// The coordinates of an Extent: those first that scores read most, so that they share a cache line.
const (
	extentCapsules  = 0
	extentFree      = 1
	extentDevices   = orbit.Dimensions + 1
	extentIdle      = orbit.Dimensions + 2
	extentLargest   = orbit.Dimensions + 3
	extentInstances = orbit.Dimensions + 4
	extentCapacity  = orbit.Dimensions + 5
)

// Free is what is free of a dimension; negative where capacity has shrunk below what is used.
func (e *Extent) Free(d int) int64 { return e[extentFree+d] }

// Capacity is the capacity in a dimension.
func (e *Extent) Capacity(d int) int64 { return e[extentCapacity+d] }

// Capsules is the number of capsules on the node.
func (e *Extent) Capsules() int { return int(e[extentCapsules]) }

// DevicesFree is what is free of all device instances together, in milli.
func (e *Extent) DevicesFree() int64 { return e[extentDevices] }

// DevicesIdle is the number of instances of which nothing is taken.
func (e *Extent) DevicesIdle() int { return int(e[extentIdle]) }

// DeviceLargest is the most that is free on one instance, in milli.
func (e *Extent) DeviceLargest() int { return int(e[extentLargest]) }

// Devices is the number of instances, those that are out of order included.
func (e *Extent) Devices() int { return int(e[extentInstances]) }

// ExtentOf returns the extent of one node: both its least and its most.
func ExtentOf(n *orbit.NodeState) (e Extent) {
	for d, free := range n.Free() {
		e[extentFree+d] = free
		e[extentCapacity+d] = n.Node.Capacity[d]
	}
	e[extentCapsules] = int64(n.Capsules)
	e[extentInstances] = int64(n.Node.Devices.Count)
	for i := range n.Node.Devices.Count {
		free := int64(n.DeviceFree(i))
		e[extentDevices] += free
		e[extentLargest] = max(e[extentLargest], free)
		if free == wholeDevice {
			e[extentIdle]++
		}
	}
	return e
}
