package place

import (
	"maps"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/score"
)

// specClass is what a placement engine has computed for one spec. All capsules with that spec share it.
type specClass struct {
	spec *orbit.Spec
	// The score, if it can bound itself; nil: it cannot.
	bounded score.Bounded
	// The division into kinds that already takes into account each label that the spec names (nodeIndex.learn).
	learned uint64
	// The number of the engine's call that used this class last. The classes used longest ago are dropped first.
	used uint64
	// The dimensions of which the spec reserves something, with the amounts; and whether it asks for devices.
	wants   []wanted
	devices bool
	// Where the spec may be placed: the domains of the group that it must be near, and the rules that close domains to
	// it. DomainVersion is another number whenever a domain may have been opened in a way that the set of open kinds does not
	// show: because the kinds do not divide the nodes by the level of the rule, or because kinds share bits of the set.
	near   near
	opened uint64
	// Kinds of nodes that meet the same preferences of the spec share one bound of the score. For each kind, byKind has
	// the index of its bound in bounds, or notSuited if nodes of the kind cannot take the spec. The map answers finds
	// the index of a bound by the text that answer returns. All three hold for the division with this number.
	bounds   []kindBound
	byKind   []int8
	answers  map[string]int8
	division uint64
	// Unbounded: the score has no bound for this spec. DivergedIn is the number of the tree in which a search did not
	// converge, which means that it looked at too many nodes; 0: none did. In both cases a tournament ranks the nodes.
	unbounded  bool
	divergedIn uint64
	tournament *tournament
	// Nodes to which the bounds do not apply, because the kinds leave out labels that these nodes carry; and the
	// version of the label index from which the list was read.
	exceptions   []int32
	exceptionsOf uint64
	// Whether there are too many exceptions for a search.
	exceptional bool
	// The levels of the preferences of the spec about domains of several nodes.
	wishes []string
	// Whether a domain has opened or closed between two choices of the plan, so that each district has a search of its
	// own from then on. It holds for the Sync with the number syncs.
	parted bool
	syncs  uint64
	// The levels of rules by which the kinds divide the nodes; the district of each kind, by these levels and those of
	// wishes; and all districts. They hold for one division and for the rules of near.
	closing    []string
	districtOf []int16
	districts  []district
}

// wanted is an amount that a spec reserves of one dimension.
type wanted struct {
	dim  int
	want int64
}

// kindBound is a bound of the score, with the kinds of nodes for which it holds.
type kindBound struct {
	kinds kd.Kinds
	bound func(least, most *score.Extent) (value, tie float64)
}

// notSuited marks a kind whose nodes cannot take the spec.
const notSuited = -1

// noBound takes the place of a missing bound until the caller sees that the class is unbounded. It excludes no node.
func noBound(_, _ *score.Extent) (value, tie float64) { return math.Inf(-1), math.Inf(-1) }

// least returns a lower bound of the rating of all nodes between two extremes. If the score returns NaN, the bound
// excludes no node.
func (r *kindBound) least(least, most *score.Extent) (value, tie float64) {
	value, tie = r.bound(least, most)
	if value != value || tie != tie {
		return math.Inf(-1), math.Inf(-1)
	}
	return value, tie
}

func newSpecClass(spec *orbit.Spec, bounded score.Bounded) *specClass {
	return &specClass{spec: spec, bounded: bounded, wants: wantsOf(spec), devices: spec.Devices.Count > 0, wishes: wishLevels(spec)}
}

// wantsOf lists the dimensions of which a spec reserves something.
func wantsOf(spec *orbit.Spec) (out []wanted) {
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			out = append(out, wanted{d, want})
		}
	}
	return out
}

// meet sets where the spec may be placed. If the domains of the group that it must be near have changed, the tournament
// rates all nodes anew.
func (c *specClass) meet(near near) {
	if c.tournament != nil && !maps.Equal(near.domains, c.near.domains) {
		c.tournament.cursor = 0
	}
	c.near = near
}

// mayFit reports whether the spec may fit on a node with at most this free capacity.
func (c *specClass) mayFit(most *score.Extent) bool {
	for _, w := range c.wants {
		if w.want > most.Free(w.dim) {
			return false
		}
	}
	if !c.devices {
		return true
	}
	r := &c.spec.Devices
	return most.DevicesWith(r.Milli) >= r.Count && most.DevicesFree() >= int64(r.Count)*int64(r.Milli)
}

// diverges reports whether a search of the present tree did not converge. Once the tree has been built anew, another
// search is tried.
func (c *specClass) diverges(x *nodeIndex) bool { return c.divergedIn != 0 && c.divergedIn == x.built }

// respond finds the bound for each kind that has been added since the last call, or for all kinds after a new division.
func (c *specClass) respond(x *nodeIndex) {
	if c.division != x.kinds.division {
		c.division = x.kinds.division
		c.bounds, c.byKind = c.bounds[:0], c.byKind[:0]
		c.answers = nil
		c.districtOf, c.districts = c.districtOf[:0], c.districts[:0]
	}
	for kind := len(c.byKind); kind < len(x.kinds.like); kind++ {
		at := int8(notSuited)
		if like := x.kinds.like[kind]; c.suits(like, x) {
			at = c.boundFor(x.kinds.undivided(like))
			c.bounds[at].kinds |= kd.KindsOf(int32(kind))
		}
		c.byKind = append(c.byKind, at)
	}
}

