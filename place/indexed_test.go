package place

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/score"
)

// rivals are engines that must always make the same choices. They get the same calls.
type rivals struct {
	*country
	outside *tally
	view    *orbit.View
	// The first is the reference: an Exhaustive that begins afresh with each Sync, so that nothing of what was
	// before can mislead it.
	engines []*drafted[orbit.PlacementEngine]
	marks   [][]int
	// Reserved since the last Sync.
	plan []reserved
	// Nodes that were compared with the referee for one that is nominated.
	asked int
	// Choices of a last resort, and choices for which there was one that was not taken.
	last, passed int
	// The number of choices that were compared.
	choices int
	// Others that share the index with them, each by a view of its own, which may be older than theirs.
	bystanders []bystander
}

type bystander struct {
	view *orbit.View
	*drafted[*Indexed]
}

type reserved struct {
	// Nil: its capsule has been submitted, or it places none.
	spec     *orbit.Spec
	proposal orbit.Proposal
	sent     bool
}

// outcome is what Best has said.
type outcome struct {
	node       orbit.NodeID
	value, tie float64
	devices    orbit.DeviceSet
	err        string
}

func newRivals(t *rapid.T, wide bool) *rivals {
	r := &rivals{country: newCountryOf(t, wide), outside: &tally{zones: map[string]int{}}}
	by := rapid.SampledFrom(scores(r.outside)).Draw(t, "score")
	seed := rapid.SampledFrom([]uint64{0, 0, 1, rapid.Uint64().Draw(t, "any seed")}).Draw(t, "seed")
	most := rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "most parts")
	engines := []orbit.PlacementEngine{
		&Exhaustive{Score: by.score, Filter: by.filter, FilterVersion: by.version, Seed: seed, MostParts: most},
		&Indexed{Score: by.score, Filter: by.filter, FilterVersion: by.version, Seed: seed, MostParts: most},
	}
	if rapid.Bool().Draw(t, "shares its index") {
		engines = append(engines, &Indexed{Score: by.score, Filter: by.filter, FilterVersion: by.version, Seed: seed, MostParts: most})
	}
	if !wide {
		engines = append(engines, &Exhaustive{Score: by.score, Filter: by.filter, FilterVersion: by.version, Seed: seed, MostParts: most},
			&Sampled{Score: by.score, Filter: by.filter, FilterVersion: by.version, Seed: seed, MostParts: most, Enough: 1000, Remember: rapid.IntRange(0, 3).Draw(t, "remember")})
	}
	for _, e := range engines {
		r.engines = append(r.engines, draftFor(e))
	}
	if rapid.IntRange(0, 9).Draw(t, "before the first sync") == 0 {
		r.ask(t, r.specs[0])
	}
	r.view = r.country.view(t)
	r.sync(t)
	return r
}

// sync brings all up to date; what was reserved is forgotten.
func (r *rivals) sync(t *rapid.T) {
	r.refresh(t, r.view)
	was := r.engines[0].engine.(*Exhaustive)
	r.engines[0] = draftFor[orbit.PlacementEngine](&Exhaustive{Score: was.Score, Filter: was.Filter, FilterVersion: was.FilterVersion, Seed: was.Seed, MostParts: was.MostParts})
	for _, e := range r.engines {
		e.Sync(r.view)
	}
	r.marks, r.plan = nil, nil
}

// collide makes the view one whose proposals lose to others, or do not any more.
func (r *rivals) collide(t *rapid.T) {
	collide(t, r.view)
	r.sync(t)
}

func collide(t *rapid.T, v *orbit.View) {
	lost := rapid.SampledFrom([]int{0, 1, 1}).Draw(t, "lost")
	for range rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "passes") {
		v.NoteOutcomes(1, lost)
	}
}

// ask compares what the engines choose.
func (r *rivals) ask(t *rapid.T, spec *orbit.Spec) (choices []orbit.Choice, ok bool) {
	var want outcome
	r.choices++
	for i, e := range r.engines {
		choice, err := e.best(spec)
		got := outcome{value: choice.Value, tie: choice.Tie, devices: choice.Devices}
		if err != nil {
			got.err = err.Error()
		}
		if choice.Node != nil {
			got.node = choice.Node.Node.ID
		}
		if i == 0 {
			want = got
		}
		require.Equal(t, want, got, "%T", e.engine)
		choices = append(choices, choice)
	}
	r.lookForLastResorts(t, spec, &choices[0])
	for _, c := range choices[1:] {
		if want.err == "" {
			require.Equal(t, choices[0].Node.Node, c.Node.Node)
			require.Equal(t, choices[0].Node.Used(), c.Node.Used())
			require.Equal(t, devicesFree(choices[0].Node), devicesFree(c.Node))
			require.Equal(t, choices[0].Node.Capsules, c.Node.Capsules)
		}
	}
	return choices, want.err == ""
}

