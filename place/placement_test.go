package place

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// dumbScore makes many equal values, some of them no numbers, out of what it sees; ties too.
var dumbScore = score.Func(func(n *orbit.NodeState, r *orbit.Report, s *orbit.Spec) (value, tie float64) {
	if n.Node.Labels["zone"] == "nan" {
		return math.NaN(), 0
	}
	if n.Node.Labels["zone"] == "inf" {
		return 0, math.Inf(1)
	}
	return float64(n.Free()[orbit.CPU] % 3), float64((n.Capsules + r.FreeSlots) % 2)
})

// slotless keeps nodes out that report a slot.
func slotless(_ *orbit.NodeState, r *orbit.Report, _ *orbit.Spec) string {
	if r.FreeSlots > 0 {
		return "have a slot"
	}
	return ""
}

// dumbBest is the loop that Exhaustive must agree with, written without looking at it. state has all that
// was reserved committed; near is asked of the view, in which nothing is.
func dumbBest(state *orbit.State, v *orbit.View, spec *orbit.Spec, filtered bool, seed uint64) (best *orbit.NodeState, devices orbit.DeviceSet, why map[string]int) {
	why = map[string]int{}
	near, least := map[string]bool{}, ""
	for n := range v.State().GroupNodes(spec.Near.Group) {
		if zone := n.Node.Labels[spec.Near.Level]; zone != "" {
			near[zone] = true
		}
	}
	for n := range state.Nodes() {
		report := v.Report(n)
		value, tie := dumbScore(n, report, spec)
		no := dumbMisfit(n, spec)
		switch {
		case report.Expired && n.Node.Schedulable():
			no = "have no live lease"
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
			continue
		}
		if key := dumbWishes(state, spec, n.Node).key(n, value, tie, seed); best == nil || key < least {
			best, least = n, key
		}
	}
	if best != nil {
		devices = dumbDevices(best, spec)
	}
	return best, devices, why
}

// dumbKey is a text that sorts as the choice goes: value, tie, hash (FNV-1a of the id, mixed, on a ring that begins where the mixed seed says), id.
func dumbKey(n *orbit.NodeState, value, tie float64, seed uint64) string {
	hash := uint64(0)
	if seed != 0 {
		hash = 14695981039346656037
		for _, b := range []byte(n.Node.ID) {
			hash = (hash ^ uint64(b)) * 1099511628211
		}
		mixed := func(h uint64) uint64 {
			h = (h ^ h>>33) * 0xff51afd7ed558ccd
			h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
			return h ^ h>>33
		}
		hash = mixed(hash) - mixed(seed*0x9e3779b97f4a7c15)
	}
	return fmt.Sprintf("%g %g %020d %s", value, tie, hash, n.Node.ID)
}

