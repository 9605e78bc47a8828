package send_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// script is a ledger whose answers are given, the last one for ever; nil commits.
type script struct {
	orbit.Ledger
	answers []error
	asked   int
}

func (s *script) Propose(context.Context, orbit.Proposal) (orbit.Revision, error) {
	err := s.answers[min(s.asked, len(s.answers)-1)]
	if s.asked++; err != nil {
		return 0, err
	}
	return orbit.Revision(s.asked), nil
}

// forgetful is a ledger that answers for the first two proposals of a batch only.
type forgetful struct{ script }

func (*forgetful) ProposeBatch(context.Context, []orbit.Proposal) []orbit.Outcome {
	return []orbit.Outcome{{Revision: 7}, {Err: orbit.ErrConflict}}
}

func TestAllHasAnOutcomeForEach(t *testing.T) {
	batch := make([]orbit.Proposal, 3)
	plain := &script{answers: []error{nil, orbit.ErrConflict, nil}}
	require.Equal(t, []orbit.Outcome{{Revision: 1}, {Err: orbit.ErrConflict}, {Revision: 3}}, send.All(t.Context(), plain, batch))
	require.Equal(t, []orbit.Outcome{{Revision: 7}, {Err: orbit.ErrConflict}, {Err: orbit.ErrUnknown}}, send.All(t.Context(), &forgetful{}, batch))
	require.Equal(t, []orbit.Outcome{{Revision: 7}}, send.All(t.Context(), &forgetful{}, batch[:1]), "what was not asked is not answered")
	require.Empty(t, send.All(t.Context(), plain, nil))
	require.Equal(t, 3, plain.asked)
}

func TestSettle(t *testing.T) {
	lost, down := fmt.Errorf("lost: %w", orbit.ErrUnknown), fmt.Errorf("down: %w", orbit.ErrUnavailable)
	for name, c := range map[string]struct {
		answers []error
		asked   int
		err     error
		took    time.Duration
	}{
		"committed":                          {answers: []error{nil}, asked: 1},
		"refused":                            {answers: []error{orbit.ErrConflict}, asked: 1, err: orbit.ErrConflict},
		"nothing was sent":                   {answers: []error{down}, asked: 1, err: orbit.ErrUnavailable},
		"the answer was lost":                {answers: []error{lost, nil}, asked: 2, took: send.First},
		"lost, then down, then a conflict":   {answers: []error{lost, down, down, orbit.ErrConflict}, asked: 4, err: orbit.ErrConflict, took: 7 * send.First},
		"lost, and down until the call ends": {answers: []error{lost, down}, asked: 66, err: orbit.ErrUnknown, took: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began, s := time.Now(), &script{answers: c.answers}
				rev, err := send.Settle(ctx, s, orbit.Proposal{})
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.err == nil, rev != 0)
				require.Equal(t, c.took == time.Minute, errors.Is(err, context.DeadlineExceeded))
				require.Equal(t, c.asked, s.asked)
				require.Equal(t, c.took, time.Since(began))
			})
		})
	}
}

func TestPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		require.True(t, send.Pause(ctx, time.Second))
		require.True(t, send.Pause(ctx, 0))
		require.True(t, send.Pause(ctx, -time.Second))
		require.Equal(t, time.Second, time.Since(began))
		require.False(t, send.Pause(ctx, time.Hour))
		require.Equal(t, time.Minute, time.Since(began))
		require.False(t, send.Pause(ctx, 0), "the context has ended")
	})
}
