package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// Members keeps nodes under leases: the name of a lease is the id of a node. Set the fields before first use. All
// methods may be called from any goroutine. If the Leases have [Keeper.Refreshes], any number of processes may run
// Members on one ledger; otherwise only one.
//
//	Join: PutNode, Mark "live" ─► member ── lease over: Mark "over", PutNode Cordoned ─► cordoned
//	        ▲                                                                                   │
//	        └── Join within Gone: keeps its capsules, takes work again ─────────────────────────┤
//	                                                                                  for Gone  ▼
//	(none) ◄── row swept: Mark "", RemoveNode ── empty ◄── PutNode Lost, Release of its capsules and holds ── lost
//
// [Members.Step] says what is one commit, and who decides about a node.
type Members struct {
	// Leases is the keeper of the nodes' leases. Do not call its Run or Step, because Members does. Required.
	Leases *Keeper
	// Gone is how long after the end of its lease a node counts as lost; default 5 min. A node is not lost earlier than
	// one TTL after this process has read of the end, so that nodes have time to come back after an outage of
	// everything.
	Gone time.Duration
	// MaxLoss is the share of all nodes that may be lost at once; default 0.5; 1 or more: all nodes. If the leases of a
	// larger share, and of at least three nodes, end within Gone of each other, the nodes are cordoned, but nothing is
	// taken off them until enough of them have come back or [Members.AcceptLoss] is called. Until then each step lists
	// them in MemberRound.Held. All processes should have the same MaxLoss.
	MaxLoss float64
	// Hook, if set, is called by Run after a step that has done something or failed. It must not block for long.
	Hook func(MemberRound)
}

// MemberRound is what one step of [Members] did.
type MemberRound struct {
	// Round is the round of the leases. The nodes of ended terms were cordoned, those of swept rows were removed.
	Round
	// Released are the capsules that were returned to pending.
	Released []orbit.CapsuleID
	// Holds are the holds that were released.
	Holds []orbit.HoldID
	// Cordoned are the nodes that were cordoned by a separate commit, because the end of their lease had been committed
	// without a cordon.
	Cordoned []orbit.NodeID
	// Held are the lost nodes that were not emptied because too many were lost at once; see [Members.MaxLoss].
	Held []orbit.NodeID
}

func (r *MemberRound) active() bool {
	return r.Round.active() || len(r.Released)+len(r.Holds)+len(r.Cordoned)+len(r.Held) > 0
}

// DefaultSlots is the number of slots (orbit.Slots) of a node that joins without any: the number of addresses that one
// host has for its sandboxes.
const DefaultSlots = 16_384

const defaultGone = 5 * time.Minute

var errNoMembersLeases = fmt.Errorf("lease: %w: Members.Leases is nil; set it before first use", orbit.ErrInvalid)

// Join lets a node take work under a new term: one commit puts the node and begins the term. A node without Slots gets
// [DefaultSlots]. A node that was declared Lost joins empty: the same commit releases everything that is left on it,
// removes it and puts it anew. The error wraps [orbit.ErrUnavailable] if one commit cannot release that much; try again
// later, when steps have released more.
//
// If the ledger knows the node already, the two descriptions are merged, and the node is put only if that changes it:
//
//	Capacity, Confirms, model and number of devices   as the node joins
//	Labels, Extras, Taints (by key and effect)        those with which the node joins replace known ones; all others stay
//	Devices.Unhealthy                                 an instance is unhealthy if either says so
//	State                                             as known, but Ready again if Members has cordoned or lost the node
//
// So what an operator has said stays until an operator takes it back. The same holds for a label, taint or extra that
// the node no longer joins with.
//
// The holder should be the name of the machine, because the node's capsules may run there: see [Keeper.Acquire] for
// holders that start again. After the end of a term, another holder is refused with [ErrHeld] for as long as capsules
// that have begun under that term may still run ([Members.Fence]).
//
// All other errors are those of [Keeper.Acquire]. [ErrTooMany] means that the node has begun too many terms
// ([Keeper.Terms], by default 20 at once and 20 an hour); try again at the error's Until. Either the node flaps, or TTL
// is much shorter than its default and Terms should be higher.
func (m *Members) Join(ctx context.Context, node orbit.Node, holder string) (Term, error) {
	if err := m.check(); err != nil {
		return Term{}, err
	}
	if node.Capacity[orbit.Slots] == 0 {
		node.Capacity[orbit.Slots] = DefaultSlots
	}
	return m.Leases.acquire(ctx, string(node.ID), holder, m.joining(node, holder))
}

