package orbit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// ---- random worlds ----

var (
	modelNodes    = []NodeID{"n0", "n1", "n2", "n3"}
	modelCapsules = []CapsuleID{"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"}
	modelGangs    = []GangID{"g0", "g1"}
	modelHolds    = []HoldID{"h0", "h1", "h2"}
	modelMarks    = []string{"m0", "m1"}
	modelGroups   = []string{"db", "web"}
	modelOwners   = []string{"", "a", "b"}
)

// scribe draws proposals as navigators would: from what a view shows, and sometimes from nothing at all.
type scribe struct {
	*rapid.T
	view *State
	wild bool // quantities near MaxInt64 too
	// What proposals are made of; nil: of all drafts.
	drafts []draft
	// Most specs have rules of company.
	social bool
	// Most specs name a queue.
	queues bool
}

func pickOne[E any](s *scribe, from []E) E { return rapid.SampledFrom(from).Draw(s.T, "pick") }

// chance is true once in n, and shrinks to false.
func (s *scribe) chance(n int) bool { return rapid.IntRange(0, n-1).Draw(s.T, "chance") == n-1 }

func (s *scribe) quantity(most int64) int64 {
	if s.wild && s.chance(4) {
		return pickOne(s, []int64{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64/2 + 1, math.MaxInt64 / 2})
	}
	return rapid.Int64Range(0, most).Draw(s.T, "quantity")
}

func (s *scribe) room(most int64) (r Resources) {
	for _, d := range []int{CPU, Memory, Dimensions - 1} {
		r[d] = s.quantity(most)
	}
	return r
}

func (s *scribe) node(id NodeID) Node {
	n := Node{ID: id, Capacity: s.room(8), Labels: map[string]string{"rack": pickOne(s, []string{"r0", "r1"})}}
	n.Devices.Count = rapid.IntRange(0, 3).Draw(s.T, "devices")
	if n.Devices.Count > 0 {
		n.Devices.Model = pickOne(s, []string{"A100", "T4"})
		n.Devices.Unhealthy = s.faults(n.Devices.Count)
	}
	n.Cordon(s.chance(8))
	n.Confirms = !s.chance(3)
	n.Taints, n.Extras = s.taints(), s.extras()
	if s.social && s.chance(4) {
		n.Labels = map[string]string{}
	}
	return n
}

func (s *scribe) taints() (out []Taint) {
	for s.chance(5) {
		out = append(out, Taint{pickOne(s, []string{"a", "b"}), pickOne(s, []string{"", "x"}), pickOne(s, []string{"NoSchedule", "NoExecute", "PreferNoSchedule"})})
	}
	return out
}

func (s *scribe) faults(count int) (set DeviceSet) {
	for i := range count {
		if s.chance(6) {
			set |= 1 << i
		}
	}
	return set
}

func (s *scribe) spec() *Spec {
	spec := &Spec{Module: "m", Priority: rapid.Int32Range(0, 2).Draw(s.T, "priority")}
	spec.Envelope.Reservation = s.room(3)
	spec.Movable, spec.Ends = s.chance(2), s.chance(3)
	spec.RunsAtMost = time.Duration(btoi(s.chance(2)) * 60)
	spec.Backfills = spec.RunsAtMost > 0 && s.chance(3)
	spec.Attempts = pickOne(s, []int{0, 0, 1, 2, 3})
	if s.chance(3) {
		spec.Devices = DeviceRequest{Count: 1 + btoi(s.chance(3)), Milli: pickOne(s, []int{1, 500, 600, 1000})}
		if s.chance(3) {
			spec.Devices.Models = []string{"A100"}
		}
	}
	if s.chance(4) {
		spec.Require = []Predicate{{Key: "rack", Op: "In", Values: []string{pickOne(s, []string{"r0", "r1"})}}}
		if node := (Predicate{Key: NodeKey, Op: "In", Values: []string{string(pickOne(s, modelNodes)), "n0"}}); s.chance(3) {
			spec.Require = pickOne(s, [][]Predicate{{node}, {{Op: "AnyOf", Terms: [][]Predicate{spec.Require, {node}}}}, {{Op: "AnyOf", Terms: [][]Predicate{{node, spec.Require[0]}}}}})
		}
	}
	if s.chance(3) {
		spec.Tolerate = pickOne(s, [][]Toleration{{{Op: "Exists"}}, {{Key: "a", Op: "Exists"}}, {{Key: "a"}, {Key: "b", Value: "x"}}, {{Key: "b", Op: "Equal", Value: "x", Effect: "NoExecute"}}, {{Op: "Exists", Effect: "NoExecute", For: time.Minute}, {Op: "Exists", Effect: "NoSchedule"}}})
	}
	if s.chance(2) {
		spec.Group = pickOne(s, modelGroups)
	}
	if s.chance(4) {
		spec.Groups = pickOne(s, [][]string{{"db"}, {"web"}, {"web", "db"}, {"db", "db"}})
	}
	if s.chance(4) {
		spec.Near = Near{Group: pickOne(s, modelGroups), Level: pickOne(s, []string{"rack", "rack", NodeKey})}
	}
	if s.chance(4) {
		spec.Start = Start{Template: "py", Volumes: []string{"w", "v", "w"}, Parent: pickOne(s, modelCapsules), CrossHost: s.chance(2)}
	}
	if s.social && !s.chance(3) || s.chance(12) {
		s.company(spec)
	}
	if s.queues && !s.chance(6) {
		spec.Queue = pickOne(s, modelQueues)
	}
	return spec
}

// fresh returns up to n different capsule ids, unknown to the view unless there are none.
func (s *scribe) fresh(n int) (ids []CapsuleID) {
	for _, id := range modelCapsules {
		if len(ids) < n && (s.view.Capsule(id) == nil || s.view.Capsule(id).Released() && s.chance(50) || s.chance(12)) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		ids = append(ids, pickOne(s, modelCapsules))
	}
	return ids
}

