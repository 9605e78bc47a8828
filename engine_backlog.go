package orbit

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// BacklogRow is a row of the [Backlog]: pending capsules that wait for one engine, for one reason. They have the same
// spec, gang and owner.
type BacklogRow struct {
	// Kind is why the capsules wait, in one word.
	Kind WaitKind
	// Engine is the engine that owns the capsules; nil: none of the engines does (WaitUnowned).
	Engine *Engine
	// Capsules are the capsules of the row in the order of their submission, at least one.
	Capsules []*Capsule
	// Since is the earliest [Submit].At of the capsules; 0: no time is known.
	Since Instant
	// Why is the reason, never nil. It may be an error of the navigator, whose methods are then called by the reader; of
	// a *NoFit the nodes are counted when it is read.
	Why error
	// Began is when the engine first found the reason, without a break since; zero for WaitUnplanned and WaitUnowned.
	Began time.Time
	// Again is when the work is planned again although no change could help it; zero: in the next pass that has room for
	// it.
	Again time.Time
}

// Backlog returns all pending capsules of a state, each in one row: for which engine it waits, since when, and why. The
// rows are sorted by priority, the highest first, and then in the order of submission.
//
// The reasons are the latest that the engines have found, whatever the revision of the state, which must come from the
// ledger of the engines. Backlog may be called from any goroutine while the engines run, and never waits for a pass. It
// costs a look at each capsule of the state up to the last pending one; engines keep the reasons at no cost that a pass
// would notice. Of an engine that is not [Engine.Running] the reason is that another process may run it and know why; an
// engine of another process that is not in the list has no reasons.
func Backlog(state *State, engines ...*Engine) []BacklogRow {
	if state == nil {
		return nil
	}
	b := backlog{rows: map[backlogKey]*BacklogRow{}, owners: map[claim]int{}, texts: map[error]string{}}
	for _, e := range engines {
		if e != nil {
			b.engines = append(b.engines, e)
			reasons := &reasonBook{trouble: errNotRunning} // what it has found is out of date
			if e.Running() {
				reasons = e.reasons.copied()
			}
			b.reasons = append(b.reasons, reasons)
		}
	}
	left := state.PendingCount()
	for c := range state.Capsules() {
		if left == 0 {
			break
		}
		if c.Pending() {
			left--
			b.add(state, c)
		}
	}
	return b.sorted()
}

// backlog collects the rows of a Backlog.
type backlog struct {
	engines []*Engine
	// The reasons of each engine.
	reasons []*reasonBook
	rows    map[backlogKey]*BacklogRow
	// The position of the engine that claims a pair; -1: none.
	owners map[claim]int
	// The texts of reasons that were read.
	texts map[error]string
}

// backlogKey is what the capsules of one row have in common.
type backlogKey struct {
	engine *Engine
	kind   WaitKind
	spec   *Spec
	gang   GangID
	owner  string
	// The text of the reason; empty for a *NoFit, which all capsules of the class share.
	why string
}

// add adds a pending capsule to its row.
func (b *backlog) add(state *State, c *Capsule) {
	row := BacklogRow{Kind: WaitUnowned}
	if i := b.ownerOf(c); i < 0 {
		row.Why = unownedError(c)
	} else {
		why, parked := b.reasons[i].find(state, c)
		row = BacklogRow{Kind: why.kind, Engine: b.engines[i], Why: why.why, Began: why.began}
		if parked != nil {
			row.Again = parked.until
		}
	}
	key := backlogKey{row.Engine, row.Kind, c.Spec, c.Gang(), c.Owner(), b.textOf(row.Why)}
	r := b.rows[key]
	if r == nil {
		r = &row
		b.rows[key] = r
	}
	r.Capsules = append(r.Capsules, c)
	if at := c.SubmitTime(); at != 0 && (r.Since == 0 || at < r.Since) {
		r.Since = at
	}
	if row.Began.Before(r.Began) {
		r.Began = row.Began
	}
}

