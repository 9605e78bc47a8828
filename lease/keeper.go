package lease

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/rate"
)

// Keeper keeps leases by name: of nodes, or of anything else that is to have at most one living holder. A term is a
// mark in the ledger, so that every process sees the same term and a proposal can bet on it. A refresh takes a lock in
// this process and makes no commit. Set the fields before first use. All methods may be called from any goroutine.
//
//	        Acquire: Mark "live", MarkAt(the old row)           Step: Mark "over", MarkAt(epoch)
//	(none) ─────────────────────────────► live ── not refreshed for TTL ──► dead ─────► over ──Sweep──► (none)
//	                                        └── Refresh: its end moves, in memory        │
//	                                            Acquire: the next term ◄─────────────────┘
//
// Invariants: the ledger has one row for each name, and so at most one term. A term is live in this process while its
// row says so and now < end, where end is TTL after the last refresh was received, by this process's clock. A term
// whose end has come is dead for ever, whether its end has been committed or not: only a new term can be live, and no
// two terms have the same epoch.
//
// As soon as an end or another term is committed, the ledger refuses every bet on MarkAt{Key(name), epoch}.
type Keeper struct {
	// Ledger is the ledger that keeps the rows. Required.
	Ledger orbit.Ledger
	// Refreshes shares the refreshes with other processes that keep the same leases; nil: this is the only such
	// process, and refreshes stay in its memory. With Refreshes, Run must be running, because the steps of Run pass
	// refreshes on, within a second. Set it in all processes or in none: a process without it treats the rows of the
	// others as corrupt. A term that began without Refreshes is still kept in memory.
	Refreshes Refreshes
	// TTL is how long a term lives without a refresh; default 60 s. A shorter one finds dead holders sooner, and needs
	// more frequent refreshes. All processes that keep the same leases should have the same.
	TTL time.Duration
	// Sweep is how long the row of a lease that is over is kept; default 1 h. A holder that comes back within it
	// changes its row instead of making a new one.
	Sweep time.Duration
	// Prefix is the prefix of the rows' keys; default "lease/". It must end in a slash. Two keepers must have different
	// prefixes unless they keep the same leases.
	Prefix string
	// Terms is how many terms a name may begin in one burst, and how many more become available in an hour, evenly;
	// default 20, negative: no bound. With the default a flapping holder costs the ledger at most 41 terms in an hour,
	// and as many ends, whichever processes it uses. A process counts the terms of all processes, but only those that
	// begin after its own start. An hour divided by Terms should be well below [Members.Gone].
	Terms int
	// Now is the clock, which is called while a lock is held; nil: time.Now. A telemetry.Board with these leases must have
	// the same clock.
	Now func() time.Time
	// Hook, if set, is called by Run after a step that has done something or failed. It must not block for long.
	Hook func(Round)

	once sync.Once
	turn chan struct{} // holds a token while a Step runs
	wake chan struct{} // holds a token if the next Step should not wait

	mu        sync.Mutex // guards the fields below; not held during calls of the ledger
	leases    map[string]*lease
	followed  bool                // the ledger has been read once
	seen      orbit.Revision      // the revision up to which the ledger has been read
	deadlines heap.Heap[deadline] // of live leases; the entry of a refreshed lease is out of date until expire corrects it
	dead      []*lease            // leases whose end is to be committed; sortDead removes those whose end has been committed
	over      []*lease            // leases that are over, sorted by since, then by name
	live      int                 // number of live leases
	corrupt   map[string]error
	changes   changeLog
	heard     []*lease // refreshed in this process; the next step passes the refreshes on to Refreshes
	due       []*lease // live leases whose end has come; the next step asks Refreshes about them. They are not in deadlines
}

