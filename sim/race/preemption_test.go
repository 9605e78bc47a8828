package race_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/sim/race"
)

// Where the seeds of the races for preemption begin, and how many the ordinary test tries.
var (
	preemptionSeed  = flag.Uint64("preemption.seed", 1, "the first seed of the races for preemption")
	preemptionSeeds = flag.Int("preemption.seeds", 100, "how many races for preemption are run")
)

// preempted sums up races for preemption.
type preempted struct {
	// Of worlds in which nothing ends by itself and no budget forbids anything: how many there were, and how many were evicted.
	full, evicted atomic.Int64
	// Of worlds with tasks that end by themselves, and no faults: how many there were, urgent tasks, and proposals lost.
	churning, tasks, lost atomic.Int64
}

// add runs the race of a seed.
func (p *preempted) add(t *testing.T, seed uint64) {
	r := race.Preemption(seed)
	res := r.Run(seed)
	if res.Err != nil {
		t.Fatal(r.Shrink(res).Story())
	}
	needed, tasks, free := 0, 0, true
	for _, j := range r.Jobs[1:] {
		needed, tasks, free = needed+j.Tasks*j.Victims, tasks+j.Tasks, free && j.Within > 0
	}
	require.Zero(t, res.Repeats, "seed %d: evicted twice for the same", seed)
	switch {
	case !free:
	case !r.Jobs[0].Again:
		require.Equal(t, needed, res.Evictions, "seed %d: evictions", seed)
		p.full.Add(1)
		p.evicted.Add(int64(needed))
	case r.Faults.Conflict == 0:
		lost := 0
		for i := range res.Schedulers[1:] {
			lost += res.Schedulers[1+i].Conflicts
		}
		require.LessOrEqual(t, lost, 3*(tasks+len(res.Schedulers)-1), "seed %d: proposals lost for %d tasks", seed, tasks)
		p.churning.Add(1)
		p.tasks.Add(int64(tasks))
		p.lost.Add(int64(lost))
	}
}

// Preempting engines, a controller that replaces victims, agents, budgets and faults: as many are evicted as have to be, nobody for
// what is not placed, nobody twice for the same, and urgent work is placed in time, also beside tasks that come and go faster
// than its proposals. With -tags stress there are 5,000 races, times ORBIT_STRESS_SCALE.
func TestPreemption(t *testing.T) {
	const each = 500
	var sum preempted
	races := seeds(scale.Of(*preemptionSeeds, 5_000))
	t.Run("races", func(t *testing.T) {
		for from := 0; from < races; from += each {
			t.Run(fmt.Sprint("from ", from), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					for i := from; i < min(from+each, races); i++ {
						sum.add(t, *preemptionSeed+uint64(i))
					}
				})
			})
		}
	})
	t.Logf("%d races; %d in which nothing ends by itself: %d evictions, which are as many as have to be; repeats 0", races, sum.full.Load(), sum.evicted.Load())
	t.Logf("%d beside tasks that end all the time, without faults: %d urgent tasks placed, %d proposals lost", sum.churning.Load(), sum.tasks.Load(), sum.lost.Load())
	if races >= 100 {
		assert.Positive(t, sum.evicted.Load())
		assert.Positive(t, sum.lost.Load())
	}
}

// apart evicts by one proposal and places by one of the next plan, as schedulers do that have no commit for both.
type apart struct{ nav.Preempting }

func (a *apart) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := a.Preempting.Plan(ctx, view, pending)
	for i := range plan.Proposals {
		p := &plan.Proposals[i]
		if slices.ContainsFunc(p.Do, evicts) {
			p.Do, p.If = slices.DeleteFunc(p.Do, func(do orbit.Commitment) bool { return !evicts(do) }), nil
		}
	}
	return plan, err
}

func evicts(do orbit.Commitment) bool {
	e, ok := do.(orbit.Evict)
	return ok && e.For != ""
}

// lax is a ledger that commits something else than it shows.
type lax struct {
	orbit.MemoryLedger
	// instead returns what is committed instead of a proposal, what is shown of that (nil: what is committed is what was proposed),
	// and what is committed behind it, without being shown.
	instead func(s *orbit.State, p orbit.Proposal) (commit, show, behind []orbit.Commitment)
	shown   map[orbit.Revision][]orbit.Commitment
	hidden  map[orbit.Revision]bool
}

