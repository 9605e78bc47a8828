package agent

import (
	"context"
	"time"
)

// Runtime runs what is placed on a node: containers, virtual machines, processes. It belongs to one agent at a time, and what it runs
// should outlive the agent, so that an agent can be replaced. Its methods are called from several goroutines, at most one at a
// time for one instance, and should return when their context ends. After an error the agent asks List what has become of it, and
// tries again.
type Runtime interface {
	// Start starts an instance and returns. When it has returned nil, List lists the instance until Forget. Work that ends by itself is no
	// error of Start. When ctx has ended it must start nothing any more: the capsule may be another node's by then.
	Start(ctx context.Context, task Task) error
	// Stop ends an instance and returns when it runs no more. List lists it as ended afterwards.
	Stop(ctx context.Context, i Instance) error
	// Forget removes an instance that has ended from the list.
	Forget(ctx context.Context, i Instance) error
	// List returns everything that runs, or has ended and was not forgotten, also if another agent has started it.
	List(ctx context.Context) ([]Status, error)
}

// Watchdog is a [Runtime] that stops everything by itself when a time has come, though no agent is at work: each instance has a
// supervisor that reads the time, for example, or the machine has a watchdog that resets it. It must also keep the time itself when
// the agent is replaced.
type Watchdog interface {
	Runtime
	// Extend sets the time at which everything begins to stop. The runtime must have stopped everything within [Agent.Stopping] of
	// it, and start nothing after it, unless a later time has been set. Each report that is accepted sets a later one.
	Extend(ctx context.Context, until time.Time) error
}

// Status is what has become of an instance.
type Status struct {
	// Instance is the instance.
	Instance Instance
	// Phase is how far it is.
	Phase Phase
}

// Phase is how far an instance is.
type Phase uint8

// The phases of an instance.
const (
	// Running: it runs, and does not serve yet, or not any more.
	Running Phase = iota + 1
	// Ready: it runs and serves. For work that serves nobody, such as a batch job, this is as good as Running.
	Ready
	// Failed: it has ended, and its work is not done: the capsule returns to pending.
	Failed
	// Done: it has ended, and its work is done: the capsule is released for good.
	Done
)

func (p Phase) runs() bool { return p == Running || p == Ready }
