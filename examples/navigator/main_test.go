package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/navtest"
)

// The navigator for databases needs fewer licences than the ready ones, and all is placed with it as without it.
func TestFewerLicences(t *testing.T) {
	ready := run("ready", func(*orbit.Population) {})
	own := run("own", func(p *orbit.Population) {
		p.Engines = slices.Insert(p.Engines, 0, &orbit.Engine{Name: "databases", Ledger: p.Engines[0].Ledger, Navigator: &licensed{}})
	})
	require.Less(t, own, ready)
	require.GreaterOrEqual(t, own, databases/cores+1)
}

// It keeps the rules of all navigators.
func TestKeepsTheRules(t *testing.T) {
	navtest.Suite{Modules: []string{"database"}}.Run(t, func() orbit.Navigator { return &licensed{} })
}
