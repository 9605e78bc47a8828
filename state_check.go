package orbit

import (
	"iter"
	"slices"

	"github.com/orbitsched/orbit/internal/cow"
)

// Committed returns the revision at which a proposal with the same id was committed, 0 if no such proposal is
// remembered. The record of a capsule remembers the last [Limits.PlacementIDs] proposals that placed it. Of the
// proposals that placed nothing, the state remembers the last [Limits.ProposalIDs].
func (s *State) Committed(p Proposal) Revision {
	t := tx{s: s, p: p}
	return t.committedBefore()
}

// Apply returns the state after the changes. These must be the ledger's own history after s, in order and without gaps.
// A mirror in another process follows its ledger this way. If a change cannot follow the state, for example because it
// places a capsule that is not pending, Apply returns an error that says why. It judges no rule and no limit: the ledger
// has, perhaps long ago by other rules ([State.Check] judges by those of today).
func (s *State) Apply(changes []Change) (*State, error) {
	next := s.thaw()
	var t tx
	c := cloners.Get().(*cloner)
	defer c.giveBack()
	for len(changes) > 0 {
		n := sameProposal(changes)
		if err := next.replay(&t, c, changes[:n]); err != nil {
			return nil, err
		}
		next.publish(&t)
		t.reset()
		changes = changes[n:]
	}
	return next, nil
}

// sameProposal returns how many of the first changes are of the same proposal as the first.
func sameProposal(changes []Change) int {
	n := 1
	for n < len(changes) && changes[n].Revision == changes[0].Revision && changes[n].ID == changes[0].ID {
		n++
	}
	return n
}

// replay runs the changes of one proposal on the write-set, to be published.
func (s *State) replay(t *tx, c *cloner, changes []Change) error {
	first := changes[0]
	if first.Revision < s.rev || (first.Revision == s.rev && first.Seq == 0) {
		return invalidf("change at revision %d.%d does not follow a state at %d", first.Revision, first.Seq, s.rev)
	}
	p := Proposal{ID: first.ID, Do: c.commitments(changes)}
	if err := p.check(&noLimits); err != nil {
		return err
	}
	t.replays = true
	if done, err := t.run(s, first.Revision, &p); err != nil {
		return err
	} else if done != 0 {
		return invalidf("proposal %s appears at revision %d and again at %d", p.ID, done, first.Revision)
	}
	return nil
}

// Restricted returns a copy of s in which the nodes that are closed to a scheduler are unschedulable. Everything else is as
// in s, including the revision, the counters, the used capacity and the marks, so a bet on the copy is a bet on s. A
// [Ledger] that shows a scheduler only a part of the cluster returns such a copy from Snapshot.
//
// Before is the result of Restricted for an older state of the same ledger. Changed holds the indices ([NodeState.Index])
// of the nodes that have joined, changed or left since then, or for which the answer of closed has changed. Restricted
// looks only at these nodes and at nodes whose nominations differ from before; if before is nil, it looks at all nodes.
// The result is in no history: call [State.Apply] on s, not on the result.
func (s *State) Restricted(before *State, changed []int32, closed func(*NodeState) bool) *State {
	c := s.copy()
	c.owner = cow.NewOwner()
	if before != nil {
		c.nodes.Adopt(&before.nodes)
		for _, slot := range changed {
			c.close(s, before, uint32(slot), closed)
		}
		for n := range before.otherNominations(s) {
			for i := range n.Parts {
				if node := s.Node(n.Parts[i].Node); node != nil {
					c.close(s, before, node.index, closed)
				}
			}
		}
		return c
	}
	for slot, r := range s.nodes.All {
		if r.node.Node.Schedulable() && closed(&r.node) {
			c.close(s, nil, slot, closed)
		}
	}
	return c
}

