package orbit

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/orbitsched/orbit/internal/slab"
	"github.com/orbitsched/orbit/internal/slots"
)

// Draft is a plan in the making: the nodes of a view, less the room that the plan has given away. A navigator syncs its
// draft at the start of each Plan, gives room away step by step (Place, Hold, Release), and calls Propose when the steps
// since the last call make a proposal. The steps check the ledger's own rules, so a draft never oversubscribes a node by
// itself. A node of the draft is the view's node after all steps since Sync; it takes nothing if its report is Expired.
// Rollback restores the nodes, the journal (Changed) and the proposal in the making.
//
// Room that a proposal releases, extras too, serves the later steps of that proposal, because all of them commit together.
// After Propose what is left of it is unavailable until the next Sync, because another proposal may commit although this
// one does not.
//
// The zero Draft is ready for Sync. It belongs to one navigator and is not safe for concurrent use. Do not copy or
// overwrite it, because placement engines know a draft by its address. A node that a draft returns is read-only. It is
// good until the next Sync.
type Draft struct {
	view *View
	// When the view was made.
	now Instant
	// Position in the view's journal.
	cursor uint64
	syncs  uint64
	// The nodes as the plan leaves them, by node index; nil: no such node.
	nodes   []*NodeState
	journal changeLog
	steps   []draftStep
	// The node as each step has left it; nil if the step has changed no node. A NoFit may refer to the first
	// entries, as many as shared says, so these are never overwritten.
	after  []*NodeState
	shared int
	// Commitments since Sync; those from open on make the next proposal.
	log  []Commitment
	open int
	// What the plan has done with capsules and holds.
	capsules map[CapsuleID]draftUse
	holds    map[HoldID]draftUse
	// What it does with the members of groups and modules that have budgets; and the values before each change of that.
	counted map[memberSet]*plannedMembers
	counts  []memberCount
	// The cached domains of groups that capsules want to be near (nearby), and how often the cache was emptied.
	near    map[Near]*nearby
	company uint64
	rules   draftCompany
	tallies map[string][]*tally // by group
	touched slots.Set
	// Memory for sum.
	made planSum
	// Memory for copies of nodes, and for proposals.
	copies      slab.Of[NodeState]
	commitments slab.Of[Commitment]
	bets        slab.Of[Precondition]
	moves       slab.Of[companyMove]
	// For LookAs: the nomination whose room the nodes show as free, and the nodes that show it, or have shown it since
	// Sync.
	asking     *Nomination
	asked      slots.Set
	askedNodes []int32
	// The queues as the plan leaves them; nil until a step changes one, or is about a capsule that names one.
	queues *tx
	// The device models of all nodes; nil until they are asked for.
	allModels []string
	// The nodes on which starts have failed lately, as the view counts them; and those on which starts of the capsules
	// that are planned now have failed, in order.
	failing map[uint32]*NodeStarts
	avoided []uint32
	// Memory for the commitments and bets of proposals.
	placeBoxes slab.Boxes[Commitment, Place]
	freeBoxes  slab.Boxes[Precondition, NodeFreeOf]
}

// draftStep is one step of the plan, with the values from before it that Rollback restores.
type draftStep struct {
	// The node before the step; nil: the step has changed no node.
	node *NodeState
	// What the plan had done before the step with the capsule or the hold that the step is about.
	use draftUse
	// The spec of the capsule that the step places, nil if it places none; and the moves that rules of company may
	// count.
	spec  *Spec
	moves []companyMove
	// The log positions of earlier placements of the same proposal that got Place.After because of this step.
	delayed []int
	// What the step changes in the queues; nil: nothing.
	charge *stepCharge
	// How many of Draft.counts, the last ones, are of this step.
	counts int
	// The step may free something; it is one of Withdraw.
	frees, withdraws bool
	// The length of the log before the step, and the log position at which the proposal in the making began.
	log, open int
}

// draftUse is what a plan has done with a capsule or a hold.
type draftUse struct {
	what draftAct
	// Position of the commitment in the log.
	at int
}

