package place

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// quota lets no more than so many capsules be placed in a zone. It counts them from the view, and what a plan places is told to it.
type quota struct {
	most    int
	version uint64
	cursor  uint64
	// By node index.
	zones    []string
	capsules []int
	counts   map[string]int
	planned  map[string]int
}

func (q *quota) refuses(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
	if zone := n.Node.Labels["zone"]; q.counts[zone]+q.planned[zone] >= q.most {
		return "are in a zone with too many capsules"
	}
	return ""
}

func (q *quota) Version(view *orbit.View) uint64 {
	touched, next, all := view.Changed(q.cursor)
	if all {
		q.zones, q.capsules, q.counts = nil, nil, map[string]int{}
		touched = nil
		for n := range view.State().Nodes() {
			touched = append(touched, int32(n.Index()))
		}
	}
	for _, i := range touched {
		for len(q.zones) <= int(i) {
			q.zones, q.capsules = append(q.zones, ""), append(q.capsules, 0)
		}
		q.counts[q.zones[i]] -= q.capsules[i]
		q.zones[i], q.capsules[i] = "", 0
		if n := view.State().NodeByIndex(int(i)); n != nil {
			q.zones[i], q.capsules[i] = n.Node.Labels["zone"], n.Capsules
		}
		q.counts[q.zones[i]] += q.capsules[i]
		q.version++
	}
	q.cursor = next
	return q.version
}

// place tells of a step of the plan.
func (q *quota) place(to orbit.Choice) {
	q.planned[to.Node.Node.Labels["zone"]]++
	q.version++
}

// begin begins a plan.
func (q *quota) begin() {
	q.planned = map[string]int{}
	q.version++
}

// TestFilterThatCounts: with a filter that counts, and says its version, Indexed chooses what Exhaustive chooses, whatever is
// placed and released, by the plan and by others, for scores with bounds and without. Exhaustive is checked against counting by
// hand.
func TestFilterThatCounts(t *testing.T) {
	dumb := score.Func(func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (float64, float64) {
		return float64(n.Capsules % 3), float64(n.Index() % 2)
	})
	choices := 0
	rapid.Check(t, func(t *rapid.T) {
		l, most := &orbit.MemoryLedger{}, rapid.IntRange(1, 5).Draw(t, "most")
		for i := range 24 {
			commit(t, l, orbit.PutNode{Node: labelled(machine(orbit.NodeID(fmt.Sprintf("n%02d", i)), 4), "zone", fmt.Sprint("z", i%3))})
		}
		specs := []*orbit.Spec{wants(1), wants(2)}
		commit(t, l, orbit.Submit{IDs: names("a", 60), Spec: specs[0]}, orbit.Submit{IDs: names("b", 60), Spec: specs[1]})
		view, refresh := viewOf(t, l, nil)
		by := rapid.SampledFrom([]orbit.Score{dumb, nil, score.BestFit{}}).Draw(t, "score")
		quotas := []*quota{{most: most}, {most: most}}
		engines := []*drafted[orbit.PlacementEngine]{
			draftFor[orbit.PlacementEngine](&Exhaustive{Score: by, Filter: quotas[0].refuses, FilterVersion: quotas[0].Version}),
			draftFor[orbit.PlacementEngine](&Indexed{Score: by, Filter: quotas[1].refuses, FilterVersion: quotas[1].Version}),
		}
		for range rapid.IntRange(1, 12).Draw(t, "passes") {
			for _, do := range rapid.SliceOfN(rapid.IntRange(0, 119), 0, 8).Draw(t, "released") {
				id := append(names("a", 60), names("b", 60)...)[do]
				_, _ = l.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: id, Final: true}}})
			}
			refresh()
			for i, e := range engines {
				e.Sync(view)
				quotas[i].begin()
			}
			for c := range view.State().Capsules() {
				if c.Pending() && rapid.IntRange(0, 9).Draw(t, "planned") == 0 {
					choices++
					planOne(t, l, c, engines, quotas)
				}
			}
		}
	})
	t.Logf("%d choices", choices)
}

