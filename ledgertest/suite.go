package ledgertest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
)

// Options are how a ledger is checked. The zero value is right for a ledger of one process that answers within
// milliseconds.
type Options struct {
	// Another handle on the same ledger, such as a second process would have; it is asked for right after open,
	// once in each case. Races are then run, and answers compared, over both. Nil: there is only the one.
	Peer func(t *testing.T, l orbit.Ledger) orbit.Ledger
	// Decides what is random; default 1.
	Seed uint64
	// How much load the races, the load and the case "compaction" make, as a factor; default 1.
	Scale float64
	// Longest that a case may take, and thus longest that it waits for anything; default 1 min.
	Patience time.Duration
	// Rules that are not for this ledger, each with the reason, which is shown.
	Skip map[string]string
}

// Failure is a rule that a ledger breaks.
type Failure struct {
	// Name of the rule, as that of the subtest.
	Case string
	// What was seen, after the rule, why it is there and the scenarios.
	Err error
}

// Error joins the two.
func (f Failure) Error() string { return f.Case + ": " + f.Err.Error() }

// Unwrap returns Err.
func (f Failure) Unwrap() error { return f.Err }

// Run checks the ledgers that open returns against every rule, each in a subtest of its name. Open returns a fresh
// and empty one each time; it is called with the subtest's t, and may use it to clean up.
func Run(t *testing.T, open func(t *testing.T) orbit.Ledger, o Options) {
	t.Helper()
	o = o.withDefaults()
	if err := o.fault(); err != nil {
		t.Fatal(err)
	}
	for i := range rules {
		r := &rules[i]
		t.Run(r.name, func(t *testing.T) {
			if reason, skip := o.Skip[r.name]; skip {
				t.Skip(reason)
			}
			run := o.try(t, r, open)
			t.Logf("%s\n%s", r.header(), strings.Join(run.notes, "\n"))
			switch {
			case run.err != nil:
				t.Errorf("seen: %v", run.err)
			case run.unfit != "":
				t.Skip(run.unfit)
			}
		})
	}
}

// Check does what Run does and returns the rules that are broken, in the order of the manual, instead of failing
// t; nil if none is. T is only handed to open and to Peer. Options that cannot be used fail under the case
// "options".
func Check(t *testing.T, open func(t *testing.T) orbit.Ledger, o Options) []Failure {
	t.Helper()
	o = o.withDefaults()
	if err := o.fault(); err != nil {
		return []Failure{{"options", err}}
	}
	var failures []Failure
	for i := range rules {
		if _, skip := o.Skip[rules[i].name]; skip {
			continue
		}
		if run := o.try(t, &rules[i], open); run.err != nil {
			failures = append(failures, Failure{rules[i].name, fmt.Errorf("%s\nseen: %w", rules[i].header(), run.err)})
		}
	}
	return failures
}

// withDefaults returns a copy in which everything is set.
func (o Options) withDefaults() Options {
	o.Seed = cmp.Or(o.Seed, 1)
	o.Scale = cmp.Or(o.Scale, 1)
	o.Patience = cmp.Or(o.Patience, time.Minute)
	return o
}

// fault says what is wrong with the fields.
func (o Options) fault() error {
	if !(o.Scale > 0) || o.Patience < 0 {
		return errors.New("ledgertest: Scale and Patience must not be negative")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Skip)) {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.name == name }) {
			return fmt.Errorf("ledgertest: Skip names %q, which is not a rule", name)
		}
	}
	return nil
}
