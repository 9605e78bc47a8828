package seats

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// Index is the draft of a gang navigator or of whatif, with the counts that make the search for seats fast. All counts
// follow [orbit.Draft.Changed], so a plan costs only what has changed:
//
//	draft ── Follow ──► nodes, tables (domains of a level)
//	      └─ Shape.Follow ──► counts of members, by node and by domain
type Index struct {
	Topology
	Draft orbit.Draft
	// The free capacity of each node, decoded once per change of the node, because every shape reads it.
	Free []Capacity
	// The order in which nodes are filled, lowest rank first. The rank is the free fraction of the node, on average
	// over what it has, from 0 to 1; idleRank for an idle node, lastRank for a last resort.
	ranks  []float64
	Shapes map[string]*Shape
	Keys   map[Request]string
	// The shapes that this plan has used.
	Used []*Shape
	// True while the index reads changes that others have made, and not this plan.
	Fresh bool
	// Memory for a search among domains.
	candidates []Candidate
	// Number of the plan.
	Plan uint64
	// Rises with each change that could make a gang fit.
	clock uint64
	// The clock when a node last gained free capacity. Members of several shapes may then fit together, even if the
	// count of no single shape has risen.
	Gained uint64
	// The clock when a node last changed in any way. Rules of company may then allow what they did not.
	Changed uint64
	// The nomination of the gang that is planned now; nil: it has none, or its nominated room is not used.
	asker *orbit.Nomination
	// Members of this priority are planned now that may use the room of nominations that they outrank.
	asking   bool
	priority int32
	// Strict is true from Hide to Reveal: only nodes count on which members can begin at once.
	Strict bool
	// The burdened nodes, from Hide to EndHide ([Index.Hide]). True: no member should start there.
	hidden map[int32]bool
}

const (
	// idleRank is the rank of idle nodes, and lastRank that of nodes that are a last resort.
	idleRank, lastRank = 2, 3
	// shapeBytes bounds the memory of all counts that are kept from plan to plan.
	shapeBytes = 128 << 20
	// mostKeys bounds the specs that are remembered.
	mostKeys = 1 << 14
)

// Sync begins a plan on the view. Before that, the index reads what the last plan has left on the draft, so that room
// which the sync frees counts as gained.
func (x *Index) Sync(view *orbit.View) {
	x.Fresh = false
	if x.Plan > 0 {
		x.Follow()
		for _, s := range x.Used {
			s.Follow(x)
		}
		clear(x.Used)
		x.Used = x.Used[:0]
	}
	x.Draft.Sync(view)
	if len(x.Keys) > mostKeys || x.Plan == 0 {
		x.Shapes, x.Keys = map[string]*Shape{}, map[Request]string{}
	}
	x.forgetShapes()
	if x.Begin(&x.Draft, math.MaxInt) {
		for _, s := range x.Shapes {
			s.Sums = nil
		}
	}
	x.Plan++
	x.Fresh = true
	x.Follow()
}

// forgetShapes keeps the memory of all shapes below shapeBytes: when it is above, the least recently used are dropped until
// half remains.
func (x *Index) forgetShapes() {
	each := 2*len(x.Free) + 1<<10
	if len(x.Shapes)*each <= shapeBytes {
		return
	}
	old := slices.SortedFunc(maps.Keys(x.Shapes), func(a, b string) int {
		return cmp.Or(cmp.Compare(x.Shapes[a].plan, x.Shapes[b].plan), cmp.Compare(a, b))
	})
	for _, key := range old[:len(old)-shapeBytes/2/each] {
		delete(x.Shapes, key)
	}
}

// Follow updates the free capacity and the rank of the nodes that have changed on the draft.
func (x *Index) Follow() {
	changed := x.Topology.Follow()
	more := max(0, x.Draft.Bound()-len(x.Free))
	x.Free, x.ranks = append(x.Free, make([]Capacity, more)...), append(x.ranks, make([]float64, more)...)
	if x.Fresh && len(changed) > 0 {
		x.Changed = x.tick()
	}
	for _, i := range changed {
		was, now := &x.Free[i], x.freeOn(i)
		x.ranks[i] = x.rankOn(i)
		if x.Fresh && now.exceeds(was) {
			x.Gained = x.tick()
		}
		*was = now
	}
}

// freeOn returns the free capacity of a node that members may use.
func (x *Index) freeOn(i int32) (free Capacity) {
	n := x.Draft.Node(int(i))
	if n == nil {
		return free
	}
	free = CapacityOf(n)
	for of := range n.Nominated {
		if x.yields(of) {
			free.LeaveFree(n, of, nil)
		}
	}
	if x.Strict && n.Node.Confirms { // else it is not free anyway
		for r := range n.Stopping {
			free.Take(r.Spec, r.Devices)
		}
	}
	return free
}

