package orbit

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"time"
)

// stateBuilder makes a [State] of records that a ledger has kept elsewhere, each as it was when it last changed.
// Records pass the same checks as proposals, and enter the state through the same write-set. A method that returns an
// error says what is wrong with its record; the builder must not be used after that.
//
// Nodes come first, then gangs, then capsules: those that live in order of submission, and behind them the released
// ones in the order of their release. The zero value with its fields set is ready for use.
type stateBuilder struct {
	// Revision is the revision of the state to build, and the upper bound of the revisions in all records that are
	// added.
	Revision Revision
	// Limits are the limits of the ledger that kept the records, as its Limits method returned them. Records beyond
	// Limits.Terminal or Limits.ProposalIDs are dropped.
	Limits Limits
	// Dimensions are the names of the resource dimensions; empty ones have a default.
	Dimensions [Dimensions]string

	state *State
	// tx holds every record but the capsules. Its first nodes and gangs, as many as the fields nodes and gangs count,
	// are in the state already: publishCapsules moves them there before the capsules that refer to them.
	tx           tx
	nodes, gangs int
	// capsules holds those that were added and are not in the state yet. publishCapsules moves them to the state as
	// soon as there are builderPiece of them.
	capsules []txCapsule
	// released holds the slots of the released capsules, in the order in which they were added.
	released []uint32
	// over is the error after which the builder must not be used; nil: there was none.
	over error
	// orders is a bit set of the submission numbers that are taken, with 64 numbers to a key.
	orders map[uint64]uint64
	// members maps each capsule that a gang lists to the index of its role.
	members map[membership]int
}

// membership is a capsule in the list of a gang. Several gangs may list the same id, if it was used again.
type membership struct {
	gang    GangID
	capsule CapsuleID
}

// builderPiece is how many capsules enter the state at once. It is small because the builder searches them linearly for
// an id. Tests make it smaller.
var builderPiece = 16

// start makes the state when it is first needed. The builder does not know when records were last removed, so it sets
// all departures to Revision, the latest possible.
func (b *stateBuilder) start() error {
	if b.state != nil || b.over != nil {
		return b.over
	}
	if b.Revision > math.MaxInt64 {
		return fmt.Errorf("revision %d leaves no room to count on", b.Revision)
	}
	if b.Limits != b.Limits.withDefaults() {
		return errors.New("limits must be positive")
	}
	b.state = newState(b.Limits, b.Dimensions)
	b.state.rev = b.Revision
	b.state.left = departures{b.Revision, b.Revision, b.Revision, b.Revision, b.Revision, b.Revision, b.Revision, b.Revision, b.Revision, b.Revision}
	b.orders, b.members = map[uint64]uint64{}, map[membership]int{}
	b.tx.s, b.tx.rev = b.state, b.Revision
	return nil
}

// add runs the steps that check and add one record, and returns their error with the faults that were found.
func (b *stateBuilder) add(record func(v *validator) error) error {
	if err := b.start(); err != nil {
		return err
	}
	v := validator{limits: &b.state.limits, what: "record"}
	err := record(&v)
	for _, fault := range v.faults {
		err = errors.Join(err, errors.New(fault))
	}
	if err != nil {
		b.over = fmt.Errorf("after an error: %w", err)
	}
	return err
}

// Node adds a member node. Usage is the revision at which its used capacity last changed, specification the revision at
// which its description last changed; neither may be 0.
func (b *stateBuilder) Node(n Node, usage, specification Revision) error {
	return b.add(func(v *validator) error {
		n = *n.clone()
		PutNode{n}.check(v)
		if usage == 0 || specification == 0 {
			v.fail("node %q: counters %d and %d; neither may be zero", n.ID, usage, specification)
		}
		if b.tx.nodes.find(n.ID) != nil {
			return fmt.Errorf("a second node %q", n.ID)
		}
		if err := b.tx.putNode(&n); err != nil {
			return err
		}
		e := b.tx.nodes.find(n.ID)
		e.now.Usage, e.now.Specification = usage, specification
		return nil
	})
}

// Gang adds a gang that last changed at a revision, with its nomination (nil: none). The gang starts with all members
// done and none placed; each member that is added later is counted as its record says.
func (b *stateBuilder) Gang(g *Gang, changed Revision, nominated *Nomination) error {
	if g == nil {
		return b.add(func(*validator) error { return errors.New("no gang") })
	}
	own := *g
	own.Levels, own.Roles = cloned(g.Levels), cloned(g.Roles)
	for i := range own.Roles {
		own.Roles[i].Members = cloned(own.Roles[i].Members)
		spec, err := b.share(own.Roles[i].Spec)
		if err != nil {
			return err
		}
		own.Roles[i].Spec = spec
	}
	return b.add(func(v *validator) error { return b.gang(v, &own, changed, nominated) })
}

