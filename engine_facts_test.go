package orbit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/telemetry"
)

// since returns the revision at which a capsule was placed.
func (w *freedWorld) since(id orbit.CapsuleID) orbit.Revision {
	s, err := w.ledger.Snapshot(w.Context())
	require.NoError(w, err)
	return s.Capsule(id).PlacedAt
}

// runs submits a capsule of another engine and places it.
func (w *freedWorld) runs(id orbit.CapsuleID, on orbit.NodeID, spec *orbit.Spec) {
	w.commit(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec, Owner: "them"}, orbit.Place{Capsule: id, Node: on})
}

// in describes a node of some cores in a zone.
func in(id orbit.NodeID, zone string, cores int64) orbit.PutNode {
	return roomOf(id, func(n *orbit.Node) { n.Capacity[orbit.CPU], n.Labels = cores, map[string]string{"zone": zone} })
}

// with returns a spec of some cores with a change.
func with(cores int64, change func(*orbit.Spec)) *orbit.Spec {
	s := coresOf(orbit.LatencySensitive, cores)
	change(s)
	return s
}

// guarded makes a node on which "low" runs, which has to make way for what waits, and "n2" which is too small for that.
// A budget of the group of low lets one member be missing of two.
func (w *freedWorld) guarded(change func(*orbit.Node)) {
	w.commit(roomOf("n", nil), roomOf("n2", func(n *orbit.Node) {
		n.Capacity[orbit.CPU] = 1
		if change != nil {
			change(n)
		}
	}), orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "web", Expected: 2, Missing: 1}})
	w.runs("low", "n", web(4))
}

// web is the spec of a member of the group that has a budget.
func web(cores int64) *orbit.Spec { return with(cores, func(s *orbit.Spec) { s.Group = "web" }) }

var (
	urgent  = with(4, func(s *orbit.Spec) { s.Priority = 9 })
	beside  = with(4, func(s *orbit.Spec) { s.Near = orbit.Near{Group: "g", Level: "zone"} })
	shy     = with(4, func(s *orbit.Spec) { s.Apart = []orbit.Apart{{Group: "g", Level: "zone"}} })
	evenly  = with(1, func(s *orbit.Spec) { s.Group, s.Even = "e", []orbit.Even{{Group: "e", Level: "zone"}} })
	ofGroup = with(1, func(s *orbit.Spec) { s.Group = "g" })
	grown   = with(1, func(*orbit.Spec) {})
)

