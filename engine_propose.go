package orbit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

// park parks those of the planned classes that fit nowhere, and returns them.
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
	for _, m := range unfit {
		if known[m.spec] && e.view.queue.park(m.spec, until, m.near) {
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

func (e *Engine) parkFor() time.Duration { return cmp.Or(e.ParkFor, 30*time.Second) }

// stillAside reports whether at least one of the classes just parked is still parked.
func (e *Engine) stillAside(specs []*Spec) bool {
	return slices.ContainsFunc(specs, func(spec *Spec) bool { return e.view.queue.parked.spots[spec] != nil })
}

// endRooms releases the holds whose end has passed, and ends such nominations, as well as those of own work that can no
// longer be served. If another engine does so first, that is no conflict, because they have ended either way.
func (e *Engine) endRooms(ctx context.Context, round *Round, now time.Time) {
	var batch []Proposal
	for _, id := range e.view.ended(now) {
		batch = append(batch, Proposal{Do: []Commitment{Release{Hold: id}}})
	}
	batch = append(batch, e.view.lapsed(now, e.mine)...)
	conflicts := round.Conflicts
	e.propose(ctx, batch, round)
	round.Proposed -= round.Conflicts - conflicts
	round.Conflicts = conflicts
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

// propose sends proposals and sorts their outcomes.
func (e *Engine) propose(ctx context.Context, batch []Proposal, round *Round) {
	if len(batch) == 0 {
		return
	}
	batch = slices.Clone(batch)
	new(cloner).proposals(batch) // the navigator may change its own when it likes
	for i := range batch {
		if batch[i].ID.IsZero() {
			batch[i].ID = e.ids.next()
		}
		if batch[i].View == 0 {
			batch[i].View = round.View
		}
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
	count := &round.Failed
	switch {
	case o.Err == nil:
		e.committed(p, o.Revision, round)
		return
	case errors.Is(o.Err, ErrConflict):
		round.Conflicts++
		e.lost(p, o.Err)
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
	for _, c := range p.Do {
		e.view.queue.reconsider(&Change{Revision: e.view.Revision(), Do: c}, true)
	}
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
