package nav_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/sim"
)

// task is a batch spec of so much cpu and memory.
func task(cpu, memory int64) *orbit.Spec {
	s := spec(cpu, 0)
	s.Class, s.Envelope.Reservation[orbit.Memory] = orbit.Batch, memory
	return s
}

// tasks submits n capsules of the spec, named by the prefix.
func tasks(prefix string, n int, s *orbit.Spec) orbit.Submit {
	ids := make([]orbit.CapsuleID, n)
	for i := range ids {
		ids[i] = orbit.CapsuleID(fmt.Sprintf("%s-%05d", prefix, i))
	}
	return orbit.Submit{IDs: ids, Spec: s}
}

// noted returns what a round notes under a key.
func noted(t require.TestingT, round orbit.Round, key string) int {
	at := slices.IndexFunc(round.Notes, func(a slog.Attr) bool { return a.Key == key })
	require.GreaterOrEqual(t, at, 0, "no note %q", key)
	return int(round.Notes[at].Value.Int64())
}

// batchPass is one pass over all that is pending.
func batchPass(t require.TestingT, l *orbit.MemoryLedger, b *nav.Batch) orbit.Round {
	e := orbit.Engine{Ledger: l, Navigator: b, MaxPlan: max(snapshot(t, l).PendingCount(), 1), PlanTimeout: 10 * time.Minute} // under -race, on a busy machine, it takes long
	round := e.Pass(context.Background())
	require.Empty(t, round.Errors)
	require.Zero(t, round.Conflicts+round.Infeasible)
	return round
}

func TestBatchClaims(t *testing.T) {
	var b nav.Batch
	for class, want := range map[orbit.AppClass]bool{
		orbit.LatencySensitive: false, orbit.BestEffort: false, orbit.Batch: true, orbit.GangClass: false,
	} {
		assert.Equal(t, want, b.Claims("any", class), "%v", class)
	}
}

// drawBatch lets nodes join and submits work that asks for cpu, memory, devices and labels. Some nodes are
// drained, have shrunk below what is used, or have devices out of order.
func drawBatch(t *rapid.T, nodes, capsules int) *orbit.MemoryLedger {
	l, scale := &orbit.MemoryLedger{}, int64(1)
	if rapid.IntRange(0, 3).Draw(t, "little work") == 0 {
		scale = 5000 // what is asked for is less than a thousandth of a node
	}
	for i := range rapid.IntRange(1, nodes).Draw(t, "nodes") {
		n := node(fmt.Sprintf("n%02d", i), scale*rapid.Int64Range(0, 10).Draw(t, "cpu")).Node
		n.Capacity[orbit.Memory] = scale * rapid.Int64Range(0, 10).Draw(t, "memory")
		n.Devices.Model = rapid.SampledFrom([]string{"A", "B"}).Draw(t, "model")
		n.Devices.Count = rapid.IntRange(0, 2).Draw(t, "devices")
		n.Labels = map[string]string{"zone": rapid.SampledFrom([]string{"", "z1", "z2"}).Draw(t, "zone")}
		commit(t, l, orbit.PutNode{Node: n})
		drawUse(t, l, n)
	}
	specs := rapid.SliceOfN(rapid.Custom(drawTask), 1, 5).Draw(t, "specs")
	for i := range rapid.IntRange(0, capsules).Draw(t, "capsules") {
		commit(t, l, tasks(fmt.Sprint("c", i), 1, rapid.SampledFrom(specs).Draw(t, "spec")))
	}
	return l
}

// drawUse lets a capsule take some of the node, and the node change after that.
func drawUse(t *rapid.T, l *orbit.MemoryLedger, n orbit.Node) {
	change := rapid.IntRange(0, 5).Draw(t, "change")
	if change == 0 || n.Capacity[orbit.CPU] == 0 {
		return
	}
	s := spec(n.Capacity[orbit.CPU]/2, 0)
	if n.Devices.Count > 0 {
		s.Devices = orbit.DeviceRequest{Count: 1, Milli: rapid.IntRange(1, 1000).Draw(t, "taken")}
	}
	set, _ := snapshot(t, l).Node(n.ID).PickDevices(s)
	use := orbit.CapsuleID("use-" + n.ID)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{use}, Spec: s}, orbit.Place{Capsule: use, Node: n.ID, Devices: set})
	switch change {
	case 1:
		n.State = orbit.Cordoned
	case 2:
		n.Capacity[orbit.CPU] = 0
	case 3:
		n.Devices.Unhealthy = orbit.DeviceSet(min(n.Devices.Count, 1))
	}
	commit(t, l, orbit.PutNode{Node: n})
}

