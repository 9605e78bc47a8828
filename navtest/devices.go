package navtest

import (
	"fmt"
	"slices"

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
	w.settle(what, w.submit(spec, n), func(c *call) { w.t.Must(c.misused()) })
}

// misused says which placement does not get the devices that it asks for, counting what those before it in
// the same plan take.
func (c *call) misused() error {
	taken := map[orbit.NodeID]*[orbit.MaxDevices]int{}
	for _, place := range c.places() {
		if why := c.wrongDevices(place, taken); why != "" {
			return fmt.Errorf("plan on revision %d: capsule %q on node %q: %s", c.state.Revision(), place.Capsule, place.Node, why)
		}
	}
	return nil
}

// wrongDevices says what is wrong with the devices of one placement, and adds it to what is taken.
func (c *call) wrongDevices(place orbit.Place, taken map[orbit.NodeID]*[orbit.MaxDevices]int) string {
	capsule, n := c.state.Capsule(place.Capsule), c.state.Node(place.Node)
	if capsule == nil || n == nil {
		return "there is no such capsule or node"
	}
	want, on := capsule.Spec.Devices, n.Node.Devices
	if place.Devices.Len() != want.Count {
		return fmt.Sprintf("it asks for %d devices and is given %d", want.Count, place.Devices.Len())
	}
	if want.Count > 0 && len(want.Models) > 0 && !slices.Contains(want.Models, on.Model) {
		return fmt.Sprintf("it asks for devices of %q and is given %q", want.Models, on.Model)
	}
	if taken[place.Node] == nil {
		taken[place.Node] = new([orbit.MaxDevices]int)
	}
	for i := range orbit.MaxDevices {
		if !place.Devices.Has(i) {
			continue
		}
		if free := n.DeviceFree(i) - taken[place.Node][i]; free < want.Milli {
			return fmt.Sprintf("it wants %d milli of device %d (of %d, unhealthy %b), which has %d free", want.Milli, i, on.Count, on.Unhealthy, free)
		}
		taken[place.Node][i] += want.Milli
	}
	return ""
}
