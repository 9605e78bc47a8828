package nav

import (
	"context"

	"github.com/orbitsched/orbit"
)

// Func makes a navigator of a planning function. It claims everything.
type Func func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error)

// Claims returns true.
func (Func) Claims(string, orbit.AppClass) bool { return true }

// Plan calls f.
func (f Func) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	return f(ctx, view, pending)
}
