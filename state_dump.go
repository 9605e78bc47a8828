package orbit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/orbitsched/orbit/internal/plain"
)

// dumpVersion is the version of the encoding that Dump writes and Restore reads.
const dumpVersion = 1

// dumpLine is one line of a dump: exactly one of its fields is set. The first line is the header. The last line says
// how many lines came before it.
type dumpLine struct {
	Header *dumpHeader `json:"orbit,omitempty"`
	Node   *dumpNode   `json:"node,omitempty"`
	// Spec is a spec. Other lines refer to specs by number: the first spec in the dump has number 0, the next one 1.
	Spec    *Spec        `json:"spec,omitempty"`
	Gang    *dumpGang    `json:"gang,omitempty"`
	Capsule *dumpCapsule `json:"capsule,omitempty"`
	Hold    *dumpHold    `json:"hold,omitempty"`
	Mark    *dumpMark    `json:"mark,omitempty"`
	Budget  *dumpBudget  `json:"budget,omitempty"`
	Queue   *dumpQueue   `json:"queue,omitempty"`
	Recent  *dumpID      `json:"recent,omitempty"`
	End     *int         `json:"end,omitempty"`
}

type dumpHeader struct {
	Version    int                `json:"version"`
	Revision   Revision           `json:"revision"`
	Order      uint64             `json:"order"`
	Limits     Limits             `json:"limits"`
	Dimensions [Dimensions]string `json:"dimensions"`
	Left       departures         `json:"left"`
}

type dumpNode struct {
	Node
	Usage         Revision `json:"usage"`
	Specification Revision `json:"specification"`
}

type dumpGang struct {
	ID         GangID      `json:"id"`
	Levels     []string    `json:"levels,omitempty"`
	Loose      bool        `json:"loose,omitempty"`
	Min        int         `json:"min,omitempty"`
	Roles      []dumpRole  `json:"roles"`
	Changed    Revision    `json:"changed"`
	Nomination *Nomination `json:"nomination,omitempty"`
}

type dumpRole struct {
	Name    string      `json:"name"`
	Spec    int         `json:"spec"`
	Members []CapsuleID `json:"members"`
	Min     int         `json:"min,omitempty"`
}

