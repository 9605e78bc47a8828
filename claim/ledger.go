package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// LedgerSource is a [Source] whose slots are the nodes of an [orbit.Ledger]. A node is an idle slot while it has free
// capacity for one capsule of the Spec. The slot's Name is the node's id. Its UID is the revision of the node's
// specification; a node that leaves and joins again gets another one. The zero value works, on a ledger of its own.
//
// A node with free capacity for more than one capsule is idle again as soon as it has been claimed. Several pools can
// share a ledger if each pool's Spec requires a label of its own.
//
// If the Spec asks for devices, a listing names the instances that a claim takes, chosen for the best fit. If they have
// been taken by the time of the claim, the claim is a conflict, and the next listing names other instances if enough
// are free.
//
// LedgerSource is a [Follower]: it waits for changes of the ledger, so its pool needs neither NotifyIdle nor a delay.
type LedgerSource struct {
	// Ledger is the ledger that has the nodes. Nil: the source makes an orbit.MemoryLedger.
	Ledger orbit.Ledger
	// Spec is the spec of the capsule that a claim places. Nil: one that takes one of orbit.Slots, and nothing else.
	Spec *orbit.Spec

	once sync.Once
	own  orbit.MemoryLedger
	book orbit.Ledger
	spec *orbit.Spec
	// shared is the ledger's own copy of spec; nil: not known yet. The ledger does not validate it again, which makes
	// proposals with it cheaper.
	shared atomic.Pointer[orbit.Spec]
}

var _ Follower = (*LedgerSource)(nil)

// Capsule is the type of Request.Options that a [LedgerSource] accepts. The zero value has the defaults of all fields.
type Capsule struct {
	// ID is the capsule's id. If it is in use, the request is answered with an error that wraps orbit.ErrInvalid.
	// Empty: the source makes an id from the attempt's id.
	ID orbit.CapsuleID
	// Note is kept with the placement; default empty.
	Note string
	// Owner is the engine that the capsule is assigned to; empty: none.
	Owner string
}

func (s *LedgerSource) init() {
	s.once.Do(func() {
		s.book, s.spec = s.Ledger, s.Spec
		if s.book == nil {
			s.book = &s.own
		}
		if s.spec == nil {
			s.spec = &orbit.Spec{Module: "claim", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.Slots: 1}}}
		}
	})
}

// Book returns the ledger that the source uses: the field Ledger, or the one that the source has made.
func (s *LedgerSource) Book() orbit.Ledger {
	s.init()
	return s.book
}

// Join adds nodes with the capacity and the whole devices of exactly one claim. Each of them is one idle slot; any
// other node of the ledger that fits the Spec is a slot as well. A node that the ledger has already stays as it is. If
// the ledger's limits require several proposals, Join sends them in order and stops at the first error.
func (s *LedgerSource) Join(ctx context.Context, nodes ...orbit.NodeID) error {
	s.init()
	state, err := s.book.Snapshot(ctx)
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(id orbit.NodeID) bool { return state.Node(id) != nil })
	node := orbit.Node{Capacity: s.spec.Envelope.Reservation}
	if want := s.spec.Devices; want.Count > 0 {
		node.Devices = orbit.Devices{Model: slices.Concat(want.Models, []string{"device"})[0], Count: want.Count}
	}
	for some := range slices.Chunk(nodes, s.book.Limits().Commitments) {
		do := make([]orbit.Commitment, len(some))
		for i, id := range some {
			node.ID = id
			do[i] = orbit.PutNode{Node: node}
		}
		if _, err := send.Settle(ctx, s.book, orbit.Proposal{ID: orbit.NewProposalID(), Do: do}); err != nil {
			return err
		}
	}
	return nil
}

// Idle implements [Source]. It lists all nodes that fit the Spec at one revision, in order of their ids.
func (s *LedgerSource) Idle(ctx context.Context) (Listing, error) {
	s.init()
	state, err := s.book.Snapshot(ctx)
	if err == nil {
		err = s.validate(state)
	}
	if err != nil {
		return Listing{}, err
	}
	l := Listing{Version: uint64(state.Revision())}
	for n := range state.Nodes() {
		if n.Fits(s.spec) {
			l.Slots = append(l.Slots, s.slot(n))
		}
	}
	return l, nil
}