func (s *scribe) gang() *Gang {
	ids := s.fresh(rapid.IntRange(1, 5).Draw(s.T, "members"))
	g := &Gang{ID: pickOne(s, modelGangs)}
	for len(ids) > 0 {
		n := rapid.IntRange(1, len(ids)).Draw(s.T, "role")
		min := rapid.IntRange(0, n).Draw(s.T, "min")
		spec := s.spec()
		spec.Backfills = false
		g.Roles = append(g.Roles, Role{Name: fmt.Sprint(len(g.Roles)), Spec: spec, Members: ids[:n], Min: min})
		ids = ids[n:]
	}
	if members := 0; s.chance(3) {
		for _, r := range g.Roles {
			members += len(r.Members)
		}
		g.Min = rapid.IntRange(1, members).Draw(s.T, "least")
	}
	return g
}

// instant is unknown, some time, or now and then one that is refused.
func (s *scribe) instant() Instant {
	if s.chance(40) {
		return -1
	}
	return pickOne(s, []Instant{0, 1, 1_700_000_000_000_000_000})
}

func (s *scribe) labels() map[string]string {
	return pickOne(s, []map[string]string{nil, {}, {"team": "a"}, {"team": "b", "x": ""}})
}

// put places a capsule where the view says that it fits, or anywhere.
func (s *scribe) put(c CapsuleID, spec *Spec) Place {
	p := Place{Capsule: c, Node: pickOne(s, modelNodes), After: s.chance(6), Note: pickOne(s, []string{"", "warm"}), At: s.instant()}
	var fits []*NodeState
	for n := range s.view.Nodes() {
		if spec != nil && n.Fits(spec) {
			fits = append(fits, n)
		}
	}
	if len(fits) > 0 && !s.chance(10) {
		n := pickOne(s, fits)
		p.Node = n.Node.ID
		p.Devices, _ = n.PickDevices(spec)
	} else if spec != nil {
		p.Devices = DeviceSet(1<<spec.Devices.Count-1) << rapid.IntRange(0, 2).Draw(s.T, "first device")
	}
	return p
}

func (s *scribe) hold() Hold {
	h := Hold{ID: pickOne(s, modelHolds), Node: pickOne(s, modelNodes), Room: s.room(3), Ends: time.Unix(1e9, 0).UTC()}
	if s.chance(3) {
		h.Devices, h.Milli = DeviceSet(1+s.quantity(2)&3), pickOne(s, []int{1, 500, 1000})
	}
	if h.Room == (Resources{}) && h.Devices == 0 {
		h.Room[CPU] = 1
	}
	return h
}

func (s *scribe) some(want func(*Capsule) bool) *Capsule {
	var out []*Capsule
	for c := range s.view.Capsules() {
		if want(c) {
			out = append(out, c)
		}
	}
	if len(out) == 0 || s.chance(10) {
		return &Capsule{ID: pickOne(s, modelCapsules)}
	}
	return pickOne(s, out)
}

// ---- drafts: what one commitment or a usual combination looks like ----

type draft func(s *scribe) []Commitment

var drafts = []draft{
	func(s *scribe) []Commitment { return []Commitment{PutNode{s.node(pickOne(s, modelNodes))}} },
	draftChange, draftChange,
	func(s *scribe) []Commitment { return []Commitment{RemoveNode{Node: pickOne(s, modelNodes)}} },
	draftSubmit, draftSubmit,
	func(s *scribe) []Commitment {
		return []Commitment{Submit{Gang: s.gang(), Owner: pickOne(s, modelOwners), At: s.instant(), Labels: s.labels()}}
	},
	draftPlace, draftPlace, draftPlace, draftPlace, draftPlace,
	draftGang, draftGang, draftGang, draftJoin,
	draftProtect, draftProtect, draftAdopt, draftAdopt, draftRespec, draftRespec,
	draftConfirm, draftConfirm, draftConfirm, draftConfirm, draftConfirm, draftConfirm,
	draftRelease, draftRelease, draftRelease, draftMove, draftMove, draftDrain, draftEvict, draftEvict, draftEvict, draftEvict,
	func(s *scribe) []Commitment { return []Commitment{s.hold()} },
	func(s *scribe) []Commitment { return []Commitment{Release{Hold: pickOne(s, modelHolds)}} },
	draftNominate, draftNominate, draftNominate, draftServe,
	func(s *scribe) []Commitment {
		return []Commitment{Assign{Capsule: pickOne(s, modelCapsules), From: pickOne(s, modelOwners), Owner: pickOne(s, modelOwners)}}
	},
	func(s *scribe) []Commitment {
		return []Commitment{Mark{Key: pickOne(s, modelMarks), Value: pickOne(s, []string{"", "x", "y"})}}
	},
	draftEmpty, draftBudget, draftBudget, draftBudget,
}

// draftChange alters a member: capacity (below use too), labels, devices lost or healed, drain.
func draftChange(s *scribe) []Commitment {
	known := s.view.Node(pickOne(s, modelNodes))
	if known == nil {
		return []Commitment{PutNode{s.node(pickOne(s, modelNodes))}}
	}
	n := *known.Node.clone()
	switch rapid.IntRange(0, 7).Draw(s.T, "change") {
	case 7:
		n.Extras = s.extras()
	case 6:
		n.Taints = s.taints()
	case 5:
		n.Confirms = !n.Confirms
	case 0:
		n.Capacity = s.room(6)
	case 1:
		n.Labels = map[string]string{"rack": pickOne(s, []string{"r0", "r1"})}
	case 2:
		n.Devices = s.node(n.ID).Devices
	case 3:
		n.Cordon(n.Schedulable())
	case 4:
		if s.chance(3) {
			n.State = Lost
		}
	}
	return []Commitment{PutNode{n}}
}

