package orbit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"
)

// park parks those of the planned classes that fit nowhere, and returns them. For those that are left out for another
// reason it makes room wake the engine.
func (e *Engine) park(planned []*Capsule, unfit []misfitting) (aside []*Spec) {
	defer e.view.queue.settle()
	if len(unfit) == 0 {
		return nil
	}
	known := map[*Spec]bool{}
	for _, c := range planned {
		known[c.Spec] = true
	}
	until := time.Now().Add(e.parkFor())
	for i := range unfit {
		switch m := &unfit[i]; {
		case !known[m.spec]:
		case !m.nowhere:
			e.view.queue.await(m.spec)
		case e.view.queue.park(m, until):
			aside = append(aside, m.spec)
		}
	}
	return aside
}

// retryShare is how many of the classes that have been parked long enough a pass tries again.
//
// They have waited for as long as ParkFor, most of them in vain, and may be many at a time. So they take a small share of
// each pass, behind the work of their priority that is ready: as many as make a pass of about half a millisecond, or an
// eighth of MaxPlan if that is less, but at least one. While passes follow each other without a rest they wait, for as long
// again as ParkFor and a minute at most.
type retryShare struct {
	// Zero: the default.
	most int
	// The last pass tried some.
	tried bool
}

const retryTime = 500 * time.Microsecond

// adapt takes note of how long a plan took.
func (s *retryShare) adapt(planning time.Duration) {
	switch {
	case !s.tried:
	case planning > retryTime:
		s.most = max(1, s.most/2)
	case planning < retryTime/2:
		s.most = min(2*s.most, 1<<16)
	}
}

// retry adds a share of the parked classes to the next batch.
func (e *Engine) retry(now time.Time, most int) {
	s, work := &e.share, len(e.view.queue.ready) > 0
	if e.sweeping && work {
		now = now.Add(-e.parkFor() - time.Minute)
	}
	s.most = max(1, min(cmp.Or(s.most, 4), most/8))
	if most == 1 && work && s.tried { // the pass before was for a class that was parked
		s.tried = false
		return
	}
	e.view.queue.retry(now, s.most)
	s.tried = len(e.view.queue.trials) > 0
}

// stillAside reports whether at least one of the classes just parked is still parked.
func (e *Engine) stillAside(specs []*Spec) bool {
	return slices.ContainsFunc(specs, func(spec *Spec) bool { return e.view.queue.parked.spots[spec] != nil })
}

// endRooms releases the holds whose end has passed, and ends such protections and nominations, as well as those of own work that can
// no longer be served. If another engine does so first, that is no conflict, because they have ended either way.
func (e *Engine) endRooms(ctx context.Context, round *Round, now time.Time) {
	var batch []Proposal
	for _, end := range e.view.ended(now) {
		batch = append(batch, Proposal{Do: []Commitment{end}})
	}
	batch = append(batch, e.view.lapsed(now, e.mine)...)
	conflicts, before := round.Conflicts, len(round.Settled)
	e.propose(ctx, batch, round)
	round.Proposed -= round.Conflicts - conflicts
	round.Conflicts = conflicts
	ended := slices.DeleteFunc(round.Settled[before:], func(s Settled) bool { return errors.Is(s.Outcome.Err, ErrConflict) })
	round.Settled = round.Settled[:before+len(ended)]
}

// maxTries is how often a proposal with an unknown outcome is sent. After that the view must tell.
const maxTries = 10

// resendUnknown sends the proposals with an unknown outcome again; the ledger applies each at most once. It reports
// whether all outcomes are known now. Until then the engine does not plan, because it might place a capsule twice.
func (e *Engine) resendUnknown(ctx context.Context, round *Round) bool {
	if len(e.unsettled) == 0 {
		e.tries = 0
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
		e.unsettled, e.tries = nil, 0
	}
	return len(e.unsettled) == 0
}

// proposePlan sends the proposals of a plan. Those of lower priority follow when it is known what has become of those
// before them. One that takes room which a capsule of higher priority could use that has just lost its bet, or that was left out
// beside it, is not sent, but planned again with that capsule: unless there is enough room for that elsewhere, by the rules of the ledger, on nodes that
// the plan does not touch.
func (e *Engine) proposePlan(ctx context.Context, pending []*Capsule, plan []Proposal, round *Round) {
	if e.view.Aged(pending[0]) == e.view.Aged(pending[len(pending)-1]) { // highest first, so all have one priority
		e.propose(ctx, plan, round)
		return
	}
	for rest := plan; len(rest) > 0; {
		e.losers = nil
		n, highest := 0, int32(math.MinInt32)
		for n < len(rest) {
			priority, places := e.priorityOf(&rest[n])
			if places && priority < highest {
				break
			}
			if places {
				highest = priority
			}
			n++
		}
		e.propose(ctx, rest[:n], round)
		if rest = rest[n:]; len(e.losers) > 0 && len(rest) > 0 {
			for _, u := range round.Unplaced { // perhaps for want of room that the losers were to have
				if c := u.Capsule; c != nil && e.view.state.Capsule(c.ID) != nil {
					e.losers = append(e.losers, e.loserOf(e.view.state.Capsule(c.ID)))
				}
			}
			rest = e.withhold(rest, plan, round)
		}
	}
}

// priorityOf returns the highest priority of what a proposal places; false: it places nothing.
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

// loser is what a pass has lost its bets for, with the priority to which that has risen.
type loser struct {
	spec     *Spec
	priority int32
}

func (e *Engine) loserOf(c *Capsule) loser { return loser{c.Spec, e.view.Aged(c)} }

var errWithheld = errors.New("capsules of higher priority have lost their bet, and could use the room; all are planned again")

