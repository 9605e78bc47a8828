package etcdledger

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// committer turns proposals into transactions. One goroutine judges the proposals and packs them. Every transaction is sent
// by a goroutine of its own, and so is every read that confirms rejections.
//
// Invariants: no two transactions under way use the same record if one of them puts it and the other compares it. So
// a process does not conflict with itself, with one exception: a new budget writes the key gc, which all transactions
// compare. Proposals that share a record are handled in the order of waiting, which is the order of arrival except that
// arrange brings the proposals of one node together.
type committer struct {
	ctx      context.Context
	keys     keys
	mirror   *mirror
	fence    *fence
	sender   *sender
	limits   packLimits
	inFlight int
	patience time.Duration
	stats    *counters

	mu    sync.Mutex // guards inbox
	inbox []*request
	// arrived has a token when requests have been added to inbox.
	arrived chan struct{}

	// Only run uses the fields from here to locked. waiting are the requests to be judged, in order.
	waiting []*request
	// flying is the number of transactions under way.
	flying int
	// reached is the revision of the mirror in the last round. stuck is the time since which the mirror has stood still
	// at reached although etcd has a newer revision; isStuck keeps both.
	reached int64
	stuck   time.Time
	// locked are the records of transactions under way, and of committed ones that the mirror has not seen yet.
	locked map[ref]lock
	// results has functions that apply the results of transactions and reads.
	results chan func()
	// flights counts the goroutines that send and read.
	flights sync.WaitGroup
}

// lock describes the transactions that keep a record locked.
type lock struct {
	// flying is the number of transactions under way that use the record. It is above 1 only if all of them only read
	// it, or all only put it.
	flying int
	// access is what all of the transactions do with the record. Others that do not disturb them may join them.
	access access
	// at is the revision of the newest of these transactions that was committed; 0: none. The record stays locked until
	// the mirror has reached it.
	at int64
}

// newCommitter returns a committer; run starts it.
func newCommitter(ctx context.Context, l *Ledger, o *Options) *committer {
	return &committer{
		ctx: ctx, keys: l.keys, mirror: l.mirror, fence: l.fence, stats: &l.counters,
		sender:   &sender{ctx: ctx, client: l.client, mirror: l.mirror, stats: &l.counters, timeout: o.Timeout, patience: o.Patience},
		limits:   packLimits{o.MaxOps, o.MaxBytes * 9 / 10}, // a tenth is left for the encoding of the request
		inFlight: o.InFlight, patience: o.Patience,
		arrived: make(chan struct{}, 1), locked: map[ref]lock{}, results: make(chan func(), o.InFlight),
	}
}

// submit adds requests to the inbox.
func (c *committer) submit(requests ...*request) {
	c.mu.Lock()
	c.inbox = append(c.inbox, requests...)
	c.mu.Unlock()
	select {
	case c.arrived <- struct{}{}:
	default:
	}
}

// collect moves the requests in the inbox to waiting.
func (c *committer) collect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, c.inbox...)
	c.inbox = nil
}

// run works until the ledger is closed.
func (c *committer) run() {
	tick := time.NewTicker(max(c.patience/8, time.Millisecond))
	defer tick.Stop()
	for {
		g := c.mirror.look()
		c.round(g)
		var changed <-chan struct{}
		if len(c.waiting) > 0 || len(c.locked) > 0 {
			changed = g.changed
		}
		select {
		case <-c.ctx.Done():
			return
		case <-c.arrived:
			c.collect()
		case apply := <-c.results:
			apply()
		case <-changed:
		case <-tick.C:
		}
	}
}

// landed applies the outcome of a transaction: it updates the locks, and puts requests to be judged again at the head
// of the queue.
func (c *committer) landed(o txnOutcome) {
	c.flying--
	for name := range o.pack.accesses {
		l := c.locked[name]
		l.flying, l.at = l.flying-1, max(l.at, o.at)
		if c.locked[name] = l; l.flying == 0 && l.at == 0 {
			delete(c.locked, name)
		}
	}
	c.waiting = slices.Insert(c.waiting, 0, o.again...)
}

