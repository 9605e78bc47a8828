package orbit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// board is a telemetry for tests: the contract of [Telemetry] in a few lines.
type board struct {
	stale time.Duration
	fail  func() error

	mu      sync.Mutex
	version uint64
	latest  map[NodeID]Report
	changed map[NodeID]uint64
}

// say takes a report in at an instant. It was received at the time of its heartbeat, for example by another process.
func (b *board) say(r Report, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.latest == nil {
		b.latest, b.changed = map[NodeID]Report{}, map[NodeID]uint64{}
	}
	r.Received = r.At
	known, ok := b.latest[r.Node]
	end := known.Received.Add(b.stale)
	beat := ok && known.FreeSlots == r.FreeSlots && (b.stale == 0 || r.Received.Before(end) && now.Before(end))
	if b.latest[r.Node] = r; !beat {
		b.version++
		b.changed[r.Node] = b.version
	}
}

func (b *board) Reports(_ context.Context, after uint64) (out []Report, _ uint64, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		if err := b.fail(); err != nil {
			return nil, 0, err
		}
	}
	if after == b.version {
		return nil, after, nil
	}
	for id, version := range b.changed {
		if version > after {
			out = append(out, b.latest[id])
		}
	}
	return out, b.version, nil
}

func (b *board) Latest(id NodeID) (Report, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.latest[id]
	return r, ok
}

func (b *board) StaleAfter() time.Duration { return b.stale }

// chaos makes random histories on a ledger: few names, so that everything meets everything, and nodes and
// capsules that leave and come back, so that slots are used again.
type chaos struct {
	ledger *MemoryLedger
	tel    board
	now    time.Time
	serial int
}

var chaosSpecs = []*Spec{
	{Module: "mine", Envelope: Envelope{Reservation: Resources{CPU: 1}}},
	{Module: "mine", Priority: 1, Envelope: Envelope{Reservation: Resources{CPU: 3}}},
	{Module: "mine", Priority: 1, Envelope: Envelope{Reservation: Resources{CPU: 2, Memory: 1}}, Group: "g"},
	{Module: "mine", Priority: -1, Near: Near{Group: "g", Level: "zone"}},
	{Module: "mine", Devices: DeviceRequest{Count: 1, Milli: 400}},
	{Module: "mine", Devices: DeviceRequest{Count: 2, Milli: 600, Models: []string{"gpu", "C"}}},
	{Module: "mine", Require: []Predicate{{Key: "zone", Op: "Exists"}, {Key: "zone", Op: "In", Values: []string{"a", "x"}}}, Envelope: Envelope{Reservation: Resources{CPU: 1}}},
	{Module: "mine", Require: []Predicate{{Key: "zone", Op: "Exists"}}, Envelope: Envelope{Reservation: Resources{CPU: 2}}},
	{Module: "mine", Require: []Predicate{{Key: "zone", Op: "DoesNotExist"}}, Envelope: Envelope{Reservation: Resources{CPU: 2}}},
	{Module: "mine", Envelope: Envelope{Reservation: Resources{CPU: 1}}, Start: Start{Parent: "k1"}},
	{Module: "theirs", Priority: 2, Envelope: Envelope{Reservation: Resources{CPU: 2}}},
}

// chaosOwns reports whether work is of the engine in question.
func chaosOwns(owner string, spec *Spec) bool {
	return owner == "me" || owner == "" && spec.Module == "mine"
}

func chaosMine(c *Capsule) bool { return chaosOwns(c.Owner(), c.Spec) }

func newChaos(t *rapid.T) *chaos {
	limits := Limits{Terminal: 2} // records are soon dropped, and their slots given away
	if rapid.Bool().Draw(t, "short history") {
		limits.History = rapid.IntRange(1, 6).Draw(t, "history")
	}
	c := &chaos{ledger: &MemoryLedger{Bounds: limits}, now: time.Unix(1000, 0)}
	c.tel.stale = rapid.SampledFrom([]time.Duration{10 * time.Second, 10 * time.Second, 0}).Draw(t, "stale after")
	return c
}

// try proposes; what does not hold is refused, and that is as well.
func (c *chaos) try(do ...Commitment) {
	s := snapshotOf(panicky{}, c.ledger)
	_, _ = c.ledger.Propose(context.Background(), Proposal{ID: NewProposalID(), View: s.Revision(), Do: do})
}