// gang does the work of Gang for a gang whose specs are the shared copies already (see share).
func (b *stateBuilder) gang(v *validator, g *Gang, changed Revision, nominated *Nomination) error {
	v.gang(g)
	var specs []*Spec
	for i := range g.Roles {
		if s := g.Roles[i].Spec; s != nil {
			specs = append(specs, s)
		}
	}
	nominated, err := b.nomination(v, nominated, Nomination{Gang: g.ID}, specs...)
	if err != nil {
		return err
	}
	if b.tx.gangs.find(g.ID) != nil {
		return fmt.Errorf("a second gang %q", g.ID)
	}
	now := newGangState(g, changed)
	for i := range g.Roles {
		for _, id := range g.Roles[i].Members {
			b.members[membership{g.ID, id}] = i
		}
		now.Done[i] = len(g.Roles[i].Members) // until their records are added
	}
	now.Nomination = nominated
	b.tx.gangs.add(g.ID).now = now
	return nil
}

// share checks a spec and returns the one copy that all equal specs use.
func (b *stateBuilder) share(s *Spec) (shared *Spec, err error) {
	if s == nil {
		return nil, errors.New("no spec")
	}
	err = b.add(func(v *validator) error { shared = v.spec(s.clone()); return nil })
	return shared, err
}

// storedCapsule is a capsule with all that a record tells about it, for [stateBuilder.Capsule].
type storedCapsule struct {
	// Capsule gives all exported fields of the record.
	Capsule
	// Owner is what [Capsule.Owner] returns.
	Owner string
	// Gang is what [Capsule.Gang] returns. The gang must have been added before, and must list the capsule.
	Gang GangID
	// Labels are what [Capsule.Labels] returns; they are copied.
	Labels map[string]string
	// SubmitTime is what [Capsule.SubmitTime] returns.
	SubmitTime Instant
	// Note is what [Capsule.Note] returns.
	Note string
	// Remains is what [Capsule.Remains] returns. A Spec of nil stands for the capsule's own.
	Remains *Remains
	// Surge is what [Capsule.Surge] returns, as Remains.
	Surge *Remains
	// Nomination is what [Capsule.Nomination] returns.
	Nomination *Nomination
	// Borrows is what [Capsule.Borrows] returns.
	Borrows *Nominee
	// Failures is what [State.Failures] returns; nil: the zero value. It must not change afterwards.
	Failures *Failures
	// Earlier yields the placements before PlacedBy that are remembered, newest first; nil: there are none.
	Earlier iter.Seq2[ProposalID, Revision]
	// Released reports whether the capsule has been released for good.
	Released bool
}

// Capsule adds a capsule, placed or not. It does not check that the capsule fits on its node, because the capacity may
// have shrunk since the placement; State checks the sums.
func (b *stateBuilder) Capsule(r storedCapsule) error {
	var err error
	if r.Spec, err = b.share(r.Spec); err != nil {
		return err
	}
	for _, at := range [...]**Remains{&r.Remains, &r.Surge} {
		if *at == nil || (*at).Spec == nil {
			continue
		}
		own := **at
		if own.Spec, err = b.share(own.Spec); err != nil {
			return err
		}
		*at = &own
	}
	r.Labels = maps.Clone(r.Labels)
	role, listed := b.members[membership{r.Gang, r.ID}]
	if r.Gang != "" && !listed {
		return b.add(func(*validator) error { return fmt.Errorf("capsule %q: gang %q does not list it", r.ID, r.Gang) })
	}
	return b.add(func(v *validator) error {
		b.state.order = max(b.state.order, submission(r.Submitted))
		return b.capsule(v, r, uint16(role))
	})
}

