package orbit

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"
)

// dumpVersion is the version of the encoding that Dump writes and Restore reads.
const dumpVersion = 1

// dumpLine is one line of a dump: exactly one of its fields is set. The first line is the header, the last
// one says how many lines came before it.
type dumpLine struct {
	Header *dumpHeader `json:"orbit,omitempty"`
	Node   *dumpNode   `json:"node,omitempty"`
	// Spec has a number that counts specs from 0 in order of appearance.
	Spec    *Spec        `json:"spec,omitempty"`
	Gang    *dumpGang    `json:"gang,omitempty"`
	Capsule *dumpCapsule `json:"capsule,omitempty"`
	Hold    *dumpHold    `json:"hold,omitempty"`
	Mark    *dumpMark    `json:"mark,omitempty"`
	Budget  *dumpBudget  `json:"budget,omitempty"`
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
	// Newest first.
	Earlier     []dumpID          `json:"earlier,omitempty"`
	Released    bool              `json:"released,omitempty"`
	Begun       bool              `json:"begun,omitempty"`
	Ready       bool              `json:"ready,omitempty"`
	Waits       bool              `json:"waits,omitempty"`
	Adopted     bool              `json:"adopted,omitempty"`
	Respecified bool              `json:"respecified,omitempty"`
	Remains     *Remains          `json:"remains,omitempty"`
	FormerSpec  *int              `json:"formerSpec,omitempty"` // of what remains, if the id was submitted again with another
	Nomination  *Nomination       `json:"nomination,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	SubmitTime  Instant           `json:"submitTime,omitempty"`
	PlaceTime   Instant           `json:"placeTime,omitempty"`
	Protected   time.Duration     `json:"protected,omitempty"`
	Borrows     *Nominee          `json:"borrows,omitempty"`
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

type dumpID struct {
	ID ProposalID `json:"id"`
	At Revision   `json:"at"`
}

// Dump writes the whole state: a versioned header and then one line of JSON for each record, in an order
// that depends on nothing but the content, so that equal states have equal dumps. [State.Restore] reads it.
func (s *State) Dump(w io.Writer) error {
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
	s.recent.each(func(r recentID) { d.line(dumpLine{Recent: &dumpID{r.id, r.at}}) })
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

// dumper writes lines until the first error.
type dumper struct {
	out   *json.Encoder
	specs map[*Spec]int
	lines int
	err   error
}

// line writes one record and counts it, unless an earlier one failed.
func (d *dumper) line(l dumpLine) bool {
	if d.err == nil {
		d.err = d.out.Encode(l)
	}
	if l.End == nil {
		d.lines++
	}
	return d.err == nil
}

// spec returns the number of a spec, which it writes when it first appears.
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
	out := &dumpGang{ID: g.Gang.ID, Levels: g.Gang.Levels, Loose: g.Gang.Loose, Changed: g.Changed, Nomination: g.Nomination}
	for i := range g.Gang.Roles {
		r := &g.Gang.Roles[i]
		out.Roles = append(out.Roles, dumpRole{r.Name, d.spec(r.Spec), r.Members, r.Min})
	}
	d.line(dumpLine{Gang: out})
}

// capsule writes a record after its spec.
func (d *dumper) capsule(s *State, c *Capsule) {
	out := &dumpCapsule{
		ID: c.ID, Spec: d.spec(c.Spec), Owner: c.Owner, Gang: c.Gang, Role: c.role, Node: c.Node,
		Devices: c.Devices, Note: c.Note, Submitted: c.Submitted, Changed: c.Changed, PlacedAt: c.PlacedAt, PlacedBy: c.PlacedBy, Released: c.released, Nomination: c.Nomination,
		Begun: c.Begun, Ready: c.Ready, Waits: c.Waits, Adopted: c.Adopted, Respecified: c.Respecified, Remains: c.Remains, Labels: c.Labels, SubmitTime: c.SubmitTime, PlaceTime: c.PlaceTime, Protected: s.Protected(c.ID), Borrows: c.Borrows,
	}
	for p := c.earlier; p != nil; p = p.before {
		out.Earlier = append(out.Earlier, dumpID{p.id, p.at})
	}
	if r := c.Remains; r != nil && r.Spec != c.Spec {
		former := d.spec(r.Spec)
		out.FormerSpec = &former
	}
	d.line(dumpLine{Capsule: out})
}
