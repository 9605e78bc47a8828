package nav

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// Deadlock says that capsules wait for a group that cannot start: its pending members, if it has any, wait for
// other groups, and so on, until the groups wait for one another or for one that has no member. It is a
// [*orbit.NoFit] too: the class is parked until a member of the group it waits for is placed.
type Deadlock struct {
	// Groups lists the groups of which each waits for the next. The first is the capsule's own group, "" if it has
	// none. The last one appears twice if the groups form a cycle; otherwise it has neither running nor pending
	// members.
	Groups []string
	// Absent reports that the last group has neither running nor pending members.
	Absent bool

	nodes int
}

// Error lists which group waits for which, and says what to change.
func (d *Deadlock) Error() string {
	var b strings.Builder
	names := d.Groups
	if names[0] == "" {
		names = names[1:]
		fmt.Fprintf(&b, "waits for group %q", names[0])
	} else {
		fmt.Fprintf(&b, "group %q", names[0])
		if names = names[1:]; len(names) > 0 {
			fmt.Fprintf(&b, " waits for %q", names[0])
		}
	}
	for _, name := range names[1:] {
		fmt.Fprintf(&b, ", which waits for %q", name)
	}
	if d.Absent {
		b.WriteString(", of which nothing runs and nothing is pending; submit a member of it")
	} else {
		b.WriteString(": none can start; let members of one of them wait for no group, or for their own group")
	}
	return b.String()
}

// Unwrap returns an *orbit.NoFit: no node fits as long as the group has no member.
func (d *Deadlock) Unwrap() error {
	why := fmt.Sprintf("wait for group %q, of which nothing is placed", d.Groups[min(1, len(d.Groups)-1)])
	return noFitOf(map[string]int{why: d.nodes})
}

// anchorWaits computes which groups can start: those that run, and those with a pending member that waits for no group,
// for its own group, or for a group that can start. It reads the waits from the state, so the result does not depend on
// which capsules the pass has been given.
type anchorWaits struct {
	state *orbit.State
	// Results so far: which groups can start, and the Deadlock of each spec.
	starts map[string]bool
	said   map[*orbit.Spec]*Deadlock
}

// startable reports whether a group runs or can start.
func (w *anchorWaits) startable(group string) bool {
	if _, known := w.starts[group]; !known {
		w.explore(group)
	}
	return w.starts[group]
}

// explore decides whether a group can start, and all groups that it waits for, directly or not. It first assumes that
// none can start. Then each group that can start by itself lets the groups that wait for it start, and so on.
func (w *anchorWaits) explore(group string) {
	waiters := map[string][]string{}
	var can []string
	for next := []string{group}; len(next) > 0; {
		g := next[len(next)-1]
		next = next[:len(next)-1]
		if _, seen := w.starts[g]; seen {
			continue
		}
		w.starts[g] = false
		on, free := w.waitsFor(g)
		for _, other := range on {
			free = free || w.starts[other]
			waiters[other] = append(waiters[other], g)
		}
		if free {
			can = append(can, g)
		} else {
			next = append(next, on...)
		}
	}
	for len(can) > 0 {
		g := can[len(can)-1]
		can = can[:len(can)-1]
		if !w.starts[g] {
			w.starts[g] = true
			can = append(can, waiters[g]...)
		}
	}
}

// waitsFor returns the other groups that pending members of a group wait for, and whether the group can start without
// any of them.
func (w *anchorWaits) waitsFor(group string) (on []string, free bool) {
	if anchorRuns(w.state, group) {
		return nil, true
	}
	seen := map[string]bool{}
	for spec := range w.state.GroupPending(group) {
		near := spec.Near.Group
		switch {
		case !spec.IsIn(group):
		case near == "" || near == group:
			return nil, true
		case !seen[near]:
			seen[near] = true
			on = append(on, near)
		}
	}
	return on, false
}

// longestChain is how many groups a Deadlock names.
const longestChain = 16

// deadlock follows the waits from group to group. It requires that the group named by spec.Near cannot start.
func (w *anchorWaits) deadlock(spec *orbit.Spec) *Deadlock {
	if d := w.said[spec]; d != nil {
		return d
	}
	d := &Deadlock{Groups: []string{spec.Group}, nodes: w.state.NodeCount()}
	w.said[spec] = d
	for g := spec.Near.Group; ; {
		again := slices.Contains(d.Groups, g)
		d.Groups = append(d.Groups, g)
		on, _ := w.waitsFor(g)
		if d.Absent = len(on) == 0; d.Absent || again || len(d.Groups) >= longestChain {
			return d
		}
		g = on[0]
	}
}