// lookForLastResorts checks that a last resort is chosen only if nothing else would do.
func (r *rivals) lookForLastResorts(t *rapid.T, spec *orbit.Spec, chosen *orbit.Choice) {
	if chosen.Node == nil {
		return
	}
	d, e := &r.engines[0].Draft, r.engines[0].engine.(*Exhaustive)
	near, last := choiceIn(d, spec), d.LastResort(chosen.Node, spec)
	for n := range d.Nodes() {
		if _, fits := e.rater.rate(n, spec, &near); fits && d.LastResort(n, spec) != last {
			require.False(t, last, "node %q is no last resort", n.Node.ID)
			r.passed++
			break
		}
	}
	r.last += btoi(last)
}

// reserve takes what all have chosen.
func (r *rivals) reserve(t *rapid.T, spec *orbit.Spec, choices []orbit.Choice) {
	r.serial++
	k := &orbit.Capsule{ID: orbit.CapsuleID(fmt.Sprint("p", r.serial)), Spec: spec}
	want := r.engines[0].take(k, choices[0])
	for i, e := range r.engines[1:] {
		require.Equal(t, want, e.take(k, choices[i+1]))
	}
	r.plan = append(r.plan, reserved{spec: spec, proposal: want})
}

// checkIndex: what is known of nodes is known of all that there are, and of no others; for seed 0, numbers are in
// the order of ids. While changes wait to be followed nothing is said.
func (r *rivals) checkIndex(t *rapid.T) {
	for _, d := range r.engines[1:] {
		if e, ok := d.engine.(*Indexed); ok {
			checkIndex(t, e, &d.Draft)
		}
	}
}

func checkIndex(t require.TestingT, e *Indexed, draft *orbit.Draft) {
	b := &e.index
	x := &b.nodes
	if draft.View() == nil || e.rater.draft == nil || draft.Syncs() != e.rater.syncs || b.syncs != e.rater.syncs || b.bounded == nil || x.plants {
		return
	}
	if touched, _, all := draft.Changed(b.cursor); all || len(touched) > 0 || len(b.moved.list) > 0 {
		return
	}
	live := 0
	for slot := range draft.Bound() {
		n, m := draft.Node(slot), x.at(int32(slot))
		if n == nil {
			require.Equal(t, member{}, *m)
			continue
		}
		live++
		require.Same(t, n.Node, m.node)
		require.Equal(t, score.ExtentOf(n), score.ExtentOf(m.in))
		p := x.point(n)
		require.True(t, x.tree.Has(&p))
		kind, known := x.kinds.find(n.Node)
		require.True(t, known)
		require.Equal(t, kind, m.kind)
		require.Equal(t, nodeHash(n.Node.ID), m.hash)
		number, ok := x.order.known(n.Node.ID)
		require.True(t, ok)
		require.Equal(t, number, m.number, "a node has the number that is its id's")
	}
	require.Equal(t, live, x.live)
	require.Equal(t, live, x.tree.Size())
	require.Equal(t, live, x.order.byID.Len(), "who has left has no number")
}

// batch plans capsules of one spec, as many as there are or until none fits.
func (r *rivals) batch(t *rapid.T) {
	spec := rapid.SampledFrom(r.specs).Draw(t, "spec")
	for range rapid.SampledFrom([]int{1, 5, 20, 60}).Draw(t, "capsules") {
		choices, ok := r.ask(t, spec)
		if !ok {
			break
		}
		r.reserve(t, spec, choices)
	}
}

// stopsOn reports whether something that has left the node still runs there, and an agent will say when it has stopped.
func (r *rivals) stopsOn(n *orbit.NodeState) bool {
	for range r.view.State().Remains(n.Node.ID) {
		return n.Node.Confirms
	}
	return false
}

