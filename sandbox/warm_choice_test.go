package sandbox_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

// scanNode is a node as the scan sees it: what the view shows, less what the plan has given away.
type scanNode struct {
	state   *orbit.NodeState
	report  orbit.Report
	free    orbit.Resources
	devices []int
	slots   int64
	warm    map[string]int
}

// scan is Warm as one would write it down: every node is looked at for every capsule.
type scan struct {
	w      *sandbox.Warm
	leases *lease.Keeper
	state  *orbit.State
	now    orbit.Instant
	nodes  []*scanNode
	// What the plan has placed so far.
	placed []scanPlaced
}

// scanPlaced is a capsule that the plan has placed.
type scanPlaced struct {
	spec *orbit.Spec
	on   *orbit.Node
}

func newScan(w *sandbox.Warm, view *orbit.View) *scan {
	s := &scan{w: w, state: view.State(), now: orbit.Instant(view.Now().UnixNano())}
	if w.Board != nil {
		s.leases = w.Board.Leases
	}
	for n := range view.State().Nodes() {
		k := &scanNode{state: n, report: *view.Report(n), free: n.Free(), warm: map[string]int{}}
		k.slots = int64(k.report.FreeSlots)
		for template, warm := range k.report.Warm {
			k.warm[template] = warm
		}
		for i := range n.Node.Devices.Count {
			k.devices = append(k.devices, n.DeviceFree(i))
		}
		s.nodes = append(s.nodes, k)
	}
	return s
}

// rate calls the formula itself.
func (n *scanNode) rate(template string) (value, tie float64) {
	return sandbox.WarmFirst{}.Rate(n.warm[template], min(n.free[orbit.Slots], n.slots), n.report.CPUPercent, n.report.Stale)
}

// pick chooses devices as a ledger's node does: least free, but enough; the lowest index among equals.
func (n *scanNode) pick(q orbit.DeviceRequest) (set orbit.DeviceSet, ok bool) {
	for range q.Count {
		best := -1
		for i, free := range n.devices {
			if free >= q.Milli && !set.Has(i) && (best < 0 || free < n.devices[best]) {
				best = i
			}
		}
		if best < 0 {
			return 0, false
		}
		set |= 1 << best
	}
	return set, true
}

// never and the others are why a node will not do, the most telling last.
const (
	never = iota
	noTemplate
	noVolume
	stale
	noSlot
	fits
)

// judge says how far a node gets.
func (s *scan) judge(n *scanNode, spec *orbit.Spec, only, not orbit.NodeID) int {
	node, start := n.state.Node, spec.Start
	live := true
	if s.leases != nil {
		_, live = s.leases.In(s.state, string(node.ID))
	}
	if !node.Schedulable() && live && !n.report.Expired || node.ID == not || only != "" && node.ID != only {
		return never
	}
	for _, p := range spec.Require {
		if !p.Matches(node.Labels) {
			return never
		}
	}
	if spec.Devices.Count > 0 && node.Devices.Count == 0 {
		return never
	}
	for near := range spec.AllNear {
		if !s.company(spec, near, node) {
			return never
		}
	}
	if n.report.At.IsZero() {
		return stale
	}
	if start.Template != "" && !slices.Contains(n.report.Templates, start.Template) {
		return noTemplate
	}
	for _, v := range start.Volumes {
		if !slices.Contains(n.report.Volumes, v) {
			return noVolume
		}
	}
	if !live || n.report.Expired || n.report.Stale && !s.w.AllowStale {
		return stale
	}
	if n.slots < max(1, spec.Envelope.Reservation[orbit.Slots]) {
		return noSlot
	}
	for d, want := range spec.Envelope.Reservation {
		if want > 0 && want > n.free[d] {
			return noSlot
		}
	}
	if _, ok := n.pick(spec.Devices); !ok {
		return noSlot
	}
	return fits
}

// company reports whether a member of the group is in the node's domain. By a Near with a label only members count that
// the view shows; by any other co-location also those that the plan has placed, and the first member goes anywhere.
func (s *scan) company(spec *orbit.Spec, near orbit.Near, node *orbit.Node) bool {
	domain := func(n *orbit.Node) string {
		if near.Level == orbit.NodeKey {
			return string(n.ID)
		}
		return n.Labels[near.Level]
	}
	here, anywhere, planned := false, false, near == spec.Near && near.Level != orbit.NodeKey
	count := func(n *orbit.Node) {
		here, anywhere = here || domain(n) == domain(node), anywhere || domain(n) != ""
	}
	for n := range s.state.GroupNodes(near.Group) {
		count(n.Node)
	}
	for _, p := range s.placed {
		if !planned && p.spec.IsIn(near.Group) {
			count(p.on)
		}
	}
	return domain(node) != "" && (here || !planned && !anywhere && spec.IsIn(near.Group))
}

