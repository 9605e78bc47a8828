// Package control is the control process of a small orchestrator: a ledger, the engines that place on it, the leases of its nodes, a
// drainer, a loop that brings the ledger in line with the jobs, and an HTTP API.
//
//	HTTP API ── job/, drain/: marks; queues ──► Ledger ◄── engines: Place, Evict
//	                                            │   ▲ ▲
//	                        Wait, Snapshot ─────┘   │ └── agents: Confirm
//	plan: what the jobs want less what is there ────┘
//
// The control process keeps everything in the ledger. Before the API answers a request, the request is committed as a
// mark, or as a queue. The loop (plan) then proposes what is missing, from the state alone. So the process may be killed between any
// two commits, and the next one continues.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/pgledger"
	"github.com/orbitsched/orbit/promorbit"
	"github.com/orbitsched/orbit/telemetry"
	"github.com/orbitsched/orbit/watch"
)

// Config configures a control process.
type Config struct {
	// Ledger says where the ledger is: "file:" and a folder, "etcd:" and the endpoints of an etcd, separated by commas, or
	// the URL of a Postgres database, which begins with "postgres://".
	Ledger string
	// Peers are the URLs of the other control processes on the same ledger; its own may be among them. They need a ledger
	// in etcd or Postgres.
	Peers []string
	// TTL is how long a node is given work after its last report. After the same time again the node is lost.
	TTL time.Duration
}

// Control is a control process.
type Control struct {
	ledger   orbit.Ledger
	shared   lease.Refreshes // refreshes of leases that control processes share; nil: refreshes are in memory
	peers    []string
	local    *agent.Local
	engines  []*orbit.Engine
	drain    *nav.Drain
	draining atomic.Pointer[map[orbit.NodeID]bool]
	metrics  *prometheus.Registry
	close    func() error
}

// Open opens the ledger. Close ends it.
func Open(ctx context.Context, config Config) (*Control, error) {
	c := &Control{metrics: prometheus.NewRegistry(), peers: config.Peers}
	if err := c.open(ctx, config); err != nil {
		return nil, err
	}
	keeper := &lease.Keeper{Ledger: c.ledger, Refreshes: c.shared, TTL: config.TTL, Terms: -1}
	c.local = &agent.Local{
		Ledger: c.ledger, Members: &lease.Members{Leases: keeper, Gone: config.TTL}, Board: &telemetry.Board{Leases: keeper, Stale: config.TTL},
		Index: &watch.Index{Ledger: c.ledger},
	}
	rounds := &promorbit.Engines{}
	engine := func(name string, n orbit.Navigator) {
		c.engines = append(c.engines, &orbit.Engine{
			Name: name, Ledger: c.ledger, Navigator: &nav.Fair{Navigator: n}, Telemetry: c.local.Board, ParkFor: 2 * time.Second, OnRound: rounds.Round,
		})
	}
	engine("services", &nav.Preempting{Navigator: &nav.Services{}})
	engine("batch", &nav.Patient{Navigator: &nav.Batch{}})
	engine("gangs", &nav.Preempting{Navigator: &nav.Patient{Navigator: &nav.Gang{}}})
	rounds.Engines = c.engines
	c.metrics.MustRegister(rounds, &promorbit.Ledger{Ledger: c.ledger, Engines: c.engines})
	c.drain = &nav.Drain{Ledger: c.ledger, Telemetry: c.local.Board, Drains: func(n *orbit.Node) bool { return (*c.draining.Load())[n.ID] }}
	c.draining.Store(&map[orbit.NodeID]bool{})
	return c, nil
}

