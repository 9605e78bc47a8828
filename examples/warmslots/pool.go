package main

import "context"

// This file fills the pools of a host: one warm slot after another, each of the template that lacks most.

// wake wakes refill, because a slot may be missing. The lock must be held.
func (h *host) wake() {
	select {
	case h.hungry <- struct{}{}:
	default:
	}
}

// fill fills all pools at once, before the host joins.
func (h *host) fill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.templates {
		h.pool[t] = h.options.warm
	}
}

// refill fills the pools one slot at a time until ctx ends.
func (h *host) refill(ctx context.Context) {
	for ctx.Err() == nil {
		template := h.emptiest()
		if template == "" {
			_ = wait(ctx, h.hungry)
			continue
		}
		if sleep(ctx, h.options.of(refill)) == nil {
			h.add(template)
		}
	}
}

// emptiest returns the template that lacks most warm slots; "" if none lacks any, or if the host is dead or lying.
func (h *host) emptiest() (template string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead || h.lying {
		return ""
	}
	least := h.options.warm
	for _, t := range h.templates {
		if h.pool[t] < least {
			template, least = t, h.pool[t]
		}
	}
	return template
}

// add adds a warm slot to a pool, unless the host has died or begun to lie, or the pool has become full, since the boot
// of the slot began.
func (h *host) add(template string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dead && !h.lying && h.pool[template] < h.options.warm {
		h.pool[template]++
	}
}
