package etcdledger

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/orbitsched/orbit"
)

// maxValue is the most bytes of any value, and of any request.
const maxValue = 16 << 20

// version is that of the encoding of all values.
const version = 1

// stamp begins every value: the version of its encoding and, once it has been read, when it was written.
type stamp struct {
	V  int `json:"v"`
	at orbit.Revision
}

// written is the stamp of what is written now.
var written = stamp{V: version}

// readAt checks the version and notes when the value was written.
func (s *stamp) readAt(at orbit.Revision) error {
	if s.V != version {
		return fmt.Errorf("version is %d; this package reads %d", s.V, version)
	}
	s.at = at
	return nil
}

// Records leave out what etcd keeps: when they were written. A capsule's Changed, a node's Specification, a mark's
// and a hold's revision are their keys' ModRevision.

// nodeRecord describes a node.
type nodeRecord struct {
	stamp
	Node orbit.Node `json:"node"`
}

// useRecord says how much is on a node, so that a record that is missing is missed.
type useRecord struct {
	stamp
	// The node has left.
	Gone     bool            `json:"gone,omitempty"`
	Capsules int             `json:"capsules,omitempty"`
	Holds    int             `json:"holds,omitempty"`
	Used     orbit.Resources `json:"used,omitzero"`
	// When what is used last changed; 0: at the revision of this record.
	Usage orbit.Revision `json:"usage,omitempty"`
}

// capsuleRecord is a capsule. It holds its spec, so that it can be read alone; without one it has been dropped.
type capsuleRecord struct {
	stamp
	Spec    *orbit.Spec     `json:"spec,omitempty"`
	Owner   string          `json:"owner,omitempty"`
	Gang    orbit.GangID    `json:"gang,omitempty"`
	Node    orbit.NodeID    `json:"node,omitempty"`
	Devices orbit.DeviceSet `json:"devices,omitempty"`
	Note    string          `json:"note,omitempty"`
	// The order of submission; 0: number Seq of those submitted at the revision of this record.
	Submitted uint64 `json:"submitted,omitempty"`
	Seq       uint64 `json:"seq,omitempty"`
	// Placements, newest first. The first one may be without an id.
	Placed   []placementRecord `json:"placed,omitempty"`
	Released bool              `json:"released,omitempty"`
	// Released: as number so of the changes of this record's revision.
	Ended      int               `json:"ended,omitempty"`
	Nomination *nominationRecord `json:"nomination,omitempty"`
}

// placementRecord says which proposal placed a capsule, and when; 0: at the revision of this record.
type placementRecord struct {
	ID orbit.ProposalID `json:"id,omitzero"`
	At orbit.Revision   `json:"at,omitempty"`
}

// gangRecord is a gang; how much of it is placed its members say. Nil: it has been dropped.
type gangRecord struct {
	stamp
	Gang       *orbit.Gang       `json:"gang,omitempty"`
	Nomination *nominationRecord `json:"nomination,omitempty"`
}

// nominationRecord is what a capsule or a gang is nominated for; revisions are 0 where they are that of the record.
type nominationRecord struct {
	Rank     int32                 `json:"rank,omitempty"`
	First    orbit.Revision        `json:"first,omitempty"`
	Made     orbit.Revision        `json:"made,omitempty"`
	Renewals int                   `json:"renewals,omitempty"`
	Parts    []orbit.NominatedRoom `json:"parts,omitempty"`
	Ends     time.Time             `json:"ends,omitzero"`
}

// nomination returns the record in a record that was written at a revision, as the nomination of one of the two.
func (n *nominationRecord) nomination(capsule orbit.CapsuleID, gang orbit.GangID, at orbit.Revision) *orbit.Nomination {
	if n == nil {
		return nil
	}
	return &orbit.Nomination{Capsule: capsule, Gang: gang, Rank: n.Rank, First: cmp.Or(n.First, at), Made: cmp.Or(n.Made, at),
		Renewals: n.Renewals, Parts: n.Parts, Ends: n.Ends}
}

// shareRecord says that the share of nominations was made harder to keep.
type shareRecord struct{ stamp }

// holdRecord is a hold; nil: it has ended.
type holdRecord struct {
	stamp
	Hold *orbit.Hold `json:"hold,omitempty"`
}

// markRecord is a mark; without a value it is deleted.
type markRecord struct {
	stamp
	Value string `json:"value,omitempty"`
}

// proposalRecord says that there was a proposal with this id that placed nothing.
type proposalRecord struct {
	stamp
	// The number of its first change among those of this record's revision.
	Seq int `json:"seq,omitempty"`
}

// metaRecord is what all processes agree on.
type metaRecord struct {
	stamp
	Limits     orbit.Limits             `json:"limits"`
	Dimensions [orbit.Dimensions]string `json:"dimensions"`
}

// value is a pointer to something that begins with a stamp.
type value[T any] interface {
	*T
	readAt(orbit.Revision) error
}

// decode reads one value strictly: of this version, no unknown field, nothing behind it. It was written at a
// revision.
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
		return nil, errors.New("text behind the value")
	}
	return out, out.readAt(at)
}

// encoder writes records of a state that a transaction will make. The state's own revision stands for that of the
// transaction, which only etcd knows.
type encoder struct {
	state *orbit.State
	now   orbit.Revision
	// What the proposal does.
	changes []orbit.Change
	// The first thing that could not be written.
	err error
}

// encode writes one value.
func (e *encoder) encode(record any) []byte {
	value, err := json.Marshal(record)
	if err != nil && e.err == nil {
		e.err = err
	}
	return value
}

// at returns the revision as it is written: 0 for that of the transaction.
func (e *encoder) at(rev orbit.Revision) orbit.Revision {
	if rev == e.now {
		return 0
	}
	return rev
}

// record returns the value of a record.
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
	case kindShare:
		return e.encode(shareRecord{written})
	case kindMark:
		value, _ := e.state.Mark(r.id)
		return e.encode(markRecord{stamp: written, Value: value})
	}
	return e.encode(proposalRecord{written, e.changes[0].Seq})
}

// use counts what is on a node.
func (e *encoder) use(id orbit.NodeID) []byte {
	n := e.state.Node(id)
	if n == nil {
		return e.encode(useRecord{stamp: written, Gone: true})
	}
	return e.encode(useRecord{stamp: written, Capsules: n.Capsules, Holds: n.Holds(), Used: n.Used(), Usage: e.at(n.Usage)})
}

// capsule writes a capsule's record.
func (e *encoder) capsule(id orbit.CapsuleID) []byte {
	c := e.state.Capsule(id)
	if c == nil {
		return e.encode(capsuleRecord{stamp: written}) // released, and dropped at once
	}
	r := capsuleRecord{
		stamp: written, Spec: c.Spec, Owner: c.Owner, Gang: c.Gang, Node: c.Node, Devices: c.Devices, Note: c.Note,
		Submitted: c.Submitted, Released: c.Released(), Nomination: e.nomination(c.Nomination),
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
	return e.encode(r)
}

// nomination returns the record of what a capsule or a gang is nominated for.
func (e *encoder) nomination(n *orbit.Nomination) *nominationRecord {
	if n == nil {
		return nil
	}
	return &nominationRecord{Rank: n.Rank, First: e.at(n.First), Made: e.at(n.Made), Renewals: n.Renewals, Parts: n.Parts, Ends: n.Ends}
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

// orderBits are the low bits of [orbit.Capsule.Submitted], which number those of one revision.
const orderBits = 20
