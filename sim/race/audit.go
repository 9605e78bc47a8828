package race

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// audit is the model by which a race is judged. It is told every proposal and every answer, reads the ledger's history
// change by change, and keeps simple books of its own. It does not trust the checks of the ledger.
//
// It checks at every step: each change was proposed; the commitments of a proposal are in the history all together and
// once, or not at all; acknowledged proposals are there, and refused ones are not; a capsule is on one node; no node
// takes in more than its capacity; a gang's first placement has its minimum; no queue uses more than its quota lets it; and the ledger's
// state agrees with the books.
type audit struct {
	*course
	asked    map[orbit.ProposalID]*asked
	nodes    map[orbit.NodeID]*auditNode
	capsules map[orbit.CapsuleID]*auditCapsule
	gangs    map[orbit.GangID]*auditGang
	holds    map[orbit.HoldID]orbit.Hold
	budgets  map[orbit.BudgetID]orbit.Budget
	queues   map[orbit.QueueID]orbit.Queue
	// last has, in by and byOthers, the proposals that were committed last.
	last auditNode
	// ways has the evictions to make way so far: the victims and the work that came. evicted is their number, repeated
	// is how many of them repeated an earlier one.
	ways              map[way]bool
	evicted, repeated int
	// lines has, for a task that a controller has submitted in place of another one, the first task of that line.
	lines map[orbit.CapsuleID]orbit.CapsuleID
	// nominations has the living nominations, and what is kept of those that have ended.
	nominations map[nominee]*orbit.Nomination
	// first is the nomination of the highest rank after the last step.
	first firstNominee
	// pending is the number of pending capsules.
	pending int
	// newest is the newest revision that an answer has named; known is the newest one that the audit has read from the
	// history.
	newest, known orbit.Revision
	// unchecked is the number of steps with commits since the ledger's state was last compared with the books.
	unchecked int
	// origin is the state at the start, state is origin after the history so far, and all are the changes of the
	// history.
	origin *orbit.State
	state  *orbit.State
	all    []orbit.Change
}

// asked is a proposal, the engine and pass that made it, and its outcome.
type asked struct {
	orbit.Proposal
	by        *actor
	decision  int
	committed orbit.Revision
}

type auditNode struct {
	orbit.Node
	used    orbit.Resources
	devices [orbit.MaxDevices]int64
	// most is the greatest capacity that the node ever had; remains are the capsules that have left it and still run
	// there.
	most    orbit.Resources
	remains []*auditRemains
	// by is the proposal that changed the node last; byOthers is the revision of the last change by another pass.
	by       *asked
	byOthers orbit.Revision
}

type auditCapsule struct {
	id       orbit.CapsuleID
	line     orbit.CapsuleID // the first of the tasks that have replaced one another, of which this is the last
	spec     *orbit.Spec
	gang     *auditGang
	role     int
	node     orbit.NodeID
	devices  orbit.DeviceSet
	placedAt orbit.Revision
	borrows  nominee         // from whose nomination it borrows room on node
	grew     orbit.Resources // by how much its last spec is larger than the one before
	factAt   orbit.Revision  // the placement in which another party has let it grow: nobody judges whether that fits
	seen     bool            // it has been placed at least once
	begun    bool            // its agent has reported that it runs
	ready    bool            // its agent has reported that it is ready
	ends     bool            // it ends with the commit that has taken it off its node, unless the commit places it again
	ended    bool
}

type auditGang struct {
	*orbit.Gang
	// How many members of each role are placed, and how many have ended.
	placed, done []int
	// The number of gangs that were submitted before.
	order int
}

func newAudit(c *course) *audit {
	a := &audit{
		course: c, asked: map[orbit.ProposalID]*asked{}, nodes: map[orbit.NodeID]*auditNode{}, capsules: map[orbit.CapsuleID]*auditCapsule{},
		gangs: map[orbit.GangID]*auditGang{}, holds: map[orbit.HoldID]orbit.Hold{}, nominations: map[nominee]*orbit.Nomination{},
		budgets: map[orbit.BudgetID]orbit.Budget{}, queues: map[orbit.QueueID]orbit.Queue{}, ways: map[way]bool{}, lines: map[orbit.CapsuleID]orbit.CapsuleID{},
	}
	var err error
	if a.origin, err = c.ledger.Snapshot(background()); err != nil {
		c.fail("ledger", "the first snapshot: %v", err)
		return a
	}
	a.newest, a.known = a.origin.Revision(), a.origin.Revision()
	a.state = a.origin
	return a
}

