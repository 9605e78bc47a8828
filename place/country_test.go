package place

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// country is a random constellation with a life of its own: nodes join, change and leave, others take room and
// give it back. The kind of world decides what is to be met in it: hardly a label or one that differs on every
// node, a few models or very many, machines that are all alike or that differ in everything.
type country struct {
	ledger *orbit.MemoryLedger
	tel    board
	now    time.Time
	rng    *rand.Rand
	taste  taste
	serial int
	specs  []*orbit.Spec
	// How many placed capsules have got another spec.
	respecified int
}

type taste struct {
	hosts  bool // a label that differs on every node
	racks  int
	models int
	sizes  []func(*rand.Rand) orbit.Resources
	plain  bool // no labels, nothing drained
	wide   bool // very many kinds of nodes, of which specs speak: labels have to be left out
	agents bool // most nodes confirm, so what has left them still runs there for a while
}

// Sizes of machines, from which a world has some.
var machineSizes = map[string]func(*rand.Rand) orbit.Resources{
	"small": func(r *rand.Rand) orbit.Resources {
		return orbit.Resources{orbit.CPU: r.Int64N(12), orbit.Memory: r.Int64N(4), orbit.Disk: 3 * r.Int64N(2), 6: r.Int64N(3)}
	},
	"alike": func(*rand.Rand) orbit.Resources { return orbit.Resources{orbit.CPU: 8, orbit.Memory: 4} },
	"real": func(r *rand.Rand) orbit.Resources {
		return orbit.Resources{orbit.CPU: 1000 << r.IntN(7), orbit.Memory: 1 << (30 + r.IntN(10)), orbit.Disk: r.Int64N(1 << 40), orbit.Slots: 100}
	},
	"huge": func(r *rand.Rand) (out orbit.Resources) {
		for d := range out {
			out[d] = hugeNumbers[r.IntN(len(hugeNumbers))]
		}
		return out
	},
	"none": func(*rand.Rand) orbit.Resources { return orbit.Resources{} },
}

// Around where integers stop being exact as floats, and up to the end.
var hugeNumbers = []int64{0, 3, 1 << 53, 1<<53 - 1, 1<<53 + 1, 1<<53 + 2, 1 << 54, 1<<54 + 3, 1 << 60, 1 << 62, 1<<62 + 1, math.MaxInt64}

func newCountry(t *rapid.T) *country { return newCountryOf(t, false) }

func newCountryOf(t *rapid.T, wide bool) *country {
	w := &country{now: time.Unix(1000, 0), rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "details"), 0))}
	w.ledger = &orbit.MemoryLedger{Bounds: orbit.Limits{Terminal: 50, NominatedShare: rapid.SampledFrom([]int{10, 100}).Draw(t, "share"), History: rapid.SampledFrom([]int{0, 0, 0, 40}).Draw(t, "history")}}
	w.tel.stale = 10 * time.Second
	w.taste = taste{
		hosts:  rapid.Bool().Draw(t, "hosts"),
		racks:  rapid.SampledFrom([]int{2, 10, 60}).Draw(t, "racks"),
		models: rapid.SampledFrom([]int{1, 2, 2, 1000}).Draw(t, "models"),
		plain:  rapid.IntRange(0, 4).Draw(t, "plain") == 0,
	}
	if wide {
		w.taste = taste{hosts: true, racks: 60, models: 2, wide: true}
	}
	w.taste.agents = rapid.Bool().Draw(t, "agents")
	for _, name := range rapid.SampledFrom([][]string{{"small"}, {"alike"}, {"alike"}, {"real"}, {"huge"}, {"small", "none"}, {"alike", "small", "real", "huge"}}).Draw(t, "sizes") {
		w.taste.sizes = append(w.taste.sizes, machineSizes[name])
	}
	most := rapid.SampledFrom([]int{0, scanBelow + 4, 60, 150, 150, 150}).Draw(t, "most nodes")
	least := most / 2
	if wide {
		least, most = maxKinds+10, maxKinds+50
	}
	var do []orbit.Commitment
	for i := range rapid.IntRange(least, most).Draw(t, "nodes") {
		do = append(do, orbit.PutNode{Node: w.node(orbit.NodeID(fmt.Sprintf("n%03d", 4*i)))})
	}
	w.try(do...)
	for range rapid.IntRange(1, 5).Draw(t, "specs") {
		w.spec(t)
	}
	return w
}

