package orbit

import (
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
