package ledgertest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// content is what a state says to those who read it, a line for each record, in an order that depends on nothing
// else. Two ledgers with the same history have the same content. It leaves out in which slots records are, and by
// which numbers the order of submission is told: the order itself is there.
func content(s *orbit.State) []string {
	lines := []string{fmt.Sprintf("revision %d, %d nodes, %d pending", s.Revision(), s.NodeCount(), s.PendingCount())}
	for n := range s.Nodes() {
		devices := make([]int, n.Node.Devices.Count)
		for i := range devices {
			devices[i] = n.DeviceFree(i)
		}
		lines = append(lines, fmt.Sprintf("node %s, %d capsules, used %v, devices free %v, usage %d, specification %d",
			text(n.Node), n.Capsules, n.Used(), devices, n.Usage, n.Specification))
	}
	specs := map[*orbit.Spec]string{}
	for i, c := range bySubmission(s) {
		if specs[c.Spec] == "" {
			specs[c.Spec] = text(c.Spec)
		}
		lines = append(lines, fmt.Sprintf("capsule %q, number %d, owner %q, gang %q, on %q %b %q, changed %d, placed %d by %s, released %v, spec %s",
			c.ID, i, c.Owner, c.Gang, c.Node, c.Devices, c.Note, c.Changed, c.PlacedAt, c.PlacedBy, c.Released(), specs[c.Spec]))
	}
	for g := range s.Gangs() {
		lines = append(lines, fmt.Sprintf("gang %s, placed %v, changed %d", text(g.Gang), g.Placed, g.Changed))
	}
	for h := range s.Holds() {
		lines = append(lines, "hold "+text(h))
	}
	for key, value := range s.Marks("") {
		_, at := s.Mark(key)
		lines = append(lines, fmt.Sprintf("mark %q is %q, set at %d", key, value, at))
	}
	return lines
}

// bySubmission are all records, in the order in which they were submitted.
func bySubmission(s *orbit.State) []*orbit.Capsule {
	return slices.SortedFunc(s.Capsules(), func(a, b *orbit.Capsule) int { return cmp.Compare(a.Submitted, b.Submitted) })
}

// text is JSON, in which equal values are equal.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// maxLines is how many lines of a difference are shown.
const maxLines = 12

// difference lists the lines that only one of two states has; empty: there is none.
func difference(a, b *orbit.State) string {
	if a == b {
		return ""
	}
	was, is := content(a), content(b)
	if slices.Equal(was, is) {
		return ""
	}
	var out []string
	for _, side := range []struct {
		sign    string
		of, not []string
	}{{"- ", was, is}, {"+ ", is, was}} {
		other := make(map[string]bool, len(side.not))
		for _, l := range side.not {
			other[l] = true
		}
		for _, l := range side.of {
			if !other[l] {
				out = append(out, side.sign+l)
			}
		}
	}
	if len(out) > maxLines {
		out = append(out[:maxLines], fmt.Sprintf("and %d more", len(out)-maxLines))
	}
	return strings.Join(out, "\n")
}

// describe names what a proposal wants, in a few words.
func describe(p orbit.Proposal) string {
	var b strings.Builder
	for i, c := range p.Do {
		if i == 4 {
			fmt.Fprintf(&b, ", ... (%d commitments)", len(p.Do))
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		s := fmt.Sprintf("%T%s", c, text(c))
		if c != nil && len(s) > 200 {
			s = s[:200] + "..."
		}
		b.WriteString(strings.TrimPrefix(s, "orbit."))
	}
	for i, bet := range p.If {
		if i == 4 {
			fmt.Fprintf(&b, " ... (%d bets)", len(p.If))
			break
		}
		s := fmt.Sprintf(" if %T%v", bet, bet)
		b.WriteString(s[:min(len(s), 200)])
	}
	return "proposal (" + b.String() + ")"
}
