package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
)

// Pool pairs requests with idle slots as fast as both arrive. It is a struct literal; Source must be set,
// everything else has a default. Set the fields before first use. Its methods may be called from any goroutine,
// before, during and after Run.
//
//	Enqueue ──► mailbox ─────► queue ──┐ first in, first out
//	             ▲  ▲                  ├──► a claim in its own goroutine ──► Source.Claim
//	NotifyIdle ──┘  │  listing ► ready ┘    (at most Inflight; slot reserved)      │
//	                │            ▲                                                 ├─ claimed ──► the caller
//	Source.Idle ────┴────────────┘                                                 ├─ conflict ─► head of queue
//	(Follow)                                                                       └─ error ────► the caller
//
// What a pool guarantees:
//
//  1. every request that Enqueue has taken is answered exactly once, at the latest by Shutdown; one that it has
//     not taken, never;
//  2. requests are paired in order of arrival, each with the slot that was seen idle first of those it wants;
//  3. a slot is handed to one claim at a time, and a claimed slot to one caller; one that nobody wants any more
//     is given back;
//  4. whoever is to be served next never waits for the source: one goroutine owns the queues and makes no
//     call that can block.
type Pool struct {
	// In errors and in the status.
	Name string
	// Whose the pool is, in the status.
	Labels Labels
	// Required.
	Source Source
	// Most requests that are held at a time, those in flight included; default 4,096.
	Queue int
	// Most claims in flight; default 128.
	Inflight int
	// How long after its claim a slot is kept out of the ready queue though a listing shows it: longer than a
	// listing lags behind, shorter than a slot takes to become idle again. Default 2 s; negative: not at all,
	// which is good for nothing but to measure the conflicts that reservations avoid.
	ReserveFor time.Duration
	// How long after NotifyIdle the source is looked at. A listing that lags behind does not show the slot
	// before. Default 200 ms, right for a watch cache; with a Follower, such as a ledger, 0. Negative: 0.
	NotifyDelay time.Duration
	// How often the source is looked at while requests wait and nothing is idle: after PollMin, then each time
	// after twice as long, up to PollMax. A new request, an idle slot or a conflict starts over. Default 10 s
	// and 5 min.
	PollMin, PollMax time.Duration
	// How long the source has for one claim; then its request is answered with ErrTimeout. A claim committed
	// later is undone. Default 10 s; a listing has as long.
	Timeout time.Duration
	// How long Shutdown waits for claims in flight, and again for those that are to be undone; default 2 s.
	Grace time.Duration
	// Called once for each shortage: requests wait, and a look at the source has found nothing idle. Called
	// again after PollMin if the shortage lasts and the call has failed, or more requests wait than it was
	// told of. At most one call runs at a time, in a goroutine of its own. Nil: nobody is told.
	ScaleUp func(ctx context.Context, s Shortage) error
	// Mirrors the status elsewhere, a mark in a ledger for instance: called when Run begins, then when
	// PendingRequests is not what it was told last, and a last time when everybody has been answered. One call
	// runs at a time, in a goroutine of its own; the next one begins StatusEvery after it has returned, at the
	// earliest, and a call that has failed is made again then. Nil: not mirrored.
	OnStatus func(ctx context.Context, s Status) error
	// Default 1 s.
	StatusEvery time.Duration
	// Called with what goes wrong and has no caller to be told: ErrSource of listings, ErrHook, ErrLeak. From
	// any goroutine. Nil: dropped.
	Report func(error)

	gauges
	latency stopwatch
	once    sync.Once
	mail    mailbox
	set     settings
	ids     idSource
	// Fresh, run, or ended without: who may drain the mailbox.
	phase atomic.Int32
	// Closed by Shutdown; closed when everybody has been answered.
	stop, done chan struct{}
	// Has a token when the number of pending requests has changed; closed when it is zero for good. For mirror.
	changed, answered chan struct{}

	// The goroutines that the loop has started: claims, listings, the hook.
	group sync.WaitGroup
	// Where a goroutine that has made a flight waits for another; how many do.
	crews   chan *flight
	resting atomic.Int32
	// Ends listings and the hook; ends claims.
	looking, flights life

	loop
}