func draftSubmit(s *scribe) []Commitment {
	return []Commitment{Submit{IDs: s.fresh(rapid.IntRange(1, 3).Draw(s.T, "submit")), Spec: s.spec(), Owner: pickOne(s, modelOwners), At: s.instant(), Labels: s.labels()}}
}

func draftPlace(s *scribe) []Commitment {
	c := s.some((*Capsule).Pending)
	return []Commitment{s.put(c.ID, c.Spec)}
}

// draftGang places a gang whole, or leaves some members out.
func draftGang(s *scribe) (out []Commitment) {
	g := s.view.Gang(pickOne(s, modelGangs))
	if g == nil {
		return draftPlace(s)
	}
	spare := s.chance(3)
	for _, r := range g.Gang.Roles {
		for _, id := range r.Members {
			if c := s.view.Capsule(id); c == nil || !c.Pending() || spare && s.chance(3) {
				continue
			}
			out = append(out, s.put(id, r.Spec))
		}
	}
	return out
}

func draftRelease(s *scribe) []Commitment {
	c := s.some((*Capsule).Placed)
	r := Release{Capsule: c.ID, Final: s.chance(3)}
	r.Stopped = s.chance(2 + 4*btoi(r.Final))
	if (!r.Final || r.Stopped) && s.chance(2) || s.chance(30) {
		r.At = s.minute()
	}
	if s.chance(3) {
		r.From = c.Node
	}
	if r.Stopped && s.chance(2) {
		return []Commitment{r, s.put(c.ID, c.Spec)}
	}
	return []Commitment{r}
}

// draftConfirm says that what is placed begins, and that what has left has stopped, of some of each.
func draftConfirm(s *scribe) (out []Commitment) {
	for c := range s.view.Capsules() {
		switch {
		case s.chance(3):
		case c.Remains() != nil && !s.chance(3):
			out = append(out, Confirm{Capsule: c.ID, Since: c.Remains().Since, Stopped: true})
		case c.Placed() && (!c.Begun || s.chance(12)):
			ready := s.chance(3)
			out = append(out, Confirm{Capsule: c.ID, Since: c.PlacedAt, Begun: !ready, Ready: ready})
		case c.Placed() && (c.Ready == s.chance(2) || s.chance(12)):
			out = append(out, Confirm{Capsule: c.ID, Since: c.PlacedAt, Ready: !c.Ready, NotReady: c.Ready})
		}
		if len(out) > 2 || len(out) > 0 && s.chance(2) {
			break
		}
	}
	slices.SortFunc(out, func(a, b Commitment) int { return cmp.Compare(a.(Confirm).Capsule, b.(Confirm).Capsule) })
	if c := s.some((*Capsule).Placed); s.chance(4) {
		out = append(out, Release{Capsule: c.ID, Final: true})
		if s.chance(2) {
			out = append(out, Confirm{Capsule: c.ID, Since: max(c.PlacedAt, 1), Stopped: true})
		}
	}
	if len(out) == 0 || s.chance(12) {
		c := s.some((*Capsule).Placed)
		end := s.chance(2)
		out = append(out, Confirm{Capsule: c.ID, Since: max(c.PlacedAt, 1), Begun: !end, Stopped: end})
	}
	return out
}

// draftEmpty takes everything off a node and removes it, in one proposal.
func draftEmpty(s *scribe) (out []Commitment) {
	id := pickOne(s, modelNodes)
	if s.chance(3) {
		return []Commitment{RemoveNode{Node: id, Gone: true}}
	}
	for c := range s.view.On(id) {
		out = append(out, Release{Capsule: c.ID})
	}
	if s.chance(4) {
		return append(out, RemoveNode{Node: id})
	}
	return append(append([]Commitment{PutNode{Node{ID: id, State: Lost}}}, out...), RemoveNode{Node: id})
}

// draftMove takes a capsule off its node and places it again.
func draftMove(s *scribe) []Commitment {
	c := s.some((*Capsule).Placed)
	out := []Commitment{Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt}}
	if c.Spec == nil || s.chance(12) {
		return out
	}
	return append(out, s.put(c.ID, c.Spec))
}

// draftEvict places a capsule where it may need room, and evicts some of what is there, or elsewhere, to make way for it.
func draftEvict(s *scribe) []Commitment {
	c := s.some((*Capsule).Pending)
	place := Place{Capsule: c.ID, Node: pickOne(s, modelNodes)}
	if c.Spec != nil {
		place.Devices = DeviceSet(1<<c.Spec.Devices.Count-1) << rapid.IntRange(0, 1).Draw(s.T, "first device")
	}
	var out []Commitment
	from := place.Node
	if s.chance(8) {
		from = pickOne(s, modelNodes)
	}
	victims := slices.SortedFunc(s.view.On(from), func(a, b *Capsule) int { return cmp.Compare(a.ID, b.ID) })
	if len(victims) > 0 && victims[0].Gang() != "" && s.chance(2) {
		victims = slices.Collect(s.view.Members(victims[0].Gang()))
	}
	for _, v := range victims {
		e := Evict{Capsule: v.ID, From: v.Node, Since: v.PlacedAt, For: c.ID}
		if c.Gang() != "" && s.chance(3) {
			e.For, e.ForGang = "", c.Gang()
		}
		if v.Placed() && !s.chance(4) {
			out = append(out, e)
		}
	}
	if c.Gang() != "" {
		for m := range s.view.Members(c.Gang()) {
			if m.Pending() && m.ID != c.ID {
				out = append(out, s.put(m.ID, m.Spec))
			}
		}
	}
	if s.chance(12) {
		return out
	}
	return append(out, place)
}

// draftDrain releases a gang, or some of it, back to pending.
func draftDrain(s *scribe) (out []Commitment) {
	spare := s.chance(3)
	for c := range s.view.Members(pickOne(s, modelGangs)) {
		if c.Placed() && (!spare || !s.chance(3)) {
			out = append(out, Release{Capsule: c.ID})
		}
	}
	if len(out) == 0 {
		return draftMove(s)
	}
	return out
}

