package navtest

import "github.com/orbitsched/orbit"

// The rule: in an engine on a ledger without other engines, all work that fits easily is placed within Suite.Passes
// passes. This also holds beside work of higher priority that fits nowhere, if MaxPlan is smaller than a gang, and if
// more work comes later.

func checkLiveness(t *trial) {
	for _, most := range []int{0, 7, 3} {
		w := t.world()
		w.engine.ParkFor, w.engine.MaxPlan = 0, most // ParkFor: the default, so that classes are parked as long as in production
		w.racks(t.plenty())
		w.passUntilPlaced("there is nothing else", w.easy(t.mine), nil)
		for _, p := range t.mine {
			for _, spec := range impossible(p) {
				spec.Priority = 10
				w.submit(spec, 5)
			}
		}
		w.passUntilPlaced("there is also work of higher priority that fits nowhere", w.easy(t.mine), nil)
	}
	t.draws()
}

// draws submits work of random sizes, none larger than a small part of a node.
func (t *trial) draws() {
	t.draw(func(d dice) {
		w := t.world()
		w.racks(t.plenty())
		var ids []orbit.CapsuleID
		for range 1 + d.IntN(6) {
			spec := small(pick(d, t.mine...))
			spec.Priority = d.Int32N(3)
			spec.Envelope.Reservation[orbit.CPU] = pick[int64](d, 0, 100, 500)
			spec.Envelope.Reservation[own] = d.Int64N(2)
			if d.chance(30) {
				spec.Devices = orbit.DeviceRequest{Count: 1, Milli: pick(d, 100, 250)}
			}
			if d.chance(30) {
				spec.Require = []orbit.Predicate{{Key: "kind", Op: "In", Values: []string{"a", "b"}}}
			}
			ids = append(ids, w.submit(spec, 1+d.IntN(10))...)
		}
		w.passUntilPlaced("it fits easily", ids, nil)
	})
}
