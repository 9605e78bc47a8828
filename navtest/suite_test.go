package navtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/navtest"
	"github.com/orbitsched/orbit/place"
)

// A navigator that keeps every rule passes, whatever it claims and in whichever of the ways that are allowed:
// so what catches a broken one is the break.
func TestWhatIsRightPasses(t *testing.T) {
	scale.Long(t)
	for name, p := range map[string]plain{
		"singles": services, "gangs": gangs, "both": both,
		"both, more than it is handed": {singles: true, gangs: true, wide: true},
		"singles, with random holds":   {singles: true, careful: true},
		"gangs, with random holds":     {gangs: true, careful: true},
	} {
		t.Run(name, func(t *testing.T) {
			navtest.Suite{Worlds: worlds}.Run(t, func() orbit.Navigator { fresh := p; return &fresh })
		})
	}
}

// The random worlds depend on the seed; what is right is right with any.
func TestSeeds(t *testing.T) {
	scale.Long(t)
	for seed := range uint64(scale.Of(2, 4)) {
		assert.Empty(t, navtest.Suite{Seed: 100 + seed, Worlds: worlds}.Check(func() orbit.Navigator { return &plain{singles: true, gangs: true} }))
		assert.Empty(t, navtest.Suite{Seed: 200 + seed, Worlds: worlds}.Check(func() orbit.Navigator { return &nav.Services{} }))
	}
}

// A navigator of one module is checked with work of that module, and told so if it is not.
func TestModules(t *testing.T) {
	web := func() orbit.Navigator { return &plain{singles: true, gangs: true, module: "web"} }
	navtest.Suite{Modules: []string{"ads", "web"}, Worlds: worlds}.Run(t, web)
	failures := navtest.Suite{}.Check(web)
	require.NotEmpty(t, failures)
	for _, f := range failures {
		assert.ErrorContains(t, f, `nothing of the modules ["navtest-a" "navtest-b"] is claimed`)
	}
}

// Nodes and work are made such that the navigator can use them.
func TestNodeAndSpec(t *testing.T) {
	picky := func() orbit.Navigator { return &plain{singles: true, picky: true} }
	navtest.Suite{
		Worlds: worlds,
		Node:   func(n *orbit.Node) { n.Labels["picked"] = "yes" },
		Spec: func(s *orbit.Spec) {
			s.Require = append(s.Require, orbit.Predicate{Key: "picked", Op: "Exists"})
		},
	}.Run(t, picky)
	judge(t, "liveness *", "is pending after 20 passes", navtest.Suite{Worlds: 4}.Check(picky))
}

// alive is telemetry that has heard of every node.
type alive struct{}

func (alive) Reports(context.Context, uint64) ([]orbit.Report, uint64, error) { return nil, 0, nil }
func (alive) Latest(node orbit.NodeID) (orbit.Report, bool) {
	return orbit.Report{Node: node, Received: time.Now(), FreeSlots: 1}, true
}
func (alive) StaleAfter() time.Duration { return time.Hour }

// A navigator that reads reports has some to read.
func TestTelemetry(t *testing.T) {
	slots := func() orbit.Navigator {
		return &nav.Services{Placement: &place.Indexed{Filter: func(_ *orbit.NodeState, r *orbit.Report, _ *orbit.Spec) string {
			if r.Stale || r.FreeSlots == 0 {
				return "have said nothing"
			}
			return ""
		}}}
	}
	navtest.Suite{Telemetry: alive{}, Worlds: worlds}.Run(t, slots)
	judge(t, "liveness *", "is pending after 20 passes", navtest.Suite{Worlds: 4}.Check(slots))
}

// What is skipped is not checked, in either way; and what is no rule cannot be skipped.
func TestSkip(t *testing.T) {
	careless := func() orbit.Navigator { return &plain{singles: true, breaks: "ignores its context"} }
	suite := navtest.Suite{Worlds: 4, Skip: map[string]string{"context": "its plans are short"}}
	assert.Empty(t, suite.Check(careless))
	suite.Run(t, careless)
	suite.Skip["contexts"] = "a slip of the pen"
	failures := suite.Check(careless)
	require.Len(t, failures, 1)
	assert.ErrorContains(t, failures["suite"], `Skip names "contexts"`)
	assert.ErrorContains(t, navtest.Suite{Passes: -1}.Check(careless)["suite"], "must not be negative")
}

// A factory that fails is reported, under every rule.
func TestFactory(t *testing.T) {
	for want, factory := range map[string]func() orbit.Navigator{
		"the factory returns nil":              func() orbit.Navigator { return nil },
		"the factory: it panicked: no licence": func() orbit.Navigator { panic("no licence") },
		"the factory has not returned after 5": func() orbit.Navigator { select {} },
	} {
		suite := navtest.Suite{}
		if strings.Contains(want, "returned after") {
			suite.Patience = 5 * time.Millisecond
		}
		failures := suite.Check(factory)
		require.NotEmpty(t, failures)
		for _, f := range failures {
			assert.ErrorContains(t, f, want)
		}
	}
}

var errTired = errors.New("tired")

// Errors come through, and so do panics in what a plan returns.
func TestFailuresCanBeRead(t *testing.T) {
	tired := nav.Func(func(context.Context, *orbit.View, []*orbit.Capsule) (orbit.Plan, error) {
		return orbit.Plan{}, errTired
	})
	failures := navtest.Suite{Worlds: 1}.Check(func() orbit.Navigator { return tired })
	require.NotEmpty(t, failures)
	for name, err := range failures {
		if name != "context" { // which expects errors
			assert.ErrorIs(t, err, errTired)
		}
	}
	rude := nav.Func(func(_ context.Context, _ *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
		for _, c := range pending {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: rudeness{}})
		}
		return plan, nil
	})
	judge(t, "explanation *", "it panicked: none of your business", navtest.Suite{Worlds: 1}.Check(func() orbit.Navigator { return rude }))
}

type rudeness struct{}

func (rudeness) Error() string { panic("none of your business") }