// proposal joins one to three drafts, so that Submit and Place, PutNode and Place, Release and Place, or the
// end of a hold and a Place meet in one proposal; and bets on what the view shows.
func (s *scribe) proposal() Proposal {
	p := Proposal{View: s.view.Revision()}
	if s.drafts == nil {
		s.drafts = drafts
	}
	for range pickOne(s, []int{1, 1, 1, 1, 1, 2, 3}) {
		p.Do = append(p.Do, pickOne(s, s.drafts)(s)...)
	}
	p.Do = s.follow(p.Do)
	for range pickOne(s, []int{0, 0, 1, 2}) {
		p.If = append(p.If, s.bet(p.Do))
	}
	if s.chance(25) {
		s.spoil(&p)
	}
	return p
}

// follow sometimes places at once what the proposal has just submitted.
func (s *scribe) follow(do []Commitment) []Commitment {
	for _, c := range do {
		sub, ok := c.(Submit)
		switch {
		case !ok || s.chance(2):
		case sub.Gang == nil:
			do = append(do, s.put(sub.IDs[0], sub.Spec))
		default:
			for _, r := range sub.Gang.Roles {
				for _, id := range r.Members {
					do = append(do, s.put(id, r.Spec))
				}
			}
		}
	}
	return do
}

func (s *scribe) bet(do []Commitment) Precondition {
	node := pickOne(s, modelNodes)
	for _, c := range do {
		if p, ok := c.(Place); ok {
			node = p.Node
		}
	}
	n := s.view.Node(node)
	switch rapid.IntRange(0, 4).Draw(s.T, "bet") {
	case 0:
		if n != nil && !s.chance(4) && !negative(n.Free()) {
			return NodeFreeOf{node, n.Free()}
		}
		return NodeFreeOf{node, s.room(4)}
	case 1:
		if n != nil && !s.chance(4) {
			return NodeAt{node, n.Usage, n.Specification}
		}
		return NodeAt{Node: node, Usage: Revision(s.quantity(30))}
	case 2:
		return GangUnplaced{pickOne(s, modelGangs)}
	case 3:
		return GroupIn{pickOne(s, modelGroups), "rack", pickOne(s, []string{"r0", "r1"})}
	}
	key := pickOne(s, modelMarks)
	_, at := s.view.Mark(key)
	return MarkAt{key, at}
}

// spoil makes the proposal malformed.
func (s *scribe) spoil(p *Proposal) {
	bad := &Spec{Prefer: []Preference{{Predicate{Key: "k", Op: "Exists"}, math.NaN()}}}
	p.Do = append(p.Do, pickOne(s, []Commitment{
		nil, &Place{Capsule: "c0", Node: "n0"}, Confirm{Capsule: "c0", Since: 1}, Confirm{Capsule: "c0", Begun: true}, Confirm{Capsule: "c0", Since: 1, Begun: true, Stopped: true},
		Adopt{Capsule: "c0"}, Respec{Capsule: "c0"}, Respec{Spec: &Spec{}}, Respec{Capsule: "c0", Spec: bad}, Adopt{Node: "n0"}, Adopt{Capsule: "c0", Node: "n0", Spec: bad}, Protect{Capsule: "c0"}, Protect{Capsule: "c0", For: -1}, Protect{Capsule: "c0", For: time.Hour}, Protect{Capsule: "c0", For: 1, Since: 1},
		Confirm{Capsule: "c0", Since: 1, Ready: true, NotReady: true}, Confirm{Capsule: "c0", NotReady: true}, Place{Node: "n0"}, PutNode{}, PutNode{Node{ID: "n0", Taints: []Taint{{Key: "a", Effect: "Never"}}}}, Submit{IDs: []CapsuleID{"c0"}, Spec: &Spec{Tolerate: []Toleration{{Op: "Equal"}}}}, Submit{IDs: []CapsuleID{"c0"}, Spec: &Spec{Tolerate: []Toleration{{Op: "Exists", For: 1}}}},
		PutNode{Node{ID: "n0", Capacity: Resources{-1}}}, Submit{IDs: []CapsuleID{"c0"}, Spec: bad},
		PutBudget{}, PutBudget{Budget{ID: "b0", Group: "db", Expected: -1}}, RemoveBudget{},
		Submit{IDs: []CapsuleID{"c0"}, Spec: &Spec{Backfills: true}}, Nominate{Capsule: "c0", Lends: 1},
		Submit{Gang: &Gang{ID: "g0", Roles: []Role{{Spec: &Spec{Backfills: true, RunsAtMost: 1}, Members: []CapsuleID{"c0"}}}}},
		Submit{IDs: []CapsuleID{"c0", "c0"}, Spec: &Spec{}}, Hold{ID: "h0", Node: "n0", Room: Resources{1}},
		Submit{IDs: []CapsuleID{"c0"}, Spec: &Spec{Envelope: Envelope{Reservation: Resources{math.MinInt64}}}},
	}))
}

// ---- the duel: ledger against model ----

var bg = context.Background()

// duel drives a ledger and the model side by side and compares them after every step. It looks at the live
// state, so that snapshots are taken only when an action takes them: without one the ledger writes in place.
type duel struct {
	ledger *MemoryLedger
	model  *model
	wild   bool
	drafts []draft
	// Most specs have rules of company; most specs name a queue.
	company, queues bool
	views           [8]*State // of eight navigators, each as old as it happens to be
	kept            []keptState
	sent            []Proposal
	ids             uint64
	text            []string // of the live state
	count           map[string]int
}

// keptState is a snapshot and everything that was in it when it was taken.
type keptState struct {
	*State
	text []string
}

func newDuel(l Limits, wild bool) *duel {
	d := &duel{ledger: &MemoryLedger{Bounds: l}, model: newModel(l), wild: wild, count: map[string]int{}}
	for i := range d.views {
		d.views[i] = d.snapshot()
	}
	d.text = textOf(d.ledger.live)
	return d
}

