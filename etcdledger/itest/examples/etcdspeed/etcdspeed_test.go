package main

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
)

func TestMain(m *testing.M) {
	process.Main(map[string]process.Role{cluster.Role: cluster.Serve, watcherRole: watch})
	os.Exit(m.Run())
}

// The table is whole, and a batch is faster than its placements one after another.
func TestSpeed(t *testing.T) {
	o, err := parse([]string{"-runs", "1", "-batch", "100", "-nodes", "10"}, &bytes.Buffer{})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := regexp.MustCompile(`^etcdspeed: a batch commits ([0-9.]+) x as many placements/s as the same one after another$`).FindStringSubmatch(lines[len(lines)-1])
	require.NotNil(t, last, "%s", &out)
	times, err := strconv.ParseFloat(last[1], 64)
	require.NoError(t, err)
	require.Greater(t, times, 1.0)
	t.Logf("%s", &out)
}

func TestMedian(t *testing.T) {
	require.Equal(t, 3, median([]int{9, 1, 3}))
	s := sample{n: 4, took: 2 * time.Second, times: []time.Duration{3, 1, 2, 100}}
	require.Equal(t, []any{2.0, time.Duration(2), time.Duration(3)}, []any{s.rate(), s.percentile(50), s.percentile(99)})
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"-nodes", "0"}, {"-batch", "1"}, {"-runs", "0"}, {"-members", "2"}, {"more"}, {"-what"}} {
		_, err := parse(args, &bytes.Buffer{})
		require.Error(t, err, "%v", args)
	}
}
