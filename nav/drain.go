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

// Drain takes cordoned nodes out of use: it moves what runs there to other nodes, each capsule by a proposal of its own that takes it
// off its node and places it again, so that nothing is down for want of a place. It is no navigator, because it has work while nothing
// is pending, and needs no engine: Run it beside the engines, in one process or in several.
//
//	Cordon the node ─► Drain moves ─┬─ it fits elsewhere ────────────────────────► moved
//	                                ├─ it fits nowhere, or a rule refuses, may wait ─► back to pending
//	                                └─ otherwise ─────────────────────────────────► stays, and the round says why
//
// The ledger judges each move like everybody's: gangs keep their minimums. Drain waits until a change of the ledger
// may help, and tries again. Only a node that is cordoned is drained, so work never moves onto a node that is to be drained with
// it: cordon together what is drained together. The node with the least left comes first, and on it the highest priority.
//
// A member of a gang stays in the narrowest domain that it shares with the other members that are placed, unless the gang's levels
// are a preference. Holds, and what is placed on a node that is Lost, are not for Drain: holds end by themselves, and package lease
// gives up what is lost.
//
// A pass costs what has changed since the last one, and a choice of a node for each capsule on the nodes that are drained. Set the
// fields before first use, and call Pass or Run from one goroutine at a time.
type Drain struct {
	// Ledger is the ledger whose nodes are drained. Required.
	Ledger orbit.Ledger
	// Telemetry is where the placement engine gets reports of nodes from; nil: none.
	Telemetry orbit.Telemetry
	// Placement chooses where capsules go; it belongs to this Drain alone. Nil: a [place.Indexed]. If navigators have a filter, give
	// it the same.
	Placement orbit.PlacementEngine
	// Drains reports whether a cordoned node is to be emptied; nil: all are. Set it where nodes are cordoned for other reasons
	// too: lease.Members cordons those that have not been heard of, which may come back.
	Drains func(*orbit.Node) bool
	// MayWait reports whether a capsule that cannot be moved is released back to pending; nil: none is. Of a gang of which one
	// more would break a minimum all members are released, if all of them may wait.
	MayWait func(*orbit.Capsule) bool
	// MaxMoves bounds how many capsules a pass moves and releases; default 1,000.
	MaxMoves int
	// OnRound is called by Run after every pass that has done something, or finds something else than the one before; nil:
	// not called.
	OnRound func(DrainRound)

	view   orbit.View
	draft  orbit.Draft
	cursor uint64
	// The cordoned nodes by their index.
	cordoned map[int32]*cordonedNode
}

// cordonedNode is what is remembered of a node.
type cordonedNode struct {
	id orbit.NodeID
	// It was reported to be empty.
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
	// Emptied are the nodes that are drained and have nothing left, nor anything that has left and not stopped; each is named once.
	Emptied []orbit.NodeID
	// Nodes are the other nodes that are drained, the least left first.
	Nodes []DrainNode
	// Conflicts counts the proposals that lost to another commit; their capsules are planned again.
	Conflicts int
	// Errors are all errors but conflicts and refusals: those of the ledger and of the telemetry, at most 16.
	Errors []error
	// Looked counts the nodes and capsules that the pass has looked at, without those that the placement engine has.
	Looked int

	// Something was refused by a rule and not for want of room; there is more to do at once.
	ruled, full bool
}

// DrainNode is how far the draining of a node is.
type DrainNode struct {
	// Node is the node.
	Node orbit.NodeID
	// Left is how many capsules are left on it.
	Left int
	// Holds is how many holds are left on it.
	Holds int
	// Stopping is how many capsules have left it and have not stopped ([orbit.Remains]): the node must not be switched off yet.
	Stopping int
	// Blocked says what keeps those that could not be moved.
	Blocked []orbit.Unplaced
}

// mostBlocked is how many capsules a text of a node names.
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

// whyStays returns the text of an error without what a proposer is told to do.
func whyStays(err error) string {
	var r *orbit.Rejection
	if errors.As(err, &r) {
		return r.Reason
	}
	return err.Error()
}

// String sums the round up, a line for each node.
func (r DrainRound) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "drain at %d: %d moved, %d released, %d conflicts, %d errors", r.View, len(r.Moved), len(r.Released), r.Conflicts, len(r.Errors))
	for _, id := range r.Emptied {
		fmt.Fprintf(&b, "\n%s: empty", id)
	}
	for i := range r.Nodes {
		fmt.Fprintf(&b, "\n%v", r.Nodes[i])
	}
	return b.String()
}