// nominee plans one that waits, with the room that is nominated for it. Its draft shows each node as the referee judges it, but
// those without a lease.
func (r *rivals) nominee(t *rapid.T) {
	if rapid.Bool().Draw(t, "in a new plan") {
		r.sync(t)
	}
	c := r.waiting(t)
	if c == nil {
		return
	}
	fresh := r.view.State() != nil && r.view.Revision() == snapshotOf(t, r.ledger).Revision() && len(r.plan) == 0 && r.engines[0].View() == r.view
	for _, e := range r.engines {
		e.LookAs(c)
	}
	if fresh && c.Gang() == "" {
		for n := range r.engines[0].Nodes() {
			set, ok := n.PickDevices(c.Spec)
			err := r.view.State().Check(orbit.Proposal{View: r.view.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: c.ID, Node: n.Node.ID, Devices: set}}})
			rules := nearIn(&r.engines[0].Draft, c.Spec)
			stops := c.Remains() != nil && !n.Node.Confirms
			if err == nil && !rules.opens(n.Node) && r.stopsOn(n) {
				continue // the ledger lets it wait until others have stopped; a choice counts these (Draft.DomainOpen)
			}
			if !rules.reaches(n.Node) {
				continue // the ledger takes the first member of a group anywhere; a choice starts no group
			}
			require.Equal(t, err == nil && !r.view.Report(n).Expired, ok && n.Fits(c.Spec) && rules.opens(n.Node) && !stops, "%v", err)
			r.asked += btoi(c.Nomination().Lives())
		}
	}
	choices, ok := r.ask(t, c.Spec)
	if ok && (c.Gang() != "" || r.rng.IntN(2) == 0) || !ok {
		for _, e := range r.engines {
			e.LookAs(nil)
		}
		r.ask(t, c.Spec)
		return
	}
	place := func(e *drafted[orbit.PlacementEngine], to orbit.Choice) string { return fmt.Sprint(e.Place(c, to)) }
	want := place(r.engines[0], choices[0])
	for i, e := range r.engines[1:] {
		require.Equal(t, want, place(e, choices[i+1]))
	}
	if want != "<nil>" { // placed by this plan already, or since its view
		for _, e := range r.engines {
			e.LookAs(nil)
		}
		return
	}
	for i, e := range r.engines {
		if p := e.Propose(); i == 0 {
			r.plan = append(r.plan, reserved{proposal: p})
		}
	}
}

// nominateInPlan nominates as a step of the plan.
func (r *rivals) nominateInPlan(t *rapid.T) {
	do, ok := r.nomination(t)
	if !ok {
		return
	}
	var want string
	for i, e := range r.engines {
		got := fmt.Sprint(e.Nominate(do))
		if i == 0 {
			want = got
		}
		require.Equal(t, want, got)
	}
	for i, e := range r.engines {
		if p := e.Propose(); i == 0 && want == "<nil>" {
			r.plan = append(r.plan, reserved{proposal: p})
		}
	}
}

// mixture plans capsules of all specs, and asks now and then without taking.
func (r *rivals) mixture(t *rapid.T) {
	for range rapid.SampledFrom([]int{3, 10, 40}).Draw(t, "capsules") {
		spec := r.specs[r.rng.IntN(len(r.specs))]
		if choices, ok := r.ask(t, spec); ok && r.rng.IntN(4) > 0 {
			r.reserve(t, spec, choices)
		}
	}
}

// stranger asks for a spec that no ledger has seen, and takes it.
func (r *rivals) stranger(t *rapid.T) {
	spec := r.invent(t)
	if choices, ok := r.ask(t, spec); ok {
		r.reserve(t, spec, choices)
	}
}

func (r *rivals) mark(t *rapid.T) {
	marks := make([]int, len(r.engines), len(r.engines)+1)
	for i, e := range r.engines {
		marks[i] = e.Checkpoint()
	}
	r.marks = append(r.marks, append(marks, len(r.plan)))
}

func (r *rivals) rollback(t *rapid.T) {
	if len(r.marks) == 0 {
		return
	}
	at := rapid.IntRange(0, len(r.marks)-1).Draw(t, "mark")
	for i, e := range r.engines {
		e.Rollback(r.marks[at][i])
	}
	r.plan = r.plan[:r.marks[at][len(r.engines)]]
	r.marks = r.marks[:at+1]
}

