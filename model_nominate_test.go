package orbit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// Nominations in the model: who is nominated for what, and nothing else. What is claimed on a node is looked for among
// all of them.

type modelNominee struct {
	gang    GangID
	capsule CapsuleID
}

type modelNomination struct {
	rank        int64
	first, made Revision
	renewals    int
	parts       []NominatedRoom
	ends        time.Time
	lends       time.Duration
	evicts      int32 // the priority at which it evicts
}

// modelAsker is what one commitment asks for on a node.
type modelAsker struct {
	hold     bool
	capsule  CapsuleID
	lender   modelNominee
	priority int64
	as       modelNominee
	ranked   modelNomination // of as; without parts: it has none
	room     Resources
	devices  DeviceSet
	milli    int
	newest   Revision
}

// outranks: rank, then who was first, then the id.
func (n modelNomination) outranks(who modelNominee, a modelAsker) bool {
	switch {
	case a.hold:
		return true
	case a.lender == who && who != modelNominee{}:
		return false
	case len(a.ranked.parts) == 0:
		return n.rank >= a.priority
	}
	return cmp.Or(cmp.Compare(a.ranked.rank, n.rank), cmp.Compare(n.first, a.ranked.first),
		cmp.Compare(who.gang, a.as.gang), cmp.Compare(who.capsule, a.as.capsule)) < 0
}

func (r *modelRound) nominate(c Nominate) *refusal {
	who := modelNominee{c.Gang, c.Capsule}
	makes := slices.ContainsFunc(r.p.Do, func(do Commitment) bool { n, ok := do.(Nominate); return ok && len(n.Parts) > 0 })
	if was := r.now.nominated[who]; makes && len(c.Parts) == 0 && c.Since != 0 && (len(was.parts) == 0 || was.made != c.Since || was.made == r.now.rev) {
		return nil
	}
	newest, specs, no := r.nominee(who)
	switch {
	case r.wishes.evictedOf[c.Gang] && c.Gang != "":
		return lostTo(0)
	case no != nil:
		return no
	case r.wishes.evicted[c.Capsule] || r.ends[c.Capsule]:
		return lostTo(newest)
	}
	if c.Gang != "" && len(c.Parts) > 0 && sumOf(r.now.undone(c.Gang)) == 0 {
		return lostTo(newest)
	}
	before, known := r.now.nominated[who]
	if lives := len(before.parts) > 0; !lives && (c.Since != 0 || len(c.Parts) == 0) || lives && c.Since != 0 && (c.Since != before.made || before.made == r.now.rev) {
		return lostTo(newest)
	}
	now := before
	now.rank, now.parts, now.ends, now.lends, now.evicts = 0, nil, time.Time{}, 0, 0
	if len(c.Parts) > 0 {
		for _, part := range c.Parts {
			if no := r.serves(part, specs); no != nil {
				return no
			}
		}
		if no := r.asksFor(c, newest, specs); no != nil {
			return no
		}
		now = modelNomination{first: r.now.rev, made: r.now.rev, parts: c.Parts, ends: c.Ends, lends: c.Lends, evicts: r.evicts(who), rank: int64(c.Aged) + int64(r.rankOf(who))}
		if known && before.renewals < r.now.limits.Renewals {
			now.first, now.renewals = before.first, before.renewals+1
		}
		r.shared = true
		for _, part := range c.Parts {
			r.claimed[part.Node] = true
		}
	}
	r.now.nominated[who] = now
	if c.Capsule != "" {
		capsule := r.now.capsules[c.Capsule]
		capsule.changed = r.now.rev
		r.now.capsules[c.Capsule] = capsule
	}
	r.now.touchGang(c.Gang)
	return nil
}

// asksFor judges that a nomination claims on each node no more than the capsules ask for that may be there, in all no more
// than all of them, and on no more nodes than there are capsules. Specs has one spec for each member of a gang that is not done.
func (r *modelRound) asksFor(c Nominate, newest Revision, specs []*Spec) *refusal {
	capsules := specs // one for each capsule: nominee has those of a gang's members, if some are not done
	if len(c.Parts) > len(capsules) {
		return lostTo(newest)
	}
	for _, part := range c.Parts {
		n := r.now.nodes[part.Node]
		var may []*Spec
		for _, s := range capsules {
			if modelMayBe(n.Node, s) && (s.Devices.Count == 0 || len(s.Devices.Models) == 0 || slices.Contains(s.Devices.Models, n.Devices.Model)) {
				may = append(may, s)
			}
		}
		if claimsMore([]NominatedRoom{part}, may) {
			return lostTo(max(newest, r.was.nodes[part.Node].spec))
		}
	}
	if claimsMore(c.Parts, capsules) {
		return lostTo(newest)
	}
	return nil
}

