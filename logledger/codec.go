package logledger

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
	"strings"

	"github.com/orbitsched/orbit"
)

// This file has the binary form of changes and proposals. The kinds that large clusters have millions of (placements,
// releases, submissions, confirmations) have a compact form of their own; all other kinds are JSON in a binary frame, so
// a new kind of commitment needs no code here. Numbers are varints of encoding/binary; a text is its length and its
// bytes.

// The kinds of commitments in the binary form.
const (
	asJSON = iota
	asPlace
	asRelease
	asSubmit
	asConfirm
)

// errMalformed is the error for bytes that no encoder has written.
var errMalformed = errors.New("malformed")

// encoder appends values to buf. Equal specs are written once, and then referred to by number.
type encoder struct {
	buf   []byte
	specs map[*orbit.Spec]int
	// What the next change is described relative to: the last change, and the last time of a placement or a release.
	last orbit.Change
	at   orbit.Instant
	err  error
}

func (e *encoder) uint(n uint64) { e.buf = binary.AppendUvarint(e.buf, n) }
func (e *encoder) int(n int64)   { e.buf = binary.AppendVarint(e.buf, n) }
func (e *encoder) byte(b byte)   { e.buf = append(e.buf, b) }
func (e *encoder) text(s string) { e.uint(uint64(len(s))); e.buf = append(e.buf, s...) }

// json writes a value as JSON text.
func (e *encoder) json(v any) {
	text, err := json.Marshal(v)
	if e.err == nil {
		e.err = err
	}
	e.text(string(text))
}

// The bits of the first byte of a change.
const (
	nextRevision = 1 << iota // its revision is the one after that of the change before, and Seq is 0; else Seq is one higher
	irregular                // instead, Revision and Seq follow
	sameID                   // the id is that of the change before
	nextID                   // the last eight bytes of that id, counted up by one
	noID                     // the id is zero; if none of the three is set, the id follows
	ownNode                  // Node is that of the placement; else it follows
)

// change writes one change.
func (e *encoder) change(c *orbit.Change) {
	head := byte(0)
	switch {
	case c.Revision == e.last.Revision+1 && c.Seq == 0:
		head |= nextRevision
	case c.Revision != e.last.Revision || c.Seq != e.last.Seq+1:
		head |= irregular
	}
	switch c.ID {
	case orbit.ProposalID{}:
		head |= noID
	case e.last.ID:
		head |= sameID
	case successor(e.last.ID):
		head |= nextID
	}
	if p, ok := c.Do.(orbit.Place); ok && p.Node == c.Node {
		head |= ownNode
	}
	e.byte(head)
	if head&irregular != 0 {
		e.uint(uint64(c.Revision))
		e.int(int64(c.Seq))
	}
	if head&(noID|sameID|nextID) == 0 {
		e.buf = append(e.buf, c.ID[:]...)
	}
	e.commitment(c.Do)
	if head&ownNode == 0 {
		e.text(string(c.Node))
	}
	e.last.Revision, e.last.Seq, e.last.ID = c.Revision, c.Seq, c.ID
}

// successor returns the id that follows in the numbering of an engine's proposals.
func successor(id orbit.ProposalID) orbit.ProposalID {
	binary.BigEndian.PutUint64(id[8:], binary.BigEndian.Uint64(id[8:])+1)
	return id
}

// The bits of the second byte of a placement.
const (
	hasDevices = 1 << iota
	isAfter
	hasNote
	hasAt
)

// The bits of the second byte of a release.
const (
	isFinal = 1 << iota
	isStopped
	hasFrom
	hasReleaseAt
)

// The bits of the second byte of a submission.
const (
	hasOwner = 1 << iota
	hasTime
	knownSpec
)

// commitment writes a commitment.
func (e *encoder) commitment(c orbit.Commitment) {
	switch c := c.(type) {
	case orbit.Place:
		e.place(&c)
		return
	case orbit.Release:
		if c.Hold == "" {
			e.release(&c)
			return
		}
	case orbit.Submit:
		if c.Gang == nil && c.Labels == nil && c.LabelsOf == nil && c.Spec != nil {
			e.submit(&c)
			return
		}
	case orbit.Confirm:
		e.byte(asConfirm)
		e.byte(flag(c.Begun, 1) | flag(c.Ready, 2) | flag(c.NotReady, 4) | flag(c.Stopped, 8))
		e.text(string(c.Capsule))
		e.uint(uint64(c.Since))
		return
	}
	e.byte(asJSON)
	e.json(orbit.Change{Do: c})
}

// flag returns the bit if it is to be set.
func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

