package navtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/orbitsched/orbit"
)

// The rule: Plan checks its context while it works. After the context has ended, Plan returns soon, with the plan so
// far, which must be sound. If that plan does not account for all the work, Plan also returns the context's error.
//
// How: no time is measured. The context counts the calls of Err and Done, and ends at a chosen call: before the first
// one, after it, and after half as many calls as an undisturbed plan makes. The plan must then have fewer commitments
// than the undisturbed plan, which is of more than a thousand capsules in dozens of classes. Only a Plan that never
// returns is detected by time, after Suite.Patience.

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
			continue // it waits on Done, so its looks at the context cannot be counted
		}
		t.Where = fmt.Sprintf("the context ends at look %d of %d: ", after, watch.errs+watch.dones)
		part, _ := t.planUntil(after)
		if n := part.commitments(); n >= all.commitments() {
			t.Failf("the plan is whole nevertheless: it makes all of %d commitments", n)
		}
		t.soundInPart(part)
	}
}

// commitments returns the number of commitments of a plan.
func (c *call) commitments() (n int) {
	for _, p := range c.plan.Proposals {
		n += len(p.Do)
	}
	return n
}

// soundInPart checks a plan whose context has ended.
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

// The number of specs, and of capsules of each spec.
const contextClasses, contextEach = 40, 32

// planUntil plans a lot of work that fits, with a context that ends after that many calls of its methods; negative:
// never.
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

// watched is a context that counts the calls of its methods and ends at a chosen call. Contexts that are derived from
// it end with it.
type watched struct {
	context.Context
	end func()

	mu          sync.Mutex // guards the fields below
	errs, dones int        // calls of Err and of Done
	left        int        // calls until it ends; negative: it never does
}

// watching derives a context that ends after that many calls.
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
