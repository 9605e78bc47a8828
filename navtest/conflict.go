package navtest

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: a navigator plans from the view alone. What a proposal of its lost to another engine is planned
// again, elsewhere if need be, until it is placed; what that engine has placed is not.

func checkConflict(t *trial) {
	t.Where = "all nodes of its first plan have been filled by others, and new ones have joined: "
	w := t.world()
	w.racks(t.plenty())
	mine := w.easy(t.mine)
	w.during = once(w.fill)
	w.passUntilPlaced("it fits on the new nodes", mine, t.trespass)

	t.Where = "what its first plan places has been placed by others: "
	w = t.world()
	w.racks(t.plenty())
	mine = w.easy(t.mine)
	w.during = once(w.preempt)
	w.passUntilPlaced("it fits easily", mine, t.trespass)
	w.passes(1, t.trespass)

	for _, p := range t.mine {
		t.lostAndFree(p)
	}
}

// lostAndFree has a plan that takes all there is lose it, after which it is free again. A navigator that counts what
// it has lost as taken has nothing left.
func (t *trial) lostAndFree(p pair) {
	t.Where = "all that its first plan takes was taken, and is given back: "
	w := t.world()
	w.racks(2)
	mine := w.submit(whole(p), 6)
	for range 3 {
		var taken []orbit.CapsuleID
		w.during = once(func(c *call) (err error) {
			taken, err = w.take(c)
			return err
		})
		w.until(t.suite.Passes, nil, func(*orbit.State) bool { return len(taken) > 0 })
		w.during = nil
		if len(taken) == 0 {
			t.Failf("nothing is placed after %d passes, though all is free", t.suite.Passes)
		}
		w.commit(final(taken)...)
	}
	w.passUntilPlaced("all is free again", mine, t.trespass)
}

// once lets something happen during the first plan that places anything.
func once(f func(*call) error) func(*call) error {
	done := false
	return func(c *call) error {
		if done || len(c.places()) == 0 {
			return nil
		}
		done = true
		return f(c)
	}
}

// fill takes all that is left of every node, and lets as many new nodes join.
func (w *world) fill(c *call) error {
	if _, err := w.take(c); err != nil {
		return err
	}
	i := 0
	for range c.state.Nodes() {
		n := large(fmt.Sprintf("node-new-%02d", i), fmt.Sprint("r", 10+i%3), "b10")
		if w.t.suite.Node != nil {
			w.t.suite.Node(&n)
		}
		if err := w.attempt(orbit.PutNode{Node: n}); err != nil {
			return err
		}
		i++
	}
	return nil
}

// take lets others place capsules on all nodes that leave no room.
func (w *world) take(c *call) (ids []orbit.CapsuleID, err error) {
	for n := range c.state.Nodes() {
		id, err := w.occupy(n.Node.ID, n.Free(), "")
		if err != nil {
			return nil, fmt.Errorf("the suite cannot set its world up: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// preempt commits the proposals of a plan before the engine does, as if another engine had come to the same.
func (w *world) preempt(c *call) error {
	for _, p := range c.plan.Proposals {
		p.ID = orbit.NewProposalID()
		if _, err := w.ledger.Propose(context.Background(), p); err != nil {
			return c.fault("%w", err)
		}
	}
	return nil
}
