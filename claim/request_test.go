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
	request := &ticket{ctx: ctx, req: Request{Deadline: now}}
	require.NoError(t, request.over(now.Add(-1)))
	require.ErrorIs(t, request.over(now), context.DeadlineExceeded)
	require.NoError(t, (&ticket{ctx: ctx, req: Request{}}).over(now))
	cancel()
	require.ErrorIs(t, request.over(now.Add(-1)), context.Canceled)
}
