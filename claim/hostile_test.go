package claim_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/sim"
)

// parrot is a follower that returns the same listing again and again and ignores its context.
type parrot struct {
	listings
	what  claim.Listing
	calls atomic.Int64
	quiet atomic.Bool
}

func (p *parrot) Follow(context.Context, uint64) (claim.Listing, error) {
	p.calls.Add(1)
	if p.quiet.Load() {
		return claim.Listing{}, errors.New("hush")
	}
	return p.what, nil
}

// A follower that returns at once without anything new is called once a second, and its listings are used. It is not
// called any more when the pool has ended.
func TestFollowerWithoutNews(t *testing.T) {
	for name, what := range map[string]claim.Listing{
		"nothing":          {Partial: true, Version: 7},
		"the same version": {Version: 7, Slots: []claim.Slot{slot("a", "1")}},
		"an older one":     {Version: 3, Slots: []claim.Slot{slot("a", "1")}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &parrot{what: what}
				time.AfterFunc(time.Hour, func() { f.quiet.Store(true) }) // otherwise its calls would never end
				f.show(7, slot("a", "1"))
				r := newRig(t, &claim.Pool{Source: f}).run()
				r.until(10*sec + ns)
				assert.Equal(t, int64(11), f.calls.Load())
				assert.NoError(t, got(t, r.askNow()).Err)
				r.Shutdown()
				time.Sleep(2 * sec)
				calls := f.calls.Load()
				time.Sleep(time.Minute)
				assert.Equal(t, calls, f.calls.Load())
			})
		})
	}
}

// askNow enqueues a request and lets everything happen that is due now.
func (r *rig) askNow() <-chan claim.Result {
	c := r.ask()
	synctest.Wait()
	return c
}

// chatter is a follower that always has changes.
type chatter struct {
	listings
	said atomic.Int64
	// some and much are closed after some and after many calls.
	some, much chan struct{}
}

func (c *chatter) Follow(_ context.Context, after uint64) (claim.Listing, error) {
	switch c.said.Add(1) {
	case 20_000:
		close(c.some)
	case 1_000_000:
		close(c.much)
	}
	return claim.Listing{Partial: true, Version: after + 1, Slots: []claim.Slot{slot("a", fmt.Sprint(after+1))}}, nil
}

// A follower that always has changes is not called faster than the pool admits them, and not any more when the pool has
// ended. Nothing piles up.
func TestFollowerIsNotAheadOfThePool(t *testing.T) {
	scale.Long(t)
	bubble(t, followerIsNotAhead)
}

func followerIsNotAhead(t *testing.T) {
	c := &chatter{some: make(chan struct{}), much: make(chan struct{})}
	p := &claim.Pool{Source: c}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.Background()) }()
	<-c.some
	before := leastHeap()
	<-c.much
	assert.Less(t, leastHeap()-before, int64(8<<20), "positions of slots that are another by now are cleared away")
	p.Shutdown()
	require.NoError(t, <-ended)
	said := c.said.Load()
	synctest.Wait() // it returns only while the follower rests
	assert.LessOrEqual(t, c.said.Load(), said+1)
}

// leastHeap returns the smallest heap size of ten moments, because void positions pile up for a while and are then
// removed together.
func leastHeap() int64 {
	least := int64(math.MaxInt64)
	for range 10 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		least = min(least, int64(m.HeapAlloc))
	}
	return least
}

// Requests that arrive all the time do not postpone the poll of a followed source, which may have missed a change.
func TestRequestsDoNotPutOffThePoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &followed{news: make(chan claim.Listing), fail: make(chan error)}
		r := newRig(t, &claim.Pool{Source: f}).run()
		first := r.ask()
		r.until(sec)
		f.show(0, slot("a", "1")) // the follower does not report it
		for d := 2 * sec; d < 10*sec; d += sec {
			r.until(d)
			r.ask()
		}
		r.until(10*sec - ns)
		none(t, first)
		r.until(10 * sec)
		assert.NoError(t, got(t, first).Err)
	})
}

