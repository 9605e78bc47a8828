package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/lp"
	"github.com/orbitsched/orbit/internal/moves"
	"github.com/orbitsched/orbit/internal/seats"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// shrinking is one search for the nodes that can go.
type shrinking struct {
	*ScaleDown
	ctx   context.Context
	state *orbit.State
	// The state with a place for all that waits, as far as there is one.
	full *orbit.State
	// The nodes that may go.
	may  map[orbit.NodeID]bool
	all  []*orbit.NodeState
	work int
}

// leaves is a node that goes, and who moves for that.
type leaves struct {
	node  *orbit.NodeState
	found *moves.Found // nil: it is empty
	p     orbit.Proposal
}

// Plan returns the nodes that can go now: all capsules of each fit elsewhere, on nodes that stay, and the ledger takes the
// moves: budgets, protections, the minimums of gangs and rules of company hold, and no group becomes more uneven. Each node
// is one proposal: its capsules move, and it is cordoned, by one commit, which bets that nothing has come to the node. So
// what a budget does not let go at once, stays.
//
// While at most 8 nodes may go, the answer is exact, up to a bound on the search: no nodes that save more could go by moves
// of their own capsules. It may be that they can go because up to two others move. With more nodes those go first that save
// most for the work that moves, and Bound tells how much more may be saved at most. The error is that of the context, or
// wraps [orbit.ErrInvalid] for a Price that makes no sense.
func (w *ScaleDown) Plan(ctx context.Context, state *orbit.State) (*Scaling, error) {
	if state == nil {
		return nil, errors.New("whatif: state is nil; pass the snapshot of a ledger")
	}
	s := &shrinking{ScaleDown: w, ctx: ctx, state: state, may: map[orbit.NodeID]bool{}}
	if err := s.seatWaiting(); err != nil {
		return nil, err
	}
	if err := s.candidates(); err != nil {
		return nil, err
	}
	best, err := s.oneByOne()
	if err != nil {
		return nil, err
	}
	if len(s.all) <= exactNodes {
		if best, err = s.exact(best); err != nil {
			return nil, err
		}
	}
	return s.answer(best)
}

// seatWaiting gives what waits a place in another state, so that its room stays.
func (s *shrinking) seatWaiting() error {
	l, err := newLab(s.ctx, s.state, &s.work)
	if err != nil {
		return err
	}
	for _, u := range unitsOf(s.state, nil, nil) {
		l.place(u)
	}
	if err := l.settle(); err != nil {
		return err
	}
	s.full, err = l.ledger.Snapshot(s.ctx)
	return err
}

// price returns what a node costs.
func (s *shrinking) price(n *orbit.Node) float64 {
	if s.Price == nil {
		return 1
	}
	return s.Price(n)
}

// candidates finds the nodes that may go: those of which all capsules may move.
func (s *shrinking) candidates() error {
	for n := range s.state.Nodes() {
		if n.Node.State != orbit.Ready || n.Holds() > 0 || isClaimed(n) || s.Of != nil && !s.Of(n.Node) {
			continue
		}
		if price := s.price(n.Node); !(price >= 0) || math.IsInf(price, 0) {
			return fmt.Errorf("whatif: %w: ScaleDown.Price of node %q is %v", orbit.ErrInvalid, n.Node.ID, price)
		}
		if s.full.Node(n.Node.ID).Capsules > n.Capsules || n.Capsules > mostMoves(s.Moves) {
			continue
		}
		stays := false
		for c := range s.state.On(n.Node.ID) {
			stays = stays || !s.state.Movable(c) || s.Stays != nil && s.Stays(c)
		}
		if !stays {
			s.may[n.Node.ID], s.all = true, append(s.all, n)
		}
	}
	return nil
}

// isClaimed reports whether room is nominated on a node.
func isClaimed(n *orbit.NodeState) bool {
	for range n.Nominated {
		return true
	}
	return false
}

