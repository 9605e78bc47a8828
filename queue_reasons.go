package orbit

import (
	"cmp"
	"errors"
	"maps"
	"sync"
	"time"
)

// WaitKind says in one word why pending work waits. The values below are all that there are, so a kind can be the label
// of a metric.
type WaitKind string

const (
	// WaitUnplanned says that no plan has judged the work since it became pending, or since a change that may help it. Work
	// of higher priority is planned first. If the engine cannot plan at all, the reason says why.
	WaitUnplanned WaitKind = "unplanned"
	// WaitParked says that the class of the work fits nowhere. It is planned again when a change may help it.
	WaitParked WaitKind = "parked"
	// WaitLeftOut says that the last plan has left the work out, for a reason other than that its class fits nowhere. All
	// members of a gang wait like the member that was left out last.
	WaitLeftOut WaitKind = "left_out"
	// WaitWithheld says that the work has a place in a plan, but the engine has not sent the proposal.
	WaitWithheld WaitKind = "withheld"
	// WaitRefused says that the ledger has refused the last proposal that places the work, or its outcome is unknown.
	WaitRefused WaitKind = "refused"
	// WaitUnowned says that none of the engines owns the work.
	WaitUnowned WaitKind = "unowned"
)

var (
	errUnplanned = errors.New("it has not been planned since it became pending, or since a change that may help it; work of higher priority is planned first")
	// The text is for who asks in a process that stands by.
	errNotRunning = errors.New("its engine does not run in this process; if another process runs it, the page of that one says the reason")
	errSilent     = errors.New("the navigator has neither placed it nor said why")
	errResend     = errors.New("nothing is planned until the outcome of earlier proposals is known; they are sent again")
)

// reasonBook has the latest reasons why the pending work of one engine waits. Its lock is its own, so that it can be
// read while a pass is at work.
type reasonBook struct {
	// Guards what follows.
	mu sync.Mutex
	// The classes that are parked. Of a spot, only what never changes is read without the lock of the engine.
	parked map[*Spec]*parkedClass
	// The capsules that a plan has left out or that a proposal has not placed. An entry is void if its capsule has been
	// placed or submitted again since.
	left map[CapsuleID]leftOut
	// The member of each gang that was left out last.
	gangs map[GangID]CapsuleID
	// The number of valid entries of left when void ones were last dropped.
	valid int
	// Why the last pass has planned nothing; nil: it could plan.
	trouble error
}

// leftOut is why a capsule is still pending after it was planned.
type leftOut struct {
	kind  WaitKind
	why   error
	began time.Time
	// Capsule.Submitted and PlacedAt at that time.
	submitted uint64
	placedAt  Revision
}

// holds reports whether the entry is about the present wait of a capsule, which may be nil.
func (l *leftOut) holds(c *Capsule) bool {
	return l.why != nil && c != nil && c.Pending() && c.Submitted == l.submitted && c.PlacedAt == l.placedAt
}

// leave notes why a capsule was not placed. It requires that b.mu is held.
func (b *reasonBook) leave(c *Capsule, kind WaitKind, why error, now time.Time) {
	if b.left == nil {
		b.left, b.gangs = map[CapsuleID]leftOut{}, map[GangID]CapsuleID{}
	}
	if why == nil {
		why = errSilent
	}
	was := b.left[c.ID]
	if was.kind == kind && was.holds(c) {
		now = was.began
	}
	b.left[c.ID] = leftOut{kind, why, now, c.Submitted, c.PlacedAt}
	if gang := c.Gang(); gang != "" {
		b.gangs[gang] = c.ID
	}
}

// refused notes the capsules that a proposal would have placed.
func (b *reasonBook) refused(state *State, p *Proposal, kind WaitKind, why error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, do := range p.Do {
		if place, ok := do.(Place); ok {
			if c := state.Capsule(place.Capsule); c != nil {
				b.leave(c, kind, why, now)
			}
		}
	}
}

// drop drops the void entries if there may be many.
func (b *reasonBook) drop(state *State) {
	if len(b.left) < 2*b.valid+compactFrom {
		return
	}
	maps.DeleteFunc(b.left, func(id CapsuleID, l leftOut) bool { return !l.holds(state.Capsule(id)) })
	maps.DeleteFunc(b.gangs, func(_ GangID, id CapsuleID) bool { return b.left[id].why == nil })
	b.valid = len(b.left)
}

// passed notes why a pass has planned nothing; nil: it could plan.
func (b *reasonBook) passed(trouble error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = trouble
}

// park notes that a class is parked. A nil book notes nothing.
func (b *reasonBook) park(s *parkedClass) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.parked == nil {
		b.parked = map[*Spec]*parkedClass{}
	}
	b.parked[s.class.spec] = s
}

// unpark notes that a class is no longer parked.
func (b *reasonBook) unpark(spec *Spec) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.parked, spec)
}

// unparkAll notes that no class is parked.
func (b *reasonBook) unparkAll() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parked = nil
}

// copied returns a copy that does not change.
func (b *reasonBook) copied() *reasonBook {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &reasonBook{parked: maps.Clone(b.parked), left: maps.Clone(b.left), gangs: maps.Clone(b.gangs), trouble: b.trouble}
}

// find returns why a capsule waits; parked is where its class is parked, if it is.
func (b *reasonBook) find(state *State, c *Capsule) (l leftOut, parked *parkedClass) {
	if s := b.parked[c.Spec]; s != nil {
		return leftOut{kind: WaitParked, why: s.why, began: s.began}, s
	}
	l, of := b.left[c.ID], c
	if !l.holds(of) && c.Gang() != "" {
		member := b.gangs[c.Gang()]
		l, of = b.left[member], state.Capsule(member)
	}
	if l.holds(of) {
		return l, nil
	}
	return leftOut{kind: WaitUnplanned, why: cmp.Or(b.trouble, errUnplanned)}, nil
}