type dumpCapsule struct {
	ID        CapsuleID  `json:"id"`
	Spec      int        `json:"spec"`
	Owner     string     `json:"owner,omitempty"`
	Gang      GangID     `json:"gang,omitempty"`
	Role      uint16     `json:"role,omitempty"`
	Node      NodeID     `json:"node,omitempty"`
	Devices   DeviceSet  `json:"devices,omitempty"`
	Note      string     `json:"note,omitempty"`
	Submitted uint64     `json:"submitted"`
	Changed   Revision   `json:"changed"`
	PlacedAt  Revision   `json:"placedAt,omitempty"`
	PlacedBy  ProposalID `json:"placedBy,omitzero"`
	// Earlier lists the earlier placements, newest first.
	Earlier     []dumpID          `json:"earlier,omitempty"`
	Released    bool              `json:"released,omitempty"`
	Begun       bool              `json:"begun,omitempty"`
	Ready       bool              `json:"ready,omitempty"`
	Waits       bool              `json:"waits,omitempty"`
	Adopted     bool              `json:"adopted,omitempty"`
	Respecified bool              `json:"respecified,omitempty"`
	Remains     *Remains          `json:"remains,omitempty"`
	FormerSpec  *int              `json:"formerSpec,omitempty"` // the spec of Remains, if it is not Spec
	Surge       *Remains          `json:"surge,omitempty"`
	SurgeSpec   *int              `json:"surgeSpec,omitempty"` // the spec of Surge, if it is not Spec
	Nomination  *Nomination       `json:"nomination,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	SubmitTime  Instant           `json:"submitTime,omitempty"`
	PlaceTime   Instant           `json:"placeTime,omitempty"`
	Protected   time.Duration     `json:"protected,omitempty"`
	Borrows     *Nominee          `json:"borrows,omitempty"`
	Failures    *Failures         `json:"failures,omitempty"`
}

type dumpHold struct {
	Hold
	Changed Revision `json:"changed"`
}

type dumpMark struct {
	Key     string   `json:"key"`
	Value   string   `json:"value"`
	Changed Revision `json:"changed"`
}

type dumpQueue struct {
	Queue
	Changed Revision `json:"changed"`
	Tight   Revision `json:"tight"`
	Eased   Revision `json:"eased,omitempty"`
}

type dumpID struct {
	ID ProposalID `json:"id"`
	At Revision   `json:"at"`
}

// Dump writes the whole state: a versioned header and then one line of JSON for each record. The order depends only on
// the content, so equal states have equal dumps. [State.Restore] reads a dump.
func (s *State) Dump(w io.Writer) error {
	s = s.made()
	buffered := bufio.NewWriterSize(w, 1<<16)
	d := dumper{out: json.NewEncoder(buffered), specs: map[*Spec]int{}}
	d.line(dumpLine{Header: &dumpHeader{dumpVersion, s.rev, uint64(s.order), s.limits, s.names, s.left}})
	for n := range s.Nodes() {
		d.line(dumpLine{Node: &dumpNode{*n.Node, n.Usage, n.Specification}})
	}
	for g := range s.Gangs() {
		d.gang(g)
	}
	for _, c := range s.inOrder() {
		d.capsule(s, c)
	}
	s.holds.Ascend(func(h *holdRecord) bool { return d.line(dumpLine{Hold: &dumpHold{h.Hold, h.changed}}) })
	s.marks.Ascend(func(m markRecord) bool { return d.line(dumpLine{Mark: &dumpMark{m.key, m.value, m.changed}}) })
	s.budgets.Ascend(func(b *budgetRecord) bool {
		return d.line(dumpLine{Budget: &dumpBudget{b.Budget, b.changed, s.coverage(b.members()).left}})
	})
	for q := range s.queuesByLevel {
		d.line(dumpLine{Queue: &dumpQueue{q.quota.Queue, q.quota.changed, q.tight, q.eased}})
	}
	for id, at := range s.recent.All() {
		d.line(dumpLine{Recent: &dumpID{id, at}})
	}
	d.line(dumpLine{End: &d.lines})
	return errors.Join(d.err, buffered.Flush())
}

// inOrder returns the live capsules in order of submission, and then the released ones in the order in which their
// records will be dropped.
func (s *State) inOrder() []*Capsule {
	out := make([]*Capsule, 0, s.CapsuleCount())
	for c := range s.Capsules() {
		if !c.released {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *Capsule) int { return cmp.Compare(a.Submitted, b.Submitted) })
	for slot := s.oldest; slot != noSlot; slot = s.capsules.At(slot).link {
		out = append(out, &s.capsules.At(slot).capsule)
	}
	return out
}

// dumper writes lines. After the first error it writes nothing more.
type dumper struct {
	out   *json.Encoder
	specs map[*Spec]int
	lines int
	err   error
}

// line writes one line and counts it, unless it is the end. It returns false once a line could not be written.
func (d *dumper) line(l dumpLine) bool {
	if d.err == nil {
		d.err = d.out.Encode(l)
	}
	if l.End == nil {
		d.lines++
	}
	return d.err == nil
}

// spec returns the number of a spec. It writes the spec first if the dump does not have it yet.
func (d *dumper) spec(s *Spec) int {
	n, known := d.specs[s]
	if !known {
		n = len(d.specs)
		d.specs[s] = n
		d.line(dumpLine{Spec: s})
	}
	return n
}

// gang writes a gang after the specs of its roles.
func (d *dumper) gang(g *GangState) {
	out := &dumpGang{ID: g.Gang.ID, Levels: g.Gang.Levels, Loose: g.Gang.Loose, Min: g.Gang.Min, Changed: g.Changed, Nomination: g.Nomination}
	for i := range g.Gang.Roles {
		r := &g.Gang.Roles[i]
		out.Roles = append(out.Roles, dumpRole{r.Name, d.spec(r.Spec), r.Members, r.Min})
	}
	d.line(dumpLine{Gang: out})
}

// capsule writes a capsule after its spec and the spec of its remains.
func (d *dumper) capsule(s *State, c *Capsule) {
	out := &dumpCapsule{
		ID: c.ID, Spec: d.spec(c.Spec), Owner: c.Owner(), Gang: c.Gang(), Role: c.inCommon().role, Node: c.Node,
		Devices: c.Devices, Note: c.Note(), Submitted: c.Submitted, Changed: c.Changed, PlacedAt: c.PlacedAt, PlacedBy: c.PlacedBy, Released: c.released, Nomination: c.Nomination(),
		Begun: c.Begun, Ready: c.Ready, Waits: c.Waits, Adopted: c.Adopted, Respecified: c.Respecified, Remains: c.Remains(), Surge: c.Surge(), Labels: c.inCommon().labels, SubmitTime: c.SubmitTime(), PlaceTime: c.PlaceTime, Protected: s.Protected(c.ID), Borrows: c.Borrows(), Failures: s.failuresOf(c.ID),
	}
	for p := c.rare().earlier; p != nil; p = p.before {
		out.Earlier = append(out.Earlier, dumpID{p.id, p.at})
	}
	if r := c.Remains(); r != nil && r.Spec != c.Spec {
		former := d.spec(r.Spec)
		out.FormerSpec = &former
	}
	if r := c.Surge(); r != nil && r.Spec != c.Spec {
		former := d.spec(r.Spec)
		out.SurgeSpec = &former
	}
	d.line(dumpLine{Capsule: out})
}

// Restore reads a dump, which [State.Dump] wrote, into s. It refuses a dump with unknown, misplaced or inconsistent
// records: it returns a [*Rejection] that is ErrInvalid, and [ErrNewer], too, if a newer version has written what it does
// not know. Do of the rejection is the number of the faulty line, from 1, or -1 if the dump is cut short or its records
// are inconsistent as a whole. After an error s is unchanged. Restore also refuses an s that is not new(State), because
// a state never changes.
//
// A ledger that starts from the state ([MemoryLedger.Start]) continues above its revision. Restore the newest dump: all
// that was committed after the dump is lost, and the ledger will use the revisions of those commits again.
func (s *State) Restore(r io.Reader) error {
	if s.members.Made() {
		return invalidf("restore: the state at revision %d is in use; restore into a new one", s.rev)
	}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<30)
	var d dumpReader
	for in.Scan() {
		d.lines++
		if err := d.line(in.Bytes()); err != nil {
			kind := ErrInvalid
			if errors.Is(err, ErrNewer) {
				kind = ErrNewer
			}
			return &Rejection{Kind: kind, Do: d.lines, Reason: fmt.Sprintf("dump: line %d: %v", d.lines, err)}
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
	build stateBuilder
	specs []*Spec
	// number maps each spec to its position in specs.
	number       map[*Spec]int
	lines        int
	begun, ended bool
	// plain is the buffer for plainCapsule. All lines share it.
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

// header starts the state. It takes the limits from the dump, because they determine which records are dropped and
// when. It refuses limits that no ledger can have.
func (d *dumpReader) header(h *dumpHeader) error {
	if d.begun {
		return errors.New("a second header")
	}
	if h.Version > dumpVersion {
		return newer("version %d of the dump; this package reads %d", h.Version, dumpVersion)
	}
	if h.Version != dumpVersion {
		return fmt.Errorf("version is %d; this package reads %d", h.Version, dumpVersion)
	}
	if h.Order > math.MaxInt64 {
		return fmt.Errorf("order %d leaves no room to count on", h.Order)
	}
	d.begun, d.number = true, map[*Spec]int{}
	d.build = stateBuilder{Revision: h.Revision, Limits: h.Limits, Dimensions: h.Dimensions}
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
	case l.Queue != nil:
		return d.build.Queue(l.Queue)
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

// numbered returns the spec with number i.
func (d *dumpReader) numbered(i int) (*Spec, error) {
	if i < 0 || i >= len(d.specs) {
		return nil, fmt.Errorf("spec %d has not appeared", i)
	}
	return d.specs[i], nil
}

// gang adds a gang. The specs of its roles must have appeared on earlier lines.
func (d *dumpReader) gang(g *dumpGang) error {
	gang := &Gang{ID: g.ID, Levels: g.Levels, Loose: g.Loose, Min: g.Min}
	for _, r := range g.Roles {
		spec, err := d.numbered(r.Spec)
		if err != nil {
			return err
		}
		gang.Roles = append(gang.Roles, Role{r.Name, spec, r.Members, r.Min})
	}
	return d.build.add(func(v *validator) error { return d.build.gang(v, gang, g.Changed, g.Nomination) })
}

// capsule adds a capsule. Its spec must have appeared on an earlier line.
func (d *dumpReader) capsule(c *dumpCapsule) error {
	spec, err := d.numbered(c.Spec)
	if err != nil {
		return err
	}
	now := storedCapsule{
		Capsule: Capsule{
			ID: c.ID, Spec: spec, Node: c.Node, Devices: c.Devices, Submitted: c.Submitted, Changed: c.Changed, PlacedAt: c.PlacedAt, PlacedBy: c.PlacedBy,
			PlaceTime: c.PlaceTime, Begun: c.Begun, Ready: c.Ready, Waits: c.Waits, Adopted: c.Adopted, Respecified: c.Respecified,
		},
		Owner: c.Owner, Gang: c.Gang, Labels: c.Labels, SubmitTime: c.SubmitTime,
		Note: c.Note, Remains: c.Remains, Surge: c.Surge, Nomination: c.Nomination, Borrows: c.Borrows, Released: c.Released, Failures: c.Failures,
	}
	for _, of := range [...]struct {
		number *int
		r      *Remains
	}{{c.FormerSpec, c.Remains}, {c.SurgeSpec, c.Surge}} {
		if of.number == nil {
			continue
		}
		former, err := d.numbered(*of.number)
		if err != nil || of.r == nil || former == spec {
			return errors.Join(err, fmt.Errorf("capsule %q: spec %d of what remains of a former one is its own, or nothing remains", c.ID, *of.number))
		}
		of.r.Spec = former
	}
	now.Earlier = func(yield func(ProposalID, Revision) bool) {
		for _, p := range c.Earlier {
			if !yield(p.ID, p.At) {
				return
			}
		}
	}
	err = d.build.add(func(v *validator) error { return d.build.capsule(v, now, c.Role) })
	if c.Protected != 0 && err == nil {
		err = d.build.Protect(c.ID, c.Protected)
	}
	return err
}

// restored links earlier placements, given newest first, into a list and returns the newest one; nil: there are none.
func restored(earlier iter.Seq2[ProposalID, Revision]) (*placements, error) {
	if earlier == nil {
		return nil, nil
	}
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

// decode reads one line and accepts only the exact form that Dump writes. So it refuses input that the JSON package
// would accept: fields that are unknown, missing, repeated or in capitals, lists of a wrong length, and nulls.
func (d *dumpReader) decode(text []byte) (l dumpLine, err error) {
	if plainCapsule(text, &d.plain) {
		return dumpLine{Capsule: &d.plain}, nil
	}
	return decodeStrictly(text)
}

// decodeStrictly reads a line with the JSON package, encodes the result again, and refuses the line if the two differ.
func decodeStrictly(text []byte) (l dumpLine, err error) {
	if err := ReadJSON(text, &l); err != nil {
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
		l.Hold != nil, l.Mark != nil, l.Budget != nil, l.Queue != nil, l.Recent != nil, l.End != nil,
	} {
		n += btoi(set)
	}
	return n
}

// plainCapsule reads the line of a capsule if the line is plain: strings without escapes, whole numbers, and only the
// fields that engines set in their everyday work. Most lines of a dump are of this kind, and plainCapsule needs a tenth
// of the time that the JSON package needs. It returns false for every other line, and decode then uses the JSON package.
func plainCapsule(line []byte, c *dumpCapsule) bool {
	p := plain.Read(line)
	*c = dumpCapsule{}
	p.Expect(`{"capsule":{"id":`)
	c.ID = CapsuleID(p.Text())
	p.Expect(`,"spec":`)
	c.Spec = int(p.Number())
	c.Owner = plainText(&p, `,"owner":`)
	c.Gang = GangID(plainText(&p, `,"gang":`))
	c.Role = plainShort(&p, `,"role":`)
	c.Node = NodeID(plainText(&p, `,"node":`))
	c.Devices = DeviceSet(plainShort(&p, `,"devices":`))
	c.Note = plainText(&p, `,"note":`)
	p.Expect(`,"submitted":`)
	c.Submitted = p.Number()
	p.Expect(`,"changed":`)
	c.Changed = Revision(p.Number())
	c.PlacedAt = Revision(plainNumber(&p, `,"placedAt":`))
	if p.Has(`,"placedBy":`) {
		c.PlacedBy = p.Hex()
	}
	c.Earlier = plainEarlier(&p)
	c.Released = p.Has(`,"released":true`)
	c.Begun = p.Has(`,"begun":true`)
	c.Ready = p.Has(`,"ready":true`)
	c.Labels = plainLabels(&p)
	c.SubmitTime = Instant(plainNumber(&p, `,"submitTime":`))
	c.PlaceTime = Instant(plainNumber(&p, `,"placeTime":`))
	c.Failures = plainFailures(&p)
	p.Expect(`}}`)
	return p.Done()
}

// plainFailures reads what has failed, if that comes next.
func plainFailures(p *plain.Reader) *Failures {
	if !p.Has(`,"failures":{`) {
		return nil
	}
	f, comma := &Failures{}, ""
	if p.Has(`"attempts":`) {
		f.Attempts, comma = int(p.Positive()), `,`
	}
	if p.Has(comma + `"inARow":`) {
		f.InARow, comma = int(p.Positive()), `,`
	}
	p.Expect(comma + `"nodes":[`)
	for {
		n := NodeFailure{}
		p.Expect(`{"node":`)
		n.Node = NodeID(p.Text())
		p.Expect(`,"times":`)
		n.Times = int(p.Number())
		n.At = Instant(plainNumber(p, `,"at":`))
		p.Expect(`,"revision":`)
		n.Revision = Revision(p.Number())
		p.Expect(`}`)
		if f.Nodes = append(f.Nodes, n); !p.Has(`,`) {
			p.Expect(`]}`)
			return f
		}
	}
}

// plainText reads a text if its key comes next. Dump leaves empty texts out.
func plainText(p *plain.Reader, key string) string {
	if !p.Has(key) {
		return ""
	}
	return string(p.Text())
}

// plainNumber reads a number if its key comes next. Dump leaves zeros out.
func plainNumber(p *plain.Reader, key string) uint64 {
	if !p.Has(key) {
		return 0
	}
	return p.Positive()
}

// plainShort is plainNumber for a field of 16 bits.
func plainShort(p *plain.Reader, key string) uint16 {
	n := plainNumber(p, key)
	if n > math.MaxUint16 {
		p.Fail()
	}
	return uint16(n)
}

// plainEarlier reads the earlier placements, if they come next.
func plainEarlier(p *plain.Reader) (list []dumpID) {
	if !p.Has(`,"earlier":[`) {
		return nil
	}
	for {
		p.Expect(`{"id":`)
		id := p.Hex()
		p.Expect(`,"at":`)
		list = append(list, dumpID{id, Revision(p.Positive())})
		p.Expect(`}`)
		if !p.Has(`,`) {
			p.Expect(`]`)
			return list
		}
	}
}

// plainLabels reads the labels, if they come next. Dump writes them in the order of their keys.
func plainLabels(p *plain.Reader) (labels map[string]string) {
	if !p.Has(`,"labels":{`) {
		return nil
	}
	labels = map[string]string{}
	for last := ""; ; {
		key := string(p.Text())
		p.Expect(`:`)
		if key <= last {
			p.Fail()
		}
		labels[key], last = string(p.Text()), key
		if !p.Has(`,`) {
			p.Expect(`}`)
			return labels
		}
	}
}
