package orbit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// While work comes that has not been planned yet, Run does not rest between full batches that have no place: what comes
// behind them is planned without a backoff for each batch. Once all has been planned, Run backs off.
func TestWorkBehindBatchesWithoutAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, plans := &MemoryLedger{}, 0
		var took time.Duration
		start := time.Now()
		e := &Engine{Name: "e", Ledger: l, MaxPlan: 10, Backoff: Backoff{Initial: time.Second}}
		e.Navigator = planFunc(func(_ context.Context, _ *View, pending []*Capsule) (plan Plan, err error) {
			plans++
			for _, c := range pending {
				if c.ID == "fits" {
					plan.Proposals = append(plan.Proposals, Proposal{Do: []Commitment{Place{Capsule: c.ID, Node: "n"}}})
					took = time.Since(start)
					continue
				}
				plan.Unplaced = append(plan.Unplaced, Unplaced{c, errors.New("waits, and is not parked")})
			}
			return plan, nil
		})
		commit(t, l, PutNode{machine("n", 10)})
		for i := range 500 {
			commit(t, l, Submit{IDs: []CapsuleID{CapsuleID(fmt.Sprint("waits", i))}, Spec: wants(100)})
		}
		commit(t, l, Submit{IDs: []CapsuleID{"fits"}, Spec: wants(1)})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		assert.NoError(t, e.Run(ctx))
		assert.True(t, snapshotOf(t, l).Capsule("fits").Placed())
		assert.Zero(t, took)
		assert.Less(t, plans, 51+2+2*20)
	})
}
