package etcdledger

import (
	"slices"
	"sort"

	"github.com/orbitsched/orbit"
)

// history holds the newest changes, oldest first.
//
// Invariant: the kept changes are those from index first on, at most limit. Every change after the revision floor is kept.
type history struct {
	changes []orbit.Change
	first   int
	limit   int
	// floor is the newest revision of which changes may have been dropped.
	floor orbit.Revision
}

// append adds changes and drops the oldest ones over the limit. The slice is copied only when half of it has been dropped,
// so the cost of a change is constant.
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

// taker returns the id of the proposal that took what a receipt's proposal wanted. It is zero if the history does not reach
// back that far, or if several proposals share the revision and none of them clearly concerns the receipt.
func (h *history) taker(r *orbit.Rejection) orbit.ProposalID {
	from, to := h.search(r.TakenAt-1), h.search(r.TakenAt)
	if r.TakenAt == 0 || from == to || r.TakenAt <= h.floor {
		return orbit.ProposalID{}
	}
	for _, concerns := range []func(*orbit.Change, *orbit.Rejection) bool{sameCapsule, sameMark, sameNode} {
		for i := to - 1; i >= from; i-- {
			if c := &h.changes[i]; concerns(c, r) {
				return c.ID
			}
		}
	}
	for i := from; i < to; i++ {
		if h.changes[i].ID != h.changes[from].ID {
			return orbit.ProposalID{}
		}
	}
	return h.changes[from].ID
}

// sameCapsule reports whether a change concerns the capsule that a receipt names.
func sameCapsule(c *orbit.Change, r *orbit.Rejection) bool {
	var id orbit.CapsuleID
	switch do := c.Do.(type) {
	case orbit.Place:
		id = do.Capsule
	case orbit.Release:
		id = do.Capsule
	case orbit.Evict:
		id = do.Capsule
	case orbit.Confirm:
		id = do.Capsule
	case orbit.Protect:
		id = do.Capsule
	case orbit.Adopt:
		id = do.Capsule
	case orbit.Resize:
		id = do.Capsule
	case orbit.Assign:
		id = do.Capsule
	}
	return id != "" && id == r.Capsule
}

// sameMark reports whether a change sets the mark that a receipt names.
func sameMark(c *orbit.Change, r *orbit.Rejection) bool {
	bet, ok := r.Bet.(orbit.MarkAt)
	mark, is := c.Do.(orbit.Mark)
	return ok && is && mark.Key == bet.Key
}

// sameNode reports whether a change concerns the node that a receipt names.
func sameNode(c *orbit.Change, r *orbit.Rejection) bool { return r.Node != "" && c.Node == r.Node }
