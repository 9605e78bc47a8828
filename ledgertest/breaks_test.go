package ledgertest_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// What a plane does wrong, where it does it.

// sending is what happens to a proposal before the lock is taken.
func (h *handle) sending(ctx context.Context, p *orbit.Proposal) error {
	switch h.breaks {
	case "commits though it is too late":
		return nil
	case "refuses ends":
		for _, do := range p.Do {
			end, _ := do.(orbit.Release)
			if c := h.state.Capsule(end.Capsule); c != nil && end.Final {
				for b := range h.state.BudgetsOf(c.Spec) {
					if b.Spare() < 1 {
						return h.lost()
					}
				}
			}
		}
	case "recalls like others":
		for _, do := range p.Do {
			e, _ := do.(orbit.Evict)
			if c := h.state.Capsule(e.Capsule); c != nil && c.Borrows() != nil && c.Borrows().Capsule == e.For {
				for b := range h.state.BudgetsOf(c.Spec) {
					if b.Spare() < 1 {
						return h.lost()
					}
				}
			}
		}
	case "takes an end for a conflict":
		if ctx.Err() != nil {
			return h.lost()
		}
	case "writes to what it was given":
		for i, do := range p.Do {
			if put, ok := do.(orbit.PutNode); ok {
				put.Node.Labels["seen"] = "yes"
				p.Do[i] = put
			}
		}
	}
	return ended(ctx)
}

// lost is a conflict that there was not.
func (h *handle) lost() error {
	return &orbit.Rejection{Kind: orbit.ErrConflict, Do: -1, Reason: "timed out", At: h.state.Revision(), TakenAt: h.state.Revision()}
}

// judged is the state on which a proposal is judged; it may change the proposal first.
func (h *handle) judged(p *orbit.Proposal) *orbit.State {
	switch h.breaks {
	case "ignores bets":
		p.If = nil
	case "looks at what, not when":
		p.If = slices.DeleteFunc(slices.Clone(p.If), func(bet orbit.Precondition) bool { return h.looksSame(p.View, bet) })
	case "judges bets afterwards":
		bets := p.If
		p.If = nil
		if next, err := h.state.Apply(h.changes(*p, h.state.Revision()+3)); err == nil && h.state.Check(*p) == nil {
			if next.Check(orbit.Proposal{If: bets, Do: []orbit.Commitment{orbit.Mark{Key: "k"}}}) != nil {
				p.If = bets
			}
		}
	case "applies an id twice":
		p.ID = orbit.NewProposalID()
	case "ends things twice":
		p.Do = slices.DeleteFunc(slices.Clone(p.Do), func(do orbit.Commitment) bool {
			end, ok := do.(orbit.Release)
			c := h.state.Capsule(end.Capsule)
			return ok && !end.Final && len(p.Do) == 1 && c != nil && c.Pending()
		})
		if len(p.Do) == 0 {
			p.Do = []orbit.Commitment{orbit.Mark{Key: "nothing"}}
		}
	case "ignores where it was":
		p.Do = slices.Clone(p.Do)
		for i, do := range p.Do {
			if end, ok := do.(orbit.Release); ok {
				end.From = ""
				p.Do[i] = end
			}
		}
	}
	return h.state
}

// looksSame reports whether what a bet is about reads as it did at a view.
func (h *handle) looksSame(view orbit.Revision, bet orbit.Precondition) bool {
	was := h.past[view]
	if was == nil {
		return false
	}
	switch bet := bet.(type) {
	case orbit.NodeAt:
		a, b := was.Node(bet.Node), h.state.Node(bet.Node)
		return a != nil && b != nil && a.Used() == b.Used() && a.Node.Capacity == b.Node.Capacity && (bet.Usage == a.Usage || bet.Specification == a.Specification)
	case orbit.MarkAt:
		a, at := was.Mark(bet.Key)
		b, _ := h.state.Mark(bet.Key)
		return a == b && at == bet.Revision
	}
	return false
}

