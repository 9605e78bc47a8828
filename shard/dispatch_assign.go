package shard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// order is the assignment of a unit to a scheduler.
type order struct {
	unit unit
	// to is the new scheduler's position in the roster.
	to int
	// from is the previous owner; of a gang with several owners it is the first member's.
	from  string
	cause Cause
	do    []orbit.Commitment
	// bets says that the new scheduler's term has not ended, that the previous owners have not come back, and that a pin to
	// another scheduler is the known one. That the previous owners are unchanged needs no bet, because Assign compares the
	// owner itself.
	bets []orbit.Precondition
}

// proposal returns the proposal of the order.
func (o *order) proposal(view orbit.Revision) orbit.Proposal {
	return orbit.Proposal{View: view, Do: o.do, If: o.bets}
}

// take adds an assignment to the order. It bets that the lease of the owner does not change: an owner that was gone and
// is back may be placing the capsule.
func (d *Dispatcher) take(o *order, c *orbit.Capsule) {
	o.do = append(o.do, orbit.Assign{Capsule: c.ID, From: c.Owner(), Owner: d.roster.names[o.to]})
	if c.Owner() == "" || d.Leases == nil {
		return
	}
	key := d.Leases.Key(c.Owner())
	_, at := d.state.Mark(key)
	bet := orbit.MarkAt{Key: key, Revision: at}
	if len(key) <= d.Ledger.Limits().IDBytes && !slices.Contains(o.bets, orbit.Precondition(bet)) { // a name that is too long for a key has no lease
		o.bets = append(slices.Clip(o.bets), bet)
	}
}

// orders decides on the units in todo, at most MaxStep of them.
func (d *Dispatcher) orders(round *Round) []order {
	if len(d.todo.list) == 0 {
		return nil
	}
	if len(d.roster.names) == 0 {
		if !d.alone {
			round.fail(fmt.Errorf("shard: %w, and %d capsules or gangs wait; start one that holds a lease", ErrAlone, len(d.todo.list)))
		}
		d.alone = true
		return nil
	}
	d.alone = false
	out := make([]order, 0, min(len(d.todo.list), d.maxStep()))
	for now := time.Now(); len(d.todo.list) > 0 && len(out) < d.maxStep(); {
		if o, ok := d.order(d.todo.take(), now, round); ok {
			d.loads.expect(o.to, len(o.do))
			out = append(out, o)
		}
	}
	return out
}

// order decides on one unit. It reports false if the unit needs no assignment, or if no scheduler can have it now.
func (d *Dispatcher) order(u unit, now time.Time, round *Round) (order, bool) {
	first, company := d.survey(u, round)
	if first == nil {
		return order{}, false
	}
	to, cause := d.target(u, first, company, now, round)
	if to < 0 {
		return order{}, false
	}
	o := order{unit: u, to: to, from: first.Owner(), cause: cause, bets: d.roster.bets[to]}
	key := u.pinnedMark().key(u.id)
	if pinned, at := d.state.Mark(key); pinned != "" && pinned != d.roster.names[to] { // MovePinned: the ledger wants the bet
		o.bets = append(slices.Clip(o.bets), orbit.MarkAt{Key: key, Revision: at})
	}
	for c := range u.members(d.state) {
		if d.free(c) {
			d.take(&o, c)
		}
	}
	return o, true
}

// free reports whether a capsule waits and no live scheduler has it.
func (d *Dispatcher) free(c *orbit.Capsule) bool { return c.Pending() && !d.roster.lives(c.Owner()) }

// survey returns the first capsule of the unit that has to be assigned, nil if there is none. Company is the live
// scheduler that owns other members of the same gang, "" if there is none; if there are several, one that owns pending
// members is preferred to one whose members are all placed.
func (d *Dispatcher) survey(u unit, round *Round) (first *orbit.Capsule, company string) {
	waits := false
	for c := range u.members(d.state) {
		switch {
		case d.free(c):
			first = cmp.Or(first, c)
		case !c.Released() && d.roster.lives(c.Owner()) && (company == "" || c.Pending() && !waits):
			company, waits = c.Owner(), c.Pending()
		}
	}
	if first != nil && d.Select != nil && !d.selects(first, round) {
		return nil, ""
	}
	return first, company
}

// selects calls Select. A panic in it is reported, and counts as false.
func (d *Dispatcher) selects(c *orbit.Capsule, round *Round) (yes bool) {
	if crash := guard.Do(func() { yes = d.Select(c) }); crash != nil {
		round.fail(fmt.Errorf("shard: Dispatcher.Select failed on capsule %q, which stays unassigned until Select returns: %w", c.ID, crash))
		return false
	}
	return yes
}

// target chooses the scheduler for a unit and returns its position in the roster; -1: the unit has to wait.
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

// pick asks the policy and returns a position in the roster; -1: the policy named no candidate.
func (d *Dispatcher) pick(u unit, first *orbit.Capsule, list failures, out []int, again bool, now time.Time, round *Round) int {
	among := Candidates{roster: &d.roster, loads: &d.loads, out: out}
	at, err := ask(d.policy, first, &among)
	if err != nil && again && len(out) > 0 { // the policy wants none of the candidates that are left
		among.out = nil
		at, err = ask(d.policy, first, &among)
	}
	switch {
	case err == nil:
		return at
	case len(out) > 0:
		d.failed(u, list, out, now, round) // all schedulers that the policy would choose have failed the unit
	default:
		d.retryLater(u, "policy", now, func() { round.fail(err) })
	}
	return -1
}

// cause returns why a unit is dispatched again; "": it has not been dispatched before.
func (d *Dispatcher) cause(first *orbit.Capsule, list failures, again bool) Cause {
	switch {
	case first.Owner() != "":
		return OwnerGone
	case again && len(list.list) > 0:
		return TriedAgain
	case len(list.list) > 0 || list.more:
		return GivenBack
	}
	return ""
}

// failed puts off a unit that all schedulers have failed, and reports it if the set of schedulers has changed since the
// last report.
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

// stranded reports a unit that waits until the scheduler that it is pinned to lives again.
func (d *Dispatcher) stranded(u unit, pinned string, round *Round) {
	if w := d.retry.record(u); w.said != "stranded "+pinned {
		w.said = "stranded " + pinned
		round.Stranded = append(round.Stranded, strandedError(u, pinned))
	}
}

// retryLater puts a unit off, and calls report unless the last report of the unit was the same.
func (d *Dispatcher) retryLater(u unit, said string, now time.Time, report func()) {
	w := d.retry.record(u)
	if w.said != said {
		w.said = said
		report()
	}
	d.retry.putOff(w, now)
}

// ordered takes note of an order's outcome. A unit whose order was not committed is reviewed in the next step.
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
