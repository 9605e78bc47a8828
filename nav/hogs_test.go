package nav_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// hogs make work that can never be placed: it asks for more than any node has, or no node suits it.
var hogs = map[string]func(*orbit.Spec){
	"larger than any node": func(s *orbit.Spec) { s.Envelope.Reservation[orbit.CPU] = 5 },
	"suited by no node":    func(s *orbit.Spec) { s.Require = []orbit.Predicate{{Key: "gpu", Op: "Exists"}} },
	"more devices":         func(s *orbit.Spec) { s.Devices = orbit.DeviceRequest{Count: 1, Milli: 1000} },
}

// hog returns a spec of its own for each number.
func hog(kind string, n int, priority int32, class orbit.AppClass) *orbit.Spec {
	s := spec(4, priority)
	s.Module, s.Class = fmt.Sprint("hog", n), class
	hogs[kind](s)
	return s
}

// runEngine runs an engine until the test ends.
func runEngine(t *testing.T, e *orbit.Engine) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// Work that can never be placed does not use up the tries of all plans: large work behind it is nominated in time, and
// stays nominated.
func TestPatientTriesAllThatWait(t *testing.T) {
	for kind := range hogs {
		for _, c := range []struct {
			hogs     int
			priority int32
			after    time.Duration // with 1, each plan is handed all of them, and may try each again
		}{{8, 100, 0}, {8, 0, 0}, {40, 100, 0}, {300, 100, 0}, {8, 100, 1}, {40, 100, 1}} {
			t.Run(fmt.Sprintf("%s: %d of priority %d, after %v", kind, c.hogs, c.priority, c.after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := &orbit.MemoryLedger{}
					commit(t, l, node("a", 4), node("b", 4))
					for i := range 8 {
						put(t, l, fmt.Sprint("t", i), string("ab"[i/4]), batchSpec(1))
					}
					for i := range c.hogs {
						commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("hog", i))}, Spec: hog(kind, i, c.priority, orbit.LatencySensitive)})
					}
					commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 0)})
					runEngine(t, &orbit.Engine{Name: "patient", Ledger: l, ParkFor: c.after, Navigator: &nav.Patient{Navigator: &nav.Services{}, After: c.after}})
					time.Sleep(2 * time.Minute)
					nominated := 0
					seconds := scale.Of(360, 3600)
					for range seconds {
						time.Sleep(time.Second)
						if snapshot(t, l).Capsule("large").Nomination().Lives() {
							nominated++
						}
					}
					assert.Greater(t, nominated, seconds*9/10)
				})
			})
		}
	}
}

// Work that has failed as often as the hogs before it gets its turn among them: once a node suits it, it is nominated,
// although the hogs are more than the tries of a plan and come first in each.
func TestPatientTriesAgainInTurn(t *testing.T) {
	for _, count := range []int{8, 9, 40}[:scale.WithRace(2, 3)] {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				commit(t, l, node("a", 4), node("b", 4))
				for i := range 8 {
					put(t, l, fmt.Sprint("t", i), string("ab"[i/4]), batchSpec(1))
				}
				for i := range count {
					commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("hog", i))}, Spec: hog("suited by no node", i, 100, orbit.LatencySensitive)})
				}
				large := spec(4, 0)
				large.Require = []orbit.Predicate{{Key: "ssd", Op: "Exists"}}
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: large})
				runEngine(t, &orbit.Engine{Name: "patient", Ledger: l, ParkFor: 1, Navigator: &nav.Patient{Navigator: &nav.Services{}, After: 1}})
				time.Sleep(10 * time.Minute)
				require.False(t, snapshot(t, l).Capsule("large").Nomination().Lives())
				suits := node("a", 4)
				suits.Node.Labels = map[string]string{"ssd": "yes"}
				commit(t, l, suits)
				time.Sleep(2 * time.Minute)
				require.True(t, snapshot(t, l).Capsule("large").Nomination().Lives())
			})
		})
	}
}

// Gangs that may evict nobody, and more of them than a plan searches for, do not keep out a gang behind them that has failed
// as often and may evict now.
func TestPreemptingTriesAgainInTurn(t *testing.T) {
	for _, count := range []int{4, 5, 40}[:scale.WithRace(2, 3)] {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				commit(t, l, node("a", 4), node("b", 4))
				put(t, l, "low0", "a", spec(4, 60))
				put(t, l, "low1", "b", spec(4, 60))
				gang := func(id string, s *orbit.Spec) {
					commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Name: "w", Spec: s, Members: gangMembers(id, 2)}}}})
				}
				for i := range count {
					gang(fmt.Sprint("hog", i), hog("suited by no node", i, 100, orbit.GangClass))
				}
				fits := spec(4, 50)
				fits.Class = orbit.GangClass
				gang("fits", fits)
				runEngine(t, &orbit.Engine{Name: "gangs", Ledger: l, ParkFor: 1, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}})
				time.Sleep(10 * time.Minute)
				require.Zero(t, placedOf(t, l, "fits"))
				for _, id := range []orbit.CapsuleID{"low0", "low1"} {
					free := "free of " + id
					commit(t, l, // at once: the engine must not see the node without either
						orbit.Release{Capsule: id, Final: true},
						orbit.Submit{IDs: []orbit.CapsuleID{free}, Spec: spec(4, 0)},
						orbit.Place{Capsule: free, Node: snapshot(t, l).Capsule(id).Node})
				}
				time.Sleep(2 * time.Minute)
				require.Equal(t, 2, placedOf(t, l, "fits"))
			})
		})
	}
}