// oneByOne empties nodes one after the other, those first that save most for the work that moves. First it counts on all
// empty nodes to go. Then it keeps an empty node where one that saves more can go for it.
func (s *shrinking) oneByOne() ([]leaves, error) {
	l, err := newLab(s.ctx, s.full, &s.work)
	if err != nil {
		return nil, err
	}
	l.stays, l.moves, l.steps = s.Stays, mostMoves(s.Moves), mostLabSteps
	kept, version := map[orbit.NodeID]bool{}, uint64(0)
	shuns := func(n *orbit.NodeState, _ *orbit.Spec) bool {
		return n.Capsules+n.Holds() == 0 && s.may[n.Node.ID] && !kept[n.Node.ID]
	}
	l.engine.Filter = func(n *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) string {
		if shuns(n, spec) {
			return "may go"
		}
		return ""
	}
	l.engine.FilterVersion = func(*orbit.View) uint64 { return version }
	var out []leaves
	var rest []*orbit.NodeState
	for _, n := range s.inOrder() {
		if n.Capsules == 0 {
			out = append(out, leaves{node: n, p: s.goes(l, n)})
		} else if gone, err := s.empty(l, shuns, n, 0); err != nil {
			return nil, err
		} else if gone != nil {
			out = append(out, *gone)
		} else {
			rest = append(rest, n)
		}
	}
	for _, n := range rest {
		if gone, err := s.empty(l, shuns, n, 2); err != nil {
			return nil, err
		} else if gone != nil {
			out = append(out, *gone)
			continue
		}
		i := s.cheapestEmpty(out, n)
		if i < 0 || l.steps <= 0 {
			continue
		}
		id := out[i].node.Node.ID
		kept[id] = true
		version++
		gone, err := s.empty(l, shuns, n, 0)
		switch {
		case err != nil:
			return nil, err
		case gone != nil:
			out[i] = *gone
		default:
			delete(kept, id)
			version++
		}
	}
	return out, nil
}

// cheapestEmpty returns the empty node that goes and saves least, if that is less than another node would save; -1: none.
func (s *shrinking) cheapestEmpty(gone []leaves, n *orbit.NodeState) int {
	best := -1
	for i := range gone {
		if price := s.price(gone[i].node.Node); gone[i].found == nil && price < s.price(n.Node) && (best < 0 || price < s.price(gone[best].node.Node)) {
			best = i
		}
	}
	return best
}

// inOrder returns the nodes that may go: first those that save most for the work that moves.
func (s *shrinking) inOrder() []*orbit.NodeState {
	work := map[*orbit.NodeState]float64{}
	for _, n := range s.all {
		for c := range s.state.On(n.Node.ID) {
			work[n] += moves.Size(c, n.Node)
		}
	}
	out := slices.Clone(s.all)
	slices.SortStableFunc(out, func(a, b *orbit.NodeState) int {
		return cmp.Compare(work[a]*s.price(b.Node), work[b]*s.price(a.Node))
	})
	return out
}

// empty moves all capsules of a node elsewhere, with so many more moves at most; nil: it finds no way.
func (s *shrinking) empty(l *lab, shuns func(*orbit.NodeState, *orbit.Spec) bool, n *orbit.NodeState, more int) (*leaves, error) {
	if err := s.ctx.Err(); err != nil || n.Capsules > l.moves || more > 0 && l.steps <= 0 {
		return nil, err
	}
	var leaving []*orbit.Capsule
	for c := range s.full.On(n.Node.ID) {
		leaving = append(leaving, c)
		if l.draft.Uses(c.ID) { // it has come here, or is part of another's way
			return nil, nil
		}
	}
	if l.view.State().Node(n.Node.ID).Capsules != l.draft.Node(l.view.State().Node(n.Node.ID).Index()).Capsules {
		return nil, nil // others go here
	}
	search := l.search(2_000)
	if search.Excluded, search.Most = shuns, min(l.moves, len(leaving)+more); more > 0 {
		search.Steps = min(l.steps, 20_000)
	}
	f := search.Away(leaving...)
	s.work += search.Taken()
	if more > 0 {
		l.steps -= search.Taken()
	}
	if f == nil || f.On(&l.draft) != nil {
		return nil, nil
	}
	l.moves -= len(f.Moved)
	return &leaves{n, f, s.goes(l, n)}, nil
}

// goes makes the open proposal of a draft that by which a node goes: it is cordoned, and nothing may have come to it.
func (s *shrinking) goes(l *lab, n *orbit.NodeState) orbit.Proposal {
	p := l.draft.Propose()
	cordoned := n.Node.Clone()
	cordoned.State = orbit.Cordoned
	p.ID, p.View = orbit.NewProposalID(), s.state.Revision()
	p.Do = append(slices.Clone(p.Do), orbit.PutNode{Node: cordoned})
	p.If = append(slices.Clone(p.If), orbit.NodeAt{Node: n.Node.ID, Usage: n.Usage, Specification: n.Specification})
	return p
}

