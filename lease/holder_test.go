package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// Another run of a holder gets the lease when the present run has been silent for half of TTL, or has yielded, and not
// before. Another holder gets it when the term is over.
func TestRunsOfOneHolder(t *testing.T) {
	refusedAs := func(t *testing.T, err, kind error, until time.Time) {
		t.Helper()
		require.ErrorIs(t, err, kind)
		var wrong *lease.Error
		require.ErrorAs(t, err, &wrong)
		require.True(t, until.Equal(wrong.Until), "%v", wrong)
		require.Equal(t, "machine#1", wrong.Held.Holder)
	}
	synctest.Test(t, func(t *testing.T) {
		k := &lease.Keeper{Ledger: &orbit.MemoryLedger{}}
		term := acquire(t, k, "n", "machine#1")
		for range 5 {
			time.Sleep(20 * time.Second)
			require.NoError(t, k.Refresh(term))
			_, err := k.Acquire(t.Context(), "n", "machine#2")
			refusedAs(t, err, lease.ErrRunning, time.Now().Add(30*time.Second))
			_, err = k.Acquire(t.Context(), "n", "other#1")
			refusedAs(t, err, lease.ErrHeld, time.Now().Add(60*time.Second))
		}
		time.Sleep(30*time.Second - 1)
		_, err := k.Acquire(t.Context(), "n", "machine#2")
		refusedAs(t, err, lease.ErrRunning, time.Now().Add(1))
		time.Sleep(1)
		next := acquire(t, k, "n", "machine#2")
		require.ErrorIs(t, k.Refresh(term), lease.ErrExpired, "the first run has lost the lease")
		require.ErrorIs(t, k.Yield(term), lease.ErrExpired)

		require.NoError(t, k.Yield(next))
		require.NoError(t, k.Refresh(next), "the term lives on, and the run with it")
		_, err = k.Acquire(t.Context(), "n", "machine#3")
		require.ErrorIs(t, err, lease.ErrRunning)
		require.NoError(t, k.Yield(next))
		acquire(t, k, "n", "machine#3")
		acquire(t, k, "n", "machine#3") // a run may begin a new term at any time
	})
}

// Where processes share refreshes, a process that hears of none asks for how long the term lives.
func TestRunsOfOneHolderAtSeveralProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, shared := &orbit.MemoryLedger{}, newHome()
		one, two := &lease.Keeper{Ledger: ledger, Refreshes: shared}, &lease.Keeper{Ledger: ledger, Refreshes: shared}
		term := acquire(t, one, "n", "machine#1")
		for range 10 {
			time.Sleep(20 * time.Second)
			require.NoError(t, one.Refresh(term))
			_, err := one.Step(t.Context())
			require.NoError(t, err)
			_, err = two.Acquire(t.Context(), "n", "machine#2")
			require.ErrorIs(t, err, lease.ErrRunning)
		}
		shared.down = true
		_, err := two.Acquire(t.Context(), "n", "machine#2")
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		shared.down = false
		time.Sleep(30 * time.Second)
		acquire(t, two, "n", "machine#2")
	})
}

// What has begun on a machine may run until the machine has had the time to stop it. Until then another machine does not
// get the node, although the term is over, whichever process it asks. A node on which nothing has begun is free at once.
func TestAnotherMachineWaitsUntilEverythingHasStopped(t *testing.T) {
	for _, begun := range []bool{true, false} {
		for _, restarted := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, 0)
				s.put(func(n *orbit.Node) { n.Confirms = true })
				s.commit(orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: &orbit.Spec{}}, orbit.Place{Capsule: "c", Node: "n"})
				if begun {
					s.commit(orbit.Confirm{Capsule: "c", Since: snapshot(t, s.ledger).Capsule("c").PlacedAt, Begun: true})
				}
				last := time.Now()
				require.NoError(t, s.m.Leases.Refresh(s.term))
				join := func(m *lease.Members, holder string) error {
					_, err := m.Join(t.Context(), orbit.Node{ID: "n", Confirms: true}, holder)
					return err
				}
				time.Sleep(time.Minute - 1)
				require.ErrorIs(t, join(s.m, "other"), lease.ErrHeld, "the term lives")
				time.Sleep(1)
				if begun {
					require.ErrorIs(t, join(s.m, "other"), lease.ErrHeld, "the term is over, which is not committed yet")
				}
				s.step()
				asked := s.m
				if restarted {
					asked = s.another()
				}
				if begun {
					for time.Now().Before(last.Add(s.m.Fence())) {
						err := join(asked, "other")
						require.ErrorIs(t, err, lease.ErrHeld)
						require.ErrorContains(t, err, "may run until then")
						time.Sleep(time.Second)
					}
				}
				require.NoError(t, join(asked, "other"))
				require.Equal(t, 1, s.node().Capsules, "it keeps the capsules, of which its agent says that they have stopped")
			})
		}
	}
}

// counting is what a process sees of refreshes that it can only count: it promises little, and knows for how long it has seen no refresh.
type counting struct {
	*home
	seen map[string]sight
}

type sight struct{ until, since time.Time }

func (c *counting) Left(ctx context.Context, tokens []string) ([]time.Duration, error) {
	out, err := c.home.Left(ctx, tokens)
	for i, token := range tokens {
		out[i] = min(out[i], c.ttl[token]/4)
		if until := c.until[token]; until != c.seen[token].until {
			c.seen[token] = sight{until, time.Now()}
		}
	}
	return out, err
}

func (c *counting) Silent(token string) time.Duration { return time.Since(c.seen[token].since) }

// A run that is refreshed keeps the lease, also where the processes promise each other little; another run has it half of TTL after it
// has seen the last refresh. A process that has just started knows of no silence.
func TestRunsOfOneHolderWhereRefreshesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, shared := &orbit.MemoryLedger{}, newHome()
		keeper := func() *lease.Keeper {
			return &lease.Keeper{Ledger: ledger, Refreshes: &counting{shared, map[string]sight{}}}
		}
		one, two := keeper(), keeper()
		term := acquire(t, one, "n", "machine#1")
		for range 10 {
			time.Sleep(20 * time.Second)
			require.NoError(t, one.Refresh(term))
			for _, k := range []*lease.Keeper{one, two} {
				_, err := k.Step(t.Context())
				require.NoError(t, err)
			}
			_, err := two.Acquire(t.Context(), "n", "machine#2")
			require.ErrorIs(t, err, lease.ErrRunning)
		}
		time.Sleep(29 * time.Second)
		_, err := two.Acquire(t.Context(), "n", "machine#2")
		require.ErrorIs(t, err, lease.ErrRunning)
		time.Sleep(time.Second)
		_, err = keeper().Acquire(t.Context(), "n", "machine#3")
		require.ErrorIs(t, err, lease.ErrRunning, "it has seen one count only")
		acquire(t, two, "n", "machine#2")
	})
}
