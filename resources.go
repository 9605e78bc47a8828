package orbit

import (
	"fmt"
	"strings"
)

// Dimension numbers one entry of [Resources].
type Dimension int

// The dimensions that mean the same in every constellation. Those from 4 to Dimensions-1 belong to the
// importer, who names them with [MemoryLedger.Dimensions] so that diagnoses can speak of them.
const (
	// Milli-cores.
	CPU Dimension = iota
	// Bytes.
	Memory
	// Bytes.
	Disk
	// Counts: sandboxes, addresses, ports, ...
	Slots

	// Dimensions is the length of the vector.
	Dimensions = 8
)

// Resources is a fixed-size vector of quantities, one for each dimension. It is comparable, copied by
// assignment and never allocates. The zero value asks for nothing.
type Resources [Dimensions]int64

// Add returns r+o. It reports false, and a meaningless sum, when a dimension overflows.
func (r Resources) Add(o Resources) (sum Resources, ok bool) {
	ok = true
	for d := range r {
		sum[d] = r[d] + o[d]
		if (o[d] > 0 && sum[d] < r[d]) || (o[d] < 0 && sum[d] > r[d]) {
			ok = false
		}
	}
	return sum, ok
}

// Sub returns r-o. It reports false, and a meaningless difference, when a dimension overflows.
func (r Resources) Sub(o Resources) (diff Resources, ok bool) {
	ok = true
	for d := range r {
		diff[d] = r[d] - o[d]
		if (o[d] < 0 && diff[d] < r[d]) || (o[d] > 0 && diff[d] > r[d]) {
			ok = false
		}
	}
	return diff, ok
}

// Within reports whether r is at most o in every dimension.
func (r Resources) Within(o Resources) bool {
	for d := range r {
		if r[d] > o[d] {
			return false
		}
	}
	return true
}

// String lists the nonzero dimensions, as in "cpu=2000 memory=4294967296". It does not know an importer's
// names; [State.DimensionName] does.
func (r Resources) String() string {
	var names dimensionNames
	return names.format(r)
}

// minus returns r-o where both are known to be far from overflow.
func (r Resources) minus(o Resources) Resources {
	for d := range r {
		r[d] -= o[d]
	}
	return r
}

// plus returns r+o where both are known to be far from overflow.
func (r Resources) plus(o Resources) Resources {
	for d := range r {
		r[d] += o[d]
	}
	return r
}

// faults lists the dimensions that are negative, in the words of what r is.
func (r Resources) faults(what string) []string {
	var out []string
	for d, v := range r {
		if v < 0 {
			out = append(out, fmt.Sprintf("%s: dimension %s is negative: %d", what, defaultDimensions[d], v))
		}
	}
	return out
}

// dimensionNames are the names a ledger's importer gave to the dimensions; empty ones have a default.
type dimensionNames [Dimensions]string

var defaultDimensions = dimensionNames{"cpu", "memory", "disk", "slots", "dim4", "dim5", "dim6", "dim7"}

// name returns the importer's name for a dimension, or the default.
func (n *dimensionNames) name(d Dimension) string {
	if n[d] != "" {
		return n[d]
	}
	return defaultDimensions[d]
}

// format lists the nonzero dimensions by name.
func (n *dimensionNames) format(r Resources) string {
	var b strings.Builder
	for d, v := range r {
		if v == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%d", n.name(Dimension(d)), v)
	}
	if b.Len() == 0 {
		return "nothing"
	}
	return b.String()
}
