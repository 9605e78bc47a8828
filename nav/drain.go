package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
	"github.com/orbitsched/orbit/place"
)

// Drain empties cordoned nodes: it moves their capsules to other nodes. Each capsule is moved by a proposal of its own,
// which takes it off its node and places it again. So a capsule leaves only if it has a new place, unless MayWait lets
// it wait. Drain is no navigator, because an engine calls its navigator only while work is pending, and a drain has
// work when none is. It needs no engine: call Run beside the engines, in one process or in several.
//
//	a capsule on a cordoned node ─┬─ it fits on another node, and no rule forbids the move ─► it is moved
//	                              ├─ it cannot be moved, and MayWait says yes ──────────────► it is released back to pending
//	                              └─ otherwise ─────────────────────────────────────────────► it stays, and the round says why
//
// [Drain.Run] says which rules a move keeps. Set the fields before first use, and call Pass or Run from one goroutine at a
// time.
type Drain struct {
	// Ledger is the ledger whose nodes are drained. Required.
	Ledger orbit.Ledger
	// Telemetry gives the placement engine the reports of nodes; nil: it gets none.
	Telemetry orbit.Telemetry
	// Placement chooses the nodes to which capsules are moved. Nothing else may use it. Nil: a [place.Indexed]. If the
	// placement engines of navigators have a filter, give this one the same filter.
	Placement orbit.PlacementEngine
	// Drains reports whether a cordoned node is to be drained; nil: every cordoned node is. Set it where nodes are
	// cordoned for other reasons too: lease.Members cordons a node that has not renewed its lease, and such a node may
	// come back.
	Drains func(*orbit.Node) bool
	// MayWait reports whether a capsule that cannot be moved may be released back to pending; nil: none may. Where the
	// release of one member would break a minimum of its gang, all placed members are released, if all of them may
	// wait. On a full cluster a drain gets stuck unless services may wait, too: a [orbit.Budget] bounds how many of them are
	// missing, and a [Preempting] navigator makes room for them elsewhere.
	MayWait func(*orbit.Capsule) bool
	// MaxMoves is how many moves and releases one pass proposes at most; default 1,000. The release of a whole gang
	// counts as one.
	MaxMoves int
	// OnRound is called by Run after each pass that moved or released something, emptied a node, met an error, or found
	// other capsules left or blocked than the pass before; nil: it is not called.
	OnRound func(DrainRound)

	view   orbit.View
	draft  orbit.Draft
	cursor uint64
	// The cordoned nodes, by [orbit.NodeState.Index]; and the nodes with NoExecute taints.
	cordoned map[int32]*cordonedNode
	tainted  map[int32]*taintedNode
}

// taintedNode is what Drain remembers of a node with NoExecute taints: when it first saw each.
type taintedNode struct {
	id    orbit.NodeID
	since map[orbit.Taint]time.Time
}

// cordonedNode is what Drain remembers of a cordoned node.
type cordonedNode struct {
	id orbit.NodeID
	// A round has named it in Emptied, and it has been empty since.
	empty bool
}

// DrainRound is what one pass of [Drain] did.
type DrainRound struct {
	// View is the revision of the ledger that the pass planned on.
	View orbit.Revision
	// Moved are the capsules that were moved to other nodes.
	Moved []orbit.CapsuleID
	// Released are the capsules that were released back to pending.
	Released []orbit.CapsuleID
	// Emptied are the drained nodes that this pass found empty: without capsules and holds, and without capsules that
	// were taken off and have not stopped. A node is named in one round only, until it has been in use again.
	Emptied []orbit.NodeID
	// Nodes are the drained nodes that are not empty, and the tainted ones that something has to leave, those with the
	// fewest such capsules first.
	Nodes []DrainNode
	// Conflicts counts the proposals that lost to another commit; their capsules are planned again.
	Conflicts int
	// Errors are the errors of the ledger and of the telemetry, at most 16. Conflicts are counted above, and refusals
	// are in [DrainNode.Blocked].
	Errors []error
	// Looked counts the nodes and capsules that the pass has looked at; those that the placement engine looks at do not
	// count.
	Looked int

	// Something was refused by a rule or lost to another commit, and not for want of room.
	ruled bool
	// There is more to do, so Run begins the next pass at once.
	full bool
}

