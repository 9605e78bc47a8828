package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
)

// Pool pairs requests with idle slots as fast as both arrive. It is a struct literal; Source must be set,
// everything else has a default. Set the fields before first use. Its methods may be called from any goroutine,
// before, during and after Run.
//
// A pool guarantees:
//
//  1. A request that Enqueue has accepted is answered exactly once, at the latest by Shutdown. A request that it has
//     refused is never answered.
//  2. Requests are paired in order of arrival, each with the matching slot that was seen idle first.
//  3. A slot is in at most one claim at a time, and a claimed slot goes to one caller. If that caller's request has
//     ended, the slot is given back.
//  4. No request waits for the claim or the listing of another request.
type Pool struct {
	// Name is the pool's name in errors and in the status; default empty.
	Name string
	// Labels say in the status to whom the pool belongs; default empty.
	Labels Labels
	// Source is the store of the slots. Required.
	Source Source
	// Queue is how many requests the pool holds at most, including those in flight; default 4,096.
	Queue int
	// Inflight is how many claims may be in flight at a time; default 128. Raise it if the source is slow but takes more
	// calls at once.
	Inflight int
	// ReserveFor is how long after its claim a slot is kept out of the ready queue even if a listing shows it as idle;
	// default 2 s. It should be longer than listings lag behind, and shorter than a slot takes to become idle again.
	// Negative: no time at all, which is useful only to measure the conflicts that reservations avoid.
	ReserveFor time.Duration
	// NotifyDelay is how long after NotifyIdle the source is listed; default 200 ms, or 0 if the Source is a Follower.
	// Set it to how far listings lag behind (200 ms suits a watch cache). Negative: 0.
	NotifyDelay time.Duration
	// PollMin and PollMax bound the interval at which the source is listed while requests wait and no slot is idle. The
	// first interval is PollMin, default 10 s; each one is twice as long as the one before, up to PollMax, default 5
	// min. A new request, an idle slot or a conflict starts over with PollMin.
	PollMin, PollMax time.Duration
	// Timeout is how long the source may take for one claim or one listing; default 10 s. After that the request is
	// answered with ErrTimeout, and if the claim is committed later it is undone.
	Timeout time.Duration
	// Grace is how long Shutdown waits for claims in flight, and then again for those that have to be undone; default 2 s.
	Grace time.Duration
	// ScaleUp, if set, is called once for each shortage: requests wait, and a listing has shown no idle slot for them.
	// It is called again after PollMin if the shortage lasts and the last call failed, or if more requests wait than it
	// was told. At most one call runs at a time, in a goroutine of its own.
	ScaleUp func(ctx context.Context, s Shortage) error
	// OnStatus, if set, is called with the status so that it can be copied elsewhere, such as to a mark in a ledger. It
	// is called when Run begins, when PendingRequests differs from the last call, and a last time when every request
	// has been answered. At most one call runs at a time, in a goroutine of its own. The next one begins StatusEvery
	// after the last one has returned, or later; a failed call is repeated then.
	OnStatus func(ctx context.Context, s Status) error
	// StatusEvery is the shortest time from the end of a call of OnStatus to the next one; default 1 s.
	StatusEvery time.Duration
	// OnError, if set, is called with errors that no caller gets: ErrSource of listings, ErrHook and ErrLeak. It may be
	// called from several goroutines at once. Nil: they are written to slog.Default(), at most ten at once and one more
	// every 10 s.
	OnError func(error)

	log    rate.Log
	gauges gauges
	once   sync.Once
	set    settings
	// stop is closed when Shutdown begins, answered when every request has been answered, done when Shutdown is complete.
	stop, answered, done chan struct{}
	// changed has a token when the number of pending requests has changed; mirror receives it.
	changed chan struct{}
	// claims counts the goroutines that claim slots and give them back, calls those that run listings and hooks.
	claims, calls sync.WaitGroup
	// claiming is the context of claims, looking that of listings and hooks.
	claiming, looking life

	// mu guards the fields below. It is never held while a method of the source, of a request's context or a hook is
	// called.
	mu           sync.Mutex
	ran, shut    bool
	stats        Stats
	latency      Latency
	arrived      uint64 // the number of the newest request
	lines        lines
	ready        ready
	reservations reservations
	attempts     map[*attempt]struct{}
	listing      listing
	poll         poll
	// listAt are the times at which to list the source because of NotifyIdle, sorted.
	listAt   []time.Time
	shortage *shortage
	// scaling says that a call of ScaleUp has not returned.
	scaling bool
	// ended are the unwatch functions of requests that were answered under the lock; unlock calls them.
	ended []func()
	clock *time.Timer
}

