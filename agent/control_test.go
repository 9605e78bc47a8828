package agent_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/internal/send"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/telemetry"
	"github.com/orbitsched/orbit/watch"
)

// control is a control process. It may be suspended by its gate, killed and started.
type control struct {
	world  *world
	gate   *gate
	remote *remote
	shared *refreshes // nil: its refreshes are in memory
	local  *agent.Local
	stop   func() // nil: it is not at work

	mu   sync.Mutex
	life *life // nil: it is not at work
}

// life is what other processes see of a process while it is at work.
type life struct {
	ctx   context.Context // ends with the process
	board *telemetry.Board
}

func newControl(w *world, shared *refreshes) *control {
	g := &gate{MemoryLedger: w.ledger}
	return &control{world: w, gate: g, remote: &remote{gate: g}, shared: shared}
}

// start begins the process, unless it is at work. All that it has from its predecessor is the ledger, and refreshes that are shared.
func (c *control) start() {
	if c.stop != nil {
		return
	}
	w := c.world
	members := &lease.Members{Leases: &lease.Keeper{Ledger: c.gate, TTL: ttl, Terms: -1}, Gone: gone}
	if c.shared != nil {
		members.Leases.Refreshes = gatedRefreshes{c.shared, c.gate}
	}
	board := &telemetry.Board{Leases: members.Leases}
	c.local = &agent.Local{Ledger: c.gate, Members: members, Board: board, Index: &watch.Index{Ledger: c.gate, OnError: func(error) {}}}
	engine := func(n orbit.Navigator, name string) *orbit.Engine {
		return &orbit.Engine{Name: name, Ledger: c.gate, Navigator: n, Telemetry: board, ParkFor: sec, OnError: func(error) {}}
	}
	population := &orbit.Population{Engines: []*orbit.Engine{
		engine(&nav.Preempting{Navigator: &nav.Services{}}, "services"), engine(&nav.Batch{}, "batch"), engine(&nav.Gang{}, "gangs"),
	}}
	drain := &nav.Drain{Ledger: c.gate, Drains: func(n *orbit.Node) bool { _, ok := w.draining.Load(n.ID); return ok }}
	ctx, cancel := context.WithCancel(w.ctx)
	runs := []func(context.Context) error{members.Run, c.local.Index.Run, population.Run, drain.Run}
	for _, peer := range w.controls {
		if peer != c {
			runs = append(runs, func(ctx context.Context) error { return c.follow(ctx, board, peer) })
		}
	}
	var group sync.WaitGroup
	for _, run := range runs {
		group.Go(func() { _ = run(ctx) })
	}
	c.announce(&life{ctx, board})
	c.remote.set(agent.Handler(c.local))
	c.stop = func() {
		c.remote.set(nil)
		c.announce(nil)
		cancel()
		group.Wait()
		c.stop = nil
	}
}

func (c *control) kill() {
	if c.stop != nil {
		c.stop()
	}
}

func (c *control) announce(l *life) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life = l
}

// follow reads the board of another process for as long as this one is at work.
func (c *control) follow(ctx context.Context, board *telemetry.Board, peer *control) error {
	for send.Pause(ctx, sec) {
		peer.mu.Lock()
		from := peer.life
		peer.mu.Unlock()
		if from == nil {
			continue
		}
		both, end := context.WithCancel(ctx)
		stop := context.AfterFunc(from.ctx, end)
		out, in := net.Pipe()
		var feeding sync.WaitGroup
		feeding.Go(func() { _ = from.board.Feed(both, gatedConn{out, both, peer.gate}) })
		_ = board.Follow(both, gatedConn{in, both, c.gate})
		end()
		feeding.Wait()
		stop()
	}
	return nil
}

// gatedConn is the end of a connection in a process that may be suspended.
type gatedConn struct {
	net.Conn
	ctx  context.Context
	gate *gate
}

func (c gatedConn) Write(p []byte) (int, error) {
	if err := c.gate.wait(c.ctx); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if gated := c.gate.wait(c.ctx); gated != nil {
		return 0, gated
	}
	return n, err
}

// refreshes are the refreshes that control processes share: a table of when each token ends.
type refreshes struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// gatedRefreshes are the refreshes as a process reaches them that may be suspended.
type gatedRefreshes struct {
	*refreshes
	gate *gate
}

func (r gatedRefreshes) Begin(ctx context.Context, d time.Duration) (string, error) {
	if err := r.gate.wait(ctx); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	token := fmt.Sprint("token-", len(r.until))
	r.until[token] = time.Now().Add(d)
	return token, nil
}

func (r gatedRefreshes) Keep(ctx context.Context, tokens []string) ([]time.Duration, error) {
	return r.each(ctx, tokens, func(token string) { r.until[token] = time.Now().Add(ttl) })
}

func (r gatedRefreshes) Left(ctx context.Context, tokens []string) ([]time.Duration, error) {
	return r.each(ctx, tokens, func(string) {})
}

// each calls do for all tokens that live, and returns for how long they do.
func (r gatedRefreshes) each(ctx context.Context, tokens []string, do func(string)) ([]time.Duration, error) {
	if err := r.gate.wait(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]time.Duration, len(tokens))
	for i, token := range tokens {
		if time.Now().Before(r.until[token]) {
			do(token)
			out[i] = time.Until(r.until[token])
		}
	}
	return out, nil
}
