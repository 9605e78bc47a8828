package agent

import (
	"context"
	"time"
)

// Runtime runs capsules on a node, for example as containers, virtual machines or processes. It belongs to one agent at
// a time. The instances should outlive the agent, so that an agent can be replaced. The methods are called from several
// goroutines, but at most one call at a time is about the same instance; they should return when their context ends.
// After an error the agent calls List to see the state of the instance, and tries again.
type Runtime interface {
	// Start starts an instance and returns, without waiting for its end. Once it has returned nil, List lists the
	// instance until Forget is called. If the instance ends by itself, even at once, that is no error of Start. After
	// ctx has ended, Start must not start anything, because the capsule may be placed on another node by then.
	Start(ctx context.Context, task Task) error
	// Stop ends an instance, and returns when it no longer runs. List then lists it as ended.
	Stop(ctx context.Context, i Instance) error
	// Forget removes an instance that has ended from the list.
	Forget(ctx context.Context, i Instance) error
	// List returns every instance that runs, or has ended and was not forgotten, including those that another agent has
	// started.
	List(ctx context.Context) ([]Status, error)
}

// Watchdog is a [Runtime] that stops everything by itself at a set time, even if no agent is running. For example, each
// instance has a supervisor that knows the time, or the machine has a watchdog that resets it. The time that
// was set stays in force when the agent is replaced.
type Watchdog interface {
	Runtime
	// Extend sets the time at which everything begins to stop; each accepted report sets a later one. When the time
	// comes, the runtime must stop everything within [Agent.Stopping], and must start nothing until a later time is
	// set.
	Extend(ctx context.Context, until time.Time) error
}

// Status is the state of an instance in the runtime.
type Status struct {
	// Instance is the instance.
	Instance Instance
	// Phase is the instance's phase.
	Phase Phase
}

// Phase is a stage in the life of an instance.
type Phase uint8

// The phases of an instance.
const (
	// Running means that the instance runs but does not serve: it still starts, or it has stopped serving.
	Running Phase = iota + 1
	// Ready means that the instance runs and serves. For work that serves no clients, such as a batch job, Ready and
	// Running are equally good.
	Ready
	// Failed means that the instance has ended and its work is not done. The capsule returns to pending.
	Failed
	// Done means that the instance has ended and its work is done. The capsule is released for good.
	Done
)

func (p Phase) runs() bool { return p == Running || p == Ready }
