package nav_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// running places a new capsule some time ago that runs at most so long; 0: nobody knows.
func running(t require.TestingT, l orbit.Ledger, id, on string, s *orbit.Spec, placed, atMost time.Duration) {
	bounded := *s
	bounded.RunsAtMost = atMost
	n := snapshot(t, l).Node(orbit.NodeID(on))
	set, ok := n.PickDevices(&bounded)
	require.True(t, ok)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(id)}, Spec: &bounded},
		orbit.Place{Capsule: orbit.CapsuleID(id), Node: n.Node.ID, Devices: set, At: orbit.Instant(time.Now().Add(-placed).UnixNano())})
}

// Large work starts where what runs is known to end, at that time, and not on the node where fewer capsules have to end
// that never do. Where no end is known, that node is chosen.
func TestLargeWorkStartsAtTheKnownEnd(t *testing.T) {
	trial := func(bound time.Duration) (on orbit.NodeID, after time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, node("endless", 4), node("known", 4))
			running(t, l, "e0", "endless", batchSpec(2), 0, 0)
			running(t, l, "e1", "endless", batchSpec(2), 0, 0)
			task := batchSpec(1)
			task.RunsAtMost = bound
			ctx, cancel := context.WithCancel(t.Context())
			tasks := &orbit.Engine{Name: "tasks", Ledger: l, ParkFor: time.Second, Navigator: &nav.Batch{}}
			large := &orbit.Engine{Name: "large", Ledger: l, ParkFor: time.Second, Navigator: &nav.Patient{Navigator: &nav.Services{}, After: time.Second}}
			for _, e := range []*orbit.Engine{tasks, large} {
				go func() { _ = e.Run(ctx) }()
			}
			submit := func(i int) {
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("t", i))}, Spec: task, Owner: "tasks"})
			}
			for i := range 8 { // four run, which began one after another, and as many wait to take what becomes free
				submit(i)
				time.Sleep(5 * time.Second)
			}
			synctest.Wait()
			start := time.Now()
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
			for next := 8; time.Since(start) < 3*time.Minute && !snapshot(t, l).Capsule("large").Placed(); time.Sleep(time.Second) {
				synctest.Wait()
				for c := range snapshot(t, l).On("known") {
					if c.Spec.Module == task.Module && time.Since(c.PlaceTime.Time()) >= time.Minute { // they run for a minute, whoever knows it
						commit(t, l, orbit.Release{Capsule: c.ID, Final: true})
						submit(next)
						next++
					}
				}
			}
			on, after = snapshot(t, l).Capsule("large").Node, time.Since(start)
			cancel()
			synctest.Wait()
		})
		return on, after
	}
	on, after := trial(time.Minute)
	assert.Equal(t, orbit.NodeID("known"), on)
	assert.LessOrEqual(t, after, time.Minute)
	on, _ = trial(0)
	assert.Empty(t, on, "where nothing is known it is nominated where two have to end, which never do")
}