// yields reports whether members leave the room of a nomination free. After Ask for a nominated gang, they do if the
// nomination outranks that of the gang; between Outrank and EndOutrank, if it outranks their priority; at all other
// times always, because the counts are shared by members of several priorities.
func (x *Index) yields(to *orbit.Nomination) bool {
	switch {
	case x.asker != nil:
		return to.Outranks(x.asker)
	case x.asking:
		return to.OutranksPriority(x.priority)
	}
	return true
}

// Hide prepares a search for seats on which all members of these asks can begin at once. Until Reveal, the counts of
// the asks leave out each node that capsules of an ask should avoid ([orbit.Draft.Avoids]), and the room of capsules
// that still stop on a node counts as used. From Reveal to EndHide all nodes count, but burdened ones
// ([orbit.Draft.Burdened]) are filled last. If no node is burdened, Hide returns false, and the counts are as before.
func (x *Index) Hide(asks []Ask) bool {
	var members []*orbit.Capsule
	for i := range asks {
		members = append(members, asks[i].Members...)
	}
	x.Draft.Avoid(members...)
	x.hidden = map[int32]bool{}
	for i := range x.Draft.Burdened() {
		if n := x.Draft.Node(i); n != nil {
			x.hidden[int32(i)] = slices.ContainsFunc(asks, func(a Ask) bool { return x.Draft.Avoids(n, a.Spec) })
		}
	}
	if x.Strict = len(x.hidden) > 0; x.Strict {
		x.recount(asks, maps.Keys(x.hidden))
	}
	return x.Strict
}

// Reveal lets the hidden nodes count again.
func (x *Index) Reveal(asks []Ask) {
	x.Strict = false
	x.recount(asks, maps.Keys(x.hidden))
}

// EndHide ends what Hide has begun: all nodes get their usual ranks again. Call it after Reveal.
func (x *Index) EndHide() {
	hidden := x.hidden
	x.hidden = nil
	x.Draft.Avoid()
	for i := range hidden {
		x.ranks[i] = x.rankOn(i)
	}
}

// recount counts anew how many members fit on some nodes.
func (x *Index) recount(asks []Ask, nodes iter.Seq[int32]) {
	for a := range asks {
		asks[a].Shape.Follow(x)
	}
	for i := range nodes {
		x.Free[i], x.ranks[i] = x.freeOn(i), x.rankOn(i)
		for a := range asks {
			asks[a].Shape.count(x, i)
		}
	}
}

// Ask makes the room that is nominated for a gang visible on the draft and in the index, if there is any, and reports
// whether there is. An empty id hides it again.
func (x *Index) Ask(state *orbit.State, id orbit.GangID) bool {
	var lowest *orbit.Capsule
	x.asker = nil
	if g := state.Gang(id); g != nil && g.Nomination.Lives() {
		x.asker = g.Nomination
		for c := range state.Members(id) {
			if lowest == nil || c.Spec.Priority < lowest.Spec.Priority {
				lowest = c
			}
		}
	}
	x.Draft.LookAs(lowest)
	return x.asker != nil
}

// Outrank lets members of these asks count the room that is nominated for work that they outrank. They need not have a
// nomination. It reports whether the counts are exact. They are too high for some members if the members have several
// priorities. Yield ends it.
func (x *Index) Outrank(asks []Ask) (exact bool) {
	exact, x.asking, x.priority = true, true, math.MinInt32
	for a := range asks {
		for _, c := range asks[a].Members {
			exact = exact && (x.priority == math.MinInt32 || c.Spec.Priority == x.priority)
			if c.Spec.Priority > x.priority {
				x.priority = c.Spec.Priority
			}
		}
	}
	for a := range asks { // the nodes judge nominated room by the priority of the spec that they are asked about
		asks[a].Shape.Spec = slices.MaxFunc(asks[a].Members, func(a, b *orbit.Capsule) int {
			return cmp.Compare(a.Spec.Priority, b.Spec.Priority)
		}).Spec
	}
	x.recount(asks, x.nominated())
	for range x.nominated() {
		return exact
	}
	return true
}

// EndOutrank ends what Outrank has begun.
func (x *Index) EndOutrank(asks []Ask) {
	x.asking = false
	x.recount(asks, x.nominated())
}

// nominated yields the nodes on which room is nominated.
func (x *Index) nominated() iter.Seq[int32] {
	state := x.Draft.View().State()
	return func(yield func(int32) bool) {
		for of := range state.Nominations() {
			for i := range of.Parts {
				if n := state.Node(of.Parts[i].Node); n != nil && !yield(int32(n.Index())) {
					return
				}
			}
		}
	}
}

