package seats

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// gangTrial seats members on the nodes of one domain by trying: it places them on the draft, which judges as the ledger
// does, and takes back what leads nowhere. It seats members to which rules of company apply ([orbit.Apart],
// [orbit.Even], [orbit.Extra]), because counts of free capacity say nothing about these.
//
// Asks without a rule Even come first, one after the other. Their members may be placed in any order, so each ask goes
// through the nodes once; if its members are mixed, once for each member. Asks with rules Even come last and all together, because each placement of such a member may
// close its domain, or open another one. If all these rules are about one group by one level, each seating that the
// ledger takes can be reached placement by placement: always in the domain that has the fewest members. If they are
// about several groups or levels, the ledger may take a seating that cannot be reached so. The trial misses it.
//
// Nodes that differ in nothing that matters are of one class. Of the nodes of a class on which the same members are
// seated, one is tried; of those that take the last ask, if that has rules Even, only the first. The trial finds a
// seating with the most members while its steps last. When they run out, it returns the best seating that it knows.
type gangTrial struct {
	*Packer
	// The bins in the order in which they are filled, those of one class next to each other.
	bins []trialBin
	// By ask: how many members fit, alone, on the bins from each position on.
	ahead [][]int64
	// The asks in the order in which they are seated; those from position even on have rules Even.
	order []int
	even  int
	// The seats on the draft, in the order of placement.
	seats []Seat
	// How many members of each ask are seated: in all, and by bin; and the bins on which some are, the last one last.
	placed []int
	on     [][]int
	used   []int
	// By ask: its members have several priorities. Where room is nominated, a node that has refused one may take another.
	mixed []bool
	// The most seats to look for.
	goal int
	// Tries that cost no step: enough for one way through all bins.
	grace int
	best  *Seating
	// The states of the draft from which asks with rules Even were seated already, up to nodes of one class.
	seen map[string]bool
}

// trialBin is a node while members are seated by trying, and its class: the position, in the order in which nodes are
// filled, of the first node that is like it.
type trialBin struct {
	Bin
	class int
}

// ruled reports whether members are seated by trying on the draft.
func (p *Packer) ruled() bool {
	return p.Tries || slices.ContainsFunc(p.Asks, func(a Ask) bool { return a.Shape.Ruled })
}

// try does what pack does, by trying on the draft, which is unchanged afterwards.
func (p *Packer) try(nodes []int32) *Seating {
	bins := p.classified(p.bins(nodes))
	t := &gangTrial{
		Packer: p, bins: bins, ahead: aheadOf(bins, len(p.Asks)), on: make([][]int, len(bins)), placed: make([]int, len(p.Asks)),
		goal: min(p.Limit, Wanted(p.Asks)), grace: 16 * (len(bins) + Wanted(p.Asks)), seen: map[string]bool{},
	}
	for i := range t.on {
		t.on[i] = make([]int, len(p.Asks))
	}
	for a := range p.Asks {
		t.mixed = append(t.mixed, p.Tries && slices.ContainsFunc(p.Asks[a].Members, func(c *orbit.Capsule) bool {
			return c.Spec.Priority != p.Asks[a].Members[0].Spec.Priority
		}))
		t.order = append(t.order, a)
		t.even += btoi(!leans(p.Asks[a].Spec))
	}
	slices.SortStableFunc(t.order, func(a, b int) int {
		return btoi(leans(p.Asks[a].Spec)) - btoi(leans(p.Asks[b].Spec))
	})
	start := p.Index.Draft.Checkpoint()
	t.seat(0, 0)
	p.Index.Draft.Rollback(start)
	return t.best
}

// seat seats the asks from position k of the order on, and the first of them on the bins from a position on. It reports
// whether the trial has ended: all members have seats, or no steps are left.
func (t *gangTrial) seat(k, from int) (ended bool) {
	if t.keep(); len(t.seats) == t.goal || t.Steps.Spent {
		return true
	}
	if k == len(t.order) || !t.hopeful(k, from) {
		return false
	}
	if k == t.even {
		return t.seatEven()
	}
	a := t.order[k]
	next := func(i int) bool {
		if t.mixed[a] {
			i = 0
		}
		return t.seat(k, i)
	}
	if t.placed[a] < t.Asks[a].Want && t.each(a, from, next) {
		return true
	}
	return t.placed[a] >= t.Asks[a].Least && t.seat(k+1, 0)
}

// leans reports whether a rule of the spec may be kept only once others of the gang are seated.
func leans(spec *orbit.Spec) bool {
	return len(spec.Even)+len(spec.Nears) > 0 || spec.Near.Level == orbit.NodeKey
}

// seatEven seats the asks with rules that lean on others, in any order.
func (t *gangTrial) seatEven() (ended bool) {
	if t.keep(); len(t.seats) == t.goal || t.Steps.Spent {
		return true
	}
	key := t.key()
	if t.seen[key] || !t.hopeful(t.even, 0) {
		return false
	}
	t.seen[key] = true
	for _, a := range t.order[t.even:] {
		if t.placed[a] < t.Asks[a].Want && t.each(a, 0, func(int) bool { return t.seatEven() }) {
			return true
		}
	}
	return false
}

