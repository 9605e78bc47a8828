package navtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// The random stories have in them what other parties do.
func TestStoriesHaveFacts(t *testing.T) {
	seen := map[string]int{}
	for _, factory := range []func() orbit.Navigator{
		func() orbit.Navigator { return &nav.Services{} },
		func() orbit.Navigator { return &nav.Gang{} },
	} {
		var ledgers []*orbit.MemoryLedger
		suite := Suite{Worlds: 30, Seed: 1, Passes: 20, Patience: 1e10, HoldFor: 1e10, Modules: []string{"m"}}
		suite.try(&rule{Name: "facts", Check: func(t *trial) {
			t.scripts(func(w *world) { ledgers = append(ledgers, w.ledger) }, nil)
		}}, factory)
		for _, l := range ledgers {
			changes, err := l.Changes(t.Context(), 0)
			assert.NoError(t, err)
			for _, change := range changes {
				see(&change, seen)
			}
			s, err := l.Snapshot(t.Context())
			assert.NoError(t, err)
			for c := range s.Capsules() {
				for _, near := range c.Spec.Nears {
					seen[fmt.Sprintf("near by %s, placed %t", near.Level, c.Placed())]++
				}
			}
			for range s.Overcommitted() {
				seen["overcommitted"]++
			}
		}
	}
	for _, what := range []string{"gone", "adopted", "joined", "waiting, with another spec", "placed, with another spec", "overcommitted",
		"near by rack, placed true", "near by rack, placed false", "near by block, placed true", "near by orbit/node, placed true", "near by orbit/node, placed false"} {
		assert.NotZero(t, seen[what], "%s: %v", what, seen)
	}
}

// see notes what a change is an example of.
func see(c *orbit.Change, seen map[string]int) {
	switch do := c.Do.(type) {
	case orbit.RemoveNode:
		if do.Gone {
			seen["gone"]++
		}
	case orbit.Adopt:
		seen["adopted"]++
	case orbit.Submit:
		if do.Join {
			seen["joined"]++
		}
	case orbit.Respec:
		if do.Since == 0 {
			seen["waiting, with another spec"]++
		} else {
			seen["placed, with another spec"]++
		}
	}
}
