package diskledger_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/diskledger"
)

// TestErrorNamesThePathOnce: an error of the disk says the operation and the path once, and is still that of the operating system.
func TestErrorNamesThePathOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := diskledger.Open(file, diskledger.Options{})
	require.EqualError(t, err, "diskledger: mkdir "+file+": not a directory")
	var path *fs.PathError
	require.ErrorAs(t, err, &path)
	_, err = diskledger.Open(filepath.Join(file, "below"), diskledger.Options{})
	require.EqualError(t, err, "diskledger: mkdir "+filepath.Join(file, "below")+": mkdir "+file+": not a directory", "the path at fault is another")
}
