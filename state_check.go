package orbit

import (
	"fmt"
	"iter"
	"slices"

	"github.com/orbitsched/orbit/internal/cow"
)

// Committed returns the revision at which a proposal with the same id has been committed, 0 if none is remembered: the
// capsules that it places know it by [Limits.PlacementIDs], others are remembered within [Limits.ProposalIDs].
func (s *State) Committed(p Proposal) Revision {
	t := tx{s: s, p: p}
	return t.committedBefore()
}

// Footprint names records that a proposal has to do with, each once, in no particular order.
type Footprint struct {
	// Nodes are the nodes whose description is read or written: what [PutNode] says, and its counter.
	Nodes []NodeID
	// Uses are the nodes whose usage is read or written, with its counter.
	Uses []NodeID
	// Capsules are the capsules, each with where it is.
	Capsules []CapsuleID
	// Gangs are the gangs, each with how much of it is placed.
	Gangs []GangID
	// Holds are the holds.
	Holds []HoldID
	// Marks are the keys of marks.
	Marks []string
	// Share reports that the sum of all nominations is read or written, and what all nodes offer: a nomination reads and writes
	// it, and what lowers a capacity writes it.
	Share bool
	// Budgets are the budgets, each with what it says.
	Budgets []BudgetID
	// Fences name what wishes rest on beside records: a group or a module with budgets, if one of them changes or fewer members
	// are healthy, and "nodes", if a node is lost or begins to confirm. A wish reads the fences of its members and "nodes".
	// What writes a fence does not read it, so those that only write one commute.
	Fences []string
	// Covers reports that the set of groups and modules that have budgets is read or written: what takes capsules off their nodes reads it, and
	// a budget that is new, or covers something else than before, writes it.
	Covers bool
	// Proposals are ids of proposals that place nothing: whether they have been committed.
	Proposals []ProposalID
}

// Footprint returns what judging the proposal at this very state reads, what committing it writes, the node that each
// commitment of what [State.Judge] makes of it touches, as [Change.Node] will name it, and what [State.Check] says to the proposal. A ledger that keeps its
// records apart, as one on a database does, compares and writes exactly these; proposals whose footprints do not meet
// commute.
//
// Reads are the records on which the judgement depends, and all that would be written except fences. A record that is missing counts: its
// absence is what has been read. While none of them changes, the outcome stays what it is. Writes are the records that the commit
// changes. Use writes and touched only if err is nil. What falls out of a
// window by the commit is not among them: capsules released before ([Limits.Terminal]) with their gangs, and ids of
// earlier proposals ([Limits.ProposalIDs]).
//
// Judging does not stop at the first refusal, so reads are complete also for a proposal that is refused. One that has
// been committed before reads only what says so, and touches nothing; a malformed one reads nothing.
//
// A node that is looked at is read whole. A [GroupIn] bet reads one node in the domain with a member of the group: while
// what is used of it stays, no member leaves. Where there is none, reads cannot list that, and a change outside reads can change the outcome. Equal states may
// read different ones of several such nodes. In the same way, what a budget refuses may be taken once a member has been placed or is ready.
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

// Apply returns the state after the changes, which must be a ledger's own history from s on: in order, none
// left out. Any ledger builds its mirror with it. The changes are judged by the ledger's rules again; what
// breaks one makes Apply fail and say which.
func (s *State) Apply(changes []Change) (*State, error) {
	next := s.thaw()
	var t tx
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision && changes[n].ID == changes[0].ID {
			n++
		}
		if err := next.replay(&t, changes[:n]); err != nil {
			return nil, err
		}
		changes = changes[n:]
	}
	return next, nil
}

