package race

import (
	"cmp"
	"maps"
	"math/big"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/quotas"
)

// This file judges queues ([orbit.Queue]) by books of their own: whether a commit lets a queue use what it does not have,
// and whether evictions between queues take back what was borrowed.

// queueSums are all queues and what their capsules use.
type queueSums = quotas.Queues[orbit.QueueID]

// charge is what a capsule takes of its queue, by the name of the resource. It is zero if the capsule is on no node.
type charge struct {
	queue orbit.QueueID
	takes map[string]int64
}

// chargeOf returns what a capsule takes of its queue on a node.
func chargeOf(spec *orbit.Spec, on *orbit.Node) charge {
	c := charge{spec.Queue, map[string]int64{}}
	for d, name := range [orbit.Dimensions]string{"cpu", "memory", "disk", "slots", "dim4", "dim5", "dim6", "dim7"} {
		c.takes[name] = spec.Envelope.Reservation[d]
	}
	if spec.Devices.Count > 0 {
		c.takes["device/"+on.Devices.Model] = int64(spec.Devices.Count * spec.Devices.Milli)
	}
	for _, x := range spec.Extras {
		c.takes["extra/"+x.Name] += x.Amount
	}
	maps.DeleteFunc(c.takes, func(_ string, x int64) bool { return x == 0 })
	return c
}

// charged returns what a capsule takes of its queue now.
func (a *audit) charged(m *auditCapsule) charge {
	if n := a.nodes[m.node]; n != nil {
		return chargeOf(m.spec, &n.Node)
	}
	return charge{}
}

// sums returns the queues, and what all capsules on nodes use of them together with some others.
func (a *audit) sums(others ...charge) *queueSums {
	out := &queueSums{All: map[orbit.QueueID]quotas.Queue[orbit.QueueID]{}}
	for id, q := range a.queues {
		out.All[id] = quotas.Queue[orbit.QueueID]{Parent: q.Parent, Nominal: q.Nominal, Borrow: q.Borrow, Lend: q.Lend, Weight: q.Weight}
	}
	own := map[orbit.QueueID]map[string]int64{}
	add := func(c charge) {
		if c.queue != "" && own[c.queue] == nil {
			own[c.queue] = map[string]int64{}
		}
		for r, x := range c.takes {
			if c.queue != "" {
				own[c.queue][r] += x
			}
		}
	}
	for _, m := range a.capsules {
		add(a.charged(m))
	}
	for _, c := range others {
		add(c)
	}
	out.Own = func(id orbit.QueueID, r string) *big.Rat { return new(big.Rat).SetInt64(own[id][r]) }
	return out
}

// queuesBefore is what the judgement of a commit needs to know of the queues before it.
type queuesBefore struct {
	*queueSums
	// What each capsule that the commit changes took, and which of them are facts, which no quota forbids.
	took  map[orbit.CapsuleID]charge
	facts map[orbit.CapsuleID]bool
}

// queuesBefore returns what is known before a commit is entered; nil if there are no queues.
func (a *audit) queuesBefore(changes []orbit.Change) *queuesBefore {
	put := func(c orbit.Change) bool { _, is := c.Do.(orbit.PutQueue); return is }
	if len(a.queues) == 0 && !slices.ContainsFunc(changes, put) {
		return nil
	}
	b := &queuesBefore{a.sums(), map[orbit.CapsuleID]charge{}, map[orbit.CapsuleID]bool{}}
	for i := range changes {
		var id orbit.CapsuleID
		switch do := changes[i].Do.(type) {
		case orbit.Place:
			id = do.Capsule
		case orbit.Evict:
			id = do.Capsule
		case orbit.Respec:
			id = do.Capsule
			b.facts[id] = b.facts[id] || do.Applied
		case orbit.Adopt:
			id = do.Capsule
			b.facts[id] = true
		}
		if m := a.capsules[id]; m != nil {
			b.took[id] = a.charged(m)
		} else if id != "" {
			b.took[id] = charge{}
		}
	}
	return b
}

// judgeQueues checks that no queue on the path of a capsule that came, grew or moved to another queue has less than
// nothing left of what that asked for, unless the commit took no more there than was taken before.
func (a *audit) judgeQueues(before *queuesBefore, rev orbit.Revision) {
	if before == nil {
		return
	}
	after := a.sums()
	for _, id := range slices.Sorted(maps.Keys(before.took)) {
		asks := a.quotaAsked(before, id)
		if queue, r := after.Overdrawn(before.queueSums, a.capsules[id].spec.Queue, asks); queue != "" {
			a.fail("over quota", "queue %s has %s of %s left after revision %d, in which %s of queue %s asks for %d", queue, after.Available(queue, r).RatString(), r, rev, id, a.capsules[id].spec.Queue, asks[r])
		}
	}
}

