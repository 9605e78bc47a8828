package orbit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/orbitsched/orbit/internal/plain"
)

// Restore makes s, which must be new(State), the state of which [State.Dump] wrote the dump. Anything it does not know,
// that is out of place or that does not add up is refused, with a [*Rejection] that is ErrInvalid and whose Do is the
// line, from 1; -1: all together; s is then as before. So is a state that is not new, because a state never changes.
// A ledger that starts from the state ([MemoryLedger.Start]) continues above its revisions; restore the newest dump
// there is, for what was committed after it is gone and its revisions will be used again.
func (s *State) Restore(r io.Reader) error {
	if s.members != nil {
		return invalidf("restore: the state at revision %d is in use; restore into a new one", s.rev)
	}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<30)
	var d dumpReader
	for in.Scan() {
		d.lines++
		if err := d.line(in.Bytes()); err != nil {
			return &Rejection{Kind: ErrInvalid, Do: d.lines, Reason: fmt.Sprintf("dump: line %d: %v", d.lines, err)}
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("orbit: restore: after line %d: %w", d.lines, err)
	}
	if !d.ended {
		return invalidf("dump: ends after line %d without an end line; it is cut short", d.lines)
	}
	state, err := d.build.State()
	if err != nil {
		return invalidf("dump: %v", err)
	}
	s.world = state.world
	return nil
}

// dumpReader hands the lines of a dump to a builder.
type dumpReader struct {
	build StateBuilder
	specs []*Spec
	// Position of a spec in specs.
	number       map[*Spec]int
	lines        int
	begun, ended bool
	// plain is where a plain capsule is read to.
	plain dumpCapsule
}

// line takes one line: the header first, then records in any number, then the end.
func (d *dumpReader) line(text []byte) error {
	l, err := d.decode(text)
	switch {
	case err != nil:
		return err
	case d.ended:
		return errors.New("a record after the end")
	case l.Header != nil:
		return d.header(l.Header)
	case !d.begun:
		return errors.New("no header; this is not a dump")
	case l.End != nil:
		d.ended = true
		if *l.End != d.lines-1 {
			return fmt.Errorf("counts %d lines; there are %d", *l.End, d.lines-1)
		}
		return nil
	}
	return d.record(&l)
}

// header starts the state. Limits are taken as they are in the dump, for what is dropped when depends on
// them; they must be ones that a ledger could have had.
func (d *dumpReader) header(h *dumpHeader) error {
	if d.begun {
		return errors.New("a second header")
	}
	if h.Version != dumpVersion {
		return fmt.Errorf("version is %d; this package reads %d", h.Version, dumpVersion)
	}
	if h.Order > math.MaxInt64 {
		return fmt.Errorf("order %d leaves no room to count on", h.Order)
	}
	d.begun, d.number = true, map[*Spec]int{}
	d.build = StateBuilder{Revision: h.Revision, Limits: h.Limits, Dimensions: h.Dimensions}
	if err := d.build.start(); err != nil {
		return err
	}
	d.build.state.order, d.build.state.left = submission(h.Order), h.Left
	return nil
}

// record adds one record.
func (d *dumpReader) record(l *dumpLine) error {
	switch {
	case l.Spec != nil:
		return d.spec(l.Spec)
	case l.Node != nil:
		return d.build.Node(l.Node.Node, l.Node.Usage, l.Node.Specification)
	case l.Gang != nil:
		return d.gang(l.Gang)
	case l.Capsule != nil:
		return d.capsule(l.Capsule)
	case l.Hold != nil:
		return d.build.Hold(l.Hold.Hold, l.Hold.Changed)
	case l.Budget != nil:
		err := d.build.Budget(l.Budget.Budget, l.Budget.Changed)
		d.build.tx.budget(l.Budget.ID).left = l.Budget.Left
		return err
	case l.Mark != nil:
		return d.build.Mark(l.Mark.Key, l.Mark.Value, l.Mark.Changed)
	}
	return d.build.Committed(l.Recent.ID, l.Recent.At)
}

// spec adds a spec under the next number.
func (d *dumpReader) spec(s *Spec) error {
	spec, err := d.build.share(s)
	if first, known := d.number[spec]; known && err == nil {
		err = fmt.Errorf("a second copy of spec %d", first)
	}
	d.number[spec] = len(d.specs)
	d.specs = append(d.specs, spec)
	return err
}

// numbered returns the spec with a number.
func (d *dumpReader) numbered(i int) (*Spec, error) {
	if i < 0 || i >= len(d.specs) {
		return nil, fmt.Errorf("spec %d has not appeared", i)
	}
	return d.specs[i], nil
}

// gang adds a gang.
func (d *dumpReader) gang(g *dumpGang) error {
	gang := &Gang{ID: g.ID, Levels: g.Levels, Loose: g.Loose}
	for _, r := range g.Roles {
		spec, err := d.numbered(r.Spec)
		if err != nil {
			return err
		}
		gang.Roles = append(gang.Roles, Role{r.Name, spec, r.Members, r.Min})
	}
	return d.build.add(func(v *validator) error { return d.build.gang(v, gang, g.Changed, g.Nomination) })
}

