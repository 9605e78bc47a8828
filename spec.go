package orbit

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"
)

// AppClass is the kind of service a capsule wants. With the module it decides which navigator owns it.
type AppClass uint8

// The application classes.
const (
	// LatencySensitive capsules are placed fast and spread, and are never starved.
	LatencySensitive AppClass = iota
	// BestEffort capsules take the capacity that is left.
	BestEffort
	// Batch capsules are placed for global throughput.
	Batch
	// GangClass capsules are members of gangs, placed together or not at all.
	GangClass
)

// String returns the name of the class.
func (c AppClass) String() string {
	if names := [...]string{"LatencySensitive", "BestEffort", "Batch", "Gang"}; int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("AppClass(%d)", uint8(c))
}

// Start is what a capsule starts from. Only a node's report tells whether it is there ([Report]), so navigators see to
// it, and no ledger.
type Start struct {
	// Template is the name under which nodes report the template.
	Template string `json:"template,omitempty"`
	// Volumes it opens, all of which must be on the node's disk.
	Volumes []string `json:"volumes,omitempty"`
	// Parent is the capsule it is forked from, on whose node it is placed. A fork that loses its node after its parent
	// is gone for good boots from the template, on any node.
	Parent CapsuleID `json:"parent,omitempty"`
	// CrossHost requires another node than the parent's.
	CrossHost bool `json:"crossHost,omitempty"`
}

// Spec is what a capsule asks for. All capsules alike share one: a ledger keeps a copy of its own, one for
// all equal specs, and hands that out. Treat what a ledger hands out as read-only.
type Spec struct {
	// Module is the name of the set of identical capsules that this one belongs to.
	Module string `json:"module,omitempty"`
	// Class selects the kind of navigator that places the capsule.
	Class AppClass `json:"class,omitempty"`
	// Priority orders capsules within one navigator: higher ones are planned first.
	Priority int32 `json:"priority,omitempty"`
	// Envelope is what the capsule takes of a node's resources.
	Envelope Envelope `json:"envelope"`
	// Devices is what the capsule takes of a node's devices; the zero value asks for none.
	Devices DeviceRequest `json:"devices"`
	// Require lists predicates that must all hold on the node. One with the Op "AnyOf" has alternatives.
	Require []Predicate `json:"require,omitempty"`
	// Tolerate lists what taints of a node do not keep the capsule off.
	Tolerate []Toleration `json:"tolerate,omitempty"`
	// Prefer lists preferences; nodes that match are better, but others remain possible.
	Prefer []Preference `json:"prefer,omitempty"`
	// Spread says over which failure domains placement engines spread the capsule, before anything that the score says: among the nodes that take it those come
	// first whose domain by Level has the fewest placed members of Group; without a Group, and without Names, the fewest capsules of the same spec. Domains that are
	// not among Names come last, if there are any, and so do nodes without the label. Names without a Group spread nothing: they are for the score alone. No ledger
	// judges it; [Even] is the rule that one keeps.
	Spread Domains `json:"spread"`
	// Group is the co-location group that the capsule is a member of; empty: none.
	Group string `json:"group,omitempty"`
	// Groups are further groups that the capsule is a member of, as much as of Group; at most 15. Of all its groups a ledger keeps that as Group
	// which Near names, if it names one, and the others here, in order and each once.
	Groups []string `json:"groups,omitempty"`
	// Near is the co-location that the capsule requires. Navigators assert it with a GroupIn bet; the ledger has no
	// rule for it.
	Near Near `json:"near"`
	// Apart lists groups whose members must not be placed in the capsule's domains; at most 16 rules.
	Apart []Apart `json:"apart,omitempty"`
	// Even lists groups that are spread over domains, within bounds; at most 16 rules.
	Even []Even `json:"even,omitempty"`
	// PreferCompany lists groups whose members make a node better or worse; at most 16. No ledger judges it.
	PreferCompany []Company `json:"preferCompany,omitempty"`
	// Extras are amounts that the capsule takes of what its node has beside Resources; at most 16.
	Extras []Extra `json:"extras,omitempty"`
	// Movable is the consent to moves: a proposal may take the capsule off its node and place it on another ([Evict]).
	Movable bool `json:"movable,omitempty"`
	// RunsAtMost is how long the capsule runs at most once it is placed, as far as is known; 0: unknown. It is not ended
	// for that: navigators read it to tell when its room will be free, and the ledger compares it only with what nominations lend.
	RunsAtMost time.Duration `json:"runsAtMost,omitempty"`
	// Backfills lets the capsule use room that is nominated for work of higher priority, if that lends it for at least RunsAtMost
	// ([Nominate.Lends]). It is the consent to be evicted for that work whatever budgets say: while the capsule is placed in such a place,
	// budgets count it as missing ([Capsule.Borrows]). It needs a RunsAtMost. Members of gangs cannot backfill, and what backfills cannot
	// be protected.
	Backfills bool `json:"backfills,omitempty"`
	// Start is what the capsule starts from, for navigators that use it; the ledger has no rule for it.
	Start Start `json:"start,omitzero"`

	// This very spec, once it is the copy that all equal specs share; only then is key set, what appendKey writes.
	self *Spec
	key  string
	// Require as text, if it has rules Even.
	require string
}

