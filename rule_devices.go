package orbit

import "fmt"

// A device instance is never used by more than all of it, and only if it exists and is healthy.

// judgeDevices judges the device instances that this proposal takes. It may itself have removed an instance or made it
// unhealthy.
func (t *tx) judgeDevices() error {
	for i := range t.nodes.entries {
		n := &t.nodes.entries[i]
		if n.askedDevices == 0 {
			continue
		}
		if err := t.fitsDevices(n); err != nil {
			return err
		}
	}
	return nil
}

// fitsDevices judges the device instances of one node.
func (t *tx) fitsDevices(n *txNode) error {
	d := &n.now.Node.Devices
	for i := range MaxDevices {
		if !n.askedDevices.Has(i) {
			continue
		}
		room, used := int64(0), int64(n.now.devices[i])
		if i < d.Count && !d.Unhealthy.Has(i) {
			room = deviceMilli
		}
		if used > room {
			t.at = n.asker
			before := int64(0)
			if n.was != nil {
				before = int64(n.was.deviceUse()[i])
			}
			r := Rejection{Node: n.now.Node.ID, Dimension: fmt.Sprintf("device %d", i), Want: used - before, Free: max(0, room-before)}
			return t.refuse(r, max(n.newest(), n.asks), "node %q is short", r.Node)
		}
	}
	return nil
}

// hedgeDevices keeps what a proposal frees of a device instance beyond what it takes of it in use.
func (p *planSum) hedgeDevices() {
	for i := range p.nodes {
		n := &p.nodes[i]
		most := n.was.deviceUse()
		for d, used := range n.now.deviceUse() {
			most[d] = max(most[d], used)
		}
		if most != n.now.deviceUse() {
			use := most
			p.keep(n).devices = &use
		}
	}
}

// mayUse checks that the device instances exist on the node and are healthy.
func (t *tx) mayUse(n *txNode, set DeviceSet, capsule CapsuleID) error {
	d := &n.now.Node.Devices
	if set>>d.Count != 0 || t.breaks(set&d.Unhealthy != 0) {
		return t.refuse(Rejection{Capsule: capsule, Node: n.now.Node.ID}, n.newestSpec(),
			"node %q: devices %016b are not all there and healthy", n.now.Node.ID, set)
	}
	return nil
}