// An OnError that blocks does not delay listings, the hook or claims.
func TestReportThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		forever := make(chan struct{})
		defer close(forever)
		var signals atomic.Int64
		s := store(&sim.StaleStore{Latency: ms}, "s0")
		l := &faulty{Source: unreturning{s, func() error { return errRefused }}}
		l.fails.Store(true)
		p := &claim.Pool{Source: l, Inflight: 1, OnError: func(error) { <-forever }}
		p.ScaleUp = func(context.Context, claim.Shortage) error { signals.Add(1); return errRefused }
		r := newRig(t, p).run()
		l.fails.Store(false)
		r.look()
		assert.Equal(t, 1, r.Snapshot().IdleReady, "after a listing that failed")
		_, c := r.request(t.Context(), ms/2) // the slot cannot be given back
		r.until(time.Minute)
		require.ErrorIs(t, got(t, c).Err, claim.ErrEnded)
		assert.Zero(t, r.Snapshot().InflightCAS, "the place in flight is free")
		r.ask()
		r.until(3 * time.Minute)
		assert.Greater(t, signals.Load(), int64(2), "the hook has failed, and is called again")
	})
}

// faulty is a source whose listings fail for a while.
type faulty struct {
	claim.Source
	fails atomic.Bool
}

func (f *faulty) Idle(ctx context.Context) (claim.Listing, error) {
	if f.fails.Load() {
		return claim.Listing{}, errors.New("unreachable")
	}
	return f.Source.Idle(ctx)
}

// A listing that never returns costs only that listing: it is reported after Timeout, and the source is listed again.
func TestListingThatBlocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		forever := make(chan struct{})
		l := &listings{}
		l.set(func() (claim.Listing, error) {
			<-forever
			return claim.Listing{Slots: []claim.Slot{slot("late", "1")}}, nil
		})
		r := newRig(t, &claim.Pool{Source: l}).run()
		c := r.ask()
		r.until(10*sec - ns)
		l.show(0, slot("a", "1"))
		none(t, c)
		r.until(20 * sec)
		assert.Equal(t, "a", got(t, c).Slot.Name)
		require.Len(t, r.reported(), 1)
		assert.ErrorIs(t, r.reported()[0], claim.ErrSource)
		assert.ErrorIs(t, r.reported()[0], context.DeadlineExceeded)
		close(forever)
		synctest.Wait()
		assert.Zero(t, r.Snapshot().IdleReady, "what comes so late is not believed")
	})
}

// A source whose listings all block is called only a few times, because the calls do not return.
func TestListingsThatAllBlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		forever := make(chan struct{})
		defer close(forever)
		l := &listings{}
		l.set(func() (claim.Listing, error) { <-forever; return claim.Listing{}, nil })
		r := newRig(t, &claim.Pool{Source: l}).run()
		for range 100 {
			r.ask()
			time.Sleep(time.Minute)
		}
		assert.LessOrEqual(t, len(r.seen()), 8)
	})
}

// evil is an error whose methods panic.
type evil struct{}

func (evil) Error() string   { return "evil" }
func (evil) Is(error) bool   { panic("ouch") }
func (evil) Unwrap() []error { panic("ouch") }

// An error that panics when it is compared fails the call that returned it, not the pool.
func TestErrorsThatPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{}, "s0")
		s.Inject = func(claim.Attempt) error { return evil{} }
		var signals atomic.Int64
		r := newRig(t, &claim.Pool{Source: s, ScaleUp: func(context.Context, claim.Shortage) error { signals.Add(1); return evil{} }}).run()
		a := r.askNow()
		require.Error(t, got(t, a).Err)
		r.ask()
		r.ask()
		r.until(30 * sec)
		assert.Greater(t, signals.Load(), int64(1))
	})
}

// lurking is an error that panics only when its text is made, or when it is compared with a conflict.
type lurking struct{ harm func() }

func (l lurking) Error() string     { l.harm(); return "lurking" }
func (l lurking) Is(err error) bool { return err == orbit.ErrConflict && l.do() }
func (l lurking) do() bool          { l.harm(); return false }

// An error whose methods panic costs its own request. The pool goes on, and its counters are right.
func TestErrorsThatLurk(t *testing.T) {
	for name, harm := range map[string]func(){
		"panics": func() { panic("ouch") },
		"exits":  runtime.Goexit,
	} {
		for how, fail := range map[string]func() error{
			" returned":      func() error { return lurking{harm} },
			" panicked with": func() error { panic(lurking{harm}) },
		} {
			t.Run(name+how, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					l := &listings{claim: func(_ context.Context, a claim.Attempt) (claim.Slot, uint64, error) {
						if a.Slot.Name == "s0" {
							return claim.Slot{}, 0, fail()
						}
						return a.Slot, 0, nil
					}}
					l.show(1, claim.Slot{Name: "s0"}, claim.Slot{Name: "s1"})
					r := newRig(t, &claim.Pool{Source: l}).run()
					a, b := r.ask(), r.ask()
					r.until(sec)
					require.Error(t, got(t, a).Err)
					require.NoError(t, got(t, b).Err)
					assert.Zero(t, r.Snapshot().InflightCAS)
				})
			})
		}
	}
}

