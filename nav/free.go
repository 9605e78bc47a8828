package nav

import (
	"math/bits"

	"github.com/orbitsched/orbit"
)

// freeCapacity is the free capacity of one node while a plan is made. It is a value: copy it to try something out.
type freeCapacity struct {
	// Negative where capacity has shrunk below what is used.
	resources orbit.Resources
	// Milli of each device instance; 0: none, or it is unhealthy.
	devices [orbit.MaxDevices]int32
}

// freeCapacityOf returns the free capacity of a node.
func freeCapacityOf(n *orbit.NodeState) freeCapacity {
	r := freeCapacity{resources: n.Free()}
	for i := range n.Node.Devices.Count {
		r.devices[i] = int32(n.DeviceFree(i))
	}
	return r
}

// wholeDevice is what one device instance divides into, in milli.
const wholeDevice = 1000

// take deducts one capsule. The caller ensures that it fits.
func (r *freeCapacity) take(spec *orbit.Spec, set orbit.DeviceSet) {
	for d, want := range spec.Envelope.Reservation {
		r.resources[d] -= want
	}
	r.shift(set, -spec.Devices.Milli)
}

// leave gives back what one capsule uses. Of each device instance it gives back at most what will be free of it later,
// which is nothing of an unhealthy one.
func (r *freeCapacity) leave(spec *orbit.Spec, set orbit.DeviceSet, later *freeCapacity) {
	for d, used := range spec.Envelope.Reservation {
		r.resources[d] += used
	}
	r.shift(set, spec.Devices.Milli)
	for i := range r.devices {
		r.devices[i] = min(r.devices[i], later.devices[i])
	}
}

// leaveFree deducts what a nomination claims on the node, less what is borrowed from it there.
func (r *freeCapacity) leaveFree(n *orbit.NodeState, of *orbit.Nomination) {
	room, devices := n.Claimed(of, nil)
	for d, claimed := range room {
		r.resources[d] -= claimed
	}
	for i, milli := range devices {
		r.devices[i] -= int32(milli)
	}
}

// claim deducts the part of a nomination.
func (r *freeCapacity) claim(part *orbit.NominatedRoom) {
	for d, claimed := range part.Room {
		r.resources[d] -= claimed
	}
	r.shift(part.Devices, -part.Milli)
}

// lacks reports whether any resource or device that the part claims is below zero.
func (r *freeCapacity) lacks(part *orbit.NominatedRoom) bool {
	for d, claimed := range part.Room {
		if claimed > 0 && r.resources[d] < 0 {
			return true
		}
	}
	return !r.covers(part.Devices, 0)
}

// give gives back what a hold takes. The sum is at most the capacity, so it does not overflow. Device instances that
// are unhealthy or gone stay at zero.
func (r *freeCapacity) give(h *orbit.Hold, on *orbit.Node) {
	for d, held := range h.Room {
		r.resources[d] += held
	}
	r.shift(h.Devices&^on.Devices.Unhealthy&^(^orbit.DeviceSet(0)<<on.Devices.Count), h.Milli)
}

// shift adds milli to the instances of a set.
func (r *freeCapacity) shift(set orbit.DeviceSet, milli int) {
	for s := uint16(set); s != 0; s &= s - 1 {
		r.devices[bits.TrailingZeros16(s)] += int32(milli)
	}
}

// covers reports whether every instance of a set has at least this much free.
func (r *freeCapacity) covers(set orbit.DeviceSet, milli int) bool {
	for s := uint16(set); s != 0; s &= s - 1 {
		if int(r.devices[bits.TrailingZeros16(s)]) < milli {
			return false
		}
	}
	return true
}

// exceeds reports whether more is free than before, in at least one dimension or device instance.
func (r *freeCapacity) exceeds(was *freeCapacity) bool {
	for d := range r.resources {
		if r.resources[d] > was.resources[d] {
			return true
		}
	}
	for i := range r.devices {
		if r.devices[i] > was.devices[i] {
			return true
		}
	}
	return false
}

// capacity returns how many capsules of a spec fit, each resource taken alone. It divides instead of multiplying, so
// that nothing overflows.
func (r *freeCapacity) capacity(spec *orbit.Spec) int32 {
	n := int64(mostAlone)
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			n = min(n, max(r.resources[d], 0)/want)
		}
	}
	if spec.Devices.Count > 0 && n > 0 {
		n = min(n, r.serves(&spec.Devices))
	}
	return int32(n)
}

// serves returns how many such device requests fit. A request takes its milli of Count different instances. So n of
// them fit exactly if the shares of all instances, none counted more than n times, are at least n times Count.
func (r *freeCapacity) serves(q *orbit.DeviceRequest) int64 {
	var shares [orbit.MaxDevices]int
	all := 0
	for i, free := range r.devices {
		shares[i] = max(0, int(free)) / q.Milli
		all += shares[i]
	}
	if q.Count == 1 {
		return int64(all)
	}
	low, high := 0, all/q.Count
	for low < high {
		n := (low + high + 1) / 2
		sum := 0
		for _, s := range shares {
			sum += min(s, n)
		}
		if sum >= n*q.Count {
			low = n
		} else {
			high = n - 1
		}
	}
	return int64(low)
}

// pick chooses instances for the first of several equal members. It takes the instances that fit it most tightly, as
// [orbit.NodeState.PickDevices] does. If that leaves too little for the other members, it takes the instances with the
// most free, which always leaves enough. The caller ensures that all members fit together.
func (r *freeCapacity) pick(spec *orbit.Spec, more int) orbit.DeviceSet {
	q := &spec.Devices
	if q.Count == 0 {
		return 0
	}
	tight := r.instances(q, func(a, b int32) bool { return a < b })
	if more == 0 || q.Count == 1 {
		return tight
	}
	after := *r
	after.shift(tight, -q.Milli)
	if after.serves(q) >= int64(more) {
		return tight
	}
	return r.instances(q, func(a, b int32) bool { return a > b })
}

// instances returns the first Count instances with enough free, in an order by what is free; the lowest index among
// equals. The caller ensures that there are enough.
func (r *freeCapacity) instances(q *orbit.DeviceRequest, before func(a, b int32) bool) (set orbit.DeviceSet) {
	for range q.Count {
		best := -1
		for i, free := range r.devices {
			if int(free) >= q.Milli && !set.Has(i) && (best < 0 || before(free, r.devices[best])) {
				best = i
			}
		}
		set |= 1 << best
	}
	return set
}
