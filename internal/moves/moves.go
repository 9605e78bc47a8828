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
	// Engine chooses the nodes of capsules that fit on one as it is; it excludes the nodes that Excluded does. Required.
	Engine orbit.PlacementEngine
	// Excluded reports whether capsules of a spec may not be placed on a node; nil: they may be on all.
	Excluded func(*orbit.NodeState, *orbit.Spec) bool
	// Stays reports whether a capsule must not move although it is movable; nil: all that are movable may move.
	Stays func(*orbit.Capsule) bool
	// Most is how many capsules may move at most.
	Most int
	// Steps bounds the work of one search: about so many nodes, capsules and sets of capsules are looked at, and for sets of more than
	// three moves as many again. 0: 200,000.
	Steps int
	// Note is kept with each placement of a capsule that moves.
	Note string
	// Allows reports whether a set of moves is allowed, given as one proposal; nil: it is if the ledger takes the proposal and
	// no group becomes more uneven by it. Set it where the moves are to be made by several proposals.
	Allows func(orbit.Proposal) bool

	steps int
	best  *Found
	seats []Seat
	moved []*orbit.Capsule
	work  float64
	hoped bool
}

// Seat is a capsule, the spec by which it is placed, and where.
type Seat struct {
	// Of is the capsule, with the spec by which it is placed.
	Of *orbit.Capsule
	// Node is the index of the node, and Devices are the instances there.
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
	// Those of Moved that run on until they are ready at their new places.
	surges []orbit.CapsuleID
}

// fewMoves is the number of moves up to which a search is exact while it has steps.
const fewMoves = 3

// Size returns which part of its node a capsule takes, in the dimension in which that is most.
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
	// The node that it has left, by index; -1: it comes anew.
	left int
	// The nodes that it may go to, by index; nil: all.
	within []int32
}

// Room returns the best set of moves after which the newcomers have room, on these nodes; nil nodes: on any. Newcomers of
// one spec follow each other. The best set has the fewest moves, and among as many the least work. While steps last, that
// is exact for up to three moves, with two exceptions: only those capsules move that are on the nodes to which others
// go, so a rule [orbit.Apart] over larger domains is no reason for a move; and of devices that are shared only one choice
// is tried for each set. More than three moves are found if the capsules that leave a node fit elsewhere as it is. Nil:
// no set was found.
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

// Hopeful reports whether some node would have enough for the first newcomer of the last Room without all that may move.
func (s *Search) Hopeful() bool { return s.hoped }

func (s *Search) budget() int { return cmp.Or(s.Steps, 200_000) }

// Taken returns how many steps the last search took, in its last part if it had two.
func (s *Search) Taken() int { return s.budget() - s.steps }

func (s *Search) begin() {
	s.best, s.seats, s.moved, s.work, s.steps = nil, nil, nil, 0, s.budget()
}

// hopeful reports whether a node would have enough for a capsule without all movable capsules.
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

// may reports whether a capsule may go to a node that has enough for it, as far as rules of company allow.
func (s *Search) may(h *homeless, i int, n *orbit.NodeState) bool {
	return s.describes(h, i, n) && (s.Excluded == nil || !s.Excluded(n, h.Spec))
}

// describes reports whether a node is another one than the capsule was on, takes work, and meets the requirements.
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

// mayMove reports whether a capsule consents, the plan has not used it yet, and the caller lets it move.
func (s *Search) mayMove(c *orbit.Capsule) bool {
	return s.Draft.View().State().Movable(c) && !s.Draft.Uses(c.ID) && (s.Stays == nil || !s.Stays(c))
}

// option is a node for a capsule, the capsules that leave it for that, and the sum of their sizes.
type option struct {
	node  int
	leave []*orbit.Capsule
	work  float64
}

