package plain

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type record struct {
	Name   string `json:"name"`
	Count  uint64 `json:"count"`
	Number uint64 `json:"number"`
	ID     string `json:"id"`
}

func read(text string) (out record, ok bool) {
	r := Read([]byte(text))
	r.Expect(`{"name":`)
	out.Name = string(r.Text())
	r.Expect(`,"count":`)
	out.Count = r.Positive()
	if r.Has(`,"number":`) {
		out.Number = r.Number()
	}
	r.Expect(`,"id":`)
	id := r.Hex()
	r.Expect(`}`)
	w := Writer{}
	w.Hex(id)
	out.ID = strings.Trim(string(w.Text), `"`)
	return out, r.Done()
}

// What is plain is written as the JSON package writes it, and read as it reads it; nothing is read that it would not have written.
func TestAsTheJSONPackageDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := record{
			Name:   rapid.OneOf(rapid.StringMatching(`[a-z0-9 /_.~!-]{1,9}`), rapid.String()).Draw(t, "name"),
			Count:  rapid.OneOf(rapid.Uint64Range(0, 12), rapid.Uint64Range(1e17, 1e19), rapid.Uint64Range(math.MaxInt64-3, math.MaxInt64+3), rapid.Uint64()).Draw(t, "count"),
			Number: rapid.OneOf(rapid.Uint64Range(1, 12), rapid.Uint64()).Draw(t, "number"),
			ID:     rapid.StringMatching(`[0-9a-f]{32}`).Draw(t, "id"),
		}
		text, err := json.Marshal(want)
		require.NoError(t, err)
		var w Writer
		w.Put(`{"name":`)
		w.Quoted(want.Name)
		w.Put(`,"count":`)
		w.Number(want.Count)
		w.Put(`,"number":`)
		w.Number(want.Number)
		w.Put(`,"id":"` + want.ID + `"}`)
		got, ok := read(string(text))
		if ok {
			require.Equal(t, want, got)
		}
		if w.Plain() {
			require.Equal(t, string(text), string(w.Text))
			require.Equal(t, want.ID != strings.Repeat("0", 32), ok)
		}
		damaged := slices.Clone(text)
		damaged[rapid.IntRange(0, len(text)-1).Draw(t, "at")] = rapid.SampledFrom([]byte("0019afAF\\\"{}:,<& \x00\x7f\xff")).Draw(t, "byte")
		if got, ok := read(string(damaged)); ok {
			again, err := json.Marshal(got)
			require.NoError(t, err)
			require.Equal(t, string(damaged), string(again))
		}
	})
}

func TestNotPlain(t *testing.T) {
	const line = `{"name":"c-1","count":10,"number":0,"id":"0a000000000000000000000000000000"}`
	_, ok := read(line)
	require.True(t, ok)
	for _, c := range [][2]string{
		{`"c-1"`, `""`}, {`"c-1"`, `"<"`}, {`"c-1"`, `"\u0041"`}, {`"c-1"`, `"é"`}, {`"c-1"`, "\"\x7f\""}, {`"c-1"`, `"c`}, {`"c-1"`, `c-1"`},
		{`:10`, `:010`}, {`:10`, `:-1`}, {`:10`, `:1e1`}, {`:10`, `:1.0`}, {`:10`, `:`}, {`:10`, `:9223372036854775808`}, {`:10`, `:10000000000000000000`}, {`:10`, `:100000000000000000000`}, {`:10`, `:00`}, {`:10`, `:0`}, {`r":0`, `r":00`},
		{`"0a0`, `"0A0`}, {`"0a0`, `"000`}, {`"0a0`, `"0g0`}, {`"0a0`, `"0a`},
		{`"}`, `"`}, {`"}`, `"} `}, {`"}`, `"}{}`}, {`"count":10,`, ``}, {`"count"`, `"Count"`}, {`,"id"`, `, "id"`},
	} {
		changed := strings.Replace(line, c[0], c[1], 1)
		require.NotEqual(t, line, changed)
		_, ok := read(changed)
		require.False(t, ok, changed)
	}
	for _, write := range []func(*Writer){
		func(w *Writer) { w.Quoted("") }, func(w *Writer) { w.Quoted(`"`) }, func(w *Writer) { w.Quoted("&") }, func(w *Writer) { w.Quoted("\u2028") },
		func(w *Writer) { w.Number(0) }, func(w *Writer) { w.Number(math.MaxInt64 + 1) }, func(w *Writer) { w.Hex([16]byte{}) },
	} {
		w := Writer{}
		write(&w)
		require.False(t, w.Plain(), string(w.Text))
	}
}

// Times in nanoseconds are plain: every record of an engine's placement has one.
func TestTimesArePlain(t *testing.T) {
	for _, n := range []uint64{1_767_225_600_000_000_000, math.MaxInt64} {
		var w Writer
		w.Number(n)
		require.True(t, w.Plain())
		r := Read(w.Text)
		require.Equal(t, n, r.Number())
		require.True(t, r.Done())
	}
}
