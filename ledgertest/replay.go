package ledgertest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// History has the commits of a ledger, and the calls of its methods with their answers in the same time.
type History struct {
	// Base is the state before the first change.
	Base *orbit.State
	// Changes is everything committed since Base, oldest first.
	Changes []orbit.Change
	// Final is the state after the last change; nil: it is not compared.
	Final *orbit.State
	// Calls are the recorded calls, in any order.
	Calls []Call
	// Shared says that other writers have committed too, whose calls are not in Calls.
	Shared bool
}

// Check returns an error if no correct ledger can have given these answers, with all faults that it has found;
// otherwise nil. It applies the changes to Base, one proposal after the other, and requires that
//
//   - each step is legal ([orbit.State.Apply]) and its bets hold ([orbit.State.Check]), and the steps lead to the final
//     state;
//   - each committed proposal is in the history once, in full, at the revision of the answer; a proposal that was refused
//     or not sent is not in the history; a proposal with an unknown outcome may or may not be there;
//   - each rejection and its receipt were right at the state that it names;
//   - no answer is older than an answer that was complete before the call began: an answer of any handle for Propose and
//     Snapshot, of the same handle for Changes and Wait; and a new commit is newer than those answers;
//   - some hundreds of the kept snapshots are equal to the states to which the history leads, and each answer of Changes
//     is a part of the history without holes.
//
// The time that Check takes is proportional to the number of calls and changes.
func (h History) Check() error {
	c := &checker{History: h, sent: map[orbit.ProposalID][]*Call{}, at: map[orbit.ProposalID]orbit.Revision{}}
	c.group()
	c.index()
	c.replay()
	c.outcomes()
	c.freshness()
	c.reads()
	return errors.Join(c.faults...)
}

// maxSnapshots is about how many snapshots are compared. The time of each comparison is proportional to the size of the
// state.
const maxSnapshots = 300

// maxFaults is the largest number of faults that Check reports.
const maxFaults = 10

// checker is the state of a check.
type checker struct {
	History
	groups []group
	// sent has the calls that have sent each proposal.
	sent map[orbit.ProposalID][]*Call
	// at has the revision at which each proposal was committed.
	at map[orbit.ProposalID]orbit.Revision
	// rejected and snapshots have the calls that were answered from the state at each revision.
	rejected  map[orbit.Revision][]*Call
	snapshots map[orbit.Revision]*Call
	faults    []error
}

// group has the changes of one proposal.
type group struct {
	id      orbit.ProposalID
	rev     orbit.Revision
	changes []orbit.Change
}

// fail adds a fault.
func (c *checker) fail(format string, args ...any) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, fmt.Errorf(format, args...))
	}
}

// group divides the changes into proposals. No proposal may occur twice.
func (c *checker) group() {
	if err := ordered(c.Changes, c.Base.Revision()); err != nil {
		c.fail("the history is out of order: %w", err)
	}
	for list := c.Changes; len(list) > 0; {
		n := 1
		for n < len(list) && list[n].Revision == list[0].Revision && list[n].ID == list[0].ID {
			n++
		}
		g := group{list[0].ID, list[0].Revision, list[:n]}
		if first, twice := c.at[g.id]; twice && !g.id.IsZero() {
			c.fail("applied twice: proposal %s is in the history at %d and at %d", g.id, first, g.rev)
		}
		c.at[g.id] = g.rev
		c.groups, list = append(c.groups, g), list[n:]
	}
}

// index files the calls by proposal, and by the revision of the state from which they were answered.
func (c *checker) index() {
	every, looked := len(c.Calls)/maxSnapshots+1, 0
	c.rejected, c.snapshots = map[orbit.Revision][]*Call{}, map[orbit.Revision]*Call{}
	for i := range c.Calls {
		call := &c.Calls[i]
		var r *orbit.Rejection
		switch {
		case call.Kind == Snapshot && call.State != nil:
			if looked++; looked%every == 0 {
				c.snapshots[call.Revision] = call
			}
		case call.Kind != Propose:
			continue
		case errors.As(call.Err, &r) && !errors.Is(r.Kind, orbit.ErrInvalid):
			c.rejected[r.At] = append(c.rejected[r.At], call)
		}
		if call.Kind == Propose {
			c.sent[call.Proposal.ID] = append(c.sent[call.Proposal.ID], call)
		}
	}
}

// replay applies the history. It stops at an illegal step, because nothing after it can be judged.
func (c *checker) replay() {
	s := c.Base
	wrong := c.judge(s, nil)
	for i, g := range c.groups {
		if i > 0 && g.rev != c.groups[i-1].rev || i == 0 {
			c.closeRevision(s, wrong)
			wrong = nil
		}
		c.step(s, g)
		next, err := s.Apply(g.changes) // judges nothing
		if err = cmp.Or(err, s.Check(g.proposal())); err != nil {
			c.fail("the history breaks a rule at revision %d: %w", g.rev, err)
			return
		}
		s, wrong = next, c.judge(next, wrong)
		if i%64 == 0 {
			c.verify(s)
		}
	}
	c.closeRevision(s, wrong)
	c.verify(s)
	for rev, calls := range c.rejected {
		c.fail("%d proposals were refused at revision %d, which never was, such as %s: %w", len(calls), rev, harness.Describe(calls[0].Proposal), calls[0].Err)
	}
	if c.Final != nil {
		if d := difference(s, c.Final); d != "" {
			c.fail("the history leads to another state (-) than the snapshot at the end (+):\n%s", d)
		}
	}
}

