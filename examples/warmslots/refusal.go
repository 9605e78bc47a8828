package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/orbitsched/orbit/sandbox"
)

// refusals are the errors that a client has to live with while a host is down.
var refusals = []error{
	sandbox.ErrStart, sandbox.ErrTaken, sandbox.ErrAllStale, sandbox.ErrNoSlot,
	sandbox.ErrNoVolume, sandbox.ErrNoTemplate, sandbox.ErrNoParent, sandbox.ErrNoNode,
}

// refusal is which of these an error is; nil if it is none, or if anything was left behind.
func refusal(err error) error {
	for _, kind := range refusals {
		if errors.Is(err, kind) && !errors.Is(err, sandbox.ErrLeftBehind) {
			return kind
		}
	}
	return nil
}

// noteRefusal counts a refusal, and tells of the first of its kind.
func (p *platform) noteRefusal(kind, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusals[kind]++; p.refusals[kind] == 1 {
		p.log.tell("refused, the first for %q: %v%s", kind, err, aside(err))
	}
}

// aside explains a refusal for which only one node of the fleet was looked at.
func aside(err error) string {
	var why *sandbox.WarmNoFit
	if !errors.As(err, &why) || why.Only == "" {
		return ""
	}
	return fmt.Sprintf(" (it is a fork that must go beside its parent, so %s is the only node that could take it)", why.Only)
}

// refused says how often which refusal was given. It requires the lock.
func (p *platform) refused() string {
	parts := []string{}
	for _, kind := range refusals {
		if n := p.refusals[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %v", n, kind))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