// lease is this process's record of one name. It exists as long as the row.
type lease struct {
	name   string
	state  leaseState
	holder string
	epoch  orbit.Revision // of the newest term
	at     orbit.Revision // when the row last changed: the epoch, while live
	bet    orbit.Revision // the revision of the row that a change bets on: at, or 0 if the row was deleted
	token  string         // live: the term's token in Keeper.Refreshes; empty: its refreshes are in memory
	end    time.Time      // live: when the term will be dead, or with a token: until when it is known to live
	ended  time.Time      // over: when the term ended, by the clock of the process that committed the end; a future time is read as now
	kept   bool           // over: the node was lost, and another client had cordoned it before

	learned time.Time       // when this process read the row's current value
	since   time.Time       // over: when the term ended, by this process's clock: learned, or ended if it ended before this process ran
	yielded bool            // another run of the holder may begin a term at once
	listed  bool            // in Keeper.dead
	heard   time.Time       // the newest refresh that has not been passed on; zero: none. Not zero: in Keeper.heard
	due     bool            // in Keeper.due
	sent    *orbit.Proposal // the proposal that ends or sweeps the lease, if its outcome is not known
	terms   rate.Allowance  // the terms that may still begin, in this process or another
	member  memberNote
}

type leaseState uint8

const (
	isLive    leaseState = iota // live in the ledger and in this process; dead as soon as now reaches end
	isDead                      // over in this process; in the ledger the row still says live, or was deleted
	isOver                      // over in the ledger too
	isCorrupt                   // the row cannot be parsed
)

const (
	defaultTTL    = 60 * time.Second
	defaultSweep  = time.Hour
	defaultPrefix = "lease/"
	defaultTerms  = 20
)

func (k *Keeper) ttl() time.Duration           { return cmp.Or(max(k.TTL, 0), defaultTTL) }
func (k *Keeper) sweepInterval() time.Duration { return cmp.Or(max(k.Sweep, 0), defaultSweep) }
func (k *Keeper) prefix() string               { return cmp.Or(k.Prefix, defaultPrefix) }
func (k *Keeper) clock() time.Time {
	if k.Now != nil {
		return k.Now()
	}
	return time.Now()
}

// init prepares the zero value on first use.
func (k *Keeper) init() {
	k.once.Do(func() {
		k.turn, k.wake = make(chan struct{}, 1), make(chan struct{}, 1)
		k.leases = make(map[string]*lease)
		k.corrupt = make(map[string]error)
	})
}

// Key returns the key of a name's row. A MarkAt bet on a term of the name uses it.
func (k *Keeper) Key(name string) string { return k.prefix() + url.PathEscape(name) }

// nameOf returns the name of a row's key. It reports false if the key is not that of a row.
func (k *Keeper) nameOf(key string) (name string, ok bool) {
	escaped, ok := strings.CutPrefix(key, k.prefix())
	if !ok || escaped == "" {
		return "", false
	}
	name, err := url.PathUnescape(escaped)
	return name, err == nil && url.PathEscape(name) == escaped
}

// In returns the term that a state of the ledger has for a name. It depends on no clock, so it is the same in all
// processes. It reports false if there is no row, if the end of the term has been committed, or if the row is corrupt.
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
	return le.term(), true
}

// term returns the term of a live lease.
func (le *lease) term() Term { return Term{Name: le.name, Holder: le.holder, Epoch: le.at} }

// over returns the row of a lease that is over.
func (le *lease) over() row { return row{holder: le.holder, ended: le.ended, kept: le.kept} }

// alive returns the lease if it is live, else nil. The caller must hold the lock.
func (k *Keeper) alive(name string, now time.Time) *lease {
	le := k.leases[name]
	if le == nil || le.state != isLive {
		return nil
	}
	if !now.Before(le.end) && le.token == "" {
		k.end(le)
		return nil
	}
	return le
}

// end makes a live lease dead, for ever. The caller must hold the lock.
func (k *Keeper) end(le *lease) {
	le.state = isDead
	k.live--
	if !le.listed {
		le.listed = true
		k.dead = append(k.dead, le)
	}
	k.changes.add(le.name)
}