// proposal returns what the changes of a group do, as a proposal.
func (g *group) proposal() (p orbit.Proposal) {
	for _, change := range g.changes {
		p.Do = append(p.Do, change.Do)
	}
	return p
}

// verify adds a fault if a state is not sound.
func (c *checker) verify(s *orbit.State) {
	if err := s.Verify(); err != nil {
		c.fail("the state at revision %d is not sound: %w", s.Revision(), err)
	}
}

// step compares the changes of a proposal with the proposal, and judges the proposal on the state before it.
func (c *checker) step(s *orbit.State, g group) {
	calls := c.sent[g.id]
	if len(calls) == 0 {
		if !c.Shared {
			c.fail("the history has proposal %s at %d, which no caller has sent: %T%s", g.id, g.rev, g.changes[0].Do, harness.Text(g.changes[0].Do))
		}
		return
	}
	p := calls[0].Proposal
	done, err := s.Judge(p) // the proposal as it is committed, without the evictions of spared victims
	if err != nil {
		c.fail("%s was committed at %d; at the state before it did not hold: %w", harness.Describe(p), g.rev, err)
		done = p
	}
	if err := sameChanges(g.changes, done, g.rev); err != nil {
		c.fail("torn: proposal %s at %d: %w", g.id, g.rev, err)
	}
}

// judge compares the rejections at a revision with State.Check, and returns the wrong ones with the reason. If several
// proposals share a revision, there is a state after each of them, and a rejection is right if it is right at any of
// these states. So judge is called with each state, and before has the rejections that were wrong at all earlier ones;
// nil at the first.
func (c *checker) judge(s *orbit.State, before map[*Call]error) map[*Call]error {
	calls := c.rejected[s.Revision()]
	if len(calls) == 0 {
		return nil
	}
	wrong := map[*Call]error{}
	for _, call := range calls {
		if _, open := before[call]; before != nil && !open {
			continue // it was right at an earlier state
		}
		if err := sameVerdict(call.Err, s.Check(call.Proposal)); err != nil {
			wrong[call] = err
		}
	}
	return wrong
}

// closeRevision adds a fault for each rejection that no state of the revision justifies, and compares the snapshot of
// the revision with the state.
func (c *checker) closeRevision(s *orbit.State, wrong map[*Call]error) {
	for _, call := range c.rejected[s.Revision()] {
		if err := wrong[call]; err != nil {
			c.fail("%s was refused, and wrongly: %w", harness.Describe(call.Proposal), err)
		}
	}
	delete(c.rejected, s.Revision())
	if call := c.snapshots[s.Revision()]; call != nil {
		if d := difference(s, call.State); d != "" {
			c.fail("the history leads to another state (-) at %d than a snapshot (+):\n%s", s.Revision(), d)
		}
	}
}

// outcomes compares the answers of Propose with the history.
func (c *checker) outcomes() {
	for i := range c.Calls {
		call := &c.Calls[i]
		if call.Kind != Propose {
			continue
		}
		at, there := c.at[call.Proposal.ID]
		var r *orbit.Rejection
		switch {
		case call.Err == nil && !there && call.Revision <= c.Base.Revision(): // committed before
		case call.Err == nil && at != call.Revision:
			c.fail("%s: the answer is that it was committed at %d; the history has it at %d", harness.Describe(call.Proposal), call.Revision, at)
		case call.Err == nil || errors.Is(call.Err, orbit.ErrUnknown):
		case there && c.only(call.Proposal.ID):
			c.fail("%s: the answer is %w; the history has it, at %d", harness.Describe(call.Proposal), call.Err, at)
		case errors.As(call.Err, &r):
			c.receipt(call, r)
		case !errors.Is(call.Err, orbit.ErrUnavailable):
			c.fail("%s: the answer is none that a ledger can give: %w", harness.Describe(call.Proposal), call.Err)
		}
	}
}

// only reports whether no call that has sent the proposal was answered with a commit or an unknown outcome.
func (c *checker) only(id orbit.ProposalID) bool {
	return !slices.ContainsFunc(c.sent[id], func(o *Call) bool { return o.Err == nil || errors.Is(o.Err, orbit.ErrUnknown) })
}

// receipt checks what a receipt says about the commit that came first.
func (c *checker) receipt(call *Call, r *orbit.Rejection) {
	switch {
	case errors.Is(r.Kind, orbit.ErrInvalid):
		if err := sameVerdict(call.Err, c.Base.Check(call.Proposal)); err != nil {
			c.fail("%s was refused, and wrongly: %w", harness.Describe(call.Proposal), err)
		}
	case errors.Is(r.Kind, orbit.ErrConflict) && (r.TakenAt <= call.Proposal.View || r.TakenAt > r.At):
		c.fail("%s lost to a commit at %d, it says; its view was at %d, and it was judged at %d", harness.Describe(call.Proposal), r.TakenAt, call.Proposal.View, r.At)
	case !r.TakenBy.IsZero() && c.at[r.TakenBy] != r.TakenAt && r.TakenAt > c.Base.Revision():
		c.fail("%s lost to proposal %s at %d, it says; the history has that at %d", harness.Describe(call.Proposal), r.TakenBy, r.TakenAt, c.at[r.TakenBy])
	}
}
