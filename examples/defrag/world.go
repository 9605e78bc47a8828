package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

// world is a cluster, and what has been submitted to it.
type world struct {
	ledger *orbit.MemoryLedger
	engine *orbit.Engine
	seed   uint64
	alive  []orbit.CapsuleID
	count  int
}

const (
	// services is the number of groups to which capsules belong; each has a budget by which a tenth may be missing.
	services = 50
	// waves is how often a fifth of the capsules ends and as many others come.
	waves = 10
)

// fill puts the nodes, lets capsules arrive and end wave by wave, and ends a part of them last.
func (w *world) fill(ctx context.Context, nodes []orbit.Node, pods []sim.Capsule, free float64) error {
	for i := range nodes {
		if err := w.do(ctx, orbit.PutNode{Node: nodes[i]}); err != nil {
			return err
		}
	}
	w.engine = packer(w.ledger)
	r := rand.New(rand.NewPCG(w.seed, 0))
	arrivals, err := sim.Inflate(pods, sim.DeviceCapacity(nodes), 1.0+0.25*waves, w.seed)
	if err != nil {
		return err
	}
	for wave := range waves + 1 {
		n := len(arrivals) / (waves + 3)
		if wave == 0 {
			n *= 3
		} else if err := w.end(ctx, r, len(w.alive)/5); err != nil {
			return err
		}
		if err := w.arrive(ctx, arrivals[:n]); err != nil {
			return err
		}
		arrivals = arrivals[n:]
	}
	if err := w.end(ctx, r, int(free*float64(len(w.alive)))); err != nil {
		return err
	}
	return w.budget(ctx)
}

// arrive submits capsules, lets the engine place them, and drops what does not fit.
func (w *world) arrive(ctx context.Context, capsules []sim.Capsule) error {
	var submit, drop []orbit.Commitment
	var ids []orbit.CapsuleID
	for _, c := range capsules {
		spec := *c.Spec
		spec.Movable, spec.Group = true, fmt.Sprint("service-", w.count%services)
		id := orbit.CapsuleID(fmt.Sprint("c", w.count))
		w.count++
		submit, ids = append(submit, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &spec}), append(ids, id)
	}
	if err := w.do(ctx, submit...); err != nil {
		return err
	}
	if err := errors.Join(w.engine.Pass(ctx).Errors...); err != nil {
		return err
	}
	state, err := w.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if state.Capsule(id).Pending() {
			drop = append(drop, orbit.Release{Capsule: id, Final: true})
		} else {
			w.alive = append(w.alive, id)
		}
	}
	return w.do(ctx, drop...)
}

// end ends capsules at random.
func (w *world) end(ctx context.Context, r *rand.Rand, count int) error {
	r.Shuffle(len(w.alive), func(i, j int) { w.alive[i], w.alive[j] = w.alive[j], w.alive[i] })
	var ends []orbit.Commitment
	for _, id := range w.alive[:count] {
		ends = append(ends, orbit.Release{Capsule: id, Final: true})
	}
	w.alive = slices.Delete(w.alive, 0, count)
	return w.do(ctx, ends...)
}

// budget puts a budget on each service: a tenth of its members may be missing.
func (w *world) budget(ctx context.Context) error {
	state, err := w.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	members := map[string]int{}
	for _, id := range w.alive {
		members[state.Capsule(id).Spec.Group]++
	}
	for i := range services {
		group := fmt.Sprint("service-", i)
		b := orbit.Budget{ID: orbit.BudgetID(group), Group: group, Expected: members[group], Missing: members[group] / 10}
		if err := w.do(ctx, orbit.PutBudget{Budget: b}); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) do(ctx context.Context, do ...orbit.Commitment) error {
	for chunk := range slices.Chunk(do, 1000) {
		if _, err := w.ledger.Propose(ctx, orbit.Proposal{Do: chunk}); err != nil {
			return err
		}
	}
	return nil
}

// tell draws the cluster and counts the gangs that fit.
func (w *world) tell(ctx context.Context, out io.Writer, when string) (fit int, err error) {
	state, err := w.ledger.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	free, all, room := 0, 0, rooms(state)
	for n := range state.Nodes() {
		for i := range n.Node.Devices.Count {
			all++
			if n.DeviceFree(i) == 1000 {
				free++
			}
		}
	}
	fmt.Fprintf(out, "%s: %d of %d GPUs are free as a whole, %.1f%%; gangs of 8 that fit: %d\n%s\n", when, free, all, 100*float64(free)/float64(all), room, picture(state))
	return room, state.Verify()
}

// brokenSince counts the commits since a state that have moved more members of a service than its budget allows. All
// members were placed then.
func brokenSince(ctx context.Context, l orbit.Ledger, start *orbit.State) (broken int, err error) {
	changes, err := l.Changes(ctx, start.Revision())
	if err != nil {
		return 0, err
	}
	moved := map[string]int{}
	for i, c := range changes {
		if e, ok := c.Do.(orbit.Evict); ok {
			moved[start.Capsule(e.Capsule).Spec.Group]++
		}
		if i+1 < len(changes) && changes[i+1].Revision == c.Revision {
			continue
		}
		for b := range start.Budgets() {
			if moved[b.Budget.Group] > b.Budget.Missing {
				broken++
			}
		}
		clear(moved)
	}
	return broken, nil
}