// panicky is for what cannot fail.
type panicky struct{}

func (panicky) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (panicky) FailNow()                          { panic("failed") }

func (c *chaos) nodeID(t *rapid.T) NodeID {
	return NodeID(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "node"))
}

func (c *chaos) node(t *rapid.T, id NodeID) Node {
	n := machine(id, rapid.Int64Range(0, 6).Draw(t, "cpu"))
	n.Capacity[Memory] = rapid.Int64Range(0, 2).Draw(t, "memory")
	n.Devices = Devices{Model: "gpu", Count: rapid.IntRange(0, 2).Draw(t, "devices")}
	if zone := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "zone"); zone != "" {
		n = n.inZone(zone)
	}
	n.Cordon(rapid.IntRange(0, 5).Draw(t, "draining") == 0)
	return n
}

// capsule returns one that is as wanted, nil if there is none.
func (c *chaos) capsule(t *rapid.T, want func(*Capsule) bool) *Capsule {
	var found []*Capsule
	for k := range snapshotOf(t, c.ledger).Capsules() {
		if want(k) {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortFunc(found, func(a, b *Capsule) int { return int(a.Submitted) - int(b.Submitted) })
	return rapid.SampledFrom(found).Draw(t, "capsule")
}

func (c *chaos) submit(t *rapid.T) {
	ids := make([]CapsuleID, rapid.IntRange(1, 3).Draw(t, "capsules"))
	for i := range ids {
		c.serial++
		ids[i] = CapsuleID(fmt.Sprint("k", c.serial))
	}
	owner := rapid.SampledFrom([]string{"", "", "me", "them"}).Draw(t, "owner")
	c.try(Submit{IDs: ids, Spec: rapid.SampledFrom(chaosSpecs).Draw(t, "spec"), Owner: owner})
}

func (c *chaos) place(t *rapid.T) {
	if k := c.capsule(t, (*Capsule).Pending); k != nil {
		id := c.nodeID(t)
		var set DeviceSet
		if n := snapshotOf(t, c.ledger).Node(id); n != nil {
			set, _ = n.PickDevices(k.Spec)
		}
		c.try(Place{Capsule: k.ID, Node: id, Devices: set})
	}
}

func (c *chaos) release(t *rapid.T) {
	if k := c.capsule(t, func(k *Capsule) bool { return !k.Released() }); k != nil {
		c.try(Release{Capsule: k.ID, Final: k.Pending() || rapid.Bool().Draw(t, "final")})
	}
}

func (c *chaos) assign(t *rapid.T) {
	if k := c.capsule(t, func(k *Capsule) bool { return !k.Released() }); k != nil {
		c.try(Assign{Capsule: k.ID, From: k.Owner(), Owner: rapid.SampledFrom([]string{"", "me", "them"}).Draw(t, "owner")})
	}
}

func (c *chaos) put(t *rapid.T) { c.try(PutNode{c.node(t, c.nodeID(t))}) }

// empty makes a node leave, with all that is on it; it may be back at once.
func (c *chaos) empty(t *rapid.T) {
	id := c.nodeID(t)
	do := append(c.emptying(id), RemoveNode{Node: id})
	if rapid.Bool().Draw(t, "back at once") {
		do = append(do, PutNode{c.node(t, id)})
	}
	c.try(do...)
}

// emptying releases all that is on a node.
func (c *chaos) emptying(id NodeID) (do []Commitment) {
	s := snapshotOf(panicky{}, c.ledger)
	for k := range s.On(id) {
		do = append(do, Release{Capsule: k.ID, Stopped: true})
	}
	for h := range s.Holds() {
		if h.Node == id {
			do = append(do, Release{Hold: h.ID})
		}
	}
	return do
}

// shuffle lets nodes leave one by one, and some come back in another order: into each other's slots.
func (c *chaos) shuffle(t *rapid.T) {
	ids := rapid.Permutation([]NodeID{"a", "b", "c", "d", "e"}).Draw(t, "order")
	for _, id := range ids[:rapid.IntRange(1, 3).Draw(t, "leave")] {
		c.try(append(c.emptying(id), RemoveNode{Node: id})...)
	}
	for _, id := range ids[:rapid.IntRange(0, 3).Draw(t, "return")] {
		c.try(PutNode{c.node(t, id)})
	}
}

func (c *chaos) hold(t *rapid.T) {
	id := HoldID(rapid.SampledFrom([]string{"h", "i", "j"}).Draw(t, "hold"))
	if _, lives := snapshotOf(t, c.ledger).Hold(id); lives {
		c.try(Release{Hold: id})
		return
	}
	after := rapid.Int64Range(0, 5).Draw(t, "ends after")
	c.try(Hold{ID: id, Node: c.nodeID(t), Room: Resources{CPU: 1}, Ends: c.now.Add(time.Duration(after) * time.Second)})
}

// report is a heartbeat, of a member or of a stranger, fresh or long on the way.
func (c *chaos) report(t *rapid.T) {
	r := Report{Node: c.nodeID(t), FreeSlots: rapid.IntRange(0, 1).Draw(t, "slots")}
	r.At = c.now.Add(-time.Duration(rapid.Int64Range(0, 12).Draw(t, "late by")) * time.Second)
	if known, ok := c.tel.Latest(r.Node); !ok || !r.At.Before(known.At) {
		c.tel.say(r, c.now)
	}
}

// tick lets time pass: often to a staleness bound, to the nanosecond.
func (c *chaos) tick(t *rapid.T) {
	to := c.now.Add(time.Duration(rapid.Int64Range(0, 4).Draw(t, "seconds")) * time.Second)
	if r, ok := c.tel.Latest(c.nodeID(t)); ok && c.tel.stale > 0 {
		edge := r.At.Add(c.tel.stale + time.Duration(rapid.Int64Range(-1, 1).Draw(t, "nanoseconds")))
		if edge.After(c.now) && rapid.Bool().Draw(t, "to the edge") {
			to = edge
		}
	}
	c.now = to
}

func (c *chaos) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"submit": c.submit, "submit more": c.submit, "place": c.place, "place more": c.place, "release": c.release,
		"assign": c.assign, "put": c.put, "put more": c.put, "empty": c.empty, "shuffle": c.shuffle,
		"hold": c.hold, "report": c.report, "report more": c.report, "tick": c.tick, "tick more": c.tick,
	}
}