// Where large work is nominated, by what is known of what runs: each node has 4 cores and two devices.
func TestPatientGoesByKnownEnds(t *testing.T) {
	type run struct {
		on             string
		cpu            int64
		class          orbit.AppClass
		placed, atMost time.Duration
	}
	const hour = time.Hour
	for name, c := range map[string]struct {
		runs []run
		want orbit.NodeID
	}{
		"the soonest of two that are known":                     {[]run{{"a", 4, orbit.Batch, 0, 3 * hour}, {"b", 2, orbit.Batch, 0, hour}, {"b", 2, orbit.Batch, 0, 2 * hour}}, "b"},
		"by when they were placed":                              {[]run{{"a", 4, orbit.Batch, 3 * hour, 4 * hour}, {"b", 4, orbit.Batch, 0, 2 * hour}}, "a"},
		"known before fewer that are not":                       {[]run{{"a", 4, orbit.Batch, 0, 0}, {"b", 2, orbit.Batch, 0, hour}, {"b", 2, orbit.Batch, 0, hour}}, "b"},
		"not known as long as one of them is not":               {[]run{{"a", 4, orbit.Batch, 0, 0}, {"b", 2, orbit.Batch, 0, hour}, {"b", 2, orbit.Batch, 0, 0}}, "a"},
		"of services too":                                       {[]run{{"a", 4, orbit.Batch, 0, 2 * hour}, {"b", 4, orbit.LatencySensitive, 0, hour}}, "b"},
		"of gangs too, which are last otherwise":                {[]run{{"a", 4, orbit.Batch, 0, 2 * hour}, {"b", 4, orbit.GangClass, 0, hour}}, "b"},
		"what is late is taken to be late for as long again":    {[]run{{"a", 4, orbit.Batch, 9 * hour, 7 * hour}, {"b", 4, orbit.Batch, 0, hour}}, "b"},
		"what is hardly late is soonest":                        {[]run{{"a", 4, orbit.Batch, 2 * hour, 2*hour - time.Minute}, {"b", 4, orbit.Batch, 0, hour}}, "a"},
		"a bound without an end that can be told is not known":  {[]run{{"a", 4, orbit.Batch, 0, math.MaxInt64}, {"b", 4, orbit.Batch, 0, 1000 * hour}}, "b"},
		"a service that says how long it runs ends by itself":   {[]run{{"a", 4, orbit.LatencySensitive, 0, 0}, {"b", 4, orbit.LatencySensitive, 0, 1000 * hour}}, "b"},
		"which is so although it cannot be told when it began":  {[]run{{"a", 4, orbit.LatencySensitive, 0, 0}, {"b", 4, orbit.LatencySensitive, 1 << 62, hour}}, "b"},
		"fewest to end, among those that are equally soon":      {[]run{{"a", 2, orbit.Batch, 0, 0}, {"a", 2, orbit.Batch, 0, 0}, {"b", 4, orbit.Batch, 0, 0}}, "b"},
		"gangs last, among those of which the end is not known": {[]run{{"a", 4, orbit.GangClass, 0, 0}, {"b", 2, orbit.Batch, 0, 0}, {"b", 2, orbit.Batch, 0, 0}}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, node("a", 4), node("b", 4))
			now := time.Now()
			for i, r := range c.runs {
				s := spec(r.cpu, 0)
				s.Class, s.RunsAtMost = r.class, r.atMost
				id, at := orbit.CapsuleID(fmt.Sprint("r", i)), orbit.Instant(max(0, now.Add(-r.placed).UnixNano()))
				submit := orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}
				if r.class == orbit.GangClass {
					submit = orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Spec: s, Members: submit.IDs}}}}
				}
				commit(t, l, submit, orbit.Place{Capsule: id, Node: orbit.NodeID(r.on), At: at})
			}
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
			require.Equal(t, []orbit.NodeID{c.want}, nominatedFor(t, l, engineOf(l, impatient(&nav.Services{})), "large"))
		})
	}
}

