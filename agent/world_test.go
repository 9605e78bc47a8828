package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
)

const (
	ms  = time.Millisecond
	sec = time.Second
	// Of the leases and agents of all tests. Nothing is given to others within fence of a report.
	ttl, gone, fence = 6 * sec, 6 * sec, 12 * sec
	stopping         = 3 * sec
)

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	require.TestingT
	Helper()
	Context() context.Context
	Cleanup(func())
}

// link is the connection of one agent.
type link struct {
	to agent.Control
	mu sync.Mutex
	// Nothing comes through.
	cut bool
	// The agent crashes: it does not say that it leaves.
	crashes bool
	// Of so many answers about one is lost, though the call had its effect; 0: none.
	loses int
	rand  *rand.Rand
	delay time.Duration
	// Nothing is sent before.
	resumes time.Time
}

func (l *link) set(f func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

// through makes a call, unless the link is cut, and loses its answer where that is due.
func (l *link) through(ctx context.Context, call func()) error {
	open := func() (ok, lost bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.cut, l.loses > 0 && l.rand.IntN(l.loses) == 0
	}
	l.mu.Lock()
	delay, suspended := l.delay, time.Until(l.resumes)
	l.mu.Unlock()
	time.Sleep(suspended)
	ok, lost := open()
	if ok {
		if delay > 0 { // a timer of 0 in a bubble crashes the race detector of go1.26.8
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
		}
		call()
		ok, _ = open()
	}
	switch {
	case !ok:
		<-ctx.Done()
		return errors.Join(orbit.ErrUnknown, ctx.Err())
	case lost:
		return fmt.Errorf("answer lost: %w", orbit.ErrUnknown)
	}
	return nil
}

func (l *link) Join(ctx context.Context, node orbit.Node, holder string) (got agent.Lease, err error) {
	lost := l.through(ctx, func() { got, err = l.to.Join(ctx, node, holder) })
	return got, errors.Join(lost, err)
}

func (l *link) Leave(ctx context.Context, node orbit.NodeID, term orbit.Revision) (err error) {
	l.mu.Lock()
	crashes := l.crashes
	l.mu.Unlock()
	if crashes {
		return nil
	}
	lost := l.through(ctx, func() { err = l.to.Leave(ctx, node, term) })
	return errors.Join(lost, err)
}

func (l *link) Report(ctx context.Context, r orbit.Report) (err error) {
	lost := l.through(ctx, func() { err = l.to.Report(ctx, r) })
	return errors.Join(lost, err)
}

func (l *link) Watch(ctx context.Context, node orbit.NodeID, after orbit.Revision) (w agent.Work, err error) {
	lost := l.through(ctx, func() { w, err = l.to.Watch(ctx, node, after) })
	return w, errors.Join(lost, err)
}

func (l *link) Confirm(ctx context.Context, node orbit.NodeID, term orbit.Revision, said []agent.Statement) (out []orbit.Outcome) {
	if lost := l.through(ctx, func() { out = l.to.Confirm(ctx, node, term, said) }); lost != nil {
		return nil
	}
	return out
}

// host is a node: a machine, its agent and the agent's link.
type host struct {
	*machine
	link    *link
	runtime agent.Runtime
	errors  []error
	stop    func() // ends the agent; nil: none is at work
	// name is Agent.Machine. A twin has the node id of another host.
	name string
	twin bool
}

// told returns the errors that the agent has told of.
func (h *host) told() []error {
	defer h.enter()()
	return slices.Clone(h.errors)
}

// breakBy lets all calls of the runtime fail or panic, or work again.
func (h *host) breakBy(err error, panics bool) {
	defer h.enter()()
	h.broken, h.panics = err, panics
}

// suspendFor suspends the process of the agent, which neither sends nor starts or stops anything before it goes on.
func (h *host) suspendFor(d time.Duration) {
	leave := h.enter()
	h.resumes = time.Now().Add(d)
	leave()
	h.link.set(func(l *link) { l.resumes = time.Now().Add(d) })
}

// world is a ledger with engines, members, a drainer and hosts, in a bubble. One goroutine uses it.
type world struct {
	tester
	ctx    context.Context
	ledger *orbit.MemoryLedger
	local  *agent.Local // of the first control process
	books  *books
	hosts  []*host
	// Processes that share the ledger and the refreshes of leases. Each feeds its board to the others.
	controls []*control
	// Adds a host without an agent.
	newHost func(orbit.NodeID) *host
	// The drainer moves what is on these.
	draining sync.Map
}

// begin makes a world of hosts with 4 cores each, and agents at work, with one control process.
func begin(t tester, hosts int, withWatchdog bool) *world {
	return beginShared(t, hosts, withWatchdog, 1)
}

// beginShared makes a world with several control processes. All agents have the URLs of all of them.
func beginShared(t tester, hosts int, withWatchdog bool, controls int) *world {
	ctx, end := context.WithCancel(t.Context())
	w := &world{tester: t, ctx: ctx, ledger: &orbit.MemoryLedger{}}
	w.books = &books{starts: map[orbit.CapsuleID]int{}, done: map[orbit.CapsuleID]int{}}
	var shared *refreshes
	if controls > 1 {
		shared = &refreshes{until: map[string]time.Time{}}
	}
	var urls []string
	network := network{}
	for n := range controls {
		c := newControl(w, shared)
		w.controls = append(w.controls, c)
		host := fmt.Sprint("control-", n)
		urls, network[host] = append(urls, "http://"+host), c.remote
	}
	for n := range controls {
		w.startControl(n)
	}
	control := &agent.Client{URLs: urls, HTTP: &http.Client{Transport: network}}
	w.newHost = func(id orbit.NodeID) *host {
		m := &machine{books: w.books, id: id, cpu: 4000, procs: map[agent.Instance]*process{}, stops: sec}
		w.books.machines = append(w.books.machines, m)
		h := &host{machine: m, link: &link{to: control, rand: rand.New(rand.NewPCG(1, uint64(len(w.hosts))))}, runtime: m}
		if withWatchdog {
			h.runtime = guarded{m}
		}
		w.hosts = append(w.hosts, h)
		return h
	}
	for i := range hosts {
		w.newHost(orbit.NodeID(fmt.Sprint("n", i)))
		w.start(i)
	}
	t.Cleanup(func() {
		for _, c := range w.controls {
			c.gate.pause(false)
		}
		for i := range w.hosts {
			w.kill(i)
		}
		for n := range w.controls {
			w.killControl(n)
		}
		end()
		for _, c := range w.controls {
			c.remote.late.Wait()
		}
	})
	w.pass(sec)
	return w
}

// startControl begins a control process, unless it is at work.
func (w *world) startControl(n int) {
	c := w.controls[n]
	c.start()
	if n == 0 {
		w.local = c.local
	}
}

// killControl ends a control process, and with it everything that it has not committed.
func (w *world) killControl(n int) { w.controls[n].kill() }

// pass lets time go by, and what happens then come to rest.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// start begins an agent, unless one is at work.
func (w *world) start(n int) {
	h := w.hosts[n]
	if h.stop != nil {
		return
	}
	a := &agent.Agent{
		Control: h.link, Runtime: h.runtime, Every: sec, Poll: 200 * ms, Stopping: stopping,
		Machine: h.name, Unguarded: true,
		Node: orbit.Node{ID: h.id, Capacity: orbit.Resources{orbit.CPU: h.cpu}, Labels: map[string]string{"rack": "r"}},
		OnError: func(err error) {
			defer h.enter()()
			h.errors = append(h.errors, err)
		},
	}
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	h.stop = func() {
		cancel()
		require.NoError(w, <-done)
		h.stop = nil
	}
}

// kill ends an agent, and none of its processes.
func (w *world) kill(n int) {
	if h := w.hosts[n]; h.stop != nil {
		h.stop()
	}
}

// crash ends an agent without giving it the time to say so.
func (w *world) crash(n int) {
	w.hosts[n].link.set(func(l *link) { l.crashes = true })
	w.kill(n)
	w.hosts[n].link.set(func(l *link) { l.crashes = false })
}

func (w *world) propose(do ...orbit.Commitment) error {
	_, err := w.ledger.Propose(w.ctx, orbit.Proposal{Do: do})
	return err
}

func (w *world) commit(do ...orbit.Commitment) {
	w.Helper()
	require.NoError(w, w.propose(do...))
}

func (w *world) state() *orbit.State {
	s, err := w.ledger.Snapshot(w.ctx)
	require.NoError(w, err)
	return s
}

// confirmed counts the confirmations of a capsule that were committed.
func (w *world) confirmed(id orbit.CapsuleID) (n int) {
	changes, err := w.ledger.Changes(w.ctx, 0)
	require.NoError(w, err)
	for _, c := range changes {
		if did, ok := c.Do.(orbit.Confirm); ok && did.Capsule == id {
			n++
		}
	}
	return n
}

// put changes the condition of a node.
func (w *world) put(n int, to orbit.Condition) {
	if s := w.state().Node(w.hosts[n].id); s != nil && s.Node.State != orbit.Lost {
		node := *s.Node
		node.State = to
		w.commit(orbit.PutNode{Node: node})
	}
}

// drain cordons a node and has everything moved away, or takes that back.
func (w *world) drain(n int, on bool) {
	if on {
		w.draining.Store(w.hosts[n].id, true)
		w.put(n, orbit.Cordoned)
		return
	}
	w.draining.Delete(w.hosts[n].id)
	w.put(n, orbit.Ready)
}

// spec asks for so many cores; capsules with it may be moved.
func spec(class orbit.AppClass, cores int64, priority int32) *orbit.Spec {
	return &orbit.Spec{Module: "m", Class: class, Priority: priority, Movable: true,
		Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cores * 1000}}}
}

