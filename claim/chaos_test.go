package claim_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

// trouble is a plan for a test in which every kind of failure may happen. All random values are drawn before anything
// runs.
type trouble struct {
	queue, inflight int
	lag, latency    time.Duration
	versions        bool
	deeds           []deed
	// claims are the fates of the claims, in order, repeated when the list is at its end.
	claims []int
	// end is when to call Shutdown: in the middle, or long after everything else.
	end time.Duration
}

type deed struct {
	at   time.Duration
	what string
	n    int // how many, or how long
}

const (
	fine = iota
	conflicts
	refuses
	unknownBefore
	unknownAfter
)

var errRefused = errors.New("refused")

func drawTrouble(t *rapid.T) trouble {
	pick := func(what string, from ...time.Duration) time.Duration { return rapid.SampledFrom(from).Draw(t, what) }
	x := trouble{
		queue: rapid.SampledFrom([]int{2, 10, 100}).Draw(t, "queue"), inflight: rapid.IntRange(1, 6).Draw(t, "inflight"),
		lag: pick("lag", 0, 50*ms, 300*ms), latency: pick("latency", 0, ms, 40*ms), versions: rapid.Bool().Draw(t, "versions"),
		end:    pick("end", sec, 10*time.Minute),
		claims: rapid.SliceOfN(rapid.SampledFrom([]int{fine, fine, fine, fine, conflicts, conflicts, refuses, unknownBefore, unknownAfter}), 1, 9).Draw(t, "claims"),
	}
	x.claims = append(x.claims, fine)
	for range rapid.IntRange(1, 40).Draw(t, "deeds") {
		what := rapid.SampledFrom([]string{"ask", "ask", "cancel", "deadline", "add", "add", "steal", "notify", "return"}).Draw(t, "what")
		x.deeds = append(x.deeds, deed{time.Duration(rapid.IntRange(0, 150).Draw(t, "at")) * 10 * ms, what, rapid.IntRange(1, 8).Draw(t, "n")})
	}
	slices.SortStableFunc(x.deeds, func(a, b deed) int { return int(a.at - b.at) })
	return x
}

// chaos is a trouble while it runs. One goroutine does all the deeds.
type chaos struct {
	trouble
	t        *rapid.T
	store    *sim.StaleStore
	pool     *claim.Pool
	asked    []*asked
	added    int
	stolen   []claim.Slot
	negative atomic.Bool
}

// asked is a request with its answer.
type asked struct {
	result   chan claim.Result
	taken    bool
	answers  []claim.Result
	returned bool
}

// Whatever fails: every request that was accepted is answered once, and no other; no slot is handed out twice or lost;
// the counters are exact, and zero at the end; reservations end; no request waits while a matching slot is idle.
func TestPoolUnderTrouble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTrouble(t)
		rapid.SyncTest(t, func(t *rapid.T) { x.happen(t) })
	})
}

func (x trouble) happen(t *rapid.T) {
	c := &chaos{trouble: x, t: t}
	c.store = &sim.StaleStore{Lag: x.lag, Latency: x.latency, Versions: x.versions, Inject: c.inject(), Lose: c.lose()}
	c.pool = &claim.Pool{Queue: x.queue, Inflight: x.inflight, NotifyDelay: cmp.Or(x.lag, -1), Source: c.store}
	done := make(chan error, 1)
	go func() { done <- c.pool.Run(context.Background()) }()
	start := time.Now()
	for _, d := range x.deeds {
		if d.at < x.end {
			time.Sleep(d.at - time.Since(start))
			c.do(d)
			synctest.Wait()
			c.check()
		}
	}
	time.Sleep(x.end - time.Since(start))
	synctest.Wait()
	c.check()
	if x.end > 5*time.Minute {
		c.rest()
	}
	c.pool.Shutdown()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * sec) // claims that have to be undone are undone by then
	synctest.Wait()
	c.reckon()
}

// inject makes claims fail before the store judges them; those of thieves do not fail.
func (c *chaos) inject() func(claim.Attempt) error {
	var n atomic.Int64
	return func(a claim.Attempt) error {
		c.negative.Store(c.negative.Load() || c.pool.Snapshot().QueueLen < 0)
		if a.Request == nil {
			return nil
		}
		switch c.claims[int(n.Add(1))%len(c.claims)] {
		case conflicts:
			return errConflict
		case refuses:
			return errRefused
		case unknownBefore:
			return orbit.ErrUnknown
		}
		return nil
	}
}

// lose makes the answers of committed claims fail.
func (c *chaos) lose() func(claim.Attempt) error {
	var n atomic.Int64
	return func(a claim.Attempt) error {
		if a.Request != nil && c.claims[int(n.Add(1))%len(c.claims)] == unknownAfter {
			return orbit.ErrUnknown
		}
		return nil
	}
}

