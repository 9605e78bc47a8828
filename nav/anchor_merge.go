package nav

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// anchorMerge puts a plan of the wrapped navigator and the anchors of this one beside each other. The wrapped
// navigator does not know of the anchors. What it has placed of higher priority goes before a group; of the rest
// what does not fit beside the anchors is left out. Invariants:
//
//   - Anchors are proposed before all that is merged, so they get nothing that it releases, and nothing that those
//     of its proposals ask for which have been admitted before them.
//   - What remains is proposed in the wrapped navigator's order. What one proposal releases serves itself and those
//     behind it, each part of it once, and nobody if it is left out or would be refused as the view stands.
//   - A proposal that is left out takes nothing and gives nothing (see anchor_take.go).
type anchorMerge struct {
	*anchorPass
	theirs *orbit.Plan
	// Positions of its proposals, highest priority first, of which those before next have been looked at.
	order    []int
	priority []int32
	next     int
	// By position: whether what it asks for has been taken, and what it releases beyond that for those behind it.
	admitted []bool
	gains    [][]roomGain
	// A capsule of each group that it places.
	placed map[string]orbit.CapsuleID
	take   anchorTake
}

// merge looks at what the wrapped navigator has planned.
func (p *anchorPass) merge(theirs *orbit.Plan) *anchorMerge {
	n := len(theirs.Proposals)
	m := &anchorMerge{
		anchorPass: p, theirs: theirs, placed: map[string]orbit.CapsuleID{},
		admitted: make([]bool, n), gains: make([][]roomGain, n), take: newAnchorTake(p),
	}
	for i := range theirs.Proposals {
		priority := int32(math.MinInt32)
		for _, do := range theirs.Proposals[i].Do {
			place, ok := do.(orbit.Place)
			if !ok {
				continue
			}
			if c := p.state.Capsule(place.Capsule); c != nil {
				priority = max(priority, c.Spec.Priority)
				if m.placed[c.Spec.Group] == "" {
					m.placed[c.Spec.Group] = c.ID
				}
			}
		}
		m.order, m.priority = append(m.order, i), append(m.priority, priority)
	}
	slices.SortStableFunc(m.order, func(a, b int) int { return cmp.Compare(m.priority[b], m.priority[a]) })
	return m
}

// apply takes from the rooms what proposals of higher priority ask for.
func (m *anchorMerge) apply(priority int32) {
	for m.next < len(m.order) && m.priority[m.order[m.next]] > priority {
		m.admit(m.order[m.next])
		m.next++
	}
}

// admit takes what a proposal asks for, if it fits. What it releases is put aside.
func (m *anchorMerge) admit(i int) bool {
	p := &m.theirs.Proposals[i]
	if m.admitted[i] = m.take.all(p); m.admitted[i] {
		if gains := m.take.gains(); len(gains) > 0 && m.state.Check(*p) == nil {
			m.gains[i] = gains
		}
	}
	return m.admitted[i]
}

// settle looks at all other proposals, and leaves the plan with those that fit. Without anchors all stay.
func (m *anchorMerge) settle() {
	if len(m.anchors) == 0 {
		return
	}
	for ; m.next < len(m.order); m.next++ {
		m.admit(m.order[m.next])
	}
	left := false // something is; what is not good by itself may rest on it
	kept := m.theirs.Proposals[:0:0]
	for i, p := range m.theirs.Proposals {
		switch {
		case left && m.state.Check(p) != nil:
			m.leaveOut(&p, restsOnIt)
			continue
		case !m.admitted[i] && !m.admit(i): // now with what those before it have released
			m.leaveOut(&p, doesNotFit)
			left = true
			continue
		}
		m.take.credit(m.gains[i])
		kept = append(kept, p)
	}
	m.theirs.Proposals = kept
}

// Why a capsule is not placed on a node.
const (
	doesNotFit = "its place on node %q does not fit beside groups that start in this plan; the capsule is planned again"
	restsOnIt  = "its place on node %q rests on what is left out of this plan; the capsule is planned again"
)

// leaveOut says of a proposal's capsules why they are not placed, on which node.
func (m *anchorMerge) leaveOut(p *orbit.Proposal, why string) {
	m.leftOut++
	for _, do := range p.Do {
		place, ok := do.(orbit.Place)
		if !ok {
			continue
		}
		c := m.state.Capsule(place.Capsule)
		if c == nil {
			continue
		}
		m.leave(c, fmt.Errorf(why, place.Node))
		if g := m.groups[c.Spec.Group]; g != nil && g.first != nil && g.first.ID == c.ID {
			g.first = nil
		}
	}
}

// unpark takes the finality from what was said beside proposals that are left out: there may be room after all, so the
// classes are not put aside.
func unpark(unplaced []orbit.Unplaced) {
	for i, u := range unplaced {
		if fit := (*orbit.NoFit)(nil); errors.As(u.Why, &fit) {
			unplaced[i].Why = errors.New(u.Why.Error() + "; that was beside what this plan leaves out, so the capsule is planned again")
		}
	}
}
