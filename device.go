package orbit

import (
	"fmt"
	"math/bits"
	"slices"
)

// MaxDevices is the most device instances a node can have.
const MaxDevices = 16

// deviceMilli is what one device instance can be divided into.
const deviceMilli = 1000

// DeviceSet is a set of device instances of one node, bit i for instance i.
type DeviceSet uint16

// Len returns how many instances are in the set.
func (s DeviceSet) Len() int { return bits.OnesCount16(uint16(s)) }

// Has reports whether instance i is in the set.
func (s DeviceSet) Has(i int) bool { return s>>i&1 == 1 }

// Devices is a node's group of device instances, all of one model. Each divides into 1000 milli.
// Use is never declared: it follows from the placements.
type Devices struct {
	Model string `json:"model,omitempty"`
	// Instances, at most MaxDevices.
	Count int `json:"count,omitempty"`
	// Instances that take no new work.
	Unhealthy DeviceSet `json:"unhealthy,omitempty"`
}

// DeviceRequest asks for Count instances with Milli free on each, of any of the Models (none named: of any
// model). The zero value asks for no device.
type DeviceRequest struct {
	Count int `json:"count,omitempty"`
	// Per instance, 1 to 1000.
	Milli  int      `json:"milli,omitempty"`
	Models []string `json:"models,omitempty"`
}

// Accepts reports whether the request is content with the model.
func (r *DeviceRequest) Accepts(model string) bool {
	return len(r.Models) == 0 || slices.Contains(r.Models, model)
}

// faults says what is wrong with r, nothing if it asks for devices that there can be, or for none.
func (r *DeviceRequest) faults() []string {
	var out []string
	switch {
	case r.Count == 0 && r.Milli == 0 && len(r.Models) == 0:
	case r.Count < 1 || r.Count > MaxDevices:
		out = append(out, fmt.Sprintf("devices: count is %d; it must be 1 to %d", r.Count, MaxDevices))
	case r.Milli < 1 || r.Milli > deviceMilli:
		out = append(out, fmt.Sprintf("devices: milli is %d; it must be 1 to %d for each instance", r.Milli, deviceMilli))
	}
	return out
}

// faults says what is wrong with d.
func (d *Devices) faults() []string {
	if d.Count < 0 || d.Count > MaxDevices {
		return []string{fmt.Sprintf("devices: count is %d; a node has 0 to %d", d.Count, MaxDevices)}
	}
	if d.Unhealthy>>d.Count != 0 {
		return []string{fmt.Sprintf("devices: unhealthy set %b names instances beyond the %d there are", d.Unhealthy, d.Count)}
	}
	return nil
}

// deviceUse is what is taken of each instance, in milli.
type deviceUse [MaxDevices]int32

// add adds milli, which may be negative, to the instances of a set.
func (u *deviceUse) add(set DeviceSet, milli int32) {
	for s := uint16(set); s != 0; s &= s - 1 {
		u[bits.TrailingZeros16(s)] += milli
	}
}
