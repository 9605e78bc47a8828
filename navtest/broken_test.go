package navtest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/navtest"
)

// The plain navigator keeps every rule, whatever it claims; so what broken ones are caught by is the break.
func TestPlainKeepsEveryRule(t *testing.T) {
	for _, p := range []plain{{singles: true}, {gangs: true}, {singles: true, gangs: true}} {
		t.Run(fmt.Sprintf("singles %v, gangs %v", p.singles, p.gangs), func(t *testing.T) {
			navtest.Run(t, func() orbit.Navigator { return &plain{singles: p.singles, gangs: p.gangs} })
		})
	}
}

// broken are navigators that break one rule each: the first case named must catch it, the others may.
var broken = []struct {
	breaks string
	like   plain
	caught string
}{
	{"changes its mind", services, "claims *"},
	{"panics at odd names", services, "claims"},
	{"takes others' work", services, "ownership"},
}

var services, gangs, both = plain{singles: true}, plain{gangs: true}, plain{singles: true, gangs: true}

func TestBroken(t *testing.T) {
	for _, b := range broken {
		t.Run(b.breaks, func(t *testing.T) {
			failures := navtest.Suite{Patience: 2 * time.Second}.Check(func() orbit.Navigator {
				p := b.like
				p.breaks = b.breaks
				return &p
			})
			judge(t, failures, b.caught)
		})
	}
}

// judge compares what has caught a break with what must and what may: "must may may", where "*" is any.
func judge(t *testing.T, failures []navtest.Failure, caught string) {
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
