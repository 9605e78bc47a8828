package race

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// liveKeeper stands for a navigator that an importer writes. It places the capsules that are assigned to it, and at
// times its plan also holds room for a third party. It tests what the ready navigators do not: they never put a class
// aside because of their own holds. If a hold of this one is refused, classes have been put aside for room that stays
// free.
type liveKeeper struct {
	placement orbit.PlacementEngine
	play      *livePlay
	draft     orbit.Draft
	holds     int
}

// Claims implements [orbit.Navigator]. It reports true for all work, but assignedOnly wraps the navigator, so that it
// gets only assigned work.
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

// keep holds all free CPU of one node for 50 ms. It reports false if the node has none.
func (k *liveKeeper) keep(view *orbit.View, draw uint64) bool {
	n := view.State().NodeByIndex(int(draw % uint64(max(1, view.State().NodeBound()))))
	if n == nil || n.Free()[orbit.CPU] <= 0 {
		return false
	}
	k.holds++
	return k.draft.Hold(orbit.Hold{
		ID: orbit.HoldID(fmt.Sprint(orbit.PlanPrefix, "keeper/", k.holds)), Node: n.Node.ID, For: "a third party",
		Room: orbit.Resources{orbit.CPU: n.Free()[orbit.CPU]}, Ends: view.Now().Add(50 * time.Millisecond),
	}) == nil
}
