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

// AppClass is the kind of service that a capsule needs. Class and module together decide which navigator plans the
// capsule.
type AppClass uint8

// The application classes.
const (
	// LatencySensitive capsules are placed fast and spread. If small work takes each bit of free capacity, larger ones
	// may wait for ever, unless a nav.Patient nominates room for them.
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

// Start names what a capsule starts from: a template, volumes, a parent. Whether a node has these only its report says
// ([Report]). So navigators check Start, and ledgers do not.
type Start struct {
	// Template is the name under which nodes report the template.
	Template string `json:"template,omitempty"`
	// Volumes are the names of the volumes that the capsule opens. All of them must be on the node's disk.
	Volumes []string `json:"volumes,omitempty"`
	// Parent is the capsule from which this one is forked. The fork is placed on the node of its parent. A fork that
	// loses its node after its parent has been released for good boots from the template, on any node.
	Parent CapsuleID `json:"parent,omitempty"`
	// CrossHost requires a node other than the parent's.
	CrossHost bool `json:"crossHost,omitempty"`
}

// Spec describes what a capsule asks for. Equal capsules share one spec: a ledger keeps its own copy, one for all equal
// specs, and returns that copy. Treat the specs that a ledger returns as read-only.
type Spec struct {
	// Module is the name of the set of identical capsules to which this one belongs.
	Module string `json:"module,omitempty"`
	// Class selects the kind of navigator that places the capsule.
	Class AppClass `json:"class,omitempty"`
	// Priority orders capsules within one navigator: higher ones are planned first.
	Priority int32 `json:"priority,omitempty"`
	// Envelope is the amount of a node's resources that the capsule reserves.
	Envelope Envelope `json:"envelope"`
	// Devices is the request for a node's devices; the zero value asks for none.
	Devices DeviceRequest `json:"devices"`
	// Require lists predicates that must all hold on the node. One with the Op "AnyOf" has alternatives.
	Require []Predicate `json:"require,omitempty"`
	// Tolerate lists tolerations: taints of a node that match one of them do not keep the capsule off the node.
	Tolerate []Toleration `json:"tolerate,omitempty"`
	// Prefer lists preferences. A node that matches scores better with score.Spread or score.Preferences, while a score of
	// one's own may ignore it; a node that does not match remains possible. One with the Op "AnyOf" has alternatives, each of
	// which is a conjunction.
	Prefer []Preference `json:"prefer,omitempty"`
	// Spread names the failure domains over which placement engines spread the capsule. It comes before the score:
	// among the nodes that fit, an engine takes one whose domain by Level has the fewest placed members of Group. Without
	// a Group it counts capsules of the same spec instead. If there are Names, other domains come last, and so do nodes
	// without the label. If the label is missing on all nodes, nothing is spread; the note "unspread" of a round counts
	// such choices. No ledger enforces Spread; [Even] is the rule that ledgers enforce.
	Spread Domains `json:"spread"`
	// Group is the co-location group of which the capsule is a member; empty: none.
	Group string `json:"group,omitempty"`
	// Groups are further groups of which the capsule is a member, with the same effect as Group; at most 15. A ledger
	// stores the group that Near names as Group, if the capsule is a member of it. It stores the other groups here,
	// sorted and without repetition.
	Groups []string `json:"groups,omitempty"`
	// Near is the co-location that the capsule requires; the zero value requires none. Navigators start no group by it:
	// nav.Anchor does, in a domain that takes all members.
	Near Near `json:"near"`
	// Nears are further co-locations, which must all hold; at most 15. A navigator places the first member of a group
	// that is near its own group by one of these anywhere. If Near is the zero value, a ledger stores one of them as
	// Near: one by a label, and if possible one that names a group of the capsule. It stores the others here, sorted and
	// without repetition.
	Nears []Near `json:"nears,omitempty"`
	// Apart lists anti-affinity rules: no member of the group may be placed in the capsule's domain. At most 16 rules.
	Apart []Apart `json:"apart,omitempty"`
	// Even lists rules that spread a group evenly over domains, within a maximum skew. At most 16 rules.
	Even []Even `json:"even,omitempty"`
	// PreferCompany lists groups whose members make a node better or worse for the capsule; at most 16. No ledger
	// enforces it.
	PreferCompany []Company `json:"preferCompany,omitempty"`
	// Extras are the amounts that the capsule takes of a node's extra resources ([Node.Extras]), which are not among
	// Resources; at most 16.
	Extras []Extra `json:"extras,omitempty"`
	// Movable permits moves: a proposal may take the capsule off its node if it places the capsule on another node
	// ([Evict]).
	Movable bool `json:"movable,omitempty"`
	// Surge permits surges ([Evict].Surge): for the time of a move a second instance runs under the capsule's id, on another
	// node. It is for services that cannot miss a member, and that have no volume and no address that only one may have.
	Surge bool `json:"surge,omitempty"`
	// Ends says that a capsule ends when it is taken off the node on which it runs, as a pod does: it does not return to
	// pending, and nothing is evicted for it. That holds for an [Evict] to make way, for a [Release] from a node that is
	// Cordoned or Lost, and for a node that has gone ([RemoveNode]). It does not hold for a capsule that its node's agent has
	// not let begin yet ([Capsule.Begun]): nothing has run, so it is pending again; and neither for Release.Stopped. A move
	// is no end, but needs Movable; no other consent suffices. Who controls the capsule submits another one in its place.
	Ends bool `json:"ends,omitempty"`
	// RunsAtMost is the longest time that the capsule runs once it is placed, as far as it is known; 0: unknown.
	// Nothing ends the capsule when that time is over. Navigators use it to predict when capacity becomes free. The
	// ledger only compares it with the time for which nominations lend their room.
	RunsAtMost time.Duration `json:"runsAtMost,omitempty"`
	// Backfills lets the capsule borrow room that is nominated for work of higher priority, if the nomination lends it
	// for at least RunsAtMost ([Nominate.Lends]). The capsule thereby consents to be evicted for that work, whatever
	// budgets say: while it borrows ([Capsule.Borrows]), budgets count it as missing. Backfills needs a RunsAtMost.
	// Members of gangs cannot backfill, and a capsule that backfills cannot be protected.
	Backfills bool `json:"backfills,omitempty"`
	// Attempts is how many times the capsule may fail ([Release.Stopped]) before it has ended; 0: it is tried for ever. A
	// ledger commits the failure that reaches the number as a final release, so the capsule is not placed again. It
	// counts as [Failures.Attempts] does: since the submission, however long the capsule has run in between.
	Attempts int `json:"attempts,omitempty"`
	// Queue is the queue that the capsule is charged to while it is placed ([Queue]); empty: it is counted in none. A [Submit] or
	// [Respec] that names a queue that does not exist is refused. An [Adopt] is not: the capsule is counted as soon as
	// the queue exists.
	Queue QueueID `json:"queue,omitempty"`
	// Start names what the capsule starts from, for navigators that read it; ledgers have no rule for it.
	Start Start `json:"start,omitzero"`

	// The spec itself, once it is the copy that all equal specs share; else nil. Only a shared spec has a key, see
	// appendKey.
	self *Spec
	key  string
	// The text forms of Require and Tolerate, if the spec has rules Even.
	require, tolerate string
}

// Company is a preference about the members of a group, in addition to the score. Each placed member of Group in a
// node's domain by Level adds Weight to the value of the node; lower values are better. So a positive weight prefers
// domains with fewer members, and spreads; a negative weight attracts. The unit is that of the score in use. With the
// default score.Spread, each capsule that is already on a node adds 5, and a matching preference subtracts its weight.
// A node without the label is in no domain, and nothing is added. Placement engines count the placements of their own
// plan as well. Ledgers ignore Company.
type Company struct {
	// Group is the group whose members are counted; the capsule itself need not be a member.
	Group string `json:"group"`
	// Level is the label key of the domains; [NodeKey]: each node is a domain.
	Level string `json:"level"`
	// Weight is the amount that each member adds, within ±1e100.
	Weight float64 `json:"weight"`
}

// With these limits, sums of weights stay finite, and the predicates of a spec are judged fast; the ledger judges them
// under its lock.
const (
	maxWeight     = 1e100
	maxPredicates = 256
	maxGroups     = 15
)

// faults returns everything that is wrong with s, one text for each fault.
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
	if s.Attempts < 0 {
		out = append(out, fmt.Sprintf("%d attempts; it must not be negative, and 0 says that there is no limit", s.Attempts))
	}
	if s.Backfills && s.RunsAtMost == 0 {
		out = append(out, "backfills without saying how long it runs at most")
	}
	n := 0
	for i := range s.Require {
		n += s.Require[i].count()
	}
	for i := range s.Prefer {
		n += s.Prefer[i].count()
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
		if !(math.Abs(p.Weight) <= maxWeight) { // NaN is not
			out = append(out, fmt.Sprintf("preference %s: weight is %v; it must be within ±%g", p.Predicate, p.Weight, maxWeight))
		}
	}
	if len(s.Spread.Names) > 0 && s.Spread.Level == "" {
		out = append(out, "spread names domains but no level")
	}
	if s.Spread.Level == NodeKey {
		out = append(out, fmt.Sprintf("%s is no label, so nodes have no domains by it; give them a label with their host name", NodeKey))
	}
	if len(s.Nears) > maxGroups || s.Near != (Near{}) && s.Near.lacks() || slices.ContainsFunc(s.Nears, Near.lacks) {
		out = append(out, fmt.Sprintf("near needs both a group and a level, and there can be %d further ones", maxGroups))
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

// words returns the texts of s whose length has no limit of its own.
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

// size returns the number of bytes of text in s, for [Limits.SpecBytes].
func (s *Spec) size() int {
	n := len(s.Module) + len(s.Group) + len(s.Near.Group) + len(s.Near.Level) + len(s.Spread.Level) +
		len(s.Start.Template) + len(s.Start.Parent) + len(s.Queue)
	for _, w := range s.words() {
		n += len(w) + 1
	}
	return n
}

// classes holds the one copy of each spec in this process, by key. The pointer to it identifies the equivalence class,
// so tables keyed by the pointer are computed once for the class. The references are weak: a spec is collected when no
// capsule, snapshot or engine refers to it.
var classes = struct {
	sync.Mutex
	byKey map[string]weak.Pointer[Spec]
}{byKey: map[string]weak.Pointer[Spec]{}}

// interned returns the shared copy of s. That is s itself if no equal spec is known yet. s must be a clone without
// faults.
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
		s.require, s.tolerate = s.requirements(), s.tolerations()
	}
	p := weak.Make(s)
	classes.byKey[s.key] = p
	runtime.AddCleanup(s, func(key string) { forget(key, p) }, s.key)
	return s
}

