package promorbit_test

import (
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
	"github.com/orbitsched/orbit/promorbit"
)

// The program in the README compiles, and the page is short and names only metrics that are exported.
func TestReadme(t *testing.T) {
	descriptions := make(chan *prometheus.Desc, 1000)
	for _, c := range []prometheus.Collector{&promorbit.Ledger{Ledger: &orbit.MemoryLedger{}}, &promorbit.Engines{}, &promorbit.Pools{}, &promorbit.Groups{}, &promorbit.Warm{}} {
		c.Describe(descriptions)
	}
	close(descriptions)
	exported, name := map[string]bool{}, regexp.MustCompile(`\borbit_[a-z_]+`)
	for d := range descriptions {
		exported[name.FindString(d.String())] = true
	}
	named := name.FindAllString(harness.Readme(t), -1)
	require.NotEmpty(t, named)
	for _, n := range named {
		assert.True(t, exported[n], "there is no metric %s", n)
	}
}
