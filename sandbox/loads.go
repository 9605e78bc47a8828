package sandbox

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// loads has every node as the planner sees it: a draft with the room that the ledger shows, and beside it each node's
// report less the slots given away since. The navigator and the gateway both choose by it.
//
//	view ── Sync ──► draft ── Changed ──► nodes      what each reports, less what has been given away
//	                                        ├─ improved ──► rankings   the nodes, best first
//	                                        └─ file ──► holders        volume ─► the nodes that have it
//
// Invariant: between two syncs, giving slots away only makes a node worse ([WarmFirst] is monotone), and every node
// that may have become better is listed in improved. So a ranking never shows a node as worse than it is, and a node
// that has become worse needs to be rated again only when it comes first: see ranking.go.
type loads struct {
	seed       uint64
	allowStale bool

	draft orbit.Draft
	// Position in the draft's journal.
	cursor uint64
	state  *orbit.State
	nodes  []nodeLoad // by node index
	// Rises with every change of a node.
	version uint64
	// Nodes that may have become better, oldest first; firstImproved is the sequence number of the first of them.
	improved      []int32
	firstImproved int
	cold          ranking
	special       map[string]*ranking
	open          []candidate // memory for a search
	rated         []int32     // memory for leaves
	opened        int         // boxes and leaves that searches have opened
	judged        int         // nodes that were asked whether they fit
	holders       map[string]map[int32]struct{}
	// How many reports name a template.
	supporters map[string]int
	// Nodes by kind, and those that are cordoned.
	kinds    [nodeKinds]int
	cordoned map[int32]struct{}
	// Nil in a [Warm], which starts nothing.
	failing failing
	// The last refusals, by class.
	refusals map[class]refusal
	// By spec, what [loads.company] has returned.
	companies map[*orbit.Spec]*orbit.Spec
}

// nodeKind is the reason why a node takes no capsule of a template that no report names.
type nodeKind uint8

const (
	absent nodeKind = iota
	cordoned
	withoutTelemetry
	neverReported
	withoutTemplate
	nodeKinds
)

// nodeLoad is what is known of a node beside its state in the draft.
type nodeLoad struct {
	// Empty: no such node.
	id     orbit.NodeID
	report orbit.Report
	// Free slots by the report, less the ones given away; math.MaxInt64 without telemetry.
	slots int64
	// Warm slots given away, by template.
	spent []spentSlots
	// The hash of the node's id with the seed; 0 for seed 0.
	hash uint64
	// The loads' version when it last changed.
	version uint64
	kind    nodeKind
}

// spentSlots are warm slots of a template that have been given away.
type spentSlots struct {
	template string
	n        int
}

// withoutTelemetry reports whether there is no telemetry at all: then the ledger alone decides, and nothing is warm.
func (n *nodeLoad) withoutTelemetry() bool { return n.report.Node == "" }

// neverReported reports whether the node has never said anything.
func (n *nodeLoad) neverReported() bool { return !n.withoutTelemetry() && n.report.At.IsZero() }

// supports reports whether the node can start the template.
func (n *nodeLoad) supports(template string) bool {
	return template == "" || n.withoutTelemetry() || slices.Contains(n.report.Templates, template)
}