// DrainNode says how far a node is drained.
type DrainNode struct {
	// Node is the node.
	Node orbit.NodeID
	// Left is how many capsules are left on it; of a tainted node, how many have to leave it and are left.
	Left int
	// Holds is how many holds are left on it.
	Holds int
	// Stopping is how many capsules have left it and have not stopped ([orbit.Remains]): the node must not be switched
	// off yet.
	Stopping int
	// Blocked are the capsules that could not be moved, and why.
	Blocked []orbit.Unplaced
}

// mostBlocked is how many capsules the text of a DrainNode names.
const mostBlocked = 8

// String reads like `node-7: 2 left: db-0: gang "db" ...; db-1: 0 of 12 nodes fit: 12 lack cpu`.
func (n DrainNode) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d left", n.Node, n.Left)
	if n.Holds > 0 {
		fmt.Fprintf(&b, ", %d holds", n.Holds)
	}
	if n.Stopping > 0 {
		fmt.Fprintf(&b, ", %d still stop", n.Stopping)
	}
	for i, u := range n.Blocked[:min(len(n.Blocked), mostBlocked)] {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		fmt.Fprintf(&b, "%s: %s", u.Capsule.ID, whyStays(u.Why))
	}
	if more := len(n.Blocked) - mostBlocked; more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// whyStays returns the text of an error. Of a [orbit.Rejection] it returns only the reason, because its advice is for
// the proposer.
func whyStays(err error) string {
	var r *orbit.Rejection
	if errors.As(err, &r) {
		return r.Reason
	}
	return err.Error()
}

// mustMove is the reason of a capsule for which there is no room, and which MayWait does not let go back to pending.
type mustMove struct{ error }

func (e mustMove) Error() string { return e.error.Error() + "; MayWait does not let it wait for room" }

func (e mustMove) Unwrap() error { return e.error }

// String sums the round up, with a line for each node.
func (r DrainRound) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "drain at %d: %d moved, %d released, %d conflicts, %d errors", r.View, len(r.Moved), len(r.Released), r.Conflicts, len(r.Errors))
	for _, id := range r.Emptied {
		fmt.Fprintf(&b, "\n%s: empty", id)
	}
	for i := range r.Nodes {
		fmt.Fprintf(&b, "\n%v", r.Nodes[i])
	}
	for _, err := range r.Errors[:min(len(r.Errors), mostBlocked)] {
		fmt.Fprintf(&b, "\nerror: %v", err)
	}
	return b.String()
}

