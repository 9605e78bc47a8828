package etcdledger

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// There are few ids, so that proposals meet, and some of them need escaping in keys.
var (
	scribeNodes    = []orbit.NodeID{"n0", "n/1", "..", "n%2F1"}
	scribeCapsules = []orbit.CapsuleID{"c0", "c1", "c2", "c/3", "c4", "c 5", "ü", "c7"}
	scribeGangs    = []orbit.GangID{"g0", "g/"}
	scribeHolds    = []orbit.HoldID{"h0", "h/1", "h2"}
	scribeMarks    = []string{"m0", "m/0"}
	scribeGroups   = []string{"db", "web"}
	scribeBudgets  = []orbit.BudgetID{"b0", "b/1"}
	scribeOwners   = []string{"", "a", "b"}
	scribeRacks    = []string{"r0", "r1"}
)

// scribe draws proposals as navigators make them from a view, and sometimes proposals without any sense.
type scribe struct {
	*rapid.T
	view *orbit.State
	ids  *uint64
}

func pick[E any](s *scribe, from []E) E { return rapid.SampledFrom(from).Draw(s.T, "pick") }

// chance is true once in n, and shrinks to false.
func (s *scribe) chance(n int) bool { return rapid.IntRange(0, n-1).Draw(s.T, "chance") == n-1 }

func (s *scribe) upTo(most int) int { return rapid.IntRange(0, most).Draw(s.T, "number") }

func (s *scribe) room(most int) (r orbit.Resources) {
	for _, d := range []int{orbit.CPU, orbit.Memory, orbit.Dimensions - 1} {
		r[d] = int64(s.upTo(most))
		if s.chance(40) {
			r[d] = math.MaxInt64
		}
	}
	return r
}

// newID returns an id that has not been used, with few exceptions.
func (s *scribe) newID() (id orbit.ProposalID) {
	if *s.ids++; s.chance(8) {
		return id
	}
	return idOf(*s.ids)
}

// idOf makes an id from a number. Ids do not sort in the order in which they were made.
func idOf(n uint64) (id orbit.ProposalID) {
	for i := range id {
		id[i] = byte(n*0x9e3779b97f4a7c15>>(8*(i%8))) ^ byte(i)
	}
	return id
}

func (s *scribe) node(id orbit.NodeID) orbit.Node {
	n := orbit.Node{ID: id, Capacity: s.room(8), Labels: map[string]string{"rack": pick(s, scribeRacks)}}
	n.Devices.Count = s.upTo(3)
	if n.Devices.Count > 0 {
		n.Devices.Model = pick(s, []string{"A100", "T4"})
		for i := range n.Devices.Count {
			if s.chance(6) {
				n.Devices.Unhealthy |= 1 << i
			}
		}
	}
	n.Cordon(s.chance(8))
	n.Confirms = !s.chance(3)
	if s.chance(4) {
		n.Taints = []orbit.Taint{{Key: "a", Value: "<x>", Effect: pick(s, []string{"NoSchedule", "NoExecute", "PreferNoSchedule"})}}
	}
	return n
}

func (s *scribe) spec() *orbit.Spec {
	spec := &orbit.Spec{Module: pick(s, []string{"m", "<&>"}), Priority: int32(s.upTo(2))}
	spec.Envelope.Reservation = s.room(3)
	spec.Movable = s.chance(2)
	spec.RunsAtMost = pick(s, []time.Duration{0, time.Minute})
	spec.Backfills = spec.RunsAtMost > 0 && s.chance(2)
	if s.chance(3) {
		spec.Devices = orbit.DeviceRequest{Count: 1 + s.upTo(1), Milli: pick(s, []int{1, 500, 600, 1000})}
		if s.chance(3) {
			spec.Devices.Models = []string{"A100"}
		}
	}
	if s.chance(4) {
		spec.Require = []orbit.Predicate{{Key: "rack", Op: "In", Values: []string{pick(s, scribeRacks)}}}
		spec.Prefer = []orbit.Preference{{Predicate: spec.Require[0], Weight: 0.1}}
		if s.chance(3) {
			spec.Require = []orbit.Predicate{{Op: "AnyOf", Terms: [][]orbit.Predicate{spec.Require, {{Key: orbit.NodeKey, Op: "In", Values: []string{string(pick(s, scribeNodes))}}}}}}
		}
	}
	if s.chance(2) {
		spec.Tolerate = []orbit.Toleration{{Key: "a", Op: "Exists"}}
	}
	if s.chance(3) {
		spec.PreferCompany = []orbit.Company{{Group: pick(s, scribeGroups), Level: "rack", Weight: pick(s, []float64{5, -0.1})}}
	}
	if s.chance(2) {
		spec.Group = pick(s, scribeGroups)
	}
	if s.chance(4) {
		spec.Groups = scribeGroups[:1+s.upTo(1)]
	}
	if s.chance(4) {
		spec.Near = orbit.Near{Group: pick(s, scribeGroups), Level: "rack"}
		spec.Spread = orbit.Domains{Level: "rack", Names: scribeRacks}
	}
	if s.chance(4) {
		spec.Start = orbit.Start{Template: "py", Volumes: []string{"w", "v"}, Parent: pick(s, scribeCapsules), CrossHost: s.chance(2)}
	}
	return spec
}

