package nav_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/sim"
)

// figures is what two navigators make of the same input in one pass.
type figures struct{ pending, services, batch, bound int }

func (f figures) String() string {
	return fmt.Sprintf("capsules %d, services %d, batch %d, bound %d, gap %.2f%%",
		f.pending, f.services, f.batch, f.bound, 100*(1-float64(f.batch)/float64(f.bound)))
}

// anyClass lets Services have batch work, to compare with.
type anyClass struct{ nav.Services }

func (*anyClass) Claims(string, orbit.AppClass) bool { return true }

// compare lets Services and Batch each have one pass over the capsules on a ledger of their own.
func compare(t testing.TB, nodes []orbit.Node, capsules []sim.Capsule) (f figures) {
	f.pending = len(capsules)
	f.services = oneSweep(t, nodes, capsules, &anyClass{}).Committed
	round := oneSweep(t, nodes, capsules, &nav.Batch{})
	f.batch, f.bound = round.Committed, noted(t, round, "bound")
	return f
}

// oneSweep is one pass of the navigator, through the loop and a ledger, which counts again what it is told.
func oneSweep(t testing.TB, nodes []orbit.Node, capsules []sim.Capsule, navigator orbit.Navigator) orbit.Round {
	e := sweeper(t, nodes, capsules, navigator)
	submitAll(t, e.Ledger, capsules)
	round := e.Pass(context.Background())
	require.Empty(t, round.Errors)
	require.Zero(t, round.Conflicts+round.Infeasible)
	require.NoError(t, snapshot(t, e.Ledger).Verify())
	return round
}

// sweeper returns an engine whose passes take all of the capsules, on a ledger that the nodes have joined.
func sweeper(t testing.TB, nodes []orbit.Node, capsules []sim.Capsule, navigator orbit.Navigator) *orbit.Engine {
	l := &orbit.MemoryLedger{}
	var do []orbit.Commitment
	for _, n := range nodes {
		do = append(do, orbit.PutNode{Node: n})
	}
	commit(t, l, do...)
	return &orbit.Engine{Ledger: l, Navigator: navigator, MaxPlan: len(capsules), PlanTimeout: time.Minute}
}

func submitAll(t testing.TB, l orbit.Ledger, capsules []sim.Capsule) {
	for _, c := range capsules {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{c.ID}, Spec: c.Spec})
	}
}

// eightShapes asks for that part of the dimension most in demand. The shapes have from 1 to 16 GiB a core. How many
// cores each takes, from half a core to 8, is drawn, and so is how many capsules there are of it: none has three times
// the cores of another. Capsules come in random order.
func eightShapes(seed uint64, nodes []orbit.Node, load float64) []sim.Capsule {
	r := rand.New(rand.NewPCG(seed, 77))
	classes, weights := make([]sim.Class, 8), make([]float64, 8)
	for i, gib := range []float64{1, 1.5, 2, 3, 4, 6, 8, 16} {
		cpu := []int64{500, 1000, 2000, 4000, 8000}[r.IntN(5)]
		s := task(cpu, int64(float64(cpu)/1000*gib*(1<<30)))
		s.Module, s.Envelope.Reservation[orbit.Slots] = fmt.Sprint("shape-", gib), 1
		classes[i].Spec, weights[i] = s, (0.5+r.Float64())/float64(cpu)
	}
	most := 0.0
	for d := range orbit.Dimensions {
		have, want := 0.0, 0.0
		for _, n := range nodes {
			have += float64(n.Capacity[d])
		}
		for i := range classes {
			want += weights[i] * float64(classes[i].Spec.Envelope.Reservation[d])
		}
		if want > 0 {
			most = max(most, want/have)
		}
	}
	for i := range classes {
		classes[i].Count = int(weights[i] * load / most)
	}
	capsules := sim.Expand(classes)
	sim.Shuffle(capsules, seed)
	return capsules
}

// quarterMachines are sim.Machines with a quarter of everything but slots: few capsules fit on each.
func quarterMachines() []sim.Kind {
	kinds := sim.Machines()
	for i := range kinds {
		for _, d := range []int{orbit.CPU, orbit.Memory, orbit.Disk} {
			kinds[i].Capacity[d] /= 4
		}
	}
	return kinds
}

// Batch places at least 97% of what can be placed, and more than Services, on a mix of eight shapes at 110%
// load: on 500 nodes of the mixed fleet, and on 1,000 of a quarter of the size. The table:
//
//	go test -run TestBatchMix -v ./nav
func TestBatchMix(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	for _, c := range []struct {
		name  string
		fleet sim.Fleet
	}{
		{"machines", sim.Fleet{Seed: 1, Nodes: 500}},
		{"quarter machines", sim.Fleet{Seed: 1, Nodes: 1000, Kinds: quarterMachines()}},
	} {
		nodes := sim.Constellation(c.fleet)
		for seed := uint64(1); seed <= uint64(scale.Of(2, 5)); seed++ {
			f := compare(t, nodes, eightShapes(seed, nodes, 1.1))
			t.Logf("%s, seed %d: %v", c.name, seed, f)
			require.GreaterOrEqual(t, float64(f.batch), 0.97*float64(f.bound))
			require.Greater(t, f.batch, f.services)
		}
	}
}

// The openb trace, all of its pods as batch work, and what the openb experiment makes of it at 130%. The table:
//
//	go test -run TestBatchOpenb -v ./nav
func TestBatchOpenb(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	nodes, pods := openbBatch(t)
	f := compare(t, nodes, pods)
	t.Logf("openb default: %v", f)
	require.Greater(t, f.batch, f.services)
	require.GreaterOrEqual(t, float64(f.batch), 0.985*float64(f.bound))
	arrivals, err := sim.Inflate(pods, sim.DeviceCapacity(nodes), 1.3, 42)
	require.NoError(t, err)
	f = compare(t, nodes, arrivals)
	t.Logf("openb inflated to 130%%: %v", f)
	require.Greater(t, f.batch, f.services)
	require.GreaterOrEqual(t, float64(f.batch), 0.94*float64(f.bound))
}

// openbBatch reads the trace that lies beside the repository, or skips the test. All pods are batch work.
func openbBatch(t testing.TB) ([]orbit.Node, []sim.Capsule) {
	const dir = "../../shared/data/openb/"
	nodeFile, err := os.Open(dir + "openb_node_list_gpu_node.csv")
	if errors.Is(err, os.ErrNotExist) {
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
	for i := range pods {
		pods[i].Spec.Class = orbit.Batch
	}
	return nodes, pods
}
