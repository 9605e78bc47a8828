package navtest

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// The rule: Claims always returns the same for the same arguments: the first time and later, before and after planning,
// from any goroutine, and in every navigator of the factory.

// oddModules are unusual names of modules.
var oddModules = []string{"", " ", "/", "a/b", "\x00", "é\u202e", "%s%n", "navtest-a ", strings.Repeat("m", 300)}

// oddClasses are all classes, and some that do not exist.
var oddClasses = append(slices.Clone(classes), 4, 100, 255)

func checkClaims(t *trial) {
	w := t.world()
	first := t.answers(w.under)
	t.compare("the second time", first, t.answers(w.under))
	t.compare("of another navigator of the factory", first, t.answers(t.navigator()))
	w.racks(1)
	w.easy(t.mine)
	w.passing()
	t.compare("after a plan", first, t.answers(w.under))

	var all sync.WaitGroup
	var answers [4]map[pair]bool
	var errs [4]error
	for i := range answers {
		all.Go(func() { answers[i], errs[i] = t.collect(w.under) })
	}
	all.Wait()
	t.Must(errors.Join(errs[:]...))
	for _, got := range answers {
		t.compare("asked from several goroutines", first, got)
	}
}

// answers asks about all pairs, and ends the case if that fails.
func (t *trial) answers(n orbit.Navigator) map[pair]bool {
	answers, err := t.collect(n)
	t.Must(err)
	return answers
}

// collect asks about all pairs. It may be called from any goroutine.
func (t *trial) collect(n orbit.Navigator) (answers map[pair]bool, err error) {
	err = harness.Within(t.suite.Patience, "Claims", func() {
		answers = map[pair]bool{}
		for _, module := range slices.Concat(t.suite.Modules, oddModules) {
			for _, class := range oddClasses {
				answers[pair{module, class}] = n.Claims(module, class)
			}
		}
	})
	return answers, err
}

// compare ends the case if an answer has changed.
func (t *trial) compare(when string, first, now map[pair]bool) {
	for _, module := range slices.Concat(t.suite.Modules, oddModules) {
		for _, class := range oddClasses {
			if p := (pair{module, class}); first[p] != now[p] {
				t.Failf("%v is %v at first, and %v %s", p, first[p], now[p], when)
			}
		}
	}
}