// otherNominations yields the nominations that are live in exactly one of two states.
func (s *State) otherNominations(now *State) iter.Seq[*Nomination] {
	return func(yield func(*Nomination) bool) {
		for _, states := range [2][2]*State{{s, now}, {now, s}} {
			for n := range states[0].Nominations() {
				if other, _ := states[1].nominations.Get(n); other != n && !yield(n) {
					return
				}
			}
		}
	}
}

// close replaces a record by that of another state, and makes it unschedulable if the node is closed. While the
// description of the node does not change, the replaced description stays the same pointer, so that descriptions can be
// compared by identity.
func (s *State) close(from, before *State, slot uint32, closed func(*NodeState) bool) {
	was := s.nodes.At(slot).node
	if from.nodes.At(slot).node.Node == nil {
		if was.Node != nil {
			s.nodes.Drop(slot, s.owner)
		}
		return
	}
	record := s.nodes.Take(slot, s.owner)
	*record = *from.nodes.At(slot)
	n := &record.node
	switch {
	case !n.Node.Schedulable() || !closed(n):
	case before != nil && was.Node != nil && !was.Node.Schedulable() && was.Specification == n.Specification && was.Node.ID == n.Node.ID:
		n.Node = was.Node
	default:
		description := *n.Node
		description.State = Cordoned
		n.Node = &description
	}
}

// Check reports what [Ledger.Propose] would say to the proposal at this very state: nil if it would be
// committed (or has been), else a [*Rejection]. If it says nil and the ledger is still at this revision,
// the commit succeeds.
func (s *State) Check(p Proposal) error {
	_, err := s.Judge(p)
	return err
}

// Judge returns the proposal that is committed if p is proposed at this very state: p without the evictions of victims
// that are spared ([Evict]), and without descriptions that nodes have already ([PutNode]). The history holds that proposal, and [State.Apply] takes it as it is. The error is that of
// Check.
func (s *State) Judge(p Proposal) (Proposal, error) {
	s, p = s.made(), p.Clone()
	if err := p.check(&s.limits); err != nil {
		return Proposal{}, err
	}
	var t tx
	if _, err := t.run(s, s.rev+1, &p); err != nil {
		return Proposal{}, err
	}
	return t.p, nil
}

// With returns the state that a commit of p at this very state would leave, one revision later, or s itself if p has
// been committed before or changes nothing. The two states share all records that p does not touch, so the cost depends on the size of p
// alone. The result is in no ledger's history; a [MemoryLedger] that has it as its Start goes on from there. The error
// is that of Check.
func (s *State) With(p Proposal) (*State, error) {
	s, p = s.made(), p.Clone()
	if err := p.check(&s.limits); err != nil {
		return nil, err
	}
	var t tx
	next := s.thaw()
	switch done, err := t.run(next, s.rev+1, &p); {
	case err != nil:
		return nil, err
	case done != 0 || len(t.p.Do) == 0:
		return s, nil
	}
	next.publish(&t)
	return next, nil
}

// makesWay reports whether the end of a nomination makes way for a nomination that the same commitments make. The new
// nomination must outrank the ended one, and claim room on one of its nodes or of one of its resources. If the ended
// one lives no more, any new one will do.
func (s *State) makesWay(end *Nominate, all []Commitment) bool {
	var o *Nomination
	if c := s.Capsule(end.Capsule); c != nil {
		o = c.Nomination()
	} else if g := s.Gang(end.Gang); g != nil {
		o = g.Nomination
	}
	return slices.ContainsFunc(all, func(do Commitment) bool {
		made, ok := do.(Nominate)
		if !ok || len(made.Parts) == 0 || !o.Lives() {
			return ok && len(made.Parts) > 0
		}
		var t tx
		t.begin(s, s.rev+1, &Proposal{Do: all})
		if t.nominate(&made) != nil {
			return false
		}
		n := t.nominations[0]
		return n.Outranks(o) && (n.shares(o) || slices.ContainsFunc(n.Parts, func(part NominatedRoom) bool { return o.claims(part.Node) }))
	})
}
