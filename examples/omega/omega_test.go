package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/scale"
)

// TestTrends checks that a small cell, run for one hour, shows what the paper has found.
func TestTrends(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	o := options{nodes: 50, hours: 1, seed: 1}
	ran := func(s setup) figures {
		s.options, s.rate = o, 1
		f, err := s.run()
		require.NoError(t, err)
		return f
	}
	quick := ran(setup{serviceTime: time.Second, batches: 1})
	slow := ran(setup{serviceTime: 30 * time.Second, batches: 1})
	assert.Greater(t, slow.service.Busyness(), quick.service.Busyness(), "longer decisions make a scheduler busier")
	assert.Less(t, slow.batch.Wait(0.5), time.Second, "batch jobs do not wait for the slow decisions")

	coarse := ran(setup{serviceTime: 30 * time.Second, batches: 1, coarse: true})
	assert.Greater(t, coarse.service.ConflictFraction(), slow.service.ConflictFraction(), "coarse bets lose to changes that do no harm")
	assert.Greater(t, coarse.service.Busyness(), slow.service.Busyness())

	one := ran(setup{serviceTime: time.Second, batchTime: 3 * time.Second, batches: 1})
	many := ran(setup{serviceTime: time.Second, batchTime: 3 * time.Second, batches: 8})
	assert.Less(t, many.batch.Busyness(), one.batch.Busyness(), "several batch schedulers share the work")
	assert.Greater(t, many.batch.ConflictFraction(), one.batch.ConflictFraction(), "several batch schedulers lose to each other")
}

// TestRunTwice checks that the same flags give the same tables.
func TestRunTwice(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	o := options{nodes: 10, hours: 0.1, seed: 3}
	var first, again strings.Builder
	var status strings.Builder
	require.NoError(t, run(t.Context(), o, &first, &status))
	require.NoError(t, run(t.Context(), o, &again, io.Discard))
	assert.Contains(t, status.String(), "run 27 of 27\n", "a run that two tables show is counted once")
	assert.Equal(t, first.String(), again.String())
	assert.Contains(t, first.String(), "\nNo service job lost anything: this cell is too small", "it says that the cell is too small")
	assert.Contains(t, first.String(), "coarse, all or nothing")
}

// TestProgressIsBetweenRows checks that no line of progress is printed into a row of a table, when both go to the same screen.
func TestProgressIsBetweenRows(t *testing.T) {
	var screen strings.Builder
	require.NoError(t, run(t.Context(), options{nodes: 10, hours: 0.1, seed: 3}, &screen, &screen))
	for line := range strings.Lines(screen.String()) {
		if strings.Contains(line, " of 27") {
			assert.Regexp(t, `^run \d+ of \d+\n$`, line)
		}
	}
}

// TestFlags checks that wrong arguments are refused.
func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-nodes", "1"}, {"-hours", "0"}, {"more"}, {"-hours", "x"}} {
		_, err := parse(args, io.Discard)
		assert.Error(t, err, args)
	}
}