// spoil is what is kept of a commitment.
func (h *handle) spoil(do orbit.Commitment) orbit.Commitment {
	switch c := do.(type) {
	case orbit.PutNode:
		switch h.breaks {
		case "has room for one more":
			if c.Node.Capacity[orbit.CPU] > 0 && c.Node.Capacity[orbit.CPU] < math.MaxInt64 {
				c.Node.Capacity[orbit.CPU]++
			}
		case "ignores drains":
			c.Node.State = orbit.Ready
		case "ignores sick devices":
			c.Node.Devices.Unhealthy = 0
		case "never shrinks":
			if n := h.state.Node(c.Node.ID); n != nil && !n.Used().Within(c.Node.Capacity) {
				c.Node.Capacity = n.Node.Capacity
			}
		}
		return c
	case orbit.Submit:
		return h.spoilSubmit(c)
	case orbit.PutQueue:
		switch h.breaks {
		case "has quota for one more":
			c.Queue.Nominal = maps.Clone(c.Queue.Nominal)
			for name := range c.Queue.Nominal {
				c.Queue.Nominal[name]++
			}
		case "borrows without a limit":
			c.Queue.Borrow = nil
		case "lends all":
			c.Queue.Lend = nil
		case "weighs all queues alike":
			c.Queue.Weight = 0
		}
		return c
	case orbit.PutBudget:
		switch h.breaks {
		case "ignores budgets":
			c.Budget.Expected = 0
		case "lets every priority pass":
			c.Budget.Above = 1
		case "rounds budgets to tens":
			c.Budget.Missing = min(c.Budget.Expected, c.Budget.Missing+c.Budget.Expected/10)
		case "takes what is placed for ready":
			c.Budget.IgnoreReady = true
		case "keeps what crashes":
			c.Budget.FreeUnready = false
		}
		return c
	case orbit.Place:
		if h.breaks == "forgets what it carries" {
			c.At = 0
		}
		c.After = c.After && h.breaks != "forgets who comes after whom"
		return c
	case orbit.Protect:
		if h.breaks == "protects for a moment" && c.For > 0 {
			c.For = 1
		}
		return c
	case orbit.Nominate:
		switch {
		case h.breaks == "lends for ever" && c.Lends > 0:
			c.Lends = math.MaxInt64
		case h.breaks == "never lends":
			c.Lends = 0
		}
		return c
	case orbit.Confirm:
		if h.breaks == "begins what is ready" && c.Ready {
			c.Begun, c.Ready = true, false
		}
		return c
	case orbit.Hold:
		if h.breaks == "counts holds for little" {
			c.Room = orbit.Resources{orbit.CPU: 1}
		}
		return c
	case orbit.Release:
		if h.breaks == "takes what leaves for stopped" && c.Hold == "" {
			c.Stopped = !c.Final
		}
		if h.breaks == "forgets when it was" {
			c.At = 0
		}
		if n := h.state.Capsule(c.Capsule); h.breaks == "takes what is given up for stopped" && n != nil && n.Waits && !n.Begun {
			c.Stopped = !c.Final
		}
		if h.breaks == "brings back what has ended" {
			c.Final = false
			if n := h.state.Capsule(c.Capsule); n != nil && n.Pending() {
				return orbit.Mark{Key: "nothing"}
			}
		}
		return c
	case orbit.Mark:
		if h.breaks == "takes a slash for the end" {
			if before, _, cut := strings.Cut(c.Key, "/"); cut && before != "" {
				c.Key = before
			}
		}
		return c
	}
	return do
}

