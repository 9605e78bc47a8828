package orbit

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"slices"
	"sort"
)

// history holds the newest changes, in order of revision and sequence, in chunks. A change is never written again, so
// readers get the chunks themselves. Old changes are dropped a chunk at a time; a reader that still has a chunk keeps
// it in memory.
//
// Change number i (counted from the first change ever) is in chunks[i/historyChunk - chunks[0].number].
type history struct {
	chunks []*historyPart
	// Number of the oldest change kept.
	first uint64
	// Number of the next change.
	next  uint64
	limit int
	// All changes up to this revision have been dropped.
	floor Revision
}

// historyChunk is small, because a reader that keeps one change keeps the whole chunk in memory.
const historyChunk = 256

// historyPart is one chunk. Its number is that of its first change divided by historyChunk.
type historyPart struct {
	changes [historyChunk]Change
	number  uint64
	// The next chunk. It is set before the first change in that chunk is written.
	next *historyPart
}

// append adds one change for each commitment of a published proposal.
func (h *history) append(rev Revision, t *tx) {
	for i, c := range t.p.Do {
		*h.push() = Change{Revision: rev, Seq: i, ID: t.p.ID, Do: c, Node: t.touched[i]}
	}
}

// push returns the place for one more change, and drops the oldest change if the limit is reached.
func (h *history) push() *Change {
	if h.next-h.first == uint64(h.limit) {
		h.floor = h.at(h.first).Revision
		if h.first++; h.first%historyChunk == 0 {
			h.chunks = slices.Delete(h.chunks, 0, 1)
		}
	}
	if h.next%historyChunk == 0 {
		part := &historyPart{number: h.next / historyChunk}
		if n := len(h.chunks); n > 0 {
			h.chunks[n-1].next = part
		}
		h.chunks = append(h.chunks, part)
	}
	h.next++
	return h.at(h.next - 1)
}

// at returns change number i. It requires first <= i < next.
func (h *history) at(i uint64) *Change {
	return &h.chunks[i/historyChunk-h.chunks[0].number].changes[i%historyChunk]
}

// search returns the number of the first change at or after a revision. It tries the newest chunk first, because most
// readers ask for the last changes.
func (h *history) search(rev Revision) uint64 {
	from := h.first
	if newest := (h.next - 1) / historyChunk * historyChunk; h.next > 0 && newest > from && h.at(newest).Revision < rev {
		from = newest
	}
	n := sort.Search(int(h.next-from), func(i int) bool { return h.at(from+uint64(i)).Revision >= rev })
	return from + uint64(n)
}

// after returns the span of all changes newer than a revision. The caller may read them after it has released the lock.
func (h *history) after(rev Revision) (span, error) {
	if rev < h.floor {
		return span{}, ErrCompacted
	}
	from := h.search(rev + 1)
	if from == h.next {
		return span{}, nil
	}
	return span{part: h.chunks[from/historyChunk-h.chunks[0].number], at: int(from % historyChunk), n: int(h.next - from)}, nil
}

// span is a run of consecutive changes: in the chunks of a history (part) or, for other ledgers, in a list.
type span struct {
	part *historyPart
	// The position of the first change in its chunk, and the number of changes.
	at, n int
	list  []Change
}

// all yields the changes. They must not be written to.
func (s span) all(yield func(*Change) bool) {
	for _, some := range s.lists() {
		for i := range some {
			if !yield(&some[i]) {
				return
			}
		}
	}
}

// lists yields the changes chunk by chunk, each with the number of changes before it.
func (s span) lists() iter.Seq2[int, []Change] {
	return func(yield func(int, []Change) bool) {
		if s.part == nil {
			yield(0, s.list)
			return
		}
		part, at, n := s.part, s.at, 0
		for {
			some := part.changes[at:min(historyChunk, at+s.n-n)]
			if !yield(n, some) {
				return
			}
			if n += len(some); n == s.n {
				return // do not read next of the last chunk: a commit may be writing it
			}
			part, at = part.next, 0
		}
	}
}

// upTo returns the part of the span up to a revision.
func (s span) upTo(rev Revision) span {
	if s.part == nil {
		for len(s.list) > 0 && s.list[len(s.list)-1].Revision > rev {
			s.list = s.list[:len(s.list)-1]
		}
		return s
	}
	for before, some := range s.lists() {
		if some[len(some)-1].Revision > rev {
			s.n = before + sort.Search(len(some), func(i int) bool { return some[i].Revision > rev })
			return s
		}
	}
	return s
}