// quotaAsked returns what a commit has let a capsule take of its queue that it did not take before.
func (a *audit) quotaAsked(before *queuesBefore, id orbit.CapsuleID) map[string]int64 {
	m := a.capsules[id]
	if m == nil || before.facts[id] {
		return nil
	}
	was, now := before.took[id], a.charged(m)
	if was.queue == now.queue {
		maps.DeleteFunc(now.takes, func(r string, x int64) bool { return x <= was.takes[r] })
	}
	return now.takes
}

// reclaims returns what a victim makes way for in other queues, and whether it makes way for anything in its own queue, or
// where one of the two has none: then the priorities decide.
func (a *audit) reclaims(l *leaver, rev orbit.Revision) (between []*auditCapsule, within bool) {
	for _, m := range a.capsules {
		if m.node == "" || m.placedAt != rev || m.id != l.For && (m.gang == nil || m.gang.ID != l.ForGang) {
			continue
		}
		_, mine := a.queues[m.spec.Queue]
		_, theirs := a.queues[l.spec.Queue]
		if mine && theirs && m.spec.Queue != l.spec.Queue {
			between = append(between, m)
		} else {
			within = true
		}
	}
	slices.SortFunc(between, func(a, b *auditCapsule) int { return cmp.Compare(a.id, b.id) })
	return between, within
}

// judgeReclaim checks that an eviction takes back what the victim's queue has borrowed. Leavers are all that the commit
// takes off their nodes.
func (a *audit) judgeReclaim(l *leaver, leavers []leaver, between []*auditCapsule, before *queuesBefore, rev orbit.Revision) {
	if len(between) == 0 || l.borrows != (nominee{}) && l.borrows == (nominee{l.For, l.ForGang}) {
		return
	}
	stays := []charge{before.took[l.id]}
	if l.gang != nil && l.gang.empty() {
		stays = nil
		for i := range leavers {
			if leavers[i].gang == l.gang {
				stays = append(stays, before.took[leavers[i].id])
			}
		}
	}
	now, with := a.sums(), a.sums(stays...)
	for _, m := range between {
		r := quotas.Reclaim[orbit.QueueID]{Was: before.queueSums, Now: now, With: with, By: m.spec.Queue, From: l.spec.Queue, Asks: a.quotaAsked(before, m.id)}
		if !r.Just() {
			a.fail("reclaimed unjustly", "%s of queue %s is evicted for %s of queue %s at revision %d, and its queue has not borrowed, or has the lower share", l.id, l.spec.Queue, m.id, m.spec.Queue, rev)
		}
	}
}

// freesQuota reports whether a queue would have less than nothing left of what a commit placed if a victim had stayed, and has
// more without it.
func (a *audit) freesQuota(l *leaver, before *queuesBefore, rev orbit.Revision) bool {
	if before == nil || l.spec.Queue == "" {
		return false
	}
	now, with := a.sums(), a.sums(before.took[l.id])
	for _, m := range a.capsules {
		if m.node == "" || m.placedAt != rev {
			continue
		}
		for _, q := range now.Path(m.spec.Queue) {
			for r := range a.charged(m).takes {
				if slices.Contains(now.Divided(q), r) && with.Available(q, r).Sign() < 0 && now.Available(q, r).Cmp(with.Available(q, r)) > 0 {
					return true
				}
			}
		}
	}
	return false
}

// compareQueues compares what a state says of its queues with the books.
func (a *audit) compareQueues(state *orbit.State) {
	if len(a.queues) == 0 {
		return
	}
	sums := a.sums()
	for q := range state.Queues() {
		id := q.Queue.ID
		used, available := q.Used(), q.Available()
		for _, r := range sums.Divided(id) {
			if new(big.Rat).SetInt64(used[r]).Cmp(sums.Used(id, r)) != 0 || new(big.Rat).SetInt64(available[r]).Cmp(sums.Available(id, r)) != 0 {
				a.fail("books differ", "queue %s at revision %d uses %d of %s and has %d left; by the history it is %s and %s", id, state.Revision(), used[r], r, available[r], sums.Used(id, r).RatString(), sums.Available(id, r).RatString())
			}
		}
		if share := state.Share(id).String(); share != sums.Share(id).String() {
			a.fail("books differ", "the share of queue %s at revision %d is %s; by the history it is %s", id, state.Revision(), share, sums.Share(id))
		}
	}
}
