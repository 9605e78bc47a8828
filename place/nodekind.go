package place

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
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
	// Lists the nodes by the labels that are left out.
	labels labelIndex
	// A node has brought a key that none carried before; and the number of kinds after the last division.
	stale   bool
	divided int
	// One node of every kind.
	like   []*orbit.Node
	byText map[string]int32
	// By node index: its kind, and the node as it was then, nil if there was none.
	of   []int32
	seen []*orbit.Node
	text []byte
}

// maxKinds bounds what has to be decided for every spec.
const maxKinds = 128

// Bounds of what labels are kept in mind: more than so many keys, or keys that no node carries, are left out. When more
// than maxLeftOut are left out, a Sync forgets all.
const (
	maxKeys    = 64
	maxAbsent  = 4096
	maxLeftOut = 1024
)

// learn takes the labels into account that a spec speaks of. It reports whether that tells nodes apart that were
// alike: they have to be divided anew.
func (k *nodeKinds) learn(spec *orbit.Spec, draft *orbit.Draft) bool {
	before := len(k.keys)
	k.learnKey(spec.Spread.Level, draft)
	k.learnKey(spec.Near.Level, draft)
	for i := range spec.Require {
		k.learnKey(spec.Require[i].Key, draft)
	}
	for i := range spec.Prefer {
		k.learnKey(spec.Prefer[i].Key, draft)
	}
	return len(k.keys) != before
}

func (k *nodeKinds) learnKey(key string, draft *orbit.Draft) {
	at, known := slices.BinarySearch(k.keys, key)
	switch {
	case key == "" || known || k.leavesOut(key) || k.absent[key]:
	case !carried(key, draft) && len(k.absent) < maxAbsent:
		if k.absent == nil {
			k.absent = map[string]bool{}
		}
		k.absent[key] = true
	case len(k.keys) < maxKeys:
		k.keys = slices.Insert(k.keys, at, key)
	default: // the nodes are not divided anew for it, so divide does not list it
		k.leaveOut(key, 0)
		k.labels.add(key, draft)
	}
}

// crowded reports whether so many labels are kept in mind beside those that nodes are divided by that it is time to
// forget them all, and to learn again of which ones specs speak.
func (k *nodeKinds) crowded() bool { return len(k.leftOut) > maxLeftOut }

// carried reports whether a node carries a label.
func carried(key string, draft *orbit.Draft) bool {
	for n := range draft.Nodes() {
		if _, there := n.Node.Labels[key]; there {
			return true
		}
	}
	return false
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

// divide finds the kind of every node, leaving out labels until there are few enough kinds.
func (k *nodeKinds) divide(draft *orbit.Draft) {
	for {
		k.stale = false
		if !k.tryDivide(draft) {
			k.leaveOut(k.widest(draft))
		} else if !k.stale {
			break
		}
	}
	k.divided = len(k.like)
	for key := range k.leftOut {
		k.labels.add(key, draft)
	}
}

// tryDivide reports whether there are few enough kinds, or nothing to leave out.
func (k *nodeKinds) tryDivide(draft *orbit.Draft) bool {
	k.like, k.byText = k.like[:0], map[string]int32{}
	k.seen = make([]*orbit.Node, draft.Bound())
	k.of = make([]int32, draft.Bound())
	for n := range draft.Nodes() {
		k.assign(n.Index(), n.Node)
		if len(k.like) > maxKinds && len(k.keys) > 0 {
			return false
		}
	}
	return true
}

// assign finds the kind of one node.
func (k *nodeKinds) assign(i int, n *orbit.Node) int32 {
	for i >= len(k.seen) {
		k.seen, k.of = append(k.seen, nil), append(k.of, 0)
	}
	if k.seen[i] == n {
		return k.of[i]
	}
	k.notice(n)
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

// outgrown reports whether the nodes should be divided anew: there are many kinds more than there were, of which
// some may have no nodes any more, or a label that none carried.
func (k *nodeKinds) outgrown() bool { return k.stale || len(k.like) > 2*k.divided+maxKinds }

// seenAt returns the node that a kind was assigned to last; nil: none.
func (k *nodeKinds) seenAt(slot int32) *orbit.Node {
	if int(slot) >= len(k.seen) {
		return nil
	}
	return k.seen[slot]
}

// describe writes down what makes a node's kind. A label that is absent differs from an empty one.
func (k *nodeKinds) describe(n *orbit.Node) {
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

// widest returns the label with the most values, and how many it has.
func (k *nodeKinds) widest(draft *orbit.Draft) (key string, n int) {
	values := map[string]map[string]bool{}
	for _, key := range k.keys {
		values[key] = map[string]bool{}
	}
	for n := range draft.Nodes() {
		for key := range values {
			values[key][n.Node.Labels[key]] = true
		}
	}
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

// follow lists the nodes by the labels that are left out, as they are after a Sync of the draft. It reports whether some
// label has at most half as many values as when it was left out: then the nodes are to be divided by it again.
func (k *nodeKinds) follow(draft *orbit.Draft) (found bool) {
	k.labels.follow(draft)
	for key, values := range k.leftOut {
		if n := len(k.labels.byKey[key]); n > 0 && n <= values/2 && len(k.keys) < maxKeys {
			delete(k.leftOut, key)
			delete(k.labels.byKey, key)
			at, _ := slices.BinarySearch(k.keys, key)
			k.keys = slices.Insert(k.keys, at, key)
			found = true
		}
	}
	return found
}

// undivided returns a node like this one without the labels that are left out.
func (k *nodeKinds) undivided(like *orbit.Node) *orbit.Node {
	if len(k.leftOut) == 0 {
		return like
	}
	n := *like
	n.Labels = maps.Clone(like.Labels)
	for key := range k.leftOut {
		delete(n.Labels, key)
	}
	return &n
}
