package orbit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/telemetry"
)

// wholeGangs is an importer's navigator of gangs: all members, or none, on nodes that report a free slot.
type wholeGangs struct{ draft orbit.Draft }

func (w *wholeGangs) Claims(string, orbit.AppClass) bool { return true }

func (w *wholeGangs) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	w.draft.Sync(view)
	engine := &place.Exhaustive{Filter: slotsOnly}
	for _, c := range pending {
		if err := w.draft.PlaceBest(engine, c); err != nil {
			for _, c := range pending {
				plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: errors.New("the gang does not fit whole")})
			}
			return plan, nil
		}
	}
	plan.Proposals = append(plan.Proposals, w.draft.Propose(orbit.GangUnplaced{Gang: "g"}))
	return plan, nil
}

// slotsOnly takes out nodes that report no free slot.
func slotsOnly(_ *orbit.NodeState, r *orbit.Report, _ *orbit.Spec) string {
	if r.FreeSlots == 0 {
		return "have no free slot"
	}
	return ""
}

// freedWorld has a node "n" on which there is no room yet, and "spare", where a second member of a gang fits.
type freedWorld struct {
	*testing.T
	ledger *orbit.MemoryLedger
	board  *telemetry.Board
	start  time.Time
}

func (w *freedWorld) commit(do ...orbit.Commitment) {
	_, err := w.ledger.Propose(w.Context(), orbit.Proposal{Do: do})
	require.NoError(w, err)
}

func (w *freedWorld) report(id orbit.NodeID, slots int) {
	require.NoError(w, w.board.Report(orbit.Report{Node: id, At: time.Now(), FreeSlots: slots}))
}

// roomOf describes a node of 4 cores with a device.
func roomOf(id orbit.NodeID, change func(*orbit.Node)) orbit.PutNode {
	n := orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 4}, Devices: orbit.Devices{Model: "A100", Count: 1}}
	if change != nil {
		change(&n)
	}
	return orbit.PutNode{Node: n}
}

func coresOf(class orbit.AppClass, cores int64) *orbit.Spec {
	return &orbit.Spec{Class: class, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cores}}}
}

// freed are the ways in which room becomes free: what keeps it before, and what frees it. At is when that happens by
// itself.
var freed = map[string]struct {
	before, free func(w *freedWorld)
	devices      bool
	at           time.Duration
}{
	"release": {
		before: func(w *freedWorld) {
			w.commit(roomOf("n", nil), orbit.Submit{IDs: []orbit.CapsuleID{"old"}, Spec: coresOf(orbit.Batch, 1), Owner: "them"}, orbit.Place{Capsule: "old", Node: "n"})
		},
		free: func(w *freedWorld) { w.commit(orbit.Release{Capsule: "old", Final: true}) },
	},
	"respec": {
		before: func(w *freedWorld) {
			w.commit(roomOf("n", nil), orbit.Submit{IDs: []orbit.CapsuleID{"old"}, Spec: coresOf(orbit.Batch, 4), Owner: "them"}, orbit.Place{Capsule: "old", Node: "n"})
		},
		free: func(w *freedWorld) {
			s, err := w.ledger.Snapshot(w.Context())
			require.NoError(w, err)
			w.commit(orbit.Respec{Capsule: "old", Since: s.Capsule("old").PlacedAt, Spec: coresOf(orbit.Batch, 0)})
		},
	},
	"release of a hold": {
		before: func(w *freedWorld) {
			w.commit(roomOf("n", nil), orbit.Hold{ID: "h", Node: "n", Room: orbit.Resources{orbit.CPU: 1}, Ends: w.start.Add(100 * time.Hour)})
		},
		free: func(w *freedWorld) { w.commit(orbit.Release{Hold: "h"}) },
	},
	"end of a hold": {
		before: func(w *freedWorld) {
			w.commit(roomOf("n", nil), orbit.Hold{ID: "h", Node: "n", Room: orbit.Resources{orbit.CPU: 1}, Ends: w.start.Add(time.Minute)})
		},
		at: time.Minute,
	},
	"nomination ended": {
		before: func(w *freedWorld) { w.nominate(100 * time.Hour) },
		free: func(w *freedWorld) {
			s, err := w.ledger.Snapshot(w.Context())
			require.NoError(w, err)
			w.commit(orbit.Nominate{Capsule: "rival", Since: s.Capsule("rival").Nomination().Made})
		},
	},
	"nominee gone": {
		before: func(w *freedWorld) { w.nominate(100 * time.Hour) },
		free:   func(w *freedWorld) { w.commit(orbit.Release{Capsule: "rival", Final: true}) },
	},
	"nominee placed elsewhere": {
		before: func(w *freedWorld) { w.nominate(100 * time.Hour) },
		free: func(w *freedWorld) {
			w.commit(roomOf("m", nil), orbit.Place{Capsule: "rival", Node: "m"})
		},
	},
	"lapse of a nomination": {
		before: func(w *freedWorld) { w.nominate(time.Minute) },
		at:     time.Minute,
	},
	"more capacity": {
		before: func(w *freedWorld) { w.commit(roomOf("n", func(n *orbit.Node) { n.Capacity[orbit.CPU] = 3 })) },
		free:   func(w *freedWorld) { w.commit(roomOf("n", nil)) },
	},
	"end of a cordon": {
		before: func(w *freedWorld) { w.commit(roomOf("n", func(n *orbit.Node) { n.State = orbit.Cordoned })) },
		free:   func(w *freedWorld) { w.commit(roomOf("n", nil)) },
	},
	"device healthy": {
		before:  func(w *freedWorld) { w.commit(roomOf("n", func(n *orbit.Node) { n.Devices.Unhealthy = 1 })) },
		free:    func(w *freedWorld) { w.commit(roomOf("n", nil)) },
		devices: true,
	},
	"node joins": {
		before: func(*freedWorld) {},
		free:   func(w *freedWorld) { w.commit(roomOf("n", nil)) },
	},
	"report": {
		before: func(w *freedWorld) { w.commit(roomOf("n", nil)); w.report("n", 0) },
		free:   func(w *freedWorld) { w.report("n", 1) },
	},
}