// The caller may change a request once it is answered, even while its claim is in flight: the source reads a copy.
func TestAnsweredRequestIsTheCallers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := store(&sim.StaleStore{Latency: 10 * ms}, names(3)...)
		seen := make(chan any, 10)
		s.Inject = func(a claim.Attempt) error {
			time.Sleep(ms)
			seen <- a.Request.Options
			return nil
		}
		r := newRig(t, &claim.Pool{Source: s}).run()
		c := make(chan claim.Result, 2)
		req := &claim.Request{Deadline: time.Now().Add(3 * ms), Options: "first", Result: c}
		require.True(t, r.Enqueue(req))
		require.ErrorIs(t, (<-c).Err, claim.ErrEnded)
		req.Deadline, req.Options = time.Now().Add(time.Hour), "second"
		require.True(t, r.Enqueue(req))
		r.until(sec)
		require.NoError(t, got(t, c).Err)
		assert.Equal(t, []any{"first", "second"}, []any{<-seen, <-seen})
	})
}

// held is a follower whose listing can be held back.
type held struct {
	followed
	hold chan struct{}
	on   atomic.Bool
}

func (h *held) Idle(ctx context.Context) (claim.Listing, error) {
	l, err := h.followed.Idle(ctx)
	if h.on.Load() {
		<-h.hold
	}
	return l, err
}

// A requested listing that is older than an unrequested one does not undo it.
func TestListingOvertakenByNews(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &held{followed: followed{news: make(chan claim.Listing), fail: make(chan error)}, hold: make(chan struct{})}
		h.show(5, slot("a", "1"), slot("b", "1"), slot("c", "1"))
		r := newRig(t, &claim.Pool{Source: h}).run()
		h.on.Store(true)
		r.look()
		h.news <- claim.Listing{Partial: true, Version: 8, Slots: []claim.Slot{slot("a", "2")}, Gone: []string{"b"}}
		synctest.Wait()
		assert.Equal(t, 2, r.Snapshot().IdleReady)
		close(h.hold)
		synctest.Wait()
		assert.Equal(t, 2, r.Snapshot().IdleReady)
		assert.Equal(t, []string{"c/1", "a/2"}, r.pop(t))
	})
}

// A source that shows a slot as idle and refuses it at the same version contradicts itself. The slot is reserved, and
// the pool does not try it in a loop.
func TestSourceThatContradictsItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &listings{claim: func(context.Context, claim.Attempt) (claim.Slot, uint64, error) { return claim.Slot{}, 7, errConflict }}
		l.show(7, slot("a", "1"))
		r := newRig(t, &claim.Pool{Source: l})
		time.AfterFunc(time.Hour, func() { l.show(7) })
		r.request(t.Context(), time.Minute)
		r.run()
		r.until(sec)
		assert.Len(t, r.tried(), 1)
		r.until(59 * sec)
		assert.LessOrEqual(t, len(r.tried()), 30, "every 2 s")
	})
}

// A nil context never ends, for Run as for a request.
func TestNilContexts(t *testing.T) {
	p := &claim.Pool{Source: store(&sim.StaleStore{}, "s0")}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(nil) }() //nolint:staticcheck // it is what is tested
	slot, err := p.Claim(nil)           //nolint:staticcheck // the same
	require.NoError(t, err)
	assert.Equal(t, "s0", slot.Name)
	p.Shutdown()
	require.NoError(t, <-ended)
}

