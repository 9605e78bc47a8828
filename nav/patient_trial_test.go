package nav_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// patienceTrial is large work that waits among small: 3 nodes of 4 cores, endless tasks of one core and priority 0, of which
// one ends every 10 to 200 ms, and enough of which always wait to fill the nodes.
type patienceTrial struct {
	name string
	// What waits: a class, or a gang of so many members.
	class   orbit.AppClass
	members int
	cores   int64
	// Of what waits.
	priority int32
	// How many navigators place tasks; the first of them also has what waits, if shared.
	navigators int
	shared     bool
	// So many tasks are of a higher priority than what waits: every third, until there have been as many.
	rush int
	seed uint64
}

// patienceResult is how a trial went, in virtual time since the submission of what waits.
type patienceResult struct {
	placed    bool
	after     time.Duration
	nominated time.Duration
	// When the last of what ran on the nominated nodes then, or has come there since, had ended.
	ended time.Duration
	// Some of that still ran when a gang was placed, because room became free elsewhere.
	sooner bool
	// Tasks of its priority or a lower one that have come there since, where all of a node is nominated.
	arrived int
	// Tasks of its priority or a lower one that were submitted later and placed earlier.
	overtaken int
}

const patienceHorizon = 40 * time.Second

// engines returns those of the trial. Without patience they are the plain navigators.
func (p *patienceTrial) engines(l orbit.Ledger, patient bool) (out []*orbit.Engine) {
	wrap := func(n orbit.Navigator) orbit.Navigator {
		if !patient {
			return n
		}
		return &nav.Patient{Navigator: n, After: time.Second}
	}
	for i := range p.navigators {
		out = append(out, &orbit.Engine{Name: fmt.Sprint("tasks", i), Ledger: l, ParkFor: time.Second, Navigator: wrap(&nav.Batch{})})
	}
	if p.shared {
		return out
	}
	large := map[orbit.AppClass]orbit.Navigator{
		orbit.LatencySensitive: &nav.Services{}, orbit.Batch: &nav.Batch{}, orbit.GangClass: &nav.Gang{},
	}[p.class]
	return append(out, &orbit.Engine{Name: "large", Ledger: l, ParkFor: time.Second, Navigator: wrap(large)})
}

// submitLarge submits what waits.
func (p *patienceTrial) submitLarge(t *testing.T, l orbit.Ledger) {
	s := spec(p.cores, p.priority)
	s.Class, s.Module = p.class, "large"
	owner := "large"
	if p.shared {
		owner = "tasks0"
	}
	if p.members == 0 {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: s, Owner: owner})
		return
	}
	r := orbit.Role{Name: "worker", Spec: s}
	for i := range p.members {
		r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprint("large-", i)))
	}
	commit(t, l, orbit.Submit{Owner: owner, Gang: &orbit.Gang{ID: "large", Roles: []orbit.Role{r}}})
}

// large returns whether what waits is placed, and its nomination.
func (p *patienceTrial) large(s *orbit.State) (placed bool, n *orbit.Nomination) {
	if p.members > 0 {
		g := s.Gang("large")
		return g.Total() == p.members, g.Nomination
	}
	c := s.Capsule("large")
	return c.Placed(), c.Nomination()
}

// taskStream submits and ends the small work.
type taskStream struct {
	*patienceTrial
	l    orbit.Ledger
	rng  *rand.Rand
	next int
}

func (w *taskStream) submit(t *testing.T, n int) {
	for range n {
		s := spec(1, 0)
		if s.Class = orbit.Batch; w.next%3 == 0 && w.next < 3*w.rush {
			s.Priority = 2000
		}
		commit(t, w.l, orbit.Submit{
			IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("task-", w.next))}, Spec: s, Owner: fmt.Sprint("tasks", w.next%w.navigators),
		})
		w.next++
	}
}

// end ends one of the tasks that run; empty: none does.
func (w *taskStream) end(t *testing.T) orbit.CapsuleID {
	var running []orbit.CapsuleID
	for c := range snapshot(t, w.l).Capsules() {
		if c.Placed() && c.Spec.Module != "large" {
			running = append(running, c.ID)
		}
	}
	if len(running) == 0 {
		return ""
	}
	id := running[w.rng.IntN(len(running))]
	commit(t, w.l, orbit.Release{Capsule: id, Final: true})
	return id
}

// run runs the trial until what waits is placed, or the horizon.
func (p *patienceTrial) run(t *testing.T, patient bool) (r patienceResult) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		for i := range 3 {
			commit(t, l, node(fmt.Sprint("n", i), 4))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, e := range p.engines(l, patient) {
			e.OnRound = func(r orbit.Round) {
				if ctx.Err() == nil { // the trial is not over
					assert.Empty(t, r.Errors)
				}
				assert.Zero(t, r.Infeasible+r.Invalid)
			}
			all.Go(func() { assert.NoError(t, e.Run(ctx)) })
		}
		w := &taskStream{patienceTrial: p, l: l, rng: rand.New(rand.NewPCG(p.seed, 1))}
		w.submit(t, 12+4*p.navigators)
		time.Sleep(time.Second)
		p.submitLarge(t, l)
		r = p.watch(t, w)
		cancel()
		all.Wait()
		require.NoError(t, snapshot(t, l).Verify())
	})
	return r
}

