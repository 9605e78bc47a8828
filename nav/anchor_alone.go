package nav

import (
	"github.com/orbitsched/orbit"
)

// The self-match rule: a group that is its own only target may start with any member anywhere.

// startsAlone reports whether the rule is on and holds for a group of which nothing runs: all that is pending and
// has to do with it are members that wait for it. It takes the group's fence for this plan.
func (p *anchorPass) startsAlone(g *anchorGroup) bool {
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
		p.standIns = map[orbit.CapsuleID]*orbit.Capsule{}
	}
	p.standIns[c.ID] = c
	stand := *c
	stand.Spec = spec
	return &stand
}

// fenceFirst fences the proposals that place first members, and puts the capsules themselves for their stand-ins.
func (p *anchorPass) fenceFirst(theirs *orbit.Plan) {
	if len(p.standIns) == 0 {
		return
	}
	for i := range theirs.Proposals {
		for _, do := range theirs.Proposals[i].Do {
			if place, ok := do.(orbit.Place); ok && p.standIns[place.Capsule] != nil {
				p.fence.start(&theirs.Proposals[i], p.group(p.standIns[place.Capsule].Spec.Group), place.Capsule)
			}
		}
	}
	for i, u := range theirs.Unplaced {
		if u.Capsule != nil && p.standIns[u.Capsule.ID] != nil {
			theirs.Unplaced[i].Capsule = p.standIns[u.Capsule.ID]
		}
	}
}