// fresh returns up to n different capsule ids, which the view does not have if there are enough of those.
func (s *scribe) fresh(n int) (ids []orbit.CapsuleID) {
	for _, id := range rapid.Permutation(scribeCapsules).Draw(s.T, "ids") {
		if len(ids) < n && (s.view.Capsule(id) == nil || s.view.Capsule(id).Released() && s.chance(3) || s.chance(12)) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		ids = append(ids, pick(s, scribeCapsules))
	}
	return ids
}

func (s *scribe) gang() *orbit.Gang {
	ids := s.fresh(1 + s.upTo(4))
	g := &orbit.Gang{ID: pick(s, scribeGangs), Loose: s.chance(4)}
	if s.chance(2) {
		g.Levels = []string{"rack"}
	}
	for len(ids) > 0 {
		n := 1 + s.upTo(len(ids)-1)
		spec := s.spec()
		spec.Backfills = false
		g.Roles = append(g.Roles, orbit.Role{Name: fmt.Sprint(len(g.Roles)), Spec: spec, Members: ids[:n], Min: s.upTo(n)})
		ids = ids[n:]
	}
	return g
}

func (s *scribe) instant() orbit.Instant {
	return pick(s, []orbit.Instant{0, 1, 1_700_000_000_000_000_000})
}

func (s *scribe) labels() map[string]string {
	return pick(s, []map[string]string{nil, {"team": "a"}, {"team": "b", "x": ""}})
}

// put places a capsule on a node where the view shows that it fits, or on any node.
func (s *scribe) put(c orbit.CapsuleID, spec *orbit.Spec) orbit.Place {
	p := orbit.Place{Capsule: c, Node: pick(s, scribeNodes), After: s.chance(6), Note: pick(s, []string{"", "warm"}), At: s.instant()}
	var fits []*orbit.NodeState
	for n := range s.view.Nodes() {
		if spec != nil && n.Fits(spec) {
			fits = append(fits, n)
		}
	}
	if len(fits) > 0 && !s.chance(10) {
		n := pick(s, fits)
		p.Node = n.Node.ID
		p.Devices, _ = n.PickDevices(spec)
	} else if spec != nil {
		p.Devices = orbit.DeviceSet(1<<spec.Devices.Count-1) << s.upTo(2)
	}
	return p
}

func (s *scribe) hold() orbit.Hold {
	h := orbit.Hold{ID: pick(s, scribeHolds), Node: pick(s, scribeNodes), Room: s.room(3), For: "x", Ends: time.Unix(1e9, 5e8).UTC()}
	if s.chance(3) {
		h.Devices, h.Milli = orbit.DeviceSet(1+s.upTo(2)), pick(s, []int{1, 500, 1000})
	}
	if h.Room == (orbit.Resources{}) && h.Devices == 0 {
		h.Room[orbit.CPU] = 1
	}
	if s.chance(3) {
		h.Ends = h.Ends.In(time.FixedZone("x", 3600))
	}
	return h
}