// rank orders equal nodes.
func (s *scan) rank(id orbit.NodeID) uint64 {
	if s.w.Seed == 0 {
		return 0
	}
	h := fnv.New64a()
	for i := range 8 {
		_, _ = h.Write([]byte{byte(s.w.Seed >> (8 * i))})
	}
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// best looks at every node. The kind is that of the node that gets furthest.
func (s *scan) best(c *orbit.Capsule) (*scanNode, error) {
	spec := c.Spec
	only, not := orbit.NodeID(""), orbit.NodeID("")
	if start := spec.Start; start.Parent != "" {
		parent := s.state.Capsule(start.Parent)
		switch gone := parent == nil || parent.Released(); {
		case gone && c.PlacedAt > 0: // it goes anywhere
		case gone || parent.Pending():
			return nil, sandbox.ErrNoParent
		case start.CrossHost:
			not = parent.Node
		default:
			only = parent.Node
		}
	}
	var best *scanNode
	furthest := never
	for _, n := range s.nodes {
		far := s.judge(n, spec, only, not)
		furthest = max(furthest, far)
		if far == fits && (best == nil || s.before(c, n, best)) {
			best = n
		}
	}
	return best, map[int]error{
		never: sandbox.ErrNoNode, noTemplate: sandbox.ErrNoTemplate, noVolume: sandbox.ErrNoVolume, stale: sandbox.ErrAllStale, noSlot: sandbox.ErrNoSlot,
	}[furthest]
}

// avoids reports whether starts of the capsule have failed on a node lately, or starts of more than one other of which the most have failed.
func (s *scan) avoids(c *orbit.Capsule, on *scanNode) bool {
	node, specs, failed, since := on.state.Node.ID, map[*orbit.Spec]int{}, 0, s.state.Revision()
	for other := range s.state.Capsules() {
		for _, f := range s.state.Failures(other.ID).Nodes {
			ago := time.Duration(s.now - f.At)
			if f.Node != node || f.At == 0 {
				continue
			}
			if other == c && ago < min(10*time.Second<<(f.Times-1), 5*time.Minute) {
				return true
			}
			if ago < 5*time.Minute {
				failed++
				specs[other.Spec]++
				since = min(since, f.Revision)
			}
		}
	}
	for other := range s.state.On(node) {
		if other.PlacedAt > since {
			failed--
		}
	}
	return failed > 0 && (len(specs) > 1 || specs[c.Spec] > 1)
}

func (s *scan) before(c *orbit.Capsule, a, b *scanNode) bool {
	if last := s.avoids(c, a); last != s.avoids(c, b) {
		return !last
	}
	va, ta := a.rate(c.Spec.Start.Template)
	vb, tb := b.rate(c.Spec.Start.Template)
	ia, ib := a.state.Node.ID, b.state.Node.ID
	return cmp.Or(cmp.Compare(va, vb), cmp.Compare(ta, tb), cmp.Compare(s.rank(ia), s.rank(ib)), cmp.Compare(ia, ib)) < 0
}

// place gives a node away, and returns the placement that Warm should propose.
func (s *scan) place(c *orbit.Capsule, n *scanNode) orbit.Place {
	p := orbit.Place{Capsule: c.ID, Node: n.state.Node.ID, Note: sandbox.ColdNote, At: s.now}
	p.Devices, _ = n.pick(c.Spec.Devices)
	s.placed = append(s.placed, scanPlaced{c.Spec, n.state.Node})
	for i := range n.devices {
		if p.Devices.Has(i) {
			n.devices[i] -= c.Spec.Devices.Milli
		}
	}
	for d, want := range c.Spec.Envelope.Reservation {
		n.free[d] -= want
	}
	n.slots -= max(1, c.Spec.Envelope.Reservation[orbit.Slots])
	if template := c.Spec.Start.Template; n.warm[template] > 0 {
		n.warm[template]--
		p.Note = sandbox.WarmNote
	}
	return p
}

// check compares a plan with the scan, capsule by capsule.
func (s *scan) check(t require.TestingT, pending []*orbit.Capsule, plan orbit.Plan) {
	proposals, unplaced, counts := plan.Proposals, plan.Unplaced, map[string]int64{}
	for _, c := range pending {
		n, why := s.best(c)
		if n == nil {
			require.NotEmpty(t, unplaced, "%s: the scan says %v", c.ID, why)
			require.Same(t, c, unplaced[0].Capsule)
			require.ErrorIs(t, unplaced[0].Why, why)
			require.Equal(t, !errors.Is(why, sandbox.ErrNoParent), errors.As(unplaced[0].Why, new(*orbit.NoFit)))
			unplaced = unplaced[1:]
			counts[why.Error()]++
			continue
		}
		value, _ := n.rate(c.Spec.Start.Template)
		want := s.place(c, n)
		require.NotEmpty(t, proposals, "the scan puts %s on %s", c.ID, want.Node)
		require.Equal(t, []orbit.Commitment{want}, proposals[0].Do, "value %v", value)
		proposals = proposals[1:]
		counts[want.Note]++
	}
	require.Empty(t, proposals)
	require.Empty(t, unplaced)
	for _, k := range []struct{ note, why string }{
		{"warm", "warm"}, {"cold", "cold"}, {"allStale", sandbox.ErrAllStale.Error()}, {"noSlot", sandbox.ErrNoSlot.Error()},
		{"noVolume", sandbox.ErrNoVolume.Error()}, {"noTemplate", sandbox.ErrNoTemplate.Error()},
		{"noParent", sandbox.ErrNoParent.Error()}, {"noNode", sandbox.ErrNoNode.Error()},
	} {
		i := slices.IndexFunc(plan.Notes, func(a slog.Attr) bool { return a.Key == k.note })
		require.GreaterOrEqual(t, i, 0, k.note)
		require.Equal(t, counts[k.why], plan.Notes[i].Value.Int64(), k.note)
	}
}

// warmWorld is a ledger, a board and a navigator on a view that follows both, with a clock of its own.
type warmWorld struct {
	t      *rapid.T
	now    time.Time
	ledger *orbit.MemoryLedger
	board  *telemetry.Board
	terms  map[orbit.NodeID]lease.Term
	view   orbit.View
	warm   *sandbox.Warm
	serial int
	// Numbers of nodes are below this.
	most int
}

func newWarmWorld(t *rapid.T) *warmWorld {
	w := &warmWorld{t: t, now: time.Unix(1_000_000, 0), ledger: &orbit.MemoryLedger{}, terms: map[orbit.NodeID]lease.Term{}}
	clock := func() time.Time { return w.now }
	w.board = &telemetry.Board{Now: clock}
	if rapid.Bool().Draw(t, "leases") {
		w.board.Leases = &lease.Keeper{Ledger: w.ledger, Now: clock, Terms: -1}
	}
	w.warm = &sandbox.Warm{Board: w.board, AllowStale: rapid.Bool().Draw(t, "allow stale"), Seed: rapid.SampledFrom([]uint64{0, 7}).Draw(t, "seed")}
	w.most = rapid.SampledFrom([]int{15, 15, 15, 150}).Draw(t, "most")
	for range rapid.IntRange(w.most/15, w.most*4/5).Draw(t, "nodes") {
		w.put()
	}
	return w
}

var (
	warmTemplates = []string{"t0", "t1", "t2"}
	warmVolumes   = []string{"v0", "v1", "v2"}
)

func (w *warmWorld) id() orbit.NodeID {
	return orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, w.most-1).Draw(w.t, "node")))
}

