package shard

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
)

// loads counts the pending capsules of each owner. It follows the ledger, and counts assignments that the dispatcher
// has proposed but not yet read back.
type loads struct {
	// owners is keyed by owner; "" has the capsules without one.
	owners map[string]*ownerLoad
	// live is indexed by the position in the roster.
	live []*ownerLoad
	// clock is the number of changes of counts so far.
	clock uint64
	// ahead are the proposed assignments that are counted and not yet read back.
	ahead []aheadCount
}

type aheadCount struct {
	owner *ownerLoad
	count int
}

// ownerLoad is the pending capsules of one owner.
type ownerLoad struct {
	name string
	// count is the number of pending capsules.
	count int
	// since is the value of loads.clock when the count last changed.
	since uint64
	// ids are the pending capsules in order of assignment. Some may no longer be pending or may have another owner:
	// check the capsule's record before use.
	ids []orbit.CapsuleID
}

func newLoads() loads { return loads{owners: map[string]*ownerLoad{}} }

// owner returns the load of one owner, and makes one if there is none.
func (l *loads) owner(name string) *ownerLoad {
	o := l.owners[name]
	if o == nil {
		o = &ownerLoad{name: name}
		l.owners[name] = o
	}
	return o
}

// add changes the count of an owner.
func (l *loads) add(o *ownerLoad, by int) {
	l.clock++
	o.count, o.since = o.count+by, l.clock
}

// expect counts proposed assignments to a scheduler until the next state tells whether they were committed.
func (l *loads) expect(at, count int) {
	l.ahead = append(l.ahead, aheadCount{l.live[at], count})
	l.add(l.live[at], count)
}

// forgetExpected undoes all calls of expect.
func (l *loads) forgetExpected() {
	for _, a := range l.ahead {
		l.add(a.owner, -a.count)
	}
	l.ahead = l.ahead[:0]
}

// update counts the change of one capsule from one record to another; either may be nil.
func (l *loads) update(was, is *orbit.Capsule, state *orbit.State) {
	before, now := was != nil && was.Pending(), is != nil && is.Pending()
	if before && now && was.Owner() == is.Owner() {
		return
	}
	if before {
		l.add(l.owner(was.Owner()), -1)
	}
	if now {
		o := l.owner(is.Owner())
		o.file(is.ID, state)
		l.add(o, 1)
	}
}

// register sets the living schedulers. Dead owners without pending capsules are forgotten.
func (l *loads) register(r *roster) {
	l.live = make([]*ownerLoad, len(r.names))
	for i, name := range r.names {
		l.live[i] = l.owner(name)
	}
	for name, o := range l.owners {
		if o.count == 0 && !r.lives(name) {
			delete(l.owners, name)
		}
	}
}

// least returns the position with the fewest pending capsules; among equals the one whose count has not changed for
// longest. There must be at least one position.
func (l *loads) least(positions []int) int {
	return slices.MinFunc(positions, func(a, b int) int {
		return cmp.Or(cmp.Compare(l.live[a].count, l.live[b].count), cmp.Compare(l.live[a].since, l.live[b].since))
	})
}

// file adds a capsule. Outdated ids are dropped when they are the majority.
func (o *ownerLoad) file(id orbit.CapsuleID, state *orbit.State) {
	if len(o.ids) > 2*o.count+64 {
		kept := o.ids[:0]
		seen := make(map[orbit.CapsuleID]bool, o.count)
		for _, id := range o.ids {
			if c := state.Capsule(id); c != nil && c.Pending() && c.Owner() == o.name && !seen[id] {
				seen[id] = true
				kept = append(kept, id)
			}
		}
		clear(o.ids[len(kept):])
		o.ids = kept
	}
	o.ids = append(o.ids, id)
}