func (s *scribe) some(want func(*orbit.Capsule) bool) *orbit.Capsule {
	var out []*orbit.Capsule
	for _, id := range scribeCapsules {
		if c := s.view.Capsule(id); c != nil && want(c) {
			out = append(out, c)
		}
	}
	if len(out) == 0 || s.chance(10) {
		return &orbit.Capsule{ID: pick(s, scribeCapsules)}
	}
	return pick(s, out)
}

// neverSeen is a revision that no ledger here reaches.
const neverSeen = 1 << 40

type draft func(s *scribe) []orbit.Commitment

// drafts are the commitments of one kind, or of a usual combination.
var drafts = []draft{
	func(s *scribe) []orbit.Commitment {
		return []orbit.Commitment{orbit.PutNode{Node: s.node(pick(s, scribeNodes))}}
	},
	draftChange, draftChange,
	func(s *scribe) []orbit.Commitment {
		return []orbit.Commitment{orbit.RemoveNode{Node: pick(s, scribeNodes)}}
	},
	draftSubmit, draftSubmit,
	func(s *scribe) []orbit.Commitment {
		return []orbit.Commitment{orbit.Submit{Gang: s.gang(), Owner: pick(s, scribeOwners), At: s.instant(), Labels: s.labels()}}
	},
	draftPlace, draftPlace, draftPlace, draftPlace, draftPlace,
	draftGang, draftGang, draftGang,
	draftConfirm, draftConfirm, draftConfirm, draftConfirm, draftConfirm,
	draftRelease, draftRelease, draftRelease, draftReleaseAll, draftMove, draftMove,
	draftPreempt, draftPreempt, draftPreempt, draftPreempt,
	func(s *scribe) []orbit.Commitment { return []orbit.Commitment{s.hold()} },
	func(s *scribe) []orbit.Commitment {
		return []orbit.Commitment{orbit.Release{Hold: pick(s, scribeHolds)}}
	},
	func(s *scribe) []orbit.Commitment {
		c := s.some(func(*orbit.Capsule) bool { return true })
		return []orbit.Commitment{orbit.Assign{Capsule: c.ID, From: c.Owner(), Owner: pick(s, scribeOwners)}}
	},
	func(s *scribe) []orbit.Commitment {
		return []orbit.Commitment{orbit.Mark{Key: pick(s, scribeMarks), Value: pick(s, []string{"", "x", "y\x00é"})}}
	},
	draftEmpty, draftRejoin,
	draftNominate, draftNominate, draftNominate,
	draftProtect, draftProtect, draftAdopt, draftAdopt, draftResize, draftResize,
	draftBudget, draftBudget, draftBudget,
}

// draftBudget puts a budget, or removes one, sometimes beside a move.
func draftBudget(s *scribe) []orbit.Commitment {
	id := pick(s, scribeBudgets)
	if s.chance(4) {
		return []orbit.Commitment{orbit.RemoveBudget{Budget: id}}
	}
	b := orbit.Budget{ID: id, Expected: s.upTo(3), Missing: s.upTo(1), Above: int32(s.upTo(2)), IgnoreReady: s.chance(3), FreeUnready: s.chance(3)}
	if b.Group = pick(s, scribeGroups); s.chance(3) {
		b.Group, b.Module = "", "<&>"
	}
	out := []orbit.Commitment{orbit.PutBudget{Budget: b}}
	if s.chance(3) {
		out = append(out, draftMove(s)...)
	}
	return out
}