// rankOn returns the rank of the node with an index; 0 if there is none.
func (x *Index) rankOn(i int32) float64 {
	n := x.Draft.Node(int(i))
	_, burdened := x.hidden[i]
	switch {
	case n == nil:
		return 0
	case burdened && !x.Strict:
		return lastRank
	}
	return rankOf(n)
}

// rankOf returns the rank of a node: nodes are filled in rising order.
func rankOf(n *orbit.NodeState) float64 {
	free, all := MeasureFree(n), MeasureFree(&orbit.NodeState{Node: n.Node})
	if n.Capsules == 0 && free == all {
		return idleRank
	}
	sum, kinds := 0.0, 0
	for d := range all {
		if all[d] > 0 {
			sum += float64(free[d]) / float64(all[d])
			kinds++
		}
	}
	return sum / float64(max(1, kinds))
}

// tick returns a number that is higher than all before.
func (x *Index) tick() uint64 {
	x.clock++
	return x.clock
}

// id returns the id of a node.
func (x *Index) id(node int32) orbit.NodeID { return x.Draft.Node(int(node)).Node.ID }

// Place places members on their seats on the draft: in the order of the seats, or else ask by ask. If the draft refuses
// one, it takes them all back.
func (x *Index) Place(asks []Ask, by *Seating) error {
	seats := by.Seats
	if !by.ordered {
		seats = slices.Clone(seats)
		slices.SortStableFunc(seats, func(a, b Seat) int {
			return cmp.Or(cmp.Compare(a.Ask, b.Ask), cmp.Compare(x.id(a.Node), x.id(b.Node)))
		})
	}
	next, start := make([]int, len(asks)), x.Draft.Checkpoint()
	for i := range seats {
		s := &seats[i]
		c := asks[s.Ask].Members[next[s.Ask]]
		next[s.Ask]++
		if err := x.Draft.Place(c, orbit.Choice{Node: x.Draft.Node(int(s.Node)), Devices: s.Devices}); err != nil {
			x.Draft.Rollback(start)
			return err
		}
	}
	return nil
}

// Request is the key by which an index finds a shape.
type Request struct {
	Spec *orbit.Spec
	// Some members still have to stop on another node, so only nodes that confirm take them.
	Stops bool
}

// ShapeOf returns the shape of members, in step with the draft.
func (x *Index) ShapeOf(by Request) *Shape {
	spec := by.Spec
	key, known := x.Keys[by]
	if !known {
		key = fmt.Sprintf("%v %#v %#v %#v %#v %#v %q %q %v %#v %v %t", spec.Envelope.Reservation, spec.Devices, spec.Require, spec.Tolerate, spec.Near, spec.Nears,
			spec.Group, spec.Groups, spec.Apart, spec.Even, spec.Extras, by.Stops)
		x.Keys[by] = key
	}
	s := x.Shapes[key]
	if s == nil {
		s = &Shape{Request: by}
		x.Shapes[key] = s
	}
	if s.plan != x.Plan {
		s.plan, x.Used = x.Plan, append(x.Used, s)
	}
	s.Follow(x)
	return s
}

// Shape is what members ask of a node. Specs that ask for the same have one shape, also if modules or priorities differ.
// It counts how many members of this shape alone would fit on each node, and sums the counts by domain.
//
// Invariant: after Follow, Counts[i] is how many members fit on node i of the draft, and every sum whose version is its
// table's version is in step too. If the shape is ruled, it is how many fit at most.
type Shape struct {
	Request
	// Rules of company apply to the members: their own, those of others about their groups, or the extras that they take.
	Ruled  bool
	Counts []MemberCount
	Sums   []*domainSums
	// Position in the draft's journal. The counts are made anew if the journal no longer reaches back to it.
	cursor uint64
	// The clock when a change by others last made the count of a node rise: a gang that did not fit may fit since then.
	Gained uint64
	// The domains in which the company runs that the spec asks for, and the draft's version of them.
	company        map[string]bool
	companyVersion uint64
	// The plan in which it was last used.
	plan uint64
}

// domainSums are a shape's counts by the domains of one table, as of a version of it.
type domainSums struct {
	table   *Table
	version uint64
	by      []int64
}

// mostAlone caps the count of a node, for members that ask for nothing. No ledger takes a gang with more members.
const mostAlone = 1 << 20

// MemberCount is how many members fit on a node, in two bytes: the largest number stands for mostAlone. It is exact
// below that. Above, it is too high, but seats are taken from the free capacity and not from it.
type MemberCount uint16

func newMemberCount(n int32) MemberCount { return MemberCount(min(n, math.MaxUint16)) }