// Company is a wish about the company of a group, beside what the score says: each placed member of Group in the domain of a node by Level adds Weight to the
// value of the node, where lower is better. A positive weight prefers domains with fewer members, and so keeps apart and evens out; a negative one prefers to be
// near them. The unit is that of the score in use: with the default, score.Spread, each capsule that is already on a node adds 5, and a preference takes off its
// weight. A node without the label is in no domain, and nothing is added. Placement engines count with what their plan has done; ledgers judge nothing by it.
type Company struct {
	// Group is the group whose members are counted; the capsule itself need not be one.
	Group string `json:"group"`
	// Level is the label key of the domains; [NodeKey]: each node is a domain.
	Level string `json:"level"`
	// Weight is what each member adds, within ±1e100.
	Weight float64 `json:"weight"`
}

// Sums of so many weights stay finite, and so many predicates are judged fast: they are under a lock.
const (
	maxWeight     = 1e100
	maxPredicates = 256
	maxGroups     = 15
)

// faults says everything that is wrong with s.
func (s *Spec) faults() []string {
	out := s.Envelope.Reservation.faults("reservation")
	out = append(out, s.Envelope.Limit.faults("limit")...)
	out = append(append(append(out, s.Devices.faults()...), s.tolerationFaults()...), s.companyFaults()...)
	if s.Class > GangClass {
		out = append(out, fmt.Sprintf("unknown class %d", s.Class))
	}
	if s.RunsAtMost < 0 {
		out = append(out, fmt.Sprintf("runs at most %v; it must not be negative, and 0 says that it is unknown", s.RunsAtMost))
	}
	if s.Backfills && s.RunsAtMost == 0 {
		out = append(out, "backfills without saying how long it runs at most")
	}
	n := len(s.Prefer)
	for i := range s.Require {
		n += s.Require[i].count()
	}
	if n > maxPredicates {
		out = append(out, fmt.Sprintf("%d requirements and preferences; there can be %d", n, maxPredicates))
		return out
	}
	for _, p := range s.Require {
		out = append(out, p.faults()...)
	}
	for _, p := range s.Prefer {
		out = append(out, p.faults()...)
		if p.Op == "AnyOf" {
			out = append(out, fmt.Sprintf("preference %s: AnyOf is for requirements; prefer each term for itself", p.Predicate))
		}
		if !(math.Abs(p.Weight) <= maxWeight) { // NaN is not
			out = append(out, fmt.Sprintf("preference %s: weight is %v; it must be within ±%g", p.Predicate, p.Weight, maxWeight))
		}
	}
	if len(s.Spread.Names) > 0 && s.Spread.Level == "" {
		out = append(out, "spread names domains but no level")
	}
	if s.Spread.Level == NodeKey || s.Near.Level == NodeKey {
		out = append(out, fmt.Sprintf("%s is no label, so nodes have no domains by it; give them a label with their host name", NodeKey))
	}
	if (s.Near.Group == "") != (s.Near.Level == "") {
		out = append(out, "near needs both a group and a level")
	}
	if len(s.Groups) > maxGroups || slices.Contains(s.Groups, "") {
		out = append(out, fmt.Sprintf("%d further groups %.100q; there can be %d, each with a name", len(s.Groups), s.Groups, maxGroups))
	}
	if s.Start.CrossHost && s.Start.Parent == "" {
		out = append(out, "start crosses hosts without a parent to leave")
	}
	if slices.Contains(s.Start.Volumes, "") {
		out = append(out, "start names an empty volume")
	}
	return out
}