// try proposes; what does not hold is refused, and that is as well.
func (w *country) try(do ...orbit.Commitment) bool {
	_, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	return err == nil
}

// node invents a machine.
func (w *country) node(id orbit.NodeID) orbit.Node {
	r := w.rng
	n := orbit.Node{ID: id, Capacity: w.taste.sizes[r.IntN(len(w.taste.sizes))](r), Labels: map[string]string{}}
	n.Confirms = w.taste.agents && r.IntN(4) > 0
	if w.taste.plain {
		return n
	}
	if zone := []string{"", "x", "x", "y", "y", "nan", "inf", "absent"}[r.IntN(8)]; zone != "absent" {
		n.Labels["zone"] = zone
	}
	if rack := r.IntN(w.taste.racks + 1); rack > 0 {
		n.Labels["rack"] = fmt.Sprint("r", rack)
	}
	if w.taste.hosts {
		w.serial++
		n.Labels["host"] = strconv.Itoa(w.serial)
	}
	if gen := r.IntN(6); gen > 0 {
		n.Labels["gen"] = []string{"", "1", "2", "3", "10", "old"}[gen]
	}
	n.Cordon(r.IntN(10) == 0)
	for r.IntN(6) == 0 {
		n.Taints = append(n.Taints, orbit.Taint{Key: fmt.Sprint("t", r.IntN(2)), Effect: []string{"NoSchedule", "NoExecute", "PreferNoSchedule"}[r.IntN(3)]})
	}
	for _, name := range []string{"ip", "key"} {
		if r.IntN(2) == 0 {
			n.Extras = append(n.Extras, orbit.Extra{Name: name, Amount: int64(r.IntN(4))})
		}
	}
	if r.IntN(2) == 0 {
		n.Devices = orbit.Devices{Model: fmt.Sprint("m", r.IntN(w.taste.models)), Count: 1 + r.IntN(4)}
		n.Devices.Unhealthy = orbit.DeviceSet(r.IntN(1<<n.Devices.Count)) & orbit.DeviceSet(r.IntN(1<<16))
	}
	return n
}

// spec adds a spec to those that are in use, or replaces one: the one copy of it that a ledger hands out.
func (w *country) spec(t *rapid.T) {
	w.serial++
	id := orbit.CapsuleID(fmt.Sprint("spec", w.serial))
	commit(t, w.ledger, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: w.invent(t)})
	spec := snapshotOf(t, w.ledger).Capsule(id).Spec
	if len(w.specs) < 12 {
		w.specs = append(w.specs, spec)
		return
	}
	w.specs[w.rng.IntN(len(w.specs))] = spec
}

