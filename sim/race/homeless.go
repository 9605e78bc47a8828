package race

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// homeless returns what waits although it would fit where there is room now; empty: nothing.
func (a *audit) homeless() string {
	if a.pending == 0 {
		return ""
	}
	state, err := a.ledger.Snapshot(background())
	if err != nil {
		return ""
	}
	for _, c := range state.Pending() {
		if c.Gang != "" {
			if g := state.Gang(c.Gang); g != nil && a.gangFits(state, g) {
				return fmt.Sprintf("gang %s", c.Gang)
			}
			continue
		}
		for n := range state.Nodes() {
			if n.Fits(c.Spec) {
				return fmt.Sprintf("capsule %s on %s", c.ID, n.Node.ID)
			}
		}
	}
	return ""
}

// gangFits reports whether there is room for a whole gang in one domain of one of its levels: by taking the first
// node with room for each member, so it may say no where there is.
func (a *audit) gangFits(state *orbit.State, g *orbit.GangState) bool {
	if g.Total() > 0 {
		return false // what falls short is its navigator's business
	}
	levels := g.Gang.Levels
	if len(levels) == 0 || g.Gang.Loose {
		levels = []string{""}
	}
	for _, level := range levels {
		domains := map[string][]*orbit.NodeState{}
		for n := range state.Nodes() {
			if name, ok := n.Node.Labels[level]; ok || level == "" {
				domains[name] = append(domains[name], n)
			}
		}
		for _, nodes := range domains {
			if firstFit(nodes, g.Gang) {
				return true
			}
		}
	}
	return false
}

// firstFit reports whether the nodes take all members of a gang, one after another. Gangs that ask for devices are
// said not to fit.
func firstFit(nodes []*orbit.NodeState, g *orbit.Gang) bool {
	free := make([]orbit.Resources, len(nodes))
	for i, n := range nodes {
		free[i] = n.Free()
	}
	for _, role := range g.Roles {
		for range role.Members {
			at := 0
			for at < len(nodes) && (!nodes[at].Fits(role.Spec) || !within(role.Spec.Envelope.Reservation, free[at])) {
				at++
			}
			if at == len(nodes) || role.Spec.Devices.Count > 0 {
				return false
			}
			for d, want := range role.Spec.Envelope.Reservation {
				free[at][d] -= want
			}
		}
	}
	return true
}

// within reports whether there is enough of everything.
func within(want, free orbit.Resources) bool {
	for d := range want {
		if want[d] > free[d] {
			return false
		}
	}
	return true
}
