package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
	"github.com/orbitsched/orbit/internal/send"
)

// regrouping is the working state of one Step.
type regrouping struct {
	Regrouping
	*table
	*balance
	now        time.Time
	patience   time.Duration
	unassigned []*member
	rewrites   []rewrite
	// moved are the members that the search has moved.
	moved map[*member]bool
}

// rewrite is a planned change of a member's marks.
type rewrite struct {
	m      *member
	values [3]string // of the marks
	count  *int      // which number of the report it adds to when it is committed; nil: none
	move   Cause
	// gone is the owner that was not alive, so that the proposal bets on that; "": there is none.
	gone string
}

// due decides what to do with nodes that have no living owner, are in a handoff, or have left.
func (r *regrouping) due() {
	due := slices.SortedFunc(maps.Keys(r.table.due), func(a, b *member) int { return cmp.Compare(a.id, b.id) })
	for _, m := range due {
		switch {
		case !m.there:
			r.rewrite(m, [3]string{}, &r.Cleared)
		case leavingMark.fits(string(m.id), r.state.Limits()) != nil:
			r.fail(leavingMark.fits(string(m.id), r.state.Limits()))
		case m.fresh && r.lives(m.next()):
			r.rewrite(m, [3]string{m.next()}, &r.Ended).move = OwnerGone
		case m.fresh && m.open:
			r.unassigned = append(r.unassigned, m)
		case m.fresh && m.marked():
			r.rewrite(m, [3]string{}, &r.Cleared)
		case !m.fresh:
			r.handoff(m)
		}
	}
}

// handoff does the next step for a node that its owner has been asked to leave.
func (r *regrouping) handoff(m *member) {
	stays, goes := [3]string{m.owner()}, [3]string{m.next()}
	if m.asked.IsZero() {
		m.asked = r.now
	}
	switch {
	case !r.lives(m.next()) || m.next() == m.owner():
		r.rewrite(m, stays, &r.Cancelled)
	case m.answered():
		r.rewrite(m, goes, &r.Ended)
	case r.patience >= 0 && !r.now.Before(m.asked.Add(r.patience)):
		r.rewrite(m, goes, &r.Ended).move = NoAnswer
	default:
		r.Waiting++
		r.await(m)
	}
}

// await notes until when the owner of a member may answer.
func (r *regrouping) await(m *member) {
	if until := m.asked.Add(r.patience); r.patience >= 0 && (r.deadline.IsZero() || until.Before(r.deadline)) {
		r.deadline = until
	}
}

// assign chooses groups for nodes that have none.
func (r *regrouping) assign(by Rule) {
	names := make([]string, len(r.groups()))
	for i, g := range r.groups() {
		names[i] = g.name
	}
	for _, m := range r.unassigned {
		to, ok := 0, false
		if by != nil {
			to, ok = slices.BinarySearch(names, r.rule(by, m, slices.Clone(names)))
		}
		if !ok {
			to = r.lightest(&m.load)
		}
		r.give(m, to)
	}
}

// rule calls the importer's rule. If the rule panics, the node goes to the lightest group.
func (r *regrouping) rule(by Rule, m *member, names []string) (name string) {
	if crash := guard.Do(func() { name = by(r.state.Node(m.id).Node, names) }); crash != nil {
		r.fail(fmt.Errorf("shard: Groups.By on node %q, which goes to the lightest group: %w", m.id, crash))
		return ""
	}
	return name
}

// rebalance moves nodes until the groups are in balance, as far as moves and exchanges of one node bring them there.
func (r *regrouping) rebalance() {
	r.moved = map[*member]bool{}
	for {
		step, ok := r.next()
		if !ok {
			break
		}
		r.move(step)
		for _, m := range [2]*member{step.m, step.back} {
			if m != nil && !m.fresh {
				r.moved[m] = true
			}
		}
	}
}

// movedMembers lists the members that the search has moved, sorted by id.
func (r *regrouping) movedMembers() []*member {
	return slices.SortedFunc(maps.Keys(r.moved), func(a, b *member) int { return cmp.Compare(a.id, b.id) })
}

// groups returns the groups of living schedulers.
func (r *regrouping) groups() []*group { return r.balance.groups }

// rewrite adds a change of a member's marks to those that commit proposes.
func (r *regrouping) rewrite(m *member, values [3]string, count *int) *rewrite {
	c := rewrite{m: m, values: values, count: count}
	if m.fresh {
		c.gone = m.owner()
	}
	r.rewrites = append(r.rewrites, c)
	return &r.rewrites[len(r.rewrites)-1]
}

// commit proposes all rewrites, and updates the members whose rewrite was committed. The others keep the marks that the
// ledger has.
func (r *regrouping) commit(ctx context.Context) {
	for _, m := range r.unassigned {
		c := r.rewrite(m, [3]string{m.in.name}, &r.Grouped)
		if m.owner() != "" { // then it counts as a move
			c.move, c.count = OwnerGone, nil
		}
	}
	for _, m := range r.movedMembers() {
		if m.in.name != m.owner() {
			r.rewrite(m, [3]string{m.owner(), m.in.name}, &r.Waiting).move = ForBalance
		}
	}
	batch := make([]orbit.Proposal, len(r.rewrites))
	for i := range r.rewrites {
		batch[i] = r.proposal(&r.rewrites[i])
	}
	for i, o := range send.All(ctx, r.ledger, batch) {
		switch c := &r.rewrites[i]; {
		case o.Err == nil:
			r.committed(c, o.Revision)
			continue
		case errors.Is(o.Err, orbit.ErrConflict):
			r.Conflicts++
		default:
			r.fail(o.Err)
		}
		r.file(r.rewrites[i].m)
	}
	slices.SortFunc(r.Moved, func(a, b Move) int { return cmp.Compare(a.Node, b.Node) })
}

// committed updates a member and the report for a rewrite that was committed.
func (r *regrouping) committed(c *rewrite, at orbit.Revision) {
	from := c.m.owner()
	r.mark(c.m, func(m *member) { m.took(c.values, at) })
	if c.count != nil {
		*c.count++
	}
	if c.m.next() != "" { // its owner has just been asked
		c.m.asked = r.now
		r.await(c.m)
	}
	if c.move != "" {
		r.Moved = append(r.Moved, Move{Node: c.m.id, From: from, To: cmp.Or(c.values[1], c.values[0]), Why: c.move})
	}
}

// proposal returns the proposal of a rewrite. It bets on the marks, and that an owner that was dead is still dead.
func (r *regrouping) proposal(c *rewrite) orbit.Proposal {
	p := c.m.set(r.View, c.values)
	if c.gone == "" || r.leases == nil {
		return p
	}
	if key := r.leases.Key(c.gone); len(key) <= r.state.Limits().IDBytes {
		_, at := r.state.Mark(key)
		p.If = append(p.If, orbit.MarkAt{Key: key, Revision: at})
	}
	return p
}

// fail adds an error to the report, up to a limit.
func (r *regrouping) fail(err error) {
	if len(r.Errors) < maxErrors {
		r.Errors = append(r.Errors, err)
	}
}