// watch ends tasks, submits others, and notes what becomes of the one that waits.
func (p *patienceTrial) watch(t *testing.T, w *taskStream) (r patienceResult) {
	start, first := time.Now(), w.next
	before, made, parts := map[orbit.CapsuleID]bool{}, orbit.Revision(0), []orbit.NominatedRoom(nil)
	for time.Since(start) < patienceHorizon {
		until := time.Now().Add(time.Duration(10+w.rng.IntN(190)) * time.Millisecond)
		for time.Now().Before(until) {
			time.Sleep(5 * time.Millisecond)
			synctest.Wait()
			s := snapshot(t, w.l)
			placed, n := p.large(s)
			if r.placed = placed; placed {
				r.after = time.Since(start)
				r.overtaken = overtakers(s, first, p.priority)
				for i := range parts {
					for c := range s.On(parts[i].Node) {
						r.sooner = r.sooner || p.members > 1 && before[c.ID]
					}
				}
				return r
			}
			if n.Lives() {
				if r.nominated == 0 {
					r.nominated = time.Since(start)
				}
				r.arrived += p.blockers(s, n, before, n.Made == made)
				made, parts = n.Made, n.Parts
			}
		}
		if id := w.end(t); before[id] {
			r.ended = time.Since(start)
		}
		w.submit(t, 1)
	}
	r.overtaken = overtakers(snapshot(t, w.l), first, p.priority)
	return r
}

// blockers adds what runs on the nominated nodes, and counts it as arrived if the nomination was there before and it is not
// of higher priority.
func (p *patienceTrial) blockers(s *orbit.State, n *orbit.Nomination, known map[orbit.CapsuleID]bool, stood bool) (arrived int) {
	for i := range n.Parts {
		for c := range s.On(n.Parts[i].Node) {
			whole := n.Parts[i].Room[orbit.CPU] == s.Node(n.Parts[i].Node).Node.Capacity[orbit.CPU] // else there may be room beside it
			if whole && !known[c.ID] && stood && c.Spec.Priority <= p.priority {
				arrived++
			}
			known[c.ID] = true
		}
	}
	return arrived
}

// overtakers counts the tasks of at most the priority that were submitted after the first so many, and have been placed.
func overtakers(s *orbit.State, first int, priority int32) (n int) {
	for c := range s.Capsules() {
		i := 0
		if _, err := fmt.Sscanf(string(c.ID), "task-%d", &i); err == nil && i >= first && c.PlacedAt > 0 && c.Spec.Priority <= priority {
			n++
		}
	}
	return n
}

func patienceTrials() (out []*patienceTrial) {
	kinds := []patienceTrial{
		{name: "service of 4", class: orbit.LatencySensitive, cores: 4},
		{name: "service of 2", class: orbit.LatencySensitive, cores: 2},
		{name: "batch of 4 in the same navigator", class: orbit.Batch, cores: 4, shared: true},
		{name: "gang of 4 x 1", class: orbit.GangClass, members: 4, cores: 1},
		{name: "gang of 2 x 2", class: orbit.GangClass, members: 2, cores: 2},
		{name: "gang of 1 x 4", class: orbit.GangClass, members: 1, cores: 4},
	}
	for _, k := range kinds {
		for _, navigators := range []int{1, 2, 4, 8} {
			for _, priority := range []int32{1000, 0} {
				k.navigators, k.priority, k.seed = navigators, priority, uint64(len(out))
				p := k
				p.name = fmt.Sprintf("%s, priority %d, %d navigators", k.name, priority, navigators)
				out = append(out, &p)
			}
		}
	}
	return out
}

// Without a Patient large work of any priority starves; now and then two tasks that end at once let something of two cores in.
func TestLargeWorkStarvesWithoutPatience(t *testing.T) {
	scale.Long(t)
	scale.Sequential(t)
	starved, trials := 0, scale.Some(16, patienceTrials()...)
	for _, p := range trials {
		t.Run(p.name, func(t *testing.T) {
			r := p.run(t, false)
			t.Log(r)
			if !r.placed {
				starved++
			}
			assert.True(t, !r.placed || p.cores == 2, "placed after %v", r.after)
		})
	}
	assert.GreaterOrEqual(t, starved, len(trials)-4)
}

// With one it is nominated within After, ParkFor and a pass, and placed within a pass after what ran on its nodes then has
// ended.
func TestLargeWorkWithPatience(t *testing.T) {
	scale.Long(t)
	for _, p := range patienceTrials() {
		t.Run(p.name, func(t *testing.T) {
			for range scale.Of(1, 40) {
				p.served(t)
				p.seed += 1000
			}
		})
	}
}

// Tasks of higher priority go first, also to nominated nodes, and their ends are waited for.
func TestLargeWorkGivesWayToHigherPriority(t *testing.T) {
	scale.Long(t)
	for _, p := range patienceTrials() {
		if p.priority == 0 {
			continue
		}
		p.rush = 30
		t.Run(p.name, func(t *testing.T) {
			for range scale.Of(1, 40) {
				p.served(t)
				p.seed += 1000
			}
		})
	}
}

// served runs a trial with patience and judges it.
func (p *patienceTrial) served(t *testing.T) {
	r := p.run(t, true)
	require.True(t, r.placed, "seed %d: overtaken by %d", p.seed, r.overtaken)
	if !r.sooner {
		require.LessOrEqual(t, r.after, max(r.nominated, r.ended)+50*time.Millisecond, "seed %d: %+v", p.seed, r)
	}
	switch {
	case p.rush > 0:
	case p.priority > 0:
		require.LessOrEqual(t, r.nominated, 2*time.Second+50*time.Millisecond, "seed %d", p.seed)
		require.Zero(t, r.arrived, "seed %d", p.seed)
	default:
		require.LessOrEqual(t, r.arrived, 12+4*p.navigators, "seed %d: what had waited before it", p.seed)
	}
}
