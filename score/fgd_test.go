package score_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
	"github.com/orbitsched/orbit/sim"
)

// sharedNode has two devices: 400 milli of the first and all of the second are free, and 8 cores.
func sharedNode(t testing.TB) *orbit.NodeState {
	n := orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 10_000}, Devices: orbit.Devices{Model: "G2", Count: 2}}
	return nodeWith(t, n, devices(spec(2000, 0), 1, 600))
}

// sharedWork is ten capsules: for six of them nothing is of use on sharedNode.
func sharedWork() []score.Shape {
	return []score.Shape{
		{Capsules: 3, CPU: 4000, Devices: orbit.DeviceRequest{Count: 1, Milli: 500}},
		{Capsules: 1, CPU: 4000, Devices: orbit.DeviceRequest{Count: 1, Milli: 1000}},
		{Capsules: 1, CPU: 9000, Devices: orbit.DeviceRequest{Count: 1, Milli: 100}}, // CPU is short
		{Capsules: 2, CPU: 1000}, // asks for none
		{Capsules: 1, CPU: 1000, Devices: orbit.DeviceRequest{Count: 2, Milli: 500}},                         // instances are short
		{Capsules: 2, CPU: 1000, Devices: orbit.DeviceRequest{Count: 1, Milli: 300, Models: []string{"T4"}}}, // wrong model
	}
}

func TestFragmentation(t *testing.T) {
	n := sharedNode(t)
	// Four lose the 400 milli of the first device, six all 1400.
	require.InDelta(t, 1000.0, score.FGD{Typical: sharedWork()}.Fragmentation(n), 1e-9)
	require.Zero(t, score.FGD{}.Fragmentation(n))
	for i, want := range []float64{400, 400, 1400, 1400, 1400, 1400} {
		require.InDelta(t, want, score.FGD{Typical: sharedWork()[i : i+1]}.Fragmentation(n), 1e-9, "shape %d alone", i)
	}
}

func TestFGD(t *testing.T) {
	for _, c := range []struct {
		name string
		spec *orbit.Spec
		want float64
	}{
		// On the first device: F is (4·0 + 6·1000)/10 = 600, and 100·sigmoid(0.4) = 59.9. On the second
		// it is (3·400 + 7·1000)/10 = 820, and 100·sigmoid(0.18) = 54.5.
		{"the better device counts", devices(spec(1000, 0), 1, 400), -59},
		// F is 400 for all: 100·sigmoid(0.6) = 64.6.
		{"a whole device", devices(spec(1000, 0), 1, 1000), -64},
		{"nothing changes", spec(1000, 0), -50},
		// With 3 cores left nothing is of use, F is 1400: 100·sigmoid(-0.4) = 40.1.
		{"devices without CPU", spec(5000, 0), -40},
		// The default choice takes 300 of either. F is (3·100 + 7·800)/10 = 590: 100·sigmoid(0.41) = 60.1.
		{"a share of two devices", devices(spec(1000, 0), 2, 300), -60},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := sharedNode(t)
			v, tie := score.FGD{Typical: sharedWork()}.Score(n, nil, c.spec)
			require.Equal(t, c.want, v)
			require.Zero(t, tie)
			require.Equal(t, -50.0, value(score.FGD{}, n, c.spec), "told of no work")
		})
	}
}

func TestFGDPicksDevices(t *testing.T) {
	fgd, n := score.FGD{Typical: sharedWork()}, sharedNode(t)
	set, ok := fgd.PickDevices(n, devices(spec(1000, 0), 1, 400))
	require.True(t, ok)
	require.Equal(t, orbit.DeviceSet(0b01), set, "-59 against -54")

	// Work that wants 400 milli: the tightest fit is not always the best. It would leave the first device
	// useless, the second still serves.
	fgd.Typical = []score.Shape{{Capsules: 1, Devices: orbit.DeviceRequest{Count: 1, Milli: 400}}}
	set, ok = fgd.PickDevices(n, devices(spec(1000, 0), 1, 100))
	require.True(t, ok)
	require.Equal(t, orbit.DeviceSet(0b10), set)

	set, ok = score.FGD{}.PickDevices(n, devices(spec(1000, 0), 1, 300))
	require.True(t, ok)
	require.Equal(t, orbit.DeviceSet(0b01), set, "equally good: the lowest index")
	for _, s := range []*orbit.Spec{spec(1, 0), devices(spec(1, 0), 1, 1000), devices(spec(1, 0), 2, 300)} {
		_, ok = fgd.PickDevices(n, s)
		require.False(t, ok, "the default choice holds for %+v", s.Devices)
	}
	full := nodeWith(t, *n.Node, devices(spec(0, 0), 2, 1000))
	_, ok = fgd.PickDevices(full, devices(spec(1, 0), 1, 1))
	require.False(t, ok, "fits nowhere")
}

