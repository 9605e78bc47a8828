package nav

import (
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
)

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
