package navtest_test

import (
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/navtest"
)

// ready are the navigators of package nav, in the ways in which they are used. Another one is a line here.
var ready = map[string]func() orbit.Navigator{
	"services":            func() orbit.Navigator { return &nav.Services{} },
	"services/exhaustive": func() orbit.Navigator { return &nav.Services{Placement: &orbit.Exhaustive{Seed: 7}} },
	"services/indexed":    func() orbit.Navigator { return &nav.Services{Placement: &orbit.Indexed{Seed: 7}} },
	"services/sampled":    func() orbit.Navigator { return &nav.Services{Placement: &orbit.Sampled{Seed: 7, Enough: 4}} },
}

func TestReadyNavigators(t *testing.T) {
	for name, factory := range ready {
		t.Run(name, func(t *testing.T) { navtest.Run(t, factory) })
	}
}
