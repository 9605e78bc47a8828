package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// Pool pairs requests with idle slots as fast as both arrive. It is a struct literal; Source must be set,
// everything else has a default. Set the fields before first use. Its methods may be called from any goroutine,
// before, during and after Run.
//
// One lock guards the queues of requests and of slots. Every event (a request, a listing, the outcome of a claim, a
// time that has come) changes the state under the lock, and then makes the same step: end what is due, pair, ask the
// source if slots are short. Calls of the source and of hooks have goroutines of their own, without the lock.
//
// What a pool guarantees:
//
//  1. every request that Enqueue has taken is answered exactly once, at the latest by Shutdown; one that it has
//     not taken, never;
//  2. requests are paired in order of arrival, each with the slot that was seen idle first of those it wants;
//  3. a slot is handed to one claim at a time, and a claimed slot to one caller; one that is not wanted any more
//     is given back;
//  4. no request waits for the claim or the listing of another.
type Pool struct {
	// The pool's name in errors and in the status; empty: none.
	Name string
	// Whose the pool is, in the status; zero: not said.
	Labels Labels
	// Where the slots are. Required.
	Source Source
	// Most requests that are held at a time, those in flight included; default 4,096.
	Queue int
	// Most claims in flight; default 128.
	Inflight int
	// How long after its claim a slot is kept out of the ready queue though a listing shows it: longer than a
	// listing lags behind, shorter than a slot takes to become idle again. Default 2 s; negative: not at all,
	// which is good for nothing but to measure the conflicts that reservations avoid.
	ReserveFor time.Duration
	// How long after NotifyIdle the source is listed. A listing that lags behind does not show the slot
	// before. Default 200 ms, right for a watch cache; with a Follower, such as a ledger, 0. Negative: 0.
	NotifyDelay time.Duration
	// How often the source is listed while requests wait and nothing is idle: after PollMin, then each time
	// after twice as long, up to PollMax. A new request, an idle slot or a conflict starts over. Default 10 s
	// and 5 min.
	PollMin, PollMax time.Duration
	// How long the source has for one claim; then its request is answered with ErrTimeout. A claim committed
	// later is undone. Default 10 s; a listing has as long.
	Timeout time.Duration
	// How long Shutdown waits for claims in flight, and again for those that are to be undone; default 2 s.
	Grace time.Duration
	// Called once for each shortage: requests wait, and a listing has shown nothing idle for them. Called
	// again after PollMin if the shortage lasts and the call has failed, or more requests wait than it was
	// told of. At most one call runs at a time, in a goroutine of its own. Nil: not called.
	ScaleUp func(ctx context.Context, s Shortage) error
	// Mirrors the status elsewhere, a mark in a ledger for instance: called when Run begins, then when
	// PendingRequests is not what it was told last, and a last time when every request has been answered. One call
	// runs at a time, in a goroutine of its own; the next one begins StatusEvery after it has returned, at the
	// earliest, and a call that has failed is made again then. Nil: not mirrored.
	OnStatus func(ctx context.Context, s Status) error
	// How long after a call of OnStatus the next one begins at the earliest; default 1 s.
	StatusEvery time.Duration
	// Called with what goes wrong and has no caller to be told: ErrSource of listings, ErrHook, ErrLeak. Calls come from
	// several goroutines at once. Nil: errors are dropped.
	OnError func(error)

	gauges gauges
	once   sync.Once
	set    settings
	// Closed when the pool begins to end, when every request has been answered, and when it has ended.
	stop, answered, done chan struct{}
	// Has a token when the number of pending requests has changed; for mirror.
	changed chan struct{}
	// Claims, and what they give back; listings and the hooks.
	claims, calls sync.WaitGroup
	// End the calls of the source and of the hooks.
	claiming, looking life

	// Guards what follows. It is never held while a method of the source, of a request's context or a hook is called.
	mu           sync.Mutex
	ran, shut    bool
	stats        Stats
	latency      Latency
	arrived      uint64 // numbers requests
	lines        lines
	ready        ready
	reservations reservations
	attempts     map[*attempt]struct{}
	listing      listing
	poll         poll
	// When to list the source because of NotifyIdle, in order.
	listAt   []time.Time
	shortage *shortage
	// The scale-up hook has not returned.
	scaling bool
	// What unlock undoes: the watches of requests that have just been answered.
	ended []func()
	clock *time.Timer
}

// settings are a pool's fields with the defaults filled in.
type settings struct {
	queue, inflight                                                        int
	reserveFor, notifyDelay, pollMin, pollMax, timeout, grace, statusEvery time.Duration
}

// life is a context that ends all that is done under it.
type life struct {
	ctx context.Context //nolint:containedctx // the pool's, for goroutines that outlive a call
	end context.CancelFunc
}

func newLife() life {
	ctx, end := context.WithCancel(context.Background())
	return life{ctx, end}
}

// init makes the zero value ready, once.
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

// validate reports every fault in the fields.
func (p *Pool) validate() error {
	var faults []error
	if p.Source == nil {
		faults = append(faults, errors.New("Source is nil; set it, to a *LedgerSource for instance"))
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

// Run serves until ctx ends (nil: never) or Shutdown is called; either way every request has been answered when it
// returns, and it returns nil. It refuses, with an error that wraps orbit.ErrInvalid, to run with a fault in
// the fields, and with ErrRan to run twice. After Shutdown it returns nil at once.
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

// begin starts to serve, unless the pool has been run or shut down.
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

// Enqueue hands a request to the pool. It reports false, and will never write to the request's Result, when
// the pool is full or has been shut down; the caller should hold back, or try another pool. It does not wait. A
// request that has ended already is taken, and answered.
func (p *Pool) Enqueue(req *Request) bool {
	return req != nil && p.enqueue(req) == nil
}

// enqueue returns ErrFull or ErrShutdown where the request is not taken.
func (p *Pool) enqueue(req *Request) error {
	p.init()
	r := &request{Request: *req, pool: p, want: newFilter(&req.Want)}
	r.Want = req.Want.clone()
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

// Claim asks for a slot and waits for the answer. If ctx ends first, the error is ErrEnded, and no slot is
// lost: one that is claimed at that very moment is either returned here or given back. ErrFull and ErrShutdown
// say that the pool has not taken the request on; the others are those of [Result].
func (p *Pool) Claim(ctx context.Context) (Slot, error) {
	result := make(chan Result, 1)
	if kind := p.enqueue(&Request{Ctx: ctx, Result: result}); kind != nil {
		return Slot{}, &Error{Kind: kind, Pool: p.Name}
	}
	r := <-result
	return r.Slot, r.Err
}