// changes returns the changes as one slice: a part of the chunk itself, or a copy if they are in several chunks.
func (s span) changes() []Change {
	if s.part == nil {
		return s.list
	}
	if end := s.at + s.n; end <= historyChunk {
		return s.part.changes[s.at:end:end]
	}
	out := make([]Change, 0, s.n)
	for _, some := range s.lists() {
		out = append(out, some...)
	}
	return out
}

// idAt returns the id of the proposal that was committed at a revision; zero: the history no longer has it.
func (h *history) idAt(rev Revision) ProposalID {
	if i := h.search(rev); i < h.next && h.at(i).Revision == rev {
		return h.at(i).ID
	}
	return ProposalID{}
}

// From here on the file makes a run of proposals cheaper to commit: it reads the records that all of them will look up
// before the first is committed. The reads of one proposal depend on each other (hash table, record, contents of the
// record), but those of different proposals do not, so the processor has many cache misses under way at once. The reads
// change no outcome.

// ahead has the hashes, and then the slots, of the records that a run of proposals will look up.
type ahead struct {
	capsules, nodes [batchRun]uint32
	n               int
}

// plan hashes the ids of the capsule and the node in the first placement of each proposal.
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

// read reads the records. It returns a sum over them only so that the compiler cannot remove the reads.
func (a *ahead) read(s *State) (sum uint32) {
	for i := range a.n {
		a.capsules[i] = s.capsules.First(a.capsules[i])
		a.nodes[i] = s.nodes.First(a.nodes[i])
	}
	for i := range a.n {
		if slot := a.capsules[i]; slot != noSlot {
			r := s.capsules.At(slot)
			sum += uint32(len(r.capsule.ID)) + r.link
		}
		if slot := a.nodes[i]; slot != noSlot {
			r := s.nodes.At(slot)
			sum += uint32(len(r.node.Node.ID)) + r.listed
		}
	}
	return sum
}

// commitmentJSON holds a commitment in the field of its kind. Exactly one field is set.
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
	Evict      *Evict      `json:"evict,omitempty"`
	Confirm    *Confirm    `json:"confirm,omitempty"`
	Protect    *Protect    `json:"protect,omitempty"`
	Adopt      *Adopt      `json:"adopt,omitempty"`
	Resize     *Resize     `json:"resize,omitempty"`

	PutBudget    *PutBudget    `json:"putBudget,omitempty"`
	RemoveBudget *RemoveBudget `json:"removeBudget,omitempty"`
}

// commitmentToJSON puts a commitment into the field of its kind, with times in UTC.
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
	case Evict:
		out.Evict = &c
	case Confirm:
		out.Confirm = &c
	case Protect:
		out.Protect = &c
	case Adopt:
		out.Adopt = &c
	case Resize:
		out.Resize = &c
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
	case PutBudget:
		out.PutBudget = &c
	case RemoveBudget:
		out.RemoveBudget = &c
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
	if in.Evict != nil {
		found = append(found, *in.Evict)
	}
	if in.Confirm != nil {
		found = append(found, *in.Confirm)
	}
	if in.Protect != nil {
		found = append(found, *in.Protect)
	}
	if in.Adopt != nil {
		found = append(found, *in.Adopt)
	}
	if in.Resize != nil {
		found = append(found, *in.Resize)
	}
	if in.Nominate != nil {
		found = append(found, *in.Nominate)
	}
	if in.PutBudget != nil {
		found = append(found, *in.PutBudget)
	}
	if in.RemoveBudget != nil {
		found = append(found, *in.RemoveBudget)
	}
	if len(found) != 1 {
		return nil, invalidf("commitment: %d kinds are set, there must be one", len(found))
	}
	return found[0], nil
}

// changeJSON is the JSON form of a Change.
type changeJSON struct {
	Revision Revision        `json:"revision,omitempty"`
	Seq      int             `json:"seq,omitempty"`
	ID       ProposalID      `json:"id,omitzero"`
	Do       *commitmentJSON `json:"do"`
	Node     NodeID          `json:"node,omitempty"`
}

// MarshalJSON writes the change as a JSON object, in which the commitment is an object with one field that is named
// after its kind: {"revision":7,"do":{"place":{"capsule":"web-1","node":"node-a"}},"node":"node-a"}. Fields that are
// zero are left out. The error is ErrInvalid for a commitment that is a pointer or nil, and for text that JSON cannot
// hold.
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

// UnmarshalJSON reads what MarshalJSON writes. It refuses unknown fields, text after the object, and an object that
// does not have exactly one commitment, with an error that is ErrInvalid; c is then unchanged. It judges none of the
// ledger's rules: [State.Apply] does that.
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
	*c = Change{Revision: in.Revision, Seq: in.Seq, ID: in.ID, Do: do, Node: in.Node}
	return nil
}