// replay applies the changes of one proposal.
func (s *State) replay(t *tx, changes []Change) error {
	first := changes[0]
	if first.Revision < s.rev || (first.Revision == s.rev && first.Seq == 0) {
		return invalidf("change at revision %d.%d does not follow a state at %d", first.Revision, first.Seq, s.rev)
	}
	p := Proposal{ID: first.ID, Do: make([]Commitment, len(changes))}
	for i, c := range changes {
		p.Do[i] = c.Do
	}
	p = p.Clone()
	if err := p.check(&s.limits); err != nil {
		return err
	}
	defer t.reset()
	t.replays = true
	if done, err := t.run(s, first.Revision, &p); err != nil {
		return err
	} else if done != 0 {
		return invalidf("proposal %s appears at revision %d and again at %d", p.ID, done, first.Revision)
	}
	s.publish(t)
	return nil
}

// Closed returns s as it looks to a scheduler for which some nodes are closed: they are unschedulable in it. All else is
// as in s, the revision, the counters, what is used and what is marked included; so a bet that is taken from it is
// a bet on s. A [Ledger] that shows one scheduler a part of the constellation answers Snapshot with it.
//
// Before is what Closed has returned for an older state of the same ledger, and changed are the indices
// ([NodeState.Index]) of nodes that have joined, changed or left since, or for which closed answers otherwise than
// it did; Closed looks only at them and at nodes whose nominations differ from before; with a nil before at all. What is returned is a state like any other, but it is
// in no history: [State.Apply] goes on from s, not from it.
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

// otherNominations yields the nominations that live in one of two states and not in the other.
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

// addFences adds what budgets are about.
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
		if e.anew || e.adopted && e.was.Spec != e.now.Spec { // who comes in its place is not it, or may be of other groups
			after = health{}
		}
		r.Covers = r.Covers || after.below(before)
		for of := range e.was.Spec.memberships {
			for range t.budgetsOf(of) {
				if e.wished {
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

// sickens reports whether the proposal says that the node is lost, or that it confirms from now on: some of what is there is not healthy
// any more.
func (n *txNode) sickens() bool {
	if n.was == nil || n.gone {
		return false
	}
	was, now := n.was.Node, n.now.Node
	return was.State != Lost && now.State == Lost || !was.Confirms && now.Confirms
}

// fenceNodes is the fence that stands for the nodes that are lost, and for those that confirm.
const fenceNodes = "nodes"

// addMissed adds the ids that were looked up and do not exist, and those that only a footprint looks at, to the keys that were
// read. Not before the judgement is over, because it names the first entry that has a fault, and must name the same one
// without a footprint. After that the transaction can be used for its footprint only.
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

// budgets recounts the members of what has budgets.
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

// datable returns an error for a record that no history leads to: a placement without a revision, or a note or devices without a
// node.
func (c *Capsule) datable() error {
	switch {
	case c.PlacedAt == 0 && (c.Node != "" || !c.PlacedBy.IsZero() || c.PlaceTime != 0):
		return fmt.Errorf("capsule %q was placed, at revision 0", c.ID)
	case c.Nomination != nil && !c.Pending():
		return fmt.Errorf("capsule %q is nominated and does not wait", c.ID)
	case c.Borrows != nil && (c.Node == "" || !c.Spec.Backfills || c.Gang != "" || (c.Borrows.Capsule == "") == (c.Borrows.Gang == "")):
		return fmt.Errorf("capsule %q on node %q borrows from %s: it does not backfill, or that cannot be", c.ID, c.Node, c.Borrows)
	case c.Node == "" && (c.Devices != 0 || c.Note != "" || c.Begun || c.Waits):
		return fmt.Errorf("capsule %q is on no node, and has devices %016b, note %q there; begun: %v, waits: %v", c.ID, c.Devices, c.Note, c.Begun, c.Waits)
	case c.Adopted && (c.Node == "" || c.Waits):
		return fmt.Errorf("capsule %q was adopted, and is on no node or waits to begin", c.ID)
	case c.Begun && (c.Waits || c.Remains != nil) || c.Ready && !c.Begun:
		return fmt.Errorf("capsule %q: begun is %v, ready is %v, and it waits to begin is %v; these exclude each other", c.ID, c.Begun, c.Ready, c.Waits || c.Remains != nil)
	}
	return nil
}