// put lets a node join or changes it; its capacity may shrink below what is used.
func (w *warmWorld) put() {
	n := orbit.Node{ID: w.id(), Labels: map[string]string{"zone": rapid.SampledFrom([]string{"a", "b", ""}).Draw(w.t, "zone")}}
	n.Capacity[orbit.Slots] = rapid.SampledFrom([]int64{0, 1, 3, 10, 16_384}).Draw(w.t, "slots")
	n.Capacity[orbit.CPU] = rapid.SampledFrom([]int64{0, 2, 100}).Draw(w.t, "cpu")
	n.Cordon(rapid.IntRange(0, 7).Draw(w.t, "drain") == 0)
	if rapid.Bool().Draw(w.t, "has devices") {
		n.Devices = orbit.Devices{Model: "m", Count: 2}
	}
	w.try(orbit.PutNode{Node: n})
	w.report(n.ID)
}

// report is a heartbeat, under the node's term if there are leases.
func (w *warmWorld) report(id orbit.NodeID) {
	r := orbit.Report{Node: id, At: w.now, FreeSlots: rapid.SampledFrom([]int{0, 1, 2, 5, 20}).Draw(w.t, "free"), Warm: map[string]int{}}
	r.CPUPercent = rapid.SampledFrom([]float64{0, 10, 31, 100}).Draw(w.t, "load")
	r.Templates = subset(w.t, warmTemplates)
	if rapid.IntRange(0, 19).Draw(w.t, "rare") == 0 {
		r.Templates = append(r.Templates, "rare")
	}
	r.Volumes = subset(w.t, warmVolumes)
	for _, template := range append(warmTemplates, "rare") {
		r.Warm[template] = rapid.SampledFrom([]int{0, 0, 1, 2, 12}).Draw(w.t, "warm")
	}
	if leases := w.board.Leases; leases != nil {
		if _, live := leases.Live(string(id)); !live {
			term, err := leases.Acquire(context.Background(), string(id), "agent")
			require.NoError(w.t, err)
			w.terms[id] = term
		}
		r.Term = w.terms[id].Epoch
	}
	require.NoError(w.t, w.board.Report(r))
}