func (c MemberCount) number() int32 {
	if c == math.MaxUint16 {
		return mostAlone
	}
	return int32(c)
}

// Follow brings the counts up to the draft.
func (s *Shape) Follow(x *Index) {
	x.Follow()
	company, version := x.Draft.NearDomains(s.Spec)
	moved := version != s.companyVersion && !sameDomains(company, s.company)
	s.company, s.companyVersion = company, version
	if levels, _ := x.Draft.RuleLevels(s.Spec); (levels != nil) != s.Ruled {
		s.Ruled, moved = !s.Ruled, true
	}
	changed, next, all := x.Draft.Changed(s.cursor)
	s.cursor = next
	if s.Counts == nil || all || moved {
		s.Counts = make([]MemberCount, len(x.Free))
		s.Sums = nil
		for i := range s.Counts {
			s.count(x, int32(i))
		}
		s.Gained = x.tick()
		return
	}
	s.Counts = append(s.Counts, make([]MemberCount, len(x.Free)-len(s.Counts))...)
	for k, i := range changed {
		if k == 0 || changed[k-1] != i {
			s.count(x, i)
		}
	}
}

// sameDomains reports whether two sets of domains are equal; nil is not equal to an empty set.
func sameDomains(a, b map[string]bool) bool { return (a == nil) == (b == nil) && maps.Equal(a, b) }

// count updates the count of one node, and the sums of its domains.
func (s *Shape) count(x *Index, i int32) {
	fits := int32(0)
	if n := x.Draft.Node(int(i)); n != nil && (!x.Strict || !x.hidden[i]) {
		if fits = x.Free[i].Fits(s.Spec); fits > 0 && (s.Stops && !n.Node.Confirms || !s.takenBy(n, &x.Draft)) {
			fits = 0
		}
		if s.Ruled {
			fits = min(fits, s.most(n, &x.Draft))
		}
	}
	now := newMemberCount(fits)
	more := now.number() - s.Counts[i].number()
	if more == 0 {
		return
	}
	s.Counts[i] = now
	for _, sums := range s.Sums {
		if t := sums.table; sums.version == t.Version && t.Of[i] >= 0 {
			sums.by[t.Of[i]] += int64(more)
		}
	}
	if more > 0 && x.Fresh {
		s.Gained = x.tick()
	}
}

// takenBy reports whether a node takes a member. For members to which rules apply it ignores the rules: they may close
// the node now, and open it once other members are placed.
func (s *Shape) takenBy(n *orbit.NodeState, draft *orbit.Draft) bool {
	why := draft.Misfit(n, s.Spec)
	if why == (orbit.Misfit{}) || !s.Ruled || why.Why == "" {
		return why == (orbit.Misfit{})
	}
	return s.company == nil || s.company[n.Node.Labels[s.Spec.Near.Level]]
}

// most returns an upper bound, by the rules that count on single nodes, of how many members a node takes.
func (s *Shape) most(n *orbit.NodeState, draft *orbit.Draft) int32 {
	most := MostOn(s.Spec, n.Node)
	if n.Node.Confirms { // a member may wait for what stops there
		return most
	}
	for _, x := range s.Spec.Extras {
		most = int32(min(int64(most), max(0, draft.ExtraFree(n, x.Name))/x.Amount))
	}
	return most
}

// MostOn returns an upper bound, by the rules that count on single nodes, of how many capsules of a spec an empty node
// takes.
func MostOn(spec *orbit.Spec, n *orbit.Node) int32 {
	most := int64(mostAlone)
	if slices.ContainsFunc(spec.Apart, func(a orbit.Apart) bool { return a.Level == orbit.NodeKey && spec.IsIn(a.Group) }) {
		most = 1
	}
	for _, x := range spec.Extras {
		has := int64(0)
		for i := range n.Extras {
			if n.Extras[i].Name == x.Name {
				has = n.Extras[i].Amount
			}
		}
		most = min(most, has/x.Amount)
	}
	return int32(most)
}

// byDomain returns how many members fit in each domain of a table, node by node. The counts must be in step with the
// draft; the slice is valid until the next Follow.
func (s *Shape) byDomain(t *Table) []int64 {
	i := slices.IndexFunc(s.Sums, func(sums *domainSums) bool { return sums.table == t })
	if i >= 0 && s.Sums[i].version == t.Version {
		return s.Sums[i].by
	}
	if i < 0 {
		i = len(s.Sums)
		s.Sums = append(s.Sums, nil)
	}
	sums := &domainSums{t, t.Version, make([]int64, len(t.Domains))}
	for i, n := range s.Counts {
		if d := t.Of[i]; d >= 0 {
			sums.by[d] += int64(n.number())
		}
	}
	s.Sums[i] = sums
	return sums.by
}
