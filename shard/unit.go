package shard

import (
	"iter"
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
	if c.Gang() != "" {
		return unit{string(c.Gang()), true}
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

// members yields every capsule of the unit that has a record, in the order of the gang.
func (u unit) members(state *orbit.State) iter.Seq[*orbit.Capsule] {
	if u.gang {
		return state.Members(orbit.GangID(u.id))
	}
	return func(yield func(*orbit.Capsule) bool) {
		if c := state.Capsule(orbit.CapsuleID(u.id)); c != nil && c.Gang() == "" {
			yield(c)
		}
	}
}

// life reports whether any capsule of the unit is pending, and whether all of them have been released for good.
func (u unit) life(state *orbit.State) (pending, gone bool) {
	gone = true
	for c := range u.members(state) {
		if c.Pending() {
			return true, false
		}
		gone = gone && c.Released()
	}
	return false, gone
}

// specs returns the specs of the unit's capsules, each once.
func (u unit) specs(state *orbit.State) (specs []*orbit.Spec) {
	for c := range u.members(state) {
		if !slices.Contains(specs, c.Spec) {
			specs = append(specs, c.Spec)
		}
	}
	return specs
}
