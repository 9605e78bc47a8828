package navtest

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// Suite has the settings with which the rules are checked. The zero value is right for a navigator that claims by
// class, places on any node and needs no telemetry.
type Suite struct {
	// Modules are the modules of the work; name some that the navigator claims. Nil: two modules of the suite.
	Modules []string
	// Seed selects the random worlds: the same seed makes the same worlds. Default 1.
	Seed uint64
	// Worlds is the number of random worlds for each rule that draws them; default 64.
	Worlds int
	// Passes is the number of passes within which all work that fits easily must be placed; default 20. If the engine
	// hands over only a part of the work at a time, each part may take as many.
	Passes int
	// Patience is the longest time that one call of the navigator may take; default 10 s.
	Patience time.Duration
	// HoldFor is the longest time that a hold of the navigator may last; default 24 h.
	HoldFor time.Duration
	// Node is called with every node before the ledger sees it, to add what the navigator requires of nodes, such as a
	// label or a dimension; nil: not called. It must keep the id, remove nothing, and change equal nodes in the same
	// way.
	Node func(*orbit.Node)
	// Spec is called with every spec before the ledger sees it, to add what the navigator requires of work; nil: not
	// called. It must keep the class and the module, remove nothing, and change equal specs in the same way.
	Spec func(*orbit.Spec)
	// Filter is the navigator's own filter, if it has one: it returns why the navigator refuses a node that the ledger
	// would let it use, as a filter of the engines in package place does; "": it does not. Nil: the navigator refuses no
	// node. No rule requires that work is placed on a node that Filter refuses, and worlds in which work has to fit get
	// more nodes instead of those that it refuses while they are empty. Use Node if the filter requires a property that
	// every node can be given.
	Filter func(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) string
	// Telemetry is the telemetry that the views are joined with; nil: none.
	Telemetry orbit.Telemetry
	// Skip lists the rules that do not apply to this navigator, each with the reason, which the test output shows.
	Skip map[string]string
}

// Run checks the navigators that factory makes against every rule, each rule in a subtest of its name.
//
// Every world gets a navigator of its own, so factory must return a new one each time that shares nothing with the
// others, with the same seed if it has one. It is called from other goroutines than t's.
func (s Suite) Run(t *testing.T, factory func() orbit.Navigator) {
	t.Helper()
	h, err := s.harness(factory)
	if err != nil {
		t.Fatal(err)
	}
	h.Run(t)
}

// Check does what Run does without a test, and returns the broken rules by name, each with what was seen. A suite with
// invalid fields fails under the name "suite".
func (s Suite) Check(factory func() orbit.Navigator) map[string]error {
	h, err := s.harness(factory)
	if err != nil {
		return map[string]error{"suite": err}
	}
	return h.Check(nil)
}

// harness fills in the defaults, and returns an error if a field has an invalid value.
func (s Suite) harness(factory func() orbit.Navigator) (*harness.Suite[*trial], error) {
	if s.Worlds < 0 || s.Passes < 0 || s.Patience < 0 || s.HoldFor < 0 {
		return nil, errors.New("navtest: Worlds, Passes, Patience and HoldFor must not be negative")
	}
	if len(s.Modules) == 0 {
		s.Modules = []string{"navtest-a", "navtest-b"}
	}
	s.Seed = cmp.Or(s.Seed, 1)
	s.Worlds = cmp.Or(s.Worlds, 64)
	s.Passes = cmp.Or(s.Passes, 20)
	s.Patience = cmp.Or(s.Patience, 10*time.Second)
	s.HoldFor = cmp.Or(s.HoldFor, 24*time.Hour)
	h := &harness.Suite[*trial]{Rules: rules, Skip: s.Skip, Try: func(_ *testing.T, r *rule) *harness.Case { return s.try(r, factory) }}
	if err := h.Fault(); err != nil {
		return nil, fmt.Errorf("navtest: %w", err)
	}
	return h, nil
}
