package nav_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// isFresh reports whether a node hosts no capsule of any group and has no hold for one, by looking at everything.
func isFresh(s *orbit.State, id orbit.NodeID) bool {
	for c := range s.Capsules() {
		if c.Node == id && c.Spec.Group != "" {
			return false
		}
	}
	for h := range s.Holds() {
		if h.Node == id && strings.HasPrefix(string(h.ID), "plan/anchor/") {
			return false
		}
	}
	return true
}

// audit replays the whole history and checks every revision: no group ever has two anchors, every anchor came to a
// fresh node when nothing of its group ran, every capsule that wants company but an anchor found it, every hold
// ends, and nothing is oversubscribed. It returns how many anchors there were.
func audit(t require.TestingT, l *orbit.MemoryLedger) (anchors int) {
	changes, err := l.Changes(context.Background(), 0)
	require.NoError(t, err)
	was := snapshot(t, &orbit.MemoryLedger{Bounds: l.Limits()})
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		now, err := was.Apply(changes[:n])
		require.NoError(t, err)
		for _, c := range changes[:n] {
			if place, ok := c.Do.(orbit.Place); ok {
				anchors += auditPlace(t, was, now, place)
			}
		}
		require.NoError(t, now.Verify())
		was, changes = now, changes[n:]
	}
	return anchors
}

func auditPlace(t require.TestingT, was, now *orbit.State, place orbit.Place) (anchors int) {
	c := now.Capsule(place.Capsule)
	_, ran, _ := racksOf(was, c.Spec.Group)
	if place.Note != nav.AnchorNote {
		require.False(t, c.Spec.Near.Group == c.Spec.Group && c.Spec.Group != "" && ran == 0, "%s started its group without being its anchor", c.ID)
		return 0
	}
	if !loose(was, c.Spec.Group) { // one of them may have started the group, without a fence, after the view
		require.Zero(t, ran, "%s is anchored while its group runs", c.ID)
	}
	require.True(t, isFresh(was, place.Node), "%s is anchored on %s, which is not fresh", c.ID, place.Node)
	racks, _, many := racksOf(now, c.Spec.Group)
	require.Equal(t, 1, many, "anchors of %s", c.Spec.Group)
	require.NotContains(t, racks, "", "anchored where no other member can follow")
	for h := range now.Holds() {
		if h.For == c.Spec.Group {
			require.Contains(t, racks, now.Node(h.Node).Node.Labels["rack"], "room is held in another rack")
		}
	}
	return 1
}

// loose reports whether the group has members that may start it though they are no anchors.
func loose(s *orbit.State, group string) bool {
	for c := range s.Capsules() {
		if c.Spec.Group == group && c.Spec.Near.Group != group {
			return true
		}
	}
	return false
}

// world is a ledger and the engines that share it.
type world struct {
	ledger  *orbit.MemoryLedger
	engines []*orbit.Engine
	groups  map[string]int
	serial  int
}

// newWorld draws a constellation of racks and engines: one or two Anchors, and plain Services.
func newWorld(t *rapid.T) *world {
	w := &world{ledger: &orbit.MemoryLedger{}, groups: map[string]int{}}
	for r := range rapid.IntRange(1, 4).Draw(t, "racks") {
		racked := rapid.IntRange(1, 4).Draw(t, "nodes")
		for i := range racked {
			n := rackNode(fmt.Sprintf("r%dn%d", r, i), fmt.Sprint("r", r), rapid.Int64Range(2, 12).Draw(t, "cpu"))
			if rapid.Bool().Draw(t, "ssd") {
				n.Node.Labels["ssd"] = ""
			}
			commit(t, w.ledger, n)
		}
	}
	navigators := []*nav.Anchor{{Navigator: &nav.Services{}}, elsewhere()}
	for i, a := range navigators[:rapid.IntRange(1, 2).Draw(t, "anchors")] {
		w.engines = append(w.engines, &orbit.Engine{
			Name: fmt.Sprint("anchor", i), Ledger: w.ledger, MaxPlan: rapid.IntRange(1, 20).Draw(t, "most"), Navigator: a,
		})
	}
	w.engines = append(w.engines, &orbit.Engine{Name: "plain", Ledger: w.ledger, Navigator: &nav.Services{}})
	return w
}

