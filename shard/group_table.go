package shard

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// table is what Groups has read from the ledger: the nodes, their owners, and the living schedulers. It follows the
// ledger's changes.
//
// Invariants: every node, and every node that has a mark, has a member. Due contains every member that needs a change
// of marks or is in a handoff, and may contain others. All and largest count the open members only.
type table struct {
	ledger     orbit.Ledger
	leases     *lease.Keeper
	schedulers []string

	state   *orbit.State
	members map[orbit.NodeID]*member
	groups  map[string]*group
	due     map[*member]bool
	all     tally
	largest largest
}

// follow brings the table up to the ledger's current state.
func (t *table) follow(ctx context.Context) error {
	state, changes, whole, err := t.state.CatchUp(ctx, t.ledger)
	switch {
	case err != nil:
		return err
	case whole:
		t.rebuild(state)
	case state != t.state:
		t.state = state
		t.absorb(changes)
	}
	return nil
}

// rebuild reads all nodes and marks. It keeps the times at which owners were asked.
func (t *table) rebuild(state *orbit.State) {
	before := t.members
	t.state = state
	t.members, t.groups, t.due = map[orbit.NodeID]*member{}, map[string]*group{}, map[*member]bool{}
	t.all, t.largest = tally{}, largest{}
	t.refreshMembership()
	for n := range state.Nodes() {
		t.updateNode(n.Node.ID)
	}
	for _, kind := range markOrder {
		for key := range state.Marks(string(kind)) {
			if id, ok := kind.id(key); ok {
				t.relearn(orbit.NodeID(id))
			}
		}
	}
	for id, was := range before {
		if m := t.members[id]; m != nil && m.next() == was.next() {
			m.asked = was.asked
		}
	}
}

// absorb applies changes to the table.
func (t *table) absorb(changes []orbit.Change) {
	seen := map[orbit.NodeID]bool{}
	members := false
	for i := range changes {
		c := &changes[i]
		if _, id, ok := nodeOfMark(c); ok {
			t.relearn(id)
		} else if mark, ok := c.Do.(orbit.Mark); ok {
			members = members || t.leases != nil && strings.HasPrefix(mark.Key, t.leases.Key(""))
		} else if c.Node != "" && !seen[c.Node] {
			seen[c.Node] = true
			t.updateNode(c.Node)
		}
	}
	if members {
		t.refreshMembership()
	}
}

// refreshMembership reads which schedulers live. The nodes of one that has appeared or died are filed anew, because
// something may have to be done with them.
func (t *table) refreshMembership() {
	live := map[string]bool{}
	for _, name := range t.living() {
		live[name] = true
		t.group(name)
	}
	for _, name := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[name]
		if g.live == live[name] {
			continue
		}
		g.live = live[name]
		for _, m := range g.sorted() {
			t.file(m)
		}
		if !g.live && len(g.held) == 0 {
			delete(t.groups, name)
		}
	}
}

// living lists the schedulers that live, sorted.
func (t *table) living() (names []string) {
	if t.leases == nil {
		return sortedNames(t.schedulers)
	}
	names = schedulersIn(t.state, t.leases)
	if len(t.schedulers) > 0 {
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(t.schedulers, name) })
	}
	return names
}

// alive lists the groups of the living schedulers, sorted by name.
func (t *table) alive() (out []*group) {
	for _, name := range slices.Sorted(maps.Keys(t.groups)) {
		if g := t.groups[name]; g.live {
			out = append(out, g)
		}
	}
	return out
}

// lives reports whether a scheduler lives.
func (t *table) lives(name string) bool {
	return name != "" && t.groups[name] != nil && t.groups[name].live
}

// group returns the group of a scheduler, and makes one if there is none.
func (t *table) group(name string) *group {
	g := t.groups[name]
	if g == nil {
		g = newGroup(name)
		t.groups[name] = g
	}
	return g
}

// member returns the record of a node, and makes one if there is none.
func (t *table) member(id orbit.NodeID) *member {
	m := t.members[id]
	if m == nil {
		m = &member{id: id}
		t.members[id] = m
	}
	return m
}

// updateNode updates a member from the node's record in the state.
func (t *table) updateNode(id orbit.NodeID) {
	m := t.member(id)
	t.unfile(m)
	m.setNode(t.state.Node(id))
	t.file(m)
}

// relearn updates a member from its marks in the state.
func (t *table) relearn(id orbit.NodeID) {
	t.mark(t.member(id), func(m *member) { m.learn(t.state) })
}

// mark changes a member's marks and files the member anew.
func (t *table) mark(m *member, change func(*member)) {
	t.unhold(m)
	change(m)
	for _, name := range []string{m.owner(), m.next()} {
		if name != "" {
			t.group(name).held[m] = true
		}
	}
	t.file(m)
}

// unhold removes a member from the groups of the schedulers that its marks name. An empty group of a scheduler that
// does not live is forgotten.
func (t *table) unhold(m *member) {
	t.unfile(m)
	for _, name := range []string{m.owner(), m.next()} {
		if g := t.groups[name]; g != nil {
			if delete(g.held, m); len(g.held) == 0 && !g.live {
				delete(t.groups, name)
			}
		}
	}
}

// unfile removes a member from the sums of the table and of its group.
func (t *table) unfile(m *member) {
	if m.in != nil {
		m.in.discount(m)
	}
	if m.counted {
		t.all.sub(&m.load)
		t.largest.sub(&m.load)
		m.counted = false
	}
}

// file adds a member to the sums of the table and of its group, and to due if something may have to be done with it.
func (t *table) file(m *member) {
	t.unfile(m)
	delete(t.due, m)
	if !m.there && !m.marked() {
		delete(t.members, m.id)
		return
	}
	home := ""
	for _, name := range []string{m.next(), m.owner()} {
		if home == "" && t.lives(name) {
			home = name
		}
	}
	m.fresh = !t.lives(m.owner())
	if m.open {
		t.all.add(&m.load)
		t.largest.add(&m.load)
		m.counted = true
	}
	moving := m.marks[1].at != 0 || m.marks[2].at != 0
	if m.open && home != "" {
		t.groups[home].count(m, moving || m.fresh)
	}
	if moving || m.open && m.fresh || m.owner() != "" && (!m.there || m.fresh) {
		t.due[m] = true
	}
}

// sorted lists the members, sorted by id.
func (g *group) sorted() []*member {
	return slices.SortedFunc(maps.Keys(g.held), func(a, b *member) int { return cmp.Compare(a.id, b.id) })
}
