package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// home is a dumb Refreshes: a table of when each term ends, which nothing keeps after its end.
type home struct {
	mu    sync.Mutex
	until map[orbit.MarkAt]time.Time // zero: ended
	err   error
}

func (h *home) Keep(_ context.Context, terms []orbit.MarkAt, ttl time.Duration) ([]time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]time.Duration, len(terms))
	for i, t := range terms {
		if end, known := h.until[t]; !known || !end.IsZero() {
			h.until[t] = time.Now().Add(ttl)
			out[i] = ttl
		}
	}
	return out, h.err
}

func (h *home) End(_ context.Context, terms []orbit.MarkAt) ([]time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]time.Duration, len(terms))
	if h.err != nil {
		return nil, h.err
	}
	for i, t := range terms {
		if out[i] = max(0, time.Until(h.until[t])); out[i] == 0 {
			h.until[t] = time.Time{}
		}
	}
	return out, nil
}

func newHome() *home { return &home{until: map[orbit.MarkAt]time.Time{}} }

// process is one that keeps leases. It does nothing while it is paused.
type process struct {
	m      *lease.Members
	paused sync.RWMutex
}

// run steps as Members.Run does, but not during a pause.
func (p *process) run(ctx context.Context, each func(lease.MemberRound)) {
	for ctx.Err() == nil {
		p.paused.RLock()
		round, err := p.m.Step(ctx)
		if err == nil {
			each(round)
		}
		p.paused.RUnlock()
		wait := time.Second
		if until := time.Until(round.Next); err == nil && !round.Next.IsZero() {
			wait = min(wait, max(until, 0))
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// Three processes keep 50 hosts for an hour. Each is paused again and again, and hosts go to another one then. No term
// of a host that lives ends, and hosts that die are found within the bound that the package documentation states.
func TestThreeProcessesForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts, ttl, heartbeat, deaths = 50, time.Minute, 10 * time.Second, 5
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		ledger, shared := &orbit.MemoryLedger{}, newHome()
		var mu sync.Mutex
		dead, found := map[string]time.Time{}, map[string]time.Duration{}
		processes := make([]*process, 3)
		for i := range processes {
			p := &process{m: &lease.Members{Leases: &lease.Keeper{Ledger: ledger, Refreshes: shared}}}
			processes[i] = p
			all.Go(func() {
				p.run(ctx, func(round lease.MemberRound) {
					mu.Lock()
					defer mu.Unlock()
					for _, term := range round.Ended {
						died, isDead := dead[term.Name]
						require.True(t, isDead, "the term of %s has ended, and its host lives", term.Name)
						found[term.Name] = time.Since(died)
					}
				})
			})
			all.Go(func() { // pauses, one process at a time
				send := time.NewTimer(time.Duration(i+1) * 100 * time.Second)
				for {
					select {
					case <-send.C:
					case <-ctx.Done():
						return
					}
					p.paused.Lock()
					time.Sleep(25 * time.Second)
					p.paused.Unlock()
					send.Reset(275 * time.Second)
				}
			})
		}
		for h := range hosts {
			name := fmt.Sprintf("host-%02d", h)
			term, err := processes[h%3].m.Join(ctx, orbit.Node{ID: orbit.NodeID(name)}, name)
			require.NoError(t, err)
			dies := 10*time.Minute + time.Duration(h)*431*time.Second
			all.Go(func() {
				began, to := time.Now(), h%3
				for ctx.Err() == nil {
					if h < deaths && time.Since(began) > dies {
						mu.Lock()
						dead[name] = time.Now()
						mu.Unlock()
						return
					}
					wait := heartbeat
					if p := processes[to]; !p.paused.TryRLock() {
						to, wait = (to+1)%3, time.Second
					} else {
						err := p.m.Leases.Refresh(term)
						p.paused.RUnlock()
						if errors.Is(err, lease.ErrUnheard) {
							wait = 2 * time.Second
						} else {
							require.NoError(t, err)
						}
					}
					select {
					case <-ctx.Done():
					case <-time.After(wait):
					}
				}
			})
		}
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, found, deaths)
		for name, took := range found {
			require.LessOrEqual(t, took, heartbeat+ttl+lease.FindsWithin, name)
		}
	})
}

