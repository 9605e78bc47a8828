package shard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

var allMarks = []markKind{groupMark, leavingMark, leftMark, failedMark, pinnedMark, failedGangMark, pinnedGangMark, LeasePrefix}

// hostileNames are ids and names that resemble parts of a mark's format.
var hostileNames = rapid.OneOf(
	rapid.SampledFrom([]string{"a", "b", "a/b", "group/a", "/", "//", "&", "=", ",", "%", "+", " ", "1 ", "~", "ü", "a&b=1,", "\x00", strings.Repeat("x", 253)}),
	rapid.StringMatching(`[a/&=,%+ ]{1,6}`),
	rapid.StringN(1, 8, 250),
)

func TestMarkKeysAreApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SampledFrom(allMarks)
		k1, k2 := kinds.Draw(t, "kind"), kinds.Draw(t, "other kind")
		id1, id2 := hostileNames.Draw(t, "id"), hostileNames.Draw(t, "other id")
		back, ok := k1.id(k1.key(id1))
		require.True(t, ok)
		require.Equal(t, id1, back)
		require.Equal(t, k1 == k2 && id1 == id2, k1.key(id1) == k2.key(id2))
		_, ok = k2.id(k1.key(id1))
		require.Equal(t, k1 == k2, ok)
	})
}

func TestMarkKeysThatDoNotFit(t *testing.T) {
	limits := (&orbit.MemoryLedger{}).Limits()
	for _, k := range allMarks {
		most := limits.IDBytes - len(k)
		require.NoError(t, k.fits(strings.Repeat("x", most), limits))
		err := k.fits(strings.Repeat("x", most+1), limits)
		var key *Error
		require.ErrorIs(t, err, ErrKey)
		require.ErrorAs(t, err, &key)
		require.Equal(t, k.key(strings.Repeat("x", most+1)), key.Key)
		require.ErrorContains(t, err, fmt.Sprintf("has room for ids of %d;", most))
		p := orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: k.key(strings.Repeat("x", most)), Value: "v"}}}
		_, err = (&orbit.MemoryLedger{}).Propose(t.Context(), p)
		require.NoError(t, err, "the ledger takes what fits")
	}
}

func drawFailures(t *rapid.T) (f failures) {
	for range rapid.IntRange(0, 12).Draw(t, "failures") {
		f = f.with(Failure{hostileNames.Draw(t, "name"), orbit.Revision(rapid.Uint64().Draw(t, "view")), rapid.String().Draw(t, "why")})
	}
	f.more = rapid.Bool().Draw(t, "more")
	return f
}

func TestFailuresReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFailures(t)
		back, err := parseFailures(f.value(1 << 20))
		require.NoError(t, err)
		require.Equal(t, f.more, back.more)
		require.ElementsMatch(t, f.list, back.list)
	})
}

func TestFailuresKeepToTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, limit := drawFailures(t), rapid.IntRange(3, 2000).Draw(t, "limit")
		v := f.value(limit)
		require.LessOrEqual(t, len(v), limit)
		back, err := parseFailures(v)
		require.NoError(t, err)
		n := len(back.list)
		require.Equal(t, f.more || n < len(f.list), back.more)
		for i, one := range f.list[len(f.list)-n:] {
			require.Equal(t, one.Scheduler, back.list[i].Scheduler, "the newest are kept")
			require.Equal(t, one.View, back.list[i].View)
		}
	})
}

func TestCorruptFailures(t *testing.T) {
	for _, v := range []string{"x", "1", "2 a=1,", "1 a", "1 a=", "1 a=1", "1 a=x,", "1 a=01,", "1 a=1,&", "1 &a=1,", "1 a=1,&a=2,", "1 %zz=1,", "1 a=1,%zz", "1 a b=1,", "1++ ", "1 a=-1,", "1 a=99999999999999999999,"} {
		_, err := parseFailures(v)
		require.ErrorIs(t, err, ErrCorrupt, "%q", v)
	}
}

func FuzzParseFailures(f *testing.F) {
	f.Add("1 a=17,12+nodes+lack+cpu&b%2Fc=21,")
	f.Add("1+ ")
	f.Fuzz(func(t *testing.T, value string) {
		list, err := parseFailures(value)
		if err == nil && value != "" && list.format(true) != value {
			t.Fatalf("%q reads as %v", value, list)
		}
	})
}

func TestFailureOfOneSchedulerCountsOnce(t *testing.T) {
	f := failures{}.with(Failure{"a", 1, "x"}).with(Failure{"b", 2, "y"}).with(Failure{"a", 3, "z"})
	require.Equal(t, []Failure{{"b", 2, "y"}, {"a", 3, "z"}}, f.list)
	require.Equal(t, []Failure{{"b", 2, "y"}}, f.without("a").list)
}

func TestShortenKeepsCharactersWhole(t *testing.T) {
	require.Equal(t, "aü", shorten("aüb", 3))
	require.Equal(t, "a", shorten("aüb", 2))
	require.Equal(t, "ab…", shorten("abcdefg", 5))
	require.Equal(t, "a…", shorten("aübcdefg", 5))
	require.Equal(t, "abcde", shorten("abcde", 5))
	require.Equal(t, "?", shorten("\xff", 3))
	require.Equal(t, "a?…", shorten("a\xffbcdef", 5), "what is left of one that is cut is valid, too")
	why := failures{}.with(Failure{"a", 1, strings.Repeat("x", maxWhy+1)}).list[0].Why
	require.Equal(t, strings.Repeat("x", maxWhy-len("…"))+"…", why, "no reason is longer than there is room for")
}
