package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/orbitsched/orbit/sandbox"
)

// refusals are the errors that a client has to expect while a host is down.
var refusals = []error{
	sandbox.ErrStart, sandbox.ErrTaken, sandbox.ErrAllStale, sandbox.ErrNoSlot,
	sandbox.ErrNoVolume, sandbox.ErrNoTemplate, sandbox.ErrNoParent, sandbox.ErrNoNode,
}

// refusal returns the error of the list that err wraps; nil if there is none, or if the create has left something
// behind.
func refusal(err error) error {
	for _, kind := range refusals {
		if errors.Is(err, kind) && !errors.Is(err, sandbox.ErrLeftBehind) {
			return kind
		}
	}
	return nil
}

// noteRefusal counts a refusal, and prints the first one of each kind.
func (p *platform) noteRefusal(kind, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.refusals[kind]++; {
	case p.refusals[kind] > 1:
	case p.options.verbose:
		p.log.tell("refused, the first for %q: %v%s", kind, err, aside(err))
	default:
		p.log.tell("a create is refused: %v; its creator asks again", kind)
	}
}

// aside returns an explanation of a refusal for which only one node was considered.
func aside(err error) string {
	var why *sandbox.WarmNoFit
	if !errors.As(err, &why) || why.Only == "" {
		return ""
	}
	return fmt.Sprintf(" (it is a fork that must go beside its parent, so %s is the only node that could take it)", why.Only)
}

// refused returns how often each refusal occurred. The lock must be held.
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