// Of devices those are nominated that are known to be free first, and of domains the one where the last of a gang's members has
// room first.
func TestPatientGoesByKnownEndsOfDevicesAndGangs(t *testing.T) {
	l := &orbit.MemoryLedger{}
	n := node("a", 4)
	n.Node.Devices = orbit.Devices{Model: "gpu", Count: 3}
	commit(t, l, n)
	one := func(atMost time.Duration) *orbit.Spec {
		s := batchSpec(1)
		s.Devices, s.RunsAtMost = orbit.DeviceRequest{Count: 1, Milli: 1000}, atMost
		return s
	}
	for i, atMost := range []time.Duration{0, 2 * time.Hour, time.Hour} {
		running(t, l, fmt.Sprint("t", i), "a", one(atMost), 0, atMost)
	}
	large := spec(1, 5)
	large.Devices = orbit.DeviceRequest{Count: 1, Milli: 600}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: large, Owner: "large"})
	nominatedFor(t, l, engineOf(l, impatient(&nav.Services{})), "large")
	last := snapshot(t, l).Capsule("t2").Devices
	require.Equal(t, last, snapshot(t, l).Capsule("large").Nomination().Parts[0].Devices)

	l = &orbit.MemoryLedger{}
	racked(t, l, 2, 2, 4) // n0 and n1 in the first rack, n2 and n3 in the second
	nodes := slices.Collect(snapshot(t, l).Nodes())
	for i, atMost := range []time.Duration{4 * time.Hour, 0, 3 * time.Hour, 2 * time.Hour} {
		cpu := int64(4)
		if atMost == 0 { // there the small one has room now
			cpu = 3
		}
		running(t, l, fmt.Sprint("t", i), string(nodes[i].Node.ID), batchSpec(cpu), 0, atMost)
	}
	gang := orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{
		{Name: "large", Spec: spec(4, 0), Members: []orbit.CapsuleID{"g-large"}}, {Name: "small", Spec: spec(1, 0), Members: []orbit.CapsuleID{"g-small"}}}}
	gang.Roles[0].Spec.Class, gang.Roles[1].Spec.Class = orbit.GangClass, orbit.GangClass
	commit(t, l, orbit.Submit{Gang: &gang, Owner: "large"})
	e := engineOf(l, impatient(&nav.Gang{}))
	for range 3 {
		require.Empty(t, e.Pass(t.Context()).Errors)
	}
	var on []orbit.NodeID
	for _, part := range snapshot(t, l).Gang("g").Nomination.Parts {
		on = append(on, part.Node)
	}
	require.ElementsMatch(t, []orbit.NodeID{nodes[2].Node.ID, nodes[3].Node.ID}, on)
}

// Whatever runs where, large work is nominated where a model that tries all ends says that there is room soonest.
func TestPatientChoosesAsTheModelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, ids := &orbit.MemoryLedger{}, []string{"a", "b", "c", "d"}[:rapid.IntRange(2, 4).Draw(t, "nodes")]
		now, ends, want := time.Now(), map[string][]modelEnd{}, rapid.Int64Range(1, 4).Draw(t, "want")
		for k, id := range ids {
			commit(t, l, node(id, 4))
			for free := int64(4); free > 0; {
				cpu := min(free, rapid.Int64Range(1, 3).Draw(t, "cpu"))
				free -= cpu
				placed := time.Duration(rapid.IntRange(0, 5).Draw(t, "placed")) * time.Hour
				atMost := time.Duration(rapid.IntRange(0, 9).Draw(t, "at most")) * 50 * time.Minute
				running(t, l, fmt.Sprint(k, "-", free), id, batchSpec(cpu), placed, atMost)
				ends[id] = append(ends[id], modelEnd{cpu, now.Add(atMost - placed), atMost > 0})
			}
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(want, 5), Owner: "large"})
		on := nominatedFor(t, l, engineOf(l, impatient(&nav.Services{})), "large")
		require.Len(t, on, 1)
		soonest := time.Duration(math.MaxInt64)
		for _, id := range ids {
			soonest = min(soonest, modelWait(ends[id], want, now))
		}
		require.InDelta(t, soonest.Seconds(), modelWait(ends[string(on[0])], want, now).Seconds(), 60, "on %s", on[0])
	})
}

type modelEnd struct {
	cpu   int64
	at    time.Time
	known bool
}

// modelWait is how long it takes until so much is free, by what is known; the longest time if it is not.
func modelWait(ends []modelEnd, want int64, now time.Time) time.Duration {
	best := time.Duration(math.MaxInt64)
	for _, last := range ends {
		wait := last.at.Sub(now).Abs()
		free := int64(0)
		for _, e := range ends {
			if e.known && e.at.Sub(now).Abs() <= wait {
				free += e.cpu
			}
		}
		if last.known && free >= want {
			best = min(best, wait)
		}
	}
	return best
}
