package orbit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// drafting is a draft at work on a small world, and what ledgers make of its proposals.
type drafting struct {
	draft Draft
	view  *View
	// The world after all proposals, and what they have released that is not to be used again.
	ledger   *MemoryLedger
	withheld map[NodeID]*withheld
	// Commitments of the proposal in the making.
	open  []Commitment
	marks []draftMark
	// Proposals since Sync, and which of them have come to nothing.
	sent   []Proposal
	void   map[int]bool
	serial int
	// How often steps were taken, and refused, and how many gangs were placed whole.
	taken, refused, gangs int
}

type withheld struct {
	room    Resources
	devices deviceUse
}

// draftMark is what was there at a checkpoint.
type draftMark struct {
	at         int
	state      *State
	withheld   map[NodeID]withheld
	void       map[int]bool
	open, sent int
	nodes      []NodeState
}

// newDrafting is a few nodes, half full, with a group and holds on them.
func newDrafting(t *rapid.T) *drafting {
	d := &drafting{ledger: &MemoryLedger{Bounds: Limits{NominatedShare: 100}}, withheld: map[NodeID]*withheld{}, void: map[int]bool{}}
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		n := machine(NodeID(fmt.Sprint("n", i)), rapid.Int64Range(0, 6).Draw(t, "capacity"))
		n.Capacity[Memory] = rapid.Int64Range(0, 3).Draw(t, "memory")
		n.Labels = map[string]string{"zone": fmt.Sprint("z", i%2)}
		n.Devices = Devices{Model: "A", Count: rapid.IntRange(0, 2).Draw(t, "devices")}
		commit(t, d.ledger, PutNode{n})
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "capsules") {
		id, spec := CapsuleID(fmt.Sprint("c", i)), d.spec(t)
		commit(t, d.ledger, Submit{IDs: []CapsuleID{id}, Spec: spec})
		if s := snapshotOf(t, d.ledger); rapid.IntRange(0, 3).Draw(t, "place") > 0 {
			n := d.node(t, s)
			set, _ := n.PickDevices(spec)
			_, _ = d.ledger.Propose(t.Context(), Proposal{Do: []Commitment{Place{Capsule: id, Node: n.Node.ID, Devices: set}}})
		}
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "gangs") { // the first may start with one member, the second only whole
		spec := d.spec(t)
		spec.Backfills = false
		role := Role{Name: "r", Spec: spec, Members: names(fmt.Sprint("g", i, "-"), rapid.IntRange(1, 3).Draw(t, "members")), Min: 1 - i}
		commit(t, d.ledger, Submit{Gang: &Gang{ID: GangID(fmt.Sprint("g", i)), Roles: []Role{role}}})
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "holds") {
		_, _ = d.ledger.Propose(t.Context(), Proposal{Do: []Commitment{d.aHold(t, HoldID(fmt.Sprint("h", i)))}})
	}
	for range rapid.IntRange(0, 4).Draw(t, "nominations") {
		_, _ = d.ledger.Propose(t.Context(), Proposal{Do: []Commitment{d.aNomination(t)}})
	}
	if s := snapshotOf(t, d.ledger); rapid.IntRange(0, 2).Draw(t, "shrink or cordon") == 0 {
		n := d.node(t, s).Node.clone()
		n.Capacity[CPU] = rapid.Int64Range(0, n.Capacity[CPU]).Draw(t, "left")
		n.Cordon(rapid.Bool().Draw(t, "cordon"))
		commit(t, d.ledger, PutNode{*n})
	}
	d.view, _ = viewOf(t, d.ledger, nil)
	d.draft.Sync(d.view)
	return d
}

func (d *drafting) spec(t *rapid.T) *Spec {
	s := wants(rapid.Int64Range(0, 3).Draw(t, "cpu"))
	s.Priority = rapid.Int32Range(0, 1).Draw(t, "priority")
	s.Movable, s.Ends = rapid.Bool().Draw(t, "movable"), rapid.IntRange(0, 2).Draw(t, "ends") == 0
	s.RunsAtMost, s.Backfills = 1, rapid.Bool().Draw(t, "backfills")
	s.Envelope.Reservation[Memory] = rapid.Int64Range(0, 1).Draw(t, "memory")
	if rapid.IntRange(0, 2).Draw(t, "device") == 0 {
		s.Devices = DeviceRequest{Count: 1, Milli: rapid.SampledFrom([]int{300, 700}).Draw(t, "milli")}
	}
	switch rapid.IntRange(0, 6).Draw(t, "company") {
	case 3:
		s.Spread.Level = "zone"
	case 0:
		s.Group = "g"
	case 1:
		s.Near = Near{"g", "zone"}
	case 2:
		s.Require = []Predicate{{Key: "zone", Op: "In", Values: []string{"z1"}}}
	}
	return s
}

func (d *drafting) node(t *rapid.T, s *State) *NodeState {
	return s.Node(NodeID(fmt.Sprint("n", rapid.IntRange(0, s.NodeCount()-1).Draw(t, "node"))))
}

// aNomination is of a capsule, on some nodes.
func (d *drafting) aNomination(t *rapid.T) Nominate {
	s := snapshotOf(t, d.ledger)
	c := Nominate{Capsule: CapsuleID(fmt.Sprint("c", rapid.IntRange(0, 8).Draw(t, "nominee"))), Ends: time.Unix(9000, 0)}
	if rapid.IntRange(0, 2).Draw(t, "of a gang") == 0 {
		c.Capsule, c.Gang = "", GangID(fmt.Sprint("g", rapid.IntRange(0, 1).Draw(t, "gang")))
	}
	c.Aged = rapid.Int32Range(0, 1).Draw(t, "aged")
	for n := range s.Nodes() {
		r := NominatedRoom{Node: n.Node.ID, Room: Resources{CPU: rapid.Int64Range(0, n.Node.Capacity[CPU]).Draw(t, "claims")}}
		if n.Node.Devices.Count > 0 && rapid.IntRange(0, 3).Draw(t, "claims a device") == 0 {
			r.Devices, r.Milli = 1, 500
		}
		if r.Room[CPU] > 0 || r.Devices != 0 {
			c.Parts = append(c.Parts, r)
		}
	}
	if c.Lends = time.Duration(rapid.IntRange(0, 1).Draw(t, "lends")); len(c.Parts) == 0 {
		c.Aged, c.Ends, c.Lends = 0, time.Time{}, 0
	}
	return c
}

