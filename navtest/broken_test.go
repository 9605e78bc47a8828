package navtest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/navtest"
)

// The full number is the default of Suite.Worlds.
var worlds = scale.WithRace(4, scale.Of(4, 64))

var services, gangs, both = plain{singles: true}, plain{gangs: true}, plain{singles: true, gangs: true}

// broken are navigators that break one rule each. The case that is named first must catch it, those after it
// may; "*" means that with this break nothing works.
var broken = []struct {
	breaks string
	like   plain
	caught string
	// Part of what that case says.
	says string
}{
	{"changes its mind", services, "claims *", "at first, and"},
	{"panics at odd names", services, "claims", "it panicked: what a name"},
	{"claims nothing", services, "claims *", "is claimed, in any class"},

	{"takes what is assigned to others", services, "ownership explanation gangs odd-worlds", `which is assigned to "navtest-other"`},
	{"takes what it does not claim", plain{singles: true, module: "navtest-a"}, "ownership", "which it does not claim"},
	{"places what is placed", services, "ownership capacity devices company freshness odd-worlds", "which is on node"},
	{"places twice", services, "ownership capacity devices conflict recovery odd-worlds", "which the same plan has placed already"},
	{"ends holds of others", services, "ownership exhaustion", "releases hold"},
	{"nominates for others", services, "ownership explanation gangs odd-worlds capacity", "nominates capsule"},
	{"evicts its equals", services, "ownership *", "is not higher than"},
	{"says what has stopped", services, "ownership *", "has stopped, which the agent of its node would say"},
	{"drains nodes", services, "ownership priority conflict recovery exhaustion odd-worlds liveness", "changes the constellation"},

	{"does not reserve", services, "capacity devices priority context conflict odd-worlds", "cannot be committed after those before it"},
	{"does not reserve devices", services, "capacity devices", "cannot be committed after those before it"},
	{"counts CPU and memory alone", services, "capacity odd-worlds", "cannot be committed after those before it"},
	{"overlooks holds", services, "capacity ownership exhaustion", "cannot be committed after those before it"},
	{"ignores requirements", services, "requirements capacity liveness", "does not meet"},
	{"ignores taints", services, "requirements capacity", "does not tolerate"},
	{"ignores drains", services, "requirements capacity freshness odd-worlds", "is unschedulable"},
	{"takes no label for any label", services, "requirements capacity liveness", "does not meet"},
	{"ignores devices", services, "devices capacity odd-worlds liveness", "devices, the placement names 0"},
	{"ignores models", services, "devices capacity", "has devices of model"},
	{"ignores health", services, "devices capacity liveness", "not all there and healthy"},
	{"forgets company", services, "company capacity", "which is in"},
	{"begins groups anywhere", services, "company capacity", "which is in"},
	{"begins groups of others", services, "company capacity", "of which nothing is running"},

	{"keeps its first view", services, "freshness *", ""},
	{"keeps its first nodes", services, "freshness *", "which is not a member"},
	{"ignores drains", services, "freshness requirements capacity odd-worlds", "which is unschedulable"},
	{"says an old revision", services, "freshness *", "says that it was planned on revision 1"},
	{"serves the last first", services, "priority", "is placed, and priority"},
	{"has one id for all", services, "identity *", "leave that to the engine"},
	{"holds for ever", services, "holds", "after the view's instant"},

	{"ignores its context", services, "context", "never looks at its context"},
	{"looks at its context once", services, "context", "looks at its context once"},
	{"looks at its context and goes on", services, "context", "the plan is whole nevertheless"},
	{"ends without a word", services, "context", "has not accounted for all of the work"},
	{"hides that it was cut short", services, "context", "an error that is not the context's"},
	{"never returns", services, "context *", "has not returned after 50ms"},
	{"exits its goroutine", services, "liveness *", "exited its goroutine"},

	{"goes by map order", services, "determinism", "and its twin"},
	{"explains nothing", services, "explanation gangs odd-worlds", "neither placed nor explained"},
	{"explains what it places", services, "explanation odd-worlds", "and is placed as well"},
	{"explains twice", services, "explanation gangs odd-worlds", "said twice to be unplaced"},
	{"gives blank reasons", services, "explanation odd-worlds", "nothing says why"},

	{"remembers what is done", services, "conflict explanation recovery odd-worlds", "is pending after 20 passes"},
	{"never forgets what it reserved", services, "conflict priority recovery exhaustion", ""},
	{"remembers what is done", services, "recovery conflict explanation odd-worlds", "all its capsules have been evicted"},
	{"never forgets what it reserved", services, "recovery conflict priority exhaustion", "six capsules have been evicted"},
	{"remembers what is hopeless", services, "recovery priority exhaustion", "is pending after 20 passes"},
	{"says NoFit of what it puts off", services, "exhaustion recovery liveness", "is said to fit nowhere"},

	{"takes gangs for capsules", services, "gangs", "does not claim gangs"},
	{"explains nothing", services, "odd-worlds explanation gangs", "neither placed nor explained"},
	{"panics without nodes", services, "odd-worlds", "it panicked"},
	{"lets sums wrap", services, "odd-worlds", "cannot be committed"},
	{"makes one proposal of all", services, "odd-worlds", "cannot be committed"},
	{"places nothing", services, "liveness *", "is pending after 20 passes"},

	{"places members one by one", gangs, "gangs *", "members placed, at least"},
	{"splits gangs", gangs, "gangs *", "members placed, at least"},
	{"scatters gangs", gangs, "gangs", "would share no domain"},
	{"tries wide levels first", gangs, "gangs", "it is not on one rack, though there it fits"},
	{"begins below the minimum", gangs, "gangs capacity odd-worlds", "members placed, at least"},
	{"never tops up", gangs, "gangs", "there is room for the rest on its rack"},
	{"does not reserve devices", gangs, "devices capacity odd-worlds liveness", "of device"},
	{"does not reserve", gangs, "capacity *", "cannot be committed after those before it"},
	{"keeps its first view", gangs, "freshness *", ""},
	{"goes by map order", gangs, "determinism", "and its twin"},
	{"ignores its context", gangs, "context", "never looks at its context"},
	{"ignores requirements", gangs, "requirements capacity liveness", "does not meet"},
	{"ignores devices", gangs, "devices capacity odd-worlds liveness", "devices, the placement names 0"},
	{"lets sums wrap", gangs, "odd-worlds", "cannot be committed"},
	{"serves the last first", gangs, "priority", "is placed, and priority"},
	{"never forgets what it reserved", gangs, "conflict priority recovery gangs", ""},

	{"splits gangs", both, "gangs *", "members placed, at least"},
	{"scatters gangs", both, "gangs", "would share no domain"},
}

