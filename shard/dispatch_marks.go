package shard

import (
	"errors"
	"slices"

	"github.com/orbitsched/orbit"
)

// markWrite is a mark to be set or deleted, provided that it has not been set since it was read.
type markWrite struct {
	key, value string
	// at is the revision at which the mark was last set.
	at orbit.Revision
	// cleared says that a failed mark is cleared because its unit may fit now. Otherwise the mark is deleted because its
	// unit is no longer pending.
	cleared bool
}

// markWrites are the marks to be written by the next commit, each key once, in the order in which they were added. They
// include those of earlier steps that could not be written.
type markWrites struct {
	writes map[string]markWrite
	keys   []string
}

func (m *markWrites) set(w markWrite) {
	if m.writes == nil {
		m.writes = map[string]markWrite{}
	}
	if _, known := m.writes[w.key]; !known {
		m.keys = append(m.keys, w.key)
	}
	m.writes[w.key] = w
}

// take removes all writes and returns them.
func (m *markWrites) take() (out []markWrite) {
	for _, key := range m.keys {
		out = append(out, m.writes[key])
	}
	*m = markWrites{}
	return out
}

// forgetStale drops the writes whose mark has been set since it was read: either another process has written it,
// knowing more, or this write was committed although its outcome was unknown.
func (m *markWrites) forgetStale(state *orbit.State) {
	m.keys = slices.DeleteFunc(m.keys, func(key string) bool {
		_, at := state.Mark(key)
		stale := at != m.writes[key].at
		if stale {
			delete(m.writes, key)
		}
		return stale
	})
}

// tidy deletes marks that a unit no longer needs: the failed mark when none of its capsules is pending, the pinned mark
// when all of them have been released for good.
func (d *Dispatcher) tidy(u unit, pending, gone bool) {
	if !pending {
		d.dropMark(u.failedMark().key(u.id))
	}
	if gone {
		d.dropMark(u.pinnedMark().key(u.id))
	}
}

func (d *Dispatcher) dropMark(key string) {
	if value, at := d.state.Mark(key); value != "" {
		d.marks.set(markWrite{key: key, at: at})
	}
}

// proposal returns the proposal that writes the mark. It bets that the mark has not been set since it was read.
func (w *markWrite) proposal(view orbit.Revision) orbit.Proposal {
	return orbit.Proposal{
		View: view,
		Do:   []orbit.Commitment{orbit.Mark{Key: w.key, Value: w.value}},
		If:   []orbit.Precondition{orbit.MarkAt{Key: w.key, Revision: w.at}},
	}
}

// wrote handles the outcome of a write. A write that failed is sent again by the next step unless the mark has been set
// meanwhile. That is so even after a conflict, which does not prove that the mark has changed.
func (d *Dispatcher) wrote(w *markWrite, o orbit.Outcome, round *Round) {
	switch {
	case o.Err == nil && w.cleared:
		round.Cleared++
		return
	case o.Err == nil:
		round.Dropped++
		return
	case errors.Is(o.Err, orbit.ErrConflict):
		round.Conflicts++
		d.lost(o.Err)
	default:
		round.fail(o.Err)
	}
	d.marks.set(*w)
}
