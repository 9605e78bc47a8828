package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
	"github.com/orbitsched/orbit/lease"
)

// Dispatcher assigns every pending capsule without a living owner to one scheduler: it commits an [orbit.Assign]. The
// cost of a capsule does not depend on the number of nodes.
//
//	pending ─┬─ pinned by the user ──────────────────────────► that scheduler; waits until it lives
//	         ├─ no owner, or the owner's lease is over ─────► one that the Policy picks
//	         ├─ given back as failed ────────────────────────► one that has not failed to place it
//	         └─ failed by all ──► reported once; tried again with a back-off, or when there is free capacity
//
// A capsule has one owner at every revision, because Assign is a compare-and-swap. One proposal assigns all pending
// members of a gang to one scheduler, so they never belong to two living ones. An assignment bets on the scheduler's
// lease, so no scheduler is assigned anything after the end of its lease has been committed. Everything that a
// dispatcher has to know is in the ledger: it may be stopped and started, and several may run at once, each seeing the
// others' assignments. Only three things are kept in memory: when to try failed capsules again, what has been
// reported, and since when a capsule has its present spec. Set the fields before first use. Step and Run may be called
// from any goroutine.
type Dispatcher struct {
	// Ledger is the ledger itself, not a [PartitionLedger]. Required.
	Ledger orbit.Ledger
	// Leases are the leases of the schedulers, with [LeasePrefix]: a scheduler lives while the ledger has a term of its
	// name. Run the keeper beside the dispatcher, because only the keeper commits the end of a term. Nil: the schedulers
	// are those in Schedulers.
	Leases *lease.Keeper
	// Schedulers are the names of the schedulers if there are no Leases; they count as alive for ever. With Leases the
	// field is ignored.
	Schedulers []string
	// Policy chooses the scheduler of a capsule or gang. Nil: [RoundRobin]. Do not share one policy between dispatchers.
	Policy Policy
	// Select reports whether this dispatcher is responsible for a capsule; nil: for every one. It must always give the
	// same answer. It must return false for capsules of engines that claim for themselves or hold no lease: their owner
	// would count as dead.
	Select func(*orbit.Capsule) bool
	// MovePinned assigns a capsule that is pinned to a dead scheduler, or to one that failed to place it, to another
	// scheduler for the time being. By default such a capsule waits, and is reported.
	MovePinned bool
	// Strict must be set if the schedulers run in [Strict] mode. Then free capacity on a node clears only the failed marks
	// of the scheduler that owns the node; by default it clears those of all schedulers.
	Strict bool
	// Retry is the delay before a capsule is tried again that all schedulers have failed to place, or for which the policy
	// named no scheduler; default 1 s, doubled after each try, at most 5 min.
	Retry orbit.Backoff
	// MaxStep is how many capsules and gangs one step assigns at most; default 4,096.
	MaxStep int
	// Pause is the shortest time from the start of one step of Run to the next; default 1 ms, negative: none. A longer
	// pause makes fewer and larger batches.
	Pause time.Duration
	// Hook, if set, is called from Run's goroutine after every step that did something or failed.
	Hook func(Round)

	once sync.Once
	// turn holds a token while a step runs. The token guards the fields below.
	turn   chan struct{}
	policy Policy
	retry  retries
	// state is the last state that was read; nil: none yet.
	state *orbit.State
	// atLeast is the newest revision that a rejection named; nothing is decided on an older state.
	atLeast orbit.Revision
	roster  roster
	loads   loads
	failing failingUnits
	cleared cleared
	altered altered
	// recent are nodes that may take more capsules than before, oldest first.
	recent []change
	// todo are the units to decide on in this step, again those to review in the next one.
	todo  queue[unit]
	again []unit
	marks markWrites
	// alone says that ErrAlone has been reported.
	alone bool
}

// init prepares the zero value on first use.
func (d *Dispatcher) init() {
	d.once.Do(func() {
		d.turn = make(chan struct{}, 1)
		d.policy = d.Policy
		if d.policy == nil {
			d.policy = &RoundRobin{}
		}
		d.retry = newRetries(d.Retry)
		d.cleared = cleared{}
	})
}

// check returns an error if a field has an invalid value.
func (d *Dispatcher) check() error {
	if d.Ledger == nil {
		return fmt.Errorf("shard: %w: Dispatcher.Ledger is nil; set it to the ledger itself", orbit.ErrInvalid)
	}
	if d.Leases == nil && len(d.Schedulers) == 0 {
		return fmt.Errorf("shard: %w: Dispatcher knows of no schedulers; set Leases or Schedulers", orbit.ErrInvalid)
	}
	if err := ofSchedulers(d.Leases); err != nil {
		return err
	}
	if d.MaxStep < 0 {
		return fmt.Errorf("shard: %w: Dispatcher.MaxStep is %d; leave it at 0 for the default", orbit.ErrInvalid, d.MaxStep)
	}
	for _, name := range d.Schedulers {
		if most := d.Ledger.Limits().IDBytes; d.Leases == nil && (name == "" || len(name) > most) {
			return fmt.Errorf("shard: %w: Dispatcher.Schedulers has a name of %d bytes; it must have 1 to %d", orbit.ErrInvalid, len(name), most)
		}
	}
	return d.retry.fault
}

// Step does one round: it reads the ledger's changes, clears failed marks of capsules that may fit now, deletes marks
// of capsules that no longer need them, and assigns capsules without a living owner, all in one batch. The cost grows
// with the number of changes since the last step. A capsule that cannot be assigned, because it has been placed,
// released or assigned meanwhile, does not affect the others. Steps run one after another; a call that waits for
// another step to end gives up when ctx ends.
func (d *Dispatcher) Step(ctx context.Context) Round {
	d.init()
	round := Round{}
	if err := d.check(); err != nil {
		round.fail(err)
		return round
	}
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		round.fail(fmt.Errorf("shard: dispatcher: %w", ctx.Err()))
		return round
	}
	if err := d.follow(ctx, &round); err != nil {
		round.fail(fmt.Errorf("shard: dispatcher: %w", err))
	} else if d.state.Revision() >= d.atLeast {
		d.commit(ctx, &round)
	}
	round.View, round.Schedulers, round.Left = d.view(), len(d.roster.names), len(d.todo.list)
	round.Next = d.retry.next()
	return round
}

// view returns the revision of the last state that was read, 0 before the first.
func (d *Dispatcher) view() orbit.Revision {
	if d.state == nil {
		return 0
	}
	return d.state.Revision()
}

// commit proposes assignments and changes of marks in one batch, and takes note of the outcomes.
func (d *Dispatcher) commit(ctx context.Context, round *Round) {
	orders := d.orders(round)
	writes := d.marks.take()
	batch := make([]orbit.Proposal, 0, len(orders)+len(writes))
	for i := range orders {
		batch = append(batch, orders[i].proposal(d.state.Revision()))
	}
	for i := range writes {
		batch = append(batch, writes[i].proposal(d.state.Revision()))
	}
	for i, o := range send.All(ctx, d.Ledger, batch) {
		if i < len(orders) {
			d.ordered(&orders[i], o, round)
		} else {
			d.wrote(&writes[i-len(orders)], o, round)
		}
	}
}

// lost remembers the revision of a rejection, so that nothing is decided on an older state.
func (d *Dispatcher) lost(err error) {
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) {
		d.atLeast = max(d.atLeast, r.At)
	}
}

func (d *Dispatcher) maxStep() int { return cmp.Or(d.MaxStep, 4096) }
