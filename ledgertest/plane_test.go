package ledgertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// plane is a second ledger, as plain as can be, and unlike orbit.MemoryLedger where ledgers may differ: revisions
// have gaps, the proposals of a batch share one, a commit takes a while, and a handle hears late of what others
// commit. It judges by State.Judge, moves by State.Apply, and is broken in the way that breaks says.
type plane struct {
	breaks string
	// How long a commit is on its way, and how late other handles hear of it.
	slow, lag time.Duration

	mu      sync.Mutex
	state   *orbit.State
	log     []orbit.Change
	floor   orbit.Revision
	ids     map[orbit.ProposalID]orbit.Revision
	refused map[orbit.ProposalID]error
	past    map[orbit.Revision]*orbit.State
	handles []*handle
	reads   int
	commits int
}

// handle is a plane as one process sees it.
type handle struct {
	*plane
	// What it has heard of, and who waits for more; guarded by the plane's lock.
	known orbit.Revision
	seen  *orbit.State
	wake  chan struct{}
}

// newPlane returns a handle on a new plane.
func newPlane(breaks string, bounds orbit.Limits) *handle {
	s, err := (&orbit.MemoryLedger{Bounds: bounds}).Snapshot(context.Background())
	if err != nil {
		panic(err)
	}
	p := &plane{breaks: breaks, state: s, ids: map[orbit.ProposalID]orbit.Revision{}, refused: map[orbit.ProposalID]error{},
		past: map[orbit.Revision]*orbit.State{0: s}}
	return p.peer()
}

// peer returns another handle.
func (p *plane) peer() *handle {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &handle{plane: p, known: p.state.Revision(), seen: p.state, wake: make(chan struct{})}
	p.handles = append(p.handles, h)
	return h
}

// ended is what is said under a context that has ended.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", orbit.ErrUnavailable, err)
	}
	return nil
}

func (h *handle) Limits() orbit.Limits {
	l := h.state.Limits()
	if h.breaks == "says less than it takes" {
		l.ValueBytes /= 2
	}
	return l
}

func (h *handle) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if err := h.sending(ctx, &p); err != nil {
		return 0, err
	}
	h.travel()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.breaks == "calls back under its lock" && ctx.Err() != nil {
		return 0, ended(ctx)
	}
	rev, err := h.commit(p, 0)
	return h.answer(ctx, p, rev, err)
}

// travel takes the time that a commit takes.
func (h *handle) travel() {
	if h.slow > 0 {
		time.Sleep(h.slow)
	}
}

func (h *handle) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	h.travel()
	h.mu.Lock()
	defer h.mu.Unlock()
	shared, before := orbit.Revision(0), h.state
	for i, p := range batch {
		if out[i].Err = ended(ctx); out[i].Err != nil {
			continue
		}
		at := shared
		if p.ID.IsZero() { // two without an id that share a revision would be taken for one
			at = 0
		}
		if h.breaks == "judges a batch on one state" && before.Check(p) == nil && h.state.Check(p) != nil {
			out[i].Revision = shared
			continue
		}
		if out[i].Revision, out[i].Err = h.commit(p, at); out[i].Err == nil && h.state.Revision() == out[i].Revision {
			shared = out[i].Revision
		}
	}
	return h.spoilBatch(batch, out)
}

// commit judges a proposal and publishes it, in the revision given if it is the newest, else in a new one. It
// requires the lock.
func (h *handle) commit(p orbit.Proposal, shared orbit.Revision) (orbit.Revision, error) {
	if at, err, done := h.before(p); done {
		h.advance(h.state.Revision())
		return at, err
	}
	judged := h.judged(&p)
	reduced, err := judged.Judge(p)
	if h.breaks == "lets begin what has to wait" && errors.Is(err, orbit.ErrInfeasible) && begins(p) {
		return h.publish(orbit.Proposal{ID: p.ID, Do: []orbit.Commitment{orbit.Mark{Key: "nothing", Value: "x"}}}, h.state.Revision()+3)
	}
	if err != nil {
		h.refused[p.ID] = err
		h.advance(h.state.Revision()) // the loser plans again on what it has lost to
		return 0, h.receipt(err)
	}
	if (len(reduced.Do) >= len(p.Do) || h.breaks != "spares nobody") && h.breaks != "keeps what it was given" {
		p = reduced
	}
	if len(p.Do) == 0 { // it changes nothing
		return h.state.Revision(), nil
	}
	rev := h.state.Revision() + 3
	if shared != 0 && shared == h.state.Revision() {
		rev = shared
	}
	return h.publish(p, h.number(rev))
}

// begins reports whether all that a proposal says is that something begins.
func begins(p orbit.Proposal) bool {
	return !slices.ContainsFunc(p.Do, func(do orbit.Commitment) bool {
		c, ok := do.(orbit.Confirm)
		return !ok || !c.Begun && !c.Ready
	})
}

// before answers for a proposal that was committed before.
func (h *handle) before(p orbit.Proposal) (rev orbit.Revision, err error, done bool) {
	if h.breaks == "takes all without an id for one" && p.ID.IsZero() && h.ids[p.ID] != 0 {
		return h.ids[p.ID], nil, true
	}
	if at := h.ids[p.ID]; at != 0 && !p.ID.IsZero() {
		return at, nil, true
	}
	if err := h.refused[p.ID]; err != nil && h.breaks == "remembers what it has refused" {
		return 0, err, true
	}
	return 0, nil, false
}

