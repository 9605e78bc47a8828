package itest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// Each file of testdata has what a release has stored below a prefix: a line for each key, in the order in which they were made.
// v1.json is by the last release that stored records, v2.json by one that stored a log; v2.dump is the state in that.

// store writes the newest of them. First give it a new name: what a release has stored stays.
var store = flag.Bool("store", false, "write testdata/v2.json and v2.dump anew")

// stored is a key, without the prefix, and its value.
type stored struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// loadStored stores what a file of testdata has.
func loadStored(t *testing.T, client *clientv3.Client, name, prefix string) (keys []string) {
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		var s stored
		require.NoError(t, json.Unmarshal(line, &s))
		_, err := client.Put(t.Context(), prefix+s.Key, string(s.Value))
		require.NoError(t, err)
		keys = append(keys, s.Key)
	}
	return keys
}

// below returns what is stored below a prefix, in the order in which it was made.
func below(t *testing.T, client *clientv3.Client, prefix string) (all []stored) {
	got, err := client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	for _, kv := range got.Kvs {
		all = append(all, stored{strings.TrimPrefix(string(kv.Key), prefix), kv.Value})
	}
	return all
}

// What a release before the log has stored is refused, with what to do, and nothing of it is changed.
func TestStoredRecords(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, cluster.Options{}))
	keys := loadStored(t, client, "v1.json", "old/")
	for _, kind := range []string{"meta", "log", "n/", "u/", "c/", "g/", "h/", "m/", "p/", "s/", "budgets/", "fences/"} {
		require.Contains(t, "\n"+strings.Join(keys, "\n"), "\n"+kind)
	}
	before := below(t, client, "old/")
	for range 2 {
		_, err := etcdledger.Open(t.Context(), client, etcdledger.Options{Prefix: "old"})
		require.ErrorIs(t, err, etcdledger.ErrOldFormat)
		require.ErrorContains(t, err, `"old/"`)
		require.ErrorContains(t, err, "write the State.Dump of it with that release")
		require.NotErrorIs(t, err, logledger.ErrCorrupt)
		for _, existing := range []bool{false, true} {
			_, err = etcdledger.OpenLog(t.Context(), client, etcdledger.LogOptions{Prefix: "old", Existing: existing})
			require.ErrorIs(t, err, etcdledger.ErrOldFormat)
		}
	}
	require.Equal(t, before, below(t, client, "old/"))
}

// What a release has stored as a log is read as it was meant, and a ledger goes on there.
func TestStoredLog(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, cluster.Options{}))
	opens := func(prefix string) logtest.Stored {
		return logtest.Stored{Large: 48 << 10, Open: func(tb testing.TB) logledger.Poster {
			log, err := etcdledger.OpenLog(tb.Context(), client, etcdledger.LogOptions{Prefix: prefix, MaxBytes: 1 << 16})
			require.NoError(tb, err)
			tb.Cleanup(func() { require.NoError(tb, log.Close()) })
			return log
		}}
	}
	if *store {
		storeLog(t, client, opens("new/"))
	}
	keys := loadStored(t, client, "v2.json", "stored/")
	for _, kind := range []string{"meta", "head", "entry/", "post/", "checkpoint", "blob/entry/", "blob/post/", "blob/checkpoint/"} {
		require.Contains(t, "\n"+strings.Join(keys, "\n"), "\n"+kind)
	}
	want, err := os.ReadFile("testdata/v2.dump")
	require.NoError(t, err)
	opens("stored/").Check(t, string(want))
}

// storeLog writes v2.json and v2.dump.
func storeLog(t *testing.T, client *clientv3.Client, s logtest.Stored) {
	dump, err := os.Open("../../diskledger/testdata/v2.dump") // a state with every kind of record
	require.NoError(t, err)
	state := new(orbit.State)
	require.NoError(t, state.Restore(dump))
	require.NoError(t, dump.Close())
	s.Make(t, state)
	found, err := logledger.Inspect(t.Context(), s.Open(t), nil)
	require.NoError(t, err)
	var text, lines bytes.Buffer
	require.NoError(t, found.State.Dump(&text))
	encoder := json.NewEncoder(&lines)
	for _, kv := range below(t, client, "new/") {
		require.NoError(t, encoder.Encode(kv))
	}
	require.NoError(t, os.WriteFile("testdata/v2.dump", text.Bytes(), 0o644))
	require.NoError(t, os.WriteFile("testdata/v2.json", lines.Bytes(), 0o644))
}