// appendKey appends an encoding of all fields of s. Two specs have the same key if and only if they are equal.
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
	b = s.appendTolerations(b)
	texts(s.Spread.Names)
	texts(s.Start.Volumes)
	texts(s.Groups)
	texts([]string{s.Spread.Level, s.Group, s.Near.Group, s.Near.Level, s.Start.Template, string(s.Start.Parent)})
	number(int64(len(s.Apart)))
	for _, a := range s.Apart {
		texts([]string{a.Group, a.Level})
		number(int64(btoi(a.Labelled)))
	}
	number(int64(len(s.Even)))
	for _, e := range s.Even {
		texts([]string{e.Group, e.Level})
		texts(e.Domains)
		number(int64(e.MaxSkew))
		number(int64(e.MinDomains))
		number(int64(btoi(e.HonorTaints) + 2*btoi(e.IgnoreRequire)))
	}
	number(int64(len(s.Nears)))
	for _, r := range s.Nears {
		texts([]string{r.Group, r.Level})
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
	number(int64(btoi(s.Start.CrossHost) + 2*btoi(s.Movable) + 4*btoi(s.Backfills) + 8*btoi(s.Ends) + 16*btoi(s.Surge)))
	number(int64(s.Attempts))
	texts([]string{string(s.Queue)})
	return b
}

