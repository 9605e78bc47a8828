package lease_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// found is within which time of its death a host's term has ended, as the package documentation states it.
func found(ttl time.Duration) time.Duration { return heartbeat + ttl + ttl/4 + 5*time.Second }

// Three processes keep 50 hosts for an hour. Each is paused again and again, and its hosts go to another one then. No term of a host
// that lives ends, and hosts that die are found within the stated bound.
func TestThreeProcessesForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hosts, deaths = 50, 5
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		c := newCompany(3, time.Minute, 5*time.Minute)
		c.home.takes = time.Second
		for i, p := range c.processes {
			all.Go(func() { c.keep(ctx, i) })
			all.Go(func() {
				for pause(ctx, time.Duration(i)*37*time.Second); ctx.Err() == nil; pause(ctx, 86*time.Second) {
					p.pause(25 * time.Second)
				}
			})
		}
		for h := range hosts {
			dies := 2 * time.Hour
			if h < deaths {
				dies = 10*time.Minute + time.Duration(h)*431*time.Second
			}
			all.Go(func() { c.live(ctx, fmt.Sprint("host-", h), h, dies) })
		}
		time.Sleep(time.Hour)
		c.mu.Lock()
		defer c.mu.Unlock()
		require.Empty(t, c.faults)
		require.Len(t, c.found, deaths, "%v", c.found)
		for name, took := range c.found {
			require.Positive(t, took, "the term of %s has ended, and its host lives", name)
			require.LessOrEqual(t, took, found(c.ttl), name)
		}
	})
}

// weather is what happens to some processes that keep leases together.
type weather struct {
	processes, hosts int
	takes            time.Duration // of a call of the home
	calm             bool          // one process is always at work, and the home does not fail
	ahead            []time.Duration
	dies             []time.Duration
	trouble          []trouble
}

type trouble struct {
	at, lasts time.Duration
	process   int
	what      string
}

func drawWeather(t *rapid.T) weather {
	seconds := func(most int, what string) time.Duration {
		return time.Duration(rapid.IntRange(0, most*10).Draw(t, what)) * 100 * time.Millisecond
	}
	w := weather{
		processes: rapid.IntRange(2, 4).Draw(t, "processes"), hosts: rapid.IntRange(1, 6).Draw(t, "hosts"),
		takes: seconds(2, "takes"), calm: rapid.Bool().Draw(t, "calm"),
	}
	for range w.processes {
		w.ahead = append(w.ahead, seconds(60, "ahead")-30*time.Second)
	}
	for range w.hosts {
		w.dies = append(w.dies, seconds(1000, "dies"))
	}
	for range rapid.IntRange(0, 12).Draw(t, "troubles") {
		w.trouble = append(w.trouble, trouble{
			seconds(900, "at"), seconds(150, "lasts"), rapid.IntRange(0, w.processes-1).Draw(t, "process"),
			rapid.SampledFrom([]string{"pause", "pause", "pause", "restart", "home"}).Draw(t, "what"),
		})
	}
	return w
}

// Whatever happens to the processes, and to what they share, no term ends within half a TTL of a refresh that was accepted, and no
// node is lost before its fence. While one process is at work and what they share answers, no term of a host that lives ends, and
// a host that has died is found within the stated bound.
func TestProcessesEndNoHealthyTerm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWeather(t)
		rapid.SyncTest(t, func(t *rapid.T) { w.happen(t) })
	})
}

func (w weather) happen(t *rapid.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	c := newCompany(w.processes, time.Minute, 90*time.Second)
	c.home.takes, c.home.rng = w.takes, rand.New(rand.NewPCG(uint64(w.takes), uint64(len(w.trouble))))
	for i := range c.processes {
		c.restart(i, w.ahead[i])
		all.Go(func() { c.keep(ctx, i) })
	}
	for h := range w.hosts {
		dies := w.dies[h]
		if h%2 == 0 {
			dies = time.Hour
		}
		all.Go(func() { c.live(ctx, fmt.Sprint("host-", h), h, dies) })
	}
	for _, x := range w.trouble {
		all.Go(func() { w.strike(ctx, c, x) })
	}
	pause(ctx, 20*time.Minute)
	cancel()
	all.Wait()
	require.Empty(t, c.faults)
	for h := range w.hosts {
		name := fmt.Sprint("host-", h)
		died, dead := c.died[name]
		switch took := c.found[name]; {
		case !w.calm || c.accepted[name].IsZero(): // it has not joined
		case took < 0:
			t.Fatalf("the term of %s has ended, and its host lives", name)
		case dead && took == 0 && time.Since(died) > found(c.ttl), took > found(c.ttl):
			t.Fatalf("%s died %v ago and was found after %v, of at most %v", name, time.Since(died), took, found(c.ttl))
		}
	}
}

