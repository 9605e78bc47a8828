package shard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// order is a unit to be given to a scheduler.
type order struct {
	unit unit
	// Position in the roster.
	to int
	// Who it is taken from; several owners of a gang count as the first.
	from  string
	cause Cause
	do    []orbit.Commitment
	// That the term of the one who is to have it has not ended, and that whoever had it has not come back. That the
	// owners are who they were, every Assign bets itself.
	bets []orbit.Precondition
}

func (o *order) proposal(view orbit.Revision) orbit.Proposal {
	return orbit.Proposal{View: view, Do: o.do, If: o.bets}
}

// take adds an assignment to the order. It bets that the lease of the owner does not change: an owner that was gone and is
// back may be placing the capsule.
func (d *Dispatcher) take(o *order, c *orbit.Capsule) {
	o.do = append(o.do, orbit.Assign{Capsule: c.ID, From: c.Owner, Owner: d.roster.names[o.to]})
	if c.Owner == "" || d.Leases == nil {
		return
	}
	key := d.Leases.Key(c.Owner)
	_, at := d.state.Mark(key)
	bet := orbit.MarkAt{Key: key, Revision: at}
	if len(key) <= d.Ledger.Limits().IDBytes && !slices.Contains(o.bets, orbit.Precondition(bet)) { // else it can have no lease
		o.bets = append(slices.Clip(o.bets), bet)
	}
}

// orders decides on as much of what is to be looked at as one step takes.
func (d *Dispatcher) orders(round *Round) []order {
	if d.todo.len() == 0 {
		return nil
	}
	if len(d.roster.names) == 0 {
		if !d.alone {
			round.fail(fmt.Errorf("shard: %w, and %d capsules or gangs wait; start one that holds a lease", ErrAlone, d.todo.len()))
		}
		d.alone = true
		return nil
	}
	d.alone = false
	out := make([]order, 0, min(d.todo.len(), d.maxStep()))
	for now := time.Now(); d.todo.len() > 0 && len(out) < d.maxStep(); {
		if o, ok := d.order(d.todo.take(), now, round); ok {
			d.loads.expect(o.to, len(o.do))
			out = append(out, o)
		}
	}
	return out
}

// order decides on one unit. It reports false if there is nothing to do, or nobody for it.
func (d *Dispatcher) order(u unit, now time.Time, round *Round) (order, bool) {
	first, company := d.survey(u, round)
	if first == nil {
		return order{}, false
	}
	to, cause := d.target(u, first, company, now, round)
	if to < 0 {
		return order{}, false
	}
	o := order{unit: u, to: to, from: first.Owner, cause: cause, bets: d.roster.bets[to]}
	keeper := d.keeper(u)
	u.eachMember(d.state, func(c *orbit.Capsule) bool {
		if d.free(c, keeper) && c.Owner != d.roster.names[to] {
			d.take(&o, c)
		}
		return true
	})
	return o, len(o.do) > 0
}

// keeper returns the live scheduler that has the first waiting capsule of a unit; "" if there is none. All waiting
// members of a gang belong with it, because a scheduler starts a gang with the members that it has.
func (d *Dispatcher) keeper(u unit) (name string) {
	u.eachMember(d.state, func(c *orbit.Capsule) bool {
		if c.Pending() && d.roster.lives(c.Owner) {
			name = c.Owner
		}
		return name == ""
	})
	return name
}

// free reports whether a waiting capsule has to be assigned: no live scheduler has it, or another one than its keeper.
func (d *Dispatcher) free(c *orbit.Capsule, keeper string) bool {
	return c.Pending() && (!d.roster.lives(c.Owner) || c.Owner != keeper)
}

// survey returns the first capsule of the unit that has to be assigned, nil if there is none, and the live scheduler that
// has other members of the same gang: its keeper, or else one that has placed some; "" if there is none.
func (d *Dispatcher) survey(u unit, round *Round) (first *orbit.Capsule, company string) {
	keeper := d.keeper(u)
	company = keeper
	u.eachMember(d.state, func(c *orbit.Capsule) bool {
		switch {
		case d.free(c, keeper):
			if first == nil {
				first = c
			}
		case company == "" && !c.Released() && d.roster.lives(c.Owner):
			company = c.Owner
		}
		return true
	})
	if first != nil && d.Select != nil && !d.selects(first, round) {
		return nil, ""
	}
	return first, company
}

// selects asks Select, and contains it.
func (d *Dispatcher) selects(c *orbit.Capsule, round *Round) (yes bool) {
	if crash := guard.Do(func() { yes = d.Select(c) }); crash != nil {
		round.fail(fmt.Errorf("shard: Dispatcher.Select on capsule %q, which is left alone: %w", c.ID, crash))
		return false
	}
	return yes
}