// withhold gives up those of the remaining proposals of a plan that take room which losers of higher priority could use, and
// returns the others. Losers that have room elsewhere do not count, as far as that is found out soon.
func (e *Engine) withhold(rest, plan []Proposal, round *Round) []Proposal {
	losers := map[loser]int{}
	for _, l := range e.losers {
		losers[l]++
	}
	need := map[loser]int{}
	for i := range rest {
		e.overtaken(&rest[i], losers, func(l loser) bool {
			need[l] = losers[l]
			return false
		})
	}
	e.seat(need, plan)
	if len(need) == 0 {
		return rest
	}
	return slices.DeleteFunc(slices.Clone(rest), func(p Proposal) bool {
		overtakes := false
		e.overtaken(&p, need, func(loser) bool {
			overtakes = true
			return true
		})
		for _, do := range p.Do {
			if place, ok := do.(Place); ok && overtakes {
				round.Unplaced = append(round.Unplaced, Unplaced{Capsule: e.view.state.Capsule(place.Capsule), Why: errWithheld})
			}
		}
		if overtakes {
			e.lost(&p, nil)
		}
		return overtakes
	})
}

// overtaken calls found with those of the losers that have a higher priority than what a proposal places, and fit on a node on which
// it takes room, until found returns true.
func (e *Engine) overtaken(p *Proposal, losers map[loser]int, found func(loser) bool) {
	priority, places := e.priorityOf(p)
	for _, do := range p.Do {
		n := e.view.state.Node(takesRoomOn(do))
		if !places || n == nil {
			continue
		}
		for l := range losers {
			if l.priority > priority && n.Fits(l.spec) && found(l) {
				return
			}
		}
	}
}

// seatTries bounds how many nodes are tried for capsules that have lost a bet, each for one spec. Choosing a node for each capsule of
// a plan of 1,000 takes some ten times as long.
const seatTries = 20_000

// seat takes those capsules out of need that have a node each which the plan does not touch.
func (e *Engine) seat(need map[loser]int, plan []Proposal) {
	touched := map[NodeID]bool{}
	for i := range plan {
		for _, do := range plan[i].Do {
			touched[takesRoomOn(do)] = true
		}
	}
	tries := 0
	for n := range e.view.state.Nodes() {
		if tries += len(need); len(need) == 0 || tries > seatTries {
			return
		}
		for l := range need {
			if !touched[n.Node.ID] && n.Fits(l.spec) {
				touched[n.Node.ID] = true
				if need[l]--; need[l] == 0 {
					delete(need, l)
				}
				break
			}
		}
	}
}

// takesRoomOn returns the node of a placement or a hold; empty: it is neither.
func takesRoomOn(do Commitment) NodeID {
	switch do := do.(type) {
	case Place:
		return do.Node
	case Hold:
		return do.Node
	}
	return ""
}

// propose sends proposals, which must not be changed meanwhile, and sorts their outcomes.
func (e *Engine) propose(ctx context.Context, batch []Proposal, round *Round) {
	if len(batch) == 0 {
		return
	}
	now := instantOf(time.Now())
	for i := range batch {
		batch[i].complete(&e.ids, round.View, now)
	}
	round.Proposed += len(batch)
	if b, ok := e.Ledger.(Batcher); ok {
		outcomes := b.ProposeBatch(ctx, batch)
		for i := range batch {
			o := Outcome{Err: ErrUnknown} // the ledger has left it out
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

// sort counts the outcome of a proposal and updates the engine for it.
func (e *Engine) sort(p *Proposal, o Outcome, round *Round) {
	if e.OnRound != nil {
		round.Settled = append(round.Settled, Settled{*p, o})
	}
	count := &round.Failed
	switch {
	case o.Err == nil:
		e.committed(p, o.Revision, round)
		return
	case errors.Is(o.Err, ErrConflict):
		round.Conflicts++
		e.lost(p, o.Err)
		for _, do := range p.Do {
			if place, ok := do.(Place); ok {
				if c := e.view.state.Capsule(place.Capsule); c != nil {
					e.losers = append(e.losers, e.loserOf(c))
				}
			}
		}
		return // expected, and silent
	case errors.Is(o.Err, ErrInfeasible):
		count = &round.Infeasible
	case errors.Is(o.Err, ErrInvalid):
		count = &round.Invalid
	case errors.Is(o.Err, ErrUnknown), e.settling && errors.Is(o.Err, ErrUnavailable): // the first time it was sent
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

// committed counts a commit. Only a new commit that places or releases a capsule counts as progress, because a
// navigator may make and end holds for ever.
func (e *Engine) committed(p *Proposal, at Revision, round *Round) {
	round.Committed++
	e.atLeast = max(e.atLeast, at)
	if at <= round.View {
		return
	}
	round.fresh = true
	for _, c := range p.Do {
		moved := false
		switch c := c.(type) {
		case Place, Evict:
			moved = true
		case Release:
			moved = c.Capsule != ""
		}
		if moved {
			round.progress = true
			return
		}
	}
}

// lost takes note of a proposal that was refused, or is given up: the next view must have reached the
// rejection, and classes that the same plan put aside are reconsidered without it.
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

// idSource makes proposal ids: a random part that is the process's own, and a count.
type idSource struct {
	prefix [8]byte
	count  uint64
}

// newIDSource returns a source that shares no id with any other.
func newIDSource() idSource {
	var s idSource
	_, _ = rand.Read(s.prefix[:]) // never fails
	return s
}

// next returns a new id, without asking the system for randomness each time.
func (s *idSource) next() (id ProposalID) {
	s.count++
	copy(id[:], s.prefix[:])
	binary.BigEndian.PutUint64(id[8:], s.count)
	return id
}

// NewProposalID returns a random id that no other proposal has.
func NewProposalID() (id ProposalID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}
