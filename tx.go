package orbit

import "fmt"

// tx is the write-set of one proposal over a state that it never writes to: records are copied on first
// touch, commitments change the copies. The zero value is ready; reset makes it ready again.
//
// Invariants: now of an entry is was plus the commitments executed so far. asked is the sum of what this
// proposal newly puts on a node, whatever it takes away. A fresh entry has a slot that no record uses.
type tx struct {
	s *State
	p Proposal
	// What the changes are stamped with.
	rev Revision
	// The commitment being executed.
	at int
	// The bets are being judged.
	bets bool

	nodes    overlay[NodeID, txNode]
	capsules overlay[CapsuleID, txCapsule]
	gangs    overlay[GangID, txGang]
	holds    overlay[HoldID, txHold]
	marks    overlay[string, txMark]
	// The node of each commitment executed.
	touched []NodeID
	// Place commitments in the proposal.
	places int

	// A node is removed.
	leavers bool

	nextNode, nextCapsule slotCursor

	// Where the members of a group are that a bet has asked for, as (level, domain); (level, ""): looked up.
	domains map[string]map[[2]string]bool
}

type txNode struct {
	// Nil: fresh.
	was          *NodeState
	now          NodeState
	dirty, gone  bool
	asked        Resources
	askedDevices DeviceSet
	// The last commitment that asked.
	asker int
}

type txCapsule struct {
	// Nil: fresh.
	was   *Capsule
	now   Capsule
	dirty bool
}

type txGang struct {
	// Nil: fresh.
	was *GangState
	// A copy of its own once dirty.
	now *GangState
	// This proposal has released its last member: what it places after that is a first placement again.
	restarts bool
}

type txHold struct{ was, now *holdRecord }

type txMark struct {
	was, now markRecord
	dirty    bool
}

// slotCursor hands out slots for fresh records: first the free ones, then new ones.
type slotCursor struct{ free, bound uint32 }

// next returns a slot that no record uses and that this write-set has not handed out. Chain tells the free
// slot behind a free one.
func (c *slotCursor) next(chain func(slot uint32) uint32) uint32 {
	if c.free == noSlot {
		c.bound++
		return c.bound - 1
	}
	slot := c.free
	c.free = chain(slot)
	return slot
}

// reset forgets everything, so that the next proposal starts from nothing, also after one that was refused
// half way.
func (t *tx) reset() {
	t.s, t.p, t.at, t.places = nil, Proposal{}, 0, 0
	t.nodes.reset()
	t.capsules.reset()
	t.gangs.reset()
	t.holds.reset()
	t.marks.reset()
	t.touched = t.touched[:0]
	t.domains, t.leavers = nil, false
}

// run judges and executes the proposal on s, stamping with rev. It returns the revision at which the
// proposal has been committed before, 0 if it has not. It requires a prepared proposal and an empty tx.
func (t *tx) run(s *State, rev Revision, p *Proposal) (done Revision, err error) {
	t.s, t.p, t.rev = s, *p, rev
	t.nextNode = slotCursor{s.nodeFree, s.nodeBound}
	t.nextCapsule = slotCursor{s.capsuleFree, s.capsuleBound}
	if done = t.committedBefore(); done != 0 {
		return done, nil
	}
	t.bets = true
	for _, bet := range p.If {
		if err := t.judge(bet); err != nil {
			return 0, err
		}
	}
	t.bets = false
	for t.at = range p.Do {
		node, err := t.execute(p.Do[t.at])
		if err != nil {
			return 0, err
		}
		t.touched = append(t.touched, node)
	}
	return 0, t.settle()
}

// committedBefore looks for the proposal's id where it would be: in the records that it placed or, if it
// places nothing, among the recent ids.
func (t *tx) committedBefore() Revision {
	for _, c := range t.p.Do {
		place, ok := c.(Place)
		if !ok {
			continue
		}
		t.places++
		if t.p.ID.IsZero() {
			continue
		}
		if c := t.capsule(place.Capsule); c != nil {
			if at := c.now.placedBy(t.p.ID); at != 0 {
				return at
			}
		}
	}
	if t.places > 0 {
		return 0
	}
	return t.s.recent.find(t.p.ID)
}

// node returns the entry of a member, nil if there is none. The pointer holds until the next node joins the
// write-set.
func (t *tx) node(id NodeID) *txNode {
	if e := t.nodes.find(id); e != nil {
		if e.gone {
			return nil
		}
		return e
	}
	was := t.s.Node(id)
	if was == nil {
		return nil
	}
	e := t.nodes.add(was.Node.ID)
	e.was, e.now = was, *was
	return e
}

