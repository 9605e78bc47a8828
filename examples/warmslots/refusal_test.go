package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// Only a fork that is bound to its parent's host has "1 nodes" to explain.
func TestAsideIsForForks(t *testing.T) {
	fork := &sandbox.WarmNoFit{Kind: sandbox.ErrAllStale, Start: orbit.Start{Parent: "p"}, Only: "host-0006"}
	require.Contains(t, aside(fmt.Errorf("create: %w", fork)), "beside its parent, so host-0006")
	require.Empty(t, aside(&sandbox.WarmNoFit{Kind: sandbox.ErrAllStale}))
	require.Empty(t, aside(errors.New("other")))
}