// spoilSubmit is what is kept of new capsules.
func (h *handle) spoilSubmit(c orbit.Submit) orbit.Commitment {
	switch {
	case h.breaks == "lets half a gang in" && c.Gang != nil:
		for i := range c.Gang.Roles {
			c.Gang.Roles[i].Min = 1
		}
	case h.breaks == "forgets the minimum of gangs" && c.Gang != nil:
		c.Gang.Min = 0
	case h.breaks == "lets the first join" && c.Join:
		c.Gang.Roles[0].Members = c.Gang.Roles[0].Members[:1]
	case h.breaks == "forgets whose labels":
		c.LabelsOf = nil
	case c.Spec == nil:
	case h.breaks == "lends to all":
		c.Spec.Backfills, c.Spec.RunsAtMost = true, max(1, c.Spec.RunsAtMost)
	case h.breaks == "lets sums wrap" && c.Spec.Envelope.Reservation[orbit.CPU] == math.MaxInt64:
		c.Spec.Envelope.Reservation[orbit.CPU] = 0
	case h.breaks == "forgets whose queue":
		c.Spec.Queue = ""
	case h.breaks == "ignores requirements":
		c.Spec.Require = nil
	case h.breaks == "forgets who is apart":
		c.Spec.Apart = nil
	case h.breaks == "forgets who is near":
		c.Spec.Near, c.Spec.Nears = orbit.Near{}, nil
	case h.breaks == "forgets who is even":
		c.Spec.Even = nil
	case h.breaks == "forgets wishes":
		c.Spec.PreferCompany = nil
	case h.breaks == "takes wishes for rules":
		for _, wish := range c.Spec.PreferCompany {
			c.Spec.Apart = append(c.Spec.Apart, orbit.Apart{Group: wish.Group, Level: wish.Level})
		}
	case h.breaks == "declares what is there":
		for i := range c.Spec.Even {
			c.Spec.Even[i].Domains = []string{"a", "b", "c"}
		}
	case h.breaks == "knows one dimension":
		c.Spec.Envelope.Reservation = orbit.Resources{orbit.CPU: c.Spec.Envelope.Reservation[orbit.CPU]}
	case h.breaks == "shares devices without counting" && c.Spec.Devices.Count > 0:
		c.Spec.Devices.Milli = 1
	}
	return c
}

// number is the revision of the next commit.
func (h *handle) number(rev orbit.Revision) orbit.Revision {
	if h.breaks == "uses a revision twice" && h.commits%4 == 3 {
		return h.state.Revision()
	}
	return rev
}

// answer is what is said about a proposal.
func (h *handle) answer(ctx context.Context, p orbit.Proposal, rev orbit.Revision, err error) (orbit.Revision, error) {
	switch h.breaks {
	case "takes a timeout for a conflict":
		if ctx.Err() != nil {
			return 0, h.lost()
		}
	case "takes a timeout for nothing sent":
		return rev, errors.Join(err, ended(ctx))
	case "half-applies what it refuses":
		if err != nil {
			for _, do := range p.Do {
				part := orbit.Proposal{Do: []orbit.Commitment{do}}
				if h.state.Check(part) != nil {
					break
				}
				_, _ = h.publish(part, h.state.Revision()+3)
			}
		}
	case "refuses now and then":
		if err == nil && h.commits%40 == 39 {
			h.commits++
			return 0, h.lost()
		}
	case "says a revision that is not its own":
		if err == nil {
			return rev - 1, nil
		}
	}
	return rev, err
}

// spoilBatch is what is said about a batch.
func (h *handle) spoilBatch(batch []orbit.Proposal, out []orbit.Outcome) []orbit.Outcome {
	switch h.breaks {
	case "one takes the others down":
		for _, o := range out {
			if o.Err != nil {
				return slices.Repeat([]orbit.Outcome{{Err: o.Err}}, len(batch))
			}
		}
	case "answers a batch backwards":
		slices.Reverse(out)
	case "forgets the end of a batch":
		return out[:min(len(out), 100)]
	}
	return out
}

// spoilReceipt is what is said about a proposal that was refused.
func (h *handle) spoilReceipt(r *orbit.Rejection, err error) error {
	if r == nil {
		return err
	}
	switch h.breaks {
	case "calls a mistake a conflict":
		if errors.Is(r.Kind, orbit.ErrInfeasible) {
			r.Kind = orbit.ErrConflict
		}
	case "calls a conflict a mistake":
		if errors.Is(r.Kind, orbit.ErrConflict) {
			r.Kind = orbit.ErrInfeasible
		}
	case "forgets who has won":
		r.TakenBy = orbit.ProposalID{}
	case "asks for a view that is not there":
		r.At += 5
	case "gives no receipt":
		return r.Kind
	case "blames the first":
		r.Do = min(r.Do, 0)
	case "calls what is malformed a mistake":
		if errors.Is(r.Kind, orbit.ErrInvalid) {
			r.Kind = orbit.ErrInfeasible
		}
	}
	return r
}

