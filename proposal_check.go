package orbit

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// check refuses a malformed proposal, and replaces its specs by their shared copies. It reads no state. The proposal
// must be a clone that only the ledger holds, so that the proposer cannot change it between check and commit.
func (p *Proposal) check(l *Limits) error {
	if len(p.Do) > l.Commitments || len(p.If) > l.Preconditions {
		return invalidf("proposal has %d commitments and %d bets; this ledger takes %d and %d",
			len(p.Do), len(p.If), l.Commitments, l.Preconditions)
	}
	if len(p.Do) == 0 {
		return invalidf("proposal commits nothing; put at least one commitment into Do")
	}
	v := validators.Get().(*validator)
	defer func() { *v = validator{}; validators.Put(v) }()
	v.limits = l
	for i, bet := range p.If {
		v.at, v.what = i, "bet"
		v.bet(bet)
	}
	for i, c := range p.Do {
		v.at, v.what = i, "commitment"
		v.beside(p.Do, c)
		if final := v.commitment(c); final != nil {
			p.Do[i] = final
		}
	}
	if v.respecs && len(v.faults) == 0 {
		v.besideRespec(p.Do)
	}
	if len(v.faults) > 0 {
		return &Rejection{Kind: ErrInvalid, Do: v.first, Reason: strings.Join(v.faults, "; ")}
	}
	return nil
}

// validators keeps validators for the next proposal: commitments get them through an interface, so each would be on the heap.
var validators = sync.Pool{New: func() any { return new(validator) }}

// validator collects the faults of one proposal.
type validator struct {
	limits *Limits
	at     int
	what   string
	// The first commitment at fault.
	first  int
	faults []string
	// The commitment or bet that the last fault names.
	named string
	// The spec seen last, and the shared copy of it.
	last, shared *Spec
	// The first new id, and once there are more all of them.
	new  CapsuleID
	seen map[CapsuleID]bool
	// The capsules that Stopped releases name; nil until there is one (besideReport).
	stopped map[CapsuleID]bool
	// The capsules that the proposal places and has not protected yet; nil until besidePlace fills it.
	placed map[CapsuleID]bool
	// A commitment is a Respec, so the capsules that are named twice are looked at.
	respecs bool
}

// noLimits stands for the limits of a ledger when a history is replayed. Then rules between commitments
// of one proposal are skipped, except that of [Protect]: they may be younger than the history.
var noLimits = Limits{
	Commitments: math.MaxInt, Preconditions: math.MaxInt, Capsules: math.MaxInt, GangMembers: math.MaxInt, IDBytes: math.MaxInt,
	SpecBytes: math.MaxInt, ValueBytes: math.MaxInt, NominationAging: math.MaxInt, Protect: math.MaxInt64,
}

// beside checks a commitment against the others of its proposal, if the commitment has a method for that.
func (v *validator) beside(all []Commitment, c Commitment) {
	if b, ok := c.(interface {
		beside(v *validator, all []Commitment)
	}); ok && isCommitment(c) {
		b.beside(v, all)
	}
}

// maxFaults is the number of faults that an error spells out.
const maxFaults = 16

// fail notes a fault of the commitment or bet being looked at. The first fault of each has its name in front, as in
// "commitment 3: ...".
func (v *validator) fail(format string, args ...any) {
	if len(v.faults) == 0 {
		v.first = v.at
		if v.what == "bet" {
			v.first = -1
		}
	}
	if len(v.faults) >= maxFaults {
		return
	}
	fault := fmt.Sprintf(format, args...)
	if name := fmt.Sprintf("%s %d: ", v.what, v.at); name != v.named {
		v.named, fault = name, name+fault
	}
	v.faults = append(v.faults, fault)
}

// failAll notes faults that a method such as Spec.faults has found.
func (v *validator) failAll(faults []string) {
	for _, f := range faults {
		v.fail("%s", f)
	}
}

// id checks a name that must not be empty.
func (v *validator) id(what, id string) {
	if id == "" {
		v.fail("empty %s", what)
	}
	v.text(what, id, v.limits.IDBytes)
}

// ref checks an id that refers to an existing record. It does not check for valid UTF-8: all records have valid ids, so
// an invalid one finds no record.
func (v *validator) ref(what, id string) {
	if id == "" || len(id) > v.limits.IDBytes {
		v.id(what, id)
	}
}

// text checks a string that may be empty.
func (v *validator) text(what, s string, limit int) {
	if len(s) > limit {
		v.fail("%s has %d bytes; this ledger takes %d", what, len(s), limit)
	}
	if !utf8.ValidString(s) {
		v.fail("%s %q is not valid UTF-8", what, s[:min(len(s), 64)])
	}
}

// bet checks one bet. A pointer to a bet is refused like an unknown type: its owner could change it after the ledger
// has accepted it.
func (v *validator) bet(bet Precondition) {
	switch bet := bet.(type) {
	case NodeFreeOf:
		v.ref("node id", string(bet.Node))
		for _, q := range bet.AtLeast {
			if q < 0 {
				v.failAll(bet.AtLeast.faults("at least"))
				return
			}
		}
	case GangUnplaced:
		v.ref("gang id", string(bet.Gang))
	case NodeAt:
		v.ref("node id", string(bet.Node))
	case GroupIn:
		v.id("group", bet.Group)
		v.id("level", bet.Level)
		v.id("domain", bet.Domain)
	case MarkAt:
		v.id("mark key", bet.Key)
	default:
		v.fail("%T is not a precondition; pass one of orbit's as a value, not a pointer", bet)
	}
}