// Refresh keeps a term alive for another TTL from now. It does not call the ledger, and its cost does not depend on the
// number of leases. The error is a [*Error]: [ErrExpired] if the end of the term has come or the term is not the
// current one (acquire a new one); [ErrUnheard] if the term is newer than what this process has read of the ledger (try
// again after the next Step).
//
// With [Keeper.Refreshes] the next Step passes the refresh on. Nil then means only that the term lives for another half
// of TTL, whatever happens to this process. If this process does not know that yet, it returns [ErrUnheard] as well,
// and Run takes its next Step at once; try again after it. This happens when a holder changes to another process, and
// while Refreshes cannot be reached.
func (k *Keeper) Refresh(t Term) error {
	k.init()
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	le, err := k.current(t, now)
	switch {
	case err != nil:
		return err
	case le.token == "":
		le.end, le.yielded = later(le.end, now.Add(k.ttl())), false
		return nil
	}
	le.yielded = false
	k.noteRefresh(le, now)
	if le.end.Sub(now) < k.ttl()-k.slack() {
		select {
		case k.wake <- struct{}{}:
		default:
		}
		return &Error{Kind: ErrUnheard, Term: t, Reason: "other processes do not know of a refresh yet"}
	}
	return nil
}

// Check returns the error that [Keeper.Refresh] would return now, but does not refresh the term. It does not return the
// [ErrUnheard] of a term whose refreshes other processes do not know yet. An empty Holder in the term matches any
// holder.
func (k *Keeper) Check(t Term) error {
	k.init()
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.current(t, k.clock())
	return err
}

// current returns the lease of a live term, or a *Error that says why there is none. The caller must hold the lock.
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
		err.Held = le.term()
	}
	return nil, err
}

// deadline is the time at which a lease has to be checked for its end.
type deadline struct {
	at    time.Time
	lease *lease
	term  orbit.Revision
}

// Before orders deadlines, the earliest first.
func (d deadline) Before(o deadline) bool { return d.at.Before(o.at) }

// current reports whether the deadline is that of a term which still lives.
func (d deadline) current() bool { return d.lease.state == isLive && d.lease.at == d.term }

// scheduleExpiry adds the deadline of a live lease. The caller must hold the lock.
func (k *Keeper) scheduleExpiry(le *lease) {
	k.deadlines.Push(deadline{le.end, le, le.at})
}

// expire ends the leases whose end has come. A lease that was refreshed since its deadline was added gets a new
// deadline here, so that a refresh itself does not have to move the deadline. The caller must hold the lock.
func (k *Keeper) expire(now time.Time) {
	for len(k.deadlines) > 0 && !now.Before(k.deadlines[0].at) {
		d := k.deadlines.Pop()
		switch {
		case !d.current():
		case now.Before(d.lease.end):
			k.scheduleExpiry(d.lease)
		case d.lease.token != "":
			k.doubt(d.lease)
		default:
			k.end(d.lease)
		}
	}
}

// next returns the time at which the next step has something to do, zero if no such time is known. The caller must hold
// the lock and must have called sortDead.
func (k *Keeper) next(now time.Time, ready func(*lease) bool) (at time.Time) {
	for len(k.deadlines) > 0 {
		d := k.deadlines[0]
		if d.current() && d.lease.end.Equal(d.at) {
			at = d.at
			break
		}
		k.deadlines.Pop()
		if d.current() {
			k.scheduleExpiry(d.lease)
		}
	}
	if i := slices.IndexFunc(k.over, ready); i >= 0 {
		at = sooner(at, k.over[i].since.Add(k.sweepInterval()))
	}
	if len(k.dead)+len(k.due) > 0 {
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
	return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.name, b.name))
}

// fileOver and unfileOver add a lease to over and remove it, and keep over sorted. The caller must hold the lock.
func (k *Keeper) fileOver(le *lease) {
	i, _ := slices.BinarySearchFunc(k.over, le, overOrder)
	k.over = slices.Insert(k.over, i, le)
}

func (k *Keeper) unfileOver(le *lease) {
	if i, ok := slices.BinarySearchFunc(k.over, le, overOrder); ok {
		k.over = slices.Delete(k.over, i, i+1)
	}
}
