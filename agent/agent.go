package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
)

// ErrFenced means that no report has been accepted for so long that the node's capsules may soon be placed on other
// nodes. The agent has begun to stop everything.
var ErrFenced = errors.New("node is fenced")

// ErrUnguarded means that the runtime is no [Watchdog]. Run reports it once, when it begins.
var ErrUnguarded = errors.New("the runtime is no Watchdog: while the agent is suspended or dead, nothing stops the node's capsules, and those that are then placed elsewhere run twice")

// Agent looks after one node. Set the fields before Run. A node has one agent at a time: a second one is refused with
// [lease.ErrRunning] or [lease.ErrHeld], and tries again until the first one is gone.
//
// [lease.ErrRunning]: https://pkg.go.dev/github.com/orbitsched/orbit/lease#ErrRunning
// [lease.ErrHeld]: https://pkg.go.dev/github.com/orbitsched/orbit/lease#ErrHeld
type Agent struct {
	// Control connects the agent with the ledger, the leases and the telemetry. Required.
	Control Control
	// Runtime starts and stops the capsules on the node. Required.
	Runtime Runtime
	// Node describes the node: its id, capacity, labels and devices. The agent sets Confirms and ignores State.
	// Required.
	Node orbit.Node
	// Machine is the name of the machine that the Runtime runs capsules on. Two machines must not have the same name,
	// even if they have the same Node.ID by mistake, so it must not be made of that id. It must not contain a "#". Default:
	// [ThisMachine].
	//
	// While one agent reports for a node, every other one with the same Node.ID is refused. When the first one is gone, an
	// agent of the same Machine joins at once, or within half of the TTL of the leases if the first one has crashed. An
	// agent of another Machine joins when what the first one has left running must have stopped ([Lease].Fence). So after
	// a reboot an agent waits that long, unless Machine is a name that the machine keeps, such as its serial number.
	Machine string
	// Every is the interval of reports; default 10 s. It is also the time limit of each call of Control and of
	// Runtime.List. If the runtime is no [Watchdog], it is also the time in which a new agent must hear from Control
	// before it stops everything. More than two reports must fit in the TTL of the leases.
	Every time.Duration
	// Poll is the interval at which the agent asks the runtime what runs; default 1 s. If that is too slow, call Nudge
	// as soon as something has changed.
	Poll time.Duration
	// Stopping is the time in which everything can be stopped; default 30 s. It is the time limit of Runtime.Stop, and
	// a node whose reports are not accepted begins to stop everything this long before its capsules may be placed
	// elsewhere. Stopping plus Every must be less than [Lease].Fence.
	Stopping time.Duration
	// Unguarded says that a Runtime that is no [Watchdog] is acceptable, so that Run does not report [ErrUnguarded].
	Unguarded bool
	// Report, if set, is called before each report to fill in the node's state, such as use, load and templates. Node,
	// Term and At are filled in already.
	Report func(*orbit.Report)
	// OnError, if set, is called with every error of Control and Runtime except conflicts, and with [ErrFenced] and
	// [ErrUnguarded]. It must not block. Nil: errors are written to slog.Default(), at most ten at once and one more every 10 s.
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

// Run looks after the node until ctx ends. It then waits until all its calls of Control and Runtime have returned, and
// returns nil. It leaves the capsules running, so that another agent can take over. If a field is missing, or if
// [Lease].Fence is not longer than Stopping plus Every, it returns an error that wraps [orbit.ErrInvalid].
func (a *Agent) Run(ctx context.Context) error {
	a.init()
	if a.Control == nil || a.Runtime == nil || a.Node.ID == "" {
		return fmt.Errorf("agent: %w: Agent needs Control, Runtime and Node.ID", orbit.ErrInvalid)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if strings.Contains(a.Machine, "#") {
		return fmt.Errorf("agent: %w: Agent.Machine is %q; it must not contain a \"#\"", orbit.ErrInvalid, a.Machine)
	}
	if _, guarded := a.Runtime.(Watchdog); !guarded && !a.Unguarded {
		a.report(fmt.Errorf("agent: node %q: %w; make it a Watchdog, or set Agent.Unguarded", a.Node.ID, ErrUnguarded))
	}
	l := newLoop(ctx, a)
	defer l.leave()
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

// report passes an error to OnError, or writes it to the log.
func (a *Agent) report(err error) {
	if a.OnError != nil {
		a.OnError(err)
		return
	}
	a.log.Error(context.Background(), "orbit: error of a node's agent", err, slog.String("node", string(a.Node.ID)))
}

func (a *Agent) every() time.Duration    { return cmp.Or(max(a.Every, 0), 10*time.Second) }
func (a *Agent) poll() time.Duration     { return cmp.Or(max(a.Poll, 0), time.Second) }
func (a *Agent) stopping() time.Duration { return cmp.Or(max(a.Stopping, 0), 30*time.Second) }

// newHolder returns the name of the holder of the node's lease for one Run: the machine and a name of the run.
func (a *Agent) newHolder() string {
	return cmp.Or(a.Machine, machine()) + "#" + orbit.NewProposalID().String()
}

// retry is how long the agent waits after a call that has failed.
func (a *Agent) retry() time.Duration { return a.every() / 5 }
