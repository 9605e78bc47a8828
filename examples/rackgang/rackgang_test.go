package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func output(t *testing.T, args ...string) string {
	o, err := parse(args, &bytes.Buffer{})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), o, &out))
	return out.String()
}

// Affinity alone binds everything but the groups; anchors and gangs bind them too, each group in one rack, with one
// anchor each, that brings all the others.
func TestGroupsNeedAStart(t *testing.T) {
	for _, seed := range []string{"1", "2"} {
		out := output(t, "-nodes", "200", "-capsules", "1500", "-seed", seed)
		groups := regexp.MustCompile(`in (\d+) same-rack groups`).FindStringSubmatch(out)[1]
		require.Regexp(t, `(?m)^affinity +0 of +`+groups+` +0 +0 `, out)
		require.Regexp(t, `(?m)^anchors +`+groups+` of +`+groups+` +1 +`+groups+` +15.0% `, out)
		require.Regexp(t, `(?m)^gang +`+groups+` of +`+groups+` +1 +0 +0.0% `, out)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		require.Equal(t, []string{"bound affinity 85.0%", "bound anchors 100.0%", "bound gang 100.0%"}, lines[len(lines)-3:])
		require.Contains(t, out, "; 0 that wait would fit on a node\nverify: ok\n")
	}
}

// All but the race can be repeated.
func TestSameSeedSameTable(t *testing.T) {
	table := func() string {
		before, _, found := strings.Cut(output(t, "-nodes", "100", "-capsules", "800"), "race:")
		require.True(t, found)
		return before
	}
	require.Equal(t, table(), table())
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"-nodes", "19"}, {"-capsules", "1"}, {"-plan", "0"}, {"-passes", "0"}, {"more"}, {"-what"}} {
		_, err := parse(args, &bytes.Buffer{})
		require.Error(t, err, "%v", args)
	}
}
