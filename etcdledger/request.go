package etcdledger

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// request is one proposal on its way, from the call to its answer.
//
//	          ┌──────── confirmed ◄──────── confirming
//	          ▼                                 ▲ refused by a mirror that may be behind
//	──► waiting ─────────────────────────────────┤
//	          ▲                                 ▼ packed
//	          └──── returned, sendAlone ◄────── sent
//
// From every state it becomes answered: by the committer, by the sender, or because its caller leaves.
type request struct {
	ctx   context.Context
	since time.Time
	// The node that it begins with; empty: none.
	home orbit.NodeID
	// The answer; one, ever.
	done chan orbit.Outcome
	// A copy of what the caller proposed: it is judged, packed and written one after another, and is the same each time.
	p orbit.Proposal

	// Guards state.
	mu    sync.Mutex
	state requestState

	// What follows belongs to the committer, and to the sender while the request is sent.
	// What the mirror must have reached before a rejection is an answer; 0: not known.
	confirmAt int64
	route     route
	// The records that it reads and writes in the pack that it was last put into.
	accesses accessSet
	// Its place among those that wait.
	turn turn
}

// requestState is where a request is on its way.
type requestState uint8

const (
	// In the committer's queue, to be judged.
	waiting requestState = iota
	// In the queue, with a rejection; a read is on its way that tells what the mirror must have seen for it to be true.
	confirming
	// In a transaction of which it is not known yet whether it was applied.
	sent
	answered
)

// route says with which others a request may share a transaction.
type route uint8

const (
	// With all that are shared.
	shared route = iota
	// It has met a commit of another process: with those that compete for the same records.
	contended
	// The server has refused a transaction that it was in for its size: with none.
	alone
)

// newRequest returns a request for a copy of a proposal.
func newRequest(ctx context.Context, p orbit.Proposal) *request {
	p = p.Clone()
	return &request{ctx: ctx, since: time.Now(), home: homeOf(&p), done: make(chan orbit.Outcome, 1), p: p}
}

// homeOf returns the first node that a proposal takes or claims room on.
func homeOf(p *orbit.Proposal) orbit.NodeID {
	for _, c := range p.Do {
		switch c := c.(type) {
		case orbit.Place:
			return c.Node
		case orbit.Hold:
			return c.Node
		case orbit.Nominate:
			if len(c.Parts) > 0 {
				return c.Parts[0].Node
			}
		}
	}
	return ""
}

// overtaking is how much later a request may have come than one that it goes before.
const overtaking = 50 * time.Millisecond

// turn says when it is a request's turn: the earlier rank first, then the lower number.
type turn struct {
	rank   time.Time
	number int
}

// arrange brings requests of the same node together, behind the one that came first: a transaction holds more of
// them, for the node is one record, and others need not wait for it. Requests of a node stay in order, and nodes go
// in the order of their first requests. None is overtaken by one that came long after it, or those that want a busy
// node would hold up all others for ever; those without a node share no record and overtake none.
func arrange(requests []*request) {
	if len(requests) < 3 {
		return
	}
	first := make(map[orbit.NodeID]turn, len(requests))
	for i, t := range requests {
		if _, known := first[t.home]; !known {
			first[t.home] = turn{t.since, i}
		}
	}
	for i, t := range requests {
		t.turn = turn{t.since, i}
		if f := first[t.home]; t.home != "" {
			t.turn = f
			if late := t.since.Add(-overtaking); late.After(f.rank) {
				t.turn.rank = late
			}
		}
	}
	slices.SortStableFunc(requests, func(a, b *request) int {
		return cmp.Or(a.turn.rank.Compare(b.turn.rank), cmp.Compare(a.turn.number, b.turn.number))
	})
}

// answer ends the request, unless it has been answered.
func (t *request) answer(rev orbit.Revision, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answerLocked(rev, err)
}

// answerLocked is answer for a caller that has the lock.
func (t *request) answerLocked(rev orbit.Revision, err error) {
	if t.state != answered {
		t.state = answered
		t.done <- orbit.Outcome{Revision: rev, Err: err}
	}
}

// judgeAgain puts the request back among those that wait, unless it has been answered.
func (t *request) judgeAgain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != answered {
		t.state = waiting
	}
}

// isAnswered reports whether the request needs nothing more.
func (t *request) isAnswered() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state == answered
}

// wait returns the answer, or, if the context ends before it comes, that nothing was sent or that the outcome is unknown.
func (t *request) wait(closed <-chan struct{}) orbit.Outcome {
	select {
	case out := <-t.done:
		return out
	case <-t.ctx.Done():
		return t.leave(t.ctx.Err())
	case <-closed:
		return t.leave(ErrClosed)
	}
}

// leave answers the request for a caller who waits no longer.
func (t *request) leave(why error) orbit.Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.state
	t.state = answered
	switch was {
	case answered:
		return <-t.done
	case sent:
		return orbit.Outcome{Err: unknown(why)}
	}
	return orbit.Outcome{Err: unavailable(why)}
}

// confirmed says that a rejection is an answer once the mirror has reached a revision.
func (t *request) confirmed(at int64) {
	t.confirmAt = max(at, 1)
	t.judgeAgain()
}

// returned says that the transaction that the request was in was not applied, and what the mirror must reach before it is
// judged again. Lost: another process has written one of its records.
func (t *request) returned(at int64, lost bool) {
	t.confirmAt = max(t.confirmAt, at)
	if lost && t.route == shared {
		t.route = contended
	}
	t.judgeAgain()
}

// sendAlone says that the transaction that the request was in was more than the server takes.
func (t *request) sendAlone() {
	t.route = alone
	t.judgeAgain()
}
