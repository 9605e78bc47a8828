package nav_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

var dawn = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// at lets a watch look so many seconds after dawn.
func at(t require.TestingT, w *nav.GroupWatch, l orbit.Ledger, seconds int) []nav.GroupBind {
	bound, err := w.Refresh(context.Background(), l, dawn.Add(time.Duration(seconds)*time.Second))
	require.NoError(t, err)
	return bound
}

// The bind latency of a group runs from its first submission until its last member is placed, not member by
// member; a member that is lost begins another.
func TestGroupWatchBinds(t *testing.T) {
	l, w := &orbit.MemoryLedger{}, &nav.GroupWatch{}
	racked(t, l, 1, 1, 2)
	require.Empty(t, at(t, w, l, 0))
	submit(t, l, "solo", 1, spec(0, 0))
	submit(t, l, "co", 2, near("co", 1))
	gangOf(t, l, "gang", "", 2, 2)
	services := &orbit.Engine{Name: "s", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, HoldFor: -1}, MaxPlan: 2}
	gangs := &orbit.Engine{Name: "g", Ledger: l, Navigator: &nav.Gang{}}
	require.Empty(t, at(t, w, l, 10))
	settle(t, services)
	commit(t, l, orbit.Release{Capsule: "solo-0", Final: true})
	submit(t, l, "co-more", 1, near("co", 1))
	require.Empty(t, at(t, w, l, 15), "one has no room")
	commit(t, l, rackNode("r0n1", "r0", 5))
	settle(t, services)
	require.Equal(t, []nav.GroupBind{{Group: "co", Members: 3, Since: dawn.Add(10 * time.Second), Bound: dawn.Add(20 * time.Second)}}, at(t, w, l, 20))
	settle(t, gangs)
	require.Equal(t, []nav.GroupBind{{Gang: "gang", Members: 2, Since: dawn.Add(10 * time.Second), Bound: dawn.Add(25 * time.Second)}}, at(t, w, l, 25))
	require.Empty(t, at(t, w, l, 26))
	commit(t, l, orbit.Release{Capsule: "gang-1", Stopped: true})
	require.Empty(t, at(t, w, l, 30))
	settle(t, gangs)
	require.Equal(t, []nav.GroupBind{{Gang: "gang", Members: 2, Since: dawn.Add(30 * time.Second), Bound: dawn.Add(33 * time.Second)}}, at(t, w, l, 33))
	commit(t, l, rackNode("r0n2", "r0", 9))
	gangOf(t, l, "quick", "", 2, 1)
	settle(t, gangs)
	require.Equal(t, []nav.GroupBind{{Gang: "quick", Members: 2, Since: dawn.Add(40 * time.Second), Bound: dawn.Add(40 * time.Second)}}, at(t, w, l, 40))
	gangOf(t, l, "gone", "", 2, 100)
	require.Empty(t, at(t, w, l, 50))
	commit(t, l, orbit.Release{Capsule: "gone-0", Final: true}, orbit.Release{Capsule: "gone-1", Final: true})
	require.Empty(t, at(t, w, l, 60), "what is withdrawn was never bound")
	require.Empty(t, w.Demand())
}

// The assisted share has all members that an anchor brought, whether room was held for them or not, and none of
// a group that started without one.
func TestGroupWatchCountsWhatAnchorsBrought(t *testing.T) {
	for _, hold := range []time.Duration{time.Minute, -1} {
		l, w := &orbit.MemoryLedger{}, &nav.GroupWatch{}
		racked(t, l, 3, 4, 20)
		at(t, w, l, 0)
		for i := range 3 {
			submit(t, l, fmt.Sprint("g", i), 3, near(fmt.Sprint("g", i), 2))
		}
		submit(t, l, "solo", 5, spec(1, 0))
		first := spec(1, 0)
		first.Group = "led"
		submit(t, l, "first", 1, first) // waits for no group, so the group needs no anchor
		e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, HoldFor: hold}}
		settle(t, e)
		submit(t, l, "led", 2, near("led", 1))
		submit(t, l, "g0-late", 1, near("g0", 1))
		settle(t, e)
		require.Zero(t, snapshot(t, l).PendingCount())
		at(t, w, l, 1)
		assert.Equal(t, []int{18, 3, 10}, []int{w.Placed, w.Anchors, w.Assisted})
		late := &nav.GroupWatch{}
		at(t, late, l, 2)
		submit(t, l, "g1-late", 1, near("g1", 1))
		settle(t, e)
		at(t, late, l, 3)
		assert.Equal(t, []int{1, 0, 1}, []int{late.Placed, late.Anchors, late.Assisted}, "a watch that came later knows who was anchored")
	}
}

