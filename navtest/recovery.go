package navtest

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: capacity that becomes free is used, even if it becomes free during a plan that has not found any. A capsule
// that returns to pending is placed again, as often as it returns.

func checkRecovery(t *trial) {
	w := t.world()
	w.engine.ParkFor = 0 // the default
	w.racks(t.plenty())
	var others []orbit.CapsuleID
	for n := range w.state().Nodes() {
		id, err := w.occupy(n.Node.ID, n.Free(), "")
		t.Must(err)
		others = append(others, id)
	}
	mine := w.easy(t.mine)
	released := false
	w.during = func(*call) (err error) {
		if !released {
			err = w.attempt(final(others)...)
		}
		released = true
		return err
	}
	t.Where = "all nodes were full, and have come free while it planned: "
	w.passUntilPlaced("it fits easily", mine, nil)

	for i := range 3 {
		t.Where = fmt.Sprintf("all its capsules have been evicted, %d: ", i)
		w.evict(mine)
		w.passUntilPlaced("it fits easily", mine, t.trespass)
	}
	for _, p := range t.mine {
		t.fullAgain(p)
	}
}

// fullAgain fills all nodes with the navigator's own capsules and evicts them, several times. A navigator that counts
// them twice, or still counts evicted ones, finds no free capacity.
func (t *trial) fullAgain(p pair) {
	w := t.world()
	w.racks(2)
	mine := w.submit(whole(p), 6)
	for i := range 3 {
		t.Where = fmt.Sprintf("six capsules have been evicted from the six nodes that they fill, %d times: ", i)
		w.passUntilPlaced("it fits exactly", mine, nil)
		w.evict(mine)
	}
}

// evict returns capsules to pending. Their nodes are cordoned for that, and take work again afterwards.
func (w *world) evict(ids []orbit.CapsuleID) {
	var cordon, release, open []orbit.Commitment
	cordoned := map[orbit.NodeID]bool{}
	for _, id := range ids {
		at := w.state().Capsule(id).Node
		if release = append(release, orbit.Release{Capsule: id, From: at}); cordoned[at] {
			continue
		}
		cordoned[at] = true
		node := *w.state().Node(at).Node
		open = append(open, orbit.PutNode{Node: node})
		node.Cordon(true)
		cordon = append(cordon, orbit.PutNode{Node: node})
	}
	w.commit(cordon...)
	w.commit(release...)
	w.commit(open...)
}

// final returns the commitments that release capsules for good.
func final(ids []orbit.CapsuleID) (do []orbit.Commitment) {
	for _, id := range ids {
		do = append(do, orbit.Release{Capsule: id, Final: true})
	}
	return do
}
