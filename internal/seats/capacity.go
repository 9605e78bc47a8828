package seats

import (
	"math/bits"

	"github.com/orbitsched/orbit"
)

// Capacity is the free capacity of one node while a plan is made. It is a value: copy it to try something out.
type Capacity struct {
	// Negative where capacity has shrunk below what is used.
	Resources orbit.Resources
	// Milli of each device instance; 0: none, or it is unhealthy.
	Devices [orbit.MaxDevices]int32
}

// CapacityOf returns the free capacity of a node.
func CapacityOf(n *orbit.NodeState) Capacity {
	r := Capacity{Resources: n.Free()}
	for i := range n.Node.Devices.Count {
		r.Devices[i] = int32(n.DeviceFree(i))
	}
	return r
}

// WholeDevice is what one device instance divides into, in milli.
const WholeDevice = 1000

// Take deducts one capsule. The caller ensures that it fits.
func (r *Capacity) Take(spec *orbit.Spec, set orbit.DeviceSet) {
	for d, want := range spec.Envelope.Reservation {
		r.Resources[d] -= want
	}
	r.shift(set, -spec.Devices.Milli)
}

// Leave gives back what one capsule uses. Of each device instance it gives back at most what will be free of it later,
// which is nothing of an unhealthy one.
func (r *Capacity) Leave(spec *orbit.Spec, set orbit.DeviceSet, later *Capacity) {
	for d, used := range spec.Envelope.Reservation {
		r.Resources[d] += used
	}
	r.shift(set, spec.Devices.Milli)
	for i := range r.Devices {
		r.Devices[i] = min(r.Devices[i], later.Devices[i])
	}
}

// LeaveFree deducts what a nomination claims on the node of capsules of a spec, less what is borrowed from it there; nil: of
// all that borrow nothing.
func (r *Capacity) LeaveFree(n *orbit.NodeState, of *orbit.Nomination, spec *orbit.Spec) {
	room, devices := n.Claimed(of, spec)
	for d, claimed := range room {
		r.Resources[d] -= claimed
	}
	for i, milli := range devices {
		r.Devices[i] -= int32(milli)
	}
}

// Claim deducts the part of a nomination.
func (r *Capacity) Claim(part *orbit.NominatedRoom) {
	for d, claimed := range part.Room {
		r.Resources[d] -= claimed
	}
	r.shift(part.Devices, -part.Milli)
}

// Lacks reports whether any resource or device that the part claims is below zero.
func (r *Capacity) Lacks(part *orbit.NominatedRoom) bool {
	for d, claimed := range part.Room {
		if claimed > 0 && r.Resources[d] < 0 {
			return true
		}
	}
	return !r.covers(part.Devices, 0)
}

// Give gives back what a hold takes. The sum is at most the capacity, so it does not overflow. Device instances that
// are unhealthy or gone stay at zero.
func (r *Capacity) Give(h *orbit.Hold, on *orbit.Node) {
	for d, held := range h.Room {
		r.Resources[d] += held
	}
	r.shift(h.Devices&^on.Devices.Unhealthy&^(^orbit.DeviceSet(0)<<on.Devices.Count), h.Milli)
}

// shift adds milli to the instances of a set.
func (r *Capacity) shift(set orbit.DeviceSet, milli int) {
	for s := uint16(set); s != 0; s &= s - 1 {
		r.Devices[bits.TrailingZeros16(s)] += int32(milli)
	}
}

// covers reports whether every instance of a set has at least this much free.
func (r *Capacity) covers(set orbit.DeviceSet, milli int) bool {
	for s := uint16(set); s != 0; s &= s - 1 {
		if int(r.Devices[bits.TrailingZeros16(s)]) < milli {
			return false
		}
	}
	return true
}

// exceeds reports whether more is free than before, in at least one dimension or device instance.
func (r *Capacity) exceeds(was *Capacity) bool {
	for d := range r.Resources {
		if r.Resources[d] > was.Resources[d] {
			return true
		}
	}
	for i := range r.Devices {
		if r.Devices[i] > was.Devices[i] {
			return true
		}
	}
	return false
}

// With returns how many device instances have at least milli thousandths free.
func (r *Capacity) With(milli int) (n int) {
	for _, free := range r.Devices {
		n += btoi(int(free) >= milli)
	}
	return n
}

// Fits returns how many capsules of a spec fit, each resource taken alone. It divides instead of multiplying, so
// that nothing overflows.
func (r *Capacity) Fits(spec *orbit.Spec) int32 {
	n := int64(mostAlone)
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			n = min(n, max(r.Resources[d], 0)/want)
		}
	}
	if spec.Devices.Count > 0 && n > 0 {
		n = min(n, r.serves(&spec.Devices))
	}
	return int32(n)
}

// serves returns how many such device requests fit. A request takes its milli of Count different instances. So n of
// them fit exactly if the shares of all instances, none counted more than n times, are at least n times Count.
func (r *Capacity) serves(q *orbit.DeviceRequest) int64 {
	var shares [orbit.MaxDevices]int
	all := 0
	for i, free := range r.Devices {
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

// Pick chooses instances for the first of several equal members. It takes the instances that fit it most tightly, as
// [orbit.NodeState.PickDevices] does. If that leaves too little for the other members, it takes the instances with the
// most free, which always leaves enough. The caller ensures that all members fit together.
func (r *Capacity) Pick(spec *orbit.Spec, more int) orbit.DeviceSet {
	q := &spec.Devices
	if q.Count == 0 {
		return 0
	}
	tight := r.Instances(q, func(a, b int32) bool { return a < b })
	if more == 0 || q.Count == 1 {
		return tight
	}
	after := *r
	after.shift(tight, -q.Milli)
	if after.serves(q) >= int64(more) {
		return tight
	}
	return r.Instances(q, func(a, b int32) bool { return a > b })
}

// Instances returns Count instances that have enough free. Before orders them by what they have free; among equals the lowest
// index comes first. It requires that there are so many.
func (r *Capacity) Instances(q *orbit.DeviceRequest, before func(a, b int32) bool) (set orbit.DeviceSet) {
	for range q.Count {
		best := -1
		for i, free := range r.Devices {
			if int(free) >= q.Milli && !set.Has(i) && (best < 0 || before(free, r.Devices[best])) {
				best = i
			}
		}
		set |= 1 << best
	}
	return set
}