// at returns the host on which a capsule really runs, -1 if on none.
func (w *world) at(id orbit.CapsuleID) int {
	for n, h := range w.hosts {
		for _, other := range h.running() {
			if other == id {
				return n
			}
		}
	}
	return -1
}

// sound requires that nothing has gone wrong so far.
func (w *world) sound() {
	w.Helper()
	faults, _, _ := w.books.read()
	require.Empty(w, faults)
	require.NoError(w, w.state().Verify())
}

// atRest requires that what runs is what is placed, and that the ledger knows it as ready.
func (w *world) atRest() {
	w.Helper()
	w.sound()
	state := w.state()
	for _, h := range w.hosts {
		if h.twin {
			require.Empty(w, h.running())
			continue
		}
		placed := map[orbit.CapsuleID]bool{}
		for c := range state.On(h.id) {
			placed[c.ID] = true
			require.True(w, c.Ready, "capsule %s on %s", c.ID, h.id)
		}
		for _, id := range h.running() {
			require.True(w, placed[id], "%s runs on %s", id, h.id)
			delete(placed, id)
		}
		require.Empty(w, placed, "placed on %s and not running", h.id)
		for r := range state.Remains(h.id) {
			require.Fail(w, "remains", "%v", r)
		}
	}
}

func ids(prefix string, n int) (out []orbit.CapsuleID) {
	for i := range n {
		out = append(out, orbit.CapsuleID(fmt.Sprint(prefix, i)))
	}
	return out
}

// bubble runs a test in a bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
