package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/victims"
)

// victimIndex answers how good the victims on a node can be at best, without a look at the capsules there. For each node it
// knows what is free, and what would be free if all capsules up to a priority left. For each block of nodes it knows the largest
// of these numbers, so that a whole block can be ruled out at once.
//
//	draft ── Changed ──► nodes ──► journal, from which searches learn what has changed
//	                       └─────► blocks
type victimIndex struct {
	draft   *orbit.Draft
	cursor  uint64
	nodes   []victimNode
	blocks  []victimBlock
	journal slotJournal
	clock   uint32
	// How often the capsules of a node were listed since the last Sync.
	read int
	// The buffer for such a list.
	sizes []victimSize
}

// victimNode is a node as the draft shows it, with the capsules that the view shows on it.
type victimNode struct {
	// Nil: there is no node.
	state   *orbit.NodeState
	version uint32
	victimRoom
}

// victimBlock has the largest numbers of blockNodes nodes.
type victimBlock struct {
	victimRoom
	// Whether its numbers hold for its nodes.
	measured bool
	// How many of its nodes have changed since it was measured. Each change may leave its numbers larger than they need be.
	widened int
	// The node with the lowest id.
	first *orbit.Node
}

// victimRoom is what is free, and what would be free if capsules left, on a node or at most on one node of a block.
type victimRoom struct {
	free    orbit.Resources
	devices freeDevices
	// By rising priority.
	bands []victimBand
}

// victimBand is what would be free at most if all capsules of its priorities and of lower ones left.
type victimBand struct {
	// The lowest and the highest priority of the band.
	least, most int32
	// What would be free, and the most that one of these capsules takes.
	free, largest            orbit.Resources
	devices, largestOfDevice freeDevices
	// newest[k] is an upper bound of the start of the (k+1)-th newest of these capsules on a node.
	newest [4]int64
}

// freeDevices is how much of all devices together is free, in milli, and how many devices are free as a whole.
type freeDevices struct{ milli, whole int64 }

// victimSize is what the index needs of a capsule on a node.
type victimSize struct {
	spec  *orbit.Spec
	start int64
}

const (
	// blockNodes is how many nodes a block has.
	blockNodes = 64
	// mostBands is how many bands a node or a block has at most; the last one then takes all higher priorities.
	mostBands = 8
	// wholeDevice is what a whole device has, in milli.
	wholeDevice = 1000
)

// follow brings the index up to date with the draft. It reports whether it has listed all nodes anew.
func (x *victimIndex) follow(r *rater) (anew bool) {
	changed, next, all := r.draft.Changed(x.cursor)
	x.cursor = next
	if x.draft != r.draft || all {
		x.draft, anew = r.draft, true
		x.journal.forget()
		x.nodes, x.blocks = x.nodes[:min(len(x.nodes), r.draft.Bound())], x.blocks[:0] // the draft may have fewer nodes
		changed = make([]int32, r.draft.Bound())
		for i := range changed {
			changed[i] = int32(i)
		}
	}
	for len(x.nodes) < r.draft.Bound() {
		x.nodes = append(x.nodes, victimNode{})
	}
	for len(x.blocks)*blockNodes < len(x.nodes) {
		x.blocks = append(x.blocks, victimBlock{})
	}
	for _, slot := range changed {
		n := r.node(slot)
		// Nothing has changed if a step was undone; but a filter may answer differently even then.
		if x.nodes[slot].state == n && r.filter == nil && !anew {
			continue
		}
		x.listNode(slot, n, r.draft.View().State())
		x.blocks[slot/blockNodes].widen(&x.nodes[slot])
		if !anew {
			x.journal.add([]int32{slot})
		}
	}
	return anew
}

