package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"github.com/orbitsched/orbit"
)

// Mix describes a workload for a [Constellation] of [Machines]: services, batch sweeps, best-effort work and
// work for devices. Capsules take about 1 core and 2 GiB on average, so 20 for each node fill nearly a third
// of the CPU and of the devices.
type Mix struct {
	// Seed selects the random workload: the same seed gives the same one.
	Seed uint64
	// Capsules is the number of capsules.
	Capsules int
	// Classes is the number of kinds of capsules, of which each has its own module and spec; 0: 20.
	Classes int
	// Zones is the number of zones that specs may spread across or require; 0: 3.
	Zones int
}

// trade is one part of a mix.
type trade struct {
	name     string
	classes  float64 // its share of the classes, relative to the others
	capsules float64 // its share of the capsules, likewise
	spec     func(r *rand.Rand, zones int) orbit.Spec
}

// trades divide the classes and the capsules: services have many small classes, sweeps have large ones.
var trades = []trade{
	{"service", 40, 30, service},
	{"sweep", 30, 51, sweep},
	{"besteffort", 20, 18, bestEffort},
	{"device", 10, 1, device},
}

// Workload returns the classes of a mix, largest first within each trade. Class sizes are distributed as in real
// clusters: few classes are large and many are small. Each class has at least one capsule if there are enough capsules.
// Every class can be placed: a constellation of Machines with free capacity has a node that fits it.
func Workload(m Mix) []Class {
	m.Capsules, m.Classes, m.Zones = max(m.Capsules, 0), cmp.Or(max(m.Classes, 0), 20), cmp.Or(max(m.Zones, 0), 3)
	r := source(m.Seed, "workload")
	shares := make([]float64, len(trades))
	for i := range trades {
		shares[i] = trades[i].classes
	}
	var classes []Class
	var weights []float64
	for i, n := range apportion(m.Classes, shares) {
		sizes := fallOff(n, trades[i].capsules)
		for k := range n {
			spec := trades[i].spec(r, m.Zones)
			spec.Module = trades[i].name + "-" + number(k, 4)
			spec.Envelope.Reservation[orbit.Slots] = 1
			classes = append(classes, Class{Spec: &spec})
			weights = append(weights, sizes[k])
		}
	}
	rest := max(m.Capsules-m.Classes, 0) // the capsules that remain when every class has got one
	for i, n := range apportion(rest, weights) {
		classes[i].Count = n
		if i < m.Capsules {
			classes[i].Count++
		}
	}
	return classes
}

// fallOff returns n weights with this sum; the k-th is proportional to 1/(k+4).
func fallOff(n int, sum float64) []float64 {
	out, all := make([]float64, n), 0.0
	for k := range out {
		out[k] = 1 / float64(k+4)
		all += out[k]
	}
	for k := range out {
		out[k] *= sum / all
	}
	return out
}

// service spreads across zones and prefers fast disks; some insist on an architecture or avoid a zone.
func service(r *rand.Rand, zones int) orbit.Spec {
	cpu := 250 * between(r, 1, 8)
	s := envelope(orbit.LatencySensitive, 100, cpu, cpu*between(r, 1, 4)*gib/1000)
	s.Envelope.Reservation[orbit.Disk] = between(r, 1, 10) * gib
	s.Spread = orbit.Domains{Level: "zone"}
	for z := range zones {
		if zones < 3 || r.IntN(zones) > 0 { // most of the zones, so that not all specs name the same ones
			s.Spread.Names = append(s.Spread.Names, zoneName(z))
		}
	}
	s.Prefer = []orbit.Preference{{Predicate: label("disk", "In", "ssd"), Weight: 1}}
	switch r.IntN(10) {
	case 0, 1:
		s.Require = []orbit.Predicate{label("arch", "In", "amd64")}
	case 2:
		avoid := zoneName(1 + r.IntN(max(zones-1, 1))) // never z1, so that at least one zone is allowed
		s.Require = []orbit.Predicate{label("zone", "NotIn", avoid)}
	case 3:
		s.Prefer = append(s.Prefer, orbit.Preference{Predicate: label("kind", "In", "large"), Weight: 2})
	}
	return s
}

// sweep returns the spec of the points of a parameter sweep. They are small and many and may run anywhere; some need
// one architecture.
func sweep(r *rand.Rand, _ int) orbit.Spec {
	cpu := 100 * between(r, 1, 15)
	s := envelope(orbit.Batch, 50, cpu, 256*between(r, 1, 16)*gib/1024)
	if r.IntN(5) == 0 {
		s.Require = []orbit.Predicate{label("arch", "In", "amd64")}
	}
	return s
}

// bestEffort returns the spec of small work; half of it prefers to avoid the large machines and those with GPUs.
func bestEffort(r *rand.Rand, _ int) orbit.Spec {
	s := envelope(orbit.BestEffort, 0, 50*between(r, 1, 10), 128*between(r, 1, 8)*gib/1024)
	if r.IntN(2) == 0 {
		s.Prefer = []orbit.Preference{{Predicate: label("kind", "In", "large", "gpu"), Weight: -1}}
	}
	return s
}

// device returns the spec of work that takes a share of one device, or sometimes all of it.
func device(r *rand.Rand, _ int) orbit.Spec {
	s := envelope(orbit.Batch, 50, 500*between(r, 1, 6), between(r, 2, 12)*gib)
	s.Devices = orbit.DeviceRequest{Count: 1, Milli: int(250 * between(r, 1, 2))}
	if r.IntN(4) == 0 {
		s.Devices.Milli = 1000
	}
	if r.IntN(2) == 0 {
		s.Devices.Models = []string{"A100", "H100"}
	}
	return s
}

// envelope returns a spec with this reservation; cpu is in milli-cores, memory in bytes.
func envelope(class orbit.AppClass, priority int32, cpu, memory int64) orbit.Spec {
	return orbit.Spec{Class: class, Priority: priority, Envelope: orbit.Envelope{
		Reservation: orbit.Resources{orbit.CPU: cpu, orbit.Memory: memory},
	}}
}

func label(key, op string, values ...string) orbit.Predicate {
	return orbit.Predicate{Key: key, Op: op, Values: values}
}

func zoneName(z int) string { return fmt.Sprintf("z%d", z+1) }

// between returns a whole number from low to high, both included.
func between(r *rand.Rand, low, high int64) int64 { return low + r.Int64N(high-low+1) }