// Clone returns a copy that shares no memory with s and is not [Spec.Shared]. Its lists are in the order in which ledgers
// keep them. To submit a changed spec of a [Capsule], change a Clone. A plain copy (*s) still has the lists of all
// capsules of that spec. A ledger refuses a plain copy through which these lists were changed.
func (s *Spec) Clone() *Spec {
	c := s.clone()
	c.self = nil
	return c
}

// torn reports whether s is a plain copy of a shared spec whose lists were changed, through this copy or another.
func (s *Spec) torn() bool {
	return s.self != nil && s.self != s && !s.self.intact()
}

// intact reports whether a shared spec is as it was when it became one.
func (s *Spec) intact() bool { return string(s.appendKey(nil)) == s.key }

// tornSpec says what is wrong with a torn spec.
const tornSpec = "it is a plain copy of a spec of the ledger, and lists that both have were changed; " +
	"so now all capsules of that spec ask for something else, and the ledger has to be opened anew; change a Spec.Clone"

// Share returns the shared copy of all specs equal to s, as a ledger returns it. Use it in a navigator that plans with
// specs of its own: a placement engine keeps what it computes for a shared spec, and nothing for any other. The error
// wraps [ErrInvalid] if s is a spec that every ledger refuses.
func (s *Spec) Share() (*Spec, error) {
	if s.Shared() {
		return s, nil
	}
	if s.torn() {
		return nil, invalidf("spec: %s", tornSpec)
	}
	if faults := s.faults(); len(faults) > 0 {
		return nil, invalidf("spec: %s", strings.Join(faults, "; "))
	}
	return s.clone().interned(), nil
}

