package orbit

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// viewOf returns a view of a ledger, and how to bring it up to date.
func viewOf(t require.TestingT, l Ledger, tel Telemetry) (*View, func()) {
	v, from := &View{}, source{ledger: l, telemetry: tel, mine: chaosMine, holds: true}
	refresh := func() {
		_, err := v.refresh(context.Background(), &from, time.Unix(1000, 0))
		require.NoError(t, err)
	}
	refresh()
	return v, refresh
}

// dumbScore makes many equal values, some of them no numbers, out of what it sees; ties too.
var dumbScore = ScoreFunc(func(n *NodeState, r *Report, s *Spec) (value, tie float64) {
	if n.Node.Labels["zone"] == "nan" {
		return math.NaN(), 0
	}
	if n.Node.Labels["zone"] == "inf" {
		return 0, math.Inf(1)
	}
	return float64(n.Free()[CPU] % 3), float64((n.Capsules + r.FreeSlots) % 2)
})

// slotless keeps nodes out that report a slot.
func slotless(_ *NodeState, r *Report, _ *Spec) string {
	if r.FreeSlots > 0 {
		return "have a slot"
	}
	return ""
}

// dumbBest is the loop that Exhaustive must agree with, written without looking at it. state has all that
// was reserved committed; near is asked of the view, in which nothing is.
func dumbBest(state *State, v *View, spec *Spec, filtered bool, seed uint64) (best *NodeState, devices DeviceSet, why map[string]int) {
	why = map[string]int{}
	near := map[string]bool{}
	for n := range v.State().GroupNodes(spec.Near.Group) {
		near[n.Node.Labels[spec.Near.Level]] = true
	}
	for n := range state.Nodes() {
		report := v.Report(n)
		value, tie := dumbScore(n, report, spec)
		no := dumbMisfit(n, spec)
		switch {
		case no != "":
		case spec.Near.Group != "" && len(near) == 0:
			no = "wait for group g, of which nothing is placed"
		case spec.Near.Group != "" && (n.Node.Labels["zone"] == "" || !near[n.Node.Labels["zone"]]):
			no = "are in no zone of group g"
		case filtered:
			no = slotless(n, report, spec)
		}
		if no == "" && (math.IsNaN(value) || math.IsInf(tie, 0)) {
			no = "have a score that is no number"
		}
		if no != "" {
			why[no]++
		} else if best == nil || dumbKey(n, value, tie, seed) < dumbKey(best, first(dumbScore(best, v.Report(best), spec)), second(dumbScore(best, v.Report(best), spec)), seed) {
			best = n
		}
	}
	if best != nil {
		devices = dumbDevices(best, spec)
	}
	return best, devices, why
}

func first(a, _ float64) float64  { return a }
func second(_, b float64) float64 { return b }

// dumbKey is a text that sorts as the choice goes: value, tie, hash (FNV-1a over the seed and the id), id.
func dumbKey(n *NodeState, value, tie float64, seed uint64) string {
	hash := uint64(0)
	if seed != 0 {
		hash = 14695981039346656037
		for i := range 8 {
			hash = (hash ^ seed>>(8*i)&0xff) * 1099511628211
		}
		for _, b := range []byte(n.Node.ID) {
			hash = (hash ^ uint64(b)) * 1099511628211
		}
	}
	return fmt.Sprintf("%g %g %020d %s", value, tie, hash, n.Node.ID)
}

func dumbMisfit(n *NodeState, spec *Spec) string {
	if n.Node.Unschedulable {
		return "are unschedulable"
	}
	for _, p := range spec.Require {
		if !p.Matches(n.Node.Labels) {
			return "do not meet " + p.String()
		}
	}
	if d := spec.Devices; d.Count > 0 {
		if n.Node.Devices.Count == 0 || len(d.Models) > 0 && !slices.Contains(d.Models, n.Node.Devices.Model) {
			return "have no device of model " + strings.Join(append(d.Models, []string{"any kind"}[len(d.Models):]...), ", ")
		}
		open := 0
		for i := range MaxDevices {
			if n.DeviceFree(i) >= d.Milli {
				open++
			}
		}
		if open < d.Count {
			return map[bool]string{true: fmt.Sprintf("lack a device with %d milli free", d.Milli),
				false: fmt.Sprintf("lack %d devices with %d milli free each", d.Count, d.Milli)}[d.Count == 1]
		}
	}
	for d, name := range []string{"cpu", "memory"} {
		if want := spec.Envelope.Reservation[d]; want > 0 && n.Free()[d] < want {
			return "lack " + name
		}
	}
	return ""
}