// ask notes a proposal before it is sent.
func (a *audit) ask(p *orbit.Proposal, by *actor) {
	if a.asked[p.ID] == nil {
		kept := *p
		kept.Do, kept.If = slices.Clone(p.Do), slices.Clone(p.If)
		a.asked[p.ID] = &asked{Proposal: kept, by: by, decision: by.tally.Decisions + by.life<<32}
	}
}

// read checks the answer to a read: its revision must not be older than floor, the newest acknowledged commit when the
// read began.
func (a *audit) read(who, what string, rev, floor orbit.Revision) {
	if rev < floor {
		a.fail("answer from the past", "%s asked for a %s after revision %d was acknowledged, and was shown %d", who, what, floor, rev)
	}
}

// answer checks the ledger's answer to a proposal against the history.
func (a *audit) answer(by *actor, p *orbit.Proposal, rev orbit.Revision, err error) {
	a.follow()
	asked := a.asked[p.ID]
	switch {
	case err == nil && asked.committed == 0:
		a.fail("lost commit", "%s was told that \"%s\" is committed at %d, and it is not in the history", by.name, describe(p), rev)
	case err == nil && asked.committed != rev:
		a.fail("wrong revision", "%s was told that \"%s\" is committed at %d; it is, at %d", by.name, describe(p), rev, asked.committed)
	case err == nil:
		a.newest = max(a.newest, rev)
	case asked.committed != 0 && refused(err):
		a.fail("refused but committed", "%s was told of \"%s\": %v; it was committed at %d", by.name, describe(p), err, asked.committed)
	case errors.Is(err, orbit.ErrConflict):
		a.againstItself(asked, err)
	}
}

// refused reports whether an error says that a proposal has had no effect.
func refused(err error) bool {
	return errors.Is(err, orbit.ErrConflict) || errors.Is(err, orbit.ErrInfeasible) || errors.Is(err, orbit.ErrInvalid)
}

// againstItself fails the run if a proposal conflicts with another one of the same pass, because the plan asks a node
// for more than it has.
func (a *audit) againstItself(p *asked, err error) {
	r := (*orbit.Rejection)(nil)
	if !errors.As(err, &r) || r.Dimension == "" || p.by.scheduler == nil || p.by.scheduler.careless || a.nominatedOn(r.Node) { // the plan may itself have nominated the room
		return
	}
	n := a.nodes[r.Node]
	if r.Queue != "" { // a commit anywhere may have changed what there is of it
		n = &a.last
	}
	if n != nil && n.by != nil && n.by.by == p.by && n.by.decision == p.decision && n.byOthers <= p.View {
		a.fail("loses to itself", "%s planned more on %s than there was room for on revision %d: %v", p.by.name, r.Node, p.View, err)
	}
}

// follow reads the new changes of the history and enters them, proposal by proposal.
func (a *audit) follow() {
	changes, err := a.ledger.Changes(background(), a.known)
	if err != nil {
		a.fail("ledger", "changes: %v", err)
		return
	}
	if a.Check >= 0 {
		a.all = append(a.all, changes...)
	}
	if len(changes) > 0 {
		a.unchecked++
	}
	for len(changes) > 0 && a.err == nil {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision && changes[n].ID == changes[0].ID {
			n++
		}
		a.commit(changes[:n])
		changes = changes[n:]
	}
}

