package etcdledger

import (
	"slices"
	"sort"

	"github.com/orbitsched/orbit"
)

// history holds the newest changes, oldest first.
//
// Invariant: what is kept begins at first, and is at most limit. All of the revisions after floor is kept.
type history struct {
	changes []orbit.Change
	first   int
	limit   int
	// Some of it, or all, has been dropped.
	floor orbit.Revision
}

// append adds changes and drops the oldest over the limit. They are moved when half of what there is has been dropped, so that
// the cost of a change is constant.
func (h *history) append(changes []orbit.Change) {
	h.changes = append(h.changes, changes...)
	if over := len(h.changes) - h.first - h.limit; over > 0 {
		h.first += over
		h.floor = h.changes[h.first-1].Revision
	}
	if h.first > len(h.changes)/2 {
		h.changes, h.first = slices.Clone(h.changes[h.first:]), 0
	}
}

// search returns the position of the first change after a revision.
func (h *history) search(rev orbit.Revision) int {
	kept := h.changes[h.first:]
	return h.first + sort.Search(len(kept), func(i int) bool { return kept[i].Revision > rev })
}

// after returns a copy of all changes newer than a revision.
func (h *history) after(rev orbit.Revision) ([]orbit.Change, error) {
	if rev < h.floor {
		return nil, orbit.ErrCompacted
	}
	from := h.search(rev)
	if from == len(h.changes) {
		return nil, nil
	}
	return slices.Clone(h.changes[from:]), nil
}

// idAt returns the id of a proposal that was committed at a revision, zero if none is known any more.
func (h *history) idAt(rev orbit.Revision) orbit.ProposalID {
	if i := h.search(rev) - 1; i >= h.first && h.changes[i].Revision == rev {
		return h.changes[i].ID
	}
	return orbit.ProposalID{}
}
