package nav_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// still is a ledger as it was when it was looked at last: all who plan before the next look plan at a time.
type still struct {
	*orbit.MemoryLedger
	state *orbit.State
}

func (s *still) Snapshot(context.Context) (*orbit.State, error) { return s.state, nil }

// herd is engines on nodes that are nearly full, in rounds: all plan on what there was at the beginning of the round, and
// propose one after another. Between rounds capsules end, and as many come.
type herd struct {
	*still
	engines []*orbit.Engine
	rng     *rand.Rand
	// Capsules that are placed or pending, and how many there have been.
	alive []orbit.CapsuleID
	next  int

	placed, conflicts, proposed int
	regret, ratings             float64
}

const herdNodes = 1000

func newHerd(t testing.TB, engines int, navigator func(i int) orbit.Navigator, fill float64, seed uint64) *herd {
	h := &herd{still: &still{MemoryLedger: &orbit.MemoryLedger{}}, rng: rand.New(rand.NewPCG(seed, 7))}
	total := int64(0)
	for i := range herdNodes {
		cores := int64(16 + h.rng.IntN(49))
		total += cores
		commit(t, h.MemoryLedger, node(fmt.Sprintf("n%03d", i), cores))
	}
	for i := range engines {
		h.engines = append(h.engines, &orbit.Engine{Name: fmt.Sprint("e", i), Ledger: h.still, Navigator: navigator(i)})
	}
	for used := int64(0); used < int64(float64(total)*fill); {
		used += h.submit(t)
	}
	for range 100 {
		h.round(t)
		s := snapshot(t, h.MemoryLedger)
		if s.PendingCount() == 0 {
			break
		}
	}
	h.placed, h.conflicts, h.proposed = 0, 0, 0
	return h
}

func (h *herd) submit(t testing.TB) int64 {
	s := spec(1+int64(h.rng.IntN(4)), 0)
	id := orbit.CapsuleID(fmt.Sprint("c", h.next))
	commit(t, h.MemoryLedger, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s, Owner: fmt.Sprint("e", h.next%len(h.engines))})
	h.next++
	h.alive = append(h.alive, id)
	return s.Envelope.Reservation[orbit.CPU]
}

func (h *herd) round(t testing.TB) {
	h.state = snapshot(t, h.MemoryLedger)
	first := h.rng.IntN(len(h.engines))
	for i := range h.engines {
		r := h.engines[(first+i)%len(h.engines)].Pass(t.Context())
		require.Empty(t, r.Errors)
		h.placed, h.conflicts, h.proposed = h.placed+r.Committed, h.conflicts+r.Conflicts, h.proposed+r.Proposed
	}
}

func (h *herd) churn(t testing.TB, n int) {
	for range n {
		i := h.rng.IntN(len(h.alive))
		commit(t, h.MemoryLedger, orbit.Release{Capsule: h.alive[i], Final: true})
		h.alive[i] = h.alive[len(h.alive)-1]
		h.alive = h.alive[:len(h.alive)-1]
	}
	for range n {
		h.submit(t)
	}
}

func TestHerdProto(t *testing.T) {
	for _, name := range []string{"services", "bestfit seeds"} {
		for _, each := range []int{1, 20} {
			h := newHerd(t, 8, func(i int) orbit.Navigator {
				seed := uint64(0)
				if len(name) > 9 || name == "batch seeds" {
					seed = uint64(i + 1)
				}
				switch name[:5] {
				case "servi":
					return &nav.Services{Placement: &place.Indexed{Seed: seed}}
				case "bestf":
					return &nav.Services{Placement: &place.Indexed{Seed: seed, Score: score.BestFit{}}}
				}
				return &nav.Batch{Placement: &place.Indexed{Seed: seed}}
			}, 0.99, 1)
			for range 200 {
				h.churn(t, 8*each)
				h.round(t)
			}
			s := snapshot(t, h.MemoryLedger)
			t.Logf("%-15s each %2d: %d placed, %.3f conflicts per placement, %d pending", name, each, h.placed, float64(h.conflicts)/float64(h.placed), s.PendingCount())
		}
	}
}
