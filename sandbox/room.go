package sandbox

import (
	"cmp"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/orbitsched/orbit"
)

// nodeRoom is what is free of one node, as a plan goes on. It is a value: copying it tries something out.
type nodeRoom struct {
	// Negative where capacity has shrunk below what is used.
	free orbit.Resources
	// Milli of each device instance; 0: none, or it is unhealthy.
	devices [orbit.MaxDevices]int32
}

// freeRoom returns what the state says is free.
func freeRoom(n *orbit.NodeState) nodeRoom {
	r := nodeRoom{free: n.Free()}
	for i := range n.Node.Devices.Count {
		r.devices[i] = int32(n.DeviceFree(i))
	}
	return r
}

// shift adds milli to the instances of a set.
func (r *nodeRoom) shift(set orbit.DeviceSet, milli int) {
	for s := uint16(set); s != 0; s &= s - 1 {
		r.devices[bits.TrailingZeros16(s)] += int32(milli)
	}
}

// short returns the first dimension that has not enough free for the request, -1 if none.
func (r *nodeRoom) short(want *orbit.Resources) int {
	for d := range want {
		if want[d] > 0 && want[d] > r.free[d] {
			return d
		}
	}
	return -1
}

// tightest chooses instances as [orbit.NodeState.PickDevices] does: those with the least free, but enough. It
// reports false if there are not enough of them.
func (r *nodeRoom) tightest(q *orbit.DeviceRequest) (set orbit.DeviceSet, ok bool) {
	return r.instances(q, func(a, b int32) bool { return a < b })
}

// instances returns the first Count instances with enough free, in an order of what is free; the lowest index
// among equals. It reports false if there are not enough.
func (r *nodeRoom) instances(q *orbit.DeviceRequest, before func(a, b int32) bool) (set orbit.DeviceSet, ok bool) {
	for range q.Count {
		best := -1
		for i, free := range r.devices {
			if int(free) >= q.Milli && !set.Has(i) && (best < 0 || before(free, r.devices[best])) {
				best = i
			}
		}
		if best < 0 {
			return 0, false
		}
		set |= 1 << best
	}
	return set, true
}

// hasDevice reports whether a node has a device of a model that the request accepts, if it asks for any.
func hasDevice(n *orbit.Node, q *orbit.DeviceRequest) bool {
	return q.Count == 0 || n.Devices.Count > 0 && ofModel(n, q)
}

// ofModel reports whether what devices a node has are of a model that the request accepts.
func ofModel(n *orbit.Node, q *orbit.DeviceRequest) bool {
	return len(q.Models) == 0 || slices.Contains(q.Models, n.Devices.Model)
}

// plainWord is what needs no quotes.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/:-]+$`)

// anyOf names the models of a request.
func anyOf(models []string) string {
	if len(models) == 0 {
		return "any kind"
	}
	names := make([]string, len(models))
	for i, model := range models {
		names[i] = model
		if !plainWord.MatchString(model) {
			names[i] = strconv.Quote(model)
		}
	}
	return strings.Join(names, ", ")
}

// noDevices completes "n nodes ..." for those whose devices have too little free.
func noDevices(q *orbit.DeviceRequest) string {
	if q.Count == 1 {
		return fmt.Sprintf("lack a device with %d milli free", q.Milli)
	}
	return fmt.Sprintf("lack %d devices with %d milli free each", q.Count, q.Milli)
}

// reasonsOf lists counts of nodes by why they do not take a capsule, most frequent first.
func reasonsOf(counts map[string]int) (out []orbit.Reason) {
	for why, n := range counts {
		out = append(out, orbit.Reason{Nodes: n, Why: why})
	}
	slices.SortFunc(out, func(a, b orbit.Reason) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Why, b.Why))
	})
	return out
}

// noModel completes "n nodes ..." for those without a device of a model that the request accepts.
func noModel(q *orbit.DeviceRequest) string { return "have no device of model " + anyOf(q.Models) }

// leftToItsGang says why a member of a gang is not placed by itself.
func leftToItsGang(c *orbit.Capsule) orbit.Unplaced {
	return orbit.Unplaced{Capsule: c, Why: fmt.Errorf(
		"capsule %q is a member of gang %q, which is placed whole: by a navigator of gangs, for specs of the class Gang", c.ID, c.Gang)}
}
