package etcdledger

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// request is one proposal, from the call to its answer.
//
//	          ┌──────── confirmed ◄──────── confirming
//	          ▼                                 ▲ refused by a mirror that may be behind
//	──► waiting ─────────────────────────────────┤
//	          ▲                                 ▼ packed
//	          └──── returned, sendAlone ◄────── sent
//
// From every state it can become answered: by the committer, by the sender, or because the caller stops waiting.
type request struct {
	ctx   context.Context
	since time.Time
	// home is the node by which arrange groups the request, as homeOf returns it; empty: none.
	home orbit.NodeID
	// done gets the one answer.
	done chan orbit.Outcome
	// p is a copy of the proposal, so that the caller cannot change it while it is judged, packed and encoded.
	p orbit.Proposal

	mu    sync.Mutex // guards state
	state requestState

	// The fields below belong to the committer, and to the sender while state is sent.

	// confirmAt is the revision that the mirror must have reached before a rejection is final; 0: not known yet.
	confirmAt int64
	route     route
	// accesses are the records of the proposal in the pack that it was last put into.
	accesses accessSet
	// turn is the request's place in the queue; arrange sets it.
	turn turn
}

// requestState is the state of a request, as in the picture above.
type requestState uint8

const (
	// waiting: the request is in the committer's queue, to be judged.
	waiting requestState = iota
	// confirming: the request is in the queue and has a rejection, and a read for its confirmAt is under way.
	confirming
	// sent: the request is in a transaction, and it is unknown whether the transaction was applied.
	sent
	// answered: the request is over.
	answered
)

// route says with which other requests a request may share a transaction.
type route uint8

const (
	// shared: with all other requests of this route.
	shared route = iota
	// contended: only with other contended requests that compete for the same records, because this one has conflicted
	// with another process.
	contended
	// alone: with no other request, because the server has refused a transaction with this request as too large.
	alone
)

// newRequest returns a request for a copy of a proposal.
func newRequest(ctx context.Context, p orbit.Proposal) *request {
	p = p.Clone()
	return &request{ctx: ctx, since: time.Now(), home: homeOf(&p), done: make(chan orbit.Outcome, 1), p: p}
}

// homeOf returns the first node that a proposal places a capsule or a hold on, finds a capsule on, or nominates; empty: none.
func homeOf(p *orbit.Proposal) orbit.NodeID {
	for _, c := range p.Do {
		switch c := c.(type) {
		case orbit.Place:
			return c.Node
		case orbit.Hold:
			return c.Node
		case orbit.Adopt:
			return c.Node
		case orbit.Nominate:
			if len(c.Parts) > 0 {
				return c.Parts[0].Node
			}
		}
	}
	return ""
}

// overtaking is how far arrange may bend the order of arrival: a request is moved ahead only of requests that arrived
// at most this much earlier.
const overtaking = 50 * time.Millisecond

// turn is a place in the queue: the earlier rank first, then the lower number.
type turn struct {
	rank   time.Time
	number int
}

// arrange sorts the queue so that requests of the same node are together, at the place of the earliest one. A transaction
// holds more of them than of requests of different nodes, because they share the node's record. Requests of one node stay in
// order, and nodes are in the order of their earliest requests. No request is overtaken by one that arrived more than
// overtaking later, because otherwise the requests of a busy node could delay all others for ever. Requests without a node
// keep their places.
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

// answerLocked is answer for callers that hold the request's lock.
func (t *request) answerLocked(rev orbit.Revision, err error) {
	if t.state != answered {
		t.state = answered
		t.done <- orbit.Outcome{Revision: rev, Err: err}
	}
}

// judgeAgain sets the state back to waiting, unless the request has been answered.
func (t *request) judgeAgain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != answered {
		t.state = waiting
	}
}

// isAnswered reports whether the request has been answered.
func (t *request) isAnswered() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state == answered
}

// wait returns the answer. If the context ends or the ledger is closed first, the answer is ErrUnknown for a request that
// was sent, and ErrUnavailable for any other.
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

// leave answers the request because its caller stops waiting, and returns the answer. If the request has been answered
// meanwhile, it returns that answer.
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

// confirmed sets confirmAt and has the request judged again.
func (t *request) confirmed(at int64) {
	t.confirmAt = max(at, 1)
	t.judgeAgain()
}

// returned has the request judged again when the mirror has reached a revision, because its transaction was not applied.
// Lost says that another process has written one of the request's records.
func (t *request) returned(at int64, lost bool) {
	t.confirmAt = max(t.confirmAt, at)
	if lost && t.route == shared {
		t.route = contended
	}
	t.judgeAgain()
}

// sendAlone has the request sent in a transaction of its own, because its transaction was larger than the server accepts.
func (t *request) sendAlone() {
	t.route = alone
	t.judgeAgain()
}