// equals reports whether s equals a shared spec.
func (s *Spec) equals(shared *Spec) bool {
	if s.Shared() {
		return s == shared
	}
	var room [512]byte
	return string(s.appendKey(room[:0])) == shared.key
}

// forget deletes the entry of a spec that has been collected, unless an equal spec has been interned since.
func forget(key string, gone weak.Pointer[Spec]) {
	classes.Lock()
	defer classes.Unlock()
	if classes.byKey[key] == gone {
		delete(classes.byKey, key)
	}
}

// Shared reports whether s is the shared copy of all equal specs, which ledgers return. A shared spec is never written
// to, so the pointer stands for the class, and results that are computed for it can be kept.
func (s *Spec) Shared() bool { return s.self == s }

// clone returns a copy in canonical form that shares nothing with s. The copy of a plain copy of a shared spec still
// refers to that, so that it can be asked whether it is torn.
func (s *Spec) clone() *Spec {
	c := *s
	if c.key, c.require, c.tolerate = "", "", ""; s.Shared() {
		c.self = nil
	}
	c.Devices.Models = sorted(s.Devices.Models)
	c.Spread.Names = sorted(s.Spread.Names)
	c.Start.Volumes = sorted(s.Start.Volumes)
	if len(s.Nears) > 0 {
		c.Near, c.Nears = s.nearFirst()
	}
	if len(s.Groups) > 0 {
		c.Group, c.Groups = c.homeFirst()
	}
	c.Tolerate = cloned(s.Tolerate)
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

// homeFirst chooses the group that is stored as Group: the one that Near names if the capsule is a member of it, else
// Group, else the first in order. It returns the others sorted.
func (s *Spec) homeFirst() (home string, others []string) {
	all := sorted(slices.Collect(s.MemberOf))
	home = cmp.Or(s.Group, all[0])
	if slices.Contains(all, s.Near.Group) {
		home = s.Near.Group
	}
	return home, slices.Clip(slices.DeleteFunc(all, func(group string) bool { return group == home }))
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

// memberships yields the groups and the module that capsules of the spec are members of.
func (s *Spec) memberships(yield func(memberSet) bool) {
	for group := range s.MemberOf {
		if !yield(memberSet{false, group}) {
			return
		}
	}
	if s.Module != "" {
		yield(memberSet{true, s.Module})
	}
}

// membersBeyond returns a spec that is a member of what s is a member of and o is not, and has nothing else.
func (s *Spec) membersBeyond(o *Spec) *Spec {
	out := &Spec{}
	for of := range s.memberships {
		switch {
		case o.isMember(of):
		case of.module:
			out.Module = of.name
		default:
			out.Groups = append(out.Groups, of.name)
		}
	}
	return out
}

// isMember reports whether capsules of the spec are members.
func (s *Spec) isMember(of memberSet) bool {
	if of.module {
		return s.Module == of.name
	}
	return s.IsIn(of.name)
}

// SpreadsAcross reports whether the node is in one of the failure domains that the spec names.
func (s *Spec) SpreadsAcross(n *Node) bool {
	if len(s.Spread.Names) == 0 {
		return false
	}
	domain, ok := n.Labels[s.Spread.Level]
	if !ok {
		return false
	}
	for _, name := range s.Spread.Names {
		if name == domain {
			return true
		}
	}
	return false
}

// ask returns the ask of a capsule of the spec on these devices. The nomination is that of the capsule or its gang, or
// nil.
func (s *Spec) ask(devices DeviceSet, nominated *Nomination) ask {
	return ask{room: &s.Envelope.Reservation, devices: devices, milli: s.Devices.Milli, priority: s.Priority, nomination: nominated, of: s}
}

// Tolerates reports whether a toleration of the spec covers a taint.
func (s *Spec) Tolerates(t *Taint) bool {
	return slices.ContainsFunc(s.Tolerate, func(o Toleration) bool { return o.covers(t) })
}

// Withstands returns the time that a capsule of the spec stays on a node that gets the taint: the longest time of all
// tolerations that match the taint, 0 if none matches; or forever.
func (s *Spec) Withstands(t *Taint) (lasts time.Duration, forever bool) {
	for i := range s.Tolerate {
		if o := &s.Tolerate[i]; o.covers(t) {
			lasts, forever = max(lasts, o.For), forever || o.For == 0
		}
	}
	return lasts, forever
}

// tolerationFaults returns what is wrong with the tolerations of a spec.
func (s *Spec) tolerationFaults() (out []string) {
	if len(s.Tolerate) > maxTaints {
		return []string{fmt.Sprintf("%d tolerations; there can be %d", len(s.Tolerate), maxTaints)}
	}
	for _, o := range s.Tolerate {
		equal := o.Op == "" || o.Op == "Equal"
		if !equal && o.Op != "Exists" || equal && o.Key == "" || !equal && o.Value != "" || o.Effect != "" && !slices.Contains(taintEffects, o.Effect) ||
			o.For < 0 || o.For > 0 && o.Effect != "NoExecute" {
			out = append(out, fmt.Sprintf("toleration %.200q: its Op must be Equal, with a key, or Exists, without a value; its effect one of a taint, or empty; and For is not below 0, and 0 but for NoExecute", fmt.Sprint(o)))
		}
	}
	return out
}

// requirements returns Require as text; equal requirements have equal texts.
func (s *Spec) requirements() string {
	if s.require != "" {
		return s.require
	}
	var b []byte
	for i := range s.Require {
		b = s.Require[i].appendKey(b)
	}
	return string(b)
}

// tolerations returns Tolerate as text, which is never empty; equal tolerations have equal texts.
func (s *Spec) tolerations() string {
	if s.tolerate != "" {
		return s.tolerate
	}
	return string(s.appendTolerations(nil))
}

// appendTolerations appends an encoding of Tolerate.
func (s *Spec) appendTolerations(b []byte) []byte {
	b = binary.AppendVarint(b, int64(len(s.Tolerate)))
	for _, o := range s.Tolerate {
		b = appendTexts(b, o.Key, o.Op, o.Value, o.Effect)
		b = binary.AppendVarint(b, int64(o.For))
	}
	return b
}

// modelOn returns the model of the devices that a capsule of the spec gets on a node; empty: it asks for none.
func (s *Spec) modelOn(n *Node) string {
	if s.Devices.Count == 0 {
		return ""
	}
	return n.Devices.Model
}

// charges yields the resources that a capsule of the spec takes with devices of a model, and how much of each; with no model,
// without its devices.
func (s *Spec) charges(model string) func(func(resource, int64) bool) {
	return func(yield func(resource, int64) bool) {
		for d, x := range s.Envelope.Reservation {
			if x > 0 && !yield(resource{d: d}, x) {
				return
			}
		}
		if s.Devices.Count > 0 && model != "" && !yield(resource{name: devicePrefix + model}, int64(s.Devices.Count)*int64(s.Devices.Milli)) {
			return
		}
		for _, x := range s.Extras {
			if !yield(resource{name: extraPrefix + x.Name}, x.Amount) {
				return
			}
		}
	}
}
