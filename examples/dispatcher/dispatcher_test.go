package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/scale"
)

func TestThreeModes(t *testing.T) {
	scale.Long(t)
	o, err := parse([]string{"-nodes", "60", "-schedulers", "1,3", "-v"}, &bytes.Buffer{})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), o, &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, mode := range []string{"strict", "soft", "shared"} {
		require.Regexp(t, `^mode `+mode+` placed (100\.0|9\d\.\d)% conflicts \d+$`, lines[len(lines)-3+i])
	}
	require.Equal(t, 3, strings.Count(out.String(), "  one is killed half way\n"))

	out.Reset()
	o.verbose = false
	require.NoError(t, run(context.Background(), o, &out))
	require.Regexp(t, `(?m)^shared +3 +(100\.0|9\d\.\d)% .* nodes moved$`, out.String())
	require.NotContains(t, out.String(), "placements/s")
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"-nodes", "49"}, {"-policy", "x"}, {"-schedulers", "1,x"}, {"-schedulers", "0"}, {"-schedulers", ""}, {"more"}, {"-what"}} {
		_, err := parse(args, &bytes.Buffer{})
		require.Error(t, err, "%v", args)
	}
}
