package place

import (
	"maps"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/score"
)

// specClass is what an engine has computed for a spec, which all capsules of one equivalence class share.
type specClass struct {
	spec *orbit.Spec
	// Nil: the score has no bounds.
	bounded score.Bounded
	// The division into kinds in which all labels are kept in mind of which the spec speaks.
	learned uint64
	// The engine's count of calls when it was last asked for: the oldest classes are forgotten first.
	used uint64
	// What the spec reserves of each dimension, without zeros; and whether it asks for devices.
	wants   []wanted
	devices bool
	// The domains in which the spec must be because of the group that it wants to be near.
	near near
	// Bounds of the score, one for all kinds of nodes that agree on the spec's preferences; and by kind of node which of
	// these is its bound, or notSuited if nodes of this kind cannot take the spec. They hold for one division into kinds.
	bounds   []kindBound
	byKind   []int8
	answers  map[string]int8
	division uint64
	// The score cannot bound itself for this spec, or a search has not converged: nodes are ranked one by one.
	unbounded, diverges bool
	tournament          *tournament
	// Nodes to which the bounds do not apply because of labels that are left out, as of a version of the label index.
	exceptions   []int32
	exceptionsOf uint64
	// There are too many of them.
	exceptional bool
}

type wanted struct {
	dim  int
	want int64
}

// kindBound is a bound, and the kinds of node for which it holds.
type kindBound struct {
	kinds kd.Kinds
	bound func(least, most *score.Extent) (value, tie float64)
}

const notSuited = -1

// noBound is for specs of which the score cannot say more, until that is noticed.
func noBound(_, _ *score.Extent) (value, tie float64) { return math.Inf(-1), math.Inf(-1) }

// least returns the bound; what is no number bounds nothing.
func (r *kindBound) least(least, most *score.Extent) (value, tie float64) {
	value, tie = r.bound(least, most)
	if value != value || tie != tie {
		return math.Inf(-1), math.Inf(-1)
	}
	return value, tie
}

func newSpecClass(spec *orbit.Spec, bounded score.Bounded) *specClass {
	return &specClass{spec: spec, bounded: bounded, wants: wantsOf(spec), devices: spec.Devices.Count > 0}
}

// wantsOf lists what is wanted, zeros left out.
func wantsOf(spec *orbit.Spec) (out []wanted) {
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			out = append(out, wanted{d, want})
		}
	}
	return out
}

// meet takes note of where company is. If that has changed, all scores may have.
func (c *specClass) meet(near near) {
	if c.tournament != nil && !maps.Equal(near.domains, c.near.domains) {
		c.tournament.cursor = 0
	}
	c.near = near
}

// mayFit reports whether a node with at most this much free could fit the spec.
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

// respond finds the bound for each kind of node that has none yet.
func (c *specClass) respond(x *nodeIndex) {
	if c.division != x.kinds.division {
		c.division = x.kinds.division
		c.bounds, c.byKind = c.bounds[:0], c.byKind[:0]
		c.answers = nil
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

// boundFor returns the number of the bound for nodes like one. Nodes that agree on the spec's preferences share it.
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

// except brings the exceptions up to date. It reports whether there are few enough for a search.
func (c *specClass) except(labels *labelIndex) bool {
	if c.exceptionsOf != labels.version {
		var few bool
		c.exceptions, few = labels.exceptions(c.exceptions[:0], c.spec)
		c.exceptionsOf, c.exceptional = labels.version, !few
	}
	return !c.exceptional
}

// answer writes down which preferences a node meets, and whether it is in a domain to spread across.
func (c *specClass) answer(n *orbit.Node) string {
	if len(c.spec.Prefer) == 0 && len(c.spec.Spread.Names) == 0 {
		return ""
	}
	text := make([]byte, 0, 16)
	for i := range c.spec.Prefer {
		text = append(text, byte(btoi(c.spec.Prefer[i].On(n))))
	}
	return string(append(text, byte(btoi(c.spec.SpreadsAcross(n)))))
}

// kinds returns the kinds of nodes that are where the spec wants to be.
func (c *specClass) kinds(x *nodeIndex) (kinds kd.Kinds) {
	if c.near.domains == nil || x.kinds.leavesOut(c.near.level) {
		return ^kinds
	}
	for kind, like := range x.kinds.like {
		if c.near.has(like) {
			kinds |= kd.KindsOf(int32(kind))
		}
	}
	return kinds
}

// suits reports whether nodes of this kind can take the spec, as far as the labels decide that nodes are divided by.
func (c *specClass) suits(like *orbit.Node, x *nodeIndex) bool {
	if !like.Schedulable() || c.spec.Devices.Count > 0 && !c.spec.Devices.Accepts(like.Devices.Model) {
		return false
	}
	for i := range c.spec.Require {
		if !x.kinds.mayHold(&c.spec.Require[i], like) {
			return false
		}
	}
	return true
}

// mayHold reports whether a requirement may hold on nodes of a kind: whether it does as far as the labels decide that nodes are
// divided by.
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

// bound returns the least that nodes of these kinds between these extremes can be rated; false: none of them
// fits.
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

// probe rates boxes of an index as the class sees them, for cutting the tree where it tells most.
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
