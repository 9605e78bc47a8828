package orbit

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// place puts a pending capsule on a node. Everything except room is checked at once. Room is judged when all
// commitments are known, so that a release may come after the placement it makes way for. The record
// remembers which proposal placed it: so a proposal that is sent twice is recognised without a side table.
func (t *tx) place(c *Place) (NodeID, error) {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	n := t.node(c.Node)
	if n == nil {
		return "", t.refuse(Rejection{Capsule: c.Capsule, Node: c.Node}, t.s.left.Nodes, "node %q is not a member", c.Node)
	}
	if err := t.mayPlace(c, e, n); err != nil {
		return "", err
	}
	spec := e.now.Spec
	n.asks = max(n.asks, e.newestSpec())
	if err := t.take(n, &spec.Envelope.Reservation, c.Devices, spec.Devices.Milli); err != nil {
		return "", err
	}
	n.now.Capsules++
	e.dirty = true
	e.now.remember(t.s.limits.PlacementIDs)
	e.now.Node, e.node, e.arrives = n.now.Node.ID, n.now.index, true
	e.now.Devices, e.now.PlaceTime = c.Devices, c.At
	e.now.Changed, e.now.PlacedAt, e.now.PlacedBy = t.rev, t.rev, t.p.ID
	e.after, e.adopted, e.now.Adopted = c.After, false, false
	t.enter(e, c.Note)
	return n.now.Node.ID, nil
}

// enter completes the record of a capsule that comes to a node: the capsule's nomination ends, and its gang counts it.
func (t *tx) enter(e *txCapsule, note string) {
	rare := *e.now.rare()
	t.nominates = t.nominates || rare.nomination != nil
	rare.nomination, rare.note = nil, note
	e.now.setRare(rare)
	t.countGang(&e.now, 1)
}

// mayPlace checks everything about a placement except room and the rules that judgeTotals judges.
func (t *tx) mayPlace(c *Place, e *txCapsule, n *txNode) error {
	node, spec := n.now.Node, e.now.Spec
	switch {
	case e.now.released:
		return t.refuseEnded(e)
	case e.evicted:
		return t.refusePlace(c, 0, "capsule %q is evicted by this proposal", c.Capsule)
	case e.now.Placed():
		return t.refusePlace(c, e.newest(), "capsule %q is placed on node %q", c.Capsule, e.now.Node)
	case node.State == Lost || t.breaks(!node.Schedulable()):
		return t.refusePlace(c, n.newestSpec(), "node %q is unschedulable", c.Node)
	}
	for i := range spec.Require {
		if t.breaks(!spec.Require[i].On(node)) {
			return t.refusePlace(c, max(n.newestSpec(), e.newestSpec()), "node %q does not meet %s", c.Node, spec.Require[i])
		}
	}
	if taint := node.keptOff(spec); t.breaks(taint != nil) {
		return t.refusePlace(c, max(n.newestSpec(), e.newestSpec()), "node %q has the taint %s, which capsule %q does not tolerate", c.Node, taint, c.Capsule)
	}
	r := &spec.Devices
	switch {
	case c.Devices.Len() != r.Count:
		return t.refusePlace(c, e.newestSpec(), "capsule %q asks for %d devices, the placement names %d", c.Capsule, r.Count, c.Devices.Len())
	case t.breaks(r.Count > 0 && !r.Accepts(node.Devices.Model)):
		return t.refusePlace(c, max(n.newestSpec(), e.newestSpec()), "node %q has devices of model %q, not %s", c.Node, node.Devices.Model, joinWords(r.Models))
	}
	return t.mayUse(n, c.Devices, c.Capsule)
}

// mayUse checks that the device instances exist on the node and are healthy.
func (t *tx) mayUse(n *txNode, set DeviceSet, capsule CapsuleID) error {
	d := &n.now.Node.Devices
	if set>>d.Count != 0 || t.breaks(set&d.Unhealthy != 0) {
		return t.refuse(Rejection{Capsule: capsule, Node: n.now.Node.ID}, n.newestSpec(),
			"node %q: devices %016b are not all there and healthy", n.now.Node.ID, set)
	}
	return nil
}

// take adds room and devices to the use of a node, and to the sum that the proposal asks for there. Whether they fit is
// judged when all commitments are known; only a sum that overflows is refused at once.
func (t *tx) take(n *txNode, want *Resources, set DeviceSet, milli int) error {
	for d, w := range want {
		if w == 0 {
			continue
		}
		if w > math.MaxInt64-max(n.asked[d], n.now.used[d]) { // neither is negative
			r := Rejection{Node: n.now.Node.ID}
			t.short(&r, want, n.now.Free())
			return t.refuse(r, max(n.newest(), n.asks), "node %q is short, by more than can be counted", r.Node)
		}
		n.asked[d] += w
		n.now.used[d] += w
	}
	n.asker = t.at
	n.askedDevices |= set
	n.now.useDevices(set, milli)
	n.now.Usage, n.dirty = t.rev, true
	return nil
}