// boundFor returns the index of the bound for the kind of a node, and makes the bound if there is none yet. If there
// are more bounds than the index can count, the class becomes unbounded.
func (c *specClass) boundFor(like *orbit.Node) int8 {
	answer := c.answer(like)
	if at, known := c.answers[answer]; known {
		return at
	}
	at := int8(min(len(c.bounds), math.MaxInt8))
	r := kindBound{bound: c.bounded.Bound(c.spec, like)}
	if r.bound == nil {
		c.unbounded, r.bound = true, noBound
	}
	if c.unbounded = c.unbounded || at == math.MaxInt8; at < math.MaxInt8 {
		c.bounds = append(c.bounds, r)
	} else {
		at--
	}
	if c.answers == nil {
		c.answers = map[string]int8{}
	}
	c.answers[answer] = at
	return at
}

// except brings the list of exceptions up to date. It reports whether they are few enough for a search.
func (c *specClass) except(labels *labelIndex) bool {
	if c.exceptionsOf != labels.version {
		var few bool
		c.exceptions, few = labels.exceptions(c.exceptions[:0], c.spec)
		c.exceptionsOf, c.exceptional = labels.version, !few
	}
	return !c.exceptional
}

// answer returns a text of all that makes bounds differ between kinds: which preferences of the spec a node meets, how
// many of its taints ask for another node, and whether the spec is spread across its domain. Nodes with the same text
// share a bound.
func (c *specClass) answer(n *orbit.Node) string {
	if len(c.spec.Prefer) == 0 && len(c.spec.Spread.Names) == 0 && len(n.Taints) == 0 {
		return ""
	}
	text := append(make([]byte, 0, 16), byte(n.Shuns(c.spec)))
	for i := range c.spec.Prefer {
		text = append(text, byte(btoi(c.spec.Prefer[i].On(n))))
	}
	return string(append(text, byte(btoi(c.spec.SpreadsAcross(n)))))
}

// reached returns the kinds of nodes in the domains with members of the group that the spec must be near. It returns
// all kinds if there is no such group, or if the kinds do not divide the nodes by its level.
func (c *specClass) reached(x *nodeIndex) kd.Kinds {
	if c.near.domains == nil || x.kinds.leavesOut(c.near.level) {
		return ^kd.Kinds(0)
	}
	return x.kinds.where(c.near.reaches)
}

// kinds returns those of the reached kinds that no rule closes by one of the levels in closing.
func (c *specClass) kinds(x *nodeIndex) kd.Kinds {
	if len(c.closing) == 0 {
		return c.reached(x)
	}
	return c.reached(x) & x.kinds.where(c.opens)
}

// where returns the kinds whose nodes meet a condition. The condition must hold for all nodes of a kind or for none.
func (k *nodeKinds) where(met func(like *orbit.Node) bool) (kinds kd.Kinds) {
	for kind, like := range k.like {
		if met(like) {
			kinds |= kd.KindsOf(int32(kind))
		}
	}
	return kinds
}

// opens reports whether the rules by the levels in closing leave the domains of a node open.
func (c *specClass) opens(like *orbit.Node) bool {
	return !slices.ContainsFunc(c.closing, func(level string) bool { return !c.near.draft.DomainOpen(c.spec, level, like) })
}

// suits reports whether nodes of a kind can take the spec. It considers neither the labels that the kinds leave out nor
// free capacity.
func (c *specClass) suits(like *orbit.Node, x *nodeIndex) bool {
	if !like.Schedulable() || !like.Admits(c.spec) || c.spec.Devices.Count > 0 && !c.spec.Devices.Accepts(like.Devices.Model) {
		return false
	}
	for _, x := range c.spec.Extras {
		if !slices.ContainsFunc(like.Extras, func(has orbit.Extra) bool { return has.Name == x.Name }) {
			return false
		}
	}
	for i := range c.spec.Require {
		if !x.kinds.mayHold(&c.spec.Require[i], like) {
			return false
		}
	}
	return true
}

// mayHold reports whether a requirement may hold on nodes of a kind. It evaluates the labels that divide the kinds, and
// assumes that a condition on a left out label holds.
func (k *nodeKinds) mayHold(p *orbit.Predicate, like *orbit.Node) bool {
	if p.Op != "AnyOf" {
		return k.leavesOut(p.Key) || p.On(like)
	}
	return slices.ContainsFunc(p.Terms, func(term []orbit.Predicate) bool {
		for i := range term {
			if !k.mayHold(&term[i], like) {
				return false
			}
		}
		return true
	})
}

// bound returns lower bounds of the value and the tie of all nodes of these kinds between these extremes; false: no
// such node fits.
func (c *specClass) bound(kinds kd.Kinds, least, most *score.Extent) (value, tie float64, ok bool) {
	if !c.mayFit(most) {
		return 0, 0, false
	}
	for i := range c.bounds {
		r := &c.bounds[i]
		if r.kinds&kinds == 0 {
			continue
		}
		v, t := r.least(least, most)
		if !ok {
			value, tie, ok = v, t, true
			continue
		}
		if v < value {
			value = v
		}
		if t < tie {
			tie = t
		}
	}
	return value, tie, ok
}

// probe returns a function by which the tree chooses its cuts: it rates a box by the bound of the class, so that the
// tree cuts where the bounds of the two halves differ most.
func (c *specClass) probe(x *nodeIndex) kd.Probe {
	return func(kinds kd.Kinds, least, most *kd.Vector) float64 {
		c.respond(x)
		value, _, ok := c.bound(kinds, (*score.Extent)(least), (*score.Extent)(most))
		if !ok {
			return math.Inf(1)
		}
		return value
	}
}
