package sandbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// A host that hangs is given up in time for the other one: after StartTimeout, and where the caller's deadline is nearer
// than twice that, after half of what is left. The second has all that is left, but no more than StartTimeout.
func TestGatewayGivesAHangingHostUp(t *testing.T) {
	for _, c := range []struct {
		name              string
		timeout, deadline time.Duration
		hung              time.Duration // at the first host
		second            time.Duration // bound of the second; 0: none
	}{
		{"by default", 0, 0, 10 * time.Second, 10 * time.Second},
		{"as set", 3 * time.Second, 0, 3 * time.Second, 3 * time.Second},
		{"deadline twice as far", 3 * time.Second, 6 * time.Second, 3 * time.Second, 3 * time.Second},
		{"deadline far away", 3 * time.Second, time.Minute, 3 * time.Second, 3 * time.Second},
		{"deadline near", 3 * time.Second, 4 * time.Second, 2 * time.Second, 2 * time.Second},
		{"no bound", -1, 4 * time.Second, 4 * time.Second, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				f.host("hangs", 9, 9, 0)
				f.host("next", 9, 5, 0)
				g := f.gateway()
				g.StartTimeout = c.timeout
				began, second := time.Now(), time.Duration(0)
				g.Start = func(ctx context.Context, made sandbox.Created) (bool, error) {
					if made.Node == "hangs" {
						<-ctx.Done()
						require.Equal(t, c.hung, time.Since(began))
						return false, ctx.Err()
					}
					end, bounded := ctx.Deadline()
					require.True(t, bounded)
					second = time.Until(end)
					return true, nil
				}
				ctx := context.Background()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				made, err := g.Create(ctx, "x", bootSpec(code))
				require.Equal(t, c.second, second)
				if c.second > 0 {
					require.NoError(t, err)
					require.True(t, made.Retried && made.Node == orbit.NodeID("next"))
					return
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Zero(t, f.live())
			})
		})
	}
}
