package telemetry

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/orbitsched/orbit"
)

// Members keeps nodes under leases: the name of a lease is the id of a node. Set the fields before first use. All methods
// may be called from any goroutine; any number of processes may run it over one ledger.
//
//	Join: PutNode, Mark "live" ─► member ── lease over: Mark "over", PutNode unschedulable ─► cordoned
//	        ▲                                                                                   │
//	        └── Join within Gone: keeps its capsules, takes work again ─────────────────────────┤
//	                                                                                  for Gone  ▼
//	(none) ◄── row swept: Mark "", RemoveNode ── empty ◄── Release of its capsules and holds ── lost
//
// What holds: the end of a term and the cordon of its node are one commit, and so are a new term and its undoing, and
// the sweep of a row and the removal of its node. A capsule is taken off a node only by a proposal that bets on the
// row that says so, so a node that came back in time keeps its capsules, and several processes release each once. A
// node that somebody else has put since, or had made unschedulable before, stays as they want it.
type Members struct {
	// Leases of the nodes. Members steps them: do not run them besides. Required.
	Leases *Leases
	// Gone is how long after the end of its lease a node is lost for good; default 5 min.
	Gone time.Duration
	// Hook, if set, is called by Run after a step that has done something or failed. It must not block for long.
	Hook func(MemberRound)
}

// MemberRound is what one step of [Members] did.
type MemberRound struct {
	// Terms that ended, whose nodes were cordoned with that; and rows swept, whose nodes were removed.
	LeaseRound
	// Capsules returned to pending.
	Released []orbit.CapsuleID
	// Holds released.
	Holds []orbit.HoldID
	// Nodes cordoned because somebody else had ended their lease.
	Cordoned []orbit.NodeID
}

func (r *MemberRound) active() bool {
	return r.LeaseRound.active() || len(r.Released)+len(r.Holds)+len(r.Cordoned) > 0
}

// memberNote is what Members knows of a lease that is over, in this process and while its row stays as it is.
type memberNote struct {
	checked bool           // its node was cordoned, or is somebody else's business
	empty   orbit.Revision // when the use of its node last changed, at which nothing was left on it
}

const (
	defaultGone  = 5 * time.Minute
	defaultSlots = 16_384
)

func (m *Members) gone() time.Duration { return cmp.Or(max(m.Gone, 0), defaultGone) }

// Join lets a node take work under a new term: the node and the term are one commit. A node without Slots gets 16,384.
// One that is a member already is put only if its description differs; it is schedulable again if it was
// Members who cordoned it, and stays unschedulable if somebody else did. The errors are those of [Leases.Acquire].
func (m *Members) Join(ctx context.Context, node orbit.Node, holder string) (Term, error) {
	if node.Capacity[orbit.Slots] == 0 {
		node.Capacity[orbit.Slots] = defaultSlots
	}
	return m.Leases.acquire(ctx, string(node.ID), holder, func(state *orbit.State, le *lease) ([]orbit.Commitment, []orbit.Precondition, bool) {
		known, node := state.Node(node.ID), node
		if known == nil {
			return []orbit.Commitment{orbit.PutNode{Node: node}}, nil, true
		}
		if known.Node.Unschedulable && !cordonedBy(known, le) {
			node.Unschedulable = true
		}
		bets := []orbit.Precondition{orbit.NodeAt{Node: node.ID, Specification: known.Specification}}
		if sameNode(known.Node, &node) {
			return nil, bets, true
		}
		return []orbit.Commitment{orbit.PutNode{Node: node}}, bets, true
	})
}

// cordonedBy reports whether the node was made unschedulable in the very commit that ended the lease. Whoever puts the
// node later makes it theirs.
func cordonedBy(n *orbit.NodeState, le *lease) bool {
	return le.state == isOver && n.Node.Unschedulable && n.Specification == le.at
}

func sameNode(a, b *orbit.Node) bool {
	return a.ID == b.ID && a.Capacity == b.Capacity && maps.Equal(a.Labels, b.Labels) && a.Devices == b.Devices &&
		a.Unschedulable == b.Unschedulable
}

// Step does one round: that of the leases, in which the nodes of those that end are cordoned and the nodes of rows
// that are swept leave; and then it takes capsules and holds off nodes that are lost.
func (m *Members) Step(ctx context.Context) (MemberRound, error) {
	l := m.Leases
	l.init()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return MemberRound{}, ctx.Err()
	}
	defer func() { <-l.turn }()
	round := MemberRound{}
	round.LeaseRound, _ = l.step(ctx, cordon, remove)
	if err := m.evacuate(ctx, &round); err != nil {
		round.fail(err)
	}
	return round, errors.Join(round.Errors...)
}

// Run steps whenever there is something to do, and every second, until ctx ends; it returns the context's error.
func (m *Members) Run(ctx context.Context) error {
	return loop(ctx, func() (time.Duration, bool) {
		round, err := m.Step(ctx)
		if m.Hook != nil && round.active() && ctx.Err() == nil {
			m.Hook(round)
		}
		return m.Leases.untilNext(round.Next), err == nil && round.Conflicts == 0
	})
}

// cordon rides on the end of a lease.
func cordon(state *orbit.State, le *lease) ([]orbit.Commitment, []orbit.Precondition, bool) {
	n := state.Node(orbit.NodeID(le.name))
	if n == nil || n.Node.Unschedulable {
		return nil, nil, true
	}
	node := *n.Node
	node.Unschedulable = true
	return []orbit.Commitment{orbit.PutNode{Node: node}}, []orbit.Precondition{orbit.NodeAt{Node: node.ID, Specification: n.Specification}}, true
}

// remove rides on the sweep of a row: an unschedulable node leaves with it, as soon as nothing is left on it.
func remove(state *orbit.State, le *lease) ([]orbit.Commitment, []orbit.Precondition, bool) {
	n := state.Node(orbit.NodeID(le.name))
	if n == nil || !n.Node.Unschedulable {
		return nil, nil, true
	}
	if le.member.empty != n.Usage {
		return nil, nil, false
	}
	return []orbit.Commitment{orbit.RemoveNode{Node: n.Node.ID}}, []orbit.Precondition{orbit.NodeAt{Node: n.Node.ID, Specification: n.Specification}}, true
}
