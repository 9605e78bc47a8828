package race

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// homeless returns a pending capsule or gang that fits on the free capacity of the nodes; empty: there is none.
func (a *audit) homeless() string {
	if a.pending == 0 {
		return ""
	}
	state, err := a.ledger.Snapshot(background())
	if err != nil {
		return ""
	}
	rooms := roomsOf(state)
	for _, c := range state.Pending() {
		if c.Gang() != "" {
			if g := state.Gang(c.Gang()); g.Total() == 0 && seatAll(g.Gang, g.Left, rooms, tenantsOf(state)) { // only the navigator of a gang that runs decides whether to top it up
				return fmt.Sprintf("gang %s", c.Gang())
			}
			continue
		}
		for i := range rooms {
			if rooms[i].takes(c.Spec) {
				return fmt.Sprintf("capsule %s on %s", c.ID, rooms[i].ID)
			}
		}
	}
	return ""
}

// seatAll reports whether all members of a gang fit in one of its domains. left returns how many a role has.
func seatAll(g *orbit.Gang, left func(role int) int, rooms []room, tenants []tenant) bool {
	var members []*orbit.Spec
	for i, role := range g.Roles {
		members = append(members, slices.Repeat([]*orbit.Spec{role.Spec}, left(i))...)
	}
	_, where := seatGang(g, rooms, tenants, members)
	return where != nil
}
