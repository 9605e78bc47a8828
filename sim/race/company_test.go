package race_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/sim/race"
)

// Where the seeds of the races for company begin, and how many the ordinary test tries.
var (
	companySeed  = flag.Uint64("company.seed", 1, "the first seed of the races for company")
	companySeeds = flag.Int("company.seeds", scale.WithRace(40, 100), "how many races for company are run")
)

// However work is placed and moved, and nodes come, go and change their racks: nothing is ever placed against a rule Apart or Even, its own or
// that of another. With -tags stress there are 5,000 races, times ORBIT_STRESS_SCALE, and -v says how far it is.
func TestCompany(t *testing.T) {
	const each = 250
	races := seeds(scale.Of(*companySeeds, 5_000))
	var done, committed, lost, raw atomic.Int64
	t.Run("races", func(t *testing.T) {
		for from := 0; from < races; from += each {
			t.Run(fmt.Sprint("from ", from), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := min(each, races-from)
					for i := range n {
						seed := *companySeed + uint64(from+i)
						r := race.Company(seed)
						res := r.Run(seed)
						if res.Err != nil {
							t.Fatal(r.Shrink(res).Story())
						}
						for k := range res.Schedulers {
							committed.Add(int64(res.Schedulers[k].Committed))
							lost.Add(int64(res.Schedulers[k].Conflicts))
						}
						raw.Add(int64(res.Schedulers[0].Committed))
					}
					t.Logf("%d of %d races", done.Add(int64(n)), races)
				})
			})
		}
	})
	t.Logf("%d races: %d proposals committed, %d of them raw; %d lost to others; rules broken 0", races, committed.Load(), raw.Load(), lost.Load())
	if races >= 40 {
		require.Positive(t, raw.Load())
		require.Greater(t, committed.Load(), raw.Load())
		require.Positive(t, lost.Load())
	}
}

// without takes specs without some of their rules.
func without(strip func(*orbit.Spec)) func(*orbit.State, orbit.Proposal) (commit, show, behind []orbit.Commitment) {
	return func(_ *orbit.State, p orbit.Proposal) (commit, _, _ []orbit.Commitment) {
		for _, do := range p.Do {
			c, ok := do.(orbit.Submit)
			if !ok {
				return nil, nil, nil
			}
			spec := *c.Spec
			spec.Even = slices.Clone(spec.Even)
			strip(&spec)
			c.Spec = &spec
			commit = append(commit, c)
		}
		return commit, p.Do, nil
	}
}

// judgesOnTheView commits what keeps the rules of company on the view that it was planned by, as schedulers do that judge before they bind.
func judgesOnTheView(s *orbit.State, p orbit.Proposal) (commit, _, _ []orbit.Commitment) {
	var r *orbit.Rejection
	if err := s.Check(p); !errors.As(err, &r) || r.Group == "" || !errors.Is(r.Kind, orbit.ErrConflict) {
		return nil, nil, nil
	}
	commit = slices.Clone(p.Do)
	for i, do := range commit {
		if c, ok := do.(orbit.Place); ok {
			commit[i] = orbit.Adopt{Capsule: c.Capsule, Node: c.Node} // which is a fact
		}
	}
	return commit, p.Do, nil
}

// looksPastWhatStops lets come beside what still stops who would have to wait for it.
func looksPastWhatStops(s *orbit.State, p orbit.Proposal) (commit, _, _ []orbit.Commitment) {
	var r *orbit.Rejection
	if err := s.Check(p); !errors.As(err, &r) || r.Group == "" {
		return nil, nil, nil
	}
	other := p
	other.Do = slices.Clone(p.Do)
	for i, do := range other.Do {
		if c, ok := do.(orbit.Place); ok {
			c.After = true
			other.Do[i] = c
		}
	}
	if s.Check(other) != nil {
		return nil, nil, nil
	}
	return other.Do, p.Do, nil
}

// Each way to forget a rule of company is found within 3,000 races, and the failure is made small. "judges on the view" is
// the bug of kubernetes/kubernetes#138546: two binds, each of which was right on the view of its scheduler.
func TestCompanyFindsWhatIsBroken(t *testing.T) {
	scale.Sweep(t)
	for _, c := range scale.Some(5, []struct {
		name    string
		instead func(*orbit.State, orbit.Proposal) (commit, show, behind []orbit.Commitment)
		rule    string
	}{
		{"knows no Apart", without(func(s *orbit.Spec) { s.Apart = nil }), "not apart"},
		{"knows no Even", without(func(s *orbit.Spec) { s.Even = nil }), "not even"},
		{"knows no MinDomains", without(func(s *orbit.Spec) {
			for i := range s.Even {
				s.Even[i].MinDomains = 0
			}
		}), "not even"},
		{"knows no extras", without(func(s *orbit.Spec) { s.Extras = nil }), "lacks an extra"},
		{"judges on the view", judgesOnTheView, ""},
		{"looks past what still stops", looksPastWhatStops, "not apart"}, // takes seconds to be made small
	}...) {
		t.Run(c.name, func(t *testing.T) {
			found := func(seed uint64) *race.Config {
				r := race.Company(seed)
				r.Ledger = func() orbit.Ledger { return &lax{instead: c.instead} }
				r.Check = -1 // it is found by the rules of the race alone
				return r
			}
			if c.rule != "" {
				finds(t, 3000, c.rule, found)
				return
			}
			synctest.Test(t, func(t *testing.T) {
				res := race.Scenario(found).Hunt(1, 300)
				require.NotNil(t, res, "not found")
				t.Log("\n" + res.Story())
				require.Regexp(t, "^(not (apart|even)|lacks an extra):", res.Err.Error())
			})
		})
	}
}