// listNode computes the numbers of a node.
func (x *victimIndex) listNode(slot int32, n *orbit.NodeState, state *orbit.State) {
	x.read++
	x.clock++
	v := &x.nodes[slot]
	v.state, v.version, v.bands = n, x.clock, v.bands[:0]
	if n == nil {
		return
	}
	v.free, v.devices = n.Free(), devicesOf(n)
	if !n.Node.Schedulable() {
		return
	}
	x.sizes = x.sizes[:0]
	for c := range state.On(n.Node.ID) {
		x.sizes = append(x.sizes, victimSize{c.Spec, victims.Start(c)})
	}
	slices.SortFunc(x.sizes, func(a, b victimSize) int { return cmp.Compare(a.spec.Priority, b.spec.Priority) })
	band := victimBand{free: v.free, devices: v.devices, newest: noneSoNew}
	for i, c := range x.sizes {
		p := c.spec.Priority
		if i == 0 || p != x.sizes[i-1].spec.Priority && len(v.bands) < mostBands {
			band.least = p
			v.bands = append(v.bands, band)
		}
		band.leave(&c)
		band.most = p
		v.bands[len(v.bands)-1] = band
	}
}

var noneSoNew = [4]int64{math.MinInt64, math.MinInt64, math.MinInt64, math.MinInt64}

// devicesOf returns how much of a node's devices is free.
func devicesOf(n *orbit.NodeState) (f freeDevices) {
	for i := range n.Node.Devices.Count {
		free := n.DeviceFree(i)
		f.milli += int64(free)
		f.whole += int64(btoi(free == wholeDevice))
	}
	return f
}

// leave adds a capsule to those that the band supposes to have left.
func (b *victimBand) leave(c *victimSize) {
	for d, x := range c.spec.Envelope.Reservation {
		b.free[d] += x
		b.largest[d] = max(b.largest[d], x)
	}
	if r := &c.spec.Devices; r.Count > 0 {
		given := freeDevices{int64(r.Count) * int64(r.Milli), int64(r.Count)}
		b.devices.milli += given.milli
		b.devices.whole += given.whole
		b.largestOfDevice = b.largestOfDevice.most(given)
	}
	start := c.start
	for k := range b.newest {
		if start > b.newest[k] {
			start, b.newest[k] = b.newest[k], start
		}
	}
}

// measure computes the numbers of a block from its nodes, unless they hold already.
func (x *victimIndex) measure(block int) {
	b := &x.blocks[block]
	if b.measured {
		return
	}
	nodes := x.nodes[block*blockNodes : min((block+1)*blockNodes, len(x.nodes))]
	*b = victimBlock{measured: true, victimRoom: victimRoom{bands: b.bands[:0], free: nothing}}
	var bands []victimBand
	for i := range nodes {
		for k := range nodes[i].bands {
			bands = append(bands, victimBand{least: nodes[i].bands[k].least, most: nodes[i].bands[k].most, free: nothing, newest: noneSoNew})
		}
	}
	slices.SortFunc(bands, func(a, b victimBand) int { return cmp.Compare(a.least, b.least) })
	for i := range bands { // bands that overlap become one
		last := len(b.bands) - 1
		if last >= 0 && (bands[i].least <= b.bands[last].most || last == mostBands-1) {
			b.bands[last].most = max(b.bands[last].most, bands[i].most)
		} else {
			b.bands = append(b.bands, bands[i])
		}
	}
	for i := range nodes {
		b.take(&nodes[i])
	}
}

// nothing is less than any room.
var nothing = func() (r orbit.Resources) {
	for d := range r {
		r[d] = math.MinInt64
	}
	return r
}()

// widen raises the numbers of a block to those of a node that has changed. If the node does not fit into the bands of the block,
// or many nodes have changed, the block is marked to be measured anew instead.
func (b *victimBlock) widen(v *victimNode) {
	b.widened++
	b.measured = b.measured && b.widened < blockNodes/2
	at := 0
	for i := range v.bands {
		for at < len(b.bands) && b.bands[at].most < v.bands[i].most {
			at++
		}
		b.measured = b.measured && at < len(b.bands) && b.bands[at].least <= v.bands[i].least
	}
	if b.measured {
		b.take(v)
	}
}