type draftAct uint8

const (
	draftUntouched draftAct = iota
	draftTaken              // placed, or held
	draftReleased           // back to pending, or the hold has ended
	draftEnded              // for good
	draftEvicted            // for another
	draftRespecified
)

// Sync brings the draft up to date with the view and forgets the plan. Its cost is proportional to the number of
// changed nodes; with another view than last time, to the number of all nodes. With a view that is nil, or that has not
// been refreshed yet, the draft is empty: nothing fits it, and its steps return an error.
func (d *Draft) Sync(view *View) {
	for i := range d.steps {
		moves := d.steps[i].moves
		d.steps[i].moves = nil // Rollback need not uncount them one by one: Sync replaces d.rules as a whole
		for k := range moves {
			d.tallyMove(&moves[k], -1)
		}
	}
	d.Rollback(0)
	clear(d.counted)
	d.queues, d.allModels = nil, nil
	if view != nil && view.state == nil {
		view = nil
	}
	if view != d.view {
		*d = Draft{view: view, syncs: d.syncs, journal: d.journal, company: d.company, rules: d.rules,
			capsules: map[CapsuleID]draftUse{}, holds: map[HoldID]draftUse{}, counted: map[memberSet]*plannedMembers{}}
	}
	d.syncs++
	if view == nil {
		d.journal.overflow()
		return
	}
	d.log, d.open, d.now = d.log[:0], 0, instantOf(view.now)
	d.askedNodes = d.askedNodes[:0]
	d.asked.Clear(view.state.NodeBound())
	clear(d.capsules)
	clear(d.holds)
	d.forgetNear()
	d.dropTallies()
	d.rules = draftCompany{version: d.rules.version + 1, epoch: d.rules.epoch + 1<<32}
	d.syncFailures()
	changed, next, all := view.Changed(d.cursor)
	d.cursor = next
	for bound := view.state.NodeBound(); len(d.nodes) < bound; {
		d.nodes = append(d.nodes, nil)
	}
	if all {
		for i := range d.nodes {
			d.nodes[i] = view.planned(i)
		}
		d.journal.overflow()
		return
	}
	for _, i := range changed {
		d.nodes[i] = view.planned(int(i))
		d.journal.add(uint32(i))
	}
}

// View returns the view that the draft is in sync with; nil before the first Sync.
func (d *Draft) View() *View { return d.view }

// Syncs returns how often Sync has been called.
func (d *Draft) Syncs() uint64 { return d.syncs }

// Bound returns an upper bound, exclusive, of the indices of all nodes.
func (d *Draft) Bound() int { return len(d.nodes) }

// Node returns the node with this [NodeState.Index] as the plan leaves it, nil if there is none.
func (d *Draft) Node(i int) *NodeState {
	if i < 0 || i >= len(d.nodes) {
		return nil
	}
	return d.nodes[i]
}

// Uses reports whether the plan has placed, respecified, released or evicted a capsule: a later step that takes it off its
// node is refused.
func (d *Draft) Uses(id CapsuleID) bool { return d.capsules[id].what != draftUntouched }

// Nodes yields all nodes as the plan leaves them, in order of their index.
func (d *Draft) Nodes() iter.Seq[*NodeState] {
	return func(yield func(*NodeState) bool) {
		for _, n := range d.nodes {
			if n != nil && !yield(n) {
				return
			}
		}
	}
}

// Changed returns the indices of nodes that a Sync or the plan has changed since the cursor that an earlier call
// returned; an index may occur twice. All means that every node may have changed: the cursor is 0, or too old.
func (d *Draft) Changed(cursor uint64) (indices []int32, next uint64, all bool) {
	return d.journal.since(cursor)
}

