package claim

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whether a request has ended is asked before a slot is spent on it, for its timer may be late: at its deadline
// it has, a nanosecond before it has not.
func TestRequestIsOverAtItsDeadline(t *testing.T) {
	now := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	ends := &request{Request: Request{Ctx: ctx, Deadline: now}}
	require.NoError(t, ends.over(now.Add(-1)))
	require.ErrorIs(t, ends.over(now), context.DeadlineExceeded)
	require.NoError(t, (&request{Request: Request{Ctx: ctx}}).over(now))
	cancel()
	require.ErrorIs(t, ends.over(now.Add(-1)), context.Canceled)
}
