package orbit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// queueDuel holds a queue against a dumb model: sort everything that is pending, leave out parked classes.
type queueDuel struct {
	*chaos
	queue  queue
	state  *State
	parked map[*Spec]*parkedModel
	serial int
}

type parkedModel struct {
	until  time.Time
	near   *nearby
	evicts bool
}

// follow brings both up to date, change by change.
func (d *queueDuel) follow(t *rapid.T) {
	state := snapshotOf(t, d.ledger)
	changes, err := d.ledger.Changes(context.Background(), d.state.Revision())
	require.NoError(t, err)
	d.state = state
	for i := range changes {
		before := len(d.parked)
		d.modelRoom(&changes[i], false)
		woken := d.queue.absorb(&changes[i], state, chaosOwns)
		if len(d.parked) < before {
			require.True(t, woken, "room for parked work wakes")
		}
	}
}

// modelRoom takes back what a change may have made placeable; undone: what was planned and did not come about.
func (d *queueDuel) modelRoom(c *Change, undone bool) {
	for spec := range d.parked {
		helps := false
		switch do := c.Do.(type) {
		case Release:
			helps = d.fits(c.Node, spec) || d.besides(do.Capsule, spec)
		case PutNode: // its label may have moved a member to another domain
			n := d.state.Node(do.Node.ID)
			helps = d.fits(do.Node.ID, spec) || spec.Near.Group != "" && n != nil && n.Capsules > 0
		case RemoveNode:
			helps = undone && d.fits(do.Node, spec)
		case Hold:
			helps = undone && d.fits(do.Node, spec)
		case Place:
			helps = undone && d.fits(do.Node, spec) || d.besides(do.Capsule, spec)
		case Nominate:
			nominee := d.state.Capsule(do.Capsule)
			helps = nominee != nil && nominee.Spec == spec
		}
		if helps {
			delete(d.parked, spec)
		}
	}
}

func (d *queueDuel) fits(id NodeID, spec *Spec) bool {
	n := d.state.Node(id)
	if n == nil || !d.parked[spec].near.has(n.Node) {
		return false
	}
	if d.parked[spec].evicts { // what is of lower priority may go
		bare := *n
		for k := range d.state.On(id) {
			if k.Spec.Priority < spec.Priority && d.state.Protected(k.ID) == 0 {
				bare.used = bare.used.minus(k.Spec.Envelope.Reservation)
			}
		}
		n = &bare
	}
	return n.Fits(spec) || d.state.fitsNominated(n, spec)
}

// besides reports whether where a capsule is may decide where the spec goes. A forgotten one may be of any
// group.
func (d *queueDuel) besides(id CapsuleID, spec *Spec) bool {
	if id == "" {
		return false
	}
	k := d.state.Capsule(id)
	return spec.Start.Parent == id || spec.Near.Group != "" && (k == nil || k.Spec.Group == spec.Near.Group)
}

