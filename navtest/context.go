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
// one, after it, and after half as many calls as an undisturbed plan makes, or a quarter, and so on. The plan must then
// have fewer commitments than the undisturbed plan, which is of more than a thousand capsules in dozens of classes. If the navigator calls Done
// and makes few calls, it looks at the channel, or at a context of its own; then the context ends before the first call
// only. A Plan that never returns is detected by time, after Suite.Patience.

func checkContext(t *trial) {
	all, watch := t.planUntil(-1, 1)
	errs, dones := watch.calls()
	for times := 4; errs+dones == 0 && times <= 16; times *= 4 {
		_, watch = t.planUntil(-1, times) // it may look in another goroutine, which has not run in the first plan
		errs, dones = watch.calls()
	}
	looks := errs + dones
	switch {
	case looks == 0:
		t.Failf("Plan of %d capsules in %d classes never looks at its context", len(all.pending), contextClasses)
	case all.commitments() == 0:
		t.Failf("nothing is proposed for work that fits easily, though the context has not ended")
	case dones == 0 && errs == 1:
		t.Failf("Plan of %d capsules in %d classes looks at its context once, and so cannot end in the middle", len(all.pending), contextClasses)
	}
	if dones > 0 && looks < contextClasses {
		t.endsOnceTold(all)
		return
	}
	t.endsAt(0, looks, all)
	t.endsAt(1, looks, all)
	for after := looks / 2; after > 1; after /= 2 { // whole plans may look on, for example if no node takes more
		if t.partial(after, looks, all) {
			return
		}
	}
}

// endsAt requires that a plan is partial if its context ends at that look.
func (t *trial) endsAt(look, looks int, all *call) {
	if !t.partial(look, looks, all) {
		t.Failf("the plan is whole nevertheless: it makes all of %d commitments", all.commitments())
	}
}

// partial reports whether a plan whose context ends at that look is smaller than the undisturbed one. It must be sound.
func (t *trial) partial(look, looks int, all *call) bool {
	t.Where = fmt.Sprintf("the context ends at look %d of %d: ", look, looks)
	part, _ := t.planUntil(look, 1)
	t.soundInPart(part)
	return part.commitments() < all.commitments()
}

// endsOnceTold checks a navigator that waits on Done, or plans with a derived context: its looks cannot be counted, so
// the context can end before the first one only. Such a navigator may hear of the end in another goroutine, which runs
// when the Go runtime lets it. So the work is doubled as long as a plan is whole.
func (t *trial) endsOnceTold(all *call) {
	t.Where = "the context has ended before Plan: "
	for times := 1; times <= 64; times *= 2 {
		part, _ := t.planUntil(0, times)
		t.soundInPart(part)
		if part.commitments() < times*all.commitments() {
			return
		}
	}
	t.Failf("the plan is whole nevertheless, also if there is 64 times as much work")
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

// planUntil plans a lot of work that fits, and times as much, with a context that ends after that many calls of its
// methods; negative: never.
func (t *trial) planUntil(looks, times int) (*call, *watched) {
	w := t.world()
	w.engine.MaxPlan = 2 * contextClasses * contextEach * times
	w.racks(10 * times)
	for i := range contextClasses {
		spec := small(t.mine[i%len(t.mine)])
		spec.Envelope.Reservation[orbit.CPU] = int64(100 + i)
		w.submit(spec, contextEach*times)
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

// calls returns how often Err and Done were called. A goroutine that Plan has started may still call them.
func (w *watched) calls() (errs, dones int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.errs, w.dones
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