// validate returns the error that the ledger would return for a capsule with the spec. It refuses an empty reservation
// too, because claims would never make the node busy.
func (s *LedgerSource) validate(state *orbit.State) error {
	if s.spec.Envelope.Reservation == (orbit.Resources{}) && s.spec.Devices.Count == 0 {
		return fmt.Errorf("claim: ledger source: %w: its Spec reserves nothing, so every node stays idle; reserve one of orbit.Slots", orbit.ErrInvalid)
	}
	submit := orbit.Submit{IDs: []orbit.CapsuleID{"claim"}, Spec: s.spec}
	if err := state.Check(orbit.Proposal{Do: []orbit.Commitment{submit}}); errors.Is(err, orbit.ErrInvalid) {
		return fmt.Errorf("claim: ledger source: %w", err)
	}
	return nil
}

// slot returns a node as a slot. The node must fit the spec.
func (s *LedgerSource) slot(n *orbit.NodeState) Slot {
	devices, _ := n.PickDevices(s.spec)
	uid := strconv.FormatUint(uint64(n.Specification), 10)
	return Slot{Name: string(n.Node.ID), UID: uid, Labels: n.Node.Labels, Devices: devices}
}

// Follow implements [Follower]. It lists the nodes that have changed, as they are at the last change or later. It
// ignores changes that concern no node.
func (s *LedgerSource) Follow(ctx context.Context, after uint64) (Listing, error) {
	s.init()
	for changes, err := range orbit.Follow(ctx, s.book, orbit.Revision(after)) {
		if errors.Is(err, orbit.ErrCompacted) {
			return s.Idle(ctx)
		}
		if err != nil {
			return Listing{}, err
		}
		state, err := s.book.Snapshot(ctx) // after Follow has returned the changes, so that the state includes them
		if err != nil {
			return Listing{}, err
		}
		if l := s.changed(state, changes); len(l.Slots)+len(l.Gone) > 0 {
			return l, nil
		}
	}
	return Listing{}, fmt.Errorf("claim: ledger source: %w", ctx.Err())
}

// changed lists the nodes that the changes concern, as they are in the state.
func (s *LedgerSource) changed(state *orbit.State, changes []orbit.Change) Listing {
	l := Listing{Partial: true, Version: uint64(changes[len(changes)-1].Revision)}
	seen := make(map[orbit.NodeID]bool, len(changes))
	for i := range changes {
		id := changes[i].Node
		if id == "" || seen[id] {
			continue
		}
		seen[id] = true
		if n := state.Node(id); n != nil && n.Fits(s.spec) {
			l.Slots = append(l.Slots, s.slot(n))
		} else {
			l.Gone = append(l.Gone, string(id))
		}
	}
	return l
}

