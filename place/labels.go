package place

import (
	"iter"
	"maps"
	"slices"

	"github.com/google/btree"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cow"
)

// labelIndex lists nodes by the values of labels, such as a rack or a host name. These are the labels that nodeKinds
// leaves out because they have too many values and, if the score has no bounds, the labels that specs require. A spec
// that requires such a value is rated on the nodes listed for it. For a spec that only prefers such values, the nodes
// listed for them are exceptions: the bounds of the search do not hold for them.
type labelIndex struct {
	byKey map[string]*listing
	// Another number whenever a list has changed, and that number at the last review of the labels.
	version, reviewed uint64
	// The owner that may write to the lists. All others copy them first (own).
	owner cow.Owner
	// An exclusive upper bound of the indices of nodes.
	bound int
}

// listing lists the nodes that carry a label, by its value.
type listing struct {
	nodes *btree.BTreeG[listed]
	// The number of different values.
	values int
}

// listed is an entry of a listing: a node, and its value of the label.
type listed struct {
	value string
	slot  int32
}

func newListing() *listing {
	return &listing{nodes: btree.NewG(32, func(a, b listed) bool {
		return a.value < b.value || a.value == b.value && a.slot < b.slot
	})}
}

// first returns the first entry that is not before from.
func (l *listing) first(from listed) (first listed, ok bool) {
	l.nodes.AscendGreaterOrEqual(from, func(e listed) bool {
		first, ok = e, true
		return false
	})
	return first, ok
}

// has reports whether a node with this value is listed.
func (l *listing) has(value string) bool {
	e, ok := l.first(listed{value: value})
	return ok && e.value == value
}

// with calls a function for the nodes that have a value.
func (l *listing) with(value string, each func(slot int32) bool) {
	l.nodes.AscendGreaterOrEqual(listed{value: value}, func(e listed) bool { return e.value == value && each(e.slot) })
}

// few is the largest number of nodes that are rated one by one for a choice. A spec that would take more is served by a
// search or by a tournament.
func (x *labelIndex) few() int { return min(x.bound/8, 512) }

// own makes the lists writable for an owner, as copy-on-write clones unless the owner has them already. Cloning writes
// to the lists that others read, so two calls on one index must not run at the same time.
func (x *labelIndex) own(owner cow.Owner) {
	if x.owner == owner {
		return
	}
	x.owner = owner
	x.byKey = maps.Clone(x.byKey)
	for key, l := range x.byKey {
		x.byKey[key] = &listing{l.nodes.Clone(), l.values}
	}
}

// empty returns an index that lists no nodes yet, by the same labels.
func (x *labelIndex) empty() labelIndex {
	e := labelIndex{version: unique()}
	for key := range x.byKey {
		if e.byKey == nil {
			e.byKey = map[string]*listing{}
		}
		e.byKey[key] = newListing()
	}
	return e
}

// add makes the index list the nodes by a label.
func (x *labelIndex) add(key string, nodes *nodeIndex) {
	if x.byKey[key] != nil {
		return
	}
	if x.byKey == nil {
		x.byKey = map[string]*listing{}
	}
	x.version = unique()
	l := newListing()
	x.byKey[key] = l
	nodes.nodes(func(slot int32, m *member) bool {
		l.add(m.node, key, slot)
		return true
	})
}

func (l *listing) add(n *orbit.Node, key string, slot int32) {
	if value, there := label(n, key); there {
		l.values += btoi(!l.has(value))
		l.nodes.ReplaceOrInsert(listed{value, slot})
	}
}

func (l *listing) drop(n *orbit.Node, key string, slot int32) {
	if value, there := label(n, key); there {
		l.nodes.Delete(listed{value, slot})
		l.values -= btoi(!l.has(value))
	}
}

// count returns the number of different values of a label; 0 if nodes are not listed by it.
func (x *labelIndex) count(key string) int {
	if l := x.byKey[key]; l != nil {
		return l.values
	}
	return 0
}

// addRequired makes the index list the nodes by the labels that a spec requires.
func (x *labelIndex) addRequired(spec *orbit.Spec, nodes *nodeIndex) {
	for i := range spec.Require {
		p := &spec.Require[i]
		for _, term := range slices.Concat(p.Terms, [][]orbit.Predicate{{*p}}) {
			for k := range term {
				if term[k].Op == "In" && len(x.byKey) < maxKeys {
					x.add(term[k].Key, nodes)
				}
			}
		}
	}
}

// update corrects the lists for a node that has joined (was is nil), left (now is nil) or changed.
func (x *labelIndex) update(slot int32, was, now *orbit.Node) {
	x.bound = max(x.bound, int(slot)+1)
	for key, l := range x.byKey {
		from, listed := label(was, key)
		to, there := label(now, key)
		if listed == there && from == to {
			continue
		}
		x.version = unique()
		l.drop(was, key, slot)
		l.add(now, key, slot)
	}
}

// label returns the value of a label of a node, which may be nil. The label [orbit.NodeKey] is the id of the node.
func label(n *orbit.Node, key string) (value string, there bool) {
	switch {
	case n == nil:
	case key == orbit.NodeKey:
		return string(n.ID), n.ID != ""
	default:
		value, there = n.Labels[key]
	}
	return value, there
}

