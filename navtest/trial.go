package navtest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// trial is one rule being checked. It runs in a goroutine of its own, which failf ends as
// testing.T.Fatalf would, so that checks read like tests and need no test to run in.
type trial struct {
	Suite
	rule    *rule
	factory func() orbit.Navigator
	// Of the suite's modules with all classes: what the navigator claims, and the rest.
	mine, rest []pair
	// What is going on, for messages.
	where string
	err   error
}

// pair is what a navigator is asked about.
type pair struct {
	module string
	class  orbit.AppClass
}

// String returns how the pair is written in messages.
func (p pair) String() string { return fmt.Sprintf("Claims(%q, %v)", p.module, p.class) }

// classes are all that there are.
var classes = []orbit.AppClass{orbit.LatencySensitive, orbit.BestEffort, orbit.Batch, orbit.GangClass}

// try checks one rule and returns how it is broken.
func (s Suite) try(r *rule, factory func() orbit.Navigator) error {
	t := &trial{Suite: s, rule: r, factory: factory}
	done := make(chan struct{})
	go func() {
		finished := false
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				t.err = fmt.Errorf("%spanic: %v\n%s", t.where, p, debug.Stack())
			} else if !finished && t.err == nil {
				t.err = fmt.Errorf("%ssomething has exited the goroutine of the case", t.where)
			}
		}()
		t.survey()
		r.check(t)
		finished = true
	}()
	<-done
	return t.err
}

// failf ends the case.
func (t *trial) failf(format string, args ...any) {
	t.err = fmt.Errorf(t.where+format, args...)
	runtime.Goexit()
}

// must ends the case if there is an error.
func (t *trial) must(err error) {
	if err != nil {
		t.failf("%w", err)
	}
}

// navigator makes a new one.
func (t *trial) navigator() (n orbit.Navigator) {
	t.must(within(t.Patience, "the factory", func() { n = t.factory() }))
	if n == nil {
		t.failf("the factory returns nil")
	}
	return n
}

// survey asks what is the navigator's. A suite of which nothing is would find no fault with anything.
func (t *trial) survey() {
	n := t.navigator()
	for _, module := range t.Modules {
		for _, class := range classes {
			if p := (pair{module, class}); t.claims(n, p) {
				t.mine = append(t.mine, p)
			} else {
				t.rest = append(t.rest, p)
			}
		}
	}
	if len(t.mine) == 0 {
		t.failf("nothing of the modules %q is claimed, in any class; name modules that are, in Suite.Modules", t.Modules)
	}
}

// claims asks the navigator.
func (t *trial) claims(n orbit.Navigator, p pair) (yes bool) {
	t.must(within(t.Patience, p.String(), func() { yes = n.Claims(p.module, p.class) }))
	return yes
}

// gangs reports whether the navigator claims gangs, of any of the modules.
func (t *trial) gangs() bool {
	return slices.ContainsFunc(t.mine, func(p pair) bool { return p.class == orbit.GangClass })
}

// singles are the pairs that are the navigator's, but for gangs.
func (t *trial) singles() (out []pair) {
	for _, p := range t.mine {
		if p.class != orbit.GangClass {
			out = append(out, p)
		}
	}
	return out
}

// draw calls f once for each random world, with dice that depend on nothing but the seed, the rule and the
// number of the world.
func (t *trial) draw(f func(dice)) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.rule.name)) // never fails
	for i := range t.Worlds {
		t.where = fmt.Sprintf("seed %d, world %d: ", t.Seed, i)
		f(dice{rand.New(rand.NewPCG(t.Seed, uint64(h.Sum32())<<32|uint64(i)))})
	}
	t.where = ""
}

// within calls user code, which may panic, exit its goroutine or never return, and says if it did. After an
// error what f has written must not be read.
func within(limit time.Duration, what string, f func()) error {
	done := make(chan error, 1)
	go func() {
		err := fmt.Errorf("%s exits its goroutine", what)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%s panics: %v\n%s", what, p, debug.Stack())
			}
			done <- err
		}()
		f()
		err = nil
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return fmt.Errorf("%s has not returned after %v", what, limit)
	}
}