// The definition, shape by shape and device by device, with none of the shortcuts.
type reference struct{ typical []score.Shape }

// fragmented is F times the capsules asked for.
func (r reference) fragmented(free []int, cpu int64, model string) (sum int64) {
	for _, s := range r.typical {
		all, small, enough := 0, 0, 0
		for _, f := range free {
			all += f
			if f < s.Devices.Milli {
				small += f
			} else {
				enough++
			}
		}
		fits := s.CPU <= cpu && enough >= s.Devices.Count &&
			(len(s.Devices.Models) == 0 || slices.Contains(s.Devices.Models, model))
		if s.Devices.Count > 0 && fits {
			all = small
		}
		sum += int64(all * s.Capsules)
	}
	return sum
}

func (r reference) value(n *orbit.NodeState, s *orbit.Spec, set orbit.DeviceSet) float64 {
	var before, after []int
	for i := range n.Node.Devices.Count {
		before = append(before, n.DeviceFree(i))
		after = append(after, n.DeviceFree(i))
		if set.Has(i) {
			after[i] -= s.Devices.Milli
		}
	}
	asked := 0
	for _, shape := range r.typical {
		asked += shape.Capsules
	}
	if asked == 0 {
		return -50
	}
	cpu := n.Free()[orbit.CPU]
	less := r.fragmented(before, cpu, n.Node.Devices.Model) -
		r.fragmented(after, cpu-s.Envelope.Reservation[orbit.CPU], n.Node.Devices.Model)
	return -math.Trunc(100 / (1 + math.Exp(-float64(less)/float64(asked)/1000)))
}

func (r reference) best(n *orbit.NodeState, s *orbit.Spec) (value float64, set orbit.DeviceSet) {
	if s.Devices.Count != 1 || s.Devices.Milli == 1000 {
		set, _ = n.PickDevices(s)
		return r.value(n, s, set), set
	}
	value = 1
	for i := range n.Node.Devices.Count {
		if n.DeviceFree(i) < s.Devices.Milli {
			continue
		}
		if v := r.value(n, s, 1<<i); v < value {
			value, set = v, 1<<i
		}
	}
	return value, set
}

func TestFGDAgreesWithItsDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, s := drawNode(rt), &orbit.Spec{Devices: drawRequest(rt)}
		s.Envelope.Reservation[orbit.CPU] = drawCPU(rt)
		if !n.Fits(s) {
			rt.Skip("does not fit")
		}
		fgd := score.FGD{}
		for range rapid.IntRange(0, 12).Draw(rt, "shapes") {
			fgd.Typical = append(fgd.Typical, score.Shape{
				Capsules: rapid.IntRange(1, 50).Draw(rt, "capsules"), CPU: drawCPU(rt), Devices: drawRequest(rt),
			})
		}
		ref := reference{fgd.Typical}
		want, set := ref.best(n, s)
		require.Equal(rt, want, value(fgd, n, s))
		require.Equal(rt, want, value(fgd, n, s), "again")
		picked, ok := fgd.PickDevices(n, s)
		if require.Equal(rt, s.Devices.Count == 1 && s.Devices.Milli < 1000, ok); ok {
			require.Equal(rt, set, picked)
		}
		var free []int
		for i := range n.Node.Devices.Count {
			free = append(free, n.DeviceFree(i))
		}
		asked := 0
		for _, shape := range fgd.Typical {
			asked += shape.Capsules
		}
		f := ref.fragmented(free, n.Free()[orbit.CPU], n.Node.Devices.Model)
		require.InDelta(rt, float64(f)/float64(max(asked, 1)), fgd.Fragmentation(n), 1e-6)
	})
}

// Few different numbers, so that equal ones and exact fits are common.
func drawCPU(t *rapid.T) int64 { return 1000 * rapid.Int64Range(0, 8).Draw(t, "cpu") }

func drawMilli(t *rapid.T) int {
	return rapid.SampledFrom([]int{100, 250, 300, 500, 700, 999, 1000}).Draw(t, "milli")
}

func drawRequest(t *rapid.T) (r orbit.DeviceRequest) {
	if r.Count = rapid.SampledFrom([]int{0, 1, 1, 1, 1, 2, 3, 8}).Draw(t, "count"); r.Count > 0 {
		r.Milli = drawMilli(t)
		r.Models = rapid.SampledFrom([][]string{nil, nil, {"G2"}, {"T4", "G2"}, {"T4"}}).Draw(t, "models")
	}
	return r
}