// capsule returns the entry of a capsule, nil if there is no record of it. The pointer holds until the next
// capsule joins the write-set.
func (t *tx) capsule(id CapsuleID) *txCapsule {
	if e := t.capsules.find(id); e != nil {
		return e
	}
	was := t.s.Capsule(id)
	if was == nil {
		return nil
	}
	e := t.capsules.add(was.ID)
	e.was, e.now = was, *was
	return e
}

// gang returns the entry of a gang, nil if there is none.
func (t *tx) gang(id GangID) *txGang {
	if e := t.gangs.find(id); e != nil {
		return e
	}
	was := t.s.Gang(id)
	if was == nil {
		return nil
	}
	e := t.gangs.add(was.Gang.ID)
	e.was, e.now = was, was
	return e
}

// hold returns the entry of a hold, with a nil record if there is none.
func (t *tx) hold(id HoldID) *txHold {
	if e := t.holds.find(id); e != nil {
		return e
	}
	was, _ := t.s.holds.Get(&holdRecord{Hold: Hold{ID: id}})
	e := t.holds.add(id)
	e.was, e.now = was, was
	return e
}

// mark returns the entry of a mark, with a zero record if there is none.
func (t *tx) mark(key string) *txMark {
	if e := t.marks.find(key); e != nil {
		return e
	}
	was, _ := t.s.marks.Get(markRecord{key: key})
	e := t.marks.add(key)
	e.was, e.now = was, was
	return e
}

// refuse completes a rejection: a conflict if what it rests on has changed after the proposal's view, else
// the proposer's mistake.
func (t *tx) refuse(r Rejection, newest Revision, format string, args ...any) error {
	r.Kind = ErrInfeasible
	if newest > t.p.View {
		r.Kind = ErrConflict
	}
	r.Do = t.at
	if t.bets {
		r.Do = -1
	}
	r.At, r.TakenAt = t.s.rev, newest
	r.Reason = fmt.Sprintf(format, args...)
	return &r
}

// judge decides one bet on the state before the proposal.
func (t *tx) judge(bet Precondition) error {
	switch bet := bet.(type) {
	case NodeFreeOf:
		return t.judgeFree(bet)
	case NodeAt:
		return t.judgeNodeAt(bet)
	case GangUnplaced:
		g := t.s.Gang(bet.Gang)
		if g == nil {
			return t.refuse(Rejection{Bet: bet}, t.s.left.Gangs, "there is no gang %q", bet.Gang)
		}
		if n := g.Total(); n > 0 {
			return t.refuse(Rejection{Bet: bet}, g.Changed, "gang %q has %d members placed", bet.Gang, n)
		}
	case GroupIn:
		return t.judgeGroup(bet)
	case MarkAt:
		if m := t.mark(bet.Key).was; m.changed != bet.Revision {
			return t.refuse(Rejection{Bet: bet}, max(m.changed, t.s.left.Marks),
				"mark %q is at revision %d, not %d", bet.Key, m.changed, bet.Revision)
		}
	}
	return nil
}

// judgeFree compares want with capacity less use: no sum, so nothing wraps.
func (t *tx) judgeFree(bet NodeFreeOf) error {
	n := t.node(bet.Node)
	if n == nil {
		return t.noNode(bet, bet.Node)
	}
	if n.now.hasRoom(&bet.AtLeast) {
		return nil
	}
	r := Rejection{Bet: bet, Node: bet.Node}
	t.short(&r, &bet.AtLeast, n.now.Free())
	return t.refuse(r, n.newest(), "node %q is short", bet.Node)
}

// judgeNodeAt compares counters for equality. They are drawn from the ledger-wide revision, so a node that
// was removed and put back does not pass for the old one.
func (t *tx) judgeNodeAt(bet NodeAt) error {
	n := t.node(bet.Node)
	if n == nil {
		return t.noNode(bet, bet.Node)
	}
	if bet.Usage != 0 && bet.Usage != n.now.Usage {
		return t.refuse(Rejection{Bet: bet, Node: bet.Node}, n.now.Usage,
			"node %q: usage is at revision %d, not %d", bet.Node, n.now.Usage, bet.Usage)
	}
	if bet.Specification != 0 && bet.Specification != n.now.Specification {
		return t.refuse(Rejection{Bet: bet, Node: bet.Node}, n.now.Specification,
			"node %q: specification is at revision %d, not %d", bet.Node, n.now.Specification, bet.Specification)
	}
	return nil
}