// draftNominate nominates what waits for rooms here and there, replaces that, or ends it.
func draftNominate(s *scribe) []orbit.Commitment {
	c := orbit.Nominate{Ends: time.Unix(1e9, 5e8).In(time.FixedZone("x", 3600))}
	var before *orbit.Nomination
	var asks *orbit.Spec
	most := 1
	if g := s.view.Gang(pick(s, scribeGangs)); g != nil && s.chance(3) {
		c.Gang, before, asks, most = g.Gang.ID, g.Nomination, g.Gang.Roles[0].Spec, len(g.Gang.Roles[0].Members)
	} else {
		who := s.some((*orbit.Capsule).Pending)
		c.Capsule, before, asks = who.ID, who.Nomination(), cmp.Or(who.Spec, &orbit.Spec{})
	}
	if before.Lives() && s.chance(2) {
		c.Since = before.Made
	}
	for _, id := range scribeNodes {
		part := orbit.NominatedRoom{Node: id, Room: s.room(5)}
		for d := range part.Room {
			if !s.chance(9) { // else, at times, for more than the nominee asks for
				part.Room[d] = min(part.Room[d], asks.Envelope.Reservation[d])
			}
		}
		if s.chance(3) && part.Room != (orbit.Resources{}) && (len(c.Parts) < most || s.chance(9)) {
			c.Parts = append(c.Parts, part)
		}
	}
	if len(c.Parts) > 0 && s.chance(3) {
		c.Aged = 1
		if asks.Devices.Count > 0 {
			c.Parts[0].Devices, c.Parts[0].Milli = 1, pick(s, []int{1, asks.Devices.Milli})
		}
	}
	if c.Lends = pick(s, []time.Duration{0, time.Minute, time.Hour}); len(c.Parts) == 0 {
		c.Ends, c.Lends = time.Time{}, 0
	}
	return []orbit.Commitment{c}
}

// draftChange changes a node: its capacity (also below its use), labels, devices or drain.
func draftChange(s *scribe) []orbit.Commitment {
	known := s.view.Node(pick(s, scribeNodes))
	if known == nil {
		return []orbit.Commitment{orbit.PutNode{Node: s.node(pick(s, scribeNodes))}}
	}
	n := *known.Node
	n.Labels = maps.Clone(n.Labels)
	switch s.upTo(3) {
	case 0:
		n.Capacity = s.room(6)
	case 1:
		n.Labels["rack"] = pick(s, scribeRacks)
	case 2:
		n.Devices = s.node(n.ID).Devices
	case 3:
		n.Cordon(n.Schedulable())
	}
	return []orbit.Commitment{orbit.PutNode{Node: n}}
}

func draftSubmit(s *scribe) []orbit.Commitment {
	return []orbit.Commitment{orbit.Submit{IDs: s.fresh(1 + s.upTo(2)), Spec: s.spec(), Owner: pick(s, scribeOwners), At: s.instant(), Labels: s.labels()}}
}

func draftPlace(s *scribe) []orbit.Commitment {
	c := s.some((*orbit.Capsule).Pending)
	return []orbit.Commitment{s.put(c.ID, c.Spec)}
}

// draftGang places a gang whole, or leaves some members out.
func draftGang(s *scribe) (out []orbit.Commitment) {
	g := s.view.Gang(pick(s, scribeGangs))
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

func draftRelease(s *scribe) []orbit.Commitment {
	c := s.some((*orbit.Capsule).Placed)
	r := orbit.Release{Capsule: c.ID, Final: s.chance(3)}
	r.Stopped = !r.Final && s.chance(2)
	if s.chance(3) {
		r.From = c.Node
	}
	return []orbit.Commitment{r}
}

// draftConfirm says that what is placed begins, or that what has left has stopped, of one or two.
func draftConfirm(s *scribe) (out []orbit.Commitment) {
	for _, id := range rapid.Permutation(scribeCapsules).Draw(s.T, "order") {
		c := s.view.Capsule(id)
		switch {
		case c == nil || len(out) > 0 && s.chance(2):
		case c.Remains() != nil:
			out = append(out, orbit.Confirm{Capsule: id, Since: c.Remains().Since, Stopped: true})
		case c.Placed() && !c.Begun && s.chance(2):
			out = append(out, orbit.Confirm{Capsule: id, Since: c.PlacedAt, Begun: true})
		case c.Placed():
			out = append(out, orbit.Confirm{Capsule: id, Since: c.PlacedAt, Ready: !c.Ready, NotReady: c.Ready})
		}
	}
	if c := s.some((*orbit.Capsule).Placed); len(out) == 0 || s.chance(4) {
		out = append(out, orbit.Release{Capsule: c.ID, Final: true})
	}
	return out
}

// draftMove takes a capsule off its node and places it again.
func draftMove(s *scribe) []orbit.Commitment {
	c := s.some((*orbit.Capsule).Placed)
	if !c.Placed() {
		return draftRelease(s)
	}
	return []orbit.Commitment{orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt}, s.put(c.ID, c.Spec)}
}

