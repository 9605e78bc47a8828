package orbit

import (
	"encoding/binary"
	"maps"
	"slices"
)

// nodeKinds divides the nodes by what specs tell them apart by: device model, schedulable or not, and the
// labels that specs speak of. What a spec requires and prefers is decided once for a kind, not for each node.
// A label with too many values (a rack, a host name) is left out; it is open, and decided node by node.
type nodeKinds struct {
	// Label keys, sorted; those that specs speak of and are left out.
	keys []string
	open map[string]bool
	// One node of every kind.
	like   []*Node
	byText map[string]int32
	// By node index: its kind, and what it was judged by; nil: no node.
	of   []int32
	seen []*Node
	text []byte
}

// maxKinds bounds how many trees a search starts from.
const maxKinds = 128

// learn takes the labels into account that a spec speaks of. It reports whether there are new ones: the
// nodes have to be divided anew.
func (k *nodeKinds) learn(spec *Spec) bool {
	before := len(k.keys)
	k.learnKey(spec.Spread.Level)
	k.learnKey(spec.Near.Level)
	for i := range spec.Require {
		k.learnKey(spec.Require[i].Key)
	}
	for i := range spec.Prefer {
		k.learnKey(spec.Prefer[i].Key)
	}
	return len(k.keys) != before
}

func (k *nodeKinds) learnKey(key string) {
	if key == "" || k.open[key] {
		return
	}
	if at, known := slices.BinarySearch(k.keys, key); !known {
		k.keys = slices.Insert(k.keys, at, key)
	}
}

// divide finds the kind of every node, leaving out labels until there are few enough kinds.
func (k *nodeKinds) divide(nodes []*NodeState) {
	for !k.tryDivide(nodes) {
		k.leaveOut(k.widest(nodes))
	}
}

// tryDivide reports whether there are few enough kinds, or nothing to leave out.
func (k *nodeKinds) tryDivide(nodes []*NodeState) bool {
	k.like, k.byText = k.like[:0], map[string]int32{}
	k.seen = make([]*Node, len(nodes))
	k.of = make([]int32, len(nodes))
	for i, n := range nodes {
		if n != nil {
			k.assign(i, n.Node)
		}
		if len(k.like) > maxKinds && len(k.keys) > 0 {
			return false
		}
	}
	return true
}

// assign finds the kind of one node.
func (k *nodeKinds) assign(i int, n *Node) int32 {
	for i >= len(k.seen) {
		k.seen, k.of = append(k.seen, nil), append(k.of, 0)
	}
	if k.seen[i] == n {
		return k.of[i]
	}
	k.describe(n)
	kind, known := k.byText[string(k.text)]
	if !known {
		kind = int32(len(k.like))
		k.like = append(k.like, n)
		k.byText[string(k.text)] = kind
	}
	k.seen[i], k.of[i] = n, kind
	return kind
}

// seenAt returns the node that a kind was assigned to last; nil: none.
func (k *nodeKinds) seenAt(slot int32) *Node {
	if int(slot) >= len(k.seen) {
		return nil
	}
	return k.seen[slot]
}

// describe writes down what makes a node's kind. A label that is absent differs from an empty one.
func (k *nodeKinds) describe(n *Node) {
	k.text = append(k.text[:0], '0'+byte(btoi(n.Unschedulable)))
	k.word(n.Devices.Model)
	for _, key := range k.keys {
		value, there := n.Labels[key]
		k.text = append(k.text, '0'+byte(btoi(there)))
		k.word(value)
	}
}

// word writes a text after its length, which keeps it apart from the next.
func (k *nodeKinds) word(s string) {
	k.text = binary.AppendUvarint(k.text, uint64(len(s)))
	k.text = append(k.text, s...)
}

// widest returns the label with the most values.
func (k *nodeKinds) widest(nodes []*NodeState) string {
	values := map[string]map[string]bool{}
	for _, key := range k.keys {
		values[key] = map[string]bool{}
	}
	for _, n := range nodes {
		for key := range values {
			if n != nil {
				values[key][n.Node.Labels[key]] = true
			}
		}
	}
	return slices.MaxFunc(slices.Sorted(maps.Keys(values)), func(a, b string) int { return len(values[a]) - len(values[b]) })
}

// leaveOut makes a label an open one.
func (k *nodeKinds) leaveOut(key string) {
	if k.open == nil {
		k.open = map[string]bool{}
	}
	k.open[key] = true
	k.keys = slices.DeleteFunc(k.keys, func(s string) bool { return s == key })
}

// decides reports whether the kinds decide all that the spec asks of labels.
func (k *nodeKinds) decides(spec *Spec) bool {
	return len(k.open) == 0 || !k.open[spec.Spread.Level] && !k.open[spec.Near.Level] &&
		!slices.ContainsFunc(spec.Require, func(p Predicate) bool { return k.open[p.Key] }) &&
		!slices.ContainsFunc(spec.Prefer, func(p Preference) bool { return k.open[p.Key] })
}
