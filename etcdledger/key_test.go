package etcdledger

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

var anyID = rapid.OneOf(
	rapid.SampledFrom([]string{"/", "..", ".", "%2F", "%", "a/b", "a%2Fb", "log", "gc", "meta", "n/x", "../x", " ", "\x00", "ü", "+", "a b", strings.Repeat("/", 253), "\xff"}),
	rapid.StringN(1, 60, 253),
)

// TestKeys: every record has a key of its own below its prefix, and the key leads back to the record.
func TestKeys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := keys{rapid.SampledFrom([]string{"orbit/", "a/b/", "/"}).Draw(t, "prefix")}
		draw := func() ref { return ref{rapid.SampledFrom(kinds).Draw(t, "kind"), anyID.Draw(t, "id")} }
		r, other := draw(), draw()
		key := k.of(r)
		back, ok := k.parse(key)
		require.True(t, ok)
		require.Equal(t, r, back)
		require.True(t, inside([]byte(key), []byte(k.prefix), []byte(k.end())))
		require.Equal(t, 2+strings.Count(k.prefix, "/")-1, strings.Count(key, "/"), "%q leaves its prefix", key)
		require.Equal(t, r == other, key == k.of(other))
		require.True(t, k.owns(key))
		for _, own := range []string{k.log(), k.gc(), k.meta()} {
			require.NotEqual(t, own, key)
			require.True(t, k.owns(own))
			require.True(t, inside([]byte(own), []byte(k.prefix), []byte(k.end())))
		}
		for _, no := range []string{key + "/", key[:len(key)-1-len(k.of(r)[len(k.prefix)+2:])], k.prefix + "x/" + r.id, "z" + key} {
			if no != key {
				_, ok := k.parse(no)
				require.False(t, ok && k.of(ref{r.kind, r.id}) == no, "%q", no)
			}
		}
	})
}

// TestNestedPrefixes: a ledger ignores another one whose prefix is below its own: neither sees the other's records or
// reads anything again because of it.
func TestNestedPrefixes(t *testing.T) {
	bubble(t, 1, Options{Prefix: "a/"}, func(d *desk) {
		a := d.ledgers[0]
		inner := []*Ledger{d.open(Options{Prefix: "a/b/"}), d.open(Options{Prefix: "a/log/"}), d.open(Options{Prefix: "a0"})}
		for i, l := range append(inner, a) {
			d.do(l, node("n", int64(i+1)), submit("c"), orbit.Place{Capsule: "c", Node: "n"})
			d.do(l, orbit.Release{Capsule: "c", Final: true})
		}
		for i, l := range append(inner, a) {
			require.Equal(d, int64(i+1), d.look(l).Node("n").Node.Capacity[0])
			require.Zero(d, l.Stats().Reloads)
			again := d.open(Options{Prefix: l.options.Prefix})
			require.Empty(d, differ(textOf(d.look(again), same), textOf(d.look(l), same)))
		}
	})
}

// TestPrefixInsideARecord: a prefix below which another ledger keeps its records is refused.
func TestPrefixInsideARecord(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		for _, prefix := range []string{"orbit/" + string(k), string(k) + "/", "/" + string(k) + "/"} {
			_, err := Open(bg, newStore().client(&plan{}), Options{Prefix: prefix})
			require.ErrorIs(t, err, orbit.ErrInvalid, prefix)
		}
	}
}
