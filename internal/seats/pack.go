package seats

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
)

// Packer finds seats for members on the nodes of one domain, and keeps the domain useful for other work: nodes in
// use are filled first, the fullest of them foremost, and as few idle nodes as possible. Members without devices go to
// nodes with devices only when they fit on no other.
//
// Members of one shape fit exactly if the counts of the nodes add up. With several shapes, the packer first checks that
// the domain has enough free capacity at all. Then it seats the members greedily, shape after shape, in a few orders.
// Then a search decides ([packSearch]). For members to which rules of company apply the counts are upper bounds, and a
// trial on the draft decides ([gangTrial]).
type Packer struct {
	Index *Index
	Asks  []Ask
	// The fewest members that must be placed in all, beside the minimum of each ask.
	LeastInAll int
	// How many members a gang that runs lacks in all. TopUp seats so many if they find seats, but fewer will do.
	NeededInAll int
	Steps       *Budget
	// The most members that may get a seat.
	Limit int
	// Seat members by trying, although no rules of company apply to them (ruled).
	Tries bool
}

// Seat is the planned node of one member, with its devices.
type Seat struct {
	Ask     int
	Node    int32
	Devices orbit.DeviceSet
}

// Seating is the result of a packer: seats, and how many members of each ask have one.
type Seating struct {
	Seats  []Seat
	Placed []int
	Total  int
	// The members must be placed in the order of the seats, because rules Even may not allow another one.
	ordered bool
}

// Bin is one node while seats are tried.
type Bin struct {
	Node int32
	id   orbit.NodeID
	idle bool
	rank float64
	// The node has devices.
	devices bool
	Free    Capacity
	// How many members of each ask fit alone on the bin before any is seated; 0 also if the ask excludes the node.
	Fits []int32
}

// order compares bins in the order in which they are filled.
func (a *Bin) order(b *Bin) int {
	if a.rank != b.rank {
		return cmp.Compare(a.rank, b.rank)
	}
	return cmp.Compare(a.id, b.id)
}

// fewNodes is the size of a domain up to which all of its nodes are tried at once. In larger domains the nodes that
// come first for each ask are tried first; an idle node that is then chosen may not be the tightest fit of the domain.
const fewNodes = 256

// pack seats as many members as fit, and at least the minimums; nil if these do not fit. Unless the
// search runs out of steps, no seating has more members.
func (p *Packer) pack(nodes []int32) *Seating {
	if len(p.Asks) == 0 {
		return &Seating{}
	}
	if p.ruled() {
		return p.try(nodes)
	}
	first := nodes
	if len(nodes) > fewNodes {
		first = p.shortlist(nodes)
	}
	bins := p.bins(first)
	if len(p.Asks) == 1 {
		return p.enough(p.greedy(bins, []int{0}))
	}
	if len(first) == len(nodes) && !p.enoughFree(bins) {
		return nil
	}
	if len(first) < len(nodes) {
		if s := p.tryOrders(bins); s != nil && s.Total == Wanted(p.Asks) {
			return s
		}
		bins = p.bins(nodes)
	}
	best := p.enough(p.tryOrders(bins))
	if best != nil && best.Total == Wanted(p.Asks) {
		return best
	}
	if s := p.Search(bins); s != nil && (best == nil || s.Total > best.Total) {
		best = s
	}
	return best
}

// enoughFree reports whether the bins together have the capacity for the minimum of all asks; if not, no seating
// exists.
func (p *Packer) enoughFree(bins []Bin) bool {
	var want, free [AllDims]float64
	for d := range want {
		for i := range p.Asks {
			want[d] += float64(p.Asks[i].Least) * float64(WantOf(p.Asks[i].Spec, d))
		}
	}
	for i := range bins {
		for d, v := range MeasureFree(p.Index.Draft.Node(int(bins[i].Node))) {
			free[d] += float64(v)
		}
	}
	for d := range want {
		if want[d] > free[d]*(1+1e-9) { // by more than rounding can account for
			return false
		}
	}
	return true
}