// Claim implements [Source]. The slot that it returns has the id of the placed capsule.
//
// A claim is one proposal that submits a capsule and places it, and bets that the node's specification is the listed
// one. So the capsule is never pending, and no navigator can plan it. The proposal has no bet on free capacity, because
// the ledger checks that itself and refuses the second claim of a slot. The id of the proposal is the id of the
// attempt, so an attempt that is sent twice has one effect. The ledger recognizes a repeated proposal by the record of
// its capsule: it must keep the records of released capsules (orbit.Limits.Terminal) for longer than a proposal can be
// delayed on its way.
//
// The changes of a request ([Request.Apply]) become labels of the capsule: the agent of the node sees them with the
// placement, and the labels of the node belong to its agent.
func (s *LedgerSource) Claim(ctx context.Context, a Attempt) (Slot, uint64, error) {
	s.init()
	capsule, err := s.capsule(&a)
	if err != nil {
		return Slot{}, 0, err
	}
	uid, err := strconv.ParseUint(a.Slot.UID, 10, 64)
	if err != nil || uid == 0 {
		return Slot{}, 0, fmt.Errorf("claim: slot %q: uid %q is not a revision: %w: claim slots as this source has listed them", a.Slot.Name, a.Slot.UID, orbit.ErrInvalid)
	}
	shared, node, changes := s.shared.Load(), orbit.NodeID(a.Slot.Name), a.changes()
	rev, err := s.book.Propose(ctx, orbit.Proposal{
		ID: a.ID,
		Do: []orbit.Commitment{
			orbit.Submit{IDs: []orbit.CapsuleID{capsule.ID}, Spec: cmp.Or(shared, s.spec), Owner: capsule.Owner, Labels: changes.Apply(nil)},
			orbit.Place{Capsule: capsule.ID, Node: node, Devices: a.Slot.Devices, Note: capsule.Note, At: orbit.Instant(time.Now().UnixNano())},
		},
		// There is no bet on free capacity, because the ledger checks that with the placement. An orbit.Draft would add
		// one; it would also need a snapshot for each claim, and could not be shared by concurrent claims.
		If: []orbit.Precondition{orbit.NodeAt{Node: node, Specification: orbit.Revision(uid)}},
	})
	if err != nil {
		return Slot{}, judgedAt(err), refusal(err)
	}
	if shared == nil {
		s.learn(ctx, capsule.ID)
	}
	claimed := a.Slot
	claimed.Capsule, claimed.Labels = capsule.ID, maps.Clone(changes.Apply(claimed.Labels)) // the node's own stay unchanged
	return claimed, uint64(rev), nil
}

// learn remembers the ledger's own copy of the spec, which the record of a claimed capsule has.
func (s *LedgerSource) learn(ctx context.Context, id orbit.CapsuleID) {
	if state, err := s.book.Snapshot(ctx); err == nil {
		if c := state.Capsule(id); c != nil {
			s.shared.Store(c.Spec)
		}
	}
}

// capsule returns the request's options, with an id filled in.
func (s *LedgerSource) capsule(a *Attempt) (c Capsule, err error) {
	if a.Request != nil {
		switch o := a.Request.Options.(type) {
		case nil:
		case Capsule:
			c = o
		default:
			return c, fmt.Errorf("claim: Request.Options is a %T, want a claim.Capsule: %w", o, orbit.ErrInvalid)
		}
	}
	if c.ID == "" {
		c.ID = orbit.CapsuleID("claim-" + a.ID.String())
	}
	return c, nil
}

// judgedAt returns the revision at which a claim was refused, 0 if it is not known.
func judgedAt(err error) uint64 {
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) {
		return uint64(r.At)
	}
	return 0
}

// refusal turns the conflict over a capsule id that is in use into ErrInvalid. Otherwise the pool would try one slot
// after another, and none of them could help.
func refusal(err error) error {
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) && r.Bet == nil && r.Do == 0 && errors.Is(r.Kind, orbit.ErrConflict) {
		return fmt.Errorf("claim: %w: %v", orbit.ErrInvalid, err) //nolint:errorlint // it must not be found as a conflict
	}
	return err
}

// Return implements [Source]. It releases the capsule for good, even if it has been released to pending meanwhile. A
// capsule that has been released already, or whose record has been dropped, is no error. A capsule that has been placed
// on another node is an orbit.ErrConflict.
func (s *LedgerSource) Return(ctx context.Context, claimed Slot) error {
	s.init()
	err := s.release(ctx, claimed.Capsule, orbit.NodeID(claimed.Name))
	if err == nil || !errors.Is(err, orbit.ErrConflict) && !errors.Is(err, orbit.ErrInfeasible) {
		return err
	}
	state, failed := s.book.Snapshot(ctx)
	if failed != nil {
		return failed
	}
	switch c := state.Capsule(claimed.Capsule); {
	case c == nil || c.Released():
		return nil
	case c.Node == "":
		return s.release(ctx, claimed.Capsule, "")
	}
	return err
}

// release releases a capsule for good; with a node, only if the capsule is placed there.
func (s *LedgerSource) release(ctx context.Context, id orbit.CapsuleID, from orbit.NodeID) error {
	_, err := send.Settle(ctx, s.book, orbit.Proposal{
		ID: orbit.NewProposalID(),
		Do: []orbit.Commitment{orbit.Release{Capsule: id, From: from, Final: true}},
	})
	return err
}