// facts are changes other than that of free room by which work that waits may be placed: what waits, what keeps it from
// being placed, and what ends that.
var facts = map[string]struct {
	waits        *orbit.Spec
	before, then func(w *freedWorld)
}{
	"protection ends": {urgent, func(w *freedWorld) {
		w.commit(roomOf("n", nil), orbit.Submit{IDs: []orbit.CapsuleID{"low"}, Spec: web(4), Owner: "them"},
			orbit.Place{Capsule: "low", Node: "n"}, orbit.Protect{Capsule: "low", For: 10 * time.Minute})
	}, func(w *freedWorld) {
		w.commit(orbit.Protect{Capsule: "low", Since: w.since("low")})
	}},
	"another budget": {urgent, func(w *freedWorld) { w.guarded(nil) }, func(w *freedWorld) {
		w.commit(orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "web", Expected: 1, Missing: 1}})
	}},
	"no budget":        {urgent, func(w *freedWorld) { w.guarded(nil) }, func(w *freedWorld) { w.commit(orbit.RemoveBudget{Budget: "b"}) }},
	"a member placed":  {urgent, func(w *freedWorld) { w.guarded(nil) }, func(w *freedWorld) { w.runs("more", "n2", web(1)) }},
	"a member adopted": {urgent, func(w *freedWorld) { w.guarded(nil) }, func(w *freedWorld) { w.commit(orbit.Adopt{Capsule: "more", Spec: web(1), Node: "n2"}) }},
	"a member ready": {urgent, func(w *freedWorld) {
		w.guarded(func(n *orbit.Node) { n.Confirms = true })
		w.runs("more", "n2", web(1))
		w.commit(orbit.Confirm{Capsule: "more", Since: w.since("more"), Begun: true})
	}, func(w *freedWorld) {
		w.commit(orbit.Confirm{Capsule: "more", Since: w.since("more"), Ready: true})
	}},
	"a surge is ready": {with(4, func(*orbit.Spec) {}), func(w *freedWorld) {
		confirms := func(n *orbit.Node) { n.Confirms = true }
		w.commit(roomOf("n", confirms), roomOf("n2", confirms))
		w.runs("low", "n", with(4, func(s *orbit.Spec) { s.Movable, s.Surge = true, true }))
		w.commit(orbit.Confirm{Capsule: "low", Since: w.since("low"), Ready: true})
		w.commit(orbit.Evict{Capsule: "low", From: "n", Since: w.since("low"), Surge: true}, orbit.Place{Capsule: "low", Node: "n2"})
	}, func(w *freedWorld) {
		w.commit(orbit.Confirm{Capsule: "low", Since: w.since("low"), Ready: true})
	}},
	"a member by another spec": {urgent, func(w *freedWorld) {
		w.guarded(nil)
		w.runs("more", "n2", grown)
	}, func(w *freedWorld) {
		w.commit(orbit.Respec{Capsule: "more", Since: w.since("more"), Spec: web(1)})
	}},
	"the victim is a member no more": {urgent, func(w *freedWorld) { w.guarded(nil) }, func(w *freedWorld) {
		w.commit(orbit.Respec{Capsule: "low", Since: w.since("low"), Spec: with(4, func(*orbit.Spec) {})})
	}},
	"company by another spec": {beside, func(w *freedWorld) {
		w.commit(in("n", "z", 4), in("n2", "z", 1))
		w.runs("other", "n2", grown)
	}, func(w *freedWorld) {
		w.commit(orbit.Respec{Capsule: "other", Since: w.since("other"), Spec: ofGroup})
	}},
	"apart by another spec": {shy, func(w *freedWorld) {
		w.commit(in("n", "z", 4), in("n2", "z", 1))
		w.runs("other", "n2", ofGroup)
	}, func(w *freedWorld) {
		w.commit(orbit.Respec{Capsule: "other", Since: w.since("other"), Spec: grown})
	}},
	"company adopted": {beside, func(w *freedWorld) { w.commit(in("n", "z", 4), in("n2", "z", 1)) },
		func(w *freedWorld) { w.commit(orbit.Adopt{Capsule: "other", Spec: ofGroup, Node: "n2"}) }},
	"an empty domain leaves": {evenly, func(w *freedWorld) {
		w.commit(in("n", "z", 4), in("n2", "empty", 0))
		w.runs("other", "n", evenly)
	}, func(w *freedWorld) {
		w.commit(orbit.RemoveNode{Node: "n2"})
	}},
	"an empty domain is gone": {evenly, func(w *freedWorld) {
		w.commit(in("n", "z", 4), in("n2", "empty", 0))
		w.runs("other", "n", evenly)
	}, func(w *freedWorld) {
		w.commit(orbit.RemoveNode{Node: "n2", Gone: true})
	}},
	"nominee by another spec": {grown, func(w *freedWorld) { w.nominate(100 * time.Hour) }, func(w *freedWorld) {
		w.commit(orbit.Respec{Capsule: "rival", Spec: with(9, func(*orbit.Spec) {})})
	}},
	"nominee adopted elsewhere": {grown, func(w *freedWorld) { w.nominate(100 * time.Hour) }, func(w *freedWorld) {
		w.commit(in("m", "z", 0), orbit.Adopt{Capsule: "rival", Node: "m"})
	}},
	"what stops is in the way no longer": {shy, func(w *freedWorld) {
		full := in("m", "z", 0) // in the zone of the node that has room
		full.Node.Confirms = true
		w.commit(in("n", "z", 4), full)
		w.runs("old", "m", with(0, func(s *orbit.Spec) { s.Group = "g" }))
		w.commit(orbit.Confirm{Capsule: "old", Since: w.since("old"), Begun: true})
		w.commit(orbit.Release{Capsule: "old", Final: true})
	}, func(w *freedWorld) {
		s, err := w.ledger.Snapshot(w.Context())
		require.NoError(w, err)
		w.commit(orbit.Respec{Capsule: "old", Since: s.Capsule("old").Remains().Since, Spec: with(0, func(*orbit.Spec) {}), Stopping: true})
	}},
	"what stopped with another spec has stopped": {shy, func(w *freedWorld) {
		w.commit(roomOf("n", func(n *orbit.Node) { n.Confirms, n.Labels = true, map[string]string{"zone": "z"} }))
		w.runs("old", "n", with(0, func(*orbit.Spec) {}))
		w.commit(orbit.Confirm{Capsule: "old", Since: w.since("old"), Begun: true})
		w.commit(orbit.Release{Capsule: "old", Final: true})
		s, err := w.ledger.Snapshot(w.Context())
		require.NoError(w, err)
		w.commit(orbit.Respec{Capsule: "old", Since: s.Capsule("old").Remains().Since, Spec: with(0, func(s *orbit.Spec) { s.Group = "g" }), Stopping: true})
	}, func(w *freedWorld) {
		s, err := w.ledger.Snapshot(w.Context())
		require.NoError(w, err)
		w.commit(orbit.Confirm{Capsule: "old", Since: s.Capsule("old").Remains().Since, Stopped: true})
	}},
	"remains have stopped": {grown, func(w *freedWorld) {
		agent := func(n *orbit.Node) { n.Confirms = true }
		w.commit(roomOf("n", agent))
		w.runs("old", "n", with(4, func(*orbit.Spec) {}))
		w.commit(orbit.Confirm{Capsule: "old", Since: w.since("old"), Begun: true})
		w.commit(orbit.Release{Capsule: "old", Final: true}, roomOf("n", nil))
	}, func(w *freedWorld) {
		s, err := w.ledger.Snapshot(w.Context())
		require.NoError(w, err)
		w.commit(orbit.Confirm{Capsule: "old", Since: s.Capsule("old").Remains().Since, Stopped: true})
	}},
}

// What ends the reason for which work waits brings it back at once, however long the engine would put it aside.
func TestFactsWakeAtOnce(t *testing.T) {
	for what, c := range facts {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &freedWorld{T: t, ledger: &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}, board: &telemetry.Board{Stale: -1}, start: time.Now()}
				c.before(w)
				w.commit(orbit.Submit{IDs: []orbit.CapsuleID{"waits"}, Spec: c.waits, Owner: "e"})
				e := &orbit.Engine{Name: "e", Ledger: w.ledger, Navigator: &nav.Preempting{Navigator: &nav.Services{}}, ParkFor: 24 * time.Hour,
					Backoff: orbit.Backoff{Initial: time.Hour, Max: time.Hour, Jitter: -1}}
				go func() { _ = e.Run(t.Context()) }() // ends with the test
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Empty(t, w.where("waits"), "something keeps it")
				c.then(w)
				synctest.Wait()
				require.NotEmpty(t, w.where("waits"), "at once")
			})
		})
	}
}