// Tries for work that asks for more than any node has cost no looks at nodes.
func TestPatientLooksAtNoNodeForWhatIsTooLarge(t *testing.T) {
	looks := func(hogs int) int64 {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("a", 4), node("b", 4))
		for i := range 8 {
			put(t, l, fmt.Sprint("t", i), string("ab"[i/4]), batchSpec(1))
		}
		for i := range hogs {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("hog", i))}, Spec: hog("larger than any node", i, 100, orbit.LatencySensitive)})
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 0)})
		e := engineOf(l, impatient(&nav.Services{}))
		e.Pass(t.Context())
		r := e.Pass(t.Context())
		require.True(t, snapshot(t, l).Capsule("large").Nomination().Lives())
		return noteOf(r.Notes, "nodesLooked")
	}
	require.Positive(t, looks(0))
	require.Equal(t, looks(0), looks(50))
}

// Gangs that can never be placed do not use up the searches for victims of all plans: a gang behind them evicts what is in
// its way.
func TestPreemptingTriesAllGangs(t *testing.T) {
	for kind := range hogs {
		for _, count := range []int{4, 8, 40} {
			t.Run(fmt.Sprintf("%s: %d", kind, count), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := &orbit.MemoryLedger{}
					commit(t, l, node("a", 4), node("b", 4))
					put(t, l, "low0", "a", spec(4, 0))
					put(t, l, "low1", "b", spec(4, 0))
					gang := func(id string, s *orbit.Spec) {
						commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Name: "w", Spec: s, Members: gangMembers(id, 2)}}}})
					}
					for i := range count {
						gang(fmt.Sprint("hog", i), hog(kind, i, 100, orbit.GangClass))
					}
					fits := spec(4, 50)
					fits.Class = orbit.GangClass
					gang("fits", fits)
					runEngine(t, &orbit.Engine{Name: "gangs", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}})
					time.Sleep(30 * time.Second)
					for _, id := range gangMembers("fits", 2) {
						assert.True(t, snapshot(t, l).Capsule(id).Placed())
					}
				})
			})
		}
	}
}

// zoned returns a node of a zone.
func zoned(id, zone string, cpu int64) orbit.PutNode {
	n := node(id, cpu)
	n.Node.Labels = map[string]string{"zone": zone}
	n.Node.Capacity[orbit.Memory] = 1000
	return n
}

// rolesGang submits a gang with as many members of each size in cores.
func rolesGang(t require.TestingT, l orbit.Ledger, id, zone string, memory int64, sizes map[int64]int) {
	g := &orbit.Gang{ID: orbit.GangID(id)}
	for _, cpu := range slices.Sorted(maps.Keys(sizes)) {
		s := gangSpec(cpu)
		s.Envelope.Reservation[orbit.Memory] = memory
		s.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{zone}}}
		role := fmt.Sprint(id, "-", cpu)
		g.Roles = append(g.Roles, orbit.Role{Name: role, Spec: s, Members: gangMembers(role, sizes[cpu])})
	}
	commit(t, l, orbit.Submit{Gang: g})
}

// Gangs whose searches take all steps that they may, and find nothing in plan after plan, do not use up the steps of all
// plans: a gang behind them that needs a search is placed soon, whether it is new or has failed before.
func TestGangsShareTheSteps(t *testing.T) {
	scale.Sequential(t)
	for _, hogs := range []int{25, 49, 60, 150} {
		for _, new := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, new %t", hogs, new), func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				commit(t, l, zoned("a0", "a", 13), zoned("a1", "a", 13), zoned("b0", "b", 10), zoned("b1", "b", 8))
				for i := range hogs {
					rolesGang(t, l, fmt.Sprint("hog", i), "a", int64(i), map[int64]int{2: 3, 4: 2, 6: 2}) // 26 cores, and an odd number on no node
				}
				e := &orbit.Engine{Ledger: l, Navigator: &nav.Gang{Search: 20}}
				passes := 0
				pass := func() {
					passes++
					commit(t, l, node("c", int64(passes))) // it gains room, after which each gang may fit
					round := e.Pass(t.Context())
					require.Empty(t, round.Errors)
					require.LessOrEqual(t, noteOf(round.Notes, "search.steps"), int64(50*20))
				}
				for range 5 {
					pass()
				}
				if !new {
					commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"block"}, Spec: spec(1, 0)}, orbit.Place{Capsule: "block", Node: "b1"})
				}
				rolesGang(t, l, "fits", "b", 0, map[int64]int{4: 3, 5: 1})
				if !new {
					pass()
					pass()
					require.Zero(t, placedOf(t, l, "fits"))
					commit(t, l, orbit.Release{Capsule: "block", Final: true})
				}
				for range 2 + hogs/25 {
					pass()
				}
				require.Equal(t, 4, placedOf(t, l, "fits"))
			})
		}
	}
}
