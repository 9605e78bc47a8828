package ledgertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// Load lets many goroutines use a ledger at once, through one or more handles, and then checks the whole history. They
// make commits of all kinds with few nodes, capsules and gangs, so that they often conflict. They send proposals with
// an unknown outcome again, and call all methods that read.
//
// The operations of each goroutine are drawn from the seed before the first one starts; how their calls interleave differs
// from run to run. The zero value is a load of 4,000 operations.
type Load struct {
	// Seed selects the random operations; the same seed gives each worker the same sequence of draws.
	Seed uint64
	// Operations is the number of operations of all workers together; default 4,000.
	Operations int
	// Workers is the number of goroutines; default 8.
	Workers int
	// Faults are injected between the workers and the ledger; nil: none. The load checks the calls and answers of the
	// ledger itself, before faults change them.
	Faults *Faults
	// Shared says that other writers use the ledger whose commits this load does not know, such as another process with
	// its own load and seed.
	Shared bool
	// World names the nodes and capsules of the load. Loads of the same world compete with each other, also across
	// processes. Default: a world of its own.
	World string
}

// Figures are the results of a load.
type Figures struct {
	// Handles, Workers and Operations say how large the load was.
	Handles, Workers, Operations int
	// Committed, Conflicts, Infeasible, Invalid, Unknown and Unavailable count proposals by outcome. A proposal that
	// was sent several times counts each time.
	Committed, Conflicts, Infeasible, Invalid, Unknown, Unavailable int
	// Changes is the number of changes in the history.
	Changes int
	// Elapsed is the duration of the load, and Judged the part of it in which the histories were checked.
	Elapsed, Judged time.Duration
	// P50 and P99 are quantiles of the duration of those calls of Propose that were answered with a revision or a
	// rejection.
	P50, P99 time.Duration
	// Faults counts the injected faults.
	Faults map[Fault]int
}

// String returns the figures in one line.
func (f Figures) String() string {
	s := fmt.Sprintf("%d operations of %d goroutines over %d handles in %v (%.0f/s): %d committed, %d conflicts, %d infeasible, %d unknown, %d unavailable; propose p50 %v p99 %v; %d changes replayed in %v",
		f.Operations, f.Workers, f.Handles, f.Elapsed.Round(time.Millisecond), float64(f.Operations)/f.Elapsed.Seconds(),
		f.Committed, f.Conflicts, f.Infeasible, f.Unknown, f.Unavailable,
		f.P50.Round(time.Microsecond), f.P99.Round(time.Microsecond), f.Changes, f.Judged.Round(time.Millisecond))
	if len(f.Faults) > 0 {
		s += fmt.Sprintf("; injected %v", f.Faults)
	}
	return s
}

// Run runs the load on the handles and reads the history from the first one. It returns an error if the history cannot be
// that of a correct ledger ([History.Check]), if the state is not sound, or if ctx ends too early. It may be run again on
// the same ledger.
func (l Load) Run(ctx context.Context, handles ...orbit.Ledger) (Figures, error) {
	if len(handles) == 0 {
		return Figures{}, errors.New("ledgertest: a load needs a ledger")
	}
	l.Operations, l.Workers = cmp.Or(l.Operations, 4000), cmp.Or(l.Workers, 8)
	recorder, err := NewRecorder(ctx, handles[0])
	if err != nil {
		return Figures{}, err
	}
	recorder.Shared = l.Shared
	r := &running{Load: l, ctx: ctx, recorder: recorder, history: recorder.base.Limits().History}
	r.window = min(recorder.base.Limits().ProposalIDs, recorder.base.Limits().PlacementIDs) / 2
	r.name = fmt.Sprintf("%x-%x", recorder.base.Revision(), l.Seed)
	r.prefix = cmp.Or(l.World, r.name) + "-"
	r.plain = recorder.Handle(handles[0])
	for _, h := range handles {
		h = recorder.Handle(h)
		if l.Faults != nil {
			h = l.Faults.Around(h)
		}
		r.handles = append(r.handles, h)
	}
	return r.run()
}