func subset(t *rapid.T, of []string) (some []string) {
	for _, s := range of {
		if rapid.IntRange(0, 3).Draw(t, "has") > 0 {
			some = append(some, s)
		}
	}
	return some
}

// submit adds capsules of a random spec.
func (w *warmWorld) submit() {
	t := w.t
	s := &orbit.Spec{Module: "sandbox", Start: orbit.Start{Template: rapid.SampledFrom(append(warmTemplates, "", "rare", "unknown")).Draw(t, "template")}}
	s.Envelope.Reservation[orbit.Slots] = rapid.SampledFrom([]int64{0, 1, 1, 2}).Draw(t, "slots")
	s.Envelope.Reservation[orbit.CPU] = rapid.SampledFrom([]int64{0, 1}).Draw(t, "cpu")
	switch rapid.IntRange(0, 10).Draw(t, "kind") {
	case 0:
		s.Start.Volumes = rapid.SliceOfNDistinct(rapid.SampledFrom(warmVolumes), 1, 2, rapid.ID).Draw(t, "volumes")
	case 1, 2:
		s.Start.Parent = orbit.CapsuleID(fmt.Sprint("c", rapid.IntRange(0, max(w.serial, 1)).Draw(t, "parent")))
		s.Start.CrossHost = rapid.Bool().Draw(t, "across")
	case 3:
		s.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{"a"}}}
	case 4:
		s.Devices = orbit.DeviceRequest{Count: rapid.IntRange(1, 2).Draw(t, "count"), Milli: rapid.SampledFrom([]int{300, 1000}).Draw(t, "milli")}
	case 5:
		s.Group = "g"
	case 6:
		s.Near = orbit.Near{Group: "g", Level: "zone"}
	case 7, 8:
		s.Nears = []orbit.Near{{Group: "g", Level: "zone"}, {Group: "g", Level: orbit.NodeKey}, {Group: "h", Level: "zone"}}[rapid.IntRange(0, 2).Draw(t, "near"):]
		s.Group = rapid.SampledFrom([]string{"", "g", "h"}).Draw(t, "group")
	}
	var ids []orbit.CapsuleID
	for range rapid.IntRange(1, 6).Draw(t, "copies") {
		w.serial++
		ids = append(ids, orbit.CapsuleID(fmt.Sprint("c", w.serial)))
	}
	w.try(orbit.Submit{IDs: ids, Spec: s})
}

func (w *warmWorld) try(do ...orbit.Commitment) bool {
	_, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	return err == nil
}

