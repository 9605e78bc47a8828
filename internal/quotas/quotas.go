// Package quotas works out anew what queues use and may use (orbit.Queue). Tests and races judge ledgers by it: it reads
// the formulas one by one, in rational numbers, keeps nothing between two questions, and shares no code with a ledger.
package quotas

import (
	"maps"
	"math"
	"math/big"
	"slices"
)

// Queue is a queue. Its amounts are by the name of the resource.
type Queue[ID ~string] struct {
	Parent                ID
	Nominal, Borrow, Lend map[string]int64
	Weight                int64
}

// Queues are all queues at one moment.
type Queues[ID ~string] struct {
	All map[ID]Queue[ID]
	// Own returns how much the capsules use that name a queue.
	Own func(queue ID, resource string) *big.Rat
}

// Less returns x - y.
func Less(x, y *big.Rat) *big.Rat { return new(big.Rat).Sub(x, y) }

// Plus returns x + y.
func Plus(x, y *big.Rat) *big.Rat { return new(big.Rat).Add(x, y) }

// amount returns the amount of a resource in a list, and whether the list names it.
func amount(list map[string]int64, resource string) (*big.Rat, bool) {
	x, named := list[resource]
	return new(big.Rat).SetInt64(x), named
}

// above0 returns x, or 0 if it is less.
func above0(x *big.Rat) *big.Rat {
	if x.Sign() < 0 {
		return new(big.Rat)
	}
	return x
}

// least returns the smaller one.
func least(x, y *big.Rat) *big.Rat {
	if x.Cmp(y) < 0 {
		return x
	}
	return y
}

// Children returns the queues just below one.
func (q *Queues[ID]) Children(id ID) (out []ID) {
	for child, c := range q.All {
		if c.Parent == id {
			out = append(out, child)
		}
	}
	return out
}

// Path returns a queue and those above it, the root last; nothing if there is no such queue.
func (q *Queues[ID]) Path(id ID) (out []ID) {
	for len(out) <= len(q.All) {
		at, ok := q.All[id]
		if !ok {
			break
		}
		out = append(out, id)
		id = at.Parent
	}
	return out
}

