package main

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

// runWith is a whole run with these flags, and what it printed.
func runWith(t *testing.T, args ...string) (string, error) {
	t.Helper()
	o, err := parse(args, io.Discard)
	require.NoError(t, err)
	var out strings.Builder
	o.rounds, o.enough = 1, 0
	err = schedule(t.Context(), o, &out, io.Discard)
	return out.String(), err
}

func TestEveryEngineAndOrderPlacesAll(t *testing.T) {
	for _, engine := range engineNames {
		for _, order := range orderNames {
			for _, navigators := range []string{"1", "3"} {
				t.Run(engine+"/"+order+"/"+navigators, func(t *testing.T) {
					t.Parallel()
					out, err := runWith(t, "-nodes", "60", "-capsules", "1200", "-classes", "40", "-v",
						"-engine", engine, "-order", order, "-navigators", navigators)
					require.NoError(t, err)
					require.Regexp(t, `\nplaced 1200 of 1200 in [0-9.]+m?s, [0-9.]+ x floor\n$`, out)
					require.Contains(t, out, "verify: ok\n")
					require.NotContains(t, out, "not placed")
					if engine == "exhaustive" {
						require.NotContains(t, out, "by rating all")
					} else {
						require.Contains(t, out, "in 64 calls at 4 points")
					}
					for _, stage := range []string{"submit", "view", "plan", "propose", "wall, without submit"} {
						require.Regexp(t, `(?m)^`+stage+` +[0-9.]+s +[0-9.]+$`, out)
					}
					require.Regexp(t, `(?m)^  floor +[0-9.]+ µs \([0-9.]+ to [0-9.]+\)`, out)
					require.Regexp(t, `passes, [0-9]+ conflicts; notes: `, out)
				})
			}
		}
	}
}

// What does not fit is reported with the reason, and the run ends.
func TestFullConstellation(t *testing.T) {
	for _, navigators := range []string{"1", "3"} {
		out, err := runWith(t, "-nodes", "5", "-capsules", "2000", "-classes", "20", "-navigators", navigators)
		require.NoError(t, err)
		require.Regexp(t, `(?m)^[0-9]+ capsules are not placed:\n +[0-9]+ 0 of 5 nodes fit: `, out)
		require.NotContains(t, out, "turn", "each class had its turn")
		require.Regexp(t, `placed [0-9]+ of 2000 in .*floor\n$`, out)
	}
}

func TestHostileFlags(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"-nodes 0", "-nodes is 0; it must be at least 1"},
		{"-nodes -5", "-nodes is -5"},
		{"-nodes many", "how a node is chosen"},
		{"-capsules 0", "-capsules is 0"},
		{"-capsules 10 -classes 11", "there are only 10 capsules"},
		{"-classes 0", "-classes is 0"},
		{"-navigators 0", "-navigators is 0"},
		{"-rounds 9999999", "at most 1000"},
		{"-engine quantum", `unknown engine "quantum"; there are indexed`},
		{"-order alphabetical", `unknown order "alphabetical"; there are shuffled, grouped`},
		{"stray", `unexpected argument "stray"`},
	} {
		t.Run(c.args, func(t *testing.T) {
			var said strings.Builder
			_, err := parse(strings.Fields(c.args), &said)
			require.Error(t, err)
			require.Contains(t, said.String(), c.says)
		})
	}
}

// Interrupted at any time, the run ends with what it has.
func TestInterrupt(t *testing.T) {
	scale.Long(t)
	o, err := parse([]string{"-nodes", "1000", "-capsules", "20000", "-engine", "exhaustive"}, io.Discard)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var out strings.Builder
	o.progressEvery = 0
	err = schedule(ctx, o, &out, stopper{stop})
	require.NoError(t, err)
	require.Contains(t, out.String(), "\ninterrupted\n")
	require.Contains(t, out.String(), "it was not their turn yet")
	require.Regexp(t, `placed [1-9][0-9]* of 20000 in `, out.String())

	err = schedule(ctx, o, &out, io.Discard)
	require.ErrorContains(t, err, "nothing is placed")
}

// stopper interrupts at the first sign of progress.
type stopper struct{ stop func() }

func (s stopper) Write(b []byte) (int, error) {
	s.stop()
	return len(b), nil
}

func TestNotes(t *testing.T) {
	var n notes
	for range 2 {
		n.add(slog.Int("hits", 3))
		n.add(slog.Uint64("hits", 1))
		n.add(slog.Float64("ratio", 0.25))
		n.add(slog.Duration("rebuild", time.Millisecond))
		n.add(slog.String("mood", "good"))
	}
	require.Equal(t, "hits 8, ratio 0.5, rebuild 2ms", n.String())
}

// Work divides without a rest and without overlap.
func TestShares(t *testing.T) {
	for _, module := range []string{"", "service-0000", "sweep-0001"} {
		owners := 0
		for part := range uint32(3) {
			if (&share{part: part, of: 3}).Claims(module, 0) {
				owners++
			}
		}
		require.Equal(t, 1, owners, module)
	}
}

func TestPeakMemory(t *testing.T) {
	if peak := peakMemory(); peak != "" {
		require.Regexp(t, `^[1-9][0-9]* MiB$`, peak)
	}
}

// What all navigators place between two pauses fits into the ledger's history, which the floor reads in pauses.
func TestPlansFitIntoTheHistory(t *testing.T) {
	history := (&orbit.MemoryLedger{}).Limits().History
	for navigators := 1; navigators <= 1000; navigators++ { // as many as the flag allows
		size := planSize(options{capsules: 100_000_000, navigators: navigators}, history)
		require.Positive(t, size)
		require.LessOrEqual(t, size*navigators, history/2)
	}
}
