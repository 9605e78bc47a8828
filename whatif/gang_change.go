package whatif

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
	"github.com/orbitsched/orbit/internal/victims"
)

// await searches for holds in a domain whose end makes the gang fit there: those that end soonest, and no more than
// necessary. The gang must fit sooner than with best, or at the same time with fewer holds; nil: it does not.
func (a *gangAsker) await(p *gangPlace, best *GangFix) *GangFix {
	var holds []orbit.Hold
	for h := range a.state.Holds() {
		if n := a.state.Node(h.Node); n != nil && p.has(n.Node) && (best == nil || !h.Ends.After(best.Until)) {
			holds = append(holds, h)
		}
	}
	slices.SortFunc(holds, func(x, y orbit.Hold) int { return cmp.Or(x.Ends.Compare(y.Ends), cmp.Compare(x.ID, y.ID)) })
	f := &GangFix{}
	serves := func(ended []orbit.Hold) bool {
		return a.around(p, f, func(q *gangPlace) []orbit.Commitment {
			return a.seat(a.index, q.nodes, &a.needs, func(draft *orbit.Draft) (err error) {
				for i := 0; i < len(ended) && err == nil; i++ {
					err = draft.Release(orbit.Release{Hold: ended[i].ID})
				}
				return err
			})
		})
	}
	if f.Await = fewest(holds, serves); len(f.Await) == 0 || !serves(f.Await) {
		return nil
	}
	f.Until = f.Await[len(f.Await)-1].Ends
	if best != nil && !f.Until.Before(best.Until) && len(f.Await) >= len(best.Await) {
		return nil
	}
	for _, h := range f.Await {
		f.before = append(f.before, orbit.Release{Hold: h.ID})
	}
	return f
}

// uncordon searches for the fewest cordoned nodes of a domain that must become schedulable so that the gang fits. It
// returns a fix with fewer nodes than best; nil: there is none.
func (a *gangAsker) uncordon(p *gangPlace, best *GangFix) *GangFix {
	var closed []orbit.Commitment
	for _, at := range p.nodes {
		if n := a.state.NodeByIndex(int(at)); n.Node.State == orbit.Cordoned && len(closed) < mostGangNodes {
			node := *n.Node
			node.State = orbit.Ready
			closed = append(closed, orbit.PutNode{Node: node})
		}
	}
	index := a.indexWith(closed)
	if index == nil {
		return nil
	}
	takes := map[orbit.NodeID]int{}
	for _, do := range closed {
		node := do.(orbit.PutNode).Node
		takes[node.ID] = a.takes(index, int32(index.Draft.View().State().Node(node.ID).Index()))
	}
	id := func(do orbit.Commitment) orbit.NodeID { return do.(orbit.PutNode).Node.ID }
	closed = slices.DeleteFunc(closed, func(do orbit.Commitment) bool { return takes[id(do)] == 0 })
	slices.SortStableFunc(closed, func(x, y orbit.Commitment) int {
		return cmp.Or(cmp.Compare(takes[id(y)], takes[id(x)]), cmp.Compare(id(x), id(y)))
	})
	if best != nil {
		closed = closed[:min(len(closed), len(best.Uncordon)-1)]
	}
	f := &GangFix{}
	serves := func(opened []orbit.Commitment) bool {
		open := map[orbit.NodeID]bool{}
		for _, do := range opened {
			open[id(do)] = true
		}
		return a.around(p, f, func(q *gangPlace) []orbit.Commitment {
			return a.seat(index, q.in(&index.Draft, func(n *orbit.Node) bool { return !open[n.ID] && a.state.Node(n.ID).Node.State == orbit.Cordoned }), &a.needs, nil)
		})
	}
	if f.before = fewest(closed, serves); len(f.before) == 0 || !serves(f.before) {
		return nil
	}
	for _, do := range f.before {
		f.Uncordon = append(f.Uncordon, id(do))
	}
	return f
}

// takes returns how many of the needed members fit on one node.
func (a *gangAsker) takes(index *seats.Index, at int32) int {
	a.seatings++
	p, done := a.packer(index, &a.needs)
	defer done()
	p = p.WithLeast(seats.NoneOf)
	if f := p.On([]int32{at}); f != nil {
		return f.Total
	}
	return 0
}

// indexWith returns an index of the state after some commitments; nil: there are none, or they are refused.
func (a *gangAsker) indexWith(do []orbit.Commitment) *seats.Index {
	if len(do) == 0 {
		return nil
	}
	next, err := a.state.With(orbit.Proposal{Do: do})
	if err != nil {
		return nil
	}
	index, err := indexOf(a.ctx, next)
	if err != nil {
		return nil
	}
	return index
}

// evict searches for victims of lower priority in a domain, and leaves out those that are not needed. It does not search
// if there is a fix already.
func (a *gangAsker) evict(p *gangPlace, best *GangFix) *GangFix {
	if best != nil {
		return nil
	}
	f := &GangFix{}
	serves := func(leave []orbit.Commitment) bool {
		f.Evict, f.evicts, f.giveWay = nil, leave, false
		for _, do := range leave {
			v := a.state.Capsule(do.(orbit.Evict).Capsule)
			f.Evict = append(f.Evict, v.ID)
			f.giveWay = f.giveWay || a.state.Precedes(a.gang.Gang.ID, v.Gang())
		}
		return a.around(p, f, func(q *gangPlace) []orbit.Commitment {
			return a.seat(a.index, q.nodes, &a.needs, func(draft *orbit.Draft) (err error) {
				for i := 0; i < len(leave) && err == nil; i++ {
					err = draft.Evict(leave[i].(orbit.Evict))
				}
				return err
			})
		}) && a.commits(f, f.at) != nil // a victim that would be evicted in vain may be among them; fewest leaves it out
	}
	if leave := fewest(a.victims(p), serves); len(leave) == 0 || !serves(leave) {
		return nil
	}
	return f
}

// victims returns evictions that make room for all needed members in the domain, as a nav.Preempting finds them; nil:
// there are none.
func (a *gangAsker) victims(p *gangPlace) (out []orbit.Commitment) {
	draft, members := &a.index.Draft, a.needs.Members()
	start := draft.Checkpoint()
	defer draft.Rollback(start)
	draft.LookAs(members[0])
	defer draft.LookAs(nil)
	for _, gentle := range []bool{true, false} {
		e := &seats.Evicting{Draft: draft, Search: &victims.Search{Gentle: gentle}, Singly: a.gang.Total() > 0}
		if a.ctx.Err() == nil && e.Seat(p.nodes, members) != nil {
			break
		}
		draft.Rollback(start)
	}
	for _, do := range draft.Propose().Do {
		if do, is := do.(orbit.Evict); is {
			out = append(out, do)
		}
	}
	return out
}
