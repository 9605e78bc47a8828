package orbit

import "math"

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
func (k *ranking) follow(c *specClass, r *rater, scratch *slotSet) (rated int, all bool) {
	touched, next, all := r.draft.journal.since(k.cursor)
	k.cursor = 0 // if a score panics, begin afresh
	if all || len(r.draft.nodes) > len(k.values) {
		k.build(c, r)
		k.cursor = next
		return len(r.draft.nodes), true
	}
	scratch.clear(len(k.values))
	for _, slot := range touched {
		if scratch.add(slot) {
			k.rate(slot, c, r)
			rated++
		}
	}
	scratch.clear(len(k.values))
	for _, slot := range touched { // when all that have left are known to be gone
		if scratch.add(slot) {
			k.play(slot, r)
		}
	}
	return rated, false
}

// build rates all nodes and plays all matches. It leaves places for some nodes that may join.
func (k *ranking) build(c *specClass, r *rater) {
	n := len(r.draft.nodes) + len(r.draft.nodes)/8 + 2
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
	if int(slot) < len(r.draft.nodes) {
		value, tie, ok = r.rate(r.draft.nodes[slot], c.spec, c.near)
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
	if r.better(r.draft.nodes[b], k.values[b], k.tie(b), &best) {
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

func (k *ranking) choice(slot int32, r *rater) Choice {
	return Choice{Node: r.draft.nodes[slot], Value: k.values[slot], Tie: k.tie(slot)}
}

// play repeats the matches of a node.
func (k *ranking) play(slot int32, r *rater) {
	for place := (int(slot) + len(k.values)) / 2; place > 0; place /= 2 {
		k.winners[place] = k.match(k.player(2*place), k.player(2*place+1), r)
	}
}

// best returns the winner.
func (k *ranking) best(r *rater) (best Choice) {
	if slot := k.winners[1]; slot != nobody {
		best = k.choice(slot, r)
	}
	return best
}

// bytes is about what the ranking takes.
func (k *ranking) bytes() int { return 8*cap(k.values) + 8*cap(k.ties) + 4*cap(k.winners) }

// slotSet is a set of node indices that is cleared in no time.
type slotSet struct {
	marks []uint32
	mark  uint32
}

// clear empties the set and makes room up to n.
func (s *slotSet) clear(n int) {
	if s.mark++; s.mark == 0 || len(s.marks) < n {
		s.marks, s.mark = make([]uint32, n), 1
	}
}

// add adds an index. It reports whether it is new.
func (s *slotSet) add(slot int32) bool {
	if s.marks[slot] == s.mark {
		return false
	}
	s.marks[slot] = s.mark
	return true
}