func TestBrokenNavigatorsAreCaughtByName(t *testing.T) {
	scale.Long(t)
	tried := map[string]bool{}
	for _, b := range broken {
		rule, _, _ := strings.Cut(b.caught, " ")
		if tried[rule] && scale.Of(0, 1) == 0 || scale.Race && len(tried) >= 8 {
			continue // all take ten seconds, and minutes with the race detector, which would find in one what is racy in another
		}
		tried[rule] = true
		t.Run(rule+"/"+b.breaks, func(t *testing.T) {
			suite := navtest.Suite{Worlds: scale.Of(5, 12)}
			switch b.breaks {
			case "never returns":
				suite.Patience = 50 * time.Millisecond
			case "scatters gangs":
				suite.Worlds = 12 // random worlds in which a gang has to be scattered are rare
			}
			judge(t, b.caught, b.says, suite.Check(func() orbit.Navigator {
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
	scale.Long(t)
	for _, into := range scale.Some(3, "the slice", "a capsule", "a spec", "a requirement", "a label", "a node's count", "a gang") {
		t.Run(into, func(t *testing.T) {
			suite := navtest.Suite{Worlds: 12, Modules: []string{"scribbled by " + into}}
			judge(t, "read-only *", "written to", suite.Check(func() orbit.Navigator { return &scribbler{plain: both, into: into} }))
		})
	}
}

// judge compares the cases that have caught a break with those that must and may, and reads what the first says.
func judge(t *testing.T, caught, says string, failures map[string]error) {
	cases := strings.Fields(caught)
	for name, err := range failures {
		t.Logf("%s: %v", name, err)
		if !slices.Contains(cases, "*") {
			assert.Contains(t, cases, name, "it is not what this break is about")
		}
	}
	require.Contains(t, failures, cases[0])
	assert.ErrorContains(t, failures[cases[0]], says)
}
