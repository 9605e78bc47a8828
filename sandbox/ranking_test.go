package sandbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/sandbox"
)

// warmEffort plans capsules of several templates on a fleet that has been planned on before, and returns how many boxes a
// choice has opened and how many nodes it has judged, for templates that are warm on many hosts, on one and on none.
func warmEffort(t *testing.T, hosts int, spec func(serial int) *orbit.Spec) (opened, judged float64) {
	f, specs := bigFleet(t, hosts, 3)
	rare := orbit.Report{Node: "host-00007", At: time.Now(), FreeSlots: 16_384, Templates: []string{"rare"}}
	require.NoError(t, f.board.Report(rare))
	w := sandbox.Warm{Board: f.board}
	var view orbit.View
	plan := func() {
		require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
		plan, err := w.Plan(context.Background(), &view, view.State().Pending())
		require.NoError(t, err)
		for _, p := range plan.Proposals {
			_, err := f.ledger.Propose(context.Background(), p)
			require.NoError(t, err)
		}
		for _, u := range plan.Unplaced {
			commit(t, f.ledger, orbit.Release{Capsule: u.Capsule.ID, Final: true})
		}
	}
	for k, s := range specs {
		submit(t, f.ledger, fmt.Sprint("before-", k), 10, s)
	}
	submit(t, f.ledger, "before-rare", 1, bootSpec("rare"))
	plan()
	const choices = 300
	before, asked := sandbox.Opened(&w), sandbox.Judged(&w)
	for k := range choices {
		submit(t, f.ledger, fmt.Sprint("now-", k), 1, spec(k))
		if k%10 == 9 {
			plan()
		}
	}
	return float64(sandbox.Opened(&w)-before) / choices, float64(sandbox.Judged(&w)-asked) / choices
}

// A choice opens as many boxes and judges as many nodes on 20,000 hosts as on 1,000, up to the depth of the tree,
// whether many hosts have the template, one has it, or none.
func TestWarmEffortIsFlat(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	for name, spec := range map[string]func(int) *orbit.Spec{
		"warm on many": func(k int) *orbit.Spec { return bootSpec(fmt.Sprint("template-", k%3)) },
		"on one":       func(int) *orbit.Spec { return bootSpec("rare") },
		"no template":  func(int) *orbit.Spec { return bootSpec("") },
		"unknown":      func(k int) *orbit.Spec { return bootSpec(fmt.Sprint("unknown-", k)) },
	} {
		t.Run(name, func(t *testing.T) {
			opened, judged := warmEffort(t, 1_000, spec)
			more, moreJudged := warmEffort(t, 20_000, spec)
			t.Log(opened, judged, more, moreJudged)
			assert.LessOrEqual(t, more, 1.6*opened+1)
			assert.LessOrEqual(t, moreJudged, 1.2*judged+1)
			assert.Less(t, moreJudged, 10.0)
		})
	}
}
