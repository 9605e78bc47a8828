package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// Inflate makes a stream of arrivals from a list, by the recipe of the openb experiment: sort by id, shuffle, then
// append capsules drawn uniformly and with replacement from the list. It stops before the device demand exceeds factor
// × capacityMilli, where capacityMilli is the [DeviceCapacity] of the nodes. All capsules of the list itself are kept,
// even if they ask for more. Copies of a capsule "origin", which is the first of its kind, are called "origin#2",
// "origin#3" and so on. The argument list is not modified.
//
// The error is [orbit.ErrInvalid] if the target cannot be reached: the factor is negative or not finite, or the list
// asks for no device.
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
	for demand > 0 { // with demand 0 the target is 0 too, and draws would never exceed it
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
