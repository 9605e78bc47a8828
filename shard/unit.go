package shard

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// unit is what is dispatched together: a capsule that is in no gang, or all members of a gang.
type unit struct {
	id   string
	gang bool
}

// unitOf returns the unit that a capsule belongs to.
func unitOf(c *orbit.Capsule) unit {
	if c.Gang != "" {
		return unit{string(c.Gang), true}
	}
	return unit{id: string(c.ID)}
}

// failedMark returns the kind of the unit's failed mark.
func (u unit) failedMark() markKind {
	if u.gang {
		return failedGangMark
	}
	return failedMark
}

// pinnedMark returns the kind of the unit's pinned mark.
func (u unit) pinnedMark() markKind {
	if u.gang {
		return pinnedGangMark
	}
	return pinnedMark
}

// unitOfKey returns the unit whose failed or pinned mark has this key.
func unitOfKey(key string) (u unit, ok bool) {
	for _, kind := range [...]markKind{failedMark, failedGangMark, pinnedMark, pinnedGangMark} {
		if id, ok := kind.id(key); ok {
			return unit{id, kind == failedGangMark || kind == pinnedGangMark}, true
		}
	}
	return unit{}, false
}

// eachMember calls f with every capsule of the unit that has a record, in the order of the gang, until f returns false.
func (u unit) eachMember(state *orbit.State, f func(*orbit.Capsule) bool) {
	if !u.gang {
		if c := state.Capsule(orbit.CapsuleID(u.id)); c != nil && c.Gang == "" {
			f(c)
		}
		return
	}
	for c := range state.Members(orbit.GangID(u.id)) {
		if !f(c) {
			return
		}
	}
}

// life reports whether any capsule of the unit is pending, and whether all of them have been released for good.
func (u unit) life(state *orbit.State) (pending, gone bool) {
	gone = true
	u.eachMember(state, func(c *orbit.Capsule) bool {
		pending = pending || c.Pending()
		gone = gone && c.Released()
		return !pending
	})
	return pending, gone && !pending
}

// specs returns the specs of the unit's capsules, each once.
func (u unit) specs(state *orbit.State) (specs []*orbit.Spec) {
	if !u.gang {
		if c := state.Capsule(orbit.CapsuleID(u.id)); c != nil && c.Gang == "" {
			specs = append(specs, c.Spec)
		}
		return specs
	}
	g := state.Gang(orbit.GangID(u.id))
	for i := 0; g != nil && i < len(g.Gang.Roles); i++ {
		if spec := g.Gang.Roles[i].Spec; !slices.Contains(specs, spec) {
			specs = append(specs, spec)
		}
	}
	return specs
}
