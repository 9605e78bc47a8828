// Package crew runs navigators in operating-system processes. Each process has a ledger and a client of its own on one
// etcd.
//
// A program that uses it calls [process.Main] with [Role] and [Serve] first thing in main, or in TestMain.
package crew

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/nav"
)

// Role is the name under which [process.Main] must know [Serve].
const Role = "navigators"

// Config is the configuration of a crew's process.
type Config struct {
	// Endpoints are the addresses of etcd's members.
	Endpoints []string
	// Prefix is the prefix of the ledger.
	Prefix string
	// Engines are the engines that the process runs, each with a [nav.Services], or a [nav.Preempting] of one.
	Engines []Engine
	// MaxPlan is how many capsules an engine plans in one pass at most; see [orbit.Engine.MaxPlan].
	MaxPlan int
	// Timeout is how long the ledger waits for the answer to one request, Patience how long it tries in all; see
	// [etcdledger.Options].
	Timeout, Patience time.Duration
	// HoldBack is the name of an engine whose first proposals wait until GoOn; empty: none.
	HoldBack string
}

// Engine is one navigator of a crew.
type Engine struct {
	// Name is the engine's name.
	Name string
	// Modules are those of which it claims the capsules that have no owner.
	Modules []string
	// Preempting says that it evicts others for its work.
	Preempting bool
}

// Tally has the sums of the rounds of a crew.
type Tally struct {
	// Rounds is the number of rounds. The other numbers are sums of the fields of [orbit.Round] with the same names.
	Rounds, Committed, Conflicts, Infeasible, Invalid, Unknown, Failed int
	// Lost is how often another process has taken an index first, so that proposals of the crew were judged again.
	Lost int64
	// Errors are the texts of the rounds' errors, which include no conflicts, at most a hundred.
	Errors []string
}

// message is a report of a crew.
type message struct {
	Ready  bool          `json:"ready,omitempty"`
	Plans  bool          `json:"plans,omitempty"`
	Answer *audit.Answer `json:"answer,omitempty"`
	Round  *Tally        `json:"round,omitempty"`
}

// Crew is a running process. Its methods may be called from any goroutine.
type Crew struct {
	*process.Process
	answers *audit.Answers
	ready   chan struct{}
	plans   chan struct{}

	mu    sync.Mutex // guards tally
	tally Tally
}

// Start starts a crew. All answers of its ledger are added to answers.
func Start(c Config, answers *audit.Answers) (*Crew, error) {
	crew := &Crew{answers: answers, ready: make(chan struct{}), plans: make(chan struct{})}
	var err error
	if crew.Process, err = process.Start(Role, c, crew.heard); err != nil {
		return nil, err
	}
	return crew, nil
}

// Ready is closed when the crew has opened its ledger.
func (c *Crew) Ready() <-chan struct{} { return c.ready }

// Plans is closed when the engine that Config.HoldBack names has made its first plan.
func (c *Crew) Plans() <-chan struct{} { return c.plans }

// GoOn lets the engine that was held back go on.
func (c *Crew) GoOn() error { return c.Tell("go on") }

// Tally returns the sums of the crew's rounds so far.
func (c *Crew) Tally() Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tally
	t.Errors = slices.Clone(t.Errors)
	return t
}

// heard handles a report of the crew.
func (c *Crew) heard(line string) {
	var m message
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		return
	}
	if m.Ready {
		close(c.ready)
	}
	if m.Plans {
		close(c.plans)
	}
	if m.Answer != nil {
		c.answers.Add(*m.Answer)
	}
	if m.Round != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tally.Add(*m.Round)
	}
}

// Add adds another tally.
func (t *Tally) Add(o Tally) {
	t.Rounds += o.Rounds
	t.Committed += o.Committed
	t.Conflicts += o.Conflicts
	t.Infeasible += o.Infeasible
	t.Invalid += o.Invalid
	t.Unknown += o.Unknown
	t.Failed += o.Failed
	t.Lost += o.Lost
	if len(t.Errors) < 100 {
		t.Errors = append(t.Errors, o.Errors...)
	}
}

