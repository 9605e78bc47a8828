package itest

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/logledger"
)

// openLog opens a log as a process does.
func openLog(t *testing.T, client *clientv3.Client, o etcdledger.LogOptions) *etcdledger.Log {
	log, err := etcdledger.OpenLog(t.Context(), client, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	return log
}

// A prefix of a release that stored records is refused, as one of a later release is; nothing below it is changed. A dump of
// it can be carried over to a new prefix.
func TestOtherLayouts(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, cluster.Options{}))
	for prefix, c := range map[string]struct {
		meta string
		want error
	}{
		"old/":     {`{"v":1,"limits":{"commitments":40}}`, etcdledger.ErrOldFormat},
		"newer/":   {`{"v":3,"more":true}`, logledger.ErrVersion},
		"damaged/": {`v=1`, logledger.ErrCorrupt},
	} {
		_, err := client.Put(t.Context(), prefix+"meta", c.meta)
		require.NoError(t, err)
		for range 2 {
			_, err = etcdledger.Open(t.Context(), client, etcdledger.Options{Prefix: prefix})
			require.ErrorIs(t, err, c.want)
		}
		got, err := client.Get(t.Context(), prefix, clientv3.WithPrefix())
		require.NoError(t, err)
		require.Equal(t, int64(1), got.Count)
	}

	old := &orbit.MemoryLedger{}
	rev := put(t, old, "node")
	log := openLog(t, client, etcdledger.LogOptions{Prefix: "carried"})
	require.NoError(t, log.SaveCheckpoint(t.Context(), 0, func(w io.Writer) error { return snapshot(t, old).Dump(w) }))
	carried := open(t, client, etcdledger.Options{Prefix: "carried"})
	require.Equal(t, rev, snapshot(t, carried).Revision())
	require.NotNil(t, snapshot(t, carried).Node("node"))
	require.Greater(t, put(t, carried, "another"), rev)
}

// What releases before the log read first says that they cannot read it: they refuse every meta that is not of version 1.
func TestOldReleasesRefuseTheLog(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, cluster.Options{}))
	openLog(t, client, etcdledger.LogOptions{})
	got, err := client.Get(t.Context(), "orbit/meta")
	require.NoError(t, err)
	require.Equal(t, `{"v":2}`, string(got.Kvs[0].Value))
}

// A log stops, and writes nothing, when etcd has lost what it has confirmed: the whole log, its last entries, or entries in
// place of which there are others now.
func TestLostEntries(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, cluster.Options{}))
	for name, c := range map[string]struct {
		lose  func(t *testing.T, before, after string)
		wrote int // entries that the others have written instead
	}{
		"all":    {lose: func(t *testing.T, _, _ string) { remove(t, client, "all/") }},
		"last":   {lose: func(t *testing.T, before, _ string) { restore(t, client, "last/head", before) }},
		"other":  {lose: func(t *testing.T, before, _ string) { restore(t, client, "other/head", before) }, wrote: 1},
		"others": {lose: func(t *testing.T, before, _ string) { restore(t, client, "others/head", before) }, wrote: 2},
	} {
		t.Run(name, func(t *testing.T) {
			log := openLog(t, client, etcdledger.LogOptions{Prefix: name})
			appendTo(t, log, 1)
			before := value(t, client, name+"/head")
			appendTo(t, log, 2)
			c.lose(t, before, value(t, client, name+"/head"))
			other := openLog(t, client, etcdledger.LogOptions{Prefix: name})
			for i := range c.wrote {
				appendTo(t, other, logledger.Index(2+i))
			}
			_, err := log.Append(t.Context(), logledger.Append{Index: 3, Data: []byte("on what is lost")})
			require.ErrorIs(t, err, logledger.ErrTaken)
			_, err = log.Read(t.Context(), 2)
			require.ErrorIs(t, err, logledger.ErrFailed)
		})
	}
}

// appendTo appends an entry.
func appendTo(t *testing.T, log logledger.Log, at logledger.Index) {
	_, err := log.Append(t.Context(), logledger.Append{Index: at, Data: []byte("entry")})
	require.NoError(t, err)
}

// value returns the value of a key.
func value(t *testing.T, client *clientv3.Client, key string) string {
	got, err := client.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	return string(got.Kvs[0].Value)
}

// restore writes a value as it was.
func restore(t *testing.T, client *clientv3.Client, key, value string) {
	_, err := client.Put(t.Context(), key, value)
	require.NoError(t, err)
}

// remove removes all keys with a prefix.
func remove(t *testing.T, client *clientv3.Client, prefix string) {
	_, err := client.Delete(t.Context(), prefix, clientv3.WithPrefix())
	require.NoError(t, err)
}