// keep keeps the seats as the best seating, if they are.
func (t *gangTrial) keep() {
	if now := (&Seating{Placed: t.placed, Total: len(t.seats)}); t.enough(now) != nil && (t.best == nil || now.Total > t.best.Total) {
		t.best = &Seating{Seats: slices.Clone(t.seats), Placed: slices.Clone(t.placed), Total: now.Total, ordered: true}
	}
}

// hopeful reports whether more seats could lead to the minimums, and to a better seating than the best so far: the asks
// from position k of the order on are open, and the first of them only on the bins from a position on.
func (t *gangTrial) hopeful(k, from int) bool {
	most := len(t.seats)
	for at, a := range t.order[k:] {
		more := t.ahead[a][0]
		if at == 0 && from > 0 {
			more = t.ahead[a][from] - int64(t.on[from][a])
		}
		if int64(t.placed[a])+more < int64(t.Asks[a].Least) {
			return false
		}
		most += int(min(more, int64(t.Asks[a].Want-t.placed[a])))
	}
	return t.best == nil || most > t.best.Total
}

// each seats one more member of an ask on one bin after the other, from a position on, and calls next for each. It
// returns true once next does, and otherwise takes the seat back.
func (t *gangTrial) each(a, from int, next func(i int) bool) bool {
	if t.placed[a] >= t.Asks[a].Least && len(t.seats)+t.due() >= t.goal {
		return false // the seats are needed for the minimums
	}
	last := t.even == len(t.order)-1 && a == t.order[t.even]
	tried, alike := map[int]bool{}, map[string]bool{}
	for i := from; i < len(t.bins); i++ {
		class, empty := t.bins[i].class, sum(t.on[i]) == 0
		if t.bins[i].Fits[a] <= int32(t.on[i][a]) || tried[class] && (empty || last) {
			continue
		}
		if empty {
			tried[class] = true
		} else if key := t.keyOf(i); alike[key] {
			continue
		} else {
			alike[key] = true
		}
		seated, ended := t.seatOn(a, i, func() bool { return next(i) })
		if ended || t.Steps.Spent {
			return true
		}
		tried[class] = tried[class] || seated && last
	}
	return false
}

// due returns how many seats the minimums still need.
func (t *gangTrial) due() (n int) {
	for a := range t.Asks {
		n += max(0, t.Asks[a].Least-t.placed[a])
	}
	return n
}

// seatOn seats one more member of an ask on a bin, with each choice of devices that makes a difference, and calls next
// for each. It returns true as ended once next does, and otherwise takes the seat back. seated reports whether the bin
// takes the member.
func (t *gangTrial) seatOn(a, i int, next func() bool) (seated, ended bool) {
	d, member := &t.Index.Draft, t.Asks[a].Members[t.placed[a]]
	n := d.Node(int(t.bins[i].Node))
	waits := n.Node.Confirms && n.Fits(member.Spec) // it may wait there for what stops, which the Misfit does not consider
	if !t.step() || !waits && d.Misfit(n, member.Spec) != (orbit.Misfit{}) {
		return false, false
	}
	for _, set := range t.choices(n, &member.Spec.Devices) {
		start := d.Checkpoint()
		if d.Place(member, orbit.Choice{Node: n, Devices: set}) != nil {
			continue
		}
		if sum(t.on[i]) == 0 {
			t.used = append(t.used, i)
		}
		t.on[i][a]++
		t.placed[a]++
		t.seats = append(t.seats, Seat{a, t.bins[i].Node, set})
		if seated = true; next() {
			return true, true
		}
		d.Rollback(start)
		t.seats = t.seats[:len(t.seats)-1]
		t.placed[a]--
		if t.on[i][a]--; sum(t.on[i]) == 0 {
			t.used = t.used[:len(t.used)-1]
		}
		if !t.step() {
			break
		}
	}
	return seated, false
}

// step takes a step, unless one of the free ones is left.
func (t *gangTrial) step() bool {
	if t.grace > 0 {
		if t.grace--; t.grace%1024 == 0 && t.Steps.Ctx.Err() != nil {
			t.Steps.Spent = true
		}
		return !t.Steps.Spent
	}
	return t.Steps.step()
}

// choices returns the sets of device instances for a request on a node, the tightest first. Of sets that leave the same
// it returns one, unless some capacity of the node is nominated, because then it matters which instance is taken.
func (t *gangTrial) choices(n *orbit.NodeState, q *orbit.DeviceRequest) (out []orbit.DeviceSet) {
	if q.Count == 0 {
		return []orbit.DeviceSet{0}
	}
	free, seen, all := CapacityOf(n), map[deviceRest]bool{}, isNominatedFor(n)
	if free.serves(q) == 0 {
		return nil
	}
	tight := free.Instances(q, func(a, b int32) bool { return a < b })
	for _, set := range append([]orbit.DeviceSet{tight}, free.choices(q)...) {
		after := free
		after.shift(set, -q.Milli)
		rest := deviceRest(after.Devices)
		slices.Sort(rest[:])
		if all || !seen[rest] {
			seen[rest] = true
			out = append(out, set)
		}
	}
	return out
}

