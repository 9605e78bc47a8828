package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/inspect"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/promorbit"
	"github.com/orbitsched/orbit/score"
)

const (
	racks   = 8  // a zone
	perRack = 10 // nodes
	cores   = 16 // a node
)

var zones = []string{"a", "b", "c"}

// failing is the zone that fails in each round of trouble.
const failing = "b"

// queues divide the cores that tasks may use. Percent is how much of the tasks each of them has.
var queues = []struct {
	id            orbit.QueueID
	cores, weight int64
	percent       int
}{{"reports", 1300, 1, 20}, {"builds", 1300, 2, 30}, {"research", 400, 1, 50}}

// cluster is the constellation, the engines that work on it, and the page and metrics that show them.
type cluster struct {
	ledger  *orbit.MemoryLedger
	page    *inspect.Handler
	mux     *http.ServeMux
	engines []*orbit.Engine
	drain   *nav.Drain
	groups  *promorbit.Groups
	minute  time.Duration
	random  *rand.Rand
	// The running and pending capsules, oldest first, by kind.
	tasks, shops []orbit.CapsuleID
	made         int
	// Sums over the rounds of all engines.
	committed, lost atomic.Int64
	// Sums over the ledger's history, read up to the revision seen.
	seen  orbit.Revision
	moves moves
}

// moves counts the capsules that were taken off a node before their end, by the reason.
type moves struct {
	preempted atomic.Int64 // they made way for work of higher priority
	moved     atomic.Int64 // they were moved to another node, off a rack that was drained
	returned  atomic.Int64 // they were returned to pending, off such a rack
	failed    atomic.Int64 // they were lost with their node
}

// open makes the cluster with its permanent work.
func open(ctx context.Context, minute time.Duration) (*cluster, error) {
	c := &cluster{ledger: &orbit.MemoryLedger{}, minute: minute, mux: http.NewServeMux(), random: rand.New(rand.NewPCG(1, 2))}
	c.page = &inspect.Handler{Ledger: c.ledger}
	registry, metrics := prometheus.NewRegistry(), &promorbit.Engines{}
	c.groups = &promorbit.Groups{Ledger: c.ledger}
	registry.MustRegister(metrics, &promorbit.Ledger{Ledger: c.ledger}, c.groups)
	c.mux.Handle("/", c.page)
	c.mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	add := func(name string, n orbit.Navigator) {
		c.engines = append(c.engines, &orbit.Engine{Name: name, Ledger: c.ledger, Navigator: n, OnRound: func(r orbit.Round) {
			c.count(&r)
			metrics.Round(r)
			c.page.Round(r)
		}})
	}
	packed := func() *nav.Services {
		return &nav.Services{Placement: &place.Indexed{Score: score.BestFit{}}}
	}
	add("shops-east", packed())
	add("shops-west", packed())
	add("urgent", &nav.Preempting{Navigator: packed()})
	add("tasks", &nav.Fair{Navigator: &nav.Batch{}})
	add("gangs", &nav.Patient{Navigator: &nav.Gang{}})
	metrics.Engines, c.page.Engines = c.engines, c.engines
	c.drain = &nav.Drain{Ledger: c.ledger, MayWait: func(w *orbit.Capsule) bool { return w.Spec.Priority < 5 }}
	return c, c.fill(ctx)
}

// fill joins the nodes and submits the work that stays.
func (c *cluster) fill(ctx context.Context) error {
	var do []orbit.Commitment
	for _, zone := range zones {
		do = append(do, c.joinZone(zone)...)
	}
	do = append(do, orbit.PutQueue{Queue: orbit.Queue{ID: "tasks"}})
	for _, q := range queues {
		do = append(do, orbit.PutQueue{Queue: orbit.Queue{ID: q.id, Parent: "tasks", Nominal: map[string]int64{"cpu": q.cores * 1000}, Weight: q.weight}})
	}
	for _, shop := range []string{"shop", "search", "mail"} {
		spec := &orbit.Spec{Module: shop, Class: orbit.LatencySensitive, Priority: 5, Group: shop, Spread: orbit.Domains{Level: "zone"}, Envelope: asks(2, 6)}
		if shop == "mail" { // mail must be spread over zones; for the other shops that is a preference
			spec.Spread, spec.Even = orbit.Domains{}, []orbit.Even{{Group: shop, Level: "zone", MaxSkew: 5}}
		}
		do = append(do, c.submit(&c.shops, shop, 60, spec, "shops-east"), c.submit(&c.shops, shop, 60, spec, "shops-west"))
		do = append(do, orbit.PutBudget{Budget: orbit.Budget{ID: orbit.BudgetID(shop), Group: shop, Expected: 120, MissingPercent: 10}})
	}
	gang := &orbit.Spec{Module: "training", Class: orbit.GangClass, Priority: 6, Envelope: asks(4, 16), Devices: orbit.DeviceRequest{Count: 2, Milli: 1000}}
	for i := range 3 {
		g := orbit.Gang{ID: orbit.GangID(fmt.Sprint("training-", i)), Levels: []string{"rack", "zone"}, Roles: []orbit.Role{{Name: "worker", Spec: gang}}}
		for k := range 8 {
			g.Roles[0].Members = append(g.Roles[0].Members, orbit.CapsuleID(fmt.Sprintf("training-%d-%d", i, k)))
		}
		do = append(do, orbit.Submit{Gang: &g, At: now()})
	}
	for name, spec := range map[string]*orbit.Spec{
		"huge":      {Envelope: asks(40, 16)},
		"elsewhere": {Envelope: asks(1, 1), Require: []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{"d"}}}},
		"gpus":      {Envelope: asks(2, 8), Devices: orbit.DeviceRequest{Count: 8, Milli: 1000}},
	} {
		spec.Module = "impossible"
		do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(name)}, Spec: spec, Owner: "shops-east", At: now()})
	}
	_, err := c.ledger.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: do})
	return err
}

