package orbit

import (
	"encoding/binary"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// Near is an affinity rule: the capsule is placed only in a domain of Level in which a member of Group is placed, other
// than the capsule itself, counted after the whole proposal. The first member of a group has nobody to be near: while no
// other member is in any domain of the level, a capsule that is itself a member may be placed in each of them.
//
// The ledger enforces the rule on placements only: it refuses neither an [Adopt] nor the departure of the last member.
type Near struct {
	// Group is a co-location group: a member of it must be placed in the domain.
	Group string `json:"group,omitempty"`
	// Level is the label key of the domain; [NodeKey]: the node itself. A node without the label takes no capsule with
	// this rule.
	Level string `json:"level,omitempty"`
}

// lacks reports whether the rule lacks a group or a level.
func (r Near) lacks() bool { return r.Group == "" || r.Level == "" }

// in returns the domain in which members are counted for the rule on a node, and the one in which members in any domain
// of the level are counted; both empty: the node is in no domain.
func (r Near) in(n *Node) (here, anywhere companyDomain) {
	if d := n.domain(r.Level); d != "" {
		return companyDomain{r.Group, r.Level, d}, companyDomain{r.Group, anyDomainOf(r.Level), inSome}
	}
	return here, anywhere
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

// taintEffects are the valid effects.
var taintEffects = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}

// maxTaints is the maximum number of taints of a node, and of tolerations of a spec.
const maxTaints = 64

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
