package orbit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A plan lets a capsule grow into the room of one that it evicts for that, in one proposal. Where agents confirm, a
// victim that has begun is in the way until it has stopped, and the draft says so.
func TestDraftGrowsByEviction(t *testing.T) {
	for _, begun := range []bool{false, true} {
		l := &MemoryLedger{}
		n := machine("n", 10)
		n.Confirms = true
		db, large := wants(5), wants(8)
		db.Priority, large.Priority = 100, 100
		commit(t, l, PutNode{n}, Submit{IDs: []CapsuleID{"db"}, Spec: db}, Submit{IDs: []CapsuleID{"low"}, Spec: wants(5)}, Place{Capsule: "db", Node: "n"}, Place{Capsule: "low", Node: "n"})
		if begun {
			commit(t, l, Confirm{Capsule: "low", Since: snapshotOf(t, l).Capsule("low").PlacedAt, Begun: true})
		}
		var view View
		require.NoError(t, view.Refresh(t.Context(), l, nil, time.Now()))
		var d Draft
		d.Sync(&view)
		grow := Respec{Capsule: "db", Spec: large}
		require.ErrorContains(t, d.Respec(grow), `capsule "db" cannot grow on node "n" by cpu=3`)
		require.NoError(t, d.Evict(Evict{Capsule: "low", For: "db"}))
		if err := d.Respec(grow); begun {
			require.ErrorContains(t, err, `while capsule "low", which leaves it, has not stopped: a growth is used at once and cannot wait`)
			continue
		} else {
			require.NoError(t, err)
		}
		_, err := l.Propose(t.Context(), d.Propose())
		require.NoError(t, err)
		require.Equal(t, large.Envelope, snapshotOf(t, l).Capsule("db").Spec.Envelope)
		require.True(t, snapshotOf(t, l).Capsule("low").Pending())
	}
}

// A draft takes no Respec with Stopping, which is for agents: also if the capsule is placed elsewhere and its former instance stops.
func TestDraftsRespecNothingThatStops(t *testing.T) {
	l := &MemoryLedger{}
	n, m := machine("n", 10), machine("m", 10)
	n.Confirms, m.Confirms = true, true
	spec := wants(5)
	spec.Movable = true
	commit(t, l, PutNode{n}, PutNode{m}, Submit{IDs: []CapsuleID{"db"}, Spec: spec}, Place{Capsule: "db", Node: "n"})
	since := snapshotOf(t, l).Capsule("db").PlacedAt
	commit(t, l, Confirm{Capsule: "db", Since: since, Begun: true})
	commit(t, l, Evict{Capsule: "db", From: "n", Since: since}, Place{Capsule: "db", Node: "m"})
	var view View
	require.NoError(t, view.Refresh(t.Context(), l, nil, time.Now()))
	var d Draft
	d.Sync(&view)
	require.ErrorContains(t, d.Respec(Respec{Capsule: "db", Since: since, Spec: spec, Stopping: true}), "which is not for a plan")
	require.Empty(t, d.Propose().Do)
}
