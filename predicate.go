package orbit

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Predicate is a condition on a node's labels or, under the key [NodeKey], on its id. Operators, spelled as here, and their
// meaning are those of Kubernetes' node selector terms:
//
//	In            the label is there and is one of Values
//	NotIn         the label is absent, or is none of Values
//	Exists        the label is there
//	DoesNotExist  the label is absent
//	Gt, Lt        the label is there, is an integer, and is greater (less) than the one integer in Values
//	AnyOf         all predicates of at least one of Terms hold; Key and Values are empty
type Predicate struct {
	// Key is the label key, or NodeKey.
	Key string `json:"key"`
	// Op is the operator that compares the label's value with Values.
	Op string `json:"op"`
	// Values are the operands of Op.
	Values []string `json:"values,omitempty"`
	// Terms are the alternatives of AnyOf: each is a list of predicates that must all hold. They contain no AnyOf themselves.
	Terms [][]Predicate `json:"terms,omitempty"`
}

// NodeKey is the key under which a [Predicate] means a node's id: {Key: NodeKey, Op: "In", Values: {"node-a"}} holds on node-a
// alone. A label with this key is not read by predicates.
const NodeKey = "orbit/node"

// Preference is a preference for nodes that match the predicate. A match improves a node's value by Weight, in the
// units of the score. With score.Spread a weight of 5 makes up for one more capsule on the node.
type Preference struct {
	Predicate
	// Weight is the value of a match, in the units of the score.
	Weight float64 `json:"weight"`
}

// Domains names topology domains: the values Names of the label Level (rack, block, zone, ...).
type Domains struct {
	// Level is the label key of the domains.
	Level string `json:"level,omitempty"`
	// Names are the label values of the domains.
	Names []string `json:"names,omitempty"`
}

// Near requires placement in a domain of the label Level in which a member of Group runs.
type Near struct {
	// Group is a co-location group: a member of it must run in the domain.
	Group string `json:"group,omitempty"`
	// Level is the label key of the domain.
	Level string `json:"level,omitempty"`
}

// Matches reports whether a node of unknown id with these labels satisfies p. A malformed predicate matches nothing.
func (p Predicate) Matches(labels map[string]string) bool { return p.holds(labels, "") }

// On reports whether a node satisfies p. A malformed predicate matches nothing.
func (p Predicate) On(n *Node) bool { return p.holds(n.Labels, n.ID) }

// Keys yields the keys that p reads; a key may come more than once.
func (p Predicate) Keys(yield func(key string) bool) {
	if p.Op != "AnyOf" {
		yield(p.Key)
		return
	}
	for _, term := range p.Terms {
		for i := range term {
			if !yield(term[i].Key) {
				return
			}
		}
	}
}

// holds reports whether labels and a node id satisfy p; an empty id means that the id is unknown.
func (p *Predicate) holds(labels map[string]string, id NodeID) bool {
	value, there := labels[p.Key]
	if p.Key == NodeKey {
		value, there = string(id), id != ""
	}
	switch p.Op {
	case "AnyOf":
		for _, term := range p.Terms {
			if allHold(term, labels, id) {
				return true
			}
		}
		return false
	case "In":
		return there && slices.Contains(p.Values, value)
	case "NotIn":
		return !there || !slices.Contains(p.Values, value)
	case "Exists":
		return there
	case "DoesNotExist":
		return !there
	case "Gt", "Lt":
		return there && len(p.Values) == 1 && compares(p.Op, value, p.Values[0])
	}
	return false
}

// allHold reports whether labels and a node id satisfy all predicates of a term. The term must not be empty or have
// terms itself.
func allHold(term []Predicate, labels map[string]string, id NodeID) bool {
	for i := range term {
		if term[i].Op == "AnyOf" || !term[i].holds(labels, id) {
			return false
		}
	}
	return len(term) > 0
}

// compares compares a label with a bound as integers. It reports false if the label is not an integer.
func compares(op, label, bound string) bool {
	a, errA := strconv.ParseInt(label, 10, 64)
	b, errB := strconv.ParseInt(bound, 10, 64)
	if errA != nil || errB != nil {
		return false
	}
	return (op == "Gt" && a > b) || (op == "Lt" && a < b)
}

