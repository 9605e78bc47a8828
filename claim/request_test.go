package claim

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request is checked for its end before a slot is spent on it, because its timer may be late: it has ended at its
// deadline, and not a nanosecond before.
func TestRequestIsOverAtItsDeadline(t *testing.T) {
	now := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	ends := &request{Request: Request{Ctx: ctx, Deadline: now.Add(time.Hour)}}
	ends.begin()
	ends.Deadline = now // the timer has not fired yet
	require.NoError(t, ends.over(now.Add(-1)))
	require.ErrorIs(t, ends.over(now), context.DeadlineExceeded)
	open := &request{Request: Request{Ctx: ctx}}
	open.begin()
	require.NoError(t, open.over(now))
	cancel()
	require.ErrorIs(t, ends.over(now.Add(-1)), context.Canceled)
	require.ErrorIs(t, open.over(now.Add(-1)), context.Canceled)
}