func (w *country) invent(t *rapid.T) *orbit.Spec {
	s := &orbit.Spec{Module: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "module"), Priority: rapid.SampledFrom([]int32{0, 0, 1, 5}).Draw(t, "priority")}
	s.Envelope.Reservation = orbit.Resources{orbit.CPU: rapid.Int64Range(0, 3).Draw(t, "cpu"), orbit.Memory: rapid.Int64Range(0, 1).Draw(t, "memory")}
	often := func(n int, what string) bool { return rapid.IntRange(0, 9).Draw(t, what) < n }
	if often(1, "wants much") {
		d := rapid.IntRange(0, orbit.Dimensions-1).Draw(t, "dimension")
		s.Envelope.Reservation[d] = rapid.SampledFrom(hugeNumbers).Draw(t, "want")
	}
	if often(3, "wants devices") {
		s.Devices = orbit.DeviceRequest{Count: rapid.IntRange(1, 3).Draw(t, "count"), Milli: rapid.SampledFrom([]int{1, 300, 500, 999, 1000, 1000}).Draw(t, "milli"),
			Models: rapid.SampledFrom([][]string{nil, {"m0"}, {"m1", "m7"}}).Draw(t, "models")}
	}
	predicates := worldPredicates
	if w.taste.wide {
		predicates = widePredicates
	}
	for often(3, "requires") {
		s.Require = append(s.Require, rapid.SampledFrom(slices.Concat(predicates, alternatives)).Draw(t, "requirement"))
	}
	for often(3, "tolerates") {
		s.Tolerate = append(s.Tolerate, rapid.SampledFrom([]orbit.Toleration{{Op: "Exists"}, {Key: "t0"}, {Key: "t1", Op: "Exists", Effect: "NoSchedule"}, {Op: "Exists", Effect: "PreferNoSchedule"}}).Draw(t, "toleration"))
	}
	for often(4, "prefers") {
		p := orbit.Preference{Predicate: rapid.SampledFrom(slices.Concat(predicates, alternatives)).Draw(t, "preference"), Weight: rapid.SampledFrom([]float64{1, 2.5, 5, -3, 0.1, -1e9}).Draw(t, "weight")}
		s.Prefer = append(s.Prefer, p)
	}
	if often(3, "spreads") {
		s.Spread = rapid.SampledFrom([]orbit.Domains{{Level: "zone", Names: []string{"x"}}, {Level: "rack", Names: []string{"r1", "r2"}}, {Level: "zone", Names: []string{"", "y"}}, {Level: "host", Names: []string{"7"}}}).Draw(t, "spread")
	}
	if often(3, "is in a group") {
		s.Group = rapid.SampledFrom([]string{"g", "h"}).Draw(t, "group")
	}
	drawWishes(t, s, "zone", "zone", "rack", "host", "gen", "unheard", orbit.NodeKey)
	if often(3, "wants company") {
		s.Near = rapid.SampledFrom([]orbit.Near{{Group: "g", Level: "zone"}, {Group: "g", Level: "rack"}, {Group: "h", Level: "rack"}, {Group: "none", Level: "zone"}, {Group: "h", Level: "host"}}).Draw(t, "near")
	}
	for often(2, "wants more company") {
		s.Nears = append(s.Nears, orbit.Near{Group: rapid.SampledFrom([]string{"g", "h", "none"}).Draw(t, "near, too"), Level: rapid.SampledFrom([]string{"zone", "rack", "host", orbit.NodeKey}).Draw(t, "by")})
	}
	for _, name := range []string{"key", "ip"} {
		if often(1, "takes extras") {
			s.Extras = append(s.Extras, orbit.Extra{Name: name, Amount: rapid.Int64Range(1, 2).Draw(t, "amount")})
		}
	}
	levels := rapid.SampledFrom([]string{"zone", "rack", "host", orbit.NodeKey, orbit.NodeKey})
	if often(3, "keeps apart") {
		s.Apart = append(s.Apart, orbit.Apart{Group: rapid.SampledFrom([]string{"g", "h"}).Draw(t, "from"), Level: levels.Draw(t, "level"), Labelled: often(5, "asks for the label")})
	}
	if often(6, "is even") {
		e := orbit.Even{Group: cmp.Or(s.Group, "h"), Level: levels.Draw(t, "level"), MaxSkew: rapid.IntRange(1, 3).Draw(t, "skew"), MinDomains: rapid.IntRange(0, 3).Draw(t, "domains"),
			HonorTaints: often(3, "honors taints"), IgnoreRequire: often(3, "ignores requirements")}
		if often(3, "names domains") {
			e.Domains = rapid.SampledFrom([][]string{{"x", "y"}, {"r1", "r2", "r3"}}).Draw(t, "names")
		}
		s.Even = append(s.Even, e)
	}
	return s
}

