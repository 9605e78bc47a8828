package etcdledger

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// ticket is one proposal on its way, from the call to its answer.
type ticket struct {
	ctx   context.Context
	since time.Time
	// The node that it begins with; empty: none.
	home orbit.NodeID
	// The answer; one, ever.
	done chan orbit.Outcome

	p orbit.Proposal

	// Guards what follows.
	mu sync.Mutex
	// The caller has left.
	left bool
	// It is in a transaction of which nobody knows whether it was applied.
	sent bool
	// Answered.
	over bool

	// The committer's own. What the mirror must have reached before a rejection is an answer; 0: not known.
	fresh int64
	// A read that will tell is on its way.
	asked bool
	// It has met somebody else's commit.
	lost bool
	// It goes into a transaction of its own.
	alone bool
	// What it touches in the pack that it was last put into.
	touched refs
	// Its place among those that wait.
	turn turn
}

// newTicket returns a ticket for a copy of a proposal.
func newTicket(ctx context.Context, p orbit.Proposal) *ticket {
	p = p.Clone() // it is judged, packed and written one after another, and must be the same each time
	return &ticket{ctx: ctx, since: time.Now(), home: homeOf(&p), done: make(chan orbit.Outcome, 1), p: p}
}

// homeOf returns the first node that a proposal takes room on.
func homeOf(p *orbit.Proposal) orbit.NodeID {
	for _, c := range p.Do {
		switch c := c.(type) {
		case orbit.Place:
			return c.Node
		case orbit.Hold:
			return c.Node
		}
	}
	return ""
}

// overtaking is how much later a ticket may have come than one that it goes before.
const overtaking = 50 * time.Millisecond

// turn says when it is a ticket's turn: the earlier rank first, then the lower number.
type turn struct {
	rank   time.Time
	number int
}

// arrange brings tickets of the same node together, behind the one that came first: a transaction holds more of
// them, for the node is one record, and others need not wait for it. Tickets of a node stay in order, and nodes go
// in the order of their first tickets. Nobody is overtaken by who came long after him, or those that want a busy
// node would hold up all others for ever; those without a node share no record and overtake nobody.
func arrange(tickets []*ticket) {
	if len(tickets) < 3 {
		return
	}
	first := make(map[orbit.NodeID]turn, len(tickets))
	for i, t := range tickets {
		if _, known := first[t.home]; !known {
			first[t.home] = turn{t.since, i}
		}
	}
	for i, t := range tickets {
		t.turn = turn{t.since, i}
		if f := first[t.home]; t.home != "" {
			t.turn = f
			if late := t.since.Add(-overtaking); late.After(f.rank) {
				t.turn.rank = late
			}
		}
	}
	slices.SortStableFunc(tickets, func(a, b *ticket) int {
		return cmp.Or(a.turn.rank.Compare(b.turn.rank), cmp.Compare(a.turn.number, b.turn.number))
	})
}

// answer ends the ticket, unless it has been answered.
func (t *ticket) answer(rev orbit.Revision, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answerLocked(rev, err)
}

// answerLocked is answer for whoever has the lock.
func (t *ticket) answerLocked(rev orbit.Revision, err error) {
	if !t.over {
		t.over = true
		t.done <- orbit.Outcome{Revision: rev, Err: err}
	}
}

// wait returns the answer, or, if the context ends before it comes, that nothing was sent or that nobody knows.
func (t *ticket) wait(closed <-chan struct{}) orbit.Outcome {
	select {
	case out := <-t.done:
		return out
	case <-t.ctx.Done():
		return t.leave(t.ctx.Err())
	case <-closed:
		return t.leave(ErrClosed)
	}
}

// leave takes the proposal back: after it nobody looks at p.
func (t *ticket) leave(why error) orbit.Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = true
	if t.over {
		return <-t.done
	}
	t.over = true
	if t.sent {
		return orbit.Outcome{Err: unknown(why)}
	}
	return orbit.Outcome{Err: unavailable(why)}
}

// idle reports whether nobody waits for the answer any more.
func (t *ticket) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left || t.over
}

// returned says what has become of the transaction that the ticket was in: nothing.
func (t *ticket) returned(at int64, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent, t.fresh, t.lost = false, max(t.fresh, at), t.lost || lost
}

// divided says that the transaction was more than the server takes, and what is done about it.
func (t *ticket) divided() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent, t.alone = false, true
}
