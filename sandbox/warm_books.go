package sandbox

import (
	"hash/fnv"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// warmBooks is every node as whoever plans sees it: as the view shows it, less what he has given away himself. The
// navigator and the gateway choose by the same books.
//
//	view ── Changed ──► nodes ── log ──► ranks   template and room ─► the nodes that take it, best first
//	                      └────────────► holders    volume ─► the nodes that have it
//
// Invariant: between two syncs a node only gets worse by what is given away (WarmFirst is monotone), and
// whatever may have made one better is in the log. So where a rank has it is never behind where it belongs, and a node
// that has been given away need only be looked at when it comes first: see warm_rank.go.
type warmBooks struct {
	seed       uint64
	allowStale bool

	view   *orbit.View
	cursor uint64
	state  *orbit.State
	nodes  []warmNode // by node index
	// Nodes of which something has been given away; to be loaded again.
	touched []int32
	// Rises with every change of a node.
	version uint64
	log     warmLog
	ranks   map[warmClass]*warmRank
	pairs   int    // nodes in all ranks
	clock   uint64 // rises with every look at a rank
	holders map[string]map[int32]struct{}
}

// warmNode is one node.
type warmNode struct {
	// Nil: no such node.
	node *orbit.NodeState
	nodeRoom
	report orbit.Report
	// Free slots by the report, less those given away; all there can be where there is no telemetry.
	slots int64
	// Warm slots given away, of the few templates of which there were any.
	spent []spentSlots
	// Of the node's id with the seed; 0 for seed 0.
	hash    uint64
	version uint64
}

// spentSlots are warm slots of a template that have been given away.
type spentSlots struct {
	template string
	n        int
}

// unheard reports whether there is no telemetry at all: then the ledger alone decides, and nothing is warm.
func (n *warmNode) unheard() bool { return n.report.Node == "" }

// silent reports whether the node has never said anything.
func (n *warmNode) silent() bool { return !n.unheard() && n.report.At.IsZero() }

// supports reports whether the node can start the template.
func (n *warmNode) supports(template string) bool {
	return template == "" || n.unheard() || slices.Contains(n.report.Templates, template)
}

// warm returns the warm slots of the template that are left.
func (n *warmNode) warm(template string) int {
	if template == "" {
		return 0
	}
	warm := n.report.Warm[template]
	for i := range n.spent {
		if n.spent[i].template == template {
			warm -= n.spent[i].n
		}
	}
	return max(warm, 0)
}

// spend gives warm slots of a template away; a negative number takes them back.
func (n *warmNode) spend(template string, by int) {
	for i := range n.spent {
		if n.spent[i].template == template {
			n.spent[i].n += by
			return
		}
	}
	n.spent = append(n.spent, spentSlots{template, by})
}

// freeSlots is the lesser of what the ledger has left and what the node reports.
func (n *warmNode) freeSlots() int64 { return min(n.free[orbit.Slots], n.slots) }

// rate is [WarmFirst] of the node as it is now.
func (n *warmNode) rate(template string) (value, tie float64) {
	return WarmFirst{}.Rate(n.warm(template), n.freeSlots(), n.report.CPUPercent, n.report.Stale)
}

// slotsWanted is how many slots of a node a capsule takes: what its spec reserves, and at least one of those that the
// node reports.
func slotsWanted(want *orbit.Resources) int64 { return max(want[orbit.Slots], 1) }

// sync follows the view and forgets what has been given away.
func (b *warmBooks) sync(view *orbit.View) {
	if view != b.view {
		*b = warmBooks{seed: b.seed, allowStale: b.allowStale, view: view}
		b.ranks, b.holders = map[warmClass]*warmRank{}, map[string]map[int32]struct{}{}
	}
	changed, next, all := view.Changed(b.cursor)
	b.cursor, b.state = next, view.State()
	for bound := b.state.NodeBound(); len(b.nodes) < bound; {
		b.nodes = append(b.nodes, warmNode{})
	}
	if all {
		b.log.overflow()
		for i := range b.nodes {
			b.load(int32(i))
		}
	} else {
		before := b.version
		b.reload(changed, before)
		b.reload(b.touched, before)
	}
	b.touched = b.touched[:0]
}

// reload loads nodes that have not been loaded since a version.
func (b *warmBooks) reload(indices []int32, before uint64) {
	for _, i := range indices {
		if b.nodes[i].version <= before {
			b.load(i)
		}
	}
}

// load takes over a node as the view shows it.
func (b *warmBooks) load(i int32) {
	n := &b.nodes[i]
	b.unfile(i, n.report.Volumes)
	b.version++
	was := *n
	*n = warmNode{node: b.state.NodeByIndex(int(i)), version: b.version, spent: was.spent[:0]}
	if n.node != nil {
		n.nodeRoom, n.report, n.slots = freeRoom(n.node), *b.view.Report(n.node), math.MaxInt64
		if !n.unheard() {
			n.slots = int64(n.report.FreeSlots)
		}
		if n.hash = was.hash; was.node == nil || was.node.Node.ID != n.node.Node.ID {
			n.hash = hashWith(b.seed, n.node.Node.ID)
		}
		b.file(i, n.report.Volumes)
	}
	b.log.add(i, len(b.nodes))
}

// hashWith orders equal nodes in another way for every seed; seed 0 leaves that to their ids.
func hashWith(seed uint64, id orbit.NodeID) uint64 {
	if seed == 0 {
		return 0
	}
	h := fnv.New64a()
	var s [8]byte
	for i := range s {
		s[i] = byte(seed >> (8 * i))
	}
	_, _ = h.Write(s[:]) // never fails
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// file and unfile keep the nodes by volume.
func (b *warmBooks) file(i int32, volumes []string) {
	for _, v := range volumes {
		in := b.holders[v]
		if in == nil {
			in = map[int32]struct{}{}
			b.holders[v] = in
		}
		in[i] = struct{}{}
	}
}

func (b *warmBooks) unfile(i int32, volumes []string) {
	for _, v := range volumes {
		if delete(b.holders[v], i); len(b.holders[v]) == 0 {
			delete(b.holders, v)
		}
	}
}

// warmDebit is what has been given away with one choice: of the ledger's room, and of what the node reports. The two
// are seen by the view at different times, so each can be in the books without the other.
type warmDebit struct {
	index     int32
	node      orbit.NodeID
	template  string
	room      orbit.Resources
	devices   orbit.DeviceSet
	milli     int
	warm      bool
	hasRoom   bool // room and devices are debited
	hasReport bool // slots and warm are
	vacated   bool // of these, the slots have been given back
}

// take debits a choice. It requires that it fits.
func (b *warmBooks) take(c *warmChoice, spec *orbit.Spec) warmDebit {
	d := warmDebit{
		index: c.index, node: c.node, template: spec.Start.Template, room: spec.Envelope.Reservation,
		devices: c.devices, milli: spec.Devices.Milli, warm: c.warm,
	}
	b.debit(&d, true, true)
	return d
}

// debit enters what a choice took into the books: what the ledger has less, what the node has to report, or both.
func (b *warmBooks) debit(d *warmDebit, room, report bool) {
	n := b.own(d)
	if n == nil {
		return
	}
	if room && !d.hasRoom {
		d.hasRoom = true
		n.takeRoom(d, 1)
	}
	if report && !d.hasReport {
		d.hasReport = true
		n.takeSlots(d, 1)
	}
}

// credit takes out of the books what debit has entered. The node may be better than its ranks know.
func (b *warmBooks) credit(d *warmDebit) {
	n := b.own(d)
	if n == nil {
		return
	}
	if d.hasRoom {
		n.takeRoom(d, -1)
	}
	if d.hasReport {
		n.takeSlots(d, -1)
	}
	d.hasRoom, d.hasReport = false, false
	b.log.add(d.index, len(b.nodes))
}

// vacate gives back the room and the slots of a debit, but not the warm slot: its sandbox has ended.
func (b *warmBooks) vacate(d *warmDebit) {
	if n := b.own(d); n != nil {
		if d.hasRoom {
			n.takeRoom(d, -1)
		}
		if d.hasReport && !d.vacated && !n.unheard() {
			n.slots += slotsWanted(&d.room)
		}
		b.log.add(d.index, len(b.nodes))
	}
	d.hasRoom, d.vacated = false, true
}

// own returns the node of a debit, which is about to change; nil if another node has its place by now.
func (b *warmBooks) own(d *warmDebit) *warmNode {
	n := &b.nodes[d.index]
	if n.node == nil || n.node.Node.ID != d.node {
		return nil
	}
	b.version++
	n.version = b.version
	b.touched = append(b.touched, d.index)
	return n
}

// takeRoom takes a debit's room so many times. What was given away and is counted again by the view is taken twice
// for a moment, so what is free may be less than nothing; it cannot wrap.
func (n *warmNode) takeRoom(d *warmDebit, times int64) {
	for dim, want := range d.room {
		n.free[dim] -= times * want
	}
	n.shift(d.devices, -int(times)*d.milli)
}

// takeSlots does so with what the node reports.
func (n *warmNode) takeSlots(d *warmDebit, times int64) {
	if !n.unheard() && !d.vacated {
		n.slots -= times * slotsWanted(&d.room)
	}
	if d.warm {
		n.spend(d.template, int(times))
	}
}

// exhaust notes that a node has no warm slot of a template, whatever it reports.
func (b *warmBooks) exhaust(index int32, node orbit.NodeID, template string) {
	if n := b.own(&warmDebit{index: index, node: node}); n != nil {
		n.spend(template, n.warm(template))
	}
}
