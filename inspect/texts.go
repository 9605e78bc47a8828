package inspect

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// outcomeOf names what became of a proposal.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "committed"
	case errors.Is(err, orbit.ErrConflict):
		return "conflict"
	case errors.Is(err, orbit.ErrInfeasible):
		return "infeasible"
	case errors.Is(err, orbit.ErrInvalid):
		return "invalid"
	case errors.Is(err, orbit.ErrUnknown):
		return "unknown"
	}
	return "failed"
}

// deedOf describes a commitment.
func deedOf(do orbit.Commitment) deed {
	switch do := do.(type) {
	case orbit.Place:
		return deed{Does: "place", Capsule: do.Capsule, Node: do.Node}
	case orbit.Evict:
		d := deed{Does: "evict", Capsule: do.Capsule, Node: do.From, For: string(do.For)}
		if d.For == "" {
			d.For = string(do.ForGang)
		}
		if d.For == "" {
			d.Does = "move"
		}
		return d
	case orbit.Release:
		if do.Hold != "" {
			return deed{Does: "end hold", For: clip(string(do.Hold))}
		}
		return deed{Does: "release", Capsule: do.Capsule, Node: do.From}
	case orbit.Hold:
		return deed{Does: "hold", Node: do.Node, For: clip(do.For)}
	case orbit.Nominate:
		d := deed{Does: "nominate", Capsule: do.Capsule, Gang: do.Gang}
		if len(do.Parts) == 0 {
			d.Does = "end nomination"
		} else {
			d.Node = do.Parts[0].Node
		}
		return d
	case orbit.Protect:
		return deed{Does: "protect", Capsule: do.Capsule}
	case orbit.Respec:
		return deed{Does: "respec", Capsule: do.Capsule}
	}
	return deed{Does: strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", do), "orbit."))}
}

// noteOf converts a note of a navigator. If computing its value panics, the value is left empty.
func noteOf(a slog.Attr) (n note) {
	n.Name = clip(a.Key)
	guard.Call(func() error {
		n.Value = clip(a.Value.String())
		return nil
	}, func(error) {})
	return n
}

// textOf returns the text of an error. The importer may have implemented the error, so its method Error may panic.
func textOf(err error) (text string) {
	guard.Call(func() error {
		text = clip(err.Error())
		return nil
	}, func(crash error) {
		if crash != nil {
			text = "an error whose text cannot be read"
		}
	})
	return text
}

// clip shortens a text to mostText bytes without splitting a character, and marks the cut.
func clip(s string) string {
	if len(s) <= mostText {
		return s
	}
	n := mostText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