func (d *duel) snapshot() *State {
	s, err := d.ledger.Snapshot(bg)
	if err != nil {
		panic(err)
	}
	return s
}

func (d *duel) propose(t *rapid.T, refresh int) {
	nav := rapid.IntRange(0, len(d.views)-1).Draw(t, "navigator")
	s := &scribe{T: t, wild: d.wild, drafts: d.drafts, social: d.company, queues: d.queues}
	if s.chance(refresh) {
		d.views[nav] = d.snapshot()
	}
	s.view = d.views[nav]
	p := s.proposal()
	if d.ids++; !s.chance(5) {
		binary.BigEndian.PutUint64(p.ID[:], d.ids)
	}
	d.sent = append(d.sent, p)
	d.send(t, p)
}

// send proposes and compares all that can be compared.
func (d *duel) send(t *rapid.T, p Proposal) {
	want := d.model.judge(p)
	checked, here, before := d.ledger.live.Check(p), d.snapshot(), d.text
	next, forked := here.With(p)
	rev, err := d.ledger.Propose(bg, p)
	d.compare(t, p, want, rev, err)
	require.Equal(t, plainError(checked), plainError(forked), "Check and With disagree on %v", p)
	require.Empty(t, diffLines(textOf(here), before), "With changes the state that it is asked of")
	if err == nil {
		require.Empty(t, diffLines(textOf(next), d.text), "With and Propose disagree on %v", p)
		require.NoError(t, next.Verify())
	}
	// I10: Check at the ledger's own revision and Propose agree, TakenBy aside.
	require.Equal(t, plainError(checked), plainError(err), "Check and Propose disagree on %v", p)
}

// plainError is an error's text without who took it, which only the ledger's history knows.
func plainError(err error) string {
	var r *Rejection
	if !errors.As(err, &r) {
		return fmt.Sprint(err)
	}
	c := *r
	c.TakenBy = ProposalID{}
	return fmt.Sprintf("%+v", c)
}

func (d *duel) compare(t *rapid.T, p Proposal, want ruling, rev Revision, err error) {
	before := d.text
	d.text = textOf(d.ledger.live)
	switch {
	case want.next != nil:
		require.NoError(t, err, "the model commits %v", p)
		require.Equal(t, want.next.rev, rev)
		d.count["unready and free"] += want.next.freed - d.model.freed
		for _, c := range p.Do {
			confirm, _ := c.(Confirm)
			d.count["not ready"] += btoi(confirm.NotReady)
		}
		d.count["reclaimed"] += want.next.reclaimed - d.model.reclaimed
		d.model = want.next
		d.count["committed"]++
		d.countAgents()
		d.countQueues()
	case want.done != 0:
		require.NoError(t, err)
		require.Equal(t, want.done, rev, "a repeated proposal has the same revision")
		require.Empty(t, diffLines(d.text, before), "a repeated proposal has no further effect")
		d.count["repeated"]++
	default:
		require.Error(t, err, "the model says %v of %v", want.kinds, p)
		require.True(t, slices.ContainsFunc(want.kinds, func(k error) bool { return errors.Is(err, k) }), "want %v: %v", want.kinds, err)
		require.Empty(t, diffLines(d.text, before), "a rejected proposal changes nothing")
		d.receipt(t, p, rev, err)
	}
}

// countAgents counts what agents have to do with.
func (d *duel) countAgents() {
	d.count["kept beyond the limit"] += max(0, len(d.model.released)-d.model.limits.Terminal)
	d.count["overcommitted"] += len(d.model.overcommitted())
	for _, c := range d.model.capsules {
		d.count["begun"] += btoi(c.begun)
		d.count["ready"] += btoi(c.ready)
		d.count["protected"] += btoi(c.protected > 0)
		d.count["waits"] += btoi(c.waits)
		d.count["adopted"] += btoi(c.adopted)
		d.count["with another spec"] += btoi(c.respecified)
		d.count["placed beside its remains"] += btoi(c.node != "" && c.remains != nil)
		d.count["ended with remains"] += btoi(c.released && c.remains != nil)
		if len(c.failures) > 0 {
			f := c.countFailures()
			d.count["failed three times in a row"] += btoi(f.InARow > 2)
			d.count["failed first after a long time"] += btoi(f.InARow == 1 && f.Attempts > 1)
			d.count["failed on a node again"] += btoi(f.Nodes[0].Times > 1)
			d.count["has not begun"] += btoi(!c.failures[len(c.failures)-1].attempt)
		}
	}
}

// receipt: every rejection is typed, of the state judged, and dated by what decides its kind.
func (d *duel) receipt(t *rapid.T, p Proposal, rev Revision, err error) {
	var r *Rejection
	require.ErrorAs(t, err, &r)
	require.Zero(t, rev)
	d.count[r.Kind.Error()]++
	d.count["refused for protection"] += btoi(r.Protected > 0)
	d.count["by a budget"] += btoi(r.Want > 0 && r.Budget != "")
	d.count["by the minimum of a gang"] += btoi(strings.Contains(r.Reason, ": it would have"))
	d.countCompany(r)
	if r.Kind == ErrInvalid { //nolint:errorlint // the sentinel itself
		return
	}
	require.Equal(t, d.model.rev, r.At)
	require.LessOrEqual(t, r.TakenAt, r.At, "taken in the future: %v", err)
	require.Equal(t, r.TakenAt > p.View, errors.Is(err, ErrConflict), "%v at view %d", err, p.View)
}

// invariants hold after every step.
func (d *duel) invariants(t *rapid.T) {
	require.Empty(t, diffLines(worldOf(d.ledger.live), d.model.describe()), "ledger and model differ")
	require.NoError(t, d.ledger.live.Verify())
}

