package nav

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// anchorMerge puts a plan of the wrapped navigator and the anchors of this one beside each other, on the draft. The
// wrapped navigator does not know of the anchors. What it has placed of higher priority goes before a group; of the rest
// what does not fit beside the anchors is left out, and takes nothing. What remains is proposed in the wrapped
// navigator's order. By the draft's rule what a proposal releases serves that proposal alone, so all of them fit in
// whatever order they are committed.
type anchorMerge struct {
	*anchorPass
	theirs *orbit.Plan
	// Positions of its proposals, highest priority first, of which those before next are on the draft.
	order    []int
	priority []int32
	next     int
	// By position: why the draft does not take the proposal.
	misfit []error
	// A capsule of each group that it places.
	placed map[string]orbit.CapsuleID
}

// merge looks at what the wrapped navigator has planned.
func (p *anchorPass) merge(theirs *orbit.Plan) *anchorMerge {
	m := &anchorMerge{
		anchorPass: p, theirs: theirs, placed: map[string]orbit.CapsuleID{}, misfit: make([]error, len(theirs.Proposals)),
	}
	for i := range theirs.Proposals {
		priority := int32(math.MinInt32)
		for c := range p.places(&theirs.Proposals[i]) {
			priority = max(priority, c.Spec.Priority)
			if m.placed[c.Spec.Group] == "" {
				m.placed[c.Spec.Group] = c.ID
			}
		}
		m.order, m.priority = append(m.order, i), append(m.priority, priority)
	}
	slices.SortStableFunc(m.order, func(a, b int) int { return cmp.Compare(m.priority[b], m.priority[a]) })
	return m
}

// places yields the capsules that a proposal places, and where.
func (p *anchorPass) places(proposal *orbit.Proposal) iter.Seq2[*orbit.Capsule, orbit.NodeID] {
	return func(yield func(*orbit.Capsule, orbit.NodeID) bool) {
		for _, do := range proposal.Do {
			if place, ok := do.(orbit.Place); ok {
				if c := p.state.Capsule(place.Capsule); c != nil && !yield(c, place.Node) {
					return
				}
			}
		}
	}
}

// reserveAbove puts proposals of a higher priority on the draft.
func (m *anchorMerge) reserveAbove(priority int32) {
	for m.next < len(m.order) && m.priority[m.order[m.next]] > priority {
		m.reserveNext()
	}
}

func (m *anchorMerge) reserveNext() {
	at := m.order[m.next]
	m.misfit[at] = m.reserve(&m.theirs.Proposals[at])
	m.next++
}

// settle looks at all other proposals, and leaves the plan with those that fit. Without anchors all stay.
func (m *anchorMerge) settle() {
	if len(m.anchors) == 0 {
		return
	}
	for m.next < len(m.order) {
		m.reserveNext()
	}
	left := false // something is; what is not good by itself may rest on it
	kept := m.theirs.Proposals[:0:0]
	for i, proposal := range m.theirs.Proposals {
		switch why := m.misfit[i]; {
		case why != nil:
			m.leaveOut(&proposal, "does not fit beside groups that start in this plan: "+reasonOf(why))
			left = true
		case left && m.state.Check(proposal) != nil:
			m.leaveOut(&proposal, "rests on what is left out of this plan")
		default:
			kept = append(kept, proposal)
		}
	}
	m.theirs.Proposals = kept
}

// leaveOut says of a proposal's capsules why they are not placed, on which node.
func (m *anchorMerge) leaveOut(proposal *orbit.Proposal, why string) {
	m.leftOut++
	for c, node := range m.places(proposal) {
		m.leave(c, fmt.Errorf("its place on node %q %s; the capsule is planned again", node, why))
		if g := m.groups[c.Spec.Group]; g != nil && g.first != nil && g.first.ID == c.ID {
			g.first = nil
		}
	}
}

// reserve puts what a proposal releases and takes on the draft: all of it, or nothing. What may not be released makes
// no room, and whether a proposal may release it is for the ledger to say, as it is of what takes no room.
func (p *anchorPass) reserve(proposal *orbit.Proposal) error {
	start := p.draft.Checkpoint()
	for _, do := range proposal.Do { // a proposal may release what makes room for it, in any order
		if release, ok := do.(orbit.Release); ok {
			_ = p.draft.Release(release)
		}
	}
	for _, do := range proposal.Do {
		var err error
		switch do := do.(type) {
		case orbit.Place:
			if c := p.state.Capsule(do.Capsule); c != nil {
				err = p.draft.Place(c, orbit.Choice{Node: p.state.Node(do.Node), Devices: do.Devices})
			}
		case orbit.Hold:
			err = p.draft.Hold(do)
		}
		if err != nil {
			p.draft.Rollback(start)
			return err
		}
	}
	p.draft.Propose()
	for c, node := range p.places(proposal) {
		if c.Spec.Group != "" {
			p.domains.claims[p.state.Node(node).Index()] = claimHosted
		}
	}
	return nil
}

// reasonOf returns what failed, without the advice that a rejection gives to the one who proposes.
func reasonOf(err error) string {
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) {
		return r.Reason
	}
	return err.Error()
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
