package ledgertest

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// Suite has the settings with which a ledger is checked. The zero value is right for a ledger of one process that
// answers within milliseconds.
type Suite struct {
	// Peer opens another handle on the same ledger, as a second process would; it is called right after open, once in
	// each case. Races then use both handles, and the suite compares their answers. Nil: there is one handle.
	Peer func(t *testing.T, l orbit.Ledger) orbit.Ledger
	// Seed selects the random parts of all cases; default 1.
	Seed uint64
	// Scale multiplies the load of the races, of the case "load" and of the case "compaction"; default 1.
	Scale float64
	// Patience is the longest time that one case may take, and so the longest that it waits for any event; default 1
	// min.
	Patience time.Duration
	// Skip lists the rules that do not apply to this ledger, each with the reason, which the test output shows.
	Skip map[string]string
}

// Run checks the ledgers that open returns against every rule, each in a subtest of its name. Open must return a fresh
// and empty ledger each time. It is called with the subtest's t, and may use that to clean up.
func (s Suite) Run(t *testing.T, open func(t *testing.T) orbit.Ledger) {
	t.Helper()
	h, err := s.harness(open)
	if err != nil {
		t.Fatal(err)
	}
	h.Run(t)
}

// Check does what Run does, but returns the broken rules by name, each with what was seen, and does not fail t. It
// passes t to open and to Peer only. A suite with invalid fields fails under the name "suite".
func (s Suite) Check(t *testing.T, open func(t *testing.T) orbit.Ledger) map[string]error {
	t.Helper()
	h, err := s.harness(open)
	if err != nil {
		return map[string]error{"suite": err}
	}
	return h.Check(t)
}

// harness fills in the defaults, and returns an error if a field has an invalid value.
func (s Suite) harness(open func(t *testing.T) orbit.Ledger) (*harness.Suite[*trial], error) {
	s.Seed = cmp.Or(s.Seed, 1)
	s.Scale = cmp.Or(s.Scale, 1)
	s.Patience = cmp.Or(s.Patience, time.Minute)
	h := &harness.Suite[*trial]{Rules: rules, Skip: s.Skip, Try: func(t *testing.T, r *rule) *harness.Case { return s.try(t, r, open) }}
	if !(s.Scale > 0) || s.Patience < 0 {
		return nil, errors.New("ledgertest: Scale and Patience must not be negative")
	}
	if err := h.Fault(); err != nil {
		return nil, fmt.Errorf("ledgertest: %w", err)
	}
	return h, nil
}
