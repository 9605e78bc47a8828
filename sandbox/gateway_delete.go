package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
)

// Delete releases a capsule for good. If it was released before, Delete returns nil. If the ledger has no record of the
// capsule, it returns [ErrNoCapsule]. Every other error of the ledger is an [ErrLeftBehind] too, because the capsule
// may run on: [orbit.ErrUnavailable]; [orbit.ErrUnknown] and [orbit.ErrConflict] if the ledger gave no answer, or
// refused, until ctx ended.
//
// Stop the sandbox before. The slot of a capsule that this gateway has created is free again at once for all readers of
// the board, unless the node has reported since the create: then that report counts the slot as used, and it is free
// with the node's next one. So nodes should report at once when they have freed slots. The warm slot is not given back:
// it was used up.
func (g *Gateway) Delete(ctx context.Context, id orbit.CapsuleID) error {
	g.init()
	if g.Ledger == nil {
		return fmt.Errorf("sandbox: delete %q: %w: the gateway needs a Ledger", id, orbit.ErrInvalid)
	}
	switch err := g.release(ctx, id, 0); {
	case err == nil:
		g.vacate(id)
		return nil
	case errors.Is(err, ErrNoCapsule) || errors.Is(err, orbit.ErrInvalid):
		return fmt.Errorf("sandbox: delete %q: %w", id, err)
	default:
		return fmt.Errorf("sandbox: delete %q: %w: %w", id, ErrLeftBehind, err)
	}
}

// keep remembers a committed bet, so that Delete can give its slot back. Bets whose slot can no longer be given back
// are dropped whenever their number has doubled since the last clean-up. So a create pays little for it, and at most
// twice as many bets are kept as the board and the loads have. The caller holds the lock.
func (g *Gateway) keep(b *bet) {
	if g.kept == nil {
		g.kept, g.keptBound = map[orbit.CapsuleID]*bet{}, fewKept
	}
	g.kept[b.debit.capsule] = b
	if len(g.kept) <= g.keptBound {
		return
	}
	for id, b := range g.kept {
		if !b.debit.hasReport && (g.Board == nil || !g.Board.Holds(b.claim)) {
			delete(g.kept, id)
		}
	}
	g.keptBound = max(2*len(g.kept), fewKept)
}

// fewKept is the number of kept bets below which a clean-up is not worth its cost.
const fewKept = 1024

// vacate gives back the slot of a capsule that has been released.
func (g *Gateway) vacate(id orbit.CapsuleID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.kept[id]
	if b == nil {
		return
	}
	delete(g.kept, id)
	b.outcome = betVacated
	if b.debit.hasRoom || b.debit.hasReport {
		g.loads.vacate(&b.debit)
	}
	if g.Board != nil {
		g.Board.Vacate(b.claim)
	}
}
