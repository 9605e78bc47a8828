package main

import (
	"context"
	"errors"
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// host is a simulated machine and the agent on it. What it runs it decides itself, at the word of the gateway (boot,
// stop) and by what the ledger says (reconcile); both may say the same, and it boots once.
type host struct {
	id        orbit.NodeID
	templates []string
	volumes   []string
	options   options
	ledger    orbit.Ledger
	boots     sync.WaitGroup // of reconcile
	hungry    chan struct{}  // has room for one: pools may have to be refilled

	mu sync.Mutex // guards what follows; a snapshot of the ledger is taken under it
	// Of a dead host nothing is true but this.
	dead bool
	// Its pools are empty and it says that they are not.
	lying      bool
	pool       map[string]int // warm slots by template
	sandboxes  map[orbit.CapsuleID]*process
	booting    int
	stopped    int            // of sandboxes: ended, and the ledger has not been told yet
	reconciled orbit.Revision // what the ledger has placed here is known up to here
	tally      hostTally
}

// hostTally counts what a host has done.
type hostTally struct {
	warm, cold, failed int // at the word of the gateway
	lies               int // of the cold, promised warm
	again              int // booted because the ledger said so: they had lost their host
}

// add adds up what several hosts have counted.
func (t *hostTally) add(o hostTally) {
	t.warm += o.warm
	t.cold += o.cold
	t.failed += o.failed
	t.lies += o.lies
	t.again += o.again
}

// process is a sandbox that runs, or boots.
type process struct {
	warm bool
	// Closed when it has booted, or never will.
	booted  chan struct{}
	failed  bool // set before that
	stopped bool
	// It was booted because the ledger said so, and the gateway has not asked for it.
	again bool
}

var (
	errDown = errors.New("connection refused")
	errFull = errors.New("503: no slot")
)

func newHost(id orbit.NodeID, o options, ledger orbit.Ledger) *host {
	return &host{
		id: id, options: o, ledger: ledger, hungry: make(chan struct{}, 1),
		pool: map[string]int{}, sandboxes: map[orbit.CapsuleID]*process{},
	}
}

// boot starts a sandbox at the word of the gateway, and returns when it runs.
func (h *host) boot(ctx context.Context, c *sandbox.Created) (warm bool, err error) {
	h.mu.Lock()
	s, mine, err := h.admit(ctx, c.Capsule, c.Spec.Start.Template)
	h.mu.Unlock()
	switch {
	case err != nil:
	case mine:
		h.bring(ctx, s)
	default:
		err = wait(ctx, s.booted)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && s.failed {
		err = errDown
	}
	switch {
	case err != nil:
		h.tally.failed++
		return false, err
	case s.warm:
		h.tally.warm++
	default:
		h.tally.cold++
		if c.Promised {
			h.tally.lies++
		}
	}
	return s.warm, nil
}

// admit finds room for a sandbox and takes a warm slot if there is one. Mine: the caller is the one to bring it up.
// It requires the lock.
func (h *host) admit(ctx context.Context, id orbit.CapsuleID, template string) (s *process, mine bool, err error) {
	if h.dead {
		return nil, false, errDown
	}
	if s := h.sandboxes[id]; s != nil {
		if s.again { // the ledger was faster than the gateway
			s.again = false
			h.tally.again--
		}
		return s, false, nil
	}
	if h.running() >= h.options.slots {
		h.reconcile(ctx) // something may have left that it has not been told of
	}
	if h.running() >= h.options.slots {
		return nil, false, errFull
	}
	return h.take(id, template), true, nil
}

// take begins to boot a sandbox. It requires the lock.
func (h *host) take(id orbit.CapsuleID, template string) *process {
	s := &process{booted: make(chan struct{})}
	if h.pool[template] > 0 {
		h.pool[template]--
		s.warm = true
		h.wake()
	}
	h.sandboxes[id] = s
	h.booting++
	return s
}

// bring boots a sandbox, which takes a moment. If the host dies meanwhile, it fails.
func (h *host) bring(ctx context.Context, s *process) {
	took := coldBoot
	if s.warm {
		took = warmBoot
	}
	err := sleep(ctx, h.options.of(took))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.booting--
	s.failed = s.failed || err != nil
	close(s.booted)
}

// stop ends a sandbox. The ledger is told after that, so that its slot is given to another only when it is free.
func (h *host) stop(id orbit.CapsuleID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sandboxes[id]; s != nil && !s.stopped {
		s.stopped = true
		h.stopped++
	}
}

// running is how many slots are in use. It requires the lock.
func (h *host) running() int { return len(h.sandboxes) - h.stopped }

// reconcile compares what runs with what the ledger has placed here: it kills what has left, and boots what the
// ledger has brought without the gateway. A sandbox that the gateway is about to start may be among these; then
// it need only wait. It requires the lock, under which the snapshot is taken: what it knows is never newer.
func (h *host) reconcile(ctx context.Context) {
	state, err := h.ledger.Snapshot(ctx)
	if err != nil {
		return // the next heartbeat tries again
	}
	n := state.Node(h.id)
	if n == nil || n.Usage == h.reconciled {
		return
	}
	h.reconciled = n.Usage
	for id, s := range h.sandboxes {
		if c := state.Capsule(id); c == nil || c.Node != h.id {
			delete(h.sandboxes, id)
			if s.stopped {
				h.stopped--
			}
		}
	}
	for c := range state.On(h.id) {
		if h.sandboxes[c.ID] == nil {
			s := h.take(c.ID, c.Spec.Start.Template)
			s.again = true
			h.tally.again++
			h.boots.Go(func() { h.bring(ctx, s) })
		}
	}
}

// die takes the host down with all that runs on it.
func (h *host) die() (lost int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost = h.running()
	h.dead, h.stopped = true, 0
	for _, s := range h.sandboxes {
		s.failed = true
	}
	clear(h.sandboxes)
	clear(h.pool)
	return lost
}

// reboot brings an empty and honest host up.
func (h *host) reboot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead, h.lying, h.reconciled = false, false, 0
	h.wake()
}

// lie empties the pools, and has the host report from now on as if they were full.
func (h *host) lie() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lying = true
	clear(h.pool)
}
