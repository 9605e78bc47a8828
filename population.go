package orbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Population is several engines at work on one ledger, and a look-out for work that none of them owns. It
// needs no coordinator: claims divide the work, and the ledger settles the rest. Set the fields before Run.
type Population struct {
	// Engines are the engines that the population runs.
	Engines []*Engine
	// OnError is called for each capsule that none of the engines will place, once each time that it becomes pending,
	// with an error that wraps an Unplaced, which names it: no engine is assigned and none claims it, or it is assigned to
	// an engine that is not in the list (which is correct if that engine runs in another process). It is also called when
	// the ledger cannot be read.
	OnError func(error)
}

// Run runs all engines until ctx ends, and then returns nil. Before anything starts it refuses, with an
// error that wraps ErrInvalid, engines with faults, with the same name, on different ledgers, or whose claims
// overlap on the module and class of a capsule that is pending. Should claims overlap on a pair that only
// comes up later, the engine that stands first in the list has it.
func (p *Population) Run(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	for i, e := range p.Engines {
		e.arbiter = func(key claim) bool { return p.isFirst(i, key) }
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range p.Engines {
		g.Go(func() error { return e.Run(ctx) })
	}
	g.Go(func() error { return p.watch(ctx) })
	return g.Wait()
}

// isFirst reports whether engine i claims the pair and none before it does. Each engine is asked through
// its own contained and remembered call.
func (p *Population) isFirst(i int, key claim) bool {
	for _, e := range p.Engines[:i] {
		if e.ask(key) {
			return false
		}
	}
	return p.Engines[i].ask(key)
}

// check reports everything that keeps the population from starting.
func (p *Population) check(ctx context.Context) error {
	var faults []error
	names := map[string]bool{}
	for i, e := range p.Engines {
		if e == nil {
			return invalidf("engine %d of the population is nil", i)
		}
		if e.running.Load() {
			faults = append(faults, invalidf("engine %q runs already", e.Name))
			continue
		}
		if e.init(); e.fault != nil {
			faults = append(faults, e.fault)
			continue
		}
		if !sameLedger(e.Ledger, p.Engines[0].Ledger) {
			faults = append(faults, invalidf("engine %q works on another ledger than the first", e.Name))
		}
		if names[e.Name] {
			faults = append(faults, invalidf("two engines are named %q; owners must be told apart", e.Name))
		}
		names[e.Name] = true
	}
	if len(p.Engines) == 0 {
		faults = append(faults, invalidf("population without engines"))
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	return p.checkClaims(ctx)
}

// sameLedger compares ledgers, where they can be compared.
func sameLedger(a, b Ledger) bool {
	return !reflect.TypeOf(a).Comparable() || !reflect.TypeOf(b).Comparable() || a == b
}

// checkClaims looks for overlaps on what is pending now.
func (p *Population) checkClaims(ctx context.Context) error {
	state, err := p.Engines[0].Ledger.Snapshot(ctx)
	switch {
	case ctx.Err() != nil: // nothing is going to run
		return nil //nolint:nilerr // a context that ends early is how it ends
	case err != nil:
		return fmt.Errorf("orbit: population: %w", err)
	}
	pairs := map[claim]bool{}
	for c := range state.Capsules() {
		if c.Pending() && c.Owner == "" {
			pairs[claim{c.Spec.Module, c.Spec.Class}] = true
		}
	}
	var faults []error
	for pair := range pairs {
		if owners := p.claimants(pair); len(owners) > 1 {
			faults = append(faults, invalidf("module %q, class %v is claimed by engines %s; claims must not overlap: leave all but one out, or let each claim modules of its own",
				pair.module, pair.class, strings.Join(owners, ", ")))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

// claimants returns the quoted names of the engines that claim a pair.
func (p *Population) claimants(pair claim) []string {
	var names []string
	for _, e := range p.Engines {
		if e.ask(pair) {
			names = append(names, fmt.Sprintf("%q", e.Name))
		}
	}
	return names
}

// watch reports capsules that no engine owns, each once for every time that it becomes pending.
func (p *Population) watch(ctx context.Context) error {
	if p.OnError == nil {
		return nil
	}
	ledger := p.Engines[0].Ledger
	from := source{ledger: ledger, mine: p.unowned}
	view, pace := View{}, pace{Backoff: Backoff{}.withDefaults(), rng: newRand()}
	for ctx.Err() == nil {
		if _, err := view.refresh(ctx, &from, time.Now()); err != nil {
			if ctx.Err() == nil {
				p.OnError(fmt.Errorf("orbit: population: view: %w", err))
			}
			sleep(ctx, pace.next())
			continue
		}
		pace.reset()
		p.reportAll(&view)
		if err := waitForWork(ctx, ledger, view.Revision()); err != nil {
			sleep(ctx, pace.next())
		}
	}
	return nil
}

// waitForWork waits for a change that may leave a capsule without an owner. Others, placements first of all, are
// passed over without a snapshot.
func waitForWork(ctx context.Context, ledger Ledger, seen Revision) error {
	for changes, err := range Follow(ctx, ledger, seen) {
		if errors.Is(err, ErrCompacted) {
			return nil
		} else if err != nil {
			return err
		}
		for i := range changes {
			switch changes[i].Do.(type) {
			case Submit, Assign, Release:
				return nil
			}
		}
	}
	return ctx.Err()
}

// unowned reports whether none of the engines owns the capsule.
func (p *Population) unowned(c *Capsule) bool {
	if c.Owner != "" {
		return !slices.ContainsFunc(p.Engines, func(e *Engine) bool { return e.Name == c.Owner })
	}
	return len(p.claimants(claim{c.Spec.Module, c.Spec.Class})) == 0
}

// reportAll empties the queue of unclaimed capsules into Report.
func (p *Population) reportAll(view *View) {
	for _, c := range view.queue.take(view.state.PendingCount(), view.state, false) {
		why := fmt.Errorf("no engine claims module %q, class %v; assign it to an engine, or let a navigator claim it", c.Spec.Module, c.Spec.Class)
		if c.Owner != "" {
			why = fmt.Errorf("it is assigned to %q, which is none of this population's engines", c.Owner)
		}
		p.OnError(fmt.Errorf("orbit: population: %w", Unplaced{c, why}))
	}
	view.queue.batch = view.queue.batch[:0] // once is enough
}
