package diskledger_test

import (
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
				return open(t, func() (logledger.Log, error) { return diskledger.OpenLog(fs, dir) })
			})
		})
	}
}