// commitment checks one commitment and returns the form in which it is kept, nil if that is c itself.
func (v *validator) commitment(c Commitment) Commitment {
	if !isCommitment(c) {
		v.fail("%T is not a commitment; pass one of orbit's as a value, not a pointer", c)
		return nil
	}
	return c.check(v)
}

// capsuleIDs checks the ids of one Submit.
func (v *validator) capsuleIDs(ids []CapsuleID) {
	if len(ids) > v.limits.Capsules {
		v.fail("submit of %d capsules; this ledger takes %d at once", len(ids), v.limits.Capsules)
		return
	}
	for _, id := range ids {
		v.id("capsule id", string(id))
		v.once(id)
	}
}

// once checks that no id is submitted twice in one proposal.
func (v *validator) once(id CapsuleID) {
	switch {
	case v.new == "":
		v.new = id
		return
	case v.seen == nil:
		v.seen = map[CapsuleID]bool{v.new: true}
	}
	if v.seen[id] {
		v.fail("capsule id %q is submitted twice", id)
	}
	v.seen[id] = true
}

// labelsOf checks the labels of single capsules of a Submit, each with those that it shares with the others.
func (v *validator) labelsOf(c *Submit) {
	if len(c.LabelsOf) == 0 {
		return
	}
	unknown := maps.Clone(c.LabelsOf)
	for _, ids := range c.work {
		for _, id := range ids {
			if delete(unknown, id); len(c.LabelsOf[id]) > 0 {
				v.carried("submission", 0, c.labelsOf(id))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(unknown)) {
		v.fail("labels of capsule %q, which is not submitted here", id)
	}
}

// gang checks the form of a gang and replaces the specs of its roles by their shared copies.
func (v *validator) gang(g *Gang) {
	v.id("gang id", string(g.ID))
	v.failAll(g.faults())
	for _, level := range g.Levels {
		v.id("level", level)
	}
	for i := range g.Roles {
		r := &g.Roles[i]
		v.text("role name", r.Name, v.limits.IDBytes)
		v.capsuleIDs(r.Members)
		if r.Spec != nil {
			r.Spec = v.spec(r.Spec)
		}
	}
}

// spec checks a clone of a spec and returns the shared copy. Consecutive equal specs are looked up once.
func (v *validator) spec(s *Spec) *Spec {
	if s == v.last {
		return v.shared
	}
	before := len(v.faults)
	if n := s.size(); n > v.limits.SpecBytes {
		v.fail("spec has %d bytes of text; this ledger takes %d", n, v.limits.SpecBytes)
	}
	for _, name := range []string{s.Module, s.Group, s.Near.Group, s.Near.Level, s.Spread.Level, s.Start.Template, string(s.Start.Parent), string(s.Queue)} {
		v.text("name in spec", name, v.limits.IDBytes)
	}
	for _, group := range s.Groups {
		v.text("group", group, v.limits.IDBytes)
	}
	for _, word := range s.words() {
		v.text("word in spec", word, v.limits.SpecBytes)
	}
	v.failAll(s.faults())
	if s.torn() {
		v.fail("spec of module %q: %s", s.Module, tornSpec)
	}
	if len(v.faults) > before {
		return s
	}
	v.last, v.shared = s, s.interned()
	return v.shared
}

// carried checks the time and the labels that a commitment carries for readers; rules never read them.
func (v *validator) carried(what string, at Instant, labels map[string]string) {
	if at < 0 {
		v.fail("%s at %d ns before 1970", what, -at)
	}
	var few [16]string // so that few labels cost no allocation
	keys, size := few[:0], 0
	for key, value := range labels {
		keys = append(keys, key)
		size += len(key) + len(value)
	}
	slices.Sort(keys) // the same proposal always has the same error
	for _, key := range keys {
		v.id("label key", key)
		v.text("label value", labels[key], v.limits.SpecBytes)
	}
	if size > v.limits.SpecBytes {
		v.fail("labels have %d bytes; this ledger takes %d", size, v.limits.SpecBytes)
	}
}

// room checks the resources and devices that a hold takes, or a nomination claims, on one node.
func (v *validator) room(what string, room *Resources, devices DeviceSet, milli int) {
	v.failAll(room.faults("room"))
	if devices != 0 && (milli < 1 || milli > deviceMilli) || devices == 0 && milli != 0 {
		v.fail("%s of %d devices with %d milli each; it must be 1 to %d, or 0 without devices", what, devices.Len(), milli, deviceMilli)
	}
	if *room == (Resources{}) && devices == 0 {
		v.fail("%s of nothing", what)
	}
}

// ends checks the time at which a hold or nomination ends, and returns it in UTC, without a monotonic part.
func (v *validator) ends(what string, at time.Time) time.Time {
	at = at.UTC().Round(0)
	if year := at.Year(); at.IsZero() || year < 1 || year > lastYear {
		v.fail("%s must have an end, in the years 1 to %d", what, lastYear)
	}
	return at
}

// lastYear is the last year that the text form of a time can hold.
const lastYear = 9999
