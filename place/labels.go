package place

import (
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// labelIndex lists nodes by the values of the labels that nodeKinds leaves out because they have too many values, such as
// a rack or a host name. A spec that requires some of these values is rated on the nodes listed for them; of a spec that
// only prefers them, those nodes are the exceptions that the box index does not bound.
type labelIndex struct {
	// By key and value: the indices of the nodes that carry it, in no order.
	byKey map[string]map[string][]int32
	// By node index: the node whose labels are listed; nil: none.
	listed []*orbit.Node
	// Of the draft's journal.
	cursor uint64
	// Rises when a list has changed.
	version uint64
}

// few is how many nodes are rated one by one for one choice. A spec for which that would take more is served by the box
// index, or ranked.
func (x *labelIndex) few() int { return min(len(x.listed)/8, 512) }

// follow brings the lists up to the draft's nodes. A plan changes no labels, so once after each Sync will do.
func (x *labelIndex) follow(draft *orbit.Draft) {
	if len(x.byKey) == 0 {
		return
	}
	changed, next, all := draft.Changed(x.cursor)
	x.cursor = next
	if all {
		keys := x.byKey
		*x = labelIndex{version: x.version}
		for key := range keys {
			x.add(key, draft)
		}
		return
	}
	for _, i := range changed {
		x.update(i, draft.Node(int(i)))
	}
}

// add begins to list the nodes by a label.
func (x *labelIndex) add(key string, draft *orbit.Draft) {
	if len(x.byKey) == 0 {
		x.byKey = map[string]map[string][]int32{}
		_, x.cursor, _ = draft.Changed(0)
		x.listed = append(x.listed[:0], make([]*orbit.Node, draft.Bound())...)
	}
	if x.byKey[key] != nil {
		return
	}
	x.version++
	values := map[string][]int32{}
	x.byKey[key] = values
	for n := range draft.Nodes() {
		x.listed[n.Index()] = n.Node // as it is listed by every other label, too
		if value, there := n.Node.Labels[key]; there {
			values[value] = append(values[value], int32(n.Index()))
		}
	}
}

// addRequired begins to list the nodes by the labels that a spec requires.
func (x *labelIndex) addRequired(spec *orbit.Spec, draft *orbit.Draft) {
	for i := range spec.Require {
		if p := &spec.Require[i]; p.Op == "In" && len(x.byKey) < maxKeys {
			x.add(p.Key, draft)
		}
	}
}

// update lists a node that has joined, left or changed.
func (x *labelIndex) update(i int32, n *orbit.NodeState) {
	for int(i) >= len(x.listed) {
		x.listed = append(x.listed, nil)
	}
	var now *orbit.Node
	if n != nil {
		now = n.Node
	}
	was := x.listed[i]
	if was == now {
		return
	}
	x.listed[i] = now
	for key, values := range x.byKey {
		from, listed := label(was, key)
		to, there := label(now, key)
		if listed == there && from == to {
			continue
		}
		x.version++
		if listed {
			values[from] = without(values[from], i)
			if len(values[from]) == 0 {
				delete(values, from)
			}
		}
		if there {
			values[to] = append(values[to], i)
		}
	}
}

// label returns a label of a node, which may be nil.
func label(n *orbit.Node, key string) (value string, there bool) {
	if n != nil {
		value, there = n.Labels[key]
	}
	return value, there
}

// without takes an index out of a list, whose order does not matter.
func without(list []int32, i int32) []int32 {
	for at, other := range list {
		if other == i {
			list[at] = list[len(list)-1]
			return list[:len(list)-1]
		}
	}
	return list
}

// candidates appends the nodes among which a spec must be placed because of a label that it requires, or because of where
// its company is. It reports false if no such label is listed, or if too many nodes carry it.
func (x *labelIndex) candidates(out []int32, spec *orbit.Spec, near near) (_ []int32, few bool) {
	least := x.few() + 1
	for i := range spec.Require {
		p := &spec.Require[i]
		values := x.byKey[p.Key]
		if values == nil || p.Op != "In" {
			continue
		}
		if n := countListed(values, p.Values); n < least {
			least, out = n, appendListed(out[:0], values, p.Values)
		}
	}
	if values := x.byKey[near.level]; values != nil && near.domains != nil {
		names := slices.Collect(maps.Keys(near.domains))
		if n := countListed(values, names); n < least {
			least, out = n, appendListed(out[:0], values, names)
		}
	}
	return out, least <= x.few()
}

func countListed(values map[string][]int32, names []string) (n int) {
	for _, name := range names {
		n += len(values[name])
	}
	return n
}

func appendListed(out []int32, values map[string][]int32, names []string) []int32 {
	for _, name := range names {
		out = append(out, values[name]...)
	}
	return out
}

// exceptions lists the nodes that differ from a node without any listed label in a preference of the spec, or in
// being in a domain that it spreads across. It reports false if there are too many.
func (x *labelIndex) exceptions(out []int32, spec *orbit.Spec) (_ []int32, few bool) {
	for i := range spec.Prefer {
		p := &spec.Prefer[i].Predicate
		values := x.byKey[p.Key]
		switch p.Op {
		case "In", "NotIn":
			out = appendListed(out, values, p.Values)
		default:
			without := p.Matches(nil)
			for value, nodes := range values {
				if p.Matches(map[string]string{p.Key: value}) != without {
					out = append(out, nodes...)
				}
				if len(out) > x.few() {
					return out, false
				}
			}
		}
		if len(out) > x.few() {
			return out, false
		}
	}
	out = appendListed(out, x.byKey[spec.Spread.Level], spec.Spread.Names)
	return out, len(out) <= x.few()
}

// excepts reports whether a node would be among the exceptions.
func (x *labelIndex) excepts(n *orbit.Node, spec *orbit.Spec) bool {
	if len(x.byKey) == 0 {
		return false
	}
	for i := range spec.Prefer {
		p := &spec.Prefer[i].Predicate
		if x.byKey[p.Key] != nil && p.Matches(n.Labels) != p.Matches(nil) {
			return true
		}
	}
	return x.byKey[spec.Spread.Level] != nil && spec.SpreadsAcross(n)
}
