package orbit

import (
	"math"
	"slices"
)

// A batch has no room for all work that waits in a large backlog. So that the work of each queue of the ledger ([Spec.Queue]) is
// planned, not only that of the highest priority, half of a batch is taken from these queues in turn. The batch is in the usual order.

// heads takes up to half of a batch of n from classes that name queues, if there is more ready work than the batch takes: one
// capsule of each queue in turn, in order of the ids, from the queue after the one at which the last call has ended. It takes
// the first capsule of the queue. The entries are in the order in which they are planned.
func (q *queue) heads(n int) (taken []headEntry) {
	if q.named == 0 || !q.exceeds(n) {
		return nil
	}
	byQueue := map[QueueID][]*class{}
	for i := range q.ready {
		if k := q.ready[i].class; k.spec.Queue != "" && (q.bar == nil || int64(k.spec.Priority) > *q.bar) {
			byQueue[k.spec.Queue] = append(byQueue[k.spec.Queue], k)
		}
	}
	ids := make([]QueueID, 0, len(byQueue))
	for id := range byQueue {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	at, _ := slices.BinarySearch(ids, q.lastHead+"\x00")
	ids = slices.Concat(ids[at:], ids[:at])
	for len(ids) > 0 && len(taken) < n/2 {
		id := ids[0]
		head, ok := q.popFirst(byQueue[id])
		if ids = ids[1:]; !ok {
			continue
		}
		taken, q.lastHead = append(taken, head), id
		ids = append(ids, id)
	}
	slices.SortStableFunc(taken, func(a, b headEntry) int { return a.compare(&b) })
	return taken
}

// exceeds reports whether more entries are ready than n.
func (q *queue) exceeds(n int) bool {
	for i := range q.ready {
		if n -= q.ready[i].class.size(); n < 0 {
			return true
		}
	}
	return false
}

// popFirst takes the first valid entry of some classes in the order of their turns; ok is false if there is none.
func (q *queue) popFirst(classes []*class) (head headEntry, ok bool) {
	for {
		var first *class
		for _, k := range classes {
			if k.at >= 0 && (first == nil || q.ready[k.at].before(&q.ready[first.at])) {
				first = k
			}
		}
		if first == nil {
			return head, false
		}
		head.turn = q.ready[first.at]
		head.entry = first.pop()
		for !first.empty() && first.first() == head.entry { // the capsule was filed twice
			first.pop()
		}
		q.fix(first)
		if head.capsule = q.valid(head.entry); head.capsule != nil {
			return head, true
		}
	}
}

// headEntry is an entry that was taken from its class before the others of the batch.
type headEntry struct {
	entry
	capsule *Capsule
	turn    readyTurn
}

// compare orders entries as they are planned.
func (a *headEntry) compare(b *headEntry) int {
	return btoi(b.turn.before(&a.turn)) - btoi(a.turn.before(&b.turn))
}

// merge puts heads into the batch, each before the first capsule that is planned after it.
func (q *queue) merge(heads []headEntry) {
	if len(heads) == 0 {
		return
	}
	batch, out := q.batch, slices.Clone(q.out)
	q.batch, q.out = make([]entry, 0, len(batch)+len(heads)), q.out[:0]
	for i := 0; i < len(out) || len(heads) > 0; {
		if len(heads) > 0 && (i == len(out) || !q.precedes(batch[i], out[i], &heads[0].turn)) {
			q.batch, q.out = append(q.batch, heads[0].entry), append(q.out, heads[0].capsule)
			heads = heads[1:]
			continue
		}
		q.batch, q.out = append(q.batch, batch[i]), append(q.out, out[i])
		i++
	}
}

// precedes reports whether an entry is planned before a turn, or at the same time.
func (q *queue) precedes(e entry, c *Capsule, turn *readyTurn) bool {
	mine := readyTurn{urgent: q.state.inBroken(c)}
	if mine.priority, mine.submitted = q.turnOf(e, c.Spec); c.Nomination().Lives() {
		mine.nominee = c.Nomination()
	}
	if q.aging != nil {
		mine.urgent, mine.nominee = false, nil
	}
	return !turn.before(&mine)
}

// SetTurns sets the order in which the navigator plans pending work, until the next call or pass: [View.Turn] returns
// these numbers, and the lowest number that there is for all other capsules. It is for a navigator that wraps another and decides the order
// for it, as nav.Fair does. Nil: the order is that of the engine. Call it only during a Plan, from the goroutine of the Plan.
func (v *View) SetTurns(turns map[CapsuleID]int32) { v.turns = turns }

// Turn returns the number by which a capsule is planned: work with a higher number comes first. It is [View.Aged] unless a
// navigator has set another order for the one that it wraps. A navigator that sorts the capsules that it is given must
// sort by Turn; otherwise it loses the order in which they were handed over.
func (v *View) Turn(c *Capsule) int32 {
	if v.turns == nil || c == nil {
		return v.Aged(c)
	}
	if turn, set := v.turns[c.ID]; set {
		return turn
	}
	return math.MinInt32
}