// exact searches all sets of nodes, those that save most first, for one that can go and saves more than another.
func (s *shrinking) exact(than []leaves) ([]leaves, error) {
	saves := func(of []leaves) (sum float64) {
		for i := range of {
			sum += s.price(of[i].node.Node)
		}
		return sum
	}
	type subset struct {
		of   []*orbit.NodeState
		sum  float64
		size int
	}
	var sets []subset
	for bits := 1; bits < 1<<len(s.all); bits++ {
		var set subset
		for i, n := range s.all {
			if bits&(1<<i) != 0 {
				set.of, set.sum, set.size = append(set.of, n), set.sum+s.price(n.Node), set.size+n.Capsules
			}
		}
		if set.size <= mostMoves(s.Moves) && set.sum > saves(than) {
			sets = append(sets, set)
		}
	}
	slices.SortStableFunc(sets, func(a, b subset) int { return cmp.Or(cmp.Compare(b.sum, a.sum), cmp.Compare(a.size, b.size)) })
	left := exactSteps
	for _, set := range sets {
		if left <= 0 {
			break
		}
		if out, err := s.together(set.of, &left); err != nil || out != nil {
			return out, err
		}
	}
	return than, nil
}

// together lets all these nodes go, each by its proposal, one after the other; nil: it finds no way.
func (s *shrinking) together(set []*orbit.NodeState, left *int) (out []leaves, err error) {
	goes, leaving := map[orbit.NodeID]bool{}, []*orbit.Capsule(nil)
	for _, n := range set {
		goes[n.Node.ID] = true
		leaving = slices.AppendSeq(leaving, s.full.On(n.Node.ID))
	}
	if len(leaving) == 0 {
		return s.apart(&moves.Found{}, set)
	}
	// Each node is a proposal of its own, and the budgets judge each by itself.
	free, err := withoutBudgets(s.full)
	if err != nil {
		return nil, err
	}
	l, err := newLab(s.ctx, free, &s.work)
	if err != nil {
		return nil, err
	}
	*left -= s.full.NodeCount()
	excluded := func(n *orbit.NodeState, _ *orbit.Spec) bool { return goes[n.Node.ID] }
	engine := &place.Exhaustive{Score: score.BestFit{}, Filter: func(n *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) string {
		if excluded(n, spec) {
			return "goes"
		}
		return ""
	}}
	search := &moves.Search{Draft: &l.draft, Engine: engine, Excluded: excluded, Stays: s.Stays, Note: "scaled",
		Most: min(mostMoves(s.Moves), len(leaving)+2), Steps: min(*left, exactStepsOne),
		Allows: func(p orbit.Proposal) bool { return s.allows(s.parts(p, set)) }}
	f := search.Away(leaving...)
	*left -= search.Taken()
	s.work += search.Taken()
	if f == nil {
		return nil, nil
	}
	return s.apart(f, set)
}

// withoutBudgets returns a state in which the budgets forbid nothing. Who consents to moves does not change.
func withoutBudgets(state *orbit.State) (*orbit.State, error) {
	p := orbit.Proposal{View: state.Revision()}
	for b := range state.Budgets() {
		free := b.Budget
		free.Missing, free.MissingPercent = free.Expected, 0
		p.Do = append(p.Do, orbit.PutBudget{Budget: free})
	}
	if len(p.Do) == 0 {
		return state, nil
	}
	return state.With(p)
}

// partOf returns a function that says to which of the nodes that go the move of a capsule belongs. The moves of others belong
// to the first that is not empty.
func (s *shrinking) partOf(set []*orbit.NodeState) func(orbit.CapsuleID) int {
	of, first := map[orbit.NodeID]int{}, slices.IndexFunc(set, func(n *orbit.NodeState) bool { return n.Capsules > 0 })
	for i, n := range set {
		of[n.Node.ID] = i
	}
	return func(id orbit.CapsuleID) int {
		if i, ok := of[s.full.Capsule(id).Node]; ok {
			return i
		}
		return first
	}
}

// parts divides moves by the nodes that go.
func (s *shrinking) parts(p orbit.Proposal, set []*orbit.NodeState) []orbit.Proposal {
	out, part := make([]orbit.Proposal, len(set)), s.partOf(set)
	for _, do := range p.Do {
		var id orbit.CapsuleID
		switch do := do.(type) {
		case orbit.Evict:
			id = do.Capsule
		case orbit.Place:
			id = do.Capsule
		}
		i := part(id)
		out[i].View = s.state.Revision()
		out[i].Do = append(out[i].Do, do)
	}
	return slices.DeleteFunc(out, func(p orbit.Proposal) bool { return len(p.Do) == 0 })
}