// upset changes something.
func (w *warmWorld) upset() {
	t := w.t
	switch rapid.IntRange(0, 7).Draw(t, "upset") {
	case 0:
		w.put()
	case 1, 2:
		if id := w.id(); snapshot(t, w.ledger).Node(id) != nil {
			w.report(id)
		}
	case 3:
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "tens")) * 10 * time.Second)
	case 4, 5:
		r := orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("c", rapid.IntRange(0, w.serial+1).Draw(t, "capsule"))), Final: rapid.Bool().Draw(t, "final")}
		if r.Stopped = !r.Final; r.Stopped && rapid.Bool().Draw(t, "says when") {
			r.At = orbit.Instant(w.now.UnixNano())
		}
		w.try(r)
	case 6:
		w.try(orbit.RemoveNode{Node: w.id()})
	case 7:
		if leases := w.board.Leases; leases != nil {
			_ = leases.Resign(context.Background(), w.terms[w.id()])
		}
	}
}

// plan compares a plan with the scan, and commits some of it.
func (w *warmWorld) plan() {
	t := w.t
	require.NoError(t, w.view.Refresh(context.Background(), w.ledger, w.board, w.now))
	pending := w.view.State().Pending()
	reference := newScan(w.warm, &w.view)
	plan, err := w.warm.Plan(context.Background(), &w.view, pending)
	require.NoError(t, err)
	reference.check(t, pending, plan)
	alone, lost := &orbit.MemoryLedger{Start: w.view.State()}, false
	for i := range plan.Proposals {
		_, err := alone.Propose(context.Background(), plan.Proposals[i])
		require.NoError(t, err, "all of a plan can be committed on an idle ledger")
		if rapid.IntRange(0, 3).Draw(t, "lost") > 0 {
			_, err := w.ledger.Propose(context.Background(), plan.Proposals[i])
			require.True(t, err == nil || lost, "%v", err) // it may rest on one that is lost
		} else {
			lost = true
		}
	}
	if leases := w.board.Leases; leases != nil {
		w.fenced(leases, &plan)
	}
}

// fenced checks that every placement bets on the node's term.
func (w *warmWorld) fenced(leases *lease.Keeper, plan *orbit.Plan) {
	for _, p := range plan.Proposals {
		node := p.Do[0].(orbit.Place).Node
		term, live := leases.In(w.view.State(), string(node))
		require.True(w.t, live)
		require.Contains(w.t, p.If, orbit.MarkAt{Key: leases.Key(string(node)), Revision: term.Epoch})
	}
}

// Warm chooses what a scan over all nodes with sandbox.WarmFirst chooses, capsule by capsule, and says the same
// of what it does not place: whatever has happened between plans, and whatever of them was lost. What the board
// shows of claims is in both. All of a plan can be committed (SCENARIOS 18; I9, I10).
func TestWarmChoosesWhatAScanChooses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWarmWorld(t)
		for range rapid.IntRange(1, 8).Draw(t, "plans") {
			for range rapid.IntRange(0, 3).Draw(t, "submits") {
				w.submit()
			}
			for range rapid.IntRange(0, 6).Draw(t, "upsets") {
				w.upset()
			}
			w.plan()
		}
	})
}

// A sandbox that is nominated is placed on its room, although others of its template come first and find none; a [sandbox.Gateway]
// leaves it that room.
func TestWarmUsesNominatedRoom(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	s := bootSpec(code)
	room := s.Envelope.Reservation
	propose := func(do ...orbit.Commitment) {
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: do})
		require.NoError(t, err)
	}
	propose(orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: room}}, orbit.Submit{IDs: []orbit.CapsuleID{"first", "nominee", "last"}, Spec: s},
		orbit.Nominate{Capsule: "nominee", Ends: time.Now().Add(time.Hour), Parts: []orbit.NominatedRoom{{Node: "n", Room: room}}})
	g := &sandbox.Gateway{Ledger: l}
	_, err := g.Create(t.Context(), "thief", s)
	require.ErrorIs(t, err, sandbox.ErrNoSlot)
	var view orbit.View
	require.NoError(t, view.Refresh(t.Context(), l, nil, time.Now()))
	var pending []*orbit.Capsule
	for _, id := range []orbit.CapsuleID{"first", "nominee", "last"} {
		pending = append(pending, view.State().Capsule(id))
	}
	plan, err := (&sandbox.Warm{}).Plan(t.Context(), &view, pending)
	require.NoError(t, err)
	require.Len(t, plan.Unplaced, 2)
	require.Len(t, plan.Proposals, 1)
	propose(plan.Proposals[0].Do...)
	state, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	require.Equal(t, orbit.NodeID("n"), state.Capsule("nominee").Node)
}
