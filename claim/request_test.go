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
	ends := &request{Request: Request{Ctx: ctx, Deadline: now.Add(time.Hour)}}
	ends.begin()
	ends.Deadline = now // which the timer has missed
	require.NoError(t, ends.over(now.Add(-1)))
	require.ErrorIs(t, ends.over(now), context.DeadlineExceeded)
	open := &request{Request: Request{Ctx: ctx}}
	open.begin()
	require.NoError(t, open.over(now))
	cancel()
	require.ErrorIs(t, ends.over(now.Add(-1)), context.Canceled)
	require.ErrorIs(t, open.over(now.Add(-1)), context.Canceled)
}
