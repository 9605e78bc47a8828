package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/victims"
)

// gangSeating is a choice for a whole gang: a domain, the victims that leave it, and the room that the members take.
// Its Key sums up the victims, so that domains are compared as single nodes are.
type gangSeating struct {
	victims.Key
	// The domain and its nodes.
	name  string
	nodes []int32
	// The victims.
	leave []*orbit.Capsule
	// The room that the members take, node by node, for a nomination; and member by member.
	parts []orbit.NominatedRoom
	rooms []memberRoom
}

// before reports whether s is better than o: by its victims, and among equals by the name of the domain.
func (s *gangSeating) before(o *gangSeating) bool {
	return cmp.Or(s.Compare(&o.Key), cmp.Compare(s.name, o.name)) < 0
}

// serveGang places a waiting gang with its minimum of members, or the members that a broken gang lacks, and returns nil,
// or the reason why it cannot.
func (r *preemptPass) serveGang(ctx context.Context, c *orbit.Capsule) error {
	of := r.waiterOf(c)
	w := r.wait(of)
	members, levels := r.wanted(c)
	switch {
	case len(members) == 0:
		return errNobody
	case r.now.Before(w.again):
		return w.why
	case r.exceedsAll(members):
		return errNobody
	case w.failed > 0 && !r.again[c.Gang()], w.failed == 0 && r.gangsLeft == 0:
		return limited{"no victims were sought for it in this plan: other gangs are tried first"}
	}
	r.tried, r.gangsLeft = r.tried+1, r.gangsLeft-btoi(w.failed == 0)
	r.draft.Ask(c)
	r.draft.Avoid(members...)
	defer r.draft.Ask(nil)
	defer func() { r.search.Gentle = false }()
	var refusal *orbit.Rejection
	best, tried, all := r.bestDomain(ctx, r.state.Gang(c.Gang()).Nomination, members, levels, w.tried, &refusal)
	switch w.tried = 0; {
	case best == nil && !all:
		w.tried = tried
		return errCutOff
	case best == nil:
		w.again, w.why, w.failed = r.now.Add(gangTriedAgain), keptBy(errNoDomain, refusal), r.plans
		return w.why
	}
	w.failed = 0
	withheld := r.withheld[waiter{gang: c.Gang()}]
	if len(best.leave) == 0 && !withheld && !r.mustSeat(best) {
		return limited{"there is room for it without evicting"}
	}
	if why := r.exceeds(best.leave, best.Priority()); why != nil {
		return why
	}
	if (withheld || w.lost > 0) && r.nominateGang(of, best) {
		return errNominated
	}
	start, limits := r.draft.Checkpoint(), r.state.Limits()
	if r.seatGang(best.nodes, members) == nil {
		r.draft.Rollback(start)
		return errNobody
	}
	var bets []orbit.Precondition
	if r.home == nil {
		bets = append(bets, orbit.GangUnplaced{Gang: c.Gang()})
	}
	made := r.draft.Propose(bets...)
	if len(made.Do) > limits.Commitments || len(made.If) > limits.Preconditions {
		r.draft.Rollback(start)
		return errors.New("its victims and members are more commitments or preconditions than the ledger accepts in one proposal")
	}
	r.propose(of, made, best.leave)
	return nil
}

// nominateGang nominates the room of a seating, unless the gang is nominated there already. It reports false if it has
// nominated nothing.
func (r *preemptPass) nominateGang(of waiter, s *gangSeating) bool {
	if r.home != nil {
		return r.nominateMember(of, s.rooms[0])
	}
	return !isNominated(r.state.Gang(of.gang).Nomination, s.parts...) && r.nominate(of, s.parts)
}

// exceedsAll reports whether one of these members asks for more than any node has. Members of one spec follow each other.
func (r *preemptPass) exceedsAll(members []*orbit.Capsule) bool {
	r.rooms.Begin(&r.draft, math.MaxInt)
	r.rooms.Follow()
	for i, m := range members {
		if (i == 0 || members[i-1].Spec != m.Spec) && r.rooms.ExceedsAll(m.Spec) {
			return true
		}
	}
	return false
}

// bestDomain returns the nominated nodes, if all members find room there. Otherwise it returns the domain whose victims
// are best, of the first level that has a domain for all members; nil: no level has one. It first searches all levels
// without evicting any gang whole, and allows that in a second search only if the first has found nothing. It skips as
// many domains, in this order, as an earlier search has tried. It returns how many domains are tried by now, and
// whether these are all; if not, ctx has ended. If only a budget rules out a domain, it records the refusal.
func (r *preemptPass) bestDomain(ctx context.Context, n *orbit.Nomination, members []*orbit.Capsule, levels [][]string, skip int, refusal **orbit.Rejection) (best *gangSeating, tried int, all bool) {
	r.rooms.Begin(&r.draft, math.MaxInt)
	r.rooms.Follow()
	if best = r.nominatedDomain(n, members, levels); best != nil {
		return best, 0, true
	}
	for _, gentle := range []bool{true, false} {
		r.search.Gentle = gentle
		for _, level := range levels {
			t := r.rooms.Table(level...)
			for d := range t.Domains {
				if tried++; tried <= skip || !r.mayBeIn(t, d) {
					continue
				}
				if ctx.Err() != nil {
					return best, tried - 1, false
				}
				s := r.tryGang(t.Domains[d].Name, t.Domains[d].Nodes, members)
				if s == nil {
					*refusal = victims.First(*refusal, r.search.Refusal)
					continue
				}
				if best == nil || s.before(best) {
					best = s
				}
			}
			if best != nil {
				return best, tried, true
			}
		}
	}
	return nil, tried, true
}

