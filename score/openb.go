package score

import (
	"cmp"
	"math"

	"github.com/orbitsched/orbit"
)

// The divisors of openb's scores: about the capacity of the largest machine in the trace.
const (
	openbCPU    = 128_000 // milli-cores
	openbDevice = 8_000   // milli, of all devices of a machine together
)

// BestFit is the openb experiment's BestFit: the fuller the node would be after placing, the better. CPU and devices
// count half each, both as a fraction of the largest machine, not of this node:
//
//	-int(100 · (1 - [½·(free CPU - wanted)/CPUMax + ½·(free device milli - wanted)/DeviceMax]))
//
// The original's integer min-max normalisation over the feasible nodes is left out, because it cannot change which node
// is best. Memory does not count. Rounding to whole percents is part of the policy: it makes many nodes equally good,
// and with the engine's seed 0 the smallest node id among them wins, as in the original.
type BestFit struct {
	// CPUMax is the CPU of the largest node, in milli-cores; 0: 128,000.
	CPUMax int64
	// DeviceMax is the device capacity of the largest node, in thousandths of a device; 0: 8,000.
	DeviceMax int64
}

// Score rates the node from -100 (full) to 0. It is above 0 if the node has more free than the maxima.
func (s BestFit) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	return s.rate(freeCPU(node)-spec.Envelope.Reservation[orbit.CPU], freeDevices(node)-wantedDevices(spec)), 0
}

// Bound rates the least amounts that can be left. It returns nil if a maximum is negative.
func (s BestFit) Bound(spec *orbit.Spec, _ *orbit.Node) func(least, most *Extent) (value, tie float64) {
	if s.CPUMax < 0 || s.DeviceMax < 0 {
		return nil
	}
	cpu, devices := spec.Envelope.Reservation[orbit.CPU], wantedDevices(spec)
	return func(least, _ *Extent) (value, tie float64) {
		return s.rate(fitting(least.Free(orbit.CPU), cpu)-cpu, fitting(least.DevicesFree(), devices)-devices), 0
	}
}

// rate computes the score from the amounts that are left. It falls as either falls.
func (s BestFit) rate(cpuLeft, devicesLeft int64) float64 {
	cpu := float64(cpuLeft) / float64(cmp.Or(s.CPUMax, openbCPU))
	devices := float64(devicesLeft) / float64(cmp.Or(s.DeviceMax, openbDevice))
	return -percent(1 - (float64(0.5*cpu) + float64(0.5*devices)))
}

// DotProduct is the openb experiment's DotProd. It is the dot product of the free and the wanted amounts, and the
// smaller it is, the better. So a node that has plenty of what the capsule needs is kept for others.
//
//	-int(100 · (1 - (free CPU · wanted/CPUMax² + free device milli · wanted/DeviceMax²)/2))
//
// The free amounts are those before placing. Rounding and ties are as in [BestFit].
type DotProduct struct {
	// CPUMax is the CPU of the largest node, in milli-cores; 0: 128,000.
	CPUMax int64
	// DeviceMax is the device capacity of the largest node, in thousandths of a device; 0: 8,000.
	DeviceMax int64
}

// Score rates the node from -100 (nothing free of what is wanted) to 0.
func (s DotProduct) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	return s.rate(freeCPU(node), freeDevices(node), spec), 0
}

// Bound rates the least amounts that can be free.
func (s DotProduct) Bound(spec *orbit.Spec, _ *orbit.Node) func(least, most *Extent) (value, tie float64) {
	cpu, devices := spec.Envelope.Reservation[orbit.CPU], wantedDevices(spec)
	return func(least, _ *Extent) (value, tie float64) {
		return s.rate(fitting(least.Free(orbit.CPU), cpu), fitting(least.DevicesFree(), devices), spec), 0
	}
}

// rate computes the score from the free amounts. It falls as either falls.
func (s DotProduct) rate(cpuFree, devicesFree int64, spec *orbit.Spec) float64 {
	cpuMax, deviceMax := float64(cmp.Or(s.CPUMax, openbCPU)), float64(cmp.Or(s.DeviceMax, openbDevice))
	cpu := float64(float64(cpuFree) / cpuMax * (float64(spec.Envelope.Reservation[orbit.CPU]) / cpuMax))
	devices := float64(float64(devicesFree) / deviceMax * (float64(wantedDevices(spec)) / deviceMax))
	return -percent(1 - (cpu+devices)/2)
}

// percent converts a fraction to whole percents, rounded towards 0.
func percent(part float64) float64 { return math.Trunc(100 * part) }

// fitting returns the least that is free on the nodes of a set on which the spec fits, if free is the least on all
// nodes of the set: nodes that fit have at least what is wanted.
func fitting(free, want int64) int64 {
	if want > 0 {
		return max(free, want)
	}
	return free
}

// freeCPU returns the free CPU of a node, in milli-cores.
func freeCPU(node *orbit.NodeState) int64 {
	return node.Node.Capacity[orbit.CPU] - node.Used()[orbit.CPU]
}

// freeDevices returns the free capacity of all healthy device instances together, in milli, as [Extent.DevicesFree]
// does.
func freeDevices(node *orbit.NodeState) int64 {
	sum := 0
	for i := range node.Node.Devices.Count {
		sum += node.DeviceFree(i)
	}
	return int64(sum)
}

// wantedDevices returns what the spec asks for of all its device instances together, in milli.
func wantedDevices(spec *orbit.Spec) int64 {
	return int64(spec.Devices.Count) * int64(spec.Devices.Milli)
}
