package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// This file checks that Wait returns for every commit, and for no other reason.

// checkWait waits for a revision that exists, for one that does not come, and for one that comes later.
func checkWait(t *trial) {
	first := t.commits(mark("m", "v"))
	for _, l := range t.handles() {
		if rev, err := l.Wait(t.ctx, first-1); err != nil || rev < first {
			t.Failf("wait for a revision after %d returns %d, %v; there is %d", first-1, rev, err, first)
		}
		short, cancel := context.WithTimeout(t.ctx, 20*time.Millisecond)
		rev, err := l.Wait(short, first)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Failf("wait for a revision after %d, the newest, returns %d, %v; it must be the context's error", first, rev, err)
		}
	}
	woken := make(chan error, 16)
	for i := range cap(woken) {
		l := t.handles()[i%len(t.handles())]
		go func() {
			woken <- guard.Run(func() error {
				rev, err := l.Wait(t.ctx, first)
				if err == nil && rev <= first {
					err = fmt.Errorf("it returns %d", rev)
				}
				return err
			})
		}()
	}
	time.Sleep(5 * time.Millisecond) // let most of them wait
	t.mistakes(place("absent", "nowhere"))
	t.commits(mark("m", "w"))
	for range cap(woken) {
		t.Must(<-woken, fmt.Sprintf("wait for a revision after %d, of one of %d", first, cap(woken)))
	}
}

// checkWakeUps lets two goroutines wait for each other in turns, on one handle and on both. If a wake-up between the
// read and the wait were lost, both would wait for ever.
func checkWakeUps(t *trial) {
	rounds := t.scaled(200)
	t.turns("one", rounds, t.ledger, t.ledger)
	t.turns("both", rounds, t.ledger, t.peer)
}

// turns lets one goroutine for each handle increment the mark key in turns.
func (t *trial) turns(key string, rounds int, handles ...orbit.Ledger) {
	pauses := make([]time.Duration, rounds) // random, so that commits come at all moments at which the other goroutine begins to wait
	for i := range pauses {
		pauses[i] = time.Duration(t.rng.IntN(4)*t.rng.IntN(100)) * time.Microsecond
	}
	t.together(len(handles), func(me int) error {
		for i := me; i < rounds; i += len(handles) {
			if err := t.awaits(handles[me], key, i); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
			time.Sleep(pauses[i])
			p := planned(0, mark(key, strconv.Itoa(i+1)))
			if _, err := handles[me].Propose(t.ctx, p); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		return nil
	})
	if value, _ := t.now().Mark(key); value != strconv.Itoa(rounds) {
		t.Failf("the last turn was %q, of %d", value, rounds)
	}
}

// awaits waits until a mark has the value count.
func (t *trial) awaits(l orbit.Ledger, key string, count int) error {
	for {
		s, err := l.Snapshot(t.ctx)
		if err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		if value, _ := s.Mark(key); value == strconv.Itoa(count) || count == 0 {
			return nil
		}
		if _, err = l.Wait(t.ctx, s.Revision()); err != nil {
			return fmt.Errorf("wait for a revision after %d, which was committed: %w", s.Revision(), err)
		}
	}
}

// together runs n goroutines at once, and ends the case with their errors.
func (t *trial) together(n int, f func(i int) error) {
	errs := make([]error, n)
	var wg sync.WaitGroup
	gun := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-gun
			errs[i] = guard.Run(func() error { return f(i) })
		})
	}
	close(gun)
	wg.Wait()
	t.Must(errors.Join(errs...), fmt.Sprintf("%d goroutines", n))
}

// checkWaiters lets readers wait while a writer commits. Each is woken for the last commit too, and reads a complete
// history.
func checkWaiters(t *trial) {
	commits, handles := min(t.scaled(150), t.limits.History/2), t.handles()
	t.together(5, func(i int) error {
		l := handles[i%len(handles)]
		if i == 0 {
			for n := range commits {
				if _, err := l.Propose(t.ctx, planned(0, mark("count", strconv.Itoa(n+1)))); err != nil {
					return err
				}
			}
			return nil
		}
		s := t.base
		for {
			if value, _ := s.Mark("count"); value == strconv.Itoa(commits) {
				return nil
			}
			if _, err := l.Wait(t.ctx, s.Revision()); err != nil {
				return fmt.Errorf("reader %d at revision %d waits for the next commit: %w", i, s.Revision(), err)
			}
			list, err := l.Changes(t.ctx, s.Revision())
			if err == nil && len(list) == 0 {
				err = errors.New("woken for nothing")
			}
			if err == nil {
				err = ordered(list, s.Revision())
			}
			if err == nil {
				s, err = s.Apply(list)
			}
			if err != nil {
				return fmt.Errorf("reader %d: %w", i, err)
			}
		}
	})
}
