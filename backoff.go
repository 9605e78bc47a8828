package orbit

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is how long an engine waits between passes: Initial after a pass that committed something, or that
// found new work, or room for what it had put aside, in the ledger; then Factor times as long after each that
// did not, up to Max. The zero value works.
type Backoff struct {
	// Default 10 ms.
	Initial time.Duration
	// Default 1 s.
	Max time.Duration
	// Default 2.
	Factor float64
	// A wait is shortened by a random part of itself up to this; default 0.2, negative: none.
	Jitter float64
}

// withDefaults returns a copy in which every field says what holds.
func (b Backoff) withDefaults() Backoff {
	if b.Initial == 0 {
		b.Initial = min(10*time.Millisecond, cmp.Or(b.Max, time.Second))
	}
	b.Max = max(cmp.Or(b.Max, time.Second), b.Initial)
	b.Factor = cmp.Or(b.Factor, 2)
	b.Jitter = max(0, cmp.Or(b.Jitter, 0.2))
	return b
}

// faults says everything that is wrong with b.
func (b Backoff) faults() []string {
	var out []string
	if b.Initial < 0 || b.Max < 0 {
		out = append(out, "Backoff: Initial and Max must not be negative")
	}
	if b.Factor != 0 && !(b.Factor >= 1 && !math.IsInf(b.Factor, 1)) {
		out = append(out, "Backoff: Factor must be at least 1")
	}
	if b.Jitter > 1 || math.IsNaN(b.Jitter) {
		out = append(out, "Backoff: Jitter must be at most 1")
	}
	return out
}

// pace is a backoff in use.
type pace struct {
	Backoff
	// The wait before jitter; 0: none yet.
	base time.Duration
	rng  *rand.Rand
}

// reset makes the next wait the initial one.
func (p *pace) reset() { p.base = 0 }

// next returns how long to wait now, and grows.
func (p *pace) next() time.Duration {
	switch {
	case p.base == 0:
		p.base = p.Initial
	case float64(p.base)*p.Factor >= float64(p.Max):
		p.base = p.Max
	default:
		p.base = time.Duration(float64(p.base) * p.Factor)
	}
	return p.base - time.Duration(p.rng.Float64()*p.Jitter*float64(p.base))
}

// newRand returns a source for jitter.
func newRand() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }
