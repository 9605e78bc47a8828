package orbit

import (
	"bytes"
	"encoding/json"
	"io"
	"sort"
)

// history holds the newest changes, in order of revision and sequence: a ring of pages, so that it grows
// without copying.
//
// Change number i (counted from the first ever) is in pages[i/historyPage % len(pages)], once there are as
// many pages as the limit needs.
type history struct {
	pages [][]Change
	// Number of the oldest change kept.
	first uint64
	// Number of the next change.
	next  uint64
	limit int
	// Everything up to here has been dropped.
	floor Revision
}

const historyPage = 512

// append adds what a published proposal has done.
func (h *history) append(rev Revision, t *tx) {
	for i, c := range t.p.Do {
		*h.push() = Change{Revision: rev, Seq: i, ID: t.p.ID, Do: c, Node: t.touched[i]}
	}
}

// push makes room for one more change, dropping the oldest if the limit is reached.
func (h *history) push() *Change {
	if h.next-h.first == uint64(h.limit) {
		h.floor = h.at(h.first).Revision
		*h.at(h.first) = Change{}
		h.first++
	}
	if most := h.limit/historyPage + 2; len(h.pages) < most && h.next == uint64(len(h.pages))*historyPage {
		h.pages = append(h.pages, make([]Change, historyPage))
	}
	h.next++
	return h.at(h.next - 1)
}

// at returns change number i. It requires first <= i < next.
func (h *history) at(i uint64) *Change {
	return &h.pages[i/historyPage%uint64(len(h.pages))][i%historyPage]
}

// search returns the number of the first change at or after a revision.
func (h *history) search(rev Revision) uint64 {
	n := sort.Search(int(h.next-h.first), func(i int) bool { return h.at(h.first+uint64(i)).Revision >= rev })
	return h.first + uint64(n)
}

// after returns a copy of all changes newer than a revision.
func (h *history) after(rev Revision) ([]Change, error) {
	if rev < h.floor {
		return nil, ErrCompacted
	}
	from := h.search(rev + 1)
	if from == h.next {
		return nil, nil
	}
	out := make([]Change, 0, h.next-from)
	for i := from; i < h.next; i++ {
		out = append(out, *h.at(i))
	}
	return out, nil
}

// idAt returns the id of the proposal committed at a revision, zero if it is not known any more.
func (h *history) idAt(rev Revision) ProposalID {
	if i := h.search(rev); i < h.next && h.at(i).Revision == rev {
		return h.at(i).ID
	}
	return ProposalID{}
}

// This file makes a run of proposals cheaper to commit: what each of them will look up is read beforehand, for
// all at once. The reads of one proposal wait for each other (hash table, record, record's contents); those of
// different proposals do not, so the processor has many under way. Nothing is decided by it.

// ahead is what a run of proposals will look up.
type ahead struct {
	capsules, nodes [batchRun]uint32
	n               int
}

// plan hashes the ids that the placements of a run name.
func (a *ahead) plan(run []Proposal) {
	a.n = 0
	for i := range run {
		if len(run[i].Do) == 0 {
			continue
		}
		if place, ok := run[i].Do[0].(Place); ok {
			a.capsules[a.n], a.nodes[a.n] = hashOf(string(place.Capsule)), hashOf(string(place.Node))
			a.n++
		}
	}
}

// read reads the records. The sum is of no use but to keep the compiler from leaving the reads out.
func (a *ahead) read(s *State) (sum uint32) {
	for i := range a.n {
		a.capsules[i] = s.capsules.First(a.capsules[i])
		a.nodes[i] = s.nodes.First(a.nodes[i])
	}
	for i := range a.n {
		if slot := a.capsules[i]; slot < s.capsules.Bound() {
			r := s.capsules.At(slot)
			sum += uint32(len(r.capsule.ID)) + r.link
		}
		if slot := a.nodes[i]; slot < s.nodes.Bound() {
			if r := s.nodes.At(slot); r.node.Node != nil {
				sum += uint32(len(r.node.Node.ID)) + uint32(r.remover)
			}
		}
	}
	return sum
}