var (
	worldPredicates = predicates("zone in (x)", "zone in (y, nan)", "zone notin (x)", "zone", "!zone", "gen > 1", "gen < 3",
		"rack in (r1, r2, r3)", "rack notin (r1)", "!rack", "host", "host notin (1, 2, 3)", "host > 60", "host < 90", "unheard", "unheard notin (of)",
		"orbit/node in (n032, n036, n308)", "orbit/node notin (n000, n004)", "orbit/node")
	widePredicates = predicates("zone in (x)", "host > 60", "host < 90", "host < 3", "host notin (1, 2, 3)", "rack in (r1, r2, r3)", "rack notin (r1)", "orbit/node in (n004, n280)", "orbit/node notin (n012)")
	// What is for requirements alone.
	alternatives = predicates("(zone in (x)) || (host in (7, 70))", "(rack in (r1) && host > 60) || (orbit/node in (n016, n020))", "(host in (1, 2, 3)) || (host in (3, 4) && zone in (y))",
		"(unheard) || (!zone && gen < 3)", "(orbit/node in (n024)) || (orbit/node in (n028) && gen > 1)", "(orbit/node in (gone))")
)

func predicates(texts ...string) (out []orbit.Predicate) {
	for _, text := range texts {
		var p orbit.Predicate
		err := p.Set(text)
		if err != nil {
			panic(err)
		}
		out = append(out, p)
	}
	return out
}

// some returns up to n of the members, in any order.
func (w *country) some(n int) (out []*orbit.NodeState) {
	for member := range snapshotOf(panicky{}, w.ledger).Nodes() {
		out = append(out, member)
	}
	w.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(n, len(out))]
}

// few draws how many are to be met by something: mostly some, now and then nearly all.
func few(t *rapid.T) int { return rapid.SampledFrom([]int{1, 2, 5, 10, 40, 120}).Draw(t, "how many") }

// change gives nodes other capacities, labels, devices, or another mood; or only some of that.
func (w *country) change(t *rapid.T) {
	what := rapid.SampledFrom([]string{"all", "capacity", "labels", "devices", "taints", "drain"}).Draw(t, "what")
	for _, n := range w.some(few(t)) {
		is, next := *n.Node, w.node(n.Node.ID)
		switch what {
		case "all":
			is = next
		case "capacity":
			is.Capacity = next.Capacity
		case "labels":
			is.Labels = next.Labels
		case "devices":
			is.Devices = next.Devices
		case "taints":
			is.Taints = next.Taints
		case "drain":
			is.Cordon(is.Schedulable())
		}
		w.try(orbit.PutNode{Node: is})
	}
}

// joiners come under ids that sort between others, or under ids that have been there before.
func (w *country) join(t *rapid.T) {
	for range min(few(t), 30) {
		id := fmt.Sprintf("n%03d", w.rng.IntN(600))
		if w.rng.IntN(2) == 0 {
			id += strconv.Itoa(w.rng.IntN(100))
		}
		if snapshotOf(t, w.ledger).Node(orbit.NodeID(id)) == nil && snapshotOf(t, w.ledger).NodeCount() < 200 {
			w.try(orbit.PutNode{Node: w.node(orbit.NodeID(id))})
		}
	}
}

// leave lets nodes go with all that is on them. Some return, in another order: into each other's slots.
func (w *country) leave(t *rapid.T) {
	gone := w.some(few(t))
	for _, n := range gone {
		w.try(append(emptying(snapshotOf(t, w.ledger), n.Node.ID), orbit.RemoveNode{Node: n.Node.ID})...)
	}
	w.rng.Shuffle(len(gone), func(i, j int) { gone[i], gone[j] = gone[j], gone[i] }) // the last slot that is free is the first taken
	for _, n := range gone[:rapid.IntRange(0, len(gone)).Draw(t, "return")] {
		w.try(orbit.PutNode{Node: w.node(n.Node.ID)})
	}
}

