package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// Pin assigns capsules that have been submitted already to a scheduler, as [Import] does with new ones: all of them in
// one proposal, or none. Pinning a member of a gang pins the whole gang. Pending capsules change their owner at once,
// and the [Dispatcher] respects the pin as long as the capsule lives; running capsules stay where they are. Capsules
// that are pinned to this scheduler already are left alone. If that is so for all capsules, nothing is committed, and
// Pin returns the revision of the state that it has read.
//
// Pin returns [ErrContradiction] if a capsule is pinned to another scheduler, even if it was pinned during this call:
// the proposal bets on the pins that were read. Other errors are [orbit.ErrInvalid] for a capsule that does not exist
// or has been released, [ErrKey], and the ledger's. After an error nothing has changed, except that the outcome is not
// known after [orbit.ErrUnknown]. After a conflict Pin tries again until ctx ends.
func Pin(ctx context.Context, ledger orbit.Ledger, scheduler string, capsules ...orbit.CapsuleID) (orbit.Revision, error) {
	if scheduler == "" || len(capsules) == 0 {
		return 0, fmt.Errorf("shard: %w: Pin needs a scheduler and capsules", orbit.ErrInvalid)
	}
	for {
		state, err := ledger.Snapshot(ctx)
		if err != nil {
			return 0, err
		}
		p, err := pinning(state, scheduler, capsules)
		if err != nil || len(p.Do) == 0 {
			return state.Revision(), err
		}
		rev, err := send.Settle(ctx, ledger, p)
		if !errors.Is(err, orbit.ErrConflict) || ctx.Err() != nil {
			return rev, err
		}
		send.Pause(ctx, time.Millisecond)
	}
}

// pinning returns the proposal that pins capsules; it is empty if all of them are pinned already.
func pinning(state *orbit.State, scheduler string, capsules []orbit.CapsuleID) (orbit.Proposal, error) {
	p := orbit.Proposal{ID: orbit.NewProposalID(), View: state.Revision()}
	done := map[unit]bool{}
	for _, id := range capsules {
		c := state.Capsule(id)
		if c == nil || c.Released() {
			return p, fmt.Errorf("shard: %w: capsule %q cannot be pinned: it is not there, or has been released", orbit.ErrInvalid, id)
		}
		u := unitOf(c)
		kind := u.pinnedMark()
		is, at := state.Mark(kind.key(u.id))
		if is != "" && is != scheduler {
			return p, contradictionError(u, is, scheduler)
		}
		if err := kind.fits(u.id, state.Limits()); err != nil {
			return p, err
		}
		if is == scheduler || done[u] {
			continue
		}
		done[u] = true
		p.Do = append(p.Do, orbit.Mark{Key: kind.key(u.id), Value: scheduler})
		p.If = append(p.If, orbit.MarkAt{Key: kind.key(u.id), Revision: at})
		for c := range u.members(state) {
			if c.Pending() && c.Owner() != scheduler {
				p.Do = append(p.Do, orbit.Assign{Capsule: c.ID, From: c.Owner(), Owner: scheduler})
			}
		}
	}
	return p, nil
}