// viewOf returns a view of a ledger, and how to bring it up to date.
func viewOf(t require.TestingT, l Ledger, tel Telemetry) (*View, func()) {
	v, from := &View{}, source{ledger: l, telemetry: tel, owns: chaosOwns, holds: true}
	refresh := func() {
		_, err := v.refresh(context.Background(), &from, time.Unix(1000, 0))
		require.NoError(t, err)
	}
	refresh()
	return v, refresh
}

// observer follows a chaos with a view that is refreshed now and then, and compares.
type observer struct {
	*chaos
	from      source
	view      View
	cursor    uint64
	known     []sight
	placement scan
	draft     Draft
}

// sight is what a view shows of one slot, without the time of the last heartbeat: a view need not have the newest one
// while its own is not too old, so the test does not compare it.
type sight struct {
	node   NodeState
	report Report
}

func (o *observer) sights() []sight {
	out := make([]sight, max(len(o.known), o.view.state.NodeBound()))
	for i := range out {
		if n := o.view.state.NodeByIndex(i); n != nil {
			out[i] = sight{node: *n, report: *o.view.Report(n)}
			out[i].report.At, out[i].report.Received = time.Time{}, time.Time{}
		}
	}
	return out
}

// compare refreshes the view and holds it against one that is built afresh.
func (o *observer) compare(t *rapid.T) {
	if !rapid.Bool().Draw(t, "look") {
		return
	}
	_, err := o.view.refresh(context.Background(), &o.from, o.now)
	require.NoError(t, err)
	var fresh View
	_, err = fresh.refresh(context.Background(), &o.from, o.now)
	require.NoError(t, err)
	require.Same(t, fresh.state, o.view.state)
	require.Equal(t, fresh.now, o.view.now)
	for n := range fresh.state.Nodes() {
		want, got := *fresh.Report(n), *o.view.Report(n)
		require.False(t, got.At.After(want.At) || got.Received.After(want.Received))
		got.At, want.At, got.Received, want.Received = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		require.Equal(t, want, got, "report of %q", n.Node.ID)
	}
	all := fresh.state.PendingCount()
	fresh.queue.turn(all, fresh.state, false)
	o.view.queue.turn(all, o.view.state, false)
	require.Equal(t, idsOf(fresh.queue.take(all)), idsOf(o.view.queue.take(all)), "pending work")
	o.compareHolds(t, &fresh)
	o.compareChanged(t)
	o.comparePlacement(t, &fresh)
}

