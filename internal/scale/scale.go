// Package scale says how large the samples of the tests are. Only tests import it.
//
// An ordinary run takes a usual sample, so that go test ./... stays short. With -tags stress the same tests take
// their full sample, and those run that are too long for every day. The variable ORBIT_STRESS_SCALE multiplies
// full samples: 0.1 for a tenth, 10 for a long night; 1 by default.
package scale

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Of returns how large a sample is: usual in an ordinary run, else full times ORBIT_STRESS_SCALE and at least 1.
func Of(usual, full int) int {
	if !stress {
		return usual
	}
	return max(1, int(float64(full)*factor()))
}

// Main runs a package's tests from its TestMain. Each random property is checked so many times, usual or full as in Of; the flag
// -rapid.checks wins over both.
func Main(m *testing.M, usual, full int) {
	if err := flag.Set("rapid.checks", strconv.Itoa(Of(usual, full))); err != nil { // before flags are parsed, so a flag wins
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// Some returns the first cases of a list in an ordinary run, usual many, and with -tags stress all of them, whatever the variable
// says: what a test does not draw cannot be multiplied.
func Some[T any](usual int, cases ...T) []T {
	if stress {
		return cases
	}
	return cases[:usual]
}

// factor reads the variable. What it cannot read would make a run of an unknown size, so it ends the run.
func factor() float64 {
	text := os.Getenv("ORBIT_STRESS_SCALE")
	if text == "" {
		return 1
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f > 0 && f <= 1e6) {
		panic(fmt.Sprintf("ORBIT_STRESS_SCALE=%q: want a number above 0 and at most 1000000", text))
	}
	return f
}

// Long marks a test that takes seconds: it is left out of go test -short.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; not in short mode")
	}
}

// Sweep marks a test, or a part of one, that takes so long that only -tags stress runs it.
func Sweep(t testing.TB) {
	t.Helper()
	if !stress {
		t.Skip("takes long; runs with -tags stress")
	}
}
