package orbit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"time"
)

// park parks each class that the plan found to fit nowhere, and returns those that were not parked before. For a class
// that is left out for another reason, it arranges that free capacity wakes the engine. Specs that were not among the
// planned capsules are ignored.
func (e *Engine) park(planned []*Capsule, unfit []misfitting, plan []Proposal) (aside []*Spec) {
	defer e.view.queue.endTrials()
	if len(unfit) == 0 {
		return nil
	}
	known := map[*Spec]bool{}
	for _, c := range planned {
		known[c.Spec] = true
	}
	until, evicts := time.Now().Add(e.parkFor()), false
	for i := range unfit {
		switch m := &unfit[i]; {
		case !known[m.spec]:
		case !m.nowhere:
			e.view.queue.await(m.spec)
		case e.view.queue.park(m, until):
			aside = append(aside, m.spec)
		}
		if unfit[i].count != nil {
			e.unread = append(e.unread, unfit[i].count)
		}
		evicts = evicts || unfit[i].evicts
	}
	if evicts {
		e.view.queue.parked.expect(plan)
	}
	return aside
}

// retryShare decides how many of the due classes (parked for ParkFor) a pass tries again.
//
// Due classes were parked for ParkFor, and most of them still fit nowhere. There may be many at a time. So they take a
// small share of each pass, behind the ready work of the same priority: as many as keep planning to about half a
// millisecond, or an eighth of MaxPlan if that is less, but at least one. While passes follow each other without a
// pause and there is ready work, a due class waits for another ParkFor and one minute.
type retryShare struct {
	// The number of classes that a pass tries; 0: the default, 4.
	most int
	// The last pass tried at least one.
	tried bool
}

// retryTime is the planning time above which the next share is halved, and below half of which it is doubled.
const retryTime = 500 * time.Microsecond

// adapt changes the share by the time that planning took, if the pass tried any class.
func (s *retryShare) adapt(planning time.Duration) {
	switch {
	case !s.tried:
	case planning > retryTime:
		s.most = max(1, s.most/2)
	case planning < retryTime/2:
		s.most = min(2*s.most, 1<<16)
	}
}

// retry adds trials to the next batch: one capsule each of some of the due classes. Most is the size of the batch.
func (e *Engine) retry(now time.Time, most int) {
	s, work := &e.share, len(e.view.queue.ready) > 0
	if e.sweeping && work {
		now = now.Add(-e.parkFor() - time.Minute)
	}
	s.most = max(1, min(cmp.Or(s.most, 4), most/8))
	if most == 1 && work && s.tried { // with batches of one, passes for ready work and for a trial take turns
		s.tried = false
		return
	}
	e.view.queue.retry(now, s.most)
	s.tried = len(e.view.queue.trials) > 0
}

// stillAside reports whether at least one of the classes that were just parked is still parked.
func (e *Engine) stillAside(specs []*Spec) bool {
	return slices.ContainsFunc(specs, func(spec *Spec) bool { return e.view.queue.parked.spots[spec] != nil })
}

// endRooms releases the holds whose end has passed, and ends the protections and nominations whose end has passed, as
// well as nominations of own work that a node can no longer serve. It also releases own placements that have waited too
// long to begin. A conflict here only means that another engine has ended them first, or that the placement has begun, so
// it is counted nowhere.
func (e *Engine) endRooms(ctx context.Context, round *Round, now time.Time) {
	var batch []Proposal
	for _, end := range e.view.ended(now) {
		batch = append(batch, Proposal{Do: []Commitment{end}})
	}
	batch = append(batch, e.view.lapsed(now, e.mine)...)
	batch = append(batch, e.giveUpWaiting(now)...)
	conflicts, before := round.Conflicts, len(round.Settled)
	e.propose(ctx, batch, round)
	round.Proposed -= round.Conflicts - conflicts
	round.Conflicts = conflicts
	ended := slices.DeleteFunc(round.Settled[before:], func(s Settled) bool { return errors.Is(s.Outcome.Err, ErrConflict) })
	round.Settled = round.Settled[:before+len(ended)]
}

