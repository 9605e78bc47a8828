package shard

import (
	"errors"
	"slices"

	"github.com/orbitsched/orbit"
)

// markWrite is a mark to be set or deleted, if it is still what it was.
type markWrite struct {
	key, value string
	// When it was last set.
	at orbit.Revision
	// Something has changed that could help; else it has outlived its unit's waiting.
	cleared bool
}

// markWrites are those of one step, each key once, in the order in which they came up, and those of earlier
// steps that have not been written yet.
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

// take returns all and forgets them.
func (m *markWrites) take() (out []markWrite) {
	for _, key := range m.keys {
		out = append(out, m.writes[key])
	}
	*m = markWrites{}
	return out
}

// forgetStale forgets those whose mark has been set since: whoever has set it knew more, or it was this one
// after all.
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

// tidy decides which marks of a unit have outlived it: a failed mark goes when no capsule of it waits, a pinned one
// when all have been released for good.
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

// proposal bets that nobody else has set the mark meanwhile.
func (w *markWrite) proposal(view orbit.Revision) orbit.Proposal {
	return orbit.Proposal{
		View: view,
		Do:   []orbit.Commitment{orbit.Mark{Key: w.key, Value: w.value}},
		If:   []orbit.Precondition{orbit.MarkAt{Key: w.key, Revision: w.at}},
	}
}

// wrote takes note of what became of a mark. What was not written, whatever the reason, is written by the next
// step, unless the mark has been set meanwhile: a ledger may give a conflict for no reason.
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
