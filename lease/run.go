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

// Run steps whenever there is something to do, and every second, until ctx ends; it returns the context's error.
// What goes wrong is in the rounds that Hook is called with. It is one goroutine; run one in each process. It refuses,
// with an error that wraps [orbit.ErrInvalid], to run without a Ledger.
func (k *Keeper) Run(ctx context.Context) error {
	if k.Ledger == nil {
		return fmt.Errorf("lease: %w: Keeper.Ledger is nil; set it before first use", orbit.ErrInvalid)
	}
	return loop(ctx, func() (time.Duration, bool) {
		round, _ := k.Step(ctx)
		if k.Hook != nil && round.active() && ctx.Err() == nil {
			k.Hook(round)
		}
		return k.untilNext(round.Next), round.healthy()
	})
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

// loop calls step again when the time that it returned has passed, and never later than pollEvery; after one that
// has not gone well, never sooner either.
func loop(ctx context.Context, step func() (wait time.Duration, well bool)) error {
	for ctx.Err() == nil {
		wait, well := step()
		if wait = min(wait, pollEvery); !well {
			wait = pollEvery
		}
		send.Pause(ctx, wait)
	}
	return ctx.Err()
}
