package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
	"github.com/orbitsched/orbit/sim"
)

// This file compares nav.Defrag with two ways to choose moves that look at one move at a time.

// budgets are the numbers of moves at which the ways are compared.
var budgets = []int{0, 100, 200, 500, 1000}

// way is a way to choose moves. It moves capsules until it has moved most of them or finds no move that helps, and returns the number.
type way struct {
	name string
	move func(ctx context.Context, l *orbit.MemoryLedger, most int) (moved int, err error)
}

// ways returns new ways for a cluster. Each is asked for more and more moves of one ledger.
func ways(seed uint64) []way {
	return []way{{"nav.Defrag", byDefrag()}, {"greedy", greedily}, {"random", randomly(rand.New(rand.NewPCG(seed, 1)))}}
}

// compare fills a cluster for each seed and gives each way a copy of it. It prints how many gangs fit after each budget of moves.
func compare(ctx context.Context, o options, out io.Writer) error {
	fmt.Fprintf(out, "%4s %-10s %11s %7s %14s %15s\n", "seed", "way", "moves up to", "moves", "gangs that fit", "unallocated GPU")
	for seed := o.seed; seed < o.seed+uint64(o.seeds); seed++ {
		o := o
		o.seed = seed
		nodes, pods, err := load(o)
		if err != nil {
			return err
		}
		w := &world{ledger: &orbit.MemoryLedger{}, seed: seed}
		if err := w.fill(ctx, nodes, pods, o.free); err != nil {
			return err
		}
		start, err := w.ledger.Snapshot(ctx)
		if err != nil {
			return err
		}
		come, err := sim.Inflate(pods, sim.DeviceCapacity(nodes), 1, seed+1000)
		if err != nil {
			return err
		}
		for _, way := range ways(seed) {
			if err := way.row(ctx, out, start, come, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// row prints the lines of one way.
func (w *way) row(ctx context.Context, out io.Writer, start *orbit.State, come []sim.Capsule, o options) error {
	ledger, moved := &orbit.MemoryLedger{Start: start}, 0
	for _, most := range budgets {
		for moved < most {
			more, err := w.move(ctx, ledger, min(most-moved, o.moves))
			if moved += more; err != nil || more == 0 {
				if err != nil {
					return err
				}
				break
			}
		}
		state, err := ledger.Snapshot(ctx)
		if err != nil {
			return err
		}
		if err := state.Verify(); err != nil {
			return err
		}
		left, err := unallocated(ctx, state, come)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%4d %-10s %11d %7d %14d %14.2f%%\n", o.seed, w.name, most, moved, rooms(state), left)
	}
	return nil
}

// rooms counts the gangs of 8 that fit: no node takes two.
func rooms(state *orbit.State) (count int) {
	for n := range state.Nodes() {
		if n.Fits(gang) {
			count++
		}
	}
	return count
}

// unallocated returns which part of the GPUs is not allocated, in percent, after gangs of 8 have come until no more fits, and
// then the work of the trace once more.
func unallocated(ctx context.Context, state *orbit.State, come []sim.Capsule) (percent float64, err error) {
	w := &world{ledger: &orbit.MemoryLedger{Start: state}, count: 1 << 30}
	w.engine = packer(w.ledger)
	gangs := slices.Repeat([]sim.Capsule{{Spec: gang}}, rooms(state)+1)
	if err := errors.Join(w.arrive(ctx, gangs), w.arrive(ctx, come)); err != nil {
		return 0, err
	}
	if state, err = w.ledger.Snapshot(ctx); err != nil {
		return 0, err
	}
	free, all := 0, 0
	for n := range state.Nodes() {
		for i := range n.Node.Devices.Count {
			free, all = free+n.DeviceFree(i), all+1000
		}
	}
	return 100 * float64(free) / float64(all), nil
}

// packer returns the engine that places what comes.
func packer(l orbit.Ledger) *orbit.Engine {
	return &orbit.Engine{
		Name: "services", Ledger: l, MaxPlan: 1 << 20, ParkFor: 1,
		Navigator: &nav.Services{Placement: &place.Indexed{Score: score.BestFit{}}, InOrder: true},
	}
}

func byDefrag() func(context.Context, *orbit.MemoryLedger, int) (int, error) {
	d := &nav.Defrag{Goal: nav.RoomFor{Spec: gang}, MinStay: time.Nanosecond}
	return func(ctx context.Context, l *orbit.MemoryLedger, most int) (int, error) {
		d.Ledger, d.Moves = l, most
		round := d.Pass(ctx)
		return len(round.Moved), errors.Join(append(round.Errors, ctx.Err())...)
	}
}

// randomly moves capsules at random to nodes at random that take them.
func randomly(r *rand.Rand) func(context.Context, *orbit.MemoryLedger, int) (int, error) {
	return func(ctx context.Context, l *orbit.MemoryLedger, most int) (moved int, err error) {
		for moved < most && err == nil {
			moves, err := movesOf(ctx, l)
			if err != nil {
				return moved, err
			}
			c := moves.capsules[r.IntN(len(moves.capsules))]
			var to []*spot
			for i := range moves.nodes {
				if n := &moves.nodes[i]; n.Node.ID != c.Node && n.Fits(c.Spec) {
					to = append(to, n)
				}
			}
			if len(to) > 0 {
				err = move(ctx, l, c, to[r.IntN(len(to))].NodeState)
				moved++
			}
			if err != nil {
				return moved, err
			}
		}
		return moved, ctx.Err()
	}
}

// greedily makes, again and again, the one move after which free GPUs are gathered best, while there is one that gathers them
// better.
func greedily(ctx context.Context, l *orbit.MemoryLedger, most int) (moved int, err error) {
	for moved < most && ctx.Err() == nil {
		moves, err := movesOf(ctx, l)
		if err != nil {
			return moved, err
		}
		c, to := moves.best()
		if c == nil {
			return moved, nil
		}
		if err := move(ctx, l, c, to); err != nil {
			return moved, err
		}
		moved++
	}
	return moved, ctx.Err()
}

// moveable is what a cluster offers to those who look at one move at a time.
type moveable struct {
	state    *orbit.State
	nodes    []spot
	capsules []*orbit.Capsule
}

// spot is a node, and how well its free GPUs are gathered.
type spot struct {
	*orbit.NodeState
	worth float64
}

func movesOf(ctx context.Context, l *orbit.MemoryLedger) (*moveable, error) {
	state, err := l.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	m := &moveable{state: state}
	for n := range state.Nodes() {
		m.nodes = append(m.nodes, spot{n, worth(gpus(n), n.Free())})
	}
	for c := range state.Capsules() {
		if c.Placed() && state.Movable(c) {
			m.capsules = append(m.capsules, c)
		}
	}
	return m, nil
}

// gpus returns what is free of each GPU of a node.
func gpus(n *orbit.NodeState) (free []int) {
	for i := range n.Node.Devices.Count {
		free = append(free, n.DeviceFree(i))
	}
	return free
}

// worth says how well the free GPUs of a node are gathered. It grows with the square of how many are free as a whole, which one
// move at a time can climb, and a little with the free parts, so that the last share on a GPU is not the only one that is
// worth a move. Room for a gang counts as much as the step from 7 to 8 free GPUs.
func worth(free []int, rest orbit.Resources) (sum float64) {
	whole := 0
	for _, f := range free {
		if f == 1000 {
			whole++
		}
		sum += float64(f*f) / 1e8
	}
	sum += float64(whole * whole)
	if ask := gang.Envelope.Reservation; whole == 8 && rest[orbit.CPU] >= ask[orbit.CPU] && rest[orbit.Memory] >= ask[orbit.Memory] {
		sum += 15
	}
	return sum
}

// best returns the move after which the sum of all nodes' worth grows most; nil: it grows by none.
func (m *moveable) best() (best *orbit.Capsule, to *orbit.NodeState) {
	type leaving struct {
		*orbit.Capsule
		gain float64
	}
	byID := map[orbit.NodeID]*spot{}
	for i := range m.nodes {
		byID[m.nodes[i].Node.ID] = &m.nodes[i]
	}
	var all []leaving
	for _, c := range m.capsules {
		n := byID[c.Node]
		if gain := n.with(c, c.Devices, 1) - n.worth; gain > 1e-9 {
			all = append(all, leaving{c, gain})
		}
	}
	slices.SortStableFunc(all, func(a, b leaving) int { return cmp.Compare(b.gain, a.gain) })
	most := 1e-9
	for _, c := range all {
		if c.gain <= most { // no place gathers better than none: what a capsule takes was free
			break
		}
		for i := range m.nodes {
			n := &m.nodes[i]
			if n.Node.ID == c.Node || !n.Fits(c.Spec) {
				continue
			}
			devices, ok := n.PickDevices(c.Spec)
			if gain := c.gain + n.with(c.Capsule, devices, -1) - n.worth; ok && gain > most {
				most, best, to = gain, c.Capsule, n.NodeState
			}
		}
	}
	return best, to
}

// with returns the worth of a node to which a capsule gives back what it has there (1), or from which it takes it (-1).
func (n *spot) with(c *orbit.Capsule, devices orbit.DeviceSet, sign int) float64 {
	free, rest := gpus(n.NodeState), n.Free()
	for i := range free {
		if devices.Has(i) {
			free[i] += sign * c.Spec.Devices.Milli
		}
	}
	for d, x := range c.Spec.Envelope.Reservation {
		rest[d] += int64(sign) * x
	}
	return worth(free, rest)
}

// move moves a capsule. The ledger judges the budget of its service.
func move(ctx context.Context, l *orbit.MemoryLedger, c *orbit.Capsule, to *orbit.NodeState) error {
	devices, _ := to.PickDevices(c.Spec)
	_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
		orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt},
		orbit.Place{Capsule: c.ID, Node: to.Node.ID, Devices: devices},
	}})
	return err
}