// old snapshots never change, and the history leads from each of them to the present.
func (d *duel) lookBack(t *rapid.T) {
	for _, old := range d.kept {
		require.Empty(t, diffLines(textOf(old.State), old.text), "the snapshot at %d changed", old.rev)
		changes, err := d.ledger.Changes(bg, old.rev)
		if d.compacted(old.rev) {
			require.ErrorIs(t, err, ErrCompacted)
			continue
		}
		require.NoError(t, err)
		now, err := old.Apply(changes)
		require.NoError(t, err)
		require.Empty(t, diffStates(now, d.ledger.live), "replay from %d", old.rev)
		require.NoError(t, now.Verify())
		require.Empty(t, diffLines(textOf(old.State), old.text), "Apply changed the snapshot at %d", old.rev)
	}
}

func (d *duel) compacted(after Revision) bool { return after < d.ledger.history.floor }

func (d *duel) keep() {
	s := d.snapshot()
	d.kept = append(d.kept, keptState{s, textOf(s)})
	if len(d.kept) > 4 {
		d.kept = d.kept[1:]
	}
}

func (d *duel) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":        d.invariants,
		"fresh":   func(t *rapid.T) { d.propose(t, 1) },
		"fresher": func(t *rapid.T) { d.propose(t, 1) },
		"stale":   func(t *rapid.T) { d.propose(t, 5) },
		"staler":  func(t *rapid.T) { d.propose(t, 50) },
		"resend":  d.resend,
		"batch":   d.batch,
		"keep":    func(*rapid.T) { d.keep() },
		"audit": func(t *rapid.T) {
			rapid.SampledFrom([]func(*rapid.T){d.lookBack, d.lookBack, d.fork, d.restore}).Draw(t, "audit")(t)
		},
	}
}

// settle lets some nodes join and some capsules and a gang be submitted before the duel, so that it does not
// spend itself on an empty world.
func (d *duel) settle(t *rapid.T) {
	s := &scribe{T: t, view: d.snapshot(), wild: d.wild, queues: d.queues}
	for _, id := range modelNodes[:rapid.IntRange(0, len(modelNodes)).Draw(t, "nodes")] {
		d.send(t, Proposal{Do: []Commitment{PutNode{s.node(id)}}})
	}
	for range rapid.IntRange(0, 3).Draw(t, "submits") {
		s.view = d.snapshot()
		d.send(t, Proposal{Do: draftSubmit(s)})
	}
	if s.view = d.snapshot(); s.chance(2) {
		d.send(t, Proposal{Do: []Commitment{Submit{Gang: s.gang()}}})
	}
	for i := range d.views {
		d.views[i] = d.snapshot()
	}
}

// restore: what is read back from a dump equals what was written, and lives on as if nothing had happened.
func (d *duel) restore(t *rapid.T) {
	var dump, again bytes.Buffer
	from := d.snapshot()
	require.NoError(t, from.Dump(&dump))
	text := dump.String()
	back, err := restoreFrom(&dump)
	require.NoError(t, err)
	require.NoError(t, back.Dump(&again))
	require.Equal(t, text, again.String(), "restore(dump) dumps otherwise")
	f := &duel{ledger: &MemoryLedger{Start: back}, model: d.model, wild: d.wild, queues: d.queues, count: map[string]int{}}
	f.views[0] = f.snapshot()
	f.text = textOf(f.ledger.live)
	f.invariants(t)
	for range 2 {
		s := &scribe{T: t, view: f.snapshot(), wild: d.wild, queues: d.queues}
		f.send(t, s.proposal())
		f.invariants(t)
	}
	if len(d.sent) > 0 {
		f.repeat(t, d.sent)
	}
}

// resend sends an earlier proposal once more, whatever came of it.
func (d *duel) resend(t *rapid.T) {
	if len(d.sent) == 0 {
		t.Skip("nothing was sent")
	}
	d.repeat(t, d.sent)
}

func (d *duel) repeat(t *rapid.T, sent []Proposal) {
	d.send(t, rapid.SampledFrom(sent).Draw(t, "again"))
}

// batch: each proposal of a batch has the outcome that it would have had alone, in their order.
func (d *duel) batch(t *rapid.T) {
	s := &scribe{T: t, view: d.snapshot(), wild: d.wild, queues: d.queues}
	var batch []Proposal
	for range rapid.IntRange(1, 3).Draw(t, "batch") {
		batch = append(batch, s.proposal())
	}
	out := d.ledger.ProposeBatch(bg, batch)
	after := textOf(d.ledger.live)
	for i, p := range batch {
		want := d.model.judge(p)
		require.Equal(t, want.kinds == nil, out[i].Err == nil, "%v: %v", p, out[i].Err)
		if want.next != nil {
			require.Equal(t, want.next.rev, out[i].Revision)
			d.model = want.next
		} else if want.done == 0 {
			require.True(t, slices.ContainsFunc(want.kinds, func(k error) bool { return errors.Is(out[i].Err, k) }), "want %v: %v", want.kinds, out[i].Err)
		}
	}
	d.text = after
}

// fork: two ledgers that continue from one snapshot disturb neither each other nor the snapshot (I6).
func (d *duel) fork(t *rapid.T) {
	from := d.snapshot()
	before := textOf(from)
	var forks [2]*duel
	for i := range forks {
		f := &duel{ledger: &MemoryLedger{Start: from}, model: d.model, wild: d.wild, queues: d.queues, count: map[string]int{}}
		f.views[0] = f.snapshot()
		f.text = before
		forks[i] = f
	}
	for range 2 {
		for _, f := range forks {
			s := &scribe{T: t, view: f.snapshot(), wild: d.wild, queues: d.queues}
			f.send(t, s.proposal())
			f.invariants(t)
		}
	}
	require.Empty(t, diffLines(textOf(from), before), "a fork changed the snapshot")
	d.invariants(t)
}