// round judges the waiting requests on the present mirror. It answers each request whose outcome is certain, and sends
// the requests whose bets hold.
func (c *committer) round(g glance) {
	for name, l := range c.locked {
		if l.flying == 0 && l.at <= g.pos {
			delete(c.locked, name)
		}
	}
	if len(c.waiting) == 0 {
		return
	}
	r := round{committer: c, glance: g, blocked: accessSet{}}
	if g.down != nil || g.state == nil {
		c.waiting = slices.DeleteFunc(c.waiting, func(t *request) bool { return c.expired(t, g.down) })
		return
	}
	arrange(c.waiting)
	rest := c.waiting[:0]
	for i, t := range c.waiting {
		if !r.open() { // no transaction has room, so all other requests wait for the next round
			rest = append(rest, c.waiting[i:]...)
			break
		}
		if !r.consider(t) {
			rest = append(rest, t)
		}
	}
	clear(c.waiting[len(rest):])
	c.waiting = rest
	if c.isStuck(g.pos) {
		c.mirror.rewatch(c.patience)
		c.waiting = slices.DeleteFunc(c.waiting, func(t *request) bool { return c.expired(t, errWatch) })
	}
	r.finish()
}

// isStuck reports whether the mirror has stood still for longer than patience although a request or a lock waits for a
// newer revision that etcd is known to have. This is how a watch that fails without an error is noticed.
func (c *committer) isStuck(pos int64) bool {
	behind := slices.ContainsFunc(c.waiting, func(t *request) bool { return t.confirmAt > pos })
	for _, l := range c.locked {
		behind = behind || l.at > pos
	}
	if pos != c.reached || !behind {
		c.reached, c.stuck = pos, time.Now()
	}
	return time.Since(c.stuck) > c.patience
}

// expired answers a request with ErrUnavailable if it has waited for etcd longer than patience, or at once if records
// are damaged. It reports whether the request is answered, now or before.
func (c *committer) expired(t *request, why error) bool {
	switch {
	case errors.Is(why, ErrCorrupt):
		t.answer(0, unavailable(why))
	case time.Since(t.since) > c.patience:
		t.answer(0, unavailable(errors.Join(errors.New("etcd does not answer; see its endpoints and its health"), why)))
	}
	return t.isAnswered()
}

// round is the working state of one pass over the waiting requests, on the mirror at one moment.
type round struct {
	*committer
	glance
	packs []*pack
	// blocked are the records of requests that have to wait. A later request that shares one of them waits too, so that it
	// does not overtake.
	blocked accessSet
	// doubts are the requests whose rejection has to be confirmed by a read.
	doubts []*request
}

// open reports whether there is a pack with room, or another pack may be begun.
func (r *round) open() bool {
	return r.flying+len(r.packs) < r.inFlight || slices.ContainsFunc(r.packs, func(b *pack) bool { return !b.full })
}

// consider handles one request. It reports whether the request leaves the queue, because it is answered or in a pack.
func (r *round) consider(t *request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == answered {
		return true
	}
	if err := t.ctx.Err(); err != nil {
		t.answerLocked(0, unavailable(err))
		return true
	}
	if at := r.state.Committed(t.p); at != 0 {
		t.answerLocked(at, nil)
		return true
	}
	if t.state == confirming || t.confirmAt > r.pos {
		r.blocked.merge(accessesOf(r.state, t.p))
		return false
	}
	return r.pack(t)
}

