package shard

import (
	"time"

	"github.com/orbitsched/orbit"
)

// member is what is known of a node, or of one that has left and still has marks.
//
// Invariants: the marks are those of the table's state. It counts in its group, in, if it is open and has one: the one
// that is to have it, else its owner, as far as they live.
type member struct {
	id    orbit.NodeID
	marks [3]markAt // by markOrder
	// It is a node, and it is a schedulable one.
	there, open bool
	load        load
	// When it was first seen to be leaving.
	asked time.Time

	in   *group
	cell *cell
	at   int // in the cell
	// It counts in the table.
	counted bool
	// It has no owner that lives; see shape.
	fresh bool
}

// markAt is the value of a mark, and when it was set.
type markAt struct {
	value string
	at    orbit.Revision
}

// markOrder are the marks of a member.
var markOrder = [3]markKind{groupMark, leavingMark, leftMark}

func (m *member) owner() string { return m.marks[0].value }
func (m *member) next() string  { return m.marks[1].value }

// answered reports whether the owner has answered.
func (m *member) answered() bool { return m.marks[2].value != "" && m.marks[2].value == m.owner() }

// marked reports whether there is any mark.
func (m *member) marked() bool { return m.marks != [3]markAt{} }

// learn takes over the marks.
func (m *member) learn(state *orbit.State) {
	for i, kind := range markOrder {
		m.marks[i].value, m.marks[i].at = state.Mark(kind.key(string(m.id)))
	}
	if m.next() == "" {
		m.asked = time.Time{}
	}
}

// weigh takes over the node, nil if it is no member.
func (m *member) setNode(n *orbit.NodeState) {
	if m.there = n != nil; !m.there {
		m.open, m.load = false, load{}
		return
	}
	m.open, m.load = !n.Node.Unschedulable, loadOf(n)
}

// set returns the proposal that brings the marks to these values, betting on all three as they are.
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

// took takes note that a proposal was committed.
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