// claimsMore reports whether parts claim more of something than capsules of these specs ask for.
func claimsMore(parts []NominatedRoom, capsules []*Spec) bool {
	claims, asks := make([]big.Int, Dimensions+2), make([]big.Int, Dimensions+2)
	add := func(sums []big.Int, i int, n int64) { sums[i].Add(&sums[i], big.NewInt(n)) }
	for _, p := range parts {
		for d, x := range p.Room {
			add(claims, d, x)
		}
		add(claims, Dimensions, int64(p.Devices.Len()))
		if big.NewInt(int64(p.Milli)).Cmp(&claims[Dimensions+1]) > 0 {
			claims[Dimensions+1].SetInt64(int64(p.Milli))
		}
	}
	for _, s := range capsules {
		for d, x := range s.Envelope.Reservation {
			add(asks, d, x)
		}
		add(asks, Dimensions, int64(s.Devices.Count))
		add(asks, Dimensions+1, int64(s.Devices.Milli))
	}
	for i := range claims {
		if claims[i].Cmp(&asks[i]) > 0 {
			return true
		}
	}
	return false
}

// modelMayBe reports whether a node meets what a spec requires of labels and taints.
func modelMayBe(n Node, s *Spec) bool {
	for _, p := range s.Require {
		if !modelMeets(n, p) {
			return false
		}
	}
	return !modelKeptOff(n, s, "NoSchedule", "NoExecute")
}

// nominee says what a capsule or a gang asks for, and whether it waits.
func (r *modelRound) nominee(who modelNominee) (Revision, []*Spec, *refusal) {
	if who.capsule != "" {
		c, ok := r.now.capsules[who.capsule]
		switch newest := r.was.capsules[who.capsule].changed; {
		case !ok:
			return 0, nil, lostTo(r.was.left.Capsules)
		case r.unseen(who.capsule) != nil:
			return 0, nil, r.unseen(who.capsule)
		case c.node != "" || c.released:
			return 0, nil, lostTo(newest)
		default:
			return newest, []*Spec{c.spec}, nil
		}
	}
	g, ok := r.now.gangs[who.gang]
	if !ok {
		return 0, nil, lostTo(r.was.left.Gangs)
	}
	newest := r.was.gangs[who.gang].changed
	if sumOf(r.now.placed(who.gang)) > 0 {
		return 0, nil, lostTo(newest)
	}
	var specs []*Spec
	left := r.now.undone(who.gang)
	for i, role := range g.Roles {
		if left[i] > 0 || sumOf(left) == 0 {
			specs = append(specs, role.Spec)
		}
	}
	if own := r.now.ownSpecs(who.gang); len(own) > 0 {
		specs = own
	}
	return newest, specs, nil
}

// ownSpecs are the specs of the members of a gang that are not done.
func (m *model) ownSpecs(gang GangID) (out []*Spec) {
	for _, c := range m.capsules {
		if c.gang == gang && !c.released {
			out = append(out, c.spec)
		}
	}
	return out
}

// rankOf is the priority from which the rank of a nomination comes: that of the capsule, or the lowest of the gang's roles
// that have members left.
func (r *modelRound) rankOf(who modelNominee) int32 {
	if who.capsule != "" {
		return r.now.capsules[who.capsule].spec.Priority
	}
	return slices.Min(r.now.priorities(who.gang))
}

// evicts is the lowest priority at which a capsule or a gang ever evicts.
func (r *modelRound) evicts(who modelNominee) int32 {
	lowest, gang := int32(math.MaxInt32), who.gang
	if who.capsule != "" {
		lowest, gang = r.now.capsules[who.capsule].spec.Priority, r.now.capsules[who.capsule].gang
	}
	if g, ok := r.now.gangs[gang]; ok {
		for _, role := range g.Roles {
			lowest = min(lowest, role.Spec.Priority)
		}
	}
	return lowest
}

