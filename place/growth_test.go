package place_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// hardCase is work whose cost has grown with the number of nodes in some placement engine.
type hardCase struct {
	name string
	// By the number of a capsule.
	spec   func(i int) orbit.Spec
	score  orbit.Score
	filter place.Filter
	// Takes half of most devices before.
	devicesTaken bool
	// One in so many nodes has no devices; 0: none.
	bare int
	// The number of nodes in the racks that a spec names, all of which are rated.
	listed float64
	// The most that a choice may look at, 0: as many as it does among few nodes.
	searched float64
}

// Nodes have 40 to a rack, most of them 8 devices, a host name, and one of three zones.
var hardCases = []hardCase{
	{name: "plain", spec: func(int) orbit.Spec { return small() }},
	{name: "plain, and half of the nodes have devices", searched: 4, bare: 2, spec: func(int) orbit.Spec { return small() }},
	{name: "plain, and most of the nodes have devices", searched: 4, bare: 50, spec: func(int) orbit.Spec { return small() }},
	{name: "one spec with a ScoreFunc", spec: func(int) orbit.Spec { return small() }, score: score.Func(score.Spread{}.Score)},
	{name: "a host required", spec: func(i int) orbit.Spec { return requiring("host", fmt.Sprint("host-", 7*i%1000)) }},
	{name: "a host required, with a ScoreFunc", spec: func(i int) orbit.Spec { return requiring("host", fmt.Sprint("host-", 7*i%1000)) },
		score: score.Func(score.Spread{}.Score)},
	{name: "a rack required", listed: 40, spec: func(i int) orbit.Spec { return requiring("rack", fmt.Sprint("rack-", i%25)) }},
	{name: "a rack excluded", listed: 4, spec: func(i int) orbit.Spec {
		s := small()
		s.Require = []orbit.Predicate{{Key: "rack", Op: "NotIn", Values: []string{fmt.Sprint("rack-", i%25)}}}
		return s
	}},
	{name: "a rack preferred", listed: 40, spec: func(i int) orbit.Spec {
		s := small()
		s.Prefer = []orbit.Preference{{Predicate: orbit.Predicate{Key: "rack", Op: "In", Values: []string{fmt.Sprint("rack-", i%25)}}, Weight: 1}}
		return s
	}},
	{name: "spread over two racks", listed: 80, spec: func(i int) orbit.Spec {
		s := small()
		s.Spread = orbit.Domains{Level: "rack", Names: []string{fmt.Sprint("rack-", i%25), fmt.Sprint("rack-", (i+1)%25)}}
		return s
	}},
	{name: "even over three zones", searched: 4, spec: func(int) orbit.Spec {
		s := small()
		s.Group, s.Even = "set", []orbit.Even{{Group: "set", Level: "zone"}}
		return s
	}},
	{name: "apart by node", searched: 4, spec: func(int) orbit.Spec {
		s := small()
		s.Group, s.Apart = "set", []orbit.Apart{{Group: "set", Level: orbit.NodeKey}}
		return s
	}},
	{name: "a filter that takes twenty nodes", spec: func(int) orbit.Spec { return small() }, filter: func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
		if n.Index() < 20 {
			return ""
		}
		return "are not among the first twenty"
	}},
	{name: "fragmented devices", devicesTaken: true, spec: func(int) orbit.Spec {
		s := small()
		s.Devices = orbit.DeviceRequest{Count: 2, Milli: 600}
		return s
	}},
	{name: "fragmented devices, each with a spec of its own", devicesTaken: true, spec: func(i int) orbit.Spec {
		s := small()
		s.Module = fmt.Sprint("m-", i)
		s.Devices = orbit.DeviceRequest{Count: 2, Milli: 501 + i}
		return s
	}},
}

func small() orbit.Spec {
	return orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 100}}}
}

func requiring(key, value string) orbit.Spec {
	s := small()
	s.Require = []orbit.Predicate{{Key: key, Op: "In", Values: []string{value}}}
	return s
}

// hardWorld is a view of nodes and of capsules that wait.
type hardWorld struct {
	view    orbit.View
	waiting []*orbit.Capsule
}

