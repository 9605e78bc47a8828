package orbit

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

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

// terms reads alternatives, the first of which has begun.
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
	return slices.Compact(c)
}

// text completes "n nodes ...".
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
	case "hold", "lack", "wait":
		return verb + "s" + rest
	}
	return why
}

// want says what is asked for, as in "a device with 600 milli free".
func (r *DeviceRequest) want() string {
	if r.Count == 1 {
		return fmt.Sprintf("a device with %d milli free", r.Milli)
	}
	return fmt.Sprintf("%d devices with %d milli free each", r.Count, r.Milli)
}

// appendKey writes down all of p, so that two predicates have one key if and only if they are equal.
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

// appendTexts writes down texts, each with its length.
func appendTexts(b []byte, texts ...string) []byte {
	b = binary.AppendVarint(b, int64(len(texts)))
	for _, t := range texts {
		b = binary.AppendVarint(b, int64(len(t)))
		b = append(b, t...)
	}
	return b
}

// requirements returns Require as text, the same for equal requirements.
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
