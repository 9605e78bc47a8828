package place

import (
	"math"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/slots"
)

// ranking has the score of every node for one class, and the best of them: a knock-out tournament, in which a
// node whose score has changed plays its matches again and no others. It serves scores that cannot bound
// themselves, and costs about 16 bytes a node.
type ranking struct {
	// By node index; NaN: cannot take the class.
	values []float64
	// Nil while all are 0.
	ties []float64
	// winners[1] won the last match, of winners[2] and winners[3], and so on; below them are the nodes. -1:
	// nobody.
	winners []int32
	// Of the draft's journal.
	cursor uint64
}

const nobody = -1

// follow brings the scores up to date and returns how many were computed; all: every one.
func (k *ranking) follow(c *specClass, r *rater, scratch *slots.Set) (rated int, all bool) {
	touched, next, all := r.draft.Changed(k.cursor)
	k.cursor = 0 // if a score panics, begin afresh
	if all || r.draft.Bound() > len(k.values) {
		k.build(c, r)
		k.cursor = next
		return r.draft.Bound(), true
	}
	scratch.Clear(len(k.values))
	for _, slot := range touched {
		if scratch.Add(slot) {
			k.rate(slot, c, r)
			rated++
		}
	}
	scratch.Clear(len(k.values))
	for _, slot := range touched { // when all that have left are known to be gone
		if scratch.Add(slot) {
			k.play(slot, r)
		}
	}
	k.cursor = next
	return rated, false
}

// build rates all nodes and plays all matches. It leaves places for some nodes that may join.
func (k *ranking) build(c *specClass, r *rater) {
	n := r.draft.Bound() + r.draft.Bound()/8 + 2
	k.values = append(k.values[:0], make([]float64, n)...)
	k.ties = nil
	for slot := range n {
		k.rate(int32(slot), c, r)
	}
	k.winners = append(k.winners[:0], make([]int32, n)...)
	for i := n - 1; i > 0; i-- {
		k.winners[i] = k.match(k.player(2*i), k.player(2*i+1), r)
	}
}

// rate computes the score of a node.
func (k *ranking) rate(slot int32, c *specClass, r *rater) {
	value, tie, ok := math.NaN(), 0.0, false
	if int(slot) < r.draft.Bound() {
		value, tie, ok = r.rate(r.node(slot), c.spec, c.near)
	}
	if !ok {
		value, tie = math.NaN(), 0
	}
	if tie != 0 && k.ties == nil {
		k.ties = make([]float64, len(k.values))
	}
	k.values[slot] = value
	if k.ties != nil {
		k.ties[slot] = tie
	}
}

// player is who stands at a place of the tournament: winners of matches, then the nodes.
func (k *ranking) player(place int) int32 {
	if n := len(k.values); place >= n {
		return int32(place - n)
	}
	return k.winners[place]
}

// match returns the better of two.
func (k *ranking) match(a, b int32, r *rater) int32 {
	switch {
	case a == nobody || k.values[a] != k.values[a]:
		if b != nobody && k.values[b] != k.values[b] {
			return nobody
		}
		return b
	case b == nobody || k.values[b] != k.values[b]:
		return a
	}
	best := k.choice(a, r)
	if r.better(r.node(b), k.values[b], k.tie(b), &best) {
		return b
	}
	return a
}

func (k *ranking) tie(slot int32) float64 {
	if k.ties == nil {
		return 0
	}
	return k.ties[slot]
}

func (k *ranking) choice(slot int32, r *rater) orbit.Choice {
	return orbit.Choice{Node: r.node(slot), Value: k.values[slot], Tie: k.tie(slot)}
}

// play repeats the matches of a node.
func (k *ranking) play(slot int32, r *rater) {
	for place := (int(slot) + len(k.values)) / 2; place > 0; place /= 2 {
		k.winners[place] = k.match(k.player(2*place), k.player(2*place+1), r)
	}
}

// best returns the winner.
func (k *ranking) best(r *rater) (best orbit.Choice) {
	if slot := k.winners[1]; slot != nobody {
		best = k.choice(slot, r)
	}
	return best
}

// bytes is about what the ranking takes.
func (k *ranking) bytes() int { return 8*cap(k.values) + 8*cap(k.ties) + 4*cap(k.winners) }