func newHardWorld(t testing.TB, c hardCase, nodes, capsules int) *hardWorld {
	l, w := &orbit.MemoryLedger{}, &hardWorld{}
	propose := func(do []orbit.Commitment) {
		_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
		require.NoError(t, err)
	}
	for from := 0; from < nodes; from += 500 {
		var do []orbit.Commitment
		for i := from; i < min(from+500, nodes); i++ {
			n := orbit.Node{ID: orbit.NodeID(fmt.Sprintf("node-%05d", i)), Devices: orbit.Devices{Count: 8, Model: "x"}}
			if c.bare > 0 && i%c.bare == 0 {
				n.Devices = orbit.Devices{}
			}
			n.Capacity = orbit.Resources{orbit.CPU: 64_000 + int64(i%7)*1000}
			n.Labels = map[string]string{"host": fmt.Sprint("host-", i), "rack": fmt.Sprint("rack-", i/40), "zone": fmt.Sprint("zone-", i%3)}
			do = append(do, orbit.PutNode{Node: n})
			if c.devicesTaken && i >= 40 {
				do = append(do, takenDevices(i)...)
			}
		}
		propose(do)
	}
	var ids []orbit.CapsuleID
	for i := range capsules {
		id, spec := orbit.CapsuleID(fmt.Sprint("capsule-", i)), c.spec(i)
		propose([]orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &spec}})
		ids = append(ids, id)
	}
	require.NoError(t, w.view.Refresh(context.Background(), l, nil, time.Unix(0, 0)))
	for _, id := range ids {
		w.waiting = append(w.waiting, w.view.State().Capsule(id))
	}
	return w
}

// takenDevices takes half of seven devices of a node: much is free in total, but only one device can take more than half.
func takenDevices(i int) []orbit.Commitment {
	id := orbit.CapsuleID(fmt.Sprint("taken-", i))
	s := &orbit.Spec{Devices: orbit.DeviceRequest{Count: 7, Milli: 500}}
	return []orbit.Commitment{
		orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s},
		orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprintf("node-%05d", i)), Devices: 0x7f},
	}
}

// place places all capsules in one plan after another. It returns what the engine has looked at for that.
func (w *hardWorld) place(t testing.TB, e *place.Indexed, draft *orbit.Draft, passes int) (looked int64) {
	for range passes {
		draft.Sync(&w.view)
		for _, c := range w.waiting {
			require.NoError(t, draft.PlaceBest(e, c))
		}
		for _, note := range e.Notes() {
			if note.Key == "boxes" || note.Key == "rated" || note.Key == "scanned" {
				looked += note.Value.Int64()
			}
		}
	}
	return looked
}

// What a placement looks at, boxes and nodes, does not grow with the number of nodes once the engine knows the specs.
func TestWhatAChoiceLooksAtDoesNotGrow(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	for _, c := range hardCases {
		t.Run(c.name, func(t *testing.T) {
			var each []float64
			for _, nodes := range []int{1_000, 8_000} {
				w, draft := newHardWorld(t, c, nodes, 100), &orbit.Draft{}
				e := &place.Indexed{Score: c.score, Filter: c.filter}
				w.place(t, e, draft, 1)
				each = append(each, float64(w.place(t, e, draft, 5))/500)
			}
			t.Logf("looked at %.1f of 1,000 nodes and %.1f of 8,000", each[0], each[1])
			require.Less(t, each[1], 2*each[0]+c.listed+4)
			require.True(t, c.searched == 0 || max(each[0], each[1]) <= c.searched)
		})
	}
}

// BenchmarkHard measures a placement where searches have been slow, in a pass of 100, after the first.
func BenchmarkHard(b *testing.B) {
	for _, c := range hardCases {
		for _, nodes := range []int{1_000, 10_000, 50_000} {
			b.Run(fmt.Sprintf("%s/nodes=%d", c.name, nodes), func(b *testing.B) {
				w, draft := newHardWorld(b, c, nodes, 100), &orbit.Draft{}
				e := &place.Indexed{Score: c.score, Filter: c.filter}
				w.place(b, e, draft, 1)
				looked := int64(0)
				for b.Loop() {
					looked += w.place(b, e, draft, 1)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(100*b.N), "ns/placed")
				b.ReportMetric(float64(looked)/float64(100*b.N), "looked/placed")
			})
		}
	}
}