// nominate makes a nomination, or ends one. What ranks lower makes way.
func (d *drafting) nominate(t *rapid.T) {
	c, from := d.aNomination(t), len(d.draft.log)
	if err := d.draft.Nominate(c); err != nil {
		require.ErrorIs(t, err, ErrInfeasible)
		if len(d.sent)+len(d.open) == 0 { // what the plan itself ends is not counted on
			require.Error(t, snapshotOf(t, d.ledger).Check(Proposal{Do: append(slices.Clone(d.open), c)}), "the draft says: %v", err)
		}
		return
	}
	d.open = append(slices.Clone(d.open), d.draft.log[from:]...)
	require.NoError(t, snapshotOf(t, d.ledger).Check(Proposal{Do: d.open}))
}

func (d *drafting) aHold(t *rapid.T, id HoldID) Hold {
	h := Hold{ID: id, Node: d.node(t, snapshotOf(t, d.ledger)).Node.ID, Room: Resources{CPU: rapid.Int64Range(1, 3).Draw(t, "room")}, Ends: time.Unix(9000, 0)}
	if rapid.IntRange(0, 3).Draw(t, "holds a device") == 0 {
		h.Devices, h.Milli = 1<<rapid.IntRange(0, 1).Draw(t, "instance"), 300
	}
	return h
}

// took compares a step with the ledger: what the draft takes commits, and what it refuses does not, unless the room
// is some that an earlier proposal has released.
func (d *drafting) took(t *rapid.T, err error, on NodeID, do ...Commitment) {
	p := Proposal{Do: append(slices.Clone(d.open), do...)}
	judged := snapshotOf(t, d.ledger).Check(p)
	if err == nil {
		require.NoError(t, judged, "the draft takes %v", do)
		d.open = p.Do
		d.taken++
		return
	}
	d.refused++
	require.ErrorIs(t, err, ErrInfeasible)
	ends := func(c Commitment) bool {
		r, _ := c.(Release)
		_, made := c.(Nominate)
		return r.Final || made
	}
	if strings.Contains(err.Error(), "nominated") && (len(d.sent) > 0 || slices.ContainsFunc(d.open, ends)) {
		return // the plan has ended the nomination, if it commits; that is not counted on
	}
	if w := d.withheld[on]; w == nil || *w == (withheld{}) {
		require.Error(t, judged, "the draft says: %v", err)
	}
}

func (d *drafting) place(t *rapid.T) {
	s := d.view.State()
	var all []*Capsule
	for c := range s.Capsules() {
		if c.Gang() != "g1" { // which is placed whole
			all = append(all, c)
		}
	}
	d.serial++
	fresh := &Capsule{ID: CapsuleID(fmt.Sprint("new", d.serial)), Spec: d.spec(t)}
	c := rapid.SampledFrom(append(all, fresh)).Draw(t, "capsule")
	if c == fresh {
		submit := Submit{IDs: []CapsuleID{c.ID}, Spec: c.Spec}
		d.took(t, d.draft.Add(submit), "", submit)
	}
	n := d.node(t, s)
	set := DeviceSet(rapid.IntRange(0, 3).Draw(t, "instances"))
	if rapid.IntRange(0, 3).Draw(t, "pick") > 0 {
		set, _ = d.draft.Node(n.Index()).PickDevices(c.Spec)
	}
	before := d.draft.capsules[c.ID]
	err := d.draft.Place(c, Choice{Node: n, Devices: set})
	if err != nil && before.what == draftReleased && before.at < d.draft.open {
		d.refused++ // released by an earlier proposal: the ledger takes it only if that one commits
		return
	}
	d.took(t, err, n.Node.ID, Place{Capsule: c.ID, Node: n.Node.ID, Devices: set, At: Instant(d.view.Now().UnixNano())})
}

// placeGang places all members of a gang, or takes back those that it has placed. The draft refuses it if the ledger does.
func (d *drafting) placeGang(t *rapid.T) {
	s, p, start := d.view.State(), Proposal{Do: slices.Clone(d.open)}, d.draft.Checkpoint()
	g := s.Gang(GangID(fmt.Sprint("g", rapid.IntRange(0, 1).Draw(t, "gang"))))
	if g == nil {
		return
	}
	var refused error
	touched := false
	for member := range s.Members(g.Gang.ID) {
		n := d.node(t, s)
		touched = touched || d.draft.capsules[member.ID].what != draftUntouched || d.withheld[n.Node.ID] != nil && *d.withheld[n.Node.ID] != (withheld{})
		d.draft.LookAs(member)
		set, _ := d.draft.Node(n.Index()).PickDevices(member.Spec)
		if err := d.draft.Place(member, Choice{Node: n, Devices: set}); err != nil && refused == nil {
			refused = err
		}
		d.draft.LookAs(nil)
		p.Do = append(p.Do, Place{Capsule: member.ID, Node: n.Node.ID, Devices: set, At: Instant(d.view.Now().UnixNano())})
	}
	judged := snapshotOf(t, d.ledger).Check(p)
	if refused == nil {
		require.NoError(t, judged, "the draft takes %v", p.Do)
		d.open = p.Do
		d.taken++
		d.gangs++
		return
	}
	d.draft.Rollback(start)
	if !touched && !strings.Contains(refused.Error(), "nominated") {
		require.Error(t, judged, "the draft says: %v", refused)
	}
	if !touched && len(d.sent)+len(d.open) == 0 { // the plan has ended no nomination
		require.Error(t, judged, "the draft says: %v", refused)
	}
}

// try reserves room and gives it up again. Reserve takes what Place takes, and leaves the same of the node.
func (d *drafting) try(t *rapid.T) {
	n, spec, start := d.node(t, d.view.State()), d.spec(t), d.draft.Checkpoint()
	to := Choice{Node: n, Devices: DeviceSet(rapid.IntRange(0, 3).Draw(t, "instances"))}
	if rapid.IntRange(0, 3).Draw(t, "pick") > 0 {
		to.Devices, _ = d.draft.Node(n.Index()).PickDevices(spec)
	}
	err := d.draft.Reserve(spec, to)
	reserved := d.draft.Node(n.Index())
	d.draft.Rollback(start)
	want := d.draft.Place(&Capsule{ID: "tried", Spec: spec}, to)
	placed := d.draft.Node(n.Index())
	require.Equal(t, want == nil, err == nil, "%v, %v", want, err)
	require.Equal(t, placed.used, reserved.used)
	require.Equal(t, placed.deviceUse(), reserved.deviceUse())
	d.draft.Rollback(start)
}

func (d *drafting) hold(t *rapid.T) {
	h := d.aHold(t, HoldID(fmt.Sprint("h", rapid.IntRange(0, 5).Draw(t, "id"))))
	before := d.draft.holds[h.ID]
	err := d.draft.Hold(h)
	if err != nil && before.what == draftReleased && before.at < d.draft.open {
		d.refused++
		return
	}
	d.took(t, err, h.Node, h)
}

