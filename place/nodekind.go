package place

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cow"
)

// nodeKinds divides the nodes by what specs tell them apart by: device model, schedulable or not, and the
// labels that specs speak of. What a spec requires and prefers is decided once for a kind, not for each node.
// A label with too many values (a rack, a host name) is left out; its nodes are listed in a labelIndex.
type nodeKinds struct {
	// Label keys, sorted.
	keys []string
	// Keys that specs speak of and that are left out, with the number of values that each had then, 0 if that was
	// not the reason; and keys that no node carries.
	leftOut map[string]int
	absent  map[string]bool
	// A node has brought a key that none carried before; and the number of kinds after the last division.
	stale   bool
	divided int
	// One node of every kind, by kind. Kinds that were found keep their meaning for as long as the division is the same.
	like     []*orbit.Node
	byText   map[string]int32
	division uint64
	// Who may write to all this, and has a copy for it.
	owner cow.Owner
}

// maxKinds bounds what has to be decided for every spec.
const maxKinds = 128

// Bounds of what labels are kept in mind: more than so many keys, or keys that no node carries, are left out. When more
// than maxLeftOut are left out, all are forgotten.
const (
	maxKeys    = 64
	maxAbsent  = 4096
	maxLeftOut = 1024
)

// own makes the kinds ones that may be written to.
func (k *nodeKinds) own(owner cow.Owner) {
	if k.owner == owner {
		return
	}
	k.owner = owner
	k.keys, k.like = slices.Clone(k.keys), slices.Clip(k.like)
	k.leftOut, k.absent, k.byText = maps.Clone(k.leftOut), maps.Clone(k.absent), maps.Clone(k.byText)
}

// labelKeys calls a function with every label key of which a spec speaks.
func labelKeys(spec *orbit.Spec, each func(key string) bool) bool {
	for i := range spec.Require {
		for key := range spec.Require[i].Keys {
			if !each(key) {
				return false
			}
		}
	}
	for i := range spec.Prefer {
		if !each(spec.Prefer[i].Key) {
			return false
		}
	}
	return each(spec.Spread.Level) && each(spec.Near.Level)
}

// knows reports whether all labels are kept in mind of which a spec speaks.
func (k *nodeKinds) knows(spec *orbit.Spec) bool {
	return labelKeys(spec, func(key string) bool {
		_, known := slices.BinarySearch(k.keys, key)
		return key == "" || known || k.leavesOut(key) || k.absent[key]
	})
}

// learn takes the labels into account that a spec speaks of. If that tells nodes apart that were alike, they have to be
// divided anew.
func (x *nodeIndex) learn(spec *orbit.Spec) {
	if x.kinds.knows(spec) {
		return
	}
	x.kinds.own(x.owner)
	labelKeys(spec, func(key string) bool {
		x.learnKey(key)
		return true
	})
}

func (x *nodeIndex) learnKey(key string) {
	k := &x.kinds
	at, known := slices.BinarySearch(k.keys, key)
	switch {
	case key == "" || known || k.leavesOut(key) || k.absent[key]:
	case len(k.absent) < maxAbsent && !x.carried(key):
		if k.absent == nil {
			k.absent = map[string]bool{}
		}
		k.absent[key] = true
	case len(k.keys) < maxKeys:
		k.keys = slices.Insert(k.keys, at, key)
		x.divides = true
	default: // the nodes are not divided anew for it, so divide does not list it
		k.leaveOut(key, 0)
		x.labels.own(x.owner)
		x.labels.add(key, x)
	}
}

// crowded reports whether so many labels are kept in mind beside those that nodes are divided by that it is time to
// forget them all, and to learn again of which ones specs speak.
func (k *nodeKinds) crowded() bool { return len(k.leftOut) > maxLeftOut }

// carried reports whether a node carries a label.
func (x *nodeIndex) carried(key string) (found bool) {
	if key == orbit.NodeKey {
		return true // every node that comes has one
	}
	x.nodes(func(_ int32, m *member) bool {
		_, found = m.node.Labels[key]
		return !found
	})
	return found
}

// notice looks for labels on a node that none has carried so far.
func (k *nodeKinds) notice(n *orbit.Node) {
	if len(k.absent) == 0 {
		return
	}
	for key := range n.Labels {
		if k.absent[key] {
			delete(k.absent, key)
			k.stale = true
			if at, _ := slices.BinarySearch(k.keys, key); len(k.keys) < maxKeys {
				k.keys = slices.Insert(k.keys, at, key)
			} else {
				k.leaveOut(key, 0)
			}
		}
	}
}

// news reports whether a node carries a label that none has carried so far.
func (k *nodeKinds) news(n *orbit.Node) bool {
	if len(k.absent) > 0 {
		for key := range n.Labels {
			if k.absent[key] {
				return true
			}
		}
	}
	return false
}

