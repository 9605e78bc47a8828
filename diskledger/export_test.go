package diskledger

import (
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/orbitsched/orbit/logledger"
)

// OpenLog opens the log in a folder.
func OpenLog(fs vfs.FS, dir string) (logledger.Log, error) {
	f, err := openFolder(fs, dir, true)
	if err != nil {
		return nil, err
	}
	return openLog(f)
}
