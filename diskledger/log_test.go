package diskledger_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// The folder passes the suite for logs, on disk and in memory.
func TestLogSuite(t *testing.T) {
	for name, fs := range map[string]func() vfs.FS{"disk": func() vfs.FS { return vfs.Default }, "memory": func() vfs.FS { return vfs.NewMem() }} {
		t.Run(name, func(t *testing.T) {
			places := map[logledger.Log]func() (logledger.Log, error){}
			open := func(t *testing.T, again func() (logledger.Log, error)) logledger.Log {
				log, err := again()
				require.NoError(t, err)
				t.Cleanup(func() { _ = log.Close() })
				places[log] = again
				return log
			}
			logtest.Suite{
				Reopen: func(t *testing.T, log logledger.Log) logledger.Log {
					require.NoError(t, log.Close())
					return open(t, places[log])
				},
			}.Run(t, func(t *testing.T) logledger.Log {
				fs, dir := fs(), t.TempDir()
				return open(t, func() (logledger.Log, error) { return diskledger.OpenLog(dir, diskledger.LogOptions{FS: fs}) })
			})
		})
	}
}

// A checkpoint that is written while entries come removes only the logs all of whose entries it includes.
func TestEntriesBesideACheckpoint(t *testing.T) {
	fs := vfs.NewMem()
	log, err := diskledger.OpenLog("ledger", diskledger.LogOptions{FS: fs})
	require.NoError(t, err)
	add := func(at logledger.Index) {
		_, err := log.Append(ctx, logledger.Append{Index: at, Data: fmt.Append(nil, at)})
		require.NoError(t, err)
	}
	save := func(at logledger.Index, beside ...logledger.Index) {
		require.NoError(t, log.SaveCheckpoint(ctx, at, func(w io.Writer) error {
			for _, at := range beside {
				add(at)
			}
			_, err := fmt.Fprint(w, "state ", at)
			return err
		}))
	}
	add(1)
	add(2)
	add(3)
	save(2, 4)
	for range 2 {
		page, err := log.Read(ctx, 2)
		require.NoError(t, err)
		require.Equal(t, [][]byte{[]byte("3"), []byte("4")}, append(page.Entries, rest(t, log, page)...))
		require.NoError(t, log.Close())
		log, err = diskledger.OpenLog("ledger", diskledger.LogOptions{FS: fs})
		require.NoError(t, err)
	}
	save(4)
	names, err := fs.List("ledger")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"LOCK", "00000003.checkpoint"}, names)
	_, err = log.Read(ctx, 3)
	require.ErrorIs(t, err, logledger.ErrTrimmed)
	add(5)
	page, err := log.Read(ctx, 4)
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("5")}, page.Entries)
	require.NoError(t, log.Close())
}

// rest returns the entries after a page that begins after entry 2.
func rest(t *testing.T, log logledger.Log, page logledger.Page) (entries [][]byte) {
	for page.More {
		var err error
		page, err = log.Read(ctx, logledger.Index(3+len(entries)))
		require.NoError(t, err)
		entries = append(entries, page.Entries...)
	}
	return entries
}

// Wherever in a block an entry ends, the next one is read, and shows that the one before was on the disk once.
func TestEndsOfBlocks(t *testing.T) {
	found := 0
	for length := 32<<10 - 240; length < 32<<10-140; length++ {
		fs := vfs.NewMem()
		log, err := diskledger.OpenLog("ledger", diskledger.LogOptions{FS: fs})
		require.NoError(t, err)
		want := [][]byte{bytes.Repeat([]byte("x"), length), []byte("y"), []byte("z")}
		var ends []int
		for i, data := range want {
			_, err := log.Append(ctx, logledger.Append{Index: logledger.Index(i + 1), Data: data})
			require.NoError(t, err)
			ends = append(ends, len(files(t, fs)["00000001.log"]))
		}
		all := files(t, fs)
		again, err := diskledger.OpenLog("ledger", diskledger.LogOptions{FS: folderOf(t, all, "", nil)})
		require.NoError(t, err)
		page, err := again.Read(ctx, 0)
		require.NoError(t, err)
		require.Equal(t, want, page.Entries)
		damaged := bytes.Clone(all["00000001.log"])
		damaged[ends[1]-1] ^= 1
		_, err = diskledger.OpenLog("ledger", diskledger.LogOptions{FS: folderOf(t, all, "00000001.log", damaged)})
		require.ErrorIs(t, err, logledger.ErrCorrupt, "an entry that ends at byte %d", ends[1])
		if ends[1] > 32<<10-24 && ends[1] < 32<<10 {
			found++
		}
	}
	require.Greater(t, found, 2)
}