// release takes a capsule off its node, back to pending or for good. A second release of the same placement is refused.
// With From, a release that arrives late cannot undo a newer placement on another node either.
func (t *tx) release(c *Release) (NodeID, error) {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	at := Rejection{Capsule: c.Capsule, Node: e.now.Node}
	switch {
	case e.now.released && c.Final:
		at.advice = "it has ended, so nothing is left to release"
		return "", t.refuse(at, e.newest(), "capsule %q has been released for good", c.Capsule)
	case e.now.released:
		return "", t.refuseEnded(e)
	case e.evicted:
		return "", t.refuse(at, 0, "capsule %q is evicted by this proposal", c.Capsule)
	case c.From != "" && c.From != e.now.Node:
		return "", t.refuse(at, e.newest(), "capsule %q is on node %q, not on %q", c.Capsule, e.now.Node, c.From)
	case !e.now.Placed() && !c.Final:
		return "", t.refuse(at, e.newest(), "capsule %q is not placed", c.Capsule)
	}
	from := e.now.Node
	switch {
	case c.Stopped:
		t.countFailure(e, c.At, true)
	case !c.Final:
		if err := t.mayReturn(e, c.At); err != nil {
			return "", err
		}
	}
	e.now.Begun = e.now.Begun && !c.Stopped
	if e.now.Placed() {
		t.leave(e)
	}
	e.now.Changed, e.dirty = t.rev, true
	if e.now.released = c.Final; c.Final {
		t.finals = true
		t.end(e)
	}
	return from, nil
}

// end completes a release for good: the gang counts the member as done, and the nominations of the capsule and of the gang
// end, because that of the gang includes room for the member. First is kept, so that the next nomination of the gang keeps its
// place among equal ranks.
func (t *tx) end(e *txCapsule) {
	t.nominates = t.nominates || e.now.Nomination() != nil
	e.now.setNomination(nil)
	if e.now.Gang() == "" {
		return
	}
	now := t.ownGang(t.gang(e.now.Gang()))
	now.Done[e.now.inCommon().role]++
	now.Changed = t.rev
	if now.Nomination.Lives() {
		now.Nomination, t.nominates = now.Nomination.ended(), true
	}
}

// leave takes a placed capsule off its node.
func (t *tx) leave(e *txCapsule) {
	n := t.node(e.now.Node) // is a member: nodes with capsules cannot leave
	n.now.used = n.now.used.minus(e.now.Spec.Envelope.Reservation)
	n.now.useDevices(e.now.Devices, -e.now.Spec.Devices.Milli)
	n.now.Capsules--
	n.now.Usage, n.dirty = t.rev, true
	t.countGang(&e.now, -1)
	t.remain(e, n)
	n.now.borrow(&e.now, -1)
	rare := *e.now.rare()
	rare.note, rare.borrows = "", nil
	e.now.setRare(rare)
	e.now.Node, e.now.Devices = "", 0
}

// countGang adds by to a gang's count of placed members. The first placement of a member ends the gang's nomination.
func (t *tx) countGang(c *Capsule, by int) {
	if c.Gang() == "" {
		return
	}
	g := t.gang(c.Gang())
	now := t.ownGang(g)
	now.Placed[c.inCommon().role] += by
	now.Changed = t.rev
	if by > 0 && now.Nomination != nil {
		now.Nomination, t.nominates = nil, true
	}
	g.restarts = g.restarts || g.now.Total() == 0
}

// putNode lets a node join, or gives a member a new description. The node's use stays as it is, even if the new
// capacity is lower. Every change sets the specification counter to the ledger-wide revision, so
// that a node that has left and joins again never repeats a value.
func (t *tx) putNode(node *Node) error {
	e := t.nodes.find(node.ID)
	if e == nil {
		if e = t.node(node.ID); e == nil {
			e = t.nodes.add(node.ID)
			e.now.index = t.vacantNode()
			e.gone = true
		}
	}
	if e.gone { // joins, for the first time or again
		e.now = NodeState{index: e.now.index, Usage: t.rev}
		e.asked, e.askedDevices, e.asks = Resources{}, 0, 0
		e.joined, e.claimed = t.at, false
	} else {
		if t.breaks(e.now.Node.State == Lost && node.State != Lost) {
			return t.refuse(Rejection{Node: node.ID}, e.newestSpec(), "node %q is lost; let it leave, and join anew", node.ID)
		}
		if err := t.tampered(e); err != nil {
			return err
		}
		t.lowers = t.lowers || e.now.Node.lowers(node)
	}
	if node.State == Lost {
		t.endAllRemains(e)
	}
	e.ready = e.ready || node.State == Ready
	e.now.Node, e.now.Specification = node, t.rev
	e.gone, e.dirty = false, true
	return nil
}

// removeNode lets a node leave that has no capsules, holds, remains or nominations. The entry stays in the write-set:
// the node may join again in the same proposal.
func (t *tx) removeNode(id NodeID) error {
	n := t.node(id)
	if n == nil {
		return t.refuse(Rejection{Node: id}, t.s.left.Nodes, "node %q is not a member", id)
	}
	if n.now.Capsules > 0 || n.now.holds > 0 {
		return t.refuse(Rejection{Node: id, advice: "move or release the capsules, and release the holds, before the node leaves"}, n.newest(),
			"node %q still has %d capsules and %d holds", id, n.now.Capsules, n.now.holds)
	}
	if n.now.remains != nil {
		return t.refuse(Rejection{Node: id, advice: "wait until its agent confirms that it has stopped; if the node is gone, put it as Lost first"}, n.newest(),
			"node %q: capsule %q has left it, and has not stopped", id, (*n.now.remains)[0].Capsule)
	}
	if parts := t.nominatedOn(n); len(parts) > 0 {
		return t.refuse(Rejection{Node: id, advice: t.endsWhen(n, parts[0].of)}, max(n.newest(), t.s.left.Nominations),
			"node %q is nominated for %s since revision %d", id, parts[0].of.nominee(), parts[0].of.Made)
	}
	if err := t.tampered(n); err != nil {
		return err
	}
	n.gone, n.dirty, t.lowers = true, true, true
	return nil
}

// endsWhen says who ends a nomination that keeps a node from leaving, when, and what else can be done.
func (t *tx) endsWhen(n *txNode, of *Nomination) string {
	engine := "cordon the node; then the engine of " + of.nominee() + " ends the nomination"
	if !n.now.Node.Schedulable() {
		engine = "wait until the engine of " + of.nominee() + " ends the nomination, because the node can no longer serve it"
	}
	return fmt.Sprintf("%s, or any engine does after %s; or end it before the node leaves, by a Nominate of %s without Parts",
		engine, of.Ends.Format(time.RFC3339), of.nominee())
}

// tampered refuses to replace the description of a node that was changed in place: what the state counts by label no
// longer matches the labels.
func (t *tx) tampered(n *txNode) error {
	if n.redescribed() || t.s.intact(n.now.Node) {
		return nil
	}
	return t.invalid(Rejection{Node: n.now.Node.ID}, "node %q: the labels, taints or extras in this ledger's state were changed through a plain copy of it; "+
		"the ledger has to be opened anew; change a Node.Clone", n.now.Node.ID)
}

// invalid is the rejection of a commitment that is wrong in every state.
func (t *tx) invalid(r Rejection, format string, args ...any) error {
	err := t.refuse(r, 0, format, args...).(*Rejection) //nolint:errorlint // made here, and never wrapped
	err.Kind, err.TakenAt = ErrInvalid, 0
	return err
}

// startHold takes the room of a hold on a node. Labels and taints are not judged, because a hold has no spec with
// requirements.
func (t *tx) startHold(c *Hold) error {
	e := t.hold(c.ID)
	if e.now != nil {
		return t.refuse(Rejection{Node: c.Node, advice: anotherID}, e.newest(), "there is a hold %q already", c.ID)
	}
	n := t.node(c.Node)
	if n == nil {
		return t.refuse(Rejection{Node: c.Node}, t.s.left.Nodes, "node %q is not a member", c.Node)
	}
	if t.breaks(!n.now.Node.Schedulable()) {
		return t.refuse(Rejection{Node: c.Node}, n.newestSpec(), "node %q is unschedulable", c.Node)
	}
	if err := t.mayUse(n, c.Devices, ""); err != nil {
		return err
	}
	if err := t.take(n, &c.Room, c.Devices, c.Milli); err != nil {
		return err
	}
	n.now.holds++
	e.now = &holdRecord{Hold: *c, changed: t.rev}
	return nil
}

// endHold gives the room of a hold back. To end a hold a second time is refused.
func (t *tx) endHold(id HoldID) (NodeID, error) {
	e := t.hold(id)
	if e.now == nil {
		return "", t.refuse(Rejection{}, t.s.left.Holds, "there is no hold %q", id)
	}
	n := t.node(e.now.Node) // is a member: nodes with holds cannot leave
	n.now.used = n.now.used.minus(e.now.Room)
	n.now.useDevices(e.now.Devices, -e.now.Milli)
	n.now.holds--
	n.now.Usage, n.dirty = t.rev, true
	e.now = nil
	return n.now.Node.ID, nil
}