func drawTask(t *rapid.T) *orbit.Spec {
	s := task(rapid.Int64Range(0, 6).Draw(t, "cpu"), rapid.Int64Range(0, 6).Draw(t, "memory"))
	s.Priority = rapid.Int32Range(0, 2).Draw(t, "priority")
	if rapid.IntRange(0, 2).Draw(t, "asks for devices") == 0 {
		s.Devices.Count = rapid.IntRange(1, 2).Draw(t, "count")
		s.Devices.Milli = rapid.SampledFrom([]int{100, 400, 500, 501, 1000}).Draw(t, "milli")
		if rapid.Bool().Draw(t, "of one model") {
			s.Devices.Models = []string{"A"}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "asks for a zone") == 0 {
		s.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{"z1"}}}
	}
	return s
}

// With random nodes and work no node is ever planned past what it has, every proposal of a plan commits on an idle
// ledger (SCENARIOS 18), each capsule is either placed or said to fit nowhere, and what is left over fits nowhere.
func TestBatchNeverOversubscribed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawBatch(t, 8, 30)
		pending := snapshot(t, l).PendingCount()
		round := batchPass(t, l, &nav.Batch{})
		require.Equal(t, pending, round.Committed+len(round.Unplaced))
		s := snapshot(t, l)
		require.NoError(t, s.Verify())
		for _, u := range round.Unplaced {
			var why *orbit.NoFit
			require.ErrorAs(t, u.Why, &why)
			for n := range s.Nodes() {
				require.False(t, n.Fits(u.Capsule.Spec), "%s is left over, and fits on %s", u.Capsule.ID, n.Node.ID)
			}
		}
		if pending > 0 {
			require.Equal(t, pending, noted(t, round, "pending"))
			require.Equal(t, round.Committed, noted(t, round, "placed"))
			require.LessOrEqual(t, round.Committed, noted(t, round, "bound"))
			require.LessOrEqual(t, noted(t, round, "bound"), pending)
		}
	})
}

// The index finds what looking at every node finds, with the score of Batch in both its moods: its bounds are bounds.
// And a plan is the same every time.
func TestBatchIndexedAgreesWithExhaustive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawBatch(t, 60, 120)
		view := viewOf(t, l)
		planned := func(placement orbit.PlacementEngine) []orbit.Proposal {
			plan, err := (&nav.Batch{Placement: placement}).Plan(context.Background(), view, view.State().Pending())
			require.NoError(t, err)
			return plan.Proposals
		}
		want := planned(&place.Exhaustive{})
		require.Equal(t, want, planned(nil))
		require.Equal(t, want, planned(&place.Indexed{}))
	})
}

// Highest priority first, however much it takes.
func TestBatchServesPriorityFirst(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("n", 10))
	high := task(6, 0)
	high.Priority = 1
	commit(t, l, tasks("low", 20, task(1, 0)), tasks("high", 2, high))
	round := batchPass(t, l, &nav.Batch{})
	assert.True(t, snapshot(t, l).Capsule("high-00000").Placed())
	assert.Equal(t, 5, round.Committed)
	assert.Equal(t, 10, noted(t, round, "bound"), "whatever the priorities")
}

// Within a priority the work is left out that takes most of what is scarce, and it is parked: it was submitted
// first, and would have taken the room of ten.
func TestBatchLeavesOutWhatIsDear(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("a", 10), node("b", 10))
	commit(t, l, tasks("large", 2, task(10, 0)), tasks("small", 13, task(1, 0)))
	e := orbit.Engine{Ledger: l, Navigator: &nav.Batch{}}
	round := e.Pass(t.Context())
	require.Equal(t, 13, round.Committed)
	require.Len(t, round.Unplaced, 2)
	require.EqualError(t, round.Unplaced[0].Why, "0 of 2 nodes fit: 2 lack cpu")
	require.Equal(t, 1, round.Parked)
	require.Equal(t, 1, noted(t, round, "tried"), "that there is too much shows at once")
	// Nothing starves: when there is room again, it is taken.
	s := snapshot(t, l)
	for c := range s.Capsules() {
		if c.Node == "a" {
			commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
		}
	}
	require.Equal(t, 1, e.Pass(t.Context()).Committed)
}

