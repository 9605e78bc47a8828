package etcdledger

import (
	"errors"

	"github.com/orbitsched/orbit"
)

// entry is a value of the log: the commits of one transaction.
type entry struct {
	stamp
	// By is the name of the process, and Number the number of its transaction. A process recognizes its own
	// transactions by these two.
	By      string   `json:"by"`
	Number  uint64   `json:"number"`
	Commits []commit `json:"commits"`
}

// commit is the commitments of one proposal. All commits of an entry have the same revision.
type commit struct {
	ID orbit.ProposalID `json:"id,omitzero"`
	// Do are the changes without their revision, position and id: changes derives the revision and the position from
	// the entry, and takes the id from ID.
	Do []orbit.Change `json:"do"`
}

// decodeEntry reads a value of the log.
func decodeEntry(text []byte, at orbit.Revision) (*entry, error) {
	e, err := decode[entry](text, at)
	if err != nil {
		return nil, err
	}
	if len(e.Commits) == 0 {
		return nil, errors.New("the entry has no commits")
	}
	return e, nil
}

// changes returns the entry as changes of the history.
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

// commitOf returns the changes of one proposal in the form in which the log has them.
func commitOf(changes []orbit.Change) commit {
	out := commit{ID: changes[0].ID, Do: make([]orbit.Change, len(changes))}
	for i, c := range changes {
		out.Do[i] = orbit.Change{Do: c.Do, Node: c.Node}
	}
	return out
}
