package orbit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit/internal/rate"
	"golang.org/x/sync/errgroup"
)

// Population runs several engines on one ledger, and reports work that none of them owns. It needs no coordinator:
// claims divide the work, and the ledger settles the rest. Set the fields before Run.
type Population struct {
	// Engines are the engines that the population runs. Work that several of them claim, and that is assigned to none, belongs to the
	// first of these in the list. So an engine for some modules stands before those that claim all.
	Engines []*Engine
	// Strict makes the engines plan in order of priority, not of submission, across the whole population: while one engine has work
	// of higher priority that it has not planned, the others plan no work of lower priority. Work that a plan could not place holds
	// nobody back. So lower work normally waits for one pass of the other engine. It waits for up to 8 passes if these lose
	// their bets, do not take all of the work, or find new work of higher priority. If an engine hangs, the others wait for twice its
	// PlanTimeout, once. A plan that has begun is not stopped. Engines of other processes are not known here: against them work of
	// higher priority needs a nomination, which nav.Patient makes. If Strict is false, the engine that commits first wins, whatever
	// the priority.
	Strict bool
	// OnError is called for each pending capsule that none of the engines will place, once each time that it becomes
	// pending. The error wraps an Unplaced, which names the capsule. Such a capsule is assigned to no engine and
	// claimed by none, or it is assigned to an engine that is not in the list (which is correct if that engine runs in
	// another process). OnError is also called when the ledger cannot be read. Nil: they are written to slog.Default(),
	// at most 10 at once and one more every 10 s.
	OnError func(error)

	owners *claimTable
	log    rate.Log
}

