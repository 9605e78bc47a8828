package orbit

import "time"

// What an engine of a strict population says to the others, and which of its work waits for theirs.

// takeBatch takes the next capsules to plan from the queue, except those that have to wait for the work of other engines.
func (e *Engine) takeBatch(start time.Time, most int) []*Capsule {
	queue, share := &e.view.queue, e.strict()
	if share == nil {
		e.retry(start, most)
		return queue.take(most)
	}
	bar := share.bar(e.view.Revision(), start)
	if e.barred = bar != noPriority; !e.barred { // a class that is tried again cannot wait in the queue
		e.retry(start, most)
	}
	queue.bar = &bar
	pending, open, waits := queue.take(most), queue.highest(), noPriority
	if open <= bar {
		waits = open
	}
	for _, c := range pending {
		open = max(open, int64(c.Spec.Priority))
	}
	e.lostAt = noPriority
	share.took(e.view.Revision(), len(pending) > 0, open, waits, start)
	return pending
}

// strict returns the engine's share in the order of a strict population; nil: it waits for no other.
func (e *Engine) strict() *strictShare {
	if m := e.population.Load(); m != nil {
		return m.strict
	}
	return nil
}

// endPass says to the other engines of a strict population which work is left open: what no plan was asked for, and what
// has lost its bet.
func (e *Engine) endPass() {
	if share := e.strict(); share != nil {
		share.passed(e.view.Revision(), max(e.view.queue.highest(), e.lostAt), time.Now())
	}
}
