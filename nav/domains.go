package nav

import "github.com/orbitsched/orbit"

// domainTable is one topology level: which domain each node is in, and the nodes of each domain. Domains are numbered
// as they come; one that has lost its last node keeps its number.
//
// Invariant: node i is in domains[of[i]].nodes at position at[i], or of[i] is -1 and it is in none.
type domainTable struct {
	level   string
	of      []int32
	at      []int32
	domains []domain
	number  map[string]int32
	// Domains that have nodes.
	live int
	// By the clock of who keeps it: when a node last came into a domain or left one, and when it was last used.
	version, used uint64
}

// domain is a value of a level's label and the nodes that carry it, in no order.
type domain struct {
	name  string
	nodes []int32
}

// put files a node under the domain of this name, or under none if it is not in one. It reports whether that has
// changed.
func (t *domainTable) put(i int32, name string, in bool) (moved bool) {
	for int(i) >= len(t.of) {
		t.of, t.at = append(t.of, -1), append(t.at, 0)
	}
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
		if t.number == nil {
			t.number = map[string]int32{}
		}
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

// shared returns the domain that the nodes with these n ids are all in, -1 if there is none.
func (t *domainTable) shared(state *orbit.State, n int, id func(k int) orbit.NodeID) int32 {
	d := int32(-1)
	for k := range n {
		node := state.Node(id(k))
		if node == nil || t.of[node.Index()] < 0 || k > 0 && t.of[node.Index()] != d {
			return -1
		}
		d = t.of[node.Index()]
	}
	return d
}