// An entry settles the posts of more processes than etcd takes operations in one transaction, and none that it does not name.
func TestManyPosts(t *testing.T) {
	t.Parallel()
	log := openLog(t, connect(t, start(t, cluster.Options{})), etcdledger.LogOptions{})
	var settled []logledger.PostID
	for i := range 1500 {
		id := logledger.PostID{Writer: logledger.WriterID{byte(i / 3), byte(i / 3 >> 8)}, Number: uint64(i % 3)}
		require.NoError(t, log.Post(t.Context(), logledger.Post{PostID: id, Data: []byte(fmt.Sprint(i))}))
		if i%3 != 1 {
			settled = append(settled, id)
		}
	}
	posts, err := log.Append(t.Context(), logledger.Append{Index: 1, Settled: settled})
	require.NoError(t, err)
	require.Len(t, posts, 500)
	for i, p := range posts {
		require.Equal(t, fmt.Sprint(3*i+1), string(p.Data))
	}
}

// Trimming leaves nothing of entries and posts that were stored in parts.
func TestTrimRemovesParts(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, cluster.Options{}))
	log := openLog(t, client, etcdledger.LogOptions{MaxBytes: 1 << 16})
	large := make([]byte, 1<<18)
	for at := range logledger.Index(4) {
		id := logledger.PostID{Number: uint64(at)}
		require.NoError(t, log.Post(t.Context(), logledger.Post{PostID: id, Data: large}))
		_, err := log.Append(t.Context(), logledger.Append{Index: at + 1, Data: large, Settled: []logledger.PostID{id}})
		require.NoError(t, err)
	}
	count := func() int64 {
		got, err := client.Get(t.Context(), "orbit/blob/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return got.Count
	}
	all := count()
	require.NoError(t, log.Trim(t.Context(), 2))
	require.Equal(t, all/2, count())
	page, err := log.Read(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, [][]byte{large, large}, page.Entries)
}

// A checkpoint that was begun before a newer one was stored does not replace it, and leaves no parts.
func TestCheckpointOvertaken(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, cluster.Options{}))
	log, other := openLog(t, client, etcdledger.LogOptions{}), openLog(t, client, etcdledger.LogOptions{})
	text := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	for i := range logledger.Index(2) {
		appendTo(t, log, i+1)
	}
	require.NoError(t, log.SaveCheckpoint(t.Context(), 0, text("empty")))
	err := log.SaveCheckpoint(t.Context(), 1, func(w io.Writer) error {
		require.NoError(t, other.SaveCheckpoint(t.Context(), 2, text("newer")))
		return text("older")(w)
	})
	require.ErrorIs(t, err, logledger.ErrTaken)
	at, r, err := log.Checkpoint(t.Context())
	require.NoError(t, err)
	require.Equal(t, logledger.Index(2), at)
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "newer", string(data))
	got, err := client.Get(t.Context(), "orbit/blob/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.Equal(t, int64(1), got.Count)
}

// A ledger tells once that etcd does not answer, and once that it answers again, even if nobody proposes or reads. Its Health agrees. It
// does not also tell that the watch was lost.
func TestOutageIsToldOnce(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{Members: 1})
	told := make(chan error, 100)
	l := open(t, connect(t, c), etcdledger.Options{Prefix: "told", OnError: func(err error) { told <- err }, Timeout: time.Second})
	for range 2 {
		put(t, l, "node")
		require.NoError(t, l.Health())
		require.NoError(t, c.Kill(0))
		lost := <-told
		require.ErrorContains(t, lost, "the store has not worked since")
		require.ErrorContains(t, l.Health(), "the store has not worked since")
		require.NoError(t, c.Restart(within(t, time.Minute), 0))
		require.ErrorIs(t, <-told, logledger.ErrBack)
		require.NoError(t, l.Health())
	}
	put(t, l, "node")
	require.Empty(t, told)
}

// noWatch ends all watches at once while it is set.
type noWatch struct {
	clientv3.Watcher
	set *atomic.Bool
}

// Watch implements clientv3.Watcher.
func (w noWatch) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	if w.set.Load() {
		ended := make(chan clientv3.WatchResponse)
		close(ended)
		return ended
	}
	return w.Watcher.Watch(ctx, key, opts...)
}

// While etcd answers and the watch is lost, that is told once, and the ledger is healthy.
func TestLostWatchIsToldOnce(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, cluster.Options{Members: 1}))
	var lost atomic.Bool
	lost.Store(true)
	client.Watcher = noWatch{client.Watcher, &lost}
	told := make(chan error, 100)
	l := open(t, client, etcdledger.Options{OnError: func(err error) { told <- err }})
	require.ErrorContains(t, <-told, "begun again every")
	put(t, l, "node")
	require.NoError(t, l.Health())
	lost.Store(false)
	require.ErrorIs(t, <-told, logledger.ErrBack)
	require.Empty(t, told)
}
