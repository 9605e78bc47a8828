package nav

import "github.com/orbitsched/orbit"

// What is counted of nodes and specs alike: the dimensions of [orbit.Resources], and after those all devices of a
// node together, in milli.
const (
	devicesDim = orbit.Dimensions
	allDims    = devicesDim + 1
)

// quantities is so much of everything that is counted.
type quantities [allDims]int64

// wantOf is how much a spec asks for of a dimension.
func wantOf(spec *orbit.Spec, d int) int64 {
	if d == devicesDim {
		return int64(spec.Devices.Count) * int64(spec.Devices.Milli)
	}
	return spec.Envelope.Reservation[d]
}

// measure returns how much there is of everything, nothing below zero.
func (r *nodeRoom) measure(on *orbit.Node) (free quantities) {
	for d := range r.free {
		free[d] = max(r.free[d], 0)
	}
	for _, milli := range r.devices[:on.Devices.Count] {
		free[devicesDim] += max(int64(milli), 0)
	}
	return free
}