// compareHolds checks which holds have ended, and lets them go half of the time: the view must name each of
// those that live once, and only when its time has come.
func (o *observer) compareHolds(t *rapid.T, fresh *View) {
	want := map[HoldID]bool{}
	for h := range fresh.state.Holds() {
		if !o.now.Before(h.Ends) {
			want[h.ID] = true
		}
	}
	ended := o.view.ended(o.now)
	got := map[HoldID]bool{}
	for _, end := range ended {
		got[end.(Release).Hold] = true
	}
	require.Equal(t, want, got)
	for id := range want {
		o.try(Release{Hold: id})
	}
}

// compareChanged checks that Changed names every slot that looks different now.
func (o *observer) compareChanged(t *rapid.T) {
	indices, next, all := o.view.Changed(o.cursor)
	before, after := o.known, o.sights()
	o.cursor, o.known = next, after
	if all {
		return
	}
	for i := range after {
		was := sight{}
		if i < len(before) {
			was = before[i]
		}
		if i >= len(before) || !assert.ObjectsAreEqual(was, after[i]) {
			require.Contains(t, indices, int32(i), "slot %d: was %+v, is %+v", i, was, after[i])
		}
	}
}

// comparePlacement: SCENARIOS 7. An engine that has followed the changes answers like one that has just
// begun.
func (o *observer) comparePlacement(t *rapid.T, fresh *View) {
	var begun Draft
	begun.Sync(fresh)
	o.draft.Sync(&o.view)
	for _, spec := range chaosSpecs {
		want, wantErr := (&scan{}).Best(&begun, spec)
		got, gotErr := o.placement.Best(&o.draft, spec)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(gotErr))
		if wantErr == nil {
			require.Equal(t, *want.Node, *got.Node)
			require.Equal(t, [2]float64{want.Value, want.Tie}, [2]float64{got.Value, got.Tie})
		}
	}
}

// Whatever happens, a view that has followed the changes equals a view built afresh: state, reports and whether
// they are stale, pending work in its order, ends of holds; and Changed names every node of which state or
// report differ, and every index that is new, also one whose node has left again. SCENARIOS 6: also when nodes
// are emptied, leave and come back.
func TestRefreshedViewEqualsAFreshOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &observer{chaos: newChaos(t)}
		o.from = source{ledger: o.ledger, owns: chaosOwns, holds: true, telemetry: &o.tel}
		if rapid.IntRange(0, 3).Draw(t, "telemetry") == 0 {
			o.from.telemetry = nil
		}
		actions := o.actions()
		actions[""] = o.compare
		t.Repeat(actions)
	})
}

// Two nodes leave and one of them returns: into the slot of the other. Both slots have changed.
func TestNodeThatReturnsIntoAnotherSlot(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("a", 1)}, PutNode{machine("b", 1)})
	from := source{ledger: l, owns: chaosOwns, holds: true}
	var v View
	_, err := v.refresh(t.Context(), &from, time.Now())
	require.NoError(t, err)
	slot := v.state.Node("b").Index()
	_, cursor, _ := v.Changed(0)
	commit(t, l, RemoveNode{Node: "a"})
	commit(t, l, RemoveNode{Node: "b"})
	commit(t, l, PutNode{machine("b", 1)})
	_, err = v.refresh(t.Context(), &from, time.Now())
	require.NoError(t, err)
	require.NotEqual(t, slot, v.state.Node("b").Index())
	indices, _, all := v.Changed(cursor)
	require.False(t, all)
	assert.Contains(t, indices, int32(slot), "the slot that b has left")
	assert.Contains(t, indices, int32(v.state.Node("b").Index()))
}

