package etcdledger

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// maxValue is the greatest number of bytes that a value or a request may have.
const maxValue = 16 << 20

// version is the version of the encoding of all values.
const version = 1

// stamp is the first part of every value: the version of its encoding and, after decoding, the revision at which it was
// written.
type stamp struct {
	V  int `json:"v"`
	at orbit.Revision
}

// written is the stamp of values that this package writes.
var written = stamp{V: version}

// readAt checks the version and notes the revision at which the value was written.
func (s *stamp) readAt(at orbit.Revision) error {
	if s.V != version {
		return fmt.Errorf("its version is %d, and this package reads version %d", s.V, version)
	}
	s.at = at
	return nil
}

// Records do not contain the revision at which they were written, because etcd has it as the ModRevision of their keys: a
// capsule's Changed, a node's Specification, and the revisions of marks and holds.

// nodeRecord is the description of a node.
type nodeRecord struct {
	stamp
	Node orbit.Node `json:"node"`
}

// useRecord counts the capsules, the holds and the used resources of a node. Loading compares these counts with the
// other records, so that the loss of a capsule's or a hold's record is noticed.
type useRecord struct {
	stamp
	// Gone says that the node has left.
	Gone     bool            `json:"gone,omitempty"`
	Capsules int             `json:"capsules,omitempty"`
	Holds    int             `json:"holds,omitempty"`
	Used     orbit.Resources `json:"used,omitzero"`
	// Remains lists the capsules that have left the node but still run there, each with the revision at which it was
	// placed on the node; 0 stands for the revision of this record. This list decides which remains exist: a capsule's
	// record may still describe remains that have ended.
	Remains map[orbit.CapsuleID]orbit.Revision `json:"remains,omitempty"`
	// Usage is [orbit.NodeState].Usage; 0: the revision of this record.
	Usage orbit.Revision `json:"usage,omitempty"`
}

// capsuleRecord is a capsule with its spec. A record without a Spec means that the ledger has dropped the capsule.
type capsuleRecord struct {
	stamp
	Spec    *orbit.Spec     `json:"spec,omitempty"`
	Owner   string          `json:"owner,omitempty"`
	Gang    orbit.GangID    `json:"gang,omitempty"`
	Node    orbit.NodeID    `json:"node,omitempty"`
	Devices orbit.DeviceSet `json:"devices,omitempty"`
	Note    string          `json:"note,omitempty"`
	Begun   bool            `json:"begun,omitempty"`
	Ready   bool            `json:"ready,omitempty"`
	Waits   bool            `json:"waits,omitempty"`
	// Adopted and Respecified are the fields of [orbit.Capsule] with these names.
	Adopted     bool `json:"adopted,omitempty"`
	Respecified bool `json:"respecified,omitempty"`
	// Remains describes the run of the capsule that has left a node and has not stopped there yet. It holds only while
	// the node's useRecord lists the capsule with the same revision.
	Remains *orbit.Remains `json:"remains,omitempty"`
	// Submitted is [orbit.Capsule].Submitted. It is 0 in the record that the capsule's submission has written; then Seq
	// is the capsule's number among the capsules submitted at the revision of this record.
	Submitted uint64 `json:"submitted,omitempty"`
	Seq       uint64 `json:"seq,omitempty"`
	// Placed are the placements, newest first. Only the first one may have no id.
	Placed []placementRecord `json:"placed,omitempty"`
	// Former says that all of Placed are placements of earlier capsules with the same id.
	Former bool `json:"former,omitempty"`
	// FormerSpec is the spec of Remains if an earlier capsule with the same id and another spec has left them.
	FormerSpec *orbit.Spec `json:"formerSpec,omitempty"`
	Released   bool        `json:"released,omitempty"`
	// Ended is the number of the change that released the capsule, among the changes of this record's revision.
	Ended int `json:"ended,omitempty"`
	// Nomination is the capsule's nomination, or the part of its last one that the ledger keeps.
	Nomination *nominationRecord `json:"nomination,omitempty"`
	// Labels, SubmitTime and PlaceTime are the fields of [orbit.Capsule] with these names.
	Labels     map[string]string `json:"labels,omitempty"`
	SubmitTime orbit.Instant     `json:"submitTime,omitempty"`
	PlaceTime  orbit.Instant     `json:"placeTime,omitempty"`
	// Protected is [orbit.State].Protected.
	Protected time.Duration `json:"protected,omitempty"`
	// Borrows is [orbit.Capsule].Borrows.
	Borrows *orbit.Nominee `json:"borrows,omitempty"`
	// Failures is [orbit.State].Failures. Revision 0 in it stands for the revision of this record.
	Failures *orbit.Failures `json:"failures,omitempty"`
}

