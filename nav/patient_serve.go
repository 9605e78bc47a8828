package nav

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// How a Patient serves the work that a plan leaves out: it places it in nominated room, or nominates room for it.

// serve goes through the waiting work in order. It places a nominee if its nominated room is free, and otherwise makes
// or renews its nomination. The draft holds the plan's proposals so far. serve makes at most one nomination that is not
// a renewal. So nominations of equal rank are made in the order in which their work came to wait, and none depends on
// another that the ledger may refuse.
func (r *patientPass) serve(ctx context.Context, waiting []*nominee) {
	r.draft.Sync(r.view)
	for i := range r.plan.Proposals {
		_ = reserve(&r.draft, &r.plan.Proposals[i]) // the ledger will refuse such a proposal too
	}
	failed := make([]uint64, len(waiting))
	for i, n := range waiting {
		failed[i] = n.failed
	}
	again, left := shareTries(failed, mostNominated)
	made, full, next := false, false, map[waiter]bool{}
	for i, n := range waiting {
		lives := n.lives
		switch {
		case lives && n.tried && n.standing.Lends > 0 && r.stopLending(n):
		case lives && r.seat(n):
			r.served++
		case lives && (r.now.Before(n.again) || n.seats != nil && n.standing.Ends.Sub(r.now) > r.lasts()/2 && n.priority+n.aged <= n.standing.Rank):
		case full || n.failed > 0 && !again[i] || !lives && r.exceedsAll(n):
			n.lost = 0 // or withholds would keep it from the navigator in the next plan too
		case n.failed == 0 && left == 0 || made && !lives:
			next[n.waiter] = true
		default:
			left -= btoi(n.failed == 0)
			done, err := r.nominate(ctx, n)
			full, made = shareIsUsedUp(err), made || done && !lives
			if !done {
				n.lost = 0
			}
			if !done && !full { // after a lack of share alone, no other work overtakes it
				n.failed = r.plans
			}
		}
	}
	for i, u := range r.plan.Unplaced { // another reason than NoFit, so that the class is not parked and the next plan gets it
		if u.Capsule != nil && next[r.waiterOf(u.Capsule)] && !full {
			r.plan.Unplaced[i].Why = errors.New(u.Why.Error() + "; room is nominated for it soon")
		}
	}
}

// shareIsUsedUp reports whether a draft refuses a nomination because no more room may be nominated, which holds for
// other work too. Any other refusal names a node or a capsule.
func shareIsUsedUp(err error) bool {
	var why *orbit.Rejection
	return errors.As(err, &why) && why.Node == "" && why.Capsule == ""
}

// exceedsAll reports whether a nominee, or a waiting member of a gang that is one, asks for more than any node has.
func (r *patientPass) exceedsAll(n *nominee) bool {
	r.rooms.sync(&r.draft)
	if n.gang == "" {
		return r.rooms.ExceedsAll(n.of.Spec)
	}
	for c := range r.state.Members(n.gang) {
		if c.Pending() && r.rooms.ExceedsAll(c.Spec) {
			return true
		}
	}
	return false
}

// lasts returns how long a nomination lasts: For, but no longer than engines let it.
func (r *patientPass) lasts() time.Duration {
	return min(cmp.Or(r.For, 2*time.Minute), r.state.Limits().LongestNomination())
}

// nominate makes a nomination, or renews the standing one, for the nodes where room is expected soonest. It reports
// false if it has made none: the nominee could go nowhere, or its standing nomination cannot be improved. The error is
// the draft's, when the share of the room that may be nominated is used up.
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
	n.seated = r.gang(n.waiter)
	n.seats, n.cost, n.stays, n.lapse, n.again, n.tried, n.failed = s.seats, s.cost, stays, do.Ends, r.now, false, 0
	r.nominated++
	r.plan.Proposals = append(r.plan.Proposals, r.draft.Propose())
	return true, nil
}

// lends returns for how long others may borrow the room: as long as the nominee is expected to wait for it. It returns
// 0 if that is not known, or if one of the nodes confirms, because there a borrower has to stop before the nominee can
// begin.
func (r *patientPass) lends(s *patientSeating) time.Duration {
	if s.cost.at == unknownEnd || slices.ContainsFunc(s.rooms, func(w *waitingRoom) bool { return w.Node.Confirms && w.claims() }) {
		return 0
	}
	return max(0, time.Duration(s.cost.at-r.rooms.clock))
}

// stopLending renews a nomination so that it lends no more. Patient does this when a proposal to place the nominee in
// that room was lost, perhaps to new borrowers: the next proposal cannot be lost to them. It reports false if the draft
// refuses the renewal.
func (r *patientPass) stopLending(n *nominee) bool {
	do := orbit.Nominate{Capsule: n.capsule, Gang: n.gang, Aged: n.aged, Parts: n.standing.Parts, Ends: r.now.Add(r.lasts())}
	if r.draft.Nominate(do) != nil {
		return false
	}
	r.nominated++
	r.plan.Proposals = append(r.plan.Proposals, r.draft.Propose())
	return true
}

// seat proposes to place a nominee in its nominated room, and to evict the borrowers that are in the way. It reports
// false, and changes nothing, if that does not free enough.
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
	n.tried = true // also if one proposal cannot hold it: lending then stops, and the borrowers end by themselves
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

// checkSeats forgets the seats of a gang that has changed since: members may have joined it.
func (r *patientPass) checkSeats(of waiter, w *patientWait) {
	if w.seated != r.gang(of) {
		w.seats, w.seated = nil, nil
	}
}

// gang returns the description of the gang that waits; nil: a capsule waits.
func (r *patientPass) gang(of waiter) *orbit.Gang {
	if g := r.state.Gang(of.gang); g != nil {
		return g.Gang
	}
	return nil
}

// take places all capsules of a nominee on the draft, each in its nominated room, or none of them.
func (r *patientPass) take(of waiter, w *patientWait) bool {
	r.checkSeats(of, w)
	start := r.draft.Checkpoint()
	for _, s := range w.seats {
		if c := r.state.Capsule(s.capsule); c == nil || !r.seatOne(of, c, s.node) {
			r.draft.Rollback(start)
			return false
		}
	}
	return len(w.seats) > 0
}

// seatOne places a capsule on a node of the draft. It evicts borrowers, in the order of recallable, until the capsule
// fits. The ledger spares the borrowers for which there is room after all.
func (r *patientPass) seatOne(of waiter, c *orbit.Capsule, at orbit.NodeID) bool {
	r.draft.LookAs(c)
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

// recallable returns the capsules that borrow from a nominee on a node, the last placed first, so that the least of
// their work is lost.
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
	return from != nil && c.Borrows() != nil && *c.Borrows() == *from
}

func (r *patientPass) filtered(n *orbit.NodeState, spec *orbit.Spec) bool {
	return r.Filter != nil && r.Filter(n, r.view.Report(n), spec) != ""
}
