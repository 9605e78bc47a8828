package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/victims"
)

// victimIndex bounds how good the victims on a node can be, without reading the capsules there again. For each node it
// keeps the free capacity, and what would be free if all capsules up to a priority left. For each block of nodes it
// keeps the largest of these numbers, so that a search can rule out a whole block at once.
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
	// How many times the capsules of a node were listed since the last Sync.
	read int
	// Buffers: the capsules of a node, and the bands of the nodes of a block.
	sizes  []victimSize
	ranges []priorityRange
}

// victimNode is a node as the draft shows it, with the capsules that the view shows there and that the plan has not
// touched.
type victimNode struct {
	// Nil: there is no node.
	state   *orbit.NodeState
	version uint32
	// The position of the last entry for the node in the journal.
	journaled uint64
	victimRoom
	// The node as the view showed it when its capsules were listed; nil: the list leaves out what the plan has taken
	// off, so it holds for this plan alone.
	shown *orbit.NodeState
	// The capsules on the node, by rising priority, and within a priority the newest first.
	capsules []victimSize
}

// victimBlock has the largest numbers of a block of blockNodes nodes.
type victimBlock struct {
	victimRoom
	// Whether the numbers are upper bounds for the nodes as they are now. If not, measure computes them anew.
	measured bool
	// How many changes of nodes the block has taken up since it was measured. Each may leave its numbers larger than
	// necessary, and so the bounds weaker.
	widened int
	// The node with the lowest id.
	first *orbit.Node
	// What single capsules of the lowest priority of the block would release, newest first.
	singles []victimSingle
}

// victimRoom has the free capacity, and what would be free if capsules left: of a node, or upper bounds for each node
// of a block.
type victimRoom struct {
	free    orbit.Resources
	devices freeDevices
	// The bands, by rising priority.
	bands []victimBand
}

// victimBand has upper bounds of what would be free if all capsules of its priorities and of lower ones left.
type victimBand struct {
	priorityRange
	// What would be free; and the largest amount that a single one of these capsules releases.
	free, largest            orbit.Resources
	devices, largestOfDevice freeDevices
	// newest[k] is an upper bound of the start of the (k+1)-th newest of these capsules on a node.
	newest [4]int64
}

// priorityRange has the lowest and the highest priority of a band.
type priorityRange struct{ least, most int32 }

// freeDevices is the free capacity of all devices of a node together, in milli, and how many devices are free as a
// whole.
type freeDevices struct{ milli, whole int64 }

// victimSize is a capsule on a node, as far as the index needs it.
type victimSize struct {
	spec  *orbit.Spec
	start int64
}

const (
	// blockNodes is the number of nodes in a block.
	blockNodes = 64
	// mostBands is the largest number of bands of a node or a block. The last of so many bands takes all higher
	// priorities too.
	mostBands = 8
	// wholeDevice is the capacity of a device, in milli.
	wholeDevice = 1000
)

// sync brings the index up to date with the draft. It reports whether it has listed all nodes anew.
func (x *victimIndex) sync(r *rater) (anew bool) {
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
		// The node is the same again if a step was undone. A filter may answer differently even then.
		if x.nodes[slot].state == n && r.filter == nil && !anew {
			continue
		}
		x.listNode(slot, n)
		x.blocks[slot/blockNodes].widen(&x.nodes[slot], slot)
		if !anew {
			x.nodes[slot].journaled = x.journal.end()
			x.journal.add([]int32{slot})
		}
	}
	return anew
}

// listNode computes the numbers of a node: one band for each priority, as long as there are fewer than mostBands.
func (x *victimIndex) listNode(slot int32, n *orbit.NodeState) {
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
	x.listCapsules(v)
	band := victimBand{free: v.free, devices: v.devices, newest: noneSoNew}
	for i := range v.capsules {
		c := &v.capsules[i]
		p := c.spec.Priority
		if i == 0 || p != v.capsules[i-1].spec.Priority && len(v.bands) < mostBands {
			band.least = p
			v.bands = append(v.bands, band)
		}
		band.leave(c)
		band.most = p
		v.bands[len(v.bands)-1] = band
	}
}