// maxTries is the number of passes in a row that send proposals with an unknown outcome again. After that the engine
// gives them up, and the next view shows what has become of them.
const maxTries = 10

// resendUnknown sends the proposals with an unknown outcome again; the ledger applies each at most once. It reports
// whether the engine may plan: every outcome is known, or the proposals were given up. Until then it might plan again
// what has been committed.
func (e *Engine) resendUnknown(ctx context.Context, round *Round) bool {
	if len(e.unsettled) == 0 {
		return true
	}
	again := e.unsettled
	e.unsettled, e.settling = nil, true
	e.propose(ctx, again, round)
	e.settling = false
	if e.tries++; e.tries >= maxTries {
		for i := range e.unsettled {
			e.lost(&e.unsettled[i], nil)
		}
		e.unsettled = nil
	}
	if len(e.unsettled) > 0 {
		return false
	}
	e.tries = 0
	return true
}

// proposePlan sends the proposals of a plan in their order, group by group; a group is sent after the outcomes of the
// group before are known. A new group begins where the priority falls, and with a proposal that rests on one before it in
// the group.
//
// If a capsule has just lost its bet, or was left out of the plan in a pass with losers, a proposal of lower priority that
// takes room which that capsule could use is not sent. Its capsules are planned again together with the loser. The
// exception: enough nodes that the plan does not touch have room for the losers by the rules of the ledger.
func (e *Engine) proposePlan(ctx context.Context, pending []*Capsule, plan []Proposal, round *Round) {
	ranked := e.view.Aged(pending[0]) != e.view.Aged(pending[len(pending)-1]) // the batch is sorted; else all have the same priority
	evicting := slices.ContainsFunc(plan, func(p Proposal) bool { return p.evicts() })
	for rest := plan; len(rest) > 0; {
		e.losers = nil
		n := len(rest)
		if ranked {
			n = e.samePriority(rest)
		}
		group := rest[:n]
		if evicting {
			n = e.independent(group)
			group = e.withoutUnsettled(rest[:n], round)
		}
		e.propose(ctx, group, round)
		if rest = rest[n:]; ranked && len(e.losers) > 0 && len(rest) > 0 {
			for _, u := range round.Unplaced { // they may have been left out because the losers were to take the room
				if c := u.Capsule; c != nil && e.view.state.Capsule(c.ID) != nil {
					e.losers = append(e.losers, e.loserOf(e.view.state.Capsule(c.ID)))
				}
			}
			rest = e.withhold(rest, plan, round)
		}
	}
}

// samePriority returns how many proposals there are before the priority falls.
func (e *Engine) samePriority(plan []Proposal) (n int) {
	highest := int32(math.MinInt32)
	for ; n < len(plan); n++ {
		priority, places := e.priorityOf(&plan[n])
		if places && priority < highest {
			break
		}
		if places {
			highest = priority
		}
	}
	return n
}

// independent returns how many proposals there are before one that rests on another of them: it evicts on a node on which
// an earlier one takes room, and by itself the ledger would refuse it or spare one of its victims. Without the earlier
// proposal it would take the room that this one is to take, and leave the victim where it is.
func (e *Engine) independent(plan []Proposal) (n int) {
	taken := map[NodeID]bool{}
	for ; n < len(plan); n++ {
		if p := &plan[n]; p.takesRoomOnAny(taken) && e.restsOnOthers(p) {
			return n
		}
		for _, do := range plan[n].Do {
			if on := takesRoomOn(do); on != "" {
				taken[on] = true
			}
		}
	}
	return n
}