// check returns what is missing for Members to work.
func (m *Members) check() error {
	if m.Leases == nil {
		return errNoMembersLeases
	}
	return m.Leases.check()
}

// joining returns the rider that puts the node together with a new term of the holder.
func (m *Members) joining(wanted orbit.Node, holder string) rider {
	return func(state *orbit.State, le *lease) (do []orbit.Commitment, bets []orbit.Precondition, err error) {
		known := state.Node(wanted.ID)
		if known == nil {
			return []orbit.Commitment{orbit.PutNode{Node: wanted}}, nil, nil
		}
		if err := m.otherMachine(state, known, le, holder); err != nil {
			return nil, nil, err
		}
		node := merged(&wanted, known.Node)
		if lost := known.Node.State == orbit.Lost; lost && le.kept || !lost && !known.Node.Schedulable() && !cordonedBy(known, le) {
			node.State = orbit.Cordoned
		}
		switch {
		case known.Node.State == orbit.Lost:
			do = append(do, orbit.RemoveNode{Node: node.ID, Gone: true}, orbit.PutNode{Node: node})
		case !sameNode(known.Node, &node):
			do = append(do, orbit.PutNode{Node: node})
		}
		return do, []orbit.Precondition{asIs(known)}, nil
	}
}

// merged returns the description of a node that joins and is known; see [Members.Join]. It changes neither.
func merged(joins, known *orbit.Node) orbit.Node {
	node := *joins
	if len(known.Labels) > 0 {
		node.Labels = maps.Clone(known.Labels)
		maps.Copy(node.Labels, joins.Labels)
	}
	node.Taints = slices.Clone(joins.Taints)
	for _, t := range known.Taints {
		if !slices.ContainsFunc(joins.Taints, func(j orbit.Taint) bool { return j.Key == t.Key && j.Effect == t.Effect }) {
			node.Taints = append(node.Taints, t)
		}
	}
	node.Extras = slices.Clone(joins.Extras)
	for _, x := range known.Extras {
		if !slices.ContainsFunc(joins.Extras, func(j orbit.Extra) bool { return j.Name == x.Name }) {
			node.Extras = append(node.Extras, x)
		}
	}
	if n := node.Devices.Count; node.Devices.Model == known.Devices.Model && n > 0 {
		node.Devices.Unhealthy |= known.Devices.Unhealthy & (1<<n - 1)
	}
	return node
}

// withdrawals returns the ends of the nominations on a node that leaves. Otherwise one whose engine does not run would keep
// the node for as long as engines let a nomination last.
func withdrawals(n *orbit.NodeState) (do []orbit.Commitment) {
	for of := range n.Nominated {
		do = append(do, orbit.Nominate{Capsule: of.Capsule, Gang: of.Gang, Since: of.Made})
	}
	return do
}

// cordonedBy reports whether the node was last put by the commit that ended the lease. After a later PutNode of another
// client, Members leaves the node alone. A PutNode that only cordons it a second time changes nothing, so nobody can know of
// it.
func cordonedBy(n *orbit.NodeState, le *lease) bool {
	return le.state == isOver && !n.Node.Schedulable() && n.Specification == le.at
}

// asIs returns the bet that the node has not been put since it was read.
func asIs(n *orbit.NodeState) orbit.Precondition {
	return orbit.NodeAt{Node: n.Node.ID, Specification: n.Specification}
}

func sameNode(a, b *orbit.Node) bool {
	return a.ID == b.ID && a.Capacity == b.Capacity && maps.Equal(a.Labels, b.Labels) && a.Devices == b.Devices &&
		a.State == b.State && a.Confirms == b.Confirms && sameSet(a.Taints, b.Taints) && sameSet(a.Extras, b.Extras)
}

// sameSet reports whether two lists without repetitions have the same elements, in any order.
func sameSet[T comparable](a, b []T) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x T) bool { return !slices.Contains(b, x) })
}

