package race_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/sim/race"
)

// hiding is a ledger that makes commits which no history shows, so that it can break its own rules.
type hiding struct {
	orbit.MemoryLedger
	mu     sync.Mutex
	hidden map[orbit.Revision]bool
}

func (l *hiding) hide(do orbit.Commitment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rev, _ := l.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{do}})
	if l.hidden == nil {
		l.hidden = map[orbit.Revision]bool{}
	}
	l.hidden[rev] = true
}

// force commits a proposal on a node as if there were a hundred times as much CPU.
func (l *hiding) force(p orbit.Proposal, on orbit.NodeID) (orbit.Revision, error) {
	now, _ := l.Snapshot(context.Background())
	was := *now.Node(on).Node
	roomy := was
	roomy.Capacity[orbit.CPU] *= 100
	l.hide(orbit.PutNode{Node: roomy})
	defer l.hide(orbit.PutNode{Node: was})
	return l.Propose(context.Background(), orbit.Proposal{ID: p.ID, Do: p.Do})
}

func (l *hiding) Changes(ctx context.Context, after orbit.Revision) (out []orbit.Change, err error) {
	changes, err := l.MemoryLedger.Changes(ctx, after)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if !l.hidden[c.Revision] {
			out = append(out, c)
		}
	}
	return out, err
}

// checkThenAct looks whether a proposal holds, and then writes without looking again.
type checkThenAct struct{ hiding }

func (l *checkThenAct) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	state, err := l.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	if err := state.Check(p); err != nil {
		return 0, err
	}
	race.Step(ctx, "between check and act")
	rev, err := l.MemoryLedger.Propose(ctx, p)
	place, ok := p.Do[0].(orbit.Place)
	if err == nil || !ok {
		return rev, err
	}
	now, _ := l.Snapshot(ctx)
	if at := now.Capsule(place.Capsule); at.Placed() {
		l.hide(orbit.Release{Capsule: place.Capsule, Stopped: true})
	}
	return l.force(p, place.Node)
}

func (l *checkThenAct) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	return oneByOne(ctx, l, batch)
}

func oneByOne(ctx context.Context, l orbit.Ledger, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	for i := range batch {
		out[i].Revision, out[i].Err = l.Propose(ctx, batch[i])
	}
	return out
}

// lostWake looks whether there is something newer, and then asks to be woken by what comes next.
type lostWake struct {
	orbit.MemoryLedger
	mu      sync.Mutex
	waiting []chan struct{}
}

func (l *lostWake) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	rev, err := l.MemoryLedger.Propose(ctx, p)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		close(w)
	}
	l.waiting = nil
	return rev, err
}

func (l *lostWake) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	return oneByOne(ctx, l, batch)
}

func (l *lostWake) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	state, err := l.Snapshot(ctx)
	if err != nil || state.Revision() > after {
		return state.Revision(), err
	}
	race.Step(ctx, "between looking and asking to be woken")
	l.mu.Lock()
	wake := make(chan struct{})
	l.waiting = append(l.waiting, wake)
	l.mu.Unlock()
	select {
	case <-wake:
		return l.Wait(ctx, after)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// tornGang commits the second half of a large proposal by itself.
type tornGang struct{ orbit.MemoryLedger }

func (l *tornGang) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if _, ok := p.Do[0].(orbit.Place); !ok || len(p.Do) < 2 {
		return l.MemoryLedger.Propose(ctx, p)
	}
	half := p
	half.Do, p.Do = p.Do[:len(p.Do)/2], p.Do[len(p.Do)/2:]
	if rev, err := l.MemoryLedger.Propose(ctx, half); err != nil {
		return rev, err
	}
	race.Step(ctx, "between the halves")
	p.ID[15]++
	return l.MemoryLedger.Propose(ctx, p)
}

func (l *tornGang) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	return oneByOne(ctx, l, batch)
}

// staleCache shows a snapshot that it has for a while.
type staleCache struct {
	orbit.MemoryLedger
	cached *orbit.State
	reads  int
}

func (l *staleCache) Snapshot(ctx context.Context) (*orbit.State, error) {
	if l.reads++; l.cached == nil || l.reads%5 == 0 {
		l.cached, _ = l.MemoryLedger.Snapshot(ctx)
	}
	return l.cached, nil
}

// excuse says that a proposal lost when it has committed it and was interrupted.
type excuse struct {
	orbit.MemoryLedger
	commits int
}

func (l *excuse) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	rev, err := l.MemoryLedger.Propose(ctx, p)
	if l.commits++; err == nil && l.commits%7 == 0 {
		return 0, &orbit.Rejection{Kind: orbit.ErrConflict, Do: -1, Reason: "timeout", At: rev}
	}
	return rev, err
}

func (l *excuse) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	return oneByOne(ctx, l, batch)
}

// forgetful acknowledges what it has refused, if that was proposed before.
type forgetful struct {
	orbit.MemoryLedger
	seen map[orbit.ProposalID]bool
}

func (l *forgetful) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	rev, err := l.MemoryLedger.Propose(ctx, p)
	if l.seen == nil {
		l.seen = map[orbit.ProposalID]bool{}
	}
	if err != nil && l.seen[p.ID] {
		state, _ := l.Snapshot(ctx)
		return state.Revision(), nil
	}
	l.seen[p.ID] = true
	return rev, err
}

func (l *forgetful) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	return oneByOne(ctx, l, batch)
}

// unreserved plans every capsule as if it were alone.
type unreserved struct {
	place.Exhaustive
	draft orbit.Draft
}

func (n *unreserved) Claims(string, orbit.AppClass) bool { return true }

