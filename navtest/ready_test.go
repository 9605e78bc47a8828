package navtest_test

import (
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/navtest"
)

// ready are the navigators of package nav, in the ways in which they are used. To add one, add a line: the
// suite finds out by itself what it claims.
var ready = []struct {
	name    string
	factory func() orbit.Navigator
	suite   navtest.Suite
}{
	{"services", func() orbit.Navigator { return &nav.Services{} }, navtest.Suite{}},
	{"services/exhaustive", func() orbit.Navigator { return &nav.Services{Placement: &orbit.Exhaustive{Seed: 7}} }, navtest.Suite{}},
	{"services/indexed", func() orbit.Navigator { return &nav.Services{Placement: &orbit.Indexed{Seed: 7}} }, navtest.Suite{}},
	{"services/sampled", func() orbit.Navigator { return &nav.Services{Placement: &orbit.Sampled{Seed: 7, Enough: 4}} }, navtest.Suite{}},
	{"batch", func() orbit.Navigator { return &nav.Batch{} }, navtest.Suite{}},
	{"batch/exhaustive", func() orbit.Navigator { return &nav.Batch{Placement: &orbit.Exhaustive{Seed: 7}} }, navtest.Suite{}},
	{"gang", func() orbit.Navigator { return &nav.Gang{} }, navtest.Suite{}},
	{"gang/holds-at-once", func() orbit.Navigator { return &nav.Gang{HoldAfter: 1} }, navtest.Suite{}},
	{"anchor", func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Services{}} }, navtest.Suite{}},
	{"anchor/self-match", func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true} }, navtest.Suite{}},
	{"anchor/batch", func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Batch{}, HoldFor: -1} }, navtest.Suite{}},
}

// The ready navigators keep every rule.
func TestReadyNavigators(t *testing.T) {
	for _, r := range ready {
		t.Run(r.name, func(t *testing.T) {
			r.suite.Worlds = worlds
			r.suite.Run(t, r.factory)
		})
	}
}