// open opens the ledger. Nothing else depends on where it is.
func (c *Control) open(ctx context.Context, config Config) error {
	report := func(err error) { slog.Error("ledger", "error", err) }
	switch kind, place, _ := strings.Cut(config.Ledger, ":"); kind {
	case "file":
		if len(config.Peers) > 0 {
			return errors.New("a ledger in a folder has one control process, which has no peers")
		}
		ledger, err := diskledger.Open(filepath.Join(place, "ledger"), diskledger.Options{OnError: report})
		if err != nil {
			return err
		}
		c.ledger, c.close = ledger, ledger.Close
		return nil
	case "etcd":
		return c.openEtcd(ctx, strings.Split(place, ","), report)
	case "postgres", "postgresql":
		return c.openPostgres(ctx, config.Ledger, report)
	}
	return fmt.Errorf("the ledger is %q; say file:FOLDER, etcd:ENDPOINTS or the URL of a Postgres database", config.Ledger)
}

// openEtcd opens a ledger in etcd. There several control processes share the refreshes of leases.
func (c *Control) openEtcd(ctx context.Context, endpoints []string, report func(error)) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	options := etcdledger.Options{Prefix: "orchestrator/", OnError: report}
	ledger, err := etcdledger.Open(ctx, client, options)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	c.ledger, c.shared = ledger, etcdledger.Refreshes(client, options)
	c.close = func() error { return errors.Join(ledger.Close(), client.Close()) }
	return nil
}

// openPostgres opens a ledger in Postgres. There, too, several control processes share the refreshes of leases.
func (c *Control) openPostgres(ctx context.Context, url string, report func(error)) error {
	options := pgledger.Options{OnError: report}
	ledger, err := pgledger.Open(ctx, url, options)
	if err != nil {
		return err
	}
	shared, err := pgledger.OpenRefreshes(ctx, url, options)
	if err != nil {
		return errors.Join(err, ledger.Close())
	}
	c.ledger, c.shared = ledger, shared
	c.close = func() error { return errors.Join(ledger.Close(), shared.Close()) }
	return nil
}

// Close closes the ledger. Run must have returned.
func (c *Control) Close() error { return c.close() }

// Run serves the API until ctx ends, or something fails that the process must not go on without.
func (c *Control) Run(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		c.local.Members.Run, c.local.Index.Run, (&orbit.Population{Engines: c.engines}).Run, c.drain.Run, c.follow,
	} {
		group.Go(func() error { return run(ctx) })
	}
	for _, url := range c.peers {
		group.Go(func() error { return followPeer(ctx, http.DefaultClient, c.local.Board, url) })
	}
	server := &http.Server{Handler: c.Handler(), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	return group.Wait()
}

// pace is how long follow waits after each plan, so that a burst of changes leads to one plan.
const pace = 50 * time.Millisecond

// follow brings the ledger in line with the jobs whenever the ledger changes; jobs are marks of the ledger.
func (c *Control) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		state, err := c.ledger.Snapshot(ctx)
		if err == nil {
			err = c.align(ctx, state)
		}
		if err == nil {
			_, err = c.ledger.Wait(ctx, state.Revision())
		}
		wait := pace
		if err != nil && ctx.Err() == nil {
			slog.Error("align the ledger with the jobs", "error", err)
			wait = time.Second
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

// align proposes the commitments that the jobs lack. It ignores conflicts: the change that won a conflict also ends the
// next wait, so the loop plans again.
func (c *Control) align(ctx context.Context, state *orbit.State) error {
	draining := map[orbit.NodeID]bool{}
	for key := range state.Marks(keyDrain) {
		draining[orbit.NodeID(key[len(keyDrain):])] = true
	}
	c.draining.Store(&draining)
	w := read(state)
	var failed []error
	for _, p := range w.plan(time.Now()) {
		if _, err := c.ledger.Propose(ctx, p); err != nil && !errors.Is(err, orbit.ErrConflict) {
			failed = append(failed, fmt.Errorf("%T: %w", p.Do[0], err))
		}
	}
	for name, err := range w.broken {
		slog.Error("job cannot be kept", "job", name, "error", err)
	}
	return errors.Join(failed...)
}
