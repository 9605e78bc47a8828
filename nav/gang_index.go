package nav

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// gangIndex is a gang navigator's draft, with the counts that make the search for seats fast. All counts follow
// [orbit.Draft.Changed], so a plan costs only what has changed:
//
//	draft ── follow ──► nodes, tables (domains of a level)
//	      └─ memberShape.follow ──► counts of members, by node and by domain
type gangIndex struct {
	topology
	draft orbit.Draft
	// The free capacity of each node, decoded once per change of the node, because every shape reads it.
	free []freeCapacity
	// The order in which nodes are filled, lowest rank first. The rank is the free fraction of the node, on average
	// over what it has, from 0 to 1; idleRank for an idle node, lastRank for a last resort.
	ranks  []float64
	shapes map[string]*memberShape
	keys   map[askedBy]string
	// The shapes that this plan has used.
	used []*memberShape
	// True while the index reads changes that others have made, and not this plan.
	fresh bool
	// Memory for a search among domains.
	candidates []candidate
	// Number of the plan.
	plan uint64
	// Rises with each change that could make a gang fit.
	clock uint64
	// The clock when a node last gained free capacity. Members of several shapes may then fit together, even if the
	// count of no single shape has risen.
	gained uint64
	// The clock when a node last changed in any way. Rules of company may then allow what they did not.
	changed uint64
	// The nomination of the gang that is planned now; nil: it has none, or its nominated room is not used.
	asker *orbit.Nomination
	// Only nodes count on which members can begin at once; and the nodes on which none should start ([gangIndex.hide]).
	strict bool
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

// sync begins a plan on the view. Before that, the index reads what the last plan has left on the draft, so that room
// which the sync frees counts as gained.
func (x *gangIndex) sync(view *orbit.View) {
	x.fresh = false
	if x.plan > 0 {
		x.follow()
		for _, s := range x.used {
			s.follow(x)
		}
		clear(x.used)
		x.used = x.used[:0]
	}
	x.draft.Sync(view)
	if len(x.keys) > mostKeys || x.plan == 0 {
		x.shapes, x.keys = map[string]*memberShape{}, map[askedBy]string{}
	}
	x.evict()
	if x.begin(&x.draft, math.MaxInt) {
		for _, s := range x.shapes {
			s.sums = nil
		}
	}
	x.plan++
	x.fresh = true
	x.follow()
}

// evict keeps the memory of all shapes below shapeBytes: when it is above, the least recently used are dropped until
// half remains.
func (x *gangIndex) evict() {
	each := 2*len(x.free) + 1<<10
	if len(x.shapes)*each <= shapeBytes {
		return
	}
	old := slices.SortedFunc(maps.Keys(x.shapes), func(a, b string) int {
		return cmp.Or(cmp.Compare(x.shapes[a].plan, x.shapes[b].plan), cmp.Compare(a, b))
	})
	for _, key := range old[:len(old)-shapeBytes/2/each] {
		delete(x.shapes, key)
	}
}

// follow updates the free capacity and the rank of the nodes that have changed on the draft.
func (x *gangIndex) follow() {
	changed := x.topology.follow()
	more := max(0, x.draft.Bound()-len(x.free))
	x.free, x.ranks = append(x.free, make([]freeCapacity, more)...), append(x.ranks, make([]float64, more)...)
	if x.fresh && len(changed) > 0 {
		x.changed = x.tick()
	}
	for _, i := range changed {
		was, now := &x.free[i], x.freeOn(i)
		x.ranks[i] = x.rankOn(i)
		if x.fresh && now.exceeds(was) {
			x.gained = x.tick()
		}
		*was = now
	}
}

// freeOn returns the free capacity of a node that members may use.
func (x *gangIndex) freeOn(i int32) (free freeCapacity) {
	n := x.draft.Node(int(i))
	if n == nil {
		return free
	}
	free = freeCapacityOf(n)
	for of := range n.Nominated { // without an asker all of them: members of several priorities share these counts
		if x.asker == nil || of.Outranks(x.asker) {
			free.leaveFree(n, of)
		}
	}
	if x.strict && n.Node.Confirms { // else it is not free anyway
		for r := range n.Stopping {
			free.take(r.Spec, r.Devices)
		}
	}
	return free
}

// hide leaves out of the counts of these asks the nodes that are a last resort ([orbit.Draft.LastResort]) for a member,
// and counts what still stops on the other nodes as used. It reports whether that makes a difference. After reveal all
// nodes count again, but those come last; forgive ends that too.
func (x *gangIndex) hide(asks []memberAsk) bool {
	var members []*orbit.Capsule
	for i := range asks {
		members = append(members, asks[i].members...)
	}
	x.draft.Avoid(members...)
	x.hidden = map[int32]bool{}
	for i := range x.draft.Burdened() {
		if n := x.draft.Node(i); n != nil {
			x.hidden[int32(i)] = slices.ContainsFunc(asks, func(a memberAsk) bool { return x.draft.Avoids(n, a.spec) })
		}
	}
	if x.strict = len(x.hidden) > 0; x.strict {
		x.recount(asks)
	}
	return x.strict
}

// reveal lets the hidden nodes count again.
func (x *gangIndex) reveal(asks []memberAsk) {
	x.strict = false
	x.recount(asks)
}

// forgive ends what hide has begun.
func (x *gangIndex) forgive() {
	hidden := x.hidden
	x.hidden = nil
	x.draft.Avoid()
	for i := range hidden {
		x.ranks[i] = x.rankOn(i)
	}
}

// recount counts anew how many members fit on the nodes that hide is about.
func (x *gangIndex) recount(asks []memberAsk) {
	for a := range asks {
		asks[a].shape.follow(x)
	}
	for i := range x.hidden {
		x.free[i], x.ranks[i] = x.freeOn(i), x.rankOn(i)
		for a := range asks {
			asks[a].shape.count(x, i)
		}
	}
}

// ask makes the room that is nominated for a gang visible on the draft and in the index, if there is any, and reports
// whether there is. An empty id hides it again.
func (x *gangIndex) ask(state *orbit.State, id orbit.GangID) bool {
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
	x.draft.Ask(lowest)
	return x.asker != nil
}

// rankOn returns the rank of the node with an index; 0 if there is none.
func (x *gangIndex) rankOn(i int32) float64 {
	n := x.draft.Node(int(i))
	_, burdened := x.hidden[i]
	switch {
	case n == nil:
		return 0
	case burdened && !x.strict:
		return lastRank
	}
	return rankOf(n)
}

// rankOf returns the rank of a node: nodes are filled in rising order.
func rankOf(n *orbit.NodeState) float64 {
	free, all := measureFree(n), measureFree(&orbit.NodeState{Node: n.Node})
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
func (x *gangIndex) tick() uint64 {
	x.clock++
	return x.clock
}

// id returns the id of a node.
func (x *gangIndex) id(node int32) orbit.NodeID { return x.draft.Node(int(node)).Node.ID }

// place places members on their seats on the draft: in the order of the seats, or else ask by ask. If the draft refuses
// one, it takes them all back.
func (x *gangIndex) place(asks []memberAsk, by *seating) error {
	seats := by.seats
	if !by.ordered {
		seats = slices.Clone(seats)
		slices.SortStableFunc(seats, func(a, b seat) int {
			return cmp.Or(cmp.Compare(a.ask, b.ask), cmp.Compare(x.id(a.node), x.id(b.node)))
		})
	}
	next, start := make([]int, len(asks)), x.draft.Checkpoint()
	for i := range seats {
		s := &seats[i]
		c := asks[s.ask].members[next[s.ask]]
		next[s.ask]++
		if err := x.draft.Place(c, orbit.Choice{Node: x.draft.Node(int(s.node)), Devices: s.devices}); err != nil {
			x.draft.Rollback(start)
			return err
		}
	}
	return nil
}

// askedBy is the key by which an index finds a shape.
type askedBy struct {
	spec *orbit.Spec
	// Some members still have to stop on another node, so only nodes that confirm take them.
	stops bool
}

// shape returns the shape of members, in step with the draft.
func (x *gangIndex) shape(by askedBy) *memberShape {
	spec := by.spec
	key, known := x.keys[by]
	if !known {
		key = fmt.Sprintf("%v %#v %#v %#v %#v %q %q %v %#v %v %t", spec.Envelope.Reservation, spec.Devices, spec.Require, spec.Tolerate, spec.Near,
			spec.Group, spec.Groups, spec.Apart, spec.Even, spec.Extras, by.stops)
		x.keys[by] = key
	}
	s := x.shapes[key]
	if s == nil {
		s = &memberShape{askedBy: by}
		x.shapes[key] = s
	}
	if s.plan != x.plan {
		s.plan, x.used = x.plan, append(x.used, s)
	}
	s.follow(x)
	return s
}

// memberShape is what members ask of a node: specs that ask for the same share one, whatever their module or priority.
// It counts how many members of this shape alone would fit on each node, and sums the counts by domain.
//
// Invariant: after follow, counts[i] is how many members fit on node i of the draft, and every sum whose version is its
// table's version is in step too. If the shape is ruled, it is how many fit at most.
type memberShape struct {
	askedBy
	// Rules of company apply to the members: their own, those of others about their groups, or the extras that they take.
	ruled  bool
	counts []memberCount
	sums   []*domainSums
	// Position in the draft's journal. The counts are made anew if the journal no longer reaches back to it.
	cursor uint64
	// The clock when a change by others last made the count of a node rise: a gang that did not fit may fit since then.
	gained uint64
	// The domains in which the company runs that the spec asks for, and the draft's version of them.
	company        map[string]bool
	companyVersion uint64
	// The plan in which it was last used.
	plan uint64
}

// domainSums are a shape's counts by the domains of one table, as of a version of it.
type domainSums struct {
	table   *domainTable
	version uint64
	by      []int64
}

// mostAlone caps the count of a node, for members that ask for nothing. No ledger takes a gang with more members.
const mostAlone = 1 << 20

// memberCount is how many members fit on a node, in two bytes: the largest number stands for mostAlone. It is exact
// below that. Above, it is too high, but seats are taken from the free capacity and not from it.
type memberCount uint16

func newMemberCount(n int32) memberCount { return memberCount(min(n, math.MaxUint16)) }

func (c memberCount) number() int32 {
	if c == math.MaxUint16 {
		return mostAlone
	}
	return int32(c)
}

// follow brings the counts up to the draft.
func (s *memberShape) follow(x *gangIndex) {
	x.follow()
	company, version := x.draft.NearDomains(s.spec)
	moved := version != s.companyVersion && !sameDomains(company, s.company)
	s.company, s.companyVersion = company, version
	if levels, _ := x.draft.RuleLevels(s.spec); (levels != nil) != s.ruled {
		s.ruled, moved = !s.ruled, true
	}
	changed, next, all := x.draft.Changed(s.cursor)
	s.cursor = next
	if s.counts == nil || all || moved {
		s.counts = make([]memberCount, len(x.free))
		s.sums = nil
		for i := range s.counts {
			s.count(x, int32(i))
		}
		s.gained = x.tick()
		return
	}
	s.counts = append(s.counts, make([]memberCount, len(x.free)-len(s.counts))...)
	for k, i := range changed {
		if k == 0 || changed[k-1] != i {
			s.count(x, i)
		}
	}
}

// sameDomains reports whether two sets of domains are equal; nil is not equal to an empty set.
func sameDomains(a, b map[string]bool) bool { return (a == nil) == (b == nil) && maps.Equal(a, b) }

// count updates the count of one node, and the sums of its domains.
func (s *memberShape) count(x *gangIndex, i int32) {
	fits := int32(0)
	if n := x.draft.Node(int(i)); n != nil && (!x.strict || !x.hidden[i]) {
		if fits = x.free[i].capacity(s.spec); fits > 0 && (s.stops && !n.Node.Confirms || !s.takenBy(n, &x.draft)) {
			fits = 0
		}
		if s.ruled {
			fits = min(fits, s.most(n, &x.draft))
		}
	}
	now := newMemberCount(fits)
	more := now.number() - s.counts[i].number()
	if more == 0 {
		return
	}
	s.counts[i] = now
	for _, sums := range s.sums {
		if t := sums.table; sums.version == t.version && t.of[i] >= 0 {
			sums.by[t.of[i]] += int64(more)
		}
	}
	if more > 0 && x.fresh {
		s.gained = x.tick()
	}
}

// takenBy reports whether a node takes a member. For members to which rules apply it ignores the rules: they may close
// the node now, and open it once other members are placed.
func (s *memberShape) takenBy(n *orbit.NodeState, draft *orbit.Draft) bool {
	why := draft.Misfit(n, s.spec)
	if why == (orbit.Misfit{}) || !s.ruled || why.Why == "" {
		return why == (orbit.Misfit{})
	}
	return s.company == nil || s.company[n.Node.Labels[s.spec.Near.Level]]
}

// most returns an upper bound, by the rules that count on single nodes, of how many members a node takes.
func (s *memberShape) most(n *orbit.NodeState, draft *orbit.Draft) int32 {
	most := mostOn(s.spec, n.Node)
	if n.Node.Confirms { // a member may wait for what stops there
		return most
	}
	for _, x := range s.spec.Extras {
		most = int32(min(int64(most), max(0, draft.ExtraFree(n, x.Name))/x.Amount))
	}
	return most
}

// mostOn returns an upper bound, by the rules that count on single nodes, of how many capsules of a spec an empty node
// takes.
func mostOn(spec *orbit.Spec, n *orbit.Node) int32 {
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
// draft; the slice is valid until the next follow.
func (s *memberShape) byDomain(t *domainTable) []int64 {
	i := slices.IndexFunc(s.sums, func(sums *domainSums) bool { return sums.table == t })
	if i >= 0 && s.sums[i].version == t.version {
		return s.sums[i].by
	}
	if i < 0 {
		i = len(s.sums)
		s.sums = append(s.sums, nil)
	}
	sums := &domainSums{t, t.version, make([]int64, len(t.domains))}
	for i, n := range s.counts {
		if d := t.of[i]; d >= 0 {
			sums.by[d] += int64(n.number())
		}
	}
	s.sums[i] = sums
	return sums.by
}
