package score

import "github.com/orbitsched/orbit"

// wholeDevice is what one device instance divides into, in milli.
const wholeDevice = 1000

// FGD is fragmentation gradient descent, the openb experiment's fourth policy: the less placing adds to what
// typical work cannot use of the node's free devices, the better.
//
//	-int(100 · sigmoid((F(before) - F(after)) / 1000))
//
// F is the node's [FGD.Fragmentation]. A share of one device goes to the instance with the best value, the
// lowest index among equals; for other requests the default choice of instances holds. Memory does not
// count. Rounding and ties are as in [BestFit].
//
// It does not bound itself ([Bounded]): what it rates is how much is free of each instance, and of that a
// box knows the sum and the largest. Where shares are in use that leaves a bound far below most nodes, which
// are then rated anyway.
//
// It rates by the work it has been told of, so tell it again when the work changes. The zero value has been
// told of none, and rates all nodes alike.
type FGD struct {
	// Typical is the expected future work, as shapes with their frequencies; see [Typical]. Fragments are counted
	// against it.
	Typical []Shape
}

// Score rates the node: -50 where fragmentation stays as it is, towards -100 where it falls, towards 0 where
// it grows.
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

// PickDevices chooses the instance for a share of one device. It reports false, for the default choice, when
// something else is asked for or the share fits nowhere.
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

// Fragmentation is how much of the node's free devices typical work cannot use, in milli: a mean over the
// shapes, each counted as often as it is asked for. A shape that asks for no device can use nothing; nor can
// one for which the model is wrong, or CPU or instances are short; any other cannot use the instances that
// have less free than it asks for.
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

// firstWith returns the first instance of which so much is free.
func firstWith(node *orbit.NodeState, milli int) int {
	i := 0
	for node.DeviceFree(i) != milli {
		i++
	}
	return i
}
