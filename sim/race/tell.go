package race

import (
	"fmt"
	"strings"

	"github.com/orbitsched/orbit"
)

// describe returns a Stringer that describes a proposal. The text is made only when it is printed.
func describe(p *orbit.Proposal) fmt.Stringer { return described{p} }

type described struct{ *orbit.Proposal }

// String lists the first few commitments.
func (p described) String() string {
	var parts []string
	for i, do := range p.Do {
		if i == 4 && len(p.Do) > 8 {
			return fmt.Sprintf("%s and %d more", strings.Join(parts, ", "), len(p.Do)-i)
		}
		parts = append(parts, say(do))
	}
	return strings.Join(parts, ", ")
}

// say describes what a commitment does.
func say(do orbit.Commitment) string {
	switch do := do.(type) {
	case orbit.Place:
		return fmt.Sprintf("%s on %s", do.Capsule, do.Node)
	case orbit.Release:
		return fmt.Sprintf("release %s%s", do.Capsule, do.Hold)
	case orbit.Respec:
		return fmt.Sprintf("%s gets another spec, applied: %v: %s", do.Capsule, do.Applied, wishes(do.Spec))
	case orbit.Adopt:
		return fmt.Sprintf("%s is found on %s: %s", do.Capsule, do.Node, wishes(do.Spec))
	case orbit.Evict:
		if do.For == "" && do.ForGang == "" {
			return fmt.Sprintf("evict %s from %s", do.Capsule, do.From)
		}
		return fmt.Sprintf("evict %s from %s for %s%s", do.Capsule, do.From, do.For, do.ForGang)
	case orbit.Confirm:
		if do.Stopped {
			return fmt.Sprintf("%s has stopped", do.Capsule)
		}
		if do.Ready || do.NotReady {
			return fmt.Sprintf("%s is ready: %t", do.Capsule, do.Ready)
		}
		return fmt.Sprintf("%s begins", do.Capsule)
	case orbit.PutQueue:
		q := &do.Queue
		return fmt.Sprintf("queue %s below %q: nominal %v, borrow %v, lend %v, weight %d", q.ID, q.Parent, q.Nominal, q.Borrow, q.Lend, q.Weight)
	case orbit.PutBudget:
		b := &do.Budget
		return fmt.Sprintf("budget %s of %s%s: of %d at most %d (or %d%%) may be missing", b.ID, b.Group, b.Module, b.Expected, b.Missing, b.MissingPercent)
	case orbit.Hold:
		return fmt.Sprintf("hold %s on %s: %s", do.ID, do.Node, amounts(do.Room))
	case orbit.Nominate:
		if len(do.Parts) == 0 {
			return fmt.Sprintf("nominate %s%s no more", do.Gang, do.Capsule)
		}
		var on []string
		for _, part := range do.Parts {
			on = append(on, fmt.Sprintf("%s (%s)", part.Node, amounts(part.Room)))
		}
		return fmt.Sprintf("nominate %s%s on %s", do.Gang, do.Capsule, strings.Join(on, " on "))
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
		parts := []string{fmt.Sprintf("submit gang %s for %q, levels %v, loose %v, joins %v, at least %d", do.Gang.ID, do.Owner, do.Gang.Levels, do.Gang.Loose, do.Join, do.Gang.Min)}
		for i := range do.Gang.Roles {
			r := &do.Gang.Roles[i]
			parts = append(parts, fmt.Sprintf("%v, at least %d: %s", r.Members, r.Min, wishes(r.Spec)))
		}
		return strings.Join(parts, "; ")
	}
	return fmt.Sprintf("%T%+v", do, do)
}

// wishes describes what a spec asks for.
func wishes(s *orbit.Spec) string {
	parts := []string{amounts(s.Envelope.Reservation)}
	if s.Priority != 0 {
		parts = append(parts, fmt.Sprintf("priority %d", s.Priority))
	}
	if s.Queue != "" {
		parts = append(parts, "in queue "+string(s.Queue))
	}
	if s.Devices.Count > 0 {
		parts = append(parts, fmt.Sprintf("devices %+v", s.Devices))
	}
	for _, p := range s.Require {
		parts = append(parts, p.String())
	}
	for group := range s.MemberOf {
		parts = append(parts, "of group "+group)
	}
	if len(s.Apart)+len(s.Even)+len(s.Extras) > 0 {
		parts = append(parts, fmt.Sprintf("apart %v, even %v, extras %v", s.Apart, s.Even, s.Extras))
	}
	for near := range s.AllNear {
		parts = append(parts, fmt.Sprintf("near %s by %s", near.Group, near.Level))
	}
	if s.Start.Template != "" || s.Start.Parent != "" || len(s.Start.Volumes) > 0 {
		parts = append(parts, fmt.Sprintf("start %+v", s.Start))
	}
	return strings.Join(parts, ", ")
}

// amounts describes the resources that are not zero.
func amounts(r orbit.Resources) string {
	var parts []string
	for d, n := range r {
		if n != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", [...]string{"cpu", "memory", "disk", "slots", "4", "5", "6", "7"}[d], n))
		}
	}
	return strings.Join(parts, " ")
}
