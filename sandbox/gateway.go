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

// Gateway creates sandboxes while the caller waits. One call chooses a node as [Warm] does, commits the capsule and its
// placement in one proposal, has the node start it, and returns the node or a typed error. Use Gateway behind an API,
// and Warm for a queue. Set the fields before first use. All methods may be called from any goroutine.
//
//	Create ─► choose (one lock, a cached view, loads) ─► propose (no lock) ─► Start on the node ─► Created
//	             ▲                                          │ conflict            │ error
//	             └── a newer view, if the receipt is newer ─┴─ the next best node ┘ once, then an error
//
// [Gateway.Create] says what holds, however many creates run at once, and what several gateways know of each other.
type Gateway struct {
	// Ledger is where capsules are committed. Required.
	Ledger orbit.Ledger
	// Board has the reports, and records claims. If it has Leases, a node gets work only under a live term. Nil:
	// reports come only from Telemetry, and nothing is claimed.
	Board *telemetry.Board
	// Telemetry is the source of reports instead of the Board, for a board in another process. If it fails, creates go
	// on with the cached view, and it is asked again every second.
	Telemetry orbit.Telemetry
	// Start forwards the create to the node, and reports whether the sandbox booted warm. An error or a panic means
	// that the node has failed. Nil: nothing is started, and the result is the placement alone. Start must return soon
	// after its ctx has ended.
	Start func(ctx context.Context, c Created) (warm bool, err error)
	// StartTimeout bounds one Start, so that a host that hangs does not block a create for long: the ctx of Start ends
	// after that time. The ctx of the first Start also ends when half of the caller's remaining time is over, so that
	// the second node has as much. Default 10 s; negative: only the caller's context bounds both.
	StartTimeout time.Duration
	// Cache is how long a view is used; default 30 s; negative: every create asks for a new one. After 65,536 creates a
	// view is replaced in any case, because everything that was planned on it is in memory until then.
	Cache time.Duration
	// CleanUp bounds how long a failed create tries to undo what it has committed, even after its context has ended;
	// default 10 s.
	CleanUp time.Duration
	// AllowStale gives work to nodes with a stale report too, and Seed decides between equal nodes; both as in [Warm].
	AllowStale bool
	Seed       uint64
	// Owner is the engine to which the capsules are assigned. If it has a Warm, it places capsules again that lose
	// their node. Empty: the first engine that claims them, which may be one that knows nothing of templates and warm
	// slots ([Services]), unless [Warm] and all other navigators are given their Modules. So set Owner where there are
	// several engines.
	Owner string

	once    sync.Once
	leases  *lease.Keeper
	source  orbit.Telemetry // nil: none
	watched *watchedTelemetry

	// Used only by the goroutine that has set refreshing.
	view orbit.View

	mu             sync.Mutex // guards what follows; not held while ledger or telemetry are called, except for claims on the board
	loads          loads
	bets           []*bet
	kept           map[orbit.CapsuleID]*bet // committed bets whose nodes have not reported since, and some others
	keptBound      int                      // the size of kept at which it is cleaned
	refreshing     *refreshing
	refreshBegan   time.Time      // when the last refresh began
	fetched        time.Time      // the instant of the view; zero: there is none
	revision       orbit.Revision // of the view
	wanted         orbit.Revision // the view must have reached this
	refreshesBegun uint64         // refreshes that have begun
	viewNumber     uint64         // the number of the refresh that made the view
	planned        int            // the number of creates that were planned on it
	unreported     bool           // telemetry failed in that refresh
	stats          GatewayStats
}

// Created describes a sandbox that was created.
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

