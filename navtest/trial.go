package navtest

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// trial is the check of one rule.
type trial struct {
	*harness.Case
	suite   Suite
	rule    string
	factory func() orbit.Navigator
	// mine are the claimed pairs of a suite's module and a class; rest are the other pairs.
	mine, rest []pair
}

// pair is a module and a class, as in the arguments of Claims.
type pair struct {
	module string
	class  orbit.AppClass
}

// String returns the pair as error texts show it.
func (p pair) String() string { return fmt.Sprintf("Claims(%q, %v)", p.module, p.class) }

// classes are all classes.
var classes = []orbit.AppClass{orbit.LatencySensitive, orbit.BestEffort, orbit.Batch, orbit.GangClass}

// try checks one rule. Every call of the navigator ends after Suite.Patience at the latest, so the check ends too.
func (s Suite) try(r *rule, factory func() orbit.Navigator) *harness.Case {
	return harness.Try(0, func(c *harness.Case) {
		t := &trial{Case: c, suite: s, rule: r.Name, factory: factory}
		t.survey()
		r.Check(t)
	})
}

// navigator returns a new navigator of the factory.
func (t *trial) navigator() (n orbit.Navigator) {
	t.Must(harness.Within(t.suite.Patience, "the factory", func() { n = t.factory() }))
	if n == nil {
		t.Failf("the factory returns nil")
	}
	return n
}

// survey asks which pairs the navigator claims. It ends the case if there is none, because then nothing could be
// checked.
func (t *trial) survey() {
	n := t.navigator()
	for _, module := range t.suite.Modules {
		for _, class := range classes {
			if p := (pair{module, class}); t.claims(n, p) {
				t.mine = append(t.mine, p)
			} else {
				t.rest = append(t.rest, p)
			}
		}
	}
	if len(t.mine) == 0 {
		t.Failf("nothing of the modules %q is claimed, in any class; name modules that are, in Suite.Modules", t.suite.Modules)
	}
}

// claims asks the navigator about one pair.
func (t *trial) claims(n orbit.Navigator, p pair) (yes bool) {
	t.Must(harness.Within(t.suite.Patience, p.String(), func() { yes = n.Claims(p.module, p.class) }))
	return yes
}

// gangs reports whether the navigator claims gangs of any module.
func (t *trial) gangs() bool {
	return slices.ContainsFunc(t.mine, func(p pair) bool { return p.class == orbit.GangClass })
}

// singles returns the claimed pairs that are no gangs.
func (t *trial) singles() (out []pair) {
	for _, p := range t.mine {
		if p.class != orbit.GangClass {
			out = append(out, p)
		}
	}
	return out
}

// draw calls f for each random world, with dice that depend on the seed, the rule and the number of the world alone.
func (t *trial) draw(f func(dice)) {
	for i := range t.suite.Worlds {
		t.Where = fmt.Sprintf("seed %d, world %d: ", t.suite.Seed, i)
		f(dice{harness.Rand(t.suite.Seed, t.rule, i)})
	}
	t.Where = ""
}
