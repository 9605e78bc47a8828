package ledgertest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
	"github.com/orbitsched/orbit/internal/send"
)

// machines are the machines behind the nodes. They know which capsules really run: those that agents have started and
// not stopped yet. The ledger does not see this.
type machines struct {
	mu   sync.Mutex // guards the fields below
	runs map[orbit.CapsuleID]process
	// power counts how often each machine was switched off or on. An odd count means that the machine is off.
	power map[orbit.NodeID]int
	// starts counts the capsules that agents have started, stops those that they have stopped because the capsules had
	// left.
	starts, stops int
	// fault is the first violation that was seen.
	fault error
}

// process is a capsule that runs on a machine.
type process struct {
	on   orbit.NodeID
	size int64
}

const (
	machineRoom   = 4
	fleetNodes    = 4
	fleetCapsules = 20
)

// begun returns how often a machine was switched off or on.
func (m *machines) begun(on orbit.NodeID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.power[on]
}

// start starts a capsule, unless its machine is off, or has been switched since its count was power. A machine goes off before its
// node is declared lost, so until then the ledger still lets its capsules begin.
func (m *machines) start(c *orbit.Capsule, power int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.power[c.Node] != power || power%2 == 1 {
		return
	}
	if twin, runs := m.runs[c.ID]; runs {
		m.fault = cmp.Or(m.fault, fmt.Errorf("capsule %q is started on node %q while it runs on node %q", c.ID, c.Node, twin.on))
	}
	size := c.Spec.Envelope.Reservation[orbit.CPU]
	sum := size
	for _, p := range m.runs {
		if p.on == c.Node {
			sum += p.size
		}
	}
	if sum > machineRoom {
		m.fault = cmp.Or(m.fault, fmt.Errorf("capsule %q is started on node %q, where then %d of %d run", c.ID, c.Node, sum, machineRoom))
	}
	m.runs[c.ID] = process{c.Node, size}
	m.starts++
}

// stop stops a capsule on a node, if it runs there.
func (m *machines) stop(id orbit.CapsuleID, on orbit.NodeID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs[id].on == on {
		delete(m.runs, id)
		m.stops++
	}
}

// flip switches a machine off or on. Everything that runs there ends.
func (m *machines) flip(node orbit.NodeID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.power[node]++
	for id, p := range m.runs {
		if p.on == node {
			delete(m.runs, id)
		}
	}
}

// tried reports whether agents have both started and stopped capsules. On a slow ledger that may take more turns than
// usual.
func (m *machines) tried() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts > 0 && m.stops > 0
}

// verdict returns the first violation.
func (m *machines) verdict() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fault
}

// fleet is one participant of the race: a navigator, an operator, a careless proposer or an agent. Each runs in a
// goroutine of its own.
type fleet struct {
	*trial
	*machines
	ledger orbit.Ledger
	rng    *rand.Rand
	// Only agents use these: takes has the number of turns that each stop still takes, seen is the last state that the
	// agent has seen, and power is the count of its machine at that time.
	takes map[orbit.Confirm]int
	seen  *orbit.State
	power int
}

// checkRaceAgents lets agents slowly start and stop the capsules that navigators place and evict. Meanwhile nodes are
// drained and lost, and a careless proposer tries harmful proposals. The running capsules must never exceed a machine,
// and no capsule may run twice.
func checkRaceAgents(t *trial) {
	for i := range fleetNodes {
		t.commits(confirming(machine(i), machineRoom))
	}
	for i := range fleetCapsules {
		spec := movable(ranked(int32(i%3), 1+int64(i%4)))
		t.commits(submit(spec, orbit.CapsuleID(fmt.Sprint("c", i))))
	}
	m := &machines{runs: map[orbit.CapsuleID]process{}, power: map[orbit.NodeID]int{}}
	steps := t.scaled(60)
	var busy atomic.Int32
	turns := slices.Repeat([]func(*fleet, int) error{(*fleet).navigate}, 8)
	turns = append(turns, (*fleet).drain, (*fleet).lose, (*fleet).harm)
	busy.Store(int32(len(turns)))
	h := t.recordedBy(len(turns)+fleetNodes, func(i int, l orbit.Ledger) error {
		f := &fleet{trial: t, machines: m, ledger: l, rng: rand.New(rand.NewPCG(harness.Hash("race-agents"), uint64(i))), takes: map[orbit.Confirm]int{}}
		if i >= len(turns) {
			for busy.Load() > 0 && t.ctx.Err() == nil {
				if err := f.tend(machine(i - len(turns))); err != nil {
					return err
				}
				send.Pause(t.ctx, 20*time.Microsecond)
			}
			return m.verdict()
		}
		defer busy.Add(-1)
		for step := range 20 * steps {
			if step >= steps && m.tried() {
				break
			}
			if err := errors.Join(turns[i](f, step), m.verdict()); err != nil {
				return err
			}
			send.Pause(t.ctx, 100*time.Microsecond) // leaves time to the agents
		}
		return nil
	})
	if !m.tried() {
		t.Failf("%d capsules were started, and %d stopped; there was work for all", m.starts, m.stops)
	}
	t.ever(h, crowded)
}