// enough returns the seating if it has the minimum of each ask and of all, else nil.
func (p *Packer) enough(s *Seating) *Seating {
	for i := range p.Asks {
		if s == nil || s.Placed[i] < p.Asks[i].Least {
			return nil
		}
	}
	if s.Total < p.LeastInAll {
		return nil
	}
	return s
}

// bins returns the nodes that can take a member of at least one shape, in the order in which they are filled.
func (p *Packer) bins(nodes []int32) []Bin {
	bins := make([]Bin, 0, len(nodes))
	counts := make([]int32, len(nodes)*len(p.Asks))
	for _, i := range nodes {
		bin := Bin{Node: i, idle: p.Index.ranks[i] == idleRank, rank: p.Index.ranks[i], devices: p.Index.hasDevices(i)}
		bin.Fits = counts[:len(p.Asks):len(p.Asks)]
		fits := false
		for a := range p.Asks {
			bin.Fits[a] = p.Asks[a].Shape.Counts[i].number()
			fits = fits || bin.Fits[a] > 0
		}
		if fits {
			bin.id, bin.Free = p.Index.id(i), p.Index.Free[i]
			counts = counts[len(p.Asks):]
			bins = append(bins, bin)
		}
	}
	plain := !slices.ContainsFunc(p.Asks, func(a Ask) bool { return a.Spec.Devices.Count > 0 })
	slices.SortFunc(bins, func(a, b Bin) int {
		if plain && a.devices != b.devices {
			return btoi(a.devices) - btoi(b.devices)
		}
		return a.order(&b)
	})
	return bins
}

// shortlist returns the nodes that come first for each ask: twice as many as could be needed, since each takes at least
// one member.
func (p *Packer) shortlist(nodes []int32) []int32 {
	var out []int32
	for a := range p.Asks {
		out = append(out, p.Index.foremost(nodes, &p.Asks[a], 2*p.Asks[a].Want+16)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// foremost returns the first n nodes by rank among those that take a member of the ask; those with devices last if the
// ask has none. Among equal ranks it goes by index, which is cheaper to compare than an id, and is the same for all
// engines that read the state.
func (x *Index) foremost(nodes []int32, a *Ask, n int) []int32 {
	counts, plain := a.Shape.Counts, a.Spec.Devices.Count == 0
	order := func(i, j int32) int {
		if plain && x.hasDevices(i) != x.hasDevices(j) {
			return btoi(x.hasDevices(i)) - btoi(x.hasDevices(j))
		}
		if x.ranks[i] != x.ranks[j] {
			return cmp.Compare(x.ranks[i], x.ranks[j])
		}
		return cmp.Compare(i, j)
	}
	var kept []int32
	worst := int32(-1)
	for _, i := range nodes {
		if counts[i] == 0 || worst >= 0 && order(i, worst) > 0 {
			continue
		}
		if kept = append(kept, i); len(kept) == 2*n {
			slices.SortFunc(kept, order)
			kept = kept[:n]
			worst = kept[n-1]
		}
	}
	slices.SortFunc(kept, order)
	return kept[:min(n, len(kept))]
}

func (x *Index) hasDevices(i int32) bool {
	n := x.Draft.Node(int(i))
	return n != nil && n.Node.Devices.Count > 0
}

// tryOrders seats the members greedily in a few orders of shapes. It returns the first seating with all members, else
// the one with the most members and the minimum of each ask; nil if no order reaches the minimum.
func (p *Packer) tryOrders(bins []Bin) (best *Seating) {
	for _, order := range p.orders(bins) {
		s := p.greedy(bins, order)
		if s.Total == Wanted(p.Asks) {
			return s
		}
		if s = p.enough(s); s != nil && (best == nil || s.Total > best.Total) {
			best = s
		}
	}
	return best
}

// orders returns the orders of asks to try: first the ask with the least room for its members, first the ask with the
// largest members, as listed, and the reverse.
func (p *Packer) orders(bins []Bin) [][]int {
	listed := make([]int, len(p.Asks))
	rooms := make([]float64, len(p.Asks))
	sizes := make([]float64, len(p.Asks))
	for a := range p.Asks {
		listed[a] = a
		for i := range bins {
			rooms[a] += float64(bins[i].Fits[a]) / float64(p.Asks[a].Want)
			sizes[a] = max(sizes[a], float64(bins[i].Fits[a]))
		}
	}
	by := func(key []float64) []int {
		order := slices.Clone(listed)
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key[a], key[b]) })
		return order
	}
	reverse := slices.Clone(listed)
	slices.Reverse(reverse)
	return [][]int{by(rooms), by(sizes), listed, reverse}
}