func dumbMisfit(n *orbit.NodeState, spec *orbit.Spec) string {
	if !n.Node.Schedulable() {
		return "are unschedulable"
	}
	for _, p := range spec.Require {
		if !p.On(n.Node) {
			return "do not meet " + p.String()
		}
	}
	if d := spec.Devices; d.Count > 0 {
		if n.Node.Devices.Count == 0 || len(d.Models) > 0 && !slices.Contains(d.Models, n.Node.Devices.Model) {
			return map[bool]string{true: "have no device", false: "have no device of model " + strings.Join(d.Models, ", ")}[len(d.Models) == 0]
		}
		open := 0
		for i := range orbit.MaxDevices {
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
func dumbDevices(n *orbit.NodeState, spec *orbit.Spec) (best orbit.DeviceSet) {
	key := func(s orbit.DeviceSet) (k []int) {
		for i := range orbit.MaxDevices {
			if s.Has(i) {
				k = append(k, n.DeviceFree(i)*100+i)
			}
		}
		slices.Sort(k)
		return k
	}
	for s := range orbit.DeviceSet(1) << n.Node.Devices.Count {
		fits := bits.OnesCount16(uint16(s)) == spec.Devices.Count
		for i := range orbit.MaxDevices {
			fits = fits && (!s.Has(i) || n.DeviceFree(i) >= spec.Devices.Milli)
		}
		if fits && (best == 0 || slices.Compare(key(s), key(best)) < 0) {
			best = s
		}
	}
	return best
}

// drafted is an engine and the draft that it is asked about.
type drafted[E orbit.PlacementEngine] struct {
	orbit.Draft
	engine E
}

// draftFor returns an empty draft for an engine.
func draftFor[E orbit.PlacementEngine](e E) *drafted[E] { return &drafted[E]{engine: e} }

func (d *drafted[E]) best(spec *orbit.Spec) (orbit.Choice, error) {
	return d.engine.Best(&d.Draft, spec)
}

// take places a capsule by a proposal of its own.
func (d *drafted[E]) take(c *orbit.Capsule, to orbit.Choice) orbit.Proposal {
	if err := d.Place(c, to); err != nil {
		panic(err) // a choice of an engine fits
	}
	return d.Propose()
}

// planner plans at random with an Exhaustive, and commits on a ledger of its own whatever is reserved.
type planner struct {
	engine *drafted[*Exhaustive]
	view   *orbit.View
	ledger *orbit.MemoryLedger // the view's state, and what is reserved
	specs  []*orbit.Spec
	marks  []int
	states []*orbit.State // at the marks
	serial int
	// Diagnoses that are compared when the plan is over.
	unread []func(*rapid.T)
}

func newPlanner(t *rapid.T) *planner {
	p, tel := &planner{ledger: &orbit.MemoryLedger{}}, &board{}
	nodes := rapid.IntRange(0, 7).Draw(t, "nodes")
	for i := range nodes {
		n := randomNode(t, orbit.NodeID(fmt.Sprint("n", i)))
		commit(t, p.ledger, orbit.PutNode{Node: n})
		tel.say(orbit.Report{Node: n.ID, FreeSlots: rapid.IntRange(0, 1).Draw(t, "slots"), Expired: rapid.IntRange(0, 7).Draw(t, "expired") == 0}, time.Unix(1000, 0))
	}
	member := wants(1)
	member.Group = "g"
	for i := range min(nodes, rapid.IntRange(0, 4).Draw(t, "placed before")) {
		id := orbit.CapsuleID(fmt.Sprint("k", i))
		spec := rapid.SampledFrom([]*orbit.Spec{wants(2), member, {Devices: orbit.DeviceRequest{Count: 1, Milli: 400}}}).Draw(t, "spec")
		n := snapshotOf(t, p.ledger).Node(orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, nodes-1).Draw(t, "node"))))
		set, _ := n.PickDevices(spec)
		_, _ = p.ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{ // if it fits
			orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: n.Node.ID, Devices: set}}})
	}
	for range 3 {
		spec := randomSpec(t)
		if rapid.Bool().Draw(t, "one that a ledger hands out") {
			var err error
			spec, err = spec.Share()
			require.NoError(t, err)
		}
		p.specs = append(p.specs, spec)
	}
	p.view, _ = viewOf(t, p.ledger, tel)
	p.engine = draftFor(&Exhaustive{Score: dumbScore, Seed: rapid.SampledFrom([]uint64{0, 0, 1, 77, math.MaxUint64}).Draw(t, "seed")})
	if rapid.Bool().Draw(t, "filter") {
		p.engine.engine.Filter = slotless
	}
	p.engine.Sync(p.view)
	return p
}

func randomNode(t *rapid.T, id orbit.NodeID) orbit.Node {
	n := machine(id, rapid.Int64Range(0, 6).Draw(t, "cpu"))
	n.Capacity[orbit.Memory] = rapid.Int64Range(0, 2).Draw(t, "memory")
	n.Cordon(rapid.IntRange(0, 5).Draw(t, "draining") == 0)
	n.Devices = orbit.Devices{Model: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "model"), Count: rapid.IntRange(0, 3).Draw(t, "devices")}
	n.Devices.Unhealthy = orbit.DeviceSet(rapid.IntRange(0, 1<<n.Devices.Count-1).Draw(t, "unhealthy"))
	if zone := rapid.SampledFrom([]string{"", "x", "y", "x", "y", "x", "y", "nan", "inf"}).Draw(t, "zone"); zone != "" {
		n = labelled(n, "zone", zone)
	}
	return n
}