// ready is what the model would plan, in order.
func (d *queueDuel) ready() (out []*Capsule) {
	for c := range d.state.Capsules() {
		if _, parked := d.parked[c.Spec]; c.Pending() && chaosMine(c) && !parked {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, inTurn)
	return out
}

// inTurn orders capsules as they are planned.
func inTurn(a, b *Capsule) int {
	if order := cmp.Compare(b.Spec.Priority, a.Spec.Priority); order != 0 {
		return order
	}
	switch one, other := a.Nomination(), b.Nomination(); {
	case one.Lives() && other.Lives():
		return one.compare(other)
	case one.Lives() || other.Lives():
		return btoi(other.Lives()) - btoi(one.Lives())
	}
	return cmp.Compare(a.Submitted, b.Submitted)
}

// nominate makes a nomination, replaces one, or ends it.
func (d *queueDuel) nominate(t *rapid.T) {
	k := d.capsule(t, (*Capsule).Pending)
	if k == nil {
		return
	}
	do := Nominate{Capsule: k.ID}
	if rapid.IntRange(0, 3).Draw(t, "ends") > 0 {
		do.Aged, do.Ends = int32(rapid.IntRange(0, 2).Draw(t, "aged")), time.Unix(2000, 0)
		do.Parts = []NominatedRoom{partOn(d.nodeID(t), 1)}
	}
	d.try(do)
}

// take takes a batch, as a pass does: with some of the classes that have been parked long enough, one capsule each, behind
// what is ready with the same priority. Then it puts some of the classes aside, again or for the first time; of those that
// were tried again, the others are back.
func (d *queueDuel) take(t *rapid.T) {
	d.follow(t)
	most := rapid.IntRange(0, 2).Draw(t, "retry")
	n := most + rapid.IntRange(0, 4).Draw(t, "take")
	tried := d.retried(most)
	ready := d.ready()
	want := append(ready[:min(n-len(tried), len(ready))], tried...)
	slices.SortStableFunc(want, func(a, b *Capsule) int { return cmp.Compare(b.Spec.Priority, a.Spec.Priority) })
	d.queue.turn(n, d.state, false)
	d.queue.retry(d.now, most)
	got := slices.Clone(d.queue.take(n))
	require.Equal(t, idsOf(want), idsOf(got))
	if len(ready)+len(tried) > len(got) {
		require.NotEmpty(t, d.queue.ready, "there is a backlog")
	}
	for _, c := range tried {
		delete(d.parked, c.Spec)
	}
	for _, c := range got {
		if rapid.Bool().Draw(t, "park") {
			d.park(t, c.Spec, slices.Contains(tried, c))
		}
	}
	d.queue.endTrials()
}

// retried returns the first capsules of classes that have been parked long enough, and forgets that such classes are parked
// of which nothing waits.
func (d *queueDuel) retried(most int) (out []*Capsule) {
	specs := slices.SortedFunc(maps.Keys(d.parked), func(a, b *Spec) int { return d.parked[a].until.Compare(d.parked[b].until) })
	for _, spec := range specs {
		if len(out) == most || d.now.Before(d.parked[spec].until) {
			break
		}
		var first *Capsule
		for c := range d.state.Capsules() {
			if c.Spec == spec && c.Pending() && chaosMine(c) && (first == nil || inTurn(c, first) < 0) {
				first = c
			}
		}
		if first == nil {
			delete(d.parked, spec)
		} else {
			out = append(out, first)
		}
	}
	slices.SortFunc(out, func(a, b *Capsule) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Submitted, b.Submitted))
	})
	return out
}

// park puts a class of the last batch aside; it may have been diagnosed to lack company.
func (d *queueDuel) park(t *rapid.T, spec *Spec, again bool) {
	d.serial++ // no two ends are equal
	s := &parkedModel{until: d.now.Add(time.Duration(rapid.Int64Range(0, 3).Draw(t, "for"))*time.Second + time.Duration(d.serial)), evicts: rapid.Bool().Draw(t, "evicts")}
	if spec.Near.Group != "" && rapid.Bool().Draw(t, "diagnosed") {
		s.near = &nearby{near: spec.Near, domains: map[string]bool{}}
		for n := range d.state.GroupNodes(spec.Near.Group) {
			if zone := n.Node.Labels[spec.Near.Level]; zone != "" {
				s.near.domains[zone] = true
			}
		}
	}
	known := d.parked[spec] != nil
	require.Equal(t, !known && !again, d.queue.park(&misfitting{spec: spec, near: s.near, evicts: s.evicts}, s.until))
	if !known {
		d.parked[spec] = s
	}
}

func (d *queueDuel) tick(t *rapid.T) {
	d.now = d.now.Add(time.Duration(rapid.Int64Range(0, 2).Draw(t, "seconds")) * time.Second)
}

