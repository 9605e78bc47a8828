package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range []string{"-inflate 0", "-inflate 101", "-inflate NaN", "-seeds 0", "-nodes file", "-pods file", "-policy fgd,fgd",
		"-policy none", "-engine none", "more", "-what"} {
		_, err := parse(strings.Fields(args), &bytes.Buffer{})
		require.Error(t, err, args)
	}
	o, err := parse([]string{"-policy", "fgd, bestfit"}, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, []string{"fgd", "bestfit"}, o.policies)
}

func TestEveryPolicyIsExplained(t *testing.T) {
	require.Equal(t, names(policies), names(meanings))
}