// Serve is the role of a crew: it runs its engines until its context ends.
func Serve(ctx context.Context, self *process.Self) error {
	var c Config
	if err := self.Config(&c); err != nil {
		return err
	}
	client, err := clientv3.New(cluster.ClientConfig(c.Endpoints))
	if err != nil {
		return fmt.Errorf("crew: %w", err)
	}
	defer func() { _ = client.Close() }()
	ledger, err := open(ctx, client, c)
	if err != nil {
		return err
	}
	defer func() { _ = ledger.Close() }()
	if err := self.Say(message{Ready: true}); err != nil {
		return err
	}
	witness := &audit.Witness{Ledger: ledger, Tell: func(_ *orbit.Proposal, a audit.Answer, _ error) {
		_ = self.Say(message{Answer: &a}) // if the report cannot be sent, the program has ended, and the context ends too
	}}
	ledgerOf := func(engine string) orbit.Ledger {
		if engine == c.HoldBack {
			return &heldBack{Witness: witness, self: self}
		}
		return witness
	}
	var all sync.WaitGroup
	var lost atomic.Int64 // those that have been reported
	report := func(r orbit.Round) {
		t, now := tally(r), ledger.Stats().Lost
		t.Lost = now - lost.Swap(now)
		_ = self.Say(message{Round: t})
	}
	for _, e := range c.Engines {
		engine := &orbit.Engine{
			Name: e.Name, Ledger: ledgerOf(e.Name), Navigator: e.navigator(), MaxPlan: c.MaxPlan,
			ParkFor: time.Second, Backoff: orbit.Backoff{Max: 200 * time.Millisecond},
			OnRound: report,
		}
		all.Go(func() { _ = engine.Run(ctx) })
	}
	all.Wait()
	return nil
}

// heldBack is a ledger whose first proposals wait until the crew is told to go on.
type heldBack struct {
	*audit.Witness
	self *process.Self
	once sync.Once
}

// Propose implements [orbit.Ledger].
func (h *heldBack) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	h.wait(ctx)
	return h.Witness.Propose(ctx, p)
}

// ProposeBatch implements [orbit.Batcher].
func (h *heldBack) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	h.wait(ctx)
	return h.Witness.ProposeBatch(ctx, batch)
}

// wait reports the first plan, and waits for the command to go on.
func (h *heldBack) wait(ctx context.Context) {
	h.once.Do(func() {
		_ = h.self.Say(message{Plans: true})
		select {
		case <-h.self.Told:
		case <-ctx.Done():
		}
	})
}

// open opens the ledger as soon as etcd answers.
func open(ctx context.Context, client *clientv3.Client, c Config) (ledger *etcdledger.Ledger, err error) {
	for {
		try, cancel := context.WithTimeout(ctx, 20*time.Second)
		ledger, err = etcdledger.Open(try, client, etcdledger.Options{Prefix: c.Prefix, Timeout: c.Timeout, Patience: c.Patience})
		cancel()
		if err == nil || ctx.Err() != nil {
			return ledger, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// tally returns the tally of one round.
func tally(r orbit.Round) *Tally {
	t := &Tally{Rounds: 1, Committed: r.Committed, Conflicts: r.Conflicts, Infeasible: r.Infeasible, Invalid: r.Invalid, Unknown: r.Unknown, Failed: r.Failed}
	for _, err := range r.Errors {
		if len(t.Errors) < 3 {
			t.Errors = append(t.Errors, err.Error())
		}
	}
	return t
}

// navigator returns what the engine runs.
func (e *Engine) navigator() orbit.Navigator {
	n := &navigator{modules: e.Modules}
	if e.Preempting {
		return &nav.Preempting{Navigator: n}
	}
	return n
}

// navigator places services of these modules.
type navigator struct {
	nav.Services
	modules []string
}

// Claims reports whether the module is among the navigator's.
func (n *navigator) Claims(module string, class orbit.AppClass) bool {
	return slices.Contains(n.modules, module) && n.Services.Claims(module, class)
}
