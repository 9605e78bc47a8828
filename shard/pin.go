package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// Pin assigns capsules that have been submitted already to a scheduler, as [Import] does with new ones: all of
// them in one proposal, or none. To pin a member of a gang pins the whole gang. The pending capsules change their owner
// at once, and the [Dispatcher] respects the pin from then on; running capsules stay where they are. Capsules that are
// pinned to that scheduler already stay as they are; if all of them are, nothing is committed, and the revision is that
// of the state that was read.
//
// A capsule that is pinned to another scheduler is refused with [ErrContradiction], even if it was pinned during this
// call: the proposal bets on the pins that were read. A pin ends with its capsule. Other errors are
// [orbit.ErrInvalid] for a capsule that is not there or has been released, [ErrKey], and the ledger's;
// nothing has been changed then, unless it is [orbit.ErrUnknown]. A conflict is tried again until ctx ends.
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
			if c.Pending() && c.Owner != scheduler {
				p.Do = append(p.Do, orbit.Assign{Capsule: c.ID, From: c.Owner, Owner: scheduler})
			}
		}
	}
	return p, nil
}
