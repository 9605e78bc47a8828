package ledgertest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// content returns the content of a state, one line for each record, in an order that depends on the content alone. Two
// ledgers with the same history have the same content. It leaves out the indices of nodes and the numbers of Submitted,
// but includes the order of submission.
func content(s *orbit.State) []string {
	lines := []string{fmt.Sprintf("revision %d, %d nodes, %d pending", s.Revision(), s.NodeCount(), s.PendingCount())}
	for n := range s.Nodes() {
		devices := make([]int, n.Node.Devices.Count)
		for i := range devices {
			devices[i] = n.DeviceFree(i)
		}
		lines = append(lines, fmt.Sprintf("node %s, %d capsules, used %v, devices free %v, usage %d, specification %d",
			harness.Text(n.Node), n.Capsules, n.Used(), devices, n.Usage, n.Specification))
	}
	specs := map[*orbit.Spec]string{}
	for i, c := range bySubmission(s) {
		if specs[c.Spec] == "" {
			specs[c.Spec] = harness.Text(c.Spec)
		}
		lines = append(lines, fmt.Sprintf("capsule %q, number %d, owner %q, gang %q, on %q %b %q, labels %v, since %d, at %d, changed %d, placed %d by %s, released %v, failures %s, spec %s",
			c.ID, i, c.Owner(), c.Gang(), c.Node, c.Devices, c.Note(), c.Labels(), c.SubmitTime(), c.PlaceTime, c.Changed, c.PlacedAt, c.PlacedBy, c.Released(), harness.Text(s.Failures(c.ID)), specs[c.Spec]))
	}
	for g := range s.Gangs() {
		lines = append(lines, fmt.Sprintf("gang %s, placed %v, changed %d", harness.Text(g.Gang), g.Placed, g.Changed))
	}
	for q := range s.Queues() {
		lines = append(lines, fmt.Sprintf("queue %s, put at %d, %d living, %d waiting, used %v, own %v, left %v, share %v", harness.Text(q.Queue), q.Changed, q.Living, q.Waiting, q.Used(), q.Own(), q.Available(), q.Share()))
	}
	for h := range s.Holds() {
		lines = append(lines, "hold "+harness.Text(h))
	}
	for key, value := range s.Marks("") {
		_, at := s.Mark(key)
		lines = append(lines, fmt.Sprintf("mark %q is %q, set at %d", key, value, at))
	}
	return lines
}

// bySubmission returns all capsules in the order of submission.
func bySubmission(s *orbit.State) []*orbit.Capsule {
	return slices.SortedFunc(s.Capsules(), func(a, b *orbit.Capsule) int { return cmp.Compare(a.Submitted, b.Submitted) })
}

// maxLines is how many lines of a difference are shown.
const maxLines = 12

// difference returns the lines that only one of two states has; "" if there are none.
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