// words returns all text in s that may be long.
func (s *Spec) words() []string {
	out := slices.Concat(s.Spread.Names, s.Devices.Models, s.Start.Volumes, s.Groups, s.companyWords())
	for i := range s.Require {
		out = append(out, s.Require[i].words()...)
	}
	for i := range s.Prefer {
		out = append(out, s.Prefer[i].words()...)
	}
	for _, o := range s.Tolerate {
		out = append(out, o.Key, o.Value)
	}
	return out
}

// size is the number of bytes of text in s, for [Limits.SpecBytes].
func (s *Spec) size() int {
	n := len(s.Module) + len(s.Group) + len(s.Near.Group) + len(s.Near.Level) + len(s.Spread.Level) +
		len(s.Start.Template) + len(s.Start.Parent)
	for _, w := range s.words() {
		n += len(w) + 1
	}
	return n
}

// Equal specs share one copy in this process: the pointer identifies the class, and tables keyed by it are computed once for
// the class. The table holds its copies weakly: a class lives as long as a capsule, a
// snapshot or an engine knows it.
var classes = struct {
	sync.Mutex
	byKey map[string]weak.Pointer[Spec]
}{byKey: map[string]weak.Pointer[Spec]{}}

// interned returns the one copy of s, which is s itself if it is the first of its kind. It requires s to be a clone,
// and free of faults.
func (s *Spec) interned() *Spec {
	if s.Shared() {
		return s
	}
	var room [512]byte
	text := s.appendKey(room[:0])
	classes.Lock()
	defer classes.Unlock()
	if known := classes.byKey[string(text)].Value(); known != nil {
		return known
	}
	s.self, s.key = s, string(text)
	if len(s.Even) > 0 {
		s.require = s.requirements()
	}
	p := weak.Make(s)
	classes.byKey[s.key] = p
	runtime.AddCleanup(s, func(key string) { forget(key, p) }, s.key)
	return s
}

// appendKey writes down all of s, so that two specs have one key if and only if they are equal.
func (s *Spec) appendKey(b []byte) []byte {
	number := func(n int64) { b = binary.AppendVarint(b, n) }
	texts := func(list []string) { b = appendTexts(b, list...) }
	texts([]string{s.Module})
	for _, n := range []int64{int64(s.Class), int64(s.Priority), int64(s.RunsAtMost), int64(s.Devices.Count), int64(s.Devices.Milli)} {
		number(n)
	}
	for d := range Dimensions {
		number(s.Envelope.Reservation[d])
		number(s.Envelope.Limit[d])
	}
	texts(s.Devices.Models)
	number(int64(len(s.Require)))
	for i := range s.Require {
		b = s.Require[i].appendKey(b)
	}
	number(int64(len(s.Prefer)))
	for i := range s.Prefer {
		b = s.Prefer[i].appendKey(b)
		number(int64(math.Float64bits(s.Prefer[i].Weight)))
	}
	number(int64(len(s.Tolerate)))
	for _, o := range s.Tolerate {
		texts([]string{o.Key, o.Op, o.Value, o.Effect})
		number(int64(o.For))
	}
	texts(s.Spread.Names)
	texts(s.Start.Volumes)
	texts(s.Groups)
	texts([]string{s.Spread.Level, s.Group, s.Near.Group, s.Near.Level, s.Start.Template, string(s.Start.Parent)})
	number(int64(len(s.Apart)))
	for _, a := range s.Apart {
		texts([]string{a.Group, a.Level})
	}
	number(int64(len(s.Even)))
	for _, e := range s.Even {
		texts([]string{e.Group, e.Level})
		texts(e.Domains)
		number(int64(e.MaxSkew))
		number(int64(e.MinDomains))
	}
	number(int64(len(s.PreferCompany)))
	for _, c := range s.PreferCompany {
		texts([]string{c.Group, c.Level})
		number(int64(math.Float64bits(c.Weight)))
	}
	number(int64(len(s.Extras)))
	for _, x := range s.Extras {
		texts([]string{x.Name})
		number(x.Amount)
	}
	number(int64(btoi(s.Start.CrossHost) + 2*btoi(s.Movable) + 4*btoi(s.Backfills)))
	return b
}