// capsule adds a capsule.
func (d *dumpReader) capsule(c *dumpCapsule) error {
	spec, err := d.numbered(c.Spec)
	if err != nil {
		return err
	}
	now := Capsule{
		ID: c.ID, Spec: spec, Owner: c.Owner, Gang: c.Gang, role: c.Role, Node: c.Node, Devices: c.Devices, Note: c.Note, Submitted: c.Submitted, Changed: c.Changed, PlacedAt: c.PlacedAt, PlacedBy: c.PlacedBy,
		released: c.Released, Begun: c.Begun, Ready: c.Ready, Waits: c.Waits, Adopted: c.Adopted, Respecified: c.Respecified, Remains: c.Remains, Nomination: c.Nomination, Labels: c.Labels, SubmitTime: c.SubmitTime, PlaceTime: c.PlaceTime, Borrows: c.Borrows,
	}
	if c.FormerSpec != nil {
		former, err := d.numbered(*c.FormerSpec)
		if err != nil || c.Remains == nil || former == spec {
			return errors.Join(err, fmt.Errorf("capsule %q: spec %d of what remains of a former one is its own, or nothing remains", c.ID, *c.FormerSpec))
		}
		c.Remains.Spec = former
	}
	earlier := func(yield func(ProposalID, Revision) bool) {
		for _, p := range c.Earlier {
			if !yield(p.ID, p.At) {
				return
			}
		}
	}
	err = d.build.add(func(v *validator) error { return d.build.capsule(v, now, earlier) })
	if c.Protected != 0 && err == nil {
		err = d.build.Protect(c.ID, c.Protected)
	}
	return err
}

// restored builds the list of earlier placements from its newest-first form.
func restored(earlier iter.Seq2[ProposalID, Revision]) (*placements, error) {
	var ids []placements
	for id, at := range earlier {
		if id.IsZero() || at == 0 {
			return nil, fmt.Errorf("placement %s at revision %d: neither may be zero", id, at)
		}
		ids = append(ids, placements{id: id, at: at})
	}
	for i := range ids {
		ids[i].depth = len(ids) - 1 - i
		if i+1 < len(ids) {
			ids[i].before = &ids[i+1]
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return &ids[0], nil
}

// decode reads one line strictly: as Dump writes it, and in no other way. That refuses what the JSON package lets pass:
// fields that are unknown, missing, twice there or written in capitals, lists of another length, nulls.
func (d *dumpReader) decode(text []byte) (l dumpLine, err error) {
	if plainCapsule(text, &d.plain) {
		return dumpLine{Capsule: &d.plain}, nil
	}
	return decodeStrictly(text)
}

// decodeStrictly is decode with the JSON package.
func decodeStrictly(text []byte) (l dumpLine, err error) {
	if err := json.Unmarshal(text, &l); err != nil {
		return l, err
	}
	if n := l.records(); n != 1 {
		return l, fmt.Errorf("%d records on one line, not one", n)
	}
	again, err := json.Marshal(l)
	if err == nil && !bytes.Equal(again, text) {
		at := 0
		for at < min(len(again), len(text)) && again[at] == text[at] {
			at++
		}
		err = fmt.Errorf("byte %d is not what Dump writes: %.40q, where it writes %.40q", at+1, text[at:], again[at:])
	}
	return l, err
}

// records returns how many of the fields are set.
func (l *dumpLine) records() (n int) {
	for _, set := range []bool{
		l.Header != nil, l.Node != nil, l.Spec != nil, l.Gang != nil, l.Capsule != nil,
		l.Hold != nil, l.Mark != nil, l.Budget != nil, l.Recent != nil, l.End != nil,
	} {
		n += btoi(set)
	}
	return n
}

// plainCapsule reads the line of a capsule if it is plain: text that JSON writes as it is, whole numbers, and only fields that nearly
// every record has. A dump has as many such lines as there are capsules, and they take a tenth of what the JSON package needs. It is as
// strict as decode: a line with anything else is not plain.
func plainCapsule(line []byte, c *dumpCapsule) bool {
	p := plain.Read(line)
	*c = dumpCapsule{}
	p.Expect(`{"capsule":{"id":`)
	c.ID = CapsuleID(p.Text())
	p.Expect(`,"spec":`)
	c.Spec = int(p.Number())
	if p.Has(`,"owner":`) {
		c.Owner = string(p.Text())
	}
	if p.Has(`,"node":`) {
		c.Node = NodeID(p.Text())
	}
	p.Expect(`,"submitted":`)
	c.Submitted = p.Number()
	p.Expect(`,"changed":`)
	c.Changed = Revision(p.Number())
	if p.Has(`,"placedAt":`) {
		c.PlacedAt = Revision(p.Positive()) // Dump leaves zero out
	}
	if p.Has(`,"placedBy":`) {
		c.PlacedBy = p.Hex()
	}
	c.Begun = p.Has(`,"begun":true`)
	c.Ready = p.Has(`,"ready":true`)
	p.Expect(`}}`)
	return p.Done()
}