// draftPreempt evicts for a capsule, or for a gang, from the node that each is placed on: some of those that it outranks, whether they
// have to leave or not, and now and then anybody.
func draftPreempt(s *scribe) (out []orbit.Commitment) {
	var newcomers []orbit.Place
	evict := orbit.Evict{}
	if g := s.view.Gang(pick(s, scribeGangs)); g != nil && g.Total() == 0 && s.chance(2) {
		evict.ForGang = g.Gang.ID
		for _, r := range g.Gang.Roles {
			for _, id := range r.Members {
				newcomers = append(newcomers, s.put(id, nil))
			}
		}
	} else {
		c := s.some((*orbit.Capsule).Pending)
		evict.For = c.ID
		newcomers = append(newcomers, s.put(c.ID, nil))
	}
	for i := range newcomers {
		p := &newcomers[i]
		c := s.view.Capsule(p.Capsule)
		if n := s.view.Node(p.Node); n != nil && c != nil && c.Spec.Devices.Count > 0 {
			p.Devices = orbit.DeviceSet(1<<c.Spec.Devices.Count-1) << s.upTo(1)
		}
	}
	for _, id := range rapid.Permutation(scribeCapsules).Draw(s.T, "victims") {
		v := s.view.Capsule(id)
		if v == nil || !v.Placed() || s.chance(6) {
			continue
		}
		on := slices.ContainsFunc(newcomers, func(p orbit.Place) bool {
			c := s.view.Capsule(p.Capsule)
			return p.Node == v.Node && c != nil && c.Spec.Priority > v.Spec.Priority
		})
		if on || s.chance(20) {
			evict.Capsule, evict.From, evict.Since = id, v.Node, v.PlacedAt
			out = append(out, evict)
		}
	}
	for _, p := range newcomers {
		out = append(out, p)
	}
	return out
}

// draftReleaseAll releases several capsules for good, placed or not, in any order.
func draftReleaseAll(s *scribe) (out []orbit.Commitment) {
	for _, id := range rapid.Permutation(scribeCapsules).Draw(s.T, "order") {
		if c := s.view.Capsule(id); c != nil && !c.Released() && !s.chance(3) {
			out = append(out, orbit.Release{Capsule: id, Final: true})
		}
	}
	return out
}

// draftEmpty releases everything on a node and removes the node, in one proposal.
func draftEmpty(s *scribe) (out []orbit.Commitment) {
	id := pick(s, scribeNodes)
	for _, c := range scribeCapsules {
		if known := s.view.Capsule(c); known != nil && known.Node == id {
			out = append(out, orbit.Release{Capsule: c})
		}
	}
	if len(out) > 0 {
		out = append([]orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: id, State: orbit.Lost}}}, out...)
	}
	for h := range s.view.Holds() {
		if h.Node == id {
			out = append(out, orbit.Release{Hold: h.ID})
		}
	}
	return append(out, orbit.RemoveNode{Node: id})
}

// draftRejoin does the same, and adds the node again.
func draftRejoin(s *scribe) []orbit.Commitment {
	out := draftEmpty(s)
	if gone, ok := out[len(out)-1].(orbit.RemoveNode); ok && s.chance(2) {
		out = append(out, orbit.PutNode{Node: s.node(gone.Node)})
	}
	return out
}

// proposal joins one to three drafts, with bets on what the view shows.
func (s *scribe) proposal() orbit.Proposal {
	p := orbit.Proposal{ID: s.newID(), View: s.view.Revision()}
	for range pick(s, []int{1, 1, 1, 1, 1, 2, 3}) {
		p.Do = append(p.Do, pick(s, drafts)(s)...)
	}
	p.Do = s.follow(p.Do)
	for range pick(s, []int{0, 0, 1, 2}) {
		p.If = append(p.If, s.bet(p.Do))
	}
	if s.chance(25) {
		p.Do = append(p.Do, pick(s, []orbit.Commitment{
			nil, &orbit.Place{Capsule: "c0", Node: "n0"}, orbit.Place{Node: "n0"}, orbit.PutNode{},
			orbit.PutNode{Node: orbit.Node{ID: "n0", Capacity: orbit.Resources{-1}}}, orbit.Submit{IDs: []orbit.CapsuleID{"c0", "c0"}, Spec: &orbit.Spec{}},
			orbit.Hold{ID: "h0", Node: "n0", Room: orbit.Resources{1}}, orbit.Place{Capsule: "\xff", Node: "\xff"},
		}))
	}
	return p
}

