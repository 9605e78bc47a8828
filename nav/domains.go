package nav

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// topology says in which domain each node of a draft is, for every level that was asked for. It follows the draft at the
// cost of what has changed.
type topology struct {
	draft  *orbit.Draft
	cursor uint64
	tables map[string]*domainTable
	// By node index: what the node was filed by.
	filed []*orbit.Node
	// How often nodes have come into domains or left them.
	moves uint64
	// The longest name that a domain can have; nodes with a longer one are in none.
	longest int
}

// maxTables is how many tables are kept from plan to plan. With more, all are made anew when they are asked for.
const maxTables = 32

// begin starts a plan on a draft, on which names of domains have at most so many bytes. It reports whether tables were
// forgotten: all, because there are many, or those of which most domains have no nodes any more.
func (t *topology) begin(draft *orbit.Draft, longest int) (forgotten bool) {
	if t.tables == nil || len(t.tables) > maxTables || longest != t.longest {
		t.tables, forgotten = map[string]*domainTable{}, true
	}
	t.draft, t.longest = draft, longest
	for key, table := range t.tables {
		if table.sparse() {
			delete(t.tables, key)
			forgotten = true
		}
	}
	return forgotten
}

// follow files the nodes that the draft has changed since the last call, and returns their indices. One may be named
// twice.
func (t *topology) follow() []int32 {
	changed, next, all := t.draft.Changed(t.cursor)
	t.cursor = next
	if more := t.draft.Bound() - len(t.filed); more > 0 {
		t.filed = append(t.filed, make([]*orbit.Node, more)...)
		for _, table := range t.tables { // in any order
			table.grow(len(t.filed))
		}
	}
	if all {
		changed = make([]int32, len(t.filed))
		for i := range changed {
			changed[i] = int32(i)
		}
	}
	for _, i := range changed {
		var node *orbit.Node
		if n := t.draft.Node(int(i)); n != nil {
			node = n.Node
		}
		moved := t.filed[i] != node
		t.filed[i] = node
		for _, table := range t.tables {
			table.forgetFree(i)
			if moved {
				t.file(table, i)
			}
		}
	}
	return changed
}

// file puts a node into its domain of a table.
func (t *topology) file(table *domainTable, i int32) {
	name, in := "", t.filed[i] != nil
	if in {
		name, in = domainName(t.filed[i], table.levels, t.longest)
	}
	if table.put(i, name, in) {
		t.moves++
		table.version = t.moves
		table.forgetFree(i)
	}
}

// table returns the domains of a level. Those of several levels together are of nodes that are in the same domain at
// each; without a level all nodes are one domain. A new table costs a look at all nodes.
func (t *topology) table(levels ...string) *domainTable {
	key := fmt.Sprintf("%q", levels)
	table := t.tables[key]
	if table == nil {
		table = &domainTable{levels: levels}
		t.tables[key] = table
		for i := range t.filed {
			t.file(table, int32(i))
		}
	}
	return table
}

// domainName names the domain that a node is in. It reports false if the node is in none: of the levels it has no label
// that is not empty, nor too long.
func domainName(n *orbit.Node, levels []string, longest int) (name string, in bool) {
	if len(levels) == 0 {
		return "", true
	}
	names := make([]string, len(levels))
	for i, level := range levels {
		if value := n.Labels[level]; len(value) <= longest {
			names[i] = value
			in = in || value != ""
		}
	}
	if len(names) == 1 {
		return names[0], in
	}
	return fmt.Sprintf("%q", names), in
}

// domainTable says which domain each node is in, and which nodes each domain has. Domains are numbered as they come; one
// that has lost its last node keeps its number.
//
// Invariant: node i is in domains[of[i]].nodes at position at[i], or of[i] is -1 and it is in none.
type domainTable struct {
	levels  []string
	of      []int32
	at      []int32
	domains []domain
	number  map[string]int32
	// Domains that have nodes.
	live int
	// How often nodes of the topology had moved when one last came into a domain here or left it.
	version uint64
}

// domain is a value of a level's label and the nodes that carry it, in no order.
type domain struct {
	name  string
	nodes []int32
	// What is free on all of the nodes that take new work, if it is known.
	free  quantities
	known bool
}

// level is the only level of the table, empty if all nodes are one domain.
func (t *domainTable) level() string {
	if len(t.levels) == 0 {
		return ""
	}
	return t.levels[0]
}

// put files a node under the domain of this name, or under none if it is not in one. It reports whether that has
// changed.
func (t *domainTable) put(i int32, name string, in bool) (moved bool) {
	t.grow(int(i) + 1)
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

// grow extends the table to a number of node indices.
func (t *domainTable) grow(nodes int) {
	for len(t.of) < nodes {
		t.of, t.at = append(t.of, -1), append(t.at, 0)
	}
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
	in := &t.domains[t.of[i]]
	last := in.nodes[len(in.nodes)-1]
	in.nodes[t.at[i]], t.at[last] = last, t.at[i]
	in.nodes = in.nodes[:len(in.nodes)-1]
	if t.of[i] = -1; len(in.nodes) == 0 {
		t.live--
	}
}

// sparse reports whether most of the domains that the table knows have no nodes any more.
func (t *domainTable) sparse() bool { return len(t.domains) > 2*t.live+64 }

// forgetFree forgets what is free in the domain of a node.
func (t *domainTable) forgetFree(i int32) {
	if t.of[i] >= 0 {
		t.domains[t.of[i]].known = false
	}
}

// free returns what is free in a domain, until the next change.
func (t *domainTable) free(draft *orbit.Draft, d int) *quantities {
	in := &t.domains[d]
	if in.known {
		return &in.free
	}
	in.free, in.known = quantities{}, true
	for _, i := range in.nodes {
		if n := draft.Node(int(i)); n.Node.Schedulable() {
			for k, free := range measureFree(n) {
				in.free[k] = addFree(in.free[k], free)
			}
		}
	}
	return &in.free
}

// shared returns the domain that nodes with these ids are all in, -1 if there is none.
func (t *domainTable) shared(state *orbit.State, ids []orbit.NodeID) int32 {
	if len(ids) == 0 || slices.ContainsFunc(ids, func(id orbit.NodeID) bool { return state.Node(id) == nil }) {
		return -1
	}
	d := t.of[state.Node(ids[0]).Index()]
	for _, id := range ids {
		if t.of[state.Node(id).Index()] != d {
			return -1
		}
	}
	return d
}
