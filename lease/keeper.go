package lease

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
)

// Keeper keeps leases by name: of nodes, or of anything else that is to have one living holder at most. A term is
// a mark in the ledger, so that every process sees the same one and a proposal can bet on it; refreshes are soft,
// stay in this process and cost a lock. Set the fields before first use. All methods may be called from any
// goroutine.
//
//	        Acquire: Mark "live", MarkAt(what was there)        Step: Mark "over", MarkAt(epoch)
//	(none) ─────────────────────────────► live ── not refreshed for TTL ──► dead ─────► over ──Sweep──► (none)
//	                                        └── Refresh: its end moves, in memory        │
//	                                            Acquire: the next term ◄─────────────────┘
//
// Invariants: the ledger has one row for each name, and so one term at most. A term is live here while its row
// says so and now < end, where end is TTL after the last refresh was received, by this process's clock. Once it
// has been found at its end it is dead for ever, be the end committed or not: only the next term can live, and no
// term ever has an epoch that another had.
//
// What a process believes of a lease is its own: it must hear the refreshes of every lease whose end it commits. A
// process that has just started, or just learned of a term, takes it to have been refreshed at that moment. What
// holds between processes is the row: a proposal that bets on MarkAt{Key(name), epoch} is refused from the
// moment on that an end or another term is committed.
type Keeper struct {
	// Ledger has the rows. Required.
	Ledger orbit.Ledger
	// TTL is how long a term lives without a refresh; default 60 s.
	TTL time.Duration
	// Sweep is how long the row of a lease that is over is kept; default 1 h. A holder that comes back within it
	// changes its row instead of making a new one.
	Sweep time.Duration
	// Prefix of the keys of the rows; default "lease/". It must end in a slash; two keepers share one only
	// if they keep the same leases.
	Prefix string
	// Terms is how many terms a name may begin at once, and again in an hour, evenly; default 20, negative: no
	// bound. It bounds what a flapping holder can cost the ledger: 41 terms in an hour, and as many ends. An hour
	// divided by it should be well below [Members.Gone].
	Terms int
	// Now is the clock; called under the lock; nil: time.Now. A board of reports under these leases must go by the same.
	Now func() time.Time
	// Hook, if set, is called by Run after a step that has done something or failed. It must not block for long.
	Hook func(Round)

	once sync.Once
	turn chan struct{} // held by the one Step at a time

	mu        sync.Mutex // guards what follows; held for no call of the ledger
	leases    map[string]*lease
	followed  bool           // the ledger has been read once
	seen      orbit.Revision // up to which revision
	deadlines deadlines      // of live leases; those that have been refreshed have moved
	dead      []*lease       // whose end is to be committed, and some that were and are not any more
	over      []*lease       // by when they ended, then by name
	live      int            // how many are
	corrupt   map[string]error
	changes   changeLog
}

// lease is what this process knows of one name. It lives as long as the row.
type lease struct {
	name   string
	state  leaseState
	holder string
	epoch  orbit.Revision // of its newest term
	at     orbit.Revision // when the row last changed: the epoch, while live
	bet    orbit.Revision // the revision of the row: at, or 0 if it has vanished
	end    time.Time      // live: when it will be dead
	ended  time.Time      // over: when it ended, by the clock of whoever committed that, and not after this one's

	learned time.Time       // when the row was read to be as it is
	listed  bool            // in Leases.dead
	sent    *orbit.Proposal // to end or to sweep it; the outcome is not known
	terms   rate.Allowance  // of terms to begin
	member  memberNote
}

type leaseState uint8

const (
	isLive    leaseState = iota // unless now has reached end
	isDead                      // over here, live in the ledger or vanished from it
	isOver                      // over in the ledger
	isCorrupt                   // nobody knows
)

const (
	defaultTTL    = 60 * time.Second
	defaultSweep  = time.Hour
	defaultPrefix = "lease/"
	defaultTerms  = 20
)

func (k *Keeper) ttl() time.Duration   { return cmp.Or(max(k.TTL, 0), defaultTTL) }
func (k *Keeper) sweep() time.Duration { return cmp.Or(max(k.Sweep, 0), defaultSweep) }
func (k *Keeper) prefix() string       { return cmp.Or(k.Prefix, defaultPrefix) }
func (k *Keeper) clock() time.Time {
	if k.Now != nil {
		return k.Now()
	}
	return time.Now()
}

// init makes the zero value ready, once.
func (k *Keeper) init() {
	k.once.Do(func() {
		k.turn = make(chan struct{}, 1)
		k.leases = make(map[string]*lease)
		k.corrupt = make(map[string]error)
	})
}

// Key returns the key of a name's row: what a MarkAt bet on a term of it names.
func (k *Keeper) Key(name string) string { return k.prefix() + url.PathEscape(name) }

// nameOf returns the name whose key this is. It reports false if it is nobody's.
func (k *Keeper) nameOf(key string) (name string, ok bool) {
	escaped, ok := strings.CutPrefix(key, k.prefix())
	if !ok || escaped == "" {
		return "", false
	}
	name, err := url.PathUnescape(escaped)
	return name, err == nil && url.PathEscape(name) == escaped
}

