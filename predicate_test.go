package orbit

import (
	"encoding/json"
	"flag"
	"io"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestPredicateMatches: the operators mean what they mean in Kubernetes' node selector terms.
func TestPredicateMatches(t *testing.T) {
	labels := map[string]string{"zone": "a", "empty": "", "cores": "16", "neg": "-3", "plus": "+7", "big": "9223372036854775808", "text": "x16"}
	for _, c := range []struct {
		text string
		want bool
	}{
		{"zone in (a, b)", true}, {"zone in (b)", false}, {`empty in ("")`, true}, {`gone in ("")`, false},
		{"zone notin (b)", true}, {"zone notin (a, b)", false}, {"gone notin (a)", true}, {`empty notin ("")`, false},
		{"zone", true}, {"empty", true}, {"gone", false},
		{"!zone", false}, {"!empty", false}, {"!gone", true},
		{"cores > 15", true}, {"cores > 16", false}, {"cores < 17", true}, {"cores < 16", false},
		{"neg < -2", true}, {"neg > -4", true}, {"plus > 6", true},
		{"gone > 1", false}, {"gone < 1", false}, {"text > 1", false}, {"text < 1", false}, {"empty < 1", false},
		{"big > 1", false}, {"big < 1", false}, // not an int64: not a number
		{"(zone in (b)) || (cores > 15)", true}, {"(zone in (b)) || (cores > 16)", false}, {"(zone in (a) && gone)", false}, {"(gone) || (zone && !gone)", true},
		{"orbit/node in (n)", false}, {"orbit/node", false}, {"orbit/node notin (n)", true}, // the id is not among the labels
		{"cores < 9223372036854775807", true}, {"cores > -9223372036854775808", true},
	} {
		p, err := parsed(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, p.Matches(labels), c.text)
	}
	require.True(t, Predicate{Key: "k", Op: "DoesNotExist"}.Matches(nil))
}

// TestPredicateOnNodes: under NodeKey a predicate means the id, whatever the labels say.
func TestPredicateOnNodes(t *testing.T) {
	n := &Node{ID: "n1", Labels: map[string]string{NodeKey: "other", "zone": "a"}}
	for text, want := range map[string]bool{
		"orbit/node in (n1, n2)": true, "orbit/node in (other)": false, "orbit/node notin (n1)": false, "orbit/node notin (n2)": true,
		"orbit/node": true, "!orbit/node": false, "(orbit/node in (n2)) || (zone in (a) && orbit/node in (n1))": true, "(orbit/node in (n2)) || (zone in (b))": false,
	} {
		p, err := parsed(text)
		require.NoError(t, err, text)
		require.Equal(t, want, p.On(n), text)
	}
	_, err := (&Spec{Spread: Domains{Level: NodeKey}}).Share()
	require.ErrorIs(t, err, ErrInvalid)
}

// TestPreferenceWithAlternatives: a preference may be an AnyOf, each term of which is a conjunction. It is well formed as a
// requirement is, and counts its conditions.
func TestPreferenceWithAlternatives(t *testing.T) {
	prefers := func(terms ...[]Predicate) *Spec {
		return &Spec{Prefer: []Preference{{Predicate: Predicate{Op: "AnyOf", Terms: terms}, Weight: 1}}}
	}
	k, j := Predicate{Key: "k", Op: "In", Values: []string{"2", "1", "2"}}, Predicate{Key: "j", Op: "Exists"}
	shared, err := prefers([]Predicate{k, j}, []Predicate{{Key: NodeKey, Op: "In", Values: []string{"n"}}}).Share()
	require.NoError(t, err)
	for id, labels := range map[NodeID]map[string]string{"a": {"k": "1", "j": ""}, "n": nil} {
		require.True(t, shared.Prefer[0].On(&Node{ID: id, Labels: labels}))
	}
	require.False(t, shared.Prefer[0].On(&Node{ID: "a", Labels: map[string]string{"k": "1"}}))
	require.Equal(t, []string{"1", "2"}, shared.Prefer[0].Terms[0][0].Values)
	text, err := json.Marshal(shared)
	require.NoError(t, err)
	var read Spec
	require.NoError(t, json.Unmarshal(text, &read))
	again, err := read.Share()
	require.NoError(t, err)
	require.Same(t, shared, again)
	for _, bad := range []*Spec{prefers(), prefers([]Predicate{}), prefers([]Predicate{{Op: "AnyOf", Terms: [][]Predicate{{j}}}}), prefers(slices.Repeat([]Predicate{j}, maxPredicates))} {
		_, err := bad.Share()
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// TestPredicateMalformed: what is malformed matches nothing, and has faults that say so.
func TestPredicateMalformed(t *testing.T) {
	labels := map[string]string{"k": "1", "": "1"}
	for _, p := range []Predicate{
		{}, {Key: "k"}, {Key: "k", Op: "in", Values: []string{"1"}}, {Key: "k", Op: "Equals", Values: []string{"1"}},
		{Key: "k", Op: "Gt"}, {Key: "k", Op: "Gt", Values: []string{"0", "0"}}, {Key: "k", Op: "Lt", Values: []string{"nine"}},
		{Key: "k", Op: "Lt", Values: []string{"9223372036854775808"}}, {Key: "k", Op: "In"},
		{Op: "AnyOf"}, {Op: "AnyOf", Terms: [][]Predicate{{}}}, {Op: "AnyOf", Terms: [][]Predicate{{{Op: "AnyOf", Terms: [][]Predicate{{{Key: "k", Op: "Exists"}}}}}}},
	} {
		require.False(t, p.Matches(labels), "%+v", p)
		require.NotEmpty(t, p.faults(), "%+v", p)
		require.NotPanics(t, func() { _ = p.String() })
	}
	for _, p := range []Predicate{{Op: "Exists"}, {Key: "k", Op: "NotIn"}, {Key: "k", Op: "Exists", Values: []string{"1"}}, {Key: "k", Op: "DoesNotExist", Values: []string{""}}} {
		require.NotEmpty(t, p.faults(), "%+v", p)
	}
}

// TestPredicateText: one canonical text for all ways to write it.
func TestPredicateText(t *testing.T) {
	for text, want := range map[string]string{
		" zone  in(b,a , b)": "zone in (a, b)", "zone\tnotin\n( a )": "zone notin (a)",
		"! gpu": "!gpu", `"gpu"`: "gpu", "gpu": "gpu", "cores>007": "cores > 7", "cores <-0": "cores < 0",
		`cores > "+8"`: "cores > 8", `"in" in (in)`: `"in" in ("in")`, "notin": `"notin"`, `! "in"`: `!"in"`,
		`"a b" in ("x,y", ")")`: `"a b" in (")", "x,y")`, `k in ("")`: `k in ("")`, "(b in(y,x)&&a )||( !c )": "(b in (x, y) && a) || (!c)", `"\u00e9"`: `"é"`, `"\xff"`: `"\xff"`,
	} {
		p, err := parsed(text)
		require.NoError(t, err, text)
		require.Equal(t, want, p.String(), text)
	}
}

// TestPredicateSyntax: a fault is ErrInvalid and says where it is.
func TestPredicateSyntax(t *testing.T) {
	for _, text := range []string{
		"", " ", "!", "!!a", "a b", "a in", "a in (", "a in ()", "a in (b", "a in (b,)", "a in (b) c", "a = b", "a >", "a > x", "a > 1 2",
		"a > 9223372036854775808", `"`, `"a`, "'a'", "`a`", `"" in (a)`, "é", "a in b", "in (a)", "a notin", "a < (1)",
		"(", "()", "(a", "(a) ||", "(a) || b", "(a &&)", "((a))", "(a) (b)", "a && b", "a || b", "(a || b)",
	} {
		p := Predicate{Key: "before", Op: "In", Values: []string{"v"}}
		err := p.Set(text)
		require.ErrorIs(t, err, ErrInvalid, "%q", text)
		require.Equal(t, Predicate{Key: "before", Op: "In", Values: []string{"v"}}, p, "%q", text)
		require.ErrorContains(t, err, strconv.Quote(text))
	}
}

func anyPredicate(t *rapid.T) Predicate {
	if rapid.IntRange(0, 4).Draw(t, "alternatives") > 0 {
		return onePredicate(t)
	}
	p := Predicate{Op: "AnyOf"}
	for range rapid.IntRange(1, 3).Draw(t, "terms") {
		var term []Predicate
		for range rapid.IntRange(1, 3).Draw(t, "predicates") {
			term = append(term, onePredicate(t))
		}
		p.Terms = append(p.Terms, term)
	}
	return p
}

func onePredicate(t *rapid.T) Predicate {
	word := rapid.OneOf(rapid.SampledFrom([]string{"in", "notin", "a", "b", "0", "!", ">", "(", `"`, `\`, "\xff", "é", " "}), rapid.String())
	p := Predicate{Key: rapid.OneOf(rapid.SampledFrom([]string{"in", "notin", "zone", "a b"}), rapid.StringN(1, 20, -1)).Draw(t, "key")}
	switch p.Op = rapid.SampledFrom([]string{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}).Draw(t, "op"); p.Op {
	case "In", "NotIn":
		p.Values = rapid.SliceOfN(word, 1, 5).Draw(t, "values")
	case "Gt", "Lt":
		n := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64})).Draw(t, "bound")
		p.Values = []string{strconv.FormatInt(n, 10)}
	}
	return p
}

// TestPredicateRoundTrip: every well-formed predicate is read back from its text, means the same, and is
// written the same again; writing does not disturb its values.
func TestPredicateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPredicate(t)
		require.Empty(t, p.faults())
		before := append([]string(nil), p.Values...)
		back, err := parsed(p.String())
		require.NoError(t, err)
		require.Equal(t, p.canonical(), back)
		require.Equal(t, p.String(), back.String())
		require.Equal(t, before, p.Values)
		key := p.Key
		for k := range p.Keys {
			key = k
		}
		labels := map[string]string{key: rapid.SampledFrom(append(before, "1", "")).Draw(t, "label")}
		require.Equal(t, p.Matches(labels), back.Matches(labels))
		require.Equal(t, p.Matches(nil), back.Matches(nil))
	})
}

// FuzzPredicate: parsing never panics, and what it accepts is well formed and rendered to a fixed point.
func FuzzPredicate(f *testing.F) {
	for _, text := range []string{"zone in (a, b)", "zone notin (a)", "gpu", "!gpu", "cores > 8", "cores < -64", `"in" in ("\xff", "")`, "a in (", "'", `"\`, "a > 99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsed(text)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.Empty(t, p.faults())
		again, err := parsed(p.String())
		require.NoError(t, err, "%q from %q", p.String(), text)
		require.Equal(t, p, again)
		require.Equal(t, p.String(), again.String())
	})
}

// parsed returns the predicate of a text.
func parsed(text string) (p Predicate, err error) {
	err = p.Set(text)
	return p, err
}

// TestPredicateFlag: a predicate is the value of a flag.
func TestPredicateFlag(t *testing.T) {
	var p Predicate
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Var(&p, "require", "what nodes must meet")
	require.NoError(t, flags.Parse([]string{"-require", "zone in (b, a)"}))
	require.Equal(t, Predicate{Key: "zone", Op: "In", Values: []string{"a", "b"}}, p)
	require.Error(t, flags.Parse([]string{"-require", "zone in"}))
	require.Equal(t, "zone in (a, b)", p.String())
}
