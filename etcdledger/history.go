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

// taker returns the id of the proposal that a receipt is about, zero if it is not known any more, or if it may be any of several
// that share the revision.
func (h *history) taker(r *orbit.Rejection) orbit.ProposalID {
	from, to := h.search(r.TakenAt-1), h.search(r.TakenAt)
	if r.TakenAt == 0 || from == to || r.TakenAt <= h.floor {
		return orbit.ProposalID{}
	}
	only := h.changes[from].ID
	for i := to - 1; i >= from; i-- {
		c := &h.changes[i]
		if concerns(c, r) {
			return c.ID
		}
		if c.ID != only {
			only = orbit.ProposalID{}
		}
	}
	return only
}

// concerns reports whether a change is of what a receipt names.
func concerns(c *orbit.Change, r *orbit.Rejection) bool {
	if r.Capsule != "" {
		switch do := c.Do.(type) {
		case orbit.Place:
			if do.Capsule == r.Capsule {
				return true
			}
		case orbit.Release:
			if do.Capsule == r.Capsule {
				return true
			}
		case orbit.Assign:
			if do.Capsule == r.Capsule {
				return true
			}
		}
	}
	if bet, ok := r.Bet.(orbit.MarkAt); ok {
		mark, is := c.Do.(orbit.Mark)
		return is && mark.Key == bet.Key
	}
	return r.Node != "" && c.Node == r.Node
}
