package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

// Whoever wins: all that is urgent runs, no wish breaks a budget, nobody is evicted twice for the same work while that waits, and the books
// of the story end as the ledger does.
func TestEverybodyAtOnce(t *testing.T) {
	scale.Sequential(t)
	made, moved, lost := 0, 0, 0
	for seed := range uint64(4) {
		w := open(100, seed)
		for round := range 16 {
			w.happens(round)
			w.act()
		}
		w.settle()
		a, end := read(w), w.state()
		_, twice, runs, came := a.figures()
		assert.Zero(t, a.broken)
		assert.Zero(t, twice)
		assert.Equal(t, 24, came)
		assert.Equal(t, came, runs)
		made, moved, lost = made+len(a.displaced), moved+len(a.moved), lost+len(a.lost)
		require.NoError(t, end.Verify())
		for id, node := range a.on {
			require.Equal(t, node, end.Capsule(id).Node)
		}
		for _, group := range a.groups {
			b, _ := end.Budget(orbit.BudgetID(group))
			require.Equal(t, b.Healthy, a.runs[group], group)
		}
	}
	assert.Positive(t, min(made, moved, lost), "some have made way, were moved, and were lost with their nodes")
}
