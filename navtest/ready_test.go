package navtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/navtest"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/sandbox"
)

// ready are the navigators of packages nav and sandbox, in the ways in which they are used. To add one, add a line: the
// suite finds out by itself what it claims.
var ready = []struct {
	name    string
	factory func() orbit.Navigator
	suite   navtest.Suite
}{
	{"services", func() orbit.Navigator { return &nav.Services{} }, navtest.Suite{}},
	{"services/exhaustive", func() orbit.Navigator { return &nav.Services{Placement: &place.Exhaustive{Seed: 7}} }, navtest.Suite{}},
	{"services/indexed", func() orbit.Navigator { return &nav.Services{Placement: &place.Indexed{Seed: 7}} }, navtest.Suite{}},
	{"services/sampled", func() orbit.Navigator { return &nav.Services{Placement: &place.Sampled{Seed: 7, Enough: 4}} }, navtest.Suite{}},
	{"batch", func() orbit.Navigator { return &nav.Batch{} }, navtest.Suite{}},
	{"batch/exhaustive", func() orbit.Navigator { return &nav.Batch{Placement: &place.Exhaustive{Seed: 7}} }, navtest.Suite{}},
	{"gang", func() orbit.Navigator { return &nav.Gang{} }, navtest.Suite{}},
	{"anchor", func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Services{}} }, navtest.Suite{}},
	{"anchor/self-match", func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true} }, navtest.Suite{}},
	{"anchor/batch", func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Batch{}, HoldFor: -1} }, navtest.Suite{}},
	{"preempting", func() orbit.Navigator { return &nav.Preempting{Navigator: &nav.Services{}} }, navtest.Suite{}},
	{"preempting/gang", func() orbit.Navigator { return &nav.Preempting{Navigator: &nav.Gang{}} }, navtest.Suite{}},
	{"warm", func() orbit.Navigator { return &sandbox.Warm{} }, navtest.Suite{}},
	{"warm/telemetry", func() orbit.Navigator { return &sandbox.Warm{Seed: 7} }, navtest.Suite{Telemetry: idle{}}},
	{"warm/modules", func() orbit.Navigator { return &sandbox.Warm{Modules: []string{"sandbox"}} }, navtest.Suite{Modules: []string{"sandbox"}}},
}

// idle is telemetry in which every node there may be is fresh and has slots to spare.
type idle struct{}

func (idle) Reports(context.Context, uint64) ([]orbit.Report, uint64, error) { return nil, 0, nil }

func (idle) Latest(node orbit.NodeID) (orbit.Report, bool) {
	return orbit.Report{Node: node, At: time.Unix(1, 0), Received: time.Now(), FreeSlots: 1 << 30}, true
}

func (idle) StaleAfter() time.Duration { return 0 }

// The ready navigators keep every rule.
func TestReadyNavigators(t *testing.T) {
	scale.Long(t)
	for _, r := range ready {
		t.Run(r.name, func(t *testing.T) {
			r.suite.Worlds = worlds
			r.suite.Run(t, r.factory)
		})
	}
}
