package logledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// TestRefusedAfterUnknown: the answer to a proposal that was sent again through the same ledger, because the outcome was
// unknown, holds for all its copies: after a refusal none of them is committed.
func TestRefusedAfterUnknown(t *testing.T) {
	again, refused := 0, 0
	for seed := range uint64(10 * chaosSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hasty{refused: map[orbit.ProposalID]bool{}}
				h.run(t, seed)
				again, refused = again+h.again, refused+len(h.refused)
			})
		})
	}
	require.Positive(t, again)
	require.Positive(t, refused)
	t.Logf("%d sent again, %d of these refused", again, refused)
}

// hasty is clients that place and release capsules on one full node, each with little time.
type hasty struct {
	mu sync.Mutex
	// again counts the proposals that were sent more than once; refused are those of them that were refused then.
	again   int
	refused map[orbit.ProposalID]bool
}

func (h *hasty) run(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	store := &logtest.Store{}
	var ledgers []orbit.Ledger
	var handles []*logtest.Handle
	for k := range 3 {
		some := func(most float64) float64 { return most * rng.Float64() * float64(rng.IntN(2)) }
		handle := store.Open(logtest.Faults{
			Latency: time.Duration(rng.IntN(2000)) * time.Microsecond, Jitter: time.Duration(rng.IntN(2000)) * time.Microsecond,
			Lost: some(0.2), Dropped: some(0.2), Refused: some(0.2), Late: some(0.5), Doubled: some(0.2), After: time.Duration(1+rng.IntN(300)) * time.Millisecond, Seed: seed + uint64(k),
		})
		handles = append(handles, handle)
		ledgers = append(ledgers, openFaulty(t, handle, logledger.Options{OnError: func(error) {}, Patience: time.Duration(rng.IntN(100)+10) * time.Millisecond}))
	}
	setUp(t, ledgers[0])
	for _, l := range ledgers {
		if seed%3 == 0 { // some groups are too large, and no proposal is
			l.(*logledger.Ledger).LimitEntries(100)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var troubled, clients sync.WaitGroup
	troubled.Go(func() { trouble(ctx, rng, handles) })
	for n := range 12 {
		clients.Go(func() {
			h.client(t, ledgers[n%3], rand.New(rand.NewPCG(seed, uint64(n)+2)), orbit.CapsuleID(fmt.Sprint("c", n%6)))
		})
	}
	clients.Wait()
	stop()
	troubled.Wait()
	time.Sleep(time.Minute) // what is late has come by then
	s := snapshot(t, ledgers[0])
	changes, err := ledgers[0].Changes(t.Context(), 1)
	require.NoError(t, err)
	require.NotEmpty(t, changes)
	require.NoError(t, s.Verify())
	for _, c := range changes {
		require.False(t, h.refused[c.ID], "%v was refused, and committed at revision %d", c.ID, c.Revision)
	}
}

// openFaulty is open; while the log fails by chance it tries again.
func openFaulty(t *testing.T, log logledger.Log, o logledger.Options) *logledger.Ledger {
	for range 1000 {
		if l, err := logledger.Open(t.Context(), log, o); err == nil {
			t.Cleanup(func() { require.NoError(t, l.Close()) })
			return l
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.Fail(t, "the log cannot be opened")
	return nil
}

// setUp submits six capsules, and a node for two of them.
func setUp(t *testing.T, l orbit.Ledger) {
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}
	do := []orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 2}}}}
	for i := range 6 {
		do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: spec})
	}
	p := orbit.Proposal{ID: orbit.NewProposalID(), Do: do}
	for range 1000 {
		if _, err := l.Propose(t.Context(), p); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.Fail(t, "the ledger takes nothing")
}

// client places and releases a capsule in turn.
func (h *hasty) client(t *testing.T, l orbit.Ledger, rng *rand.Rand, id orbit.CapsuleID) {
	for i := range 40 {
		p := orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: "n"}}}
		if i%2 == 1 {
			p.Do = []orbit.Commitment{orbit.Release{Capsule: id, Stopped: true}}
		}
		var err error
		unknown := false
		for {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(12_000))*time.Microsecond)
			_, err = l.Propose(ctx, p)
			cancel()
			if unknown = unknown || errors.Is(err, orbit.ErrUnknown); !errors.Is(err, orbit.ErrUnknown) && !errors.Is(err, orbit.ErrUnavailable) {
				break
			}
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
		}
		h.note(p.ID, unknown, err)
	}
}

// note notes the last outcome of a proposal; unknown says that one before was unknown.
func (h *hasty) note(id orbit.ProposalID, unknown bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if unknown {
		h.again++
		if err != nil {
			h.refused[id] = true
		}
	}
}
