package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// Waiting: woken for every commit, and for nothing else.

// checkWait waits for what is there already, for nothing, and for a commit.
func checkWait(t *trial) {
	first := t.commits(mark("m", "v"))
	for _, l := range t.handles() {
		if rev, err := l.Wait(t.ctx, first-1); err != nil || rev < first {
			t.failf("wait for a revision after %d returns %d, %v; there is %d", first-1, rev, err, first)
		}
		short, cancel := context.WithTimeout(t.ctx, 20*time.Millisecond)
		rev, err := l.Wait(short, first)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.failf("wait for a revision after %d, the newest, returns %d, %v; it must be the context's error", first, rev, err)
		}
	}
	woken := make(chan error, 16)
	for i := range cap(woken) {
		l := t.handles()[i%len(t.handles())]
		go func() {
			rev, err := l.Wait(t.ctx, first)
			if err == nil && rev <= first {
				err = fmt.Errorf("it returns %d", rev)
			}
			woken <- err
		}()
	}
	time.Sleep(5 * time.Millisecond) // let most of them wait
	t.mistakes(place("nobody", "nowhere"))
	t.commits(mark("m", "w"))
	for range cap(woken) {
		t.must(<-woken, fmt.Sprintf("wait for a revision after %d, of one of %d", first, cap(woken)))
	}
}

// checkWakeUps lets two goroutines wait for one another in turns. A wake-up that comes between looking and going to
// sleep must not be lost: then both wait for ever.
func checkWakeUps(t *trial) {
	rounds, handles := t.scaled(400), t.handles()
	start := t.view()
	play := func(me int) error {
		l, seen := handles[me%len(handles)], start
		for i := me; i < rounds; i += 2 {
			for {
				s, err := l.Snapshot(t.ctx)
				if err != nil {
					return fmt.Errorf("snapshot: %w", err)
				}
				if value, _ := s.Mark("turn"); value == fmt.Sprint(i) || i == 0 {
					break
				}
				if seen, err = l.Wait(t.ctx, s.Revision()); err != nil {
					return fmt.Errorf("round %d: wait for a revision after %d, which was committed: %w", i, s.Revision(), err)
				}
			}
			if _, err := l.Propose(t.ctx, orbit.Proposal{ID: orbit.NewProposalID(), View: seen, Do: []orbit.Commitment{mark("turn", fmt.Sprint(i+1))}}); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		return nil
	}
	t.together(2, play)
	if value, _ := t.now().Mark("turn"); value != fmt.Sprint(rounds) {
		t.failf("the last turn was %q, of %d", value, rounds)
	}
}

// together runs n goroutines at once and ends the case with the first error, in order of the goroutines.
func (t *trial) together(n int, f func(i int) error) {
	errs := make([]error, n)
	var wg sync.WaitGroup
	gun := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-gun
			errs[i] = f(i)
		})
	}
	close(gun)
	wg.Wait()
	t.must(errors.Join(errs...), fmt.Sprintf("%d goroutines", n))
}

// checkWaiters lets readers wait while a writer commits: each is woken for the last commit too, and reads a history
// without holes.
func checkWaiters(t *trial) {
	commits, handles := t.scaled(150), t.handles()
	t.together(5, func(i int) error {
		l := handles[i%len(handles)]
		if i == 0 {
			for n := range commits {
				if _, err := l.Propose(t.ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{mark("count", fmt.Sprint(n+1))}}); err != nil {
					return err
				}
			}
			return nil
		}
		s := t.base
		for {
			if value, _ := s.Mark("count"); value == fmt.Sprint(commits) {
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
