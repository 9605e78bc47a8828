package claim_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
)

// A pool on a ledger of its own: slots join, are claimed, and come back.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	slots := &claim.LedgerSource{}
	if err := slots.Join(ctx, "sandbox-1", "sandbox-2"); err != nil {
		log.Fatal(err)
	}
	pool := &claim.Pool{Name: "sandboxes", Source: slots}
	var running sync.WaitGroup
	running.Go(func() { _ = pool.Run(ctx) })

	first, _ := pool.Claim(ctx)
	second, _ := pool.Claim(ctx)
	fmt.Println(first.Name, second.Name)

	hasty, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	_, err := pool.Claim(hasty)
	fmt.Println("third:", errors.Is(err, claim.ErrEnded), errors.Is(err, context.DeadlineExceeded))
	cancel()

	if err := slots.Return(ctx, first); err != nil { // the pool learns of it from the ledger
		log.Fatal(err)
	}
	third, _ := pool.Claim(ctx)
	fmt.Println(third.Name)
	stop()
	running.Wait()
	// Output:
	// sandbox-1 sandbox-2
	// third: true true
	// sandbox-1
}

// A request that does not wait for its answer, with a deadline and with options for the ledger.
func ExamplePool_Enqueue() {
	slots := &claim.LedgerSource{}
	_ = slots.Join(context.Background(), "sandbox-1")
	pool := &claim.Pool{Source: slots}
	go func() { _ = pool.Run(context.Background()) }()
	defer pool.Shutdown()

	answer := make(chan claim.Result, 1) // room for the one answer
	taken := pool.Enqueue(&claim.Request{
		Deadline: time.Now().Add(time.Minute),
		Options:  claim.Capsule{ID: "session-42", Note: "warm"},
		Result:   answer,
	})
	if !taken {
		fmt.Println("too busy: nothing will come")
		return
	}
	r := <-answer
	fmt.Println(r.Slot.Name, r.Slot.Capsule, r.Err)
	// Output: sandbox-1 session-42 <nil>
}

// An autoscaler is told once how many slots are missing.
func ExamplePool_scaleUp() {
	slots := &claim.LedgerSource{}
	pool := &claim.Pool{Source: slots, ScaleUp: func(ctx context.Context, s claim.Shortage) error {
		fmt.Println("wanting:", s.Deficit)
		return slots.Join(ctx, "new-1")
	}}
	go func() { _ = pool.Run(context.Background()) }()
	defer pool.Shutdown()
	slot, _ := pool.Claim(context.Background())
	fmt.Println(slot.Name)
	// Output:
	// wanting: 1
	// new-1
}

// The pending requests are mirrored in a ledger, where an autoscaler in another process sees them.
func ExamplePool_status() {
	slots := &claim.LedgerSource{}
	pool := &claim.Pool{Name: "small", Labels: claim.Labels{Team: "web"}, Source: slots}
	pool.OnStatus = func(ctx context.Context, s claim.Status) error {
		mark := orbit.Mark{Key: "pending/" + s.Labels.Team + "/" + s.Labels.Pool, Value: fmt.Sprint(s.PendingRequests)}
		_, err := slots.Book().Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark}})
		return err
	}
	pool.Enqueue(&claim.Request{Result: make(chan claim.Result, 1)})
	go func() { _ = pool.Run(context.Background()) }()
	defer pool.Shutdown()
	_, _ = slots.Book().Wait(context.Background(), 0)
	state, _ := slots.Book().Snapshot(context.Background())
	value, _ := state.Mark("pending/web/small")
	fmt.Println(value)
	// Output: 1
}

// shelf is another store of slots: it implements the three methods of Source.
type shelf struct {
	mu    sync.Mutex
	taken map[string]bool
}

func (s *shelf) Idle(context.Context) (claim.Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var l claim.Listing
	for _, name := range []string{"left", "right"} {
		if !s.taken[name] {
			l.Slots = append(l.Slots, claim.Slot{Name: name, UID: "1"})
		}
	}
	return l, nil
}

func (s *shelf) Claim(_ context.Context, a claim.Attempt) (claim.Slot, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[a.Slot.Name] {
		return claim.Slot{}, 0, fmt.Errorf("%s is taken: %w", a.Slot.Name, orbit.ErrConflict)
	}
	s.taken[a.Slot.Name] = true
	return a.Slot, 0, nil
}

func (s *shelf) Return(_ context.Context, slot claim.Slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, slot.Name)
	return nil
}

// Another client has taken a slot since the listing: the request gets the next one without an error.
func ExampleSource() {
	s := &shelf{taken: map[string]bool{}}
	pool := &claim.Pool{Source: s}
	go func() { _ = pool.Run(context.Background()) }()
	defer pool.Shutdown()
	for pool.Snapshot().IdleReady < 2 {
		time.Sleep(time.Millisecond)
	}
	s.mu.Lock()
	s.taken["left"] = true
	s.mu.Unlock()
	slot, err := pool.Claim(context.Background())
	fmt.Println(slot.Name, err, pool.Stats().Conflicts)
	// Output: right <nil> 1
}

// With several pools a request goes to the one that serves it soonest.
func ExamplePools() {
	var pools claim.Pools
	for _, name := range []string{"empty", "full"} {
		slots := &claim.LedgerSource{}
		if name == "full" {
			_ = slots.Join(context.Background(), "a", "b")
		}
		pool := &claim.Pool{Name: name, Source: slots}
		go func() { _ = pool.Run(context.Background()) }()
		defer pool.Shutdown()
		pools = append(pools, pool)
	}
	for pools[1].Snapshot().IdleReady < 2 {
		time.Sleep(time.Millisecond)
	}
	answer := make(chan claim.Result, 1)
	p := pools.Enqueue(&claim.Request{Result: answer})
	fmt.Println(p.Name, (<-answer).Slot.Name)
	// Output: full a
}