// nominatedDomain returns the nodes on which room is nominated for the gang, if they are in one domain and all members
// find room there; else nil.
func (r *preemptPass) nominatedDomain(n *orbit.Nomination, members []*orbit.Capsule, levels [][]string) *gangSeating {
	if !n.Lives() {
		return nil
	}
	var nodes []int32
	for i := range n.Parts {
		if at := r.state.Node(n.Parts[i].Node); at != nil {
			nodes = append(nodes, int32(at.Index()))
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	for _, level := range levels {
		t := r.rooms.Table(level...)
		if len(nodes) == 0 || t.Of[nodes[0]] < 0 || slices.ContainsFunc(nodes, func(at int32) bool { return t.Of[at] != t.Of[nodes[0]] }) {
			continue
		}
		for _, gentle := range []bool{true, false} {
			r.search.Gentle = gentle
			if s := r.tryGang(t.Domains[t.Of[nodes[0]]].Name, nodes, members); s != nil {
				return s
			}
		}
	}
	return nil
}

// tryGang does what seatGang does on the nodes of a domain, and then rolls the draft back.
func (r *preemptPass) tryGang(name string, nodes []int32, members []*orbit.Capsule) *gangSeating {
	start := r.draft.Checkpoint()
	defer r.draft.Rollback(start)
	s := r.seatGang(nodes, members)
	if s != nil {
		s.name, s.nodes = name, nodes
	}
	return s
}

// seatGang places all members on these nodes of the draft, one after the other, each on the node where its victims are
// best, and evicts the victims. It returns nil if a member finds no place; the caller then rolls the draft back.
func (r *preemptPass) seatGang(nodes []int32, members []*orbit.Capsule) *gangSeating {
	s := &gangSeating{Key: victims.None}
	var open heap.Heap[gangSeat]
	parts := map[orbit.NodeID]int{}
	elsewhere := false // the last member's victims have made other nodes better
	for i, m := range members {
		if r.home != nil { // each member may have a nomination of its own
			r.draft.Ask(m)
		}
		r.search.Begin(&r.draft, m)
		if levels, _ := r.draft.RuleLevels(m.Spec); i == 0 || members[i-1].Spec != m.Spec || elsewhere || levels != nil { // by rules a member may open nodes to the next
			open = open[:0]
			for _, at := range nodes {
				r.offer(&open, at, m)
			}
		}
		var f victims.Found
		for f.Node == nil && len(open) > 0 {
			seat := open.Pop()
			now, ok := r.search.On(r.draft.Node(int(seat.at))) // again, since an evicted gang changes several nodes
			switch {
			case !ok || !r.search.Settle(&now):
			case seat.Compare(&now.Key) < 0 && len(open) > 0 && !(gangSeat{now, seat.at}).Before(open[0]):
				open.Push(gangSeat{now, seat.at})
			default:
				f = now
				elsewhere = slices.ContainsFunc(f.Victims, func(v *orbit.Capsule) bool { return v.Node != f.Node.Node.ID })
				if !r.take(s, &f, m, parts) {
					return nil
				}
				r.offer(&open, seat.at, m)
			}
		}
		if f.Node == nil {
			return nil
		}
	}
	return s
}

// gangSeat is a node that may take a member, and the victims there.
type gangSeat struct {
	victims.Found
	at int32
}

// Before puts the seat with the better victims first.
func (s gangSeat) Before(o gangSeat) bool { return s.Found.Before(&o.Found) }

// offer adds a node to the open seats, if a member fits there once its victims have left.
func (r *preemptPass) offer(open *heap.Heap[gangSeat], at int32, m *orbit.Capsule) {
	n := r.draft.Node(int(at))
	if n == nil || r.filtered(n, m.Spec) {
		return
	}
	if f, ok := r.search.On(n); ok {
		open.Push(gangSeat{f, at})
	}
}

// take evicts the victims on the draft, places a member in their stead, and enters both into the seating. It reports
// false if the draft refuses a step.
func (r *preemptPass) take(s *gangSeating, f *victims.Found, m *orbit.Capsule, parts map[orbit.NodeID]int) bool {
	for _, v := range f.Victims {
		if r.draft.Evict(r.search.Evict(v)) != nil {
			return false
		}
	}
	if r.draft.Place(m, orbit.Choice{Node: f.Node, Devices: f.Devices}) != nil {
		return false
	}
	s.add(f)
	id := f.Node.Node.ID
	at, known := parts[id]
	if !known {
		at = len(s.parts)
		parts[id] = at
		s.parts = append(s.parts, orbit.NominatedRoom{Node: id})
	}
	room := orbit.NominatedRoom{Node: id, Room: m.Spec.Envelope.Reservation, Devices: f.Devices}
	if f.Devices != 0 {
		room.Milli = m.Spec.Devices.Milli
	}
	s.rooms = append(s.rooms, memberRoom{m, room})
	part := &s.parts[at]
	part.Room, _ = part.Room.Add(m.Spec.Envelope.Reservation) // no overflow: the members fit on the node together
	if part.Devices |= f.Devices; f.Devices != 0 {
		part.Milli = max(part.Milli, m.Spec.Devices.Milli)
	}
	return true
}

// add adds the victims of one member.
func (s *gangSeating) add(f *victims.Found) {
	s.leave = append(s.leave, f.Victims...)
	s.Last = s.Last || f.Last
	s.Refused += f.Refused
	s.Sum += f.Sum
	s.Count += f.Count
	switch {
	case f.Highest > s.Highest:
		s.Highest, s.Start = f.Highest, f.Start
	case f.Highest == s.Highest:
		s.Start = min(s.Start, f.Start)
	}
}

// quantity returns a number with its noun, as in "3 victims".
func quantity(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
