package nav

import (
	"cmp"
	"maps"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// fairPast is what queues have used on average, where the past counts less and less. It is computed in integers, so that it is
// the same on all machines.
type fairPast struct {
	at     time.Time
	queues map[fairUser]*fairUse
}

// fairUser is a queue; or the capsules that name it themselves, if it is not counted with the queues below it.
type fairUser struct {
	queue orbit.QueueID
	own   bool
}

// fairUse is what a queue used when it was last seen, and on average, in 256ths, by resource.
type fairUse struct {
	now     map[string]int64
	average map[string]uint64
}

// pastShift is the binary logarithm of the parts in which averages are counted.
const pastShift = 8

// advance brings the averages up to an instant: until then, each queue has used what it used when it was last seen. A queue that
// is seen for the first time has used nothing so far.
func (p *fairPast) advance(s *orbit.State, now time.Time, halfLife time.Duration) {
	keep := uint64(0)
	if elapsed := now.Sub(p.at); !p.at.IsZero() {
		keep = halved(max(0, elapsed), halfLife)
	}
	p.at = now
	if p.queues == nil {
		p.queues = map[fairUser]*fairUse{}
	}
	seen := map[fairUser]bool{}
	for q := range s.Queues() {
		for _, own := range []bool{false, true} {
			of := fairUser{q.Queue.ID, own}
			seen[of] = true
			u := p.queues[of]
			if u == nil {
				u = &fairUse{average: map[string]uint64{}}
				p.queues[of] = u
			}
			u.age(keep)
			u.now = of.uses(&q)
		}
	}
	maps.DeleteFunc(p.queues, func(of fairUser, _ *fairUse) bool { return !seen[of] })
}

// uses returns what a user uses.
func (of fairUser) uses(q *orbit.QueueState) map[string]int64 {
	if of.own {
		return q.Own()
	}
	return q.Used()
}

// age lets time pass after which the past counts this part of one, in 2^-63.
func (u *fairUse) age(keep uint64) {
	for r := range u.now {
		u.average[r] += 0 // so that the loop below visits it
	}
	for r, past := range u.average {
		now := uint64(min(max(0, u.now[r]), math.MaxInt64>>pastShift)) << pastShift
		u.average[r] = part(past, keep) + now - part(now, keep)
	}
}

// part returns this part of an amount, in 2^-63, rounded down.
func part(amount, of uint64) uint64 {
	hi, lo := bits.Mul64(amount, of)
	return hi<<1 | lo>>63
}

// halved returns one half to the power of elapsed/halfLife, in 2^-63.
func halved(elapsed, halfLife time.Duration) uint64 {
	whole, rest := elapsed/halfLife, elapsed%halfLife
	if whole > 63 {
		return 0
	}
	out := uint64(1) << 63
	fraction, _ := bits.Div64(uint64(rest), 0, uint64(halfLife))
	for i, root := range halfRoots {
		if fraction>>(63-i)&1 == 1 {
			out = part(out, root)
		}
	}
	return out >> whole
}

// halfRoots has one half to the power of 1/2, 1/4, 1/8 and so on, in 2^-63.
var halfRoots = func() (out [40]uint64) {
	x := new(big.Int).Lsh(big.NewInt(1), 62)
	for i := range out {
		x.Sqrt(x.Lsh(x, 63))
		out[i] = x.Uint64()
	}
	return out
}()

// share returns what a queue has used on average and uses by the plan beyond what it used before, as the largest part of what it and its
// neighbours may use, divided by its weight. The queue is the one below another one, or that itself.
func (p *fairPast) share(q *orbit.Quotas, in, below orbit.QueueID) (most fairFraction) {
	of := fairUser{below, in == below}
	at, _ := q.Queue(below)
	parent, _ := q.Queue(in)
	u, weight := p.queues[of], uint64(1)
	if !of.own {
		weight = uint64(max(1, at.Queue.Weight))
	}
	limit, used := parent.Most(), of.uses(&at)
	for _, r := range slices.Sorted(maps.Keys(used)) {
		more := uint64(min(max(0, used[r]-u.now[r]), math.MaxInt64>>pastShift)) << pastShift
		x := fairFraction{over: u.average[r] + more}
		x.belowHi, x.belowLo = bits.Mul64(uint64(max(0, limit[r])), weight)
		if x.compare(&most) > 0 {
			most = x
		}
	}
	return most
}

// fairFraction is a fraction of 64 bits over 128; the zero value is 0.
type fairFraction struct{ over, belowHi, belowLo uint64 }

// compare returns -1 if a is less than b, 0 if both are equal, and 1 if a is more. Anything over 0 is infinite.
func (a *fairFraction) compare(b *fairFraction) int {
	infinite := func(f *fairFraction) bool { return f.over > 0 && f.belowHi|f.belowLo == 0 }
	if infinite(a) || infinite(b) {
		return btoi(infinite(a)) - btoi(infinite(b))
	}
	if a.over == 0 || b.over == 0 {
		return cmp.Compare(a.over, b.over)
	}
	x, y := a.times(b), b.times(a)
	return slices.Compare(x[:], y[:])
}

// times returns the numerator of a times the denominator of b, highest word first.
func (a *fairFraction) times(b *fairFraction) [3]uint64 {
	carry, low := bits.Mul64(a.over, b.belowLo)
	top, middle := bits.Mul64(a.over, b.belowHi)
	middle, more := bits.Add64(middle, carry, 0)
	return [3]uint64{top + more, middle, low}
}