// assign hands a capsule over to another owner. It is refused if the present owner is not c.From, or if a pin names an owner
// other than c.Owner and the proposal does not bet on the pin. To take the owner away is always allowed.
func (t *tx) assign(c *Assign) error {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return err
	}
	if e.now.released {
		return t.refuseEnded(e)
	}
	if t.breaks(e.now.Owner() != c.From) {
		return t.refuse(Rejection{Capsule: c.Capsule}, e.newest(), "capsule %q is owned by %s, not by %s", c.Capsule, who(e.now.Owner()), who(c.From))
	}
	if err := t.unpinned(e, c); err != nil {
		return err
	}
	anew := *e.now.inCommon()
	anew.owner = c.Owner
	e.now.common, e.now.Changed, e.dirty = t.share(anew), t.rev, true
	return nil
}

// unpinned refuses to assign a capsule past its pin, or past that of its gang, if the proposal has no bet on the pin.
func (t *tx) unpinned(e *txCapsule, c *Assign) error {
	if c.Owner == "" || t.replays {
		return nil
	}
	key := PinPrefix + string(c.Capsule)
	if gang := e.now.Gang(); gang != "" {
		key = PinGangPrefix + string(gang)
	}
	pin := t.mark(key).now
	if pin.value == "" || pin.value == c.Owner {
		return nil
	}
	for _, bet := range t.p.If {
		if at, ok := bet.(MarkAt); ok && at.Key == key {
			return nil
		}
	}
	newest := pin.changed
	if newest == t.rev { // the proposal has set the mark itself, so to plan again does not help
		newest = 0
	}
	return t.refuse(Rejection{Capsule: c.Capsule}, newest, "capsule %q is pinned to %q by mark %q; to assign it to %q, change the mark, or bet on it with MarkAt",
		c.Capsule, pin.value, key, c.Owner)
}

// meant returns the entry of the capsule that a commitment names. It refuses a capsule that was submitted after the
// proposal's view, because the proposer can only have meant an earlier capsule with that id.
func (t *tx) meant(id CapsuleID) (*txCapsule, error) {
	e := t.capsule(id)
	switch {
	case e == nil:
		return nil, t.noCapsule(id)
	case t.p.View != 0 && !e.anew && e.submittedAt() > t.p.View:
		return nil, t.refuse(Rejection{Capsule: id, Node: e.now.Node}, e.submittedAt(), "capsule %q was submitted after the view", id)
	}
	return e, nil
}

// who returns the name of an owner for an error text.
func who(owner string) string {
	if owner == "" {
		return "no engine"
	}
	return strconv.Quote(owner)
}

// setMark sets or deletes a mark without regard to its present value; with a MarkAt bet that is a compare-and-swap.
func (t *tx) setMark(c *Mark) {
	e := t.mark(c.Key)
	e.now, e.dirty = markRecord{key: c.Key, value: c.Value, changed: t.rev}, true
}

// newest returns the revision at which the capsule last changed before this proposal; 0 if it is fresh.
func (c *txCapsule) newest() Revision {
	if c.was == nil {
		return 0
	}
	return c.was.Changed
}

// newestSpec returns an upper bound of the revision at which the capsule got its spec before this proposal. That is the
// revision of its submission, which may be a little too high if very many capsules were submitted at once; or, if the
// spec was replaced since, the last change of the record.
func (c *txCapsule) newestSpec() Revision {
	if c.was != nil && c.was.Respecified {
		return c.was.Changed
	}
	return c.submittedAt()
}

// submittedAt returns the revision at which the capsule was submitted before this proposal; 0 if it is fresh.
func (c *txCapsule) submittedAt() Revision {
	if c.was == nil {
		return 0
	}
	return c.was.SubmittedAt()
}

// newestSpec returns the revision at which the node's description last changed before this proposal; 0 if it is fresh.
func (n *txNode) newestSpec() Revision {
	if n.was == nil {
		return 0
	}
	return n.was.Specification
}

// newest returns the revision at which the hold was made; 0 if there was none before this proposal.
func (h *txHold) newest() Revision {
	if h.was == nil {
		return 0
	}
	return h.was.changed
}

// newest returns the revision at which the gang last changed before this proposal; 0 if it is fresh.
func (g *txGang) newest() Revision {
	if g.was == nil {
		return 0
	}
	return g.was.Changed
}
