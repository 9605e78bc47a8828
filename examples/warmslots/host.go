package main

import (
	"context"
	"errors"
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// host is a simulated machine with its agent. The agent boots a sandbox when the gateway asks for it, or when it finds
// in the ledger that the sandbox is placed here. If both happen, it boots the sandbox once.
type host struct {
	id        orbit.NodeID
	templates []string
	volumes   []string
	options   options
	ledger    orbit.Ledger
	boots     sync.WaitGroup // the boots that reconcile has begun
	hungry    chan struct{}  // has a token if pools may have to be refilled

	mu sync.Mutex // guards the fields below; held also while a snapshot of the ledger is taken
	// dead says that the host is down. Then the fields below mean nothing.
	dead bool
	// lying says that the pools are empty and the host reports full ones.
	lying      bool
	pool       map[string]int // warm slots by template
	sandboxes  map[orbit.CapsuleID]*process
	booting    int
	stopped    int            // sandboxes that have ended without a release in the ledger so far
	reconciled orbit.Revision // the revision of the newest state that was compared with what runs
	tally      hostTally
}

// hostTally counts what a host has done.
type hostTally struct {
	warm, cold, failed int // boots that the gateway has asked for
	lies               int // cold boots for which the host had promised a warm slot
	again              int // boots of sandboxes that had lost their host, begun by reconcile
}

// add adds the counts of another host.
func (t *hostTally) add(o hostTally) {
	t.warm += o.warm
	t.cold += o.cold
	t.failed += o.failed
	t.lies += o.lies
	t.again += o.again
}

// process is a sandbox that runs or boots.
type process struct {
	warm bool
	// booted is closed when the boot is over, whether it has succeeded or failed.
	booted  chan struct{}
	failed  bool // set before booted is closed
	stopped bool
	// again says that reconcile has booted it and that the gateway has not asked for it.
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

// boot starts a sandbox for the gateway, and returns when it runs.
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

// admit finds a slot for a sandbox, a warm one if there is one. If it returns mine, the caller has to boot the sandbox.
// The lock must be held.
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
		h.reconcile(ctx) // a sandbox may have left without the host's knowledge
	}
	if h.running() >= h.options.slots {
		return nil, false, errFull
	}
	return h.take(id, template), true, nil
}

// take makes the record of a sandbox that is about to boot. The lock must be held.
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

// bring boots a sandbox, which takes a moment. It fails if the host dies meanwhile.
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

// stop ends a sandbox. The release is proposed only afterwards, so that the slot is given to another sandbox only when
// it is free.
func (h *host) stop(id orbit.CapsuleID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sandboxes[id]; s != nil && !s.stopped {
		s.stopped = true
		h.stopped++
	}
}

// running returns the number of slots in use. The lock must be held.
func (h *host) running() int { return len(h.sandboxes) - h.stopped }

// reconcile compares the running sandboxes with those that the ledger has placed here. It stops sandboxes that have
// left, and boots sandboxes that were placed here without the gateway. It may also boot one that the gateway is about
// to ask for; then the gateway only waits for it. The lock must be held. The snapshot is taken under the lock, so that
// no newer snapshot has been used before.
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

// die takes the host down, with all sandboxes on it.
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

// reboot starts the host again, without sandboxes and without lies.
func (h *host) reboot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead, h.lying, h.reconciled = false, false, 0
	h.wake()
}

// lie empties the pools, and makes the host report full ones from now on.
func (h *host) lie() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lying = true
	clear(h.pool)
}
