package race

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

// liveDraws draws what goes wrong with the calls of one caller, each from its number.
type liveDraws struct {
	*livePlay
	name  string
	calls int
}

// next returns draws for the next call, and whether anything may go wrong still.
func (d *liveDraws) next() (*draws, bool) {
	d.calls++
	out := newDraw(d.draft.seed, d.name, d.calls)
	_, open := d.open()
	return &out, open
}

// liveLedger is the ledger as one engine has it.
type liveLedger struct {
	orbit.Ledger
	*livePlay
	engine string
	actor  int
	draws  *liveDraws
	// A population runs on one ledger, which it compares: what cannot be compared it takes for one.
	_ [0]func()
}

// unavailable reports whether a call is to fail, once it is the engine's turn.
func (l liveLedger) unavailable() error {
	l.turn(l.actor)
	if d, open := l.draws.next(); open && d.chance(l.draft.faults.unavailable) {
		l.note(l.engine, "the ledger is unavailable")
		return fmt.Errorf("%w: %w", orbit.ErrUnavailable, errMadeUp)
	}
	return nil
}

// Snapshot implements [orbit.Ledger].
func (l liveLedger) Snapshot(ctx context.Context) (*orbit.State, error) {
	if err := l.unavailable(); err != nil {
		return nil, err
	}
	return l.Ledger.Snapshot(ctx)
}

// Changes implements [orbit.Ledger].
func (l liveLedger) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if err := l.unavailable(); err != nil {
		return nil, err
	}
	return l.Ledger.Changes(ctx, after)
}

// Wait implements [orbit.Ledger].
func (l liveLedger) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	rev, err := l.Ledger.Wait(ctx, after)
	if err == nil {
		err = l.unavailable()
	}
	return rev, err
}

// Propose implements [orbit.Ledger].
func (l liveLedger) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	o := l.ProposeBatch(ctx, []orbit.Proposal{p})[0]
	return o.Revision, o.Err
}

// ProposeBatch implements [orbit.Batcher].
func (l liveLedger) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	if d, open := l.draws.next(); open && d.chance(l.draft.faults.delay) {
		time.Sleep(time.Duration(d.next() % uint64(40*time.Millisecond)))
	}
	l.turn(l.actor)
	l.mu.Lock()
	if !slices.ContainsFunc(batch, nominates) { // what waits is nominated when it has waited long enough, whatever happens
		l.sent = time.Since(l.start)
	}
	l.mu.Unlock()
	out := make([]orbit.Outcome, len(batch))
	for i := range batch {
		out[i].Revision, out[i].Err = l.one(ctx, &batch[i])
	}
	return out
}

// nominates reports whether a proposal makes a nomination.
func nominates(p orbit.Proposal) bool {
	return slices.ContainsFunc(p.Do, func(do orbit.Commitment) bool {
		n, is := do.(orbit.Nominate)
		return is && len(n.Parts) > 0
	})
}

// one proposes, and does to it what is drawn.
func (l liveLedger) one(ctx context.Context, p *orbit.Proposal) (orbit.Revision, error) {
	what := l.fault(p)
	if what != "" {
		l.note(l.engine, fmt.Sprintf("%s: %s", what, describe(p)))
	}
	switch what {
	case faultConflict:
		return 0, &orbit.Rejection{Kind: orbit.ErrConflict, Do: -1, Reason: errMadeUp.Error()}
	case faultUnavailable:
		return 0, fmt.Errorf("%w: %w", orbit.ErrUnavailable, errMadeUp)
	case faultLate:
		late := *p
		late.Do, late.If = slices.Clone(p.Do), slices.Clone(p.If)
		left, _ := l.open()
		time.AfterFunc(min(100*time.Millisecond, left), func() {
			l.turn(0)
			_, err := l.Ledger.Propose(context.Background(), late)
			l.note(l.engine, fmt.Sprintf("late: %s: %v", describe(&late), err))
		})
		return 0, fmt.Errorf("%w: %w", orbit.ErrUnknown, errMadeUp)
	case faultDropped:
		return 0, fmt.Errorf("%w: %w", orbit.ErrUnknown, errMadeUp)
	}
	rev, err := l.Ledger.Propose(ctx, *p)
	switch {
	case what == faultUnknown:
		return 0, fmt.Errorf("%w: %w", orbit.ErrUnknown, errMadeUp)
	case err != nil:
		l.note(l.engine, fmt.Sprintf("refused: %s: %v", describe(p), err))
	default:
		l.note(l.engine, fmt.Sprintf("committed at %d: %s", rev, describe(p)))
	}
	return rev, err
}

// fault draws what happens to a proposal.
func (l liveLedger) fault(p *orbit.Proposal) string {
	d, open := l.draws.next()
	if !open {
		return ""
	}
	f, now := &l.draft.faults, time.Since(l.start)-l.rested
	for _, b := range f.bursts {
		if b.engine == l.engine && b.from <= now && now < b.to {
			return b.what
		}
	}
	holds := slices.ContainsFunc(p.Do, func(do orbit.Commitment) bool { _, ok := do.(orbit.Hold); return ok })
	switch {
	case holds && d.chance(f.holds), d.chance(f.conflict):
		return faultConflict
	case d.chance(f.unavailable):
		return faultUnavailable
	case d.chance(f.lost):
		return faultUnknown
	case d.chance(f.dropped):
		return faultDropped
	case d.chance(f.late):
		return faultLate
	}
	return ""
}

// liveBoard is the reports as one engine has them.
type liveBoard struct {
	*telemetry.Board
	draws *liveDraws
}

// Reports implements [orbit.Telemetry].
func (b *liveBoard) Reports(ctx context.Context, after uint64) ([]orbit.Report, uint64, error) {
	if d, open := b.draws.next(); open && d.chance(b.draws.draft.faults.reports) {
		return nil, 0, errMadeUp
	}
	return b.Board.Reports(ctx, after)
}

// liveNavigator fails now and then.
type liveNavigator struct {
	orbit.Navigator
	*livePlay
	actor    int
	assigned bool
	draws    *liveDraws
}

// Claims implements [orbit.Navigator].
func (n *liveNavigator) Claims(module string, class orbit.AppClass) bool {
	return !n.assigned && n.Navigator.Claims(module, class)
}

// Plan implements [orbit.Navigator]. A plan that fails comes to nothing, but the navigator does not know that:
// it may have been made and lost.
func (n *liveNavigator) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	d, open := n.draws.next()
	if !open || !d.chance(n.draft.faults.plan) {
		return n.Navigator.Plan(ctx, view, pending)
	}
	if d.chance(0.5) {
		if _, err := n.Navigator.Plan(ctx, view, pending); err != nil {
			return orbit.Plan{}, err
		}
	}
	switch d.next() % 3 {
	case 0:
		panic(errMadeUp)
	case 1:
		time.Sleep(150 * time.Millisecond) // past the deadline and its grace
		n.turn(n.actor)
	}
	return orbit.Plan{}, errMadeUp
}
