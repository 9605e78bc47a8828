package race

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// liveKeeper is a navigator of an importer's own: it places what it is given, and keeps room for a third party now and
// then, in the same plan. Of the ready navigators, those that hold room never put a class aside for it. Where this one's
// hold is refused, classes have been put aside for room that is left.
type liveKeeper struct {
	placement orbit.PlacementEngine
	play      *livePlay
	draft     orbit.Draft
	holds     int
}

// Claims implements [orbit.Navigator]: it takes what it is assigned.
func (k *liveKeeper) Claims(string, orbit.AppClass) bool { return true }

// Plan implements [orbit.Navigator].
func (k *liveKeeper) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, _ error) {
	k.draft.Sync(view)
	if d := newDraw(k.play.draft.seed, "keeper", int(view.Revision())); k.play.resting == 0 && d.chance(0.3) && k.keep(view, d.next()) {
		plan.Proposals = append(plan.Proposals, k.draft.Propose())
	}
	for _, c := range pending {
		if err := k.draft.PlaceBest(k.placement, c); err != nil {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: err})
			continue
		}
		plan.Proposals = append(plan.Proposals, k.draft.Propose())
	}
	return plan, nil
}

// keep holds all the CPU that is left of one node, for a moment. It reports false if the node has none.
func (k *liveKeeper) keep(view *orbit.View, draw uint64) bool {
	n := view.State().NodeByIndex(int(draw % uint64(max(1, view.State().NodeBound()))))
	if n == nil || n.Free()[orbit.CPU] <= 0 {
		return false
	}
	k.holds++
	return k.draft.Hold(orbit.Hold{
		ID: orbit.HoldID(fmt.Sprint("keeper/", k.holds)), Node: n.Node.ID, For: "a third party",
		Room: orbit.Resources{orbit.CPU: n.Free()[orbit.CPU]}, Ends: view.Now().Add(50 * time.Millisecond),
	}) == nil
}