// warm returns the warm slots of the template that are left.
func (n *nodeLoad) warm(template string) int {
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
func (n *nodeLoad) spend(template string, by int) {
	for i := range n.spent {
		if n.spent[i].template == template {
			n.spent[i].n += by
			return
		}
	}
	n.spent = append(n.spent, spentSlots{template, by})
}

// rate returns the [WarmFirst] score of a node as it is now. Its free slots are the lesser of what the ledger has left
// and what the node reports.
func (b *loads) rate(i int32, template string) (value, tie float64) {
	n := &b.nodes[i]
	free := min(b.draft.Node(int(i)).Free()[orbit.Slots], n.slots)
	return WarmFirst{}.Rate(n.warm(template), free, n.report.CPUPercent, n.report.Stale)
}

// slotsWanted returns how many slots a capsule takes: what its spec reserves, and at least one of the slots that the
// node reports.
func slotsWanted(spec *orbit.Spec) int64 { return max(spec.Envelope.Reservation[orbit.Slots], 1) }

// sync updates the loads from the view, and drops all debits.
func (b *loads) sync(view *orbit.View) {
	if b.special == nil {
		b.special, b.holders, b.supporters = map[string]*ranking{}, map[string]map[int32]struct{}{}, map[string]int{}
		b.cordoned, b.refusals = map[int32]struct{}{}, map[class]refusal{}
	}
	defer b.forgetTemplates()
	b.draft.Sync(view)
	b.state = view.State()
	if n := b.draft.Bound() - len(b.nodes); n > 0 {
		b.nodes = append(b.nodes, make([]nodeLoad, n)...)
	}
	changed, next, all := b.draft.Changed(b.cursor)
	b.cursor = next
	if all {
		for i := range b.nodes {
			b.reload(int32(i))
		}
		return
	}
	before := b.version
	for _, i := range changed {
		if b.nodes[i].version <= before {
			b.reload(i)
		}
	}
}

// reload replaces a node's record by what the view shows.
func (b *loads) reload(i int32) {
	n := &b.nodes[i]
	b.unfile(i, n.report.Volumes)
	was := *n
	*n = nodeLoad{spent: was.spent[:0]}
	defer b.classify(i, was.kind)
	if node := b.draft.Node(int(i)); node != nil {
		n.id, n.report, n.slots = node.Node.ID, *b.draft.View().Report(node), math.MaxInt64
		if !n.withoutTelemetry() {
			n.slots = int64(n.report.FreeSlots)
		}
		if n.hash = was.hash; was.id != n.id {
			n.hash = hashWith(b.seed, n.id)
		}
		b.file(i, n.report.Volumes)
	}
	if !slices.Equal(was.report.Templates, n.report.Templates) {
		b.countSupport(was.report.Templates, -1)
		b.countSupport(n.report.Templates, 1)
	}
	b.noteBetter(i)
}

// countSupport counts a node that supports the templates, or no longer does.
func (b *loads) countSupport(templates []string, by int) {
	for _, t := range templates {
		if b.supporters[t] += by; b.supporters[t] == 0 {
			delete(b.supporters, t)
		}
	}
}

// unsupported reports whether no node supports a template.
func (b *loads) unsupported(template string) bool {
	return template != "" && b.supporters[template] == 0 && b.kinds[withoutTelemetry] == 0
}

// forgetTemplates forgets the rankings of templates that no report names.
func (b *loads) forgetTemplates() {
	for t := range b.special {
		if b.supporters[t] == 0 {
			delete(b.special, t)
		}
	}
}

// classify counts a node under its kind.
func (b *loads) classify(i int32, was nodeKind) {
	n := &b.nodes[i]
	switch {
	case n.id == "":
		n.kind = absent
	case !b.draft.Node(int(i)).Node.Schedulable():
		n.kind = cordoned
	case n.withoutTelemetry():
		n.kind = withoutTelemetry
	case n.neverReported():
		n.kind = neverReported
	default:
		n.kind = withoutTemplate
	}
	b.kinds[was]--
	b.kinds[n.kind]++
	if delete(b.cordoned, i); n.kind == cordoned {
		b.cordoned[i] = struct{}{}
	}
}

// noteWorse records that a node has changed and has not become better.
func (b *loads) noteWorse(i int32) {
	b.version++
	b.nodes[i].version = b.version
}

// noteBetter records that a node may have become better.
func (b *loads) noteBetter(i int32) {
	b.noteWorse(i)
	if len(b.improved) > 2*len(b.nodes)+64 { // rebuilding a ranking costs no more than to catch up on so many
		b.firstImproved += len(b.improved)
		b.improved = b.improved[:0]
	}
	b.improved = append(b.improved, i)
}

// hashWith returns a hash that orders equal nodes differently for each seed. For seed 0 it is 0, and the ids decide.
func hashWith(seed uint64, id orbit.NodeID) uint64 {
	if seed == 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(append(binary.LittleEndian.AppendUint64(nil, seed), id...)) // never fails
	return h.Sum64()
}

// file and unfile maintain holders, the nodes by volume.
func (b *loads) file(i int32, volumes []string) {
	for _, v := range volumes {
		in := b.holders[v]
		if in == nil {
			in = map[int32]struct{}{}
			b.holders[v] = in
		}
		in[i] = struct{}{}
	}
}

func (b *loads) unfile(i int32, volumes []string) {
	for _, v := range volumes {
		if delete(b.holders[v], i); len(b.holders[v]) == 0 {
			delete(b.holders, v)
		}
	}
}

// debit is what one choice has given away: room in the ledger, by a placement on the draft, and slots of the node's
// report. The view comes to show the two at different times, so each part can be debited without the other.
type debit struct {
	capsule   orbit.CapsuleID
	spec      *orbit.Spec
	index     int32
	node      orbit.NodeID
	devices   orbit.DeviceSet
	warm      bool
	hasRoom   bool // the draft places the capsule
	hasReport bool // slots, and the warm slot if any, are debited
	vacated   bool // the slots were given back, but not the warm slot
}

// take debits a choice: it places the capsule on the draft, as the next step.
func (b *loads) take(c *orbit.Capsule, on *choice) (debit, error) {
	d := debit{capsule: c.ID, spec: c.Spec, index: int32(on.Node.Index()), node: on.Node.Node.ID, devices: on.Devices, warm: on.warm, hasRoom: true}
	on.Note = ColdNote
	if on.warm {
		on.Note = WarmNote
	}
	if err := b.draft.Place(c, on.Choice); err != nil {
		return debit{}, err
	}
	b.takeReport(&d)
	return d, nil
}

// renew debits again the parts of an earlier choice that the view does not show. If the view has no room for it,
// nothing needs to be debited: there is no room that could be given away twice.
func (b *loads) renew(d *debit, room, report bool) {
	n := b.state.Node(d.node)
	if n == nil {
		return
	}
	d.index = int32(n.Index())
	if room && b.draft.Place(&orbit.Capsule{ID: d.capsule, Spec: d.spec}, orbit.Choice{Node: n, Devices: d.devices}) == nil {
		b.draft.Propose() // sent long ago
		d.hasRoom = true
		b.noteWorse(d.index)
	}
	if report {
		b.takeReport(d)
	}
}

// takeReport debits the slots of a choice from the node's report.
func (b *loads) takeReport(d *debit) {
	n := &b.nodes[d.index]
	d.hasReport = true
	if !n.withoutTelemetry() && !d.vacated {
		n.slots -= slotsWanted(d.spec)
	}
	if d.warm {
		n.spend(d.spec.Start.Template, 1)
	}
	b.noteWorse(d.index)
}

// undo takes back the debit of a choice that was not committed.
func (b *loads) undo(d *debit) {
	b.give(d, d.warm)
	d.hasReport = false
}

// vacate gives back the room and the slots of a choice, but not the warm slot: its sandbox has ended.
func (b *loads) vacate(d *debit) {
	b.give(d, false)
	d.vacated = true
}

// give gives back what a choice has taken; the warm slot only if warm is set.
func (b *loads) give(d *debit, warm bool) {
	b.giveRoom(d)
	n := &b.nodes[d.index]
	if !d.hasReport || n.id != d.node {
		return
	}
	if !n.withoutTelemetry() && !d.vacated {
		n.slots += slotsWanted(d.spec)
	}
	if warm {
		n.spend(d.spec.Start.Template, -1)
	}
	b.noteBetter(d.index)
}

// giveRoom gives back what a choice took of the ledger's room.
func (b *loads) giveRoom(d *debit) {
	if d.hasRoom && b.draft.Withdraw(d.capsule) {
		b.noteBetter(d.index)
	}
	d.hasRoom = false
}

// exhaust makes a node count as one without a warm slot of a template, whatever it reports.
func (b *loads) exhaust(id orbit.NodeID, template string) {
	if node := b.state.Node(id); node != nil && b.nodes[node.Index()].id == id {
		n := &b.nodes[node.Index()]
		n.spend(template, n.warm(template))
		b.noteWorse(int32(node.Index()))
	}
}
