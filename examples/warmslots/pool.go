package main

import "context"

// This file keeps the pools of a host filled: one slot after another, each the one that most are missing of.

// wake tells the refill that something may be missing. It requires the lock.
func (h *host) wake() {
	select {
	case h.hungry <- struct{}{}:
	default:
	}
}

// fill fills all pools at once: what a host does before it joins.
func (h *host) fill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.templates {
		h.pool[t] = h.options.warm
	}
}

// refill keeps the pools filled until ctx ends.
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

// emptiest is the template that most is missing of, "" if nothing is or the host refills nothing.
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

// add puts a warm slot into a pool, unless the host is not what it was when that was begun.
func (h *host) add(template string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dead && !h.lying && h.pool[template] < h.options.warm {
		h.pool[template]++
	}
}
