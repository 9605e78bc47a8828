package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/victims"
)

// victimIndex bounds what evicting from nodes can come to: what is free of each node, and the sizes of its capsules by
// priority. Blocks of nodes know the most of all that.
//
//	draft ── Changed ──► nodes ──► journal, for searches
//	                       └── when a search begins ──► blocks
type victimIndex struct {
	draft   *orbit.Draft
	cursor  uint64
	nodes   []victimNode
	blocks  []victimBlock
	journal slotJournal
	clock   uint32
	// How often the capsules of a node were looked at, since the last Sync.
	read int
}

// victimNode is a node as the draft has it, and what the view has on it.
type victimNode struct {
	// Nil: there is no node.
	state   *orbit.NodeState
	version uint32
	// What runs there by priority, lowest first, and then newest first.
	capsules []victimSize
}

type victimSize struct {
	spec  *orbit.Spec
	start int64
}

// victimBlock has the extremes of some nodes.
type victimBlock struct {
	measured bool
	// How many nodes have changed since, which may have made it wider than it need be.
	widened int
	free    orbit.Resources
	devices freeDevices
	bands   []victimBand
	// The node with the lowest id.
	first *orbit.Node
}

// freeDevices is what is free of devices together, in milli, and how many are free as a whole, at most.
type freeDevices struct{ milli, idle int64 }

// serve reports whether there may be enough.
func (f freeDevices) serve(r *orbit.DeviceRequest) bool {
	return f.milli >= int64(r.Count)*int64(r.Milli) && (r.Milli < wholeDevice || f.idle >= int64(r.Count))
}

// wholeDevice is a device, in milli.
const wholeDevice = 1000

// victimBand is what would be at most if all left up to a priority.
type victimBand struct {
	// The lowest and the highest priority of the band.
	least, most int32
	// The most that is free on a node, and the largest capsule.
	free, largest orbit.Resources
	devices       freeDevices
	// The k-th newest capsule of a node is at most so new, for k from 1.
	newest [4]int64
}

const (
	// blockNodes is how many nodes are in a block.
	blockNodes = 64
	// mostBands is how many priorities a block tells apart; those above are one band.
	mostBands = 8
)

// follow brings the index up to the draft. It reports whether it has begun anew.
func (x *victimIndex) follow(r *rater) (anew bool) {
	changed, next, all := r.draft.Changed(x.cursor)
	x.cursor = next
	if x.draft != r.draft || all {
		x.draft, anew = r.draft, true
		x.journal.forget()
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
		if x.nodes[slot].state == n && r.filter == nil && !anew { // a step was undone, or the filter may say something else
			continue
		}
		x.read++
		x.clock++
		x.nodes[slot].read(n, r.draft.View().State(), x.clock)
		x.blocks[slot/blockNodes].widen(&x.nodes[slot])
		if !anew {
			x.journal.add([]int32{slot})
		}
	}
	return anew
}

// read takes in a node as it is.
func (v *victimNode) read(n *orbit.NodeState, state *orbit.State, version uint32) {
	v.state, v.version, v.capsules = n, version, v.capsules[:0]
	if n == nil {
		return
	}
	for c := range state.On(n.Node.ID) {
		v.capsules = append(v.capsules, victimSize{c.Spec, victims.Start(c)})
	}
	slices.SortFunc(v.capsules, func(a, b victimSize) int {
		return cmp.Or(cmp.Compare(a.spec.Priority, b.spec.Priority), cmp.Compare(b.start, a.start))
	})
}

// bound returns a key that what is found on the node is not below; false: nothing is found there.
func (v *victimNode) bound(q *evictSearch) (victims.Key, bool) {
	if v.state == nil || !q.suits(v.state.Node) {
		return victims.Key{}, false
	}
	var need shortage
	if !need.begin(q, v.state) {
		return victims.None, true
	}
	newest := int64(math.MinInt64)
	for i := range v.capsules {
		c := &v.capsules[i]
		priority := c.spec.Priority
		if priority >= q.ceiling {
			break
		}
		need.leave(c.spec)
		newest = max(newest, c.start)
		if !need.met() || i+1 < len(v.capsules) && v.capsules[i+1].spec.Priority == priority {
			continue
		}
		count := need.least()
		if priority == v.capsules[0].spec.Priority {
			newest = v.capsules[count-1].start
		}
		return boundOf(priority, v.capsules[0].spec.Priority, count, newest), true
	}
	return victims.Key{}, false
}

