package whatif

import (
	"context"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// feedAll repeats the real changes in the World, one commit after the other. Now is the real state after the last of
// them.
func (w *World) feedAll(ctx context.Context, now *orbit.State, changes []orbit.Change) error {
	for _, id := range slices.Sorted(maps.Keys(w.leaving)) {
		w.removeNode(ctx, id)
	}
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision && changes[n].ID == changes[0].ID {
			n++
		}
		after, err := w.real.Apply(changes[:n])
		if err != nil { // the changes do not continue from this state
			return w.begin(ctx, now)
		}
		w.feed(ctx, changes[:n], after)
		w.takeReal(changes[:n], w.real, after)
		w.real, changes = after, changes[n:]
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	w.real = now
	return nil
}

// feed repeats one real commit in the World, except the commitments on which the World's own engines decide. The
// placements of one commit are one proposal in the World too, because a gang may have to start whole.
func (w *World) feed(ctx context.Context, changes []orbit.Change, after *orbit.State) {
	var places []orbit.Commitment
	for i := range changes {
		switch do := changes[i].Do.(type) {
		case orbit.PutNode:
			w.putNode(ctx, do.Node)
		case orbit.RemoveNode:
			w.removeNode(ctx, do.Node)
		case orbit.Submit, orbit.Mark, orbit.PutBudget, orbit.RemoveBudget, orbit.PutQueue, orbit.RemoveQueue, orbit.Adopt:
			w.do(ctx, do)
		case orbit.Assign:
			if c := w.state(ctx).Capsule(do.Capsule); c != nil {
				do.From = c.Owner()
				w.do(ctx, do)
			}
		case orbit.Respec:
			if c := w.state(ctx).Capsule(do.Capsule); c != nil && !do.Stopping { // in a World nothing stops
				do.Since = 0
				if c.Placed() {
					do.Since = c.PlacedAt
				}
				w.do(ctx, do)
			}
		case orbit.Release:
			w.release(ctx, do)
		case orbit.Place:
			if c := after.Capsule(do.Capsule); c != nil && !w.plans(c) {
				do.After = false // nodes of a World do not confirm, so no capsule has to wait until another has stopped
				places = append(places, do)
			}
		}
	}
	if len(places) > 0 {
		w.do(ctx, places...)
	}
}

// state returns the World's state.
func (w *World) state(ctx context.Context) *orbit.State {
	s, err := w.fork.Snapshot(ctx)
	if err != nil { // ctx has ended; this commit is still fed, and feedAll returns after it
		s, _ = w.fork.Snapshot(context.WithoutCancel(ctx))
	}
	return s
}

// do commits one proposal of feed in the World. It reports whether the World's ledger accepted it, and counts it as
// missed if not.
func (w *World) do(ctx context.Context, do ...orbit.Commitment) bool {
	_, err := w.fork.MemoryLedger.Propose(context.WithoutCancel(ctx), orbit.Proposal{ID: orbit.NewProposalID(), Do: do})
	if err != nil {
		w.sum.Missed++
	}
	return err == nil
}

// putNode adds or changes a node. If the node is lost, the capsules on it return to pending, and its holds are
// released.
func (w *World) putNode(ctx context.Context, n orbit.Node) {
	n.Confirms = false
	if delete(w.leaving, n.ID); w.do(ctx, orbit.PutNode{Node: n}) && n.State == orbit.Lost {
		w.evacuate(ctx, n.ID)
	}
}

// evacuate releases the capsules and holds on a lost node.
func (w *World) evacuate(ctx context.Context, id orbit.NodeID) {
	state := w.state(ctx)
	for c := range state.On(id) {
		w.do(ctx, orbit.Release{Capsule: c.ID, From: id})
	}
	for h := range state.Holds() {
		if h.Node == id {
			w.do(ctx, orbit.Release{Hold: h.ID})
		}
	}
}

// removeNode removes a node. The real node was empty, but there may be capsules on it in the World; these return to
// pending. If the node cannot be removed yet, because capacity on it is nominated, the next call of feedAll tries
// again.
func (w *World) removeNode(ctx context.Context, id orbit.NodeID) {
	n := w.state(ctx).Node(id)
	if delete(w.leaving, id); n == nil {
		return
	}
	if (n.Capsules > 0 || n.Holds() > 0) && n.Node.State != orbit.Lost {
		lost := *n.Node
		lost.State = orbit.Lost
		w.putNode(ctx, lost)
	}
	if missed := w.sum.Missed; !w.do(ctx, orbit.RemoveNode{Node: id}) {
		w.sum.Missed = missed
		w.leaving[id] = true
	}
}

// release repeats a real release of a capsule in the World. A final release always ends the capsule. Any other one
// returns it to pending only if the capsule has stopped by itself, or if the release is from the node on which the
// World has the capsule and that node is cordoned in the World too.
func (w *World) release(ctx context.Context, r orbit.Release) {
	c := w.state(ctx).Capsule(r.Capsule)
	if r.Capsule == "" || c == nil || c.Released() {
		return
	}
	switch {
	case r.Final:
		end := orbit.Release{Capsule: c.ID, Final: true}
		if c.Placed() {
			end.Stopped, end.At = r.Stopped, r.At
		}
		w.do(ctx, end)
		delete(w.open, c.ID)
	case !c.Placed():
	case r.Stopped:
		w.do(ctx, orbit.Release{Capsule: c.ID, Stopped: true, At: r.At})
	case r.From == "" || r.From == c.Node:
		if n := w.state(ctx).Node(c.Node); n.Node.State == orbit.Cordoned {
			w.do(ctx, orbit.Release{Capsule: c.ID, From: c.Node})
		}
	}
}

// plans reports whether one of the World's engines plans a capsule. The World then does not repeat its real placement.
func (w *World) plans(c *orbit.Capsule) bool {
	for _, e := range w.engines {
		if c.Owner() == e.Name && c.Owner() != "" {
			return true
		}
	}
	if c.Owner() != "" {
		return false
	}
	key := claim{c.Spec.Module, c.Spec.Class}
	planned, known := w.claims[key]
	if !known {
		if len(w.claims) >= 1<<16 { // bounds the memory of answers
			clear(w.claims)
		}
		for _, e := range w.engines {
			guard.Call(func() error {
				planned = planned || e.Navigator.Claims(key.module, key.class)
				return nil
			}, func(error) {}) // the engine reports a panic of Claims itself
		}
		w.claims[key] = planned
	}
	return planned
}