// canonical returns a copy of p in canonical form: values are sorted, values that form a set have no repetition, and
// numbers are in plain decimal form.
func (p Predicate) canonical() Predicate {
	p.Values = cloned(p.Values)
	p.Terms = cloned(p.Terms)
	for i, term := range p.Terms {
		p.Terms[i] = cloned(term)
		for k := range term {
			p.Terms[i][k] = term[k].canonical()
		}
	}
	if n, err := p.bound(); err == nil {
		p.Values[0] = strconv.FormatInt(n, 10)
	}
	slices.Sort(p.Values)
	if p.Op != "Gt" && p.Op != "Lt" { // which take exactly one, and are wrong with two
		p.Values = slices.Clip(slices.Compact(p.Values))
	}
	return p
}

// bound returns the integer operand of Gt and Lt.
func (p Predicate) bound() (int64, error) {
	if (p.Op != "Gt" && p.Op != "Lt") || len(p.Values) != 1 {
		return 0, fmt.Errorf("%s has no bound", p.Op)
	}
	return strconv.ParseInt(p.Values[0], 10, 64)
}

// faults returns what is wrong with p; nothing if p is well formed.
func (p Predicate) faults() []string {
	var out []string
	if p.Op == "AnyOf" {
		return p.faultsOfTerms()
	}
	if p.Key == "" {
		out = append(out, "predicate without a key")
	}
	if len(p.Terms) > 0 {
		out = append(out, fmt.Sprintf("predicate on %q: %s takes no terms; AnyOf does", p.Key, p.Op))
	}
	switch p.Op {
	case "In", "NotIn":
		if len(p.Values) == 0 {
			out = append(out, fmt.Sprintf("predicate on %q: %s needs at least one value", p.Key, p.Op))
		}
	case "Exists", "DoesNotExist":
		if len(p.Values) != 0 {
			out = append(out, fmt.Sprintf("predicate on %q: %s takes no values", p.Key, p.Op))
		}
	case "Gt", "Lt":
		if _, err := p.bound(); err != nil {
			out = append(out, fmt.Sprintf("predicate on %q: %s needs exactly one integer, not %q", p.Key, p.Op, p.Values))
		}
	default:
		out = append(out, fmt.Sprintf("predicate on %q: unknown operator %q; use In, NotIn, Exists, DoesNotExist, Gt, Lt or AnyOf", p.Key, p.Op))
	}
	return out
}

// faultsOfTerms is faults for AnyOf.
func (p Predicate) faultsOfTerms() (out []string) {
	if p.Key != "" || len(p.Values) > 0 || len(p.Terms) == 0 {
		out = append(out, fmt.Sprintf("AnyOf on key %q with %d values and %d terms; it takes terms, at least one, and neither key nor values", p.Key, len(p.Values), len(p.Terms)))
	}
	for i, term := range p.Terms {
		if len(term) == 0 {
			out = append(out, fmt.Sprintf("term %d of AnyOf is empty, which no node meets", i))
		}
		for k := range term {
			if term[k].Op == "AnyOf" {
				out = append(out, fmt.Sprintf("term %d of AnyOf has an AnyOf within; write each alternative as a term of its own", i))
				continue
			}
			out = append(out, term[k].faults()...)
		}
	}
	return out
}

// count returns the number of conditions in p.
func (p *Predicate) count() int {
	n := 1
	for _, term := range p.Terms {
		n += len(term)
	}
	return n
}

// words returns the texts of p whose length has no limit of its own.
func (p *Predicate) words() []string {
	out := append([]string{p.Key}, p.Values...)
	for _, term := range p.Terms {
		for i := range term {
			out = append(out, term[i].words()...)
		}
	}
	return out
}

// Taint keeps capsules that do not tolerate it off a node ([Spec.Tolerate]); capsules that tolerate it may be placed
// there. Capsules that run on the node when it gets the taint keep running.
type Taint struct {
	// Key names the taint.
	Key string `json:"key"`
	// Value qualifies the key, as in "gpu" for the key "reserved".
	Value string `json:"value,omitempty"`
	// Effect is the effect on capsules that do not tolerate the taint. "NoSchedule": they are not placed on the node.
	// "PreferNoSchedule": score.Spread places them elsewhere if that is not much worse. "NoExecute": they are not
	// placed on the node, and those that run there may be moved away ([Evict]), as nav.Drain does; a capsule that
	// tolerates the taint for some time ([Toleration.For]) may be moved after that time.
	Effect string `json:"effect"`
}