// capsule does the work of Capsule for a record whose specs are the shared copies already and whose role is known.
func (b *stateBuilder) capsule(v *validator, r storedCapsule, role uint16) error {
	c := r.Capsule
	v.id("capsule id", string(c.ID))
	v.text("owner", r.Owner, v.limits.IDBytes)
	v.text("note", r.Note, v.limits.ValueBytes)
	v.carried("submission", r.SubmitTime, r.Labels)
	v.carried("placement", c.PlaceTime, nil)
	if b.hasCapsule(c.ID) {
		return fmt.Errorf("a second capsule %q", c.ID)
	}
	if c.Submitted == 0 || c.Submitted > uint64(b.state.order) {
		return fmt.Errorf("capsule %q: order %d is not within 1 to %d", c.ID, c.Submitted, b.state.order)
	}
	taken, bit := b.orders[c.Submitted/64], uint64(1)<<(c.Submitted%64)
	if taken&bit != 0 {
		return fmt.Errorf("capsule %q: another capsule has order %d already", c.ID, c.Submitted)
	}
	b.orders[c.Submitted/64] = taken | bit
	c.released = r.Released
	c.common = b.tx.share(common{r.Owner, r.Gang, r.Labels, r.SubmitTime, role}) // capsules of one submission come one after the other
	earlier, err := restored(r.Earlier)
	if err != nil {
		return fmt.Errorf("capsule %q: %w", c.ID, err)
	}
	c.setRare(uncommon{r.Note, r.Remains, r.Surge, r.Nomination, r.Borrows, earlier})
	if err := c.datable(); err != nil {
		return err
	}
	nominated, err := b.nomination(v, r.Nomination, Nomination{Capsule: c.ID}, c.Spec)
	if err != nil {
		return err
	}
	c.setNomination(nominated)
	if err := b.addRemains(&c); err != nil {
		return err
	}
	node, err := b.countPlace(&c)
	if err != nil {
		return err
	}
	b.addLoan(&c)
	if len(b.capsules) == builderPiece {
		b.publishCapsules()
	}
	if why := r.Failures.fault(b.Revision); why != "" {
		return fmt.Errorf("capsule %q: failures: %s", c.ID, why)
	}
	b.capsules = append(b.capsules, txCapsule{now: c, dirty: true, slot: b.tx.vacantCapsule(), node: node, failures: r.Failures})
	return nil
}

// hasCapsule reports whether a capsule was added.
func (b *stateBuilder) hasCapsule(id CapsuleID) bool {
	for i := range b.capsules {
		if b.capsules[i].now.ID == id {
			return true
		}
	}
	c, _ := b.state.findCapsule(id)
	return c != nil
}

// countPlace adds a capsule to the counts of its gang and its node, and returns the slot of the node.
func (b *stateBuilder) countPlace(c *Capsule) (slot uint32, err error) {
	if c.Gang() != "" {
		g := b.tx.gangs.find(c.Gang())
		if g == nil || int(c.inCommon().role) >= len(g.now.Placed) {
			return 0, fmt.Errorf("capsule %q: gang %q has no role %d", c.ID, c.Gang(), c.inCommon().role)
		}
		if role, listed := b.members[membership{c.Gang(), c.ID}]; !listed || role != int(c.inCommon().role) {
			return 0, fmt.Errorf("capsule %q: gang %q does not list it in role %d", c.ID, c.Gang(), c.inCommon().role)
		}
		g.now.records++
		g.now.varies = g.now.varies || c.Respecified
		g.now.Placed[c.inCommon().role] += btoi(c.Placed())
		g.now.Done[c.inCommon().role] -= btoi(!c.released)
	}
	if !c.Placed() {
		return 0, nil
	}
	n := b.tx.nodes.find(c.Node)
	if n == nil || c.released {
		return 0, fmt.Errorf("capsule %q (released: %v) is on node %q, which has not appeared", c.ID, c.released, c.Node)
	}
	usage := n.now.Usage
	err = b.tx.take(n, &c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli)
	n.now.Usage = usage
	n.now.Capsules++
	c.Node = n.now.Node.ID // so all capsules on the node share the memory of its id
	return n.now.index, err
}

// addRemains puts the remains of a capsule on their node.
func (b *stateBuilder) addRemains(c *Capsule) error {
	u := *c.rare()
	for _, at := range [...]**Remains{&u.remains, &u.surge} {
		if *at == nil {
			continue
		}
		r, err := b.remains(c, **at)
		if err != nil {
			return err
		}
		*at = r
	}
	c.setRare(u)
	return nil
}

// remains puts what remains of a capsule on its node, and returns the record of it.
func (b *stateBuilder) remains(c *Capsule, r Remains) (*Remains, error) {
	r.Spec = cmp.Or(r.Spec, c.Spec)
	n := b.tx.nodes.find(r.Node)
	if n == nil || n.now.Node.State == Lost || r.Since == 0 || r.Since > r.Left || r.Left > b.Revision || r.Devices.Len() != r.Spec.Devices.Count {
		return nil, fmt.Errorf("capsule %q has impossible remains on node %q: placed at revision %d, left at revision %d, on devices %016b",
			c.ID, r.Node, r.Since, r.Left, r.Devices)
	}
	r.Capsule = c.ID
	b.tx.setRemains(n, n.now.withRemains(&r))
	if !r.Surge {
		return &r, nil
	}
	usage := n.now.Usage
	err := b.tx.take(n, &r.Spec.Envelope.Reservation, r.Devices, r.Spec.Devices.Milli)
	n.now.Usage = usage
	return &r, err
}