// What is scarce decides what is dear: memory here, of which the second class takes more.
func TestBatchCountsWhatIsScarce(t *testing.T) {
	l := &orbit.MemoryLedger{}
	n := node("n", 100)
	n.Node.Capacity[orbit.Memory] = 12
	commit(t, l, n)
	commit(t, l, tasks("cpu", 8, task(10, 1)), tasks("memory", 8, task(1, 4)))
	round := batchPass(t, l, &nav.Batch{})
	require.Equal(t, 9, round.Committed)
	require.Equal(t, 9, noted(t, round, "bound"))
	for c := range snapshot(t, l).Capsules() {
		if c.Spec.Envelope.Reservation[orbit.CPU] == 10 {
			require.True(t, c.Placed(), "%s", c.ID)
		}
	}
}

// While there is room for all, nodes are filled one after another, and the rest stays free.
func TestBatchPacksTightly(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 50 {
		n := node(fmt.Sprintf("n%02d", i), 32)
		n.Node.Capacity[orbit.Memory] = 128
		commit(t, l, n)
	}
	commit(t, l, tasks("a", 40, task(2, 4)), tasks("b", 40, task(2, 12)), tasks("c", 20, task(8, 32))) // ten nodes, just so
	round := batchPass(t, l, &nav.Batch{})
	require.Equal(t, 100, round.Committed)
	used := 0
	for n := range snapshot(t, l).Nodes() {
		used += min(n.Capsules, 1)
	}
	require.LessOrEqual(t, used, 11)
}

// A member of a gang is not its business.
func TestBatchLeavesGangsAlone(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("n", 10), orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{
		{Name: "r", Spec: task(1, 0), Members: []orbit.CapsuleID{"m1", "m2"}}}}})
	round := batchPass(t, l, &nav.Batch{})
	require.Zero(t, round.Proposed)
	require.Len(t, round.Unplaced, 2)
	require.EqualError(t, round.Unplaced[0].Why, `capsule "m1" is a member of gang "g", and its spec has the class Batch: only specs of the class Gang are placed as gangs; submit the gang with Spec.Class orbit.GangClass`)
	var fit *orbit.NoFit
	require.NotErrorAs(t, round.Unplaced[0].Why, &fit)
	require.Zero(t, noted(t, round, "pending"))
}

// endingPlacement ends the context after so many choices.
type endingPlacement struct {
	place.Indexed
	left int
	end  context.CancelFunc
}

func (p *endingPlacement) Best(d *orbit.Draft, s *orbit.Spec) (orbit.Choice, error) {
	if p.left--; p.left == 0 {
		p.end()
	}
	return p.Indexed.Best(d, s)
}

// When its time is up, at whatever point, it hands over what it has, which counts, and says why there is no more.
func TestBatchEndsWithItsContext(t *testing.T) {
	for choices := 1; choices < 140; choices += 3 {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("a", 10), node("b", 10))
		commit(t, l, tasks("a", 15, task(1, 0)), tasks("b", 5, task(2, 0)))
		ctx, cancel := context.WithCancel(t.Context())
		b := &nav.Batch{Placement: &endingPlacement{left: choices, end: cancel}}
		var planned orbit.Plan
		var err error
		e := orbit.Engine{Ledger: l, Navigator: nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
			planned, err = b.Plan(ctx, view, pending)
			return planned, err
		})}
		round := e.Pass(t.Context())
		cancel()
		require.Equal(t, len(planned.Proposals), round.Committed)
		require.NoError(t, snapshot(t, l).Verify())
		if choices < 15 {
			require.ErrorIs(t, err, context.Canceled)
			require.Len(t, planned.Proposals, choices)
		}
		require.NotEmpty(t, planned.Proposals)
	}
}