// commit proposes what was reserved, or some of it, whatever has become of the world meanwhile; the engines learn
// of it with the next Sync, which may be now.
func (r *rivals) commit(t *rapid.T) {
	part := rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "one in")
	for i := range r.plan {
		if p := &r.plan[i]; i%part == 0 && !p.sent {
			if p.spec != nil {
				r.try(orbit.Submit{IDs: []orbit.CapsuleID{p.proposal.Do[0].(orbit.Place).Capsule}, Spec: p.spec})
			}
			_, _ = r.ledger.Propose(context.Background(), p.proposal)
			p.sent = true
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "sync") > 0 {
		r.sync(t)
	}
}

// bystand lets another engine that shares the index look at the world, as it is now or as it was when it looked last, and
// plan something that comes to nothing.
func (r *rivals) bystand(t *rapid.T) {
	if len(r.bystanders) < 2 {
		like := r.engines[1].engine.(*Indexed)
		r.bystanders = append(r.bystanders, bystander{r.country.view(t), draftFor(&Indexed{Score: like.Score, Filter: like.Filter, FilterVersion: like.FilterVersion, Seed: uint64(len(r.bystanders))})})
	}
	b := &r.bystanders[rapid.IntRange(0, len(r.bystanders)-1).Draw(t, "bystander")]
	if rapid.Bool().Draw(t, "looks") {
		r.refresh(t, b.view)
		collide(t, b.view)
	}
	plain := draftFor(&Exhaustive{Score: b.engine.Score, Filter: b.engine.Filter, FilterVersion: b.engine.FilterVersion, Seed: b.engine.Seed})
	b.Sync(b.view)
	plain.Sync(b.view)
	for i := range rapid.SampledFrom([]int{1, 5, 40}).Draw(t, "capsules") {
		spec := rapid.SampledFrom(r.specs).Draw(t, "spec")
		want, wantErr := plain.best(spec)
		got, err := b.best(spec)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err))
		if err != nil {
			continue
		}
		require.Equal(t, want, got)
		k := &orbit.Capsule{ID: orbit.CapsuleID(fmt.Sprint("bystander", i)), Spec: spec}
		require.Equal(t, plain.take(k, want), b.take(k, got))
	}
	checkIndex(t, b.engine, &b.Draft)
}

// count changes what the scores read elsewhere.
func (r *rivals) count(t *rapid.T) {
	zone := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "zone")
	r.outside.zones[zone] = rapid.IntRange(-9, 9).Draw(t, "count")
	r.outside.version++
}

// anotherView shows the engines the same world by another view, or another world.
func (r *rivals) anotherView(t *rapid.T) {
	if rapid.Bool().Draw(t, "another world") {
		other := newCountry(t).view(t)
		for _, e := range r.engines {
			e.Sync(other)
		}
		for _, spec := range r.specs {
			r.ask(t, spec)
		}
	} else {
		r.view = r.country.view(t)
	}
	r.sync(t)
}

// Whatever happens, Indexed chooses what Exhaustive chooses, and so does Sampled when all nodes are not enough:
// the same node, value, tie, devices and proposal, and the same words when nothing fits. With -tags stress some two
// million choices are compared, here and in the next test.
func TestIndexedChoosesWhatExhaustiveChooses(t *testing.T) {
	scale.Sequential(t)
	const nominated, shared, own, respecified = "compared with the referee for one that is nominated", "choices from a shared index", "choices from an index of its own", "placed with another spec"
	for total := range scale.Reach(t, nominated, shared, own, respecified) {
		checkRivals(t, scale.Of(1, 1_500_000), false, func(r *rivals) {
			total[respecified] += r.respecified
			total[nominated] += r.asked
			if r.engines[1].engine.(*Indexed).index.alone {
				total[own] += r.choices
			} else {
				total[shared] += r.choices
			}
		})
	}
}

// The same where specs speak of labels with so many values that they cannot make kinds of nodes.
func TestIndexedWithVeryManyKindsOfNodes(t *testing.T) {
	scale.Sequential(t)
	choices := 0
	checkRivals(t, scale.Of(1, 500_000), true, func(r *rivals) { choices += r.choices })
	t.Log("choices:", choices)
}

// checkRivals checks random lives of rivals until so many choices have been compared, and passes on the rivals at the end
// of each life.
func checkRivals(t *testing.T, choices int, wide bool, lived func(*rivals)) {
	for left := choices; left > 0; {
		rapid.Check(t, func(t *rapid.T) {
			r := newRivals(t, wide)
			r.live(t)
			lived(r)
			left -= r.choices
		})
	}
}