// divide finds the kinds of the nodes, leaving out labels until there are few enough kinds.
func (k *nodeKinds) divide(x *nodeIndex) {
	for {
		k.stale = false
		if !k.tryDivide(x) {
			k.leaveOut(k.widest(x))
		} else if !k.stale {
			break
		}
	}
	k.divided, k.division = len(k.like), unique()
}

// tryDivide reports whether there are few enough kinds, or nothing to leave out.
func (k *nodeKinds) tryDivide(x *nodeIndex) bool {
	k.like, k.byText = nil, map[string]int32{}
	few := true
	x.nodes(func(slot int32, m *member) bool {
		x.own(slot).kind = k.assign(m.node)
		few = len(k.like) <= maxKinds || len(k.keys) == 0
		return few
	})
	return few
}

// find returns the kind of a node, if it is known.
func (k *nodeKinds) find(n *orbit.Node) (kind int32, known bool) {
	if k.news(n) {
		return 0, false
	}
	var room [256]byte
	kind, known = k.byText[string(k.describe(room[:0], n))]
	return kind, known
}

// assign finds the kind of a node, a new one if there is none like it.
func (k *nodeKinds) assign(n *orbit.Node) int32 {
	k.notice(n)
	var room [256]byte
	text := k.describe(room[:0], n)
	kind, known := k.byText[string(text)]
	if !known {
		kind = int32(len(k.like))
		k.like = append(k.like, n)
		k.byText[string(text)] = kind
	}
	return kind
}

// outgrown reports whether the nodes should be divided anew: there are many kinds more than there were, of which
// some may have no nodes any more, or a label that none carried.
func (k *nodeKinds) outgrown() bool { return k.stale || len(k.like) > 2*k.divided+maxKinds }

// describe writes down what makes a node's kind. A label that is absent differs from an empty one.
func (k *nodeKinds) describe(text []byte, n *orbit.Node) []byte {
	text = append(text, '0'+byte(btoi(!n.Schedulable())))
	text = word(text, n.Devices.Model)
	for _, key := range k.keys {
		value, there := label(n, key)
		text = append(text, '0'+byte(btoi(there)))
		text = word(text, value)
	}
	return text
}

// word writes a text after its length, which keeps it apart from the next.
func word(text []byte, s string) []byte {
	text = binary.AppendUvarint(text, uint64(len(s)))
	return append(text, s...)
}

// widest returns the label with the most values, and how many it has.
func (k *nodeKinds) widest(x *nodeIndex) (key string, n int) {
	values := map[string]map[string]bool{}
	for _, key := range k.keys {
		values[key] = map[string]bool{}
	}
	x.nodes(func(_ int32, m *member) bool {
		for key := range values {
			value, _ := label(m.node, key)
			values[key][value] = true
		}
		return true
	})
	key = slices.MaxFunc(slices.Sorted(maps.Keys(values)), func(a, b string) int { return len(values[a]) - len(values[b]) })
	return key, len(values[key])
}

// leaveOut stops dividing nodes by a label, which has so many values.
func (k *nodeKinds) leaveOut(key string, values int) {
	if k.leftOut == nil {
		k.leftOut = map[string]int{}
	}
	k.leftOut[key] = values
	k.keys = slices.DeleteFunc(k.keys, func(s string) bool { return s == key })
}

// leavesOut reports whether nodes are not divided by a label although specs speak of it.
func (k *nodeKinds) leavesOut(key string) bool {
	_, out := k.leftOut[key]
	return out
}

// review looks at the labels that are left out. If some label has at most half as many values as when it was left out,
// the nodes are to be divided by it again; if there are too many, all are forgotten.
func (x *nodeIndex) review() {
	if x.kinds.crowded() {
		x.kinds, x.labels, x.divides = nodeKinds{}, labelIndex{version: unique(), bound: x.labels.bound}, true
		return
	}
	if x.labels.reviewed == x.labels.version {
		return
	}
	x.labels.reviewed = x.labels.version
	for key, values := range x.kinds.leftOut {
		if n := x.labels.count(key); n > 0 && n <= values/2 && len(x.kinds.keys) < maxKeys {
			x.kinds.own(x.owner)
			x.labels.own(x.owner)
			delete(x.kinds.leftOut, key)
			delete(x.labels.byKey, key)
			at, _ := slices.BinarySearch(x.kinds.keys, key)
			x.kinds.keys = slices.Insert(x.kinds.keys, at, key)
			x.divides = true
		}
	}
}

// undivided returns a node like this one without the labels that are left out.
func (k *nodeKinds) undivided(like *orbit.Node) *orbit.Node {
	if len(k.leftOut) == 0 {
		return like
	}
	n := *like
	n.Labels = maps.Clone(like.Labels)
	for key := range k.leftOut {
		if delete(n.Labels, key); key == orbit.NodeKey {
			n.ID = ""
		}
	}
	return &n
}