// lend looks for who lends to the capsules that the proposal has placed.
func (r *modelRound) lend() {
	for id, c := range r.now.capsules {
		if !r.arrived[id] || c.node == "" || !c.spec.Backfills {
			continue
		}
		for who := range r.now.claims(c.node) {
			n := r.now.nominated[who]
			truce := r.now.limits.NeverEvictFrom <= c.spec.Priority && n.evicts <= r.now.limits.NeverEvictTo
			if n.made == r.now.rev || n.lends < c.spec.RunsAtMost || n.evicts <= c.spec.Priority || truce {
				continue
			}
			first := r.now.nominated[c.borrows]
			if c.borrows == (modelNominee{}) || n.outranks(who, modelAsker{as: c.borrows, ranked: first}) {
				c.borrows = who
			}
		}
		if c.borrows != (modelNominee{}) {
			r.now.lent++
		}
		r.now.capsules[id] = c
	}
}

// stillClaimed is what a nomination claims of a quantity on a node beside what these capsules have borrowed from it.
func stillClaimed(who modelNominee, part NominatedRoom, q int, on map[CapsuleID]modelCapsule) int64 {
	claimed := big.NewInt(quantities(part.Room, part.Devices, part.Milli)[q])
	for _, c := range on {
		if c.node == part.Node && c.borrows == who {
			claimed.Sub(claimed, big.NewInt(quantities(c.spec.Envelope.Reservation, c.devices, c.spec.Devices.Milli)[q]))
		}
	}
	if claimed.Sign() < 0 {
		return 0
	}
	return claimed.Int64()
}

// borrowsOf says from whom a capsule of a state borrows.
func borrowsOf(c *Capsule) modelNominee {
	if c.Borrows() == nil {
		return modelNominee{}
	}
	return modelNominee{c.Borrows().Gang, c.Borrows().Capsule}
}

// serves reports whether a node could serve one of the specs with the part of it that is claimed.
func (r *modelRound) serves(part NominatedRoom, specs []*Spec) *refusal {
	n, ok := r.now.nodes[part.Node]
	if !ok {
		return lostTo(r.was.left.Nodes)
	}
	rests := lostTo(r.was.nodes[part.Node].spec)
	if !n.Schedulable() || r.there(n, part.Devices) != nil {
		return rests
	}
	for d, room := range part.Room {
		if room > n.Capacity[d] {
			return rests
		}
	}
	for _, s := range specs {
		suits := part.Devices == 0 || len(s.Devices.Models) == 0 || slices.Contains(s.Devices.Models, n.Devices.Model)
		if suits && modelMayBe(n.Node, s) {
			return nil
		}
	}
	return rests
}

// ask notes what one commitment asks for on a node.
func (r *modelRound) ask(id NodeID, a modelAsker) { r.asks[id] = append(r.asks[id], a) }

// asker says with what rank a capsule asks: that of its nomination before the proposal, or of its gang's.
func (r *modelRound) asker(id CapsuleID, spec *Spec, gang GangID, set DeviceSet) modelAsker {
	a := modelAsker{capsule: id, lender: r.now.capsules[id].borrows, priority: int64(spec.Priority), room: spec.Envelope.Reservation, devices: set, milli: spec.Devices.Milli,
		newest: max(r.was.capsules[id].changed, r.was.gangs[gang].changed)}
	for _, as := range []modelNominee{{gang: gang}, {capsule: id}} {
		if n, ok := r.was.nominated[as]; ok && len(n.parts) > 0 && !r.anew[as.capsule] {
			a.as, a.ranked = as, n
		}
	}
	return a
}

// unnominate ends what a capsule and its gang are nominated for.
func (m *model) unnominate(who modelNominee, keep bool) {
	n, ok := m.nominated[who]
	if !ok || keep && len(n.parts) == 0 {
		return
	}
	if keep {
		m.nominated[who] = modelNomination{first: n.first, made: n.made, renewals: n.renewals}
		m.touchGang(who.gang)
		return
	}
	delete(m.nominated, who)
}

