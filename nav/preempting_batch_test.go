package nav_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// batches is a ledger that notes how many proposals each batch has, and that forgets the proposal of one number.
type batches struct {
	orbit.MemoryLedger
	sizes           []int
	forgets, serial int
}

func (b *batches) ProposeBatch(ctx context.Context, batch []orbit.Proposal) (out []orbit.Outcome) {
	b.sizes = append(b.sizes, len(batch))
	for i := range batch {
		if b.serial++; b.serial == b.forgets {
			out = append(out, orbit.Outcome{Err: orbit.ErrUnknown})
			continue
		}
		rev, err := b.Propose(ctx, batch[i])
		out = append(out, orbit.Outcome{Revision: rev, Err: err})
	}
	return out
}

// An eviction on a node where the same plan takes free room is sent after the outcomes of the placements there are known.
// Evictions that rest on no other proposal are sent together.
func TestEvictionsAfterPlacementsOnTheirNodes(t *testing.T) {
	for _, c := range []struct {
		name  string
		low   int64
		sizes []int
	}{{"beside free room", 1, []int{9, 3}}, {"on full nodes", 4, []int{12}}} {
		t.Run(c.name, func(t *testing.T) {
			l := &batches{}
			for i := range 3 {
				commit(t, l, node(fmt.Sprint("n", i), 4))
				for k := range c.low {
					put(t, l, fmt.Sprint("low", i, "-", k), fmt.Sprint("n", i), batchSpec(1))
				}
			}
			for i := range 12 {
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("urgent", i))}, Spec: spec(1, 5)})
			}
			r := (&orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}).Pass(t.Context())
			require.Equal(t, 12, r.Committed)
			assert.Equal(t, c.sizes, l.sizes)
		})
	}
}

// An eviction is not sent while the outcome of a placement on its node is unknown: the ledger would spare the victim, and the
// newcomer would take the room of the placement.
func TestNoEvictionBesideAnUnknownPlacement(t *testing.T) {
	for forgets := 1; forgets <= 3; forgets++ {
		l := &batches{forgets: forgets}
		commit(t, l, node("n", 4))
		put(t, l, "low", "n", batchSpec(1))
		for i := range 4 {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("urgent", i))}, Spec: spec(1, 5)})
		}
		e := &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}}
		r := e.Pass(t.Context())
		assert.Equal(t, 2, r.Committed)
		assert.Equal(t, []int{3}, l.sizes)
		require.Len(t, r.Unplaced, 1)
		assert.ErrorContains(t, r.Unplaced[0].Why, "not known whether an earlier proposal")
		assert.True(t, snapshot(t, l).Capsule("low").Placed())
		conflicts := 0
		for range 4 {
			conflicts += e.Pass(t.Context()).Conflicts
		}
		assert.Zero(t, conflicts)
		for i := range 4 {
			assert.True(t, snapshot(t, l).Capsule(orbit.CapsuleID(fmt.Sprint("urgent", i))).Placed())
		}
	}
}