func (d *drafting) release(t *rapid.T) {
	r := Release{Capsule: CapsuleID(fmt.Sprint("c", rapid.IntRange(0, 8).Draw(t, "id"))), Final: rapid.IntRange(0, 3).Draw(t, "final") != 0}
	if rapid.IntRange(0, 3).Draw(t, "a member") == 0 {
		r.Capsule = CapsuleID(fmt.Sprintf("g0-%04d", rapid.IntRange(0, 2).Draw(t, "id")))
	}
	if rapid.IntRange(0, 3).Draw(t, "a hold") == 0 {
		r = Release{Hold: HoldID(fmt.Sprint("h", rapid.IntRange(0, 2).Draw(t, "id")))}
	}
	switch was := d.draft.capsules[r.Capsule].what; {
	case was == draftTaken, was == draftReleased, was == draftRespecified, was == draftEnded && d.view.State().Capsule(r.Capsule).Spec.Ends: // undone with Rollback, or as good as done
		require.Error(t, d.draft.Release(r))
		return
	case r.Hold != "" && d.draft.holds[r.Hold].what != draftUntouched:
		require.Error(t, d.draft.Release(r))
		return
	}
	d.took(t, d.draft.Release(r), "", r)
}

// move takes a capsule off its node and places it on another, or on the same.
func (d *drafting) move(t *rapid.T) {
	c := d.view.State().Capsule(CapsuleID(fmt.Sprint("c", rapid.IntRange(0, 8).Draw(t, "id"))))
	if c == nil {
		return
	}
	if d.draft.capsules[c.ID].what != draftUntouched {
		require.Error(t, d.draft.Evict(Evict{Capsule: c.ID}))
		return
	}
	n, start := d.node(t, d.view.State()), d.draft.Checkpoint()
	evict := Evict{Capsule: c.ID, From: cmp.Or(c.Node, "nowhere"), Since: max(c.PlacedAt, 1)}
	err := d.draft.Evict(evict)
	set, _ := d.draft.Node(n.Index()).PickDevices(c.Spec)
	if err == nil {
		err = d.draft.Place(c, Choice{Node: n, Devices: set})
	}
	if err != nil {
		d.draft.Rollback(start)
	}
	if err != nil && strings.Contains(err.Error(), "an earlier step would break a rule") {
		d.refused++ // it leaves alone what wants to be near it, if only until it comes back
		return
	}
	d.took(t, err, n.Node.ID, evict, Place{Capsule: c.ID, Node: n.Node.ID, Devices: set, At: Instant(d.view.Now().UnixNano())})
}

// respec lets a placed capsule grow or shrink.
func (d *drafting) respec(t *rapid.T) {
	c := d.view.State().Capsule(CapsuleID(fmt.Sprint("c", rapid.IntRange(0, 8).Draw(t, "id"))))
	if c == nil || !c.Placed() || d.draft.capsules[c.ID].what != draftUntouched {
		require.Error(t, d.draft.Respec(Respec{Capsule: cmp.Or(c, &Capsule{}).ID, Spec: wants(1)}))
		return
	}
	spec := *c.Spec
	spec.Envelope.Reservation[CPU] = rapid.Int64Range(0, 5).Draw(t, "cpu")
	spec.Envelope.Reservation[Memory] = rapid.Int64Range(0, 2).Draw(t, "memory")
	shared, err := spec.Share()
	require.NoError(t, err)
	r := Respec{Capsule: c.ID, Since: c.PlacedAt, Spec: shared}
	other := *shared
	other.Priority++
	require.Error(t, d.draft.Respec(Respec{Capsule: c.ID, Spec: &other}), "a plan changes the envelope alone")
	d.took(t, d.draft.Respec(r), c.Node, r)
}

// propose sends what is in the making. Each proposal commits, whichever of those before it have been lost.
func (d *drafting) propose(t *rapid.T) {
	p := d.draft.Propose()
	if len(d.open) == 0 {
		require.Empty(t, p.Do)
		return
	}
	require.Equal(t, d.open, p.Do)
	require.Equal(t, d.view.Revision(), p.View)
	before := snapshotOf(t, d.ledger)
	_, err := d.ledger.Propose(t.Context(), p)
	require.NoError(t, err)
	after := snapshotOf(t, d.ledger)
	d.judgeBets(t, &p, before, after)
	for n := range after.Nodes() {
		d.withhold(before.Node(n.Node.ID), n)
	}
	d.open, d.sent = nil, append(d.sent, p)
	alone, missing := &MemoryLedger{Start: d.view.State()}, false
	for i, p := range d.sent {
		if d.void[i] || rapid.Bool().Draw(t, "lost") || missing && d.placesNear(t, p) { // whose company may be of another proposal
			missing = true
			continue
		}
		_, err := alone.Propose(t.Context(), p)
		require.NoError(t, err, "a proposal rests on another one")
	}
}

// placesNear reports whether a proposal places a capsule that wants to be near a group.
func (d *drafting) placesNear(t *rapid.T, p Proposal) bool {
	s := snapshotOf(t, d.ledger)
	return slices.ContainsFunc(p.Do, func(c Commitment) bool {
		do, ok := c.(Place)
		return ok && s.Capsule(do.Capsule).Spec.Near.Group != ""
	})
}

// mayBorrow reports whether a commitment places what may have borrowed the room.
func (d *drafting) mayBorrow(t *rapid.T, c Commitment) bool {
	place, ok := c.(Place)
	if !ok {
		return false
	}
	n := d.draft.Node(d.view.State().Node(place.Node).Index())
	return n.nominated != nil && snapshotOf(t, d.ledger).Capsule(place.Capsule).Spec.Backfills
}

// withdraw takes back what a proposal places that has come to nothing, unless it releases something or changes a size, or may have borrowed room.
func (d *drafting) withdraw(t *rapid.T) {
	if len(d.sent) == 0 {
		return
	}
	i := rapid.IntRange(0, len(d.sent)-1).Draw(t, "proposal")
	do := d.sent[i].Do
	if d.void[i] {
		return
	}
	releases := slices.ContainsFunc(do, func(c Commitment) bool {
		_, ok := c.(Release)
		_, respecs := c.(Respec)
		return ok || respecs || c.effect().leaves != ""
	})
	if i := slices.IndexFunc(do, func(c Commitment) bool { return d.mayBorrow(t, c) }); i >= 0 {
		require.False(t, d.draft.Withdraw(do[i].(Place).Capsule))
		return
	}
	for _, c := range do {
		place, ok := c.(Place)
		if !ok {
			continue
		}
		if len(d.open) > 0 || releases {
			require.False(t, d.draft.Withdraw(place.Capsule))
			return
		}
		require.True(t, d.draft.Withdraw(place.Capsule))
		require.False(t, d.draft.Withdraw(place.Capsule), "twice")
		known := d.view.State().Capsule(place.Capsule) != nil
		commit(t, d.ledger, Release{Capsule: place.Capsule, Final: !known, Stopped: known})
	}
	d.void[i] = true
}

