package etcdledger

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Without OnError what goes wrong in the background goes to the default log.
func TestErrorsAreLogged(t *testing.T) {
	var (
		text bytes.Buffer
		key  string
	)
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	synctest.Test(t, func(t *testing.T) {
		d := &desk{T: t, store: newStore()}
		l := d.open(noGC)
		key = l.keys.of(ref{kindNode, "n"})
		d.do(l, node("n", 5))
		d.store.write(key, "{")
		synctest.Wait()
		require.NoError(t, l.Close())
	})
	slog.SetDefault(before)
	require.Contains(t, text.String(), "orbit: error of a ledger in etcd")
	require.Contains(t, text.String(), key)
}