func (n *unreserved) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	for _, c := range pending {
		n.draft.Sync(view)
		if err := n.draft.PlaceBest(n, c); err == nil {
			plan.Proposals = append(plan.Proposals, n.draft.Propose())
		}
	}
	return plan, nil
}

// oneChance plans every capsule once: if that loses, its local books still have it.
type oneChance struct {
	place.Exhaustive
	draft   orbit.Draft
	planned map[orbit.CapsuleID]bool
}

func (n *oneChance) Claims(string, orbit.AppClass) bool { return true }

func (n *oneChance) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	if n.planned == nil {
		n.planned = map[orbit.CapsuleID]bool{}
	}
	n.draft.Sync(view)
	for _, c := range pending {
		if n.planned[c.ID] {
			continue
		}
		if err := n.draft.PlaceBest(n, c); err != nil {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: err})
			continue
		}
		n.planned[c.ID] = true
		plan.Proposals = append(plan.Proposals, n.draft.Propose())
	}
	return plan, nil
}

// blind proposes the first node, whether there is room or not.
type blind struct{}

func (blind) Claims(string, orbit.AppClass) bool { return true }

func (blind) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	for _, c := range pending {
		plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: c.ID, Node: "n1"}}})
	}
	return plan, nil
}

// Every broken ledger and navigator is found, by the rule that it breaks; the failure shrinks to a story of a few
// steps, and replays, whole and shrunk.
func TestRaceFindsWhatIsBroken(t *testing.T) {
	scale.Long(t)
	ledgers := func(make func() orbit.Ledger) func(*race.Config) { return func(r *race.Config) { r.Ledger = make } }
	navigators := func(make func() orbit.Navigator) func(*race.Config) {
		return func(r *race.Config) {
			for i := range r.Schedulers {
				r.Schedulers[i].Navigator = make
			}
		}
	}
	live := func(r *race.Config) { r.Bound, r.Faults.Until = 1000, 5*time.Second }
	for _, c := range []struct {
		name   string
		rules  string
		race   *race.Config
		damage func(*race.Config)
		most   int // decisions and schedulers of the shrunk failure
		need   int
	}{
		{"check then act", "oversubscribed|placed twice", contest(), ledgers(func() orbit.Ledger { return &checkThenAct{} }), 4, 2},
		{"lost wake-up", "slept through", contest(), ledgers(func() orbit.Ledger { return &lostWake{} }), 3, 1},
		{"torn gang", "torn", gangs(), ledgers(func() orbit.Ledger { return &tornGang{} }), 0, 1},
		{"stale cache", "answer from the past", contest(), ledgers(func() orbit.Ledger { return &staleCache{} }), 0, 0},
		{"timeout reported as conflict", "refused but committed", contest(), ledgers(func() orbit.Ledger { return &excuse{} }), 2, 1},
		{"acknowledged and not there", "lost commit", contest(), ledgers(func() orbit.Ledger { return &forgetful{} }), 3, 2},
		{"no local reservation", "loses to itself", contest(), navigators(func() orbit.Navigator { return &unreserved{} }), 0, 1},
		{"planned once", "none awake|not placed in time", contest(), func(r *race.Config) {
			live(r)
			navigators(func() orbit.Navigator { return &oneChance{} })(r)
		}, 1, 1},
		{"blind", "navigator's mistake|loses to itself", contest(), navigators(func() orbit.Navigator { return blind{} }), 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if scale.Race && c.name != "check then act" && c.name != "lost wake-up" {
				t.Skip("what is broken is the same without the race detector, in a tenth of the time")
			}
			synctest.Test(t, func(t *testing.T) { // the race waits patiently for those who are not woken
				c.damage(c.race)
				res := c.race.Hunt(1, 300)
				require.NotNil(t, res, "not found")
				rule, _, _ := strings.Cut(res.Err.Error(), ":")
				assert.Contains(t, strings.Split(c.rules, "|"), rule)
				assert.LessOrEqual(t, len(res.Decisions), c.most, "decisions")
				assert.Len(t, res.Config.Schedulers, c.need, "schedulers")
				assert.LessOrEqual(t, strings.Count(res.Story(), "\n"), 40, "lines")
				if t.Failed() || testing.Verbose() {
					t.Log("\n" + res.Story())
				}
				again := c.race.Run(res.Seed)
				assert.ErrorContains(t, again.Err, rule, "the seed that is printed")
				small := res.Config.Replay(res.Decisions)
				assert.Equal(t, res.History, small.History)
				assert.Equal(t, fmt.Sprint(res.Err), fmt.Sprint(small.Err))
			})
		})
	}
}

// heedless ignores every bet.
type heedless struct{ orbit.MemoryLedger }

// Propose implements [orbit.Ledger].
func (h *heedless) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	p.If = nil
	return h.MemoryLedger.Propose(ctx, p)
}

// ProposeBatch implements [orbit.Batcher].
func (h *heedless) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	for i := range batch {
		out[i].Revision, out[i].Err = h.Propose(ctx, batch[i])
	}
	return out
}

// TestRaceFindsIgnoredBets: a ledger that keeps its own rules and no bet oversubscribes nothing, and is found all
// the same.
func TestRaceFindsIgnoredBets(t *testing.T) {
	scale.Long(t)
	r := contest()
	r.Ledger = func() orbit.Ledger { return &heedless{} }
	for i := range r.Schedulers {
		r.Schedulers[i].Coarse = true
	}
	res := r.Hunt(1, 300)
	require.NotNil(t, res)
	assert.ErrorContains(t, res.Err, "bet:")
}