// A term that one process has ended is not brought to life by a refresh that another one receives.
func TestARefreshDoesNotBringBackWhatWasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, shared := &orbit.MemoryLedger{}, newHome()
		one := &lease.Keeper{Ledger: ledger, Refreshes: shared}
		two := &lease.Keeper{Ledger: ledger, Refreshes: shared}
		term, err := one.Acquire(t.Context(), "a", "x")
		require.NoError(t, err)
		_, err = two.Step(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, two.Refresh(term), lease.ErrUnheard, "nobody else knows of it yet")
		_, err = two.Step(t.Context())
		require.NoError(t, err)
		require.NoError(t, two.Refresh(term))

		time.Sleep(31 * time.Second)
		require.ErrorIs(t, one.Refresh(term), lease.ErrUnheard, "its own confirmation is older than half a TTL")
		shared.err = orbit.ErrUnavailable
		time.Sleep(40 * time.Second)
		_, err = two.Step(t.Context())
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		_, live := two.Live("a")
		require.True(t, live, "nothing ends while nothing is known")
		require.ErrorIs(t, two.Refresh(term), lease.ErrUnheard)

		shared.err = nil
		lives, err := shared.End(t.Context(), []orbit.MarkAt{{Key: one.Key("a"), Revision: term.Epoch}})
		require.NoError(t, err)
		require.Zero(t, lives[0])
		round, err := two.Step(t.Context()) // passes on the refresh that it has received
		require.NoError(t, err)
		require.Len(t, round.Ended, 1)
		require.ErrorIs(t, two.Refresh(term), lease.ErrExpired)
	})
}

// Where more than half of the nodes are lost at once, nothing is taken off them until they return or the loss is accepted.
func TestMassLossEmptiesNothing(t *testing.T) {
	for name, accept := range map[string]bool{"returned": false, "accepted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := &orbit.MemoryLedger{}
				m := &lease.Members{Leases: &lease.Keeper{Ledger: ledger}}
				ids := []orbit.NodeID{"a", "b", "c", "d", "e"}
				var terms []lease.Term
				for _, id := range ids {
					term, err := m.Join(t.Context(), orbit.Node{ID: id}, "host")
					require.NoError(t, err)
					terms = append(terms, term)
					_, err = ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
						orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID("on-" + id)}, Spec: &orbit.Spec{}},
						orbit.Place{Capsule: orbit.CapsuleID("on-" + id), Node: id},
					}})
					require.NoError(t, err)
				}
				var round lease.MemberRound
				var err error
				wait := func(d time.Duration, living ...lease.Term) {
					for range d / (10 * time.Second) {
						for _, term := range living {
							require.NoError(t, m.Leases.Refresh(term))
						}
						time.Sleep(10 * time.Second)
						round, err = m.Step(t.Context())
						require.NoError(t, err)
						if len(round.Released) > 0 {
							return
						}
					}
				}
				wait(10*time.Minute, terms[3:]...)
				require.Equal(t, ids[:3], round.Held)
				again := &lease.Members{Leases: &lease.Keeper{Ledger: ledger}} // another process decides the same
				time.Sleep(0)
				_, err = again.Step(t.Context())
				require.NoError(t, err)
				require.Equal(t, 0, snapshot(t, ledger).PendingCount())
				if accept {
					require.NoError(t, m.AcceptLoss(t.Context()))
					wait(time.Minute, terms[3:]...)
					require.Len(t, round.Released, 1)
					require.Empty(t, round.Held)
					wait(time.Minute, terms[3:]...)
					require.Equal(t, 3, snapshot(t, ledger).PendingCount())
					return
				}
				back, err := m.Join(t.Context(), orbit.Node{ID: "a"}, "host")
				require.NoError(t, err)
				wait(time.Minute, append(terms[3:], back)...)
				wait(time.Minute, append(terms[3:], back)...)
				require.Equal(t, 2, snapshot(t, ledger).PendingCount())
				require.False(t, snapshot(t, ledger).Capsule("on-a").Pending())
			})
		})
	}
}