// dumbDevices tries all sets: the fullest instances that still have room, lowest index first.
func dumbDevices(n *NodeState, spec *Spec) (best DeviceSet) {
	key := func(s DeviceSet) (k []int) {
		for i := range MaxDevices {
			if s.Has(i) {
				k = append(k, n.DeviceFree(i)*100+i)
			}
		}
		slices.Sort(k)
		return k
	}
	for s := range DeviceSet(1) << n.Node.Devices.Count {
		fits := bits.OnesCount16(uint16(s)) == spec.Devices.Count
		for i := range MaxDevices {
			fits = fits && (!s.Has(i) || n.DeviceFree(i) >= spec.Devices.Milli)
		}
		if fits && (best == 0 || slices.Compare(key(s), key(best)) < 0) {
			best = s
		}
	}
	return best
}

// drafted is an engine and the draft that it is asked about.
type drafted[E PlacementEngine] struct {
	Draft
	engine E
}

// draftFor returns an empty draft for an engine.
func draftFor[E PlacementEngine](e E) *drafted[E] { return &drafted[E]{engine: e} }

func (d *drafted[E]) best(spec *Spec) (Choice, error) { return d.engine.Best(&d.Draft, spec) }

// take places a capsule by a proposal of its own.
func (d *drafted[E]) take(c *Capsule, to Choice) Proposal {
	if err := d.Place(c, to); err != nil {
		panic(err) // a choice of an engine fits
	}
	return d.Propose()
}

// planner plans at random with an Exhaustive, and commits on a ledger of its own whatever is reserved.
type planner struct {
	engine *drafted[*Exhaustive]
	view   *View
	ledger *MemoryLedger // the view's state, and what is reserved
	specs  []*Spec
	marks  []int
	states []*State // at the marks
	serial int
}

func newPlanner(t *rapid.T) *planner {
	p := &planner{ledger: &MemoryLedger{}}
	c := &chaos{ledger: p.ledger, now: time.Unix(1000, 0)}
	for i := range rapid.IntRange(0, 7).Draw(t, "nodes") {
		n := c.node(t, NodeID(fmt.Sprint("n", i)))
		n.Devices = Devices{Model: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "model"), Count: rapid.IntRange(0, 3).Draw(t, "devices")}
		n.Devices.Unhealthy = DeviceSet(rapid.IntRange(0, 1<<n.Devices.Count-1).Draw(t, "unhealthy"))
		if bad := rapid.SampledFrom([]string{"", "", "", "nan", "inf"}).Draw(t, "score"); bad != "" {
			n = n.inZone(bad)
		}
		c.try(PutNode{n})
		c.tel.say(Report{Node: n.ID, FreeSlots: rapid.IntRange(0, 1).Draw(t, "slots")}, c.now)
	}
	for range rapid.IntRange(0, 4).Draw(t, "placed before") {
		c.submit(t)
		c.place(t)
	}
	for range 3 {
		p.specs = append(p.specs, randomSpec(t))
	}
	p.view, _ = viewOf(t, p.ledger, &c.tel)
	p.engine = draftFor(&Exhaustive{Score: dumbScore, Seed: rapid.SampledFrom([]uint64{0, 0, 1, 77, math.MaxUint64}).Draw(t, "seed")})
	if rapid.Bool().Draw(t, "filter") {
		p.engine.engine.Filter = slotless
	}
	p.engine.Sync(p.view)
	return p
}

