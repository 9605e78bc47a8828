package itest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/crew"
)

// chaos kills and restarts the members and processes that a load uses.
type chaos struct {
	t       *testing.T
	cluster *cluster.Cluster
	load    *load
	// The engines of the process with this number.
	engines func(i int) []crew.Engine
	rng     *rand.Rand
	crews   []*crew.Crew
	total   crew.Tally
	kills   map[string]int
}

// startCrews starts processes of navigators that all claim the same modules.
func (c *chaos) startCrews(n int) {
	for i := range n {
		c.crews = append(c.crews, c.startCrew(i))
	}
	for _, one := range c.crews {
		<-one.Ready()
	}
}

// startCrew starts one process. Every second one has little patience, so that it gets unknown outcomes more often.
func (c *chaos) startCrew(i int) *crew.Crew {
	one, err := crew.Start(crew.Config{
		Endpoints: c.cluster.Endpoints(), Prefix: "orbit/", MaxPlan: 100,
		Timeout: options().Timeout / time.Duration(1+9*(i%2)), Patience: options().Patience / time.Duration(1+19*(i%2)),
		Engines: c.engines(i),
	}, &c.load.answers)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = one.Kill() })
	return one
}

// stopCrews ends the processes and adds up their counts.
func (c *chaos) stopCrews() {
	for _, one := range c.crews {
		require.NoError(c.t, one.Stop(10*time.Second))
		c.total.Add(one.Tally())
	}
}

// progress waits until there are more acknowledged commits.
func (c *chaos) progress(n int) {
	if !c.load.advance(n, time.Minute) {
		c.explain()
		c.t.Fatalf("nothing gets on after %v", c.kills)
	}
}

// explain describes the state of the load as each member and ledger sees it.
func (c *chaos) explain() {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	leader, err := c.cluster.Leader(ctx)
	c.t.Logf("leader: %d, %v", leader, err)
	for who, l := range map[string]orbit.Ledger{"a new ledger": open(c.t, connect(c.t, c.cluster), options()), "the load's": c.load.ledger} {
		state, err := l.Snapshot(ctx)
		if err != nil {
			c.t.Logf("%s: %v", who, err)
			continue
		}
		c.t.Logf("%s: revision %d, %d capsules, %d pending", who, state.Revision(), state.CapsuleCount(), state.PendingCount())
	}
	c.t.Logf("the load: %d submitted, %d ended", c.load.submitted.Load(), c.load.ended.Load())
	for i, one := range c.crews {
		tally := one.Tally()
		c.t.Logf("crew %d: %+v", i, tally)
	}
	stacks := make([]byte, 1<<20)
	c.t.Logf("%s", stacks[:runtime.Stack(stacks, true)])
}

// pause waits for a random time, so that kills meet commits in all stages.
func (c *chaos) pause() { time.Sleep(time.Duration(c.rng.Int64N(int64(200 * time.Millisecond)))) }

// killCrew kills a process of navigators and starts another one in its place.
func (c *chaos) killCrew() {
	i := c.rng.IntN(len(c.crews))
	require.NoError(c.t, c.crews[i].Kill())
	c.kills["navigators"]++
	c.total.Add(c.crews[i].Tally())
	c.crews[i] = c.startCrew(i)
}

// killMember kills a member, every second time the leader, and starts it again from its directory.
func (c *chaos) killMember() {
	ctx := within(c.t, time.Minute)
	leader, err := c.cluster.Leader(ctx)
	require.NoError(c.t, err)
	victim, what := leader, "leaders"
	if other := c.rng.IntN(c.cluster.Size()); c.rng.IntN(2) == 0 && other != leader {
		victim, what = other, "followers"
	}
	require.NoError(c.t, c.cluster.Kill(victim))
	c.kills[what]++
	c.pause()
	require.NoError(c.t, c.cluster.Restart(ctx, victim))
}

// killAll kills all members at once, as a power failure does.
func (c *chaos) killAll() {
	var all sync.WaitGroup
	for i := range c.cluster.Size() {
		all.Go(func() { _ = c.cluster.Kill(i) })
	}
	all.Wait()
	c.kills["all members"] += c.cluster.Size()
	c.pause()
	errs := make([]error, c.cluster.Size())
	for i := range errs {
		all.Go(func() { errs[i] = c.cluster.Restart(within(c.t, time.Minute), i) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(c.t, err)
	}
}

// newChaos starts an etcd with a load.
func newChaos(t *testing.T, o cluster.Options, seed uint64) (*chaos, *clientv3.Client) {
	one := start(t, o)
	client := connect(t, one)
	return &chaos{t: t, cluster: one, load: newLoad(t, client, seed), engines: loadEngines, rng: rand.New(rand.NewPCG(seed, 2)), kills: map[string]int{}}, client
}

// loadEngines are those for the load's modules.
func loadEngines(i int) []crew.Engine {
	return []crew.Engine{{Name: fmt.Sprintf("crew-%d-web", i), Modules: []string{"web"}}, {Name: fmt.Sprintf("crew-%d-api", i), Modules: []string{"api"}}}
}

// rage kills members and processes, one or all at a time, while all of these work, and waits for progress after each kill.
func (c *chaos) rage(kills int, work ...func(context.Context)) {
	ctx, stop := context.WithCancel(c.t.Context())
	var working sync.WaitGroup
	for _, w := range work {
		working.Go(func() { w(ctx) })
	}
	defer working.Wait()
	defer stop()
	c.progress(50)
	for i := range kills {
		switch {
		case i%8 == 7:
			c.killAll()
		case i%2 == 0:
			c.killMember()
		default:
			c.killCrew()
		}
		c.progress(20)
		c.pause()
	}
}

// storm runs a load through that many kills.
func storm(t *testing.T, o cluster.Options, kills int, seed uint64) *chaos {
	began := time.Now()
	c, client := newChaos(t, o, seed)
	c.startCrews(2)
	c.rage(kills, c.load.run)
	c.load.settle(t, time.Minute)
	c.stopCrews()
	book := c.load.check(t, client)
	require.Positive(t, book.Places)
	t.Logf("kills %v in %v; submitted %d, ended %d; the crews' rounds: %d committed, %d conflicts, %d infeasible, %d unknown, %d failed", c.kills,
		time.Since(began).Round(time.Millisecond), c.load.submitted.Load(), c.load.ended.Load(), c.total.Committed, c.total.Conflicts, c.total.Infeasible, c.total.Unknown, c.total.Failed)
	return c
}

// No committed placement is lost or doubled while members, one or all of them, and processes of navigators are killed
// and started again under load.
func TestKillAndRestartUnderLoad(t *testing.T) {
	t.Parallel()
	storm(t, fast, scale(t, 24), 1)
}

// The same with only one member, so that each kill stops the whole ledger.
func TestKillAndRestartOfTheOnlyMember(t *testing.T) {
	t.Parallel()
	storm(t, cluster.Options{Members: 1, Heartbeat: fast.Heartbeat}, scale(t, 6), 2)
}