// target chooses the scheduler for a unit; -1: nobody, for now.
func (d *Dispatcher) target(u unit, first *orbit.Capsule, company string, now time.Time, round *Round) (at int, cause Cause) {
	list := failures{}
	if f := d.failing.units[u]; f != nil {
		list = f.failures
	}
	out := d.roster.failed(list)
	again := d.retry.takeReady(u)
	cause = d.cause(first, list, again)
	if pinned, _ := d.state.Mark(u.pinnedMark().key(u.id)); pinned != "" {
		at, lives := d.roster.at[pinned]
		switch {
		case lives && (again || !slices.Contains(out, at)):
			return at, cause
		case d.MovePinned:
		case lives:
			d.failed(u, list, []int{at}, now, round)
			return -1, cause
		default:
			d.stranded(u, pinned, round)
			return -1, cause
		}
	}
	if company != "" {
		return d.roster.at[company], cause
	}
	all := len(out) == len(d.roster.names)
	if (all || list.more) && !again {
		d.failed(u, list, out, now, round)
		return -1, cause
	}
	if all {
		out = nil
	}
	return d.pick(u, first, list, out, again, now, round), cause
}

// pick asks the policy; -1: it has nobody.
func (d *Dispatcher) pick(u unit, first *orbit.Capsule, list failures, out []int, again bool, now time.Time, round *Round) int {
	among := Candidates{roster: &d.roster, loads: &d.loads, out: out}
	at, err := ask(d.policy, first, &among)
	if err != nil && again && len(out) > 0 { // it wants none of those that are left
		among.out = nil
		at, err = ask(d.policy, first, &among)
	}
	switch {
	case err == nil:
		return at
	case len(out) > 0:
		d.failed(u, list, out, now, round) // as far as the policy goes
	default:
		d.retryLater(u, "policy", now, func() { round.fail(err) })
	}
	return -1
}

// cause says why a unit is dispatched again; "": it had not been.
func (d *Dispatcher) cause(first *orbit.Capsule, list failures, again bool) Cause {
	switch {
	case d.roster.lives(first.Owner):
		return Divided
	case first.Owner != "":
		return OwnerGone
	case again && len(list.list) > 0:
		return TriedAgain
	case len(list.list) > 0 || list.more:
		return GivenBack
	}
	return ""
}

// failed puts a unit off that all have failed, and reports it if they are others than the last time.
func (d *Dispatcher) failed(u unit, list failures, out []int, now time.Time, round *Round) {
	var names strings.Builder
	var said []Failure
	for _, one := range list.list {
		if at, lives := d.roster.at[one.Scheduler]; lives && slices.Contains(out, at) {
			said = append(said, one)
		}
	}
	for _, at := range out {
		fmt.Fprintf(&names, "%q", d.roster.names[at])
	}
	d.retryLater(u, names.String(), now, func() { round.Failed = append(round.Failed, failedError(u, said, list.more)) })
}

// stranded reports a unit that only its scheduler's return can help.
func (d *Dispatcher) stranded(u unit, pinned string, round *Round) {
	if w := d.retry.of(u); w.said != "stranded "+pinned {
		w.said = "stranded " + pinned
		round.Stranded = append(round.Stranded, strandedError(u, pinned))
	}
}

// retryLater puts a unit off, and reports it if that has not been said.
func (d *Dispatcher) retryLater(u unit, said string, now time.Time, report func()) {
	w := d.retry.of(u)
	if w.said != said {
		w.said = said
		report()
	}
	d.retry.putOff(w, now)
}

// ordered takes note of what became of an order. What was not committed is looked at again.
func (d *Dispatcher) ordered(o *order, out orbit.Outcome, round *Round) {
	if out.Err != nil {
		d.again = append(d.again, o.unit)
		if errors.Is(out.Err, orbit.ErrConflict) {
			round.Conflicts++
			d.lost(out.Err)
		} else {
			round.fail(out.Err)
		}
		return
	}
	if o.cause != TriedAgain {
		d.retry.forget(o.unit) // the situation has changed
	}
	if round.Dispatched == nil {
		round.Dispatched = map[string]int{}
	}
	name := d.roster.names[o.to]
	round.Dispatched[name] += len(o.do)
	if o.cause != "" {
		m := Move{From: o.from, To: name, Why: o.cause}
		m.Capsule, m.Gang = o.unit.names()
		round.Redispatched = append(round.Redispatched, m)
	}
}