// Return ends a capsule that was released to pending because its node was emptied, so that no engine can place it.
func TestReturnAfterEvacuation(t *testing.T) {
	src := &claim.LedgerSource{}
	require.NoError(t, src.Join(t.Context(), "a", "b"))
	l, err := src.Idle(t.Context())
	require.NoError(t, err)
	claimed, _, err := src.Claim(t.Context(), claim.Attempt{ID: orbit.NewProposalID(), Slot: l.Slots[0]})
	require.NoError(t, err)
	propose(t, src.Book(), orbit.PutNode{Node: orbit.Node{ID: "a", State: orbit.Lost}}, orbit.Release{Capsule: claimed.Capsule, From: "a"}, orbit.RemoveNode{Node: "a"})
	require.NoError(t, src.Return(t.Context(), claimed))
	state := snapshot(t, src)
	assert.Zero(t, state.PendingCount())
	assert.True(t, state.Capsule(claimed.Capsule).Released())

	l, err = src.Idle(t.Context())
	require.NoError(t, err)
	claimed, _, err = src.Claim(t.Context(), claim.Attempt{ID: orbit.NewProposalID(), Slot: l.Slots[0]})
	require.NoError(t, err)
	propose(t, src.Book(), orbit.Release{Capsule: claimed.Capsule, From: "b", Stopped: true}) // another client places it again
	require.NoError(t, src.Join(t.Context(), "c"))
	propose(t, src.Book(), orbit.Place{Capsule: claimed.Capsule, Node: "c"})
	require.ErrorIs(t, src.Return(t.Context(), claimed), orbit.ErrConflict)
	assert.Equal(t, orbit.NodeID("c"), snapshot(t, src).Capsule(claimed.Capsule).Node, "another client has it by now")
}

// counted counts the calls of a ledger.
type counted struct {
	orbit.Ledger
	snapshots atomic.Int64
}

func (c *counted) Snapshot(ctx context.Context) (*orbit.State, error) {
	c.snapshots.Add(1)
	return c.Ledger.Snapshot(ctx)
}

// A claim takes no snapshot once the ledger's own copy of the spec is known, even if it is the spec that was given.
func TestClaimTakesNoSnapshot(t *testing.T) {
	first := &claim.LedgerSource{}
	handedOut := claimAll(t, first, "a", "b")
	second := &counted{Ledger: &orbit.MemoryLedger{}}
	claimAll(t, &claim.LedgerSource{Ledger: second, Spec: handedOut}, "a", "b", "c", "d")
	assert.Equal(t, int64(4), second.snapshots.Load(), "to join, to list, to learn, and that of this test")
}

// claimAll claims all of these nodes, and returns the ledger's copy of the spec.
func claimAll(t *testing.T, src *claim.LedgerSource, names ...orbit.NodeID) *orbit.Spec {
	require.NoError(t, src.Join(t.Context(), names...))
	l, err := src.Idle(t.Context())
	require.NoError(t, err)
	var last claim.Slot
	for _, s := range l.Slots {
		last, _, err = src.Claim(t.Context(), claim.Attempt{ID: orbit.NewProposalID(), Slot: s})
		require.NoError(t, err)
	}
	return snapshot(t, src).Capsule(last.Capsule).Spec
}

// Nodes are drained, emptied, removed and join again while they are claimed, by two pools with small limits on one
// ledger that keeps one change of history. No slot is handed out twice, every request ends, and at the end all slots
// are idle.
func TestNodesComeAndGo(t *testing.T) {
	ledger := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 1, Terminal: 1, PlacementIDs: 1, ProposalIDs: 1}}
	var pools []*claim.Pool
	var users sync.Map
	var served atomic.Int64
	var crowd, keepers sync.WaitGroup
	src := &claim.LedgerSource{Ledger: ledger}
	require.NoError(t, src.Join(t.Context(), nodes(8)...))
	for range 2 {
		pools = append(pools, started(t, &claim.Pool{Source: &claim.LedgerSource{Ledger: ledger}, Queue: 16, Inflight: 2, PollMin: 20 * ms}))
	}
	ctx, stop := context.WithCancel(t.Context())
	for k := range 2 { // each goroutine replaces nodes of its own when they are free
		keepers.Go(func() {
			for i := k; ctx.Err() == nil; i += 2 {
				id := orbit.NodeID(fmt.Sprintf("s%d", i%8))
				drained := orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.Slots: 1}, State: orbit.Cordoned}}
				_, _ = ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{drained}})
				for ctx.Err() == nil {
					if _, err := ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.RemoveNode{Node: id}}}); err == nil {
						break
					}
					time.Sleep(100 * us)
				}
				assert.NoError(t, src.Join(context.Background(), id))
			}
		})
	}
	for k := range 16 {
		crowd.Go(func() {
			for range 100 {
				limited, cancel := context.WithTimeout(t.Context(), time.Minute)
				slot, err := pools[k%2].Claim(limited)
				cancel()
				if !assert.NoError(t, err) {
					return
				}
				served.Add(1)
				_, doubled := users.LoadOrStore(slot.Name, k)
				assert.False(t, doubled)
				users.Delete(slot.Name)
				assert.NoError(t, src.Return(t.Context(), slot))
			}
		})
	}
	crowd.Wait()
	stop()
	keepers.Wait()
	assert.Equal(t, int64(1600), served.Load())
	for n := range snapshot(t, src).Nodes() {
		assert.Zero(t, n.Capsules)
	}
	assert.Zero(t, pools[0].Snapshot().QueueLen+pools[1].Snapshot().QueueLen)
}