// strike causes one trouble.
func (w weather) strike(ctx context.Context, c *company, x trouble) {
	pause(ctx, x.at)
	switch {
	case ctx.Err() != nil || w.calm && x.process == 0:
	case x.what == "restart":
		c.mu.Lock()
		defer c.mu.Unlock()
		c.restart(x.process, w.ahead[x.process])
	case x.what == "home" && !w.calm:
		c.home.mu.Lock()
		c.home.fails = float64(x.process%3) / 2
		c.home.mu.Unlock()
		pause(ctx, x.lasts)
		c.home.mu.Lock()
		c.home.fails = 0
		c.home.mu.Unlock()
	default:
		if p := c.processes[x.process]; !p.paused() {
			p.pause(x.lasts)
		}
	}
}

// A term that has ended for one process is not brought to life by a refresh that another one receives.
func TestARefreshDoesNotBringBackWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, shared := &orbit.MemoryLedger{}, newHome()
		one := &lease.Keeper{Ledger: ledger, Refreshes: shared}
		two := &lease.Keeper{Ledger: ledger, Refreshes: shared}
		term := acquire(t, one, "a", "x")
		time.Sleep(31 * time.Second)
		require.ErrorIs(t, one.Refresh(term), lease.ErrUnheard, "it is known to live for 29 s")
		require.ErrorContains(t, one.Refresh(term), "other processes do not know of a refresh yet")
		require.ErrorIs(t, two.Refresh(term), lease.ErrUnheard, "it does not know the term")
		_, err := two.Step(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, two.Refresh(term), lease.ErrUnheard, "nobody has passed on a refresh")
		_, err = two.Step(t.Context())
		require.NoError(t, err)
		require.NoError(t, two.Refresh(term))

		time.Sleep(31 * time.Second)
		shared.down = true
		require.ErrorIs(t, two.Refresh(term), lease.ErrUnheard)
		time.Sleep(40 * time.Second)
		_, err = two.Step(t.Context())
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		_, live := two.Live("a")
		require.True(t, live, "nothing ends while nothing is known")
		require.ErrorIs(t, two.Refresh(term), lease.ErrUnheard)

		shared.down = false
		round, err := two.Step(t.Context()) // passes on the refresh that it has received, too late
		require.NoError(t, err)
		require.Equal(t, []lease.Term{term}, round.Ended)
		require.ErrorIs(t, two.Refresh(term), lease.ErrExpired)
		_, err = one.Step(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, one.Refresh(term), lease.ErrExpired)
	})
}

// A process that is started knows at once which terms live, so that restarts do not prolong them.
func TestARestartProlongsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, shared := &orbit.MemoryLedger{}, newHome()
		acquire(t, &lease.Keeper{Ledger: ledger, Refreshes: shared}, "a", "x")
		for range 5 {
			time.Sleep(10 * time.Second)
			round, err := (&lease.Keeper{Ledger: ledger, Refreshes: shared}).Step(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, round.Live)
		}
		time.Sleep(10 * time.Second)
		round, err := (&lease.Keeper{Ledger: ledger, Refreshes: shared}).Step(t.Context())
		require.NoError(t, err)
		require.Len(t, round.Ended, 1)
	})
}