// In returns the term that the ledger's state has for a name: what holds for everybody, whatever any clock says.
// It reports false if there is no row, if the end of the term has been committed, or if the row is corrupt.
func (k *Keeper) In(state *orbit.State, name string) (Term, bool) {
	value, at := state.Mark(k.Key(name))
	r, err := parseRow(value)
	if err != nil || !r.live {
		return Term{}, false
	}
	return Term{Name: name, Holder: r.holder, Epoch: at}, true
}

// Live returns the term that is live now, as far as this process knows. It reports false if there is none.
func (k *Keeper) Live(name string) (Term, bool) {
	k.init()
	k.mu.Lock()
	defer k.mu.Unlock()
	le := k.alive(name, k.clock())
	if le == nil {
		return Term{}, false
	}
	return Term{Name: name, Holder: le.holder, Epoch: le.at}, true
}

// alive returns the lease if it is live, else nil. It requires the lock.
func (k *Keeper) alive(name string, now time.Time) *lease {
	le := k.leases[name]
	if le == nil || le.state != isLive {
		return nil
	}
	if !now.Before(le.end) {
		k.die(le)
		return nil
	}
	return le
}

// die ends a live lease for good. It requires the lock.
func (k *Keeper) die(le *lease) {
	le.state = isDead
	k.live--
	if !le.listed {
		le.listed = true
		k.dead = append(k.dead, le)
	}
	k.changes.add(le.name)
}

// Refresh keeps a term alive for another TTL from now. It asks no ledger and costs the same however many leases
// there are. The error is a [*Error]: [ErrExpired] if the term is over, at its end or after it, or if it is
// not the current one (acquire a new one); [ErrUnheard] if the term is newer than what this process knows of the
// ledger (try again after the next Step).
func (k *Keeper) Refresh(t Term) error {
	k.init()
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	le, err := k.current(t, now)
	if err == nil {
		le.end = later(le.end, now.Add(k.ttl()))
	}
	return err
}

// Check returns the error that [Keeper.Refresh] would return now, and refreshes nothing. A term without a Holder is
// anybody's.
func (k *Keeper) Check(t Term) error {
	k.init()
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.current(t, k.clock())
	return err
}

// current returns the lease of a live term, or a *Error that says why there is none. It requires the lock.
func (k *Keeper) current(t Term, now time.Time) (*lease, error) {
	le := k.leases[t.Name]
	alive := k.alive(t.Name, now) != nil
	var why string
	switch {
	case t.Epoch > k.seen && (le == nil || t.Epoch > le.at):
		return nil, &Error{Kind: ErrUnheard, Term: t}
	case le == nil:
		why = "there is no such lease"
	case t.Epoch != le.epoch || t.Holder != "" && t.Holder != le.holder:
		why = "it is an old term"
	case !alive:
		why = "it was not refreshed in time, or has been ended"
	default:
		return le, nil
	}
	err := &Error{Kind: ErrExpired, Term: t, Reason: why}
	if alive {
		err.Held = Term{Name: t.Name, Holder: le.holder, Epoch: le.at}
	}
	return nil, err
}

// deadline is when a lease has to be looked at.
type deadline struct {
	at    time.Time
	lease *lease
	term  orbit.Revision
}

// arm sees to it that a live lease is looked at when it would end. It requires the lock.
func (k *Keeper) arm(le *lease) {
	k.deadlines.push(deadline{le.end, le, le.at})
}

// expire lets those die whose end has come. What has been refreshed since it was armed is armed again, so a
// refresh need not be filed. It requires the lock.
func (k *Keeper) expire(now time.Time) {
	for len(k.deadlines) > 0 && !now.Before(k.deadlines[0].at) {
		d := k.deadlines.pop()
		switch le := d.lease; {
		case le.state != isLive || le.at != d.term: // void
		case now.Before(le.end):
			k.arm(le)
		default:
			k.die(le)
		}
	}
}

// next returns when something is to be done, zero if nothing is known. It requires the lock, and dead to be
// sorted.
func (k *Keeper) next(now time.Time, ready func(*lease) bool) (at time.Time) {
	for len(k.deadlines) > 0 {
		d := k.deadlines[0]
		if d.lease.state == isLive && d.lease.at == d.term && d.lease.end.Equal(d.at) {
			at = d.at
			break
		}
		k.deadlines.pop()
		if d.lease.state == isLive && d.lease.at == d.term {
			k.arm(d.lease)
		}
	}
	if i := slices.IndexFunc(k.over, ready); i >= 0 {
		at = sooner(at, k.over[i].ended.Add(k.sweep()))
	}
	if len(k.dead) > 0 {
		at = sooner(at, now)
	}
	return at
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// sooner returns the earlier of two times, where zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// overOrder is the order in which rows are swept.
func overOrder(a, b *lease) int {
	return cmp.Or(a.ended.Compare(b.ended), cmp.Compare(a.name, b.name))
}

// fileOver and unfileOver keep the leases that are over in order. They require the lock.
func (k *Keeper) fileOver(le *lease) {
	i, _ := slices.BinarySearchFunc(k.over, le, overOrder)
	k.over = slices.Insert(k.over, i, le)
}

func (k *Keeper) unfileOver(le *lease) {
	if i, ok := slices.BinarySearchFunc(k.over, le, overOrder); ok {
		k.over = slices.Delete(k.over, i, i+1)
	}
}
