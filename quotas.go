package orbit

import "github.com/orbitsched/orbit/internal/wide"

// Quotas is what the queues of a state use if some capsules are placed or have left: a navigator tries with it what the ledger would
// accept, and who would borrow how much. It counts in the way of the ledger, and exactly. Call Begin first. It is not safe for concurrent use.
type Quotas struct{ books tx }

// Begin forgets all that was charged, and counts from what the state shows.
func (q *Quotas) Begin(s *State) {
	q.books.queues.reset()
	q.books.s = s
}

// Follow forgets all that was charged, and counts what a draft shows: its view, and what its plan does.
func (q *Quotas) Follow(d *Draft) {
	s := d.view.state
	q.Begin(s)
	for _, do := range d.log {
		does := do.effect()
		if c := s.Capsule(does.leaves); c != nil && c.Placed() {
			q.chargeOn(c.Spec, s.Node(c.Node), -1)
		}
		if c := s.Capsule(does.arrives); c != nil {
			q.chargeOn(c.Spec, s.Node(does.node), 1)
		}
		if r, ok := do.(Respec); ok {
			if c := s.Capsule(r.Capsule); c != nil && c.Placed() {
				q.chargeOn(c.Spec, s.Node(c.Node), -1)
				q.chargeOn(r.Spec, s.Node(c.Node), 1)
			}
		}
	}
}

// chargeOn counts a capsule of a spec on a node; with the sign -1 it has left.
func (q *Quotas) chargeOn(spec *Spec, on *NodeState, sign int) {
	if on != nil {
		q.Charge(spec, on.Node.Devices.Model, sign)
	}
}

// Queue returns the state of a queue, and whether there is one. It is good until the next Charge.
func (q *Quotas) Queue(id QueueID) (QueueState, bool) {
	of := q.books.queue(id)
	if of == nil {
		return QueueState{}, false
	}
	return of.standing(&q.books), true
}

// Charge counts n more capsules of the spec as placed, with devices of the model; fewer, if n is negative. Without a model their
// devices are not counted. A spec that names no queue changes nothing.
func (q *Quotas) Charge(spec *Spec, model string, n int) {
	q.books.charge(&charged{queue: spec.Queue, spec: spec, model: model, placed: true}, n)
}

// Takes reports whether the ledger would accept by its quotas that n more capsules of the spec are placed, with devices of the model.
func (q *Quotas) Takes(spec *Spec, model string, n int) (takes bool) {
	takes = true
	for range q.lacks(spec, model, n) {
		takes = false
	}
	return takes
}

// Short returns what of each resource is missing for n more capsules of the spec, with devices of the model; nothing if Takes reports
// true.
func (q *Quotas) Short(spec *Spec, model string, n int) map[string]int64 {
	out := map[string]int64{}
	for r, x := range q.lacks(spec, model, n) {
		out[r.String()] = x.Int64()
	}
	return out
}

// Why says of each resource of which Short returns some how much is missing for n more capsules of the spec, at which queue of the
// tree, and which queues borrow it.
func (q *Quotas) Why(spec *Spec, model string, n int) (out []string) {
	var short []resource
	for r := range q.lacks(spec, model, n) {
		short = append(short, r)
	}
	q.Charge(spec, model, n)
	defer q.Charge(spec, model, -n)
	of := q.books.queue(spec.Queue)
	for _, r := range short {
		out = append(out, q.books.lackOf(of, of, r).text(&q.books.s.names))
	}
	return out
}

// lacks yields the resources of which too little is available for n more capsules, and how much too little.
func (q *Quotas) lacks(spec *Spec, model string, n int) func(func(resource, wide.Int) bool) {
	return func(yield func(resource, wide.Int) bool) {
		of := q.books.queue(spec.Queue)
		if of == nil {
			return
		}
		root := of.root(&q.books)
		for r, x := range spec.charges(model) {
			// What is available at the queue falls by what it takes, and is no more than what its tree leaves it.
			if want := (wide.Int{}.Plus(x)).Times(n); root.divides(r) {
				if free := of.available(&q.books, r); want.Exceeds(free) && !yield(r, want.Minus(free)) {
					return
				}
			}
		}
	}
}

// Meet returns the lowest queue that is above two others, or one of them; false: they are in different trees, or there is no
// such queue.
func (q *Quotas) Meet(a, b QueueID) (QueueID, bool) {
	first, second := q.books.queue(a), q.books.queue(b)
	if first == nil || second == nil {
		return "", false
	}
	x, _, ok := contenders(&q.books, first, second)
	if !ok {
		return "", false
	}
	return x.ancestor.id, true
}

// Below returns the share of the queue just below an ancestor, on the path from there to a queue, and whether it uses more than its
// subtree of a resource that a capsule of the spec would take with devices of the model. If the queue is the ancestor itself, it returns both for the
// capsules that name the ancestor. It requires that there are both queues.
func (q *Quotas) Below(ancestor, queue QueueID, spec *Spec, model string) (share Share, borrows bool) {
	at := contender{ancestor: q.books.queue(ancestor)}
	for up := q.books.queue(queue); up.id != ancestor; up = up.parent(&q.books) {
		at.queue = up
	}
	used, nominal, root := at.used(), at.nominal(), at.ancestor.root(&q.books)
	for r := range spec.charges(model) {
		borrows = borrows || root.divides(r) && used.of(r).Exceeds(nominal.of(r))
	}
	return at.share(&q.books), borrows
}

// Borrows reports whether each queue on the path from a queue up to the one just below its ancestor uses more than its subtree of a
// resource that a capsule of the spec would take with devices of the model: only from such queues a capsule may be evicted for one of
// another queue, and only if that holds as if the victim had stayed. If the queue is the ancestor itself, the answer is about the
// capsules that name the ancestor. It requires that there are both queues.
func (q *Quotas) Borrows(ancestor, queue QueueID, spec *Spec, model string) bool {
	if queue == ancestor {
		_, borrows := q.Below(ancestor, queue, spec, model)
		return borrows
	}
	root := q.books.queue(ancestor).root(&q.books)
	for up := q.books.queue(queue); up.id != ancestor; up = up.parent(&q.books) {
		borrows := false
		for r := range spec.charges(model) {
			borrows = borrows || root.divides(r) && up.borrowed(r) != (wide.Int{})
		}
		if !borrows {
			return false
		}
	}
	return true
}