// undone is the end of a commitment that was planned with and is not made.
func (d *queueDuel) undone(t *rapid.T) {
	d.follow(t)
	id, k := d.nodeID(t), d.capsule(t, func(*Capsule) bool { return true })
	do := []Commitment{Hold{Node: id}, PutNode{Node{ID: id}}, RemoveNode{Node: id}, Release{Hold: "h"}, Mark{Key: "k"}}
	if k != nil {
		do = append(do, Place{Capsule: k.ID, Node: id}, Release{Capsule: k.ID, Stopped: true})
	}
	c := Change{Revision: d.state.Revision(), Do: rapid.SampledFrom(do).Draw(t, "undone")}
	before := len(d.parked)
	d.modelRoom(&c, true)
	require.Equal(t, len(d.parked) < before, d.queue.reconsider(&c, true))
}

// invariant checks how the queue hangs together: positions, heap order, what is parked, and that a class
// that has no entries and is not parked is forgotten.
func (d *queueDuel) invariant(t *rapid.T) {
	for i, turn := range d.queue.ready {
		k := turn.class
		require.Equal(t, i, k.at)
		require.False(t, k.empty())
		require.Nil(t, k.spot)
		require.Equal(t, k.spec.Priority, turn.priority)
		require.Equal(t, k.first().submitted, turn.submitted)
		require.Same(t, k.nominee(), turn.nominee)
		require.False(t, i > 0 && turn.before(&d.queue.ready[(i-1)/fanout]), "heap order")
	}
	p := &d.queue.parked
	for spec, k := range d.queue.classes {
		require.Same(t, spec, k.spec)
		require.True(t, !k.empty() || k.spot != nil, "an idle class is kept")
		require.Same(t, k.spot, p.spots[spec])
	}
	ties, items, onShelves := map[tie]int{}, 0, 0
	for spec, m := range d.parked {
		s := p.spots[spec]
		require.Equal(t, m.until, s.until)
		require.Same(t, m.near, s.near)
		require.False(t, s.trial)
		for _, tie := range s.ties() {
			ties[tie]++
			require.True(t, p.ties[tie][s])
		}
		items += len(s.items)
	}
	require.Len(t, p.spots, len(d.parked))
	require.Len(t, p.reasons.parked, len(d.parked))
	for spec, s := range p.spots {
		require.Same(t, s, p.reasons.parked[spec], "what is read beside the engine")
	}
	require.Len(t, p.ties, len(ties))
	for tie, n := range ties {
		require.Len(t, p.ties[tie], n)
	}
	for _, set := range p.shelves {
		require.Positive(t, set.Len())
		onShelves += set.Len()
	}
	evicting := 0
	for at := range p.shelves {
		evicting += btoi(at.evicting)
	}
	require.Equal(t, evicting, p.evicting)
	require.Equal(t, items, onShelves)
	require.LessOrEqual(t, len(p.ends), 2*len(p.spots)+64)
}

// The queue gives what the dumb model gives, highest priority first and then in order of submission, under
// any history, with parking, with batches that were not placed, with slots that are used again.
func TestQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &queueDuel{chaos: &chaos{ledger: &MemoryLedger{Bounds: Limits{Terminal: 2, NominatedShare: 100}}, now: time.Unix(1000, 0)}, parked: map[*Spec]*parkedModel{}}
		d.state = snapshotOf(t, d.ledger)
		d.queue.parked.reasons = &reasonBook{}
		d.queue.clear(d.state)
		t.Repeat(map[string]func(*rapid.T){
			"submit": d.submit, "submit more": d.submit, "place": d.place, "release": d.release, "assign": d.assign,
			"put": d.put, "empty": d.empty, "take": d.take, "take more": d.take, "tick": d.tick,
			"undone": d.undone, "nominate": d.nominate, "nominate more": d.nominate,
			"": func(t *rapid.T) { d.follow(t); d.invariant(t) },
		})
	})
}