// Run runs all engines until ctx ends, and then returns nil. Before it starts any, it refuses engines with faults, with
// the same name, with one navigator between them, or on different ledgers. The error wraps ErrInvalid.
func (p *Population) Run(ctx context.Context) error {
	if err := p.check(); err != nil {
		return err
	}
	p.owners = &claimTable{engines: p.Engines}
	order := newPrecedence(p.Engines, time.Now())
	for i, e := range p.Engines {
		share := &claimShare{table: p.owners, number: i}
		if p.Strict {
			share.strict = &strictShare{order, i}
		}
		e.population.Store(share)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range p.Engines {
		g.Go(func() error { return e.Run(ctx) })
	}
	g.Go(func() error { return p.watch(ctx) })
	err := g.Wait()
	for i, e := range p.Engines { // a later Pass waits for none of the others, which have stopped
		e.population.Store(&claimShare{table: p.owners, number: i})
	}
	return err
}

// check returns every fault that keeps the population from starting.
func (p *Population) check() error {
	var faults []error
	names, planners := map[string]bool{}, map[any]string{}
	for i, e := range p.Engines {
		if e == nil {
			return invalidf("engine %d of the population is nil", i)
		}
		if e.inRun.Load() {
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
		for n := range navigatorsIn(e.Navigator) {
			if other, known := planners[n]; known && other != e.Name {
				faults = append(faults, invalidf("engines %q and %q share one navigator, a %T; it plans for one engine at a time, so give each a navigator of its own", other, e.Name, n))
			}
			planners[n] = e.Name
		}
	}
	if len(p.Engines) == 0 {
		faults = append(faults, invalidf("population without engines"))
	}
	return errors.Join(faults...)
}

// navigatorsIn yields a navigator and those that it wraps in a field named Navigator. It skips what has no state, because two engines may
// share that: what is no pointer, or points to an empty struct.
func navigatorsIn(n Navigator) iter.Seq[any] {
	return func(yield func(any) bool) {
		for {
			at := reflect.ValueOf(n)
			if at.Kind() != reflect.Pointer || at.IsNil() || at.Type().Elem().Size() == 0 {
				return
			}
			if !yield(n) || at.Elem().Kind() != reflect.Struct {
				return
			}
			inner := at.Elem().FieldByName("Navigator")
			if !inner.IsValid() || !inner.CanInterface() {
				return
			}
			var wrapped bool
			if n, wrapped = inner.Interface().(Navigator); !wrapped {
				return
			}
		}
	}
}

// watch reports the pending capsules that no engine owns, each once for every time that it becomes pending.
func (p *Population) watch(ctx context.Context) error {
	ledger := p.Engines[0].Ledger
	from := source{ledger: ledger, owns: p.unowned}
	view, pace := View{}, pace{Backoff: Backoff{}.withDefaults(), rng: newRand()}
	for ctx.Err() == nil {
		if _, err := view.refresh(ctx, &from, time.Now()); err != nil {
			if ctx.Err() == nil {
				p.report(ctx, fmt.Errorf("view: %w", err))
			}
			sleep(ctx, pace.next())
			continue
		}
		pace.reset()
		p.reportAll(ctx, &view)
		if err := waitForWork(ctx, ledger, view.Revision()); err != nil {
			sleep(ctx, pace.next())
		}
	}
	return nil
}

// unowned reports whether none of the engines owns pending work with this owner and spec.
func (p *Population) unowned(owner string, spec *Spec) bool {
	if owner != "" {
		return !slices.ContainsFunc(p.Engines, func(e *Engine) bool { return e.Name == owner })
	}
	return p.owners.find(claim{spec.Module, spec.Class}) < 0
}

// report passes an error to OnError, or writes it to the log.
func (p *Population) report(ctx context.Context, err error) {
	if p.OnError != nil {
		p.OnError(fmt.Errorf("orbit: population: %w", err))
		return
	}
	p.log.Error(ctx, "orbit: error of a population", err)
}

// reportAll reports each capsule in the view's queue, which has the work that no engine owns, and empties the
// queue.
func (p *Population) reportAll(ctx context.Context, view *View) {
	most := view.state.PendingCount()
	view.queue.turn(most, view.state, false)
	for _, c := range view.queue.take(most) {
		why := fmt.Errorf("no engine claims module %q, class %v; assign it to an engine, or let a navigator claim it", c.Spec.Module, c.Spec.Class)
		if c.Owner() != "" {
			why = fmt.Errorf("it is assigned to %q, which is none of this population's engines (%s): assign it to one of these, or run an engine of that name",
				c.Owner(), p.names())
		}
		p.report(ctx, Unplaced{c, why})
	}
	view.queue.batch = view.queue.batch[:0] // do not report them again
}

// names lists the names of the engines, the first ten of them.
func (p *Population) names() string {
	var names []string
	for i, e := range p.Engines {
		if i == 10 {
			names = append(names, fmt.Sprintf("and %d more", len(p.Engines)-i))
			break
		}
		names = append(names, fmt.Sprintf("%q", e.Name))
	}
	return strings.Join(names, ", ")
}

// claimTable tells which engine of a population owns the work that is assigned to none: the first engine that claims
// its module and class. All engines share one table, so each pair is looked up once, whatever the number of engines.
type claimTable struct {
	engines []*Engine
	// Guards the fields below. It is never held during a call of a navigator.
	mu sync.RWMutex
	// The position of the engine for each pair, -1 if none claims it; at most maxClaims pairs.
	owner map[claim]int
	// Counts the calls of forget, so that find does not store an answer from before one.
	forgotten int
}

// find returns the position of the engine that owns a pair; -1: no engine claims it. It asks the engines in order, up
// to the first that claims the pair. Each engine asks its navigator under its own guard and caches the answer.
func (t *claimTable) find(key claim) int {
	t.mu.RLock()
	owner, known := t.owner[key]
	forgotten := t.forgotten
	t.mu.RUnlock()
	if known {
		return owner
	}
	owner = slices.IndexFunc(t.engines, func(e *Engine) bool { return e.ask(key) })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forgotten == forgotten {
		if t.owner == nil || len(t.owner) >= maxClaims {
			t.owner = map[claim]int{}
		}
		t.owner[key] = owner
	}
	return owner
}

// forget clears the table. Some answers were given while a navigator did not answer, and it answers again.
func (t *claimTable) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owner = nil
	t.forgotten++
}

// claimShare is the position of an engine in the claim table of its population.
type claimShare struct {
	table  *claimTable
	number int
	// The engine's share in the order of a strict population; nil: it is not strict.
	strict *strictShare
}

// sameLedger reports whether two ledgers are the same, or cannot be compared.
func sameLedger(a, b Ledger) bool {
	return !reflect.TypeOf(a).Comparable() || !reflect.TypeOf(b).Comparable() || a == b
}

// waitForWork waits for a change that may leave a capsule without an owner. It skips others, such as placements,
// without a snapshot.
func waitForWork(ctx context.Context, ledger Ledger, seen Revision) error {
	for changes, err := range Follow(ctx, ledger, seen) {
		if errors.Is(err, ErrCompacted) {
			return nil
		} else if err != nil {
			return err
		}
		for i := range changes {
			if _, submits := changes[i].Do.(Submit); submits || effectOf(changes[i].Do).waits != "" {
				return nil
			}
		}
	}
	return ctx.Err()
}