// listCapsules lists the capsules that the view shows on a node and that the plan has not touched, unless the list of
// an earlier call still holds.
func (x *victimIndex) listCapsules(v *victimNode) {
	shown := x.draft.View().State().NodeByIndex(v.state.Index())
	planned := v.state != shown
	if v.shown == shown && !planned {
		return
	}
	x.read++
	if v.shown = shown; planned {
		v.shown = nil // the list holds for this plan alone
	}
	x.sizes = x.sizes[:0]
	for c := range x.draft.View().State().On(v.state.Node.ID) {
		if !planned || !x.draft.Uses(c.ID) {
			x.sizes = append(x.sizes, victimSize{c.Spec, victims.Start(c)})
		}
	}
	slices.SortFunc(x.sizes, func(a, b victimSize) int {
		if a.spec.Priority != b.spec.Priority {
			return cmp.Compare(a.spec.Priority, b.spec.Priority)
		}
		return cmp.Compare(b.start, a.start)
	})
	v.capsules = append(v.capsules[:0], x.sizes...)
}

// noneSoNew is the newest of a band without capsules.
var noneSoNew = [4]int64{math.MinInt64, math.MinInt64, math.MinInt64, math.MinInt64}

// devicesOf returns the free capacity of the devices of a node.
func devicesOf(n *orbit.NodeState) (f freeDevices) {
	for i := range n.Node.Devices.Count {
		free := n.DeviceFree(i)
		f.milli += int64(free)
		f.whole += int64(btoi(free == wholeDevice))
	}
	return f
}

// leave adds a capsule to those that the numbers of the band suppose to have left.
func (b *victimBand) leave(c *victimSize) {
	for d, x := range c.spec.Envelope.Reservation {
		b.free[d] += x
		b.largest[d] = max(b.largest[d], x)
	}
	if c.spec.Devices.Count > 0 {
		b.largestOfDevice = b.largestOfDevice.most(b.devices.add(&c.spec.Devices))
	}
	start := c.start
	for k := range b.newest {
		if start > b.newest[k] {
			start, b.newest[k] = b.newest[k], start
		}
	}
}

// measure computes the numbers of a block from its nodes, unless they hold already. The bands of the block cover those
// of all its nodes.
func (x *victimIndex) measure(block int) {
	b := &x.blocks[block]
	if b.measured {
		return
	}
	nodes := x.nodes[block*blockNodes : min((block+1)*blockNodes, len(x.nodes))]
	*b = victimBlock{measured: true, victimRoom: victimRoom{bands: b.bands[:0], free: nothing}, singles: b.singles[:0]}
	x.ranges = x.ranges[:0]
	for i := range nodes {
		for k := range nodes[i].bands {
			if r := nodes[i].bands[k].priorityRange; !slices.Contains(x.ranges, r) { // most nodes have the same bands
				x.ranges = append(x.ranges, r)
			}
		}
	}
	slices.SortFunc(x.ranges, func(a, b priorityRange) int { return cmp.Compare(a.least, b.least) })
	for _, r := range x.ranges { // overlapping bands become one
		last := len(b.bands) - 1
		if last >= 0 && (r.least <= b.bands[last].most || last == mostBands-1) {
			b.bands[last].most = max(b.bands[last].most, r.most)
		} else {
			b.bands = append(b.bands, victimBand{priorityRange: r, free: nothing, newest: noneSoNew})
		}
	}
	for i := range nodes {
		b.take(&nodes[i], int32(block*blockNodes+i))
	}
	b.sortSingles()
}

// nothing is less than any amount: the start of a maximum.
var nothing = func() (r orbit.Resources) {
	for d := range r {
		r[d] = math.MinInt64
	}
	return r
}()

// widen raises the numbers of a block to those of a node that has changed, which is cheaper than to measure the block
// again. If the node has a band that does not fit into the bands of the block, or if many nodes have changed, the block
// is marked to be measured anew instead.
func (b *victimBlock) widen(v *victimNode, slot int32) {
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
		b.singles = slices.DeleteFunc(b.singles, func(s victimSingle) bool { return s.slot == slot })
		b.take(v, slot)
		b.sortSingles()
	}
}

