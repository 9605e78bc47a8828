package orbit

import (
	"maps"
	"math"

	"github.com/orbitsched/orbit/internal/kd"
)

// specClass is what an engine knows of a spec, which stands for all capsules that are alike. It is computed
// once, and forgotten when it has not been asked for in a long time.
type specClass struct {
	spec *Spec
	// When it was last asked for.
	used uint64
	// What is wanted of each dimension, zeros left out.
	wants []wanted
	// Where the company is that the spec wants, as of a Sync.
	near   *peers
	nearAt uint64
	// By kind of node, as of a division.
	pairs    []pair
	division int
	// The score cannot bound itself for this spec: nodes are ranked one by one.
	boundless bool
	ranking   *ranking
}

type wanted struct {
	dim  Dimension
	want int64
}

// pair is what a spec and a kind of node have to do with each other.
type pair struct {
	decided bool
	// Nil: nodes of this kind cannot take the spec.
	bound func(least, most *Extent) (value, tie float64)
}

// least returns the bound; what is no number bounds nothing.
func (p *pair) least(least, most *Extent) (value, tie float64) {
	value, tie = p.bound(least, most)
	if value != value || tie != tie {
		return math.Inf(-1), math.Inf(-1)
	}
	return value, tie
}

func newSpecClass(spec *Spec) *specClass {
	c := &specClass{spec: spec, division: -1}
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			c.wants = append(c.wants, wanted{Dimension(d), want})
		}
	}
	return c
}

// meet takes note of where company is. If that has changed, all scores may have.
func (c *specClass) meet(near *peers, at uint64) {
	if c.ranking != nil && near != nil && !maps.Equal(near.domains, c.near.domains) {
		c.ranking.cursor = 0
	}
	c.near, c.nearAt = near, at
}

// mayFit reports whether a node of which this is the most could have room for the spec.
func (c *specClass) mayFit(most *Extent) bool {
	for _, w := range c.wants {
		if w.want > most[extentFree+w.dim] {
			return false
		}
	}
	r := &c.spec.Devices
	switch {
	case r.Count == 0:
		return true
	case r.Milli == deviceMilli:
		return most[extentIdle] >= int64(r.Count)
	}
	return most[extentLargest] >= int64(r.Milli) && most[extentDevices] >= int64(r.Count)*int64(r.Milli)
}

// pair returns what the spec and a kind have to do with each other. It is decided at first sight.
func (c *specClass) pair(kind int, x *boxIndex) *pair {
	if c.division != x.division {
		c.division = x.division
		clear(c.pairs)
		c.pairs = c.pairs[:0]
	}
	for kind >= len(c.pairs) {
		c.pairs = append(c.pairs, pair{})
	}
	p := &c.pairs[kind]
	if !p.decided {
		p.decided = true
		if like := x.kinds.like[kind]; c.suits(like, x) {
			p.bound = x.bounded.Bound(c.spec, like)
			c.boundless = c.boundless || p.bound == nil
		}
	}
	return p
}

// suits reports whether nodes of this kind can take the spec, as far as the kind tells.
func (c *specClass) suits(like *Node, x *boxIndex) bool {
	if like.Unschedulable || c.spec.Devices.Count > 0 && !c.spec.Devices.accepts(like.Devices.Model) {
		return false
	}
	for i := range c.spec.Require {
		if p := &c.spec.Require[i]; !x.kinds.open[p.Key] && !p.Matches(like.Labels) {
			return false
		}
	}
	return true
}

// probe rates boxes as the class sees them, for cutting trees where it tells most.
func (c *specClass) probe(x *boxIndex) kd.Probe {
	return func(tree int, least, most *kd.Vector) float64 {
		p := c.pair(tree, x)
		if p.bound == nil {
			return 0
		}
		if !c.mayFit((*Extent)(most)) {
			return math.Inf(1)
		}
		value, _ := p.least((*Extent)(least), (*Extent)(most))
		return value
	}
}
