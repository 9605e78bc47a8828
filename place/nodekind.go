package place

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cow"
)

// nodeKinds divides the nodes into kinds. Nodes of one kind have the same device model, taints and extra resources, the
// same values of all labels that specs name, and are all schedulable or all not. So requirements and preferences of a
// spec are evaluated once for each kind instead of each node. A label with too many values, such as a rack or a host
// name, is left out: a labelIndex lists the nodes by its values.
type nodeKinds struct {
	// The keys of the labels that nodes are divided by, sorted.
	keys []string
	// Keys that specs name but that do not divide the nodes. The map leftOut has the number of values that each key had
	// when it was left out, or 0 if it was left out for another reason; absent has the keys that no node carries.
	leftOut map[string]int
	absent  map[string]bool
	// Stale: a node with an absent key has joined, so the division no longer holds. Divided is the number of kinds
	// after the last division.
	stale   bool
	divided int
	// One node of each kind, by kind; and the number of each kind by the text that describe returns. As long as
	// division is the same, a number stands for the same kind.
	like     []*orbit.Node
	byText   map[string]int32
	division uint64
	// The owner that may write to these maps and slices. All others copy them first (own).
	owner cow.Owner
}

// maxKinds is the number of kinds that a division aims to stay within, because each spec is evaluated once for each
// kind.
const maxKinds = 128

// Bounds of the three sets of keys. When keys or absent is full, a further key is left out. When more than maxLeftOut
// keys are left out, all three sets are emptied, and learned again from the specs that are asked for afterwards.
const (
	maxKeys    = 64
	maxAbsent  = 4096
	maxLeftOut = 1024
)

// own copies the maps and slices for an owner, so that it may write to them, unless it owns them already.
func (k *nodeKinds) own(owner cow.Owner) {
	if k.owner == owner {
		return
	}
	k.owner = owner
	k.keys, k.like = slices.Clone(k.keys), slices.Clip(k.like)
	k.leftOut, k.absent, k.byText = maps.Clone(k.leftOut), maps.Clone(k.absent), maps.Clone(k.byText)
}

// labelKeys calls each with every label key that a spec names, until a call returns false; a key may be empty. It
// reports whether all calls returned true.
func labelKeys(spec *orbit.Spec, each func(key string) bool) bool {
	for i := range spec.Require {
		for key := range spec.Require[i].Keys {
			if !each(key) {
				return false
			}
		}
	}
	for i := range spec.Prefer {
		for key := range spec.Prefer[i].Keys {
			if !each(key) {
				return false
			}
		}
	}
	for i := range spec.Apart {
		if level := spec.Apart[i].Level; level != orbit.NodeKey && !each(level) {
			return false
		}
	}
	for i := range spec.Even {
		if level := spec.Even[i].Level; level != orbit.NodeKey && !each(level) {
			return false
		}
	}
	for i := range spec.PreferCompany {
		if level := spec.PreferCompany[i].Level; level != orbit.NodeKey && !each(level) {
			return false
		}
	}
	for near := range spec.AllNear {
		if near.Level != orbit.NodeKey && !each(near.Level) {
			return false
		}
	}
	return each(spec.Spread.Level)
}

// knows reports whether every label key that a spec names is in one of the three sets of keys.
func (k *nodeKinds) knows(spec *orbit.Spec) bool {
	return labelKeys(spec, func(key string) bool {
		_, known := slices.BinarySearch(k.keys, key)
		return key == "" || known || k.leavesOut(key) || k.absent[key]
	})
}

// divides reports whether the kinds divide the nodes by a label, so that all nodes of a kind have the same value of it.
func (k *nodeKinds) divides(key string) bool {
	_, divided := slices.BinarySearch(k.keys, key)
	return divided
}

// learn adds the label keys that a spec names to the kinds. If nodes of one kind may differ in one of these labels, it
// sets divides, and arrange divides the nodes anew.
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

// learnKey adds a key to one of the three sets of keys, unless it is in one already.
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
	default: // list the nodes by it here: divide does that only when the nodes are divided anew
		k.leaveOut(key, 0)
		x.labels.own(x.owner)
		x.labels.add(key, x)
	}
}

// crowded reports whether too many keys are left out, so that all keys should be forgotten and learned again.
func (k *nodeKinds) crowded() bool { return len(k.leftOut) > maxLeftOut }

