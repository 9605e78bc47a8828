package etcdledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// textOf writes a state as text, one record a line, without indices and without the times of the last removals.
// Revisions are written as rev translates them, so that ledgers with different revisions can be compared.
func textOf(s *orbit.State, rev func(orbit.Revision) orbit.Revision) []string {
	t := texter{s: s, rev: rev}
	t.say("revision %d limits %v pending %d capsules %d nodes %d", rev(s.Revision()), s.Limits(), s.PendingCount(), s.CapsuleCount(), s.NodeCount())
	var dump bytes.Buffer
	if err := s.Dump(&dump); err != nil {
		panic(err)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(dump.Bytes()), []byte("\n")) {
		t.line(line)
	}
	for _, c := range s.Pending() {
		t.say("pending %q", c.ID)
	}
	return t.out
}

// same writes revisions unchanged.
func same(r orbit.Revision) orbit.Revision { return r }

type texter struct {
	s     *orbit.State
	rev   func(orbit.Revision) orbit.Revision
	specs []string
	out   []string
}

func (t *texter) say(format string, args ...any) { t.out = append(t.out, fmt.Sprintf(format, args...)) }

func read[T any](text json.RawMessage) T {
	var out T
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

// line writes one line of a dump.
func (t *texter) line(line []byte) {
	for what, text := range read[map[string]json.RawMessage](line) {
		switch what {
		case "orbit":
			t.say("names %v", read[dumpHeader](text).Dimensions)
		case "node":
			t.node(read[dumpNode](text))
		case "spec":
			t.specs = append(t.specs, string(text))
		case "gang":
			t.gang(read[dumpGang](text))
		case "capsule":
			t.capsule(read[dumpCapsule](text))
		case "hold":
			h := read[dumpHold](text)
			t.say("hold %v changed %d", h.Hold, t.rev(h.Changed))
		case "mark":
			m := read[dumpMark](text)
			t.say("mark %q %q changed %d", m.Key, m.Value, t.rev(m.Changed))
		case "budget":
			b, _ := t.s.Budget(read[orbit.Budget](text).ID)
			t.say("budget %+v changed %d healthy %d", b.Budget, t.rev(b.Changed), b.Healthy)
		case "recent":
			id := read[placementRecord](text)
			t.say("recent %s at %d", id.ID, t.rev(id.At))
		}
	}
}

func (t *texter) node(n dumpNode) {
	live := t.s.Node(n.ID)
	var free []int
	for i := range orbit.MaxDevices {
		free = append(free, live.DeviceFree(i))
	}
	on := []orbit.CapsuleID{}
	for c := range t.s.On(n.ID) {
		on = append(on, c.ID)
	}
	slices.Sort(on)
	for r := range t.s.Remains(n.ID) {
		on = append(on, "left: "+r.Capsule)
	}
	slices.Sort(on)
	t.say("node %v usage %d specification %d used %v devices %v capsules %d holds %d on %q",
		n.Node, t.rev(n.Usage), t.rev(n.Specification), [orbit.Dimensions]int64(live.Used()), free, live.Capsules, live.Holds(), on)
}

func (t *texter) gang(g dumpGang) {
	live := t.s.Gang(g.ID)
	var roles []string
	for _, r := range g.Roles {
		roles = append(roles, fmt.Sprintf("%q %s %q min %d", r.Name, t.specs[r.Spec], r.Members, r.Min))
	}
	t.say("gang %q levels %q loose %v roles %s changed %d placed %v", g.ID, g.Levels, g.Loose, strings.Join(roles, "; "), t.rev(g.Changed), live.Placed)
}

// capsule is written without its order of submission, because the lines are in that order.
func (t *texter) capsule(c dumpCapsule) {
	t.say("capsule %q spec %s owner %q gang %q.%d node %q devices %v note %q labels %v since %d at %d changed %d placed %d by %s released %v begun %v ready %v waits %v adopted %v respecified %v protected %v borrows %v",
		c.ID, t.specs[c.Spec], c.Owner, c.Gang, c.Role, c.Node, c.Devices, c.Note, c.Labels, c.SubmitTime, c.PlaceTime, t.rev(c.Changed), t.rev(c.PlacedAt), c.PlacedBy, c.Released, c.Begun, c.Ready, c.Waits, c.Adopted, c.Another, c.Protected, c.Borrows)
	if r := c.Remains; r != nil {
		t.say("  left %q devices %v, there since %d, at %d", r.Node, r.Devices, t.rev(r.Since), t.rev(r.Left))
	}
	for i, p := range c.Earlier {
		if i < t.s.Limits().PlacementIDs-1 { // some ledgers remember more for a while
			t.say("  earlier %s at %d", p.ID, t.rev(p.At))
		}
	}
}

// differ returns the lines that are in only one of two texts; "" if they are equal.
func differ(got, want []string) string {
	var b strings.Builder
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			fmt.Fprintf(&b, "got  %s\nwant %s\n", g, w)
		}
	}
	return b.String()
}