// take raises the numbers of a block to those of a node, where the node has more.
func (b *victimBlock) take(v *victimNode, slot int32) {
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
	b.takeSingles(v, slot)
}

// most returns the larger of two amounts, dimension by dimension.
func most(a, b orbit.Resources) orbit.Resources {
	for d := range a {
		a[d] = max(a[d], b[d])
	}
	return a
}

// add adds what a capsule with this request releases at most, and returns that amount. It may release less: a device
// may be unhealthy, or others may still use it.
func (f *freeDevices) add(r *orbit.DeviceRequest) (given freeDevices) {
	given = freeDevices{int64(r.Count) * int64(r.Milli), int64(r.Count)}
	f.milli += given.milli
	f.whole += given.whole
	return given
}

// most returns the larger of two amounts, number by number.
func (f freeDevices) most(o freeDevices) freeDevices {
	return freeDevices{max(f.milli, o.milli), max(f.whole, o.whole)}
}

// bound returns a lower bound for the keys of finds: no find on the node, or on any node of the block, has a better
// key. It reports false if no victims make enough room, so there is no find.
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
		// No band below this one makes enough room, so some victim has at least the lowest priority of this band. The
		// other victims have at least the lowest priority on the node.
		count := v.leastVictims(q, n)
		newest := n.newest[0]
		// If all victims have one priority, the oldest of count victims is at most as new as the count-th newest
		// capsule.
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

// leastVictims returns a lower bound for the number of victims from a band and below: what the class lacks, divided by
// the largest amount that one capsule releases. It requires that all these capsules together make enough room.
func (v *victimRoom) leastVictims(q *evictSearch, n *victimBand) int64 {
	count := int64(1)
	for _, w := range q.wants {
		if lacks := w.want - v.free[w.dim]; lacks > 0 {
			count = max(count, (lacks-1)/n.largest[w.dim]+1)
		}
	}
	want := q.devices
	if lacks := want.milli - v.devices.milli; lacks > 0 {
		count = max(count, (lacks-1)/n.largestOfDevice.milli+1)
	}
	if lacks := want.whole - v.devices.whole; lacks > 0 {
		count = max(count, (lacks-1)/n.largestOfDevice.whole+1)
	}
	return count
}

// devicesWanted returns the amount that all devices of a request take together.
func devicesWanted(r *orbit.DeviceRequest) (f freeDevices) {
	if f.milli = int64(r.Count) * int64(r.Milli); r.Milli == wholeDevice {
		f.whole = int64(r.Count)
	}
	return f
}

// serves reports whether this free capacity may be enough for the class. Devices are counted in sum only, so the answer
// may be yes although no device fits.
func (q *evictSearch) serves(free *orbit.Resources, devices freeDevices) bool {
	for _, w := range q.wants {
		if w.want > free[w.dim] {
			return false
		}
	}
	return q.devices.milli <= devices.milli && q.devices.whole <= devices.whole
}

// slotJournal lists node indices in the order in which they were added. It keeps the latest of them.
type slotJournal struct {
	list []int32
	// The position of list[0], counted from the first index that was ever added.
	base uint64
}

// maxJournal is the number of indices that are kept. A reader that falls behind by more has to compare all nodes.
const maxJournal = 1 << 16

func (j *slotJournal) add(slots []int32) {
	j.list = append(j.list, slots...)
	if over := len(j.list) - maxJournal; over > 0 {
		over = max(over, maxJournal/2)
		j.base += uint64(over)
		j.list = append(j.list[:0], j.list[over:]...)
	}
}

// forget empties the journal, and makes all positions that readers hold too old.
func (j *slotJournal) forget() {
	j.base += uint64(len(j.list)) + 1
	j.list = j.list[:0]
}

// end returns the position of the index that is added next.
func (j *slotJournal) end() uint64 { return j.base + uint64(len(j.list)) }

// since returns the indices that were added from a position on; lost: some of them are no longer kept.
func (j *slotJournal) since(position uint64) (slots []int32, lost bool) {
	if position < j.base || position > j.end() {
		return nil, true
	}
	return j.list[position-j.base:], false
}