// pack puts a request into a pack, answers it, or lets it wait. Its result means the same as that of consider. The
// request's lock must be held.
func (r *round) pack(t *request) bool {
	b := r.packFor(t)
	if b == nil {
		r.blocked.merge(accessesOf(r.state, t.p))
		return false
	}
	reading, writing, touched, err := b.state.Footprint(t.p)
	accesses := accessSetOf(&reading, &writing)
	if r.isBlocked(accesses) || r.elsewhere(accesses, b) {
		r.blocked.merge(accesses)
		return false
	}
	if err == nil {
		err = b.add(&t.p, touched, accesses)
	}
	switch {
	case err == nil:
		t.state, t.accesses, b.full = sent, accesses, t.route == alone
		b.requests = append(b.requests, t)
		if len(b.commits) == 1 {
			r.packs = append(r.packs, b)
		}
		return true
	case errors.Is(err, errFull):
		b.full = true
		return r.pack(t)
	case b.state != r.state: // the rejection may be due to other proposals of the pack, which may not be committed
		err = r.state.Check(t.p)
	}
	if err == nil || accesses.meets(b.accesses) {
		r.blocked.merge(accesses)
		return false
	}
	return r.reject(t, accesses, err)
}

// packFor returns the pack that the request may go into; nil: it has to wait. Requests that have conflicted with another
// process share a pack only with others that compete for the same records, because a transaction that fails again would
// delay all its requests.
func (r *round) packFor(t *request) *pack {
	var mine accessSet
	if t.route == contended {
		mine = accessesOf(r.state, t.p)
	}
	for _, b := range r.packs {
		if !b.full && b.route == t.route && (t.route == shared || t.route == contended && mine.meets(b.accesses)) {
			return b
		}
	}
	if r.flying+len(r.packs) >= r.inFlight {
		return nil
	}
	b := newPack(r.keys, r.state, r.pos, r.limits)
	b.route = t.route
	return b
}

// elsewhere reports whether one of the records is in a pack of this round other than this one.
func (r *round) elsewhere(accesses accessSet, but *pack) bool {
	for _, b := range r.packs {
		if b != but && accesses.meets(b.accesses) {
			return true
		}
	}
	return false
}

// isBlocked reports whether one of the records is in a transaction under way, or shared with an earlier request that waits.
func (r *round) isBlocked(accesses accessSet) bool {
	if accesses.meets(r.blocked) {
		return true
	}
	for name, a := range accesses {
		if l, ok := r.locked[name]; ok && a.disturbs(l.access) {
			return true
		}
	}
	return false
}

// reject answers a request with a rejection. The mirror may have been behind etcd when it judged, so the first
// rejection is confirmed: the request waits for a read that says how new the mirror must be, and is then judged again.
// An invalid proposal is rejected at once. The request's lock must be held.
func (r *round) reject(t *request, accesses accessSet, err error) bool {
	if !errors.Is(err, orbit.ErrInvalid) && t.confirmAt == 0 {
		t.state = confirming
		r.doubts = append(r.doubts, t)
		r.blocked.merge(accesses)
		return false
	}
	t.answerLocked(0, r.mirror.attribute(err))
	return true
}

// finish sends the packs of the round, and the read that confirms its rejections.
func (r *round) finish() {
	for _, b := range r.packs {
		for name, a := range b.accesses {
			l := r.locked[name]
			r.locked[name] = lock{l.flying + 1, a, l.at}
		}
		r.flying++
		r.flights.Go(func() {
			o := r.sender.send(b, r.gaps)
			r.report(func() { r.landed(o) })
		})
	}
	if len(r.doubts) > 0 {
		r.flights.Go(func() { r.confirm(r.doubts) })
	}
}

// confirm reads the revision that the mirror must reach before these rejections are final, and has their requests
// judged again.
func (c *committer) confirm(requests []*request) {
	at, err := c.fence.read(c.ctx)
	c.report(func() {
		for _, t := range requests {
			t.confirmed(at)
			if err != nil {
				t.answer(0, unavailable(err))
			}
		}
	})
}

// report has run apply a result, unless the ledger has been closed.
func (c *committer) report(apply func()) {
	select {
	case c.results <- apply:
	case <-c.ctx.Done():
	}
}