// commit enters the changes of one proposal into the books, and judges them by all rules. Some rules need the books as
// they were before the changes, so it collects these facts first.
func (a *audit) commit(changes []orbit.Change) {
	first := changes[0]
	p := a.asked[first.ID]
	switch {
	case first.Revision < a.known:
		a.fail("history", "revision %d comes after %d", first.Revision, a.known)
	case p == nil:
		a.fail("never proposed", "%s at revision %d was never proposed", describeChanges(changes), first.Revision)
	case p.committed != 0 && p.committed != first.Revision:
		a.fail("applied twice", "\"%s\" is in the history at revision %d, and again at %d", describe(&p.Proposal), p.committed, first.Revision)
	case len(changes) != len(undone(p.Do, changes)) || p.committed != 0:
		a.fail("torn", "of \"%s\", which has %d commitments, %d are committed at revision %d by themselves: %s", describe(&p.Proposal), len(p.Do), len(changes), first.Revision, describeChanges(changes))
	}
	if a.err != nil {
		return
	}
	a.known, p.committed = first.Revision, first.Revision
	asks, asked := a.asksOf(changes), undone(p.Do, changes)
	leavers, budgets := a.wishesOf(changes)
	before, queues := a.neighbours(), a.queuesBefore(changes)
	begun := map[*auditGang]bool{} // gangs that this commit begins; false: the commit only moves members of a running gang
	for i, c := range changes {
		switch do := c.Do.(type) {
		case orbit.Evict:
			if m := a.capsules[do.Capsule]; m != nil && m.gang != nil && do.For == "" && do.ForGang == "" {
				begun[m.gang] = false
			}
		case orbit.Place:
			if c.Do != asked[i] {
				a.fail("never proposed", "%v at revision %d, where %v was asked for", c.Do, c.Revision, p.Do[i])
			}
			if m := a.capsules[do.Capsule]; m != nil && m.gang != nil && m.gang.empty() {
				if _, moved := begun[m.gang]; !moved {
					begun[m.gang] = true
				}
			}
		}
		a.apply(p, &c)
	}
	a.last.changed(p)
	for _, c := range changes {
		a.room(&c)
	}
	a.judgeAsks(asks, first.Revision)
	a.judgeWishes(leavers, budgets, queues, first.Revision)
	a.judgeQueues(queues, first.Revision)
	a.judgeCompany(changes, before, first.Revision)
	a.endEnding()
	for g, anew := range begun {
		if anew {
			a.whole(g, first.Revision)
		}
	}
	a.judge(p, changes)
}

// describeChanges says what changes did.
func describeChanges(changes []orbit.Change) fmt.Stringer {
	p := orbit.Proposal{}
	for _, c := range changes {
		p.Do = append(p.Do, c.Do)
	}
	return describe(&p)
}

// room checks that a node is not oversubscribed after it has taken in a capsule or a hold. Only the dimensions and
// devices that the newcomer asks for count.
func (a *audit) room(c *orbit.Change) {
	var want orbit.Resources
	var set orbit.DeviceSet
	switch do := c.Do.(type) {
	case orbit.Place:
		if m := a.capsules[do.Capsule]; m != nil {
			want, set = m.spec.Envelope.Reservation, do.Devices
		}
	case orbit.Respec:
		if m := a.capsules[do.Capsule]; m != nil && !do.Applied && m.node != "" {
			want = m.grew
		}
	case orbit.Hold:
		want, set = do.Room, do.Devices
	default:
		return
	}
	n := a.nodes[c.Node]
	if n == nil && want == (orbit.Resources{}) && set == 0 {
		return // what waits has got another spec
	}
	if n == nil {
		a.fail("placed nowhere", "%s at revision %d names no node that there is: %q", describeChanges([]orbit.Change{*c}), c.Revision, c.Node)
		return
	}
	for d := range n.used {
		if want[d] > 0 && n.used[d] > n.Capacity[d] {
			a.fail("oversubscribed", "%s has %d of dimension %d, and takes %d since revision %d", n.ID, n.Capacity[d], d, n.used[d], c.Revision)
		}
	}
	for i, used := range n.devices {
		if set.Has(i) && used > 1000 {
			a.fail("oversubscribed", "device %d of %s takes %d of 1000 since revision %d", i, n.ID, used, c.Revision)
		}
	}
}

// empty reports whether nothing of the gang is placed.
func (g *auditGang) empty() bool {
	return !slices.ContainsFunc(g.placed, func(n int) bool { return n > 0 })
}

// last reports whether exactly one member of the capsule's gang is placed. The caller knows that it is this one.
func (m *auditCapsule) last() bool {
	if m.gang == nil {
		return false
	}
	sum := 0
	for _, n := range m.gang.placed {
		sum += n
	}
	return sum == 1
}

// whole checks the first placement of a gang.
func (a *audit) whole(g *auditGang, rev orbit.Revision) {
	for i, role := range g.Roles {
		if g.placed[i] < g.least(i) {
			a.fail("torn gang", "gang %s begins at revision %d with %d of role %q, of which there must be %d", g.ID, rev, g.placed[i], role.Name, g.least(i))
		}
	}
	if g.few() {
		a.fail("torn gang", "gang %s begins at revision %d with %v members of its roles, of which there must be %d", g.ID, rev, g.placed, g.Min)
	}
}

