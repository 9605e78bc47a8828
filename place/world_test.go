package place

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

func machine(id orbit.NodeID, cpu int64) orbit.Node {
	return orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: cpu}}
}

// labelled returns the node with one label.
func labelled(n orbit.Node, key, value string) orbit.Node {
	n.Labels = map[string]string{key: value}
	return n
}

func wants(cpu int64) *orbit.Spec {
	return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
}

func ofModule(module string, cpu int64) *orbit.Spec {
	s := wants(cpu)
	s.Module = module
	return s
}

// besides asks for company of group g in its rack.
func besides() *orbit.Spec {
	s := wants(1)
	s.Near = orbit.Near{Group: "g", Level: "rack"}
	return s
}

// racked returns a node in a rack, or in none.
func racked(id orbit.NodeID, rack string) orbit.Node {
	if rack == "" {
		return machine(id, 10)
	}
	return labelled(machine(id, 10), "rack", rack)
}

func names(prefix string, n int) []orbit.CapsuleID {
	out := make([]orbit.CapsuleID, n)
	for i := range out {
		out[i] = orbit.CapsuleID(fmt.Sprintf("%s%04d", prefix, i))
	}
	return out
}

func commit(t require.TestingT, l orbit.Ledger, do ...orbit.Commitment) {
	_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
}

func snapshotOf(t require.TestingT, l orbit.Ledger) *orbit.State {
	s, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	return s
}

// viewOf returns a view of a ledger, and how to bring it up to date.
func viewOf(t require.TestingT, l orbit.Ledger, tel orbit.Telemetry) (*orbit.View, func()) {
	v := &orbit.View{}
	refresh := func() { require.NoError(t, v.Refresh(context.Background(), l, tel, time.Unix(1000, 0))) }
	refresh()
	return v, refresh
}

// emptying releases all that is on a node.
func emptying(s *orbit.State, id orbit.NodeID) (do []orbit.Commitment) {
	for k := range s.On(id) {
		do = append(do, orbit.Release{Capsule: k.ID, Stopped: true})
	}
	for h := range s.Holds() {
		if h.Node == id {
			do = append(do, orbit.Release{Hold: h.ID})
		}
	}
	return do
}

// devicesFree is what is free of each device instance.
func devicesFree(n *orbit.NodeState) (free [orbit.MaxDevices]int) {
	for i := range free {
		free[i] = n.DeviceFree(i)
	}
	return free
}

// devicesWith returns the instances that have at least this much free.
func devicesWith(n *orbit.NodeState, milli int) (set orbit.DeviceSet) {
	for i, free := range devicesFree(n) {
		if free >= milli {
			set |= 1 << i
		}
	}
	return set
}

// panicky is for checks where no test is at hand.
type panicky struct{}

func (panicky) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (panicky) FailNow()                          { panic("failed") }

// board is telemetry that a test writes to.
type board struct {
	stale time.Duration

	mu      sync.Mutex
	version uint64
	latest  map[orbit.NodeID]orbit.Report
	changed map[orbit.NodeID]uint64
}

// say takes a report in at an instant. It was received at the time of its heartbeat, for example by another process.
func (b *board) say(r orbit.Report, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.latest == nil {
		b.latest, b.changed = map[orbit.NodeID]orbit.Report{}, map[orbit.NodeID]uint64{}
	}
	r.Received = r.At
	known, ok := b.latest[r.Node]
	end := known.Received.Add(b.stale)
	beat := ok && known.FreeSlots == r.FreeSlots && (b.stale == 0 || r.Received.Before(end) && now.Before(end))
	if b.latest[r.Node] = r; !beat {
		b.version++
		b.changed[r.Node] = b.version
	}
}

func (b *board) Reports(_ context.Context, after uint64) (out []orbit.Report, _ uint64, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, version := range b.changed {
		if version > after {
			out = append(out, b.latest[id])
		}
	}
	return out, b.version, nil
}

func (b *board) Latest(id orbit.NodeID) (orbit.Report, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.latest[id]
	return r, ok
}

func (b *board) StaleAfter() time.Duration { return b.stale }