func randomSpec(t *rapid.T) *Spec {
	s := wants(rapid.Int64Range(0, 3).Draw(t, "cpu"))
	s.Envelope.Reservation[Memory] = rapid.Int64Range(0, 1).Draw(t, "memory")
	if rapid.Bool().Draw(t, "devices") {
		s.Devices = DeviceRequest{Count: rapid.IntRange(1, 2).Draw(t, "count"), Milli: rapid.SampledFrom([]int{300, 500, 1000}).Draw(t, "milli"),
			Models: rapid.SampledFrom([][]string{nil, {"A"}}).Draw(t, "models")}
	}
	if rapid.IntRange(0, 3).Draw(t, "require") == 0 {
		s.Require = []Predicate{{Key: "zone", Op: "In", Values: []string{"x"}}}
	}
	if rapid.IntRange(0, 3).Draw(t, "near") == 0 {
		s.Near = Near{Group: "g", Level: "zone"}
	}
	return s
}

// plan asks for one capsule, compares with the dumb loop, and reserves.
func (p *planner) plan(t *rapid.T) {
	spec := rapid.SampledFrom(p.specs).Draw(t, "spec")
	state := snapshotOf(t, p.ledger)
	want, devices, why := dumbBest(state, p.view, spec, p.engine.engine.Filter != nil, p.engine.engine.Seed)
	got, err := p.engine.best(spec)
	if want == nil {
		p.compareNoFit(t, state, why, err)
		return
	}
	require.NoError(t, err)
	require.Equal(t, want.Node.ID, got.Node.Node.ID)
	require.Equal(t, devices, got.Devices)
	require.Equal(t, []any{want.Used(), want.Capsules, want.devices}, []any{got.Node.Used(), got.Node.Capsules, got.Node.devices})
	p.serial++
	id := CapsuleID(fmt.Sprint("p", p.serial))
	commit(t, p.ledger, Submit{IDs: []CapsuleID{id}, Spec: spec})
	proposal := p.engine.take(snapshotOf(t, p.ledger).Capsule(id), got)
	require.Equal(t, p.view.Revision(), proposal.View)
	require.NoError(t, snapshotOf(t, p.ledger).Check(proposal), "planner and referee disagree")
	_, err = p.ledger.Propose(context.Background(), proposal)
	require.NoError(t, err)
	require.NoError(t, snapshotOf(t, p.ledger).Verify())
}

func (p *planner) compareNoFit(t *rapid.T, state *State, why map[string]int, err error) {
	var got *NoFit
	require.ErrorAs(t, err, &got)
	require.Equal(t, state.NodeCount(), got.Nodes)
	sum, reasons := 0, map[string]int{}
	for i, r := range got.Reasons {
		text, _, _ := strings.Cut(r.Why, " (x")
		if text, _, _ = strings.Cut(text, " (y"); strings.HasPrefix(r.Why, "do not meet") {
			text = r.Why
		}
		text, _, _ = strings.Cut(text, " ()")
		sum += r.Nodes
		reasons[text] += r.Nodes
		require.False(t, i > 0 && got.Reasons[i-1].Nodes < r.Nodes, "most frequent first")
	}
	require.Equal(t, state.NodeCount(), sum, "each node is counted once")
	require.Equal(t, why, reasons)
}

func (p *planner) mark(t *rapid.T) {
	p.marks = append(p.marks, p.engine.Checkpoint())
	p.states = append(p.states, snapshotOf(t, p.ledger))
}

func (p *planner) rollback(t *rapid.T) {
	if len(p.marks) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.marks)-1).Draw(t, "mark")
	p.engine.Rollback(p.marks[i])
	p.ledger = &MemoryLedger{Start: p.states[i]}
	p.marks, p.states = p.marks[:i], p.states[:i]
}

