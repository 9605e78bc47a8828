package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// ticks is the number of steps in one round of trouble; in each step some work ends and other work arrives.
const ticks = 240

// trouble plays one round of trouble after the other.
func (c *cluster) trouble(ctx context.Context) {
	tick := time.NewTicker(c.minute / ticks)
	defer tick.Stop()
	start := time.Now()
	for i := 0; ; i++ {
		if err := c.act(ctx, i%ticks, time.Since(start)); err != nil && ctx.Err() == nil {
			fmt.Println("error:", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// act plays one tick.
func (c *cluster) act(ctx context.Context, tick int, at time.Duration) error {
	tell := func(format string, args ...any) {
		fmt.Printf("%4.0f s  %s\n", at.Seconds(), fmt.Sprintf(format, args...))
	}
	switch tick {
	case 0:
		tell("two engines place shops at the same time; some bets are lost")
	case ticks / 4:
		tell("more batch work comes than the cluster has room for, and urgent work besides")
	case ticks/2 - 1:
		percent, waiting, err := c.fullness(ctx)
		tell("the cluster is %d%% full, %d capsules wait, and %d have made way for urgent work so far", percent, waiting, c.moves.preempted.Load())
		return err
	case ticks / 2:
		tell("zone %s fails: %d nodes are lost", failing, racks*perRack)
		return c.loseZone(ctx, failing)
	case ticks * 7 / 10:
		tell("zone %s comes back, empty; %d capsules were lost with it so far", failing, c.moves.failed.Load())
		return c.regainZone(ctx, failing)
	case ticks * 3 / 4:
		tell("rack c3 is drained")
		return c.setRack(ctx, "c", 3, orbit.Cordoned)
	case ticks * 19 / 20:
		left, err := c.onRack(ctx, "c", 3)
		tell("rack c3 is back, %d capsules were still there; drains have moved %d so far, and returned %d to pending", left, c.moves.moved.Load(), c.moves.returned.Load())
		return errors.Join(err, c.setRack(ctx, "c", 3, orbit.Ready))
	}
	full := tick >= ticks/4 && tick < ticks/2
	return errors.Join(c.churnShops(ctx), c.churnTasks(ctx, full), c.urge(ctx, full && tick%4 == 0))
}

// churnShops replaces some of the shops' services, as a rollout does; each of the two engines places half of them.
func (c *cluster) churnShops(ctx context.Context) error {
	s, err := c.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		i := c.random.IntN(len(c.shops))
		old := s.Capsule(c.shops[i])
		if old == nil || !old.Placed() {
			continue
		}
		c.shops = slices.Delete(c.shops, i, i+1)
		owner := []string{"shops-east", "shops-west"}[c.random.IntN(2)]
		end := orbit.Release{Capsule: old.ID, From: old.Node, Final: true}
		if err := c.commit(ctx, end, c.submit(&c.shops, old.Spec.Module, 1, old.Spec, owner)); err != nil {
			return err
		}
	}
	return nil
}

// churnTasks ends tasks and submits others: as many as keep half of the cluster busy, or more than fit.
func (c *cluster) churnTasks(ctx context.Context, full bool) error {
	most, more, ends := 800, 60, max(12, len(c.tasks)/40)
	if full { // fewer end, so that little becomes free for urgent work
		most, more, ends = 3000, 300, 12
	}
	s, err := c.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	do := c.endTasks(s, max(ends, len(c.tasks)-most), len(c.tasks) <= most)
	if n := min(more, most-len(c.tasks)); n > 0 {
		for i, q := range queues {
			spec := &orbit.Spec{Module: "tasks", Class: orbit.Batch, Queue: q.id, Envelope: asks(1+int64(c.made%2), 2)}
			if i == 0 && full { // reports have less to do then, and lend what they do not use
				continue
			}
			do = append(do, c.submit(&c.tasks, string(q.id), max(1, n*q.percent/100), spec, ""))
		}
	}
	return c.commit(ctx, do...)
}

// endTasks returns releases of the oldest n tasks. If spare, tasks that wait do not end.
func (c *cluster) endTasks(s *orbit.State, n int, spare bool) (do []orbit.Commitment) {
	var kept []orbit.CapsuleID
	for i, id := range c.tasks {
		if len(do) == n {
			kept = append(kept, c.tasks[i:]...)
			break
		}
		switch task := s.Capsule(id); {
		case task == nil || task.Released():
		case task.Pending() && spare:
			kept = append(kept, id)
		default:
			do = append(do, orbit.Release{Capsule: id, From: task.Node, Final: true})
		}
	}
	c.tasks = kept
	return do
}

// urge submits urgent work, which ends as tasks do.
func (c *cluster) urge(ctx context.Context, some bool) error {
	if !some {
		return nil
	}
	spec := &orbit.Spec{Module: "urgent", Class: orbit.LatencySensitive, Priority: 10, Envelope: asks(6, 8)}
	return c.commit(ctx, c.submit(&c.tasks, "urgent", 2, spec, "urgent"))
}

// loseZone declares all nodes of a zone lost, and returns their capsules to pending.
func (c *cluster) loseZone(ctx context.Context, zone string) error {
	s, err := c.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	for rack := range racks {
		var do []orbit.Commitment
		for i := range perRack {
			n := s.Node(nodeID(zone, rack, i)).Node.Clone()
			n.State = orbit.Lost
			do = append(do, orbit.PutNode{Node: n})
		}
		if err := c.commit(ctx, do...); err != nil {
			return err
		}
	}
	return c.emptyZone(ctx, zone)
}

// emptyZone returns the capsules on the lost nodes of a zone to pending.
func (c *cluster) emptyZone(ctx context.Context, zone string) error {
	s, err := c.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	for rack := range racks {
		var do []orbit.Commitment
		for i := range perRack {
			for lost := range s.On(nodeID(zone, rack, i)) {
				do = append(do, orbit.Release{Capsule: lost.ID, From: lost.Node})
			}
		}
		if err := c.commit(ctx, do...); err != nil {
			return err
		}
	}
	return nil
}

// regainZone lets the nodes of a zone leave and join again.
func (c *cluster) regainZone(ctx context.Context, zone string) error {
	var leave []orbit.Commitment
	for rack := range racks {
		for i := range perRack {
			leave = append(leave, orbit.RemoveNode{Node: nodeID(zone, rack, i)})
		}
	}
	return errors.Join(c.emptyZone(ctx, zone), c.commit(ctx, leave...), c.commit(ctx, c.joinZone(zone)...))
}

// setRack cordons the nodes of a rack, or makes them ready again.
func (c *cluster) setRack(ctx context.Context, zone string, rack int, to orbit.Condition) error {
	s, err := c.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	var do []orbit.Commitment
	for i := range perRack {
		n := s.Node(nodeID(zone, rack, i)).Node.Clone()
		n.State = to
		do = append(do, orbit.PutNode{Node: n})
	}
	return c.commit(ctx, do...)
}

// onRack counts the capsules on a rack.
func (c *cluster) onRack(ctx context.Context, zone string, rack int) (n int, err error) {
	s, err := c.ledger.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	for i := range perRack {
		n += s.Node(nodeID(zone, rack, i)).Capsules
	}
	return n, nil
}

// commit proposes the commitments and ignores refusals: an engine may have moved a capsule since the state was read,
// and then the capsule stays as it is.
func (c *cluster) commit(ctx context.Context, do ...orbit.Commitment) error {
	for _, p := range apart(do) {
		_, err := c.ledger.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: p})
		if err != nil && !errors.Is(err, orbit.ErrConflict) && !errors.Is(err, orbit.ErrInfeasible) {
			return err
		}
	}
	return nil
}

// apart returns each release as a proposal of its own, because each may be too late. All other commitments stay
// together in one proposal, behind the releases.
func apart(do []orbit.Commitment) (out [][]orbit.Commitment) {
	var rest []orbit.Commitment
	for _, one := range do {
		if _, ok := one.(orbit.Release); ok {
			out = append(out, []orbit.Commitment{one})
		} else {
			rest = append(rest, one)
		}
	}
	if len(rest) > 0 {
		out = append(out, rest)
	}
	return out
}