// release ends capsules, or suspends them.
func (w *country) release(t *rapid.T) {
	final := rapid.Bool().Draw(t, "final")
	for _, n := range w.some(few(t)) {
		for k := range snapshotOf(t, w.ledger).On(n.Node.ID) {
			w.try(orbit.Release{Capsule: k.ID, Final: final})
			break
		}
	}
}

// work lets capsules begin, fail and stop, as agents say.
func (w *country) work(t *rapid.T) {
	for _, n := range w.some(few(t)) {
		s := snapshotOf(t, w.ledger)
		for k := range s.On(n.Node.ID) {
			switch w.rng.IntN(4) {
			case 0:
				w.try(orbit.Release{Capsule: k.ID, Stopped: true, At: orbit.Instant(w.now.Add(-time.Duration(w.rng.IntN(20)) * time.Second).UnixNano())})
			case 1:
				w.try(orbit.Confirm{Capsule: k.ID, Since: k.PlacedAt, Begun: true}, orbit.Release{Capsule: k.ID, Final: true}) // it still runs there
			default:
				w.try(orbit.Confirm{Capsule: k.ID, Since: k.PlacedAt, Begun: true})
			}
		}
	}
}

// stop lets some of what has left nodes stop.
func (w *country) stop(t *rapid.T) {
	for _, n := range w.some(few(t)) {
		for r := range snapshotOf(t, w.ledger).Remains(n.Node.ID) {
			if w.rng.IntN(3) > 0 {
				w.try(orbit.Confirm{Capsule: r.Capsule, Since: r.Since, Stopped: true})
			}
		}
	}
}

// compete lets somebody else take room: with capsules of the same specs, or with holds on what is free.
func (w *country) compete(t *rapid.T) {
	spec := rapid.SampledFrom(w.specs).Draw(t, "spec")
	hold := rapid.Bool().Draw(t, "hold")
	for _, n := range w.some(few(t)) {
		w.serial++
		if hold {
			h := orbit.Hold{ID: orbit.HoldID(fmt.Sprint("h", w.serial)), Node: n.Node.ID, Ends: w.now.Add(time.Hour)}
			for d, free := range n.Free() {
				h.Room[d] = max(free, 0) / (1 + w.rng.Int64N(3))
			}
			if h.Devices = devicesWith(n, 300); h.Devices != 0 {
				h.Milli = 300
			}
			w.try(h)
			continue
		}
		id := orbit.CapsuleID(fmt.Sprint("c", w.serial))
		set, _ := n.PickDevices(spec)
		w.try(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: n.Node.ID, Devices: set})
	}
}

// wait lets a capsule or a gang of two specs wait, for which room may be nominated.
func (w *country) wait(t *rapid.T) {
	w.serial++
	id := fmt.Sprint("w", w.serial)
	spec := func() *orbit.Spec { return rapid.SampledFrom(w.specs).Draw(t, "spec") }
	if rapid.IntRange(0, 2).Draw(t, "a gang") > 0 {
		w.try(orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(id)}, Spec: spec()})
		return
	}
	w.try(orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{
		{Name: "r", Spec: spec(), Members: []orbit.CapsuleID{orbit.CapsuleID(id + "r1"), orbit.CapsuleID(id + "r2")}, Min: 1},
		{Name: "s", Spec: spec(), Members: []orbit.CapsuleID{orbit.CapsuleID(id + "s")}},
	}}})
}

// waiting returns one that waits, nil if none does: mostly one for which room is nominated.
func (w *country) waiting(t *rapid.T) *orbit.Capsule {
	var all, nominated []*orbit.Capsule
	s := snapshotOf(t, w.ledger)
	for c := range s.Capsules() {
		if g := s.Gang(c.Gang()); c.Pending() && c.ID[0] == 'w' {
			if all = append(all, c); c.Nomination().Lives() || g != nil && g.Nomination.Lives() {
				nominated = append(nominated, c)
			}
		}
	}
	if len(nominated) > 0 && rapid.IntRange(0, 4).Draw(t, "nominated") > 0 {
		all = nominated
	}
	if len(all) == 0 {
		return nil
	}
	return rapid.SampledFrom(all).Draw(t, "waiting")
}

