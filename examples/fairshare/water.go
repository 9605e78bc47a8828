package main

import "github.com/orbitsched/orbit"

// queue is a queue of the tree, as this program knows it. Amounts are in GPUs.
type queue struct {
	id      orbit.QueueID
	letter  rune
	nominal int64
	// lends is how much of the quota the queue lends; -1: all.
	lends, weight int64
	children      []*queue
}

// amounts are GPUs by queue.
type amounts map[orbit.QueueID]float64

// has returns the queue's quota with what its children lend.
func (q *queue) has() float64 {
	sum := float64(q.nominal)
	for _, c := range q.children {
		sum += c.has() - c.keeps()
	}
	return sum
}

// keeps returns what the queue does not lend.
func (q *queue) keeps() float64 {
	if q.lends < 0 {
		return 0
	}
	return max(0, q.has()-float64(q.lends))
}

// takes returns what the queue takes if its own work takes so much: its own, and what its children take beyond what they keep.
func (q *queue) takes(own amounts) float64 {
	sum := own[q.id]
	for _, c := range q.children {
		sum += max(0, c.takes(own)-c.keeps())
	}
	return sum
}

// over returns by how much work takes more than the tree has. What a queue borrows is taken from the queues above it, up to the
// root, so it shows there.
func (q *queue) over(own amounts) float64 { return max(0, q.takes(own)-q.has()) }

// fill divides an amount among the leaves below the queue as water does. Each child first has what it wants up to its
// quota. What is left rises in all children that want more, for each unit of weight to the same level, until nothing is left.
func (q *queue) fill(amount float64, wants, out amounts) {
	if len(q.children) == 0 {
		out[q.id] = min(amount, wants[q.id])
		return
	}
	lacks := make([]float64, len(q.children))
	for i, c := range q.children {
		shared := max(0, c.takes(wants)-c.keeps())
		sure := min(shared, c.has()-c.keeps())
		amount -= sure
		lacks[i] = shared - sure
	}
	level := q.level(amount, lacks)
	for i, c := range q.children {
		sure := min(max(0, c.takes(wants)-c.keeps()), c.has()-c.keeps())
		c.fill(c.keeps()+sure+min(lacks[i], level*float64(c.weight)), wants, out)
	}
}

// level returns how high an amount rises in the children, of which each lacks something, for each unit of weight.
func (q *queue) level(amount float64, lacks []float64) (level float64) {
	for {
		weight, next := 0.0, 0.0
		for i, c := range q.children {
			if left := lacks[i]/float64(c.weight) - level; left > 0 {
				weight += float64(c.weight)
				if next == 0 || left < next {
					next = left
				}
			}
		}
		if weight == 0 || amount <= 1e-9 {
			return level
		}
		step := min(next, amount/weight)
		level, amount = level+step, amount-step*weight
	}
}