// Place puts a capsule on a node, as a commitment of the next proposal. The capsule must be pending, or released back
// to pending by an earlier step of the same proposal; its record may also be one that the same proposal submits. A capsule that
// an Evict with Surge moves cannot be placed on the node that it is moved from.
// Choice.Note is kept with the placement, and [View.Now] as its time. The error is a [*Rejection]: ErrInfeasible says
// which of the ledger's rules the placement would break, ErrInvalid that no ledger takes the spec. The draft is
// unchanged then.
//
// The rules [Apart], [Even] and [Near] are judged on the nodes as all steps of the plan leave them. A proposal may therefore
// rest on earlier proposals of the plan; if the ledger refuses these, it is a conflict. Capsules that have left
// the node may still run there. If the placement breaks a rule as long as they run, Place sets Place.After, so that the
// capsule starts once they have stopped.
//
// If the capsule asks to be near a group of which it is itself a member (Spec.Near), and the view shows a placed member of
// that group in the node's domain, Propose adds a [GroupIn] bet for that domain. It adds none if the view shows no member
// there.
func (d *Draft) Place(c *Capsule, to Choice) error {
	if c == nil || c.Spec == nil {
		return invalidf("draft: Place needs a capsule with a spec")
	}
	n, err := d.current(to.Node)
	if err != nil {
		return err
	}
	use := d.capsules[c.ID]
	switch pending := use.what == draftReleased && use.at >= d.open; {
	case pending && d.leaver(d.log[use.at]) == nil && d.log[use.at].(Evict).From == n.Node.ID:
		return d.refuse(c.ID, n, "capsule %q surges from node %q, so it cannot be placed there", c.ID, n.Node.ID)
	case pending:
	case use.what != draftUntouched:
		return d.refuse(c.ID, n, "capsule %q is %s by this plan already", c.ID, use.what)
	case !c.Pending():
		return d.refuse(c.ID, n, "capsule %q is not pending; to move it use Evict first, and submit it again if it was released for good", c.ID)
	}
	s := draftStep{node: n, use: use, spec: c.Spec}
	taken, after, err := d.arrives(&s, c, to.Devices)
	if err != nil {
		return err
	}
	if after || c.runsElsewhere() { // it need not wait for its own remains, but the others on the node do
		s.delayed = d.delay(n, c.Spec)
	}
	if use.what == draftReleased {
		if left := d.leaver(d.log[use.at]); left != nil {
			d.returns(&s, left, d.view.state.NodeByIndex(int(n.index)))
		}
	}
	d.use(c.ID, draftTaken)
	d.step(s, taken, d.placeBoxes.New(Place{Capsule: c.ID, Node: n.Node.ID, Devices: to.Devices, Note: to.Note, At: d.now, After: after}))
	return nil
}

// arrives checks whether all rules allow a capsule on the node of step s. If they do, it counts the capsule in the queues and in the
// rules of company. It returns the node with the capsule on it, and whether the capsule has to wait there (Place.After). If the capsule
// has no id, arrives checks for any capsule of that spec, with the nomination that LookAs has set.
func (d *Draft) arrives(s *draftStep, c *Capsule, devices DeviceSet) (taken *NodeState, after bool, err error) {
	n := s.node
	if !c.Spec.Shared() { // it may never have been in a ledger
		if faults := c.Spec.faults(); len(faults) > 0 {
			return nil, false, invalidf("capsule %q: %s", c.ID, strings.Join(faults, "; "))
		}
	}
	if err := d.takes(c, n, devices); err != nil {
		return nil, false, err
	}
	if c.runsElsewhere() && !n.Node.Confirms {
		return nil, false, d.refuse(c.ID, n, "capsule %q has to stop on another node first; node %q does not confirm, so nothing waits there", c.ID, n.Node.ID)
	}
	if after, err = d.keepsCompany(c, n); err != nil {
		return nil, false, err
	}
	taken = d.copies.New(*n)
	taken.takes(c.Spec, devices)
	if n.nominated != nil {
		own := c.Spec.ask(devices, n.nominated.asker)
		if c.ID != "" {
			own.nomination = d.nominationOf(c.ID)
		}
		if err := d.yields(c.ID, taken, &own); err != nil {
			return nil, false, err
		}
	}
	s.charge = d.arrivalCharge(c.Spec, n.Node)
	if err := d.chargeIfAllowed(c, n, s.charge); err != nil {
		return nil, false, err
	}
	if err = d.reclaimsFairly(c, n); err == nil {
		err = d.moved(s, c.ID, companyMove{c.Spec, n.Node, 0, 1})
	}
	if err != nil {
		d.chargeStep(s.charge, true)
		return nil, false, err
	}
	return taken, after, nil
}

