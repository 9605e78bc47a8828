package shard

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
)

// loads say which owner has how much to place. They follow the ledger, and run ahead of it by what the dispatcher has
// proposed since.
type loads struct {
	// By owner; "" has what is unassigned.
	owners map[string]*ownerLoad
	// By position in the roster.
	live []*ownerLoad
	// Counts changes of loads.
	clock uint64
	// What has been counted ahead of the ledger.
	ahead []aheadCount
}

type aheadCount struct {
	owner *ownerLoad
	count int
}

// ownerLoad is what one owner has to place.
type ownerLoad struct {
	name string
	// Pending capsules.
	count int
	// When the count changed last, by the clock of the loads.
	since uint64
	// The pending capsules in order of assignment, and some that are not pending any more: look a capsule up before
	// relying on it.
	ids []orbit.CapsuleID
}

func newLoads() loads { return loads{owners: map[string]*ownerLoad{}} }

// owner returns the load of one owner.
func (l *loads) owner(name string) *ownerLoad {
	o := l.owners[name]
	if o == nil {
		o = &ownerLoad{name: name}
		l.owners[name] = o
	}
	return o
}

// add counts capsules that an owner has more, or less.
func (l *loads) add(o *ownerLoad, by int) {
	l.clock++
	o.count, o.since = o.count+by, l.clock
}

// expect counts what has been proposed to be given to a scheduler, until the ledger says whether it has been.
func (l *loads) expect(at, count int) {
	l.ahead = append(l.ahead, aheadCount{l.live[at], count})
	l.add(l.live[at], count)
}

// forgetExpected takes back what was counted ahead.
func (l *loads) forgetExpected() {
	for _, a := range l.ahead {
		l.add(a.owner, -a.count)
	}
	l.ahead = l.ahead[:0]
}

// update takes over what has become of one capsule; either record may be nil.
func (l *loads) update(was, is *orbit.Capsule, state *orbit.State) {
	before, now := was != nil && was.Pending(), is != nil && is.Pending()
	if before && now && was.Owner == is.Owner {
		return
	}
	if before {
		l.add(l.owner(was.Owner), -1)
	}
	if now {
		o := l.owner(is.Owner)
		o.file(is.ID, state)
		l.add(o, 1)
	}
}

// register takes over which schedulers live. Owners that have nothing and do not live are forgotten.
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

// least returns the one of these positions at which the fewest capsules wait; among equals the one whose load has been
// the same for longest. It requires at least one.
func (l *loads) least(positions []int) int {
	return slices.MinFunc(positions, func(a, b int) int {
		return cmp.Or(cmp.Compare(l.live[a].count, l.live[b].count), cmp.Compare(l.live[a].since, l.live[b].since))
	})
}

// file adds a capsule. Void entries are dropped when they are most.
func (o *ownerLoad) file(id orbit.CapsuleID, state *orbit.State) {
	if len(o.ids) > 2*o.count+64 {
		kept := o.ids[:0]
		seen := make(map[orbit.CapsuleID]bool, o.count)
		for _, id := range o.ids {
			if c := state.Capsule(id); c != nil && c.Pending() && c.Owner == o.name && !seen[id] {
				seen[id] = true
				kept = append(kept, id)
			}
		}
		clear(o.ids[len(kept):])
		o.ids = kept
	}
	o.ids = append(o.ids, id)
}
