package place

import (
	"math"

	"github.com/orbitsched/orbit/internal/slots"
)

// tournament keeps the score of each node for one class, and finds the best node by a knock-out tournament: when a
// score changes, it repeats only the matches on that node's way to the final. It serves scores that cannot bound
// themselves, and classes for which a search does not converge. It takes about 16 bytes a node.
type tournament struct {
	// The scores by node index; NaN for a node that cannot take the class.
	values []float64
	// The tie values of the scores, by node index; nil while all are 0.
	ties []float64
	// Whether a node is a last resort, by node index; nil while none is.
	last []bool
	// The matches as a heap: winners[1] is the best node of all, the winner of the match between winners[2] and
	// winners[3], and so on down to the nodes. none: neither player can take the class.
	winners []int32
	// The nodes by district, for a class with preferences about domains of several nodes. Such a class has no matches,
	// because each placement changes which districts are better.
	districts *districtList
	// The position in the draft's journal; 0: all scores have to be computed anew.
	cursor uint64
}

// none stands for a missing node or district.
const none = -1

// sync brings the scores up to date. It returns how many it has computed, and whether it has computed all.
func (k *tournament) sync(c *specClass, r *rater, scratch *slots.Set) (rated int, all bool) {
	touched, next, all := r.draft.Changed(k.cursor)
	k.cursor = 0 // if a score panics, it stays so, and the next call rates all nodes
	if all || r.draft.Bound() > len(k.values) || k.districts.sparse() {
		k.build(c, r)
		k.cursor = next
		return r.draft.Bound(), true
	}
	scratch.Clear(len(k.values))
	for _, slot := range touched {
		if scratch.Add(slot) {
			k.rate(slot, c, r)
			rated++
			if k.districts != nil {
				k.districts.file(slot, r.node(slot))
			}
		}
	}
	if k.districts != nil {
		k.cursor = next
		return rated, false
	}
	scratch.Clear(len(k.values))
	for _, slot := range touched { // only now that all scores are new, because a match compares two of them
		if scratch.Add(slot) {
			k.play(slot, r)
		}
	}
	k.cursor = next
	return rated, false
}

// build rates all nodes and plays all matches. It leaves an eighth of the places empty, for nodes that join later.
func (k *tournament) build(c *specClass, r *rater) {
	n := r.draft.Bound() + r.draft.Bound()/8 + 2
	k.values = append(k.values[:0], make([]float64, n)...)
	k.ties, k.last = nil, nil
	for slot := range n {
		k.rate(int32(slot), c, r)
	}
	if len(c.wishes) > 0 {
		k.districts = newDistrictList(c.wishes, n)
		for slot := range r.draft.Bound() {
			k.districts.file(int32(slot), r.node(int32(slot)))
		}
		return
	}
	k.winners = append(k.winners[:0], make([]int32, n)...)
	for i := n - 1; i > 0; i-- {
		k.winners[i] = k.match(k.player(2*i), k.player(2*i+1), r)
	}
}

// rate computes the score of a node.
func (k *tournament) rate(slot int32, c *specClass, r *rater) {
	value, tie, last, ok := math.NaN(), 0.0, false, false
	if int(slot) < r.draft.Bound() {
		if n := r.node(slot); n != nil && n.Fits(c.spec) && c.near.reaches(n.Node) {
			var p pick
			p, ok = r.own(n, c.spec, &c.near)
			value, tie, last = p.own, p.tie, p.last
		}
	}
	if !ok {
		value, tie, last = math.NaN(), 0, false
	}
	if last && k.last == nil {
		k.last = make([]bool, len(k.values))
	}
	if k.last != nil {
		k.last[slot] = last
	}
	if tie != 0 && k.ties == nil {
		k.ties = make([]float64, len(k.values))
	}
	k.values[slot] = value
	if k.ties != nil {
		k.ties[slot] = tie
	}
}

// player returns the node at a place of the heap. Places below len(values) are winners of matches, the others are
// nodes.
func (k *tournament) player(place int) int32 {
	if n := len(k.values); place >= n {
		return int32(place - n)
	}
	return k.winners[place]
}

// match returns the better of two nodes; none if neither can take the class.
func (k *tournament) match(a, b int32, r *rater) int32 {
	switch {
	case a == none || k.values[a] != k.values[a]:
		if b != none && k.values[b] != k.values[b] {
			return none
		}
		return b
	case b == none || k.values[b] != k.values[b]:
		return a
	}
	best, other := k.pick(a, r), k.pick(b, r)
	if r.better(&other, &best) {
		return b
	}
	return a
}

func (k *tournament) tie(slot int32) float64 {
	if k.ties == nil {
		return 0
	}
	return k.ties[slot]
}

func (k *tournament) pick(slot int32, r *rater) pick {
	return pick{node: r.node(slot), last: k.last != nil && k.last[slot], value: k.values[slot], own: k.values[slot], tie: k.tie(slot)}
}

// play repeats all matches on the way of a node to the final.
func (k *tournament) play(slot int32, r *rater) {
	for place := (int(slot) + len(k.values)) / 2; place > 0; place /= 2 {
		k.winners[place] = k.match(k.player(2*place), k.player(2*place+1), r)
	}
}

// best returns the best node that no rule of company closes to the class.
func (k *tournament) best(c *specClass, r *rater) (best pick) {
	k.find(1, none, c, r, &best)
	return best
}

// find looks for a node that is better than best among the players below a place of the heap. If a rule of company
// closes the winner, it looks at both players of the match, so it visits few nodes more than are closed. Closed is a
// node that is known to be closed already, because it won the match above.
func (k *tournament) find(place int, closed int32, c *specClass, r *rater, best *pick) {
	slot := k.player(place)
	if slot == none || k.values[slot] != k.values[slot] {
		return
	}
	winner := k.pick(slot, r)
	switch {
	case best.node != nil && !r.better(&winner, best):
	case slot != closed && c.near.opens(winner.node.Node):
		*best = winner
	case place < len(k.values):
		k.find(2*place, slot, c, r, best)
		k.find(2*place+1, slot, c, r, best)
	}
}

// bytes estimates the memory that the tournament takes.
func (k *tournament) bytes() int {
	return 8*cap(k.values) + 8*cap(k.ties) + cap(k.last) + 4*cap(k.winners) + k.districts.bytes()
}