// judgeBets: a node has to have free what the proposal needs there beyond what it releases, and no more.
func (d *drafting) judgeBets(t *rapid.T, p *Proposal, before, after *State) {
	want := map[NodeID]Resources{}
	for n := range after.Nodes() {
		used := n.used.minus(before.Node(n.Node.ID).used)
		for i := range used {
			used[i] = max(0, used[i])
		}
		if used != (Resources{}) {
			want[n.Node.ID] = used
		}
	}
	near := map[GroupIn]bool{}
	for _, bet := range p.If {
		switch bet := bet.(type) {
		case NodeFreeOf:
			require.Equal(t, want[bet.Node], bet.AtLeast)
			delete(want, bet.Node)
		case GroupIn:
			require.False(t, near[bet], "twice")
			near[bet] = true
		}
	}
	require.Empty(t, want, "no bet on what is needed")
	for _, c := range p.Do {
		place, ok := c.(Place)
		if !ok || after.Capsule(place.Capsule).Spec.Near.Group == "" {
			continue
		}
		zone := after.Node(place.Node).Node.Labels["zone"]
		there := false
		for c := range d.view.State().Capsules() { // those that no proposal before has released
			still := before.Capsule(c.ID)
			there = there || c.Spec.Group == "g" && c.Placed() && still.PlacedAt == c.PlacedAt && still.Placed() &&
				before.Node(c.Node).Node.Labels["zone"] == zone
		}
		require.Equal(t, there && after.Capsule(place.Capsule).Spec.IsIn("g"), near[GroupIn{"g", "zone", zone}], "near another group the rule is enough")
	}
}

// withhold notes what a proposal has released beyond what it needs.
func (d *drafting) withhold(before, after *NodeState) {
	w := d.withheld[after.Node.ID]
	if w == nil {
		w = &withheld{}
		d.withheld[after.Node.ID] = w
	}
	was, is := before.deviceUse(), after.deviceUse()
	for i := range w.room {
		w.room[i] += max(0, before.used[i]-after.used[i])
	}
	for i := range w.devices {
		w.devices[i] += max(0, was[i]-is[i])
	}
}

func (d *drafting) checkpoint(t *rapid.T) {
	m := draftMark{at: d.draft.Checkpoint(), state: snapshotOf(t, d.ledger), open: len(d.open), sent: len(d.sent)}
	m.withheld, m.void = map[NodeID]withheld{}, maps.Clone(d.void)
	for id, w := range d.withheld {
		m.withheld[id] = *w
	}
	for n := range d.draft.Nodes() {
		m.nodes = append(m.nodes, *n)
	}
	if len(d.sent) == 0 || len(d.open) > 0 || rapid.Bool().Draw(t, "between proposals") {
		d.marks = append(d.marks, m)
	}
}

func (d *drafting) rollback(t *rapid.T) {
	if len(d.marks) == 0 {
		return
	}
	i := rapid.IntRange(0, len(d.marks)-1).Draw(t, "mark")
	m := d.marks[i]
	open := d.open
	if m.sent < len(d.sent) { // what was in the making then has been proposed since
		open = d.sent[m.sent].Do
	}
	d.draft.Rollback(m.at)
	d.open, d.sent, d.marks = slices.Clone(open[:m.open]), d.sent[:m.sent], d.marks[:i]
	d.ledger, d.void = &MemoryLedger{Start: m.state}, maps.Clone(m.void)
	clear(d.withheld)
	for id, w := range m.withheld {
		d.withheld[id] = &w
	}
	var nodes []NodeState
	for n := range d.draft.Nodes() {
		nodes = append(nodes, *n)
	}
	require.Equal(t, m.nodes, nodes, "rolled back to the node")
}

// check compares the draft's nodes with what the ledger makes of its proposals and of the one in the making, less
// what those before it have released.
func (d *drafting) check(t *rapid.T) {
	trial := &MemoryLedger{Start: snapshotOf(t, d.ledger)}
	if len(d.open) > 0 {
		commit(t, trial, d.open...)
	}
	state := snapshotOf(t, trial)
	require.NoError(t, state.Verify())
	for n := range d.draft.Nodes() {
		want := state.Node(n.Node.ID)
		used, use := want.used, want.deviceUse()
		if w := d.withheld[n.Node.ID]; w != nil {
			used = used.plus(w.room)
			for i := range use {
				use[i] += w.devices[i]
			}
		}
		require.Equal(t, used, n.used, "node %s", n.Node.ID)
		require.Equal(t, use, n.deviceUse(), "node %s", n.Node.ID)
		require.Equal(t, []int{want.Capsules, want.Holds()}, []int{n.Capsules, n.Holds()}, "node %s", n.Node.ID)
		require.Same(t, d.view.State().NodeByIndex(n.Index()).Node, n.Node)
	}
	d.checkMembers(t, state)
}

// checkMembers compares what the draft counts with a look at all capsules. Of the capsules that the plan itself submits it knows no spec that a ledger hands out.
func (d *drafting) checkMembers(t *rapid.T, state *State) {
	group, here, alike := map[string]int{}, map[string]int{}, map[*Spec]map[string]int{}
	for c := range state.Capsules() {
		if !strings.HasPrefix(string(c.ID), "new") {
			alike[c.Spec] = map[string]int{}
		}
	}
	for c := range state.Capsules() {
		if !c.Placed() {
			continue
		}
		zone := state.Node(c.Node).Node.Labels["zone"]
		if c.Spec.Group == "g" {
			here[string(c.Node)]++
		}
		if c.Spec.Group == "g" && zone != "" {
			group[zone]++
		}
		if !strings.HasPrefix(string(c.ID), "new") && zone != "" {
			alike[c.Spec][zone]++
		}
	}
	members, _ := d.draft.MembersBy(nil, "g", "zone")
	require.Equal(t, group, members)
	members, _ = d.draft.MembersBy(nil, "g", NodeKey)
	require.Equal(t, here, members)
	for spec, want := range alike {
		if spec.spreadsItself() {
			members, _ = d.draft.MembersBy(spec, "", "zone")
			require.Equal(t, want, members)
		}
	}
}