func randomSpec(t *rapid.T) *orbit.Spec {
	s := wants(rapid.Int64Range(0, 3).Draw(t, "cpu"))
	s.Envelope.Reservation[orbit.Memory] = rapid.Int64Range(0, 1).Draw(t, "memory")
	if rapid.Bool().Draw(t, "devices") {
		s.Devices = orbit.DeviceRequest{Count: rapid.IntRange(1, 2).Draw(t, "count"), Milli: rapid.SampledFrom([]int{300, 500, 1000}).Draw(t, "milli"),
			Models: rapid.SampledFrom([][]string{nil, {"A"}}).Draw(t, "models")}
	}
	if rapid.IntRange(0, 3).Draw(t, "require") == 0 {
		s.Require = predicates(rapid.SampledFrom([]string{"zone in (x)", "zone in (x)", "(zone in (x)) || (orbit/node in (n1))", "orbit/node in (n0, n2)"}).Draw(t, "requirement"))
	}
	if rapid.IntRange(0, 3).Draw(t, "near") == 0 {
		s.Near = orbit.Near{Group: "g", Level: "zone"}
	}
	drawWishes(t, s, "zone", orbit.NodeKey)
	return s
}

// plan asks for one capsule, compares with the dumb loop, and reserves.
func (p *planner) plan(t *rapid.T) {
	spec := rapid.SampledFrom(p.specs).Draw(t, "spec")
	state := snapshotOf(t, p.ledger)
	want, devices, why := dumbBest(state, p.view, spec, p.engine.engine.Filter != nil, p.engine.engine.Seed)
	got, err := p.engine.best(spec)
	if want == nil {
		if rapid.Bool().Draw(t, "read later") {
			p.unread = append(p.unread, func(t *rapid.T) { p.compareNoFit(t, state, why, err) })
		} else {
			p.compareNoFit(t, state, why, err)
		}
		return
	}
	require.NoError(t, err)
	require.Equal(t, want.Node.ID, got.Node.Node.ID)
	require.Equal(t, devices, got.Devices)
	require.Equal(t, []any{want.Used(), want.Capsules, devicesFree(want)}, []any{got.Node.Used(), got.Node.Capsules, devicesFree(got.Node)})
	p.serial++
	id := orbit.CapsuleID(fmt.Sprint("p", p.serial))
	commit(t, p.ledger, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec})
	proposal := p.engine.take(snapshotOf(t, p.ledger).Capsule(id), got)
	require.Equal(t, p.view.Revision(), proposal.View)
	proposal.View = 0 // the capsule is newer
	require.NoError(t, snapshotOf(t, p.ledger).Check(proposal), "planner and referee disagree")
	_, err = p.ledger.Propose(context.Background(), proposal)
	require.NoError(t, err)
	require.NoError(t, snapshotOf(t, p.ledger).Verify())
}

func (p *planner) compareNoFit(t *rapid.T, state *orbit.State, why map[string]int, err error) {
	var got *orbit.NoFit
	require.ErrorAs(t, err, &got)
	require.Equal(t, state.NodeCount(), got.Nodes())
	sum, reasons := 0, map[string]int{}
	for text, nodes := range got.Reasons() {
		if strings.HasPrefix(text, "are in no zone") {
			text, _, _ = strings.Cut(text, " (")
		}
		sum += nodes
		reasons[text] += nodes
		require.Positive(t, nodes)
	}
	before := state.NodeCount()
	for _, text := range got.Texts() {
		nodes, err := strconv.Atoi(strings.Fields(text)[0])
		require.NoError(t, err)
		require.LessOrEqual(t, nodes, before, "most frequent first")
		before = nodes
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
	p.ledger = &orbit.MemoryLedger{Start: p.states[i]}
	p.marks, p.states = p.marks[:i], p.states[:i]
}

// same checks that the books show what the ledger would, had it committed what is reserved.
func (p *planner) same(t *rapid.T) {
	state, seen := snapshotOf(t, p.ledger), 0
	for n := range p.engine.Nodes() {
		want := state.Node(n.Node.ID)
		require.Equal(t, []any{want.Used(), devicesFree(want), want.Capsules}, []any{n.Used(), devicesFree(n), n.Capsules})
		seen++
	}
	require.Equal(t, state.NodeCount(), seen)
	for n := range p.view.State().Nodes() {
		require.Same(t, n, p.view.State().NodeByIndex(n.Index()), "the view is untouched")
	}
}

// Exhaustive chooses what the dumb loop chooses: node, devices, ties with and without a seed, and the
// diagnosis. Whatever it reserves commits, one after another, on a ledger that is otherwise idle (I10,
// SCENARIOS 18): so no plan is ever over any dimension or device. Rollback restores exactly. A diagnosis says the same
// whenever it is read.
func TestExhaustiveAgainstDumbLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlanner(t)
		t.Repeat(map[string]func(*rapid.T){"plan": p.plan, "plan more": p.plan, "mark": p.mark, "rollback": p.rollback, "": p.same})
		p.engine.Sync(p.view) // forgets what was reserved
		p.ledger = &orbit.MemoryLedger{Start: p.view.State()}
		p.same(t)
		for range 3 {
			p.plan(t)
		}
		for _, read := range p.unread {
			read(t)
		}
	})
}

