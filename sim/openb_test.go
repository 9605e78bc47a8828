package sim_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

const (
	nodeHeader = "sn,cpu_milli,memory_mib,gpu,model\n"
	podHeader  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)

// openb reads the trace that lies beside the repository, or skips the test.
func openb(t testing.TB) ([]orbit.Node, []sim.Capsule) {
	t.Helper()
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
	return nodes, pods
}

// The numbers in the README of the trace.
func TestOpenbCounts(t *testing.T) {
	nodes, pods := openb(t)
	require.Len(t, nodes, 1213)
	require.Equal(t, int64(6212_000), sim.DeviceCapacity(nodes))
	var capacity orbit.Resources
	for _, n := range nodes {
		capacity, _ = capacity.Add(n.Capacity)
	}
	require.Equal(t, orbit.Resources{orbit.CPU: 107_018_000, orbit.Memory: 503_828_480 << 20, orbit.Slots: 1213 * 1001}, capacity)

	require.Len(t, pods, 8152)
	counts, shares, specs := map[int]int{}, 0, map[*orbit.Spec]bool{}
	for _, p := range pods {
		counts[p.Spec.Devices.Count]++
		specs[p.Spec] = true
		if p.Spec.Devices.Count == 1 && p.Spec.Devices.Milli < 1000 {
			shares++
		}
	}
	require.Equal(t, map[int]int{0: 1088, 1: 6989, 2: 16, 4: 15, 8: 44}, counts)
	require.Equal(t, 3078, shares)
	require.Len(t, specs, 160, "identical pods share one spec")
}

func TestReadNodes(t *testing.T) {
	nodes, err := sim.ReadNodes(strings.NewReader(nodeHeader+"a,64000,1024,2,P100\r\nb,8000,512,0,\n"), "nodes.csv")
	require.NoError(t, err)
	require.Equal(t, []orbit.Node{
		{ID: "a", Capacity: orbit.Resources{orbit.CPU: 64000, orbit.Memory: 1 << 30, orbit.Slots: 1001}, Devices: orbit.Devices{Model: "P100", Count: 2}},
		{ID: "b", Capacity: orbit.Resources{orbit.CPU: 8000, orbit.Memory: 1 << 29, orbit.Slots: 1001}},
	}, nodes)
}

func TestReadPods(t *testing.T) {
	pods, err := sim.ReadPods(strings.NewReader(podHeader+
		"a,1000,1024,2,500,P100|T4,LS,Running,0,1,\n"+
		"b,1000,1024,2,500,P100|T4,Guaranteed,,,,\n"+
		"c,0,0,0,0,ignored,Burstable,,,,\n"), "pods.csv")
	require.NoError(t, err)
	require.Equal(t, &orbit.Spec{
		Module: "openb", Class: orbit.LatencySensitive,
		Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1000, orbit.Memory: 1 << 30, orbit.Slots: 1}},
		Devices:  orbit.DeviceRequest{Count: 2, Milli: 500, Models: []string{"P100", "T4"}},
	}, pods[0].Spec)
	require.Same(t, pods[0].Spec, pods[1].Spec)
	require.Equal(t, sim.Capsule{ID: "c", Spec: &orbit.Spec{
		Module: "openb", Class: orbit.BestEffort, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.Slots: 1}},
	}}, pods[2])
}

// Columns are found by their names: in any order, among others, and without those that say nothing.
func TestReadByColumnNames(t *testing.T) {
	pods, err := sim.ReadPods(strings.NewReader("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1024,1,500\nb,1000,1024,1,500\n"), "short.csv")
	require.NoError(t, err)
	want, err := sim.ReadPods(strings.NewReader(podHeader+"a,1000,1024,1,500,,LS,,,,\nb,1000,1024,1,500,,LS,,,,\n"), "long.csv")
	require.NoError(t, err)
	require.Equal(t, want, pods)
	mixed, err := sim.ReadPods(strings.NewReader("note,qos,gpu_milli,num_gpu,,name,memory_mib,,cpu_milli\nx,BE,700,1,,a,1024,,9\n"), "mixed.csv")
	require.NoError(t, err)
	require.Equal(t, orbit.DeviceRequest{Count: 1, Milli: 700}, mixed[0].Spec.Devices)
	require.Equal(t, orbit.Resources{orbit.CPU: 9, orbit.Memory: 1 << 30, orbit.Slots: 1}, mixed[0].Spec.Envelope.Reservation)
	require.Equal(t, orbit.BestEffort, mixed[0].Spec.Class)
	nodes, err := sim.ReadNodes(strings.NewReader("model,gpu,sn,memory_mib,cpu_milli\nT4,2,a,512,8000\n"), "nodes.csv")
	require.NoError(t, err)
	require.Equal(t, []orbit.Node{{ID: "a", Capacity: orbit.Resources{orbit.CPU: 8000, orbit.Memory: 1 << 29, orbit.Slots: 1001},
		Devices: orbit.Devices{Model: "T4", Count: 2}}}, nodes)
}

// Every list of the trace that lies beside the repository is read, whichever columns it has.
func TestOpenbVariants(t *testing.T) {
	dir := cmp.Or(os.Getenv("ORBIT_OPENB"), "../../shared/data/openb")
	lists, err := filepath.Glob(filepath.Join(dir, "openb_pod_list_*.csv"))
	require.NoError(t, err)
	if len(lists) < 2 {
		t.Skipf("%d pod lists of the openb trace are in %s; set ORBIT_OPENB to a directory with its variants", len(lists), dir)
	}
	for _, path := range lists {
		f, err := os.Open(path)
		require.NoError(t, err)
		pods, err := sim.ReadPods(f, path)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		demand := int64(0)
		for _, p := range pods {
			demand += sim.DeviceDemand(p.Spec)
		}
		require.Greater(t, len(pods), 7000, path)
		require.Greater(t, demand, int64(1_000_000), path)
	}
}

