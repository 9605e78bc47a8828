package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// Inflate makes a stream of arrivals out of a list, by the recipe of the openb experiment: sort by id,
// shuffle, then append uniform draws with replacement until the next draw would pass factor × capacityMilli
// of device demand ([DeviceCapacity] of the nodes; what the list itself asks for is never cut). The n-th
// capsule of one origin is called "origin#n", from "origin#2" on. The list is left as it is.
//
// It fails, with [orbit.ErrInvalid], on a target that cannot be reached: a factor that is negative or not
// finite, or a list that asks for no device.
func Inflate(list []Capsule, capacityMilli int64, factor float64, seed uint64) ([]Capsule, error) {
	if math.IsNaN(factor) || math.IsInf(factor, 0) || factor < 0 {
		return nil, fmt.Errorf("sim: %w: inflate by %v; want a number from 0", orbit.ErrInvalid, factor)
	}
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b Capsule) int { return cmp.Compare(a.ID, b.ID) })
	r := source(seed, "inflate")
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })

	demand, target := int64(0), factor*float64(capacityMilli)
	taken := make(map[orbit.CapsuleID]bool, len(out))
	for _, c := range out {
		demand += DeviceDemand(c.Spec)
		taken[c.ID] = true
	}
	if demand == 0 && target > 0 {
		return nil, fmt.Errorf("sim: %w: inflate to %.0f device milli: none of the %d capsules asks for a device",
			orbit.ErrInvalid, target, len(list))
	}
	origins, times := out[:len(out):len(out)], make([]int, len(out))
	for demand > 0 { // with no demand no number of draws would reach the target, which is 0
		i := r.IntN(len(origins))
		if demand += DeviceDemand(origins[i].Spec); float64(demand) > target {
			break
		}
		id := origins[i].ID
		for taken[id] {
			times[i]++
			id = orbit.CapsuleID(fmt.Sprintf("%s#%d", origins[i].ID, times[i]+1))
		}
		taken[id] = true
		out = append(out, Capsule{ID: id, Spec: origins[i].Spec})
	}
	return out, nil
}