// The diagnosis of the design, word for word.
func TestNoFitReadsWell(t *testing.T) {
	l := &orbit.MemoryLedger{}
	put := make([]orbit.Commitment, 0, 1213)
	for i := range 1213 {
		n := orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: orbit.Resources{orbit.CPU: 100, orbit.Memory: 1}, Devices: orbit.Devices{Model: "T4", Count: 1}}
		if i < 801 {
			n.Devices.Unhealthy = 1
		}
		put = append(put, orbit.PutNode{Node: n})
	}
	commit(t, l, put...)
	v, _ := viewOf(t, l, nil)
	e := draftFor(&Exhaustive{})
	e.Sync(v)
	_, err := e.best(&orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1, orbit.Memory: 2}}, Devices: orbit.DeviceRequest{Count: 1, Milli: 600}})
	require.EqualError(t, err, "0 of 1213 nodes fit: 801 lack a device with 600 milli free, 412 lack memory; no node is that large: the largest has 1 byte of memory")
	_, err = e.best(&orbit.Spec{Devices: orbit.DeviceRequest{Count: 2, Milli: 1, Models: []string{"H100", "T4"}}})
	require.EqualError(t, err, "0 of 1213 nodes fit: 1213 lack 2 devices with 1 milli free each; no node is that large: the largest has 1 device")
	_, err = e.best(&orbit.Spec{Devices: orbit.DeviceRequest{Count: 1, Milli: 1, Models: []string{"H100"}}})
	require.EqualError(t, err, "0 of 1213 nodes fit: 1213 have no device of model H100")
	e = draftFor(&Exhaustive{Filter: func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string { return "are " + string(n.Node.ID[:2]) }})
	e.Sync(v)
	_, err = e.best(wants(1))
	require.ErrorContains(t, err, "0 of 1213 nodes fit: 324 are n1, 111 are n2, ")
	empty, _ := viewOf(t, &orbit.MemoryLedger{}, nil)
	e.Sync(empty)
	_, err = e.best(wants(1))
	require.EqualError(t, err, "there are no nodes")
}

// SCENARIOS 28: a value or a tie that is NaN or infinite takes its node out of the choice, and no other.
func TestScoreThatIsNoNumber(t *testing.T) {
	for _, bad := range [][2]float64{{math.NaN(), 0}, {math.Inf(1), 0}, {math.Inf(-1), 0}, {0, math.NaN()}, {0, math.Inf(-1)}} {
		l := &orbit.MemoryLedger{}
		commit(t, l, orbit.PutNode{Node: machine("a", 1)}, orbit.PutNode{Node: machine("b", 1)}, orbit.PutNode{Node: machine("c", 1)})
		v, _ := viewOf(t, l, nil)
		e := draftFor(&Exhaustive{Score: score.Func(func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (float64, float64) {
			if n.Node.ID != "b" {
				return bad[0], bad[1]
			}
			return 1e300, 1e300
		})})
		e.Sync(v)
		choice, err := e.best(wants(1))
		require.NoError(t, err)
		require.Equal(t, orbit.NodeID("b"), choice.Node.Node.ID)
		e.take(&orbit.Capsule{ID: "x", Spec: wants(1)}, choice)
		_, err = e.best(wants(1))
		require.EqualError(t, err, "0 of 3 nodes fit: 2 have a score that is no number, 1 lacks cpu")
	}
}

