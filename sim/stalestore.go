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

// StaleStore is a store of slots whose listings lag behind, as those of a watch cache do: Idle returns the state of a
// while ago, and Claim is judged on the present state. It implements [claim.Source]. The zero value is an empty store
// that is not stale; set the fields before first use. All methods may be called from any goroutine. In a synctest
// bubble all times are exact.
//
// It keeps a history of all grants, so that a test finds a slot that was handed out twice by counting
// ([StaleStore.Doubled]), without having to trust the checks of Claim.
type StaleStore struct {
	// Lag is the age of the state that a listing shows.
	Lag time.Duration
	// Latency is the round-trip time of a claim: half of it passes before the store judges the claim, half after. A
	// return takes only the first half.
	Latency time.Duration
	// Inject is called before a claim is judged, without any lock held; nil: not called. If it returns an error, that
	// error is the answer, and nothing changes. It is not called for an attempt that has been granted before.
	Inject func(a claim.Attempt) error
	// Lose is called after a claim has been committed; nil: not called. If it returns an error, that error is the
	// answer, although the claim is committed.
	Lose func(a claim.Attempt) error
	// Versions makes listings and the answers to claims contain the store's version, which lets pools end reservations
	// early.
	Versions bool

	mu sync.Mutex // guards the fields below
	// slots has the slots by name.
	slots map[string]*stored
	// shown has the slots in the order in which they joined, as listings show them.
	shown []*stored
	// pending has the changes that listings do not show yet, oldest first.
	pending []storeEvent
	// version counts all changes; seen is the version that listings show.
	version uint64
	seen    uint64
	grants  []grant
	tally   StoreTally
}

// stored is a slot: its present state, and the state that listings show.
type stored struct {
	name string
	life int // its uid
	// idle is the present state, listed the one that listings show.
	idle, listed bool
	// listedLife is the uid that listings show.
	listedLife int
	// attempt is the last attempt that was granted, grant its index in the store's grants.
	attempt orbit.ProposalID
	grant   int
}

// storeEvent is a change of a slot, which listings show from the time at on.
type storeEvent struct {
	at      time.Time
	slot    *stored
	idle    bool
	life    int
	version uint64
}

// grant records that a caller held a slot, from one version of the store to another.
type grant struct {
	slot     string
	life     int
	from, to uint64 // to is 0 while the caller holds the slot
}

// StoreTally counts the calls of a store's methods and their outcomes.
type StoreTally struct{ Claims, Granted, Conflicts, Returned, Listings int }

// Add adds idle slots with these names. A slot whose name is known gets a new uid and is idle again.
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

// turn sets whether a slot is idle, and schedules the change to be listed after Lag. It returns the new version. The
// caller must hold the lock.
func (s *StaleStore) turn(slot *stored, idle bool) uint64 {
	s.version++
	slot.idle = idle
	s.pending = append(s.pending, storeEvent{time.Now().Add(s.Lag), slot, idle, slot.life, s.version})
	return s.version
}

// Idle implements [claim.Source]: it lists the slots that were idle Lag ago.
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
	if a.Request != nil {
		a.Slot.Labels = a.Request.Apply.Apply(a.Slot.Labels)
	}
	return a.Slot, version, err
}

// travel waits for half the latency, or until the context ends.
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

// count counts a claim that Inject has answered.
func (s *StaleStore) count(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.Claims++
	if errors.Is(err, orbit.ErrConflict) {
		s.tally.Conflicts++
	}
}

// grant judges a claim on the present state. An attempt that was granted before is granted again.
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
	until := map[identity]uint64{} // the version at which the latest grant of a slot ended; 0: it has not ended
	for _, g := range s.grants {
		id := identity{g.slot, g.life}
		if to, before := until[id]; before && (to == 0 || to > g.from) {
			n++
		}
		until[id] = g.to
	}
	return n
}