// planOne plans a capsule with two engines, compares their choices, and commits.
func planOne(t *rapid.T, l orbit.Ledger, c *orbit.Capsule, engines []*drafted[orbit.PlacementEngine], quotas []*quota) {
	want, wantErr := engines[0].best(c.Spec)
	got, err := engines[1].best(c.Spec)
	require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err))
	if err != nil {
		return
	}
	require.Equal(t, want.Node.Node.ID, got.Node.Node.ID)
	zone, there := want.Node.Node.Labels["zone"], 0
	for n := range snapshotOf(t, l).Nodes() {
		if n.Node.Labels["zone"] == zone {
			there += n.Capsules
		}
	}
	require.Less(t, there, quotas[0].most, "in zone %s", zone)
	p := engines[0].take(c, want)
	engines[1].take(c, got)
	quotas[0].place(want)
	quotas[1].place(got)
	_, err = l.Propose(context.Background(), p)
	require.NoError(t, err)
}

// filtered is a navigator with one engine, whose filter is a quota.
type filtered struct {
	*quota
	engine orbit.PlacementEngine
	draft  orbit.Draft
}

func (f *filtered) Claims(string, orbit.AppClass) bool { return true }

func (f *filtered) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	f.draft.Sync(view)
	f.begin()
	for _, c := range pending {
		choice, err := f.engine.Best(&f.draft, c.Spec)
		if err == nil {
			if err = f.draft.Place(c, choice); err == nil {
				f.place(choice)
				plan.Proposals = append(plan.Proposals, f.draft.Propose())
				continue
			}
		}
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: err})
	}
	f.begin()
	return plan, nil
}

// TestFilterVersionBringsBack: a class that a filter refuses is planned again as soon as the version of the filter rises, be it
// for a change of the ledger on a node which cannot help by itself, or for something outside, of which Nudge tells.
func TestFilterVersionBringsBack(t *testing.T) {
	for name, c := range map[string]func(l orbit.Ledger, f *filtered, e *orbit.Engine){
		"the ledger": func(l orbit.Ledger, _ *filtered, _ *orbit.Engine) {
			commit(t, l, orbit.Release{Capsule: "old", Final: true})
		},
		"outside": func(_ orbit.Ledger, f *filtered, e *orbit.Engine) {
			f.most++
			f.version++
			e.Nudge()
		},
	} {
		for kind, engine := range map[string]func(*quota) orbit.PlacementEngine{
			"Exhaustive": func(q *quota) orbit.PlacementEngine { return &Exhaustive{Filter: q.refuses, FilterVersion: q.Version} },
			"Indexed":    func(q *quota) orbit.PlacementEngine { return &Indexed{Filter: q.refuses, FilterVersion: q.Version} },
			"Sampled":    func(q *quota) orbit.PlacementEngine { return &Sampled{Filter: q.refuses, FilterVersion: q.Version} },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, q := &orbit.MemoryLedger{}, &quota{most: 1}
					full := labelled(machine("full", 4), "zone", "z")
					commit(t, l, orbit.PutNode{Node: full}, orbit.Submit{IDs: []orbit.CapsuleID{"old"}, Spec: wants(4)}, orbit.Place{Capsule: "old", Node: "full"})
					full.State = orbit.Cordoned // what is released there helps nobody directly
					commit(t, l, orbit.PutNode{Node: full}, orbit.PutNode{Node: labelled(machine("free", 4), "zone", "z")}, orbit.Submit{IDs: []orbit.CapsuleID{"new"}, Spec: wants(3)})
					f := &filtered{quota: q, engine: engine(q)}
					e := &orbit.Engine{Ledger: l, Navigator: f, ParkFor: 24 * time.Hour, Backoff: orbit.Backoff{Initial: time.Hour, Max: time.Hour, Jitter: -1}}
					go func() { _ = e.Run(t.Context()) }() // ends with the test
					time.Sleep(2 * time.Hour)
					synctest.Wait()
					require.Equal(t, orbit.NodeID(""), snapshotOf(t, l).Capsule("new").Node)
					time.Sleep(30 * time.Minute)
					c(l, f, e)
					synctest.Wait()
					require.Equal(t, orbit.NodeID("free"), snapshotOf(t, l).Capsule("new").Node, "at once")
				})
			})
		}
	}
}