// Numbers that do not add up in 64 bits, and work that asks for nothing, which all fits.
func TestBatchWithHostileNumbers(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 20 {
		n := node(fmt.Sprint("huge", i), math.MaxInt64)
		n.Node.Capacity[orbit.Memory] = math.MaxInt64
		commit(t, l, n)
	}
	commit(t, l, node("small", 3))
	commit(t, l, tasks("whole", 30, task(math.MaxInt64, math.MaxInt64)), tasks("half", 3, task(math.MaxInt64/2+1, 1)),
		tasks("little", 9, task(1, 0)), tasks("nothing", 100, task(0, 0)))
	round := batchPass(t, l, &nav.Batch{})
	require.NoError(t, snapshot(t, l).Verify())
	require.LessOrEqual(t, round.Committed, noted(t, round, "bound"))
	require.Less(t, noted(t, round, "bound"), 142)
	placed := map[string]int{}
	for c := range snapshot(t, l).Capsules() {
		if c.Placed() {
			placed[strings.TrimRight(string(c.ID), "-0123456789")]++
		}
	}
	require.Equal(t, 100, placed["nothing"])
	require.Equal(t, 9, placed["little"])
	require.Equal(t, 20, placed["whole"]+placed["half"])
}

// Nodes are drained, full or gone, and a label is on no node: the plan reports each reason and places nothing.
func TestBatchWhereNothingFits(t *testing.T) {
	l := &orbit.MemoryLedger{}
	round := func() orbit.Round { return batchPass(t, l, &nav.Batch{}) }
	picky := task(1, 0)
	picky.Require = []orbit.Predicate{{Key: "zone", Op: "Exists"}}
	commit(t, l, tasks("a", 3, task(1, 0)), tasks("b", 2, picky))
	r := round()
	require.Len(t, r.Unplaced, 5)
	require.Zero(t, noted(t, r, "bound"))
	drained := node("drained", 10)
	drained.Node.State = orbit.Cordoned
	commit(t, l, drained, node("full", 0))
	r = round()
	require.Len(t, r.Unplaced, 5)
	require.Zero(t, noted(t, r, "bound"))
	commit(t, l, node("empty", 10))
	r = round()
	require.Equal(t, 3, r.Committed)
	require.Equal(t, 3, noted(t, r, "bound"), "none has the label")
}

// A sweep of 5,000 tasks is one pass; where it does not fit, the bound says exactly how much does.
func TestBatchSweepIsOnePass(t *testing.T) {
	for _, c := range []struct{ nodes, tasks, want int }{{1000, 5000, 5000}, {300, 5000, 3000}, {500, 5005, 5000}} {
		l := &orbit.MemoryLedger{}
		for i := range c.nodes {
			commit(t, l, node(fmt.Sprintf("n%04d", i), 32_000)) // ten and two thirds
		}
		commit(t, l, tasks("t", c.tasks, task(3000, 0)))
		round := batchPass(t, l, &nav.Batch{})
		require.Equal(t, c.want, round.Committed)
		require.Equal(t, c.want, noted(t, round, "bound"))
		require.Len(t, round.Unplaced, c.tasks-c.want)
	}
}

// Levels share the room: whichever order was best for one, the next one plans with what that has left. And more time
// never gives less: what was the best so far is kept until something is better.
func TestBatchLevelsShareTheRoom(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	for seed := uint64(1); seed <= 12; seed++ {
		nodes := sim.Constellation(sim.Fleet{Seed: seed, Nodes: 20, Kinds: quarterMachines()})
		tasks := eightShapes(seed, nodes, 1.5)
		for _, c := range tasks {
			c.Spec.Priority = int32(len(c.Spec.Module) % 2) // 1.5 is longer than 1
		}
		most := 0
		for choices := 1; choices < 1600; choices += 97 {
			ctx, cancel := context.WithCancel(t.Context())
			b := &nav.Batch{Placement: &endingPlacement{left: choices, end: cancel}}
			e := sweeper(t, nodes, tasks, nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
				plan, _ := b.Plan(ctx, view, pending)
				return plan, nil
			}))
			submitAll(t, e.Ledger, tasks)
			round := e.Pass(t.Context())
			cancel()
			require.Zero(t, round.Conflicts+round.Infeasible)
			require.GreaterOrEqual(t, round.Committed, most, "seed %d, %d choices", seed, choices)
			most = round.Committed
		}
	}
}