// release writes the release of a capsule.
func (e *encoder) release(c *orbit.Release) {
	e.byte(asRelease)
	e.byte(flag(c.Final, isFinal) | flag(c.Stopped, isStopped) | flag(c.From != "", hasFrom) | flag(c.At != 0, hasReleaseAt))
	e.text(string(c.Capsule))
	if c.From != "" {
		e.text(string(c.From))
	}
	if c.At != 0 {
		e.int(int64(c.At - e.at))
		e.at = c.At
	}
}

// place writes a placement.
func (e *encoder) place(p *orbit.Place) {
	e.byte(asPlace)
	e.byte(flag(p.Devices != 0, hasDevices) | flag(p.After, isAfter) | flag(p.Note != "", hasNote) | flag(p.At != 0, hasAt))
	e.text(string(p.Capsule))
	e.text(string(p.Node))
	if p.Devices != 0 {
		e.uint(uint64(p.Devices))
	}
	if p.Note != "" {
		e.text(p.Note)
	}
	if p.At != 0 {
		e.int(int64(p.At - e.at))
		e.at = p.At
	}
}

// submit writes a submission of capsules without labels.
func (e *encoder) submit(s *orbit.Submit) {
	number, known := e.specs[s.Spec]
	e.byte(asSubmit)
	e.byte(flag(s.Owner != "", hasOwner) | flag(s.At != 0, hasTime) | flag(known, knownSpec))
	if known {
		e.uint(uint64(number))
	} else {
		if e.specs == nil {
			e.specs = map[*orbit.Spec]int{}
		}
		e.specs[s.Spec] = len(e.specs)
		e.json(s.Spec)
	}
	if s.Owner != "" {
		e.text(s.Owner)
	}
	if s.At != 0 {
		e.int(int64(s.At - e.at))
		e.at = s.At
	}
	e.uint(uint64(len(s.IDs)))
	for _, id := range s.IDs {
		e.text(string(id))
	}
}

// The kinds of bets in the binary form.
const (
	betJSON = iota
	betFreeOf
)

// proposal writes a proposal.
func (e *encoder) proposal(p *orbit.Proposal) {
	e.buf = append(e.buf, p.ID[:]...)
	e.uint(uint64(p.View))
	e.uint(uint64(len(p.Do)))
	for _, c := range p.Do {
		e.commitment(c)
	}
	e.uint(uint64(len(p.If)))
	for _, bet := range p.If {
		free, ok := bet.(orbit.NodeFreeOf)
		if !ok {
			e.byte(betJSON)
			e.json(orbit.Proposal{If: []orbit.Precondition{bet}})
			continue
		}
		e.byte(betFreeOf)
		e.text(string(free.Node))
		mask := byte(0)
		for d, x := range free.AtLeast {
			mask |= flag(x != 0, 1<<d)
		}
		e.byte(mask)
		for _, x := range free.AtLeast {
			if x != 0 {
				e.int(x)
			}
		}
	}
}

// decoder reads what an encoder has written. The texts that it returns are parts of its input: what is kept for long is
// copied. After the first error all values are zero.
type decoder struct {
	rest  string
	specs []*orbit.Spec
	last  orbit.Change
	at    orbit.Instant
	err   error
}

// fail notes an error, unless there is one, and ends the input.
func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.rest = ""
}

func (d *decoder) uint() uint64 {
	n := uint64(0)
	for i := 0; i < len(d.rest) && i < binary.MaxVarintLen64; i++ {
		b := d.rest[i]
		if b < 0x80 {
			if i == binary.MaxVarintLen64-1 && b > 1 {
				break
			}
			d.rest = d.rest[i+1:]
			return n | uint64(b)<<(7*i)
		}
		n |= uint64(b&0x7f) << (7 * i)
	}
	d.fail(errMalformed)
	return 0
}

func (d *decoder) int() int64 {
	n := d.uint()
	return int64(n>>1) ^ -int64(n&1)
}

