package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// With other times of the tasks, too, no queue ever uses more than the tree allows, nothing is evicted twice, and the GPUs are
// divided as by water-filling. Research has everything that is lent at night, and in the morning the teams have theirs back.
func TestDay(t *testing.T) {
	scale.Sequential(t)
	for seed := range uint64(3) {
		w, err := open(t.Context(), seed)
		require.NoError(t, err)
		require.NoError(t, w.day(t.Context()))
		var out bytes.Buffer
		w.picture(&out)
		w.tell(&out)
		require.True(t, w.sum(&out), out.String())
		for i := range w.samples {
			require.Less(t, w.samples[i].error(), 0.02, "%s: %+v", clock(i), w.samples[i])
		}
		used := func(hour, ten int) amounts { return w.samples[(hour+24-16)%24*6+ten].used }
		require.Equal(t, amounts{"ads": 4, "research": 112}, used(1, 5), "12 of the GPUs that ads does not lend are idle")
		require.Equal(t, amounts{"ads": 4, "vision": 64, "research": 48}, used(2, 0))
		require.Equal(t, amounts{"ads": 32, "maps": 24, "vision": 24, "research": 48}, used(8, 0))
		evicted := 0
		for i := range w.samples {
			evicted += w.samples[i].evicted
		}
		require.Len(t, w.evicted, evicted, "each victim once")
		require.Greater(t, evicted, 100)
	}
}

// Water-filling is what one GPU after the other comes to, each given to the queue that a tournament names.
func TestFill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wants, got, given := amounts{}, amounts{}, amounts{}
		for _, q := range leaves {
			wants[q.id] = float64(rapid.IntRange(0, 150).Draw(t, string(q.id)))
		}
		company.fill(company.has(), wants, got)
		for {
			q := winner(company, wants, given)
			if q == nil {
				break
			}
			given[q.id]++
		}
		for _, q := range leaves {
			require.InDelta(t, given[q.id], got[q.id], 1, "%v: %v", wants, given)
		}
		require.InDelta(t, company.takes(given), company.takes(got), 1e-6)
	})
}

// winner returns the leaf below a queue that is given the next GPU: of each two, the one whose branch does not borrow with it, or borrows
// less by its weight. Nil: no leaf wants one that the tree has left.
func winner(q *queue, wants, given amounts) (best *queue) {
	if len(q.children) == 0 {
		next := amounts{q.id: 1}
		for id, n := range given {
			next[id] += n
		}
		if wants[q.id] >= next[q.id] && company.over(next) == 0 {
			return q
		}
		return nil
	}
	least := 0.0
	for _, c := range q.children {
		leaf := winner(c, wants, given)
		if leaf == nil {
			continue
		}
		next := amounts{leaf.id: 1}
		for id, n := range given {
			next[id] += n
		}
		if share := max(0, c.takes(next)-c.has()) / float64(c.weight); best == nil || share < least {
			best, least = leaf, share
		}
	}
	return best
}