// running is the state of a load.
type running struct {
	Load
	stage
	ctx      context.Context
	recorder *Recorder
	handles  []orbit.Ledger
	// plain is a handle without faults, which makes the world.
	plain orbit.Ledger
	// history is the number of changes that the ledger keeps.
	history int
	// window is a number of commits after which the ledger still remembers the id of a proposal.
	window int
	// name distinguishes this run from others on the same ledger.
	name string
}

// run makes the world, runs the workers and checks the history.
func (r *running) run() (Figures, error) {
	begin := time.Now()
	workers, err := r.followed()
	elapsed := time.Since(begin)
	if err != nil {
		return Figures{}, fmt.Errorf("ledgertest: load: %w", err)
	}
	h, err := r.recorder.History(r.ctx)
	if err != nil {
		return Figures{}, err
	}
	begin = time.Now()
	err = h.Check()
	if err == nil {
		err = h.Final.Verify()
	}
	f := r.figures(h, workers)
	f.Elapsed, f.Judged = elapsed, time.Since(begin)
	return f, err
}

// followed runs the workers while the recorder reads the history. It stops the workers if the history cannot be read,
// because then nothing can be checked.
func (r *running) followed() ([]*worker, error) {
	outer := r.ctx
	working, stop := context.WithCancel(outer)
	defer stop()
	r.ctx = working
	lost := make(chan error, 1)
	go func() {
		defer stop()
		lost <- r.recorder.Follow(working)
	}()
	workers, err := r.work()
	stop()
	r.ctx = outer
	return workers, cmp.Or(<-lost, err)
}

// work runs the workers until all are done.
func (r *running) work() ([]*worker, error) {
	workers := make([]*worker, r.Workers)
	for i := range workers {
		rng := rand.New(rand.NewPCG(r.Seed, uint64(i)))
		n := r.Operations/r.Workers + min(1, max(0, r.Operations%r.Workers-i))
		workers[i] = &worker{running: r, ledger: r.handles[i%len(r.handles)], number: i, plan: draw(rng, n), view: r.recorder.base}
	}
	hand := &worker{running: r, ledger: r.plain, number: r.Workers}
	for _, p := range r.setup() {
		if err := hand.propose(p); err != nil && r.World == "" { // a world with a name may have been made by another load
			return nil, fmt.Errorf("making the world: %w", err)
		}
	}
	errs := make([]error, len(workers))
	var wg sync.WaitGroup
	for i, w := range workers {
		wg.Go(func() { errs[i] = guard.Run(w.run) })
	}
	wg.Wait()
	return workers, errors.Join(errs...)
}

// figures returns the figures of the load.
func (r *running) figures(h History, workers []*worker) Figures {
	f := Figures{Handles: len(r.handles), Workers: r.Workers, Operations: r.Operations, Changes: len(h.Changes)}
	for i := range h.Calls {
		if h.Calls[i].Kind == Propose {
			f.count(h.Calls[i].Err)
		}
	}
	var took []time.Duration
	for _, w := range workers {
		took = append(took, w.took...)
	}
	if slices.Sort(took); len(took) > 0 {
		f.P50, f.P99 = took[len(took)/2], took[len(took)*99/100]
	}
	if r.Faults != nil {
		f.Faults = r.Faults.Counts()
		delete(f.Faults, None)
	}
	return f
}

// count counts an outcome.
func (f *Figures) count(err error) {
	switch {
	case err == nil:
		f.Committed++
	case errors.Is(err, orbit.ErrConflict):
		f.Conflicts++
	case errors.Is(err, orbit.ErrInfeasible):
		f.Infeasible++
	case errors.Is(err, orbit.ErrInvalid):
		f.Invalid++
	case errors.Is(err, orbit.ErrUnavailable):
		f.Unavailable++
	default:
		f.Unknown++
	}
}
