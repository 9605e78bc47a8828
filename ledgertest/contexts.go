package ledgertest

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// This file checks contexts that end, and callers that call the ledger from a callback.

// checkEnded calls the ledger with a context that has ended. Nothing may be sent, and the error must not be a
// rejection.
func checkEnded(t *trial) {
	t.commits(node("n", 1), submit(cpu(1), "a"))
	before := t.now()
	ended, cancel := context.WithCancel(t.ctx)
	cancel()
	p := planned(before.Revision(), place("a", "n"))
	_, err := t.ledger.Propose(ended, p)
	t.noVerdict(err)
	if b, ok := t.ledger.(orbit.Batcher); ok {
		out := b.ProposeBatch(ended, []orbit.Proposal{p, p})
		if len(out) != 2 {
			t.Failf("a batch of 2 under a context that has ended has %d outcomes", len(out))
		}
		t.noVerdict(out[0].Err)
		t.noVerdict(out[1].Err)
	}
	t.unchanged(before, "a proposal under a context that had ended")
	_, err = t.ledger.Wait(ended, before.Revision())
	if !errors.Is(err, context.Canceled) {
		t.Failf("wait under a context that had ended: error %w; it must be %q", err, context.Canceled)
	}
	s, err := t.ledger.Snapshot(ended)
	t.answers(err, "snapshot", err == nil && s.Revision() < before.Revision())
	list, err := t.ledger.Changes(ended, before.Revision())
	t.answers(err, "changes", err == nil && len(list) > 0)
	t.admits(p)
}

// noVerdict requires ErrUnavailable, and no rejection.
func (t *trial) noVerdict(err error) {
	var r *orbit.Rejection
	switch {
	case err == nil:
		t.Failf("a proposal under a context that had ended was committed")
	case errors.As(err, &r):
		t.Failf("a proposal under a context that had ended was judged: %w", err)
	case !errors.Is(err, orbit.ErrUnavailable):
		t.Failf("a proposal under a context that had ended fails with %w; it must be %q", err, orbit.ErrUnavailable)
	}
}

// answers requires that a read under a context that has ended returns the right answer, or an error that says so.
func (t *trial) answers(err error, what string, wrong bool) {
	if wrong {
		t.Failf("%s under a context that had ended has a wrong answer", what)
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, orbit.ErrUnavailable) {
		t.Failf("%s under a context that had ended: error %w; it must be %q or %q", what, err, context.Canceled, orbit.ErrUnavailable)
	}
}

// checkDeadlines ends contexts while proposals are under way. Each proposal has one effect or none, and its outcome is
// known when it is sent again.
func checkDeadlines(t *trial) {
	n := min(t.scaled(150), t.limits.History/3)
	t.commits(node("n", int64(n)))
	list := ids[orbit.CapsuleID]("c", n)
	t.submitted(cpu(1), list...)
	took := t.duration()
	counts := map[string]int{}
	for i, id := range list {
		p := planned(t.view(), place(id, "n"))
		ctx, cancel := context.WithTimeout(t.ctx, took*time.Duration(i%20)/10)
		rev, err := t.ledger.Propose(ctx, p)
		cancel()
		switch {
		case err == nil:
			counts["committed"]++
		case errors.Is(err, orbit.ErrUnavailable):
			counts["unavailable"]++
			if c := t.capsule(id); c.Placed() {
				t.Failf("a proposal failed with %w: nothing was sent; and it was committed at %d", err, c.PlacedAt)
			}
		case errors.Is(err, orbit.ErrUnknown):
			counts["unknown"]++
		default:
			t.Failf("a proposal whose context ended on the way, and that no rival stood in the way of, fails with %w; it must be %q or %q", err, orbit.ErrUnknown, orbit.ErrUnavailable)
		}
		settled := t.admits(p)
		if err == nil && settled != rev {
			t.Failf("a proposal was committed at %d; sent again, at %d", rev, settled)
		}
	}
	if got := t.member("n").Capsules; got != n {
		t.Failf("%d capsules are on the node, of %d", got, n)
	}
	t.Notef("deadlines on the way: %v", counts)
	t.follows(t.base, t.ledger)
}

// duration returns about how long a commit takes.
func (t *trial) duration() time.Duration {
	begin := time.Now()
	for i := range 5 {
		_, err := t.ledger.Propose(t.ctx, planned(0, mark("time", strconv.Itoa(i))))
		t.Must(err, "a mark without bets")
	}
	return time.Since(begin) / 5
}

// checkCallbacks calls the ledger from iterators, after a wake-up, and from the methods of a context. One iterator
// panics.
func checkCallbacks(t *trial) {
	t.commits(node("n", 9), submit(cpu(1), "a", "b", "c"), hold("h", "n", 1), gang("g", 0, "x"), mark("m", "v"))
	s := t.now()
	for c := range s.Capsules() {
		t.commits(place(c.ID, "n"))
	}
	for range s.Nodes() {
		for range s.Holds() {
			for range s.Gangs() {
				for range s.Marks("") {
					t.commits(mark("inner", "v"))
				}
			}
		}
	}
	t.panics(func() {
		for range t.now().Nodes() {
			panic("in an iterator")
		}
	})
	calls := &calling{Context: t.ctx, ledger: t.ledger, turns: make(chan struct{}, 1)}
	_, err := t.ledger.Propose(calls, planned(0, mark("called", "v")))
	t.Must(err, "a proposal whose context calls the ledger")
	_, err = t.ledger.Snapshot(calls)
	t.Must(err, "a snapshot whose context calls the ledger")
	at := t.view()
	woken := make(chan error, 1)
	go func() {
		woken <- guard.Run(func() error {
			rev, err := t.ledger.Wait(calls, at)
			if err == nil {
				_, err = t.ledger.Propose(t.ctx, planned(rev, mark("woken", "v")))
			}
			return err
		})
	}()
	t.commits(mark("wake", "v"))
	t.Must(<-woken, "a proposal from a goroutine that was woken")
	t.Must(t.now().Verify(), "the state at the end")
}

// panics calls a function that must panic.
func (t *trial) panics(f func()) {
	defer func() {
		if recover() == nil {
			t.Failf("a panic in a callback was swallowed")
		}
	}()
	f()
}

// calling is a context whose methods call the ledger, from one goroutine at a time.
type calling struct {
	context.Context
	ledger orbit.Ledger
	turns  chan struct{}
}

func (c *calling) call() {
	select {
	case c.turns <- struct{}{}:
		_, _ = c.ledger.Snapshot(c.Context)
		_, _ = c.ledger.Propose(c.Context, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "from a context", Value: "v"}}})
		<-c.turns
	default: // it is being asked from within
	}
}

// Err calls the ledger first.
func (c *calling) Err() error {
	c.call()
	return c.Context.Err()
}

// Done calls the ledger first.
func (c *calling) Done() <-chan struct{} {
	c.call()
	return c.Context.Done()
}
