package orbit

import (
	"bytes"
	"iter"
	"reflect"
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
			h.chunks = h.chunks[1:] // readers have the array, so that nothing is moved in it
		}
	}
	if h.next%historyChunk == 0 {
		h.chunks = append(h.chunks, &historyPart{number: h.next / historyChunk})
	}
	h.next++
	return h.at(h.next - 1)
}

// truncate drops the changes after a revision. If the history does not reach back to the revision, or has no change of
// it although it is newer than the floor, it drops all changes and begins anew there.
func (h *history) truncate(rev Revision) {
	keep := h.search(rev + 1)
	if known := keep > h.first && h.at(keep-1).Revision == rev; !known && rev != h.floor {
		*h = history{limit: h.limit, floor: rev}
		return
	}
	if keep == h.next {
		return
	}
	h.next = keep
	last := int(keep/historyChunk - h.first/historyChunk) // the chunk of change number keep
	old := h.chunks[last]
	h.chunks = slices.Clip(h.chunks[:last]) // readers have the array: append to another one
	if keep%historyChunk > 0 {              // else push makes the chunk anew
		part := &historyPart{number: old.number} // a change is never written again, so go on in a copy of the chunk
		copy(part.changes[:keep%historyChunk], old.changes[:])
		h.chunks = append(h.chunks, part)
	}
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
	return span{parts: h.chunks[from/historyChunk-h.chunks[0].number:], at: int(from % historyChunk), n: int(h.next - from)}, nil
}

// span is a run of consecutive changes: in the chunks of a history (parts) or, for other ledgers, in a list.
type span struct {
	parts []*historyPart
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
		if s.parts == nil {
			yield(0, s.list)
			return
		}
		at, n := s.at, 0
		for _, part := range s.parts {
			some := part.changes[at:min(historyChunk, at+s.n-n)]
			if len(some) == 0 || !yield(n, some) {
				return
			}
			n, at = n+len(some), 0
		}
	}
}

// upTo returns the part of the span up to a revision.
func (s span) upTo(rev Revision) span {
	if s.parts == nil {
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
	if s.parts == nil {
		return s.list
	}
	if end := s.at + s.n; end <= historyChunk {
		return s.parts[0].changes[s.at:end:end]
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

// repeats reports whether a proposal has the commitments that were committed under its id at a revision. It also reports
// true if the history no longer has that revision. Left out of the comparison are times that the ledger only carries,
// and commitments that a ledger may skip: evictions, ends of nominations, and descriptions of nodes.
func (h *history) repeats(p *Proposal, at Revision) bool {
	news, err := h.after(at - 1)
	if err != nil {
		return true
	}
	known, rest := false, p.Do
	for c := range news.upTo(at).all {
		if c.ID != p.ID {
			continue
		}
		known = true
		for len(rest) > 0 && mayBeSkipped(rest[0]) && !sameCommitment(rest[0], c.Do) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return sameCommitment(nothing, c.Do) // all were skipped
		}
		if gone, is := rest[0].(RemoveNode); is && gone.Gone && c.Do != Commitment(gone) {
			continue // one of those that have emptied the node
		}
		if !sameCommitment(rest[0], c.Do) {
			return false
		}
		rest = rest[1:]
	}
	return !known || !slices.ContainsFunc(rest, func(c Commitment) bool { return !mayBeSkipped(c) })
}

// mayBeSkipped reports whether a commit may leave out the commitment.
func mayBeSkipped(c Commitment) bool {
	s, ok := c.(interface{ skippable() bool })
	return ok && s.skippable()
}

// sameCommitment reports whether a commitment that is proposed asks for the same as one that was committed, both in the
// form in which ledgers keep them.
func sameCommitment(a, b Commitment) bool {
	a, b = timeless(a), timeless(b)
	if asked, ok := a.(Release); ok && asked.Stopped {
		done, _ := b.(Release)
		asked.Final = asked.Final || done.Final // the ledger may have made it final (endExhausted)
		a = asked
	}
	if reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	if reflect.TypeOf(a).Comparable() && a == b {
		return true
	}
	// Their texts do not differ where one has no list and the other an empty one.
	one, err := Change{Do: a}.MarshalJSON()
	two, again := Change{Do: b}.MarshalJSON()
	return err != nil || again != nil || bytes.Equal(one, two)
}

// timeless returns a commitment without the time that it carries, which its proposer may have set anew. Those that carry one
// have a method dated.
func timeless(c Commitment) Commitment {
	if d, ok := c.(interface{ dated(Instant) Commitment }); ok {
		return d.dated(0)
	}
	return c
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

// planChanges is plan for the first changes, of which it returns how many.
func (a *ahead) planChanges(changes []Change) int {
	a.n = 0
	changes = changes[:min(len(changes), batchRun)]
	for i := range changes {
		if place, ok := changes[i].Do.(Place); ok {
			a.capsules[a.n], a.nodes[a.n] = hashOf(string(place.Capsule)), hashOf(string(place.Node))
			a.n++
		}
	}
	return len(changes)
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