// candidates appends the only nodes on which a spec can be placed, because of a label that it requires or because of
// the group that it must be near. It reports false if nodes are not listed by such a label, or if too many nodes carry
// it.
func (x *labelIndex) candidates(out []int32, spec *orbit.Spec, near *near) (_ []int32, few bool) {
	least := x.few() + 1
	narrow := func(l *listing, names []string) {
		if n := l.count(names, least); n < least {
			least, out = n, l.list(out[:0], names)
		}
	}
	for i := range spec.Require {
		p := &spec.Require[i]
		if x.byKey[p.Key] != nil && p.Op == "In" {
			narrow(x.byKey[p.Key], p.Values)
		}
		if p.Op == "AnyOf" {
			if among, n := x.alternatives(p, least); n < least {
				least, out = n, append(out[:0], among...)
			}
		}
	}
	if l := x.byKey[near.level]; l != nil && near.domains != nil {
		narrow(l, slices.Collect(maps.Keys(near.domains)))
	}
	return out, least <= x.few()
}

// alternatives returns the nodes on which a requirement with several alternative terms can hold, and how many they are.
// It returns the limit if there is a term without a listed label, or if there are at least as many nodes.
func (x *labelIndex) alternatives(p *orbit.Predicate, limit int) (among []int32, n int) {
	for _, term := range p.Terms {
		var narrowest *orbit.Predicate
		least := limit - len(among)
		for i := range term {
			if l := x.byKey[term[i].Key]; l != nil && term[i].Op == "In" {
				if n := l.count(term[i].Values, least); n < least {
					least, narrowest = n, &term[i]
				}
			}
		}
		if narrowest == nil {
			return nil, limit
		}
		among = x.byKey[narrowest.Key].list(among, narrowest.Values)
	}
	slices.Sort(among)
	among = slices.Compact(among)
	return among, len(among)
}

// count returns how many nodes have one of these values, but stops at a limit.
func (l *listing) count(names []string, limit int) (n int) {
	for _, name := range names {
		l.with(name, func(int32) bool { n++; return n < limit })
	}
	return n
}

// list appends the nodes that have one of these values.
func (l *listing) list(out []int32, names []string) []int32 {
	for _, name := range names {
		l.with(name, func(slot int32) bool {
			out = append(out, slot)
			return true
		})
	}
	return out
}

// differing appends the nodes for which a predicate holds although it does not for a node without the label, or the
// other way round. It stops when there is one node more than a limit.
func (l *listing) differing(out []int32, p *orbit.Predicate, limit int) []int32 {
	without, value, answer := p.Matches(nil), "", false
	l.nodes.Ascend(func(e listed) bool {
		// Entries are sorted by value, so the predicate is evaluated once for each value.
		if e.value != value || e.value == "" {
			value, answer = e.value, p.On(&orbit.Node{ID: orbit.NodeID(e.value), Labels: map[string]string{p.Key: e.value}})
		}
		if answer != without {
			out = append(out, e.slot)
		}
		return len(out) <= limit
	})
	return out
}

// exceptions lists the nodes to which the bounds of the spec do not apply. Bounds are computed for a node without any
// listed label; these nodes differ from it in a preference of the spec, or are in a domain across which the spec is
// spread. It reports false if there are too many.
func (x *labelIndex) exceptions(out []int32, spec *orbit.Spec) (_ []int32, few bool) {
	for p := range preferred(spec) {
		l := x.byKey[p.Key]
		switch {
		case l == nil:
		case p.Op == "In" || p.Op == "NotIn":
			if l.count(p.Values, x.few()+1) > x.few() {
				return out, false
			}
			out = l.list(out, p.Values)
		default:
			out = l.differing(out, p, x.few())
		}
		if len(out) > x.few() {
			return out, false
		}
	}
	if l := x.byKey[spec.Spread.Level]; l != nil {
		if l.count(spec.Spread.Names, x.few()+1) > x.few() {
			return out, false
		}
		out = l.list(out, spec.Spread.Names)
	}
	return out, len(out) <= x.few()
}

// excepts reports whether exceptions would list a node.
func (x *labelIndex) excepts(n *orbit.Node, spec *orbit.Spec) bool {
	if len(x.byKey) == 0 {
		return false
	}
	for p := range preferred(spec) {
		if x.byKey[p.Key] != nil && p.On(n) != p.Matches(nil) {
			return true
		}
	}
	return x.byKey[spec.Spread.Level] != nil && spec.SpreadsAcross(n)
}

// preferred yields each condition in the preferences of a spec that reads one label: a preference, or the predicates in the
// terms of an AnyOf. Nodes that agree in all of them agree in the preferences.
func preferred(spec *orbit.Spec) iter.Seq[*orbit.Predicate] {
	return func(yield func(*orbit.Predicate) bool) {
		for i := range spec.Prefer {
			p := &spec.Prefer[i].Predicate
			if p.Op != "AnyOf" && !yield(p) {
				return
			}
			for _, term := range p.Terms {
				for k := range term {
					if !yield(&term[k]) {
						return
					}
				}
			}
		}
	}
}