// commitmentJSON is a commitment in the field of its kind. Exactly one is set.
type commitmentJSON struct {
	PutNode    *PutNode    `json:"putNode,omitempty"`
	RemoveNode *RemoveNode `json:"removeNode,omitempty"`
	Submit     *Submit     `json:"submit,omitempty"`
	Place      *Place      `json:"place,omitempty"`
	Release    *Release    `json:"release,omitempty"`
	Hold       *Hold       `json:"hold,omitempty"`
	Assign     *Assign     `json:"assign,omitempty"`
	Mark       *Mark       `json:"mark,omitempty"`
	Nominate   *Nominate   `json:"nominate,omitempty"`
}

// commitmentToJSON puts a commitment into the field of its kind.
func commitmentToJSON(c Commitment) (*commitmentJSON, error) {
	var out commitmentJSON
	switch c := c.(type) {
	case PutNode:
		out.PutNode = &c
	case RemoveNode:
		out.RemoveNode = &c
	case Submit:
		out.Submit = &c
	case Place:
		out.Place = &c
	case Release:
		out.Release = &c
	case Hold:
		c.Ends = c.Ends.UTC()
		out.Hold = &c
	case Assign:
		out.Assign = &c
	case Mark:
		out.Mark = &c
	case Nominate:
		c.Ends = c.Ends.UTC()
		out.Nominate = &c
	default:
		return nil, invalidf("a %T is no commitment; commitments are values, not pointers", c)
	}
	return &out, nil
}

// commitment returns the commitment whose field is set.
func (in *commitmentJSON) commitment() (Commitment, error) {
	var found []Commitment
	if in.PutNode != nil {
		found = append(found, *in.PutNode)
	}
	if in.RemoveNode != nil {
		found = append(found, *in.RemoveNode)
	}
	if in.Submit != nil {
		found = append(found, *in.Submit)
	}
	if in.Place != nil {
		found = append(found, *in.Place)
	}
	if in.Release != nil {
		found = append(found, *in.Release)
	}
	if in.Hold != nil {
		found = append(found, *in.Hold)
	}
	if in.Assign != nil {
		found = append(found, *in.Assign)
	}
	if in.Mark != nil {
		found = append(found, *in.Mark)
	}
	if in.Nominate != nil {
		found = append(found, *in.Nominate)
	}
	if len(found) != 1 {
		return nil, invalidf("commitment: %d kinds are set, there must be one", len(found))
	}
	return found[0], nil
}

// changeJSON is a change as JSON.
type changeJSON struct {
	Revision Revision        `json:"revision,omitempty"`
	Seq      int             `json:"seq,omitempty"`
	ID       ProposalID      `json:"id,omitzero"`
	Do       *commitmentJSON `json:"do"`
	Node     NodeID          `json:"node,omitempty"`
}

// MarshalJSON writes the change as a JSON object, in which the commitment is an object with one field that is named
// after its kind: {"revision":7,"do":{"place":{"capsule":"web-1","node":"node-a"}},"node":"node-a"}. Fields that are zero are
// left out. The error is ErrInvalid for a commitment that is a pointer or nil, and for text that JSON cannot hold.
func (c Change) MarshalJSON() ([]byte, error) {
	do, err := commitmentToJSON(c.Do)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(changeJSON{c.Revision, c.Seq, c.ID, do, c.Node})
	if err != nil {
		return nil, invalidf("change cannot be written: %v", err)
	}
	return text, nil
}

// UnmarshalJSON reads what MarshalJSON writes. It refuses unknown fields, text behind the object, and any other number
// of commitments than one, with an error that is ErrInvalid, and leaves c as it was. It judges no rule:
// [State.Apply] does that.
func (c *Change) UnmarshalJSON(text []byte) error {
	var in changeJSON
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return invalidf("change: %v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return invalidf("change: there is text behind it")
	}
	if in.Do == nil {
		return invalidf("change: there is no commitment")
	}
	do, err := in.Do.commitment()
	if err != nil {
		return err
	}
	*c = Change{in.Revision, in.Seq, in.ID, do, in.Node}
	return nil
}