// claims yields what is claimed on a node.
func (m *model) claims(id NodeID) map[modelNominee]NominatedRoom {
	out := map[modelNominee]NominatedRoom{}
	for who, n := range m.nominated {
		for _, part := range n.parts {
			if part.Node == id {
				out[who] = part
			}
		}
	}
	return out
}

// overstepped says what is wrong with what the proposal asks for and claims where room is nominated.
func (r *modelRound) overstepped() (out []*refusal) {
	for id := range r.claimed {
		if len(r.now.claims(id)) > 8 {
			out = append(out, lostTo(r.was.left.Nominations))
		}
	}
	for id, asks := range r.asks {
		if n, ok := r.now.nodes[id]; ok {
			if made, short := r.encroaches(n, asks); short {
				newest := max(made, r.was.nodes[id].newest())
				for _, a := range asks {
					newest = max(newest, a.newest)
				}
				out = append(out, lostTo(newest))
			}
		}
	}
	if r.overclaims() {
		out = append(out, lostTo(r.was.left.Nominations))
	}
	return out
}

// quantities flattens resources and devices.
func quantities(room Resources, set DeviceSet, milli int) (out [Dimensions + MaxDevices]int64) {
	copy(out[:], room[:])
	for i := range MaxDevices {
		if set.Has(i) {
			out[Dimensions+i] = int64(milli)
		}
	}
	return out
}

func (r *modelRound) encroaches(n modelNode, asks []modelAsker) (made Revision, short bool) {
	room, devices := r.now.used(n.ID)
	asks = slices.Clone(asks)
	for i := range asks { // it was not known when they were placed
		if !asks[i].hold {
			asks[i].lender = r.now.capsules[asks[i].capsule].borrows
		}
	}
	for q := range Dimensions + MaxDevices {
		var capacity int64
		sum := new(big.Int)
		if q < Dimensions {
			sum.SetUint64(room[q])
			capacity = n.Capacity[q]
		} else {
			sum.SetInt64(int64(devices[q-Dimensions]))
			capacity = int64(1000 * btoi(q-Dimensions < n.Devices.Count && !n.Devices.Unhealthy.Has(q-Dimensions)))
		}
		asked, held, ended := new(big.Int), false, new(big.Int)
		for _, a := range asks {
			want := quantities(a.room, a.devices, a.milli)[q]
			asked.Add(asked, big.NewInt(want))
			held = held || a.hold && want > 0
		}
		for _, h := range r.endedOn[n.ID] {
			ended.Add(ended, big.NewInt(quantities(h.Room, h.Devices, h.Milli)[q]))
		}
		if asked.Sign() == 0 || !held && asked.Cmp(ended) <= 0 {
			continue
		}
		for who, part := range r.now.claims(n.ID) {
			claimed := stillClaimed(who, part, q, r.now.capsules)
			counts := claimed > 0 && slices.ContainsFunc(asks, func(a modelAsker) bool {
				return quantities(a.room, a.devices, a.milli)[q] > 0 && r.now.nominated[who].outranks(who, a)
			})
			if counts {
				sum.Add(sum, big.NewInt(claimed))
			}
			outranks := func(a modelAsker) bool { return r.now.nominated[who].outranks(who, a) }
			if at := r.now.nominated[who].made; at < r.now.rev && slices.ContainsFunc(asks, outranks) {
				made = max(made, at)
			}
		}
		if sum.Cmp(big.NewInt(capacity)) > 0 {
			short = true
		}
	}
	return made, short
}

// overclaims recounts all that is claimed and all that there is.
func (r *modelRound) overclaims() bool {
	for q := range Dimensions + 1 {
		amount := func(room Resources, devices, milli int) *big.Int {
			if q < Dimensions {
				return big.NewInt(room[q])
			}
			return big.NewInt(int64(devices * milli))
		}
		claimed := func(n modelNomination) *big.Int {
			sum := new(big.Int)
			for _, part := range n.parts {
				sum.Add(sum, amount(part.Room, part.Devices.Len(), part.Milli))
			}
			return sum
		}
		most := new(big.Int)
		for _, n := range r.now.nodes {
			most.Add(most, amount(n.Capacity, n.Devices.Count, 1000))
		}
		most.Mul(most, big.NewInt(int64(r.now.limits.NominatedShare)))
		for who, n := range r.now.nominated {
			mine, higher := claimed(n), new(big.Int)
			for other, o := range r.now.nominated {
				if other != who && o.outranks(other, modelAsker{as: who, ranked: n}) {
					higher.Add(higher, claimed(o))
				}
			}
			all := new(big.Int).Add(mine, higher)
			if n.made == r.now.rev && mine.Sign() > 0 && higher.Sign() > 0 && all.Mul(all, big.NewInt(100)).Cmp(most) > 0 {
				return true
			}
		}
	}
	return false
}