// A draft's nodes are what the ledger makes of its proposals, less the room that those before the present one
// release. What it takes commits, whichever of its proposals are lost; what it refuses would not commit. Each
// proposal bets on what it needs beyond what it releases itself. Rollback restores all of that.
func TestDraftAgainstTheLedger(t *testing.T) {
	scale.Sequential(t)
	total := map[string]int{}
	check := func(t *rapid.T) {
		d := newDrafting(t)
		t.Repeat(map[string]func(*rapid.T){
			"place": d.place, "place more": d.place, "place gang": d.placeGang, "place gang more": d.placeGang, "hold": d.hold, "nominate": d.nominate, "release": d.release, "release more": d.release, "move": d.move, "respec": d.respec,
			"try": d.try, "propose": d.propose, "withdraw": d.withdraw, "checkpoint": d.checkpoint, "rollback": d.rollback,
			"": d.check,
		})
		d.draft.Sync(d.view)
		d.ledger, d.open = &MemoryLedger{Start: d.view.State()}, nil
		clear(d.withheld)
		d.check(t)
		total["taken"] += d.taken
		total["refused"] += d.refused
		total["gangs"] += d.gangs
	}
	for total = range scale.Reach(t, "gangs") { // they fit whole in few of the worlds
		for range 12 {
			rapid.Check(t, check)
		}
	}
	if !testing.Short() { // rapid draws a fifth as often then, which is too few
		require.Greater(t, total["taken"], total["refused"]/4)
	}
}

// The contents of two full nodes are swapped by one proposal, and two victims make room for one capsule.
func TestDraftSwapsAndMakesWay(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("a", 4)}, PutNode{machine("b", 4)},
		Submit{IDs: []CapsuleID{"x"}, Spec: movable(4)}, Submit{IDs: []CapsuleID{"y1", "y2"}, Spec: movable(2)}, Submit{IDs: []CapsuleID{"hi"}, Spec: wants(4)},
		Place{Capsule: "x", Node: "a"}, Place{Capsule: "y1", Node: "b"}, Place{Capsule: "y2", Node: "b"})
	v, refresh := viewOf(t, l, nil)
	var d Draft
	d.Sync(v)
	s := v.State()
	for _, id := range []CapsuleID{"x", "y1", "y2"} {
		require.NoError(t, d.Evict(Evict{Capsule: id}))
	}
	for id, to := range map[CapsuleID]NodeID{"x": "b", "y1": "a", "y2": "a"} {
		require.NoError(t, d.Place(s.Capsule(id), Choice{Node: s.Node(to)}))
	}
	p := d.Propose()
	require.Empty(t, p.If, "no node needs more than the proposal releases there")
	require.Error(t, d.Place(s.Capsule("hi"), Choice{Node: s.Node("a")}))
	_, err := l.Propose(t.Context(), p)
	require.NoError(t, err)

	refresh()
	d.Sync(v)
	s = v.State()
	require.NoError(t, d.Release(Release{Capsule: "y1", From: "a", Final: true}))
	require.NoError(t, d.Release(Release{Capsule: "y2", From: "a", Final: true}))
	require.NoError(t, d.Place(s.Capsule("hi"), Choice{Node: s.Node("a"), Note: "in the stead of y1 and y2"}))
	_, err = l.Propose(t.Context(), d.Propose())
	require.NoError(t, err)
	require.Equal(t, "in the stead of y1 and y2", snapshotOf(t, l).Capsule("hi").Note())
}

// A bet that a node has not changed says that its room is there. Room that was tried out is not bet on.
func TestDraftBetsOnceOnANode(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("a", 4)}, PutNode{machine("b", 4)}, Submit{IDs: []CapsuleID{"x", "y"}, Spec: wants(1)})
	v, _ := viewOf(t, l, nil)
	var d Draft
	d.Sync(v)
	s := v.State()
	a, b := s.Node("a"), s.Node("b")
	require.NoError(t, d.Reserve(wants(4), Choice{Node: b}))
	require.ErrorContains(t, d.Place(s.Capsule("y"), Choice{Node: b}), "such nodes lack cpu")
	d.Rollback(0)
	require.NoError(t, d.Place(s.Capsule("x"), Choice{Node: a}))
	require.NoError(t, d.Place(s.Capsule("y"), Choice{Node: b}))
	same := NodeAt{Node: "a", Usage: a.Usage}
	described := NodeAt{Node: "b", Specification: b.Specification}
	p := d.Propose(same, described)
	require.Equal(t, []Precondition{same, described, NodeFreeOf{Node: "b", AtLeast: Resources{CPU: 1}}}, p.If)
}

// A member that an earlier proposal of the plan releases is no company.
func TestDraftKnowsWhoLeaves(t *testing.T) {
	l := &MemoryLedger{}
	a, member, follows := machine("a", 4), wants(1), wants(1)
	a.Labels = map[string]string{"rack": "r"}
	member.Group, follows.Near = "g", Near{Group: "g", Level: "rack"}
	commit(t, l, PutNode{a}, Submit{IDs: []CapsuleID{"m"}, Spec: member}, Place{Capsule: "m", Node: "a"})
	v, _ := viewOf(t, l, nil)
	var d Draft
	d.Sync(v)
	n := v.State().Node("a")
	require.Zero(t, d.Misfit(n, follows))
	require.NoError(t, d.Release(Release{Capsule: "m", Final: true}))
	d.Propose()
	require.Equal(t, Misfit{Why: "wait for group g, of which nothing is placed"}, d.Misfit(n, follows))
	d.Rollback(0)
	require.Zero(t, d.Misfit(n, follows))
}

// What no ledger takes is invalid.
func TestDraftRefusesWhatIsInvalid(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("a", 4)})
	v, _ := viewOf(t, l, nil)
	var d Draft
	d.Sync(v)
	to := Choice{Node: v.State().Node("a")}
	require.ErrorIs(t, d.Place(&Capsule{ID: "x", Spec: wants(-1)}, to), ErrInvalid)
	require.ErrorIs(t, d.Reserve(wants(-1), to), ErrInvalid)
	require.ErrorIs(t, d.Place(nil, to), ErrInvalid)
	require.ErrorIs(t, d.Place(&Capsule{ID: "x"}, to), ErrInvalid)
	require.ErrorIs(t, d.Place(&Capsule{ID: "x", Spec: wants(1)}, Choice{Node: &NodeState{}}), ErrInvalid)
	require.ErrorIs(t, d.Hold(Hold{ID: "h", Node: "a", Room: Resources{CPU: -1}, Ends: time.Unix(1, 0)}), ErrInvalid)
	require.Empty(t, d.Propose().Do)
	require.Same(t, to.Node, d.Node(to.Node.Index()))
}