// ownerOf returns the position of the engine that owns a capsule; -1: none of the engines does.
func (b *backlog) ownerOf(c *Capsule) int {
	if owner := c.Owner(); owner != "" {
		return slices.IndexFunc(b.engines, func(e *Engine) bool { return e.Name == owner })
	}
	key := claim{c.Spec.Module, c.Spec.Class}
	i, known := b.owners[key]
	if !known {
		i = slices.IndexFunc(b.engines, func(e *Engine) bool {
			e.init()
			return e.fault == nil && e.owns("", c.Spec)
		})
		b.owners[key] = i
	}
	return i
}

// textOf returns the text of a reason; empty for a *NoFit, because reading it is expensive. The reason may be an error
// of a navigator, so its methods may panic.
func (b *backlog) textOf(why error) (text string) {
	asKey := reflect.TypeOf(why).Comparable()
	if asKey {
		if text, known := b.texts[why]; known {
			return text
		}
	}
	guard.Call(func() error {
		var nofit *NoFit
		if !errors.As(why, &nofit) {
			text = why.Error()
		}
		return nil
	}, func(error) {})
	if asKey {
		b.texts[why] = text
	}
	return text
}

// sorted returns the rows in their order.
func (b *backlog) sorted() []BacklogRow {
	out := make([]BacklogRow, 0, len(b.rows))
	for _, r := range b.rows {
		slices.SortFunc(r.Capsules, func(a, b *Capsule) int { return cmp.Compare(a.Submitted, b.Submitted) })
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b BacklogRow) int {
		x, y := a.Capsules[0], b.Capsules[0]
		return cmp.Or(cmp.Compare(y.Spec.Priority, x.Spec.Priority), cmp.Compare(x.Submitted, y.Submitted))
	})
	return out
}

// unownedError says why no engine plans a capsule.
func unownedError(c *Capsule) error {
	if c.Owner() != "" {
		return fmt.Errorf("it is assigned to %q, which is none of the engines", c.Owner())
	}
	return fmt.Errorf("no engine claims module %q, class %v; assign it to an engine, or let a navigator claim it", c.Spec.Module, c.Spec.Class)
}

// noteLeftOut notes what a plan has left out of the capsules that the navigator was given. Failed says that Plan has
// returned an error, which is the reason for all others.
func (e *Engine) noteLeftOut(pending []*Capsule, plan *Plan, failed bool) {
	silent := !failed && plan.maySilence(len(pending))
	if len(plan.Unplaced) == 0 && !silent {
		return
	}
	said := map[CapsuleID]bool{}
	leave := func(c *Capsule, why error) {
		if said[c.ID] = true; e.view.queue.parked.spots[c.Spec] != nil {
			delete(e.reasons.left, c.ID) // what was said of it before is out of date
			return
		}
		e.reasons.leave(c, WaitLeftOut, why, e.view.now)
	}
	e.reasons.mu.Lock()
	defer e.reasons.mu.Unlock()
	for _, u := range plan.Unplaced {
		if u.Capsule != nil {
			leave(u.Capsule, u.Why)
		}
	}
	if silent {
		plan.eachPlace(func(place *Place) { said[place.Capsule] = true })
		for _, c := range pending {
			if !said[c.ID] {
				leave(c, nil)
			}
		}
	}
	e.reasons.drop(e.view.state)
}

// show makes what the view shows readable beside the passes of the engine, and has the answers of the last plan that have
// not been read refer to it, so that they keep no older state in memory.
func (e *Engine) show() {
	v := &e.view
	if last := e.shown.Load(); last == nil || last.state != v.state || !sameSet(last.unleased, v.unleased) {
		v.unleasedKept = true
		e.shown.Store(&View{state: v.state, unleased: v.unleased, now: v.now})
	}
	for i, c := range e.unread {
		c.readLater(e.shown.Load)
		e.unread[i] = nil
	}
	e.unread = e.unread[:0]
}

// sameSet reports whether two sets share their memory, or are both empty.
func sameSet(a, b nodeSet) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
