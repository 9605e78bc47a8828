package shard

import "github.com/orbitsched/orbit"

// books say who has how much to place. They follow the ledger, and run ahead of it by what has been proposed since.
type books struct {
	owners map[string]*owned
	// By position in the roster.
	live   []*owned
	ladder ladder
	// What has been counted ahead of the ledger.
	ahead []aheadCount
}

type aheadCount struct {
	owner *owned
	count int
}

// owner returns the books of one owner; "" is nobody.
func (b *books) owner(name string) *owned {
	o := b.owners[name]
	if o == nil {
		o = &owned{name: name}
		b.owners[name] = o
	}
	return o
}

// add counts capsules that an owner has more, or less.
func (b *books) add(o *owned, by int) {
	o.count += by
	b.ladder.moved(o)
}

// expect counts what has been proposed to be given to a scheduler, until the ledger tells.
func (b *books) expect(at, count int) {
	b.ahead = append(b.ahead, aheadCount{b.live[at], count})
	b.add(b.live[at], count)
}

// settle takes back what was counted ahead.
func (b *books) settle() {
	for _, a := range b.ahead {
		b.add(a.owner, -a.count)
	}
	b.ahead = b.ahead[:0]
}

// follow takes over what has become of one capsule; either record may be nil.
func (b *books) follow(was, is *orbit.Capsule, state *orbit.State) {
	before, now := was != nil && was.Pending(), is != nil && is.Pending()
	if before && now && was.Owner == is.Owner {
		return
	}
	if before {
		b.add(b.owner(was.Owner), -1)
	}
	if now {
		o := b.owner(is.Owner)
		o.file(is.ID, state)
		b.add(o, 1)
	}
}

// enrol takes over who lives. Owners that have nothing and do not live are forgotten.
func (b *books) enrol(r *roster) {
	for _, o := range b.live {
		o.rung, o.prev, o.next = nil, nil, nil
	}
	b.live = make([]*owned, len(r.names))
	for i, name := range r.names {
		b.live[i] = b.owner(name)
		b.live[i].at = i
	}
	b.ladder.reset(b.live)
	for name, o := range b.owners {
		if o.count == 0 && !r.lives(name) {
			delete(b.owners, name)
		}
	}
}