// Share returns the one copy of all specs equal to s, as a ledger hands it out. It is for a navigator that plans with specs
// of its own making: a placement engine keeps what it computes for a spec that is shared, and nothing for any other. The
// error wraps [ErrInvalid] if s is a spec that no ledger takes.
func (s *Spec) Share() (*Spec, error) {
	if s.Shared() {
		return s, nil
	}
	if faults := s.faults(); len(faults) > 0 {
		return nil, invalidf("spec: %s", strings.Join(faults, "; "))
	}
	return s.clone().interned(), nil
}

// forget drops the entry of a class that is gone, unless it has come back meanwhile.
func forget(key string, gone weak.Pointer[Spec]) {
	classes.Lock()
	defer classes.Unlock()
	if classes.byKey[key] == gone {
		delete(classes.byKey, key)
	}
}

// Shared reports whether s is the one copy of all equal specs that ledgers hand out. It is never written to again, so
// the pointer stands for the class, and what is computed for it can be kept.
func (s *Spec) Shared() bool { return s.self == s }

// clone returns a copy in canonical form that shares nothing with s.
func (s *Spec) clone() *Spec {
	c := *s
	c.self, c.key, c.require = nil, "", ""
	c.Devices.Models = sorted(s.Devices.Models)
	c.Spread.Names = sorted(s.Spread.Names)
	c.Start.Volumes = sorted(s.Start.Volumes)
	if len(s.Groups) > 0 {
		c.Group, c.Groups = s.homeFirst()
	}
	c.Tolerate = slices.Clone(s.Tolerate)
	c.ownCompany()
	c.Require = make([]Predicate, len(s.Require))
	for i, p := range s.Require {
		c.Require[i] = p.canonical()
	}
	c.Prefer = make([]Preference, len(s.Prefer))
	for i, p := range s.Prefer {
		c.Prefer[i] = Preference{Predicate: p.canonical(), Weight: p.Weight}
	}
	return &c
}

// homeFirst divides the groups of a spec into the one that Near names, else Group, else the first, and the others.
func (s *Spec) homeFirst() (home string, others []string) {
	all := sorted(slices.Collect(s.MemberOf))
	home = cmp.Or(s.Group, all[0])
	if slices.Contains(all, s.Near.Group) {
		home = s.Near.Group
	}
	return home, slices.DeleteFunc(all, func(group string) bool { return group == home })
}

// MemberOf yields the groups that capsules of the spec are members of: Group and Groups.
func (s *Spec) MemberOf(yield func(group string) bool) {
	if s.Group != "" && !yield(s.Group) {
		return
	}
	for _, group := range s.Groups {
		if !yield(group) {
			return
		}
	}
}

// IsIn reports whether capsules of the spec are members of a group.
func (s *Spec) IsIn(group string) bool {
	return group != "" && (s.Group == group || slices.Contains(s.Groups, group))
}

// Adopt records that a capsule runs on a node already, no matter who has started it. What runs is a fact, so it is judged neither
// by room nor by requirements, nominations, budgets and the minimums of gangs; the node may be cordoned. Nothing new is admitted beside it that does
// not fit ([State.Overcommitted] shows what there is too much of). A restarted orchestrator proposes what its agents report.
//
// The id may be unknown; then Spec is needed, and Submit in the same proposal gives the capsule an owner, labels or a gang. Or it may be
// that of a pending capsule. It is refused for one that is placed, with the place: stop what runs twice, or release that
// placement in the same proposal. It is refused for one that has ended or still stops somewhere: stop that, or submit the id again.
// On a node that Confirms the capsule counts as begun. A navigator's plan may not hold an Adopt.
type Adopt struct {
	// Capsule is the capsule that runs.
	Capsule CapsuleID `json:"capsule"`
	// Spec is what it runs with; nil: the spec of the pending capsule. That of a pending capsule is replaced by it.
	Spec *Spec `json:"spec,omitempty"`
	// Node is the node on which it runs, which must not be Lost.
	Node NodeID `json:"node"`
	// Devices are the device instances that it uses there, as many as the spec asks for; they may be unhealthy or taken.
	Devices DeviceSet `json:"devices,omitempty"`
	// Note is kept with the placement, as Place.Note.
	Note string `json:"note,omitempty"`
	// At is when it was started, by the clock of the one who says so; 0: unknown.
	At Instant `json:"at,omitempty"`
}

func (Adopt) commitment() {}