// A draft without a view is empty, also after one with nodes, and none of its methods panics.
func TestDraftWithoutView(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("a", 4)}, Submit{IDs: []CapsuleID{"x"}, Spec: wants(1)})
	v, _ := viewOf(t, l, nil)
	a, x := v.State().Node("a"), v.State().Capsule("x")
	near := &Spec{Near: Near{Group: "g", Level: "rack"}}
	var d Draft
	for _, sync := range []func(){func() {}, func() { d.Sync(nil) }, func() { d.Sync(v); d.Sync(nil) }, func() { d.Sync(v); d.Sync(&View{}) }} {
		sync()
		require.Nil(t, d.View())
		require.Zero(t, d.Bound())
		require.Nil(t, d.Node(0))
		_, _, all := d.Changed(1)
		require.True(t, all || d.Syncs() == 0)
		require.EqualError(t, d.NoFit(x.Spec, map[Misfit]int{{kind: shortOfRoom}: 2}), "0 of 2 nodes fit: 2 lack cpu")
		require.Equal(t, Misfit{}, d.Misfit(a, near))
		domains, _ := d.NearDomains(near)
		require.Nil(t, domains)
		for _, err := range []error{d.Place(x, Choice{Node: a}), d.Reserve(x.Spec, Choice{Node: a}), d.Add(Mark{Key: "k"}),
			d.Hold(Hold{ID: "h", Node: "a"}), d.Release(Release{Capsule: "x", Stopped: true})} {
			require.ErrorIs(t, err, ErrInfeasible)
		}
		for _, err := range []error{d.Place(nil, Choice{Node: a}), d.Place(&Capsule{}, Choice{Node: a}), d.Place(x, Choice{Node: &NodeState{}}), d.Reserve(nil, Choice{Node: a}), d.PlaceBest(nil, x)} {
			require.ErrorIs(t, err, ErrInvalid)
		}
		require.False(t, d.Withdraw("x"))
		require.Equal(t, Proposal{}, d.Propose())
	}
	d.Sync(v)
	require.NoError(t, d.Place(x, Choice{Node: d.Node(a.Index())}))
}

// Misuse is refused, says what to do and changes nothing.
func TestDraftRefuses(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("a", 4)}, Submit{IDs: []CapsuleID{"x", "y"}, Spec: wants(1)}, Place{Capsule: "y", Node: "a"})
	v, _ := viewOf(t, l, nil)
	s := v.State()
	var d Draft
	a, x, y := s.Node("a"), s.Capsule("x"), s.Capsule("y")
	require.ErrorContains(t, d.Place(x, Choice{Node: a}), "not in the view")
	require.ErrorContains(t, d.Hold(Hold{ID: "h", Node: "a"}), "call Sync first")
	require.ErrorContains(t, d.Release(Release{Capsule: "y", Stopped: true}), "call Sync first")
	require.Equal(t, Proposal{}, d.Propose())
	d.Sync(v)
	for want, step := range map[string]func() error{
		"no such node":         func() error { return d.Place(x, Choice{}) },
		"use Evict first":      func() error { return d.Place(y, Choice{Node: a}) },
		"asks for 0 devices":   func() error { return d.Place(x, Choice{Node: a, Devices: 1}) },
		"is not placed":        func() error { return d.Release(Release{Capsule: "x"}) },
		`on node "a", not`:     func() error { return d.Release(Release{Capsule: "y", From: "b"}) },
		`no capsule "z"`:       func() error { return d.Release(Release{Capsule: "z"}) },
		"use Evict to move":    func() error { return d.Release(Release{Capsule: "y"}) },
		"only the agent":       func() error { return d.Release(Release{Capsule: "y", Stopped: true}) },
		"is not movable":       func() error { return d.Evict(Evict{Capsule: "y"}) },
		"since revision 9":     func() error { return d.Evict(Evict{Capsule: "y", Since: 9}) },
		`capsule "q" in`:       func() error { return d.Evict(Evict{Capsule: "q"}) },
		"names both":           func() error { return d.Release(Release{Capsule: "y", Hold: "h"}) },
		`no hold "h"`:          func() error { return d.Release(Release{Hold: "h"}) },
		"methods of the draft": func() error { return d.Add(RemoveNode{Node: "a"}) },
		"such nodes lack cpu":  func() error { return d.Place(&Capsule{ID: "big", Spec: wants(4)}, Choice{Node: a}) },
		"placed by this plan":  func() error { _ = d.Place(x, Choice{Node: a}); return d.Place(x, Choice{Node: a}) },
		"such nodes lack disk": func() error { return d.Hold(Hold{ID: "h", Node: "a", Room: Resources{Disk: 1}, Ends: time.Unix(1, 0)}) },
	} {
		at := d.Checkpoint()
		err := step()
		require.ErrorIs(t, err, ErrInfeasible)
		require.ErrorContains(t, err, want)
		d.Rollback(at)
		require.Same(t, a, d.Node(a.Index()))
		require.Empty(t, d.Propose().Do)
	}
}

// reasoned is a NoFit that has been counted.
func reasoned(reasons map[string]int) *NoFit {
	return &NoFit{count: &fitCount{reasons: reasons}}
}

// TestNoFitTexts: the verb agrees with the number of nodes, and the most frequent reason comes first.
func TestNoFitTexts(t *testing.T) {
	for many, one := range map[string]string{"are cold": "is cold", "have no disk": "has no disk", "do not answer": "does not answer",
		"lack heat": "lacks heat", "wait for rain": "waits for rain", "failed to start it": "failed to start it", "areas": "areas", "are": "is", "": ""} {
		require.Equal(t, []string{"1 " + one}, reasoned(map[string]int{many: 1}).Texts())
		require.Equal(t, []string{"2 " + many}, reasoned(map[string]int{many: 2}).Texts())
	}
	require.Empty(t, (&NoFit{}).Texts())
	require.Equal(t, []string{"7 lack heat", "2 are cold", "2 lack light", "1 is old", "0 were asked"}, reasoned(map[string]int{
		"are old": 1, "lack light": 2, "were asked": 0, "are cold": 2, "lack heat": 7}).Texts())
	var d Draft
	require.EqualError(t, d.NoFit(&Spec{}, map[Misfit]int{{Why: "lack heat"}: 1}), "0 of 1 nodes fit: 1 lacks heat")
}

