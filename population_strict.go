package orbit

import (
	"math"
	"sync"
	"time"
)

// The order between the engines of a strict population: each says what it has still to plan, and work of lower priority
// waits in the queues of the others until it has been planned.
//
// An engine says three things: the revision up to which it has taken notice of every change (seen), the highest priority
// of its work that it has still to plan (open), and whether a pass is planning. It says so when a pass has chosen what to
// plan, at the end of the pass, and while it waits for changes. Before another engine takes work from its own queue, it
// asks for its bar. All work of at most that priority stays in the queue, and the engine is woken when the bar falls:
//
//   - While an engine has open work, the others take no work of a lower priority.
//   - While an engine has seen less than another had when that first had to wait, the other takes nothing. An engine
//     between passes sees each change at once. One that is planning has said what is open, and is not waited for.
//
// Work is open until a plan has been asked for it; a plan that leaves it out has settled that it can use nothing now.
// Work that has lost its bet stays open. Nobody waits while holding what others wait for: a pass never blocks, and among
// all open work the highest priority waits for nothing but that idle engines look.

// precedence is what the engines of a strict population have said, and which of them wait. It is safe for concurrent use.
type precedence struct {
	engines []*Engine
	// Guards what follows. It is never held during a call of user code.
	mu sync.Mutex
	// By the position of the engine in engines.
	seats []strictSeat
}

// strictSeat is one engine of a precedence.
type strictSeat struct {
	// What the engine has said last.
	said *announcement
	// The wait of work of this engine; nil: none waits.
	wait *strictWait
	// For each engine the announcement after which this engine has waited in vain. It waits for that engine again once it has
	// said something else.
	silent []*announcement
}

// announcement is what an engine has said. It is never written to.
type announcement struct {
	seen     Revision
	open     int64
	planning bool
	// How many passes of the engine have ended, and when it said so.
	passes uint64
	at     time.Time
}

// strictWait is the wait of an engine's work for that of others.
type strictWait struct {
	// The highest priority that waits.
	top int64
	// The revision of the engine's view when it first had to wait; and when that was.
	target Revision
	since  time.Time
	// How many passes of each engine had ended then.
	passes []uint64
}

const (
	// noPriority is below all priorities: nothing is open, or nothing waits. allPriorities is above all of them.
	noPriority, allPriorities = int64(math.MinInt64), int64(math.MaxInt64)
	// mostOvertaking is how many passes of one engine work waits for at most. It takes more than one only if the passes lose
	// bets, or if one pass does not take all of the engine's work.
	mostOvertaking = 8
)

// newPrecedence returns the table of a population that is about to run.
func newPrecedence(engines []*Engine, now time.Time) *precedence {
	p := &precedence{engines: engines, seats: make([]strictSeat, len(engines))}
	for i := range p.seats {
		p.seats[i] = strictSeat{said: &announcement{open: noPriority, at: now}, silent: make([]*announcement, len(engines))}
	}
	return p
}

// strictShare is the position of an engine in the table of its population. The share of an engine that waits for no other
// is nil.
type strictShare struct {
	table  *precedence
	number int
}

// bar returns the highest priority that has to wait, for an engine whose view has reached a revision.
func (s *strictShare) bar(view Revision, now time.Time) int64 {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.table.bar(s.number, view, now)
}

// bar is the bar of the engine i. The caller holds the lock.
func (p *precedence) bar(i int, view Revision, now time.Time) (bar int64) {
	if w := p.seats[i].wait; w != nil {
		view = w.target
	}
	bar = noPriority
	for k := range p.seats {
		if k != i {
			bar = max(bar, p.heldBackBy(i, k, view, now))
		}
	}
	return bar
}

// heldBackBy returns the highest priority of the engine i that has to wait for the engine k. It must have seen a revision.
func (p *precedence) heldBackBy(i, k int, view Revision, now time.Time) int64 {
	seat, other := &p.seats[i], p.seats[k].said
	if seat.silent[k] == other {
		return noPriority
	}
	if w := seat.wait; w != nil {
		if !now.Before(p.gaveUp(i, k)) {
			seat.silent[k] = other
			return noPriority
		}
		if other.passes > w.passes[k]+mostOvertaking {
			return noPriority
		}
	}
	if !other.planning && other.seen < view {
		return allPriorities
	}
	if other.open == noPriority {
		return noPriority
	}
	return other.open - 1
}

// gaveUp returns when the engine i, which waits, no longer waits for the engine k unless that says something before: it has
// said nothing for longer than a pass may take.
func (p *precedence) gaveUp(i, k int) time.Time {
	from := p.seats[i].wait.since
	if at := p.seats[k].said.at; at.After(from) {
		from = at
	}
	return from.Add(2 * p.engines[k].planTimeout())
}

// took says what a pass of the engine plans, before it is planned: the highest priority that is open, and the highest
// that has to wait; noPriority: none. Planning is false if it plans nothing.
func (s *strictShare) took(view Revision, planning bool, open, waits int64, now time.Time) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	seat := &s.table.seats[s.number]
	switch {
	case waits == noPriority:
		seat.wait = nil
	case seat.wait == nil:
		seat.wait = &strictWait{top: waits, target: view, since: now, passes: s.table.passes()}
	default:
		seat.wait.top = waits
		if open > waits { // what is planned now was let through by what the others had seen then
			seat.wait.target = view
		}
	}
	s.table.say(s.number, announcement{seen: view, open: open, planning: planning, passes: seat.said.passes, at: now})
	s.table.wake(s.number, now) // the bar may have fallen since it was asked for
}

// passes returns how many passes of each engine have ended. The caller holds the lock.
func (p *precedence) passes() []uint64 {
	out := make([]uint64, len(p.seats))
	for k := range p.seats {
		out[k] = p.seats[k].said.passes
	}
	return out
}

// passed says that a pass has ended, and what is left open.
func (s *strictShare) passed(view Revision, open int64, now time.Time) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	passes := s.table.seats[s.number].said.passes + 1
	s.table.say(s.number, announcement{seen: view, open: open, passes: passes, at: now})
}

// looked says that the engine, which is between passes, has read all changes up to a revision, and that none of them
// concerns it.
func (s *strictShare) looked(at Revision, now time.Time) {
	if s == nil {
		return
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	said := *s.table.seats[s.number].said
	said.seen, said.at = max(said.seen, at), now
	s.table.say(s.number, said)
}

// say records what an engine says, and wakes those that may go on. The caller holds the lock.
func (p *precedence) say(i int, said announcement) {
	p.seats[i].said = &said
	for k := range p.seats {
		if k != i {
			p.wake(k, said.at)
		}
	}
}

// wake begins a pass of the engine k if its work need not wait any longer. The caller holds the lock.
func (p *precedence) wake(k int, now time.Time) {
	if w := p.seats[k].wait; w != nil && p.bar(k, w.target, now) < w.top {
		p.engines[k].nudges.rouse()
	}
}

// due returns when the engine asks for its bar again although no other has said anything; zero: it does not wait.
func (s *strictShare) due() (at time.Time) {
	if s == nil {
		return at
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	seat := &s.table.seats[s.number]
	for k := range s.table.seats {
		if seat.wait == nil || k == s.number || seat.silent[k] == s.table.seats[k].said {
			continue
		}
		if end := s.table.gaveUp(s.number, k); at.IsZero() || end.Before(at) {
			at = end
		}
	}
	return at
}
