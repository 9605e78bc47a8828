package nav

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// How a Patient serves what a plan leaves out: it places it in nominated room, or nominates room for it.

// serve places what waits in the room that is nominated for it, and nominates or renews, on a draft on which is what the
// plan does so far. It makes one nomination at most that is not a renewal: so those of equal rank are made in the order in
// which they came to wait, and none rests on another that the ledger may refuse.
func (r *patientPass) serve(ctx context.Context, waiting []*nominee) {
	r.draft.Sync(r.view)
	for i := range r.plan.Proposals {
		_ = reserve(&r.draft, &r.plan.Proposals[i]) // the ledger will refuse it too
	}
	tried, made, full, next := 0, false, false, map[waiter]bool{}
	for _, n := range waiting {
		lives := n.lives
		switch {
		case lives && n.tried && n.standing.Lends > 0 && r.stopLending(n):
		case lives && r.seat(n):
			r.served++
		case lives && (r.now.Before(n.again) || n.seats != nil && n.standing.Ends.Sub(r.now) > r.lasts()/2 && n.priority+n.aged <= n.standing.Rank):
		case full:
			n.lost = 0
		case tried == mostNominated || made && !lives:
			next[n.waiter] = made
		default:
			done, err := r.nominate(ctx, n)
			full, made = err != nil, made || done && !lives
			if tried++; !done {
				n.lost = 0 // or it would be withheld from the navigator again
			}
		}
	}
	for i, u := range r.plan.Unplaced { // a class that is parked would not be handed over in the next plan
		if u.Capsule != nil && next[r.waiterOf(u.Capsule)] && !full {
			r.plan.Unplaced[i].Why = errors.New(u.Why.Error() + "; room is nominated for it soon")
		}
	}
}

func (p *Patient) lasts() time.Duration { return cmp.Or(p.For, 2*time.Minute) }

// nominate makes a nomination, or renews the one that stands, where the fewest capsules have to end. It reports false if the nominee
// could go nowhere; the error is the draft's, if there is no more to be nominated.
func (r *patientPass) nominate(ctx context.Context, n *nominee) (bool, error) {
	n.again = r.now.Add(triedAgain)
	if r.After > 0 {
		n.again = r.now.Add(min(triedAgain, r.After))
	}
	s := r.choose(ctx, n)
	if s == nil {
		return false, nil
	}
	parts, stays, ends, lends := s.parts(), r.rooms.staysFor(s), r.now.Add(r.lasts()), r.lends(s)
	if stays && n.lives && n.stays && s.cost.compare(n.cost) >= 0 {
		ends, s.cost = n.lapse, n.cost
	}
	if len(parts) == 0 || n.lives && ends.Equal(n.standing.Ends) && n.priority+n.aged <= n.standing.Rank {
		return false, nil
	}
	do := orbit.Nominate{Capsule: n.capsule, Gang: n.gang, Aged: n.aged, Parts: parts, Ends: ends, Lends: lends}
	if err := r.draft.Nominate(do); err != nil {
		return false, err
	}
	n.seats, n.cost, n.stays, n.lapse, n.again, n.tried = s.seats, s.cost, stays, do.Ends, r.now, false
	r.nominated++
	r.plan.Proposals = append(r.plan.Proposals, r.draft.Propose())
	return true, nil
}

// lends returns for how long others may use what is to be nominated: as long as the nominee waits for it, by what is known of when
// work ends. It returns 0 if that is not known, and if on one of the nodes what leaves has to stop first.
func (r *patientPass) lends(s *patientSeating) time.Duration {
	if s.cost.at == unknownEnd || slices.ContainsFunc(s.rooms, func(w *waitingRoom) bool { return w.Node.Confirms && w.claims() }) {
		return 0
	}
	return max(0, time.Duration(s.cost.at-r.rooms.clock))
}

