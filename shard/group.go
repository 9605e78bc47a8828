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
	"github.com/orbitsched/orbit/lease"
)

// Groups gives each schedulable node to the group of one scheduler, and keeps the groups in balance. Set the fields
// before first use; its methods may be called from any goroutine.
//
// All that it knows is in the ledger, in a mark for each node: one that starts goes on where another has stopped, and
// several at once are safe, for each change of a mark bets on what it was. (They may move more than one would: each
// moves nodes for the same reason.)
//
//	nodes, marks ──Changes──► table ──► 1. what is due: nodes without an owner that lives, handoffs, leftovers
//	leases                              2. balance: the fewest moves that bring each group within its slack
//	                                    3. one proposal for each node
//
// What holds after a Step without errors and conflicts, as long as nothing changes:
//
//   - Each schedulable node has one owner, if any scheduler lives. At no revision has a node two.
//   - A group has of everything no more and no less than its part, give or take Tolerance or one node, whichever is
//     more; or else nodes differ so much in shape that no move of one node brings the groups closer, but for nodes on
//     their way.
//   - Nodes alike are moved the fewest times that this takes; of any shape one move in a hundred is more than that,
//     and in a single Step seldom more than twice as many (5 where 2 would do has been seen), and up to two more where
//     some had no owner.
//   - Another Step moves nothing, and only ends the handoffs that were begun. A node on its way is not moved before it
//     has arrived; then it may be moved on, if the groups are out of balance.
//
// A node keeps its owner while it is unschedulable, and counts for nothing; marks of nodes that have left are deleted.
// A scheduler lives while its lease is, as the ledger has it: run the [lease.Keeper] so that ends are committed. One
// that comes back has no nodes but those that nobody has taken from it yet, and is given its part.
//
// A Step costs what has changed since the last one, plus the handoffs under way and the moves; the first one, and one
// that comes later than the ledger's history reaches, looks at all nodes.
type Groups struct {
	// Ledger is the real one, not a Lens. Required.
	Ledger orbit.Ledger
	// Leases are those of the schedulers, with Prefix [LeasePrefix]: a scheduler is the name of a lease.
	Leases *lease.Keeper
	// Schedulers are the only ones there are. Without Leases they always live; with none named, any that has a lease
	// is one. Either is required.
	Schedulers []string
	// By says where nodes go that have no owner. Nil: to the lightest group.
	By Rule
	// Tolerance is how far a group may be from its part, as a fraction of it; default 0.1. Negative: nodes are never
	// moved for balance.
	Tolerance float64
	// Patience is how long an owner that lives may take to answer before its node is handed over all the same; default
	// 30 s, negative: for ever.
	Patience time.Duration
	// Every is how long Run waits after each Step at least; default 100 ms.
	Every time.Duration
	// Hook is called by Run after each Step that did something or failed. Nil: nobody is told.
	Hook func(Regrouping)

	mu    sync.Mutex // guards what follows; held during a Step
	table table
}

func (g *Groups) tolerance() float64      { return cmp.Or(g.Tolerance, 0.1) }
func (g *Groups) patience() time.Duration { return cmp.Or(g.Patience, 30*time.Second) }
func (g *Groups) every() time.Duration    { return cmp.Or(max(g.Every, 0), 100*time.Millisecond) }

// check says what is wrong with the fields.
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

// passing reports whether it is worth trying again though nothing has changed. An id stays as long as it is.
func passing(err error) bool { return !errors.Is(err, ErrKey) }

// Step does one round and returns what it did. Steps run one after another.
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
		weigh := func() { r.balance = newBalance(groups, &t.all, t.largest.value(), max(g.tolerance(), 0)) }
		weigh()
		r.due()
		r.house(g.By)
		if g.tolerance() >= 0 {
			r.even()
		}
		r.commit(ctx)
		weigh() // what was not committed is as it was
	}
	r.report()
	return r.Regrouping
}

// Run steps until ctx ends, and then returns nil: after Every, when something has changed, or when a handoff has waited
// long enough. With a fault in the fields it returns an error that wraps [orbit.ErrInvalid].
func (g *Groups) Run(ctx context.Context) error {
	if err := g.check(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		r := g.Step(ctx)
		if g.Hook != nil && (r.active() || len(r.Errors) > 0 && ctx.Err() == nil) {
			g.Hook(r)
		}
		g.rest(ctx, &r)
	}
	return nil
}

// rest waits for the next Step.
func (g *Groups) rest(ctx context.Context, r *Regrouping) {
	pause(ctx, g.every())
	if r.Conflicts > 0 || slices.ContainsFunc(r.Errors, passing) {
		return
	}
	if !r.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.deadline)
		defer cancel()
	}
	if _, err := g.Ledger.Wait(ctx, r.View); err != nil && ctx.Err() == nil {
		pause(ctx, time.Second)
	}
}
