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

// machines are what really runs, which no ledger knows: what agents have started and have not stopped yet.
type machines struct {
	mu   sync.Mutex
	runs map[orbit.CapsuleID]process
	// How often each machine was switched off; the last digit says that it is off.
	power map[orbit.NodeID]int
	// How much has been started, and has been stopped because it had to leave.
	starts, stops int
	fault         error
}

type process struct {
	on   orbit.NodeID
	size int64
}

const (
	machineRoom   = 4
	fleetNodes    = 4
	fleetCapsules = 20
)

// begun returns how often a machine was switched on and off.
func (m *machines) begun(on orbit.NodeID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.power[on]
}

// start starts a capsule, unless the machine was switched off since.
func (m *machines) start(c *orbit.Capsule, power int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.power[c.Node] != power {
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

// flip switches a machine off, with all that runs there, or on.
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

// verdict returns what went wrong.
func (m *machines) verdict() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fault
}

// fleet is one of those that take part: each in a goroutine of its own.
type fleet struct {
	*trial
	*machines
	ledger orbit.Ledger
	rng    *rand.Rand
	// Of an agent: how long it still takes until something stops, and what it has seen last, and how often its machine was switched then.
	takes map[orbit.Confirm]int
	seen  *orbit.State
	power int
}

// checkRaceAgents lets agents start and stop, slowly, what navigators place and evict, while nodes are drained and lost and
// a careless proposer does what is not refused. What runs never exceeds a machine, and no capsule runs twice.
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
		for step := range steps {
			if err := errors.Join(turns[i](f, step), m.verdict()); err != nil {
				return err
			}
			send.Pause(t.ctx, 100*time.Microsecond) // so that agents have their turn
		}
		return nil
	})
	if m.starts == 0 || m.stops == 0 {
		t.Failf("%d capsules were started, and %d stopped; there was work for all", m.starts, m.stops)
	}
	t.ever(h, crowded)
}

func machine(i int) orbit.NodeID { return orbit.NodeID(fmt.Sprint("n", i)) }

// crowded returns an error for a node on which more has begun, or has left and not stopped, than there is room.
func crowded(s *orbit.State) error {
	sums := map[orbit.NodeID]int64{}
	for c := range s.Capsules() {
		if c.Begun {
			sums[c.Node] += c.Spec.Envelope.Reservation[orbit.CPU]
		}
		if r := c.Remains; r != nil {
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

// says proposes on a view and reports whether that was committed. To be refused is no fault.
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

// any returns one of the capsules that are as asked for, nil if there is none.
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

// navigate places what is pending, evicts for it what is less urgent, or moves what is placed, or gives it another size.
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
	if c := f.any(s, (*orbit.Capsule).Placed); c != nil && step%5 == 3 {
		spec := *c.Spec
		spec.Envelope.Reservation[orbit.CPU] = 1 + f.rng.Int64N(machineRoom)
		_, err := f.says(s, orbit.Resize{Capsule: c.ID, Since: c.PlacedAt, Spec: &spec})
		return err
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

// drain cordons a node, releases what is there, and takes it back into service.
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

// lose switches a machine off, says so, and lets it join anew.
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

// harm does what a careless or hostile proposer may try: to end work that runs and take its room, to say that nobody confirms, to
// say of others that they have left.
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

// moved takes a capsule off its node to move it.
func moved(c *orbit.Capsule) orbit.Evict {
	return orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt}
}

// tend is what an agent does: it asks before it starts, now and then on a state that is not the newest, and says when something has stopped,
// which takes its time.
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
