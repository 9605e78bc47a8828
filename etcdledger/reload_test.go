package etcdledger

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

// compactIdly ends a ledger's watch while other clients use etcd, and compacts etcd before the ledger watches again. So
// the ledger reads all records again although its own history has no gap.
func (d *desk) compactIdly(i int) {
	d.Helper()
	reloads := d.ledgers[i].Stats().Reloads
	d.plans[i].mu.Lock()
	d.plans[i].events = []fault{{lostBefore, 0}}
	d.plans[i].mu.Unlock()
	d.store.write("other/key", "1")
	synctest.Wait()
	d.store.write("other/key", "2")
	d.store.write("other/key", "3")
	d.store.compact()
	time.Sleep(time.Second)
	require.Greater(d, d.ledgers[i].Stats().Reloads, reloads)
}

// A mirror that has read all records again numbers its nodes anew, even if nothing was committed in between. A reader
// with an older state of the same revision gets ErrCompacted, so that a view does not take one node's report for
// another's.
func TestViewAfterIdleReload(t *testing.T) {
	bubble(t, 1, Options{GCInterval: -1}, func(d *desk) {
		l, board, view := d.ledgers[0], &telemetry.Board{}, orbit.View{}
		for _, id := range []orbit.NodeID{"z", "y", "x"} { // not in the order of the ids
			d.do(l, node(id, 1))
			require.NoError(d, board.Report(orbit.Report{Node: id, At: time.Now(), FreeSlots: int(id[0])}))
		}
		require.NoError(d, view.Refresh(bg, l, board, time.Now()))
		_, cursor, _ := view.Changed(0)
		d.compactIdly(0)
		d.do(l, orbit.Mark{Key: "m", Value: "v"})
		require.NoError(d, view.Refresh(bg, l, board, time.Now()))
		for n := range view.State().Nodes() {
			require.Equal(d, n.Node.ID, view.Report(n).Node)
			require.Equal(d, int(n.Node.ID[0]), view.Report(n).FreeSlots)
		}
		_, _, all := view.Changed(cursor)
		require.True(d, all, "slots are others now")
		at := view.Revision()
		d.do(l, orbit.Mark{Key: "m", Value: "w"})
		changes, err := l.Changes(bg, at)
		require.NoError(d, err)
		require.Len(d, changes, 1, "and then the history goes on")
	})
}
