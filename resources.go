package orbit

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
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

// Limits are the limits that a ledger enforces. A zero field means the default that is given with it, which is that of
// the in-memory ledger. [Ledger.Limits] returns all fields filled in, so that a navigator can plan within them.
type Limits struct {
	// Commitments is the maximum number of commitments in one proposal; default 65,536.
	Commitments int `json:"commitments"`
	// Preconditions is the maximum number of bets in one proposal; default 65,536.
	Preconditions int `json:"preconditions"`
	// Capsules is the maximum number of capsules in one Submit; default 1,048,576.
	Capsules int `json:"capsules"`
	// GangMembers is the maximum number of members of one gang, placed in one proposal; default 65,536.
	GangMembers int `json:"gangMembers"`
	// IDBytes is the maximum number of bytes in one id, module, owner, label or mark key; default 253.
	IDBytes int `json:"idBytes"`
	// SpecBytes is the maximum number of bytes of text in one spec or in one node's labels; default 65,536.
	SpecBytes int `json:"specBytes"`
	// ValueBytes is the maximum number of bytes in one mark's value or placement's note; default 4,096.
	ValueBytes int `json:"valueBytes"`
	// History is the number of changes that Changes can look back on; default 65,536.
	History int `json:"history"`
	// Terminal is the number of records of released capsules that are kept, newest first; default 65,536.
	Terminal int `json:"terminal"`
	// ProposalIDs is the number of remembered ids of proposals without a Place, newest first; default 65,536.
	ProposalIDs int `json:"proposalIDs"`
	// PlacementIDs is the number of remembered ids of one capsule's placements, newest first; default 32.
	PlacementIDs int `json:"placementIDs"`
	// NominatedShare is the maximum share of each resource of all nodes that a nomination may claim together with the
	// nominations that outrank it, in percent. The limit does not apply to a resource that no nomination of higher rank
	// claims. So it never refuses the nomination that is first in rank. Default 10.
	NominatedShare int `json:"nominatedShare"`
	// NominationAging is the maximum by which a nomination may rank above the priority of its capsule; default 10.
	NominationAging int `json:"nominationAging"`
	// Renewals is the number of times that a nomination can be renewed before it loses its place among equal ranks;
	// default 8.
	Renewals int `json:"renewals"`
	// Protect is the longest time for which a capsule may be protected ([Protect]); 0: 10 minutes.
	Protect time.Duration `json:"protect,omitempty"`
	// Nominate is the longest time for which engines let a nomination claim its room, counted from when they first see
	// it, however late its end is ([Nominate.Ends]); 0: 1 hour. LongestNomination returns it.
	Nominate time.Duration `json:"nominate,omitempty"`
	// TruceFrom and TruceTo bound a range of priorities, both ends included. A capsule with a priority in the range is
	// never evicted for another capsule with a priority in the range, unless its gang is broken and gives way to another
	// broken gang ([State.Precedes]). They are equal by default, and then forbid nothing.
	TruceFrom int32 `json:"truceFrom,omitempty"`
	TruceTo   int32 `json:"truceTo,omitempty"`
}

// withDefaults returns a copy in which every field has its effective value.
func (l Limits) withDefaults() Limits {
	l.Commitments = min(limit(l.Commitments, 1<<16), 1<<20) // sums of device milli stay within 32 bits
	l.Preconditions = limit(l.Preconditions, 1<<16)
	l.Capsules = limit(l.Capsules, 1<<20)
	l.GangMembers = min(limit(l.GangMembers, 1<<16), l.Commitments) // one Place each, in one proposal
	l.IDBytes = limit(l.IDBytes, 253)
	l.SpecBytes = limit(l.SpecBytes, 1<<16)
	l.ValueBytes = limit(l.ValueBytes, 4096)
	l.History = limit(l.History, 1<<16)
	l.Terminal = limit(l.Terminal, 1<<16)
	l.ProposalIDs = limit(l.ProposalIDs, 1<<16)
	l.PlacementIDs = limit(l.PlacementIDs, 32)
	l.NominatedShare = min(limit(l.NominatedShare, 10), 100)
	l.NominationAging = limit(l.NominationAging, 10)
	l.Renewals = limit(l.Renewals, 8)
	l.Protect = min(max(l.Protect, 0), maxProtect) // 0 stays, as in the records of ledgers that are older than it
	l.Nominate = min(max(l.Nominate, 0), maxProtect)
	l.TruceTo = max(l.TruceFrom, l.TruceTo)
	return l
}

// keeps returns the reason why a capsule of one priority is not evicted for one of another; empty: it may be evicted.
func (l *Limits) keeps(victim, priority int32) string {
	switch {
	case priority <= victim:
		return fmt.Sprintf("priority %d is not higher than %d", priority, victim)
	case l.TruceFrom <= victim && priority <= l.TruceTo:
		return fmt.Sprintf("from priority %d to %d no capsule is evicted for another", l.TruceFrom, l.TruceTo)
	}
	return ""
}

// maxLimit keeps sums of limits and counts of records within 32 bits.
const maxLimit = 1 << 30

// longestProtection returns the longest time for which a capsule may be protected.
func (l *Limits) longestProtection() time.Duration { return cmp.Or(l.Protect, 10*time.Minute) }

// LongestNomination returns the longest time for which engines let a nomination claim its room.
func (l Limits) LongestNomination() time.Duration { return cmp.Or(l.Nominate, time.Hour) }

// maxProtect keeps the ends of protections and nominations within what a time can hold.
const maxProtect = 366 * 24 * time.Hour

// limit returns n, or the default where n is not positive, and never more than maxLimit.
func limit(n, otherwise int) int { return min(cmp.Or(max(n, 0), otherwise), maxLimit) }

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

// Resize gives a capsule another spec. The new spec differs in the Envelope only; for a pending capsule it may also
// differ in Priority. A placed capsule grows in place if its node has the room beside other work, beside [Remains], and
// beside the nominations that outrank the capsule; otherwise the refusal says how much is missing. A cordoned node is
// no reason to refuse. A pending capsule loses its nomination and must be nominated again. Members of gangs can be
// resized only while they are placed.
//
// A capsule gets room before it uses it, and returns room after it has stopped using it. To grow, the agent of the node
// raises the limit after the Resize is committed; to shrink, it lowers the limit first, and Resize is proposed then
// (Applied). A proposal with a Resize may do nothing else to that capsule. A navigator's plan may resize its own work,
// but may not set Applied and not change priorities.
type Resize struct {
	// Capsule is the capsule to resize.
	Capsule CapsuleID `json:"capsule"`
	// Since is the revision at which the capsule was placed ([Capsule.PlacedAt]); 0: it is pending.
	Since Revision `json:"since,omitempty"`
	// Spec is the new spec.
	Spec *Spec `json:"spec"`
	// Applied says that the capsule already takes no more than Spec says. A capsule that has begun ([Capsule.Begun])
	// shrinks only with Applied.
	Applied bool `json:"applied,omitempty"`
}

func (Resize) commitment() {}

// resizes returns the reason why a spec cannot replace s, in words that follow "capsule ..."; empty: it can.
func (s *Spec) resizes(to *Spec, waits bool) string {
	like := *s
	like.Envelope = to.Envelope
	if waits {
		like.Priority = to.Priority
	}
	switch {
	case string(like.appendKey(nil)) == to.key:
		return ""
	case waits:
		return "can change only its envelope and its priority while it waits"
	}
	return "can change only its envelope while it is placed"
}

var hashSeed = maphash.MakeSeed()
