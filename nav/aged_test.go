package nav_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// ago is the instant so long before now.
func ago(d time.Duration) orbit.Instant { return orbit.Instant(time.Now().Add(-d).UnixNano()) }

// Where there is room for one of two, the one goes first that has risen above the other while it waited, whatever order the navigator
// plans in; and the other one where nothing rises, or where it would have to rise above its band.
func TestAgedWorkGoesFirst(t *testing.T) {
	for name, build := range map[string]func() orbit.Navigator{
		"services": func() orbit.Navigator { return &nav.Services{} },
		"batch":    func() orbit.Navigator { return &nav.Batch{} },
		"gang":     func() orbit.Navigator { return &nav.Gang{} },
		"anchor":   func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Services{}} },
		"patient":  func() orbit.Navigator { return &nav.Patient{Navigator: &nav.Services{}} },
	} {
		for _, c := range []struct {
			aging orbit.Aging
			first orbit.CapsuleID
		}{
			{orbit.Aging{}, "young"},
			{orbit.Aging{Every: time.Second}, "old"},
			{orbit.Aging{Every: time.Hour}, "young"},
			{orbit.Aging{Every: time.Second, Band: 3}, "young"},
		} {
			l := &orbit.MemoryLedger{}
			commit(t, l, rackNode("a", "r", 1))
			submit := func(id orbit.CapsuleID, priority int32, at orbit.Instant) {
				s := spec(1, priority)
				do := orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s, Owner: "e", At: at}
				switch {
				case name == "batch":
					s.Class = orbit.Batch
				case name == "gang":
					s.Class = orbit.GangClass
					do.Gang = &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Spec: s, Members: do.IDs}}}
					do.IDs, do.Spec = nil, nil
				case name == "anchor" && id == "young": // it needs an anchor, the other one goes to Services
					s.Group, s.Near = "g", orbit.Near{Group: "g", Level: "rack"}
				}
				commit(t, l, do)
			}
			submit("old", 0, ago(7*time.Second))
			submit("young", 3, ago(time.Second))
			e := &orbit.Engine{Name: "e", Ledger: l, Navigator: build(), Aging: c.aging}
			for range 2 {
				require.Empty(t, e.Pass(t.Context()).Errors)
			}
			for _, id := range []orbit.CapsuleID{"young", "old"} {
				assert.Equal(t, id == c.first, snapshot(t, l).Capsule(id).Placed(), "%s: %s with %v", name, id, c.aging)
			}
		}
	}
}

// What is nominated ranks by the priority to which it has risen, by the rate of its engine, within its band and the ledger's limit.
func TestPatientRanksByTheEnginesAging(t *testing.T) {
	for name, c := range map[string]struct {
		priority int32
		waited   time.Duration
		aging    orbit.Aging
		rank     int32
	}{
		"two steps":               {5, 25 * time.Second, orbit.Aging{Every: 10 * time.Second}, 7},
		"none yet":                {5, 9 * time.Second, orbit.Aging{Every: 10 * time.Second}, 5},
		"up to its band's end":    {5, time.Hour, orbit.Aging{Every: 10 * time.Second}, 9},
		"below zero":              {-5, time.Hour, orbit.Aging{Every: 10 * time.Second}, -1},
		"up to the ledger's end":  {5, time.Hour, orbit.Aging{Every: 10 * time.Second, Band: 100}, 15},
		"no band to rise through": {5, time.Hour, orbit.Aging{Every: 10 * time.Second, Band: 1}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, node("a", 4))
			put(t, l, "small", "a", batchSpec(1))
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, c.priority), Owner: "large", At: ago(c.waited)})
			e := engineOf(l, impatient(&nav.Services{}))
			e.Aging = c.aging
			require.NotEmpty(t, nominatedFor(t, l, e, "large"))
			require.Equal(t, c.rank, snapshot(t, l).Capsule("large").Nomination().Rank)

			// A gang ranks by its lowest role.
			l = &orbit.MemoryLedger{}
			commit(t, l, node("a", 8))
			put(t, l, "small", "a", batchSpec(1))
			low, high := spec(4, c.priority), spec(4, c.priority+100)
			low.Class, high.Class = orbit.GangClass, orbit.GangClass
			commit(t, l, orbit.Submit{Owner: "large", At: ago(c.waited), Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{
				{Name: "high", Spec: high, Members: []orbit.CapsuleID{"h"}}, {Name: "low", Spec: low, Members: []orbit.CapsuleID{"l"}}}}})
			e = engineOf(l, impatient(&nav.Gang{}))
			e.Aging = c.aging
			for range 3 {
				require.Empty(t, e.Pass(t.Context()).Errors)
			}
			require.True(t, snapshot(t, l).Gang("g").Nomination.Lives())
			require.Equal(t, c.rank, snapshot(t, l).Gang("g").Nomination.Rank)
		})
	}
}
