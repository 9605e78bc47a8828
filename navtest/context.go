package navtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/orbitsched/orbit"
)

// The rule: Plan looks at its context while it works. Once that has ended it returns soon, with what it has
// so far, which is sound; if that does not account for all the work, it returns the context's error too.
//
// How: clocks are not asked. The context counts how often it is looked at, by Err and by Done, and ends at a
// look that is chosen: before the first one, after it, and half way through as many as an undisturbed plan
// takes. What the plan does then must be less
// than it does undisturbed, with more than a thousand capsules of dozens of classes. Only
// a Plan that never returns is told by the clock, after Suite.Patience.

func checkContext(t *trial) {
	all, watch := t.planUntil(-1)
	switch {
	case watch.errs+watch.dones == 0:
		t.Failf("Plan of %d capsules in %d classes never looks at its context", len(all.pending), contextClasses)
	case all.commitments() == 0:
		t.Failf("nothing is proposed for work that fits easily, though the context has not ended")
	case watch.dones == 0 && watch.errs == 1:
		t.Failf("Plan of %d capsules in %d classes looks at its context once, and so cannot end in the middle", len(all.pending), contextClasses)
	}
	for _, after := range []int{0, 1, (watch.errs + watch.dones) / 2} {
		if after > 0 && watch.errs+watch.dones < 2 {
			continue // it waits on Done, where looks cannot be counted
		}
		t.Where = fmt.Sprintf("the context ends at look %d of %d: ", after, watch.errs+watch.dones)
		part, _ := t.planUntil(after)
		if n := part.commitments(); n >= all.commitments() {
			t.Failf("the plan is whole nevertheless: it makes all of %d commitments", n)
		}
		t.soundInPart(part)
	}
}

// commitments counts what a plan does.
func (c *call) commitments() (n int) {
	for _, p := range c.plan.Proposals {
		n += len(p.Do)
	}
	return n
}

// soundInPart checks what a plan has become whose context has ended.
func (t *trial) soundInPart(c *call) {
	t.Must(c.replays())
	t.Must(t.trespass(c))
	if c.err == nil {
		if err := c.unaccounted(); err != nil {
			t.Failf("Plan returns no error, though it has not accounted for all of the work: %w", err)
		}
	} else if !errors.Is(c.err, context.Canceled) {
		t.Failf("Plan returns an error that is not the context's: %w", c.err)
	}
}

// So many specs, and so many capsules of each.
const contextClasses, contextEach = 40, 32

// planUntil plans a lot of work that fits with a context that ends after so many looks; negative: never.
func (t *trial) planUntil(looks int) (*call, *watched) {
	w := t.world()
	w.engine.MaxPlan = 2 * contextClasses * contextEach
	w.racks(10)
	for i := range contextClasses {
		spec := small(t.mine[i%len(t.mine)])
		spec.Envelope.Reservation[orbit.CPU] = int64(100 + i)
		w.submit(spec, contextEach)
	}
	var watch *watched
	w.ask = func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		watch = watching(ctx, looks)
		return w.under.Plan(watch, view, pending)
	}
	c := w.passing()
	if c == nil {
		t.Failf("Plan was not called, though there is work")
	}
	return c, watch
}

// watched is a context that counts how often it is looked at and ends at a given look. Contexts that are
// derived from it end with it.
type watched struct {
	context.Context
	end func()

	// Guards what follows.
	mu          sync.Mutex
	errs, dones int
	// Looks until it ends; negative: never.
	left int
}

// watching derives a context that ends after so many looks.
func watching(parent context.Context, looks int) *watched {
	ctx, cancel := context.WithCancel(parent)
	w := &watched{Context: ctx, end: cancel, left: looks}
	if looks == 0 {
		cancel()
	}
	return w
}

// Err counts a call.
func (w *watched) Err() error {
	w.count(&w.errs)
	return w.Context.Err()
}

// Done counts a call.
func (w *watched) Done() <-chan struct{} {
	w.count(&w.dones)
	return w.Context.Done()
}

// count counts a call, and ends the context at the first call beyond the limit.
func (w *watched) count(count *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*count++
	if w.left == 0 {
		w.end()
	}
	if w.left > 0 {
		w.left--
	}
}
