// Package moves finds capsules whose moves to other nodes make room for a capsule, or for the members of a gang, that fit
// nowhere.
//
//	the newcomer ─► a node that would take it without some movable capsules ─► these have no node now
//	                  └─ each of them ─► a node that takes it, or would without some other movable capsules ─► ...
//	                                       └─ all have a node: the moves and the newcomer are one proposal
//
// A set of moves may therefore be a chain, a swap or a cycle. Nothing moves without consent ([orbit.State.Movable]), and the
// draft judges each step by the ledger's rules.
package moves

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// Search finds moves on a draft. It is not safe for concurrent use.
type Search struct {
	// Draft must be synced. A search leaves it unchanged.
	Draft *orbit.Draft
	// Engine chooses a node for a capsule that fits without moves of others. It has to exclude the nodes that Excluded does. Required.
	Engine orbit.PlacementEngine
	// Excluded reports whether capsules of a spec may not be placed on a node; nil: they may be on all.
	Excluded func(*orbit.NodeState, *orbit.Spec) bool
	// Stays reports whether a capsule must not move although it is movable; nil: all that are movable may move.
	Stays func(*orbit.Capsule) bool
	// Most is how many capsules may move at most.
	Most int
	// Steps bounds each part of a search: the number of nodes, capsules and sets of capsules that it looks at, about. Room has a second
	// part, for sets of more than three moves; Away has one without surges. 0: 200,000.
	Steps int
	// Note is kept with each placement of a capsule that moves.
	Note string
	// Allows reports whether a set of moves is allowed; it gets the set as one proposal. Nil: the ledger has to take that proposal,
	// and no group may become more uneven by it. Set Allows if the moves are to be made by several proposals.
	Allows func(orbit.Proposal) bool

	steps int
	best  *Found
	seats []Seat
	moved []*orbit.Capsule
	work  float64
	hoped bool
}

// Seat is the place of a capsule: a newcomer, or one that moves.
type Seat struct {
	// Of is the capsule, with the spec by which it is placed.
	Of *orbit.Capsule
	// Node is the index of the node, and Devices are the device instances there.
	Node    int
	Devices orbit.DeviceSet
}

// Found is a set of moves and the placements for which they make room.
type Found struct {
	// Moved are the capsules that move.
	Moved []*orbit.Capsule
	// Seats are the places of the newcomers and of the capsules that move.
	Seats []Seat
	// Work is the sum of the sizes of the capsules that move, see [Size].
	Work float64

	note string
	// Those of Moved that surge: they run on until they are ready at their new places.
	surges []orbit.CapsuleID
}

// fewMoves is the largest number of moves for which a search finds the best set, while it has steps left.
const fewMoves = 3

// Size returns the part of its node that a capsule takes, 0 to 1, in the dimension in which that part is largest.
func Size(c *orbit.Capsule, n *orbit.Node) (part float64) {
	for d, takes := range c.Spec.Envelope.Reservation {
		if takes > 0 {
			part = max(part, float64(takes)/float64(max(n.Capacity[d], takes)))
		}
	}
	if count := n.Devices.Count; count > 0 {
		part = max(part, float64(c.Devices.Len()*c.Spec.Devices.Milli)/float64(count*seats.WholeDevice))
	}
	return part
}