// Every complaint names the file, and the line and the column where there is one.
func TestBadInput(t *testing.T) {
	pod := func(fields string) string { return podHeader + "ok,1,1,0,0,,LS,,,,\n" + fields + "\n" }
	for _, c := range []struct{ name, nodes, pods, want string }{
		{name: "empty", nodes: "", want: "f: is empty; want a header with sn,cpu_milli,memory_mib,gpu,model"},
		{name: "other header", nodes: "sn,cpu,memory_mib,gpu,model\n", want: `f:1: column cpu_milli: missing in the header "sn,cpu,memory_mib,gpu,model"`},
		{name: "header on line 2", pods: "\nname,cpu_milli,gpu_milli\n", want: `f:2: column memory_mib, num_gpu: missing in the header "name,cpu_milli,gpu_milli"`},
		{name: "the other file", pods: nodeHeader, want: `f:1: column name, num_gpu, gpu_milli: missing in the header "sn,`},
		{name: "two of a name", nodes: "sn,gpu,cpu_milli,memory_mib,gpu,model\n", want: "f:1: column gpu: is in the header twice"},
		{name: "no rows", nodes: nodeHeader, want: "f:1: has a header, but no rows"},
		{name: "columns missing", nodes: nodeHeader + "a,1,1,1\n", want: "f:2: 4 columns; the header has 5"},
		{name: "columns too many", nodes: nodeHeader + "a,1,1,1,m,x\n", want: "f:2: 6 columns; the header has 5"},
		{name: "quotes", nodes: nodeHeader + "a,1,1,1,\"m\nb\n", want: `f:3: byte 3: extraneous or missing " in quoted-field`},
		{name: "no id", nodes: nodeHeader + ",1,1,1,m\n", want: "f:2: column sn: is empty"},
		{name: "twice", nodes: nodeHeader + "a,1,1,1,m\n\na,1,1,1,m\n", want: `f:4: column sn: "a" is there already, on line 2`},
		{name: "no number", nodes: nodeHeader + "a,1.5,1,1,m\n", want: `f:2: column cpu_milli: "1.5" is not a whole number`},
		{name: "empty number", nodes: nodeHeader + "a,,1,1,m\n", want: `f:2: column cpu_milli: "" is not a whole number`},
		{name: "negative", nodes: nodeHeader + "a,1,-1,1,m\n", want: "f:2: column memory_mib: -1 is negative"},
		{name: "too many bytes", nodes: nodeHeader + "a,1,8796093022208,1,m\n", want: "f:2: column memory_mib: 8796093022208 is more than 8796093022207"},
		{name: "beyond int64", nodes: nodeHeader + "a,9223372036854775808,1,1,m\n", want: "f:2: column cpu_milli: 9223372036854775808 is out of range"},
		{name: "too many devices", nodes: nodeHeader + "a,1,1,17,m\n", want: "f:2: column gpu: 17 is more than 16"},
		{name: "no model", nodes: nodeHeader + "a,1,1,1,\n", want: "f:2: column model: is empty"},
		{name: "num_gpu", pods: pod("a,1,1,9,1000,,LS,,,,"), want: "f:3: column num_gpu: 9 is more than 8"},
		{name: "gpu_milli", pods: pod("a,1,1,1,1001,,LS,,,,"), want: "f:3: column gpu_milli: 1001 is more than 1000"},
		{name: "gpu_milli 0", pods: pod("a,1,1,1,0,,LS,,,,"), want: "f:3: column gpu_milli: is 0, but num_gpu is 1; want 1 to 1000"},
		{name: "gpu_milli alone", pods: pod("a,1,1,0,5,,LS,,,,"), want: "f:3: column gpu_milli: is 5, but num_gpu is 0; want 0"},
		{name: "gpu_spec", pods: pod("a,1,1,1,5,A||B,LS,,,,"), want: `f:3: column gpu_spec: "A||B" names an empty model`},
		{name: "qos", pods: pod("a,1,1,1,5,,XX,,,,"), want: `f:3: column qos: "XX" is unknown; want LS, BE, Burstable or Guaranteed`},
		{name: "pod twice", pods: pod("ok,1,1,1,5,,LS,,,,"), want: `f:3: column name: "ok" is there already, on line 2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			if c.pods != "" {
				_, err = sim.ReadPods(strings.NewReader(c.pods), "f")
			} else {
				_, err = sim.ReadNodes(strings.NewReader(c.nodes), "f")
			}
			require.ErrorIs(t, err, orbit.ErrInvalid)
			require.ErrorContains(t, err, c.want)
			var where *sim.InputError
			require.ErrorAs(t, err, &where)
			require.Equal(t, "f", where.File)
		})
	}
}

func TestReadingFails(t *testing.T) {
	broken := errors.New("disk on fire")
	_, err := sim.ReadNodes(iotest.ErrReader(broken), "f")
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "f:1: cannot be read: disk on fire")
}

// Whatever the text is, the readers say what is wrong with it; they never panic.
func FuzzReadPods(f *testing.F) {
	f.Add(podHeader + "a,1,1,1,500,A|B,LS,,,,\n")
	f.Add(podHeader + "a,\"1\n\",1,1,500,A|B,LS,,,,\n")
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := sim.ReadPods(strings.NewReader(text), "f")
		if (err == nil) != (len(pods) > 0) {
			t.Fatalf("%d pods, error %v", len(pods), err)
		}
	})
}