// Hold keeps room on a node, as a commitment of the next proposal. Errors are those of Place, and ErrInvalid for a
// hold that no ledger takes.
func (d *Draft) Hold(h Hold) error {
	if d.view == nil {
		return d.refuse("", nil, "the draft is empty; call Sync first")
	}
	if err := (&Proposal{Do: []Commitment{h}}).check(&d.view.state.limits); err != nil {
		return err
	}
	n, err := d.current(d.view.state.Node(h.Node))
	if err != nil {
		return err
	}
	use := d.holds[h.ID]
	_, lives := d.view.state.Hold(h.ID)
	if replaced := use.what == draftReleased && use.at >= d.open; !replaced && (lives || use.what != draftUntouched) {
		return d.refuse("", n, "there is a hold %q already; choose another id", h.ID)
	}
	room := Spec{Tolerate: []Toleration{{Op: "Exists"}}, Envelope: Envelope{Reservation: h.Room}, Devices: DeviceRequest{Count: h.Devices.Len(), Milli: h.Milli}}
	if err := d.takes(&Capsule{Spec: &room}, n, h.Devices); err != nil {
		return err
	}
	taken := d.copies.New(*n)
	taken.takes(&room, h.Devices)
	taken.Capsules--
	taken.holds++
	if n.nominated != nil {
		if err := d.yields("", taken, &ask{room: &h.Room, devices: h.Devices, milli: h.Milli, hold: true}); err != nil {
			return err
		}
	}
	d.holds[h.ID] = draftUse{draftTaken, len(d.log)}
	d.step(draftStep{node: n, use: use}, taken, h)
	return nil
}

// Release ends a placement or a hold of the view, as a commitment of the next proposal, whose later steps may use the
// room. A placement that the plan itself has made is undone with Rollback or Withdraw instead. Errors are those of
// Place.
func (d *Draft) Release(r Release) error {
	switch {
	case d.view == nil:
		return d.refuse(r.Capsule, nil, "the draft is empty; call Sync first")
	case r.Hold != "" && r.Capsule != "":
		return d.refuse(r.Capsule, nil, "a release names both capsule %q and hold %q; it ends one of them", r.Capsule, r.Hold)
	case r.Hold != "":
		return d.endHold(r)
	}
	c := d.view.state.Capsule(r.Capsule)
	use := d.capsules[r.Capsule]
	switch {
	case c == nil:
		return d.refuse(r.Capsule, nil, "there is no capsule %q in the view", r.Capsule)
	case use.what != draftUntouched:
		return d.refuse(r.Capsule, nil, "capsule %q is %s by this plan already", r.Capsule, use.what)
	case r.From != "" && r.From != c.Node:
		return d.refuse(r.Capsule, nil, "capsule %q is on node %q, not on %q", r.Capsule, c.Node, r.From)
	case c.Released() || !c.Placed() && !r.Final:
		return d.refuse(r.Capsule, nil, "capsule %q is not placed", r.Capsule)
	case r.Stopped:
		return d.refuse(r.Capsule, nil, "only the agent of its node may say that capsule %q has stopped, not a plan", r.Capsule)
	case !r.Final && c.Gang() == "" && d.view.state.Node(c.Node).Node.Schedulable() && !c.waitsToBegin(d.view.state.Node(c.Node).Node):
		return d.refuse(r.Capsule, nil, "capsule %q is on node %q, which is ready, and does not wait to begin; use Evict to move it", r.Capsule, c.Node)
	}
	act := draftReleased
	if r.Final || d.view.state.Node(c.Node).Node.ends(c) || c.surging() != nil { // a surging capsule stays placed where it runs still
		act = draftEnded
	}
	return d.leave(c, act, r)
}