// nominate keeps the node for a rival that ranks higher.
func (w *freedWorld) nominate(lasts time.Duration) {
	rival := coresOf(orbit.Batch, 4)
	rival.Priority = 9
	w.commit(roomOf("n", nil), orbit.Submit{IDs: []orbit.CapsuleID{"rival"}, Spec: rival, Owner: "them"}, orbit.Nominate{Capsule: "rival", Ends: w.start.Add(lasts),
		Parts: []orbit.NominatedRoom{{Node: "n", Room: orbit.Resources{orbit.CPU: 4}}}})
}

// TestFreedRoomWakesAtOnce: whatever frees room wakes a class that waits for it, and a gang, though the back-off of their engine
// has an hour to go, and no class that is parked would be tried again for a day. They are placed at the same instant.
func TestFreedRoomWakesAtOnce(t *testing.T) {
	for what, c := range freed {
		for who, navigator := range map[string]func() orbit.Navigator{
			"class": func() orbit.Navigator { return &nav.Services{Placement: &place.Indexed{Filter: slotsOnly}} },
			"class of a Patient": func() orbit.Navigator {
				return &nav.Patient{Navigator: &nav.Services{Placement: &place.Indexed{Filter: slotsOnly}}}
			},
			"gang":              func() orbit.Navigator { return &nav.Gang{} },
			"gang of a Patient": func() orbit.Navigator { return &nav.Patient{Navigator: &nav.Gang{}} },
			"importer's gang":   func() orbit.Navigator { return &wholeGangs{} },
		} {
			gang := who != "class" && who != "class of a Patient"
			if what == "report" && gang && who != "importer's gang" {
				continue // nav.Gang reads no reports
			}
			t.Run(what+", "+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &freedWorld{T: t, ledger: &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}, board: &telemetry.Board{Stale: -1}, start: time.Now()}
					w.report("n", 1)
					w.report("spare", 1)
					c.before(w)
					w.submit(gang, c.devices)
					e := &orbit.Engine{Name: "e", Ledger: w.ledger, Telemetry: w.board, Navigator: navigator(), ParkFor: 24 * time.Hour,
						Backoff: orbit.Backoff{Initial: time.Hour, Max: time.Hour, Jitter: -1}}
					go func() { _ = e.Run(t.Context()) }() // ends with the test
					if c.free == nil {
						time.Sleep(c.at - 1)
					} else {
						time.Sleep(10 * time.Minute)
					}
					synctest.Wait()
					require.Empty(t, w.where("w1"), "there is no room yet")
					if c.free == nil {
						time.Sleep(1)
					} else {
						c.free(w)
					}
					synctest.Wait()
					require.NotEmpty(t, w.where("w1"), "at once")
				})
			})
		}
	}
}

// submit submits what waits: one capsule of 4 cores, or a gang of two of them and the node on which one fits.
func (w *freedWorld) submit(gang, devices bool) {
	spec := coresOf(orbit.LatencySensitive, 4)
	if devices {
		spec.Devices = orbit.DeviceRequest{Count: 1, Milli: 1000}
	}
	if !gang {
		w.commit(orbit.Submit{IDs: []orbit.CapsuleID{"w1"}, Spec: spec})
		return
	}
	spec.Class = orbit.GangClass
	w.commit(roomOf("spare", nil), orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "worker", Spec: spec, Members: []orbit.CapsuleID{"w1", "w2"}}}}})
}

func (w *freedWorld) where(id orbit.CapsuleID) orbit.NodeID {
	s, err := w.ledger.Snapshot(w.Context())
	require.NoError(w, err)
	return s.Capsule(id).Node
}