// spoilSnapshot is what is read in the place of the state; nil: the state.
func (h *handle) spoilSnapshot() *orbit.State {
	switch h.breaks {
	case "answers from a cache":
		if h.reads++; h.reads%4 != 0 {
			return h.seen
		}
	case "answers from a mirror that lags":
		if h.seen.Revision() < h.known {
			h.seen = h.state
		}
		return h.seen
	}
	return nil
}

// spoilChanges is what is read of the history.
func (h *handle) spoilChanges(list []orbit.Change) []orbit.Change {
	switch h.breaks {
	case "tells the history backwards":
		slices.Reverse(list)
	case "counts from one":
		for i := range list {
			list[i].Seq++
		}
	case "forgets which node was left":
		for i := range list {
			if _, ok := list[i].Do.(orbit.Release); ok {
				list[i].Node = ""
			}
		}
	case "loses a change now and then":
		return slices.DeleteFunc(list, func(c orbit.Change) bool { return c.Revision%21 == 0 })
	}
	return list
}

// checkThenAct judges on a state that it has read, and commits later, whatever has come in between.
type checkThenAct struct{ *handle }

func (l checkThenAct) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	s, err := l.Snapshot(ctx)
	if err != nil {
		return 0, ended(ctx)
	}
	if err := s.Check(p); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if at, _, done := l.before(p); done {
			return at, nil
		}
		return 0, l.receipt(err)
	}
	runtime.Gosched() // check, then act: the gap
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, _, done := l.before(p); done {
		return at, nil
	}
	rev := l.state.Revision() + 3
	if _, err := l.publish(p, rev); err != nil { // what cannot be is in the log only
		l.log = append(l.log, l.changes(p, rev)...)
		l.ids[p.ID] = rev
	}
	return rev, nil
}

// tornGangs commits a gang's places in two steps where the first is enough to begin with.
type tornGangs struct{ *handle }

func (l tornGangs) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if err := ended(ctx); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	places := 0
	for _, do := range p.Do {
		if place, ok := do.(orbit.Place); ok {
			if c := l.state.Capsule(place.Capsule); c != nil && c.Gang() != "" {
				places++
			}
		}
	}
	if places < 4 || places != len(p.Do) || l.state.Check(p) != nil || l.ids[p.ID] != 0 {
		return l.commit(p, 0)
	}
	first, rest := p, p
	first.Do, rest.Do, rest.If, rest.ID = p.Do[:3], p.Do[3:], nil, orbit.NewProposalID()
	if _, err := l.commit(first, 0); err != nil {
		return 0, err
	}
	l.mu.Unlock()
	time.Sleep(50 * time.Microsecond)
	l.mu.Lock()
	return l.commit(rest, 0)
}

// staleVerdicts refuses on what this handle has seen last; only what it would commit is looked at again.
type staleVerdicts struct{ *handle }

func (l staleVerdicts) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	l.mu.Lock()
	err := l.seen.Check(p)
	if _, _, done := l.before(p); done || l.ids[p.ID] != 0 {
		err = nil
	}
	l.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		return 0, err
	}
	return l.handle.Propose(ctx, p)
}

// lostInACrowd says yes to what has come while another was on its way, and forgets it.
type lostInACrowd struct {
	*handle
	crowd chan struct{}
}

func (l lostInACrowd) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	select {
	case l.crowd <- struct{}{}:
		defer func() { <-l.crowd }()
		runtime.Gosched()
		return l.handle.Propose(ctx, p)
	default:
		s, err := l.Snapshot(ctx)
		if err != nil || s.Check(p) != nil {
			return l.handle.Propose(ctx, p)
		}
		return s.Revision() + 3, nil
	}
}

// panicky takes its input for what it expects.
type panicky struct{ *handle }

func (l panicky) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	for _, do := range p.Do {
		if place, ok := do.(*orbit.Place); ok {
			_ = place.Capsule
		} else if mark, ok := do.(*orbit.Mark); ok {
			_ = mark.Key
		}
	}
	return l.handle.Propose(ctx, p)
}