// nomination invents what is nominated for one that waits, or ends what is; false: none waits.
func (w *country) nomination(t *rapid.T) (do orbit.Nominate, ok bool) {
	c := w.waiting(t)
	if c == nil {
		return do, false
	}
	if do.Capsule, do.Gang = c.ID, c.Gang(); c.Gang() != "" {
		do.Capsule = ""
	}
	if rapid.IntRange(0, 4).Draw(t, "ends") == 0 {
		return do, true
	}
	do.Aged, do.Ends = rapid.Int32Range(0, 3).Draw(t, "aged"), w.now.Add(time.Hour)
	members := 0 // that ask for as much as c
	for m := range snapshotOf(panicky{}, w.ledger).Members(do.Gang) {
		members += btoi(m.Spec == c.Spec)
	}
	for _, n := range w.some(min(max(1, members), rapid.SampledFrom([]int{1, 2, 5, 40}).Draw(t, "parts"))) {
		part, want := orbit.NominatedRoom{Node: n.Node.ID}, &c.Spec.Devices
		for d, most := range n.Node.Capacity {
			if part.Room[d] = min(most, c.Spec.Envelope.Reservation[d]) / (1 + w.rng.Int64N(2)); w.rng.IntN(3) == 0 {
				part.Room[d] = 0
			}
		}
		for i := range n.Node.Devices.Count {
			if devicesWith(n, 1).Has(i) && w.rng.IntN(2) == 0 && part.Devices.Len() < want.Count && want.Accepts(n.Node.Devices.Model) {
				part.Devices |= 1 << i
				part.Milli = cmp.Or(part.Milli, 1+w.rng.IntN(want.Milli))
			}
		}
		if (part.Room != orbit.Resources{} || part.Devices != 0) && w.mayServe(do, part) {
			do.Parts = append(do.Parts, part)
		}
	}
	return do, len(do.Parts) > 0
}

// mayServe asks the ledger whether a node could be nominated, whatever else is.
func (w *country) mayServe(do orbit.Nominate, part orbit.NominatedRoom) bool {
	do.Parts = []orbit.NominatedRoom{part}
	err := snapshotOf(panicky{}, w.ledger).Check(orbit.Proposal{Do: []orbit.Commitment{do}})
	return err == nil || strings.Contains(err.Error(), "percent") || strings.Contains(err.Error(), "at once")
}

// nominate lets somebody else nominate.
func (w *country) nominate(t *rapid.T) {
	if do, ok := w.nomination(t); ok {
		w.try(do)
	}
}

// respec gives placed capsules other sizes, groups and rules where they are, or records that these have changed.
func (w *country) respec(t *rapid.T) {
	applied := rapid.Bool().Draw(t, "applied")
	for _, n := range w.some(few(t)) {
		for k := range snapshotOf(t, w.ledger).On(n.Node.ID) {
			to, like := k.Spec.Clone(), w.specs[w.rng.IntN(len(w.specs))]
			if w.rng.IntN(2) == 0 {
				to.Envelope = like.Envelope
			}
			if w.rng.IntN(2) == 0 {
				to.Group, to.Groups, to.Apart, to.Even, to.Near, to.Extras = like.Group, like.Groups, like.Apart, like.Even, like.Near, like.Extras
			}
			to.Priority = like.Priority
			if w.try(orbit.Respec{Capsule: k.ID, Since: k.PlacedAt, Spec: to, Applied: applied}) {
				w.respecified++
			}
		}
	}
}

// report is what nodes say of themselves, and time that passes: those that stay silent go stale.
func (w *country) report(t *rapid.T) {
	for _, n := range w.some(few(t)) {
		w.tel.say(orbit.Report{Node: n.Node.ID, At: w.now, FreeSlots: w.rng.IntN(3), Expired: w.rng.IntN(8) == 0}, w.now)
	}
	w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 8}).Draw(t, "seconds")) * time.Second)
}

