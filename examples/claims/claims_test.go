package main

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

// Every caller is served, no slot is handed out twice, and reservations avoid the conflicts.
func TestClaims(t *testing.T) {
	o, err := parse([]string{"-pools", "2", "-slots", "20", "-bursts", "3", "-requests", "50", "-lag", "100ms", "-every", "100ms"}, &bytes.Buffer{})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), o, &out))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		last := regexp.MustCompile(`^claimed (\d+) of (\d+), doubled (\d+), conflicts (\d+) with reservations, (\d+) without$`).FindStringSubmatch(lines[len(lines)-1])
		require.NotNil(t, last, "%s", out.String())
		require.Equal(t, []string{"450", "450", "0", "0"}, last[1:5])
		without, err := strconv.Atoi(last[5])
		require.NoError(t, err)
		require.Positive(t, without)
	})
}

// The history tells of slots that are handed out twice.
func TestDoubledIsCounted(t *testing.T) {
	s := &ledgerSite{}
	s.Ledger = &orbit.MemoryLedger{}
	s.Spec = &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.Slots: 1}}}
	_, err := s.Ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.Slots: 2}}}, // as if it took two by mistake
	}})
	require.NoError(t, err)
	for range 2 {
		l, err := s.Idle(t.Context())
		require.NoError(t, err)
		_, _, err = s.Claim(t.Context(), claim.Attempt{ID: orbit.NewProposalID(), Slot: l.Slots[0]})
		require.NoError(t, err)
	}
	n, err := s.doubled(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)

	n, err = (&staleSite{StaleStore: &sim.StaleStore{}}).doubled(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

// An interrupt ends it soon.
func TestInterrupt(t *testing.T) {
	o, err := parse([]string{"-bursts", "1000", "-every", "1m"}, &bytes.Buffer{})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := run(ctx, o, &bytes.Buffer{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), time.Minute)
	})
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"-pools", "0"}, {"-slots", "0"}, {"-bursts", "0"}, {"-requests", "0"}, {"-lag", "-1s"}, {"more"}, {"-what"}} {
		_, err := parse(args, &bytes.Buffer{})
		require.Error(t, err, "%v", args)
	}
}
