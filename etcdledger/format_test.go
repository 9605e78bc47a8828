package etcdledger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/logledger"
)

// Keys and values are as written here: other releases read them.
func TestGolden(t *testing.T) {
	k, at, id := keys{"p/"}, head{42, "abc-7"}, logledger.PostID{Writer: logledger.WriterID{1, 0xff}, Number: 9}
	c := checkpoint{at, 3}
	require.Equal(t, []string{
		"p/meta", "p/head", "p/entry/00000000000000000042", "p/post/01ff000000000000/00000000000000000009", "p/checkpoint", "p/terms/t",
		"p/blob/entry/", "p/blob/checkpoint/00000000000000000042/abc-7/000002",
	}, []string{k.meta(), k.head(), k.entry(42), k.post(id), k.checkpoint(), k.term("t"), k.blobs(entryBlob), part(c.blob(k), 2)})
	require.Equal(t, []string{"1 42 abc-7", "1 abc-7 def-1 2\n", "1 abc-7 0\n", "1 42 abc-7 3"},
		[]string{at.String(), entryLine(at.tag, "def-1", 2), postLine(at.tag, 0), c.String()})
}

// What is written is read as it was.
func TestFormat(t *testing.T) {
	h, err := parseHead([]byte("1 18446744073709551615 abc-7"))
	require.NoError(t, err)
	require.Equal(t, head{1<<64 - 1, "abc-7"}, h)
	data := "\x00 1\n\n"
	e, err := parseEntry([]byte(entryLine("a-1", "b-2", 0) + data))
	require.NoError(t, err)
	require.Equal(t, entry{"a-1", "b-2", 0, []byte(data)}, e)
	parts, rest, err := parsePost([]byte(postLine("a-1", 5) + data))
	require.NoError(t, err)
	require.Equal(t, []any{5, data}, []any{parts, string(rest)})
	want := checkpoint{head{7, "a-1"}, 4}
	c, err := parseCheckpoint([]byte(want.String()))
	require.NoError(t, err)
	require.Equal(t, want, c)
	id := logledger.PostID{Writer: logledger.WriterID{7, 8}, Number: 1<<64 - 1}
	got, err := keys{"p/"}.postID(keys{"p/"}.post(id))
	require.NoError(t, err)
	require.Equal(t, id, got)
}

// What a later version has written is ErrVersion, and everything else that cannot be read is ErrCorrupt.
func TestUnreadable(t *testing.T) {
	for text, want := range map[string]error{
		"": logledger.ErrCorrupt, "2": logledger.ErrVersion, "2 new form\n": logledger.ErrVersion, "x 1 a-1": logledger.ErrCorrupt,
		"1": logledger.ErrCorrupt, "1 x x x": logledger.ErrCorrupt, "1 \n 1 1 1": logledger.ErrCorrupt,
	} {
		_, err := parseHead([]byte(text))
		require.ErrorIs(t, err, want, text)
		_, err = parseEntry([]byte(text))
		require.ErrorIs(t, err, want, text)
		_, _, err = parsePost([]byte(text))
		require.ErrorIs(t, err, want, text)
		_, err = parseCheckpoint([]byte(text))
		require.ErrorIs(t, err, want, text)
	}
	for _, key := range []string{"p/post/", "p/post/01/1", "p/post/01ff000000000000/x", "p/post/01ff000000000000/"} {
		_, err := keys{"p/"}.postID(key)
		require.ErrorIs(t, err, logledger.ErrCorrupt, key)
	}
}

// A handle knows its own heads, entries and posts, and no others.
func TestTags(t *testing.T) {
	mine, other := newTags(), newTags()
	require.NotEqual(t, mine.next(), mine.next())
	require.True(t, mine.made([]byte(head{5, mine.next()}.String())))
	require.True(t, mine.made([]byte(postLine(mine.next(), 0)+"data")))
	require.False(t, mine.made([]byte(head{5, other.next()}.String())))
	require.False(t, mine.made([]byte(postLine(other.next(), 0)+mine.next())))
	require.False(t, mine.made(nil))
}
