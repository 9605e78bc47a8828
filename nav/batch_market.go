package nav

import (
	"math"
	"math/bits"

	"github.com/orbitsched/orbit"
)

// market is supply and demand: free room, and classes of capsules that want some of it.
type market struct {
	classes []*batchClass
	wants   []goods
	// How many of each class there are to place, no more than all rooms would take of it alone.
	counts []int
	labels *labelKinds
	kinds  []roomKind
}

// roomKind is rooms that are nearly alike. What is free adds up; what fits one of them fits the kind.
type roomKind struct {
	labels int
	sum    [goodsDim]float64
	most   room
}

// stock is rooms that are all alike.
type stock struct {
	room
	rooms int
}

// newMarket looks at all nodes with an index below a limit.
func newMarket(limit int, node func(int) *orbit.NodeState, classes []*batchClass) *market {
	m := &market{classes: classes, labels: newLabelKinds(classes), counts: make([]int, len(classes))}
	for _, c := range classes {
		m.wants = append(m.wants, goodsOf(c.spec))
	}
	stocks := m.stocks(limit, node)
	for i, c := range classes {
		m.counts[i] = m.room(stocks, i, len(c.capsules))
	}
	most := min(max(maxColumns/max(len(classes), 1), maxColumns/maxGroups), maxKinds)
	m.kinds = kindsOf(stocks, math.MaxInt)
	for keep := 8; len(m.kinds) > most && keep >= -1; keep-- {
		m.kinds = kindsOf(stocks, keep)
	}
	return m
}

// maxKinds bounds what has to be priced.
const maxKinds = 64

// stocks gathers what is free, without that for which no class has a use.
func (m *market) stocks(limit int, node func(int) *orbit.NodeState) (out []stock) {
	least, most := m.extremes()
	known := map[room]int{}
	for i := range limit {
		n := node(i)
		if n == nil || n.Node.Unschedulable {
			continue
		}
		r := roomOf(n)
		if !r.goods.cover(&least) {
			continue
		}
		r.ignore(&most)
		r.labels = m.labels.of(n.Node, m.classes)
		at, found := known[r]
		if !found {
			at = len(out)
			known[r] = at
			out = append(out, stock{room: r})
		}
		out[at].rooms++
	}
	return out
}

// extremes returns the least and the most of everything that a class wants.
func (m *market) extremes() (least, most goods) {
	for i := range m.wants {
		for d, w := range m.wants[i] {
			if i == 0 || w < least[d] {
				least[d] = w
			}
			most[d] = max(most[d], w)
		}
	}
	return least, most
}

// room returns how many capsules of one class all rooms would take if it were alone; at most limit.
func (m *market) room(stocks []stock, class, limit int) (n int) {
	for i := range stocks {
		if s := &stocks[i]; m.labels.suits[s.labels][class] && n < limit {
			each := s.fits(m.classes[class].spec, &m.wants[class], limit)
			if each > 0 && s.rooms > (limit-n)/each {
				return limit
			}
			n += each * s.rooms
		}
	}
	return n
}

// kindsOf puts rooms together that agree in so many leading bits of everything; below 0 in their labels alone.
func kindsOf(stocks []stock, keep int) (kinds []roomKind) {
	type key struct {
		labels int
		goods  goods
	}
	known := map[key]int{}
	for i := range stocks {
		s := &stocks[i]
		k := key{labels: s.labels}
		for d, v := range s.goods {
			k.goods[d] = coarse(v, keep)
		}
		at, found := known[k]
		if !found {
			at = len(kinds)
			known[k] = at
			kinds = append(kinds, roomKind{labels: s.labels})
		}
		kinds[at].add(s)
	}
	return kinds
}

// add takes in more rooms.
func (k *roomKind) add(s *stock) {
	for d, v := range s.goods {
		k.sum[d] += float64(s.rooms) * float64(v)
		k.most.goods[d] = max(k.most.goods[d], v)
	}
	for i, milli := range s.devices {
		k.most.devices[i] = max(k.most.devices[i], milli)
	}
}

// takes reports whether a capsule of the class fits one of the rooms.
func (m *market) takes(k *roomKind, class int) bool {
	return m.labels.suits[k.labels][class] && k.most.fits(m.classes[class].spec, &m.wants[class], 1) > 0
}

// coarse keeps the leading bits of v, none of them below 0.
func coarse(v int64, keep int) int64 {
	switch shift := bits.Len64(uint64(v)) - keep; {
	case keep < 0:
		return 0
	case shift > 0:
		return v >> shift << shift
	}
	return v
}