func (w *world) submit(t *rapid.T) {
	group := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "group")
	s := spec(rapid.Int64Range(0, 5).Draw(t, "cpu"), rapid.Int32Range(0, 1).Draw(t, "priority"))
	s.Group, s.Module = group, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "module")
	if group != "" && rapid.IntRange(0, 9).Draw(t, "free") > 0 {
		s.Near = orbit.Near{Group: rapid.SampledFrom([]string{group, group, group, "a", "b"}).Draw(t, "near"), Level: "rack"}
	}
	if rapid.IntRange(0, 2).Draw(t, "ssd") == 0 {
		s.Require = []orbit.Predicate{{Key: "ssd", Op: "Exists"}}
	}
	var ids []orbit.CapsuleID
	for range rapid.IntRange(1, 6).Draw(t, "count") {
		w.serial++
		ids = append(ids, orbit.CapsuleID(fmt.Sprint("c", w.serial)))
	}
	owner := w.engine(t, "owner").Name
	commit(t, w.ledger, orbit.Submit{IDs: ids, Spec: s, Owner: owner})
}

func (w *world) engine(t *rapid.T, label string) *orbit.Engine {
	return w.engines[rapid.IntRange(0, len(w.engines)-1).Draw(t, label)]
}

// pass lets one engine do a pass, and perhaps another one between its plan and its proposals.
func (w *world) pass(t *rapid.T) {
	e, other := w.engine(t, "engine"), w.engine(t, "other")
	if other == e {
		r := e.Pass(context.Background())
		w.check(t, r)
		require.Zero(t, r.Conflicts, "a plan that is alone fits beside itself")
		return
	}
	inner := e.Navigator
	e.Navigator = between{inner, func() { w.check(t, other.Pass(context.Background())) }}
	w.check(t, e.Pass(context.Background()))
	e.Navigator = inner
}

// between is a navigator whose plans are stale by what happens before they are returned.
type between struct {
	orbit.Navigator
	happens func()
}

func (b between) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := b.Navigator.Plan(ctx, view, pending)
	b.happens()
	return plan, err
}

func (w *world) check(t require.TestingT, r orbit.Round) {
	require.Empty(t, r.Errors)
	require.Zero(t, r.Infeasible+r.Invalid)
	require.LessOrEqual(t, r.Pending-len(r.Unplaced), r.Proposed, "every capsule is proposed or explained")
}

// upset releases a capsule, drains or restores a node, or releases a whole group.
func (w *world) upset(t *rapid.T) {
	s := snapshot(t, w.ledger)
	var placed []*orbit.Capsule
	placed = append(placed, s.Pending()...)
	for n := range s.Nodes() {
		for c := range s.On(n.Node.ID) {
			placed = append(placed, c)
		}
		if rapid.IntRange(0, 9).Draw(t, "drain") == 0 {
			put := *n.Node
			put.Cordon(put.Schedulable())
			commit(t, w.ledger, orbit.PutNode{Node: put})
		}
	}
	if len(placed) == 0 {
		return
	}
	whole := rapid.Bool().Draw(t, "whole")
	victim := placed[rapid.IntRange(0, len(placed)-1).Draw(t, "victim")]
	for _, c := range placed {
		if c == victim || whole && c.Spec.Group == victim.Spec.Group {
			commit(t, w.ledger, ended(c, c.Pending() || rapid.Bool().Draw(t, "final")))
		}
	}
}

// ended takes a capsule off its node, for good or because it has stopped.
func ended(c *orbit.Capsule, final bool) orbit.Release {
	return orbit.Release{Capsule: c.ID, From: c.Node, Final: final, Stopped: !final}
}

// Navigators race on views of any age, with batches of any size, while members and nodes come and go. The properties
// that audit checks hold at every revision.
func TestAnchorsAtEveryRevision(t *testing.T) {
	for reached := range scale.Reach(t, "anchors") {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t)
			for range rapid.IntRange(0, 3).Draw(t, "submits") {
				w.submit(t)
			}
			t.Repeat(map[string]func(*rapid.T){
				"submit": w.submit, "pass": w.pass, "pass again": w.pass, "pass once more": w.pass, "upset": w.upset,
			})
			reached["anchors"] += audit(t, w.ledger)
		})
	}
}