// A capsule that wants company goes where a member of the group is: if the member has left meanwhile, that is a conflict.
// A member of the group itself bets on that, because by the rule it could start the group there.
func TestNearBetsOnCompany(t *testing.T) {
	l, member := &orbit.MemoryLedger{}, wants(1)
	member.Group = "g"
	commit(t, l, orbit.PutNode{Node: racked("a", "1")}, orbit.PutNode{Node: racked("b", "2")}, orbit.PutNode{Node: racked("c", "2")}, orbit.PutNode{Node: racked("d", "")},
		orbit.Submit{IDs: []orbit.CapsuleID{"m"}, Spec: member}, orbit.Place{Capsule: "m", Node: "c"}, orbit.Submit{IDs: []orbit.CapsuleID{"x", "y"}, Spec: besides()})
	v, _ := viewOf(t, l, nil)
	e := draftFor(&Exhaustive{Score: score.Func(func(*orbit.NodeState, *orbit.Report, *orbit.Spec) (float64, float64) { return 0, 0 })})
	e.Sync(v)
	choice, err := e.best(besides())
	require.NoError(t, err)
	require.Equal(t, orbit.NodeID("b"), choice.Node.Node.ID)
	p, bet := e.take(v.State().Capsule("x"), choice), orbit.GroupIn{Group: "g", Level: "rack", Domain: "2"}
	require.NotContains(t, p.If, bet)
	own := besides()
	own.Group = "g"
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"own"}, Spec: own})
	v, _ = viewOf(t, l, nil)
	e.Sync(v)
	choice, err = e.best(own)
	require.NoError(t, err)
	q := e.take(v.State().Capsule("own"), choice)
	require.Contains(t, q.If, bet)
	commit(t, l, orbit.Release{Capsule: "m", Final: true})
	for _, p := range []orbit.Proposal{p, q} {
		_, err = l.Propose(t.Context(), p)
		require.ErrorIs(t, err, orbit.ErrConflict)
	}
	full := besides()
	full.Envelope.Reservation[orbit.CPU] = 10
	e.take(v.State().Capsule("y"), choice)
	_, err = e.best(full)
	require.EqualError(t, err, "0 of 4 nodes fit: 2 are in no rack of group g (2), 2 lack cpu")
}

// Seeds take navigators apart: among equal nodes each seed has a favourite of its own, always the same, and
// seed 0 goes by name.
func TestSeedsBreakTies(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 50 {
		commit(t, l, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprint("n", i)), 1)})
	}
	v, _ := viewOf(t, l, nil)
	favourites := map[orbit.NodeID]bool{}
	for seed := range uint64(20) {
		var chosen []orbit.NodeID
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
			require.Equal(t, orbit.NodeID("n0"), chosen[0])
		}
	}
	assert.Greater(t, len(favourites), 8)
}

// pairing is a score that chooses the devices, if it can.
type pairing struct{ set orbit.DeviceSet }

func (pairing) Score(*orbit.NodeState, *orbit.Report, *orbit.Spec) (value, tie float64) { return 0, 0 }

func (p pairing) PickDevices(*orbit.NodeState, *orbit.Spec) (orbit.DeviceSet, bool) {
	return p.set, p.set != 0
}

// A score may choose the instances; else, or if it does not want to, or chooses wrongly, the fullest that fit are taken.
func TestScoreMayPickDevices(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n", Devices: orbit.Devices{Model: "A", Count: 4}}},
		orbit.Hold{ID: "h", Node: "n", Devices: 1 << 2, Milli: 300, Ends: time.Unix(5000, 0)})
	v, _ := viewOf(t, l, nil)
	spec := &orbit.Spec{Devices: orbit.DeviceRequest{Count: 1, Milli: 500}}
	for score, want := range map[orbit.Score]orbit.DeviceSet{pairing{1 << 3}: 1 << 3, pairing{0}: 1 << 2, pairing{3 << 2}: 1 << 2, pairing{1 << 9}: 1 << 2, score.Spread{}: 1 << 2} {
		e := draftFor(&Exhaustive{Score: score})
		e.Sync(v)
		choice, err := e.best(spec)
		require.NoError(t, err)
		require.Equal(t, want, choice.Devices)
	}
}

// Without a draft or a spec engines say that they need both, and before the first Sync that it is due.
func TestBestWithoutArguments(t *testing.T) {
	for _, engine := range []orbit.PlacementEngine{&Exhaustive{}, &Indexed{}, &Sampled{}} {
		_, err := engine.Best(nil, &orbit.Spec{})
		require.ErrorIs(t, err, orbit.ErrInvalid)
		_, err = engine.Best(&orbit.Draft{}, nil)
		require.ErrorIs(t, err, orbit.ErrInvalid)
		_, err = engine.Best(&orbit.Draft{}, &orbit.Spec{})
		require.ErrorContains(t, err, "sync the draft first")
	}
}