// addLoan adds the capacity that a capsule borrows to the loans on its node, and determines which capsules may borrow
// from the capsule's own nomination. The gang and the node must have been added before.
func (b *stateBuilder) addLoan(c *Capsule) {
	if c.Borrows() != nil {
		b.tx.nodes.find(c.Node).now.borrow(c, 1)
	}
	if c.Gang() != "" && c.Nomination().Lives() { // it evicts as its gang does
		c.Nomination().ceiling = min(c.Nomination().ceiling, b.state.limits.ceiling(b.tx.gangs.find(c.Gang()).now.Gang.lowest()))
	}
}

// Protect marks a capsule as protected on its node for the duration that [State.Protected] returned. The capsule must
// have been added before.
func (b *stateBuilder) Protect(id CapsuleID, lasts time.Duration) error {
	return b.add(func(v *validator) error {
		b.publishCapsules()
		c, _ := b.state.findCapsule(id)
		if c == nil || !c.Placed() || c.Spec.Backfills || b.state.Protected(id) != 0 || lasts <= 0 {
			return fmt.Errorf("capsule %q is protected for %v: it is not placed, backfills, is protected already, or that is no duration", id, lasts)
		}
		b.state.protected.ReplaceOrInsert(protection{id, c.PlacedAt, lasts})
		return nil
	})
}

// Hold adds a hold that last changed at a revision.
func (b *stateBuilder) Hold(h Hold, changed Revision) error {
	return b.add(func(v *validator) error {
		own, _ := h.check(v).(Hold)
		n := b.tx.nodes.find(h.Node)
		if n == nil || b.tx.hold(h.ID).now != nil {
			return fmt.Errorf("hold %q appears twice, or its node %q has not appeared", h.ID, h.Node)
		}
		b.tx.hold(h.ID).now = &holdRecord{own, changed}
		usage := n.now.Usage
		err := b.tx.take(n, &own.Room, own.Devices, own.Milli)
		n.now.Usage = usage
		n.now.holds++
		return err
	})
}

// nomination checks the nomination of a capsule or a gang with these specs, and returns a copy. It does not check the
// bound on the sum of all nominations: the ledger checked that when the nomination was made. A gang ranks by the
// roles that had members left then, which may be any.
func (b *stateBuilder) nomination(v *validator, n *Nomination, whose Nomination, specs ...*Spec) (*Nomination, error) {
	if n == nil {
		return nil, nil
	}
	own := *n
	own.Parts = cloned(n.Parts)
	if own.Capsule != whose.Capsule || own.Gang != whose.Gang {
		return nil, fmt.Errorf("nomination of %s is kept with %s", own.nominee(), whose.nominee())
	}
	if own.First == 0 || own.First > own.Made || own.Renewals < 0 || !own.Lives() && (own.Rank != 0 || !own.Ends.IsZero() || own.Lends != 0) {
		return nil, fmt.Errorf("nomination of %s at revision %d, first at %d, cannot be", own.nominee(), own.Made, own.First)
	}
	if !own.Lives() {
		return &own, nil
	}
	as, _ := Nominate{Capsule: own.Capsule, Gang: own.Gang, Parts: own.Parts, Ends: own.Ends, Lends: own.Lends}.check(v).(Nominate)
	lowest := int32(math.MaxInt32)
	for _, s := range specs {
		lowest = min(lowest, s.Priority)
	}
	own.Ends, own.ceiling = as.Ends, v.limits.ceiling(lowest)
	if own.Rank < lowest {
		return nil, fmt.Errorf("nomination of %s ranks %d, below the lowest priority %d", own.nominee(), own.Rank, lowest)
	}
	for i := range own.Parts {
		if b.tx.nodes.find(own.Parts[i].Node) == nil {
			return nil, fmt.Errorf("nomination of %s names node %q, which has not appeared", own.nominee(), own.Parts[i].Node)
		}
	}
	b.tx.nominates = true
	return &own, nil
}

// Budget adds a budget that was put at a revision.
func (b *stateBuilder) Budget(budget Budget, changed Revision) error {
	return b.add(func(v *validator) error {
		v.commitment(PutBudget{budget})
		e := b.tx.budget(budget.ID)
		if e.now != nil {
			return fmt.Errorf("a second budget %q", budget.ID)
		}
		e.now, e.left = &budgetRecord{budget, changed}, b.Revision
		return nil
	})
}

