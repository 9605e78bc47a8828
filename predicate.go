package orbit

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Predicate is a condition on a node's labels. Operators, spelled as here, and their meaning are those of
// Kubernetes' node selector terms:
//
//	In            the label is there and is one of Values
//	NotIn         the label is absent, or is none of Values
//	Exists        the label is there
//	DoesNotExist  the label is absent
//	Gt, Lt        the label is there, is an integer, and is greater (less) than the one integer in Values
type Predicate struct {
	// Key is the label key.
	Key string `json:"key"`
	// Op is the operator that compares the label's value with Values.
	Op string `json:"op"`
	// Values are the operands of Op.
	Values []string `json:"values,omitempty"`
}

// Preference is a soft wish: nodes that match are better by Weight, in the units of the score. For
// score.Spread a weight of 5 makes up for one capsule more on the node.
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

// Near asks to be placed in a domain of the label Level where a member of Group is running.
type Near struct {
	// Group is a co-location group: a member of it must run in the domain.
	Group string `json:"group,omitempty"`
	// Level is the label key of the domain.
	Level string `json:"level,omitempty"`
}

// Matches reports whether a node with these labels satisfies p. A malformed predicate matches nothing.
func (p Predicate) Matches(labels map[string]string) bool {
	value, there := labels[p.Key]
	switch p.Op {
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

// compares compares a label with a bound as integers; what is not an integer compares with nothing.
func compares(op, label, bound string) bool {
	a, errA := strconv.ParseInt(label, 10, 64)
	b, errB := strconv.ParseInt(bound, 10, 64)
	if errA != nil || errB != nil {
		return false
	}
	return (op == "Gt" && a > b) || (op == "Lt" && a < b)
}

// String returns the canonical text of p, which [Predicate.Set] reads back: "zone in (a, b)",
// "zone notin (a)", "gpu", "!gpu", "cores > 8", "cores < 64". Values are sorted and without repetition;
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
	}
	return fmt.Sprintf("invalid operator %q on %s", p.Op, quoteWord(p.Key))
}

// canonical returns p with values of its own, sorted and, where they are a set, without repetition; numbers are written
// plainly.
func (p Predicate) canonical() Predicate {
	p.Values = slices.Clone(p.Values)
	if n, err := p.bound(); err == nil {
		p.Values[0] = strconv.FormatInt(n, 10)
	}
	slices.Sort(p.Values)
	if p.Op != "Gt" && p.Op != "Lt" { // which take exactly one, and are wrong with two
		p.Values = slices.Compact(p.Values)
	}
	return p
}

// bound returns the integer that Gt and Lt compare with.
func (p Predicate) bound() (int64, error) {
	if (p.Op != "Gt" && p.Op != "Lt") || len(p.Values) != 1 {
		return 0, fmt.Errorf("%s has no bound", p.Op)
	}
	return strconv.ParseInt(p.Values[0], 10, 64)
}

// faults says what is wrong with p, nothing if it is well formed.
func (p Predicate) faults() []string {
	var out []string
	if p.Key == "" {
		out = append(out, "predicate without a key")
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
		out = append(out, fmt.Sprintf("predicate on %q: unknown operator %q; use In, NotIn, Exists, DoesNotExist, Gt or Lt", p.Key, p.Op))
	}
	return out
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/:-]+$`)

// quoteWord quotes what is not a plain word, and the two words that are operators.
func quoteWord(s string) string {
	if plainWord.MatchString(s) && s != "in" && s != "notin" {
		return s
	}
	return strconv.Quote(s)
}

// joinWords writes a list of words as it stands between parentheses.
func joinWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quoteWord(w)
	}
	return strings.Join(quoted, ", ")
}

// Set makes p the predicate of a text, in the form that [Predicate.String] writes; so p can be the value of a flag
// ([flag.Value]). The error wraps [ErrInvalid] and says at which byte the text stops making sense; p is then as before.
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

// fail keeps the first fault, which is the one that r.at points at.
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

// predicate reads one predicate; its key decides nothing, what follows it does.
func (r *predicateReader) predicate() Predicate {
	if r.accept("!") {
		return Predicate{Key: r.word(), Op: "DoesNotExist"}
	}
	p := Predicate{Key: r.word()}
	switch {
	case r.skip() == len(r.text):
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

// nearby are the domains in which a spec may be placed because a member of the group it wants is there.
type nearby struct {
	near    Near
	domains map[string]bool
	// What missing has said.
	text string
}

// has reports whether a node is in one of the domains; without a wish for company every node is.
func (p *nearby) has(n *Node) bool {
	if p == nil {
		return true
	}
	domain, ok := n.Labels[p.near.Level]
	return ok && p.domains[domain]
}

// misfit says why a node does not have the company that is asked for; the zero value: it has.
func (p *nearby) misfit(n *NodeState) Misfit {
	if p.has(n.Node) {
		return Misfit{}
	}
	return Misfit{Why: p.missing()}
}

// missing says what a node outside the domains lacks.
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
