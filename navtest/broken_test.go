package navtest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/navtest"
)

var services, gangs, both = plain{singles: true}, plain{gangs: true}, plain{singles: true, gangs: true}

// broken are navigators that break one rule each. The case that is named first must catch it, those after it
// may; "*" means that with this break nothing works.
var broken = []struct {
	breaks string
	like   plain
	caught string
}{
	{"changes its mind", services, "claims *"},
	{"panics at odd names", services, "claims"},
	{"claims nothing", services, "claims *"},

	{"takes what is assigned to others", services, "ownership"},
	{"takes what it does not claim", services, "ownership"},
	{"places what is placed", services, "ownership capacity devices company freshness odd-worlds"},
	{"places twice", services, "ownership capacity devices conflict recovery odd-worlds"},
	{"ends holds of others", services, "ownership exhaustion"},
	{"drains nodes", services, "ownership priority conflict recovery exhaustion odd-worlds liveness"},

	{"does not reserve", services, "capacity devices priority context conflict odd-worlds"},
	{"does not reserve devices", services, "capacity devices"},
	{"counts CPU and memory alone", services, "capacity odd-worlds"},
	{"overlooks holds", services, "capacity ownership exhaustion"},
	{"ignores requirements", services, "requirements capacity"},
	{"ignores drains", services, "requirements capacity freshness odd-worlds"},
	{"takes no label for any label", services, "requirements capacity"},
	{"ignores devices", services, "devices capacity odd-worlds liveness"},
	{"ignores models", services, "devices capacity"},
	{"ignores health", services, "devices capacity liveness"},
	{"forgets company", services, "company"},
	{"begins groups anywhere", services, "company"},

	{"keeps its first view", services, "freshness *"},
	{"says an old revision", services, "freshness"},
	{"serves the last first", services, "priority"},
	{"has one id for all", services, "identity recovery exhaustion"},
	{"holds for ever", services, "holds"},

	{"ignores its context", services, "context"},
	{"looks at its context once", services, "context"},
	{"hides that it was cut short", services, "context"},
	{"never returns", services, "context *"},
	{"exits its goroutine", services, "liveness *"},

	{"goes by map order", services, "determinism"},
	{"explains nothing", services, "explanation gangs odd-worlds"},
	{"explains what it places", services, "explanation odd-worlds"},
	{"explains twice", services, "explanation gangs odd-worlds"},
	{"gives blank reasons", services, "explanation odd-worlds"},

	{"remembers what is done", services, "conflict explanation recovery odd-worlds"},
	{"never forgets what it reserved", services, "conflict priority recovery exhaustion"},
	{"remembers what is hopeless", services, "recovery priority exhaustion"},
	{"says NoFit of what it puts off", services, "exhaustion recovery liveness"},

	{"takes gangs for capsules", services, "gangs"},
	{"panics without nodes", services, "odd-worlds"},
	{"lets sums wrap", services, "odd-worlds"},
	{"makes one proposal of all", services, "odd-worlds"},
	{"places nothing", services, "liveness *"},

	{"places members one by one", gangs, "gangs *"},
	{"splits gangs", gangs, "gangs *"},
	{"scatters gangs", gangs, "gangs"},
	{"begins below the minimum", gangs, "gangs capacity odd-worlds"},
	{"never tops up", gangs, "gangs"},
	{"does not reserve", gangs, "capacity *"},
	{"keeps its first view", gangs, "freshness *"},
	{"goes by map order", gangs, "determinism"},
	{"ignores its context", gangs, "context"},
	{"ignores requirements", gangs, "requirements capacity"},
	{"ignores devices", gangs, "devices capacity odd-worlds liveness"},
	{"lets sums wrap", gangs, "odd-worlds"},
	{"serves the last first", gangs, "priority"},
	{"never forgets what it reserved", gangs, "conflict priority recovery gangs"},

	{"splits gangs", both, "gangs *"},
	{"scatters gangs", both, "gangs"},
}

func TestBrokenNavigatorsAreCaughtByName(t *testing.T) {
	for _, b := range broken {
		rule, _, _ := strings.Cut(b.caught, " ")
		t.Run(rule+"/"+b.breaks, func(t *testing.T) {
			suite := navtest.Suite{Worlds: 12, Patience: time.Second}
			judge(t, b.caught, suite.Check(func() orbit.Navigator {
				p := b.like
				p.breaks = b.breaks
				return &p
			}))
		})
	}
}

// Writes are caught, whatever is written to, and by the rule that says so; what they do to other rules differs.
// Equal specs are one for all ledgers of a process, so these have modules of their own to spoil.
func TestScribblersAreCaught(t *testing.T) {
	for _, into := range []string{"the slice", "a capsule", "a spec", "a requirement", "a label", "a node's count", "a gang"} {
		t.Run(into, func(t *testing.T) {
			suite := navtest.Suite{Worlds: 12, Modules: []string{"scribbled by " + into}}
			judge(t, "read-only *", suite.Check(func() orbit.Navigator { return &scribbler{plain: both, into: into} }))
		})
	}
}

// judge compares the cases that have caught a break with those that must and may.
func judge(t *testing.T, caught string, failures []navtest.Failure) {
	cases := strings.Fields(caught)
	var by []string
	for _, f := range failures {
		by = append(by, f.Case)
		t.Logf("%v", f)
		if !slices.Contains(cases, "*") {
			assert.Contains(t, cases, f.Case, "it is not what this break is about")
		}
	}
	require.Contains(t, by, cases[0])
}