func (d *decoder) byte() byte {
	if d.rest == "" {
		d.fail(errMalformed)
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) text() string { return d.take(d.uint()) }

// take returns the next n bytes.
func (d *decoder) take(n uint64) string {
	if n > uint64(len(d.rest)) {
		d.fail(errMalformed)
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

// count returns the length of a list that follows, of which each element has at least one byte.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.rest)) {
		d.fail(errMalformed)
		return 0
	}
	return int(n)
}

// json reads a value from JSON text.
func (d *decoder) json(into any) {
	text := d.text()
	if d.err == nil {
		if err := orbit.ReadJSON([]byte(text), into); err != nil {
			d.fail(err)
		}
	}
}

// id reads a proposal's id.
func (d *decoder) id() (id orbit.ProposalID) {
	copy(id[:], d.take(uint64(len(id))))
	return id
}

// change reads a change.
func (d *decoder) change() (c orbit.Change) {
	head := d.byte()
	switch c.Revision, c.Seq = d.last.Revision, d.last.Seq+1; {
	case head&irregular != 0:
		c.Revision, c.Seq = orbit.Revision(d.uint()), int(d.int())
	case head&nextRevision != 0:
		c.Revision, c.Seq = d.last.Revision+1, 0
	}
	switch {
	case head&noID != 0:
	case head&sameID != 0:
		c.ID = d.last.ID
	case head&nextID != 0:
		c.ID = successor(d.last.ID)
	default:
		c.ID = d.id()
	}
	c.Do = d.commitment()
	if p, ok := c.Do.(orbit.Place); ok && head&ownNode != 0 {
		c.Node = p.Node
	} else if head&ownNode != 0 {
		d.fail(errMalformed)
	} else {
		c.Node = orbit.NodeID(d.text())
	}
	d.last.Revision, d.last.Seq, d.last.ID = c.Revision, c.Seq, c.ID
	return c
}

// commitment reads a commitment; after an error it is nil.
func (d *decoder) commitment() orbit.Commitment {
	switch kind := d.byte(); kind {
	case asJSON:
		var c orbit.Change
		if d.json(&c); d.err != nil {
			return nil
		}
		return c.Do
	case asPlace:
		return d.place()
	case asRelease:
		var c orbit.Release
		flags := d.byte()
		c.Final, c.Stopped = flags&isFinal != 0, flags&isStopped != 0
		c.Capsule = orbit.CapsuleID(d.text())
		if flags&hasFrom != 0 {
			c.From = orbit.NodeID(d.text())
		}
		if flags&hasReleaseAt != 0 {
			c.At = d.at + orbit.Instant(d.int())
			d.at = c.At
		}
		return c
	case asSubmit:
		return d.submit()
	case asConfirm:
		var c orbit.Confirm
		flags := d.byte()
		c.Begun, c.Ready, c.NotReady, c.Stopped = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0
		c.Capsule, c.Since = orbit.CapsuleID(d.text()), orbit.Revision(d.uint())
		return c
	default:
		d.fail(errMalformed)
		return nil
	}
}

// place reads a placement. The note is copied, because the capsule's record keeps it.
func (d *decoder) place() (p orbit.Place) {
	flags := d.byte()
	p.Capsule, p.Node = orbit.CapsuleID(d.text()), orbit.NodeID(d.text())
	p.After = flags&isAfter != 0
	if flags&hasDevices != 0 {
		n := d.uint()
		if bits.Len64(n) > orbit.MaxDevices {
			d.fail(errMalformed)
		}
		p.Devices = orbit.DeviceSet(n)
	}
	if flags&hasNote != 0 {
		p.Note = strings.Clone(d.text())
	}
	if flags&hasAt != 0 {
		d.at += orbit.Instant(d.int())
		p.At = d.at
	}
	return p
}

// submit reads a submission. Its texts are copied, because the capsules' records keep them.
func (d *decoder) submit() (s orbit.Submit) {
	flags := d.byte()
	if flags&knownSpec != 0 {
		n := d.uint()
		if n >= uint64(len(d.specs)) {
			d.fail(errMalformed)
			return s
		}
		s.Spec = d.specs[n]
	} else {
		s.Spec = new(orbit.Spec)
		d.json(s.Spec)
		d.specs = append(d.specs, s.Spec)
	}
	if flags&hasOwner != 0 {
		s.Owner = strings.Clone(d.text())
	}
	if flags&hasTime != 0 {
		d.at += orbit.Instant(d.int())
		s.At = d.at
	}
	s.IDs = make([]orbit.CapsuleID, d.count())
	for i := range s.IDs {
		s.IDs[i] = orbit.CapsuleID(strings.Clone(d.text()))
	}
	return s
}

// proposal reads a proposal.
func (d *decoder) proposal() (p orbit.Proposal) {
	p.ID, p.View = d.id(), orbit.Revision(d.uint())
	p.Do = make([]orbit.Commitment, d.count())
	for i := range p.Do {
		p.Do[i] = d.commitment()
	}
	p.If = make([]orbit.Precondition, d.count())
	for i := range p.If {
		p.If[i] = d.bet()
	}
	return p
}

// bet reads a bet; after an error it is nil.
func (d *decoder) bet() orbit.Precondition {
	switch kind := d.byte(); kind {
	case betJSON:
		var p orbit.Proposal
		if d.json(&p); d.err != nil || len(p.If) != 1 {
			d.fail(errMalformed)
			return nil
		}
		return p.If[0]
	case betFreeOf:
		free := orbit.NodeFreeOf{Node: orbit.NodeID(d.text())}
		mask := d.byte()
		for i := range free.AtLeast {
			if mask&(1<<i) != 0 {
				free.AtLeast[i] = d.int()
			}
		}
		return free
	default:
		d.fail(errMalformed)
		return nil
	}
}