// A diagnosis costs nothing until it is read, says the same whenever that is, and may be read from anywhere.
func TestDiagnosisCountsWhenRead(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("a", 5)}, PutNode{machine("b", 2)}, PutNode{machine("c", 9)}, Submit{IDs: names("x", 3), Spec: wants(4)})
	v, _ := viewOf(t, l, nil)
	d, spec := &Draft{}, v.State().Capsule("x0000").Spec
	d.Sync(v)
	require.NoError(t, d.Place(v.State().Capsule("x0000"), Choice{Node: v.State().Node("a")}))
	mark := d.Checkpoint()
	require.NoError(t, d.Place(v.State().Capsule("x0001"), Choice{Node: v.State().Node("c")}))
	why := d.Diagnose(spec, map[Misfit]int{{Why: "are hot"}: 1}, Misfit{Why: "are odd"})
	require.NotNil(t, why.count.diagnose, "nothing is counted yet")
	d.Rollback(mark)
	require.NoError(t, d.Place(v.State().Capsule("x0002"), Choice{Node: v.State().Node("c")}))
	commit(t, l, RemoveNode{Node: "b"})
	d.Sync(v)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { assert.EqualError(t, why, "0 of 3 nodes fit: 2 lack cpu, 1 is hot") })
	}
	both.Wait()
	require.EqualError(t, new(Draft).Diagnose(spec, nil, Misfit{}), "0 of 0 nodes fit")
}

// TestDraftNominatesOnce: what a later proposal nominates or ends must not rest on what an earlier one does with the same
// nomination, which may be lost.
func TestDraftNominatesOnce(t *testing.T) {
	c := widely(t, cpuNode("n", 8), submitOf(cpuSpec(2), "a", "b"))
	made := c.commits(nominationOf("a", partOn("n", 1)))
	v, _ := viewOf(t, c, nil)
	var d Draft
	d.Sync(v)
	require.NoError(t, d.Nominate(Nominate{Capsule: "a", Since: made}))
	d.Propose()
	require.ErrorIs(t, d.Nominate(Nominate{Capsule: "a"}), ErrInfeasible, "the first may have ended it")
	require.ErrorIs(t, d.Nominate(nominationOf("a", partOn("n", 2))), ErrInfeasible)
	require.NoError(t, d.Nominate(nominationOf("b", partOn("n", 2))))
}

// Nobody borrows on a node where the plan has nominated room before: whether the lender lends then depends on whether that commits.
func TestDraftBorrowsFromNobodyWhomThePlanNominates(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{NominatedShare: 100}}
	urgent, small := wants(4), wants(1)
	urgent.Priority, small.Backfills, small.RunsAtMost = 1, true, time.Minute
	nominate := Nominate{Capsule: "urgent", Ends: time.Unix(9000, 0), Lends: time.Hour, Parts: []NominatedRoom{{Node: "a", Room: Resources{CPU: 4}}}}
	commit(t, l, PutNode{machine("a", 4)}, Submit{IDs: []CapsuleID{"urgent"}, Spec: urgent}, Submit{IDs: []CapsuleID{"small"}, Spec: small})
	commit(t, l, nominate)
	v, _ := viewOf(t, l, nil)
	var d Draft
	d.Sync(v)
	to := Choice{Node: v.State().Node("a")}
	require.NoError(t, d.Place(v.State().Capsule("small"), to))
	d.Rollback(0)
	nominate.Since, nominate.Lends = v.State().Capsule("urgent").Nomination().Made, 0
	require.NoError(t, d.Nominate(nominate))
	_, err := l.Propose(t.Context(), d.Propose())
	require.NoError(t, err)
	require.ErrorIs(t, d.Place(v.State().Capsule("small"), to), ErrInfeasible)
}

// That is so, too, if the proposal with the nomination also frees some other room on the node: the first lender by rank lends, and that
// is the new one if it is committed.
func TestDraftBorrowsFromNobodyWhereThePlanAlsoFrees(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{NominatedShare: 100}}
	first, second, small, done := wants(4), wants(2), wants(3), &Spec{Envelope: Envelope{Reservation: Resources{Memory: 1}}}
	first.Priority, second.Priority, small.Backfills, small.RunsAtMost = 1, 2, true, time.Minute
	on := func(id CapsuleID, cpu int64) Nominate {
		return Nominate{Capsule: id, Ends: time.Unix(9000, 0), Lends: time.Hour, Parts: []NominatedRoom{{Node: "a", Room: Resources{CPU: cpu}}}}
	}
	n := machine("a", 6)
	n.Capacity[Memory] = 1
	commit(t, l, PutNode{n}, Submit{IDs: []CapsuleID{"first"}, Spec: first}, Submit{IDs: []CapsuleID{"second"}, Spec: second},
		Submit{IDs: []CapsuleID{"small"}, Spec: small}, Submit{IDs: []CapsuleID{"done"}, Spec: done}, Place{Capsule: "done", Node: "a"})
	commit(t, l, on("first", 4))
	v, _ := viewOf(t, l, nil)
	var d Draft
	d.Sync(v)
	require.NoError(t, d.Nominate(on("second", 2)))
	require.NoError(t, d.Release(Release{Capsule: "done", Final: true}))
	_, err := l.Propose(t.Context(), d.Propose())
	require.NoError(t, err)
	place := Place{Capsule: "small", Node: "a"}
	require.Error(t, snapshotOf(t, l).Check(Proposal{Do: []Commitment{place}}), "it borrows 2 of the second, and would take 1 of the first")
	require.ErrorIs(t, d.Place(v.State().Capsule("small"), Choice{Node: v.State().Node("a")}), ErrInfeasible)
}

// A loan that an earlier proposal brings in the place of what it releases may not come to be, so the nomination claims all its room from
// the later ones.
func TestDraftCountsNoLoanThatMayNotCome(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{NominatedShare: 100}}
	urgent, small := wants(4), wants(2)
	urgent.Priority, small.Backfills, small.RunsAtMost = 1, true, time.Minute
	commit(t, l, PutNode{machine("a", 6)}, Submit{IDs: []CapsuleID{"urgent"}, Spec: urgent}, Submit{IDs: []CapsuleID{"small"}, Spec: small},
		Submit{IDs: []CapsuleID{"done", "plain"}, Spec: wants(2)}, Place{Capsule: "done", Node: "a"})
	commit(t, l, Nominate{Capsule: "urgent", Ends: time.Unix(9000, 0), Lends: time.Hour, Parts: []NominatedRoom{{Node: "a", Room: Resources{CPU: 4}}}})
	v, _ := viewOf(t, l, nil)
	var d Draft
	d.Sync(v)
	to := Choice{Node: v.State().Node("a")}
	require.NoError(t, d.Release(Release{Capsule: "done", Final: true}))
	require.NoError(t, d.Place(v.State().Capsule("small"), to))
	require.NoError(t, v.State().Check(d.Propose()))
	require.Error(t, v.State().Check(Proposal{Do: []Commitment{Place{Capsule: "plain", Node: "a"}}}))
	require.ErrorIs(t, d.Place(v.State().Capsule("plain"), to), ErrInfeasible)
}