// endHold is Release for a hold.
func (d *Draft) endHold(r Release) error {
	h, lives := d.view.state.Hold(r.Hold)
	use := d.holds[r.Hold]
	if !lives || use.what != draftUntouched {
		return d.refuse("", nil, "there is no hold %q in the view, or this plan has ended it already", r.Hold)
	}
	n := d.nodes[d.view.state.Node(h.Node).index]
	left := d.copies.New(*n)
	left.gives(h.Room, h.Devices, h.Milli)
	left.holds--
	left.spares(&h)
	d.holds[r.Hold] = draftUse{draftReleased, len(d.log)}
	d.step(draftStep{node: n, use: use, frees: true}, left, r)
	return nil
}

// Add puts a commitment into the next proposal that moves no capsule and takes no room: a [Submit], an [Assign] or
// a [Mark]. Any other is refused, with an error like those of Place.
func (d *Draft) Add(c Commitment) error {
	if d.view == nil {
		return d.refuse("", nil, "the draft is empty; call Sync first")
	}
	switch c.(type) {
	case Submit, Assign, Mark:
		d.step(draftStep{}, nil, c)
		return nil
	}
	return d.refuse("", nil, "Add takes no %T; Place, Hold, Release, Evict, Respec, Protect and Nominate are methods of the draft, and other commitments are not for plans", c)
}

// step notes a step with its commitment. Now is the node as the step leaves it; nil: the step changes no node.
func (d *Draft) step(s draftStep, now *NodeState, c Commitment) {
	s.log, s.open = len(d.log), d.open
	d.push(s, now)
	d.log = append(d.log, c)
}

// push notes a step. If it changes a node, now becomes the draft's node, and the journal names it.
func (d *Draft) push(s draftStep, now *NodeState) {
	d.steps = append(d.steps, s)
	d.after = append(d.after, now)
	if now != nil {
		d.nodes[now.index] = now
		d.journal.add(now.index)
	}
}

// placement returns the index in d.steps of the step whose commitment, a Place, is at a position of d.log.
func (d *Draft) placement(at int) int {
	i, _ := slices.BinarySearchFunc(d.steps, at, func(s draftStep, at int) int { return s.log - at })
	for d.steps[i].spec == nil { // Propose adds steps without a commitment (Draft.hedge), at the log position of the next one
		i++
	}
	return i
}

// current returns a node as the plan leaves it; n may be any earlier copy of that node.
func (d *Draft) current(n *NodeState) (*NodeState, error) {
	switch {
	case n == nil:
		return nil, d.refuse("", nil, "there is no such node in the view")
	case n.Node == nil:
		return nil, invalidf("draft: the choice names a node that is not the view's")
	}
	now := d.Node(int(n.index))
	if now == nil || now.Node.ID != n.Node.ID {
		return nil, d.refuse("", n, "node %q is not in the view", n.Node.ID)
	}
	return now, nil
}

// refuse returns the error of a step that breaks a rule: a Rejection of kind ErrInfeasible, at the next position of the
// proposal.
func (d *Draft) refuse(c CapsuleID, n *NodeState, format string, args ...any) error {
	r := &Rejection{Capsule: c, Reason: fmt.Sprintf(format, args...)}
	if n != nil {
		r.Node = n.Node.ID
	}
	return d.refused(r)
}

// refused completes the rejection of a step.
func (d *Draft) refused(r *Rejection) error {
	if r.Kind, r.Do = ErrInfeasible, len(d.log)-d.open; d.view != nil {
		r.At = d.view.Revision()
	}
	return r
}

// String completes "capsule is ...".
func (a draftAct) String() string {
	return [...]string{"untouched", "placed", "released", "released for good", "evicted", "given another spec"}[a]
}
