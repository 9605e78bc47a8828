package nav

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// What is priced: the dimensions of [orbit.Resources], all devices together in milli, the instances of which one
// capsule can take more than a half (only one such capsule goes on an instance), and the idle ones.
const (
	halfDim  = devicesDim + 1
	idleDim  = devicesDim + 2
	goodsDim = devicesDim + 3
)

// goods is so much of everything that is priced.
type goods [goodsDim]int64

// goodsOf returns what one capsule of the spec takes.
func goodsOf(spec *orbit.Spec) (g goods) {
	copy(g[:], spec.Envelope.Reservation[:])
	if r := &spec.Devices; r.Count > 0 {
		g[devicesDim] = int64(r.Count) * int64(r.Milli)
		if r.Milli > wholeDevice/2 {
			g[halfDim] = int64(r.Count)
		}
		if r.Milli == wholeDevice {
			g[idleDim] = int64(r.Count)
		}
	}
	return g
}

// room is what is free on a node of a kind of labels. Of each device so much is free, most first.
type room struct {
	labels  int
	goods   goods
	devices [orbit.MaxDevices]int16
}

// roomOf returns what is free on the node.
func roomOf(n *orbit.NodeState) (r room) {
	left := freeRoom(n)
	for d, v := range left.free {
		r.goods[d] = max(v, 0)
	}
	for i, milli := range left.devices {
		r.devices[i] = int16(max(milli, 0))
		r.goods[devicesDim] += int64(r.devices[i])
		r.goods[halfDim] += int64(r.devices[i] / (wholeDevice/2 + 1))
		r.goods[idleDim] += int64(r.devices[i] / wholeDevice)
	}
	slices.SortFunc(r.devices[:], func(a, b int16) int { return int(b - a) })
	return r
}

// fits returns how many capsules of a spec go into the room, each dimension looked at by itself; at most limit.
func (r *room) fits(spec *orbit.Spec, want *goods, limit int) int {
	if q := &spec.Devices; q.Count > 0 && int(r.devices[q.Count-1]) < q.Milli {
		return 0
	}
	for d, w := range want {
		if w > 0 {
			limit = int(min(int64(limit), r.goods[d]/w))
		}
	}
	return limit
}

// ignore forgets what nobody wants, so that more rooms are alike.
func (r *room) ignore(wanted *goods) {
	for d, w := range wanted {
		if w == 0 {
			r.goods[d] = 0
		}
	}
	if wanted[devicesDim] == 0 {
		r.devices = [orbit.MaxDevices]int16{}
	}
}

// cover reports whether g is at least o in everything.
func (g *goods) cover(o *goods) bool {
	for d := range g {
		if g[d] < o[d] {
			return false
		}
	}
	return true
}