func (c *chaos) do(d deed) {
	switch d.what {
	case "ask", "cancel", "deadline":
		for range d.n {
			c.ask(d)
		}
	case "add":
		for range d.n {
			c.added++
			c.store.Add(fmt.Sprint("s", c.added))
		}
		c.pool.NotifyIdle()
	case "steal": // another client claims a listed slot
		l, _ := c.store.Idle(context.Background())
		for i := range min(d.n, len(l.Slots)) {
			slot, _, err := c.store.Claim(context.Background(), claim.Attempt{ID: orbit.NewProposalID(), Slot: l.Slots[i]})
			if err == nil {
				c.stolen = append(c.stolen, slot)
			}
		}
	case "return":
		c.giveBack(d.n)
		c.pool.NotifyIdle()
	case "notify":
		for range d.n {
			c.pool.NotifyIdle()
		}
	}
}

// giveBack returns up to n slots that callers or thieves hold.
func (c *chaos) giveBack(n int) {
	for ; n > 0 && len(c.stolen) > 0; n-- {
		_ = c.store.Return(context.Background(), c.stolen[0])
		c.stolen = c.stolen[1:]
	}
	for _, a := range c.asked {
		if n > 0 && len(a.answers) > 0 && a.answers[0].Err == nil && !a.returned {
			_ = c.store.Return(context.Background(), a.answers[0].Slot)
			a.returned = true
			n--
		}
	}
}

func (c *chaos) ask(d deed) {
	a := &asked{result: make(chan claim.Result, 2)}
	req := &claim.Request{Result: a.result}
	switch d.what {
	case "cancel":
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Duration(d.n)*7*ms, cancel)
		req.Ctx = ctx
	case "deadline":
		req.Deadline = time.Now().Add(time.Duration(d.n) * 11 * ms)
	}
	room := c.pool.Snapshot().QueueLen < c.queue
	a.taken = c.pool.Enqueue(req)
	if room && !a.taken {
		c.t.Fatal("refused though there was room")
	}
	c.asked = append(c.asked, a)
}

// check compares the counters with the record of the test, while nothing moves.
func (c *chaos) check() {
	open := 0
	for _, a := range c.asked {
		for len(a.result) > 0 {
			a.answers = append(a.answers, <-a.result)
		}
		if a.taken && len(a.answers) == 0 {
			open++
		}
	}
	s := c.pool.Snapshot()
	switch {
	case s.QueueLen != open:
		c.t.Fatalf("QueueLen is %d, %d have no answer", s.QueueLen, open)
	case s.QueueLen > c.queue:
		c.t.Fatalf("%d are held, bound %d", s.QueueLen, c.queue)
	case s.InflightCAS < 0 || s.InflightCAS > c.inflight:
		c.t.Fatalf("%d in flight, bound %d", s.InflightCAS, c.inflight)
	case s.IdleReady > 0 && s.QueueLen > s.InflightCAS && s.InflightCAS < c.inflight:
		c.t.Fatalf("a request waits though a slot is ready: %+v", s)
	case s.ReservedCount < s.InflightCAS:
		c.t.Fatalf("in flight without a reservation: %+v", s)
	case c.negative.Load():
		c.t.Fatal("QueueLen was negative")
	}
}

// rest checks the properties of a pool in which nothing has happened for a long time.
func (c *chaos) rest() {
	l, _ := c.store.Idle(context.Background())
	s := c.pool.Snapshot()
	switch {
	case len(l.Slots) > 0 && s.QueueLen > 0:
		c.t.Fatalf("%d wait though %d slots are idle", s.QueueLen, len(l.Slots))
	case s.ReservedCount > 0 || s.InflightCAS > 0:
		c.t.Fatalf("reservations have not ended: %+v", s)
	}
}

// reckon checks the end: every request is answered, and every slot is held once or idle.
func (c *chaos) reckon() {
	c.check()
	held := len(c.stolen)
	for i, a := range c.asked {
		switch {
		case !a.taken && len(a.answers) > 0:
			c.t.Fatalf("request %d was refused, and answered", i)
		case a.taken && len(a.answers) != 1:
			c.t.Fatalf("request %d has %d answers", i, len(a.answers))
		case a.taken && a.answers[0].Err == nil && !a.returned:
			held++
		}
	}
	if got := c.store.Held(); got != held {
		c.t.Fatalf("%d slots are claimed, %d are known of", got, held)
	}
	if c.store.Doubled() > 0 {
		c.t.Fatal("a slot was handed out twice")
	}
	if s := c.pool.Snapshot(); s.QueueLen != 0 || s.InflightCAS != 0 || s.ReservedCount != 0 {
		c.t.Fatalf("left: %+v", s)
	}
}
