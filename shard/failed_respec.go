package shard

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// altered has the pending units of which a capsule got another spec, or that got another member, with the revision at
// which that happened last. A failure that rests on an older view says nothing of the unit as it is now.
type altered map[unit]orbit.Revision

// alter notes that a unit is altered, unless nothing of it is pending.
func (d *Dispatcher) alter(u unit, at orbit.Revision) {
	if pending, _ := u.life(d.state); pending {
		d.altered[u] = max(d.altered[u], at)
	}
}

// retryAltered clears the failures of these units that rest on a view of before they were altered. From then on the
// room for the specs that they have now is what helps them.
func (d *Dispatcher) retryAltered(units []unit) {
	for _, u := range units {
		f, at := d.failing.units[u], d.altered[u]
		if f == nil || at == 0 {
			continue
		}
		if now := u.specs(d.state); !slices.Equal(f.specs, now) {
			d.failing.drop(u, d.Strict)
			f.specs = now
			d.failing.put(f, d.Strict)
		}
		for _, name := range f.queues(d.Strict) {
			if f.restsBefore(name, at) {
				d.clear(f, name)
			}
		}
	}
}
