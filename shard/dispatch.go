package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// Dispatcher gives every capsule that is nobody's to one scheduler: it commits an [orbit.Assign]. It is as cheap as a
// load balancer: a capsule costs the same however many nodes and schedulers there are.
//
//	pending ─┬─ pinned by the user ──────────────────────────► that scheduler, or wait for it
//	         ├─ nobody's, or of a scheduler whose lease is over ► one that the Policy picks
//	         ├─ given back as failed ────────────────────────► one that has not failed it
//	         └─ failed by all ──► reported once; tried again with a back-off, or when there is room for it
//
// What holds: a capsule has one owner at every revision, for Assign is a compare-and-swap, and the members of a gang
// that wait are given to one scheduler in one proposal, never to two that live. Nobody is given anything once the end of its lease has been committed,
// for an assignment bets on the lease. All that a dispatcher has to know is in the ledger, so it may be stopped and
// started, and several may run at once: what one has assigned the others find assigned. What they keep for themselves
// is when to try failed capsules again, and what has been reported.
//
// It reads the whole state at its start, and again only if it fell so far behind that the ledger's history does not
// reach back ([orbit.ErrCompacted]); otherwise it follows the changes. Set the fields before first use. Step and Run
// may be called from any goroutine.
type Dispatcher struct {
	// Ledger is required.
	Ledger orbit.Ledger
	// Leases are those of the schedulers, with [LeasePrefix]: one lives while the ledger has a term of its name. Run
	// them beside the dispatcher, for only they commit the end of a term. Nil: Schedulers is the list.
	Leases *lease.Keeper
	// Schedulers are the names of those that live, for ever; not used with Leases.
	Schedulers []string
	// Policy chooses. Nil: [RoundRobin]. Dispatchers that run at once need policies of their own.
	Policy Policy
	// Select says whether a capsule is for this dispatcher; nil: every one is. It must always give the same answer.
	// Leave out what engines claim for themselves, or own without a lease: they would be taken for dead.
	Select func(*orbit.Capsule) bool
	// MovePinned: what is pinned to a scheduler that does not live, or has failed it, is given to others meanwhile.
	// Otherwise it waits, and is reported.
	MovePinned bool
	// Strict: nodes are divided into groups, and a scheduler places on its own ones only. Then room on a node takes
	// back the failures of its own scheduler, otherwise those of all.
	Strict bool
	// Retry is when capsules are tried again that all schedulers have failed, or that the policy had nobody for;
	// default 1 s, and then twice as long each time up to 5 min.
	Retry orbit.Backoff
	// MaxStep is the most capsules and gangs that one step assigns; default 4,096.
	MaxStep int
	// Pause is the least time from one step of Run to the next; default 1 ms, negative: none. What comes up
	// meanwhile goes out in one batch.
	Pause time.Duration
	// Hook, if set, is called by Run, from its goroutine, after every step that did or found something.
	Hook func(Round)

	once sync.Once
	// Held by the one step at a time, which owns what follows.
	turn   chan struct{}
	policy Policy
	retry  retries
	// Nil: the ledger has not been read yet.
	state *orbit.State
	// The next state must have reached it.
	atLeast orbit.Revision
	roster  roster
	books   books
	failing failingUnits
	cleared cleared
	// Nodes that may take more than before, oldest first.
	recent []change
	// Units to be looked at, and to be looked at in the next step.
	todo  todo
	again []unit
	marks markWrites
	// That there is nobody to dispatch to has been reported.
	alone bool
}

// init makes the zero value ready, once.
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

// check says everything that is wrong with the fields.
func (d *Dispatcher) check() error {
	if d.Ledger == nil {
		return fmt.Errorf("shard: %w: Dispatcher.Ledger is nil", orbit.ErrInvalid)
	}
	if d.Leases == nil && len(d.Schedulers) == 0 {
		return fmt.Errorf("shard: %w: Dispatcher knows of no schedulers; set Leases or Schedulers", orbit.ErrInvalid)
	}
	if err := ofSchedulers(d.Leases); err != nil {
		return err
	}
	if d.MaxStep < 0 {
		return fmt.Errorf("shard: %w: Dispatcher.MaxStep is %d", orbit.ErrInvalid, d.MaxStep)
	}
	for _, name := range d.Schedulers {
		if most := d.Ledger.Limits().IDBytes; d.Leases == nil && (name == "" || len(name) > most) {
			return fmt.Errorf("shard: %w: Dispatcher.Schedulers has a name of %d bytes; it must have 1 to %d", orbit.ErrInvalid, len(name), most)
		}
	}
	return d.retry.fault
}

// Step does one round: it follows the ledger, takes back failures that something could help and marks that have
// outlived their capsules, and gives what is nobody's to schedulers, in one batch. It costs what has changed since the
// last one. A capsule that cannot be assigned, because it has been placed, released or assigned meanwhile, takes none
// of the others down. Steps run one after another; one that waits for its turn gives up when ctx ends.
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
	round.View, round.Schedulers, round.Left = d.view(), len(d.roster.names), d.todo.len()
	round.Next = d.retry.next()
	return round
}

func (d *Dispatcher) view() orbit.Revision {
	if d.state == nil {
		return 0
	}
	return d.state.Revision()
}

// commit sends what is to be done in one batch.
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
	for i, o := range propose(ctx, d.Ledger, batch) {
		if i < len(orders) {
			d.ordered(&orders[i], o, round)
		} else {
			d.wrote(&writes[i-len(orders)], o, round)
		}
	}
}

// propose sends independent proposals; each has an outcome.
func propose(ctx context.Context, ledger orbit.Ledger, batch []orbit.Proposal) []orbit.Outcome {
	if len(batch) == 0 {
		return nil
	}
	out := make([]orbit.Outcome, len(batch))
	if b, ok := ledger.(orbit.Batcher); ok {
		for i := range out {
			out[i].Err = orbit.ErrUnknown // unless the ledger tells
		}
		copy(out, b.ProposeBatch(ctx, batch))
		return out
	}
	for i := range batch {
		out[i].Revision, out[i].Err = ledger.Propose(ctx, batch[i])
	}
	return out
}

// lost takes note of a rejection: the next state must have reached it.
func (d *Dispatcher) lost(err error) {
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) {
		d.atLeast = max(d.atLeast, r.At)
	}
}

func (d *Dispatcher) maxStep() int { return cmp.Or(d.MaxStep, 4096) }