// TestLedgerAgainstModel: whatever up to eight navigators propose on views of any age, the ledger does what
// the model does: same outcome (conflict and infeasible told apart), same world afterwards; nothing is ever
// oversubscribed by admission, no capsule is placed twice, a rejection changes nothing, used = recount,
// Check = Propose, history rebuilds the state, snapshots never change.
//
// SCENARIOS 3 (I4 I8), 4 (I12), 5 (I7), 6 (I2 I7), 8 (I8), 9 (I1), 10 (I1), 13 (I1), 14 (I1), 15 (I3),
// 16 (I6), 18 (I10), 20 (I15), 21 (I10), 22 (I5), 23 (I8), 26 (I1).
func TestLedgerAgainstModel(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	for total := range scale.Reach(t, "committed", "repeated", "conflict", "infeasible", "invalid") {
		rapid.Check(t, func(t *rapid.T) {
			d := newDuel(Limits{NominatedShare: shares(t)}, false)
			d.settle(t)
			t.Repeat(d.actions())
			d.lookBack(t)
			for k, n := range d.count {
				total[k] += n
			}
		})
	}
}

// TestLedgerAgainstModelExtremes is the same with quantities around MaxInt64: no sum wraps (I14), and no other account
// changes. SCENARIOS 11, 12.
func TestLedgerAgainstModelExtremes(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := newDuel(Limits{NominatedShare: shares(t), Renewals: 1}, true)
		d.settle(t)
		t.Repeat(d.actions())
		d.lookBack(t)
	})
}

// TestLedgerAgainstModelTinyLimits is the same where records, ids and history are dropped all the time: ids
// are used again, repeated proposals fall out of the window, Changes says ErrCompacted.
// SCENARIOS 4 (I12), 5 (I7), 20 (I15).
func TestLedgerAgainstModelTinyLimits(t *testing.T) {
	t.Parallel()
	few := rapid.IntRange(1, 3)
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{Terminal: few.Draw(t, "terminal"), ProposalIDs: few.Draw(t, "ids"), PlacementIDs: few.Draw(t, "placement ids"), History: 4 * few.Draw(t, "history"), NominatedShare: shares(t), Renewals: few.Draw(t, "renewals")}
		d := newDuel(l, false)
		d.settle(t)
		t.Repeat(d.actions())
		d.lookBack(t)
	})
}

// ---- what a commit changes ----

// TestChangedCounters: in random worlds, whatever of a node a commit makes different, the counter of it has the revision of the
// commit, so that a bet on the older one fails ([NodeAt]); and a record that the commit leaves as it was keeps its counters.
func TestChangedCounters(t *testing.T) {
	t.Parallel()
	for count := range scale.Reach(t, "committed", "description", "use", "unchanged", "a hold ends") {
		rapid.Check(t, func(t *rapid.T) {
			d := anyWorld(t, rapid.Bool().Draw(t, "tiny"), rapid.Bool().Draw(t, "wild"))
			s := &scribe{T: t, view: d.snapshot(), wild: d.wild, drafts: d.drafts, social: d.company, queues: d.queues}
			for range rapid.IntRange(1, 30).Draw(t, "proposals") {
				p := s.proposal()
				id := modelHolds[0]
				_, held := s.view.Hold(id)
				switch { // holds are rare otherwise
				case held && s.chance(2):
					p = Proposal{Do: []Commitment{Release{Hold: id}}}
				case s.chance(6):
					p = Proposal{Do: []Commitment{holdOf(id, pickOne(s, modelNodes), 1)}}
				}
				next, err := s.view.With(p)
				if err != nil {
					continue
				}
				count["committed"]++
				for n := range next.Nodes() {
					if was := s.view.Node(n.Node.ID); was != nil {
						requireCounters(t, was, n, next.rev, count)
					}
				}
				s.view = next
			}
		})
	}
}

// requireCounters compares a node before and after the commit at a revision.
func requireCounters(t require.TestingT, was, n *NodeState, at Revision, count map[string]int) {
	use := func(n *NodeState) string {
		return fmt.Sprint(n.used, n.deviceUse(), n.Capsules, n.holds, n.loans != nil)
	}
	described, used := !reflect.DeepEqual(was.Node, n.Node), use(was) != use(n)
	if described {
		count["description"]++
		require.Equal(t, at, n.Specification, "%v → %v", was.Node, n.Node)
	}
	if used {
		count["use"]++
		count["a hold ends"] += btoi(n.holds < was.holds)
		require.Equal(t, at, n.Usage, "node %s: %s → %s", n.Node.ID, use(was), use(n))
	}
	if n.Specification != at && n.Usage != at {
		count["unchanged"]++
		require.Equal(t, was.Specification, n.Specification)
		require.Equal(t, was.Usage, n.Usage)
	}
}

// anyWorld returns a random world: with or without rules of company and agents, and with small limits or large ones.
func anyWorld(t *rapid.T, tiny, wild bool) *duel {
	few := rapid.IntRange(1, 3)
	l := Limits{NominatedShare: shares(t)}
	if tiny {
		l = Limits{Terminal: few.Draw(t, "terminal"), ProposalIDs: few.Draw(t, "ids"), PlacementIDs: few.Draw(t, "placement ids"), NominatedShare: shares(t)}
	}
	d := newDuel(l, wild)
	if d.company = rapid.Bool().Draw(t, "company"); d.company {
		d.drafts = slices.Concat(drafts, companyDrafts)
		d.gather(t)
	} else if rapid.Bool().Draw(t, "agents") {
		d.employ(t)
	} else if rapid.IntRange(0, 2).Draw(t, "gangs") == 0 {
		d.settleGangs(t)
	} else {
		d.settle(t)
	}
	for range rapid.IntRange(0, 12).Draw(t, "before") {
		d.propose(t, 1)
	}
	return d
}

// ---- everything that is in a state ----

// diffStates returns how two states differ, slots, chains and windows included; "" if they do not.
func diffStates(got, want *State) string { return diffLines(textOf(got), textOf(want)) }

