package nav_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// woken runs an engine, which leaves the capsule "waits" out. After two days something changes, and the capsule must be
// placed within a second, although the engine would make the next pass by itself about a day later.
func woken(t *testing.T, l orbit.Ledger, n orbit.Navigator, waits *orbit.Spec, change func()) {
	const day = 24 * time.Hour
	runEngine(t, &orbit.Engine{Name: "engine", Ledger: l, Navigator: n, ParkFor: 100 * day, Backoff: orbit.Backoff{Max: 100 * day, Jitter: -1}})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"waits"}, Spec: waits})
	time.Sleep(2 * day)
	require.True(t, snapshot(t, l).Capsule("waits").Pending())
	change()
	time.Sleep(time.Second)
	assert.True(t, snapshot(t, l).Capsule("waits").Placed())
}

// agented is a node with an agent, and one extra of the name "x".
func agented(id, zone string, cpu int64) orbit.PutNode {
	n := node(id, cpu)
	n.Node.Confirms, n.Node.Labels, n.Node.Extras = true, map[string]string{"zone": zone}, []orbit.Extra{{Name: "x", Amount: 1}}
	return n
}

func confirm(t require.TestingT, l orbit.Ledger, id orbit.CapsuleID, is func(*orbit.Confirm)) {
	do := orbit.Confirm{Capsule: id, Since: snapshot(t, l).Capsule(id).PlacedAt}
	is(&do)
	commit(t, l, do)
}

func begun(c *orbit.Confirm) { c.Begun = true }
func ready(c *orbit.Confirm) { c.Ready = true }

// What Preempting cannot place because nobody may be evicted for it is placed as soon as a victim appears.
func TestPreemptingIsWokenWhenAVictimAppears(t *testing.T) {
	devices := spec(1, 5)
	devices.Devices = orbit.DeviceRequest{Count: 1, Milli: 1000}
	for _, c := range []struct {
		name         string
		waits        *orbit.Spec
		high, low, n int64
	}{{"cpu", spec(4, 5), 4, 4, 1}, {"some of the cpu", spec(4, 5), 2, 3, 1}, {"a device", devices, 1, 1, 1}, {"among many nodes", spec(4, 5), 4, 4, 40}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				of := func(cpu int64, priority int32) *orbit.Spec {
					s := batchSpec(cpu)
					s.Priority, s.Devices = priority, c.waits.Devices
					return s
				}
				for i := range c.n {
					n := node(fmt.Sprint("n", i), 4)
					n.Node.Devices = orbit.Devices{Model: "m", Count: 1}
					commit(t, l, n)
					put(t, l, fmt.Sprint("high", i), fmt.Sprint("n", i), of(c.high, 9))
				}
				woken(t, l, &nav.Preempting{Navigator: &nav.Services{}}, c.waits, func() {
					commit(t, l, orbit.Release{Capsule: "high0", Final: true}, orbit.Submit{IDs: []orbit.CapsuleID{"low"}, Spec: of(c.low, 0)},
						orbit.Place{Capsule: "low", Node: "n0", Devices: orbit.DeviceSet(c.waits.Devices.Count)})
				})
			})
		})
	}
}

// What Preempting cannot place because a budget keeps the victims is placed as soon as the budget allows an eviction.
func TestPreemptingIsWokenWhenABudgetAllowsIt(t *testing.T) {
	web := func(cpu int64) *orbit.Spec {
		s := batchSpec(cpu)
		s.Group = "web"
		return s
	}
	for name, change := range map[string]func(*testing.T, orbit.Ledger){
		"a member is ready": func(t *testing.T, l orbit.Ledger) { confirm(t, l, "w2", ready) },
		"a member more":     func(t *testing.T, l orbit.Ledger) { put(t, l, "w3", "without", web(3)) },
		"a member is found": func(t *testing.T, l orbit.Ledger) {
			commit(t, l, orbit.Adopt{Capsule: "w3", Spec: web(3), Node: "without"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				commit(t, l, agented("n", "z", 4), agented("m", "z", 3), node("without", 3), orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "web", Expected: 1}})
				put(t, l, "w1", "n", web(4))
				put(t, l, "w2", "m", web(3))
				woken(t, l, &nav.Preempting{Navigator: &nav.Services{}}, spec(4, 5), func() { change(t, l) })
			})
		})
	}
}

