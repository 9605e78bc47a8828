package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/program"
)

// moment is the cluster at one point of the story.
type moment struct {
	title string
	state *orbit.State
	rows  map[string]row
}

// row has the figures of a set at a moment.
type row struct {
	// How many replicas are in each zone, and how many wait.
	zones   map[string]int
	waiting int
	// By how many replicas the fullest domain exceeds the emptiest, by the account; and how many domains have too many,
	// by State.Skewed.
	skew, skewed int
}

// play goes through the story.
func (w *world) play() {
	w.say("%s", program.Opening(source))
	w.say("%d nodes in %d racks of zones a, b and c. Replica sets, and their rules:", w.perRack*racks, racks)
	for _, s := range w.sets {
		w.say("  %-7s %s", s.name, s.rules)
	}
	w.say("\n1. Eight navigators place all sets at the same time. Each has a part of each set, and knows nothing of the others.")
	w.submit(func(s *set) int { return s.replicas })
	w.act(func() {})
	w.show("placed")

	w.say("\n2. Zone b fails, rack by rack, while the navigators work. What ran there is placed anew, in zones a and c alike. Only db waits:")
	w.say("   it says that there must be three zones, so it has fewer replicas rather than more in one zone.")
	w.act(func() { w.fail("b") })
	w.show("b fails")

	w.say("\n3. Zone b is back, with empty nodes. No rule is broken: none is about what has run since before. But State.Skewed says how uneven it is.")
	w.comeBack("b")
	w.show("b is back")

	w.say("\n4. A loop moves replicas, each by one proposal that evicts and places it, until State.Skewed is empty. Meanwhile the navigators place db.")
	w.act(w.repair)
	w.act(func() {}) // places the replicas that waited for one of the moves
	w.show("repaired")
	w.say("   %d replicas had been lost, and %d moves were made.", w.lost, w.moves)

	w.say("\n5. Zone d opens with one node of 2 cores, and each set is to grow by half. Zone d is full with two replicas of queue. That set is to be even")
	w.say("   over all zones, so no zone may have more than three, and it stops growing. The others have declared their zones, and grow.")
	small := site{"d", "d-00"}.node(999)
	small.Capacity[orbit.CPU] = 2 * cores
	w.propose(orbit.PutNode{Node: small})
	w.submit(func(s *set) int { return s.replicas / 2 })
	w.act(func() {})
	w.show("d, small")
	if reason := w.reason("queue"); reason != "" {
		w.say("   The ledger on one more replica of queue in zone a: %s", reason)
	}

	w.say("\n6. Zone d gets three racks. There is room for queue, which is even again without a move.")
	for i := range 3 {
		w.join(site{"d", fmt.Sprintf("d-%02d", i)})
	}
	w.act(func() {})
	w.show("d, large")
}

// show prints the cluster as it is now, and keeps the moment for the table at the end.
func (w *world) show(title string) {
	w.account.catchUp()
	m := &moment{title: title, state: w.state(), rows: map[string]row{}}
	skewed := map[string]int{}
	for skew := range m.state.Skewed() {
		skewed[skew.Spec.Module]++
	}
	w.say("\n   %-8s %5s %5s %5s %5s %8s %5s %8s %s", "", "a", "b", "c", "d", "waiting", "skew", "allowed", "Skewed")
	for _, s := range w.sets {
		r := row{zones: map[string]int{}, skew: w.account.spread(s), skewed: skewed[s.name]}
		for id, spec := range w.account.specs {
			if spec != s.spec {
				continue
			}
			if node := w.account.on[id]; node != "" {
				r.zones[w.account.nodes[node].Labels[zone]]++
			} else {
				r.waiting++
			}
		}
		m.rows[s.name] = r
		w.say("   %-8s %5d %5d %5d %5d %8d %5d %8d %s", s.name, r.zones["a"], r.zones["b"], r.zones["c"], r.zones["d"], r.waiting, r.skew, s.spec.Even[0].MaxSkew,
			strings.TrimSuffix(fmt.Sprintf("%d %ss", r.skewed, s.spec.Even[0].Level), plural(r.skewed)))
	}
	w.moments = append(w.moments, m)
}

// plural returns the suffix that has to be cut off a plural word for a count: "s" for 1, else nothing.
func plural(n int) string {
	if n == 1 {
		return "s"
	}
	return ""
}

// reason returns why the ledger does not place a waiting replica of a set in zone a; empty: no replica waits.
func (w *world) reason(name string) string {
	s := w.state()
	for _, c := range s.Pending() {
		if c.Spec.Module == name {
			var r *orbit.Rejection
			if errors.As(s.Check(onto(s, c.ID, rackOf(0).node(0).ID)), &r) {
				return r.Reason
			}
		}
	}
	return ""
}

// onto returns a proposal that places a capsule on a node.
func onto(s *orbit.State, id orbit.CapsuleID, node orbit.NodeID) orbit.Proposal {
	return orbit.Proposal{View: s.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: node}}}
}

// sumUp prints the table of skew over time and the recount. It reports whether no rule was broken, no replica waits and
// no set is skewed.
func (w *world) sumUp() bool {
	w.say("\nSkew over time: how many replicas more the fullest domain of a set has than the emptiest. In brackets: in how many domains there are too many")
	w.say("by State.Skewed, if there are any.")
	titles := make([]string, 0, len(w.moments))
	for _, m := range w.moments {
		titles = append(titles, m.title)
	}
	w.columns("", titles)
	ok := w.account.broken == 0
	for _, s := range w.sets {
		cells := make([]string, 0, len(w.moments))
		for i, m := range w.moments {
			r := m.rows[s.name]
			cell := strconv.Itoa(r.skew)
			if r.skewed > 0 {
				cell += fmt.Sprintf(" (%d)", r.skewed)
			}
			cells = append(cells, cell)
			ok = ok && (i < len(w.moments)-1 || r.skewed+r.waiting == 0)
		}
		w.columns(s.name, cells)
	}
	a := w.account
	w.say("\nThe navigators placed %d replicas, and the ledger refused %d more proposals because others had been faster.", w.committed.Load(), w.conflicts.Load())
	w.say("Counted again from the history: %d commits, after each of them all pairs (%d in all), and %d replicas just placed.", a.commits, a.pairs, a.arrivals)
	for _, c := range a.cases {
		w.say("broken at %s", c)
	}
	w.say("rules broken %d, skew at most %d", a.broken, a.skew)
	return ok
}

// columns prints a line of the table of skew over time.
func (w *world) columns(name string, cells []string) {
	line := fmt.Sprintf("   %-8s", name)
	for _, cell := range cells {
		line = fmt.Sprintf("%s %-10s", line, cell)
	}
	w.say("%s", strings.TrimRight(line, " "))
}

// say prints a line.
func (w *world) say(format string, args ...any) { fmt.Fprintf(w.out, format+"\n", args...) }