// boundOf returns the key of so many victims of the lowest priority, one of which has the highest.
func boundOf(highest, lowest int32, count int, newest int64) victims.Key {
	return victims.Key{Highest: int64(highest), Sum: victims.Weight(highest) + int64(count-1)*victims.Weight(lowest), Count: count, Start: newest}
}

// shortage is what a node lacks for a class, and what capsules that leave give of it.
type shortage struct {
	q *evictSearch
	// By want: what is lacking at first, what has been given, and the most that one has given.
	lacks, given, largest [orbit.Dimensions]int64
	// The same of device instances.
	instances, freed, widest int
}

// begin takes in what the node lacks; false: nothing.
func (s *shortage) begin(q *evictSearch, n *orbit.NodeState) (any bool) {
	s.q = q
	free := n.Free()
	for i, w := range q.wants {
		s.lacks[i] = w.want - free[w.dim]
		any = any || s.lacks[i] > 0
	}
	if r := &q.spec.Devices; r.Count > 0 {
		s.instances = r.Count
		for i := range n.Node.Devices.Count {
			s.instances -= btoi(n.DeviceFree(i) >= r.Milli)
		}
		any = any || s.instances > 0
	}
	return any
}

// leave lets a capsule leave.
func (s *shortage) leave(spec *orbit.Spec) {
	for i, w := range s.q.wants {
		x := spec.Envelope.Reservation[w.dim]
		s.given[i] += x
		s.largest[i] = max(s.largest[i], x)
	}
	s.freed += spec.Devices.Count
	s.widest = max(s.widest, spec.Devices.Count)
}

// met reports whether there may be enough.
func (s *shortage) met() bool {
	for i := range s.q.wants {
		if s.lacks[i] > s.given[i] {
			return false
		}
	}
	return s.instances <= s.freed
}

// least is how many have to leave at least. It requires that all is met.
func (s *shortage) least() int {
	n := int64(1)
	for i := range s.q.wants {
		if s.lacks[i] > 0 {
			n = max(n, (s.lacks[i]-1)/s.largest[i]+1)
		}
	}
	if s.instances > 0 {
		n = max(n, int64((s.instances-1)/s.widest+1))
	}
	return int(n)
}

// measure brings a block up to its nodes.
func (x *victimIndex) measure(block int) {
	b := &x.blocks[block]
	if b.measured {
		return
	}
	nodes := x.nodes[block*blockNodes : min((block+1)*blockNodes, len(x.nodes))]
	*b = victimBlock{measured: true, bands: b.bands[:0]}
	for d := range b.free {
		b.free[d] = math.MinInt64
	}
	var priorities []int32
	for i := range nodes {
		for k, c := range nodes[i].capsules {
			if k == 0 || c.spec.Priority != nodes[i].capsules[k-1].spec.Priority {
				priorities = append(priorities, c.spec.Priority)
			}
		}
	}
	slices.Sort(priorities)
	for i, p := range slices.Compact(priorities) {
		if i >= mostBands {
			b.bands[mostBands-1].most = p
			continue
		}
		b.bands = append(b.bands, newBand(p))
	}
	for i := range nodes {
		b.take(&nodes[i])
	}
}

func newBand(priority int32) (n victimBand) {
	n.least, n.most = priority, priority
	for d := range n.free {
		n.free[d] = math.MinInt64
	}
	for k := range n.newest {
		n.newest[k] = math.MinInt64
	}
	return n
}