func (r *rivals) live(t *rapid.T) {
	actions := r.actions()
	for name, f := range map[string]func(*rapid.T){
		"batch": r.batch, "batch more": r.batch, "mixture": r.mixture, "mixture more": r.mixture, "stranger": r.stranger,
		"": r.checkIndex, "mark": r.mark, "rollback": r.rollback, "commit": r.commit, "sync": r.sync, "sync more": r.sync, "count": r.count, "bystand": r.bystand,
		"nominee": r.nominee, "nominee more": r.nominee, "collide": r.collide, "nominate in plan": r.nominateInPlan,
	} {
		actions[name] = f
	}
	if rapid.IntRange(0, 4).Draw(t, "one view") == 0 {
		actions["another view"] = r.anotherView
	}
	t.Repeat(actions)
}

// Two nodes may have the same hash, which is an accident; then they go by id. Here nearly all have: index and
// tournament must still choose what Exhaustive chooses.
func TestIndexedWhenHashesAreEqual(t *testing.T) {
	defer func(was func(orbit.NodeID) uint64) { nodeHash = was }(nodeHash)
	hash := nodeHash
	nodeHash = func(id orbit.NodeID) uint64 { return hash(id) % 3 }
	for _, by := range scores(&tally{}) {
		t.Run(by.name, func(t *testing.T) {
			v, specs := manySpecs(t, 6)
			v.NoteOutcomes(1, 1)
			all, e := draftFor(&Exhaustive{Score: by.score, Seed: 1}), draftFor(&Indexed{Score: by.score, Seed: 1})
			all.Sync(v)
			e.Sync(v)
			for i := range 300 {
				spec := specs[i*i/100%6] // some of one, then of another
				want, wantErr := all.best(spec)
				got, err := e.best(spec)
				require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err))
				require.Equal(t, want, got)
				if k := (&orbit.Capsule{ID: orbit.CapsuleID(fmt.Sprint(i)), Spec: spec}); err == nil {
					require.Equal(t, all.take(k, want), e.take(k, got))
				}
			}
		})
	}
}

// tournamentBytes is what all tournaments take, which an engine must know.
func tournamentBytes(e *Indexed) (sum int) {
	for _, c := range e.classes {
		if c.tournament != nil {
			sum += c.tournament.bytes()
		}
	}
	return sum
}

// manySpecs returns a view of nodes in a hundred zones, and specs of which every other is of module b.
func manySpecs(t *testing.T, n int) (*orbit.View, []*orbit.Spec) {
	l := &orbit.MemoryLedger{}
	var put []orbit.Commitment
	for i := range 100 {
		put = append(put, orbit.PutNode{Node: labelled(machine(orbit.NodeID(fmt.Sprint("n", i)), int64(1000+i)), "zone", fmt.Sprint("z", i))})
	}
	for i := range n {
		s := wants(int64(i))
		s.Module = []string{"a", "b"}[i%2]
		s.Prefer = []orbit.Preference{{Predicate: orbit.Predicate{Key: "zone", Op: "Exists"}, Weight: 1}}
		put = append(put, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("k", i))}, Spec: s})
	}
	commit(t, l, put...)
	v, _ := viewOf(t, l, nil)
	var specs []*orbit.Spec
	for i := range n {
		specs = append(specs, v.State().Capsule(orbit.CapsuleID(fmt.Sprint("k", i))).Spec)
	}
	return v, specs
}

// agree checks that an engine chooses like an Exhaustive that has just begun.
func agree(t *testing.T, v *orbit.View, e *drafted[*Indexed], specs ...*orbit.Spec) {
	all := draftFor(&Exhaustive{Score: e.engine.Score, Filter: e.engine.Filter, FilterVersion: e.engine.FilterVersion, Seed: e.engine.Seed})
	all.Sync(v)
	for _, spec := range specs {
		want, wantErr := all.best(spec)
		got, err := e.best(spec)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err))
		require.Equal(t, want, got)
	}
}