// found returns what the round says of the nodes, without counting the nodes on which something does not fit: that costs a look at
// each node.
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

func (r *DrainRound) acted() bool { return len(r.Moved)+len(r.Released) > 0 }

const (
	// drainPace is the shortest wait between two passes, unless there is more to do at once; drainPoll is the longest.
	drainPace, drainPoll = 10 * time.Millisecond, time.Second
	// drainShare bounds the share of time that passes take: one in drainShare + 1.
	drainShare = 4
	// mostDrainErrors is how many errors a round keeps.
	mostDrainErrors = 16
)

// Run passes whenever something may be moved that could not be before, and at least every second, until ctx ends, and then
// returns nil. Without a Ledger it returns an error that wraps [orbit.ErrInvalid].
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
		if !round.full {
			send.Pause(ctx, max(drainPace, drainShare*time.Since(start)))
			d.rest(ctx, &round)
		}
	}
	return nil
}

// rest waits until a change may help.
func (d *Drain) rest(ctx context.Context, round *DrainRound) {
	ctx, cancel := context.WithTimeout(ctx, drainPoll)
	defer cancel()
	for changes, err := range orbit.Follow(ctx, d.Ledger, round.View) {
		if errors.Is(err, orbit.ErrCompacted) || slices.ContainsFunc(changes, round.helpedBy) {
			return
		}
	}
	<-ctx.Done() // an error of the ledger: the next pass reports it
}

// helpedBy reports whether a change may make room, cordon a node, or end what a rule refuses.
func (r *DrainRound) helpedBy(c orbit.Change) bool {
	switch do := c.Do.(type) {
	case orbit.Submit, orbit.Hold, orbit.Assign, orbit.Mark:
		return false
	case orbit.Place:
		return r.ruled
	case orbit.Nominate:
		return len(do.Parts) == 0
	}
	return true
}

func (d *Drain) check() error {
	if d.Ledger == nil {
		return fmt.Errorf("nav: %w: Drain.Ledger is nil; set it before first use", orbit.ErrInvalid)
	}
	return nil
}

// Pass does one round: it moves what can be moved now. What a ledger that is slow to answer may or may not have
// committed is planned again; each move names the placement that it ends, so it has one effect.
func (d *Drain) Pass(ctx context.Context) (round DrainRound) {
	if err := d.check(); err != nil {
		round.fail(err)
		return round
	}
	if d.Placement == nil {
		d.Placement = &place.Indexed{}
	}
	if err := d.view.Refresh(ctx, d.Ledger, d.Telemetry, time.Now()); err != nil {
		round.fail(fmt.Errorf("nav: drain: view: %w", err))
		return round
	}
	round.View = d.view.Revision()
	d.follow(&round)
	d.draft.Sync(&d.view)
	p := drainPass{Drain: d, state: d.view.State(), round: &round, most: cmp.Or(d.MaxMoves, 1000), tried: map[orbit.GangID]error{}, thinned: map[orbit.GangID]bool{}, full: map[*orbit.Spec]error{}}
	p.plan(ctx)
	p.send(ctx)
	round.full = round.full || round.ruled && round.acted() // what is placed again may let others go
	slices.SortStableFunc(round.Nodes, func(a, b DrainNode) int { return cmp.Or(a.Left-b.Left, cmp.Compare(a.Node, b.Node)) })
	return round
}

// follow finds the nodes that are cordoned, among those that have changed.
func (d *Drain) follow(round *DrainRound) {
	changed, next, all := d.view.Changed(d.cursor)
	d.cursor = next
	state := d.view.State()
	if all {
		d.cordoned = map[int32]*cordonedNode{}
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

// file notes whether a node is cordoned; nil: there is none any more.
func (d *Drain) file(index int, n *orbit.NodeState) {
	known := d.cordoned[int32(index)]
	switch {
	case n == nil || n.Node.State != orbit.Cordoned:
		delete(d.cordoned, int32(index))
	case known == nil || known.id != n.Node.ID:
		d.cordoned[int32(index)] = &cordonedNode{id: n.Node.ID}
	}
}

// drained returns the nodes that are drained and not empty, the least left first.
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

// stopping counts what has left a node and has not stopped.
func (d *Drain) stopping(n *orbit.NodeState) (count int) {
	for range d.view.State().Remains(n.Node.ID) {
		count++
	}
	return count
}

// fail adds an error, up to a limit.
func (r *DrainRound) fail(err error) {
	if len(r.Errors) < mostDrainErrors {
		r.Errors = append(r.Errors, err)
	}
}
