package nav

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/orbitsched/orbit"
)

// start places an anchor for every group that needs one and can have one now, and says of the members of all
// others what they wait for. It returns the context's error if that ends it early.
func (p *anchorPass) start(ctx context.Context, theirs *orbit.Plan) error {
	p.rooms.sync(p.view)
	m := p.merge(theirs)
	defer m.settle()
	for _, g := range p.starting {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.apply(g.waiting[0].Spec.Priority)
		if why := p.hindrance(g, m); why != nil {
			p.leaveAll(g.waiting, why)
			continue
		}
		if err := p.startGroup(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// hindrance says why a group cannot have its anchor in this very plan, nil if it can.
func (p *anchorPass) hindrance(g *anchorGroup, m *anchorMerge) error {
	other := p.fence.taken(g)
	switch {
	case m.placed[g.name] != "":
		return fmt.Errorf("group %q waits for capsule %q of it, which is placed in this plan", g.name, m.placed[g.name])
	case p.roomHeld(g):
		return fmt.Errorf("group %q waits until the room held for it since it last ran is released", g.name)
	case other != "":
		return fmt.Errorf("group %q shares mark %q with group %q, which starts in this plan; it starts in a later one",
			g.name, g.mark(), other)
	}
	return nil
}

// waitsFor says that a group waits for its first member to be placed. It wraps an orbit.NoFit, so that the others
// are parked. The engine takes them back when the first one is placed, and also when its proposal is lost.
func (p *anchorPass) waitsFor(g *anchorGroup, what string) error {
	n := p.state.NodeCount()
	why := fmt.Sprintf("wait for group %q, of which nothing is placed", g.name)
	fit := &orbit.NoFit{Nodes: n, Reasons: []orbit.Reason{{Nodes: n, Why: why}}}
	return fmt.Errorf("group %q waits for %s: %w", g.name, what, fit)
}

// roomHeld reports whether room is still held for a group.
func (p *anchorPass) roomHeld(g *anchorGroup) bool {
	if room := p.holds.of[g.name]; room != nil {
		for _, h := range room.all {
			if p.live(h) {
				return true
			}
		}
	}
	return false
}

// leaveAll notes for each of the capsules why it has no place.
func (p *anchorPass) leaveAll(capsules []*orbit.Capsule, why error) {
	for _, c := range capsules {
		p.leave(c, why)
	}
}

// startGroup places a group's anchor where most of the group finds room.
func (p *anchorPass) startGroup(ctx context.Context, g *anchorGroup) error {
	need := p.need(g)
	var firsts []*orbit.Spec
	by := map[*orbit.Spec][]*orbit.Capsule{}
	for _, c := range g.waiting {
		if by[c.Spec] == nil {
			firsts = append(firsts, c.Spec)
		}
		by[c.Spec] = append(by[c.Spec], c)
	}
	seats, err := p.choose(ctx, need, firsts)
	if err != nil {
		return err
	}
	if seats == nil {
		for _, spec := range firsts {
			p.noFresh(g, spec, by[spec])
		}
		return nil
	}
	anchor, home := by[seats[0].spec][0], seats[0].node
	p.anchors = append(p.anchors, p.propose(g, anchor, seats))
	wait := p.waitsFor(g, fmt.Sprintf("its anchor, capsule %q, which is placed in this plan on node %q", anchor.ID, home.ID))
	for _, c := range g.waiting {
		if c != anchor {
			p.leave(c, wait)
		}
	}
	if taken := len(seats); taken < need.total {
		p.short = append(p.short, slog.String("short", fmt.Sprintf("group %q: no %s takes all %d members; %q takes most: %d",
			g.name, strings.Join(need.levels, "/"), need.total, p.domainsOf(home, need.levels), taken)))
	}
	return nil
}

// domainsOf names the domain of a node at each of some levels.
func (p *anchorPass) domainsOf(n *orbit.Node, levels []string) string {
	names := make([]string, len(levels))
	for i, level := range levels {
		names[i] = anchorDomainOf(p.state, n, level)
	}
	return strings.Join(names, "/")
}

// propose returns the proposal that places the anchor and holds room for the others, and takes both from what
// the plan has left. A ledger that takes few commitments or bets at once gets fewer holds.
func (p *anchorPass) propose(g *anchorGroup, anchor *orbit.Capsule, seats []anchorSeat) orbit.Proposal {
	limits, lead := p.state.Limits(), p.rooms.nodes[seats[0].at].node
	out := orbit.Proposal{View: p.view.Revision()}
	note := clip(AnchorNote, limits.ValueBytes)
	out.Do = append(out.Do, orbit.Place{Capsule: anchor.ID, Node: lead.Node.ID, Devices: seats[0].devices, Note: note})
	out.If = append(out.If, orbit.NodeAt{Node: lead.Node.ID, Usage: lead.Usage, Specification: lead.Specification})
	p.seat(&seats[0]).claim = claimHosted
	bet := map[int]bool{seats[0].at: true}
	for i := 1; i < len(seats) && p.holdFor() >= 0; i++ {
		s := &seats[i]
		if len(out.Do)+1 >= limits.Commitments || !bet[s.at] && len(out.If)+1 >= limits.Preconditions {
			break
		}
		hold, ok := p.hold(i, g, s)
		if !ok {
			continue
		}
		out.Do = append(out.Do, hold)
		if room := p.seat(s); room.claim != claimHosted {
			room.claim = claimHeld
		}
		p.held++
		if !bet[s.at] {
			bet[s.at] = true
			out.If = append(out.If, orbit.NodeAt{Node: s.node.ID, Specification: p.rooms.nodes[s.at].node.Specification})
		}
	}
	p.fence.used[g.mark()] = g.name
	p.fence.start(&out, g, anchor.ID)
	return out
}

// seat takes a member's seat from what the plan has left.
func (p *anchorPass) seat(s *anchorSeat) *anchorRoom {
	room := p.rooms.own(s.at)
	room.take(s.spec, s.devices)
	return room
}

// noFresh notes of members of one spec why no node takes an anchor of it. That wraps an orbit.NoFit: a node that becomes
// fresh, or has room again, does so by a release or a new description, and each of these takes a parked class back. It
// does not where the group could start by self-match on a node that is not fresh, once no other waits for it.
func (p *anchorPass) noFresh(g *anchorGroup, spec *orbit.Spec, members []*orbit.Capsule) {
	counts, nodes, takes := map[string]int{}, 0, false
	for i := range p.rooms.nodes {
		if room := &p.rooms.nodes[i]; room.node != nil {
			counts[p.misfit(i, room, spec)]++
			nodes++
			takes = takes || p.takesAnchor(i, spec)
		}
	}
	fit := &orbit.NoFit{Nodes: nodes, Reasons: reasonsOf(counts)}
	why := fmt.Errorf("group %q has no node for its anchor: %w", g.name, fit)
	if p.SelfMatch && takes {
		why = errors.New(why.Error())
	}
	for _, c := range members {
		p.crowdedOut = append(p.crowdedOut, orbit.Unplaced{Capsule: c, Why: why})
	}
}

// misfit completes "n nodes ...", the most lasting reason first.
func (p *anchorPass) misfit(i int, room *anchorRoom, spec *orbit.Spec) string {
	node := room.node.Node
	if why := objection(node, spec); why != "" {
		return why
	}
	if anchorDomainOf(p.state, node, spec.Near.Level) == "" {
		return "are in no " + spec.Near.Level
	}
	if p.Filter != nil {
		if why := p.Filter(room.node, p.view.Report(room.node), spec); why != "" {
			return why
		}
	}
	switch p.claimed(i) {
	case claimHosted:
		return "host another group"
	case claimHeld:
		return "hold room for another group"
	case claimUnknown, unclaimed:
	}
	return shortage(&room.nodeRoom, spec, p.state)
}
