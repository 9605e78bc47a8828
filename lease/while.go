package lease

import (
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
)

// While calls work whenever this holder has the lease of a name, until ctx ends or work returns. So of several processes that call it one
// works, and the others stand by: for engines, though these may also run beside each other, because the ledger settles who wins.
//
//	go keeper.Run(ctx)
//	err := keeper.While(ctx, "engines", "machine-1#5f3c", population.Run)
//
// If the term ends early, because it could not be refreshed for example, the context of work ends within a sixth of TTL. Work must
// return soon then, and is called again when the holder has another term. A process that has returned, or has ended ctx, is followed
// within a sixth of TTL, and one that has crashed within a sixth more than TTL. Keeper.Run has to run in each process, and several
// processes have to share Refreshes. The names of holders are as for [Keeper.Acquire].
//
// While returns the error of work, nil if ctx has ended, or the error of an Acquire that a later try cannot mend ([ErrCorrupt],
// [orbit.ErrInvalid]).
func (k *Keeper) While(ctx context.Context, name, holder string, work func(ctx context.Context) error) error {
	for {
		term, err := k.Acquire(ctx, name, holder)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				k.giveUp(ctx, term)
			}
			return nil
		case errors.Is(err, ErrCorrupt), errors.Is(err, orbit.ErrInvalid):
			return err
		case err == nil:
			again, err := k.hold(ctx, term, work)
			if !again {
				return err
			}
		}
		select { // the lease is held by another, has begun too many terms, or the ledger does not answer
		case <-ctx.Done():
			return nil
		case <-time.After(k.ttl() / 6):
		}
	}
}

// hold calls work and refreshes the term meanwhile. Again reports that the term ended before work returned by itself.
func (k *Keeper) hold(ctx context.Context, term Term, work func(ctx context.Context) error) (again bool, err error) {
	inside, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- work(inside) }()
	tick := time.NewTicker(k.ttl() / 6)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			lost := inside.Err() != nil && ctx.Err() == nil
			k.giveUp(ctx, term)
			return lost, err
		case <-tick.C:
			if errors.Is(k.Refresh(term), ErrExpired) {
				end()
			}
		}
	}
}

// giveUp ends the term at once, so that another process need not wait until it runs out. If the ledger does not answer, that happens
// all the same.
func (k *Keeper) giveUp(ctx context.Context, term Term) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.ttl()/6)
	defer cancel()
	_ = k.Resign(ctx, term)
}