// The phases of a pool.
const (
	fresh int32 = iota
	run
	ended
)

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
		p.mail.wake = make(chan struct{}, 1)
		p.stop, p.done = make(chan struct{}), make(chan struct{})
		p.changed, p.answered = make(chan struct{}, 1), make(chan struct{})
		p.looking, p.flights = newLife(), newLife()
		p.ids = newIDSource()
		p.crews = make(chan *flight)
		p.reservations.term = p.set.reserveFor
		p.poll = poll{min: p.set.pollMin, max: p.set.pollMax, wait: p.set.pollMin}
	})
}

func (p *Pool) settings() settings {
	pollMin := cmp.Or(max(p.PollMin, 0), 10*time.Second)
	return settings{
		queue:       cmp.Or(max(p.Queue, 0), 4096),
		inflight:    cmp.Or(max(p.Inflight, 0), 128),
		reserveFor:  cmp.Or(p.ReserveFor, 2*time.Second),
		notifyDelay: p.notifyDelay(),
		pollMin:     pollMin,
		pollMax:     max(cmp.Or(max(p.PollMax, 0), 5*time.Minute), pollMin),
		timeout:     cmp.Or(max(p.Timeout, 0), 10*time.Second),
		grace:       cmp.Or(max(p.Grace, 0), 2*time.Second),
		statusEvery: cmp.Or(max(p.StatusEvery, 0), time.Second),
	}
}

// notifyDelay returns what holds. A source that says by itself what has changed does not lag behind.
func (p *Pool) notifyDelay() time.Duration {
	if _, prompt := p.Source.(Follower); p.NotifyDelay == 0 && !prompt {
		return 200 * time.Millisecond
	}
	return max(p.NotifyDelay, 0)
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

// Run serves until ctx ends (nil: never) or Shutdown is called; either way everybody has been answered when it
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
	if !p.phase.CompareAndSwap(fresh, run) {
		if p.phase.Load() == ended {
			return nil
		}
		return &Error{Kind: ErrRan, Pool: p.Name}
	}
	p.serve(ctx)
	p.drain()
	return nil
}

// Enqueue hands a request to the pool. It reports false, and will never write to the request's Result, when
// the pool is full or has been shut down; the caller should hold back, or try another pool. It does not wait. A
// request that has ended already is taken, and answered.
func (p *Pool) Enqueue(req *Request) bool {
	p.init()
	if req == nil || !p.takeOn() {
		return false
	}
	if req.EnqueuedAt.IsZero() {
		req.EnqueuedAt = time.Now()
	}
	t := &ticket{pool: p, req: *req, ctx: req.Ctx, want: req.Want.filter()}
	t.req.Want = req.Want.clone()
	if t.ctx == nil {
		t.ctx = context.Background()
	}
	t.watch()
	if !p.mail.arrive(t) { // shut down since it was taken on
		t.fail(ErrShutdown, Slot{}, nil)
	}
	return true
}

// takeOn counts one more request, if there is room for it and the pool has not been shut down.
func (p *Pool) takeOn() bool {
	for {
		n := p.queueLen.Load()
		if n >= int64(p.set.queue) || p.shut.Load() {
			return false
		}
		if p.queueLen.CompareAndSwap(n, n+1) {
			p.signalChange()
			return true
		}
	}
}

// Claim asks for a slot and waits for the answer. If ctx ends first, the error is ErrEnded, and no slot is
// lost: one that is claimed at that very moment is either returned here or given back. ErrFull and ErrShutdown
// say that the pool has not taken the request on; the others are those of [Result].
func (p *Pool) Claim(ctx context.Context) (Slot, error) {
	result := make(chan Result, 1)
	if !p.Enqueue(&Request{Ctx: ctx, Result: result}) {
		kind := ErrFull
		if p.shut.Load() {
			kind = ErrShutdown
		}
		return Slot{}, &Error{Kind: kind, Pool: p.Name}
	}
	r := <-result
	return r.Slot, r.Err
}

// idSource makes ids of attempts: a random part that is the pool's own, and a count.
type idSource struct{ high, count uint64 }

func newIDSource() idSource { return idSource{high: rand.Uint64()} }

func (s *idSource) next() (id orbit.ProposalID) {
	s.count++
	for i := range 8 {
		id[i], id[8+i] = byte(s.high>>(8*i)), byte(s.count>>(56-8*i))
	}
	return id
}