// Step does one round. It first does the round of the leases, as [Keeper.Step] does; the commit that ends a lease also
// cordons the node, and the commit that sweeps a row also removes the node. Then Step releases the capsules and holds
// on lost nodes, at most 1,000 in a proposal and about 4,000 in a step. The error joins the errors in the round.
//
// Members guarantees:
//
//   - Each of these pairs is one commit: the end of a term and the cordon of its node; the beginning of a term and the
//     undoing of that cordon; the sweep of a row and the removal of its node.
//   - A proposal that takes a capsule off a node bets on the row that says that the lease is over. So a node that comes
//     back in time keeps its capsules.
//   - The proposal also requires that the capsule is still on that node, and a cordoned node takes no new capsules. So
//     each capsule is released once, even if several processes run Members.
//
// A new term makes a node schedulable again only if Members has cordoned it. A PutNode of another client has
// precedence: a node that was unschedulable before, or was put while it was cordoned, stays as that client put it, also
// if it is lost in between. If another client makes a node without a lease schedulable, Members leaves the node and
// everything on it alone.
//
// A node is described by the party that joins it, such as its agent, and by operators, who may put it at any time.
// [Members.Join] says who decides what. What an operator has said is forgotten when the node is removed, which is when it
// has been away and empty for [Keeper.Sweep].
func (m *Members) Step(ctx context.Context) (MemberRound, error) {
	var round MemberRound
	if m.Leases == nil {
		return round, errNoMembersLeases
	}
	leave, err := m.Leases.enter(ctx)
	if err != nil {
		return round, err
	}
	defer leave()
	with := riders{ending: cordon, sweeping: remove, ready: emptied}
	round.Round = m.Leases.step(ctx, with)
	if !round.failed {
		m.evacuate(ctx, &round)
	}
	m.Leases.conclude(&round.Round, with.ready)
	return round, errors.Join(round.Errors...)
}

// Run steps whenever there is something to do and at least every second, until ctx ends, and then returns nil. Errors
// of steps are in the rounds that Hook is called with. If the Leases are missing,
// or [Keeper.Run] would refuse them, it returns an error that wraps [orbit.ErrInvalid].
func (m *Members) Run(ctx context.Context) error {
	if err := m.check(); err != nil {
		return err
	}
	m.Leases.init()
	loop(ctx, m.Leases.wake, func() (time.Duration, bool) {
		began := m.Leases.clock()
		round, _ := m.Step(ctx)
		if m.Hook != nil && round.active() && ctx.Err() == nil {
			m.Hook(round)
		}
		return m.Leases.untilNext(began, round.Next, round.active()), round.healthy()
	})
	return nil
}

// cordon is the rider that makes the node unschedulable together with the end of its lease.
func cordon(state *orbit.State, le *lease) ([]orbit.Commitment, []orbit.Precondition, error) {
	n := state.Node(orbit.NodeID(le.name))
	if n == nil || !n.Node.Schedulable() {
		return nil, nil, nil
	}
	node := n.Node.Clone()
	node.State = orbit.Cordoned
	return []orbit.Commitment{orbit.PutNode{Node: node}}, []orbit.Precondition{asIs(n)}, nil
}

var errNotEmpty = errors.New("something is left on the node")

// remove is the rider that removes an unschedulable node together with the sweep of its row, if nothing is left on it.
func remove(state *orbit.State, le *lease) ([]orbit.Commitment, []orbit.Precondition, error) {
	n := state.Node(orbit.NodeID(le.name))
	switch {
	case n == nil || n.Node.Schedulable():
		return nil, nil, nil
	case le.member.empty != n.Usage:
		return nil, nil, errNotEmpty
	}
	return append(withdrawals(n), orbit.RemoveNode{Node: n.Node.ID}), []orbit.Precondition{asIs(n)}, nil
}

// emptied reports whether a row may be swept: nothing is left on its node.
func emptied(le *lease) bool { return le.member.empty != 0 }

// Fence returns for how long after the last refresh of a node's term no process returns the node's capsules to pending,
// even if the processes' clocks differ. It is TTL, or half of TTL with [Keeper.Refreshes], plus the lesser of TTL and
// Gone. A node that cannot refresh its term must have stopped everything by then, because its capsules may run
// elsewhere after that. Fence does not hold for a node that another client puts as Lost, or after [Keeper.Resign].
func (m *Members) Fence() time.Duration {
	if m.Leases == nil {
		return 0
	}
	return m.Leases.ttl() - m.Leases.slack() + min(m.gone(), m.Leases.ttl())
}

// Waits returns how long the holder that was refused with [ErrRunning] has to wait if the other run has died, and for
// how long at least from now on no process returns the node's capsules to pending.
func (m *Members) Waits(running *Error) (wait, fence time.Duration) {
	wait = max(0, running.Until.Sub(m.Leases.clock()))
	return wait, wait + m.Fence() - m.Leases.ttl()/2 // at Until the last refresh is half of TTL old
}

func (m *Members) gone() time.Duration { return cmp.Or(max(m.Gone, 0), defaultGone) }
