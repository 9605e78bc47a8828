package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
)

// Gateway creates sandboxes while the caller waits: one call chooses a node as [Warm] does, commits the capsule
// and its placement in one proposal, has the node start it, and returns the node or a typed error. It is the
// path of an API; Warm is that of a queue. Set the fields before first use. All methods may be called from any
// goroutine.
//
//	Create ─► choose (one lock, a cached view, loads) ─► propose (no lock) ─► Start on the node ─► Created
//	             ▲                                          │ conflict            │ error
//	             └── a newer view, if the receipt is newer ─┴─ the next best node ┘ once, then an error
//
// What holds, however many creates run at once and whatever the nodes report:
//
//   - The ledger decides. A slot is never given twice, and what one gateway has chosen it does not choose again
//     before the answer, also after a refresh of its view.
//   - The view is at most Cache old, and the planes are asked for the same answer once: creates share a refresh. A
//     conflict whose receipt is newer than the view refreshes it at once, once for all who lost to it.
//   - There is no refusal on a view from before the call. So that many who are refused do not ask for a view each, a
//     refresh for their sake starts at least 10 ms after the one before; they wait for that.
//   - A conflict is not a failure: the create chooses again until its context ends. A node that fails to start the
//     sandbox is one: then it goes to the next best node, once.
//   - A create that returns an error leaves nothing in the ledger, also if its context ends half-way, unless the
//     error is [ErrLeftBehind].
//
// Several gateways may share a board, and see each other's claims at once. Gateways of several processes have a board each,
// which feed each other ([telemetry.Board.Feed]). They see each other's placements in the ledger, so no slot is given
// away twice, and each other's claims with the node's next report: until then two processes may promise the same warm
// slot, and one of the sandboxes boots cold, which Created.Warm says. A capsule's id is created once in all of them.
//
// A node that has failed to start a sandbox counts as one with no warm slot of its template until it reports
// again, and the slot stays debited: others go elsewhere first.
//
// A node that stops reporting gets work until its report is stale and the cache is over; with AllowStale until
// its lease is, a lease and a cache after its last heartbeat. Where the end of a lease is committed to the
// ledger ([lease.Members.Run], or [lease.Keeper.Run] where there are no Members), no create is
// committed there after it.
type Gateway struct {
	// Ledger is where capsules are committed. Required.
	Ledger orbit.Ledger
	// Board has the reports, and takes claims. If it has Leases, a node gets work only under a live term. Nil:
	// no telemetry but what Telemetry says; nothing is claimed.
	Board *telemetry.Board
	// Telemetry is where reports are read from instead of the Board: the same one from afar. When it fails, the
	// cached view serves on, and it is asked again every second.
	Telemetry orbit.Telemetry
	// Start forwards the create to the node. It reports whether the sandbox booted warm; an error, or that it
	// panics, means that the node has failed. Nil: the placement alone is the result. It must return soon after
	// its ctx has ended.
	Start func(ctx context.Context, c Created) (warm bool, err error)
	// StartTimeout bounds one Start, so that a host that hangs does not hold a create up for long: its ctx ends
	// after that; and that of the first at the latest when half of the time is over that the caller has left,
	// so that there is as much for the other node. Default 10 s; negative: only the caller's context bounds
	// both.
	StartTimeout time.Duration
	// Cache is how long a view serves; default 30 s, negative: every create asks for a new one.
	Cache time.Duration
	// CleanUp bounds how long a create that has failed goes on to undo what it has committed, also after its
	// context has ended; default 10 s.
	CleanUp time.Duration
	// AllowStale and Seed are those of [Warm].
	AllowStale bool
	Seed       uint64
	// Owner is who the capsules are assigned to: an engine of that name, with a Warm, places those again that
	// lose their node. Empty: the first engine that claims them, which may be one that knows nothing of
	// templates and warm slots ([Services]), unless [Warm] and all others are told their Modules. So name it
	// where there are several.
	Owner string

	once    sync.Once
	leases  *lease.Keeper
	source  orbit.Telemetry // nil: none
	watched *watchedTelemetry

	// Used by the one goroutine that refreshes, which is the one that has set refreshing.
	view orbit.View

	mu             sync.Mutex // guards what follows; never held while a plane is called, except for claims on the board
	loads          loads
	bets           []*bet
	kept           map[orbit.CapsuleID]*bet // committed, and their nodes have not reported since; and some that have
	keptBound      int                      // when these are looked for
	refreshing     *refreshing
	refreshBegan   time.Time      // when the last refresh did
	fetched        time.Time      // the instant of the view; zero: there is none
	revision       orbit.Revision // of the view
	wanted         orbit.Revision // the view must have reached this
	refreshesBegun uint64         // refreshes that have begun
	viewNumber     uint64         // the number of the one that the view is from
	unreported     bool           // telemetry failed in that one
	stats          GatewayStats
}

// Created is a sandbox that has a node.
type Created struct {
	// Capsule is the id of the created capsule.
	Capsule orbit.CapsuleID
	// Spec is the spec that the capsule was created with. It must not be changed.
	Spec *orbit.Spec
	// Node is the node on which the capsule is placed.
	Node orbit.NodeID
	// Devices are the device instances that the capsule holds on Node.
	Devices orbit.DeviceSet
	// Warm reports that the capsule booted warm, as Start returned. In the argument of Start, and without a Start, it
	// reports that a warm slot was promised.
	Warm bool
	// Promised reports that a warm slot was promised on Node; the placement's note says the same.
	Promised bool
	// Retried reports that the first node failed to start the capsule and that Node is the second.
	Retried bool
	// Revision is the revision of the commit that placed the capsule on Node.
	Revision orbit.Revision
	// Decision is the time that the choice of the node took. It includes waiting for other creates and for views, but
	// no conflicts and no commits.
	Decision time.Duration
}