// textOf writes down all there is in a state, one record a line.
func textOf(s *State) []string {
	out := []string{fmt.Sprintf("rev %d limits %v names %v pending %d order %d left %v bounds %d %d released %d",
		s.rev, s.limits, s.names, s.pending, s.order, s.left, s.nodes.Bound(), s.capsules.Bound(), s.releasedCount)}
	for i := range s.nodes.Bound() {
		out = append(out, textOfNode(s, i))
	}
	for i := range s.capsules.Bound() {
		out = append(out, textOfCapsule(s, i))
	}
	out = append(out, textOfChains(s), textOfIDs(s))
	for n := range s.Nominations() {
		out = append(out, fmt.Sprintf("nomination %+v", *n))
	}
	out = append(out, fmt.Sprintf("capacity %v", s.capacity))
	s.members.Ascend(func(k nodeKey) bool {
		out = append(out, fmt.Sprint("member ", k))
		return true
	})
	s.gangs.Ascend(func(g *GangState) bool {
		out = append(out, fmt.Sprintf("gang %s %v %v loose %v placed %v changed %d records %d", g.Gang.ID, g.Gang.Roles, g.Gang.Levels, g.Gang.Loose, g.Placed, g.Changed, g.records))
		return true
	})
	s.holds.Ascend(func(h *holdRecord) bool {
		out = append(out, fmt.Sprintf("hold %v", *h))
		return true
	})
	s.marks.Ascend(func(m markRecord) bool {
		out = append(out, fmt.Sprintf("mark %v", m))
		return true
	})
	s.groups.Ascend(func(g groupCount) bool {
		if g.level == "" { // what divides it is there for speed
			out = append(out, fmt.Sprintf("group %v", g))
		}
		return true
	})
	s.covered.Ascend(func(c *coverage) bool {
		out = append(out, fmt.Sprintf("covered %v healthy %+v left %d", c.of, c.healthy, c.left))
		for _, b := range c.budgets {
			out = append(out, fmt.Sprintf("budget %+v", *b))
		}
		return true
	})
	s.waiting.Ascend(func(w groupWaiting) bool {
		out = append(out, fmt.Sprintf("waiting %v", w))
		return true
	})
	s.queues.Ascend(func(q queueAt) bool {
		r := *q.queueRecord
		r.quota, r.owner = nil, 0
		out = append(out, fmt.Sprintf("queue record %+v quota %+v", r, q.quota))
		return true
	})
	return append(out, queuesOf(s)...)
}

func textOfNode(s *State, slot uint32) string {
	r := s.nodes.At(slot)
	n := &r.node
	if n.Node == nil {
		return fmt.Sprintf("node slot %d is free, lists %d used %v", slot, r.listed, n.used)
	}
	if s.Node(n.Node.ID) != n {
		return fmt.Sprintf("node slot %d: %s is not found", slot, n.Node.ID)
	}
	return fmt.Sprintf("node slot %d (%d): %v capsules %d usage %d spec %d used %v devices %v holds %d members %v nominated %s remains %s",
		slot, n.index, *n.Node, n.Capsules, n.Usage, n.Specification, [Dimensions]int64(n.used), n.deviceUse(), n.holds, r.list(), textOfNominated(n), textOfRemains(n))
}

// list returns the slots of a node's capsules, in the order in which they are listed.
func (r *nodeRecord) list() (slots []uint32) {
	for i := range r.listed {
		slots = append(slots, r.member(i))
	}
	return slots
}

func textOfCapsule(s *State, slot uint32) string {
	r := s.capsules.At(slot)
	c := &r.capsule
	if c.ID == "" {
		return fmt.Sprintf("capsule slot %d is free", slot)
	}
	if s.Capsule(c.ID) != c {
		return fmt.Sprintf("capsule slot %d: %s is not found", slot, c.ID)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "capsule slot %d: %s spec %p owner %q gang %q.%d node %q %b %q labels %v since %d at %d submitted %d changed %d placed %d by %s released %v begun %v ready %v waits %v adopted %v respecified %v protected %v borrows %v remains %s failures %v",
		slot, c.ID, c.Spec, c.Owner(), c.Gang(), c.inCommon().role, c.Node, c.Devices, c.Note(), c.Labels(), c.SubmitTime(), c.PlaceTime, c.Submitted, c.Changed, c.PlacedAt, c.PlacedBy, c.released, c.Begun, c.Ready, c.Waits, c.Adopted, c.Respecified, s.Protected(c.ID), borrowsOf(c), c.Remains(), s.Failures(c.ID))
	if c.Placed() {
		fmt.Fprintf(&b, " at %d.%d", r.node, r.link)
	}
	for p := c.rare().earlier; p != nil; p = p.before {
		fmt.Fprintf(&b, " earlier %s@%d/%d", p.id, p.at, p.depth)
	}
	return b.String()
}

// textOfChains follows the free slots and the queue of released records.
func textOfChains(s *State) string {
	var b strings.Builder
	b.WriteString("free nodes")
	for i := s.nodes.Vacant(0); i < s.nodes.Bound(); i = s.nodes.Vacant(i + 1) {
		fmt.Fprintf(&b, " %d", i)
	}
	b.WriteString(", free capsules")
	for i := s.capsules.Vacant(0); i < s.capsules.Bound(); i = s.capsules.Vacant(i + 1) {
		fmt.Fprintf(&b, " %d", i)
	}
	b.WriteString(", released")
	for i := s.oldest; i != noSlot; i = s.capsules.At(i).link {
		fmt.Fprintf(&b, " %d", i)
	}
	return b.String()
}

// textOfIDs lists the recent proposal ids in their ring.
func textOfIDs(s *State) string {
	var b strings.Builder
	b.WriteString("recent:")
	for id, at := range s.recent.All() {
		fmt.Fprintf(&b, " %s@%d(%d)", id, at, s.recent.Find(id))
	}
	return b.String()
}