// stopLending renews a nomination so that it lends no more: a proposal to place the nominee in that room was lost, perhaps to what has
// come to borrow it. This one rests on none of those. It reports false if the draft refuses it.
func (r *patientPass) stopLending(n *nominee) bool {
	do := orbit.Nominate{Capsule: n.capsule, Gang: n.gang, Aged: n.aged, Parts: n.standing.Parts, Ends: r.now.Add(r.lasts())}
	if r.draft.Nominate(do) != nil {
		return false
	}
	r.nominated++
	r.plan.Proposals = append(r.plan.Proposals, r.draft.Propose())
	return true
}

// seat places a nominee in the room that is nominated for it, if all of that is free once what borrows it has left.
func (r *patientPass) seat(n *nominee) bool {
	start, limits := r.draft.Checkpoint(), r.state.Limits()
	if !r.take(n.waiter, n.patientWait) {
		return false
	}
	var bets []orbit.Precondition
	if n.gang != "" {
		bets = append(bets, orbit.GangUnplaced{Gang: n.gang})
	}
	p := r.draft.Propose(bets...)
	n.tried = true // also if it is too much for one proposal, for then those that borrow the room have to end by themselves
	if len(p.If) > limits.Preconditions || len(p.Do) > limits.Commitments {
		r.draft.Rollback(start)
		return false
	}
	r.plan.Proposals = append(r.plan.Proposals, p)
	for _, do := range p.Do {
		if _, evicts := do.(orbit.Evict); evicts {
			r.recalled++
		}
	}
	r.propose(n.of)
	for _, s := range n.seats {
		r.seated[s.capsule] = true
	}
	return true
}

// take places on the draft all that have nominated room in it, or nothing.
func (r *patientPass) take(of waiter, w *patientWait) bool {
	start := r.draft.Checkpoint()
	for _, s := range w.seats {
		if c := r.state.Capsule(s.capsule); c == nil || !r.seatOne(of, c, s.node) {
			r.draft.Rollback(start)
			return false
		}
	}
	return len(w.seats) > 0
}

// seatOne places a capsule on a node, if that takes it once enough of what borrows there has been evicted, in the order of recallable.
// The ledger spares those for whom there is room after all.
func (r *patientPass) seatOne(of waiter, c *orbit.Capsule, at orbit.NodeID) bool {
	r.draft.Ask(c)
	state := r.state.Node(at)
	if state == nil || r.filtered(r.draft.Node(state.Index()), c.Spec) {
		return false
	}
	for leave := r.recallable(of, at); ; leave = leave[1:] {
		node := r.draft.Node(state.Index())
		devices, ok := node.PickDevices(c.Spec)
		if ok && r.draft.Misfit(node, c.Spec) == (orbit.Misfit{}) && r.draft.Place(c, orbit.Choice{Node: node, Devices: devices}) == nil {
			return true
		}
		if len(leave) == 0 {
			return false
		}
		_ = r.draft.Evict(orbit.Evict{Capsule: leave[0].ID, For: of.capsule, ForGang: of.gang}) // or the plan has evicted it already
	}
}

// recallable returns what borrows from a nominee on a node, what was placed last before others: least of its work is lost.
func (r *patientPass) recallable(of waiter, on orbit.NodeID) (out []*orbit.Capsule) {
	for c := range r.state.On(on) {
		if borrows(c, &orbit.Nominee{Capsule: of.capsule, Gang: of.gang}) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *orbit.Capsule) int {
		return cmp.Or(cmp.Compare(b.PlacedAt, a.PlacedAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// borrows reports whether a capsule borrows from a nominee; nil: from none.
func borrows(c *orbit.Capsule, from *orbit.Nominee) bool {
	return from != nil && c.Borrows != nil && *c.Borrows == *from
}

func (r *patientPass) filtered(n *orbit.NodeState, spec *orbit.Spec) bool {
	return r.Filter != nil && r.Filter(n, r.view.Report(n), spec) != ""
}
