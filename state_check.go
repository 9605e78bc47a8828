package orbit

import (
	"fmt"
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

// Footprint is a read set or a write set of a proposal: it names records, each once, in no particular order.
type Footprint struct {
	// Nodes are the nodes whose description is read or written. The description is what [PutNode] sets; a counter of
	// its own tells when it last changed.
	Nodes []NodeID
	// Uses are the nodes whose usage is read or written. A counter of its own tells when the usage last changed.
	Uses []NodeID
	// Capsules are the capsules whose record is read or written; the record says on which node the capsule is.
	Capsules []CapsuleID
	// Gangs are the gangs whose record is read or written; the record says how much of the gang is placed.
	Gangs []GangID
	// Holds are the holds that are read or written.
	Holds []HoldID
	// Marks are the keys of the marks that are read or written.
	Marks []string
	// Share reports that the sum of all nominations and the total capacity are read or written. A nomination reads and
	// writes them; a commitment that lowers a capacity writes them.
	Share bool
	// Budgets are the budgets whose definition is read or written.
	Budgets []BudgetID
	// Fences name conditions, other than single records, on which a wish ([Budget]) depends. There is a fence for each
	// group or module with budgets, which a proposal writes if it changes one of these budgets or leaves fewer members
	// healthy, and the fence "nodes", which a proposal writes if a node is lost or begins to confirm. A wish reads
	// "nodes" and the fences of the capsules that it touches. To write a fence is not to read it, so proposals that
	// only write a fence commute.
	Fences []string
	// Covers reports that the set of groups and modules with budgets is read or written. A commitment that takes
	// capsules off their nodes, or may leave fewer of them healthy, reads it. A commitment that adds a budget, or
	// changes what a budget covers, writes it.
	Covers bool
	// All reports, in reads, that any commit may change the outcome. That is rare: the proposal places a capsule with a
	// rule [Apart] or [Even] that it also brings, and no other rule has counted the members of that group by that level
	// so far, so no record and no fence shows when one of them arrives or leaves. A ledger then compares the revision of
	// its newest commit.
	All bool
	// Proposals are ids of proposals that place nothing. To read such an id is to look up whether a proposal with this
	// id has been committed.
	Proposals []ProposalID
}

// Footprint returns the read set and the write set of the proposal at exactly this state. It also returns touched, the
// node that each commitment touches, as [Change.Node] will name it (of the commitments that [State.Judge] returns), and
// as err the result of [State.Check]. A ledger that stores its records one by one, as in a database, compares the read
// set and writes the write set. Proposals whose footprints do not overlap commute.
//
// Reads are the records on which the judgement depends, and all records in writes; fences are in reads only if the
// judgement depends on them. If a record is missing, its absence has been read. The outcome stays the same while none
// of the reads changes, with the two exceptions below. Writes are the records that the commit changes. Use writes and
// touched only if err is nil. Writes do not name the records that the commit drops. These are, when a limit is reached,
// capsules released before ([Limits.Terminal]) with their gangs, and ids of earlier proposals ([Limits.ProposalIDs]). A
// gang is dropped, too, when the ids of all its members have been used again.
//
// The judgement does not stop at the first refusal, so reads are complete for a refused proposal too. For a proposal
// that has been committed before, reads name only the records that show this, and touched is empty. A malformed
// proposal reads nothing.
//
// If the judgement looks at a node, reads name it in both Nodes and Uses. A [GroupIn] bet reads one node in the domain
// that has a member of the group: no member leaves that node while its usage stays unchanged. If several nodes qualify,
// equal states may read different ones. In two cases a change outside reads can change the outcome, both from a refusal.
// First, if no node in the domain of a [GroupIn] bet has a member, no record shows that, and reads do not change when a
// member arrives. Second, a proposal that a budget or a rule of company refuses may pass once members have arrived, have
// left, or are ready. The fences in writes stay the right ones, too, while none of the reads changes.
func (s *State) Footprint(p Proposal) (reads, writes Footprint, touched []NodeID, err error) {
	p = p.Clone()
	if err = p.check(&s.limits); err != nil {
		return reads, writes, nil, err
	}
	t := tx{missed: &Footprint{}}
	if t.begin(s, s.rev+1, &p) != 0 {
		reads, writes = t.footprint()
		return reads, writes, nil, nil
	}
	note := func(fault error) {
		if err == nil {
			err = fault
		}
	}
	t.bets = true
	for _, bet := range p.If {
		note(t.judge(bet))
	}
	t.bets = false
	for t.at = range p.Do {
		node, fault := t.execute(p.Do[t.at])
		note(fault)
		t.touched = append(t.touched, node)
	}
	t.lend()
	if err == nil {
		note(t.spare())
	}
	note(t.judgeTotals())
	reads, writes = t.footprint()
	return reads, writes, t.touched, err
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

// Closed returns a copy of s in which the nodes that are closed to a scheduler are unschedulable. Everything else is as
// in s, including the revision, the counters, the used capacity and the marks, so a bet on the copy is a bet on s. A
// [Ledger] that shows a scheduler only a part of the cluster returns such a copy from Snapshot.
//
// Before is the result of Closed for an older state of the same ledger. Changed holds the indices ([NodeState.Index])
// of the nodes that have joined, changed or left since then, or for which the answer of closed has changed. Closed
// looks only at these nodes and at nodes whose nominations differ from before; if before is nil, it looks at all nodes.
// The result is in no history: call [State.Apply] on s, not on the result.
func (s *State) Closed(before *State, changed []int32, closed func(*NodeState) bool) *State {
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

// footprint returns the records that the transaction has read, and those that it has changed.
func (t *tx) footprint() (r, w Footprint) {
	t.addMissed()
	r.Nodes, r.Uses, r.Capsules = t.nodes.keys, slices.Clone(t.nodes.keys), t.capsules.keys
	r.Gangs, r.Holds, r.Marks = t.gangs.keys, t.holds.keys, t.marks.keys
	for i, id := range t.nodes.keys {
		e := &t.nodes.entries[i]
		left, stays := e.gone && e.was != nil, e.dirty && !e.gone
		if left || stays && e.now.Specification == t.rev {
			w.Nodes = append(w.Nodes, id)
		}
		if left || stays && e.now.Usage == t.rev || e.claimed || stays && e.stops {
			w.Uses = append(w.Uses, id)
		}
	}
	w.Capsules = t.capsules.changed(func(e *txCapsule) bool { return e.dirty })
	w.Gangs = t.gangs.changed(func(e *txGang) bool { return e.now != e.was })
	w.Holds = t.holds.changed(func(e *txHold) bool { return e.now != e.was })
	w.Marks = t.marks.changed(func(e *txMark) bool { return e.dirty })
	r.Share, w.Share = t.shares(), t.shares()
	t.addFences(&r, &w)
	if t.places == 0 && !t.p.ID.IsZero() {
		r.Proposals = []ProposalID{t.p.ID}
		w.Proposals = []ProposalID{t.p.ID}
	}
	return r, w
}

// addFences adds budgets and fences to the reads and writes, and decides whether Covers is read or written.
func (t *tx) addFences(r, w *Footprint) {
	r.Budgets = t.budgets.keys
	for i := range t.budgets.entries {
		e := &t.budgets.entries[i]
		if e.now == e.was {
			continue
		}
		w.Budgets = append(w.Budgets, t.budgets.keys[i])
		w.Covers = w.Covers || e.was == nil || e.now != nil && e.now.members() != e.was.members()
		for _, b := range []*budgetRecord{e.was, e.now} {
			if b != nil {
				w.Fences = append(w.Fences, b.members().String())
			}
		}
	}
	r.Covers = w.Covers
	for _, c := range t.p.Do {
		r.Covers = r.Covers || leaves(c) != ""
	}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if e.was == nil || !e.was.Placed() {
			continue
		}
		before, after := t.health(e)
		if e.anew || e.adopted && e.was.Spec != e.now.Spec { // the former member is gone, or its groups may differ
			after = health{}
		}
		r.Covers = r.Covers || after.below(before)
		for of := range e.was.Spec.memberships {
			for range t.budgetsOf(of) {
				if e.wished || e.moves {
					r.Fences = append(r.Fences, of.String(), fenceNodes)
				}
				if after.below(before) {
					w.Fences = append(w.Fences, of.String())
				}
				break
			}
		}
	}
	for i := range t.nodes.entries {
		if t.nodes.entries[i].sickens() {
			r.Covers = true
			if t.s.covered.Len() > 0 {
				w.Fences = append(w.Fences, fenceNodes)
			}
		}
	}
	t.addCompanyFences(r, w)
	for _, list := range []*[]string{&r.Fences, &w.Fences} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
}

// sickens reports whether the proposal marks the node as lost or makes it begin to confirm. After either change,
// capsules on the node may no longer count as healthy.
func (n *txNode) sickens() bool {
	if n.was == nil || n.gone {
		return false
	}
	was, now := n.was.Node, n.now.Node
	return was.State != Lost && now.State == Lost || !was.Confirms && now.Confirms
}

// fenceNodes is the fence for which nodes are lost and which nodes confirm.
const fenceNodes = "nodes"

// addMissed adds two kinds of ids to the keys that were read: ids that were looked up and do not exist, and ids that
// only a footprint needs. Call it only after the judgement. The judgement reports the first entry that has a fault, and
// an earlier call could change which entry that is. After the call, use the transaction only for its footprint.
func (t *tx) addMissed() {
	for _, id := range t.missed.Nodes {
		if t.node(id) == nil && t.nodes.find(id) == nil {
			t.nodes.add(id)
		}
	}
	for _, id := range t.missed.Capsules {
		if t.capsule(id) == nil {
			t.capsules.add(id)
		}
	}
	for _, id := range t.missed.Gangs {
		if t.gang(id) == nil {
			t.gangs.add(id)
		}
	}
}

// budgets recounts the healthy members of each group and module that has budgets. It also checks that each budget is
// found by what it covers.
func (v *verifier) budgets() {
	healthy := map[memberSet]health{}
	if v.s.covered.Len() > 0 {
		for c := range v.s.Capsules() {
			for of := range c.Spec.memberships {
				if n := v.s.Node(c.Node); v.s.coverage(of) != nil && n != nil {
					healthy[of] = healthy[of].plus(n.Node.health(c), 1)
				}
			}
		}
	}
	budgets := 0
	v.s.covered.Ascend(func(c *coverage) bool {
		if c.healthy != healthy[c.of] || len(c.budgets) == 0 {
			v.fail("%v counts %+v and %d budgets; there are %+v", c.of, c.healthy, len(c.budgets), healthy[c.of])
		}
		v.date(c.left, "the last to leave", c.of.String())
		budgets += len(c.budgets)
		for _, b := range c.budgets {
			v.date(b.changed, "budget", string(b.ID))
			if known, _ := v.s.budgets.Get(b); known != b || b.members() != c.of {
				v.fail("%v counts budget %q, which is another one", c.of, b.ID)
			}
		}
		return true
	})
	if budgets != v.s.budgets.Len() {
		v.fail("%d budgets are found by what they cover; there are %d", budgets, v.s.budgets.Len())
	}
}

// datable returns an error for a record that no history can produce, because its fields contradict each other. Examples
// are a placement at revision 0, devices without a node, and a nomination of a capsule that does not wait.
func (c *Capsule) datable() error {
	switch {
	case c.PlacedAt == 0 && (c.Node != "" || !c.PlacedBy.IsZero() || c.PlaceTime != 0):
		return fmt.Errorf("capsule %q was placed, at revision 0", c.ID)
	case c.Nomination() != nil && !c.Pending():
		return fmt.Errorf("capsule %q is nominated and does not wait", c.ID)
	case c.Borrows() != nil && (c.Node == "" || !c.Spec.Backfills || c.Gang() != "" || (c.Borrows().Capsule == "") == (c.Borrows().Gang == "")):
		return fmt.Errorf("capsule %q on node %q borrows from %s: it does not backfill, or that cannot be", c.ID, c.Node, c.Borrows())
	case c.Node == "" && (c.Devices != 0 || c.Note() != "" || c.Begun || c.Waits):
		return fmt.Errorf("capsule %q is on no node, and has devices %016b, note %q there; begun: %v, waits: %v", c.ID, c.Devices, c.Note(), c.Begun, c.Waits)
	case c.Adopted && (c.Node == "" || c.Waits):
		return fmt.Errorf("capsule %q was adopted, and is on no node or waits to begin", c.ID)
	case c.Begun && (c.Waits || c.Remains() != nil) || c.Ready && !c.Begun:
		return fmt.Errorf("capsule %q: begun is %v, ready is %v, and it waits to begin is %v; these exclude each other", c.ID, c.Begun, c.Ready, c.Waits || c.Remains() != nil)
	}
	return nil
}
