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
	p.domains.begin(&p.draft)
	m := p.merge(theirs)
	defer m.settle()
	for _, g := range p.starting {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.reserveAbove(g.waiting[0].Spec.Priority)
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
	case g.held:
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
	anchor, home := by[seats[0].spec][0], p.draft.Node(seats[0].at).Node
	if err := p.propose(g, anchor, seats); err != nil {
		p.leaveAll(g.waiting, err)
		return nil
	}
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

// propose proposes to place the anchor and to hold room for the others. A ledger that takes few commitments or bets at
// once gets fewer holds. The error is the draft's, if it does not take the anchor.
func (p *anchorPass) propose(g *anchorGroup, anchor *orbit.Capsule, seats []anchorSeat) error {
	limits, lead := p.state.Limits(), p.draft.Node(seats[0].at)
	note := clip(AnchorNote, limits.ValueBytes)
	if err := p.draft.Place(anchor, orbit.Choice{Node: lead, Devices: seats[0].devices, Note: note}); err != nil {
		return err
	}
	p.domains.claims[lead.Index()] = claimHosted
	bets := []orbit.Precondition{orbit.NodeAt{Node: lead.Node.ID, Usage: lead.Usage, Specification: lead.Specification}}
	commitments, count := 2, 2 // with the fence's, and with what Propose bets on nodes of holds
	bet := map[int]bool{seats[0].at: true}
	for i := 1; i < len(seats) && p.holdFor() >= 0; i++ {
		s := &seats[i]
		if commitments >= limits.Commitments || !bet[s.at] && count+2 > limits.Preconditions {
			break
		}
		if !p.holdAt(i, g, s) {
			continue
		}
		commitments++
		p.held++
		if claim := &p.domains.claims[s.at]; *claim != claimHosted {
			*claim = claimHeld
		}
		if !bet[s.at] {
			n := p.draft.Node(s.at)
			bets = append(bets, orbit.NodeAt{Node: n.Node.ID, Specification: n.Specification})
			bet[s.at] = true
			count += 2
		}
	}
	out := p.draft.Propose(bets...)
	p.fence.used[g.mark()] = g.name
	p.fence.start(&out, g, anchor.ID)
	p.anchors = append(p.anchors, out)
	return nil
}

// noFresh notes of members of one spec why no node takes an anchor of it. That wraps an orbit.NoFit: a node that becomes
// fresh, or has room again, does so by a release or a new description, and each of these takes a parked class back. It
// does not where the group could start by self-match on a node that is not fresh, once no other waits for it.
func (p *anchorPass) noFresh(g *anchorGroup, spec *orbit.Spec, members []*orbit.Capsule) {
	alone := *spec
	alone.Near = orbit.Near{}
	lasting := orbit.Spec{Require: spec.Require, Devices: orbit.DeviceRequest{Count: min(spec.Devices.Count, 1), Models: spec.Devices.Models}}
	counts, takes := map[orbit.Misfit]int{}, false
	for n := range p.draft.Nodes() {
		counts[p.misfit(n, spec, &lasting, &alone)]++
		takes = takes || p.takesAnchor(n, spec)
	}
	why := fmt.Errorf("group %q has no node for its anchor: %w", g.name, p.draft.NoFit(&alone, counts))
	if p.SelfMatch && takes {
		why = errors.New(why.Error())
	}
	for _, c := range members {
		p.crowdedOut = append(p.crowdedOut, orbit.Unplaced{Capsule: c, Why: why})
	}
}

// misfit says why a node takes no anchor of the spec, the most lasting reason first. Lasting is what of the spec does not
// depend on what is free, and alone is the spec without the company that it asks for.
func (p *anchorPass) misfit(n *orbit.NodeState, spec, lasting, alone *orbit.Spec) orbit.Misfit {
	if m := p.draft.Misfit(n, lasting); m != (orbit.Misfit{}) {
		return m
	}
	if anchorDomainOf(p.state, n.Node, spec.Near.Level) == "" {
		return orbit.Unfit("are in no " + spec.Near.Level)
	}
	if why := p.filtered(n, spec); why != "" {
		return orbit.Unfit(why)
	}
	switch p.claimed(n) {
	case claimHosted:
		return orbit.Unfit("host another group")
	case claimHeld:
		return orbit.Unfit("hold room for another group")
	case claimUnknown, unclaimed:
	}
	return p.draft.Misfit(n, alone)
}