// now is the time as the ledger carries it.
func now() orbit.Instant { return orbit.Instant(time.Now().UnixNano()) }

func asks(cpu, gib int64) orbit.Envelope {
	return orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu * 1000, orbit.Memory: gib << 30}}
}

func nodeID(zone string, rack, i int) orbit.NodeID {
	return orbit.NodeID(fmt.Sprintf("%s%d-%d", zone, rack, i))
}

// joinZone joins the nodes of a zone. The nodes in its last two racks have devices.
func (c *cluster) joinZone(zone string) (do []orbit.Commitment) {
	for rack := range racks {
		for i := range perRack {
			n := orbit.Node{ID: nodeID(zone, rack, i), Capacity: asks(cores, 64).Reservation, Labels: map[string]string{"zone": zone, "rack": fmt.Sprintf("%s%d", zone, rack)}}
			if rack >= racks-2 {
				n.Devices = orbit.Devices{Model: "L4", Count: 4}
			}
			do = append(do, orbit.PutNode{Node: n})
		}
	}
	return do
}

// submit returns a submission of n capsules of one spec, and notes their ids.
func (c *cluster) submit(list *[]orbit.CapsuleID, kind string, n int, spec *orbit.Spec, owner string) orbit.Submit {
	ids := make([]orbit.CapsuleID, n)
	for i := range ids {
		c.made++
		ids[i] = orbit.CapsuleID(fmt.Sprintf("%s-%d", kind, c.made))
	}
	*list = append(*list, ids...)
	return orbit.Submit{IDs: ids, Spec: spec, Owner: owner, At: now()}
}

// count adds the figures of a round to the sums.
func (c *cluster) count(r *orbit.Round) {
	c.committed.Add(int64(r.Committed))
	c.lost.Add(int64(r.Conflicts))
}

// follow counts what the history has about capsules that leave their nodes, until ctx ends. The history has it all,
// whichever engine, drain or person proposed it.
func (c *cluster) follow(ctx context.Context) {
	for changes, err := range orbit.Follow(ctx, c.ledger, c.seen) {
		if err != nil {
			c.say(err)
			return
		}
		c.record(changes)
	}
}

// record counts changes.
func (c *cluster) record(changes []orbit.Change) {
	for i := range changes {
		c.seen = changes[i].Revision
		switch do := changes[i].Do.(type) {
		case orbit.Evict:
			if do.For != "" || do.ForGang != "" {
				c.moves.preempted.Add(1)
			} else {
				c.moves.moved.Add(1)
			}
		case orbit.Release:
			switch {
			case do.Final || changes[i].Node == "":
			case strings.HasPrefix(string(changes[i].Node), failing):
				c.moves.failed.Add(1)
			default:
				c.moves.returned.Add(1)
			}
		}
	}
}

// live runs the engines, the drain and the trouble until ctx ends.
func (c *cluster) live(ctx context.Context) {
	var group sync.WaitGroup
	for _, e := range c.engines {
		group.Go(func() { c.say(e.Run(ctx)) })
	}
	group.Go(func() { c.say(c.drain.Run(ctx)) })
	group.Go(func() { c.say(c.groups.Run(ctx)) })
	group.Go(func() { c.follow(ctx) })
	group.Go(func() { c.trouble(ctx) })
	group.Wait()
}

// say prints an error of a part of the cluster; no error is expected.
func (c *cluster) say(err error) {
	if err != nil {
		fmt.Println("error:", err)
	}
}

// print prints the last lines.
func (c *cluster) print(ctx context.Context) error {
	s, err := c.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := s.Verify(); err != nil {
		return fmt.Errorf("the ledger's recount fails: %w", err)
	}
	rest, err := c.ledger.Changes(ctx, c.seen)
	if err != nil {
		return err
	}
	c.record(rest)
	placed := 0
	for n := range s.Nodes() {
		placed += n.Capsules
	}
	m := &c.moves
	fmt.Printf("\nlive: %d capsules placed, %d wait; %d commits of engines, %d bets lost; %d made way for urgent work, drains moved %d and returned %d to pending, %d were lost with zone %s; verify: ok\n",
		placed, s.PendingCount(), c.committed.Load(), c.lost.Load(), m.preempted.Load(), m.moved.Load(), m.returned.Load(), m.failed.Load(), failing)
	return nil
}

// fullness returns how much of the cores of all ready nodes is taken, in percent, and how many capsules wait.
func (c *cluster) fullness(ctx context.Context) (percent int64, waiting int, err error) {
	s, err := c.ledger.Snapshot(ctx)
	if err != nil {
		return 0, 0, err
	}
	used, capacity := int64(0), int64(1)
	for n := range s.Nodes() {
		if n.Node.Schedulable() {
			used, capacity = used+n.Used()[orbit.CPU], capacity+n.Node.Capacity[orbit.CPU]
		}
	}
	return 100 * used / capacity, s.PendingCount(), nil
}