// A node takes over the slot of another, and brings a report that is older than the other's was. It goes
// stale by its own heartbeat.
func TestStalenessOfANodeInAnothersSlot(t *testing.T) {
	l, tel := &MemoryLedger{}, &board{stale: 10 * time.Second}
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	tel.say(Report{Node: "old", At: at(0)}, at(0))
	tel.say(Report{Node: "new", At: at(5)}, at(5))
	from := source{ledger: l, telemetry: tel, owns: chaosOwns, holds: true}
	var v View
	refresh := func(now time.Time) {
		_, err := v.refresh(t.Context(), &from, now)
		require.NoError(t, err)
	}
	commit(t, l, PutNode{machine("new", 1)})
	refresh(at(6))
	slot := v.state.Node("new").Index()
	commit(t, l, RemoveNode{Node: "new"})
	commit(t, l, PutNode{machine("old", 1)})
	refresh(at(7))
	require.Equal(t, slot, v.state.Node("old").Index())
	assert.False(t, v.Report(v.state.Node("old")).Stale)
	refresh(at(10).Add(-1))
	assert.False(t, v.Report(v.state.Node("old")).Stale)
	refresh(at(10))
	assert.True(t, v.Report(v.state.Node("old")).Stale, "its heartbeat was 10 s ago")
}

// Staleness to the nanosecond; a heartbeat alone marks nothing as changed, and keeps the report fresh; the
// bound's crossing marks it, in both directions.
func TestStalenessIsExact(t *testing.T) {
	l, tel, start := &MemoryLedger{}, &board{stale: time.Second}, time.Unix(1000, 0)
	commit(t, l, PutNode{machine("n", 1)}, PutNode{machine("mute", 1)})
	from := source{ledger: l, telemetry: tel, owns: chaosOwns, holds: true}
	var v View
	var cursor uint64
	look := func(after time.Duration) (stale, changed bool) {
		_, err := v.refresh(t.Context(), &from, start.Add(after))
		require.NoError(t, err)
		indices, next, all := v.Changed(cursor)
		cursor = next
		n := v.state.Node("n")
		return v.Report(n).Stale, all || slices.Contains(indices, int32(n.Index()))
	}
	beat := func(after time.Duration) { tel.say(Report{Node: "n", At: start.Add(after)}, start.Add(after)) }
	expect := func(after time.Duration, stale, changed bool) {
		t.Helper()
		gotStale, gotChanged := look(after)
		assert.Equal(t, [2]bool{stale, changed}, [2]bool{gotStale, gotChanged}, "after %v", after)
	}
	expect(0, true, true) // has said nothing
	assert.True(t, v.Report(v.state.Node("mute")).Stale)
	beat(0)
	expect(0, false, true)
	expect(time.Second-1, false, false)
	beat(time.Second - 1)
	expect(time.Second, false, false)
	expect(2*time.Second-2, false, false)
	expect(2*time.Second-1, true, true)
	expect(3*time.Second, true, false)
	beat(4 * time.Second)
	expect(4*time.Second, false, true)
}

// Without telemetry a report is the zero one; with telemetry, a node that has said nothing has a stale one
// under its own name.
func TestReportOfASilentNode(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 1)})
	var v View
	_, err := v.refresh(t.Context(), &source{ledger: l, owns: chaosOwns, holds: true}, time.Now())
	require.NoError(t, err)
	assert.Equal(t, Report{}, *v.Report(v.state.Node("n")))
	v = View{}
	_, err = v.refresh(t.Context(), &source{ledger: l, owns: chaosOwns, holds: true, telemetry: &board{stale: time.Hour}}, time.Now())
	require.NoError(t, err)
	assert.Equal(t, Report{Node: "n", Stale: true}, *v.Report(v.state.Node("n")))
}

// The log of changes is a window: a cursor within it gets what is new, one that is too old or zero gets all,
// and memory stays bounded.
func TestChangeLogIsBounded(t *testing.T) {
	var l changeLog
	l.overflow()
	_, start, all := l.since(0)
	require.True(t, all)
	for i := range 3 * changeWindow {
		l.add(uint32(i))
	}
	assert.LessOrEqual(t, len(l.window), changeWindow)
	_, next, all := l.since(start)
	assert.True(t, all, "too old")
	got, end, all := l.since(next)
	assert.Empty(t, got)
	assert.False(t, all)
	l.add(7)
	got, _, _ = l.since(end)
	assert.Equal(t, []int32{7}, got)
	got, _, all = l.since(end - 2)
	assert.Equal(t, []int32{3*changeWindow - 2, 3*changeWindow - 1, 7}, got)
	assert.False(t, all)
	l.overflow()
	_, _, all = l.since(end + 1)
	assert.True(t, all)
}