// settings are a pool's fields with the defaults filled in.
type settings struct {
	queue, inflight                                                        int
	reserveFor, notifyDelay, pollMin, pollMax, timeout, grace, statusEvery time.Duration
}

// life is a context with its cancel function. The pool cancels it to end the calls that run under it.
type life struct {
	ctx context.Context //nolint:containedctx // the pool's, for goroutines that outlive a call
	end context.CancelFunc
}

func newLife() life {
	ctx, end := context.WithCancel(context.Background())
	return life{ctx, end}
}

// init prepares the zero value on first use.
func (p *Pool) init() {
	p.once.Do(func() {
		p.set = p.settings()
		p.stop, p.answered, p.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
		p.changed = make(chan struct{}, 1)
		p.latency = newLatency()
		p.claiming, p.looking = newLife(), newLife()
		p.attempts = map[*attempt]struct{}{}
		p.lines, p.ready = newLines(), newReady()
		p.reservations = reservations{term: p.set.reserveFor, held: map[key]*reservation{}}
		p.poll = poll{min: p.set.pollMin, max: p.set.pollMax, wait: p.set.pollMin}
	})
}

func (p *Pool) settings() settings {
	s := settings{
		queue:       cmp.Or(max(p.Queue, 0), 4096),
		inflight:    cmp.Or(max(p.Inflight, 0), 128),
		reserveFor:  cmp.Or(p.ReserveFor, 2*time.Second),
		notifyDelay: max(p.NotifyDelay, 0),
		pollMin:     cmp.Or(max(p.PollMin, 0), 10*time.Second),
		pollMax:     cmp.Or(max(p.PollMax, 0), 5*time.Minute),
		timeout:     cmp.Or(max(p.Timeout, 0), 10*time.Second),
		grace:       cmp.Or(max(p.Grace, 0), 2*time.Second),
		statusEvery: cmp.Or(max(p.StatusEvery, 0), time.Second),
	}
	s.pollMax = max(s.pollMax, s.pollMin)
	if _, prompt := p.Source.(Follower); p.NotifyDelay == 0 && !prompt {
		s.notifyDelay = 200 * time.Millisecond
	}
	return s
}

