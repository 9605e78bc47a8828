package itest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
	"github.com/orbitsched/orbit/etcdledger/itest/crew"
	sample "github.com/orbitsched/orbit/internal/scale"
)

// pressure is a load on full nodes: services of low priority take all there is, with a budget each, and urgent capsules, of which
// some end and others come all the time, evict them. Meanwhile nodes are drained.
type pressure struct {
	*load
	urgent int // that have been submitted
	// How many wishes of the drainer were refused by a budget, and how many were committed.
	refused, drained atomic.Int64
}

// Capsules of low priority of each of the two services, which take a tenth of a node each; urgent ones take two tenths. Together the budgets
// let fewer leave than all urgent ones need, so that some wait for others to end.
const (
	pressureLow    = loadNodes * 15 / 2
	pressureUrgent = 30
)

// newPressure puts the budgets and submits what has low priority, which is in two groups each.
func newPressure(t *testing.T, l *load) *pressure {
	p := &pressure{load: l}
	for _, module := range loadModules {
		ids := make([]orbit.CapsuleID, pressureLow)
		for i := range ids {
			ids[i] = orbit.CapsuleID(fmt.Sprintf("%s-%03d", module, i))
		}
		spec := &orbit.Spec{Module: module, Group: "low", Groups: []string{module + "-group"}, Movable: true, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 100}}}
		for some := range slices.Chunk(ids, 50) { // a transaction has no more
			require.Equal(t, audit.Committed, p.propose(t.Context(), orbit.Submit{IDs: some, Spec: spec}))
		}
	}
	for _, b := range []orbit.Budget{
		{ID: "web", Group: "web-group", Expected: pressureLow, Missing: 20},
		{ID: "api", Module: "api", Expected: pressureLow, MissingPercent: 12},
		{ID: "all", Group: "low", Expected: 2 * pressureLow, Missing: 40},
	} {
		require.Equal(t, audit.Committed, p.propose(t.Context(), orbit.PutBudget{Budget: b}))
	}
	return p
}

// run submits urgent capsules, and ends some of those that are placed, until a context ends. Then it ends all.
func (p *pressure) run(until context.Context) {
	alive, ctx := map[orbit.CapsuleID]bool{}, context.WithoutCancel(until) // it knows what became of each
	for until.Err() == nil {
		for len(alive) < pressureUrgent && until.Err() == nil {
			p.urgent++
			id := orbit.CapsuleID(fmt.Sprintf("urgent-%06d", p.urgent))
			spec := &orbit.Spec{Module: "urgent", Priority: 10, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 200}}}
			if p.propose(ctx, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}) == audit.Committed {
				alive[id] = true
			}
		}
		state, err := p.ledger.Snapshot(ctx)
		if err != nil {
			continue
		}
		ended := 0
		for id := range alive {
			if c := state.Capsule(id); c != nil && c.Placed() && ended < 3 && p.propose(ctx, orbit.Release{Capsule: id, Final: true}) == audit.Committed {
				delete(alive, id)
				ended++
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	for id := range alive {
		p.propose(ctx, orbit.Release{Capsule: id, Final: true})
	}
}

// drain cordons one node after the other, sends home what the budgets let go, and takes the cordon back, until ctx ends; and on, for up to a
// minute, until a budget has refused something: on a busy machine it may get to few nodes while servers are killed.
func (p *pressure) drain(ctx context.Context) {
	always := context.WithoutCancel(ctx)
	unrefused := func() bool { return p.refused.Load() == 0 }
	for i, began := 0, time.Now(); ctx.Err() == nil || unrefused() && time.Since(began) < time.Minute; i++ {
		state, err := p.ledger.Snapshot(always)
		if err != nil {
			continue
		}
		node := state.Node(orbit.NodeID(fmt.Sprintf("node-%02d", i%loadNodes)))
		cordoned, open := *node.Node, *node.Node
		cordoned.State, open.State = orbit.Cordoned, orbit.Ready
		p.propose(always, orbit.PutNode{Node: cordoned})
		for c := range state.On(node.Node.ID) {
			p.wish(always, c)
		}
		p.propose(always, orbit.PutNode{Node: open})
	}
}

// wish proposes that a capsule goes back to pending.
func (p *pressure) wish(ctx context.Context, c *orbit.Capsule) {
	_, err := p.ledger.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Release{Capsule: c.ID, From: c.Node}}})
	switch r := (*orbit.Rejection)(nil); {
	case err == nil:
		p.drained.Add(1)
	case errors.As(err, &r) && r.Budget != "":
		p.refused.Add(1)
	}
}

// preemptingEngines are those for all modules, two of which evict for what is urgent.
func preemptingEngines(i int) []crew.Engine {
	return append(loadEngines(i),
		crew.Engine{Name: fmt.Sprintf("crew-%d-urgent", i), Modules: []string{"urgent"}, Preempting: true},
		crew.Engine{Name: fmt.Sprintf("crew-%d-too", i), Modules: []string{"urgent"}, Preempting: true})
}

// While members and processes of preempting navigators are killed and started again, no budget is broken, nobody is evicted for what
// is not placed, and nothing is doubled, lost or oversubscribed. With -tags stress it goes on for longer, times ORBIT_STRESS_SCALE.
func TestKillAndRestartWithPreemption(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c, client := newChaos(t, fast, 3)
	c.engines = preemptingEngines
	p := newPressure(t, c.load)
	c.startCrews(2)
	c.load.settle(t, time.Minute)
	c.rage(sample.Of(scale(t, 16), 160), p.run, p.drain)
	c.load.settle(t, time.Minute)
	c.stopCrews()
	book := c.load.check(t, client)
	require.Positive(t, book.Evictions)
	require.Positive(t, p.refused.Load(), "no budget has refused a wish")
	require.Greater(t, book.Wishes, book.Evictions, "nothing was drained")
	state, err := open(t, client, etcdledger.Options{}).Snapshot(t.Context())
	require.NoError(t, err)
	for b := range state.Budgets() {
		require.Equal(t, b.Budget.Expected, b.Healthy, b.Budget.ID)
	}
	t.Logf("kills %v in %v; %d urgent; %d evicted, %d drained; in vain 0, budgets broken 0; %d wishes of the drainer refused by a budget", c.kills,
		time.Since(began).Round(time.Millisecond), p.urgent, book.Evictions, book.Wishes-book.Evictions, p.refused.Load())
	t.Logf("the crews' rounds: %d committed, %d conflicts, %d infeasible, %d unknown, %d failed", c.total.Committed, c.total.Conflicts, c.total.Infeasible,
		c.total.Unknown, c.total.Failed)
}