func (w *country) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"change": w.change, "join": w.join, "leave": w.leave, "release": w.release, "compete": w.compete, "work": w.work, "stop": w.stop,
		"wait": w.wait, "nominate": w.nominate, "nominate more": w.nominate,
		"report": w.report, "spec": w.spec, "respec": w.respec,
	}
}

// view returns a new view of the world as it is.
func (w *country) view(t require.TestingT) *orbit.View {
	v := &orbit.View{}
	w.refresh(t, v)
	return v
}

func (w *country) refresh(t require.TestingT, v *orbit.View) {
	require.NoError(t, v.Refresh(context.Background(), w.ledger, &w.tel, w.now))
}

// strange makes a score of parts, any of which may be missing.
type strange struct {
	score score.Func
	bound func(spec *orbit.Spec, like *orbit.Node) func(least, most *score.Extent) (value, tie float64)
}

func (s strange) Score(n *orbit.NodeState, r *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	return s.score(n, r, spec)
}

func (s strange) Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
	return s.bound(spec, like)
}

// roomy likes full nodes, and goes by devices among equals. Its bound is exact.
var roomy = strange{
	score: func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
		e := score.ExtentOf(n)
		return float64(n.Free()[orbit.CPU]) / 1024, float64(n.Node.Capacity[orbit.Memory]) - float64(e.DevicesFree()) + float64(e.DeviceLargest())
	},
	bound: func(*orbit.Spec, *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
		return func(least, most *score.Extent) (value, tie float64) {
			return float64(least.Free(orbit.CPU)) / 1024, float64(least.Capacity(orbit.Memory)) - float64(most.DevicesFree()) + float64(least.DeviceLargest())
		}
	},
}

// crowding likes company on the node, and idle devices; many nodes are equal. Its bound is exact.
var crowding = strange{
	score: func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
		e := score.ExtentOf(n)
		return -float64(n.Capsules), -float64(e.DevicesIdle())
	},
	bound: func(*orbit.Spec, *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
		return func(_, most *score.Extent) (value, tie float64) {
			return -float64(most.Capsules()), -float64(most.DevicesIdle())
		}
	},
}

// obliging goes by preferences and domains among nodes that are equally full. Its bound is exact.
var obliging = strange{
	score: func(n *orbit.NodeState, _ *orbit.Report, s *orbit.Spec) (value, tie float64) {
		return float64(n.Capsules), -wishes(n.Node, s)
	},
	bound: func(s *orbit.Spec, like *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
		tie := -wishes(like, s)
		return func(least, _ *score.Extent) (value, _ float64) { return float64(least.Capsules()), tie }
	},
}

func wishes(n *orbit.Node, s *orbit.Spec) float64 {
	sum := 3 * float64(btoi(s.SpreadsAcross(n)))
	for i := range s.Prefer {
		sum += s.Prefer[i].Weight * float64(btoi(s.Prefer[i].On(n)))
	}
	return sum
}

// loose goes by what no bound can know, the report included, and is sometimes no number. What its bound says is
// valid, more or less near, and for some boxes no number either.
var loose = strange{
	score: func(n *orbit.NodeState, r *orbit.Report, s *orbit.Spec) (value, tie float64) {
		if n.Node.Labels["zone"] == "nan" {
			return math.NaN(), 0
		}
		return float64(3*n.Capsules + r.FreeSlots + int(uint64(n.Free()[orbit.CPU])%5)), float64(len(n.Node.Labels["rack"]) % 2)
	},
	bound: func(s *orbit.Spec, like *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
		slack := float64(len(like.Devices.Model) * int(s.Envelope.Reservation[orbit.Memory]))
		return func(least, most *score.Extent) (value, tie float64) {
			if s.Module == "b" && most.Capsules()%2 == 1 {
				return math.NaN(), 7
			}
			return float64(3*least.Capsules()) - slack, 0
		}
	},
}