// carried reports whether a node carries a label.
func (x *nodeIndex) carried(key string) (found bool) {
	if key == orbit.NodeKey {
		return true // each node has an id
	}
	x.nodes(func(_ int32, m *member) bool {
		_, found = m.node.Labels[key]
		return !found
	})
	return found
}

// notice makes keys that were absent divide the nodes, if a new node carries them. It leaves out the keys for which
// there is no more space.
func (k *nodeKinds) notice(n *orbit.Node) {
	if len(k.absent) == 0 {
		return
	}
	var came []string
	for key := range n.Labels {
		if k.absent[key] {
			came = append(came, key)
		}
	}
	slices.Sort(came) // the same keys are left out each time
	for _, key := range came {
		delete(k.absent, key)
		k.stale = true
		if at, _ := slices.BinarySearch(k.keys, key); len(k.keys) < maxKeys {
			k.keys = slices.Insert(k.keys, at, key)
		} else {
			k.leaveOut(key, 0)
		}
	}
}

// news reports whether a node carries a key that was absent so far.
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

// divide divides all nodes into kinds. As long as there are too many kinds, it leaves out the label with the most
// values.
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

// tryDivide divides all nodes by the present keys. It stops and reports false if there are too many kinds and still a
// key that can be left out.
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

// find returns the kind of a node; false: there is no kind for it yet.
func (k *nodeKinds) find(n *orbit.Node) (kind int32, known bool) {
	if k.news(n) {
		return 0, false
	}
	var room [256]byte
	kind, known = k.byText[string(k.describe(room[:0], n))]
	return kind, known
}

// assign returns the kind of a node, and makes a new kind if there is none for it yet.
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

// outgrown reports whether the nodes should be divided anew. That is so if a node carries a key that was absent, or if
// there are many more kinds than after the last division, some of which may have no nodes any more.
func (k *nodeKinds) outgrown() bool { return k.stale || len(k.like) > 2*k.divided+maxKinds }

// describe appends all properties that decide the kind of a node. A missing label differs from one with an empty value.
func (k *nodeKinds) describe(text []byte, n *orbit.Node) []byte {
	text = append(text, '0'+byte(btoi(!n.Schedulable())))
	text = word(text, n.Devices.Model)
	text = append(text, byte(len(n.Taints)))
	for _, t := range n.Taints {
		text = word(word(word(text, t.Key), t.Value), t.Effect)
	}
	text = append(text, byte(len(n.Extras)))
	for i := range n.Extras {
		text = word(text, n.Extras[i].Name)
	}
	for _, key := range k.keys {
		value, there := label(n, key)
		text = append(text, '0'+byte(btoi(there)))
		text = word(text, value)
	}
	return text
}

// word appends the length of s and then s, so that different sequences of words never make the same text.
func word(text []byte, s string) []byte {
	text = binary.AppendUvarint(text, uint64(len(s)))
	return append(text, s...)
}

// widest returns the key with the most values among the keys that divide the nodes, and the number of these values.
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

// leaveOut stops dividing nodes by a label, and notes the number of its values.
func (k *nodeKinds) leaveOut(key string, values int) {
	if k.leftOut == nil {
		k.leftOut = map[string]int{}
	}
	k.leftOut[key] = values
	k.keys = slices.DeleteFunc(k.keys, func(s string) bool { return s == key })
}

// leavesOut reports whether a label that specs name does not divide the nodes because it was left out.
func (k *nodeKinds) leavesOut(key string) bool {
	_, out := k.leftOut[key]
	return out
}

// review takes labels back that were left out: if a label has at most half as many values as when it was left out, the
// nodes are to be divided by it again. If too many labels are left out, review forgets all keys.
func (x *nodeIndex) review() {
	if x.kinds.crowded() {
		x.kinds, x.labels, x.divides = nodeKinds{}, labelIndex{version: unique(), bound: x.labels.bound}, true
		return
	}
	if x.labels.reviewed == x.labels.version {
		return
	}
	x.labels.reviewed = x.labels.version
	for _, key := range slices.Sorted(maps.Keys(x.kinds.leftOut)) {
		if n := x.labels.count(key); n > 0 && n <= x.kinds.leftOut[key]/2 && len(x.kinds.keys) < maxKeys {
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

// undivided returns a copy of a node without the labels that are left out: what is known of all nodes of its kind.
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
