package whatif_test

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
	"github.com/orbitsched/orbit/sim"
	"github.com/orbitsched/orbit/whatif"
)

// Every pod that the openb trace at 130% leaves unplaced is explained, with a fix that commits.
func TestOpenbIsExplained(t *testing.T) {
	scale.Sequential(t)
	if testing.Short() {
		t.Skip("a minute on a slow machine")
	}
	const dir = "../../shared/data/openb/"
	nodeFile, err := os.Open(dir + "openb_node_list_gpu_node.csv")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the openb trace is not at %s beside the repository; its README says where it comes from", dir)
	}
	require.NoError(t, err)
	defer nodeFile.Close()
	podFile, err := os.Open(dir + "openb_pod_list_default.csv")
	require.NoError(t, err)
	defer podFile.Close()
	nodes, err := sim.ReadNodes(nodeFile, "nodes")
	require.NoError(t, err)
	pods, err := sim.ReadPods(podFile, "pods")
	require.NoError(t, err)
	pods, err = sim.Inflate(pods, sim.DeviceCapacity(nodes), 1.3, 42)
	require.NoError(t, err)

	l := &orbit.MemoryLedger{}
	for i := range nodes {
		commit(t, l, orbit.PutNode{Node: nodes[i]})
	}
	for _, p := range pods {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{p.ID}, Spec: p.Spec})
	}
	r, err := whatif.Plan(t.Context(), snapshot(t, l), []orbit.Navigator{&nav.Services{Placement: &place.Indexed{Score: score.BestFit{}}}})
	require.NoError(t, err)
	require.Greater(t, len(r.Unplaced), 1000)

	specs := map[*orbit.Spec]bool{}
	for _, u := range r.Unplaced {
		if specs[u.Capsule.Spec] {
			continue // equal ones have one explanation
		}
		specs[u.Capsule.Spec] = true
		e, err := whatif.Explain(t.Context(), r.After, u.Capsule.Spec)
		require.NoError(t, err)
		require.Zero(t, e.Fits, "%s fits, but %v", u.Capsule.ID, u.Why)
		require.NotEmpty(t, e.Fixes, "%v", e)
		sum := 0
		for _, w := range e.Why {
			sum += w.Nodes
		}
		require.Equal(t, len(nodes), sum)
		for i := range e.Fixes {
			require.NoError(t, r.After.Check(e.Fixes[i].Proposal("fixed")), "%s", e.Fixes[i].String())
		}
	}
	t.Logf("%d pods of %d specs are unplaced and explained", len(r.Unplaced), len(specs))
}