func (m *model) describeNominations() (out []string) {
	for _, who := range slices.SortedFunc(maps.Keys(m.nominated), modelNominee.compare) {
		n := m.nominated[who]
		out = append(out, fmt.Sprintf("nominated %v rank %d first %d made %d renewals %d for %v until %v, lends for %v", who, n.rank, n.first, n.made, n.renewals, n.parts, n.ends, n.lends))
	}
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		for _, who := range slices.SortedFunc(maps.Keys(m.claims(id)), modelNominee.compare) {
			out = append(out, fmt.Sprintf("node %s is nominated for %v: %v", id, who, m.claims(id)[who]))
		}
	}
	return out
}

func (a modelNominee) compare(b modelNominee) int {
	return cmp.Or(cmp.Compare(a.gang, b.gang), cmp.Compare(a.capsule, b.capsule))
}

// nominationsOf is describeNominations for a state.
func nominationsOf(s *State) (out []string) {
	all := map[modelNominee]*Nomination{}
	for c := range s.Capsules() {
		if c.Nomination() != nil {
			all[modelNominee{capsule: c.ID}] = c.Nomination()
		}
	}
	for g := range s.Gangs() {
		if g.Nomination != nil {
			all[modelNominee{gang: g.Gang.ID}] = g.Nomination
		}
	}
	for _, who := range slices.SortedFunc(maps.Keys(all), modelNominee.compare) {
		n := all[who]
		out = append(out, fmt.Sprintf("nominated %v rank %d first %d made %d renewals %d for %v until %v, lends for %v", who, n.Rank, n.First, n.Made, n.Renewals, n.Parts, n.Ends, n.Lends))
	}
	for node := range s.Nodes() {
		claims := map[modelNominee]NominatedRoom{}
		for n, part := range node.Nominated {
			claims[modelNominee{n.Gang, n.Capsule}] = *part
		}
		for _, who := range slices.SortedFunc(maps.Keys(claims), modelNominee.compare) {
			out = append(out, fmt.Sprintf("node %s is nominated for %v: %v", node.Node.ID, who, claims[who]))
		}
	}
	return out
}

// draftNominate nominates what waits for rooms here and there, replaces that, or ends it.
func draftNominate(s *scribe) []Commitment {
	c := Nominate{Ends: time.Unix(1e9, 0).UTC()}
	var before *Nomination
	if g := s.view.Gang(pickOne(s, modelGangs)); g != nil && s.chance(3) {
		c.Gang, before = g.Gang.ID, g.Nomination
	} else {
		who := s.some((*Capsule).Pending)
		c.Capsule, before = who.ID, who.Nomination()
	}
	if s.chance(3) {
		c.Aged = 1
	}
	if before.Lives() && s.chance(2) {
		c.Since = before.Made
	} else if s.chance(12) {
		c.Since = Revision(1 + s.quantity(20)&63)
	}
	for _, id := range modelNodes {
		if !s.chance(3) {
			continue
		}
		part := NominatedRoom{Node: id, Room: s.room(6)}
		if s.chance(4) {
			part.Devices, part.Milli = DeviceSet(1+s.quantity(2)&3), pickOne(s, []int{1, 500, 1000})
		}
		if part.Room != (Resources{}) || part.Devices != 0 {
			c.Parts = append(c.Parts, part)
		}
	}
	s.asked(&c)
	if c.Lends = time.Duration(pickOne(s, []int{0, 60, 60, 100})); len(c.Parts) == 0 {
		c.Aged, c.Ends, c.Lends = 0, time.Time{}, 0
	}
	return []Commitment{c}
}

