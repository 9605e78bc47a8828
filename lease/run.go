package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// pollEvery is the longest wait between two steps, so that the loop reads what other processes have committed. After a step
// that has failed it is also the shortest.
const pollEvery = time.Second

// Run steps whenever there is something to do and at least every second, until ctx ends, and then returns nil. Errors of
// steps are in the rounds that Hook is called with. Run it once in each process. Without a Ledger it returns an error that
// wraps [orbit.ErrInvalid].
func (k *Keeper) Run(ctx context.Context) error {
	if k.Ledger == nil {
		return fmt.Errorf("lease: %w: Keeper.Ledger is nil; set it before first use", orbit.ErrInvalid)
	}
	k.init()
	loop(ctx, k.wake, func() (time.Duration, bool) {
		round, _ := k.Step(ctx)
		if k.Hook != nil && round.active() && ctx.Err() == nil {
			k.Hook(round)
		}
		return k.untilNext(round.Next), round.healthy()
	})
	return nil
}

// healthy reports whether the next step may follow without a delay. A corrupt row does not count as a failure here, because
// it does not affect the other leases.
func (r *Round) healthy() bool { return !r.failed && r.Conflicts == 0 }

// untilNext returns the time from now until next, by the keeper's clock.
func (k *Keeper) untilNext(next time.Time) time.Duration {
	if next.IsZero() {
		return pollEvery
	}
	return max(0, next.Sub(k.clock()))
}

// gatherFor is how long a step that was woken waits for what others wake it for.
const gatherFor = 10 * time.Millisecond

// loop calls step again after the time that step has returned, but not later than pollEvery, and soon if it is woken. After a step
// that was not healthy it waits for pollEvery. It returns when ctx has ended.
func loop(ctx context.Context, wake <-chan struct{}, step func() (wait time.Duration, well bool)) {
	for ctx.Err() == nil {
		wait, well := step()
		if !well {
			send.Pause(ctx, pollEvery)
			continue
		}
		next := time.NewTimer(min(wait, pollEvery))
		select {
		case <-next.C:
		case <-wake:
			send.Pause(ctx, gatherFor)
		case <-ctx.Done():
		}
		next.Stop()
	}
}
