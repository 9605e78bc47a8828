package race

import (
	"fmt"
	"strings"

	"github.com/orbitsched/orbit"
)

// tell writes down what happened.
func (w *livePlay) tell() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.told {
		var b strings.Builder
		fmt.Fprintf(&b, "%12v  %-9s ", line.at, line.who)
		switch what := line.what.(type) {
		case orbit.Round:
			b.WriteString(what.String())
			for _, u := range what.Unplaced {
				if u.Capsule != nil {
					fmt.Fprintf(&b, "\n%30s %v", u.Capsule.ID, u.Why)
				}
			}
		case []orbit.Commitment:
			for i, do := range what {
				if i > 0 {
					b.WriteString("; ")
				}
				b.WriteString(sayLive(do))
			}
		default:
			fmt.Fprint(&b, what)
		}
		b.WriteByte('\n')
		out = append(out, b.String())
	}
	return out
}

// sayLive describes what an event does.
func sayLive(do orbit.Commitment) string {
	switch do := do.(type) {
	case orbit.PutNode:
		n := &do.Node
		text := fmt.Sprintf("node %s: %s, labels %v", n.ID, amounts(n.Capacity), n.Labels)
		if n.Devices.Count > 0 {
			text += fmt.Sprintf(", devices %+v", n.Devices)
		}
		if !n.Schedulable() {
			text += ", " + n.State.String()
		}
		return text
	case orbit.Submit:
		if do.Gang == nil {
			return fmt.Sprintf("submit %v for %q: %s", do.IDs, do.Owner, wishes(do.Spec))
		}
		var b strings.Builder
		fmt.Fprintf(&b, "submit gang %s for %q, levels %v, loose %v", do.Gang.ID, do.Owner, do.Gang.Levels, do.Gang.Loose)
		for i := range do.Gang.Roles {
			r := &do.Gang.Roles[i]
			fmt.Fprintf(&b, "; %v, at least %d: %s", r.Members, r.Min, wishes(r.Spec))
		}
		return b.String()
	case orbit.Release:
		text := fmt.Sprintf("release %s%s", do.Capsule, do.Hold)
		if do.Final {
			text += " for good"
		}
		return text
	case orbit.Evict:
		return fmt.Sprintf("evict %s from %s", do.Capsule, do.From)
	case orbit.Place:
		return fmt.Sprintf("place %s on %s", do.Capsule, do.Node)
	case orbit.Hold:
		return fmt.Sprintf("hold %s on %s until %s: %s", do.ID, do.Node, do.Ends.Format("05.000"), amounts(do.Room))
	}
	return fmt.Sprintf("%T%+v", do, do)
}

// wishes describes what a spec asks for.
func wishes(s *orbit.Spec) string {
	parts := []string{amounts(s.Envelope.Reservation)}
	if s.Priority != 0 {
		parts = append(parts, fmt.Sprintf("priority %d", s.Priority))
	}
	if s.Devices.Count > 0 {
		parts = append(parts, fmt.Sprintf("devices %+v", s.Devices))
	}
	for _, p := range s.Require {
		parts = append(parts, p.String())
	}
	if s.Group != "" {
		parts = append(parts, "of group "+s.Group)
	}
	if s.Near.Group != "" {
		parts = append(parts, fmt.Sprintf("near %s by %s", s.Near.Group, s.Near.Level))
	}
	if s.Start.Template != "" || s.Start.Parent != "" || len(s.Start.Volumes) > 0 {
		parts = append(parts, fmt.Sprintf("start %+v", s.Start))
	}
	return strings.Join(parts, ", ")
}

// amounts names what is not zero.
func amounts(r orbit.Resources) string {
	var parts []string
	for d, n := range r {
		if n != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", [...]string{"cpu", "memory", "disk", "slots", "4", "5", "6", "7"}[d], n))
		}
	}
	return strings.Join(parts, " ")
}