// same checks that the books show what the ledger would, had it committed what is reserved.
func (p *planner) same(t *rapid.T) {
	state, seen := snapshotOf(t, p.ledger), 0
	for _, n := range p.engine.nodes {
		if n != nil {
			want := state.Node(n.Node.ID)
			require.Equal(t, []any{want.used, want.devices, want.Capsules}, []any{n.used, n.devices, n.Capsules})
			seen++
		}
	}
	require.Equal(t, state.NodeCount(), seen)
	for n := range p.view.state.Nodes() {
		require.Same(t, n, p.view.state.NodeByIndex(n.Index()), "the view is untouched")
	}
}

// Exhaustive chooses what the dumb loop chooses: node, devices, ties with and without a seed, and the
// diagnosis. Whatever it reserves commits, one after another, on a ledger that is otherwise idle (I10,
// SCENARIOS 18): so no plan is ever over any dimension or device. Rollback restores exactly.
func TestExhaustiveAgainstDumbLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlanner(t)
		t.Repeat(map[string]func(*rapid.T){"plan": p.plan, "plan more": p.plan, "mark": p.mark, "rollback": p.rollback, "": p.same})
		p.engine.Sync(p.view) // forgets what was reserved
		p.ledger = &MemoryLedger{Start: p.view.state}
		p.same(t)
	})
}

// The diagnosis of the design, word for word.
func TestNoFitReadsWell(t *testing.T) {
	l := &MemoryLedger{}
	put := make([]Commitment, 0, 1213)
	for i := range 1213 {
		n := Node{ID: NodeID(fmt.Sprint("n", i)), Capacity: Resources{CPU: 100, Memory: 1}, Devices: Devices{Model: "T4", Count: 1}}
		if i < 801 {
			n.Devices.Unhealthy = 1
		}
		put = append(put, PutNode{n})
	}
	commit(t, l, put...)
	v, _ := viewOf(t, l, nil)
	e := draftFor(&Exhaustive{})
	e.Sync(v)
	_, err := e.best(&Spec{Envelope: Envelope{Reservation: Resources{CPU: 1, Memory: 2}}, Devices: DeviceRequest{Count: 1, Milli: 600}})
	require.EqualError(t, err, "0 of 1213 nodes fit: 801 lack a device with 600 milli free, 412 lack memory")
	_, err = e.best(&Spec{Devices: DeviceRequest{Count: 2, Milli: 1, Models: []string{"H100", "T4"}}})
	require.EqualError(t, err, "0 of 1213 nodes fit: 1213 lack 2 devices with 1 milli free each")
	_, err = e.best(&Spec{Devices: DeviceRequest{Count: 1, Milli: 1, Models: []string{"H100"}}})
	require.EqualError(t, err, "0 of 1213 nodes fit: 1213 have no device of model H100")
	e = draftFor(&Exhaustive{Filter: func(n *NodeState, _ *Report, _ *Spec) string { return "are " + string(n.Node.ID[:2]) }})
	e.Sync(v)
	_, err = e.best(wants(1))
	require.ErrorContains(t, err, "0 of 1213 nodes fit: 324 are n1, 111 are n2, ")
	empty, _ := viewOf(t, &MemoryLedger{}, nil)
	e.Sync(empty)
	_, err = e.best(wants(1))
	require.EqualError(t, err, "0 of 0 nodes fit")
}

// SCENARIOS 28: a value or a tie that is NaN or infinite takes its node out of the choice, and no other.
func TestScoreThatIsNoNumber(t *testing.T) {
	for _, bad := range [][2]float64{{math.NaN(), 0}, {math.Inf(1), 0}, {math.Inf(-1), 0}, {0, math.NaN()}, {0, math.Inf(-1)}} {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("a", 1)}, PutNode{machine("b", 1)}, PutNode{machine("c", 1)})
		v, _ := viewOf(t, l, nil)
		e := draftFor(&Exhaustive{Score: ScoreFunc(func(n *NodeState, _ *Report, _ *Spec) (float64, float64) {
			if n.Node.ID != "b" {
				return bad[0], bad[1]
			}
			return 1e300, 1e300
		})})
		e.Sync(v)
		choice, err := e.best(wants(1))
		require.NoError(t, err)
		require.Equal(t, NodeID("b"), choice.Node.Node.ID)
		e.take(&Capsule{ID: "x", Spec: wants(1)}, choice)
		_, err = e.best(wants(1))
		require.EqualError(t, err, "0 of 3 nodes fit: 2 have a score that is no number, 1 lack cpu")
	}
}

