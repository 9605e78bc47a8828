package orbit

import (
	"iter"
	"maps"
	"slices"
)

// Nodes that a draft keeps for last: starts have failed there lately, or a capsule would have to wait there.

// Avoid makes the nodes on which starts of these capsules have failed lately the last resort for all specs, until the
// next Avoid, LookAs, Propose or Sync; see [Draft.LastResort]. LookAs does so for its one capsule. A navigator that plans
// several capsules together, such as a gang, calls Avoid with all of them.
func (d *Draft) Avoid(capsules ...*Capsule) {
	if d.view == nil || len(d.avoided) == 0 && d.view.state.failed.Len() == 0 {
		return
	}
	var now []uint32
	for _, c := range capsules {
		if c == nil {
			continue
		}
		f := d.view.state.failuresOf(c.ID)
		for i := 0; f != nil && i < len(f.Nodes); i++ {
			if n := d.view.state.Node(f.Nodes[i].Node); n != nil && f.Nodes[i].avoided(d.now) {
				now = append(now, n.index)
			}
		}
	}
	slices.Sort(now)
	if now = slices.Compact(now); slices.Equal(now, d.avoided) {
		return
	}
	d.touchAvoided()
	d.avoided = now
	d.touchAvoided()
}

// touchAvoided makes indexes rate the avoided nodes again.
func (d *Draft) touchAvoided() {
	for _, index := range d.avoided {
		d.touch(index)
	}
}

// touch replaces a node by an equal copy, so that indexes see that it may rank otherwise now.
func (d *Draft) touch(index uint32) {
	if n := d.Node(int(index)); n != nil {
		same := d.copies.New(*n)
		d.nodes[index] = same
	}
	d.journal.add(index)
}

// syncFailures takes over from the view on which nodes starts have failed lately. Indexes rate the nodes again for which
// that makes a difference.
func (d *Draft) syncFailures() {
	d.touchAvoided()
	d.avoided = d.avoided[:0]
	was := d.failing
	d.failing = d.view.failing
	either := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(d.failing))
	slices.Sort(either) // drafts that did the same tell indexes of nodes in the same order
	for _, index := range slices.Compact(either) {
		if !was[index].same(d.failing[index]) {
			d.touch(index)
		}
	}
}

// Avoids reports whether capsules of the spec should rather not start on a node: starts of the capsule that the draft was
// last asked for ([Draft.LookAs], [Draft.Avoid]) have failed there lately, or most starts there have, and these were of
// several specs or of several capsules of this one ([State.Starts]). How long is lately: after the first failure of a
// capsule on a node 10 s, after each further one twice as long, up to 5 minutes.
func (d *Draft) Avoids(n *NodeState, spec *Spec) bool {
	if len(d.avoided) > 0 && slices.Contains(d.avoided, n.index) {
		return true
	}
	starts := d.failing[n.index]
	return starts != nil && starts.keepsOff(spec)
}

// Burdened yields the indices of the nodes that may be a last resort for some capsules, in rising order. All other nodes
// are none, except those on which the plan has evicted capsules.
func (d *Draft) Burdened() iter.Seq[int] {
	return func(yield func(int) bool) {
		if d.view == nil {
			return
		}
		all := slices.AppendSeq(slices.Clone(d.avoided), maps.Keys(d.failing))
		all = slices.AppendSeq(all, maps.Keys(d.view.stopping))
		slices.Sort(all)
		for _, index := range slices.Compact(all) {
			if !yield(int(index)) {
				return
			}
		}
	}
}

// LastResort reports whether a node comes after all others that take a capsule of the spec: because Avoids reports true,
// or because the capsule would have to wait there until capsules have stopped that have left the node ([Remains]). A
// placement engine chooses such a node only if no other takes the spec. No rule of the ledger forbids it. The node must
// be the draft's, and take a capsule of the spec.
func (d *Draft) LastResort(n *NodeState, spec *Spec) bool {
	if n.remains != nil {
		if devices, _ := n.PickDevices(spec); n.Waits(spec, devices) {
			return true
		}
	}
	return d.Avoids(n, spec)
}

// restart releases placements that wait and places each on another node of the draft on which it could begin at once. It
// returns the releases; nil: there is no such node for one of them.
func (d *Draft) restart(placed []*Capsule, within func(*Node) bool) (do []Commitment) {
	for _, c := range placed {
		release := Release{Capsule: c.ID, From: c.Node}
		if d.Release(release) != nil {
			return nil
		}
		do = append(do, release)
	}
	for _, c := range placed {
		d.LookAs(c)
		placedAgain := false
		for n := range d.Nodes() {
			if n.Node.ID == c.Node || !within(n.Node) || d.Misfit(n, c.Spec) != (Misfit{}) || d.LastResort(n, c.Spec) {
				continue
			}
			devices, ok := n.PickDevices(c.Spec)
			if placedAgain = ok && d.Place(c, Choice{Node: n, Devices: devices}) == nil; placedAgain {
				break
			}
		}
		if !placedAgain {
			return nil
		}
	}
	return do
}
