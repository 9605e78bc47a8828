package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/orbitsched/orbit"
)

// LedgerSource is the source of slots that an [orbit.Ledger] is: a slot is a node that has room for one capsule
// of the Spec; its Name is the node's id, and its UID the revision of the node's specification, which no node
// that leaves and joins again repeats. The zero value works, on a ledger of its own.
//
// A claim is one proposal: it submits a capsule and places it, and bets that the node's specification is what
// was listed. So a capsule is never seen waiting, and no navigator can pick it up. Whether the room is free the
// ledger judges by itself, and refuses the second claim. The attempt's id is the proposal's: one that is sent twice has one
// effect. (A ledger knows it by the record of its capsule. It must keep those of released capsules, see
// orbit.Limits.Terminal, for longer than a proposal can be delayed on its way.)
//
// A node with room for more than one capsule is a slot that is idle again as soon as it has been claimed.
// Several pools can share a ledger: let each one's Spec require a label.
//
// Where the Spec asks for devices, a listing says which instances a claim takes: those that it fits best. A
// claim of instances that are taken by then is a conflict, and the listing that knows of it shows others, if
// there are enough.
//
// It is a [Follower]: it waits for the ledger, so its pool needs no NotifyIdle and no delay.
type LedgerSource struct {
	// Ledger is the ledger that has the nodes. Nil: an orbit.MemoryLedger of the source's own.
	Ledger orbit.Ledger
	// Spec is the spec of the capsule that a claim places. Nil: one that takes one of orbit.Slots, and nothing else.
	Spec *orbit.Spec

	once sync.Once
	own  orbit.MemoryLedger
	book orbit.Ledger
	spec *orbit.Spec
	// The ledger's own copy of spec, once it is known: a proposal with it is taken without being looked
	// through.
	shared atomic.Pointer[orbit.Spec]
}

var _ Follower = (*LedgerSource)(nil)

// Capsule is what Request.Options may say to a [LedgerSource]. The zero value leaves it all to the source.
type Capsule struct {
	// ID is the capsule's id. If it is in use, the request is answered with an error that wraps orbit.ErrInvalid. Empty: an
	// id is made from the attempt's id.
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

// Book returns the ledger: the one that was given, or the source's own.
func (s *LedgerSource) Book() orbit.Ledger {
	s.init()
	return s.book
}

// Join lets nodes join that have room for exactly one claim, and as many whole devices as it asks for: idle
// slots. Any other node of the ledger that fits the Spec is a slot as well. More than the ledger takes in one
// proposal join in several, in order, up to the first that fails.
func (s *LedgerSource) Join(ctx context.Context, nodes ...orbit.NodeID) error {
	s.init()
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
		if err := s.propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: do}); err != nil {
			return err
		}
	}
	return nil
}

// Idle implements [Source]: it lists all nodes, in order of their ids, at one revision.
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

// validate reports what is wrong with the spec, as the ledger would if a capsule of it were submitted.
func (s *LedgerSource) validate(state *orbit.State) error {
	if s.spec.Envelope.Reservation == (orbit.Resources{}) && s.spec.Devices.Count == 0 {
		return fmt.Errorf("claim: ledger source: %w: its spec reserves nothing, so every node is idle for ever; reserve one of orbit.Slots", orbit.ErrInvalid)
	}
	submit := orbit.Submit{IDs: []orbit.CapsuleID{"claim"}, Spec: s.spec}
	if err := state.Check(orbit.Proposal{Do: []orbit.Commitment{submit}}); errors.Is(err, orbit.ErrInvalid) {
		return fmt.Errorf("claim: ledger source: %w", err)
	}
	return nil
}

// slot returns the slot that a node is. It requires a node that fits the spec.
func (s *LedgerSource) slot(n *orbit.NodeState) Slot {
	devices, _ := n.PickDevices(s.spec)
	uid := strconv.FormatUint(uint64(n.Specification), 10)
	return Slot{Name: string(n.Node.ID), UID: uid, Labels: n.Node.Labels, Devices: devices}
}

