// Package wide adds up quantities of 64 bits whose sum may not fit in 64 bits.
package wide

import (
	"math"
	"math/big"
	"math/bits"
)

// Int is a sum of quantities, in 128 bits. The zero value is 0, and equal sums are equal by ==.
type Int struct {
	hi int64
	lo uint64
}

// Plus returns w + x; x may be negative.
func (w Int) Plus(x int64) Int {
	lo, carry := bits.Add64(w.lo, uint64(x), 0)
	return Int{w.hi + x>>63 + int64(carry), lo}
}

// FromBits returns the sum that is hi * 2^64 + lo, which must be less than 2^127.
func FromBits(hi, lo uint64) Int { return Int{int64(hi), lo} }

// Bits returns hi and lo so that w is hi * 2^64 + lo. It must not be negative.
func (w Int) Bits() (hi, lo uint64) { return uint64(w.hi), w.lo }

// Int64 returns w; if that does not fit in 64 bits, the largest or the smallest number that does.
func (w Int) Int64() int64 {
	switch {
	case w.hi == int64(w.lo)>>63:
		return int64(w.lo)
	case w.hi < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// Negative reports whether w is less than 0.
func (w Int) Negative() bool { return w.hi < 0 }

// Above0 returns w, or 0 if w is negative.
func (w Int) Above0() Int {
	if w.hi < 0 {
		return Int{}
	}
	return w
}

// Minus returns w - x. Either may be negative.
func (w Int) Minus(x Int) Int {
	lo, borrow := bits.Sub64(w.lo, x.lo, 0)
	return Int{w.hi - x.hi - int64(borrow), lo}
}

// Add returns w + x. Either may be negative.
func (w Int) Add(x Int) Int {
	lo, carry := bits.Add64(w.lo, x.lo, 0)
	return Int{w.hi + x.hi + int64(carry), lo}
}

// Times returns w * n. Neither may be negative, and n must be small enough that the product fits in 128 bits.
func (w Int) Times(n int) Int {
	hi, lo := bits.Mul64(w.lo, uint64(n))
	return Int{w.hi*int64(n) + int64(hi), lo}
}

// Exceeds reports whether w is more than o. Either may be negative.
func (w Int) Exceeds(o Int) bool { return w.hi > o.hi || w.hi == o.hi && w.lo > o.lo }

// String returns the sum as a decimal number.
func (w Int) String() string {
	sum := new(big.Int).Lsh(big.NewInt(w.hi), 64)
	return sum.Add(sum, new(big.Int).SetUint64(w.lo)).String()
}