// isNominatedFor reports whether capacity of the node is nominated for some work.
func isNominatedFor(n *orbit.NodeState) bool {
	for range n.Nominated {
		return true
	}
	return false
}

// stopsOn reports whether capsules that have left the node still run there.
func stopsOn(n *orbit.NodeState) bool {
	for range n.Remains {
		return true
	}
	return false
}

// key identifies the seats on the draft, up to nodes of one class.
func (t *gangTrial) key() string {
	var keys []string
	for _, i := range t.used {
		keys = append(keys, t.keyOf(i))
	}
	slices.Sort(keys)
	return strings.Join(keys, "|")
}

// keyOf identifies what is seated on a bin, and its class.
func (t *gangTrial) keyOf(i int) string {
	key := binary.LittleEndian.AppendUint32(nil, uint32(t.bins[i].class))
	for a, n := range t.on[i] {
		key = binary.LittleEndian.AppendUint32(key, uint32(n))
		if n > 0 && t.Asks[a].Spec.Devices.Count > 0 {
			rest := deviceRest(CapacityOf(t.Index.Draft.Node(int(t.bins[i].Node))).Devices)
			slices.Sort(rest[:])
			key, _ = binary.Append(key, binary.LittleEndian, rest)
		}
	}
	return string(key)
}

// classified gives the same class to bins that differ in nothing that decides which members they take, and sorts them so
// that a class is in one place.
func (p *Packer) classified(bins []Bin) []trialBin {
	levels, single := p.levels()
	known, out := map[string]int{}, make([]trialBin, len(bins))
	for i := range bins {
		out[i] = trialBin{bins[i], i}
		n := p.Index.Draft.Node(int(bins[i].Node))
		if single || isNominatedFor(n) || stopsOn(n) { // a member may wait there, and only there, for what stops
			continue
		}
		key := p.describe(n, &bins[i], levels)
		if first, is := known[key]; is {
			out[i].class = first
		} else {
			known[key] = i
		}
	}
	slices.SortStableFunc(out, func(a, b trialBin) int { return a.class - b.class }) // nodes of one class have one rank
	return out
}

// levels returns the levels at which rules may close a domain of several nodes to members. single reports that each node
// is a class of its own, because a rule Even counts the members on each node.
func (p *Packer) levels() (levels []string, single bool) {
	for a := range p.Asks {
		spec := p.Asks[a].Spec
		of, _ := p.Index.Draft.RuleLevels(spec)
		levels = append(levels, of...)
		single = single || slices.ContainsFunc(spec.Even, func(e orbit.Even) bool { return e.Level == orbit.NodeKey })
	}
	slices.Sort(levels)
	levels = slices.DeleteFunc(slices.Compact(levels), func(level string) bool { return level == orbit.NodeKey })
	return levels, single
}

// describe returns what decides which members a node takes.
func (p *Packer) describe(n *orbit.NodeState, bin *Bin, levels []string) string {
	d := &p.Index.Draft
	key, _ := binary.Append(nil, binary.LittleEndian, struct {
		Rank      float64
		Resources orbit.Resources
		Devices   [orbit.MaxDevices]int32
		Confirms  bool
	}{bin.rank, bin.Free.Resources, bin.Free.Devices, n.Node.Confirms})
	for a := range p.Asks {
		spec := p.Asks[a].Spec
		key = binary.LittleEndian.AppendUint32(key, uint32(bin.Fits[a]))
		if spec.Queue != "" && spec.Devices.Count > 0 { // the queue may have quota for one model and not for another
			key = append(append(key, n.Node.Devices.Model...), 0)
		}
		key = append(key, byte(btoi(d.Misfit(n, spec) == (orbit.Misfit{}))))
		for _, x := range spec.Extras {
			key = binary.LittleEndian.AppendUint64(key, uint64(d.ExtraFree(n, x.Name)))
		}
	}
	for _, level := range levels {
		key = binary.LittleEndian.AppendUint32(key, uint32(len(n.Node.Labels[level])))
		key = append(key, n.Node.Labels[level]...)
	}
	return string(key)
}

// aheadOf returns, for each ask, how many of its members fit alone on all bins from each position on.
func aheadOf(bins []trialBin, asks int) [][]int64 {
	out := make([][]int64, asks)
	for a := range out {
		out[a] = make([]int64, len(bins)+1)
		for i := len(bins) - 1; i >= 0; i-- {
			out[a][i] = out[a][i+1] + int64(bins[i].Fits[a])
		}
	}
	return out
}
