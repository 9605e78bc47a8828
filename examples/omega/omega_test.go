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

// What the paper saw is seen here, on a small cell and for a short while.
func TestTrends(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	o := options{nodes: 50, hours: 1, seed: 1}
	at := func(s setup) figures {
		s.options, s.rate = o, 1
		f, err := s.run()
		require.NoError(t, err)
		return f
	}
	quick := at(setup{serviceTime: time.Second, batches: 1})
	slow := at(setup{serviceTime: 30 * time.Second, batches: 1})
	assert.Greater(t, slow.service.Busyness(), quick.service.Busyness(), "longer decisions, busier")
	assert.Less(t, slow.batch.Wait(0.5), time.Second, "others do not wait for them")

	coarse := at(setup{serviceTime: 30 * time.Second, batches: 1, coarse: true})
	assert.Greater(t, coarse.service.ConflictFraction(), slow.service.ConflictFraction(), "spurious conflicts")
	assert.Greater(t, coarse.service.Busyness(), slow.service.Busyness())

	one := at(setup{serviceTime: time.Second, batchTime: 3 * time.Second, batches: 1})
	many := at(setup{serviceTime: time.Second, batchTime: 3 * time.Second, batches: 8})
	assert.Less(t, many.batch.Busyness(), one.batch.Busyness(), "the work is shared")
	assert.Greater(t, many.batch.ConflictFraction(), one.batch.ConflictFraction(), "and they lose to each other")
}

// The same flags give the same tables.
func TestRunTwice(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	o := options{nodes: 10, hours: 0.1, seed: 3}
	var first, again strings.Builder
	var status strings.Builder
	require.NoError(t, run(t.Context(), o, &first, &status))
	require.NoError(t, run(t.Context(), o, &again, io.Discard))
	assert.Contains(t, status.String(), "run 27 of 27\n", "all runs are counted, those of two tables once")
	assert.Equal(t, first.String(), again.String())
	assert.Contains(t, first.String(), "\nNo service job lost anything: this cell is too small", "a cell too small")
	assert.Contains(t, first.String(), "coarse, all or nothing")
}

// On a screen that tables and progress share, no row is broken.
func TestProgressIsBetweenRows(t *testing.T) {
	var screen strings.Builder
	require.NoError(t, run(t.Context(), options{nodes: 10, hours: 0.1, seed: 3}, &screen, &screen))
	for line := range strings.Lines(screen.String()) {
		if strings.Contains(line, " of 27") {
			assert.Regexp(t, `^run \d+ of \d+\n$`, line)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-nodes", "1"}, {"-hours", "0"}, {"more"}, {"-hours", "x"}} {
		_, err := parse(args, io.Discard)
		assert.Error(t, err, args)
	}
}