// Follow implements [Follower]: it lists the nodes that the history names, at a revision not older than
// that. Changes that touch no node are passed over.
func (s *LedgerSource) Follow(ctx context.Context, after uint64) (Listing, error) {
	s.init()
	for changes, err := range orbit.Follow(ctx, s.book, orbit.Revision(after)) {
		if errors.Is(err, orbit.ErrCompacted) {
			return s.Idle(ctx)
		}
		if err != nil {
			return Listing{}, err
		}
		state, err := s.book.Snapshot(ctx) // after the changes, so that it has them all
		if err != nil {
			return Listing{}, err
		}
		if l := s.changed(state, changes); len(l.Slots)+len(l.Gone) > 0 {
			return l, nil
		}
	}
	return Listing{}, fmt.Errorf("claim: ledger source: %w", ctx.Err())
}

// changed lists the nodes that the changes have touched, as they are in the state.
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

// Claim implements [Source]. The slot that it returns names the capsule that is placed there.
func (s *LedgerSource) Claim(ctx context.Context, a Attempt) (Slot, uint64, error) {
	s.init()
	capsule, err := s.capsule(&a)
	if err != nil {
		return Slot{}, 0, err
	}
	uid, err := strconv.ParseUint(a.Slot.UID, 10, 64)
	if err != nil || uid == 0 {
		return Slot{}, 0, fmt.Errorf("claim: slot %q: uid %q is not a revision: %w", a.Slot.Name, a.Slot.UID, orbit.ErrInvalid)
	}
	shared, node := s.shared.Load(), orbit.NodeID(a.Slot.Name)
	rev, err := s.book.Propose(ctx, orbit.Proposal{
		ID: a.ID,
		Do: []orbit.Commitment{
			orbit.Submit{IDs: []orbit.CapsuleID{capsule.ID}, Spec: cmp.Or(shared, s.spec), Owner: capsule.Owner},
			orbit.Place{Capsule: capsule.ID, Node: node, Devices: a.Slot.Devices, Note: capsule.Note},
		},
		// No bet on room, which the ledger judges with the placement; and no orbit.Draft, which would make one: it needs
		// a view, and so a snapshot for each claim, and claims go side by side.
		If: []orbit.Precondition{orbit.NodeAt{Node: node, Specification: orbit.Revision(uid)}},
	})
	if err != nil {
		return Slot{}, judgedAt(err), refusal(err)
	}
	if shared == nil {
		s.learn(ctx, capsule.ID)
	}
	claimed := a.Slot
	claimed.Capsule = capsule.ID
	return claimed, uint64(rev), nil
}

// learn keeps the copy of the spec that the ledger hands out with a capsule.
func (s *LedgerSource) learn(ctx context.Context, id orbit.CapsuleID) {
	if state, err := s.book.Snapshot(ctx); err == nil {
		if c := state.Capsule(id); c != nil {
			s.shared.Store(c.Spec)
		}
	}
}

// capsule returns what the request says of the capsule, with an id.
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

// judgedAt returns the revision at which a claim was refused, 0 if that is not known.
func judgedAt(err error) uint64 {
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) {
		return uint64(r.At)
	}
	return 0
}

// refusal keeps a conflict that another slot does not cure from being taken for one: the capsule's id is in
// use.
func refusal(err error) error {
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) && r.Bet == nil && r.Do == 0 && errors.Is(r.Kind, orbit.ErrConflict) {
		return fmt.Errorf("claim: %w: %v", orbit.ErrInvalid, err) //nolint:errorlint // it must not be found as a conflict
	}
	return err
}

// Return implements [Source]: the capsule is released for good, also where it has been evicted from the node
// meanwhile and is pending. One that has been released already, or is not known any more, is no error; one
// that has been placed on another node is an orbit.ErrConflict.
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

// release ends a capsule for good; if a node is named, only there.
func (s *LedgerSource) release(ctx context.Context, id orbit.CapsuleID, from orbit.NodeID) error {
	return s.propose(ctx, orbit.Proposal{
		ID: orbit.NewProposalID(),
		Do: []orbit.Commitment{orbit.Release{Capsule: id, From: from, Final: true}},
	})
}

// propose sends a proposal until its outcome is known, or ctx ends. That it cannot be sent again says nothing of the
// first time.
func (s *LedgerSource) propose(ctx context.Context, p orbit.Proposal) error {
	var unknown error
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		_, err := s.book.Propose(ctx, p)
		switch {
		case errors.Is(err, orbit.ErrUnknown):
			unknown = err
		case unknown == nil || !errors.Is(err, orbit.ErrUnavailable):
			return err
		}
		if !pause(ctx, wait) {
			return unknown
		}
	}
}
