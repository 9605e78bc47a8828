package etcdledger

import (
	"errors"

	"github.com/orbitsched/orbit"
)

// entry is a value of the log: what one transaction has committed.
type entry struct {
	stamp
	// The process, and the number of its transaction, so that it knows its own.
	By      string   `json:"by"`
	Number  uint64   `json:"number"`
	Commits []commit `json:"commits"`
}

// commit is what one proposal has committed. All of an entry share the revision.
type commit struct {
	ID orbit.ProposalID `json:"id,omitzero"`
	// The changes without their revision, position and id, which the entry and the commit say once for all.
	Do []orbit.Change `json:"do"`
}

// decodeEntry reads a value of the log.
func decodeEntry(text []byte, at orbit.Revision) (*entry, error) {
	e, err := decode[entry](text, at)
	if err != nil {
		return nil, err
	}
	if len(e.Commits) == 0 {
		return nil, errors.New("an entry that commits nothing")
	}
	return e, nil
}

// changes returns the entry as history.
func (e *entry) changes() []orbit.Change {
	var out []orbit.Change
	for i := range e.Commits {
		c := &e.Commits[i]
		for j := range c.Do {
			out = append(out, orbit.Change{Revision: e.at, Seq: len(out), ID: c.ID, Do: c.Do[j].Do, Node: c.Do[j].Node})
		}
	}
	return out
}

// commitOf returns the changes of one proposal as they are written into the log.
func commitOf(changes []orbit.Change) commit {
	out := commit{ID: changes[0].ID, Do: make([]orbit.Change, len(changes))}
	for i, c := range changes {
		out.Do[i] = orbit.Change{Do: c.Do, Node: c.Node}
	}
	return out
}
