package shard

// group is the nodes that are, or are to be, one scheduler's.
//
// Invariants: sum is the loads of its members that count; cells have those of them that may be moved, each once.
type group struct {
	name  string
	live  bool
	sum   tally
	nodes int
	cells []*cell
	known map[shape]*cell
	// Movable nodes that are fresh.
	fresh int
	// All nodes that a mark connects with the scheduler, as their owner or the one that is to have them.
	held map[*member]bool
}

// cell is the movable nodes of one shape.
type cell struct {
	shape
	members []*member
	// In the group's cells.
	at int
}

func newGroup(name string) *group {
	return &group{name: name, known: map[shape]*cell{}, held: map[*member]bool{}}
}

// count adds a member to what the group has, and to what may be moved unless it is locked.
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

// discount takes a member out again.
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