// placementRecord is a placement: the id of its proposal, and the revision at which it was committed. Revision 0 stands
// for the revision of the record that contains it.
type placementRecord struct {
	ID orbit.ProposalID `json:"id,omitzero"`
	At orbit.Revision   `json:"at,omitempty"`
}

// gangRecord is a gang. The records of its members say which of them are placed. A nil Gang means that the ledger has
// dropped the gang.
type gangRecord struct {
	stamp
	Gang       *orbit.Gang       `json:"gang,omitempty"`
	Nomination *nominationRecord `json:"nomination,omitempty"`
}

// nominationRecord is the nomination of a capsule or a gang. Revision 0 stands for the revision of the record that
// contains it.
type nominationRecord struct {
	Rank     int32                 `json:"rank,omitempty"`
	First    orbit.Revision        `json:"first,omitempty"`
	Made     orbit.Revision        `json:"made,omitempty"`
	Renewals int                   `json:"renewals,omitempty"`
	Parts    []orbit.NominatedRoom `json:"parts,omitempty"`
	Ends     time.Time             `json:"ends,omitzero"`
	Lends    time.Duration         `json:"lends,omitempty"`
}

// nomination returns the nomination of the capsule or of the gang; the other id is empty. The revision at is that of
// the record that contains n.
func (n *nominationRecord) nomination(capsule orbit.CapsuleID, gang orbit.GangID, at orbit.Revision) *orbit.Nomination {
	if n == nil {
		return nil
	}
	return &orbit.Nomination{Capsule: capsule, Gang: gang, Rank: n.Rank, First: cmp.Or(n.First, at), Made: cmp.Or(n.Made, at),
		Renewals: n.Renewals, Parts: n.Parts, Ends: n.Ends, Lends: n.Lends}
}

// emptyRecord has no contents. Only the revision at which it was written matters, because transactions compare it.
type emptyRecord struct{ stamp }

// budgetRecord is a budget; nil: it has ended.
type budgetRecord struct {
	stamp
	Budget *orbit.Budget `json:"budget,omitempty"`
}

// holdRecord is a hold; nil: the hold has ended.
type holdRecord struct {
	stamp
	Hold *orbit.Hold `json:"hold,omitempty"`
}

// markRecord is a mark; empty: the mark has been deleted.
type markRecord struct {
	stamp
	Value string `json:"value,omitempty"`
}

// proposalRecord says that a proposal with this id has been committed. There is one for each proposal that placed
// nothing; the ids of proposals that placed something are in the records of their capsules.
type proposalRecord struct {
	stamp
	// Seq is the number of the proposal's first change among the changes of this record's revision.
	Seq int `json:"seq,omitempty"`
}

// metaRecord has the settings that all processes share.
type metaRecord struct {
	stamp
	Limits     orbit.Limits             `json:"limits"`
	Dimensions [orbit.Dimensions]string `json:"dimensions"`
}

// value is a pointer to a record. It constrains the type parameters of decode, so that decode can make a T and return a
// *T.
type value[T any] interface {
	*T
	readAt(orbit.Revision) error
}

// decode reads one value that was written at a revision. It refuses another version, unknown fields, and text after the
// value.
func decode[T any, P value[T]](text []byte, at orbit.Revision) (P, error) {
	if len(text) > maxValue {
		return nil, fmt.Errorf("%d bytes; no value has more than %d", len(text), maxValue)
	}
	in, out := json.NewDecoder(bytes.NewReader(text)), P(new(T))
	in.DisallowUnknownFields()
	if err := in.Decode(out); err != nil {
		var head stamp
		if json.Unmarshal(text, &head) == nil && head.V != 0 {
			err = cmp.Or(head.readAt(at), err)
		}
		return nil, err
	}
	if _, err := in.Token(); err != io.EOF {
		return nil, errors.New("there is text after the value")
	}
	return out, out.readAt(at)
}

// encoder encodes the records of a state that a transaction will make.
type encoder struct {
	state *orbit.State
	// now is the state's revision. It stands for the revision of the transaction, which only etcd knows.
	now orbit.Revision
	// changes are the changes of the proposal that writes the records.
	changes []orbit.Change
	// err is the first error.
	err error
}

// encode encodes one value.
func (e *encoder) encode(record any) []byte {
	value, err := json.Marshal(record)
	if err != nil && e.err == nil {
		e.err = err
	}
	return value
}

// at returns the revision that a record is given for rev: 0 if rev is that of the transaction, which is not known yet.
func (e *encoder) at(rev orbit.Revision) orbit.Revision {
	if rev == e.now {
		return 0
	}
	return rev
}