func (l *lax) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	s, err := l.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	known := s.Committed(p) != 0
	do, show, behind := l.instead(s, p)
	other := p
	if do != nil {
		other.Do = do
	}
	rev, err := l.MemoryLedger.Propose(ctx, other)
	if err != nil || known {
		return rev, err
	}
	if l.shown == nil {
		l.shown, l.hidden = map[orbit.Revision][]orbit.Commitment{}, map[orbit.Revision]bool{}
	}
	if do != nil {
		l.shown[rev] = show
	}
	for _, do := range behind {
		if rev, err := l.MemoryLedger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{do}}); err == nil {
			l.hidden[rev] = true
		}
	}
	return rev, nil
}

func (l *lax) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	return oneByOne(ctx, l, batch)
}

func (l *lax) Changes(ctx context.Context, after orbit.Revision) (out []orbit.Change, err error) {
	changes, err := l.MemoryLedger.Changes(ctx, after)
	seen := orbit.Revision(0)
	for _, c := range changes {
		shown, other := l.shown[c.Revision]
		switch {
		case l.hidden[c.Revision], other && seen == c.Revision:
		case other:
			seen = c.Revision
			for i, do := range shown {
				c.Do, c.Seq, c.Node = do, i, placedOn(do)
				out = append(out, c)
			}
		default:
			out = append(out, c)
		}
	}
	return out, err
}

func placedOn(do orbit.Commitment) orbit.NodeID {
	switch do := do.(type) {
	case orbit.Place:
		return do.Node
	case orbit.Evict:
		return do.From
	}
	return ""
}

// evictsAlone lets a proposal evict that places nothing.
func evictsAlone(_ *orbit.State, p orbit.Proposal) (commit, _, _ []orbit.Commitment) {
	for _, do := range p.Do {
		e, ok := do.(orbit.Evict)
		if !ok {
			return nil, nil, nil
		}
		commit = append(commit, orbit.Release{Capsule: e.Capsule, From: e.From, Stopped: true})
	}
	return commit, p.Do, nil
}

// sparesNobody evicts all that a proposal names and that is still there.
func sparesNobody(s *orbit.State, p orbit.Proposal) (commit, show, behind []orbit.Commitment) {
	reduced, err := s.Judge(p)
	if err != nil {
		return nil, nil, nil
	}
	for _, do := range p.Do {
		e, evicts := do.(orbit.Evict)
		switch {
		case !evicts || slices.Contains(reduced.Do, do):
		case s.Capsule(e.Capsule).Node != e.From || s.Capsule(e.Capsule).PlacedAt != e.Since:
			continue
		default:
			behind = append(behind, orbit.Release{Capsule: e.Capsule, From: e.From, Stopped: true})
		}
		show = append(show, do)
	}
	return p.Do, show, behind
}

// knowsNoBudgets takes budgets and forgets them.
func knowsNoBudgets(_ *orbit.State, p orbit.Proposal) (commit, _, _ []orbit.Commitment) {
	for i, do := range p.Do {
		if _, ok := do.(orbit.PutBudget); ok {
			commit = append(commit, orbit.Mark{Key: fmt.Sprint(i)})
		}
	}
	return commit, p.Do, nil
}

// stopsAtOnce takes what leaves for stopped.
func stopsAtOnce(_ *orbit.State, p orbit.Proposal) (_, _, behind []orbit.Commitment) {
	for _, do := range p.Do {
		if e, ok := do.(orbit.Evict); ok {
			behind = append(behind, orbit.Confirm{Capsule: e.Capsule, Since: e.Since, Stopped: true})
		}
	}
	return nil, nil, behind
}

// Each way to get evictions wrong is found within so many races, and told as one that is made small. The first is the bug of
// kubernetes/kubernetes#130429: one proposal evicts and the next one places.
func TestPreemptionFindsWhatIsBroken(t *testing.T) {
	scale.Sweep(t)
	for _, c := range []struct {
		name    string
		ledger  *lax
		planner func(*orbit.Navigator)
		rule    string
	}{
		{"evicts first, places later", &lax{instead: evictsAlone}, func(n *orbit.Navigator) {
			*n = &apart{nav.Preempting{Navigator: nav.Func((&nav.Services{}).Plan)}}
		}, "evicted in vain"},
		{"spares nobody", &lax{instead: sparesNobody}, nil, "evicted needlessly"},
		{"knows no budgets", &lax{instead: knowsNoBudgets}, nil, "budget broken"},
		{"takes what leaves for stopped", &lax{instead: stopsAtOnce}, nil, "runs beside"},
	} {
		t.Run(c.name, func(t *testing.T) {
			finds(t, 300, c.rule, func(seed uint64) *race.Config {
				r := race.Preemption(seed)
				r.Ledger = func() orbit.Ledger {
					return &lax{instead: c.ledger.instead, MemoryLedger: orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}}
				}
				r.Check = -1 // it is found by the rules of the race alone
				for i := range r.Schedulers {
					if was := r.Schedulers[i].Navigator; c.planner != nil && i > 0 {
						r.Schedulers[i].Navigator = func() orbit.Navigator {
							n := was()
							c.planner(&n)
							return n
						}
					}
				}
				return r
			})
		})
	}
}

