package etcdledger

import (
	"errors"
	"fmt"

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
	Do []deed           `json:"do"`
}

// deed is one commitment, in the field of its kind, and the node that it touched.
type deed struct {
	PutNode    *orbit.PutNode    `json:"putNode,omitempty"`
	RemoveNode *orbit.RemoveNode `json:"removeNode,omitempty"`
	Submit     *orbit.Submit     `json:"submit,omitempty"`
	Place      *orbit.Place      `json:"place,omitempty"`
	Release    *orbit.Release    `json:"release,omitempty"`
	Hold       *orbit.Hold       `json:"hold,omitempty"`
	Assign     *orbit.Assign     `json:"assign,omitempty"`
	Mark       *orbit.Mark       `json:"mark,omitempty"`
	At         orbit.NodeID      `json:"at,omitempty"`
}

// newDeed wraps a commitment.
func newDeed(c orbit.Commitment, at orbit.NodeID) deed {
	d := deed{At: at}
	switch c := c.(type) {
	case orbit.PutNode:
		d.PutNode = &c
	case orbit.RemoveNode:
		d.RemoveNode = &c
	case orbit.Submit:
		d.Submit = &c
	case orbit.Place:
		d.Place = &c
	case orbit.Release:
		d.Release = &c
	case orbit.Hold:
		c.Ends = c.Ends.UTC()
		d.Hold = &c
	case orbit.Assign:
		d.Assign = &c
	case orbit.Mark:
		d.Mark = &c
	}
	return d
}

// commitments returns all that are set: one, in what was written by this package.
func (d *deed) commitments() (out []orbit.Commitment) {
	if d.PutNode != nil {
		out = append(out, *d.PutNode)
	}
	if d.RemoveNode != nil {
		out = append(out, *d.RemoveNode)
	}
	if d.Submit != nil {
		out = append(out, *d.Submit)
	}
	if d.Place != nil {
		out = append(out, *d.Place)
	}
	if d.Release != nil {
		out = append(out, *d.Release)
	}
	if d.Hold != nil {
		out = append(out, *d.Hold)
	}
	if d.Assign != nil {
		out = append(out, *d.Assign)
	}
	if d.Mark != nil {
		out = append(out, *d.Mark)
	}
	return out
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
	for i := range e.Commits {
		for j := range e.Commits[i].Do {
			if n := len(e.Commits[i].Do[j].commitments()); n != 1 {
				return nil, fmt.Errorf("commit %d: %d commitments in one place, not one", i, n)
			}
		}
	}
	return e, nil
}

// changes returns the entry as history.
func (e *entry) changes() []orbit.Change {
	var out []orbit.Change
	for i := range e.Commits {
		c := &e.Commits[i]
		for j := range c.Do {
			out = append(out, orbit.Change{Revision: e.at, Seq: len(out), ID: c.ID, Do: c.Do[j].commitments()[0], Node: c.Do[j].At})
		}
	}
	return out
}

// commitOf returns the changes of one proposal as they are written into the log.
func commitOf(changes []orbit.Change) commit {
	out := commit{ID: changes[0].ID, Do: make([]deed, len(changes))}
	for i, c := range changes {
		out.Do[i] = newDeed(c.Do, c.Node)
	}
	return out
}