// restsOnOthers reports whether a proposal evicts, and would be refused, or would evict fewer capsules, if it were the
// only one of its plan.
func (e *Engine) restsOnOthers(p *Proposal) bool {
	if !p.evicts() {
		return false
	}
	reduced, err := e.view.state.Judge(*p)
	return err != nil || len(reduced.Do) < len(p.Do)
}

var errUnsettled = errors.New("it is not known whether an earlier proposal, which takes room on the same node, was committed; it is planned again when that is known")

// withoutUnsettled gives up the proposals that rest on one whose outcome is unknown, and returns the others.
func (e *Engine) withoutUnsettled(plan []Proposal, round *Round) []Proposal {
	unsettled := map[NodeID]bool{}
	for i := range e.unsettled {
		for _, do := range e.unsettled[i].Do {
			unsettled[takesRoomOn(do)] = true
		}
	}
	delete(unsettled, "")
	if len(unsettled) == 0 {
		return plan
	}
	return slices.DeleteFunc(slices.Clone(plan), func(p Proposal) bool {
		rests := p.takesRoomOnAny(unsettled) && e.restsOnOthers(&p)
		if rests {
			e.giveUp(&p, errUnsettled, round)
		}
		return rests
	})
}

// giveUp counts the capsules of a proposal that is not sent as left out, so that they are planned again.
func (e *Engine) giveUp(p *Proposal, why error, round *Round) {
	for _, do := range p.Do {
		if place, ok := do.(Place); ok {
			round.Unplaced = append(round.Unplaced, Unplaced{Capsule: e.view.state.Capsule(place.Capsule), Why: why})
		}
	}
	e.reasons.refused(e.view.state, p, WaitWithheld, why, e.view.now)
	e.lost(p, nil)
}

// priorityOf returns the highest priority, with aging, of the capsules that a proposal places; places is false if it
// places none.
func (e *Engine) priorityOf(p *Proposal) (highest int32, places bool) {
	highest = math.MinInt32
	for _, do := range p.Do {
		if place, ok := do.(Place); ok {
			if c := e.view.state.Capsule(place.Capsule); c != nil {
				highest, places = max(highest, e.view.Aged(c)), true
			}
		}
	}
	return highest, places
}

// loser is the class and the priority, with aging, of capsules whose proposals lost their bets in this pass.
type loser struct {
	spec     *Spec
	priority int32
}

func (e *Engine) loserOf(c *Capsule) loser { return loser{c.Spec, e.view.Aged(c)} }

// losers are as many capsules of a class and a priority.
type losers struct {
	loser
	count int
}

// lostSoFar counts the losers of the pass. Higher priorities come first, and of one priority those that lost first, so that
// the same losers always have the same effect.
func (e *Engine) lostSoFar() (out []losers) {
	at := map[loser]int{}
	for _, l := range e.losers {
		i, known := at[l]
		if !known {
			i, at[l] = len(out), len(out)
			out = append(out, losers{loser: l})
		}
		out[i].count++
	}
	slices.SortStableFunc(out, func(a, b losers) int { return cmp.Compare(b.priority, a.priority) })
	return out
}

var errWithheld = errors.New("capsules of higher priority have lost their bet, and could use the room; all are planned again")

// withhold gives up those of the remaining proposals of a plan that take room which losers of higher priority could
// use, and returns the others. Losers for which a limited search finds room elsewhere do not count.
func (e *Engine) withhold(rest, plan []Proposal, round *Round) []Proposal {
	all := e.lostSoFar()
	overtaken := make([]bool, len(all))
	for i := range rest {
		e.overtaken(&rest[i], all, func(at int) bool {
			overtaken[at] = true
			return false
		})
	}
	var need []losers
	for at, is := range overtaken {
		if is {
			need = append(need, all[at])
		}
	}
	if need = e.reserveNodes(need, plan); len(need) == 0 {
		return rest
	}
	return slices.DeleteFunc(slices.Clone(rest), func(p Proposal) bool {
		overtakes := false
		e.overtaken(&p, need, func(int) bool {
			overtakes = true
			return true
		})
		if overtakes {
			e.giveUp(&p, errWithheld, round)
		}
		return overtakes
	})
}

