package shard

// group is the set of nodes that one scheduler owns or is about to own.
//
// Invariants: sum is the sum of the loads of the members that count; each movable one of them is in one cell, once.
type group struct {
	name  string
	live  bool
	sum   tally
	nodes int
	cells []*cell
	known map[shape]*cell
	// fresh is the number of movable nodes without a living owner.
	fresh int
	// held are all nodes with a mark that names the scheduler, as the owner or as the next owner.
	held map[*member]bool
}

// cell is the set of a group's movable nodes of one shape.
type cell struct {
	shape
	members []*member
	// at is the index in the group's cells.
	at int
}

func newGroup(name string) *group {
	return &group{name: name, known: map[shape]*cell{}, held: map[*member]bool{}}
}

// count adds a member to the group's sum, and to the movable nodes unless it is locked.
func (g *group) count(m *member, locked bool) {
	g.sum.add(&m.load)
	g.nodes++
	m.in = g
	if locked {
		return
	}
	s := shapeOf(&m.load, m.fresh)
	c := g.known[s]
	if c == nil {
		c = &cell{shape: s, at: len(g.cells)}
		g.cells = append(g.cells, c)
		g.known[s] = c
	}
	m.cell, m.at = c, len(c.members)
	c.members = append(c.members, m)
	if m.fresh {
		g.fresh++
	}
}

// discount undoes count.
func (g *group) discount(m *member) {
	g.sum.sub(&m.load)
	g.nodes--
	m.in = nil
	c := m.cell
	if c == nil {
		return
	}
	m.cell = nil
	last := c.members[len(c.members)-1]
	c.members[m.at], last.at = last, m.at
	c.members = c.members[:len(c.members)-1]
	if c.fresh {
		g.fresh--
	}
	if len(c.members) > 0 {
		return
	}
	other := g.cells[len(g.cells)-1]
	g.cells[c.at], other.at = other, c.at
	g.cells = g.cells[:len(g.cells)-1]
	delete(g.known, c.shape)
}