// validate returns an error that names every field with an invalid value.
func (p *Pool) validate() error {
	var faults []error
	if p.Source == nil {
		faults = append(faults, errors.New("Source is nil; set it, for example to a *LedgerSource"))
	}
	for _, f := range []struct {
		name string
		bad  bool
	}{
		{"Queue", p.Queue < 0}, {"Inflight", p.Inflight < 0},
		{"PollMin", p.PollMin < 0}, {"PollMax", p.PollMax < 0}, {"Timeout", p.Timeout < 0}, {"Grace", p.Grace < 0},
		{"StatusEvery", p.StatusEvery < 0},
	} {
		if f.bad {
			faults = append(faults, fmt.Errorf("%s is negative; leave it at 0 for the default", f.name))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("claim: pool %q: %w: %w", p.Name, orbit.ErrInvalid, errors.Join(faults...))
}

// Run serves until ctx ends (nil: never) or Shutdown is called, answers every request and returns nil. If a field has
// an invalid value it returns an error that wraps orbit.ErrInvalid, and ErrRan if the pool has been run before. After
// Shutdown it returns nil at once.
//
// One lock guards the queues of requests and of slots. Every event (a request, a listing, the outcome of a claim, a
// deadline) changes the state under the lock, and then runs the same step: expire what is due, pair requests with
// slots, list the source if slots are missing. The source and the hooks are called from goroutines of their own,
// without the lock.
//
// Several pools, in one process or in several, may claim from one store. Guarantee 2 and the reservations then hold for
// each pool by itself: two pools may try the same slot, Source.Claim lets one of them have it, and the request of the
// other gets another slot. So a claimed slot still goes to one caller, whichever pool claims it, even if a pool is
// killed: slots that it had claimed and not handed out stay claimed.
func (p *Pool) Run(ctx context.Context) error {
	if err := p.validate(); err != nil {
		return err
	}
	p.init()
	if ctx == nil {
		ctx = context.Background()
	}
	if over, err := p.begin(); over {
		return err
	}
	for serving := true; serving; {
		select {
		case <-p.clock.C:
			p.update(func(time.Time) {})
		case <-ctx.Done():
			serving = false
		case <-p.stop:
			serving = false
		}
	}
	p.Shutdown()
	return nil
}

// begin starts serving. It reports over if the pool has been run or shut down before.
func (p *Pool) begin() (over bool, err error) {
	p.mu.Lock()
	defer p.unlock()
	switch {
	case p.ran:
		return true, &Error{Kind: ErrRan, Pool: p.Name}
	case p.shut:
		return true, nil
	}
	p.ran = true
	p.clock = time.NewTimer(p.set.pollMax)
	p.listing.wanted = true
	if p.OnStatus != nil {
		p.calls.Go(p.mirror)
	}
	p.step(time.Now())
	return false, nil
}

// Enqueue hands a request to the pool without waiting for the answer. It reports false, and the request's Result never
// gets an answer, if the pool is full or has been shut down; try later, or try another pool. A request whose context
// has ended already is accepted and answered with ErrEnded.
func (p *Pool) Enqueue(req *Request) bool {
	return req != nil && p.enqueue(req) == nil
}

// enqueue returns ErrFull or ErrShutdown if the request is refused.
func (p *Pool) enqueue(req *Request) error {
	p.init()
	r := &request{Request: *req, pool: p, want: newFilter(&req.Want)}
	r.Want, r.Apply = req.Want.clone(), req.Apply.clone()
	if r.Ctx == nil {
		r.Ctx = context.Background()
	}
	r.begin()
	if err := p.admit(r); err != nil {
		if r.endLife != nil {
			r.endLife()
		}
		return err
	}
	req.EnqueuedAt = r.EnqueuedAt
	r.watch()
	return nil
}

// admit puts a request into its line, if there is room for it.
func (p *Pool) admit(r *request) error {
	p.mu.Lock()
	defer p.unlock()
	switch {
	case p.shut:
		return ErrShutdown
	case int(p.gauges.queueLen.Load()) >= p.set.queue:
		return ErrFull
	}
	now := time.Now()
	if r.EnqueuedAt.IsZero() {
		r.EnqueuedAt = now
	}
	p.arrived++
	r.seq = p.arrived
	p.addPending(1)
	p.lines.add(r)
	p.poll.reset(now)
	p.step(now)
	return nil
}

// Claim asks for a slot and waits for the answer. If ctx ends first, the error is ErrEnded, and no slot is lost: a slot
// that is claimed at that moment is either returned here or given back to the source. ErrFull and ErrShutdown mean that
// the pool has refused the request; all other errors are those of [Result].
func (p *Pool) Claim(ctx context.Context) (Slot, error) {
	result := make(chan Result, 1)
	if kind := p.enqueue(&Request{Ctx: ctx, Result: result}); kind != nil {
		return Slot{}, &Error{Kind: kind, Pool: p.Name}
	}
	r := <-result
	return r.Slot, r.Err
}
