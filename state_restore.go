package orbit

import (
	"errors"
	"fmt"
	"math"
)

// restorer builds a state from the lines of a dump. Records go through the same checks as proposals, and
// into the state through the same write-set.
type restorer struct {
	state *State
	tx    tx
	specs []*Spec
	// Position of a spec in specs, and who was submitted when.
	number map[*Spec]int
	orders map[uint64]CapsuleID
	// Capsules that gangs list, and in which role.
	members map[membership]int
	lines   int
	ended   bool
}

// membership is a gang's listing of a capsule. Several gangs may list an id that was used again.
type membership struct {
	gang    GangID
	capsule CapsuleID
}

// line takes one line: the header first, then records in any number, then the end.
func (b *restorer) line(text []byte) error {
	l, err := decode(text)
	switch {
	case err != nil:
		return err
	case b.ended:
		return errors.New("a record after the end")
	case l.Header != nil:
		return b.header(l.Header)
	case b.state == nil:
		return errors.New("no header; this is not a dump")
	case l.End != nil:
		b.ended = true
		if *l.End != b.lines-1 {
			return fmt.Errorf("counts %d lines; there are %d", *l.End, b.lines-1)
		}
		return b.finish()
	case l.Recent != nil:
		if l.Recent.ID.IsZero() || l.Recent.At == 0 {
			return fmt.Errorf("recent id %s at revision %d: neither may be zero", l.Recent.ID, l.Recent.At)
		}
		if b.state.recent.find(l.Recent.ID) != 0 {
			return fmt.Errorf("a second recent id %s", l.Recent.ID)
		}
		b.state.recent.add(l.Recent.ID, l.Recent.At, b.state.limits.ProposalIDs, b.state.owner)
		return nil
	}
	return b.record(&l)
}

// header starts the state. Limits are taken as they are in the dump, for what is dropped when depends on
// them; they must be ones that a ledger could have had.
func (b *restorer) header(h *dumpHeader) error {
	if b.state != nil {
		return errors.New("a second header")
	}
	if h.Version != dumpVersion {
		return fmt.Errorf("version is %d; this package reads %d", h.Version, dumpVersion)
	}
	if h.Revision > math.MaxInt64 || h.Order > math.MaxInt64 {
		return fmt.Errorf("revision %d or order %d leaves no room to count on", h.Revision, h.Order)
	}
	if h.Limits != h.Limits.withDefaults() {
		return errors.New("limits must be positive")
	}
	b.state = newState(h.Limits, h.Dimensions)
	b.state.rev, b.state.order, b.state.left = h.Revision, submission(h.Order), h.Left
	b.number, b.orders = map[*Spec]int{}, map[uint64]CapsuleID{}
	b.members = map[membership]int{}
	b.tx.s, b.tx.rev = b.state, h.Revision
	return nil
}

// record checks a record as the ledger checks a proposal that would make it, and adds it to the write-set.
func (b *restorer) record(l *dumpLine) error {
	v := validator{limits: &b.state.limits, what: "record"}
	var err error
	switch {
	case l.Spec != nil:
		spec := v.spec(l.Spec.clone())
		if first, known := b.number[spec]; known {
			err = fmt.Errorf("a second copy of spec %d", first)
		}
		b.number[spec] = len(b.specs)
		b.specs = append(b.specs, spec)
	case l.Node != nil:
		err = b.node(&v, l.Node)
	case l.Gang != nil:
		err = b.gang(&v, l.Gang)
	case l.Capsule != nil:
		err = b.capsule(&v, l.Capsule)
	case l.Hold != nil:
		err = b.hold(&v, l.Hold)
	case l.Mark != nil:
		v.id("mark key", l.Mark.Key)
		v.text("mark value", l.Mark.Value, v.limits.ValueBytes)
		if l.Mark.Value == "" {
			v.fail("mark %q has no value", l.Mark.Key)
		}
		e := b.tx.mark(l.Mark.Key)
		if e.dirty {
			err = fmt.Errorf("a second mark %q", l.Mark.Key)
		}
		e.now, e.dirty = markRecord{l.Mark.Key, l.Mark.Value, l.Mark.Changed}, true
	}
	for _, fault := range v.faults {
		err = errors.Join(err, errors.New(fault))
	}
	return err
}

// spec returns the spec with this number.
func (b *restorer) spec(i int) (*Spec, error) {
	if i < 0 || i >= len(b.specs) {
		return nil, fmt.Errorf("spec %d has not appeared", i)
	}
	return b.specs[i], nil
}

// node adds a member, with the counters that it had.
func (b *restorer) node(v *validator, n *dumpNode) error {
	v.putNode(&n.Node)
	if n.Usage == 0 || n.Specification == 0 {
		v.fail("node %q: counters %d and %d; neither may be zero", n.ID, n.Usage, n.Specification)
	}
	if b.tx.nodes.find(n.ID) != nil {
		return fmt.Errorf("a second node %q", n.ID)
	}
	if err := b.tx.putNode(&n.Node); err != nil {
		return err
	}
	e := b.tx.nodes.find(n.ID)
	e.now.Usage, e.now.Specification = n.Usage, n.Specification
	return nil
}

