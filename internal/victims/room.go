package victims

import "github.com/orbitsched/orbit"

// room is what the capsule may use on a node: the free capacity, less what is nominated there for others that outrank
// the capsule.
type room struct {
	free    orbit.Resources
	devices [orbit.MaxDevices]int32
	healthy orbit.DeviceSet
}

// roomOf returns the room of a node, and marks the find as volatile if there are nominations. Room that a capsule has
// borrowed from a nomination counts as claimed, because it is claimed once the borrower leaves. If the victims found
// are more than necessary because of that, the ledger spares some.
func (s *Search) roomOf(n *orbit.NodeState, f *Found) (r room) {
	r.free = n.Free()
	if s.spec.Devices.Count > 0 {
		for i := range n.Node.Devices.Count {
			r.devices[i] = int32(n.DeviceFree(i) - n.DeviceOver(i))
		}
		r.healthy = orbit.DeviceSet(1<<n.Node.Devices.Count-1) &^ n.Node.Devices.Unhealthy
	}
	for of, part := range n.Nominated {
		f.Volatile = true
		if !of.OutranksPriority(s.spec.Priority) || s.own != nil && !of.Outranks(s.own) {
			continue
		}
		for d, x := range part.Room {
			r.free[d] -= x
		}
		for i := range r.devices {
			r.devices[i] -= int32(btoi(part.Devices.Has(i)) * part.Milli)
		}
	}
	return r
}

// take subtracts the resources and devices of a capsule; with the sign -1 it gives them back.
func (r *room) take(v *orbit.Capsule, sign int64) {
	for d, x := range v.Spec.Envelope.Reservation {
		r.free[d] -= sign * x
	}
	if v.Devices == 0 {
		return
	}
	for i := range r.devices {
		if v.Devices.Has(i) {
			r.devices[i] -= int32(sign) * int32(v.Spec.Devices.Milli)
		}
	}
}

// fits reports whether there is room for a spec.
func (r *room) fits(spec *orbit.Spec) bool {
	for d, want := range spec.Envelope.Reservation {
		if want > 0 && want > r.free[d] {
			return false
		}
	}
	open := 0
	for i, free := range r.devices {
		open += btoi(r.healthy.Has(i) && int(free) >= spec.Devices.Milli)
	}
	return open >= spec.Devices.Count
}

// btoi returns 1 for true and 0 for false.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
