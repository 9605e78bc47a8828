package claim_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
)

// listings is a source whose listings the test decides; its claims succeed.
type listings struct {
	mu  sync.Mutex
	say func() (claim.Listing, error)
	// claim, if set, answers the claims.
	claim func(ctx context.Context, a claim.Attempt) (claim.Slot, uint64, error)
	// returned are the slots that were given back.
	returned []string
}

func (l *listings) set(say func() (claim.Listing, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say = say
}

// show makes all listings show these slots; a name may be followed by a colon and a uid.
func (l *listings) show(version uint64, slots ...claim.Slot) {
	l.set(func() (claim.Listing, error) { return claim.Listing{Version: version, Slots: slots}, nil })
}

func (l *listings) Idle(context.Context) (claim.Listing, error) {
	l.mu.Lock()
	say := l.say
	l.mu.Unlock()
	if say == nil {
		return claim.Listing{}, nil
	}
	return say()
}

func (l *listings) Claim(ctx context.Context, a claim.Attempt) (claim.Slot, uint64, error) {
	if l.claim != nil {
		return l.claim(ctx, a)
	}
	return a.Slot, 0, nil
}

func (l *listings) Return(_ context.Context, slot claim.Slot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.returned = append(l.returned, slot.Name)
	return nil
}

// errConflict is the answer to a claim of a slot that another client has claimed.
var errConflict = fmt.Errorf("another client was faster: %w", orbit.ErrConflict)