// drawNode returns a node of which some devices are in use and some out of order, either or both.
func drawNode(t *rapid.T) *orbit.NodeState {
	node := orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: drawCPU(t)}}
	node.Devices = orbit.Devices{Model: "G2", Count: rapid.IntRange(1, orbit.MaxDevices).Draw(t, "devices")}
	do := []orbit.Commitment{orbit.PutNode{Node: node}}
	for i := range node.Devices.Count {
		if rapid.Bool().Draw(t, "used") {
			id, s := orbit.CapsuleID(fmt.Sprint(i)), devices(spec(0, 0), 1, drawMilli(t))
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s},
				orbit.Place{Capsule: id, Node: node.ID, Devices: 1 << i})
		}
	}
	var ledger orbit.MemoryLedger
	ctx := context.Background()
	_, err := ledger.Propose(ctx, orbit.Proposal{Do: do})
	require.NoError(t, err)
	node.Devices.Unhealthy = orbit.DeviceSet(rapid.IntRange(0, 1<<node.Devices.Count-1).Draw(t, "out of order"))
	_, err = ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: node}}})
	require.NoError(t, err)
	state, err := ledger.Snapshot(ctx)
	require.NoError(t, err)
	return state.Node("n")
}

func TestPickDevicesDoesNotAllocate(t *testing.T) {
	fgd, n, s := score.FGD{Typical: sharedWork()}, sharedNode(t), devices(spec(1, 0), 1, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() { fgd.PickDevices(n, s) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { fgd.Fragmentation(n) }))
}

func TestTypical(t *testing.T) {
	var specs []*orbit.Spec
	add := func(n int, s *orbit.Spec) {
		for range n {
			specs = append(specs, s)
		}
	}
	add(4, devices(spec(2000, 0), 1, 500)) // as frequent as the next, which asks for less
	add(4, devices(spec(1000, 0), 1, 500))
	add(30, spec(4000, 1))
	add(30, spec(4000, 2)) // memory does not count
	add(32, devices(spec(4000, 0), 1, 1000))
	want := []score.Shape{
		{Capsules: 60, CPU: 4000},
		{Capsules: 4, CPU: 1000, Devices: orbit.DeviceRequest{Count: 1, Milli: 500}},
		{Capsules: 32, CPU: 4000, Devices: orbit.DeviceRequest{Count: 1, Milli: 1000}},
	}
	for range 20 {
		require.Equal(t, want, score.Typical(specs), "96 of 100 are covered, in any order")
		rand.Shuffle(len(specs), func(i, j int) { specs[i], specs[j] = specs[j], specs[i] })
	}
	models := devices(spec(1, 0), 1, 1)
	models.Devices.Models = []string{"G2"}
	require.Len(t, score.Typical([]*orbit.Spec{models, devices(spec(1, 0), 1, 1)}), 2, "models set shapes apart")
	require.Empty(t, score.Typical(nil))
}

func TestTypicalOfOpenb(t *testing.T) {
	const path = "../../shared/data/openb/openb_pod_list_default.csv"
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("the openb pod list is not at %s beside the repository", path)
	}
	require.NoError(t, err)
	defer f.Close()
	pods, err := sim.ReadPods(f, "pods")
	require.NoError(t, err)
	shapes := score.Typical(specsOf(pods))
	require.Len(t, shapes, 35)
	require.Contains(t, shapes, score.Shape{Capsules: 1047, CPU: 3152, Devices: orbit.DeviceRequest{Count: 1, Milli: 810}})
	covered := 0
	for _, s := range shapes {
		covered += s.Capsules
	}
	require.Equal(t, 7766, covered, "of 8152")
}

func specsOf(list []sim.Capsule) (specs []*orbit.Spec) {
	for _, c := range list {
		specs = append(specs, c.Spec)
	}
	return specs
}

// toldOfMuch knows as many shapes as openb has: 5 that ask for no device, and 10 sizes of device with 3 of CPU.
func toldOfMuch() (s score.FGD) {
	for i := range 5 {
		s.Typical = append(s.Typical, score.Shape{Capsules: 40, CPU: int64(8000 * (i + 1))})
	}
	for i := range 30 {
		milli := 100 * (i/3 + 1)
		s.Typical = append(s.Typical, score.Shape{
			Capsules: 100 + i, CPU: int64(4000 * (i%3 + 1)), Devices: orbit.DeviceRequest{Count: 1, Milli: milli},
		})
	}
	return s
}