// A watch that looks after every commit knows what one knows that looks once, and waits exactly for the groups
// of which a member is pending.
func TestGroupWatchAgainstTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, often, seldom := &orbit.MemoryLedger{Bounds: orbit.Limits{History: rapid.SampledFrom([]int{2, 1000}).Draw(t, "history")}}, &nav.GroupWatch{}, &nav.GroupWatch{}
		racked(t, l, 2, 2, 3)
		engines := []*orbit.Engine{{Name: "a", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}, {Name: "g", Ledger: l, Navigator: &nav.Gang{}}}
		at(t, often, l, 0)
		for i := range rapid.IntRange(1, 15).Draw(t, "steps") {
			switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); kind {
			case 0:
				submit(t, l, fmt.Sprint("m", i), rapid.IntRange(1, 3).Draw(t, "n"), near(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "group"), 1))
			case 1:
				gangOf(t, l, fmt.Sprint("gang", i), "", rapid.IntRange(1, 3).Draw(t, "n"), 1)
			case 2:
				for c := range snapshot(t, l).Capsules() {
					if c.Placed() && rapid.Bool().Draw(t, "leaves") {
						commit(t, l, ended(c, rapid.Bool().Draw(t, "for good")))
					}
				}
			default:
				engines[kind-3].Pass(context.Background())
			}
			at(t, often, l, i+1)
			if rapid.IntRange(0, 3).Draw(t, "look") == 0 {
				at(t, seldom, l, i+1)
			}
		}
		at(t, seldom, l, 99)
		require.Equal(t, often.Demand(), seldom.Demand())
		want := map[string]int{}
		for _, c := range snapshot(t, l).Pending() {
			want[string(c.Gang())+c.Spec.Group]++
		}
		got := map[string]int{}
		for _, d := range often.Demand() {
			got[string(d.Gang)+d.Group] += d.Members
		}
		require.Equal(t, want, got)
	})
}

// What a domain is said to lack is what lets the group start there, and a little less does not.
func TestGroupDemandIsWhatIsMissing(t *testing.T) {
	for _, less := range []int64{0, 1} {
		l, w := &orbit.MemoryLedger{}, &nav.GroupWatch{}
		rackOf(t, l, "r", 2, 3)
		rackOf(t, l, "s", 1, 9)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"load"}, Spec: spec(8, 0)}, orbit.Place{Capsule: "load", Node: "s-0"})
		gangOf(t, l, "g", "", 4, 2)
		submit(t, l, "co", 3, near("co", 2))
		at(t, w, l, 1)
		want := []nav.GroupDemand{
			{Group: "co", Level: "rack", Members: 3, Domains: []nav.DomainLack{
				{Domain: "r", Fits: 2, Lacks: orbit.Resources{orbit.CPU: 2}}, {Domain: "s", Lacks: orbit.Resources{orbit.CPU: 6}}}},
			{Gang: "g", Level: "rack", Members: 4, Domains: []nav.DomainLack{
				{Domain: "r", Fits: 2, Lacks: orbit.Resources{orbit.CPU: 4}}, {Domain: "s", Lacks: orbit.Resources{orbit.CPU: 8}}}},
		}
		require.Equal(t, want, w.Demand())
		commit(t, l, rackNode("new", "r", w.Demand()[1].Domains[0].Lacks[orbit.CPU]-less))
		settle(t, &orbit.Engine{Ledger: l, Navigator: &nav.Gang{}})
		require.Equal(t, map[int64]int{0: 4, 1: 0}[less], placedOf(t, l, "g"))
	}
}

// A group that runs lacks room where it runs; what is held for it is free for it; devices count; and no sum
// wraps.
func TestGroupDemandOfAGroupThatRuns(t *testing.T) {
	l, w := &orbit.MemoryLedger{}, &nav.GroupWatch{}
	rackOf(t, l, "r", 1, 4)
	rackOf(t, l, "s", 1, 9)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"co"}, Spec: near("co", 1)}, orbit.Place{Capsule: "co", Node: "r-0"})
	commit(t, l, orbit.Hold{ID: "theirs", Node: "r-0", Room: orbit.Resources{orbit.CPU: 1}, For: "others", Ends: dawn})
	commit(t, l, orbit.Hold{ID: "ours", Node: "r-0", Room: orbit.Resources{orbit.CPU: 1}, For: "co", Ends: dawn})
	submit(t, l, "more", 4, near("co", 1))
	large := near("large", 1<<62)
	large.Devices = orbit.DeviceRequest{Count: 2, Milli: 500}
	submit(t, l, "large", 3, large)
	at(t, w, l, 0)
	require.Equal(t, []nav.GroupDemand{
		{Group: "co", Level: "rack", Members: 4, Domains: []nav.DomainLack{{Domain: "r", Fits: 2, Lacks: orbit.Resources{orbit.CPU: 2}}}},
		{Group: "large", Level: "rack", Members: 3, Domains: []nav.DomainLack{
			{Domain: "r", Lacks: orbit.Resources{orbit.CPU: 1<<63 - 1}, LacksDevices: 3000}, {Domain: "s", Lacks: orbit.Resources{orbit.CPU: 1<<63 - 1}, LacksDevices: 3000}}},
	}, w.Demand())
}
