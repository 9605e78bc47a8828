package nav

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// The dimensions that the bound of [Batch] counts: those of [orbit.Resources], all devices together in milli, the
// device instances of which one capsule can take more than a half (only one such capsule fits on an instance), and the
// idle instances.
const (
	halfDim  = seats.DevicesDim + 1
	idleDim  = seats.DevicesDim + 2
	packDims = seats.DevicesDim + 3
)

// packResources has an amount of each of these dimensions.
type packResources [packDims]int64

// inventory has the free capacity of the nodes, and the classes that want it.
type inventory struct {
	classes []classDemand
	// constraints has one spec for all specs with the same requirements on labels and device models.
	constraints []*orbit.Spec
	kinds       []nodeKind
}

// classDemand is the demand of one class.
type classDemand struct {
	spec *orbit.Spec
	want packResources
	// count is the number of capsules, at most as many as all nodes would take if the class were alone.
	count int
	// constraint is the index of its spec in inventory.constraints.
	constraint int
}

// freeNode is the free capacity of a node and of each of its devices, the largest first. suits has a byte for each
// constraint: whether the node meets it.
type freeNode struct {
	suits   string
	free    packResources
	devices [orbit.MaxDevices]int16
}

// alikeNodes is a number of nodes with exactly the same free capacity.
type alikeNodes struct {
	freeNode
	nodes int
}

// nodeKind is a set of nodes with nearly the same free capacity. Its free capacity is the sum, and it takes a class if
// one of its nodes does.
type nodeKind struct {
	suits   []bool
	sum     [packDims]float64
	most    packResources
	devices [orbit.MaxDevices]int16
}

// Bounds of the linear program: kinds of nodes, groups of classes, pairs of both, and pivots for each row (it needs one
// or two).
const (
	maxKinds   = 64
	maxGroups  = 128
	maxColumns = 2048
	maxPivots  = 8
)

// newInventory reads all nodes.
func newInventory(nodes iter.Seq[*orbit.NodeState], classes []*batchClass) *inventory {
	v := &inventory{classes: make([]classDemand, len(classes))}
	numbers := map[string]int{}
	for i, c := range classes {
		text := fmt.Sprintf("%#v %#v %t %q", c.spec.Require, c.spec.Tolerate, c.spec.Devices.Count > 0, c.spec.Devices.Models)
		number, known := numbers[text]
		if !known {
			number = len(v.constraints)
			numbers[text] = number
			v.constraints = append(v.constraints, c.spec)
		}
		v.classes[i] = classDemand{spec: c.spec, want: packWant(c.spec), constraint: number}
	}
	alike := v.alike(nodes)
	for i := range v.classes {
		v.classes[i].count = fitAlone(alike, &v.classes[i], len(classes[i].capsules))
	}
	limit := min(max(maxColumns/max(len(classes), 1), maxColumns/maxGroups), maxKinds)
	for _, members := range coarsest(alike, limit, (*alikeNodes).key) {
		v.kinds = append(v.kinds, newKind(members))
	}
	return v
}

// packWant returns the resources of one capsule of the spec.
func packWant(spec *orbit.Spec) (want packResources) {
	copy(want[:], spec.Envelope.Reservation[:])
	if r := &spec.Devices; r.Count > 0 {
		want[seats.DevicesDim] = int64(r.Count) * int64(r.Milli)
		if r.Milli > seats.WholeDevice/2 {
			want[halfDim] = int64(r.Count)
		}
		if r.Milli == seats.WholeDevice {
			want[idleDim] = int64(r.Count)
		}
	}
	return want
}

// packFree returns the free resources of a node.
func packFree(n *orbit.NodeState) (f freeNode) {
	free := seats.MeasureFree(n)
	copy(f.free[:], free[:])
	for i := range n.Node.Devices.Count {
		milli := n.DeviceFree(i)
		f.devices[i] = int16(milli)
		f.free[halfDim] += int64(milli / (seats.WholeDevice/2 + 1))
		f.free[idleDim] += int64(milli / seats.WholeDevice)
	}
	slices.SortFunc(f.devices[:], func(a, b int16) int { return int(b - a) })
	return f
}

