package navtest

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/orbitsched/orbit"
)

// A Plan that overran its deadline may say something at any time, also while what was said last is quoted.
func TestWhatIsSaidLate(t *testing.T) {
	w := &world{ask: func(context.Context, *orbit.View, []*orbit.Capsule) (orbit.Plan, error) {
		return orbit.Plan{Unplaced: []orbit.Unplaced{{Capsule: &orbit.Capsule{ID: "c"}, Why: assert.AnError}}}, nil
	}}
	var late sync.WaitGroup
	late.Go(func() { _, _ = w.Plan(t.Context(), &orbit.View{}, nil) })
	assert.NotEmpty(t, w.said("c"))
	late.Wait()
	assert.Equal(t, "the last plan says: "+assert.AnError.Error(), w.said("c"))
}
