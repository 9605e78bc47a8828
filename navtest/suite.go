package navtest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
)

// Run checks the navigators that factory makes against every rule, each rule in a subtest of its name. A
// navigator that claims work of certain modules only needs a [Suite] that names them.
//
// Every world gets a navigator of its own, so factory must return a new one each time, sharing nothing with
// the ones before it, with the same seed if it has one. It is called from other goroutines than t's.
func Run(t *testing.T, factory func() orbit.Navigator) {
	t.Helper()
	Suite{}.Run(t, factory)
}

// Suite is how the rules are checked. The zero value is right for a navigator that claims by class, places
// on any node and needs no telemetry.
type Suite struct {
	// Modules of the work that is made; name some that the navigator claims. Nil: two of the suite's own.
	Modules []string
	// Decides the random worlds: the same seed makes the same ones. Default 1.
	Seed uint64
	// Random worlds for each rule that draws them; default 64.
	Worlds int
	// Passes within which all that fits easily must be placed; default 20. Where the engine hands over only
	// part of the work at a time there are so many for each part.
	Passes int
	// Longest that one call into the navigator may take; default 10 s.
	Patience time.Duration
	// Longest that a hold of the navigator's may last; default 24 h.
	HoldFor time.Duration
	// If set, called with every node and every spec before the ledger sees it, to give it what the navigator
	// wants of nodes or of work: a label, a dimension. It must leave the id, the class and the module alone, take
	// nothing away, and change equal ones in an equal way.
	Node func(*orbit.Node)
	Spec func(*orbit.Spec)
	// What the views are joined with; nil: none.
	Telemetry orbit.Telemetry
	// Rules that are not for this navigator, each with the reason, which is shown.
	Skip map[string]string
}

// Failure is a rule that a navigator breaks.
type Failure struct {
	// Name of the rule.
	Case string
	// What was seen, with what it takes to see it again.
	Err error
}

// Error joins the two.
func (f Failure) Error() string { return f.Case + ": " + f.Err.Error() }

// Unwrap returns Err.
func (f Failure) Unwrap() error { return f.Err }

// Run is the function of that name, in the way the suite says.
func (s Suite) Run(t *testing.T, factory func() orbit.Navigator) {
	t.Helper()
	s = s.withDefaults()
	if err := s.fault(); err != nil {
		t.Fatal(err)
	}
	for i := range rules {
		t.Run(rules[i].name, func(t *testing.T) {
			if reason, skip := s.Skip[rules[i].name]; skip {
				t.Skip(reason)
			}
			if err := s.try(&rules[i], factory); err != nil {
				t.Errorf("rule: %s\nseen: %v", rules[i].text, err)
			}
		})
	}
}

// Check does what Run does without a test: it returns the rules that are broken, in the order of the
// manual, nil if none is. A suite that cannot be run fails under the case "suite".
func (s Suite) Check(factory func() orbit.Navigator) []Failure {
	s = s.withDefaults()
	if err := s.fault(); err != nil {
		return []Failure{{"suite", err}}
	}
	var failures []Failure
	for i := range rules {
		if _, skip := s.Skip[rules[i].name]; skip {
			continue
		}
		if err := s.try(&rules[i], factory); err != nil {
			failures = append(failures, Failure{rules[i].name, err})
		}
	}
	return failures
}

// withDefaults returns a copy in which everything is set.
func (s Suite) withDefaults() Suite {
	if len(s.Modules) == 0 {
		s.Modules = []string{"navtest-a", "navtest-b"}
	}
	s.Seed = cmp.Or(s.Seed, 1)
	s.Worlds = cmp.Or(s.Worlds, 64)
	s.Passes = cmp.Or(s.Passes, 20)
	s.Patience = cmp.Or(s.Patience, 10*time.Second)
	s.HoldFor = cmp.Or(s.HoldFor, 24*time.Hour)
	return s
}

// fault says what is wrong with the fields.
func (s Suite) fault() error {
	if s.Worlds < 0 || s.Passes < 0 || s.Patience < 0 || s.HoldFor < 0 {
		return errors.New("navtest: Worlds, Passes, Patience and HoldFor must not be negative")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Skip)) {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.name == name }) {
			return fmt.Errorf("navtest: Skip names %q, which is not a rule", name)
		}
	}
	return nil
}