// When tournaments take too much memory, those go that have not been asked for longest, until half of the room is
// free; the one in use stays. The count of bytes is right all the time.
func TestIndexedDropsRankings(t *testing.T) {
	v, specs := manySpecs(t, 60)
	e := draftFor(&Indexed{Score: score.Func(score.Spread{}.Score)})
	e.Sync(v)
	agree(t, v, e, specs...)
	require.Equal(t, tournamentBytes(e.engine), e.engine.tournamentBytes)
	for _, c := range e.engine.classes { // as if there were very many nodes
		c.tournament.ties = make([]float64, len(c.tournament.values), maxTournamentBytes/8/50)
	}
	e.engine.tournamentBytes = tournamentBytes(e.engine)
	require.Greater(t, e.engine.tournamentBytes, maxTournamentBytes)
	agree(t, v, e, specs[3])
	require.Equal(t, tournamentBytes(e.engine), e.engine.tournamentBytes)
	require.LessOrEqual(t, e.engine.tournamentBytes, maxTournamentBytes/2)
	require.Greater(t, e.engine.tournamentBytes, maxTournamentBytes/3)
	for i, spec := range specs {
		kept := e.engine.classes[spec].tournament != nil
		require.Equal(t, i == 3 || i > 36, kept, "the tournament of spec %d", i) // 24 of them: one takes a bit more than a 50th
	}
	agree(t, v, e, specs...)
	require.Equal(t, tournamentBytes(e.engine), e.engine.tournamentBytes)
	one := e.engine.classes[specs[9]].tournament // that alone takes too much
	one.ties = make([]float64, len(one.values), maxTournamentBytes/8)
	e.engine.tournamentBytes = tournamentBytes(e.engine)
	agree(t, v, e, specs[9])
	require.Same(t, one, e.engine.classes[specs[9]].tournament)
	require.Equal(t, one.bytes(), e.engine.tournamentBytes)
}

// When there are too many specs, the older half of them is forgotten with the next Sync, and so are their tournaments;
// when the score changes, all are.
func TestIndexedForgetsSpecs(t *testing.T) {
	v, specs := manySpecs(t, 4000)
	e := draftFor(&Indexed{Score: versioned{strange: strange{score: moody.score, bound: func(s *orbit.Spec, n *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
		if s.Module == "b" {
			return nil
		}
		return moody.bound(s, n)
	}}, tally: &tally{}}})
	e.Sync(v)
	for _, spec := range specs {
		_, _ = e.best(spec)
	}
	require.Len(t, e.engine.classes, 4000)
	require.NotZero(t, e.engine.tournamentBytes)
	agree(t, v, e, specs[0], specs[1])
	e.Sync(v)
	agree(t, v, e, specs[0], specs[1])
	require.Len(t, e.engine.classes, 2000)
	require.Equal(t, tournamentBytes(e.engine), e.engine.tournamentBytes)
	for i, spec := range specs {
		require.Equal(t, i < 2 || i >= 2002, e.engine.classes[spec] != nil, "spec %d", i)
	}
	agree(t, v, e, specs[:50]...)
	agree(t, v, e, specs[1980:2020]...)
	require.Equal(t, tournamentBytes(e.engine), e.engine.tournamentBytes)
	e.engine.Score.(versioned).version++
	agree(t, v, e, specs[0])
	require.Len(t, e.engine.classes, 1)
	require.Equal(t, tournamentBytes(e.engine), e.engine.tournamentBytes)
}

// versioned is a strange score with a version.
type versioned struct {
	strange
	*tally
}

func (s versioned) Score(n *orbit.NodeState, r *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	return s.strange.Score(n, r, spec)
}

// A member of the group comes, or goes: those who want its company hear of it with the next Sync, whether nodes are
// searched for or ranked, and though none of the nodes in question has changed.
func TestIndexedHearsOfCompany(t *testing.T) {
	for _, score := range []orbit.Score{nil, score.Func(score.Spread{}.Score)} {
		v, refresh, l, spec := rackful(t)
		e := draftFor(&Indexed{Score: score})
		choose := func() orbit.NodeID {
			refresh()
			e.Sync(v)
			agree(t, v, e, spec)
			choice, _ := e.best(spec)
			if choice.Node == nil {
				return ""
			}
			return choice.Node.Node.ID
		}
		require.Empty(t, choose())
		commit(t, l, orbit.Place{Capsule: "m", Node: "n43"})
		require.Equal(t, orbit.NodeID("n13"), choose())
		commit(t, l, orbit.Release{Capsule: "m", Stopped: true})
		require.Empty(t, choose())
		commit(t, l, orbit.Place{Capsule: "m", Node: "n45"})
		require.Equal(t, orbit.NodeID("n15"), choose())
	}
}