// publish appends to the log what a proposal does. It requires the lock.
func (h *handle) publish(p orbit.Proposal, rev orbit.Revision) (orbit.Revision, error) {
	list := h.changes(p, rev)
	next, err := h.state.Apply(list)
	if err != nil {
		return 0, fmt.Errorf("plane: %w", err)
	}
	h.state, h.log = next, append(h.log, list...)
	h.ids[p.ID] = rev
	h.commits++
	if h.breaks == "looks at what, not when" {
		h.past[rev] = next
	}
	if n := len(h.log) - h.state.Limits().History; n > 0 && h.breaks != "keeps its history for ever" {
		h.floor = h.log[n-1].Revision
		h.log = slices.Clone(h.log[n:])
	}
	h.tell(rev)
	return rev, nil
}

// changes are what a proposal does, with the nodes that it touches, and shares nothing with it.
func (h *handle) changes(p orbit.Proposal, rev orbit.Revision) []orbit.Change {
	on := map[orbit.CapsuleID]orbit.NodeID{}
	holds := map[orbit.HoldID]orbit.NodeID{}
	seq := 0
	if n := len(h.log); n > 0 && h.log[n-1].Revision == rev {
		seq = h.log[n-1].Seq + 1
	}
	out := make([]orbit.Change, len(p.Do))
	for i, do := range p.Do {
		out[i] = orbit.Change{Revision: rev, Seq: seq + i, ID: p.ID, Do: h.own(do)}
		switch c := do.(type) {
		case orbit.PutNode:
			out[i].Node = c.Node.ID
		case orbit.RemoveNode:
			out[i].Node = c.Node
		case orbit.Place:
			out[i].Node, on[c.Capsule] = c.Node, c.Node
		case orbit.Hold:
			out[i].Node, holds[c.ID] = c.Node, c.Node
		case orbit.Release:
			out[i].Node = h.left(c, on, holds)
		case orbit.Confirm:
			if k := h.state.Capsule(c.Capsule); k != nil && !c.Stopped {
				out[i].Node = k.Node
			} else if k != nil && k.Remains() != nil {
				out[i].Node = k.Remains().Node
			}
		}
	}
	return out
}

// left is the node that a release leaves.
func (h *handle) left(c orbit.Release, on map[orbit.CapsuleID]orbit.NodeID, holds map[orbit.HoldID]orbit.NodeID) orbit.NodeID {
	if c.Hold != "" {
		if id, ok := holds[c.Hold]; ok {
			return id
		}
		kept, _ := h.state.Hold(c.Hold)
		return kept.Node
	}
	id, ok := on[c.Capsule]
	if was := h.state.Capsule(c.Capsule); !ok && was != nil {
		id = was.Node
	}
	on[c.Capsule] = ""
	return id
}

// own copies what a ledger must own.
func (h *handle) own(do orbit.Commitment) orbit.Commitment {
	switch c := do.(type) {
	case orbit.PutNode:
		if h.breaks != "keeps what it was given" {
			c = clone(c)
		}
		return h.spoil(c)
	case orbit.Submit:
		return h.spoil(clone(c))
	}
	return h.spoil(do)
}

// clone copies by way of JSON.
func clone[T any](v T) (out T) {
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

// tell lets this handle know of a commit at once, and the others later. It requires the lock.
func (h *handle) tell(rev orbit.Revision) {
	for _, other := range h.handles {
		if other == h || h.lag == 0 {
			other.advance(rev)
			continue
		}
		time.AfterFunc(h.lag, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			other.advance(rev)
		})
	}
}

// advance moves the handle to a revision and wakes the waiters. The caller holds the lock.
func (h *handle) advance(rev orbit.Revision) {
	if rev <= h.known {
		return
	}
	h.known = rev
	switch h.breaks {
	case "never wakes a waiter":
	case "wakes one of many":
		select {
		case h.wake <- struct{}{}:
		default:
		}
	default:
		close(h.wake)
		h.wake = make(chan struct{})
	}
}

// receipt completes a rejection with who has won.
func (h *handle) receipt(err error) error {
	var r *orbit.Rejection
	if errors.As(err, &r) && errors.Is(r.Kind, orbit.ErrConflict) {
		for _, c := range h.log {
			if c.Revision == r.TakenAt {
				r.TakenBy = c.ID
			}
		}
	}
	return h.spoilReceipt(r, err)
}

func (h *handle) Snapshot(ctx context.Context) (*orbit.State, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.spoilSnapshot(); s != nil {
		return s, nil
	}
	h.seen = h.state
	h.advance(h.state.Revision())
	return h.state, nil
}

func (h *handle) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if after < h.floor && h.breaks != "forgets without a word" {
		return nil, orbit.ErrCompacted
	}
	var out []orbit.Change
	for _, c := range h.log {
		if c.Revision > after && c.Revision <= h.known || h.breaks == "repeats the last change" && c.Revision == after {
			out = append(out, c)
		}
	}
	return h.spoilChanges(out), nil
}

func (h *handle) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		h.mu.Lock()
		known, wake := h.known, h.wake
		h.mu.Unlock()
		if known > after {
			return known, nil
		}
		if h.breaks == "loses wake-ups" {
			time.Sleep(50 * time.Microsecond)
			h.mu.Lock()
			wake = h.wake
			h.mu.Unlock()
		}
		if h.breaks == "wakes for nothing" {
			time.Sleep(time.Millisecond)
			return known, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
		}
	}
}