// What waits for an extra, or for a domain that a rule closes, because of a capsule that has left its node, is placed as
// soon as the capsule has stopped.
func TestWorkIsWokenWhenACapsuleStops(t *testing.T) {
	apart := func(level string) func(*orbit.Spec) {
		return func(s *orbit.Spec) { s.Group, s.Apart = "g", []orbit.Apart{{Group: "g", Level: level}} }
	}
	for _, c := range []struct {
		name  string
		waits func(*orbit.Spec)
	}{
		{"an extra", func(s *orbit.Spec) { s.Extras = []orbit.Extra{{Name: "x", Amount: 1}} }},
		{"a node", apart(orbit.NodeKey)},
		{"a zone", apart("zone")},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				commit(t, l, agented("n", "z", 8))
				waits, old := spec(1, 0), batchSpec(1)
				c.waits(waits)
				c.waits(old)
				put(t, l, "old", "n", old)
				confirm(t, l, "old", begun)
				at := snapshot(t, l).Capsule("old").PlacedAt
				commit(t, l, orbit.Release{Capsule: "old", Final: true})
				woken(t, l, &nav.Services{}, waits, func() { commit(t, l, orbit.Confirm{Capsule: "old", Since: at, Stopped: true}) })
			})
		})
	}
}

// A plan that frees no room for urgent work, because other work of the plan takes what is free, is followed by one that may
// evict that work too.
func TestPreemptingEvictsWhatItsLastPlanHasPlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("n", 4))
		put(t, l, "low0", "n", spec(2, 0))
		put(t, l, "high", "n", spec(2, 9))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"low1"}, Spec: spec(2, 0)})
		woken(t, l, &nav.Preempting{Navigator: &nav.Services{}}, spec(3, 5), func() { commit(t, l, orbit.Release{Capsule: "high", Final: true}) })
	})
}

// A daemon whose node is full of work that may move, but fits nowhere else, is placed as soon as another node gains room that the
// daemon itself may not use. Node "z" has room from the beginning, for neither.
func TestPreemptingIsWokenByRoomForOthers(t *testing.T) {
	for name, change := range map[string]func(l orbit.Ledger){
		"a release":    func(l orbit.Ledger) { commit(t, l, orbit.Release{Capsule: "b-0", Final: true}) },
		"a new node":   func(l orbit.Ledger) { commit(t, l, node("c", 4)) },
		"a chain":      func(l orbit.Ledger) { commit(t, l, orbit.Release{Capsule: "b-1", Final: true}) },
		"after others": func(l orbit.Ledger) { room(t, l, 40); commit(t, l, orbit.Release{Capsule: "b-0", Final: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				commit(t, l, node("a", 4), node("b", 8), node("z", 1))
				for _, c := range []struct {
					id, on string
					cpu    int64
				}{{"a-0", "a", 4}, {"b-0", "b", 4}, {"b-1", "b", 4}} {
					s := spec(c.cpu, 0)
					s.Movable = c.id == "a-0"
					commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(c.id)}, Spec: s}, orbit.Place{Capsule: orbit.CapsuleID(c.id), Node: orbit.NodeID(c.on)})
				}
				woken(t, l, &nav.Preempting{Navigator: &nav.Services{}}, daemonOn("a", 0), func() { change(l) })
			})
		})
	}
}

// room gives a little room again and again, each time in vain for work of 4.
func room(t *testing.T, l orbit.Ledger, times int) {
	for i := range times {
		commit(t, l, node("z", int64(1+i%2)))
		time.Sleep(time.Hour)
	}
}
