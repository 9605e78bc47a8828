package race

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// judge asks whether a world has come to rest as it should, since it began to rest.
func (w *livePlay) judge(state *orbit.State, began time.Duration) {
	if err := state.Verify(); err != nil {
		w.fail("verify", "%v", err)
	}
	b := newLiveBooks(state, w)
	for c := range state.Capsules() {
		if c.Pending() && c.Gang == "" {
			b.judgeCapsule(c)
		}
	}
	for g := range state.Gangs() {
		b.judgeGang(g)
	}
	for h := range state.Holds() {
		w.fail("restless", "hold %s for %q on %s is still there %v after the last event", h.ID, h.For, h.Node, w.within())
	}
	w.mu.Lock()
	sent := w.sent - began
	w.mu.Unlock()
	if sent > w.within()*3/4 {
		w.fail("restless", "a proposal was sent %v after the last event", sent)
	}
}

// liveBooks is a state at rest as brute force sees it: everything counted again, capsule by capsule.
type liveBooks struct {
	*livePlay
	state *orbit.State
	rooms []liveRoom
}

// liveRoom is what is left of a node.
type liveRoom struct {
	*orbit.Node
	free orbit.Resources
	// What is left of each device instance, in milli; nothing of those that are not healthy.
	milli []int
	// Groups of which members run here; whether any group has a part in the node, be it by a hold.
	groups  []string
	claimed bool
	report  orbit.Report
	heard   bool
}

func newLiveBooks(state *orbit.State, w *livePlay) *liveBooks {
	b := &liveBooks{livePlay: w, state: state}
	at := map[orbit.NodeID]int{}
	for n := range state.Nodes() {
		r := liveRoom{Node: n.Node, free: n.Node.Capacity, milli: make([]int, n.Node.Devices.Count)}
		for i := range r.milli {
			if n.Node.Devices.Unhealthy&(1<<i) == 0 {
				r.milli[i] = 1000
			}
		}
		if w.board != nil {
			r.report, r.heard = w.board.Latest(n.Node.ID)
			r.report.Stale = time.Since(r.report.At) >= staleLive
		}
		at[n.Node.ID] = len(b.rooms)
		b.rooms = append(b.rooms, r)
	}
	for c := range state.Capsules() {
		if c.Node == "" {
			continue
		}
		r := &b.rooms[at[c.Node]]
		r.take(c.Spec, c.Devices)
		if c.Spec.Group != "" {
			r.groups, r.claimed = append(r.groups, c.Spec.Group), true
		}
	}
	for h := range state.Holds() {
		r := &b.rooms[at[h.Node]]
		hold := orbit.Spec{Envelope: orbit.Envelope{Reservation: h.Room}, Devices: orbit.DeviceRequest{Milli: h.Milli}}
		r.take(&hold, h.Devices)
		r.claimed = r.claimed || strings.HasPrefix(string(h.ID), "anchor/")
	}
	return b
}

// take takes what a capsule of the spec has, on these instances.
func (r *liveRoom) take(spec *orbit.Spec, set orbit.DeviceSet) {
	for d, want := range spec.Envelope.Reservation {
		r.free[d] -= want
	}
	for i := range r.milli {
		if set&(1<<i) != 0 {
			r.milli[i] -= spec.Devices.Milli
		}
	}
}

// takes reports whether the node takes one more capsule of the spec, whoever places it.
func (r *liveRoom) takes(spec *orbit.Spec) bool {
	if r.Unschedulable {
		return false
	}
	for _, p := range spec.Require {
		if !p.Matches(r.Labels) {
			return false
		}
	}
	for d, want := range spec.Envelope.Reservation {
		if want > 0 && r.free[d] < want {
			return false
		}
	}
	return spec.Devices.Count == 0 || len(r.instances(&spec.Devices)) >= spec.Devices.Count
}

// instances returns the device instances that would do for a request.
func (r *liveRoom) instances(q *orbit.DeviceRequest) (out []int) {
	if len(q.Models) > 0 && !slices.Contains(q.Models, r.Devices.Model) {
		return nil
	}
	for i, left := range r.milli {
		if left >= q.Milli {
			out = append(out, i)
		}
	}
	return out
}

