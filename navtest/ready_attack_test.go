package navtest_test

import (
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/navtest"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// Odd configurations of the ready navigators keep every rule too.
func TestOddConfigurations(t *testing.T) {
	scale.Long(t)
	for name, factory := range map[string]func() orbit.Navigator{
		"gang/no-search":       func() orbit.Navigator { return &nav.Gang{Search: -1} },
		"gang/one-step":        func() orbit.Navigator { return &nav.Gang{Search: 1} },
		"anchor/gang":          func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Gang{}} },
		"anchor/gang/alone":    func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Gang{}, SelfMatch: true} },
		"anchor/batch/alone":   func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Batch{}, SelfMatch: true} },
		"anchor/no-holds":      func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Services{}, HoldFor: -1, SelfMatch: true} },
		"batch/sampled":        func() orbit.Navigator { return &nav.Batch{Placement: &place.Sampled{Seed: 7, Enough: 4}} },
		"batch/sampled-memory": func() orbit.Navigator { return &nav.Batch{Placement: &place.Sampled{Seed: 7, Enough: 4, Remember: 8}} },
		"batch/indexed-seed":   func() orbit.Navigator { return &nav.Batch{Placement: &place.Indexed{Seed: 3}} },
		"batch/spread":         func() orbit.Navigator { return &nav.Batch{Placement: &place.Indexed{Score: score.Spread{}}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := navtest.Suite{Worlds: worlds}
			s.Run(t, factory)
		})
	}
}