// A process whose refreshes are in memory does not touch the terms of those that share theirs. One that shares keeps the terms that
// began without.
func TestMixedProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, shared := &orbit.MemoryLedger{}, newHome()
		alone, sharing := &lease.Keeper{Ledger: ledger}, &lease.Keeper{Ledger: ledger, Refreshes: shared}
		old, term := acquire(t, alone, "old", "x"), acquire(t, sharing, "new", "x")
		time.Sleep(59 * time.Second)
		_, err := sharing.Step(t.Context())
		require.NoError(t, err)
		require.NoError(t, sharing.Refresh(old))
		time.Sleep(59 * time.Second)
		round, err := alone.Step(t.Context())
		require.ErrorIs(t, err, lease.ErrCorrupt)
		require.ErrorContains(t, err, "set Keeper.Refreshes")
		require.Equal(t, []lease.Term{old}, round.Ended, "that is why all processes share or none")
		_, err = alone.Acquire(t.Context(), "new", "y")
		require.ErrorIs(t, err, lease.ErrCorrupt)
		in, live := alone.In(snapshot(t, ledger), "new")
		require.True(t, live)
		require.Equal(t, term, in)
		round, err = sharing.Step(t.Context())
		require.NoError(t, err)
		require.Equal(t, []lease.Term{term}, round.Ended)
	})
}

// A refresh that a process was too slow to pass on is forgotten: its holder may have died meanwhile, and was told nothing.
func TestALateRefreshIsNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newHome()
		k := &lease.Keeper{Ledger: &orbit.MemoryLedger{}, Refreshes: shared}
		term := acquire(t, k, "a", "x")
		for _, c := range []struct {
			slow time.Duration
			ends time.Duration
		}{{14 * time.Second, 74 * time.Second}, {16 * time.Second, 60 * time.Second}} {
			began := time.Now()
			_ = k.Refresh(term)
			time.Sleep(c.slow)
			_, err := k.Step(t.Context())
			require.NoError(t, err)
			lives, err := shared.Left(t.Context(), []string{"token-0"})
			require.NoError(t, err)
			require.Equal(t, c.ends, time.Since(began)+lives[0])
			shared.until["token-0"] = time.Now().Add(time.Minute)
		}
	})
}

// Nothing is taken off a node before its fence, also if its last accepted refresh was passed on late, the process that ends the term is
// behind, and the one that empties the node is ahead.
func TestFenceOfSharedTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, shared := &orbit.MemoryLedger{}, newHome()
		members := func(ahead time.Duration) *lease.Members {
			return &lease.Members{Gone: 90 * time.Second, Leases: &lease.Keeper{
				Ledger: ledger, Refreshes: shared, Now: func() time.Time { return time.Now().Add(ahead) },
			}}
		}
		behind, ahead := members(-30*time.Second), members(30*time.Second)
		term, err := behind.Join(t.Context(), orbit.Node{ID: "n"}, "x")
		require.NoError(t, err)
		_, err = ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: &orbit.Spec{}}, orbit.Place{Capsule: "c", Node: "n"},
		}})
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		accepted := time.Now()
		require.NoError(t, behind.Leases.Refresh(term)) // and the process is busy until that is too old to be passed on
		time.Sleep(30 * time.Second)
		for snapshot(t, ledger).Capsule("c").Node != "" {
			for _, m := range []*lease.Members{behind, ahead} {
				_, err := m.Step(t.Context())
				require.NoError(t, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.GreaterOrEqual(t, time.Since(accepted), ahead.Fence())
		require.Less(t, time.Since(accepted), ahead.Fence()+time.Second, "a longer fence would be none")
	})
}

// A holder that changes to another process is accepted there within a moment, because Run does not wait to pass its refresh on.
func TestRunPassesARefreshOnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		ledger, shared := &orbit.MemoryLedger{}, newHome()
		two := &lease.Members{Leases: &lease.Keeper{Ledger: ledger, Refreshes: shared}}
		term := acquire(t, &lease.Keeper{Ledger: ledger, Refreshes: shared}, "a", "x")
		all.Go(func() { _ = two.Run(ctx) })
		time.Sleep(40*time.Second + 300*time.Millisecond)
		require.ErrorIs(t, two.Leases.Refresh(term), lease.ErrUnheard)
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, two.Leases.Refresh(term))
	})
}