// overtaken calls found with the index of each of the losers that have a higher priority than the capsules which a proposal
// places, and that fit on a node on which the proposal takes room. It stops when found returns true.
func (e *Engine) overtaken(p *Proposal, all []losers, found func(at int) bool) {
	priority, places := e.priorityOf(p)
	for _, do := range p.Do {
		n := e.view.state.Node(takesRoomOn(do))
		if !places || n == nil {
			continue
		}
		for at, l := range all {
			if l.priority > priority && n.Fits(l.spec) && found(at) {
				return
			}
		}
	}
}

// seatTries bounds the search of seat: how many times it compares a loser's spec with a node. A search that reaches the
// bound takes about a tenth of the time in which nodes are chosen for a plan of 1,000 capsules.
const seatTries = 20_000

// reserveNodes looks for one node that the plan does not touch for each loser in need, in their order. It returns the entries
// of need for which it has not found enough nodes. It stops after seatTries comparisons.
func (e *Engine) reserveNodes(need []losers, plan []Proposal) []losers {
	touched := map[NodeID]bool{}
	for i := range plan {
		for _, do := range plan[i].Do {
			touched[takesRoomOn(do)] = true
		}
	}
	tries := 0
	for n := range e.view.state.Nodes() {
		if tries += len(need); len(need) == 0 || tries > seatTries {
			break
		}
		if touched[n.Node.ID] {
			continue
		}
		if i := slices.IndexFunc(need, func(l losers) bool { return n.Fits(l.spec) }); i >= 0 {
			if need[i].count--; need[i].count == 0 {
				need = slices.Delete(need, i, i+1)
			}
		}
	}
	return need
}

// takesRoomOn returns the node on which a placement or a hold takes room; empty: the commitment is neither. A capsule that
// grows by a Respec is not considered.
func takesRoomOn(do Commitment) NodeID {
	if f := effectOf(do); f.takes {
		return f.node
	}
	return ""
}

// propose completes proposals, sends them and sorts their outcomes. The batch must not be changed meanwhile.
func (e *Engine) propose(ctx context.Context, batch []Proposal, round *Round) {
	if len(batch) == 0 {
		return
	}
	e.complete(batch, round.View)
	round.Proposed += len(batch)
	if b, ok := e.Ledger.(Batcher); ok {
		outcomes := b.ProposeBatch(ctx, batch)
		for i := range batch {
			o := Outcome{Err: ErrUnknown} // unless the ledger has returned an outcome for it
			if i < len(outcomes) {
				o = outcomes[i]
			}
			e.sort(&batch[i], o, round)
		}
		return
	}
	for i := range batch {
		rev, err := e.Ledger.Propose(ctx, batch[i])
		e.sort(&batch[i], Outcome{rev, err}, round)
	}
}

// sort counts the outcome of a proposal in the round and updates the engine for it.
func (e *Engine) sort(p *Proposal, o Outcome, round *Round) {
	o = e.rehearsal.judged(p, o)
	if e.OnRound != nil {
		round.Settled = append(round.Settled, Settled{*p, o})
	}
	if o.Err == nil {
		e.committed(p, o.Revision, round)
		return
	}
	e.reasons.refused(e.view.state, p, WaitRefused, o.Err, e.view.now)
	count := &round.Failed
	switch {
	case errors.Is(o.Err, ErrConflict):
		round.Conflicts++
		e.lost(p, o.Err)
		for _, do := range p.Do {
			if place, ok := do.(Place); ok {
				if c := e.view.state.Capsule(place.Capsule); c != nil {
					e.losers = append(e.losers, e.loserOf(c))
					e.lostAt = max(e.lostAt, int64(c.Spec.Priority))
				}
			}
		}
		return // a conflict is expected, so it is not reported as an error
	case errors.Is(o.Err, ErrInfeasible):
		count = &round.Infeasible
	case errors.Is(o.Err, ErrInvalid):
		count = &round.Invalid
	case errors.Is(o.Err, ErrUnknown), e.settling && errors.Is(o.Err, ErrUnavailable): // unavailable now, but the first attempt may have been committed
		count = &round.Unknown
		e.unsettled = append(e.unsettled, *p)
	}
	if count != &round.Unknown {
		e.lost(p, o.Err)
	}
	if *count++; *count <= maxErrors {
		round.Errors = append(round.Errors, o.Err)
	}
}