// What the plan itself releases is no company any more, once it is proposed: whoever wants it is told so at once.
func TestIndexedHearsOfCompanyThatThePlanSendsAway(t *testing.T) {
	for _, score := range []orbit.Score{nil, score.Func(score.Spread{}.Score)} {
		v, refresh, l, spec := rackful(t)
		commit(t, l, orbit.Place{Capsule: "m", Node: "n43"})
		refresh()
		e, plain := draftFor(&Indexed{Score: score}), draftFor(&Exhaustive{Score: score})
		for _, d := range []*orbit.Draft{&e.Draft, &plain.Draft} {
			d.Sync(v)
		}
		for range 2 {
			_, err := e.best(spec)
			require.NoError(t, err)
			for _, d := range []*orbit.Draft{&e.Draft, &plain.Draft} {
				require.NoError(t, d.Release(orbit.Release{Capsule: "m", Final: true}))
				d.Propose()
			}
			_, want := plain.best(spec)
			_, err = e.best(spec)
			require.Equal(t, fmt.Sprint(want), fmt.Sprint(err))
			e.Rollback(0)
			plain.Rollback(0)
		}
	}
}

// rackful returns a view of fifty nodes in ten racks, and a spec that wants to be where capsule m is.
func rackful(t *testing.T) (v *orbit.View, refresh func(), l *orbit.MemoryLedger, spec *orbit.Spec) {
	l = &orbit.MemoryLedger{}
	member := wants(1)
	member.Group = "g"
	put := []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{"m"}, Spec: member}, orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: besides()}}
	for i := range 50 {
		put = append(put, orbit.PutNode{Node: racked(orbit.NodeID(fmt.Sprint("n", i)), fmt.Sprint("r", i%10))})
	}
	commit(t, l, put...)
	v, refresh = viewOf(t, l, nil)
	return v, refresh, l, v.State().Capsule("x").Spec
}

// What a score reads elsewhere may change at any time; its version says so, also if it is a part of a sum.
func TestIndexedFollowsVersions(t *testing.T) {
	outside := &tally{zones: map[string]int{}}
	for _, score := range []orbit.Score{outside, boundedTally{outside}, score.WeightedSum{{Weight: 1, Score: boundedTally{outside}}, {Weight: 1, Score: score.Spread{}}},
		score.WeightedSum{{Weight: 1, Score: score.Spread{}}, {Weight: 1, Score: score.WeightedSum{{Weight: 1, Score: outside}}}}} {
		v, specs := manySpecs(t, 4)
		e := draftFor(&Indexed{Score: score})
		e.Sync(v)
		clear(outside.zones)
		for i := range 40 {
			outside.zones[fmt.Sprint("z", i*37%100)] = -9 - i
			outside.version++
			agree(t, v, e, specs[i/10], specs[i/10])
		}
	}
}

// A spec that no ledger has seen is its owner's, who may write to it between two calls.
func TestIndexedKeepsNothingOfAStrangersSpec(t *testing.T) {
	for _, score := range []orbit.Score{nil, score.Func(score.Spread{}.Score)} {
		v, _ := manySpecs(t, 1)
		e := draftFor(&Indexed{Score: score})
		e.Sync(v)
		spec := wants(1)
		for i := range 100 {
			spec.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{fmt.Sprint("z", i)}}}
			agree(t, v, e, spec)
		}
		require.Empty(t, e.engine.classes)
	}
}

// carrying returns an index of a node that carries the labels of the next test, divided by them.
func carrying(t *testing.T) *nodeIndex {
	l, x := &orbit.MemoryLedger{}, &nodeIndex{}
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n", Labels: map[string]string{"a": "", "b": ""}}})
	x.begin(snapshotOf(t, l), false)
	x.learn(&orbit.Spec{Require: predicates("a", "b")})
	x.arrange()
	return x
}

