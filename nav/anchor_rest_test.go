package nav_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// restParkFor is how long classes are put aside in these worlds.
const restParkFor = time.Hour

// Groups of up to eight specs, whose members name up to three levels, among services, while nodes join, leave, are
// cordoned, shrink and move: when nothing happens any more, nothing that is pending fits anywhere by brute force.
// ANCHOR_WORLDS multiplies the number of worlds.
func TestAnchorsRestOnlyWhereNothingFits(t *testing.T) {
	worlds, err := strconv.Atoi(os.Getenv("ANCHOR_WORLDS"))
	if err != nil {
		worlds = 1
	}
	for range worlds {
		rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, restWorld) })
	}
}

// restless is a world of one or two engines that run, each with an Anchor and with capsules of its own.
type restless struct {
	ledger  *orbit.MemoryLedger
	engines []string
	self    bool
	serial  int
	// What happens next, at once.
	next []orbit.Commitment
	// Proposals that were refused as mistakes, and other errors.
	wrong atomic.Pointer[orbit.Round]
}

func restWorld(t *rapid.T) {
	w := &restless{ledger: &orbit.MemoryLedger{}, self: rapid.Bool().Draw(t, "self")}
	for range rapid.IntRange(1, 6).Draw(t, "nodes") {
		w.join(t)
	}
	w.happen()
	ctx, cancel := context.WithCancel(context.Background())
	defer func() {
		cancel()
		time.Sleep(time.Second) // plans that are on their way end
	}()
	slow := time.Duration(rapid.SampledFrom([]int{0, 5}).Draw(t, "slow")) * time.Millisecond
	hold := rapid.SampledFrom([]time.Duration{time.Second, -1}).Draw(t, "hold")
	for i := range rapid.IntRange(1, 2).Draw(t, "engines") {
		e := &orbit.Engine{
			Name: fmt.Sprint("e", i), Ledger: w.ledger, ParkFor: restParkFor, MaxPlan: rapid.SampledFrom([]int{4, 1000, 1000}).Draw(t, "most"),
			Navigator: between{
				&nav.Anchor{Navigator: &nav.Services{InOrder: rapid.Bool().Draw(t, "order")}, SelfMatch: w.self, HoldFor: hold},
				func() { time.Sleep(slow) },
			},
			OnRound: func(r orbit.Round) {
				if r.Infeasible+r.Invalid > 0 || len(r.Errors) > 0 {
					w.wrong.CompareAndSwap(nil, &r)
				}
			},
		}
		w.engines = append(w.engines, e.Name)
		go func() { _ = e.Run(ctx) }()
	}
	for range rapid.IntRange(1, 3).Draw(t, "rests") {
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			for range rapid.IntRange(1, 3).Draw(t, "at once") {
				rapid.SampledFrom([]func(*rapid.T){
					w.group, w.group, w.service, w.service, w.join, w.change, w.change, w.leave, w.release,
				}).Draw(t, "step")(t)
			}
			w.happen()
			time.Sleep(time.Duration(rapid.SampledFrom([]int{0, 3, 6, 9, 30}).Draw(t, "ms")) * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(time.Minute) // one pass a second, for all that is pending
		synctest.Wait()
		w.check(t)
	}
}

// happen commits all that is to happen at once: together, or what can be of it.
func (w *restless) happen() {
	together := orbit.Proposal{Do: w.next}
	if _, err := w.ledger.Propose(context.Background(), together); err != nil {
		for _, c := range w.next {
			_, _ = w.ledger.Propose(context.Background(), do(c))
		}
	}
	w.next = nil
}

// check looks for what is pending and fits.
func (w *restless) check(t *rapid.T) {
	s := snapshot(t, w.ledger)
	require.NoError(t, s.Verify())
	if r := w.wrong.Load(); r != nil {
		require.Failf(t, "a mistake", "%v %v", *r, r.Errors)
	}
	require.Zero(t, holdsOf(s))
	for _, c := range s.Pending() {
		for n := range s.Nodes() {
			require.False(t, n.Fits(c.Spec) && w.company(s, c.Spec, n), "%s of %q (near %v) fits on %s", c.ID, c.Spec.Group, c.Spec.Near, n.Node.ID)
		}
	}
}

// company reports whether a node is where a capsule of the spec may be for the company it wants: with a member of the
// group in the domain; or, of its own group, first.
func (w *restless) company(s *orbit.State, spec *orbit.Spec, n *orbit.NodeState) bool {
	near, domain := spec.Near, n.Node.Labels[spec.Near.Level]
	if near.Group == "" {
		return true
	}
	runs, here := false, false
	for c := range s.Capsules() {
		if c.Placed() && c.Spec.Group == near.Group {
			runs = true
			here = here || s.Node(c.Node).Node.Labels[near.Level] == domain
		}
	}
	if runs || near.Group != spec.Group {
		return here && domain != ""
	}
	return domain != "" && (isFresh(s, n.Node.ID) || w.self && matchesItself(s, spec.Group))
}

// matchesItself reports whether all that is pending and has to do with the group are members that wait for it.
func matchesItself(s *orbit.State, group string) bool {
	for _, c := range s.Pending() {
		if (c.Spec.Group == group) != (c.Spec.Near.Group == group) {
			return false
		}
	}
	return true
}

// labels draws where a node is: racks that nest in zones, or do not, and nodes without either.
func (w *restless) labels(t *rapid.T) map[string]string {
	labels := map[string]string{}
	for _, level := range []string{"rack", "zone", "block"} {
		if at := rapid.SampledFrom([]string{"0", "1", "2", "", "none"}).Draw(t, level); at != "none" {
			labels[level] = at
		}
	}
	if rapid.Bool().Draw(t, "ssd") {
		labels["ssd"] = ""
	}
	return labels
}

func (w *restless) join(t *rapid.T) {
	w.serial++
	n := node(fmt.Sprint("n", w.serial), rapid.Int64Range(0, 12).Draw(t, "cpu"))
	n.Node.Labels = w.labels(t)
	w.next = append(w.next, n)
}

// change shrinks or extends a node, cordons it or ends that, or moves it.
func (w *restless) change(t *rapid.T) {
	n := w.node(t)
	if n == nil {
		return
	}
	put := *n.Node
	switch rapid.IntRange(0, 2).Draw(t, "what") {
	case 0:
		put.Capacity = orbit.Resources{orbit.CPU: rapid.Int64Range(0, 12).Draw(t, "cpu")}
	case 1:
		put.Cordon(put.Schedulable())
	case 2:
		put.Labels = w.labels(t)
	}
	w.next = append(w.next, orbit.PutNode{Node: put})
}

// leave drains a node, and perhaps removes it.
func (w *restless) leave(t *rapid.T) {
	n := w.node(t)
	if n == nil {
		return
	}
	put := *n.Node
	put.State = orbit.Cordoned
	w.next = append(w.next, orbit.PutNode{Node: put})
	for c := range snapshot(t, w.ledger).On(put.ID) {
		w.next = append(w.next, orbit.Release{Capsule: c.ID, Final: rapid.IntRange(0, 3).Draw(t, "final") == 0})
	}
	if rapid.Bool().Draw(t, "remove") { // refused if there is a hold
		w.next = append(w.next, orbit.RemoveNode{Node: put.ID})
	}
}

// release releases a capsule, or the whole of its group.
func (w *restless) release(t *rapid.T) {
	var all []*orbit.Capsule
	for c := range snapshot(t, w.ledger).Capsules() {
		if c.Placed() || c.Pending() {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return
	}
	victim, whole := rapid.SampledFrom(all).Draw(t, "victim"), rapid.Bool().Draw(t, "whole")
	for _, c := range all {
		if c == victim || whole && c.Spec.Group != "" && c.Spec.Group == victim.Spec.Group {
			w.next = append(w.next, orbit.Release{Capsule: c.ID, Final: c.Pending() || rapid.Bool().Draw(t, "final")})
		}
	}
}

func (w *restless) node(t *rapid.T) *orbit.NodeState {
	var nodes []*orbit.NodeState
	for n := range snapshot(t, w.ledger).Nodes() {
		nodes = append(nodes, n)
	}
	if len(nodes) == 0 {
		return nil
	}
	return rapid.SampledFrom(nodes).Draw(t, "node")
}

// group submits up to eight specs of one group; now and then one waits for no group, or for another.
func (w *restless) group(t *rapid.T) {
	group := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "group")
	levels := rapid.SampledFrom([][]string{{"rack"}, {"rack", "zone"}, {"rack", "zone", "block"}}).Draw(t, "levels")
	for range rapid.IntRange(1, 8).Draw(t, "specs") {
		s := spec(rapid.OneOf(rapid.Int64Range(0, 9), rapid.Int64Range(8, 14)).Draw(t, "cpu"), rapid.Int32Range(0, 1).Draw(t, "priority"))
		s.Group, s.Near = group, orbit.Near{Group: group, Level: rapid.SampledFrom(levels).Draw(t, "level")}
		switch rapid.IntRange(0, 15).Draw(t, "company") {
		case 0:
			s.Near = orbit.Near{}
		case 1:
			s.Near.Group = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "other")
		}
		w.submit(t, s, rapid.IntRange(1, 2).Draw(t, "count"))
	}
}

func (w *restless) service(t *rapid.T) {
	w.submit(t, spec(rapid.Int64Range(1, 9).Draw(t, "cpu"), rapid.Int32Range(0, 2).Draw(t, "priority")), rapid.IntRange(1, 3).Draw(t, "count"))
}

func (w *restless) submit(t *rapid.T, s *orbit.Spec, count int) {
	if rapid.IntRange(0, 3).Draw(t, "ssd") == 0 {
		s.Require = []orbit.Predicate{{Key: "ssd", Op: "Exists"}}
	}
	var ids []orbit.CapsuleID
	for range count {
		w.serial++
		ids = append(ids, orbit.CapsuleID(fmt.Sprint("c", w.serial)))
	}
	w.next = append(w.next, orbit.Submit{IDs: ids, Spec: s, Owner: rapid.SampledFrom(w.engines).Draw(t, "owner")})
}