// Create places a new capsule of the spec and has it started. A spec that reserves no slots reserves one. The
// errors, besides what Start says: a [*WarmNoFit] ([ErrAllStale], [ErrNoSlot], [ErrNoVolume], [ErrNoTemplate],
// [ErrNoParent], [ErrNoNode]); [ErrTaken] if there is a capsule of the id already; a [*StartError]
// ([ErrStart]); the context's error; [orbit.ErrUnavailable] and [orbit.ErrInvalid]; [orbit.ErrUnknown] if the
// ledger did not answer until the context ended; beside one of these [ErrLeftBehind], if it could not be
// undone.
func (g *Gateway) Create(ctx context.Context, id orbit.CapsuleID, spec *orbit.Spec) (Created, error) {
	g.init()
	if g.Ledger == nil || id == "" || spec == nil {
		return Created{}, fmt.Errorf("sandbox: create %q: %w: it needs an id and a spec, and the gateway a Ledger", id, orbit.ErrInvalid)
	}
	c := &create{g: g, ask: ask{spec: withSlot(spec), leases: g.leases}}
	c.made.Capsule, c.made.Spec = id, c.ask.spec
	err := c.run(ctx)
	g.count(&c.made, err)
	if err != nil {
		return Created{}, fmt.Errorf("sandbox: create %q: %w", id, err)
	}
	return c.made, nil
}

// init makes the zero value ready, once.
func (g *Gateway) init() {
	g.once.Do(func() {
		switch {
		case g.Telemetry != nil:
			g.source = g.Telemetry
		case g.Board != nil:
			g.source = g.Board
		}
		if g.Board != nil {
			g.leases = g.Board.Leases
		}
		if g.source != nil {
			g.watched = &watchedTelemetry{Telemetry: g.source}
		}
		g.loads.seed, g.loads.allowStale = g.Seed, g.AllowStale
	})
}

// cache is how long a view serves.
func (g *Gateway) cache() time.Duration { return cmp.Or(g.Cache, defaultCache) }

const (
	defaultCache   = 30 * time.Second
	defaultCleanUp = 10 * time.Second
	defaultStart   = 10 * time.Second
	// The least time between two refreshes for the sake of refusals.
	refusalPace = 10 * time.Millisecond
	// How often telemetry is asked that has failed.
	failedPace = time.Second
)

// withSlot returns the spec, or a copy that reserves a slot if it reserves none.
func withSlot(spec *orbit.Spec) *orbit.Spec {
	if spec.Envelope.Reservation[orbit.Slots] != 0 {
		return spec
	}
	s := *spec
	s.Envelope.Reservation[orbit.Slots] = 1
	return &s
}

// create is one call of Create.
type create struct {
	g    *Gateway
	ask  ask
	made Created
	// Refreshes that had begun when it, or its retry, came.
	since uint64
	asked bool
	// What is sent for the last bet; and unknown, if its outcome is not known.
	proposal orbit.Proposal
	unknown  *orbit.Proposal
	// Where it is placed; nil: nowhere. And that something has been committed.
	placed    *bet
	committed bool
	// Start has panicked.
	panicked bool
}

// run is the whole of it. An error has been cleaned up after.
func (c *create) run(ctx context.Context) error {
	err := c.commit(ctx)
	if err == nil {
		err = c.start(ctx)
	}
	if err != nil {
		return c.cleanUp(ctx, err)
	}
	return nil
}

// commit chooses a node and proposes, again and again until that is no conflict.
func (c *create) commit(ctx context.Context) error {
	c.asked = false
	for {
		b, err := c.choose(ctx)
		if err != nil {
			return err
		}
		p := c.proposal
		rev, err := c.g.send(ctx, &p, nil)
		if err == nil {
			c.noteCommit(b, rev)
			return nil
		}
		if again, err := c.noteLoss(b, &p, err); !again {
			return err
		}
	}
}

// noteCommit notes a commit.
func (c *create) noteCommit(b *bet, rev orbit.Revision) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	b.outcome, b.revision = betCommitted, rev
	c.g.keep(b)
	c.placed, c.committed = b, true
	c.made.Node, c.made.Devices, c.made.Revision = b.debit.node, b.debit.devices, rev
	c.made.Promised, c.made.Warm = b.debit.warm, b.debit.warm
}

// noteLoss notes that a proposal was not committed, or may not have been. It reports whether to choose again.
func (c *create) noteLoss(b *bet, p *orbit.Proposal, err error) (again bool, _ error) {
	r := rejection(err)
	if r == nil && !isUnavailable(err) {
		c.unknown = p // the bet stays until that is known
		return false, err
	}
	c.g.void(b, r)
	switch {
	case r == nil || !isConflict(r) && !idTaken(p, r):
		return false, err
	case idTaken(p, r):
		return false, fmt.Errorf("%w: %w", ErrTaken, err)
	}
	return true, nil
}

// idTaken reports whether a proposal was refused for its Submit or its Release: there is a capsule of the id already, or it is no
// longer where it was placed. Another node would not help.
func idTaken(p *orbit.Proposal, r *orbit.Rejection) bool {
	return r.Bet == nil && r.Do == 0 && len(p.Do) > 1 && !errors.Is(r.Kind, orbit.ErrInvalid)
}

// exclude takes a node out of the choice that has failed.
func (c *create) exclude(node orbit.NodeID) { c.ask.failed = append(slices.Clip(c.ask.failed), node) }