// An undone removal of a node on which capsules run has moved nobody's company, so what wants company stays parked.
func TestUndoneRemovalMovesNoCompany(t *testing.T) {
	l := &MemoryLedger{}
	waits := wants(1)
	waits.Near = Near{Group: "g", Level: "zone"}
	commit(t, l, PutNode{machine("n", 1)}, Submit{IDs: []CapsuleID{"runs"}, Spec: wants(1)}, Submit{IDs: []CapsuleID{"waits"}, Spec: waits})
	commit(t, l, Place{Capsule: "runs", Node: "n"})
	var q queue
	s := snapshotOf(t, l)
	q.clear(s)
	require.True(t, q.park(&misfitting{spec: s.Capsule("waits").Spec}, time.Unix(1, 0)))
	require.False(t, q.reconsider(&Change{Do: RemoveNode{Node: "n"}}, true))
	require.True(t, q.reconsider(&Change{Do: PutNode{machine("n", 1)}}, true), "a description that was planned with may have moved it")
}

// A nominee that waits because its starts have failed comes back although its class was parked meanwhile, by a capsule that
// may not use the nominated room.
func TestDelayedNomineeComesBack(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 1)}, Submit{IDs: []CapsuleID{"other", "nominee"}, Spec: wants(1)})
	for range 2 {
		commit(t, l, Place{Capsule: "nominee", Node: "n"})
		commit(t, l, Release{Capsule: "nominee", Stopped: true, At: 1})
	}
	commit(t, l, Nominate{Capsule: "nominee", Parts: []NominatedRoom{partOn("n", 1)}, Ends: time.Unix(2000, 0)})
	q, s := queue{now: 1}, snapshotOf(t, l)
	q.clear(s)
	for _, id := range []CapsuleID{"other", "nominee"} {
		c, slot := s.findCapsule(id)
		q.push(slot, c)
	}
	require.Equal(t, []CapsuleID{"other"}, idsOf(q.take(2)))
	require.True(t, q.park(&misfitting{spec: s.Capsule("other").Spec}, time.Unix(9000, 0)))
	q.now = instantOf(time.Unix(60, 0))
	require.True(t, q.admitDelayed())
	require.Equal(t, []CapsuleID{"nominee"}, idsOf(q.take(1)))
}

// What is given back keeps its place in the line: before what was submitted after it.
func TestGivenBackKeepsItsPlace(t *testing.T) {
	l, nav := &MemoryLedger{}, &greedy{}
	nav.after = func(plan *Plan) { *plan = Plan{} }
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a", "b", "c"}, Spec: wants(1)}, Place{Capsule: "a", Node: "n"})
	e := Engine{Ledger: l, Navigator: nav, MaxPlan: 3}
	e.Pass(t.Context())
	commit(t, l, Release{Capsule: "a", Stopped: true})
	commit(t, l, Submit{IDs: []CapsuleID{"d"}, Spec: wants(1)})
	e.MaxPlan = 2
	e.Pass(t.Context())
	e.MaxPlan = 10
	e.Pass(t.Context()) // the last batch was as large as it may be and got nowhere: others have their turn
	e.Pass(t.Context())
	require.Equal(t, [][]CapsuleID{{"b", "c"}, {"a", "b"}, {"c", "d"}, {"a", "b", "c", "d"}}, nav.asked)
}

// A batch that got nowhere makes way for one pass, not for all that is behind it: its turn comes again however
// much work of lower priority there is, and however much keeps coming.
func TestBatchThatGotNowhereIsNotStarved(t *testing.T) {
	for _, batches := range []int{1, 3} {
		l, nav := &MemoryLedger{}, &greedy{}
		urgent := wants(1)
		urgent.Priority = 9
		commit(t, l, PutNode{machine("n", 1000)}, Submit{IDs: names("urgent", 2*batches), Spec: urgent})
		nav.after = func(plan *Plan) {
			plan.Proposals = slices.DeleteFunc(plan.Proposals, func(p Proposal) bool {
				id := p.Do[0].(Place).Capsule
				return strings.HasPrefix(string(id), "urgent") && len(nav.asked) < 40
			})
		}
		e := Engine{Ledger: l, Navigator: nav, MaxPlan: 2}
		tries := map[CapsuleID]int{}
		for pass := range 50 {
			commit(t, l, Submit{IDs: names(fmt.Sprint("low", pass, "-"), 4), Spec: wants(1)})
			e.Pass(t.Context())
			tries[nav.asked[pass][0]]++
		}
		placed := 0
		for c := range snapshotOf(t, l).Capsules() {
			placed += btoi(c.Placed())
			require.True(t, c.Placed() || c.Spec.Priority == 0, "%s was placeable for ten passes", c.ID)
		}
		for _, id := range names("urgent", 2*batches) {
			if first, behind := tries[id], tries[names("urgent", 1)[0]]; first > 0 {
				require.InDelta(t, behind, first, 1, "%s has its turn as the others have", id)
			}
		}
		require.GreaterOrEqual(t, placed, 50, "half of the passes are for what can be placed")
	}
}

