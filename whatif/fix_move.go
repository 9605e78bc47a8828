package whatif

import (
	"cmp"
	"context"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
	"github.com/orbitsched/orbit/place"
)

// The bounds of the search for moves: mostVacated is the number of nodes that are looked at, and mostMoved the number of
// capsules that a fix moves.
const (
	mostVacated = 4
	mostMoved   = 8
)

// move returns a fix that moves capsules off one node, which would have enough without its movable capsules; nil: there is
// none. The nodes that lack the least come first.
func (a *asker) move() *Fix {
	nodes, lack := []*orbit.NodeState(nil), map[*orbit.NodeState]float64{}
	for n := range a.state.Nodes() {
		if a.state.FitsByMoves(n, a.spec) {
			r := roomOf(n)
			nodes, lack[n] = append(nodes, n), a.lack(&r)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	slices.SortStableFunc(nodes, func(x, y *orbit.NodeState) int { return cmp.Compare(lack[x], lack[y]) })
	id := a.probe()
	submitted, err := a.state.With(orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: a.spec}}})
	if err != nil {
		return nil
	}
	draft, err := draftAt(context.Background(), submitted)
	if err != nil {
		return nil
	}
	m := mover{a, draft, submitted.Capsule(id)}
	for _, n := range nodes[:min(len(nodes), mostVacated)] {
		for _, order := range []int{-1, 1} { // few large capsules first; small ones fit elsewhere more often
			if f := m.off(n, order); f != nil {
				return f
			}
		}
	}
	return nil
}

// mover plans moves on a draft that makes no other steps.
type mover struct {
	*asker
	draft *orbit.Draft
	// probe is the capsule for which the others make room.
	probe *orbit.Capsule
}

// off returns a fix that moves the fewest capsules off a node, in this order of their size; nil: there is none.
func (m *mover) off(n *orbit.NodeState, order int) *Fix {
	on := slices.SortedFunc(m.state.On(n.Node.ID), func(x, y *orbit.Capsule) int {
		return cmp.Or(order*cmp.Compare(m.share(x), m.share(y)), cmp.Compare(x.ID, y.ID))
	})
	on = slices.DeleteFunc(on, func(c *orbit.Capsule) bool { return m.share(c) == 0 || !m.state.Movable(c) })
	without := func(leaving []*orbit.Capsule) *room {
		r, whole := roomOf(n), seats.CapacityOf(&orbit.NodeState{Node: n.Node})
		for _, c := range leaving {
			r.Leave(c.Spec, c.Devices, &whole)
		}
		return &r
	}
	leaving := minimal(on[:min(len(on), mostMoved)], func(leaving []*orbit.Capsule) bool {
		return m.of(n, without(leaving)) == (reasonSet{})
	})
	if len(leaving) == 0 {
		return nil
	}
	f := &Fix{Node: n.Node.ID, devices: without(leaving).pick(m.spec)}
	start := m.draft.Checkpoint()
	defer m.draft.Rollback(start)
	if !m.plan(f, n, leaving) {
		return nil
	}
	return f
}

// share returns how much of the request a capsule's own would serve: the largest part over all dimensions and devices.
func (a *asker) share(c *orbit.Capsule) (part float64) {
	for d, want := range a.spec.Envelope.Reservation {
		if want > 0 {
			part = max(part, float64(c.Spec.Envelope.Reservation[d])/float64(want))
		}
	}
	if ask := &a.spec.Devices; ask.Count > 0 {
		part = max(part, float64(c.Devices.Len()*c.Spec.Devices.Milli)/float64(ask.Count*ask.Milli))
	}
	return part
}

// plan plans the moves of a fix, and reports false if not all of these capsules can be moved.
func (m *mover) plan(f *Fix, n *orbit.NodeState, leaving []*orbit.Capsule) bool {
	for _, c := range leaving {
		if m.draft.Evict(orbit.Evict{Capsule: c.ID}) != nil {
			return false
		}
	}
	if m.draft.Place(m.probe, orbit.Choice{Node: n, Devices: f.devices}) != nil {
		return false
	}
	for _, c := range leaving {
		if m.draft.PlaceBest(&place.Exhaustive{}, c) != nil {
			return false
		}
	}
	for _, do := range m.draft.Propose().Do {
		p, is := do.(orbit.Place)
		if is && p.Capsule == m.probe.ID {
			continue
		}
		if is {
			f.Move = append(f.Move, Move{Capsule: p.Capsule, To: p.Node})
		}
		f.moves = append(f.moves, do)
	}
	return !slices.ContainsFunc(f.Move, func(to Move) bool { return to.To == f.Node })
}