// widen takes in a node that has changed. It has the block measured anew when it begins the next search if that is not enough.
func (b *victimBlock) widen(v *victimNode) {
	b.widened++
	b.measured = b.measured && b.widened < blockNodes/2
	for i, band := 0, 0; i < len(v.capsules) && b.measured; i++ {
		p := v.capsules[i].spec.Priority
		for band < len(b.bands) && b.bands[band].most < p {
			band++
		}
		b.measured = band < len(b.bands) && b.bands[band].least <= p
	}
	if b.measured {
		b.take(v)
	}
}

// take takes in a node.
func (b *victimBlock) take(v *victimNode) {
	if v.state == nil || !v.state.Node.Schedulable() {
		return
	}
	if b.first == nil || v.state.Node.ID < b.first.ID {
		b.first = v.state.Node
	}
	free := v.state.Free()
	b.free = most(b.free, free)
	devices := devicesOf(v.state)
	b.devices = b.devices.most(devices)
	var largest orbit.Resources
	var newest [4]int64
	for k := range newest {
		newest[k] = math.MinInt64
	}
	next := 0
	for i := range b.bands {
		n := &b.bands[i]
		for ; next < len(v.capsules) && v.capsules[next].spec.Priority <= n.most; next++ {
			c := &v.capsules[next]
			size := c.spec.Envelope.Reservation
			for d, x := range size {
				free[d] += x
			}
			largest = most(largest, size)
			devices.milli += int64(c.spec.Devices.Count) * int64(c.spec.Devices.Milli)
			devices.idle += int64(c.spec.Devices.Count)
			insert(&newest, c.start)
		}
		n.free, n.largest, n.devices = most(n.free, free), most(n.largest, largest), n.devices.most(devices)
		for k := range newest {
			n.newest[k] = max(n.newest[k], newest[k])
		}
	}
}

// devicesOf returns what is free of a node's devices.
func devicesOf(n *orbit.NodeState) (f freeDevices) {
	for i := range n.Node.Devices.Count {
		free := n.DeviceFree(i)
		f.milli += int64(free)
		f.idle += int64(btoi(free == wholeDevice))
	}
	return f
}

func (f freeDevices) most(o freeDevices) freeDevices {
	return freeDevices{max(f.milli, o.milli), max(f.idle, o.idle)}
}

// insert puts a start among the newest.
func insert(newest *[4]int64, start int64) {
	for k := range newest {
		if start > newest[k] {
			start, newest[k] = newest[k], start
		}
	}
}

func most(a, b orbit.Resources) orbit.Resources {
	for d := range a {
		a[d] = max(a[d], b[d])
	}
	return a
}

// bound returns a key that what is found on a node of the block is not below; false: nothing is found there.
func (b *victimBlock) bound(q *evictSearch) (victims.Key, bool) {
	if b.first != nil && within(q.wants, &b.free) && b.devices.serve(&q.spec.Devices) {
		return victims.None, true
	}
	for i := range b.bands {
		n := &b.bands[i]
		if n.least >= q.ceiling {
			break
		}
		if !within(q.wants, &n.free) || !n.devices.serve(&q.spec.Devices) {
			continue
		}
		count := int64(1)
		for _, w := range q.wants {
			if lacks := w.want - b.free[w.dim]; lacks > 0 {
				count = max(count, (lacks-1)/n.largest[w.dim]+1)
			}
		}
		newest := n.newest[0]
		if i == 0 && n.least == n.most { // all victims have the highest priority, so the first began before the newest of them
			newest = n.newest[min(count, int64(len(n.newest)))-1]
		}
		return boundOf(n.least, b.bands[0].least, int(count), newest), true
	}
	return victims.Key{}, false
}

// within reports whether all that is wanted is free.
func within(wants []wanted, free *orbit.Resources) bool {
	for _, w := range wants {
		if w.want > free[w.dim] {
			return false
		}
	}
	return true
}

// heapOfEvictions has the best candidate first.
type heapOfEvictions = heap.Heap[evictCandidate]

// Before orders candidates.
func (a evictCandidate) Before(b evictCandidate) bool {
	if c := a.Compare(&b.Key); c != 0 {
		return c < 0
	}
	return cmp.Or(cmp.Compare(a.node.ID, b.node.ID), cmp.Compare(a.stage, b.stage)) < 0
}
