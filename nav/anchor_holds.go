package nav

import (
	"cmp"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// anchorHolds are the holds of all Anchors on the ledger. An Anchor recognises them by their ids, so it also uses and
// releases holds that other Anchors have left.
type anchorHolds struct {
	// In order of their ids, which keeps the holds of a group together.
	all []*anchorHold
	// The holds that the plan may still use, by the members that they serve.
	free map[heldFor][]*anchorHold
	// The nodes on which there are holds.
	on map[orbit.NodeID]bool
}

// anchorHold is one hold, for one member.
type anchorHold struct {
	orbit.Hold
	// This plan replaces the hold with a member.
	used bool
}

// heldFor identifies the members that a hold serves: those of one group that need the same amount.
type heldFor struct {
	group          string
	room           orbit.Resources
	devices, milli int
}

func heldForSpec(spec *orbit.Spec) heldFor {
	return heldFor{spec.Group, spec.Envelope.Reservation, spec.Devices.Count, spec.Devices.Milli}
}

func heldForHold(h *orbit.Hold) heldFor { return heldFor{h.For, h.Room, h.Devices.Len(), h.Milli} }

// readHolds collects the holds of a state.
func readHolds(state *orbit.State) anchorHolds {
	out := anchorHolds{free: map[heldFor][]*anchorHold{}, on: map[orbit.NodeID]bool{}}
	for hold := range state.HoldsWith(anchorPrefix) {
		if hold.For == "" {
			continue
		}
		h, key := &anchorHold{Hold: hold}, heldForHold(&hold)
		out.all, out.free[key], out.on[hold.Node] = append(out.all, h), append(out.free[key], h), true
	}
	return out
}

// live reports whether a hold is still there when the plan is proposed: this plan does not replace it with a member,
// and the engine does not release it in this pass because it has ended.
func (p *anchorPass) live(h *anchorHold) bool { return !h.used && h.Ends.After(p.view.Now()) }

// replaceHold releases a hold on the draft, and returns the choice that puts a capsule of the spec in its room. It
// reports false if the node does not take the capsule: the group does not run in the domain, or the node has changed,
// has shrunk below what it holds, or has lost devices. If it reports false the caller rolls the draft back; else the
// caller places the capsule.
func (p *anchorPass) replaceHold(h *anchorHold, spec *orbit.Spec) (orbit.Choice, bool) {
	if p.draft.Release(orbit.Release{Hold: h.ID}) != nil {
		return orbit.Choice{}, false
	}
	n := p.draft.Node(p.state.Node(h.Node).Index()) // is a member: nodes with holds cannot leave
	fits := p.draft.Misfit(n, spec) == orbit.Misfit{} && p.filtered(n, spec) == ""
	return orbit.Choice{Node: n, Devices: h.Devices}, fits
}

// placeFromHold places a member of a running group in room that is held for it, if there is any. One proposal releases
// the hold and places the member, so that no other work takes the room in between.
func (p *anchorPass) placeFromHold(g *anchorGroup, c *orbit.Capsule) bool {
	key := heldForSpec(c.Spec)
	for i, h := range p.holds.free[key] {
		if !p.live(h) {
			continue
		}
		start := p.draft.Checkpoint()
		if at, ok := p.replaceHold(h, c.Spec); !ok || p.draft.Place(c, at) != nil {
			p.draft.Rollback(start)
			continue
		}
		p.members = append(p.members, p.draft.Propose())
		h.used, p.charged = true, p.charged || c.Spec.Queue != ""
		g.came[c.Spec]++
		if i == 0 {
			p.holds.free[key] = p.holds.free[key][1:]
		}
		return true
	}
	return false
}

// releaseLeftovers releases holds that no member will use: no member waits any more, the node has changed, or the group
// has stopped.
func (p *anchorPass) releaseLeftovers() {
	waiting := map[*anchorGroup][]anchorRole{}
	for _, h := range p.holds.all {
		g := p.group(h.For)
		if !p.live(h) {
			continue
		}
		g.held = true
		if _, known := waiting[g]; !known {
			waiting[g] = p.waitingMembers(g)
		}
		if p.wanted(h, waiting[g]) {
			continue
		}
		if p.draft.Release(orbit.Release{Hold: h.ID}) == nil {
			p.releases = append(p.releases, p.draft.Propose())
		}
	}
}

// wanted reports whether the hold can serve a member that still waits, and counts that member as served. The caller has
// already taken the members that this plan places out of the counts.
func (p *anchorPass) wanted(h *anchorHold, waiting []anchorRole) bool {
	start := p.draft.Checkpoint()
	defer func() { p.draft.Rollback(start) }()
	for i := range waiting {
		w := &waiting[i]
		if w.count == 0 || heldForSpec(w.spec) != heldForHold(&h.Hold) {
			continue
		}
		if at, ok := p.replaceHold(h, w.spec); ok && p.draft.Reserve(w.spec, at) == nil {
			w.count--
			return true
		}
		p.draft.Rollback(start)
	}
	return false
}

// holdAt holds room for the i-th seat of a group. It reports false if the draft refuses the hold: a seat that reserves
// nothing needs no hold, and the hold's id may be too long for the ledger.
func (p *anchorPass) holdAt(i int, g *anchorGroup, seat *anchorSeat) bool {
	return p.draft.Hold(orbit.Hold{
		ID:   orbit.HoldID(fmt.Sprintf("%s%s/%d-%d", anchorPrefix, groupHash(g.name), p.view.Revision(), i)),
		Node: p.draft.Node(seat.at).Node.ID, Room: seat.spec.Envelope.Reservation, Devices: seat.devices,
		Milli: seat.spec.Devices.Milli, For: g.name, Ends: p.view.Now().Add(p.holdFor()),
	}) == nil
}

// holdFor returns how long room is held; if negative, none is held.
func (a *Anchor) holdFor() time.Duration { return cmp.Or(a.HoldFor, 30*time.Second) }

// btoi returns 1 for true and 0 for false.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