// found returns a text by which Run compares a round with the one before. It leaves out the text of a [orbit.NoFit],
// because that costs a look at each node.
func (r *DrainRound) found() string {
	var b strings.Builder
	for i := range r.Nodes {
		n := &r.Nodes[i]
		fmt.Fprintf(&b, "%s %d %d %d\n", n.Node, n.Left, n.Holds, n.Stopping)
		for _, u := range n.Blocked {
			var nofit *orbit.NoFit
			if b.WriteString(string(u.Capsule.ID)); !errors.As(u.Why, &nofit) {
				b.WriteString(whyStays(u.Why))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// acted reports whether the round has moved or released a capsule.
func (r *DrainRound) acted() bool { return len(r.Moved)+len(r.Released) > 0 }

const (
	// drainPace is the shortest pause of Run between two passes, unless there is more to do at once. After that pause
	// Run waits for a change that may help, for drainPoll at most.
	drainPace, drainPoll = 10 * time.Millisecond, time.Second
	// drainShare: after a pass Run pauses for at least this many times as long as the pass has taken, so that passes
	// take at most a fifth of the time.
	drainShare = 4
	// mostDrainErrors is how many errors a round keeps at most.
	mostDrainErrors = 16
)

// Run calls Pass until ctx ends, and then returns nil. It begins a pass when a change of the ledger may let something
// move that could not move before, and after about a second in any case. Without a Ledger it returns an error that
// wraps [orbit.ErrInvalid].
//
// The ledger judges a move by the rules for all evictions: gangs keep their minimums, and groups their budgets. If a
// capsule cannot be moved, Drain tries again after a change of the ledger that may help. A cordoned node takes no new
// work. So that no capsule is moved to a node that is drained later, cordon all nodes before you drain the first of
// them. Drain begins with the node that has the fewest capsules left, and on each node with the highest priority.
//
// A capsule that permits it ([orbit.Spec].Surge) is moved by a surge: it runs on until it is ready at its new place. If that
// is not possible, it is moved without one.
//
// A member of a gang stays in the narrowest domain that it shares with the other placed members, unless the gang's
// levels are only a preference (Gang.Loose). Drain leaves holds alone, because they end by themselves. It also leaves
// the capsules of Lost nodes alone, because package lease releases them.
//
// From a node with a NoExecute taint ([orbit.Taint]) Drain moves, in the same way, the capsules that do not tolerate
// the taint. A capsule that tolerates it for some time is moved when that time is over, counted from when Drain first
// saw the taint, or from the capsule's placement if that is later. Such capsules go to nodes without such a taint. None
// is released to pending, and all other capsules stay.
//
// A pass costs a look at each node that has changed since the last pass and at each capsule on a node with such a
// taint, and a choice of a node for each capsule that is to be moved.
func (d *Drain) Run(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	found := ""
	for ctx.Err() == nil {
		start := time.Now()
		round := d.Pass(ctx)
		now := round.found()
		if d.OnRound != nil && ctx.Err() == nil && (round.acted() || len(round.Emptied)+len(round.Errors) > 0 || now != found) {
			d.OnRound(round)
		}
		found = now
		if !round.full || !round.acted() {
			send.Pause(ctx, max(drainPace, drainShare*time.Since(start)))
			d.rest(ctx, &round)
		}
	}
	return nil
}

// rest waits until the ledger has a change that may help, or until drainPoll has passed.
func (d *Drain) rest(ctx context.Context, round *DrainRound) {
	ctx, cancel := context.WithTimeout(ctx, drainPoll)
	defer cancel()
	for changes, err := range orbit.Follow(ctx, d.Ledger, round.View) {
		if errors.Is(err, orbit.ErrCompacted) || slices.ContainsFunc(changes, round.helpedBy) {
			return
		}
	}
	<-ctx.Done() // Follow has ended before its time, by an error of the ledger, which the next pass reports
}

// helpedBy reports whether a change may free room, cordon a node, or make a rule allow a move that it has refused in
// the round.
func (r *DrainRound) helpedBy(c orbit.Change) bool {
	switch do := c.Do.(type) {
	case orbit.Submit, orbit.Hold, orbit.Assign, orbit.Mark:
		return false
	case orbit.Place:
		return r.ruled
	case orbit.Nominate:
		return len(do.Parts) == 0
	case orbit.Protect:
		return do.For == 0
	}
	return true
}

func (d *Drain) check() error {
	if d.Ledger == nil {
		return fmt.Errorf("nav: %w: Drain.Ledger is nil; set it before first use", orbit.ErrInvalid)
	}
	return nil
}

// Pass does one round: it moves what can be moved now. If it is not known whether the ledger has committed a move,
// because the answer was lost, a later pass plans that move again. Each move names the placement that it ends, so the
// second one is refused if the first was committed.
func (d *Drain) Pass(ctx context.Context) (round DrainRound) {
	if err := d.check(); err != nil {
		round.fail(err)
		return round
	}
	if d.Placement == nil {
		d.Placement = &place.Indexed{}
	}
	now := time.Now()
	if err := d.view.Refresh(ctx, d.Ledger, d.Telemetry, now); err != nil {
		round.fail(fmt.Errorf("nav: drain: view: %w", err))
	}
	if round.View = d.view.Revision(); !d.view.Now().Equal(now) { // the ledger has failed; telemetry may, and leaves old reports
		return round
	}
	d.follow(&round)
	d.draft.Sync(&d.view)
	p := drainPass{Drain: d, state: d.view.State(), round: &round, most: cmp.Or(d.MaxMoves, 1000),
		tried: map[orbit.GangID]error{}, thinned: map[orbit.GangID]bool{}, full: map[*orbit.Spec]error{}}
	p.plan(ctx)
	p.send(ctx)
	// A rule that has refused a move may allow it now, because other capsules have been placed again.
	round.full = round.full || round.ruled && round.acted()
	slices.SortStableFunc(round.Nodes, func(a, b DrainNode) int { return cmp.Or(a.Left-b.Left, cmp.Compare(a.Node, b.Node)) })
	return round
}

// follow files the nodes that have changed since the last pass, or all nodes if the view does not know which have.
func (d *Drain) follow(round *DrainRound) {
	changed, next, all := d.view.Changed(d.cursor)
	d.cursor = next
	state := d.view.State()
	if all {
		d.cordoned = map[int32]*cordonedNode{}
		maps.DeleteFunc(d.tainted, func(i int32, _ *taintedNode) bool { return state.NodeByIndex(int(i)) == nil })
		for n := range state.Nodes() {
			round.Looked++
			d.file(n.Index(), n)
		}
		return
	}
	for _, i := range changed {
		round.Looked++
		d.file(int(i), state.NodeByIndex(int(i)))
	}
}

// file notes whether the node with this index is cordoned or tainted; a nil node is one that has left.
func (d *Drain) file(index int, n *orbit.NodeState) {
	d.fileTaints(int32(index), n)
	known := d.cordoned[int32(index)]
	switch {
	case n == nil || n.Node.State != orbit.Cordoned:
		delete(d.cordoned, int32(index))
	case known == nil || known.id != n.Node.ID:
		d.cordoned[int32(index)] = &cordonedNode{id: n.Node.ID}
	}
}

// fileTaints notes which NoExecute taints a node has, and since when.
func (d *Drain) fileTaints(index int32, n *orbit.NodeState) {
	known := d.tainted[index]
	delete(d.tainted, index)
	if n == nil || n.Node.State == orbit.Lost {
		return
	}
	now := &taintedNode{n.Node.ID, map[orbit.Taint]time.Time{}}
	for _, t := range n.Node.Taints {
		if t.Effect != "NoExecute" {
			continue
		}
		now.since[t] = d.view.Now()
		if known != nil && known.id == now.id && !known.since[t].IsZero() {
			now.since[t] = known.since[t]
		}
	}
	if len(now.since) > 0 {
		if d.tainted == nil {
			d.tainted = map[int32]*taintedNode{}
		}
		d.tainted[index] = now
	}
}

// drained returns the nodes to drain that are not empty, the fewest capsules first, and enters those that have become
// empty into the round.
func (d *Drain) drained(round *DrainRound) (out []*orbit.NodeState) {
	for _, i := range slices.Sorted(maps.Keys(d.cordoned)) {
		round.Looked++
		n, known := d.view.State().NodeByIndex(int(i)), d.cordoned[i]
		if d.Drains != nil && !d.Drains(n.Node) {
			known.empty = false
			continue
		}
		was := known.empty
		if known.empty = n.Capsules+n.Holds()+d.stopping(n) == 0; !known.empty {
			out = append(out, n)
		} else if !was {
			round.Emptied = append(round.Emptied, n.Node.ID)
		}
	}
	slices.SortStableFunc(out, func(a, b *orbit.NodeState) int {
		return cmp.Or(a.Capsules-b.Capsules, cmp.Compare(a.Node.ID, b.Node.ID))
	})
	return out
}

// stopping counts the capsules that were taken off a node and have not stopped.
func (d *Drain) stopping(n *orbit.NodeState) (count int) {
	for range d.view.State().Remains(n.Node.ID) {
		count++
	}
	return count
}

// fail adds an error to the round, unless it has mostDrainErrors already.
func (r *DrainRound) fail(err error) {
	if len(r.Errors) < mostDrainErrors {
		r.Errors = append(r.Errors, err)
	}
}