// settle gives all capsules of the queue a node, with so many more moves at most, and records each way that is better
// than the best so far. It leaves the draft as it was.
func (s *Search) settle(queue []homeless, left int) {
	if len(queue) == 0 {
		s.record()
		return
	}
	if s.greedy(queue) {
		return // the work depends only on what has moved
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

// take lets the capsules of an option leave and puts the capsule in their place. It returns the queue with those that
// have left, or false if the draft refuses a step; the caller then rolls the draft back.
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

func (s *Search) untake(o *option) {
	s.seats, s.moved, s.work = s.seats[:len(s.seats)-1], s.moved[:len(s.moved)-len(o.leave)], s.work-o.work
}

// ask makes the draft show its nodes from the point of view of a newcomer; nominations are not for capsules that move.
func (s *Search) ask(h *homeless) {
	if h.left < 0 {
		s.Draft.LookAs(h.Capsule)
	} else {
		s.Draft.LookAs(nil)
	}
}

// greedy gives each capsule of the queue the node that the placement engine finds best, and records that. It returns
// false if one fits nowhere as it is, or if some may not go to all nodes.
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

// placeBest places a capsule where it fits as it is.
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

// record keeps what is on the draft as the best way, if the ledger takes it and no rule Even is broken by it. It reports
// whether that is so.
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

// allows reports whether the ledger takes a proposal and no group becomes more uneven by it: the ledger judges only
// arrivals that carry a rule Even, and these moves may make others break it.
func (s *Search) allows(p orbit.Proposal) bool {
	state := s.Draft.View().State()
	if !slices.ContainsFunc(s.moved, func(c *orbit.Capsule) bool { return c.Spec.Group != "" || len(c.Spec.Groups) > 0 }) {
		return state.Check(p) == nil
	}
	next, err := state.With(p)
	return err == nil && Unevenness(next) <= Unevenness(state)
}

// Unevenness returns how many members are too many in domains by rules Even.
func Unevenness(state *orbit.State) (excess int) {
	for skew := range state.Skewed() {
		excess += skew.Members - skew.Fewest - skew.Even.MaxSkew
	}
	return excess
}

// options returns the nodes that take a capsule, each with the smallest sets of capsules that have to leave first, at
// most so many of them: the least work first.
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
		if ruled := byCompany || isNominated(n); left > 0 && (ruled || !fits) {
			out = s.leaving(out, h, n, left, ruled)
		}
	}
	slices.SortStableFunc(out, func(a, b option) int { return cmp.Compare(a.work, b.work) })
	return out
}

// ruled reports whether rules of company apply to a spec. Then a set of capsules may have to leave although fewer of them
// would make enough room.
func (s *Search) ruled(spec *orbit.Spec) bool {
	levels, _ := s.Draft.RuleLevels(spec)
	return levels != nil
}

// isNominated reports whether room is nominated on a node: capacity alone does not say then whether a capsule fits.
func isNominated(n *orbit.NodeState) bool {
	for range n.Nominated {
		return true
	}
	return false
}

// leaving adds the sets of movable capsules without which a node has enough for a capsule; without rules only those sets
// of which no part is enough.
func (s *Search) leaving(out []option, h *homeless, n *orbit.NodeState, left int, ruled bool) []option {
	on := s.movable(n)
	free, whole := seats.CapacityOf(n), seats.CapacityOf(&orbit.NodeState{Node: n.Node})
	first := len(out)
	var set []*orbit.Capsule
	var choose func(from, more int, free seats.Capacity, work float64)
	choose = func(from, more int, free seats.Capacity, work float64) {
		if s.steps--; s.steps <= 0 {
			return
		}
		if more == 0 {
			if free.Fits(h.Spec) > 0 && (ruled || !hasPart(out[first:], set)) {
				out = append(out, option{n.Index(), slices.Clone(set), work})
			}
			return
		}
		for i := from; i+more <= len(on); i++ {
			less := free
			less.Leave(on[i].Spec, on[i].Devices, &whole)
			set = append(set, on[i])
			choose(i+1, more-1, less, work+Size(on[i], n.Node))
			set = set[:len(set)-1]
		}
	}
	for size := 1; size <= min(left, len(on)); size++ {
		choose(0, size, free, 0)
	}
	return out
}

// hasPart reports whether one of the options lets only capsules of the set leave.
func hasPart(options []option, set []*orbit.Capsule) bool {
	return slices.ContainsFunc(options, func(o option) bool {
		return !slices.ContainsFunc(o.leave, func(c *orbit.Capsule) bool { return !slices.Contains(set, c) })
	})
}
