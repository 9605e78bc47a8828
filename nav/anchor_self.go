package nav

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// The self-match rule: a group that is its own only target may start with any member anywhere.

// matchesItself reports whether the rule is on and holds for a group of which nothing runs: all that is pending and
// has to do with it are members that wait for it. It takes the group's fence for this plan.
func (p *anchorPass) matchesItself(g *anchorGroup) bool {
	if !p.SelfMatch || p.fence.taken(g) != "" {
		return false
	}
	for spec := range p.state.GroupPending(g.name) {
		if !g.waitsHere(spec) {
			return false
		}
	}
	p.fence.used[g.mark()] = g.name
	return true
}

// maxAlone is how many specs of first members are remembered.
const maxAlone = 256

// standIn returns a capsule for the wrapped navigator to plan in the place of a first member: it wants to be
// near nobody, but in some domain, for the others to follow. Equal specs stay one pointer from pass to pass.
func (p *anchorPass) standIn(c *orbit.Capsule) *orbit.Capsule {
	spec := p.alone[c.Spec]
	if spec == nil {
		if p.alone == nil || len(p.alone) >= maxAlone {
			p.alone = map[*orbit.Spec]*orbit.Spec{}
		}
		own, level := *c.Spec, c.Spec.Near.Level
		own.Near = orbit.Near{}
		own.Require = append([]orbit.Predicate{
			{Key: level, Op: "Exists"}, {Key: level, Op: "NotIn", Values: []string{""}},
		}, c.Spec.Require...)
		spec = &own
		p.alone[c.Spec] = spec
	}
	if p.standIns == nil {
		p.standIns, p.standsIn = map[orbit.CapsuleID]*orbit.Capsule{}, map[*orbit.Spec]bool{}
	}
	p.standIns[c.ID], p.standsIn[c.Spec] = c, true
	stand := *c
	stand.Spec = spec
	return &stand
}

// keepFirsts keeps of each group the first stand-in that the wrapped navigator has placed, and fences its proposal. The
// places of the others are left out. It puts the capsules themselves for their stand-ins.
func (p *anchorPass) keepFirsts(theirs *orbit.Plan) {
	if len(p.standIns) == 0 {
		return
	}
	kept := theirs.Proposals[:0:0]
	for _, proposal := range theirs.Proposals {
		if p.keepFirst(&proposal) {
			kept = append(kept, proposal)
		}
	}
	theirs.Proposals = kept
	for i, u := range theirs.Unplaced {
		if u.Capsule != nil && p.standIns[u.Capsule.ID] != nil {
			theirs.Unplaced[i].Capsule = p.standIns[u.Capsule.ID]
		}
	}
}

// keepFirst does so for one proposal. It reports whether the proposal still places anything, if it did.
func (p *anchorPass) keepFirst(proposal *orbit.Proposal) bool {
	var first []*anchorGroup
	places, left := 0, 0
	do := slices.DeleteFunc(slices.Clone(proposal.Do), func(do orbit.Commitment) bool {
		place, ok := do.(orbit.Place)
		places += btoi(ok)
		c := p.standIns[place.Capsule]
		if !ok || c == nil {
			return false
		}
		g := p.group(c.Spec.Group)
		if g.first == nil {
			g.first = c
			first = append(first, g)
		}
		if g.first == c {
			return false
		}
		g.waiting = append(g.waiting, c)
		left++
		return true
	})
	p.leftOut += btoi(left > 0)
	proposal.Do = do
	for _, g := range first {
		p.fence.start(proposal, g, g.first.ID)
	}
	return left == 0 || left < places
}

// explainSelfStarts says what the members wait for that this plan leaves to follow a first one. They are put aside
// only if that is placed: otherwise any of them may be the next to start the group.
func (p *anchorPass) explainSelfStarts() {
	for _, g := range p.selfStarting {
		why := fmt.Errorf("group %q waits for its first member, and none has a place in this plan", g.name)
		if g.first != nil {
			why = p.waitsFor(g, fmt.Sprintf("its first member, capsule %q, which needs no anchor", g.first.ID))
		}
		p.leaveAll(g.waiting, why)
	}
}
