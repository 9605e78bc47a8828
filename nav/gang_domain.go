package nav

import "github.com/orbitsched/orbit"

// domainTable is one topology level: which domain each node is in, and the nodes of each domain.
//
// Invariant: node i is in domains[of[i]].nodes at position at[i], or of[i] is -1 and it is in none. The
// version changes whenever a node comes into a domain or leaves one.
type domainTable struct {
	// The label; empty: all nodes are one domain.
	level   string
	of      []int32
	at      []int32
	domains []domain
	number  map[string]int32
	version uint64
	// Domains that have nodes.
	live int
	// The plan that last used it.
	used uint64
}

// domain is a value of a level's label and the nodes that carry it, in no order.
type domain struct {
	name  string
	nodes []int32
}

// newTable looks at all nodes.
func newTable(level string, b *gangBooks) *domainTable {
	t := &domainTable{level: level, number: map[string]int32{}}
	for i := range b.nodes {
		t.put(int32(i), b.nodes[i].state)
	}
	t.version = b.tick()
	return t
}

// name returns the domain that a node is in, and whether it is in one: a label that is not there or that is
// empty names none.
func (t *domainTable) name(n *orbit.NodeState) (string, bool) {
	if n == nil || t.level == "" {
		return "", n != nil
	}
	name := n.Node.Labels[t.level]
	return name, name != ""
}

// put files a node under its domain, nil under none. It reports whether that has changed.
func (t *domainTable) put(i int32, n *orbit.NodeState) (moved bool) {
	for int(i) >= len(t.of) {
		t.of, t.at = append(t.of, -1), append(t.at, 0)
	}
	name, in := t.name(n)
	was := t.of[i]
	if was >= 0 && in && t.domains[was].name == name || was < 0 && !in {
		return false
	}
	if was >= 0 {
		t.leave(i)
	}
	if in {
		t.join(i, name)
	}
	return true
}

// join adds a node to a domain, which it makes if there is none.
func (t *domainTable) join(i int32, name string) {
	d, known := t.number[name]
	if !known {
		d = int32(len(t.domains))
		t.number[name] = d
		t.domains = append(t.domains, domain{name: name})
	}
	nodes := &t.domains[d].nodes
	if len(*nodes) == 0 {
		t.live++
	}
	t.of[i], t.at[i] = d, int32(len(*nodes))
	*nodes = append(*nodes, i)
}

// leave takes a node out of its domain.
func (t *domainTable) leave(i int32) {
	nodes := &t.domains[t.of[i]].nodes
	last := (*nodes)[len(*nodes)-1]
	(*nodes)[t.at[i]], t.at[last] = last, t.at[i]
	*nodes = (*nodes)[:len(*nodes)-1]
	if t.of[i] = -1; len(*nodes) == 0 {
		t.live--
	}
}

// sparse reports whether most of the domains that the table knows have no nodes any more.
func (t *domainTable) sparse() bool { return len(t.domains) > 2*t.live+64 }