// judgeGroup looks for a placed member in the domain, on a node that carries the label.
func (t *tx) judgeGroup(bet GroupIn) error {
	if t.domains == nil {
		t.domains = map[string]map[[2]string]bool{}
	}
	if t.domains[bet.Group] == nil {
		t.domains[bet.Group] = map[[2]string]bool{}
	}
	known := t.domains[bet.Group]
	if !known[[2]string{bet.Level}] {
		known[[2]string{bet.Level}] = true
		for n := range t.s.GroupNodes(bet.Group) {
			if domain := n.Node.Labels[bet.Level]; domain != "" {
				known[[2]string{bet.Level, domain}] = true
			}
		}
	}
	if known[[2]string{bet.Level, bet.Domain}] {
		return nil
	}
	return t.refuse(Rejection{Bet: bet}, t.s.left.Groups,
		"no placed capsule of group %q is in %s %q", bet.Group, bet.Level, bet.Domain)
}

// noNode refuses a bet on a node that is not a member.
func (t *tx) noNode(bet Precondition, id NodeID) error {
	return t.refuse(Rejection{Bet: bet, Node: id}, t.s.left.Nodes, "node %q is not a member", id)
}

// newest is when anything about the node that a plan rests on last changed.
func (n *txNode) newest() Revision {
	if n.was == nil {
		return 0
	}
	return max(n.was.Usage, n.was.Specification)
}

// short fills in the first dimension in which want exceeds free.
func (t *tx) short(r *Rejection, want *Resources, free Resources) {
	for d := range want {
		if want[d] > 0 && want[d] > free[d] {
			r.Dimension, r.Want, r.Free = t.s.names.name(Dimension(d)), want[d], free[d]
			return
		}
	}
}

// settle judges what only the sum of all commitments shows: fit, node by node, and gangs.
func (t *tx) settle() error {
	for i := range t.nodes.entries {
		n := &t.nodes.entries[i]
		if n.askedDevices == 0 && n.asked == (Resources{}) {
			continue
		}
		if err := t.settleNode(n); err != nil {
			return err
		}
	}
	for i := range t.gangs.entries {
		if err := t.settleGang(&t.gangs.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// settleNode compares use with capacity where this proposal has asked for something. Dimensions that it
// does not ask for may be over their capacity, if that has shrunk; those that it asks for may not, whatever
// else it releases there.
func (t *tx) settleNode(n *txNode) error {
	node, over := n.now.Node, false
	for d := range n.asked {
		over = over || n.asked[d] > 0 && n.now.used[d] > node.Capacity[d]
	}
	if over {
		t.at = n.asker
		r := Rejection{Node: node.ID}
		t.short(&r, &n.asked, node.Capacity.minus(n.now.used.minus(n.asked)))
		return t.refuse(r, n.newest(), "node %q is short", r.Node)
	}
	return t.settleDevices(n)
}

// settleDevices does the same for device instances. The node may have lost one in this very proposal.
func (t *tx) settleDevices(n *txNode) error {
	if n.askedDevices == 0 {
		return nil
	}
	d := &n.now.Node.Devices
	for i := range MaxDevices {
		if !n.askedDevices.Has(i) {
			continue
		}
		room, used := int64(0), int64(n.now.devices[i])
		if i < d.Count && !d.Unhealthy.Has(i) {
			room = deviceMilli
		}
		if used > room {
			t.at = n.asker
			before := int64(0)
			if n.was != nil {
				before = int64(n.was.deviceUse()[i])
			}
			r := Rejection{Node: n.now.Node.ID, Dimension: fmt.Sprintf("device %d", i), Want: used - before, Free: max(0, room-before)}
			return t.refuse(r, n.newest(), "node %q is short", r.Node)
		}
	}
	return nil
}

// settleGang judges a first placement; later placements may be short.
func (t *tx) settleGang(g *txGang) error {
	if g.now.Total() == 0 || g.was != nil && g.was.Total() > 0 && !g.restarts {
		return nil
	}
	i := g.now.wanting()
	if i < 0 {
		return nil
	}
	t.at = -1 // all together
	role := &g.now.Gang.Roles[i]
	return t.refuse(Rejection{}, g.newest(), "gang %q: role %q would have %d members placed, at least %d must be at first",
		g.now.Gang.ID, role.Name, g.now.Placed[i], role.minimum())
}
