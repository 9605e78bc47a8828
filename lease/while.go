package lease

import (
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
)

// While calls work while this holder has the named lease, and calls it again after the lease was lost and won back. It returns when ctx
// ends, or when work returns while the holder still has the lease. So of several processes that call While one works, and the others
// stand by. Engines are safe without this, because the ledger decides between them; While lets only one set of them run, and those of
// the others are not [orbit.Engine.Running].
//
//	go keeper.Run(ctx)
//	err := keeper.While(ctx, "engines", "machine-1#5f3c", population.Run)
//
// If the term ends early, because it could not be refreshed for example, the context of work ends within a sixth of TTL. Work must
// return soon then, and is called again when the holder has another term. A process that has returned, or has ended ctx, is followed
// within a sixth of TTL, and one that has crashed within a sixth more than TTL. Keeper.Run has to run in each process, and several
// processes have to share Refreshes. The names of holders are as for [Keeper.Acquire], and those of two processes differ before the "#": one follows
// only when the term of the other is over.
//
// With a diskledger leave While out: the lock of its folder lets only one process run anyway, and a process that crashed and is started
// again, as another run of its holder, would wait half a TTL for its own predecessor.
//
// While returns what work returns, also if ctx has ended meanwhile; nil if ctx ends while work does not run; or the error of an Acquire
// that no later try can mend ([ErrCorrupt], [orbit.ErrInvalid]). What work returns after its term has ended early is dropped.
func (k *Keeper) While(ctx context.Context, name, holder string, work func(ctx context.Context) error) error {
	for {
		term, err := k.Acquire(ctx, name, holder)
		switch {
		case err == nil:
			again, err := k.hold(ctx, term, work)
			if !again {
				return err
			}
		case errors.Is(err, ErrCorrupt), errors.Is(err, orbit.ErrInvalid):
			return err
		}
		select { // another holds the lease, too many terms have begun, the ledger does not answer, or the term has ended early
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

// giveUp ends the term at once, so that another process need not wait until it runs out. If the ledger does not answer within a sixth of
// TTL, the next Step commits the end.
func (k *Keeper) giveUp(ctx context.Context, term Term) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.ttl()/6)
	defer cancel()
	_ = k.Resign(ctx, term)
}
