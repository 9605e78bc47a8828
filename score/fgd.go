package score

import "github.com/orbitsched/orbit"

// wholeDevice is the capacity of one device instance, in milli.
const wholeDevice = 1000

// FGD is fragmentation gradient descent, the openb experiment's fourth policy. Fragmentation is the free device
// capacity of a node that typical work cannot use. The less a placement adds to it, the better:
//
//	-int(100 · sigmoid((F(before) - F(after)) / 1000))
//
// F is the node's [FGD.Fragmentation], before and after the placement. A share of one device goes to the instance with
// the best value, the lowest index among equals; other requests get the default choice of instances. Memory does not
// count. Rounding and ties are as in [BestFit].
//
// It does not bound itself ([Bounded]). The rating depends on the free capacity of each single instance, of which a box
// of nodes knows only the sum and the largest values. Where shares are in use, a bound from these would be far below
// most nodes, and a search would rate them all.
//
// It rates by the typical work that it has been given, so set Typical again when the work changes. The zero value has
// no typical work, and rates all nodes alike.
type FGD struct {
	// Typical is the expected future work, as shapes with their frequencies; see [Typical]. Fragmentation is computed
	// for it.
	Typical []Shape
}

// Score rates the node: -50 where fragmentation stays as it is, down to -100 where it falls, up to 0 where it grows.
func (s FGD) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	var t trial
	t.run(s.Typical, node, spec)
	if t.choices == 0 {
		return 0, 0
	}
	best := t.mends(0)
	for i := range t.choices {
		best = max(best, t.mends(i))
	}
	return t.value(best), 0
}

// PickDevices chooses the instance for a share of one device. It reports false, which means the default choice, for any
// other request and if the share fits nowhere.
func (s FGD) PickDevices(node *orbit.NodeState, spec *orbit.Spec) (orbit.DeviceSet, bool) {
	if !isShare(&spec.Devices) {
		return 0, false
	}
	var t trial
	t.run(s.Typical, node, spec)
	best, low := -1, 0.0
	for i := range t.choices {
		v, instance := t.value(t.mends(i)), firstWith(node, t.after[i].from)
		if best < 0 || v < low || (v == low && instance < best) {
			best, low = instance, v
		}
	}
	return orbit.DeviceSet(1) << max(best, 0), best >= 0
}

// Fragmentation returns how much of the free capacity of the node's devices typical work cannot use, in milli: the mean
// over all shapes, weighted by their frequency. A shape can use nothing if it asks for no device, if the model is
// wrong, or if the node lacks CPU or instances for it. Any other shape cannot use the instances that have less free
// than it asks for.
func (s FGD) Fragmentation(node *orbit.NodeState) float64 {
	var t trial
	t.load(node)
	t.judge(s.Typical)
	if t.asked == 0 {
		return 0
	}
	return float64(t.before.free.sum()) - float64(t.before.usable)/float64(t.asked)
}

// isShare reports whether the request is for a part of one device.
func isShare(r *orbit.DeviceRequest) bool { return r.Count == 1 && r.Milli < wholeDevice }

// firstWith returns the first instance with exactly this free capacity, which must exist.
func firstWith(node *orbit.NodeState, milli int) int {
	i := 0
	for node.DeviceFree(i) != milli {
		i++
	}
	return i
}