// Create places a new capsule of the spec and has its node start it. A spec that reserves no slots reserves one.
// Besides the errors of Start it returns:
//
//   - a [*WarmNoFit], of kind [ErrAllStale], [ErrNoSlot], [ErrNoVolume], [ErrNoTemplate], [ErrNoParent] or [ErrNoNode];
//   - [ErrTaken] if there is a capsule of the id already;
//   - a [*StartError], which is an [ErrStart];
//   - the context's error, [orbit.ErrUnavailable] and [orbit.ErrInvalid];
//   - [orbit.ErrUnknown] if the ledger did not answer until the context ended;
//   - beside one of these, [ErrLeftBehind] if the create could not be undone.
//
// What holds, however many creates run at once and whatever the nodes report:
//
//   - The ledger decides. A slot is never given twice. A slot that one create has chosen is not chosen again before the
//     ledger has answered, even if the view is refreshed meanwhile.
//   - The view is at most Cache old. Creates share a refresh, so ledger and telemetry are asked once for all of them. A
//     conflict whose receipt is newer than the view causes an immediate refresh, one for all creates that lost to the
//     same commit.
//   - A create is never refused on a view from before the call. To keep many refused creates from each asking for a
//     view, a refresh for a refusal starts at least 10 ms after the refresh before, and the creates wait for it.
//   - A conflict is not a failure: the create chooses again until its context ends. A node that fails to start the
//     sandbox is a failure: the create goes to the next best node, once.
//   - A create that returns an error leaves nothing in the ledger, even if its context ends half-way, unless the error
//     is [ErrLeftBehind].
//
// Gateways that share a board see each other's claims at once. Gateways of several processes have a board each, and the
// boards feed each other ([telemetry.Board.Feed]). These gateways see each other's placements in the ledger, so no slot
// is given away twice. They see each other's claims only with the node's next report: until then two processes may
// promise the same warm slot, and one of the sandboxes boots cold, which Created.Warm says. A capsule's id is created
// only once across all of them.
//
// A node that has failed to start a sandbox counts as one with no warm slot of its template until it reports again, and
// the slot stays debited. Besides, creates of the template go there only if no other node fits: for 10 s after the
// first failure, and twice as long after each further one, up to 5 minutes. When the time is over, one create tries the
// node, and the others follow once that has worked. A node on which starts of several templates have failed is avoided
// by all. Failures that led to a retry are also in the ledger ([orbit.State.Failures]), so that all planners know of
// them.
//
// A node that stops reporting gets work until its report is stale and Cache has passed. With AllowStale it gets work
// until its lease has run out, which is a lease and Cache after its last heartbeat. Where the end of a lease is
// committed to the ledger ([lease.Members.Run], or [lease.Keeper.Run] where there are no Members), no create is
// committed on the node after that.
func (g *Gateway) Create(ctx context.Context, id orbit.CapsuleID, spec *orbit.Spec) (Created, error) {
	g.init()
	if g.Ledger == nil || id == "" || spec == nil {
		err := fmt.Errorf("sandbox: create %q: %w: it needs an id and a spec, and the gateway a Ledger", id, orbit.ErrInvalid)
		g.count(nil, err)
		return Created{}, err
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
		g.loads.seed, g.loads.allowStale, g.loads.failing = g.Seed, g.AllowStale, failing{}
	})
}

// cache returns how long a view is used.
func (g *Gateway) cache() time.Duration { return cmp.Or(g.Cache, defaultCache) }

const (
	defaultCache   = 30 * time.Second
	defaultCleanUp = 10 * time.Second
	defaultStart   = 10 * time.Second
	// How many creates are planned on one view at most. What is planned takes up to 1.7 KB a create, so this is 110 MB. At
	// 1,000 creates a second, 30,000 are planned within the default Cache.
	mostPlanned = 1 << 16
	// The least time between two refreshes for the sake of refusals.
	refusalPace = 10 * time.Millisecond
	// How often telemetry is asked again after it has failed.
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
	// How many refreshes had begun when the create, or its retry, began; valid once asked is set.
	since uint64
	asked bool
	// The proposal of the last bet; and the proposal whose outcome is unknown, if there is one.
	proposal orbit.Proposal
	unknown  *orbit.Proposal
	// The committed bet; nil: the capsule is not placed. And whether anything was committed.
	placed    *bet
	committed bool
	// When the node of the last placement failed to start it.
	failedAt time.Time
	// Start has panicked.
	panicked bool
}

// run creates the sandbox: commit, start, and after an error clean up.
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

// commit chooses a node and proposes the placement, and does so again after each conflict.
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

// noteCommit records that a bet was committed.
func (c *create) noteCommit(b *bet, rev orbit.Revision) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	b.outcome, b.revision = betCommitted, rev
	c.g.keep(b)
	c.placed, c.committed = b, true
	c.made.Node, c.made.Devices, c.made.Revision = b.debit.node, b.debit.devices, rev
	c.made.Promised, c.made.Warm = b.debit.warm, b.debit.warm
}

// noteLoss records that a proposal was not committed, or that its outcome is unknown. It reports whether to choose
// again.
func (c *create) noteLoss(b *bet, p *orbit.Proposal, err error) (again bool, _ error) {
	r := rejection(err)
	if r == nil && !isUnavailable(err) {
		c.unknown = p // the bet stays until the outcome is known
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

// idTaken reports whether a proposal was refused for its Submit or its Release: the id is taken, or the capsule is no
// longer where it was placed. Another node would not help.
func idTaken(p *orbit.Proposal, r *orbit.Rejection) bool {
	return r.Bet == nil && r.Do == 0 && len(p.Do) > 1 && !errors.Is(r.Kind, orbit.ErrInvalid)
}

// exclude removes a node that has failed from the choice.
func (c *create) exclude(node orbit.NodeID) { c.ask.failed = append(slices.Clip(c.ask.failed), node) }