// String describes what is left of a node.
func (r *liveRoom) String() string {
	text := fmt.Sprintf("node %s (%s left, labels %v", r.ID, amounts(r.free), r.Labels)
	if len(r.milli) > 0 {
		text += fmt.Sprintf(", devices %s %v", r.Devices.Model, r.milli)
	}
	return text + ")"
}

// owner returns the engine whose a capsule is, nil if there is none.
func (b *liveBooks) owner(c *orbit.Capsule) *liveEngine {
	if c.Owner != "" {
		return b.draft.engine(c.Owner)
	}
	switch c.Spec.Class {
	case orbit.Batch:
		return b.draft.engine("batch")
	case orbit.GangClass:
		return b.draft.engine("gang")
	}
	return b.draft.engine("services")
}

// judgeCapsule looks for a node that a pending capsule could be on.
func (b *liveBooks) judgeCapsule(c *orbit.Capsule) {
	e := b.owner(c)
	if e == nil || e.kind == "gang" {
		return
	}
	for i := range b.rooms {
		r := &b.rooms[i]
		if !r.takes(c.Spec) || !b.company(e, c, r) || !b.allowed(e, c, r) {
			continue
		}
		b.fail("left", "capsule %s of engine %s (%s) is pending and fits on %v; the engine last said: %v",
			c.ID, e.name, wishes(c.Spec), r, b.said(c))
		return
	}
}

// company reports whether a capsule may be on a node for what it wants to be near, by the rule of its
// navigator.
func (b *liveBooks) company(e *liveEngine, c *orbit.Capsule, r *liveRoom) bool {
	near := c.Spec.Near
	if near.Group == "" {
		return true
	}
	domain := r.Labels[near.Level]
	if domain == "" {
		return false
	}
	runs := false
	for i := range b.rooms {
		other := &b.rooms[i]
		if slices.Contains(other.groups, near.Group) {
			runs = true
			if other.Labels[near.Level] == domain {
				return true
			}
		}
	}
	if runs || !e.anchored || near.Group != c.Spec.Group {
		return false
	}
	return !r.claimed || e.selfMatch && b.onlyItself(near.Group)
}

// onlyItself reports whether all that is pending of a group waits for that group.
func (b *liveBooks) onlyItself(group string) bool {
	for c := range b.state.Capsules() {
		if c.Pending() && (c.Spec.Group == group || c.Spec.Near.Group == group) && (c.Spec.Group != group || c.Spec.Near.Group != group) {
			return false
		}
	}
	return true
}

// allowed reports whether the navigator of an engine may put a capsule on a node that takes it.
func (b *liveBooks) allowed(e *liveEngine, c *orbit.Capsule, r *liveRoom) bool {
	if e.kind == "warm" {
		return b.starts(e, c, r)
	}
	return !e.filter || b.board == nil || !r.report.Stale && r.report.CPUPercent <= 90
}

// starts is the rule of sandbox.Warm.
func (b *liveBooks) starts(e *liveEngine, c *orbit.Capsule, r *liveRoom) bool {
	start := c.Spec.Start
	if start.Parent != "" {
		parent := b.state.Capsule(start.Parent)
		gone := parent == nil || parent.Released()
		switch {
		case gone && c.PlacedAt == 0, !gone && parent.Node == "":
			return false
		case !gone && (parent.Node == r.ID) == start.CrossHost:
			return false
		}
	}
	if b.board == nil {
		return len(start.Volumes) == 0
	}
	if !r.heard || r.report.Stale && !e.allowStale || start.Template != "" && !slices.Contains(r.report.Templates, start.Template) {
		return false
	}
	for _, v := range start.Volumes {
		if !slices.Contains(r.report.Volumes, v) {
			return false
		}
	}
	return int64(r.report.FreeSlots) >= max(1, c.Spec.Envelope.Reservation[orbit.Slots])
}

// said returns what an engine last said of a capsule.
func (b *liveBooks) said(c *orbit.Capsule) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why[c.ID]
}