// alike counts the nodes with the same free capacity. It ignores resources that no class can use, and nodes that have
// too little for every class.
func (v *inventory) alike(nodes iter.Seq[*orbit.NodeState]) (out []alikeNodes) {
	least, most := v.extremes()
	known := map[freeNode]int{}
	suiting := make([]byte, len(v.constraints))
next:
	for n := range nodes {
		if !n.Node.Schedulable() {
			continue
		}
		f := packFree(n)
		for d := range f.free {
			if f.free[d] < least[d] {
				continue next
			}
			if most[d] == 0 {
				f.free[d] = 0
			}
		}
		if most[seats.DevicesDim] == 0 {
			f.devices = [orbit.MaxDevices]int16{}
		}
		for i, spec := range v.constraints {
			suiting[i] = byte(btoi(seats.Suits(n.Node, spec)))
		}
		f.suits = string(suiting)
		at, found := known[f]
		if !found {
			at = len(out)
			known[f] = at
			out = append(out, alikeNodes{freeNode: f})
		}
		out[at].nodes++
	}
	return out
}

// extremes returns the smallest and the largest amount of each resource that any capsule wants.
func (v *inventory) extremes() (least, most packResources) {
	for i := range v.classes {
		for d, want := range v.classes[i].want {
			if i == 0 || want < least[d] {
				least[d] = want
			}
			most[d] = max(most[d], want)
		}
	}
	return least, most
}

// fitAlone returns how many capsules of a class all nodes would take if it were alone; at most limit.
func fitAlone(alike []alikeNodes, c *classDemand, limit int) (n int) {
	for i := range alike {
		a := &alike[i]
		if a.suits[c.constraint] == 0 || n >= limit {
			continue
		}
		each := fitFree(&a.free, &a.devices, c, limit)
		if each > 0 && a.nodes > (limit-n)/each {
			return limit
		}
		n += each * a.nodes
	}
	return n
}

// fitFree returns how many capsules of a class fit into an amount of free capacity if each dimension is considered
// alone; at most limit.
func fitFree(free *packResources, devices *[orbit.MaxDevices]int16, c *classDemand, limit int) int {
	if q := &c.spec.Devices; q.Count > 0 && int(devices[q.Count-1]) < q.Milli {
		return 0
	}
	for d, want := range c.want {
		if want > 0 {
			limit = int(min(int64(limit), free[d]/want))
		}
	}
	return limit
}

// coarseKey is the key by which coarsest groups items.
type coarseKey struct {
	suits   string
	amounts packResources
}

func (a *alikeNodes) key() coarseKey { return coarseKey{a.suits, a.free} }

func (c *classDemand) key() coarseKey { return coarseKey{strconv.Itoa(c.constraint), c.want} }

// coarsest merges items with the same key. While there are more groups than the limit, it compares fewer leading bits
// of the amounts, then none, and at last merges everything.
func coarsest[T any](items []T, limit int, key func(*T) coarseKey) (groups [][]*T) {
	for _, keep := range coarseBits {
		groups = groups[:0]
		known := map[coarseKey]int{}
		for i := range items {
			k := coarseKey{}
			if keep >= 0 {
				k = key(&items[i])
				for d, v := range k.amounts {
					k.amounts[d] = coarse(v, keep)
				}
			}
			at, found := known[k]
			if !found {
				at = len(groups)
				known[k] = at
				groups = append(groups, nil)
			}
			groups[at] = append(groups[at], &items[i])
		}
		if len(groups) <= limit {
			break
		}
	}
	return groups
}

// coarseBits are the numbers of leading bits that are compared, in turn: all, fewer and fewer, none, and at last not
// even the suits.
var coarseBits = []int{64, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1}

// coarse keeps that many leading bits of v, which must not be below 0.
func coarse(v int64, keep int) int64 {
	shift := max(0, bits.Len64(uint64(v))-keep)
	return v >> shift << shift
}

// newKind returns the sum of nodes as a kind.
func newKind(members []*alikeNodes) nodeKind {
	k := nodeKind{suits: make([]bool, len(members[0].suits))}
	for _, a := range members {
		for i := range k.suits {
			k.suits[i] = k.suits[i] || a.suits[i] != 0
		}
		for d, free := range a.free {
			k.sum[d] += float64(a.nodes) * float64(free)
			k.most[d] = max(k.most[d], free)
		}
		for i, milli := range a.devices {
			k.devices[i] = max(k.devices[i], milli)
		}
	}
	return k
}

// takes reports whether a capsule of the class fits one of the nodes.
func (k *nodeKind) takes(c *classDemand) bool {
	return k.suits[c.constraint] && fitFree(&k.most, &k.devices, c, 1) > 0
}
