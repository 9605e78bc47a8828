package orbit

import (
	"slices"
)

// history is a ring of the newest changes, in order of revision and sequence.
type history struct {
	ring  []Change // grows up to limit
	start int      // position of the oldest
	limit int
	floor Revision // everything up to here has been dropped
}

// append adds what a published proposal has done.
func (h *history) append(rev Revision, t *tx) {
	for i, c := range t.p.Do {
		h.push(Change{Revision: rev, Seq: i, ID: t.p.ID, Do: c, Node: t.touched[i]})
	}
}

func (h *history) push(c Change) {
	if len(h.ring) < h.limit {
		h.ring = append(h.ring, c) // start is 0 until the ring is full
		return
	}
	h.floor = h.ring[h.start].Revision
	h.ring[h.start] = c
	if h.start++; h.start == len(h.ring) {
		h.start = 0
	}
}

// at returns the i-th oldest change.
func (h *history) at(i int) *Change {
	if i += h.start; i >= len(h.ring) {
		i -= len(h.ring)
	}
	return &h.ring[i]
}

// search returns the position of the first change at or after a revision.
func (h *history) search(rev Revision) int {
	lo, hi := 0, len(h.ring)
	for lo < hi {
		if mid := (lo + hi) / 2; h.at(mid).Revision < rev {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// after returns a copy of all changes newer than a revision.
func (h *history) after(rev Revision) ([]Change, error) {
	if rev < h.floor {
		return nil, ErrCompacted
	}
	from := h.search(rev + 1)
	if from == len(h.ring) {
		return nil, nil
	}
	if from += h.start; from >= len(h.ring) {
		return slices.Clone(h.ring[from-len(h.ring) : h.start]), nil
	}
	return slices.Concat(h.ring[from:], h.ring[:h.start]), nil
}

// idAt returns the id of the proposal committed at a revision, zero if it is not known any more.
func (h *history) idAt(rev Revision) ProposalID {
	if i := h.search(rev); i < len(h.ring) && h.at(i).Revision == rev {
		return h.at(i).ID
	}
	return ProposalID{}
}