// allows reports whether the ledger takes proposals one after the other, and no group becomes more uneven by them.
func (s *shrinking) allows(all []orbit.Proposal) bool {
	state := s.full
	for _, p := range all {
		next, err := state.With(p)
		if err != nil {
			return false
		}
		state = next
	}
	return moves.Unevenness(state) <= moves.Unevenness(s.full)
}

// apart makes the proposals of nodes that go, each on the state after the one before.
func (s *shrinking) apart(f *moves.Found, set []*orbit.NodeState) (out []leaves, err error) {
	l, err := newLab(s.ctx, s.full, &s.work)
	if err != nil {
		return nil, err
	}
	partOf := s.partOf(set)
	for i, n := range set {
		part := moves.Found{}
		for _, c := range f.Moved {
			if partOf(c.ID) == i {
				part.Moved = append(part.Moved, c)
			}
		}
		for k := range f.Seats {
			if partOf(f.Seats[k].Of.ID) == i {
				part.Seats = append(part.Seats, f.Seats[k])
			}
		}
		if err := part.On(&l.draft); err != nil {
			return nil, nil
		}
		gone := leaves{node: n, p: s.goes(l, n)}
		if len(part.Moved) > 0 {
			gone.found = &part
		}
		out = append(out, gone)
		if _, err := l.ledger.Propose(s.ctx, gone.p); err != nil {
			return nil, s.ctx.Err()
		}
		if err := l.sync(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// bound returns what no nodes save more than by linear programming: what all nodes of those that go have in all is no more
// than what is free.
func (s *shrinking) bound() float64 {
	type class struct {
		price float64
		size  seats.Quantities
	}
	var free seats.Quantities
	for n := range s.full.Nodes() {
		if n.Node.Schedulable() {
			for d, f := range seats.MeasureFree(n) {
				free[d] = seats.AddFree(free[d], f)
			}
		}
	}
	index, count, classes := map[class]int{}, []float64(nil), []class(nil)
	for _, n := range s.all {
		c := class{s.price(n.Node), seats.MeasureFree(&orbit.NodeState{Node: n.Node})}
		i, ok := index[c]
		if !ok {
			i = len(classes)
			index[c], classes, count = i, append(classes, c), append(count, 0)
		}
		count[i]++
	}
	gains, rows, sum := make([]float64, len(classes)), [][]float64(nil), 0.0
	for i, c := range classes {
		gains[i] = c.price * count[i] // the variable is the part of the class that goes
		row := make([]float64, len(classes))
		row[i] = 1
		rows = append(rows, row)
		sum += gains[i]
	}
	for d, f := range free {
		row := make([]float64, len(classes))
		for i, c := range classes {
			row[i] = count[i] * float64(c.size[d]) / max(float64(f), 1e-3)
		}
		rows = append(rows, row)
	}
	x, _, optimal := lp.Maximize(s.ctx, gains, rows, mostPivots)
	if !optimal {
		return sum
	}
	sum = 0
	for i := range x {
		sum += x[i] * gains[i]
	}
	return sum
}

var errPlacesNothing = errors.New("ScaleDown only keeps the room that it has")

// answer makes the answer of what the ledger takes.
func (s *shrinking) answer(all []leaves) (*Scaling, error) {
	ledger := newFork(s.state)
	out := &Scaling{work: s.work}
	for i := range all {
		if _, err := ledger.Propose(s.ctx, all[i].p); err != nil { // a budget, say, that the moves for another node have used up
			if err := s.ctx.Err(); err != nil {
				return nil, err
			}
			continue
		}
		out.add(ScaledNode{ID: all[i].node.Node.ID, Price: s.price(all[i].node.Node)})
	}
	slices.SortStableFunc(out.Nodes, func(a, b ScaledNode) int { return cmp.Compare(b.Price, a.Price) })
	after, err := ledger.Snapshot(s.ctx)
	if err != nil {
		return nil, err
	}
	out.Report = &Report{Before: s.state, After: after, sent: ledger.sent, Resting: true}
	out.compare()
	for i := range out.Unplaced {
		out.Unplaced[i].Why = errPlacesNothing
	}
	out.Bound = max(out.Price, s.bound())
	return out, nil
}