// A view without an engine: it follows both planes, keeps no queue, and is as it was when a plane fails.
func TestRefreshWithoutAnEngine(t *testing.T) {
	l, tel, start := &MemoryLedger{}, &board{stale: time.Second}, time.Unix(1000, 0)
	var v View
	require.Nil(t, v.State())
	require.Zero(t, v.Revision())
	spec := &Spec{Start: Start{Template: "py"}}
	at := commit(t, l, PutNode{machine("n", 1)}, Submit{IDs: []CapsuleID{"c"}, Spec: spec})
	tel.say(Report{Node: "n", At: start, FreeSlots: 3}, start)
	require.NoError(t, v.Refresh(t.Context(), l, tel, start))
	require.Equal(t, at, v.Revision())
	require.Equal(t, start, v.Now())
	require.Equal(t, 3, v.Report(v.State().Node("n")).FreeSlots)

	later := commit(t, l, Place{Capsule: "c", Node: "n"})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, v.Refresh(ended, l, tel, start.Add(time.Hour)))
	require.Equal(t, at, v.Revision(), "an error of the ledger leaves the view as it was")
	require.Equal(t, start, v.Now())
	require.NoError(t, v.Refresh(t.Context(), l, tel, start.Add(time.Second)))
	require.Equal(t, later, v.Revision())
	require.True(t, v.Report(v.State().Node("n")).Stale)
}

// What a capsule starts from is part of its class, in canonical form, and malformed starts are refused.
func TestStartIsPartOfTheSpec(t *testing.T) {
	l := &MemoryLedger{}
	start := func(volumes ...string) *Spec {
		return &Spec{Start: Start{Template: "py", Volumes: volumes, Parent: "p", CrossHost: true}}
	}
	commit(t, l, Submit{IDs: []CapsuleID{"a"}, Spec: start("w", "v")}, Submit{IDs: []CapsuleID{"b"}, Spec: start("v", "w", "v")},
		Submit{IDs: []CapsuleID{"c"}, Spec: start("v")})
	s, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	require.Same(t, s.Capsule("a").Spec, s.Capsule("b").Spec)
	require.NotSame(t, s.Capsule("a").Spec, s.Capsule("c").Spec)
	require.Equal(t, []string{"v", "w"}, s.Capsule("a").Spec.Start.Volumes)

	for want, bad := range map[string]Start{
		"without a parent":   {CrossHost: true},
		"empty volume":       {Volumes: []string{"v", ""}},
		"this ledger takes":  {Template: strings.Repeat("t", 254)},
		"not valid UTF-8":    {Parent: "\xff"},
		"bytes of text":      {Volumes: []string{strings.Repeat("v", 65_536)}},
		"\"v\\xff\" is not ": {Volumes: []string{"v\xff"}},
	} {
		_, err := l.Propose(t.Context(), Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{"d"}, Spec: &Spec{Start: bad}}}})
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, want)
	}
}

// An engine that more changes have passed by than the ledger's history keeps looks at what differs, and not at every capsule.
func TestViewLeftBehindLooksAtWhatDiffers(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{History: 8}}
	submit := func(n int, owner string) {
		var ids []CapsuleID
		for i := range n {
			ids = append(ids, CapsuleID(fmt.Sprintf("%s-%d-%d", owner, snapshotOf(t, l).Revision(), i)))
		}
		commit(t, l, Submit{IDs: ids, Spec: chaosSpecs[0], Owner: owner})
	}
	submit(5000, "other")
	submit(10, "me")
	looked := 0
	from := source{ledger: l, owns: func(owner string, spec *Spec) bool { looked++; return owner == "me" }}
	var v View
	_, err := v.refresh(t.Context(), &from, time.Unix(1000, 0))
	require.NoError(t, err)
	require.Equal(t, 5010, looked)
	for range 20 {
		submit(1, "other")
	}
	submit(1, "me")
	looked = 0
	_, err = v.refresh(t.Context(), &from, time.Unix(1000, 0))
	require.NoError(t, err)
	require.LessOrEqual(t, looked, 10+2*21, "what it had, what is new, and their neighbours in a chunk")
	v.queue.turn(100, v.state, false)
	require.Len(t, v.queue.take(100), 11)
}
