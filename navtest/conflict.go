package navtest

import (
	"context"
	"fmt"
	"math"

	"github.com/orbitsched/orbit"
)

// The rule: a navigator plans from the view alone. Capsules whose proposals were lost to another engine are planned
// again until they are placed, on other nodes if necessary. Capsules that another engine has placed are not planned
// again.

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

// lostAndFree takes away all free capacity from under a plan that uses it, and then frees the capacity again. A
// navigator that counts lost proposals as placed finds no free capacity.
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

// once makes f run during the first plan that places anything.
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

// fill takes all free capacity of every node, and adds as many new nodes.
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

// take fills every node with capsules of other engines, and returns their ids. The capsules have the highest priority,
// so that they outrank any room that the navigator may have nominated after it lost a proposal.
func (w *world) take(c *call) (ids []orbit.CapsuleID, err error) {
	for n := range c.state.Nodes() {
		id := w.ids(1)[0]
		spec := &orbit.Spec{Module: other, Tolerate: tolerant, Priority: math.MaxInt32, Envelope: orbit.Envelope{Reservation: n.Free()}}
		if err := w.attempt(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec, Owner: other}, orbit.Place{Capsule: id, Node: n.Node.ID}); err != nil {
			return nil, fmt.Errorf("the suite cannot set its world up: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// preempt commits the proposals of a plan before the engine does, as if another engine had made the same plan.
func (w *world) preempt(c *call) error {
	for _, p := range c.plan.Proposals {
		p.ID = orbit.NewProposalID()
		if _, err := w.ledger.Propose(context.Background(), p); err != nil {
			return c.fault("%w", err)
		}
	}
	return nil
}