// Queue adds a queue, after its parent. Capsules that name it may be added before and after it.
func (b *stateBuilder) Queue(d *dumpQueue) error {
	queue := d.Queue
	return b.add(func(v *validator) error {
		v.commitment(PutQueue{queue})
		if len(v.faults) > 0 {
			return nil
		}
		if b.state.queue(queue.ID) != nil {
			return fmt.Errorf("a second queue %q", queue.ID)
		}
		b.publishCapsules()
		t := tx{s: b.state, rev: b.tx.rev, places: 1, charged: true}
		if err := t.putQueue(&queue); err != nil {
			return err
		}
		e := t.queueEntry(queue.ID)
		e.now.quota.changed, e.now.tight, e.now.eased = d.Changed, d.Tight, d.Eased
		b.state.publish(&t)
		return nil
	})
}

// Mark adds a mark that last changed at a revision.
func (b *stateBuilder) Mark(key, value string, changed Revision) error {
	return b.add(func(v *validator) error {
		v.id("mark key", key)
		v.text("mark value", value, v.limits.ValueBytes)
		if value == "" {
			v.fail("mark %q has no value", key)
		}
		e := b.tx.mark(key)
		if e.dirty {
			return fmt.Errorf("a second mark %q", key)
		}
		e.now, e.dirty = markRecord{key, value, changed}, true
		return nil
	})
}

// Committed adds the id of a proposal that was committed at a revision and placed nothing. Proposals that placed
// capsules need no call, because the capsules' records name them. Add the oldest proposal first.
func (b *stateBuilder) Committed(id ProposalID, at Revision) error {
	return b.add(func(*validator) error {
		if id.IsZero() || at == 0 {
			return fmt.Errorf("recent id %s at revision %d: neither may be zero", id, at)
		}
		if b.state.recent.Find(id) != 0 {
			return fmt.Errorf("a second recent id %s", id)
		}
		b.state.recent.Add(id, at, b.state.limits.ProposalIDs, b.state.owner)
		return nil
	})
}

// State publishes the write-set and returns the state. It fails if [State.Verify] finds that the records do not add up,
// and if a record was refused. The builder is of no further use.
func (b *stateBuilder) State() (*State, error) {
	if err := b.start(); err != nil {
		return nil, err
	}
	b.publish()
	b.tx.reset()
	b.over = errors.New("the state has been made")
	return b.state, b.state.Verify()
}

// publishCapsules moves the capsules that were added last to the state. Before them it moves the nodes and gangs to
// which they may refer.
func (b *stateBuilder) publishCapsules() {
	nodes, gangs := b.tx.nodes.entries[b.nodes:], b.tx.gangs.entries[b.gangs:]
	// Places is 1 because publish then remembers no proposal id; the builder has no proposal.
	part := tx{s: b.state, rev: b.tx.rev, places: 1, nominates: b.tx.nominates}
	part.nodes.entries, part.gangs.entries = nodes, gangs
	b.state.publish(&part)
	for i := range nodes { // capsules that are added later change the used capacity of these nodes
		nodes[i].was, nodes[i].dirty = b.state.NodeByIndex(int(nodes[i].now.index)), false
	}
	for i := range gangs {
		gangs[i].was = gangs[i].now
	}
	b.nodes, b.gangs = b.nodes+len(nodes), b.gangs+len(gangs)
	b.state.publish(&tx{s: b.state, rev: b.tx.rev, places: 1, nominates: b.tx.nominates, capsules: overlay[CapsuleID, txCapsule]{entries: b.capsules}})
	for i := range b.capsules {
		if b.capsules[i].now.released {
			b.released = append(b.released, b.capsules[i].slot)
		}
	}
	clear(b.capsules)
	b.capsules = b.capsules[:0]
}

// publish moves all remaining records to the state. The budgets come last, because they count the capsules.
func (b *stateBuilder) publish() {
	order, budgets := b.state.order, b.tx.budgets
	b.publishCapsules()
	for i := range b.tx.nodes.entries {
		n := &b.tx.nodes.entries[i]
		n.now.nominated = n.was.nominated // publishing capsules and gangs has set it in the state
	}
	b.tx.places = 1
	b.tx.budgets = overlay[BudgetID, txBudget]{}
	b.state.publish(&b.tx)
	b.state.publish(&tx{s: b.state, rev: b.tx.rev, places: 1, budgets: budgets})
	b.state.order = order // publish sets the highest number in the records, but the ledger may have given out higher ones
	for _, slot := range b.released {
		b.state.enqueueReleased(slot)
	}
	b.state.dropReleased()
}