// Nodes are of one kind exactly if they are alike in model, schedulability and the labels that specs speak of; a
// label that is absent is not an empty one, and no value runs into the next.
func TestKindsAreToldApart(t *testing.T) {
	carrying := carrying(t)
	word := rapid.StringMatching("[01p\x00\x01\x02]{0,3}")
	rapid.Check(t, func(t *rapid.T) {
		k := carrying.kinds
		k.own(1)
		var nodes [2]orbit.Node
		for i := range nodes {
			nodes[i] = orbit.Node{State: map[bool]orbit.Condition{true: orbit.Cordoned}[rapid.Bool().Draw(t, "draining")], Labels: map[string]string{"c": word.Draw(t, "c")}}
			nodes[i].Devices.Model = word.Draw(t, "model")
			for _, key := range []string{"a", "b"} {
				if rapid.Bool().Draw(t, "there") {
					nodes[i].Labels[key] = word.Draw(t, key)
				}
			}
		}
		one, two := nodes[0], nodes[1]
		a, hasA := one.Labels["a"]
		b, hasB := one.Labels["b"]
		a2, hasA2 := two.Labels["a"]
		b2, hasB2 := two.Labels["b"]
		alike := one.Schedulable() == two.Schedulable() && one.Devices.Model == two.Devices.Model &&
			a == a2 && b == b2 && hasA == hasA2 && hasB == hasB2
		require.Equal(t, alike, k.assign(&one) == k.assign(&two))
	})
	k := carrying.kinds
	k.own(1)
	like := map[int32]bool{}
	for _, labels := range []map[string]string{{"a": "p1q"}, {"a": "p", "b": "q0"}, {"a": "p1q0"}, {"a": "p", "b": "q"}, {"b": "p1q"}, {}, {"a": ""}} {
		like[k.assign(&orbit.Node{Labels: labels})] = true
	}
	require.Len(t, like, 7)
}

// A label with very many values is left out when nodes are divided into kinds. Whoever speaks of it, in whatever way,
// is answered node by node, and that others do does not disturb those who do not.
func TestIndexedLeavesLabelsOut(t *testing.T) {
	asked := map[string]func(*orbit.Spec){
		"require":                  func(s *orbit.Spec) { s.Require = predicates("host in (7, 160)") },
		"require one of two terms": func(s *orbit.Spec) { s.Require = predicates("(host in (7, 160)) || (host in (9) && !gone)") },
		"prefer": func(s *orbit.Spec) {
			s.Prefer = []orbit.Preference{{Predicate: predicates("host in (140)")[0], Weight: 3}}
		},
		"prefer one of two terms": func(s *orbit.Spec) {
			s.Prefer = []orbit.Preference{{Predicate: predicates("(host in (140) && !gone) || (host in (9) && gone)")[0], Weight: 3}}
		},
		"spread": func(s *orbit.Spec) { s.Spread = orbit.Domains{Level: "host", Names: []string{"150", "151"}} },
		"near":   func(s *orbit.Spec) { s.Near = orbit.Near{Group: "g", Level: "host"} },
	}
	for name, asks := range asked {
		for _, score := range []orbit.Score{nil, obliging} {
			t.Run(fmt.Sprintf("%s %T", name, score), func(t *testing.T) {
				v, plain, specs := hosts(t, asks)
				e := draftFor(&Indexed{Score: score})
				e.Sync(v)
				agree(t, v, e, specs[0], plain, specs[0], plain)
				require.True(t, e.engine.index.nodes.kinds.leavesOut("host"))
				builds := e.engine.index.nodes.builds
				agree(t, v, e, specs[1], plain, specs[1])
				require.Equal(t, builds, e.engine.index.nodes.builds, "a label that is left out stays out")
			})
		}
	}
}

// hosts returns a view of two hundred nodes, a spec that does not care which, and two that do.
func hosts(t *testing.T, asks func(*orbit.Spec)) (v *orbit.View, plain *orbit.Spec, specs []*orbit.Spec) {
	l := &orbit.MemoryLedger{}
	member := wants(1)
	member.Group = "g"
	put := []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{"m"}, Spec: member}, orbit.Submit{IDs: []orbit.CapsuleID{"plain"}, Spec: wants(1)}}
	for i := range 200 {
		n := machine(orbit.NodeID(fmt.Sprint("n", i)), 10)
		n.Labels = map[string]string{"host": fmt.Sprint(i)}
		put = append(put, orbit.PutNode{Node: n})
	}
	for i := range 2 {
		s := wants(int64(2 + i))
		asks(s)
		put = append(put, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("k", i))}, Spec: s})
	}
	commit(t, l, append(put, orbit.Place{Capsule: "m", Node: "n20"})...)
	v, _ = viewOf(t, l, nil)
	s := v.State()
	return v, s.Capsule("plain").Spec, []*orbit.Spec{s.Capsule("k0").Spec, s.Capsule("k1").Spec}
}