func machine(i int) orbit.NodeID { return orbit.NodeID(fmt.Sprint("n", i)) }

// crowded returns an error if, according to the ledger, more runs on a node than it has room for. Capsules that have
// begun count, and those that have left the node and have not stopped.
func crowded(s *orbit.State) error {
	sums := map[orbit.NodeID]int64{}
	for c := range s.Capsules() {
		if c.Begun {
			sums[c.Node] += c.Spec.Envelope.Reservation[orbit.CPU]
		}
		if r := c.Remains(); r != nil {
			sums[r.Node] += r.Spec.Envelope.Reservation[orbit.CPU]
		}
	}
	for id, sum := range sums {
		if sum > machineRoom {
			return fmt.Errorf("at revision %d %d of %d run on node %q", s.Revision(), sum, machineRoom, id)
		}
	}
	return nil
}

// says proposes on a view, and reports whether the proposal was committed. A conflict or an infeasible proposal is no
// error.
func (f *fleet) says(s *orbit.State, do ...orbit.Commitment) (bool, error) {
	if len(do) == 0 {
		return false, nil
	}
	_, err := f.ledger.Propose(f.ctx, planned(s.Revision(), do...))
	if err == nil || errors.Is(err, orbit.ErrConflict) || errors.Is(err, orbit.ErrInfeasible) {
		return err == nil, nil
	}
	return false, err
}

