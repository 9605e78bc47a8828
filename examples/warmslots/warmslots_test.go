package main

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

func output(t *testing.T, args ...string) string {
	o, err := parse(args, &bytes.Buffer{})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out), "%s", &out)
	return out.String()
}

var lastLine = regexp.MustCompile(`^created (\d+), warm (\d+), cold (\d+), retried \d+, doubled 0, p50 \S+, p99 \S+$`)

// Whatever the fleet, all creates succeed in the end, nothing is placed twice, and all accounts agree: run says so.
func TestItAddsUp(t *testing.T) {
	scale.Long(t)
	for _, args := range scale.Some(2,
		"-creates 600 -v",
		"-hosts 2 -slots 4 -creators 16 -creates 80",
		"-hosts 1 -creates 200 -creators 8",
		"-warm 0 -creates 300",
	) {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			out := output(t, strings.Fields(args)...)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.Regexp(t, lastLine, lines[len(lines)-1])
			require.Equal(t, "verify: ok", lines[len(lines)-2])
			require.Regexp(t, `dies, with \d+ sandboxes on it`, out)
			require.Regexp(t, `the lease of host-\d+ has ended`, out)
			require.Equal(t, strings.Contains(args, "-v"), strings.Contains(out, "board   "))
		})
	}
}

// An interrupt ends it at once.
func TestInterrupt(t *testing.T) {
	scale.Long(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	o, err := parse(nil, &bytes.Buffer{})
	require.NoError(t, err)
	began := time.Now()
	require.ErrorIs(t, run(ctx, o, &bytes.Buffer{}), context.DeadlineExceeded)
	require.Less(t, time.Since(began), time.Minute)
}

// Of creates that are cut short in the middle of a burst the ledger has what their callers were told of, and nothing
// else.
func TestCreatesThatAreCutShortLeaveNothing(t *testing.T) {
	scale.Long(t)
	o, err := parse([]string{"-slots", "16384", "-creates", "100000"}, &bytes.Buffer{})
	require.NoError(t, err)
	p, err := newPlatform(t.Context(), o, newLog(&bytes.Buffer{}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	burst := p.phases[2]
	p.phases = []*phase{burst}
	var working sync.WaitGroup
	working.Go(func() { _ = p.work(ctx) })
	working.Go(func() {
		for burst.created.Load() < 2000 && sleep(ctx, time.Millisecond) == nil {
		}
		cancel()
	})
	require.ErrorIs(t, p.perform(ctx), context.Canceled)
	working.Wait()

	var told, there []orbit.CapsuleID
	for _, c := range p.creators {
		for i := range c.own {
			told = append(told, c.own[i].Capsule)
		}
	}
	state, err := p.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	for c := range state.Capsules() {
		if !c.Released() {
			there = append(there, c.ID)
		}
	}
	require.NotEmpty(t, told)
	slices.Sort(told)
	slices.Sort(there)
	require.Equal(t, told, there)
	require.NoError(t, state.Verify())
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"-hosts", "0"}, {"-creators", "0"}, {"-creates", "0"}, {"-slots", "0"}, {"-warm", "-1"}, {"-speed", "0"},
		{"-cache", "0s"}, {"-cache", "-1s"}, {"more"}, {"-what"},
	} {
		_, err := parse(args, &bytes.Buffer{})
		require.Error(t, err, "%v", args)
	}
}

// The recount sees what a ledger would never commit.
func TestTheRecountSeesWhatIsDoubled(t *testing.T) {
	put := func(slots int64) orbit.Commitment {
		return orbit.PutNode{Node: orbit.Node{ID: "a", Capacity: orbit.Resources{orbit.Slots: slots}}}
	}
	place := func(c orbit.CapsuleID) orbit.Commitment { return orbit.Place{Capsule: c, Node: "a"} }
	for _, c := range []struct {
		name    string
		commits [][]orbit.Commitment
		want    audit
	}{
		{"sound", [][]orbit.Commitment{{put(2)}, {place("x")}, {orbit.Release{Capsule: "x", Final: true}}, {place("y"), place("z")}}, audit{}},
		{"placed while placed", [][]orbit.Commitment{{put(2)}, {place("x")}, {place("x")}}, audit{doubled: 1}},
		{"over capacity", [][]orbit.Commitment{{put(1)}, {place("x")}, {place("y")}}, audit{doubled: 1}},
		{"a start that failed", [][]orbit.Commitment{{put(1)}, {place("x")}, {orbit.Release{Capsule: "x", Stopped: true}}, {place("x")}}, audit{}},
		{"lost", [][]orbit.Commitment{{put(1)}, {place("x")}, {orbit.Release{Capsule: "x"}}}, audit{returned: 1}},
		{"lost and placed again", [][]orbit.Commitment{{put(1)}, {place("x")}, {orbit.Release{Capsule: "x"}}, {place("x")}}, audit{returned: 1, replaced: 1}},
	} {
		a := newAudit()
		for _, commit := range c.commits {
			var changes []orbit.Change
			for _, do := range commit {
				changes = append(changes, orbit.Change{Do: do, Node: "a"})
			}
			a.recount(changes)
		}
		require.Equal(t, [3]int{c.want.doubled, c.want.returned, c.want.replaced}, [3]int{a.doubled, a.returned, a.replaced}, c.name)
	}
}
