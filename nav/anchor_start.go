package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// start places an anchor for every group that needs one and can have one now. For the members of the other groups it
// records what they wait for. It returns the context's error if that ends it early.
func (p *anchorPass) start(ctx context.Context, theirs *orbit.Plan) error {
	p.domains.Begin(&p.draft, p.state.Limits().IDBytes)
	p.claims = make([]anchorClaim, p.draft.Bound())
	m := p.merge(theirs)
	defer m.keepFitting()
	for _, g := range p.starting {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.reserveAbove(int64(p.view.Turn(g.waiting[0])))
		if why := p.obstacle(g, m); why != nil {
			p.noteAllUnplaced(g.waiting, why)
			continue
		}
		if err := p.startGroup(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// obstacle returns why this plan cannot place an anchor for a group; nil if it can.
func (p *anchorPass) obstacle(g *anchorGroup, m *anchorMerge) error {
	other := p.epoch.taken(g)
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

// waitsFor returns the reason that a group waits for its first member to be placed. It wraps an orbit.NoFit, so that
// the other members are parked. The engine takes them back when the first member is placed, and also when its proposal
// is lost.
func (p *anchorPass) waitsFor(g *anchorGroup, what string) error {
	n := p.state.NodeCount()
	why := fmt.Sprintf("wait for group %q, of which nothing is placed", g.name)
	fit := noFitOf(map[string]int{why: n})
	return fmt.Errorf("group %q waits for %s: %w", g.name, what, fit)
}

// noteAllUnplaced records the same reason for all of the capsules.
func (p *anchorPass) noteAllUnplaced(capsules []*orbit.Capsule, why error) {
	for _, c := range capsules {
		p.noteUnplaced(c, why)
	}
}

// startGroup places a group's anchor where most members find room. A nominated member is tried first if all waiting
// members yield to its nomination, and last otherwise.
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
	seats, anchor, err := p.chooseNominee(ctx, need, g, true)
	if seats == nil && err == nil {
		if seats, err = p.chooseAtOnce(ctx, need, firsts, g.waiting); len(seats) > 0 {
			anchor = by[seats[0].spec][0]
		}
	}
	if seats == nil && err == nil {
		seats, anchor, err = p.chooseNominee(ctx, need, g, false)
	}
	if err != nil {
		return err
	}
	if seats == nil {
		for _, spec := range firsts {
			p.noFresh(g, spec, by[spec])
		}
		return nil
	}
	home := p.draft.Node(seats[0].at).Node
	if err := p.propose(g, anchor, seats); err != nil {
		p.noteAllUnplaced(g.waiting, err)
		return nil
	}
	wait := p.waitsFor(g, fmt.Sprintf("its anchor, capsule %q, which is placed in this plan on node %q", anchor.ID, home.ID))
	for _, c := range g.waiting {
		if c != anchor {
			p.noteUnplaced(c, wait)
		}
	}
	if taken := len(seats); taken < need.total {
		p.short = append(p.short, slog.String("short", fmt.Sprintf("group %q: no %s takes all %d members; %q takes most: %d",
			g.name, strings.Join(need.levels, "/"), need.total, strings.Join(anchorDomainsOf(p.state, home, need.levels), "/"), taken)))
	}
	return nil
}

// chooseNominee chooses seats for a group that starts with a nominated member. That member may use its nominated room,
// and the room of nominations that it outranks. It tries the nominees by rank, the highest first. If first is set it
// tries only those to which all waiting members of the group yield. It returns nil if no nominee can start the group.
func (p *anchorPass) chooseNominee(ctx context.Context, need *anchorNeed, g *anchorGroup, first bool) (seats []anchorSeat, nominee *orbit.Capsule, err error) {
	var nominees []*orbit.Capsule
	highest := int32(math.MinInt32)
	for _, c := range g.waiting {
		if highest = max(highest, c.Spec.Priority); c.Nomination().Lives() {
			nominees = append(nominees, c)
		}
	}
	slices.SortFunc(nominees, func(a, b *orbit.Capsule) int {
		return btoi(b.Nomination().Outranks(a.Nomination())) - btoi(a.Nomination().Outranks(b.Nomination()))
	})
	defer p.draft.LookAs(nil)
	for _, c := range nominees {
		if first && !c.Nomination().OutranksPriority(highest) {
			break
		}
		p.draft.LookAs(c)
		if seats, err = p.choose(ctx, need, []*orbit.Spec{c.Spec}); seats != nil || err != nil {
			return seats, c, err
		}
	}
	return nil, nil, nil
}

// propose adds a proposal that places the anchor and holds room for the other members. Where the ledger limits the
// commitments or bets of a proposal it makes fewer holds. The error is the draft's, if it does not take the anchor.
func (p *anchorPass) propose(g *anchorGroup, anchor *orbit.Capsule, seats []anchorSeat) error {
	limits, lead := p.state.Limits(), p.draft.Node(seats[0].at)
	note := clip(AnchorNote, limits.ValueBytes)
	if err := p.draft.Place(anchor, orbit.Choice{Node: lead, Devices: seats[0].devices, Note: note}); err != nil {
		return err
	}
	p.claims[lead.Index()] = claimHosted
	bets := []orbit.Precondition{orbit.NodeAt{Node: lead.Node.ID, Usage: lead.Usage, Specification: lead.Specification}}
	commitments, count := 2, 2 // with the epoch mark's; Draft.Propose adds a bet of its own for each node with holds
	bet := map[int]bool{seats[0].at: true}
	for i := 1; i < len(seats) && p.holdFor() >= 0; i++ {
		s := &seats[i]
		if commitments >= limits.Commitments || !bet[s.at] && count+2 > limits.Preconditions {
			break
		}
		if !p.owns(s.spec) || !p.holdAt(i, g, s) {
			continue
		}
		commitments++
		p.held++
		if claim := &p.claims[s.at]; *claim != claimHosted {
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
	p.epoch.used[g.mark()] = g.name
	p.epoch.start(&out, g, anchor.ID)
	p.anchors = append(p.anchors, out)
	return nil
}

// owns reports whether this Anchor places capsules of the spec: one of them is pending in this plan, or its navigator
// claims them. Capsules of other engines could not use a hold, and it would keep the room from them until it ends.
func (p *anchorPass) owns(spec *orbit.Spec) bool {
	return p.handed[spec] || p.Claims(spec.Module, spec.Class)
}

// noFresh records for the members of one spec why no node takes an anchor. The reason wraps an orbit.NoFit: a node
// becomes fresh, or has room again, by a release or a new description, and each of these takes a parked class back. The
// reason does not wrap it if the group could start by self-match on a node that is not fresh, once no other work waits
// for the group.
func (p *anchorPass) noFresh(g *anchorGroup, spec *orbit.Spec, members []*orbit.Capsule) {
	alone := *spec
	alone.Near = orbit.Near{}
	lasting := orbit.Spec{Require: spec.Require, Tolerate: spec.Tolerate, Devices: orbit.DeviceRequest{Count: min(spec.Devices.Count, 1), Models: spec.Devices.Models}}
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

// misfit returns why a node takes no anchor of the spec, the most lasting reason first. lasting is the part of the spec
// that does not depend on free capacity; alone is the spec without the company that it asks for.
func (p *anchorPass) misfit(n *orbit.NodeState, spec, lasting, alone *orbit.Spec) orbit.Misfit {
	if m := p.draft.Misfit(n, lasting); m != (orbit.Misfit{}) {
		return m
	}
	if anchorDomainOf(p.state, n.Node, spec.Near.Level) == "" {
		return orbit.Misfit{Why: "are in no " + spec.Near.Level}
	}
	if why := p.filtered(n, spec); why != "" {
		return orbit.Misfit{Why: why}
	}
	if why := claimTexts[p.claimed(n)]; why != "" {
		return orbit.Misfit{Why: why}
	}
	return p.draft.Misfit(n, alone)
}

// anchorMerge combines the wrapped navigator's plan with the anchors of this pass, on the draft. The wrapped navigator
// does not know of the anchors. Its placements of higher priority come before a group. Of the others, those that do not
// fit beside the anchors are left out and take no room. The remaining ones are proposed in the wrapped navigator's
// order. By the draft's rule, room that a proposal releases serves that proposal alone, so all of them fit in whatever
// order they are committed.
type anchorMerge struct {
	*anchorPass
	theirs *orbit.Plan
	// Proposals with a priority above this are on the draft, or the draft has refused them. The slices below are by
	// position in theirs.Proposals.
	above    int64
	priority []int64
	misfit   []error
	// For each group of which the wrapped navigator places a capsule, one such capsule.
	placed map[string]orbit.CapsuleID
}

// merge reads the priorities and the groups of the wrapped navigator's proposals.
func (p *anchorPass) merge(theirs *orbit.Plan) *anchorMerge {
	n := len(theirs.Proposals)
	m := &anchorMerge{
		anchorPass: p, theirs: theirs, above: math.MaxInt64, priority: make([]int64, n), misfit: make([]error, n),
		placed: map[string]orbit.CapsuleID{},
	}
	for i := range theirs.Proposals {
		m.priority[i] = math.MinInt32
		for c := range p.places(&theirs.Proposals[i]) {
			m.priority[i] = max(m.priority[i], int64(p.view.Turn(c)))
			for group := range c.Spec.MemberOf {
				m.placed[group] = cmp.Or(m.placed[group], c.ID)
			}
		}
		for _, do := range theirs.Proposals[i].Do {
			if grows, ok := do.(orbit.Respec); ok {
				m.priority[i] = max(m.priority[i], int64(p.view.Turn(p.state.Capsule(grows.Capsule))))
			}
		}
	}
	return m
}

// places yields the capsules that a proposal places, and their nodes.
func (p *anchorPass) places(proposal *orbit.Proposal) iter.Seq2[*orbit.Capsule, orbit.NodeID] {
	return func(yield func(*orbit.Capsule, orbit.NodeID) bool) {
		for _, do := range proposal.Do {
			if place, ok := do.(orbit.Place); ok {
				if c := p.state.Capsule(place.Capsule); c != nil && !yield(c, place.Node) {
					return
				}
			}
		}
	}
}

// reserveAbove puts the wrapped navigator's proposals above a priority on the draft, unless they are on it already.
func (m *anchorMerge) reserveAbove(priority int64) {
	if priority >= m.above {
		return
	}
	for i, is := range m.priority {
		if is > priority && is <= m.above {
			m.misfit[i] = m.reserve(&m.theirs.Proposals[i])
		}
	}
	m.above = priority
}

// keepFitting puts the remaining proposals on the draft, and keeps in the plan only those that fit. Without anchors, and
// members that take quota, all stay.
func (m *anchorMerge) keepFitting() {
	if len(m.anchors) == 0 && !m.charged {
		return
	}
	m.reserveAbove(math.MinInt64)
	beside := "groups that start in this plan"
	if len(m.anchors) == 0 {
		beside = "members that come to held room"
	}
	left := false // a proposal is left out; later ones may depend on it
	kept := m.theirs.Proposals[:0:0]
	for i, proposal := range m.theirs.Proposals {
		switch why := m.misfit[i]; {
		case why != nil:
			m.leaveOut(&proposal, "does not fit beside "+beside+": "+reasonOf(why))
			left = true
		case left && m.state.Check(proposal) != nil:
			m.leaveOut(&proposal, "rests on what is left out of this plan")
		default:
			kept = append(kept, proposal)
		}
	}
	m.theirs.Proposals = kept
}

// leaveOut records for a proposal's capsules that they are not placed on its nodes, and why.
func (m *anchorMerge) leaveOut(proposal *orbit.Proposal, why string) {
	m.leftOut++
	for c, node := range m.places(proposal) {
		m.noteUnplaced(c, fmt.Errorf("its place on node %q %s; the capsule is planned again", node, why))
		if g := m.groups[c.Spec.Group]; g != nil && g.first != nil && g.first.ID == c.ID {
			g.first = nil
		}
	}
}

// reserve repeats a proposal on the draft, in full or not at all, and marks the nodes that then host a group.
func (p *anchorPass) reserve(proposal *orbit.Proposal) error {
	if err := reserve(&p.draft, proposal); err != nil {
		return err
	}
	for c, node := range p.places(proposal) {
		if c.Spec.Group != "" {
			p.claims[p.state.Node(node).Index()] = claimHosted
		}
	}
	return nil
}

// reserve repeats the releases, evictions, placements, growths, holds and nominations of another navigator's proposal on
// a draft, in full or not at all. A release that the draft refuses frees no room and is skipped: the ledger decides
// whether the proposal may make it. Commitments that take no room are skipped too.
func reserve(draft *orbit.Draft, proposal *orbit.Proposal) error {
	start, state := draft.Checkpoint(), draft.View().State()
	for _, do := range proposal.Do { // a proposal may release what makes room for it, in any order
		switch do := do.(type) {
		case orbit.Release:
			_ = draft.Release(do)
		case orbit.Evict:
			_ = draft.Evict(do)
		}
	}
	for _, do := range proposal.Do {
		var err error
		switch do := do.(type) {
		case orbit.Place:
			if c := state.Capsule(do.Capsule); c != nil {
				err = draft.Place(c, orbit.Choice{Node: state.Node(do.Node), Devices: do.Devices})
			}
		case orbit.Respec:
			err = draft.Respec(do)
		case orbit.Hold:
			err = draft.Hold(do)
		case orbit.Nominate:
			err = draft.Nominate(do)
		}
		if err != nil {
			draft.Rollback(start)
			return err
		}
	}
	draft.Propose()
	return nil
}

// reasonOf returns the text of an error. Of a rejection it returns only the reason, because its advice is for the
// proposer.
func reasonOf(err error) string {
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) {
		return r.Reason
	}
	return err.Error()
}

// unpark replaces each NoFit with a plain error that has its text, so that the classes are not parked. The NoFits were
// found beside proposals that the plan then leaves out, or holds that it releases, so there may be room after all.
func unpark(unplaced []orbit.Unplaced) {
	for i, u := range unplaced {
		if fit := (*orbit.NoFit)(nil); errors.As(u.Why, &fit) {
			unplaced[i].Why = errors.New(u.Why.Error() + "; that was beside what this plan leaves out or releases, so the capsule is planned again")
		}
	}
}