// Toleration permits the placement of a capsule on nodes with matching taints.
type Toleration struct {
	// Key is the key of the tolerated taints; empty: all keys, and then Op must be "Exists".
	Key string `json:"key,omitempty"`
	// Op is "Equal", which is the default, for taints with this Value, or "Exists" for taints of any value.
	Op string `json:"op,omitempty"`
	// Value is the value of the taints, for "Equal".
	Value string `json:"value,omitempty"`
	// Effect is the effect that is tolerated; empty: any.
	Effect string `json:"effect,omitempty"`
	// For is the time that a capsule stays on a node that gets a NoExecute taint before it may be moved away; 0: for
	// ever. It requires the Effect "NoExecute". Placements ignore it. No rule of a ledger reads a clock, so the program
	// that moves the capsule measures the time, as nav.Drain does.
	For time.Duration `json:"for,omitempty"`
}

// covers reports whether the toleration matches a taint.
func (o *Toleration) covers(t *Taint) bool {
	return (o.Key == "" || o.Key == t.Key) && (o.Op == "Exists" || o.Value == t.Value) && (o.Effect == "" || o.Effect == t.Effect)
}

// taintEffects are the valid effects.
var taintEffects = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}

// maxTaints is the maximum number of taints of a node, and of tolerations of a spec.
const maxTaints = 64

// String returns the taint as in "reserved=gpu:NoSchedule".
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
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

// Admits reports whether the spec tolerates all taints of the node that forbid placements.
func (n *Node) Admits(s *Spec) bool { return n.keptOff(s) == nil }

// keptOff returns the first taint that forbids placements of the spec on the node; nil: there is none.
func (n *Node) keptOff(s *Spec) *Taint {
	for i := range n.Taints {
		if t := &n.Taints[i]; t.Effect != "PreferNoSchedule" && !s.Tolerates(t) {
			return t
		}
	}
	return nil
}

// Shuns returns the number of taints of the node that capsules of the spec should avoid (PreferNoSchedule).
func (n *Node) Shuns(s *Spec) (count int) {
	for i := range n.Taints {
		if t := &n.Taints[i]; t.Effect == "PreferNoSchedule" && !s.Tolerates(t) {
			count++
		}
	}
	return count
}

// expels reports whether the node has a taint because of which running capsules of the spec may be moved away.
func (n *Node) expels(s *Spec) bool {
	for i := range n.Taints {
		if _, forever := s.Withstands(&n.Taints[i]); n.Taints[i].Effect == "NoExecute" && !forever {
			return true
		}
	}
	return false
}

// keeps reports whether the condition and the taints of the node give no reason to move capsules of the spec away.
func (n *Node) keeps(s *Spec) bool { return n.Schedulable() && !n.expels(s) }