// greedy seats the minimum of each ask in the given order, but all members of the last ask, and then the other members.
// The bins are not changed. It needs at least one ask; for a single ask it is exact.
func (p *Packer) greedy(bins []Bin, order []int) *Seating {
	s := &Seating{Placed: make([]int, len(p.Asks))}
	trial := slices.Clone(bins)
	for _, a := range order[:len(order)-1] {
		p.fill(s, trial, a, p.Asks[a].Least)
	}
	last := order[len(order)-1] // in one go, so that the choice of devices takes the later members on a node into account
	p.fill(s, trial, last, p.Asks[last].Want)
	for _, a := range order[:len(order)-1] {
		p.fill(s, trial, a, p.Asks[a].Want-s.Placed[a])
	}
	return s
}

// fill seats n members of an ask: if it has no devices, first on nodes without devices.
func (p *Packer) fill(s *Seating, bins []Bin, a, n int) {
	if p.Asks[a].Spec.Devices.Count == 0 {
		n -= p.fillAmong(s, bins, a, n, func(bin *Bin) bool { return !bin.devices })
	}
	p.fillAmong(s, bins, a, n, func(*Bin) bool { return true })
}

// fillAmong seats up to n members of an ask on some of the bins, and returns how many: on nodes in use in their order,
// and then on idle nodes in the order of idleOrder.
func (p *Packer) fillAmong(s *Seating, bins []Bin, a, n int, among func(*Bin) bool) (seated int) {
	for i := range bins {
		if seated == n {
			return seated
		}
		if !bins[i].idle && among(&bins[i]) {
			seated += p.seatIn(s, &bins[i], a, n-seated)
		}
	}
	for _, i := range p.idleOrder(bins, a, n-seated, among) {
		seated += p.seatIn(s, &bins[i], a, n-seated)
		bins[i].idle = false
	}
	return seated
}

// idleOrder returns which of the idle bins to fill with n members of an ask: those that take the most, one after
// another, and as the last one the tightest that takes all remaining members. Among alike bins the first wins.
func (p *Packer) idleOrder(bins []Bin, a, n int, among func(*Bin) bool) (order []int) {
	if n == 0 {
		return nil
	}
	type idleBin struct{ at, fits int }
	var idle []idleBin
	for i := range bins {
		if !bins[i].idle || !among(&bins[i]) {
			continue
		}
		if fits := p.fitsNow(&bins[i], a); fits > 0 {
			idle = append(idle, idleBin{i, fits})
		}
	}
	slices.SortStableFunc(idle, func(x, y idleBin) int { return cmp.Compare(y.fits, x.fits) })
	for k := 0; k < len(idle) && n > 0; k++ {
		if idle[k].fits >= n { // one of these is the last
			for next := k + 1; next < len(idle) && idle[next].fits >= n; next++ {
				if idle[next].fits < idle[k].fits {
					k = next
				}
			}
		}
		order, n = append(order, idle[k].at), n-idle[k].fits
	}
	return order
}

// fitsNow returns how many members of an ask fit in a bin now.
func (p *Packer) fitsNow(bin *Bin, a int) int {
	if bin.Fits[a] == 0 {
		return 0
	}
	return int(bin.Free.Fits(p.Asks[a].Spec))
}

// seatIn seats up to n members of an ask in a bin and returns how many.
func (p *Packer) seatIn(s *Seating, bin *Bin, a, n int) int {
	n = min(n, p.fitsNow(bin, a))
	spec := p.Asks[a].Spec
	for more := n - 1; more >= 0; more-- {
		set := bin.Free.Pick(spec, more)
		bin.Free.Take(spec, set)
		s.Seats = append(s.Seats, Seat{a, bin.Node, set})
	}
	s.Placed[a] += n
	s.Total += n
	return n
}