// committed counts a commit. Only a new commit that places, evicts or releases a capsule counts as progress: a
// navigator may make and end holds for ever, and a proposal sent again may have been committed before the view.
func (e *Engine) committed(p *Proposal, at Revision, round *Round) {
	round.Committed++
	e.atLeast = max(e.atLeast, at)
	if at <= round.View {
		return
	}
	round.fresh = true
	round.countEvictions(p)
	for _, c := range p.Do {
		if f := effectOf(c); f.arrives != "" || f.leaves != "" {
			round.progress = true
			return
		}
	}
}

// lost updates the engine for a proposal that was refused or given up. The next view must have reached the revision of
// the rejection. Classes that the plan parked were judged as if the proposal were committed, so the ones that may fit
// without it are unparked.
func (e *Engine) lost(p *Proposal, err error) {
	var r *Rejection
	if errors.As(err, &r) {
		e.atLeast = max(e.atLeast, r.At)
	}
	e.view.queue.own = true
	for _, c := range p.Do {
		e.view.queue.reconsider(&Change{Revision: e.view.Revision(), Do: c}, true)
	}
	e.view.queue.own = false
}

// idSource makes proposal ids: eight random bytes that are the same for all ids of the source, so that observers can
// tell which engine made a proposal, and eight bytes that nobody can predict from ids that they have seen. A caller who
// could would commit something under the next id, and the ledger would take the engine's proposal for a repetition.
type idSource struct {
	prefix [8]byte
	rest   *mathrand.ChaCha8
}

// newIDSource returns a source whose ids no other source makes.
func newIDSource() idSource {
	var s idSource
	var seed [32]byte
	_, _ = rand.Read(s.prefix[:]) // never fails
	_, _ = rand.Read(seed[:])
	s.rest = mathrand.NewChaCha8(seed)
	return s
}

// next returns a new id. It reads no randomness from the system, which would cost a system call for each id.
func (s *idSource) next() (id ProposalID) {
	copy(id[:], s.prefix[:])
	binary.BigEndian.PutUint64(id[8:], s.rest.Uint64())
	return id
}

// NewProposalID returns a random id that no other proposal has.
func NewProposalID() (id ProposalID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// complete completes proposals that are about to be sent.
func (e *Engine) complete(batch []Proposal, view Revision) {
	now := instantOf(time.Now())
	for i := range batch {
		batch[i].complete(&e.ids, view, now)
	}
}

// complete sets the fields that a plan may leave zero, and the id, unless the engine has set it before and sends the
// proposal again. It requires that p shares no slice with the plan.
func (p *Proposal) complete(ids *idSource, view Revision, now Instant) {
	if p.ID.IsZero() {
		p.ID = ids.next()
	}
	if p.View == 0 {
		p.View = view
	}
	for i, do := range p.Do {
		s, ok := do.(interface {
			stamped(now Instant) (Commitment, bool)
		})
		if !ok {
			continue
		}
		if stamped, ok := s.stamped(now); ok {
			p.Do[i] = stamped
		}
	}
}

// takesRoomOnAny reports whether a proposal takes room on one of the nodes.
func (p *Proposal) takesRoomOnAny(nodes map[NodeID]bool) bool {
	return slices.ContainsFunc(p.Do, func(do Commitment) bool { return nodes[takesRoomOn(do)] })
}