// Of capsules that one proposal places on a node where others still stop, all that take an extra wait for these, if they
// do not fit beside them together: the ledger judges the sum. A rollback of one lets the others start at once again.
func TestDraftDelaysAllThatTakeAnExtra(t *testing.T) {
	l := &MemoryLedger{}
	takes := func(amount int64) *Spec { return &Spec{Extras: []Extra{{Name: "ip", Amount: amount}}} }
	commit(t, l, PutNode{Node{ID: "n", Confirms: true, Extras: []Extra{{Name: "ip", Amount: 3}}}})
	commit(t, l, Submit{IDs: []CapsuleID{"old"}, Spec: takes(1)}, Place{Capsule: "old", Node: "n"})
	commit(t, l, Confirm{Capsule: "old", Since: snapshotOf(t, l).Capsule("old").PlacedAt, Begun: true})
	commit(t, l, Release{Capsule: "old", Final: true}, Submit{IDs: []CapsuleID{"a"}, Spec: takes(1)}, Submit{IDs: []CapsuleID{"b"}, Spec: takes(2)})
	view, _ := viewOf(t, l, nil)
	var d Draft
	d.Sync(view)
	put := func(id CapsuleID) {
		require.NoError(t, d.Place(view.State().Capsule(id), Choice{Node: view.State().Node("n")}))
	}
	put("a")
	start := d.Checkpoint()
	put("b")
	d.Rollback(start)
	require.False(t, d.log[0].(Place).After)
	put("b")
	p := d.Propose()
	require.NoError(t, view.State().Check(p))
	require.True(t, p.Do[0].(Place).After)
	require.True(t, p.Do[1].(Place).After)
}

// What a proposal frees of an extra serves its own later steps and no other proposal, because that one may commit
// although this one loses.
func TestDraftLendsNoExtrasBetweenProposals(t *testing.T) {
	for _, confirms := range []bool{false, true} {
		l := &MemoryLedger{}
		takes := func(priority int32, amount int64) *Spec {
			return &Spec{Priority: priority, Extras: []Extra{{Name: "ip", Amount: amount}}}
		}
		commit(t, l, PutNode{Node{ID: "n", Confirms: confirms, Extras: []Extra{{Name: "ip", Amount: 4}}}})
		commit(t, l, Submit{IDs: []CapsuleID{"old"}, Spec: takes(0, 3)}, Place{Capsule: "old", Node: "n"})
		if confirms {
			commit(t, l, Confirm{Capsule: "old", Since: snapshotOf(t, l).Capsule("old").PlacedAt, Begun: true})
		}
		commit(t, l, Submit{IDs: []CapsuleID{"urgent"}, Spec: takes(1000, 2)}, Submit{IDs: []CapsuleID{"one", "more"}, Spec: takes(0, 1)})
		view, _ := viewOf(t, l, nil)
		var d Draft
		d.Sync(view)
		n := view.State().Node("n")
		start := d.Checkpoint()
		require.NoError(t, d.Evict(Evict{Capsule: "old", For: "urgent"}))
		require.NoError(t, d.Place(view.State().Capsule("urgent"), Choice{Node: n}))
		urgent := d.Propose()
		require.NoError(t, d.Place(view.State().Capsule("one"), Choice{Node: n}))
		one := d.Propose()
		require.ErrorIs(t, d.Place(view.State().Capsule("more"), Choice{Node: n}), ErrInfeasible)
		commit(t, l, Release{Capsule: "urgent", Final: true})
		_, err := l.Propose(t.Context(), urgent)
		require.ErrorIs(t, err, ErrConflict)
		_, err = l.Propose(t.Context(), one)
		require.NoError(t, err)
		d.Rollback(start)
		require.EqualValues(t, 1, d.ExtraFree(n, "ip"))
	}
}

// A capsule may take the place of its own remains, but an earlier placement beside it then has to wait for these.
func TestDraftDelaysForTheRemainsOfALaterCapsule(t *testing.T) {
	l := &MemoryLedger{}
	s := &Spec{Extras: []Extra{{Name: "ip", Amount: 1}}}
	commit(t, l, PutNode{Node{ID: "n", Confirms: true, Extras: []Extra{{Name: "ip", Amount: 2}}}}, Submit{IDs: []CapsuleID{"a", "b"}, Spec: s})
	commit(t, l, Place{Capsule: "b", Node: "n"})
	commit(t, l, Confirm{Capsule: "b", Since: snapshotOf(t, l).Capsule("b").PlacedAt, Begun: true})
	commit(t, l, PutNode{Node{ID: "n", Confirms: true, Extras: []Extra{{Name: "ip", Amount: 2}}, State: Cordoned}})
	commit(t, l, Release{Capsule: "b", From: "n"})
	commit(t, l, PutNode{Node{ID: "n", Confirms: true, Extras: []Extra{{Name: "ip", Amount: 2}}}})
	for _, order := range [][]CapsuleID{{"a", "b"}, {"b", "a"}} {
		view, _ := viewOf(t, l, nil)
		d := &Draft{}
		d.Sync(view)
		for _, id := range order {
			n := d.Node(0)
			require.NoError(t, d.Place(view.State().Capsule(id), Choice{Node: n}))
		}
		require.NoError(t, view.State().Check(d.Propose()), "%v", order)
	}
}

// TestDraftReservesAsTheNominee: Reserve gives away the room that is nominated for the capsule as which the draft looks, and for nobody else.
func TestDraftReservesAsTheNominee(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{NominatedShare: 100}}
	commit(t, l, PutNode{machine("a", 4)}, Submit{IDs: []CapsuleID{"nominee"}, Spec: wants(4)}, Submit{IDs: []CapsuleID{"other"}, Spec: wants(3)})
	commit(t, l, Nominate{Capsule: "nominee", Ends: time.Unix(9000, 0), Parts: []NominatedRoom{{Node: "a", Room: Resources{CPU: 4}}}})
	v, _ := viewOf(t, l, nil)
	var d Draft
	d.Sync(v)
	for id, taken := range map[CapsuleID]bool{"nominee": true, "other": false} {
		c := v.State().Capsule(id)
		d.LookAs(c)
		err := d.Reserve(c.Spec, Choice{Node: d.Node(0)})
		require.Equal(t, taken, err == nil, "%s: %v", id, err)
		d.Rollback(0)
	}
}
