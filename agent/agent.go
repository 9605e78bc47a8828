package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
)

// ErrFenced means that no report has been accepted for so long that others may soon begin what is placed on the node. The agent has begun
// to stop everything.
var ErrFenced = errors.New("node is fenced")

// Agent looks after one node. Set the fields before Run. A node has one agent at a time.
type Agent struct {
	// Control is the rest of the world. Required.
	Control Control
	// Runtime runs what is placed on the node. Required.
	Runtime Runtime
	// Node describes the node: its id, what it has, and its labels. Confirms is set by the agent, and State ignored. Required.
	Node orbit.Node
	// Holder is the name under which the agent has the node's lease; default "agent of " and the id. Another holder cannot join
	// while the term lives. An agent that replaces another should have the same.
	Holder string
	// Every is how often the agent reports; default 10 s. It is also the longest that a call of Control may take, but for the start of
	// what is placed, and how long an agent whose runtime is no [Watchdog] has to join when it is new. Several reports should fit
	// in the leases' TTL.
	Every time.Duration
	// Poll is how often the runtime is asked what runs; default 1 s. Call Nudge where that is too late.
	Poll time.Duration
	// Stopping is how long it may take to stop everything; default 30 s. Stop gets so much time, and a node that is not heard of
	// begins to stop so much earlier. With Every it must be less than [Lease.Fence].
	Stopping time.Duration
	// Report, if set, is called before each report, to fill in what the node has: use, load, templates. Node, Term and At are set.
	Report func(*orbit.Report)
	// OnError, if set, is called with every error of Control and Runtime, conflicts excepted, and with [ErrFenced]. It must not block.
	// Nil: they are written to slog.Default(), at most ten at once and one more every 10 s.
	OnError func(error)

	once   sync.Once
	nudged chan struct{}
	log    rate.Log
}

// Nudge makes the agent ask its runtime at once what runs. It may be called from any goroutine.
func (a *Agent) Nudge() {
	a.init()
	select {
	case a.nudged <- struct{}{}:
	default:
	}
}

func (a *Agent) init() { a.once.Do(func() { a.nudged = make(chan struct{}, 1) }) }

// Run looks after the node until ctx ends, and then returns nil when all its calls of Control and Runtime have returned. It
// stops nothing then: another agent goes on. The error wraps [orbit.ErrInvalid] if a field is missing, or if [Lease.Fence] is too short.
func (a *Agent) Run(ctx context.Context) error {
	a.init()
	if a.Control == nil || a.Runtime == nil || a.Node.ID == "" {
		return fmt.Errorf("agent: %w: Agent needs Control, Runtime and Node.ID", orbit.ErrInvalid)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := newLoop(ctx, a)
	defer l.drain()
	defer cancel()
	for ctx.Err() == nil {
		if err := l.misfit(); err != nil {
			return err
		}
		wake := time.NewTimer(time.Until(l.step(time.Now())))
		select {
		case apply := <-l.done:
			l.flying--
			apply(time.Now())
		case <-a.nudged:
			l.look = true
		case <-wake.C:
		case <-ctx.Done():
		}
		wake.Stop()
	}
	return nil
}

// tell reports an error that is none of a context that has ended.
func (a *Agent) tell(err error) {
	if a.OnError != nil {
		a.OnError(err)
		return
	}
	a.log.Error(context.Background(), "orbit: error of a node's agent", err, slog.String("node", string(a.Node.ID)))
}

func (a *Agent) every() time.Duration    { return cmp.Or(max(a.Every, 0), 10*time.Second) }
func (a *Agent) poll() time.Duration     { return cmp.Or(max(a.Poll, 0), time.Second) }
func (a *Agent) stopping() time.Duration { return cmp.Or(max(a.Stopping, 0), 30*time.Second) }
func (a *Agent) holder() string          { return cmp.Or(a.Holder, "agent of "+string(a.Node.ID)) }

// retry is how long the agent waits after a call that has failed.
func (a *Agent) retry() time.Duration { return a.every() / 5 }