// taintFaults returns what is wrong with the taints of a node.
func (n *Node) taintFaults() (out []string) {
	if len(n.Taints) > maxTaints {
		return []string{fmt.Sprintf("%d taints; there can be %d", len(n.Taints), maxTaints)}
	}
	for _, t := range n.Taints {
		if t.Key == "" || !slices.Contains(taintEffects, t.Effect) {
			out = append(out, fmt.Sprintf("taint %.100q: it needs a key, and the effect must be NoSchedule, PreferNoSchedule or NoExecute", t.String()))
		}
	}
	return out
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

// nearby is the set of domains in which a spec may be placed because a member of its Near group is there.
type nearby struct {
	near    Near
	domains map[string]bool
	// The text that missing has returned; it is computed once.
	text string
}

// has reports whether a node is in one of the domains. If the spec has no Near, every node is.
func (p *nearby) has(n *Node) bool {
	if p == nil {
		return true
	}
	domain, ok := n.Labels[p.near.Level]
	return ok && p.domains[domain]
}

// misfit returns the reason why a node has no member of the required group in its domain; the zero value: it has one.
func (p *nearby) misfit(n *NodeState) Misfit {
	if p.has(n.Node) {
		return Misfit{}
	}
	return Misfit{Why: p.missing()}
}

// missing returns the text for a node outside the domains.
func (p *nearby) missing() string {
	if p.text != "" {
		return p.text
	}
	switch in := slices.Sorted(maps.Keys(p.domains)); {
	case len(in) == 0:
		p.text = "wait for group " + quoteWord(p.near.Group) + ", of which nothing is placed"
	default:
		p.text = "are in no " + p.near.Level + " of group " + quoteWord(p.near.Group) + " (" + joinWords(in[:min(len(in), 5)]) + ")"
	}
	return p.text
}

// meetsAll reports whether a node meets all predicates.
func (n *Node) meetsAll(all []Predicate) bool {
	return !slices.ContainsFunc(all, func(p Predicate) bool { return !p.On(n) })
}

// String returns the canonical text of p, which [Predicate.Set] reads back: "zone in (a, b)",
// "zone notin (a)", "gpu", "!gpu", "cores > 8", "cores < 64", "(zone in (a) && gpu) || (zone in (b))". Values are sorted and without repetition;
// words with other characters than letters, digits and "._-/:" are quoted as Go strings.
func (p Predicate) String() string {
	p = p.canonical()
	switch p.Op {
	case "In", "NotIn":
		return fmt.Sprintf("%s %s (%s)", quoteWord(p.Key), strings.ToLower(p.Op), joinWords(p.Values))
	case "Exists":
		return quoteWord(p.Key)
	case "DoesNotExist":
		return "!" + quoteWord(p.Key)
	case "Gt":
		return quoteWord(p.Key) + " > " + joinWords(p.Values)
	case "Lt":
		return quoteWord(p.Key) + " < " + joinWords(p.Values)
	case "AnyOf":
		terms := make([]string, len(p.Terms))
		for i, term := range p.Terms {
			parts := make([]string, len(term))
			for k := range term {
				parts[k] = term[k].String()
			}
			terms[i] = "(" + strings.Join(parts, " && ") + ")"
		}
		return strings.Join(terms, " || ")
	}
	return fmt.Sprintf("invalid operator %q on %s", p.Op, quoteWord(p.Key))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/:-]+$`)

// quoteWord quotes a word that is not plain, and the two words that are operators.
func quoteWord(s string) string {
	if plainWord.MatchString(s) && s != "in" && s != "notin" {
		return s
	}
	return strconv.Quote(s)
}

// joinWords joins words as they stand between parentheses.
func joinWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quoteWord(w)
	}
	return strings.Join(quoted, ", ")
}

// Set parses a text in the form that [Predicate.String] writes, and assigns the result to p. So p can be the value of a
// flag ([flag.Value]). The error wraps [ErrInvalid] and names the byte at which the text stops being valid; p is
// unchanged then.
func (p *Predicate) Set(text string) error {
	r := predicateReader{text: text}
	read := r.predicate()
	if r.fault == "" && r.skip() < len(text) {
		r.fail("unexpected text after the predicate")
	}
	if r.fault != "" {
		return invalidf("predicate %q: at byte %d: %s", text, r.at, r.fault)
	}
	if f := read.faults(); len(f) > 0 {
		return invalidf("predicate %q: %s", text, strings.Join(f, "; "))
	}
	*p = read.canonical()
	return nil
}

// predicateReader is a recursive-descent parser that stops at the first fault.
type predicateReader struct {
	text  string
	at    int
	fault string
}

// fail records a fault at r.at, unless an earlier one is recorded.
func (r *predicateReader) fail(why string) {
	if r.fault == "" {
		r.fault = why
	}
}

// skip passes over white space and returns the position behind it.
func (r *predicateReader) skip() int {
	for r.at < len(r.text) && strings.IndexByte(" \t\n\r", r.text[r.at]) >= 0 {
		r.at++
	}
	return r.at
}

// accept consumes the symbol if it is next.
func (r *predicateReader) accept(symbol string) bool {
	if !strings.HasPrefix(r.text[r.skip():], symbol) {
		return false
	}
	r.at += len(symbol)
	return true
}

// predicate reads one predicate. The text after the key decides which operator it is.
func (r *predicateReader) predicate() Predicate {
	if r.accept("(") {
		return Predicate{Op: "AnyOf", Terms: r.terms()}
	}
	if r.accept("!") {
		return Predicate{Key: r.word(), Op: "DoesNotExist"}
	}
	p := Predicate{Key: r.word()}
	switch rest := r.text[r.skip():]; {
	case rest == "" || strings.HasPrefix(rest, "&&") || strings.HasPrefix(rest, ")"):
		p.Op = "Exists"
	case r.accept(">"):
		p.Op, p.Values = "Gt", []string{r.word()}
	case r.accept("<"):
		p.Op, p.Values = "Lt", []string{r.word()}
	case r.accept("in"):
		p.Op, p.Values = "In", r.list()
	case r.accept("notin"):
		p.Op, p.Values = "NotIn", r.list()
	default:
		r.fail(`expected "in (...)", "notin (...)", ">" or "<"`)
	}
	return p
}

// terms reads the terms of an AnyOf, with "||" between them. It begins where the first term begins.
func (r *predicateReader) terms() (out [][]Predicate) {
	for {
		var term []Predicate
		for more := true; more && r.fault == ""; more = r.accept("&&") {
			term = append(term, r.predicate())
		}
		if !r.accept(")") {
			r.fail(`expected "&&" or ")"`)
		}
		out = append(out, term)
		if r.fault != "" || !r.accept("||") {
			return out
		}
		if !r.accept("(") {
			r.fail(`expected "("`)
		}
	}
}

// list reads words between parentheses.
func (r *predicateReader) list() []string {
	if !r.accept("(") {
		r.fail(`expected "("`)
		return nil
	}
	values := []string{r.word()}
	for r.fault == "" && r.accept(",") {
		values = append(values, r.word())
	}
	if !r.accept(")") {
		r.fail(`expected "," or ")"`)
	}
	return values
}

// word reads a plain word or a quoted string.
func (r *predicateReader) word() string {
	rest := r.text[r.skip():]
	if quoted, err := strconv.QuotedPrefix(rest); err == nil && quoted[0] == '"' {
		r.at += len(quoted)
		word, _ := strconv.Unquote(quoted) // QuotedPrefix has validated it
		return word
	}
	n := 0
	for n < len(rest) && plainWord.MatchString(rest[n:n+1]) {
		n++
	}
	if n == 0 {
		r.fail("expected a word or a quoted string")
	}
	r.at += n
	return rest[:n]
}

// sorted returns a sorted copy without repetition.
func sorted(words []string) []string {
	c := slices.Clone(words)
	slices.Sort(c)
	return slices.Clip(slices.Compact(c))
}

// cloned returns a copy of a list without unused capacity, so an append to a plain copy of a record that has it writes
// to memory of its own.
func cloned[T any](list []T) []T { return slices.Clip(slices.Clone(list)) }

// text returns the misfit in words that complete "n nodes ...".
func (m Misfit) text(spec *Spec, names *dimensionNames) string {
	switch m.kind {
	case unschedulable:
		return "are unschedulable"
	case leaseOver:
		return "have no live lease"
	case unmetRequirement:
		return "do not meet " + spec.Require[m.arg].String()
	case untolerated:
		return "have a taint that is not tolerated"
	case wrongModel:
		if len(spec.Devices.Models) == 0 {
			return "have no device"
		}
		return "have no device of model " + joinWords(spec.Devices.Models)
	case shortOfDevices:
		return "lack " + spec.Devices.want()
	case shortOfRoom:
		return "lack " + names.name(m.arg)
	case nominatedForOthers:
		return "are nominated for others"
	}
	return cmp.Or(m.Why, "fit")
}

// singular puts the verb with which a reason begins in the singular.
func singular(why string) string {
	verb, _, _ := strings.Cut(why, " ")
	rest := why[len(verb):]
	switch verb {
	case "are":
		return "is" + rest
	case "do":
		return "does" + rest
	case "have":
		return "has" + rest
	case "fit", "hold", "lack", "wait":
		return verb + "s" + rest
	}
	return why
}

// want describes the request, as in "a device with 600 milli free".
func (r *DeviceRequest) want() string {
	if r.Count == 1 {
		return fmt.Sprintf("a device with %d milli free", r.Milli)
	}
	return fmt.Sprintf("%d devices with %d milli free each", r.Count, r.Milli)
}

// appendKey appends an encoding of all of p. Two predicates have the same key if and only if they are equal.
func (p *Predicate) appendKey(b []byte) []byte {
	b = appendTexts(b, p.Key, p.Op)
	b = appendTexts(b, p.Values...)
	b = binary.AppendVarint(b, int64(len(p.Terms)))
	for _, term := range p.Terms {
		b = binary.AppendVarint(b, int64(len(term)))
		for i := range term {
			b = term[i].appendKey(b)
		}
	}
	return b
}

// appendTexts appends texts, each after its length.
func appendTexts(b []byte, texts ...string) []byte {
	b = binary.AppendVarint(b, int64(len(texts)))
	for _, t := range texts {
		b = binary.AppendVarint(b, int64(len(t)))
		b = append(b, t...)
	}
	return b
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
