package itest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/rooms"
	sample "github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// counter serves one URL by several processes, each request by another one. It may be cut off.
type counter struct {
	fleet *fleet
	next  atomic.Int64
	cut   atomic.Bool
}

var errCut = errors.New("cut off")

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	to, err := url.Parse(c.fleet.site(int(c.next.Add(1))).URL())
	if err != nil {
		return nil, err
	}
	if to.Host == "" || c.cut.Load() {
		return nil, errCut
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && c.cut.Load() {
		return nil, errors.Join(errCut, answer.Body.Close())
	}
	return answer, err
}

// floor is where all nodes run what they are told to, so that it is seen when something runs twice.
type floor struct {
	mu     sync.Mutex
	runs   map[orbit.CapsuleID]string // by which node
	starts int
	faults []string
}

// machine is one node of a floor.
type machine struct {
	*floor
	node  string
	knows map[agent.Instance]agent.Phase
}

func (m *machine) Start(ctx context.Context, task agent.Task) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if other, twice := m.runs[task.Capsule]; twice {
		m.faults = append(m.faults, fmt.Sprintf("%s starts on %s and runs on %s", task.Capsule, m.node, other))
	}
	m.runs[task.Capsule], m.knows[task.Instance] = m.node, agent.Ready
	m.starts++
	return nil
}

func (m *machine) Stop(ctx context.Context, i agent.Instance) error {
	wait(ctx, 200*time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.knows[i] == agent.Ready && ctx.Err() == nil {
		m.knows[i] = agent.Failed
		delete(m.runs, i.Capsule)
	}
	return ctx.Err()
}

func (m *machine) Forget(_ context.Context, i agent.Instance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.knows, i)
	return nil
}

func (m *machine) List(context.Context) (list []agent.Status, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, phase := range m.knows {
		list = append(list, agent.Status{Instance: i, Phase: phase})
	}
	return list, nil
}

// settled reports whether everything is ready where it is placed, and runs there.
func (f *floor) settled(s *orbit.State) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range s.Capsules() {
		if !c.Ready || f.runs[c.ID] != string(c.Node) {
			return false
		}
	}
	return len(f.runs) == s.CapsuleCount()
}

// station is a ledger, and some nodes whose agents have one URL.
type station struct {
	*testing.T
	ledger *etcdledger.Ledger
	floor  *floor
	links  []*counter
	fenced atomic.Int64
	// Of the node that is drained. Others are cordoned by their leases.
	draining atomic.Value
}

// set cordons a node so that it is drained, or takes that back.
func (s *station) set(id orbit.NodeID, to orbit.Condition) {
	s.Helper()
	s.draining.Store(map[orbit.Condition]orbit.NodeID{orbit.Cordoned: id}[to])
	for {
		state, err := s.ledger.Snapshot(s.Context())
		require.NoError(s, err)
		n := state.Node(id)
		if n == nil || n.Node.State == orbit.Lost {
			return
		}
		put := *n.Node
		put.State = to
		_, err = s.ledger.Propose(s.Context(), orbit.Proposal{View: state.Revision(), Do: []orbit.Commitment{orbit.PutNode{Node: put}}})
		if !errors.Is(err, orbit.ErrConflict) {
			require.NoError(s, err)
			return
		}
	}
}

// await waits until something holds.
func (s *station) await(holds func(*orbit.State) bool) {
	s.Helper()
	require.Eventually(s, func() bool {
		state, err := s.ledger.Snapshot(s.Context())
		return err == nil && holds(state)
	}, time.Minute, 50*time.Millisecond)
}

// agent makes an agent, whose work is counted on the floor.
func (s *station) agent(f *fleet, name string) *agent.Agent {
	link := &counter{fleet: f}
	s.links = append(s.links, link)
	return &agent.Agent{
		Control: &agent.Client{URLs: []string{"http://control/agent"}, HTTP: &http.Client{Transport: link}},
		Runtime: &machine{floor: s.floor, node: name, knows: map[agent.Instance]agent.Phase{}},
		Node:    orbit.Node{ID: orbit.NodeID(name), Capacity: orbit.Resources{orbit.CPU: 1000}},
		Every:   500 * time.Millisecond, Poll: 100 * time.Millisecond, Stopping: time.Second,
		OnError: func(err error) {
			if errors.Is(err, agent.ErrFenced) {
				s.fenced.Add(1)
			}
		},
	}
}

// Agents have one URL, behind which are two processes over one etcd: each request goes to another one. The processes are suspended,
// killed and started again, nodes are drained, and one is cut off for so long that it is fenced and lost. Nothing runs twice, and in the
// end everything runs where it is placed.
func TestAgentsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	const nodes, capsules = 3, 12
	c := start(t, cluster.Options{Heartbeat: fast.Heartbeat})
	f := newFleet(t, rooms.Config{Endpoints: c.Endpoints(), TTL: 4 * time.Second, Gone: 4 * time.Second}, 2)
	s := &station{T: t, ledger: open(t, connect(t, c), etcdledger.Options{Prefix: rooms.Fleet}), floor: &floor{runs: map[orbit.CapsuleID]string{}}}
	s.draining.Store(orbit.NodeID(""))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	engine := &orbit.Engine{Name: "services", Ledger: s.ledger, Navigator: &nav.Services{}, OnError: func(error) {}}
	drainer := &nav.Drain{Ledger: s.ledger, Drains: func(n *orbit.Node) bool { return n.ID == s.draining.Load() }}
	run := []func(context.Context) error{engine.Run, drainer.Run}
	for i := range nodes {
		run = append(run, s.agent(f, fmt.Sprint("node-", i)).Run)
	}
	for _, run := range run {
		all.Go(func() { assert.NoError(t, run(ctx)) })
	}
	work := orbit.Submit{Spec: &orbit.Spec{Movable: true, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 100}}}}
	for i := range capsules {
		work.IDs = append(work.IDs, orbit.CapsuleID(fmt.Sprint("capsule-", i)))
	}
	_, err := s.ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{work}})
	require.NoError(t, err)
	s.await(s.floor.settled)
	for i := range scale(t, sample.Of(2, 20)) {
		id := orbit.NodeID(fmt.Sprint("node-", i%nodes))
		s.set(id, orbit.Cordoned)
		f.suspend(i)
		f.replace(i + 1)
		receive(t, f.site(i+1).Ready())
		s.set(id, orbit.Ready)
	}
	s.await(s.floor.settled)
	state := func(want orbit.Condition) func(*orbit.State) bool {
		return func(state *orbit.State) bool { return state.Node("node-0").Node.State == want }
	}
	s.links[0].cut.Store(true)
	s.await(state(orbit.Lost))
	s.await(s.floor.settled)
	s.links[0].cut.Store(false)
	s.await(state(orbit.Ready))
	s.await(s.floor.settled)
	s.floor.mu.Lock()
	defer s.floor.mu.Unlock()
	require.Empty(t, s.floor.faults)
	require.Positive(t, s.fenced.Load())
	require.Greater(t, s.floor.starts, capsules)
	t.Logf("%d capsules started %d times on %d nodes; nodes were fenced %d times", capsules, s.floor.starts, nodes, s.fenced.Load())
}
