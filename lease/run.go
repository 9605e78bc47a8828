package lease

import (
	"context"
	"time"

	"github.com/orbitsched/orbit/internal/send"
)

// pollEvery is the longest wait between two steps, so that the loop reads what other processes have committed. After a
// step that has failed it is also the shortest.
const pollEvery = time.Second

// Run steps whenever there is something to do and at least every second, until ctx ends, and then returns nil. Errors
// of steps are in the rounds that Hook is called with. Run it once in each process. Without a Ledger, or with a
// Prefix that does not end in a slash, it returns an error that wraps orbit.ErrInvalid.
//
// Without [Keeper.Refreshes] refreshes stay in the memory of one process. Only one process may then run a keeper of the
// same leases, because a keeper ends every term of which it has received no refreshes. When it starts, or first reads a
// term, it assumes that the term was refreshed at that moment.
//
// With Refreshes any number of processes may run a keeper. Each term has a token in Refreshes, which the row names, and
// end is the time until which the token is known to live. At that time the next Step asks Refreshes about the token.
// The term is dead when its token has ended, which is the same for all processes.
func (k *Keeper) Run(ctx context.Context) error {
	if err := k.check(); err != nil {
		return err
	}
	k.init()
	loop(ctx, k.wake, func() (time.Duration, bool) {
		began := k.clock()
		round, _ := k.Step(ctx)
		if k.Hook != nil && round.active() && ctx.Err() == nil {
			k.Hook(round)
		}
		return k.untilNext(began, round.Next, round.active()), round.healthy()
	})
	return nil
}

// healthy reports whether the next step may follow without a delay. A corrupt row does not count as a failure here,
// because it does not affect the other leases.
func (r *Round) healthy() bool { return !r.failed && r.Conflicts == 0 }

// untilNext returns the time from now until next, by the keeper's clock. Began is when the step began, active whether it
// did something.
func (k *Keeper) untilNext(began, next time.Time, active bool) time.Duration {
	switch {
	case next.IsZero():
		return pollEvery
	case !active && !next.After(began):
		return overdueWait
	}
	return max(0, next.Sub(k.clock()))
}

// gatherFor is the delay before a step that was woken, so that one step serves several wake-ups.
const gatherFor = 10 * time.Millisecond

// overdueWait is the wait after a step that has done nothing although something was due when it began. That would be a
// defect; the loop is then late, and does not spin.
const overdueWait = 100 * time.Millisecond

// loop calls step again and again until ctx ends. Between two steps it waits for the time that step has returned, at
// most pollEvery, or until wake has a token. After a step that was not healthy it waits for pollEvery.
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