// When a call of Idle that has taken too long returns at last, the source is listed again.
func TestListingsThatReturnLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hangs := make(chan struct{})
		l := &listings{}
		l.set(func() (claim.Listing, error) { <-hangs; return claim.Listing{}, nil })
		r := newRig(t, &claim.Pool{Source: l}).run()
		c := r.ask()
		r.until(time.Hour)
		assert.Len(t, r.seen(), 4)
		l.show(0, slot("a", "1"))
		r.look()
		assert.Len(t, r.seen(), 4)
		hangs <- struct{}{}
		synctest.Wait()
		assert.Equal(t, "a", got(t, c).Slot.Name)
		close(hangs)
	})
}

// The same with an unrequested full listing: slots that it leaves out are not idle, also if the older answer lists them. A
// listing that is requested later is used, even if the store's versions have started over.
func TestListingOvertakenByAFullOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &held{followed: followed{news: make(chan claim.Listing), fail: make(chan error)}, hold: make(chan struct{})}
		h.show(5, slot("a", "1"), slot("b", "1"))
		r := newRig(t, &claim.Pool{Source: h}).run()
		h.on.Store(true)
		r.look()
		h.news <- claim.Listing{Partial: true, Version: 8, Gone: []string{"c"}}
		h.news <- claim.Listing{Version: 9, Slots: []claim.Slot{slot("a", "1")}}
		synctest.Wait()
		close(h.hold)
		synctest.Wait()
		assert.Equal(t, 1, r.Snapshot().IdleReady)
		h.show(2, slot("b", "2"), slot("c", "2"))
		r.look()
		assert.Equal(t, 3, r.Snapshot().IdleReady)
	})
}

// nosy is a context whose methods call the pool.
type nosy struct {
	context.Context
	pool *claim.Pool
}

func (n nosy) Err() error            { n.pool.Status(); return n.Context.Err() }
func (n nosy) Done() <-chan struct{} { n.pool.Status(); return n.Context.Done() }
func (n nosy) Value(key any) any     { n.pool.Status(); return n.Context.Value(key) }

// The methods of a context may call the pool, because the pool calls them without its lock.
func TestContextsThatLookAtThePool(t *testing.T) {
	for name, end := range map[string]func(*claim.Pool, context.CancelFunc){
		"claimed":   func(p *claim.Pool, _ context.CancelFunc) { p.NotifyIdle() },
		"cancelled": func(_ *claim.Pool, cancel context.CancelFunc) { cancel() },
		"shutdown":  func(p *claim.Pool, _ context.CancelFunc) { p.Shutdown() },
	} {
		t.Run(name, func(t *testing.T) {
			s := store(&sim.StaleStore{})
			p := &claim.Pool{Source: s, NotifyDelay: -1}
			go func() { _ = p.Run(t.Context()) }()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, deadline := range []time.Time{{}, time.Now().Add(time.Hour)} {
				result := make(chan claim.Result, 1)
				require.True(t, p.Enqueue(&claim.Request{Ctx: nosy{ctx, p}, Deadline: deadline, Result: result}))
				if name == "claimed" {
					s.Add(fmt.Sprint("s", deadline.Unix()))
				}
				end(p, cancel)
				select {
				case r := <-result:
					require.Equal(t, name == "claimed", r.Err == nil, "%v", r.Err)
				case <-time.After(time.Minute):
					t.Fatal("no answer")
				}
				if name != "claimed" {
					break
				}
			}
		})
	}
}