// Divided returns the resources that the tree of a queue divides, in order.
func (q *Queues[ID]) Divided(id ID) []string {
	names, path := map[string]bool{}, q.Path(id)
	for other, at := range q.All {
		if p := q.Path(other); p[len(p)-1] == path[len(path)-1] {
			for name := range at.Nominal {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Subtree returns what a queue has, with what those below it lend.
func (q *Queues[ID]) Subtree(id ID, r string) *big.Rat {
	sum, _ := amount(q.All[id].Nominal, r)
	for _, child := range q.Children(id) {
		sum = Plus(sum, Less(q.Subtree(child, r), q.Local(child, r)))
	}
	return sum
}

// Local returns what a queue does not lend.
func (q *Queues[ID]) Local(id ID, r string) *big.Rat {
	lend, limited := amount(q.All[id].Lend, r)
	if !limited {
		return new(big.Rat)
	}
	return above0(Less(q.Subtree(id, r), lend))
}

// Used returns what a queue uses, with what counts there of the queues below it.
func (q *Queues[ID]) Used(id ID, r string) *big.Rat {
	sum := q.Own(id, r)
	for _, child := range q.Children(id) {
		sum = Plus(sum, above0(Less(q.Used(child, r), q.Local(child, r))))
	}
	return sum
}

// Available returns what a queue has left; it may be negative.
func (q *Queues[ID]) Available(id ID, r string) *big.Rat {
	at, used := q.All[id], q.Used(id, r)
	if at.Parent == "" {
		return Less(q.Subtree(id, r), used)
	}
	local, above := q.Local(id, r), q.Available(at.Parent, r)
	if borrow, limited := amount(at.Borrow, r); limited {
		above = least(above, Plus(Less(Less(q.Subtree(id, r), local), above0(Less(used, local))), borrow))
	}
	return Plus(above0(Less(local, used)), above)
}

// Most returns how much a queue and the queues below it may use while all other queues use nothing.
func (q *Queues[ID]) Most(id ID, r string) *big.Rat {
	at := q.All[id]
	if at.Parent == "" {
		return q.Subtree(id, r)
	}
	most := Plus(q.Local(id, r), q.Most(at.Parent, r))
	if borrow, limited := amount(at.Borrow, r); limited {
		most = least(most, Plus(q.Subtree(id, r), borrow))
	}
	return most
}

// Borrowed returns what a queue uses beyond its subtree.
func (q *Queues[ID]) Borrowed(id ID, r string) *big.Rat {
	return above0(Less(q.Used(id, r), q.Subtree(id, r)))
}

// Overdrawn returns a queue on the path of one that has less than nothing left of a resource that is asked for and uses
// more of it than was used before; empty: there is none.
func (q *Queues[ID]) Overdrawn(was *Queues[ID], id ID, asks map[string]int64) (queue ID, resource string) {
	for _, at := range q.Path(id) {
		for _, r := range q.Divided(at) {
			if asks[r] > 0 && q.Available(at, r).Sign() < 0 && q.Used(at, r).Cmp(was.Used(at, r)) > 0 {
				return at, r
			}
		}
	}
	return "", ""
}

// Share is a share; nil: it is infinite.
type Share struct{ *big.Rat }

// String returns the share as orbit.Share writes it.
func (s Share) String() string {
	if s.Rat == nil {
		return "infinite"
	}
	if s.Sign() == 0 {
		return "0"
	}
	return s.Rat.String()
}

// Compare returns -1, 0 or 1, as s is less than o, equal, or more.
func (s Share) Compare(o Share) int {
	switch {
	case s.Rat == nil && o.Rat == nil:
		return 0
	case s.Rat == nil:
		return 1
	case o.Rat == nil:
		return -1
	}
	return s.Cmp(o.Rat)
}

// shareBelow returns the share of what is below a parent and uses so much more than it has.
func (q *Queues[ID]) shareBelow(parent ID, weight int64, over func(r string) *big.Rat) Share {
	share := Share{new(big.Rat)}
	for _, r := range q.Divided(parent) {
		x := over(r)
		if x.Sign() <= 0 {
			continue
		}
		x = least(x, new(big.Rat).SetUint64(math.MaxUint64))
		most := q.Most(parent, r)
		if most.Sign() == 0 {
			return Share{}
		}
		of := Share{new(big.Rat).Quo(x, most.Mul(most, new(big.Rat).SetInt64(max(1, weight))))}
		if of.Compare(share) > 0 {
			share = of
		}
	}
	return share
}

// Share returns the share of a queue.
func (q *Queues[ID]) Share(id ID) Share {
	at := q.All[id]
	if at.Parent == "" {
		return Share{new(big.Rat)}
	}
	return q.shareBelow(at.Parent, at.Weight, func(r string) *big.Rat { return q.Borrowed(id, r) })
}

// side is the queue just below the lowest common ancestor of two; empty: it is the capsules that name the ancestor.
type side[ID ~string] struct{ ancestor, queue ID }

// sides returns those of two queues.
func (q *Queues[ID]) sides(a, b ID) (x, y side[ID], ok bool) {
	mine, other := q.Path(a), q.Path(b)
	for i, id := range mine {
		if j := slices.Index(other, id); j >= 0 {
			x.ancestor, y.ancestor = id, id
			if i > 0 {
				x.queue = mine[i-1]
			}
			if j > 0 {
				y.queue = other[j-1]
			}
			return x, y, true
		}
	}
	return x, y, false
}

// over returns what a side uses beyond what it has.
func (q *Queues[ID]) over(s side[ID], r string) *big.Rat {
	if s.queue != "" {
		return q.Borrowed(s.queue, r)
	}
	nominal, _ := amount(q.All[s.ancestor].Nominal, r)
	return above0(Less(q.Own(s.ancestor, r), nominal))
}

func (q *Queues[ID]) shareOf(s side[ID]) Share {
	if s.queue != "" {
		return q.Share(s.queue)
	}
	return q.shareBelow(s.ancestor, 1, func(r string) *big.Rat { return q.over(s, r) })
}

// Reclaim is an eviction between two queues: a capsule of the queue By comes, and one of the queue From leaves.
type Reclaim[ID ~string] struct {
	// The queues before the commit, after it, and as they were after it if the victim, and what leaves with it, stayed.
	Was, Now, With *Queues[ID]
	By, From       ID
	// Asks is what the newcomer takes.
	Asks map[string]int64
}

// Just reports whether the eviction takes back what was borrowed, and leaves the newcomer's side with no more than its share.
func (e *Reclaim[ID]) Just() bool {
	x, y, ok := e.Now.sides(e.By, e.From)
	if _, was := e.Was.All[y.ancestor]; !ok || !was {
		return false
	}
	if _, was := e.Was.All[y.queue]; y.queue != "" && !was {
		return false
	}
	borrowed := func(of func(r string) *big.Rat) bool {
		for r := range e.Asks {
			if (slices.Contains(e.Was.Divided(y.ancestor), r) || slices.Contains(e.Now.Divided(y.ancestor), r)) && of(r).Sign() > 0 {
				return true
			}
		}
		return false
	}
	if !borrowed(func(r string) *big.Rat { return e.Was.over(y, r) }) {
		return false
	}
	// A queue that borrows nothing is never a victim, also below a queue that borrows.
	if y.queue == "" && !borrowed(func(r string) *big.Rat { return e.With.over(y, r) }) {
		return false
	}
	for _, q := range e.Now.Path(e.From) {
		if q == y.ancestor {
			break
		}
		if !borrowed(func(r string) *big.Rat { return e.With.Borrowed(q, r) }) {
			return false
		}
	}
	mine, theirs, before := e.Now.shareOf(x), e.Now.shareOf(y), e.Was.shareOf(y)
	return mine.Compare(theirs) < 0 || mine.Compare(theirs) == 0 && theirs.Compare(before) < 0
}
