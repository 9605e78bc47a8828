package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/nav"
)

// share is a navigator that claims those modules whose hash belongs to it. It places capsules as nav.Services does,
// whatever their class.
type share struct {
	nav.Services
	part, of uint32
}

// Claims reports whether the module's hash belongs to this share.
func (s *share) Claims(module string, _ orbit.AppClass) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(module)) // never fails
	return h.Sum32()%s.of == s.part
}

// run is one constellation, scheduled from scratch.
type run struct {
	options
	ledger   *orbit.MemoryLedger
	progress *progress
	sampler  *sampler     // nil: takes no samples
	state    *orbit.State // at the end

	// gate is locked for reading by every pass, and for writing by a pause. During a pause no engine works and no clock
	// of the run ticks.
	gate   sync.RWMutex
	floor  *floor
	paused error // the first error of a pause

	// mu guards the fields below.
	mu    sync.Mutex
	tally tally
}

// tally is the sum of all passes.
type tally struct {
	passes, committed, conflicts int
	// The wall-clock time of each stage, summed over all engines, and of the whole run.
	submit, view, plan, propose, wall time.Duration
	// spent is the processor time (cputime.Name) of all threads from start to end without pauses, floor that of the
	// floor.
	spent, floor time.Duration
	notes        notes
	// why is the reason for which a class was last found to fit nowhere.
	why map[*orbit.Spec]error
	// failed is the number of passes with errors; the first of these errors is kept.
	failed  int
	failure error
}

// floors returns what the run has spent as a multiple of the floor; 0 if nothing was placed.
func (t *tally) floors() float64 {
	if t.floor == 0 {
		return 0
	}
	return float64(t.spent) / float64(t.floor)
}

// newRun generates a constellation and its capsules.
func newRun(ctx context.Context, o options, sampling bool, status io.Writer) (*run, error) {
	r := &run{options: o, ledger: &orbit.MemoryLedger{}}
	classes, submitting, err := fill(ctx, r.ledger, o)
	if err != nil {
		return nil, err
	}
	if sampling {
		r.sampler = &sampler{classes: classes, capsules: o.capsules}
	}
	r.tally.submit = submitting
	r.progress = &progress{out: status, total: o.capsules, every: o.progressEvery, last: time.Now()}
	r.floor, err = newFloor(context.WithoutCancel(ctx), r.ledger)
	return r, err
}

// start runs the engines until none of them makes progress any more, or ctx ends.
func (r *run) start(ctx context.Context) (err error) {
	runtime.GC() // so that garbage from the set-up is not collected during the run
	begin, spent := time.Now(), cputime.Process()
	r.pause(ctx)
	var group sync.WaitGroup
	for i := range r.navigators {
		engine := &orbit.Engine{
			Name: "navigator-" + strconv.Itoa(i), Ledger: r.ledger,
			Navigator:   &share{part: uint32(i), of: uint32(r.navigators), Services: nav.Services{Placement: engines[r.engine](uint64(i))}},
			MaxPlan:     planSize(r.options, r.ledger.Limits().History),
			PlanTimeout: time.Hour, // exhaustive plans take their time
			ParkFor:     time.Hour, // no capsule leaves, so a capsule that does not fit will not fit later
		}
		group.Go(func() { r.work(ctx, engine) })
	}
	group.Wait()
	r.tally.wall += time.Since(begin)
	r.tally.spent += cputime.Process() - spent
	if err := errors.Join(r.paused, r.floor.catchUp(context.WithoutCancel(ctx), true)); err != nil {
		return err
	}
	r.tally.floor = r.floor.took
	if r.state, err = r.ledger.Snapshot(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := r.state.Verify(); err != nil {
		return fmt.Errorf("the ledger's books are wrong: %w", err)
	}
	if placed := r.capsules - r.state.PendingCount(); placed != r.tally.committed {
		return fmt.Errorf("the ledger has %d capsules placed, the engines have placed %d", placed, r.tally.committed)
	}
	if r.tally.failure != nil && ctx.Err() == nil {
		return fmt.Errorf("%d passes met errors, the first: %w", r.tally.failed, r.tally.failure)
	}
	return nil
}

// planSize returns how many capsules a plan may have. The more there are of a kind in a plan, the less each costs. But the
// floor reads the ledger's history only in pauses, so what all navigators place until the next one must fit into it.
func planSize(o options, history int) int {
	return max(1, min(10_000, o.capsules/20, history/2/o.navigators))
}

// work calls Pass until nothing is left to plan or a pass makes no progress: it commits nothing, loses nothing to other
// engines, and parks no class.
func (r *run) work(ctx context.Context, engine *orbit.Engine) {
	parked := 0
	for ctx.Err() == nil {
		r.gate.RLock()
		round := engine.Pass(ctx)
		r.gate.RUnlock()
		r.pause(ctx)
		r.mu.Lock()
		r.tally.add(round)
		r.progress.at(r.tally.committed)
		r.mu.Unlock()
		if round.Pending == 0 || round.Committed == 0 && round.Conflicts == 0 && round.Parked <= parked {
			return
		}
		parked = round.Parked
	}
}

// pause stops all engines and the clocks of the run, and measures the floor and the reference engine meanwhile.
func (r *run) pause(ctx context.Context) {
	r.gate.Lock()
	defer r.gate.Unlock()
	begin, spent := time.Now(), cputime.Process()
	err := r.floor.catchUp(context.WithoutCancel(ctx), false)
	if err == nil && r.sampler != nil {
		err = r.sampler.take(context.WithoutCancel(ctx), r.ledger)
	}
	r.paused = errors.Join(r.paused, err)
	r.tally.wall -= time.Since(begin)
	r.tally.spent -= cputime.Process() - spent
}

func (t *tally) add(r orbit.Round) {
	if r.Pending > 0 {
		t.passes++
	}
	t.committed += r.Committed
	t.conflicts += r.Conflicts
	t.view += r.Viewing
	t.plan += r.Planning
	t.propose += r.Proposing
	for _, note := range r.Notes {
		t.notes.add(note)
	}
	if t.why == nil {
		t.why = map[*orbit.Spec]error{}
	}
	for _, u := range r.Unplaced {
		t.why[u.Capsule.Spec] = u.Why
	}
	if len(r.Errors) > 0 {
		if t.failed++; t.failure == nil {
			t.failure = r.Errors[0]
		}
	}
}