// A capsule that wants company goes where a member of the group is, and bets on it: if the member has left
// meanwhile, that is a conflict.
func TestNearBetsOnCompany(t *testing.T) {
	l, member := &MemoryLedger{}, wants(1)
	member.Group = "g"
	commit(t, l, PutNode{racked("a", "1")}, PutNode{racked("b", "2")}, PutNode{racked("c", "2")}, PutNode{racked("d", "")},
		Submit{IDs: []CapsuleID{"m"}, Spec: member}, Place{Capsule: "m", Node: "c"}, Submit{IDs: []CapsuleID{"x", "y"}, Spec: besides()})
	v, _ := viewOf(t, l, nil)
	e := draftFor(&Exhaustive{Score: ScoreFunc(func(*NodeState, *Report, *Spec) (float64, float64) { return 0, 0 })})
	e.Sync(v)
	choice, err := e.best(besides())
	require.NoError(t, err)
	require.Equal(t, NodeID("b"), choice.Node.Node.ID)
	p := e.take(v.State().Capsule("x"), choice)
	require.Contains(t, p.If, GroupIn{Group: "g", Level: "rack", Domain: "2"})
	commit(t, l, Release{Capsule: "m"})
	_, err = l.Propose(t.Context(), p)
	require.ErrorIs(t, err, ErrConflict)
	full := besides()
	full.Envelope.Reservation[CPU] = 10
	e.take(v.State().Capsule("y"), choice)
	_, err = e.best(full)
	require.EqualError(t, err, "0 of 4 nodes fit: 2 are in no rack of group g (2), 2 lack cpu")
}

// Seeds take navigators apart: among equal nodes each seed has a favourite of its own, always the same, and
// seed 0 goes by name.
func TestSeedsBreakTies(t *testing.T) {
	l := &MemoryLedger{}
	for i := range 50 {
		commit(t, l, PutNode{machine(NodeID(fmt.Sprint("n", i)), 1)})
	}
	v, _ := viewOf(t, l, nil)
	favourites := map[NodeID]bool{}
	for seed := range uint64(20) {
		var chosen []NodeID
		for range 2 {
			e := draftFor(&Exhaustive{Seed: seed})
			e.Sync(v)
			choice, err := e.best(wants(1))
			require.NoError(t, err)
			chosen = append(chosen, choice.Node.Node.ID)
		}
		require.Equal(t, chosen[0], chosen[1])
		favourites[chosen[0]] = true
		if seed == 0 {
			require.Equal(t, NodeID("n0"), chosen[0])
		}
	}
	assert.Greater(t, len(favourites), 8)
}

// pairing is a score that chooses the devices, if it can.
type pairing struct{ set DeviceSet }

func (pairing) Score(*NodeState, *Report, *Spec) (value, tie float64) { return 0, 0 }

func (p pairing) PickDevices(*NodeState, *Spec) (DeviceSet, bool) { return p.set, p.set != 0 }

// A score may choose the instances; else, or if it does not want to, the fullest that fit are taken.
func TestScoreMayPickDevices(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{Node{ID: "n", Devices: Devices{Model: "A", Count: 4}}},
		Hold{ID: "h", Node: "n", Devices: 1 << 2, Milli: 300, Ends: time.Unix(5000, 0)})
	v, _ := viewOf(t, l, nil)
	spec := &Spec{Devices: DeviceRequest{Count: 1, Milli: 500}}
	for score, want := range map[Score]DeviceSet{pairing{1 << 3}: 1 << 3, pairing{0}: 1 << 2, SpreadScore{}: 1 << 2} {
		e := draftFor(&Exhaustive{Score: score})
		e.Sync(v)
		choice, err := e.best(spec)
		require.NoError(t, err)
		require.Equal(t, want, choice.Devices)
	}
}
