package shard

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

// TestCostOfWhatNoRoomHelps counts the commits that a capsule causes which fits everywhere and is placed nowhere, while
// others come and go.
func TestCostOfWhatNoRoomHelps(t *testing.T) {
	scale.Long(t)
	for _, mode := range []Mode{Strict, Shared}[scale.WithRace(1, 0):] {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				ctx, cancel := context.WithCancel(t.Context())
				s.run(ctx, mode, 40)
				time.Sleep(time.Minute)
				lonely := &orbit.Spec{Module: "lonely", Envelope: orbit.Envelope{Reservation: orbit.Resources{1}}, Near: orbit.Near{Group: "unknown", Level: "rack"}}
				s.do(orbit.Submit{IDs: ids("lonely", 1), Spec: lonely})
				time.Sleep(time.Hour)
				before := s.state().Revision()
				time.Sleep(time.Hour)
				quiet := s.state().Revision() - before
				before = s.state().Revision()
				n := scale.Of(900, 3600)
				for i := range n {
					id := orbit.CapsuleID(fmt.Sprint("small", i))
					s.do(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: cpu(1)})
					time.Sleep(time.Second)
					_, err := s.ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: id, Final: true}}})
					require.NoError(t, err)
				}
				busy := s.state().Revision() - before - orbit.Revision(4*n)
				t.Logf("%v: commits an hour for one that is placed nowhere: %d, and %d when %d others come and go", mode, quiet, busy, n)
				assert.True(t, s.state().Capsule("lonely000").Pending())
				assert.Less(t, busy, orbit.Revision(n/2+300), "18 for each that goes, if nothing held it back")
				cancel()
				synctest.Wait()
			})
		})
	}
}

// TestClearedInVainPassesOn: a unit that was cleared in vain too often is skipped for others, with longer and longer
// delays, and its record is dropped when it waits no more.
func TestClearedInVainPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.live("a")
		d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Retry: orbit.Backoff{Initial: time.Hour, Max: time.Hour, Jitter: -1}}
		s.do(node("n", 1), orbit.Submit{IDs: []orbit.CapsuleID{"vain"}, Spec: cpu(1)}, orbit.Submit{IDs: []orbit.CapsuleID{"full"}, Owner: "a", Spec: cpu(1)})
		s.do(orbit.Place{Capsule: "full", Node: "n"})
		s.settle(d)
		free := func() {
			s.do(orbit.Release{Capsule: "full", Stopped: true})
			s.settle(d)
			s.do(orbit.Place{Capsule: "full", Node: "n"})
		}
		for range freely {
			s.giveBack("a", "vain")
			s.settle(d)
			require.Empty(t, s.owner("vain"))
			free()
			require.Equal(t, "a", s.owner("vain"), "cleared")
		}
		s.do(orbit.Submit{IDs: []orbit.CapsuleID{"other"}, Spec: cpu(1)})
		s.settle(d)
		s.giveBack("a", "vain", "other")
		s.settle(d)
		free()
		require.Empty(t, s.owner("vain"), "not so soon")
		require.Equal(t, "a", s.owner("other"), "has its turn")
		require.Len(t, d.cleared, 2)
		s.do(orbit.Release{Capsule: "vain", Final: true}, orbit.Release{Capsule: "other", Final: true})
		s.settle(d)
		require.Empty(t, d.cleared)
	})
}

// TestClearedInVainWaits: the first clearings have no delay; later ones wait as long as a retry would, from the last
// clearing on. After a long time the count starts over. Failures of different schedulers are counted apart.
func TestClearedInVainWaits(t *testing.T) {
	c, pace, u := cleared{}, newRetries(orbit.Backoff{Initial: time.Minute, Max: 4 * time.Minute, Factor: 2, Jitter: -1}), unit{id: "vain"}
	now := time.Unix(1_000_000, 0)
	for range 2 {
		for range freely {
			require.True(t, c.again(u, "a", &pace, now))
		}
		require.True(t, c.again(u, "b", &pace, now), "another one's")
		for _, wait := range []time.Duration{1, 2, 4, 4} {
			now = now.Add(wait*time.Minute - 1)
			require.False(t, c.again(u, "a", &pace, now), "%d min", wait)
			now = now.Add(1)
			require.True(t, c.again(u, "a", &pace, now), "%d min", wait)
		}
		now = now.Add(8*time.Minute + 1)
	}
	ledger := &orbit.MemoryLedger{}
	submit(t, ledger, "", 1, "vain")
	require.True(t, c.again(unit{id: "gone"}, "a", &pace, now))
	c.sweep(snapshot(t, ledger))
	require.Len(t, c, 1)
	require.NotNil(t, c[u]["b"], "what waits is kept")
}