// asked reduces a nomination, most often, to what its nominee asks for.
func (s *scribe) asked(c *Nominate) {
	if s.chance(8) {
		return
	}
	var capsules []*Spec
	if who := s.view.Capsule(c.Capsule); who != nil {
		capsules = append(capsules, who.Spec)
	}
	if g := s.view.Gang(c.Gang); g != nil {
		for _, role := range g.Gang.Roles {
			for range role.Members {
				capsules = append(capsules, role.Spec)
			}
		}
	}
	c.Parts = c.Parts[:min(len(c.Parts), len(capsules))]
	for i := range c.Parts { // the capsule with the same number is to be there
		part, spec := &c.Parts[i], capsules[i]
		for d := range part.Room {
			part.Room[d] = min(part.Room[d], spec.Envelope.Reservation[d])
		}
		if part.Devices, part.Milli = part.Devices&(1<<spec.Devices.Count-1), min(part.Milli, spec.Devices.Milli); part.Devices == 0 {
			part.Milli = 0
		}
	}
	c.Parts = slices.DeleteFunc(c.Parts, func(r NominatedRoom) bool { return r.Room == (Resources{}) && r.Devices == 0 })
}

// draftServe ends a hold and places in its stead.
func draftServe(s *scribe) []Commitment {
	for h := range s.view.Holds() {
		if s.chance(2) {
			continue
		}
		c := s.some((*Capsule).Pending)
		p := s.put(c.ID, c.Spec)
		p.Node = h.Node
		return []Commitment{Release{Hold: h.ID}, p}
	}
	return draftPlace(s)
}

// shares draws a limit on nominations.
func shares(t *rapid.T) int { return rapid.SampledFrom([]int{100, 100, 50, 10}).Draw(t, "share") }

// textOfNominated writes down what is claimed on a node, in the order in which it is kept.
func textOfNominated(n *NodeState) (out string) {
	for of, part := range n.Nominated {
		out += fmt.Sprintf("%s: %+v, ", of.nominee(), *part)
	}
	if n.loans != nil {
		for _, l := range slices.SortedFunc(slices.Values(*n.loans), func(a, b loan) int { return cmp.Compare(a.from.String(), b.from.String()) }) {
			out += fmt.Sprintf("%s lends %v, ", l.from, l.load)
		}
	}
	return out
}

// draftLend nominates what waits for most of a node or two, and lends that.
func draftLend(s *scribe) []Commitment {
	c := draftNominate(s)[0].(Nominate)
	if c.Parts = c.Parts[:0]; c.Ends.IsZero() {
		c.Ends = time.Unix(1e9, 0).UTC()
	}
	for n := range s.view.Nodes() {
		if s.chance(2) && len(c.Parts) < 2 {
			part := NominatedRoom{Node: n.Node.ID, Room: n.Node.Capacity}
			for d := range part.Room {
				part.Room[d] = max(0, part.Room[d]-s.quantity(2))
			}
			if n.Node.Devices.Count > 0 && s.chance(2) {
				part.Devices, part.Milli = 1, pickOne(s, []int{500, 1000})
			}
			if part.Room != (Resources{}) || part.Devices != 0 {
				c.Parts = append(c.Parts, part)
			}
		}
	}
	s.asked(&c)
	if c.Lends = 100; len(c.Parts) == 0 {
		c.Aged, c.Ends, c.Lends = 0, time.Time{}, 0
	}
	return []Commitment{c}
}

// draftBorrow submits what backfills, and places some of it.
func draftBorrow(s *scribe) []Commitment {
	spec := s.spec()
	spec.Priority, spec.RunsAtMost, spec.Backfills = int32(btoi(s.chance(3))), 60, true
	if s.chance(2) { // in the way of most nominees
		spec.Module, spec.Envelope.Reservation = "m", Resources{CPU: 3, Memory: 3}
	}
	ids := s.fresh(rapid.IntRange(1, 3).Draw(s.T, "submit"))
	return []Commitment{Submit{IDs: ids, Spec: spec}, s.put(ids[0], spec)}
}

