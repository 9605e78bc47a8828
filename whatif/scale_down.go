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
	may map[orbit.NodeID]bool
	all []*orbit.NodeState
	// What is saved at most, and what one unit of each dimension, and one move, is worth then.
	bound  float64
	free   seats.Quantities
	scarce [seats.AllDims + 1]float64
	// The class of each node in the linear program, and how many of the class go; nil: there are too many classes.
	class map[*orbit.NodeState]int
	quota []int
	work  int
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
	s.solve()
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
	shuns, version := true, uint64(0) // first where no node may go
	l.engine.Filter = func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
		if shuns && (s.Of == nil || s.Of(n.Node)) {
			return "may go"
		}
		return ""
	}
	l.engine.FilterVersion = func(*orbit.View) uint64 { return version }
	units := unitsOf(s.state, nil, nil)
	if s.Of != nil {
		units = slices.DeleteFunc(units, l.place)
	}
	shuns, version = false, 1
	for _, u := range units {
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

// emptying is the plan by which nodes become empty one after the other.
type emptying struct {
	*shrinking
	*lab
	// The nodes that are to go and have not been found to stay: nothing goes there.
	going map[orbit.NodeID]bool
	// The empty nodes that may go and stay nevertheless.
	kept    map[orbit.NodeID]bool
	version uint64
	out     []leaves
}

// shuns reports whether capsules that move do not go to a node, because it goes itself.
func (e *emptying) shuns(n *orbit.NodeState, _ *orbit.Spec) bool {
	id := n.Node.ID
	return e.going[id] || n.Capsules+n.Holds() == 0 && e.may[id] && !e.kept[id]
}

// reopened notes that nodes take capsules again that did not before, or the other way round.
func (e *emptying) reopened() {
	e.version++
	clear(e.stuck)
}

// oneByOne empties nodes one after the other: first those that sums say can go, so that nothing moves to one of them, then
// the others, also by moves of what is in the way. It counts on all empty nodes to go, and last keeps an empty node where one
// that saves more can go for it.
func (s *shrinking) oneByOne() ([]leaves, error) {
	l, err := newLab(s.ctx, s.full, &s.work)
	if err != nil {
		return nil, err
	}
	l.stays, l.moves, l.steps = s.Stays, mostMoves(s.Moves), mostLabSteps
	e := &emptying{shrinking: s, lab: l, kept: map[orbit.NodeID]bool{}}
	// What stays is filled best if no resource runs out first.
	l.engine.Score = score.WeightedSum{{Weight: 1, Score: score.MostAllocated{}}, {Weight: 10, Score: score.Balance{}}}
	l.engine.Filter = func(n *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) string {
		if e.shuns(n, spec) {
			return "may go"
		}
		return ""
	}
	l.engine.FilterVersion = func(*orbit.View) uint64 { return e.version }
	first, rest := s.planned(s.inOrder())
	e.going = map[orbit.NodeID]bool{}
	for _, n := range first {
		e.going[n.Node.ID] = true
	}
	for _, n := range first {
		if gone, err := e.empty(n, 0); err != nil {
			return nil, err
		} else if !gone {
			delete(e.going, n.Node.ID)
			e.reopened()
			rest = append(rest, n)
		}
	}
	for _, more := range []int{0, 2} {
		stays := rest[:0:0]
		for _, n := range rest {
			if gone, err := e.empty(n, more); err != nil {
				return nil, err
			} else if !gone {
				stays = append(stays, n)
			}
		}
		rest = stays
	}
	for _, n := range rest {
		if err := e.instead(n); err != nil {
			return nil, err
		}
	}
	return e.out, nil
}

// planned divides nodes into those that can go as far as sums tell, and the others.
func (s *shrinking) planned(order []*orbit.NodeState) (first, rest []*orbit.NodeState) {
	left, moves := s.free, mostMoves(s.Moves)
	quota := slices.Clone(s.quota)
	for _, n := range order {
		class := -1
		if i, ok := s.class[n]; ok {
			class = i
		}
		if class >= 0 && quota[class] <= 0 {
			rest = append(rest, n)
			continue
		}
		has := seats.MeasureFree(&orbit.NodeState{Node: n.Node})
		if n.Capsules > moves || slices.ContainsFunc(seq(len(has)), func(d int) bool { return has[d] > left[d] }) {
			rest = append(rest, n)
			continue
		}
		for d := range has {
			left[d] -= has[d]
		}
		if moves -= n.Capsules; class >= 0 {
			quota[class]--
		}
		first = append(first, n)
	}
	return first, rest
}

// instead lets a node go for an empty one that saves less and stays.
func (e *emptying) instead(n *orbit.NodeState) error {
	i := e.cheapestEmpty(e.out, n)
	if i < 0 || e.steps <= 0 {
		return nil
	}
	id := e.out[i].node.Node.ID
	e.kept[id] = true
	delete(e.going, id)
	e.reopened()
	e.steps -= e.view.State().NodeCount() // the filter has changed
	gone, err := e.empty(n, 0)
	if gone {
		e.out[i] = e.out[len(e.out)-1]
		e.out = e.out[:len(e.out)-1]
		return nil
	}
	delete(e.kept, id)
	e.reopened()
	return err
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

// inOrder returns the nodes that may go: first those that save most for what they take away of what is scarce, by the
// linear program of bound, and among equal ones those of which the least work moves.
func (s *shrinking) inOrder() []*orbit.NodeState {
	work, worth := map[*orbit.NodeState]float64{}, map[*orbit.NodeState]float64{}
	for _, n := range s.all {
		for c := range s.state.On(n.Node.ID) {
			work[n] += moves.Size(c, n.Node)
		}
		weight := s.scarce[seats.AllDims] * float64(n.Capsules)
		for d, has := range seats.MeasureFree(&orbit.NodeState{Node: n.Node}) {
			weight += s.scarce[d] * float64(has)
		}
		worth[n] = s.price(n.Node) / max(weight, 1e-9)
	}
	out := slices.Clone(s.all)
	slices.SortStableFunc(out, func(a, b *orbit.NodeState) int {
		return cmp.Or(cmp.Compare(worth[b], worth[a]), cmp.Compare(work[a]*s.price(b.Node), work[b]*s.price(a.Node)))
	})
	return out
}

// empty moves all capsules of a node elsewhere, with so many more moves at most. It reports false if it finds no way.
func (e *emptying) empty(n *orbit.NodeState, more int) (bool, error) {
	if err := e.shrinking.ctx.Err(); err != nil || n.Capsules > e.moves || more > 0 && e.steps <= 0 {
		return false, err
	}
	if n.Capsules == 0 {
		if e.draft.Node(n.Index()).Capsules > 0 { // others go here
			return false, nil
		}
		e.out = append(e.out, leaves{node: n, p: e.goes(e.lab, n)})
		return true, nil
	}
	var leaving []*orbit.Capsule
	for c := range e.full.On(n.Node.ID) {
		leaving = append(leaving, c)
		if e.draft.Uses(c.ID) || more == 0 && e.isFull(c.Spec) { // part of another's way, or no node takes it
			return false, nil
		}
	}
	if e.draft.Node(n.Index()).Capsules != n.Capsules {
		return false, nil
	}
	search := e.search(2_000)
	if search.Excluded, search.Most = e.shuns, min(e.moves, len(leaving)+more); more > 0 {
		search.Steps = min(e.steps, 20_000)
	}
	f := search.Away(leaving...)
	e.shrinking.work += search.Taken()
	if more > 0 {
		e.steps -= search.Taken()
	}
	if f == nil || f.On(&e.draft) != nil {
		return false, nil
	}
	e.moves -= len(f.Moved)
	e.out = append(e.out, leaves{n, f, e.goes(e.lab, n)})
	return true, nil
}

// isFull reports whether no node has room for a spec. It remembers that, because the room only shrinks while nodes go.
func (l *lab) isFull(spec *orbit.Spec) bool {
	if l.stuck[spec] {
		return true
	}
	*l.work++
	_, err := l.engine.Best(&l.draft, spec)
	l.stuck[spec] = err != nil
	return err != nil
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
		if set.size <= mostMoves(s.Moves) && set.sum > saves(than) && s.enough(set.of) {
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

// enough reports whether, by sums, the other nodes have room for what is on these.
func (s *shrinking) enough(set []*orbit.NodeState) bool {
	left := s.free
	for _, n := range set {
		for d, has := range seats.MeasureFree(&orbit.NodeState{Node: n.Node}) {
			left[d] -= has
		}
	}
	return slices.Min(left[:]) >= 0
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
	engine := &place.Exhaustive{Score: score.MostAllocated{}, Filter: func(n *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) string {
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
		if part.On(&l.draft) != nil {
			return nil, nil //nolint:nilerr // the moves cannot be made one node after another
		}
		gone := leaves{node: n, p: s.goes(l, n)}
		if len(part.Moved) > 0 {
			gone.found = &part
		}
		out = append(out, gone)
		switch _, err := l.ledger.Propose(s.ctx, gone.p); {
		case err == nil:
		case s.ctx.Err() != nil:
			return nil, err
		default: // the way to there breaks a rule
			return nil, nil
		}
		if err := l.sync(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// mostClasses is the largest number of classes of nodes for a linear program.
const mostClasses = 150

// solve finds what no nodes save more than, by linear programming: all that the nodes have that go is no more than what is free
// on all nodes, and no more capsules move than may. It keeps what one unit of each is worth.
func (s *shrinking) solve() {
	type class struct {
		price float64
		size  seats.Quantities
		moves int
	}
	for n := range s.full.Nodes() {
		if n.Node.Schedulable() {
			for d, f := range seats.MeasureFree(n) {
				s.free[d] = seats.AddFree(s.free[d], f)
			}
		}
	}
	free := s.free
	of := map[*orbit.NodeState]int{}
	index, count, classes := map[class]int{}, []float64(nil), []class(nil)
	for _, n := range s.all {
		c := class{s.price(n.Node), seats.MeasureFree(&orbit.NodeState{Node: n.Node}), n.Capsules}
		i, ok := index[c]
		if !ok {
			i = len(classes)
			index[c], classes, count = i, append(classes, c), append(count, 0)
		}
		count[i]++
		s.bound += c.price
		of[n] = i
	}
	if len(classes) > mostClasses {
		for d, f := range free {
			s.scarce[d] = 1 / max(float64(f), 1)
		}
		return
	}
	gains, rows := make([]float64, len(classes)), make([][]float64, seats.AllDims+1)
	for i, c := range classes {
		gains[i] = c.price * count[i] // the variable is the part of the class that goes
		for d, f := range free {
			rows[d] = append(rows[d], count[i]*float64(c.size[d])/max(float64(f), 1e-3))
		}
		rows[seats.AllDims] = append(rows[seats.AllDims], count[i]*float64(c.moves)/max(float64(mostMoves(s.Moves)), 1e-3))
	}
	for i := range classes {
		row := make([]float64, len(classes))
		row[i] = 1
		rows = append(rows, row)
	}
	x, duals, optimal := lp.Maximize(s.ctx, gains, rows, mostPivots)
	if !optimal {
		return
	}
	s.bound, s.class = 0, of
	for i := range x {
		s.bound += x[i] * gains[i]
		s.quota = append(s.quota, int(math.Round(x[i]*count[i])))
	}
	for d, f := range free {
		s.scarce[d] = duals[d] / max(float64(f), 1e-3)
	}
	s.scarce[seats.AllDims] = duals[seats.AllDims] / max(float64(mostMoves(s.Moves)), 1e-3)
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
	out.Bound = max(out.Price, s.bound)
	return out, nil
}