// moody is loose, and cannot bound itself for some specs, and for some kinds of nodes.
var moody = strange{
	score: loose.score,
	bound: func(s *orbit.Spec, like *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
		if s.Module == "b" && (s.Devices.Count > 0 || like.Devices.Model != "") {
			return nil
		}
		return loose.bound(s, like)
	},
}

// tally is a score that reads what it counts elsewhere, and says when that has changed.
type tally struct {
	version uint64
	zones   map[string]int
}

func (y *tally) Version() uint64 { return y.version }

func (y *tally) Score(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
	return float64(n.Capsules + y.zones[n.Node.Labels["zone"]]), 0
}

// boundedTally is a tally that can bound itself; what it has counted goes into the bound.
type boundedTally struct{ *tally }

func (y boundedTally) Bound(*orbit.Spec, *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
	low := 0
	for _, n := range y.zones {
		low = min(low, n)
	}
	return func(least, _ *score.Extent) (value, tie float64) { return float64(least.Capsules() + low), 0 }
}

// chooser chooses the last devices that are open, if any two are; many nodes are equal to it.
type chooser struct{ strange }

func (chooser) PickDevices(n *orbit.NodeState, spec *orbit.Spec) (set orbit.DeviceSet, ok bool) {
	open := devicesWith(n, spec.Devices.Milli)
	for i := orbit.MaxDevices - 1; i >= 0 && set.Len() < spec.Devices.Count; i-- {
		set |= open & (1 << i)
	}
	return set, open.Len() > 1
}

// judged is a score with a filter, and with the version of that.
type judged struct {
	name    string
	score   orbit.Score
	filter  Filter
	version FilterVersion
}

// refuses is a filter that reads what is counted.
func (y *tally) refuses(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
	if y.zones[n.Node.Labels["zone"]] > 2 {
		return "are in a zone that is full"
	}
	return ""
}

func (y *tally) filterVersion(*orbit.View) uint64 { return y.version }

// fresh keeps nodes out of which nothing has been heard lately.
func fresh(_ *orbit.NodeState, r *orbit.Report, _ *orbit.Spec) string {
	if r.Stale {
		return "have a stale report"
	}
	return ""
}

// scores are all that engines must agree on. The tally is what its score counts.
func scores(outside *tally) []judged {
	return []judged{
		{"spread", nil, nil, nil},
		{"spread, not where a slot is", score.Spread{}, slotless, nil},
		{"spread, fresh", score.Spread{}, fresh, nil},
		{"roomy", roomy, nil, nil},
		{"obliging", obliging, nil, nil},
		{"crowding", crowding, nil, nil},
		{"sum", score.WeightedSum{{Weight: 0.3, Score: roomy}, {Weight: 1, Score: score.Spread{}}, {Weight: 0, Score: crowding}}, nil, nil},
		{"sum that counts", score.WeightedSum{{Weight: 2, Score: boundedTally{outside}}, {Weight: 0.5, Score: score.Spread{}}}, slotless, nil},
		{"sum with a malus", score.WeightedSum{{Weight: -0.3, Score: crowding}, {Weight: 1, Score: score.Spread{}}}, nil, nil},
		{"sum without a bound", score.WeightedSum{{Weight: 1, Score: dumbScore}, {Weight: 0.01, Score: crowding}, {Weight: 1, Score: outside}}, nil, nil},
		{"dumb", dumbScore, nil, nil},
		{"dumb, filtered", dumbScore, slotless, nil},
		{"loose", loose, fresh, nil},
		{"moody", moody, nil, nil},
		{"tally", outside, nil, nil},
		{"bounded tally", boundedTally{outside}, nil, nil},
		{"spread, where a count allows it", nil, outside.refuses, outside.filterVersion},
		{"dumb, where a count allows it", dumbScore, outside.refuses, outside.filterVersion},
		{"tally, where it allows it itself", outside, outside.refuses, outside.filterVersion},
		{"chooser", chooser{crowding}, nil, nil},
		{"equal", score.Func(func(*orbit.NodeState, *orbit.Report, *orbit.Spec) (float64, float64) { return 0, 0 }), nil, nil},
	}
}