// draftRecall places a nominee on nodes where it is nominated, and evicts those who borrow from it there, and perhaps others.
func draftRecall(s *scribe) (out []Commitment) {
	for n := range s.view.Nominations() {
		if s.chance(3) {
			continue
		}
		members := []*Capsule{s.view.Capsule(n.Capsule)}
		if n.Gang != "" {
			members = slices.Collect(s.view.Members(n.Gang))
		}
		other := s.chance(3)
		for _, part := range n.Parts {
			for _, v := range slices.SortedFunc(s.view.On(part.Node), func(a, b *Capsule) int { return cmp.Compare(a.ID, b.ID) }) {
				if borrowsOf(v) == (modelNominee{n.Gang, n.Capsule}) || other && s.chance(2) {
					out = append(out, Evict{Capsule: v.ID, From: part.Node, Since: v.PlacedAt, For: n.Capsule, ForGang: n.Gang})
				}
			}
		}
		for i, c := range members {
			if at := s.view.Node(n.Parts[i%len(n.Parts)].Node); at != nil && c.Pending() {
				out = append(out, Place{Capsule: c.ID, Node: at.Node.ID, Devices: DeviceSet(1<<c.Spec.Devices.Count - 1)})
			}
		}
		return out
	}
	return draftEvict(s)
}

// vacate lets nodes join with much room, which high work is nominated for and lends, and submits what may borrow it.
func (d *duel) vacate(t *rapid.T) {
	for _, id := range modelNodes {
		n := Node{ID: id, Capacity: Resources{8, 8, 8, 8, 8, 8, 8, 8}, Labels: map[string]string{"rack": "r0"}, Devices: Devices{Model: "A100", Count: 2}}
		d.send(t, Proposal{Do: []Commitment{PutNode{n}}})
	}
	high := &Spec{Module: "high", Priority: 2, Envelope: Envelope{Reservation: Resources{CPU: 6, Memory: 6}}}
	d.send(t, Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{"c0", "c1"}, Spec: high}, Submit{IDs: []CapsuleID{"c2"}, Spec: &Spec{Module: "m", Envelope: Envelope{Reservation: Resources{CPU: 3}}}}}})
	d.send(t, Proposal{Do: []Commitment{Submit{Gang: &Gang{ID: "g0", Roles: []Role{{Spec: high, Members: []CapsuleID{"c3", "c4"}, Min: 1}}}}}})
	d.send(t, Proposal{Do: []Commitment{Place{Capsule: "c2", Node: "n0"}}})
	for range 3 {
		s := &scribe{T: t, view: d.snapshot()}
		d.send(t, Proposal{Do: draftLend(s)})
		s.view = d.snapshot()
		d.send(t, Proposal{Do: draftBorrow(s)})
	}
	s := &scribe{T: t, view: d.snapshot()}
	if s.chance(2) {
		d.send(t, Proposal{Do: []Commitment{PutBudget{Budget{ID: "b0", Module: "m", Expected: rapid.IntRange(1, 4).Draw(t, "expected")}}}})
		s.view = d.snapshot()
	}
	d.send(t, Proposal{View: s.view.rev, Do: draftRecall(s)})
}

// TestBackfillAgainstModel is TestLedgerAgainstModel with nominations that lend, those who borrow from them, budgets, and evictions above
// all.
func TestBackfillAgainstModel(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	for total := range scale.Reach(t, "lent", "recalled", "committed", "conflict", "infeasible", "by a budget") {
		rapid.Check(t, func(t *rapid.T) {
			d := newDuel(Limits{NeverEvictFrom: rapid.Int32Range(0, 2).Draw(t, "truce from"), NeverEvictTo: rapid.Int32Range(0, 1).Draw(t, "truce to")}, false)
			d.drafts = []draft{
				draftLend, draftLend, draftLend, draftLend, draftNominate, draftBorrow, draftBorrow, draftBorrow, draftBorrow, draftBorrow,
				draftRecall, draftRecall, draftRecall, draftRecall, draftRecall, draftRecall, draftRecall, draftEvict, draftEvict, draftBudget, draftBudget, draftBudget, draftMove, draftMove, draftPlace, draftPlace, draftPlace,
				draftSubmit, draftGang, draftRelease, draftRelease, draftProtect, draftServe, draftChange, draftConfirm, draftAdopt, draftRespec, draftRespec,
				func(s *scribe) []Commitment { return []Commitment{Submit{Gang: s.gang()}} },
			}
			d.vacate(t)
			t.Repeat(d.actions())
			d.lookBack(t)
			total["lent"] += d.model.lent
			total["recalled"] += d.model.recalled
			for k, n := range d.count {
				total[k] += n
			}
		})
	}
}
