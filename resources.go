package orbit

import (
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The dimensions of [Resources] that have the same meaning in every constellation. The dimensions from 4 to
// Dimensions-1 are the importer's. [MemoryLedger.Dimensions] gives them names for error texts and diagnoses.
const (
	// CPU is in milli-cores.
	CPU = iota
	// Memory is in bytes.
	Memory
	// Disk is in bytes.
	Disk
	// Slots is a count, of sandboxes, addresses, ports or the like.
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

// faults lists the negative dimensions; what names the vector in the texts.
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
func (n *dimensionNames) name(d int) string {
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
		fmt.Fprintf(&b, "%s=%d", n.name(d), v)
	}
	if b.Len() == 0 {
		return "nothing"
	}
	return b.String()
}

// quantity returns an amount of a dimension in words: "72 cores", "1.5 GiB of memory", "3 of slots". Bytes are rounded up
// or down to two decimals: up if that much is needed, down if that much is there.
func (n *dimensionNames) quantity(d int, amount int64, up bool) string {
	switch d {
	case CPU:
		return plural(cores(amount), "core")
	case Memory, Disk:
		return binaryBytes(amount, up) + " of " + n.name(d)
	}
	return fmt.Sprintf("%d of %s", amount, n.name(d))
}

// MaxDevices is the maximum number of device instances of a node.
const MaxDevices = 16

// deviceMilli is the number of parts into which one device instance divides.
const deviceMilli = 1000

// DeviceSet is a set of device instances of one node, bit i for instance i.
type DeviceSet uint16

// Len returns how many instances are in the set.
func (s DeviceSet) Len() int { return bits.OnesCount16(uint16(s)) }

// Has reports whether instance i is in the set.
func (s DeviceSet) Has(i int) bool { return s>>i&1 == 1 }

// Devices is a node's group of device instances, all of one model. Each instance divides into 1000 milli. Their use is
// never declared: it is the sum of the placements.
type Devices struct {
	// Model is the model of all instances of the group.
	Model string `json:"model,omitempty"`
	// Count is the number of instances, at most MaxDevices.
	Count int `json:"count,omitempty"`
	// Unhealthy is the set of instances that take no new placements.
	Unhealthy DeviceSet `json:"unhealthy,omitempty"`
}

// Envelope is the capsule's share of a node. Reservation is held on the node; Limit is carried for the importer and not
// enforced.
type Envelope struct {
	// Reservation is the amount of each resource that the node keeps for the capsule.
	Reservation Resources `json:"reservation"`
	// Limit is carried for the importer; orbit does not enforce it.
	Limit Resources `json:"limit"`
}

// DeviceRequest asks for Count instances with Milli free on each, all of a node whose model is among Models. The zero
// value asks for no device.
type DeviceRequest struct {
	// Count is the number of instances; 0: none.
	Count int `json:"count,omitempty"`
	// Milli is the amount of each instance, from 1 to 1000 thousandths.
	Milli int `json:"milli,omitempty"`
	// Models are the acceptable models; empty: any model.
	Models []string `json:"models,omitempty"`
}

// Accepts reports whether the model is acceptable.
func (r *DeviceRequest) Accepts(model string) bool {
	return len(r.Models) == 0 || slices.Contains(r.Models, model)
}

// Model returns the only acceptable model; "" if there are several, or any.
func (r *DeviceRequest) Model() string {
	if len(r.Models) == 1 {
		return r.Models[0]
	}
	return ""
}

// faults returns what is wrong with r; nothing if r is well formed or asks for no device.
func (r *DeviceRequest) faults() []string {
	var out []string
	switch {
	case r.Count == 0 && r.Milli == 0 && len(r.Models) == 0:
	case r.Count < 1 || r.Count > MaxDevices:
		out = append(out, fmt.Sprintf("devices: count is %d; it must be 1 to %d", r.Count, MaxDevices))
	case r.Milli < 1 || r.Milli > deviceMilli:
		out = append(out, fmt.Sprintf("devices: milli is %d; it must be 1 to %d for each instance", r.Milli, deviceMilli))
	}
	return out
}

// want describes the request, as in "a device with 600 milli free".
func (r *DeviceRequest) want() string {
	if r.Count == 1 {
		return fmt.Sprintf("a device with %d milli free", r.Milli)
	}
	return fmt.Sprintf("%d devices with %d milli free each", r.Count, r.Milli)
}

// faults returns what is wrong with d.
func (d *Devices) faults() []string {
	if d.Count < 0 || d.Count > MaxDevices {
		return []string{fmt.Sprintf("devices: count is %d; a node has 0 to %d", d.Count, MaxDevices)}
	}
	if d.Unhealthy>>d.Count != 0 {
		return []string{fmt.Sprintf("devices: unhealthy set %b names instances beyond the %d there are", d.Unhealthy, d.Count)}
	}
	return nil
}

// deviceUse is the amount that is taken of each instance, in milli.
type deviceUse [MaxDevices]int32

// add adds milli, which may be negative, to the instances of a set.
func (u *deviceUse) add(set DeviceSet, milli int32) {
	for s := uint16(set); s != 0; s &= s - 1 {
		u[bits.TrailingZeros16(s)] += milli
	}
}

// Instant is a point in time: nanoseconds since the beginning of 1970 in UTC; 0: unknown. For a [time.Time] t it is
// Instant(t.UnixNano()). Records that may exist in millions use it because it takes a third of the memory of a
// time.Time.
type Instant int64

// instantOf converts a time to an instant. The result is unknown if an instant cannot hold the time: before 1970, like
// the zero time, or after 2261.
func instantOf(t time.Time) Instant {
	if t.Unix() < 0 || t.Year() > 2261 {
		return 0
	}
	return Instant(t.UnixNano())
}

// Time returns the instant as a time in UTC; the zero time if it is unknown.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// btoi makes a count of a condition.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ProposalID identifies a proposal, so that one that is sent twice takes effect once. A proposal with the zero id is
// not recognised when it is sent again. Make ids with [NewProposalID], or let the [Engine] do it.
type ProposalID [16]byte

// IsZero reports whether the id opts out of being recognised.
func (id ProposalID) IsZero() bool { return id == ProposalID{} }

// String returns the id in hexadecimal.
func (id ProposalID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes the id in hexadecimal.
func (id ProposalID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText reads what MarshalText writes.
func (id *ProposalID) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(id)) {
		return invalidf("proposal id %q: want %d hexadecimal digits", text, hex.EncodedLen(len(id)))
	}
	_, err := hex.Decode(id[:], text)
	if err != nil {
		return invalidf("proposal id %q: %v", text, err)
	}
	return nil
}

var hashSeed = maphash.MakeSeed()

// plural returns a number with its noun, as in "1 core" and "2 cores".
func plural(number, noun string) string {
	if number == "1" {
		return number + " " + noun
	}
	return number + " " + noun + "s"
}

// cores returns a number of milli-cores as cores.
func cores(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) }

// binaryBytes returns a number of bytes in the largest unit of which it is at least one, with at most two decimals,
// rounded up or down.
func binaryBytes(amount int64, up bool) string {
	if amount < 1024 {
		return plural(strconv.FormatInt(amount, 10), "byte")
	}
	unit, prefix := uint64(1024), 0
	for ; uint64(amount)>>10 >= unit; prefix++ {
		unit <<= 10
	}
	high, low := bits.Mul64(uint64(amount), 100)
	hundredths, rest := bits.Div64(high, low, unit)
	if up && rest > 0 {
		hundredths++
	}
	return strconv.FormatFloat(float64(hundredths)/100, 'f', -1, 64) + " " + string("KMGTPE"[prefix]) + "iB"
}