// any returns a random capsule for which is reports true; nil: there is none.
func (f *fleet) any(s *orbit.State, is func(*orbit.Capsule) bool) *orbit.Capsule {
	var out []*orbit.Capsule
	for c := range s.Capsules() {
		if is(c) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.SortFunc(out, func(a, b *orbit.Capsule) int { return cmp.Compare(a.ID, b.ID) })
	return out[f.rng.IntN(len(out))]
}

// navigate places a pending capsule, for which it evicts less urgent ones if need be. At times it moves a capsule, or
// changes the spec of one, instead.
func (f *fleet) navigate(step int) error {
	s, err := f.ledger.Snapshot(f.ctx)
	if err != nil {
		return err
	}
	id := machine(f.rng.IntN(fleetNodes))
	if c := f.any(s, (*orbit.Capsule).Placed); c != nil && step%5 == 4 {
		_, err := f.says(s, moved(c), place(c.ID, id))
		return err
	}
	if step%5 == 3 {
		return f.respec(s)
	}
	c := f.any(s, (*orbit.Capsule).Pending)
	if c == nil || s.Node(id) == nil {
		return nil
	}
	var do []orbit.Commitment
	if !s.Node(id).Fits(c.Spec) {
		for v := range s.On(id) {
			if v.Spec.Priority < c.Spec.Priority {
				do = append(do, orbit.Evict{Capsule: v.ID, From: id, Since: v.PlacedAt, For: c.ID})
			}
		}
	}
	_, err = f.says(s, append(do, orbit.Place{Capsule: c.ID, Node: id, After: f.rng.IntN(8) == 0})...)
	return err
}

// respec gives a capsule, placed or pending, another spec: another size, and now and then other groups or another
// priority. What is placed evicts what it outranks, if it has not begun, to grow in its room.
func (f *fleet) respec(s *orbit.State) error {
	c := f.any(s, func(c *orbit.Capsule) bool { return c.Placed() || c.Pending() && f.rng.IntN(3) == 0 })
	if c == nil {
		return nil
	}
	spec := c.Spec.Clone()
	spec.Envelope.Reservation[orbit.CPU] = 1 + f.rng.Int64N(machineRoom)
	if f.rng.IntN(3) == 0 {
		spec.Group = []string{"red", "blue"}[f.rng.IntN(2)]
	}
	if f.rng.IntN(3) == 0 {
		spec.Priority = f.rng.Int32N(3)
	}
	r := orbit.Respec{Capsule: c.ID, Spec: spec}
	if !c.Placed() {
		spec.Require = nil
		if f.rng.IntN(2) == 0 {
			spec.Require = []orbit.Predicate{{Key: "disk", Op: "DoesNotExist"}}
		}
		_, err := f.says(s, r)
		return err
	}
	r.Since = c.PlacedAt
	var do []orbit.Commitment
	for v := range s.On(c.Node) {
		if v.ID != c.ID && v.Spec.Priority < spec.Priority && !v.Begun {
			do = append(do, orbit.Evict{Capsule: v.ID, From: c.Node, Since: v.PlacedAt, For: c.ID})
		}
	}
	_, err := f.says(s, append(do, r)...)
	return err
}

// drain cordons a node, releases its capsules, and puts it back into service, in several steps.
func (f *fleet) drain(step int) error {
	s, err := f.ledger.Snapshot(f.ctx)
	id := machine(step / 8 % fleetNodes)
	n := s.Node(id)
	if err != nil || n == nil || n.Node.State == orbit.Lost {
		return err
	}
	var do []orbit.Commitment
	switch step % 8 {
	case 0:
		do = append(do, cordoned(confirming(id, machineRoom)))
	case 3, 4, 5, 6, 7:
		do = append(do, confirming(id, machineRoom))
	default:
		for c := range s.On(id) {
			do = append(do, release(c.ID))
		}
	}
	_, err = f.says(s, do...)
	return err
}

// lose switches a machine off and declares its node lost. In a later step it removes the node, adds it anew and
// switches the machine on.
func (f *fleet) lose(step int) error {
	id := machine(step / 20 % fleetNodes)
	s, err := f.ledger.Snapshot(f.ctx)
	n := s.Node(id)
	if err != nil || step%20 > 0 && n != nil && n.Node.State != orbit.Lost {
		return err
	}
	if step%20 == 0 && n != nil && n.Node.State != orbit.Lost {
		f.flip(id)
		for gone := false; !gone; {
			if gone, err = f.says(s, lost(id)); err != nil {
				return err
			}
			if s, err = f.ledger.Snapshot(f.ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if n == nil {
		return nil
	}
	var do []orbit.Commitment
	for c := range s.On(id) {
		do = append(do, release(c.ID))
	}
	if back, err := f.says(s, append(do, orbit.RemoveNode{Node: id}, confirming(id, machineRoom))...); !back || err != nil {
		return err
	}
	f.flip(id)
	return nil
}

// harm proposes what a careless or hostile proposer may try: to end a running capsule and take its room at once, to
// declare that no agent confirms on a node, or to release or move a capsule while it still runs.
func (f *fleet) harm(step int) error {
	s, err := f.ledger.Snapshot(f.ctx)
	if err != nil {
		return err
	}
	mine := orbit.CapsuleID(fmt.Sprint("h", step))
	victim := f.any(s, (*orbit.Capsule).Placed)
	if victim == nil {
		return nil
	}
	quiet := confirming(victim.Node, machineRoom)
	quiet.Node.Confirms = false
	own := submit(cpu(victim.Spec.Envelope.Reservation[orbit.CPU]), mine)
	do := [][]orbit.Commitment{
		{cancel(victim.ID), own, place(mine, victim.Node)},
		{quiet, cancel(victim.ID), own, place(mine, victim.Node), confirming(victim.Node, machineRoom)},
		{cancel(victim.ID), submit(victim.Spec, victim.ID), place(victim.ID, machine(step%fleetNodes))},
		{cordoned(quiet), release(victim.ID), own, place(mine, victim.Node), confirming(victim.Node, machineRoom)},
		{quiet, moved(victim), place(victim.ID, machine(step%fleetNodes))},
	}[step%5]
	if _, err := f.says(s, do...); err != nil {
		return err
	}
	_, err = f.says(s, confirming(victim.Node, machineRoom))
	return err
}

// moved returns the eviction by which a capsule is taken off its node in a move.
func moved(c *orbit.Capsule) orbit.Evict {
	return orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt}
}

// tend is one turn of an agent. It starts a capsule only after the ledger has committed that the capsule begins; at
// times it asks on a state that is not the newest. It stops capsules that have left, which takes some turns, and then
// reports that.
func (f *fleet) tend(id orbit.NodeID) error {
	old, power := f.seen, f.power
	f.power = f.begun(id)
	s, err := f.ledger.Snapshot(f.ctx)
	if err != nil {
		return err
	}
	f.seen = s
	if old == nil || f.rng.IntN(2) == 0 {
		old, power = s, f.power
	}
	for c := range old.On(id) {
		if c.Begun {
			continue
		}
		if yes, err := f.says(old, orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Begun: true}); err != nil {
			return err
		} else if yes {
			f.start(c, power)
		}
	}
	for r := range s.Remains(id) {
		stop := orbit.Confirm{Capsule: r.Capsule, Since: r.Since, Stopped: true}
		if _, known := f.takes[stop]; !known {
			f.takes[stop] = f.rng.IntN(4)
		}
		if f.takes[stop]--; f.takes[stop] >= 0 {
			continue
		}
		f.stop(r.Capsule, id)
		if _, err := f.says(s, stop); err != nil {
			return err
		}
	}
	return nil
}