// follow sometimes places, or releases, what the proposal has just submitted.
func (s *scribe) follow(do []orbit.Commitment) []orbit.Commitment {
	for _, c := range do {
		sub, ok := c.(orbit.Submit)
		switch {
		case !ok || s.chance(2):
		case sub.Gang == nil && s.chance(4):
			do = append(do, orbit.Release{Capsule: sub.IDs[0], Final: true})
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

func (s *scribe) bet(do []orbit.Commitment) orbit.Precondition {
	node := pick(s, scribeNodes)
	for _, c := range do {
		if p, ok := c.(orbit.Place); ok {
			node = p.Node
		}
	}
	n := s.view.Node(node)
	switch s.upTo(4) {
	case 0:
		if free := (orbit.Resources{}); n != nil && !s.chance(4) {
			for d, q := range n.Free() {
				free[d] = max(0, q)
			}
			return orbit.NodeFreeOf{Node: node, AtLeast: free}
		}
		return orbit.NodeFreeOf{Node: node, AtLeast: s.room(4)}
	case 1:
		if n != nil && !s.chance(4) {
			return orbit.NodeAt{Node: node, Usage: n.Usage, Specification: n.Specification}
		}
		return orbit.NodeAt{Node: node, Usage: neverSeen}
	case 2:
		return orbit.GangUnplaced{Gang: pick(s, scribeGangs)}
	case 3:
		return orbit.GroupIn{Group: pick(s, scribeGroups), Level: "rack", Domain: pick(s, scribeRacks)}
	}
	key := pick(s, scribeMarks)
	_, at := s.view.Mark(key)
	return orbit.MarkAt{Key: key, Revision: at}
}

// draftProtect places something that is protected, or ends a protection.
func draftProtect(s *scribe) []orbit.Commitment {
	if c := s.some(func(c *orbit.Capsule) bool { return s.view.Protected(c.ID) > 0 }); c.Placed() && s.chance(2) {
		return []orbit.Commitment{orbit.Protect{Capsule: c.ID, Since: c.PlacedAt}}
	}
	out := draftPlace(s)
	for _, do := range out {
		if place, ok := do.(orbit.Place); ok {
			return append(out, orbit.Protect{Capsule: place.Capsule, For: time.Duration(1 + s.upTo(9))})
		}
	}
	return out
}

// draftAdopt finds something that runs: what waits, what is unknown, and now and then what is known or has ended.
func draftAdopt(s *scribe) (out []orbit.Commitment) {
	a := orbit.Adopt{Capsule: pick(s, scribeCapsules), Node: pick(s, scribeNodes), Note: pick(s, []string{"", "found"})}
	c, spec := s.view.Capsule(a.Capsule), s.spec()
	if c != nil && s.chance(2) {
		spec = c.Spec
	}
	if c == nil || spec != c.Spec || s.chance(3) {
		a.Spec = spec
	}
	a.Devices = orbit.DeviceSet(1<<spec.Devices.Count-1) << s.upTo(1)
	if c != nil && c.Placed() && !s.chance(3) {
		out = append(out, orbit.Release{Capsule: c.ID, Stopped: true})
	}
	return append(out, a)
}

// draftResize lets a capsule grow or shrink, or gives another priority to one that waits.
func draftResize(s *scribe) []orbit.Commitment {
	c := s.some(func(c *orbit.Capsule) bool { return c.Placed() || c.Pending() && s.chance(3) })
	if c.Spec == nil {
		return draftSubmit(s)
	}
	spec := *c.Spec
	for _, d := range []int{orbit.CPU, orbit.Memory} {
		if s.chance(2) {
			spec.Envelope.Reservation[d] = int64(s.upTo(4))
		}
	}
	z := orbit.Resize{Capsule: c.ID, Spec: &spec, Applied: s.chance(2)}
	if c.Placed() {
		z.Since = c.PlacedAt
	} else {
		spec.Priority = int32(s.upTo(2))
	}
	return []orbit.Commitment{z}
}