// moveAll is a navigator that moves all that it owns to another node, in the proposal that places something new there.
type moveAll struct{ draft orbit.Draft }

func (*moveAll) Claims(string, orbit.AppClass) bool { return true }

func (n *moveAll) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	n.draft.Sync(view)
	to := orbit.Choice{Node: view.State().Node("n2")}
	for c := range view.State().On("n1") {
		if err := errors.Join(n.draft.Evict(orbit.Evict{Capsule: c.ID}), n.draft.Place(c, to)); err != nil {
			return plan, err
		}
	}
	for _, c := range pending {
		if err := n.draft.Place(c, to); err != nil {
			return plan, err
		}
	}
	plan.Proposals = append(plan.Proposals, n.draft.Propose())
	return plan, nil
}

// What a commit has placed itself is not healthy by the rules of the race: else one commit could move all members of a budget of which
// none may be missing.
func TestRaceFindsAllMembersMovedAtOnce(t *testing.T) {
	movable := cores(1, "m", orbit.BestEffort)
	movable.Movable = true
	finds(t, 1, "budget broken", func(uint64) *race.Config {
		return &race.Config{
			Nodes: cpus(2, 4), Check: -1, Sleep: time.Sleep,
			Schedulers: []race.Scheduler{{Name: "a", Together: -1, Navigator: func() orbit.Navigator { return &moveAll{} }}},
			Jobs: []race.Job{{Owner: "a", Spec: movable, Tasks: 2, On: []orbit.NodeID{"n1", "n1"}},
				{Owner: "a", Spec: cores(1, "trigger", orbit.BestEffort), Tasks: 1, At: 20 * ms}},
			Events: []race.Event{{At: 10 * ms, Do: []orbit.Commitment{orbit.PutBudget{Budget: orbit.Budget{ID: "b", Module: "m", Expected: 2}}}}},
			Ledger: func() orbit.Ledger { return &lax{instead: knowsNoBudgets} },
		}
	})
}

// halfFull is nodes with some room and some tasks of low priority, and urgent work that needs both the room and the place of
// the tasks, in one plan. Messages come late.
func halfFull(seed uint64) *race.Config {
	rng := rand.New(rand.NewPCG(seed, 1))
	r := &race.Config{Nodes: cpus(1+rng.IntN(2), 4), Sleep: time.Sleep, Faults: race.Faults{Late: 0.3, Longest: 32 * ms, Until: time.Second},
		Schedulers: []race.Scheduler{{Name: "low", Navigator: services(1)}, {Name: "urgent", Together: -1, ParkFor: 20 * ms,
			Backoff: orbit.Backoff{Initial: 2 * ms, Max: 20 * ms}, Navigator: func() orbit.Navigator { return &nav.Preempting{Navigator: &nav.Services{}} }}}}
	low := race.Job{Owner: "low", Spec: cores(1, "low", orbit.Batch)}
	for i := range r.Nodes {
		for range 1 + rng.IntN(3) {
			low.On, low.Tasks = append(low.On, r.Nodes[i].ID), low.Tasks+1
		}
	}
	urgent := race.Job{Owner: "urgent", At: 10 * ms, Spec: cores(1+rng.Int64N(2), "urgent", orbit.LatencySensitive), Within: 5 * time.Second}
	urgent.Spec.Priority = 10
	urgent.Tasks = int(4000/urgent.Spec.Envelope.Reservation[orbit.CPU]) * len(r.Nodes)
	r.Jobs = []race.Job{low, urgent}
	return r
}

// A plan takes free room and evicts on the same node. If the answer to the first proposal is late, the second one does not
// take its room and leave the victim where it is.
func TestPreemptionWhenMessagesAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if failed := race.Scenario(halfFull).Hunt(1, seeds(scale.Of(200, 5_000))); failed != nil {
			t.Fatal(failed.Story())
		}
	})
}