// On moves the capsules and places the newcomers on the draft, as steps of its next proposal. If the draft refuses a
// step, On returns that step's error and leaves the draft unchanged.
func (f *Found) On(draft *orbit.Draft) error {
	start := draft.Checkpoint()
	err := func() error {
		for _, c := range f.Moved {
			if err := draft.Evict(orbit.Evict{Capsule: c.ID, Surge: slices.Contains(f.surges, c.ID)}); err != nil {
				return err
			}
		}
		for i := range f.Seats {
			if err := f.Seats[i].on(draft, f.note); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		draft.Rollback(start)
	}
	return err
}

// on places the capsule on the draft. The note is for capsules that move, so a newcomer gets none.
func (s *Seat) on(draft *orbit.Draft, note string) error {
	if !s.Of.Placed() {
		note = ""
	}
	return draft.Place(s.Of, orbit.Choice{Node: draft.Node(s.Node), Devices: s.Devices, Note: note})
}

// Before reports whether f is better than o: fewer moves, and among as many the least work. Anything is better than nil.
func (f *Found) Before(o *Found) bool {
	return o == nil || cmp.Or(cmp.Compare(len(f.Moved), len(o.Moved)), cmp.Compare(f.Work, o.Work)) < 0
}

// homeless is a capsule that needs a node.
type homeless struct {
	*orbit.Capsule
	// The node that it has left, by index; -1: it is a newcomer.
	left int
	// The nodes that it may go to, by index; nil: all.
	within []int32
}

// Room returns the best set of moves after which the newcomers have room on the nodes with the indexes within; nil within: on any.
// The best set has the fewest moves, and among as many the least work. Nil: no set was found. Newcomers of one spec have to
// stand next to each other.
//
// While steps last, no better set of up to three moves exists than the one returned, with two exceptions. A capsule moves only if
// another goes to its node, so none moves out of a rack because a rule [orbit.Apart] keeps the newcomer out of that rack. And of
// shared devices Room tries only one choice of instances with each set. It finds a set of more than three moves only if the
// capsules that make room for a newcomer all fit on other nodes without further moves.
func (s *Search) Room(newcomers []*orbit.Capsule, within []int32) *Found {
	s.begin()
	queue := make([]homeless, len(newcomers))
	for i, c := range newcomers {
		queue[i] = homeless{c, -1, within}
	}
	if s.hoped = len(queue) > 0 && s.hopeful(&queue[0]); !s.hoped {
		return nil
	}
	for left := range min(s.Most, fewMoves) + 1 {
		s.settle(queue, left)
		if s.best != nil {
			return s.best
		}
	}
	if s.Most > fewMoves {
		s.steps = s.budget()
		s.wide(queue)
	}
	return s.best
}

// Hopeful reports, of the last Room, whether some node would have enough for the first newcomer if all that may move had left the node.
// If not, Room has tried no set.
func (s *Search) Hopeful() bool { return s.hoped }

func (s *Search) budget() int { return cmp.Or(s.Steps, 200_000) }

// Taken returns how many steps the last part of the last search took. A search has two parts if Room goes on to sets of more than three
// moves, or Away tries again without surges.
func (s *Search) Taken() int { return s.budget() - s.steps }

func (s *Search) begin() {
	s.best, s.seats, s.moved, s.work, s.steps = nil, nil, nil, 0, s.budget()
}

// hopeful reports whether some node would have enough for a capsule if all that may move had left the node.
func (s *Search) hopeful(h *homeless) bool {
	for i := range s.nodes(h) {
		n := s.Draft.Node(i)
		if !s.describes(h, i, n) {
			continue
		}
		free, whole := seats.CapacityOf(n), seats.CapacityOf(&orbit.NodeState{Node: n.Node})
		for _, c := range s.movable(n) {
			free.Leave(c.Spec, c.Devices, &whole)
		}
		if free.Fits(h.Spec) > 0 && s.may(h, i, n) {
			return true
		}
	}
	return false
}

// nodes yields the indices of the nodes that a capsule may go to.
func (s *Search) nodes(h *homeless) func(func(int) bool) {
	return func(yield func(int) bool) {
		if h.within == nil {
			for i := range s.Draft.Bound() {
				if !yield(i) {
					return
				}
			}
			return
		}
		for _, i := range h.within {
			if !yield(int(i)) {
				return
			}
		}
	}
}

// may reports whether a capsule may go to a node. It looks neither at room nor at rules of company.
func (s *Search) may(h *homeless, i int, n *orbit.NodeState) bool {
	return s.describes(h, i, n) && (s.Excluded == nil || !s.Excluded(n, h.Spec))
}

// describes is may without Excluded: the node takes work and meets the requirements, and the capsule has not just left it.
func (s *Search) describes(h *homeless, i int, n *orbit.NodeState) bool {
	if n == nil || i == h.left || !n.Node.Schedulable() || !n.Node.Admits(h.Spec) {
		return false
	}
	for k := range h.Spec.Require {
		if !h.Spec.Require[k].On(n.Node) {
			return false
		}
	}
	return h.Spec.Devices.Count == 0 || h.Spec.Devices.Accepts(n.Node.Devices.Model)
}

// movable returns the capsules of a node that may move, the smallest first.
func (s *Search) movable(n *orbit.NodeState) (out []*orbit.Capsule) {
	for c := range s.Draft.View().State().On(n.Node.ID) {
		if s.steps--; s.mayMove(c) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *orbit.Capsule) int {
		return cmp.Or(cmp.Compare(Size(a, n.Node), Size(b, n.Node)), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// mayMove reports whether a capsule is movable, the plan has not used it yet, and the caller lets it move.
func (s *Search) mayMove(c *orbit.Capsule) bool {
	return s.Draft.View().State().Movable(c) && !s.Draft.Uses(c.ID) && (s.Stays == nil || !s.Stays(c))
}

// option is a node for a capsule, the capsules that have to leave the node first, and the sum of their sizes.
type option struct {
	node  int
	leave []*orbit.Capsule
	work  float64
}

// settle gives all capsules of the queue a node, with at most left more moves, and records each way to do so that is better than
// the best so far. It leaves the draft as it was.
func (s *Search) settle(queue []homeless, left int) {
	if len(queue) == 0 {
		s.record()
		return
	}
	if s.greedy(queue) {
		return // no other places are better: a set is judged by what moves, not by where that goes
	}
	h := &queue[0]
	for _, o := range s.options(h, left) {
		if s.steps <= 0 || s.best != nil && s.work+o.work >= s.best.Work {
			return
		}
		s.steps -= 8
		start := s.Draft.Checkpoint()
		if next, ok := s.take(h, &o, queue[1:]); ok {
			s.settle(next, left-len(o.leave))
			s.untake(&o)
		}
		s.Draft.Rollback(start)
	}
}

// take carries out an option on the draft: its capsules leave the node, and h gets a place there. It returns the queue with those
// that have left at its end. It returns false if the draft refuses a step; the caller then rolls the draft back.
func (s *Search) take(h *homeless, o *option, queue []homeless) (next []homeless, ok bool) {
	next = slices.Clone(queue)
	for _, c := range o.leave {
		spec, _, err := SpecOf(s.Draft.View().State(), c)
		if err != nil || s.Draft.Evict(orbit.Evict{Capsule: c.ID}) != nil {
			return nil, false
		}
		own := *c
		own.Spec = spec
		next = append(next, homeless{&own, o.node, nil})
	}
	s.ask(h)
	n := s.Draft.Node(o.node)
	devices, fits := n.PickDevices(h.Spec)
	seat := Seat{h.Capsule, o.node, devices}
	if !fits || seat.on(s.Draft, s.Note) != nil {
		return nil, false
	}
	s.seats, s.moved, s.work = append(s.seats, seat), append(s.moved, o.leave...), s.work+o.work
	return next, true
}

// untake takes back what take has noted in the search. The caller rolls the draft back.
func (s *Search) untake(o *option) {
	s.seats, s.moved, s.work = s.seats[:len(s.seats)-1], s.moved[:len(s.moved)-len(o.leave)], s.work-o.work
}

// ask makes the draft show its nodes from the point of view of h. A newcomer may use the room that is nominated for it. A capsule that
// moves has no nomination to use.
func (s *Search) ask(h *homeless) {
	if h.left < 0 {
		s.Draft.LookAs(h.Capsule)
	} else {
		s.Draft.LookAs(nil)
	}
}

// greedy gives each capsule of the queue a node without further moves (placeBest), and records that. It returns false if one of them
// fits nowhere, or if the whole is not allowed.
func (s *Search) greedy(queue []homeless) (ok bool) {
	start, seated := s.Draft.Checkpoint(), len(s.seats)
	defer func() {
		s.Draft.Rollback(start)
		s.seats = s.seats[:seated]
	}()
	for i := range queue {
		if !s.placeBest(&queue[i]) {
			return false
		}
	}
	return s.record()
}

// placeBest places a capsule without further moves, on the node that the engine finds best. If the capsule may not go to all nodes,
// it takes the first of its nodes that fits.
func (s *Search) placeBest(h *homeless) bool {
	if s.ask(h); h.within != nil {
		for i := range s.nodes(h) {
			n := s.Draft.Node(i)
			if s.steps--; !s.may(h, i, n) || !n.Fits(h.Spec) {
				continue
			}
			if _, ok := s.take(h, &option{node: i}, nil); ok {
				return true
			}
		}
		return false
	}
	s.steps -= 8
	choice, err := s.Engine.Best(s.Draft, h.Spec)
	if err != nil || choice.Node.Index() == h.left {
		return false
	}
	seat := Seat{h.Capsule, choice.Node.Index(), choice.Devices}
	if seat.on(s.Draft, s.Note) != nil {
		return false
	}
	s.seats = append(s.seats, seat)
	return true
}

// record keeps the moves on the draft as the best set, if they are better than the best set so far and allowed (Allows). It returns
// false only if they would be the best set and are not allowed.
func (s *Search) record() bool {
	f := &Found{Moved: slices.Clone(s.moved), Seats: slices.Clone(s.seats), Work: s.work, note: s.Note}
	if !f.Before(s.best) {
		return true
	}
	s.steps -= 32
	start := s.Draft.Checkpoint()
	p := s.Draft.Propose()
	allows := s.Allows
	if allows == nil {
		allows = s.allows
	}
	ok := allows(p)
	s.Draft.Rollback(start)
	if ok {
		s.best = f
	}
	return ok
}

// allows stands in for Allows: the ledger has to take the proposal, and no group may become more uneven by it. The ledger alone is not
// enough, because it judges a rule Even only of capsules that arrive with it, and a move can make others break it.
func (s *Search) allows(p orbit.Proposal) bool {
	state := s.Draft.View().State()
	if !slices.ContainsFunc(s.moved, func(c *orbit.Capsule) bool { return c.Spec.Group != "" || len(c.Spec.Groups) > 0 }) {
		return state.Check(p) == nil
	}
	next, err := state.With(p)
	return err == nil && Unevenness(next) <= Unevenness(state)
}

// Unevenness returns by how many members domains exceed what rules Even permit, summed up over all domains and rules.
func Unevenness(state *orbit.State) (excess int) {
	for skew := range state.Skewed() {
		excess += skew.Members - skew.Fewest - skew.Even.MaxSkew
	}
	return excess
}

// options returns the nodes to which a capsule may go, each with the capsules that have to leave first: none if it fits, or a smallest
// set of at most left capsules (leaving). A node with several such sets is in the result once for each. The options with
// the least work come first.
func (s *Search) options(h *homeless, left int) (out []option) {
	byCompany := s.ruled(h.Spec)
	s.ask(h)
	for i := range s.nodes(h) {
		n := s.Draft.Node(i)
		if s.steps--; s.steps <= 0 || !s.may(h, i, n) {
			continue
		}
		fits := n.Fits(h.Spec)
		if fits {
			out = append(out, option{node: i})
		}
		// Room alone may not decide whether the capsule can be placed here. Then sets are tried even if it fits, or if fewer would do.
		if all := byCompany || isNominated(n); left > 0 && (all || !fits) {
			out = s.leaving(out, h, n, left, all)
		}
	}
	slices.SortStableFunc(out, func(a, b option) int { return cmp.Compare(a.work, b.work) })
	return out
}

// ruled reports whether rules of company apply to a spec. Then more capsules may have to leave than those that make enough room.
func (s *Search) ruled(spec *orbit.Spec) bool {
	levels, _ := s.Draft.RuleLevels(spec)
	return levels != nil
}

// isNominated reports whether room is nominated on a node. Then free capacity alone does not say whether a capsule fits.
func isNominated(n *orbit.NodeState) bool {
	for range n.Nominated {
		return true
	}
	return false
}

// leaving adds to out an option for each set of at most left movable capsules without which a node has enough for h. If all is false,
// it leaves out the sets that contain a smaller one that is enough.
func (s *Search) leaving(out []option, h *homeless, n *orbit.NodeState, left int, all bool) []option {
	on := s.movable(n)
	free, whole := seats.CapacityOf(n), seats.CapacityOf(&orbit.NodeState{Node: n.Node})
	first := len(out)
	var set []*orbit.Capsule
	// choose adds as many capsules as more says to the set, those from index from on. Free is what the node has without the set.
	var choose func(from, more int, free seats.Capacity, work float64)
	choose = func(from, more int, free seats.Capacity, work float64) {
		if s.steps--; s.steps <= 0 {
			return
		}
		if more == 0 {
			if free.Fits(h.Spec) > 0 && (all || !hasPart(out[first:], set)) {
				out = append(out, option{n.Index(), slices.Clone(set), work})
			}
			return
		}
		for i := from; i+more <= len(on); i++ {
			freed := free
			freed.Leave(on[i].Spec, on[i].Devices, &whole)
			set = append(set, on[i])
			choose(i+1, more-1, freed, work+Size(on[i], n.Node))
			set = set[:len(set)-1]
		}
	}
	for size := 1; size <= min(left, len(on)); size++ {
		choose(0, size, free, 0)
	}
	return out
}

// hasPart reports whether the set contains all the capsules of one of the options.
func hasPart(options []option, set []*orbit.Capsule) bool {
	return slices.ContainsFunc(options, func(o option) bool {
		return !slices.ContainsFunc(o.leave, func(c *orbit.Capsule) bool { return !slices.Contains(set, c) })
	})
}
