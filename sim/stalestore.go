package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
)

// StaleStore is a store of slots whose listings lag behind, as a watch cache does: what Idle returns is what was true
// a while ago, and Claim is judged by what is true now. It implements [claim.Source]. The zero value is an empty
// store that is not stale; set the fields before first use. All methods may be called from any goroutine, and
// in a synctest bubble all is exact.
//
// It keeps a history of who had which slot, so that a slot that was handed out twice is found by counting
// ([StaleStore.Doubled]), not by trust in its own checks.
type StaleStore struct {
	// Lag is the age of the state that a listing shows.
	Lag time.Duration
	// Latency is the round-trip time of a claim or a return: half of it passes before the store judges it, half after.
	Latency time.Duration
	// Inject is called before a claim is judged, without any lock held; nil: not called. If it returns an error, that
	// is the answer, and nothing changes. It is not called again for an attempt that has been granted before.
	Inject func(a claim.Attempt) error
	// Lose is called after a claim has been committed; nil: not called. If it returns an error, that is the answer,
	// although the claim is committed.
	Lose func(a claim.Attempt) error
	// Versions makes listings name the version that they show, which lets pools end reservations early.
	Versions bool

	// Guards what follows.
	mu sync.Mutex
	// By name; true now.
	slots map[string]*stored
	// What listings show: the slots in the order in which they joined, and what they have not seen yet.
	shown   []*stored
	pending []storeEvent
	version uint64
	seen    uint64
	grants  []grant
	tally   StoreTally
}

type stored struct {
	name string
	life int // its uid
	// What is true, and what is listed.
	idle, listed bool
	listedLife   int
	// The last attempt that was granted.
	attempt orbit.ProposalID
	grant   int
}

type storeEvent struct {
	at      time.Time
	slot    *stored
	idle    bool
	life    int
	version uint64
}

// grant records that a caller held a slot, from one entry of the store's history to another.
type grant struct {
	slot     string
	life     int
	from, to uint64 // to 0: still
}

// StoreTally counts what has been asked of a store.
type StoreTally struct{ Claims, Granted, Conflicts, Returned, Listings int }

// Add makes idle slots join, of these names; one whose name is known gets a new uid and is idle again.
func (s *StaleStore) Add(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		slot := s.slots[name]
		if slot == nil {
			if s.slots == nil {
				s.slots = map[string]*stored{}
			}
			slot = &stored{name: name}
			s.slots[name] = slot
			s.shown = append(s.shown, slot)
		}
		slot.life++
		s.turn(slot, true)
	}
}

// turn changes what is true of a slot, and lets listings know in time. It requires the lock.
func (s *StaleStore) turn(slot *stored, idle bool) uint64 {
	s.version++
	slot.idle = idle
	s.pending = append(s.pending, storeEvent{time.Now().Add(s.Lag), slot, idle, slot.life, s.version})
	return s.version
}

// Idle implements [claim.Source]: it lists what was idle Lag ago.
func (s *StaleStore) Idle(context.Context) (claim.Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.Listings++
	now := time.Now()
	for len(s.pending) > 0 && !now.Before(s.pending[0].at) {
		e := s.pending[0]
		s.pending = s.pending[1:]
		e.slot.listed, e.slot.listedLife, s.seen = e.idle, e.life, e.version
	}
	l := claim.Listing{}
	if s.Versions {
		l.Version = s.seen
	}
	for _, slot := range s.shown {
		if slot.listed {
			l.Slots = append(l.Slots, claim.Slot{Name: slot.name, UID: strconv.Itoa(slot.listedLife)})
		}
	}
	return l, nil
}

// Claim implements [claim.Source].
func (s *StaleStore) Claim(ctx context.Context, a claim.Attempt) (claim.Slot, uint64, error) {
	if err := s.travel(ctx); err != nil {
		return claim.Slot{}, 0, fmt.Errorf("store: nothing was sent: %w", orbit.ErrUnavailable)
	}
	if s.Inject != nil && !s.granted(&a) {
		if err := s.Inject(a); err != nil {
			s.count(err)
			return claim.Slot{}, 0, err
		}
	}
	version, err := s.grant(&a)
	if err == nil && s.Lose != nil {
		err = s.Lose(a)
	}
	if late := s.travel(ctx); late != nil {
		err = fmt.Errorf("store: the answer is lost: %w", orbit.ErrUnknown)
	}
	if !s.Versions {
		version = 0
	}
	return a.Slot, version, err
}

// travel takes half the latency.
func (s *StaleStore) travel(ctx context.Context) error {
	if s.Latency <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(s.Latency / 2)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// granted reports whether the attempt has been granted before.
func (s *StaleStore) granted(a *claim.Attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slots[a.Slot.Name]
	return slot != nil && slot.attempt == a.ID
}

// count counts a claim that was answered out of turn.
func (s *StaleStore) count(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.Claims++
	if errors.Is(err, orbit.ErrConflict) {
		s.tally.Conflicts++
	}
}

// grant judges a claim by what is true. The same attempt is granted again.
func (s *StaleStore) grant(a *claim.Attempt) (version uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.Claims++
	slot := s.slots[a.Slot.Name]
	switch {
	case slot != nil && slot.attempt == a.ID:
		return s.version, nil
	case slot == nil || !slot.idle || strconv.Itoa(slot.life) != a.Slot.UID:
		s.tally.Conflicts++
		return s.version, fmt.Errorf("store: slot %q (uid %s) is not idle: %w", a.Slot.Name, a.Slot.UID, orbit.ErrConflict)
	}
	s.tally.Granted++
	slot.attempt, slot.grant = a.ID, len(s.grants)
	version = s.turn(slot, false)
	s.grants = append(s.grants, grant{slot: slot.name, life: slot.life, from: version})
	return version, nil
}

// Return implements [claim.Source].
func (s *StaleStore) Return(ctx context.Context, claimed claim.Slot) error {
	if err := s.travel(ctx); err != nil {
		return fmt.Errorf("store: nothing was sent: %w", orbit.ErrUnavailable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slots[claimed.Name]
	if slot == nil || slot.idle || strconv.Itoa(slot.life) != claimed.UID {
		return nil
	}
	s.tally.Returned++
	s.grants[slot.grant].to = s.turn(slot, true)
	return nil
}

// Tally returns the counts.
func (s *StaleStore) Tally() StoreTally {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tally
}

// Held returns how many slots callers hold.
func (s *StaleStore) Held() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.grants {
		if g.to == 0 {
			n++
		}
	}
	return n
}

// Doubled counts, from the history alone, how often a slot was granted while a caller already held it.
func (s *StaleStore) Doubled() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type identity struct {
		name string
		life int
	}
	until := map[identity]uint64{} // 0: still
	for _, g := range s.grants {
		id := identity{g.slot, g.life}
		if to, before := until[id]; before && (to == 0 || to > g.from) {
			n++
		}
		until[id] = g.to
	}
	return n
}
