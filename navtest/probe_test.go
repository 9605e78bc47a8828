package navtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/navtest"
)

func TestProbe(t *testing.T) {
	for name, list := range map[string][]string{
		"services": {"changes its mind", "panics at odd names", "claims nothing", "takes others' work", "places what is placed", "places twice", "ends holds of others", "drains nodes", "does not reserve", "ignores requirements", "ignores drains", "ignores devices", "ignores models", "ignores health", "lets sums wrap", "forgets company", "keeps its first view", "says an old revision", "ignores its context", "looks at its context once", "hides that it was cut short", "never returns", "exits its goroutine", "goes by map order", "explains nothing", "explains what it places", "explains twice", "gives blank reasons", "remembers what is done", "remembers what is hopeless", "says NoFit of what it puts off", "takes gangs for capsules", "panics without nodes", "places nothing"},
		"gangs":    {"places members one by one", "splits gangs", "scatters gangs", "begins below the minimum", "never tops up", "does not reserve", "goes by map order", "ignores its context", "keeps its first view", "ignores devices", "ignores requirements", "lets sums wrap"},
	} {
		for _, br := range list {
			like := plain{singles: true}
			if name == "gangs" {
				like = plain{gangs: true}
			}
			start := time.Now()
			fs := navtest.Suite{Patience: 200 * time.Millisecond}.Check(func() orbit.Navigator { p := like; p.breaks = br; return &p })
			fmt.Printf("%s %q (%v):", name, br, time.Since(start).Round(time.Millisecond))
			for _, f := range fs {
				fmt.Printf(" %s", f.Case)
			}
			fmt.Println()
		}
	}
	for _, into := range []string{"the slice", "a capsule", "a spec", "a requirement", "a label", "a node's count", "a gang"} {
		fs := navtest.Suite{Patience: 200 * time.Millisecond}.Check(func() orbit.Navigator {
			return &scribbler{plain: plain{singles: true, gangs: true}, into: into}
		})
		fmt.Printf("scribbler %q:", into)
		for _, f := range fs {
			fmt.Printf(" %s", f.Case)
		}
		fmt.Println()
	}
}
