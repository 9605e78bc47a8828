package ledgertest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// Load lets many goroutines use a ledger at once, over one or more handles, and then checks the whole history. They place,
// release, move, hold, drain, empty and remove on few nodes with few capsules and gangs, so that they are always in each
// other's way; they send again what they are not told the outcome of, and read in every way that there is.
//
// What each of them does is drawn from the seed before the first one starts. How their calls interleave is the machine's
// affair. The zero value is a load of 4,000 operations.
type Load struct {
	Seed uint64
	// Of all goroutines together; default 4,000.
	Operations int
	// Goroutines; default 8.
	Workers int
	// If set, what goes wrong between the goroutines and the ledger. Conflicts that are injected are wrong
	// answers, and reported as such.
	Faults *Faults
	// Others write to the ledger, too, such as another process with a load of its own: what they commit is not
	// known here.
	Shared bool
}

// Figures are what a load has come to.
type Figures struct {
	Handles, Workers, Operations int
	// Proposals by outcome. Those that were sent again count once more.
	Committed, Conflicts, Infeasible, Invalid, Unknown, Unavailable int
	// Changes in the history, and how long the load and the check took.
	Changes         int
	Elapsed, Judged time.Duration
	// Of calls of Propose that were answered with a revision or a rejection.
	P50, P99 time.Duration
	// What was injected.
	Faults map[Fault]int
}

// String is one line.
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

// Run puts the load on the handles, of which the first one's history is read. It returns an error where the history
// cannot be that of a correct ledger ([History.Check]), where the state does not add up, or where the context ends too
// early. It may be run again on the same ledger.
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
	r.stage.prefix = fmt.Sprintf("%x-%x-", recorder.base.Revision(), l.Seed)
	for _, h := range handles {
		h = recorder.Handle(h)
		if l.Faults != nil {
			h = l.Faults.Around(h)
		}
		r.handles = append(r.handles, h)
	}
	return r.run()
}

// running is a load that runs.
type running struct {
	Load
	stage
	ctx      context.Context
	recorder *Recorder
	handles  []orbit.Ledger
	// How many changes the ledger keeps.
	history int
}

// run makes the stage, runs the workers and checks what they have seen.
func (r *running) run() (Figures, error) {
	following, stop := context.WithCancel(r.ctx)
	defer stop()
	lost := make(chan error, 1)
	go func() { lost <- r.recorder.Follow(following) }()
	begin := time.Now()
	workers, err := r.work()
	elapsed := time.Since(begin)
	if err == nil {
		err = r.ctx.Err()
	}
	stop()
	if err = errors.Join(err, <-lost); err != nil {
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

// work runs the workers until all are done.
func (r *running) work() ([]*worker, error) {
	workers := make([]*worker, r.Workers)
	for i := range workers {
		rng := rand.New(rand.NewPCG(r.Seed, uint64(i)))
		n := r.Operations/r.Workers + min(1, max(0, r.Operations%r.Workers-i))
		workers[i] = &worker{running: r, ledger: r.handles[i%len(r.handles)], number: i, plan: draw(rng, n), view: r.recorder.base}
	}
	for _, p := range r.setup() {
		if err := workers[0].propose(p); err != nil {
			return nil, fmt.Errorf("making the world: %w", err)
		}
	}
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(w.run)
	}
	wg.Wait()
	return workers, nil
}

// figures counts.
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

// worker is one goroutine of a load.
type worker struct {
	*running
	ledger orbit.Ledger
	number int
	plan   []action
	view   *orbit.State
	last   orbit.Proposal
	count  uint64
	took   []time.Duration
}

// run carries out the plan. What fails is for the check to judge.
func (w *worker) run() {
	w.look()
	for _, a := range w.plan {
		for w.recorder.behind() > w.history/4 && w.ctx.Err() == nil {
			sleep(w.ctx, time.Millisecond) // or the history would be gone before it is read
		}
		if w.ctx.Err() != nil {
			return
		}
		if a.fresh {
			w.look()
		}
		w.step(a)
	}
}

// look takes a snapshot; where that fails the old one stays.
func (w *worker) look() {
	if s, err := w.ledger.Snapshot(w.ctx); err == nil && s.Gang(w.gang(gangs-1)) != nil {
		w.view = s
	}
}

// step carries out one action.
func (w *worker) step(a action) {
	if w.view.Gang(w.gang(gangs-1)) == nil {
		w.look() // has seen nothing of the stage yet
		return
	}
	switch a.kind {
	case "snapshot":
		w.look()
	case "changes":
		_, _ = w.ledger.Changes(w.ctx, w.view.Revision())
	case "wait":
		short, cancel := context.WithTimeout(w.ctx, 2*time.Millisecond)
		defer cancel()
		_, _ = w.ledger.Wait(short, w.view.Revision())
	case "again":
		if len(w.last.Do) > 0 {
			_ = w.propose(w.last)
		}
	case "batch":
		w.batch(a)
	default:
		if p := w.proposal(a, w.view); len(p.Do) > 0 {
			p.View = w.view.Revision()
			_ = w.propose(p)
		}
	}
}

// identify gives a proposal an id that nobody else has, and that is the same in each run on a fresh ledger.
func (w *worker) identify(p *orbit.Proposal) {
	w.count++
	binary.BigEndian.PutUint64(p.ID[:], hashOf(w.prefix))
	binary.BigEndian.PutUint16(p.ID[8:], uint16(w.number))
	binary.BigEndian.PutUint32(p.ID[12:], uint32(w.count))
}

// propose sends a proposal until its outcome is known.
func (w *worker) propose(p orbit.Proposal) error {
	if p.ID.IsZero() {
		w.identify(&p)
	}
	w.last = p
	for {
		begin := time.Now()
		err := w.send(p)
		if !errors.Is(err, orbit.ErrUnknown) && !errors.Is(err, orbit.ErrUnavailable) {
			w.took = append(w.took, time.Since(begin))
			return err
		}
		if w.ctx.Err() != nil {
			return err
		}
		sleep(w.ctx, 100*time.Microsecond)
	}
}

// send sends a proposal once. After a panic its outcome is unknown.
func (w *worker) send(p orbit.Proposal) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	_, err = w.ledger.Propose(w.ctx, p)
	return err
}

// batch sends three proposals at once, and what is unknown again, one by one.
func (w *worker) batch(a action) {
	var batch []orbit.Proposal
	for i := range 3 {
		a.what, a.where = (a.what+i)%capsules, (a.where+i)%nodes
		p := w.proposal(a, w.view)
		p.View = w.view.Revision()
		w.identify(&p)
		batch = append(batch, p)
	}
	b, ok := w.ledger.(orbit.Batcher)
	if !ok {
		for _, p := range batch {
			_ = w.propose(p)
		}
		return
	}
	for i, o := range w.sendAll(b, batch) {
		if errors.Is(o.Err, orbit.ErrUnknown) || errors.Is(o.Err, orbit.ErrUnavailable) {
			_ = w.propose(batch[i])
		}
	}
}

// sendAll sends a batch once. After a panic all outcomes are unknown.
func (w *worker) sendAll(b orbit.Batcher, batch []orbit.Proposal) (out []orbit.Outcome) {
	defer func() {
		if recover() != nil {
			out = slices.Repeat([]orbit.Outcome{{Err: errPanicked}}, len(batch))
		}
	}()
	return b.ProposeBatch(w.ctx, batch)
}
