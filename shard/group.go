package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
	"github.com/orbitsched/orbit/lease"
)

// Groups gives each schedulable node to the group of one scheduler, and keeps the groups in balance. Set the fields
// before first use; its methods may be called from any goroutine.
//
// Its whole state is in the ledger, in a mark for each node. One process may go on where another has stopped, and
// several may run at once, because each change of a mark bets on the mark's old value. (Several may move more nodes
// than one would, because each of them reacts to the same imbalance.)
//
//	nodes, marks ──Changes──► table ──► 1. due: nodes without a living owner, handoffs, marks of nodes that have left
//	leases                              2. balance: few moves that bring each group within its slack
//	                                    3. one proposal for each node
//
// [Groups.Step] says what holds afterwards.
type Groups struct {
	// Ledger is the ledger itself, not a [PartitionLedger]. Required.
	Ledger orbit.Ledger
	// Leases are the leases of the schedulers, with Prefix [LeasePrefix]: the name of a lease is the name of a scheduler.
	// Either Leases or Schedulers is required.
	Leases *lease.Keeper
	// Schedulers are the names of the schedulers that can get nodes. Empty: every name that has a lease. Without Leases
	// all of them count as alive for ever.
	Schedulers []string
	// By chooses the scheduler for a node that has no owner. Nil: the scheduler of the lightest group.
	By Rule
	// Tolerance is how far a group's share may differ from the mean, as a fraction of the mean; default 0.1. A smaller
	// tolerance moves more nodes. Negative: nodes are never moved for balance.
	Tolerance float64
	// Patience is how long Groups waits for the answer of a living owner before it hands the node over without one;
	// default 30 s, negative: for ever.
	Patience time.Duration
	// Every is how long Run waits at least after each Step; default 100 ms.
	Every time.Duration
	// Hook, if set, is called by Run after each Step that did something or failed.
	Hook func(Regrouping)

	mu    sync.Mutex // guards what follows; held during a Step
	table table
}

func (g *Groups) tolerance() float64      { return cmp.Or(g.Tolerance, 0.1) }
func (g *Groups) patience() time.Duration { return cmp.Or(g.Patience, 30*time.Second) }
func (g *Groups) every() time.Duration    { return cmp.Or(max(g.Every, 0), 100*time.Millisecond) }

// check returns an error if a field has an invalid value.
func (g *Groups) check() error {
	if g.Ledger == nil || g.Leases == nil && len(g.Schedulers) == 0 || math.IsNaN(g.Tolerance) {
		return fmt.Errorf("shard: %w: Groups needs a Ledger, Leases or Schedulers, and a Tolerance that is a number", orbit.ErrInvalid)
	}
	if err := ofSchedulers(g.Leases); err != nil {
		return err
	}
	if l := g.Ledger.Limits(); l.Commitments < 3 || l.Preconditions < 4 {
		return fmt.Errorf("shard: %w: the end of a handoff takes 3 commitments and 4 bets; the ledger of these Groups takes %d and %d",
			orbit.ErrInvalid, l.Commitments, l.Preconditions)
	}
	return nil
}

// passing reports whether another Step may succeed although nothing has changed. With ErrKey it cannot: an id that is
// too long stays too long.
func passing(err error) bool { return !errors.Is(err, ErrKey) }

// Step does one round and returns what it did. Steps run one after another.
//
// After a Step without errors and conflicts, and as long as nothing changes:
//
//   - Each schedulable node has one owner, if any scheduler lives. At no revision does a node have two.
//   - The share of a group in every quantity differs from its mean by at most Tolerance or one node, whichever is more.
//     The exception: nodes differ so much in shape that no move of one node (which is not in a handoff) brings the groups
//     closer to balance.
//   - If all nodes are alike, the number of moves is the least possible. If they differ, it is about 1% above the least;
//     a single Step seldom needs more than twice the least (5 moves instead of 2 were measured), and up to two more if
//     some nodes had no owner.
//   - Another Step moves nothing, and only ends the handoffs that were begun. A node in a handoff is not moved again
//     before the handoff has ended.
//
// An unschedulable node keeps its owner and does not count for the balance. Marks of nodes that have left are deleted.
// A scheduler lives while the ledger has a term of its lease: run the [lease.Keeper], so that ends of terms are
// committed. A scheduler that comes back still owns the nodes that have not been reassigned yet, and is given its share
// of the others.
//
// The cost of a Step grows with the number of changes since the last one, of handoffs under way and of moves. The first
// Step reads all nodes, and so does one for which the ledger's history does not reach back far enough.
func (g *Groups) Step(ctx context.Context) Regrouping {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.check(); err != nil {
		return Regrouping{Errors: []error{err}}
	}
	t := &g.table
	t.ledger, t.leases, t.schedulers = g.Ledger, g.Leases, g.Schedulers
	if err := t.follow(ctx); err != nil {
		return Regrouping{Errors: []error{fmt.Errorf("shard: groups: %w", err)}}
	}
	r := &regrouping{table: t, now: time.Now(), patience: g.patience()}
	r.View = t.state.Revision()
	if groups := t.alive(); len(groups) > 0 {
		measure := func() { r.balance = newBalance(groups, &t.all, t.largest.value(), max(g.tolerance(), 0)) }
		measure()
		r.due()
		r.assign(g.By)
		if g.tolerance() >= 0 {
			r.rebalance()
		}
		r.commit(ctx)
		measure() // moves that were not committed have not happened
	}
	r.report()
	return r.Regrouping
}

// Run calls Step until ctx ends, and then returns nil. After each Step it waits for Every, and then until the ledger
// changes or the Patience of a handoff is over. If a field has an invalid value, it returns an error that wraps
// [orbit.ErrInvalid].
func (g *Groups) Run(ctx context.Context) error {
	if err := g.check(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		r := g.Step(ctx)
		if g.Hook != nil && (r.active() || len(r.Errors) > 0 && ctx.Err() == nil) {
			g.Hook(r)
		}
		g.waitForChange(ctx, &r)
	}
	return nil
}

// waitForChange waits for the next Step.
func (g *Groups) waitForChange(ctx context.Context, r *Regrouping) {
	send.Pause(ctx, g.every())
	if r.Conflicts > 0 || slices.ContainsFunc(r.Errors, passing) {
		return
	}
	if !r.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.deadline)
		defer cancel()
	}
	if _, err := g.Ledger.Wait(ctx, r.View); err != nil && ctx.Err() == nil {
		send.Pause(ctx, time.Second)
	}
}
