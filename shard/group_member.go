package shard

import (
	"time"

	"github.com/orbitsched/orbit"
)

// member is the record of a node, or of a node that has left and still has marks.
//
// Invariants: the marks are those of the table's state. An open member counts in the group of its next owner if that
// scheduler lives, otherwise in the group of its owner if that one lives; the field in is this group.
type member struct {
	id    orbit.NodeID
	marks [3]markAt // by markOrder
	// there says that the node exists, open that it is schedulable.
	there, open bool
	load        load
	// asked is when the node was first seen to be leaving its group.
	asked time.Time

	in   *group
	cell *cell
	at   int // in the cell
	// counted says that the table's sums include the load.
	counted bool
	// fresh says that the node has no living owner; see shape.
	fresh bool
}

// markAt is the value of a mark and the revision at which it was set.
type markAt struct {
	value string
	at    orbit.Revision
}

// markOrder is the order of a member's marks.
var markOrder = [3]markKind{groupMark, leavingMark, leftMark}

func (m *member) owner() string { return m.marks[0].value }
func (m *member) next() string  { return m.marks[1].value }

// answered reports whether the owner has answered that none of its proposals is under way to the node.
func (m *member) answered() bool { return m.marks[2].value != "" && m.marks[2].value == m.owner() }

// marked reports whether the member has a mark.
func (m *member) marked() bool { return m.marks != [3]markAt{} }

// learn reads the marks from a state.
func (m *member) learn(state *orbit.State) {
	for i, kind := range markOrder {
		m.marks[i].value, m.marks[i].at = state.Mark(kind.key(string(m.id)))
	}
	if m.next() == "" {
		m.asked = time.Time{}
	}
}

// setNode takes the load and the status of the node from its record, nil if the node has left.
func (m *member) setNode(n *orbit.NodeState) {
	if m.there = n != nil; !m.there {
		m.open, m.load = false, load{}
		return
	}
	m.open, m.load = n.Node.Schedulable(), loadOf(n)
}

// set returns a proposal that sets the marks to these values and bets that none of the three has changed.
func (m *member) set(view orbit.Revision, values [3]string) orbit.Proposal {
	p := orbit.Proposal{View: view}
	for i, kind := range markOrder {
		key := kind.key(string(m.id))
		p.If = append(p.If, orbit.MarkAt{Key: key, Revision: m.marks[i].at})
		if values[i] != m.marks[i].value {
			p.Do = append(p.Do, orbit.Mark{Key: key, Value: values[i]})
		}
	}
	return p
}

// took updates the marks after their proposal was committed.
func (m *member) took(values [3]string, at orbit.Revision) {
	for i, v := range values {
		if v == m.marks[i].value {
			continue
		}
		if m.marks[i] = (markAt{v, at}); v == "" {
			m.marks[i] = markAt{}
		}
	}
	if m.next() == "" {
		m.asked = time.Time{}
	}
}
