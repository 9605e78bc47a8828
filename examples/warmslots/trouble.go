package main

import (
	"context"

	"github.com/orbitsched/orbit"
)

// trouble lets a host die, and brings it up again when its sandboxes have been taken off it.
func (p *platform) trouble(ctx context.Context) error {
	h, o := p.fleet.victim, p.options
	if err := sleep(ctx, o.of(heartbeat)); err != nil {
		return err
	}
	p.log.tell("%s dies, with %d sandboxes on it", h.id, h.die())
	err := p.until(ctx, "a dead host loses its lease and its capsules", func(s *orbit.State) bool {
		n := s.Node(h.id)
		return n.Node.Unschedulable && n.Capsules == 0
	})
	if err != nil {
		return err
	}
	if err := sleep(ctx, o.of(2*heartbeat)); err != nil {
		return err
	}
	p.log.tell("%s is up again, empty", h.id)
	h.reboot()
	return p.until(ctx, "a host that is up again has a lease", func(s *orbit.State) bool {
		_, ok := p.members.Leases.In(s, string(h.id))
		return ok && !s.Node(h.id).Node.Unschedulable
	})
}