// record encodes a record.
func (e *encoder) record(r ref) []byte {
	switch r.kind {
	case kindNode:
		return e.encode(nodeRecord{stamp: written, Node: *e.state.Node(orbit.NodeID(r.id)).Node})
	case kindUse:
		return e.use(orbit.NodeID(r.id))
	case kindCapsule:
		return e.capsule(orbit.CapsuleID(r.id))
	case kindGang:
		out := gangRecord{stamp: written}
		if g := e.state.Gang(orbit.GangID(r.id)); g != nil {
			out.Gang, out.Nomination = g.Gang, e.nomination(g.Nomination)
		}
		return e.encode(out)
	case kindHold:
		out := holdRecord{stamp: written}
		if h, lives := e.state.Hold(orbit.HoldID(r.id)); lives {
			out.Hold = &h
		}
		return e.encode(out)
	case kindShare, kindFence:
		return e.encode(emptyRecord{written})
	case kindCovers:
		return []byte{}
	case kindBudget:
		out := budgetRecord{stamp: written}
		if b, lives := e.state.Budget(orbit.BudgetID(r.id)); lives {
			out.Budget = &b.Budget
		}
		return e.encode(out)
	case kindMark:
		value, _ := e.state.Mark(r.id)
		return e.encode(markRecord{stamp: written, Value: value})
	}
	return e.encode(proposalRecord{written, e.changes[0].Seq})
}

// use encodes the count of a node.
func (e *encoder) use(id orbit.NodeID) []byte {
	n := e.state.Node(id)
	if n == nil {
		return e.encode(useRecord{stamp: written, Gone: true})
	}
	u := useRecord{stamp: written, Capsules: n.Capsules, Holds: n.Holds(), Used: n.Used(), Usage: e.at(n.Usage)}
	for r := range e.state.Remains(id) {
		if u.Remains == nil {
			u.Remains = map[orbit.CapsuleID]orbit.Revision{}
		}
		u.Remains[r.Capsule] = e.at(r.Since)
	}
	return e.encode(u)
}

// capsule encodes a capsule's record.
func (e *encoder) capsule(id orbit.CapsuleID) []byte {
	c := e.state.Capsule(id)
	if c == nil {
		return e.encode(capsuleRecord{stamp: written}) // the state has dropped the released capsule
	}
	r := capsuleRecord{
		stamp: written, Spec: c.Spec, Owner: c.Owner(), Gang: c.Gang(), Node: c.Node, Devices: c.Devices, Note: c.Note(),
		Submitted: c.Submitted, Released: c.Released(), Nomination: e.nomination(c.Nomination()), Begun: c.Begun, Ready: c.Ready, Waits: c.Waits, Adopted: c.Adopted, Respecified: c.Respecified,
		Labels: c.Labels(), SubmitTime: c.SubmitTime(), PlaceTime: c.PlaceTime, Protected: e.state.Protected(id), Borrows: c.Borrows(),
	}
	if c.Remains() != nil {
		own := *c.Remains()
		own.Since, own.Left = e.at(own.Since), e.at(own.Left)
		r.Remains = &own
		if own.Spec != c.Spec {
			r.FormerSpec = own.Spec
		}
	}
	if first := uint64(e.now) << orderBits; c.Submitted >= first {
		r.Submitted, r.Seq = 0, c.Submitted-first
	}
	if c.PlacedAt != 0 && c.PlacedBy.IsZero() {
		r.Placed = append(r.Placed, placementRecord{At: e.at(c.PlacedAt)})
	}
	if r.Released {
		r.Ended = e.ended(id)
	}
	for by, at := range c.Placements() {
		r.Placed = append(r.Placed, placementRecord{by, e.at(at)})
	}
	r.Former = c.PlacedAt == 0 && len(r.Placed) > 0
	if f := e.state.Failures(id); len(f.Nodes) > 0 {
		r.Failures = revised(&f, e.at)
	}
	return e.encode(r)
}

// revised returns a copy of the failures of a capsule with other revisions; nil for nil.
func revised(f *orbit.Failures, at func(orbit.Revision) orbit.Revision) *orbit.Failures {
	if f == nil {
		return nil
	}
	out := *f
	out.Nodes = slices.Clone(f.Nodes)
	for i := range out.Nodes {
		out.Nodes[i].Revision = at(out.Nodes[i].Revision)
	}
	return &out
}

// nomination returns the record of a nomination; nil for nil.
func (e *encoder) nomination(n *orbit.Nomination) *nominationRecord {
	if n == nil {
		return nil
	}
	return &nominationRecord{Rank: n.Rank, First: e.at(n.First), Made: e.at(n.Made), Renewals: n.Renewals, Parts: n.Parts, Ends: n.Ends, Lends: n.Lends}
}

// ended returns the number of the change that released a capsule for good.
func (e *encoder) ended(id orbit.CapsuleID) int {
	for _, c := range e.changes {
		if r, ok := c.Do.(orbit.Release); ok && r.Final && r.Capsule == id {
			return c.Seq
		}
	}
	return 0
}

// orderBits is the number of low bits of [orbit.Capsule.Submitted] that number the capsules of one revision.
const orderBits = 20