// A class whose answer holds even with evictions comes back when a node would take it without the capsules of lower priority,
// and not when those of its own priority would have to go, those that are protected, or those below the truce.
func TestParkedClassThatMayEvict(t *testing.T) {
	for _, c := range []struct {
		name     string
		priority int32
		with     []Commitment
		limits   Limits
		woken    bool
	}{
		{"of lower priority", 4, nil, Limits{}, true},
		{"of its own priority", 5, nil, Limits{}, false},
		{"of higher priority", 6, nil, Limits{}, false},
		{"protected", 4, []Commitment{Protect{Capsule: "stays", For: time.Minute}}, Limits{}, false},
		{"within the truce", 4, nil, Limits{NeverEvictFrom: 3, NeverEvictTo: 5}, false},
		{"below the truce", 2, nil, Limits{NeverEvictFrom: 3, NeverEvictTo: 5}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &MemoryLedger{Bounds: c.limits}
			waits, stays, goes := wants(4), wants(2), wants(2)
			waits.Priority, stays.Priority, goes.Priority = 5, c.priority, 9
			commit(t, l, PutNode{machine("n", 4)}, Submit{IDs: []CapsuleID{"waits"}, Spec: waits}, Submit{IDs: []CapsuleID{"stays"}, Spec: stays},
				Submit{IDs: []CapsuleID{"goes"}, Spec: goes}, Place{Capsule: "goes", Node: "n"})
			commit(t, l, append([]Commitment{Place{Capsule: "stays", Node: "n"}}, c.with...)...)
			var q queue
			s := snapshotOf(t, l)
			q.clear(s)
			spec := s.Capsule("waits").Spec
			require.True(t, q.park(&misfitting{spec: spec, nowhere: true, evicts: true}, time.Unix(1, 0)))
			rev := commit(t, l, Release{Capsule: "goes", Final: true})
			q.state = snapshotOf(t, l)
			require.Equal(t, c.woken, q.reconsider(&Change{Revision: rev, Node: "n", Do: Release{Capsule: "goes", Final: true}}, false))
			require.Equal(t, !c.woken, q.parked.any())
		})
	}
}

// After a Respec a class may still have the void entry of a capsule. However classes come back from parking, the void one is
// dropped on the way to the valid one: no batch is spent on nothing.
func TestAVoidEntryComesFirst(t *testing.T) {
	for _, voidFirst := range []bool{false, true} {
		l := &MemoryLedger{}
		commit(t, l, Submit{IDs: []CapsuleID{"c"}, Spec: &Spec{}})
		q := queue{classes: map[*Spec]*class{}, parked: newParking(), recalled: map[*Spec]bool{}}
		file := func(s *State) {
			c, slot := s.findCapsule("c")
			q.state = s
			q.file(entry{slot, c.Changed, c.Submitted}, c)
		}
		old := snapshotOf(t, l)
		commit(t, l, Respec{Capsule: "c", Spec: &Spec{Module: "m"}})
		if voidFirst {
			file(old)
			file(snapshotOf(t, l))
		} else {
			file(snapshotOf(t, l))
			file(old)
		}
		q.state = snapshotOf(t, l)
		require.Len(t, q.take(1), 1)
		require.Empty(t, q.ready, "filed first: %v", voidFirst)
	}
}