// gang adds a gang with nothing placed; its members count themselves when they appear.
func (b *restorer) gang(v *validator, g *dumpGang) error {
	gang := &Gang{ID: g.ID, Levels: g.Levels, Loose: g.Loose}
	for i, r := range g.Roles {
		spec, err := b.spec(r.Spec)
		if err != nil {
			return err
		}
		gang.Roles = append(gang.Roles, Role{r.Name, spec, r.Members, r.Min})
		for _, id := range r.Members {
			b.members[membership{g.ID, id}] = i
		}
	}
	v.gang(gang)
	if b.tx.gangs.find(g.ID) != nil {
		return fmt.Errorf("a second gang %q", g.ID)
	}
	b.tx.gangs.add(g.ID).now = &GangState{Gang: gang, Placed: make([]int, len(gang.Roles)), Changed: g.Changed}
	return nil
}

// capsule adds a record as it was, placed or not. Whether it fits is not asked: capacity may have shrunk
// since it was placed. Verify decides at the end.
func (b *restorer) capsule(v *validator, c *dumpCapsule) error {
	v.id("capsule id", string(c.ID))
	v.text("owner", c.Owner, v.limits.IDBytes)
	v.text("note", c.Note, v.limits.ValueBytes)
	spec, err := b.spec(c.Spec)
	if err != nil {
		return err
	}
	if b.tx.capsules.find(c.ID) != nil {
		return fmt.Errorf("a second capsule %q", c.ID)
	}
	if c.Submitted == 0 || c.Submitted > uint64(b.state.order) {
		return fmt.Errorf("capsule %q: order %d is not within 1 to %d", c.ID, c.Submitted, b.state.order)
	}
	if other, taken := b.orders[c.Submitted]; taken {
		return fmt.Errorf("capsule %q: capsule %q has order %d already", c.ID, other, c.Submitted)
	}
	b.orders[c.Submitted] = c.ID
	if err := c.datable(); err != nil {
		return err
	}
	now := Capsule{
		ID: c.ID, Spec: spec, Owner: c.Owner, Gang: c.Gang, role: c.Role, Node: c.Node, Devices: c.Devices,
		Note: c.Note, Submitted: c.Submitted, Changed: c.Changed, PlacedAt: c.PlacedAt, PlacedBy: c.PlacedBy,
		earlier: restored(c.Earlier), released: c.Released,
	}
	node, err := b.belongs(&now)
	if err != nil {
		return err
	}
	e := b.tx.capsules.add(c.ID)
	e.now, e.dirty, e.slot, e.node = now, true, b.tx.capsuleSlots.Next(), node
	return nil
}

// datable reports what no history leads to: something placed at no revision, placements without an id that are
// remembered, room for a note or devices without a node.
func (c *dumpCapsule) datable() error {
	switch {
	case c.PlacedAt == 0 && (c.Node != "" || !c.PlacedBy.IsZero() || len(c.Earlier) > 0):
		return fmt.Errorf("capsule %q was placed, at revision 0", c.ID)
	case c.Node == "" && (c.Devices != 0 || c.Note != ""):
		return fmt.Errorf("capsule %q is on no node, and has devices %016b, note %q there", c.ID, c.Devices, c.Note)
	}
	for _, p := range c.Earlier {
		if p.ID.IsZero() || p.At == 0 {
			return fmt.Errorf("capsule %q: placement %s at revision %d: neither may be zero", c.ID, p.ID, p.At)
		}
	}
	return nil
}

// belongs counts a capsule where it is: in its gang, on its node, whose slot it returns.
func (b *restorer) belongs(c *Capsule) (slot uint32, err error) {
	if c.Gang != "" {
		g := b.tx.gangs.find(c.Gang)
		if g == nil || int(c.role) >= len(g.now.Placed) {
			return 0, fmt.Errorf("capsule %q: gang %q has no role %d", c.ID, c.Gang, c.role)
		}
		if role, listed := b.members[membership{c.Gang, c.ID}]; !listed || role != int(c.role) {
			return 0, fmt.Errorf("capsule %q: gang %q does not list it in role %d", c.ID, c.Gang, c.role)
		}
		g.now.records++
		g.now.Placed[c.role] += btoi(c.Placed())
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
	return n.now.index, err
}

// hold adds a live hold.
func (b *restorer) hold(v *validator, h *dumpHold) error {
	own, _ := v.hold(h.Hold).(Hold)
	n := b.tx.nodes.find(h.Node)
	if n == nil || b.tx.hold(h.ID).now != nil {
		return fmt.Errorf("hold %q appears twice, or its node %q has not appeared", h.ID, h.Node)
	}
	b.tx.hold(h.ID).now = &holdRecord{own, h.Changed}
	usage := n.now.Usage
	err := b.tx.take(n, &own.Room, own.Devices, own.Milli)
	n.now.Usage = usage
	n.now.holds++
	return err
}

// finish publishes the write-set.
func (b *restorer) finish() error {
	b.tx.places = 1 // the write-set is no proposal with an id to remember
	order := b.state.order
	b.state.publish(&b.tx)
	b.state.order = order
	for i := range b.tx.capsules.entries { // in the order of the lines
		if e := &b.tx.capsules.entries[i]; e.now.released {
			b.state.enqueueReleased(e.slot)
		}
	}
	b.state.dropReleased()
	b.tx.reset()
	return nil
}

// restored builds the list of earlier placements from its newest-first form.
func restored(ids []dumpID) *placements {
	var p *placements
	for i := len(ids) - 1; i >= 0; i-- {
		next := &placements{id: ids[i].ID, at: ids[i].At, before: p}
		if p != nil {
			next.depth = p.depth + 1
		}
		p = next
	}
	return p
}
