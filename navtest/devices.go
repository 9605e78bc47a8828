package navtest

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: a placement names as many device instances as the capsule asks for, of a model that it accepts,
// healthy ones, with so much free on each of them; and if there are such devices the capsule is placed.

func checkDevices(t *trial) {
	for _, p := range t.mine {
		t.Where = fmt.Sprintf("%s %v, ", p.module, p.class)
		w := t.world()
		dead := large("node-dead", "r0", "b0")
		dead.Devices = orbit.Devices{Model: "m1", Count: 8, Unhealthy: 0xff}
		none := large("node-none", "r0", "b0")
		none.Devices = orbit.Devices{}
		more := large("node-more", "r0", "b0")
		more.Devices = orbit.Devices{Model: "m2", Count: 16}
		sick := large("node-sick", "r0", "b0")
		sick.Devices = orbit.Devices{Model: "m1", Count: 12, Unhealthy: 0b101101}
		w.put(dead, none, more, sick)
		w.onDevices(p, "sixteen halves on eight devices", 16, orbit.DeviceRequest{Count: 1, Milli: 500, Models: []string{"m1"}})
		w.onDevices(p, "whole devices, two each", 4, orbit.DeviceRequest{Count: 2, Milli: 1000, Models: []string{"m0", "m2"}})
		w.onDevices(p, "parts of any device", 8, orbit.DeviceRequest{Count: 1, Milli: 300})

		sick.Devices.Unhealthy |= 0b11 << 10
		w.put(sick)
		dead.Devices.Unhealthy = 0xfe
		w.put(dead)
		w.onDevices(p, "a device that has recovered, while two are lost", 1, orbit.DeviceRequest{Count: 1, Milli: 1000, Models: []string{"m1"}})
	}
}

// onDevices submits capsules that ask for devices, all of which there are.
func (w *world) onDevices(p pair, what string, n int, request orbit.DeviceRequest) {
	spec := small(p)
	spec.Envelope.Reservation[orbit.CPU] = 100
	spec.Devices = request
	w.passUntilPlaced(what, w.submit(spec, n), (*call).replays)
}