// take raises the numbers of a block to those of a node.
func (b *victimBlock) take(v *victimNode) {
	if v.state == nil || !v.state.Node.Schedulable() {
		return
	}
	if b.first == nil || v.state.Node.ID < b.first.ID {
		b.first = v.state.Node
	}
	b.free, b.devices = most(b.free, v.free), b.devices.most(v.devices)
	next := 0
	for i := range b.bands {
		n := &b.bands[i]
		for next < len(v.bands) && v.bands[next].most <= n.most {
			next++
		}
		if next == 0 { // no capsule of the node is in the band
			n.free, n.devices = most(n.free, v.free), n.devices.most(v.devices)
			continue
		}
		o := &v.bands[next-1]
		n.free, n.largest = most(n.free, o.free), most(n.largest, o.largest)
		n.devices, n.largestOfDevice = n.devices.most(o.devices), n.largestOfDevice.most(o.largestOfDevice)
		for k := range n.newest {
			n.newest[k] = max(n.newest[k], o.newest[k])
		}
	}
}

// most returns the larger of two amounts, dimension by dimension.
func most(a, b orbit.Resources) orbit.Resources {
	for d := range a {
		a[d] = max(a[d], b[d])
	}
	return a
}

func (f freeDevices) most(o freeDevices) freeDevices {
	return freeDevices{max(f.milli, o.milli), max(f.whole, o.whole)}
}

// bound returns a key that no find on the node, or on a node of the block, comes before; false: there is no find.
func (v *victimRoom) bound(q *evictSearch) (victims.Key, bool) {
	if q.serves(&v.free, v.devices) {
		return victims.None, true
	}
	for i := range v.bands {
		n := &v.bands[i]
		if n.least >= q.ceiling {
			break
		}
		if !q.serves(&n.free, n.devices) {
			continue
		}
		count := v.leastVictims(q, n)
		newest := n.newest[0]
		// If all victims have one priority, the oldest of them is no newer than the count-th newest capsule.
		if i == 0 && n.least == n.most {
			newest = n.newest[min(count, int64(len(n.newest)))-1]
		}
		return victims.Key{
			Highest: int64(n.least),
			Sum:     victims.Weight(n.least) + (count-1)*victims.Weight(v.bands[0].least),
			Count:   int(count),
			Start:   newest,
		}, true
	}
	return victims.Key{}, false
}

// leastVictims returns how many capsules of a band and below have to leave at least. It requires that all of them together make
// enough room.
func (v *victimRoom) leastVictims(q *evictSearch, n *victimBand) int64 {
	count := int64(1)
	for _, w := range q.wants {
		if lacks := w.want - v.free[w.dim]; lacks > 0 {
			count = max(count, (lacks-1)/n.largest[w.dim]+1)
		}
	}
	want := devicesWanted(&q.spec.Devices)
	if lacks := want.milli - v.devices.milli; lacks > 0 {
		count = max(count, (lacks-1)/n.largestOfDevice.milli+1)
	}
	if lacks := want.whole - v.devices.whole; lacks > 0 {
		count = max(count, (lacks-1)/n.largestOfDevice.whole+1)
	}
	return count
}

// devicesWanted returns what all devices of a request take together.
func devicesWanted(r *orbit.DeviceRequest) (f freeDevices) {
	if f.milli = int64(r.Count) * int64(r.Milli); r.Milli == wholeDevice {
		f.whole = int64(r.Count)
	}
	return f
}

// serves reports whether so much free room may be enough for the class.
func (q *evictSearch) serves(free *orbit.Resources, devices freeDevices) bool {
	for _, w := range q.wants {
		if w.want > free[w.dim] {
			return false
		}
	}
	want := devicesWanted(&q.spec.Devices)
	return want.milli <= devices.milli && want.whole <= devices.whole
}

// heapOfEvictions is a heap with the best candidate on top.
type heapOfEvictions = heap.Heap[evictCandidate]

// Before puts the candidate with the better key first, then the lower node id, then the less exact stage.
func (a evictCandidate) Before(b evictCandidate) bool {
	if c := a.Compare(&b.Key); c != 0 {
		return c < 0
	}
	return cmp.Or(cmp.Compare(a.node.ID, b.node.ID), cmp.Compare(a.stage, b.stage)) < 0
}