// few reports whether fewer members are placed than the minimum of the gang, and than are left.
func (g *auditGang) few() bool {
	placed, left := 0, 0
	for i, n := range g.placed {
		placed, left = placed+n, left+g.left(i)
	}
	return placed < min(g.Min, left)
}

// left returns how many members of a role have not ended.
func (g *auditGang) left(role int) int { return len(g.Roles[role].Members) - g.done[role] }

// least returns how many members of a role the gang's first placement must have.
func (g *auditGang) least(role int) int {
	return min(g.left(role), cmp.Or(g.Roles[role].Min, len(g.Roles[role].Members)))
}

// priorities returns the lowest and the highest priority of the roles with members that have not ended.
func (g *auditGang) priorities() (lowest, highest int32) {
	lowest, highest = math.MaxInt32, math.MinInt32
	for i := range g.Roles {
		if g.left(i) > 0 {
			lowest, highest = min(lowest, g.Roles[i].Spec.Priority), max(highest, g.Roles[i].Spec.Priority)
		}
	}
	return lowest, highest
}

// broken reports whether members run, and too few of some role.
func (g *auditGang) broken() bool { return !g.empty() && g.short() }

// precedes reports whether a broken gang comes before another one.
func (g *auditGang) precedes(o *auditGang) bool {
	mine, _ := g.priorities()
	other, _ := o.priorities()
	return g.broken() && o.broken() && (mine > other || mine == other && g.order < o.order)
}

// afterStep follows the history. After every Check steps with commits it also compares the ledger's state with the
// books.
func (a *audit) afterStep() {
	a.follow()
	if a.Check >= 0 && a.unchecked >= max(a.Check, 1) && a.err == nil {
		a.unchecked = 0
		a.compare()
	}
}

// compare compares the ledger's state with the books, and returns the state.
func (a *audit) compare() *orbit.State {
	state, err := a.ledger.Snapshot(background())
	if err != nil {
		a.fail("ledger", "snapshot: %v", err)
		return nil
	}
	a.read("the audit", "snapshot", state.Revision(), a.newest)
	if err := state.Verify(); err != nil {
		a.fail("does not add up", "the state at revision %d: %v", state.Revision(), err)
	}
	if state.Revision() != a.known {
		return state
	}
	for s := range state.Nodes() {
		if n := a.nodes[s.Node.ID]; n == nil || n.used != s.Used() || n.Capacity != s.Node.Capacity {
			a.fail("books differ", "%s at revision %d is %+v with %v used; by the history it is %+v", s.Node.ID, state.Revision(), *s.Node, s.Used(), n)
		}
	}
	a.compareQueues(state)
	for s := range state.Capsules() {
		if m := a.capsules[s.ID]; m == nil || m.node != s.Node || m.ended != s.Released() {
			a.fail("books differ", "%s at revision %d is on %q; by the history it is %+v", s.ID, state.Revision(), s.Node, m)
		}
	}
	return state
}

// atEnd compares the final state with the books, and with the state that the history makes when it is replayed.
func (a *audit) atEnd() {
	if a.afterStep(); a.Check < 0 || a.err != nil {
		return
	}
	state := a.compare()
	if a.err != nil {
		return
	}
	again, err := a.origin.Apply(a.all)
	if err != nil {
		a.fail("replay", "the history cannot be replayed: %v", err)
		return
	}
	var is, was bytes.Buffer
	if err := errors.Join(state.Dump(&is), again.Dump(&was)); err != nil || !bytes.Equal(is.Bytes(), was.Bytes()) {
		a.fail("replay", "the history replayed gives another state than there is (%v)", err)
	}
}

// judge keeps a state of its own that follows the history. Before it applies a commit, it checks with that state
// whether the proposal could be committed. This checks the bets above all, which leave no trace in the books.
func (a *audit) judge(p *asked, changes []orbit.Change) {
	if a.err != nil || a.state == nil || a.Check < 0 {
		return
	}
	if err := a.state.Check(p.Proposal); err != nil {
		a.fail("bet", "\"%s\" was committed at revision %d, and must not have been: %v", describe(&p.Proposal), changes[0].Revision, err)
		return
	}
	next, err := a.state.Apply(changes)
	if err != nil {
		a.fail("history", "revision %d does not follow: %v", changes[0].Revision, err)
		return
	}
	a.state = next
}
