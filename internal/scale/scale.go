// Package scale sets the size of the samples of tests. Only tests import it.
//
// An ordinary run takes the usual sample, so that go test ./... stays short. With -tags stress the same tests take
// their full sample, and the tests that are too long for every day run too. The variable ORBIT_STRESS_SCALE multiplies
// full samples: 0.1 for a tenth, 10 for a long night; 1 by default. SCHEDULE_STRESS_SCALE is another name of it.
package scale

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
)

// Of returns the size of a sample: usual in an ordinary run, and with -tags stress full times ORBIT_STRESS_SCALE, at
// least 1.
func Of(usual, full int) int {
	if !stress {
		return usual
	}
	return max(1, int(float64(full)*factor()))
}

// Main runs the tests of a package from its TestMain. It sets how many times each random property is checked, from
// usual and full as in Of. The flag -rapid.checks overrides both. Unless the environment sets GOGC, the garbage collector
// runs a quarter as often as usual: random worlds are small and short-lived, and it would take a fifth of the run.
func Main(m *testing.M, usual, full int) {
	if err := flag.Set("rapid.checks", strconv.Itoa(Of(usual, full))); err != nil { // m.Run parses flags later
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}

// Some returns the first usual cases of a list in an ordinary run, and all of them with -tags stress.
// ORBIT_STRESS_SCALE has no effect, because a fixed list cannot be multiplied.
func Some[T any](usual int, cases ...T) []T {
	if stress {
		return cases
	}
	return cases[:usual]
}

// factor reads ORBIT_STRESS_SCALE, under either of its names. It panics if a value is invalid or the two differ, because
// the size of the run would be unknown.
func factor() float64 {
	f := 0.0
	for _, name := range []string{"ORBIT_STRESS_SCALE", "SCHEDULE_STRESS_SCALE"} {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		given, err := strconv.ParseFloat(text, 64)
		switch {
		case err != nil || !(given > 0 && given <= 1e6):
			panic(fmt.Sprintf("%s=%q: want a number above 0 and at most 1000000", name, text))
		case f != 0 && f != given:
			panic(fmt.Sprintf("ORBIT_STRESS_SCALE=%v and %s=%v: set one of them", f, name, given))
		}
		f = given
	}
	return cmp.Or(f, 1)
}

// Long marks a test that takes seconds: it is left out of go test -short.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; not in short mode")
	}
}

// Sweep marks a test, or a part of one, that is so long that only -tags stress runs it.
func Sweep(t testing.TB) {
	t.Helper()
	if !stress {
		t.Skip("takes long; runs with -tags stress")
	}
}

// Sequential marks a test that takes seconds and has one goroutine at work at a time. It is left out with the race
// detector, which would find nothing in it.
func Sequential(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("one goroutine at a time; runs without the race detector")
	}
}

// WithRace returns the size of a sample: n with the race detector, else full.
func WithRace(n, full int) int {
	if Race {
		return n
	}
	return full
}
