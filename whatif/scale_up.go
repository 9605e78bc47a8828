package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// clock returns the time at which plans are made.
func clock() time.Time { return time.Now() }

// mostLabSteps bounds the search for moves in one lab.
const mostLabSteps = 120_000

// growth is one search for the nodes that have to join.
type growth struct {
	*ScaleUp
	ctx   context.Context
	state *orbit.State
	units []*unit
	work  int
	bound float64
}

// grown is a set of nodes that join, and who is where then.
type grown struct {
	kinds []int // of each node, in rising order
	nodes []orbit.Node
	price float64
	// Which units have a place, by their number.
	done []bool
	// The capsules that get a place or another one, in this order.
	order []orbit.CapsuleID
	at    map[orbit.CapsuleID]seatOn
	// What makes it true, once it has been asked for.
	sent []orbit.Proposal
}

// seatOn is where a capsule is.
type seatOn struct {
	node    orbit.NodeID
	devices orbit.DeviceSet
}

// Plan returns the nodes that have to join, who gets which place, and who moves. All that waits gets a place, if the kinds
// allow that; a gang gets one for all its waiting members or for none. If not all can have one, what is earlier in the
// queue ([orbit.State.Pending]) comes first. Of what needs no more than that, the least price is sought.
//
// While at most 6 capsules wait, the answer is exact, up to a bound on the search: no nodes that cost less would do, with
// up to three moves. That has the exceptions of a search for moves: it does not move what is only in the way of a rule
// Apart over larger domains than nodes, and of parts of devices tries one choice. With more capsules the nodes are those of
// a linear program, rounded, and Bound tells how far from the least price the answer may be. Bound considers what fits on
// each node, but no rules of company except those that keep capsules off one node; if placed capsules may move, only what is
// free in all.
//
// The answer is one proposal, if the limits of the ledger allow that: the nodes join, capsules move, and what waits is
// placed, at once. It bets on the room that it uses on nodes that are there. The error is that of the context, or wraps
// [orbit.ErrInvalid] for kinds that make no sense.
func (u *ScaleUp) Plan(ctx context.Context, state *orbit.State) (*Scaling, error) {
	if err := u.check(state); err != nil {
		return nil, err
	}
	g := &growth{ScaleUp: u, ctx: ctx, state: state, units: unitsOf(state, u.Of, u.Kinds)}
	best, err := g.guess()
	if err != nil {
		return nil, err
	}
	if best, err = g.better(best); err != nil {
		return nil, err
	}
	if _, err := g.proposals(best); err != nil && ctx.Err() == nil && u.Moves >= 0 {
		still := *u // the way to there breaks a rule that the end does not
		still.Moves = -1
		return still.Plan(ctx, state)
	}
	for range 4 {
		next, err := g.exchange(best)
		if err != nil {
			return nil, err
		}
		if next == nil {
			break
		}
		best = next
	}
	return g.answer(best)
}

// hardest returns the units that have no place yet, the largest first: by the part that the first member takes of the
// largest node, and the number of members.
func (g *growth) hardest(done []bool) (out []int) {
	var largest seats.Quantities
	widen := func(n *orbit.Node) {
		for d, free := range seats.MeasureFree(&orbit.NodeState{Node: n}) {
			largest[d] = max(largest[d], free)
		}
	}
	for n := range g.state.Nodes() {
		widen(n.Node)
	}
	for i := range g.Kinds {
		widen(&g.Kinds[i].Node)
	}
	size := make([]float64, len(g.units))
	for i, u := range g.units {
		if !done[i] {
			out = append(out, i)
		}
		for d := range largest {
			if largest[d] > 0 {
				size[i] = max(size[i], float64(seats.WantOf(u.members[0].Spec, d))/float64(largest[d]))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(g.units[b].members), len(g.units[a].members)), cmp.Compare(size[b], size[a]))
	})
	return out
}

// lab returns a lab with some nodes more.
func (g *growth) lab(nodes []orbit.Node) (*lab, error) {
	state, err := joined(g.state, nodes)
	if err != nil {
		return nil, err
	}
	l, err := newLab(g.ctx, state, &g.work)
	if l != nil {
		l.stays, l.moves, l.steps = g.Stays, mostMoves(g.Moves), mostLabSteps
	}
	return l, err
}

// fill gives places to units, in this order, until no more of them gets one.
func (g *growth) fill(l *lab, order []int, done []bool) error {
	for again := true; again; {
		again = false
		full := map[*orbit.Spec]bool{}
		for _, i := range order {
			u := g.units[i]
			first := u.members[0].Spec
			if done[i] || len(u.members) == 1 && full[first] {
				continue
			}
			if err := g.ctx.Err(); err != nil {
				return err
			}
			switch {
			case l.place(u):
				done[i] = true
			case l.makeRoom(u):
				done[i], again = true, true
				clear(full)
			default:
				full[first] = true
				continue
			}
			if first.Group != "" || len(first.Groups) > 0 {
				again = true // others may be near it, or even with it
			}
		}
	}
	return l.settle()
}

// guess finds nodes by a linear program, and then one by one what that has not foreseen.
func (g *growth) guess() (*grown, error) {
	l, err := g.lab(nil)
	if err != nil {
		return nil, err
	}
	done := make([]bool, len(g.units))
	if err := g.fill(l, g.hardest(done), done); err != nil {
		return nil, err
	}
	best := &grown{done: done}
	if slices.Contains(done, false) && len(g.Kinds) > 0 {
		if l, err = g.program(best); err != nil {
			return nil, err
		}
		if l, err = g.oneByOne(l, best, g.hardest(best.done)); err != nil {
			return nil, err
		}
	}
	if err := best.read(g.state, l); err != nil || !slices.Contains(best.done, false) || !g.capped(best) {
		return best, err
	}
	// The nodes of a kind are used up. What is first in the queue gets them.
	fair := &grown{done: make([]bool, len(g.units))}
	if l, err = g.lab(nil); err != nil {
		return nil, err
	}
	queue := make([]int, len(g.units))
	for i := range queue {
		queue[i] = i
	}
	if l, err = g.oneByOne(l, fair, queue); err != nil {
		return nil, err
	}
	if err := fair.read(g.state, l); err != nil {
		return nil, err
	}
	if compareDone(fair.done, best.done) < 0 {
		return best, nil
	}
	return fair, nil
}

// capped reports whether there are no more nodes of a kind.
func (g *growth) capped(of *grown) bool {
	return slices.ContainsFunc(of.kinds, func(k int) bool { return g.left(of, k) == 0 })
}

// left returns how many more nodes of a kind there are.
func (g *growth) left(of *grown, kind int) int {
	most := cmp.Or(g.Kinds[kind].Max, math.MaxInt)
	for _, k := range of.kinds {
		if k == kind {
			most--
		}
	}
	return most
}

// compareDone is above 0 if a has a place for the first unit for which only one of the two has.
func compareDone(a, b []bool) int {
	for i := range a {
		switch {
		case a[i] && !b[i]:
			return 1
		case b[i] && !a[i]:
			return -1
		}
	}
	return 0
}

// join adds a node of a kind.
func (g *growth) join(to *grown, kind int) {
	taken := map[orbit.NodeID]bool{}
	for i := range to.nodes {
		if to.kinds[i] == kind {
			taken[to.nodes[i].ID] = true
		}
	}
	n := g.Kinds[kind].numbered(g.state, taken)
	to.kinds, to.nodes, to.price = append(to.kinds, kind), append(to.nodes, n), to.price+g.Kinds[kind].Price
}

// joinAll adds so many nodes of each kind.
func (g *growth) joinAll(to *grown, counts []int) {
	taken := map[orbit.NodeID]bool{}
	for k, count := range counts {
		for i := 1; count > 0; i++ {
			n := g.Kinds[k].Node.Clone()
			n.ID = orbit.NodeID(fmt.Sprintf("%s-%d", g.Kinds[k].Name, i))
			if g.state.Node(n.ID) != nil || taken[n.ID] {
				continue
			}
			count--
			taken[n.ID] = true
			to.kinds, to.nodes, to.price = append(to.kinds, k), append(to.nodes, n), to.price+g.Kinds[k].Price
		}
	}
}

// program adds the nodes that a linear program finds, and puts the capsules where it says, as far as the rules allow. Gangs
// that fit as it is come first. It returns the lab with these nodes.
func (g *growth) program(to *grown) (*lab, error) {
	l, err := g.lab(nil)
	if err != nil {
		return nil, err
	}
	to.done = make([]bool, len(g.units))
	for _, i := range g.hardest(to.done) {
		to.done[i] = len(g.units[i].members) > 1 && l.place(g.units[i])
	}
	if err := l.settle(); err != nil {
		return nil, err
	}
	demands, index := []demand(nil), map[*orbit.Spec]int{}
	members := map[int][]*orbit.Capsule{} // of each unit, with the specs of the domain that it goes to
	rest := g.hardest(to.done)
	for _, i := range rest {
		members[i] = g.units[i].in(g.cheapest(g.units[i]), l.specs)
		for _, c := range members[i] {
			k, ok := index[c.Spec]
			if !ok {
				k = len(demands)
				index[c.Spec], demands = k, append(demands, demand{spec: c.Spec})
			}
			demands[k].count++
		}
	}
	best := g.cut(l.view.State(), demands)
	counts := make([]int, len(g.Kinds))
	for _, f := range best.joining {
		counts[f.kind]++
	}
	g.joinAll(to, counts)
	state, err := joined(l.view.State(), to.nodes)
	if err != nil {
		return nil, err
	}
	next, err := newLab(g.ctx, state, &g.work)
	if err != nil {
		return nil, err
	}
	next.carryOn(l)
	room := make([][]orbit.NodeID, len(demands)) // the places that the program has for each demand
	for i, f := range slices.Concat(best.there, best.joining) {
		var id orbit.NodeID
		if i < len(best.there) {
			id = best.nodes[i].Node.ID
		} else {
			id = to.nodes[i-len(best.there)].ID
		}
		for d, n := range f.count {
			room[d] = append(room[d], slices.Repeat([]orbit.NodeID{id}, n)...)
		}
	}
	for _, i := range rest {
		to.done[i] = next.placeAt(members[i], func(c *orbit.Capsule) (id orbit.NodeID) {
			if d := index[c.Spec]; len(room[d]) > 0 {
				id, room[d] = room[d][0], room[d][1:]
			}
			return id
		})
	}
	return next, g.fill(next, rest, to.done)
}

// carryOn takes over what another lab has done.
func (l *lab) carryOn(from *lab) {
	l.placed, l.specs, l.stays, l.moves, l.steps = from.placed, from.specs, from.stays, from.moves, from.steps
}

// placeAt places capsules together, each on the node that to names, or else on the best one.
func (l *lab) placeAt(members []*orbit.Capsule, to func(*orbit.Capsule) orbit.NodeID) bool {
	start, placed := l.draft.Checkpoint(), len(l.placed)
	for _, c := range members {
		*l.work++
		if !l.placeOn(c, to(c)) && l.draft.PlaceBest(&l.engine, c) != nil {
			l.draft.Rollback(start)
			l.placed = l.placed[:placed]
			return false
		}
		l.placed = append(l.placed, c.ID)
	}
	return len(members) > 0
}

func (l *lab) placeOn(c *orbit.Capsule, id orbit.NodeID) bool {
	known := l.view.State().Node(id)
	if known == nil {
		return false
	}
	l.draft.LookAs(c)
	n := l.draft.Node(known.Index())
	devices, ok := n.PickDevices(c.Spec)
	return ok && n.Fits(c.Spec) && l.draft.Place(c, orbit.Choice{Node: n, Devices: devices}) == nil
}

// cheapest returns the domain in which new nodes for a gang cost least, as far as sums can tell.
func (g *growth) cheapest(u *unit) (best *orbit.Predicate) {
	least := math.Inf(1)
	for _, domain := range u.where() {
		cost := 0.0
		for _, c := range u.members {
			one := math.Inf(1)
			for k := range g.Kinds {
				n := &orbit.NodeState{Node: &g.Kinds[k].Node}
				if fits := aloneOn(n, &demand{c.Spec, len(u.members)}); fits > 0 && (domain == nil || domain.On(n.Node)) {
					one = min(one, g.Kinds[k].Price/float64(fits))
				}
			}
			cost += one
		}
		if cost < least || best == nil {
			best, least = domain, cost
		}
	}
	return best
}

// oneByOne places units, in this order, and adds nodes for those that do not fit: those of the kind, and in the domain,
// that cost least. It returns the lab with these nodes.
func (g *growth) oneByOne(l *lab, to *grown, order []int) (*lab, error) {
	hopeless := map[*orbit.Spec]bool{}
	for _, i := range order {
		u := g.units[i]
		if to.done[i] = to.done[i] || l.place(u) || l.makeRoom(u); to.done[i] || len(u.members) == 1 && hopeless[u.members[0].Spec] {
			continue
		}
		if err := l.settle(); err != nil {
			return nil, err
		}
		next, kinds, err := g.growFor(l, to, u)
		if err != nil {
			return nil, err
		}
		if next == nil {
			hopeless[u.members[0].Spec] = true
			continue
		}
		for _, k := range kinds {
			g.join(to, k)
		}
		l, to.done[i] = next, true
	}
	return l, l.settle()
}

// growFor returns a lab with the cheapest nodes of one kind that give a unit a place; nil: there are none.
func (g *growth) growFor(l *lab, to *grown, u *unit) (best *lab, by []int, err error) {
	state, err := l.ledger.Snapshot(g.ctx)
	if err != nil {
		return nil, nil, err
	}
	least := math.Inf(1)
	for k := range g.Kinds {
		suits := slices.ContainsFunc(u.members, func(c *orbit.Capsule) bool {
			return aloneOn(&orbit.NodeState{Node: &g.Kinds[k].Node}, &demand{c.Spec, 1}) > 0
		})
		more := &grown{kinds: slices.Clone(to.kinds), nodes: slices.Clone(to.nodes)}
		for count := 1; suits && count <= min(len(u.members), g.left(to, k)) && float64(count)*g.Kinds[k].Price < least; count++ {
			g.join(more, k)
			with, err := joined(state, more.nodes[len(to.nodes):])
			if err != nil {
				return nil, nil, err
			}
			next, err := newLab(g.ctx, with, &g.work)
			if err != nil {
				return nil, nil, err
			}
			if next.carryOn(l); next.place(u) {
				if err := next.settle(); err != nil {
					return nil, nil, err
				}
				best, least, by = next, float64(count)*g.Kinds[k].Price, slices.Repeat([]int{k}, count)
				break
			}
		}
	}
	return best, by, nil
}

// read takes from a lab who is where.
func (of *grown) read(base *orbit.State, l *lab) error {
	state, err := l.ledger.Snapshot(l.ctx)
	if err != nil {
		return err
	}
	of.at, of.order = map[orbit.CapsuleID]seatOn{}, nil
	for i := len(l.placed) - 1; i >= 0; i-- {
		c := state.Capsule(l.placed[i])
		if _, seen := of.at[c.ID]; seen {
			continue
		}
		of.at[c.ID] = seatOn{c.Node, c.Devices}
		of.order = append(of.order, c.ID)
	}
	slices.Reverse(of.order)
	of.dropStill(base)
	return nil
}

// dropStill drops capsules that stay where they are.
func (of *grown) dropStill(base *orbit.State) {
	of.order = slices.DeleteFunc(of.order, func(id orbit.CapsuleID) bool {
		c := base.Capsule(id)
		return c.Placed() && c.Node == of.at[id].node
	})
}

// better searches for cheaper nodes: exactly if few capsules wait, else with one node less or a cheaper one.
func (g *growth) better(than *grown) (*grown, error) {
	waits := 0
	for _, u := range g.units {
		waits += len(u.members)
	}
	if waits <= exactCapsules {
		return g.exact(than)
	}
	for tries := 0; tries < 8 && g.work < mostLabSteps; {
		next, err := g.lessThan(than, &tries)
		if err != nil || next == nil {
			return than, err
		}
		than = next
	}
	return than, nil
}

// lessThan returns nodes that cost less than others, and give a place to the same units; nil: none are found.
func (g *growth) lessThan(than *grown, tries *int) (*grown, error) {
	counts := make([]int, len(g.Kinds))
	for _, k := range than.kinds {
		counts[k]++
	}
	for k := range g.Kinds {
		for other := -1; other < len(g.Kinds); other++ {
			price := than.price - g.Kinds[k].Price
			if other >= 0 {
				price += g.Kinds[other].Price
			}
			if counts[k] == 0 || other == k || price >= than.price || price < g.bound*(1-1e-9) || other >= 0 && g.left(than, other) == 0 || *tries >= 8 {
				continue
			}
			*tries++
			less := slices.Clone(counts)
			if less[k]--; other >= 0 {
				less[other]++
			}
			next, err := g.try(less)
			if err != nil || next != nil && compareDone(next.done, than.done) >= 0 {
				return next, err
			}
		}
	}
	return nil, nil
}

// try places all units with so many nodes of each kind.
func (g *growth) try(counts []int) (*grown, error) {
	out := &grown{done: make([]bool, len(g.units))}
	g.joinAll(out, counts)
	l, err := g.lab(out.nodes)
	if err != nil {
		return nil, err
	}
	if err := g.fill(l, g.hardest(out.done), out.done); err != nil {
		return nil, err
	}
	return out, out.read(g.state, l)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// proposals returns what makes the plan true: the nodes join, capsules leave, and capsules are placed.
func (g *growth) proposals(of *grown) (out []orbit.Proposal, err error) {
	if len(of.nodes)+len(of.order) == 0 || of.sent != nil {
		return of.sent, nil
	}
	l, err := g.lab(of.nodes)
	if err != nil {
		return nil, err
	}
	most, leave := g.state.Limits().Commitments, []orbit.CapsuleID(nil)
	for _, id := range of.order {
		if g.state.Capsule(id).Placed() {
			leave = append(leave, id)
		}
	}
	for _, id := range leave {
		if err := l.draft.Evict(orbit.Evict{Capsule: id}); err != nil {
			return nil, err
		}
	}
	first, open := puts(of.nodes), len(of.nodes)+len(leave)
	if open+len(of.order) > most { // more than one proposal: the nodes first
		for chunk := range slices.Chunk(first, most) {
			out = append(out, orbit.Proposal{ID: orbit.NewProposalID(), View: g.state.Revision(), Do: chunk})
		}
		first, open = nil, len(leave)
	}
	var parts []orbit.Proposal
	part := func() { parts = append(parts, l.draft.Propose()) }
	cut := func() {
		part()
		out = append(out, g.onBase(parts, first))
		parts, first, open = nil, nil, 0
	}
	for i, id := range of.order {
		c := l.view.State().Capsule(id)
		if together := i > 0 && c.Gang() != "" && l.view.State().Capsule(of.order[i-1]).Gang() == c.Gang(); !together {
			if open > 0 && open+len(of.order[i:]) > most && open+gangSize(g.state, c) > most {
				cut()
			} else if len(leave) == 0 && open%mostInPart == mostInPart-1 {
				part() // the cost of a step grows with the number of steps of its proposal; what leaves makes room only in its own
			}
		}
		n := l.view.State().Node(of.at[id].node)
		l.draft.LookAs(c)
		if err := l.draft.Place(c, orbit.Choice{Node: l.draft.Node(n.Index()), Devices: of.at[id].devices, Note: "scaled"}); err != nil {
			return nil, err
		}
		open++
	}
	cut()
	of.sent = out
	return out, nil
}

// mostInPart is about how many placements are planned as one part of a proposal.
const mostInPart = 128

func gangSize(state *orbit.State, c *orbit.Capsule) (n int) {
	for range state.Members(c.Gang()) {
		n++
	}
	return max(1, n)
}

// onBase makes the parts of a proposal that was planned with the new nodes one for the state without: they join first, and
// nothing is bet on them.
func (g *growth) onBase(parts []orbit.Proposal, first []orbit.Commitment) orbit.Proposal {
	p := orbit.Proposal{ID: orbit.NewProposalID(), View: g.state.Revision(), Do: first}
	at := map[orbit.NodeID]int{}
	for i := range parts {
		p.Do = append(p.Do, parts[i].Do...)
		for _, bet := range parts[i].If {
			free, ok := bet.(orbit.NodeFreeOf)
			switch k, seen := at[free.Node]; {
			case !ok:
				p.If = append(p.If, bet)
			case seen:
				sum := p.If[k].(orbit.NodeFreeOf)
				for d := range sum.AtLeast {
					sum.AtLeast[d] += free.AtLeast[d]
				}
				p.If[k] = sum
			case g.state.Node(free.Node) != nil:
				at[free.Node] = len(p.If)
				p.If = append(p.If, free)
			}
		}
	}
	return p
}

// answer makes the answer, and asks why what still waits does.
func (g *growth) answer(best *grown) (*Scaling, error) {
	proposals, err := g.proposals(best)
	if err != nil {
		return nil, err
	}
	out := &Scaling{work: g.work, Bound: min(g.bound, best.price)}
	if out.Report, err = reported(g.ctx, g.state, proposals); err != nil {
		return nil, err
	}
	for i, n := range best.nodes {
		out.add(ScaledNode{n.ID, g.Kinds[best.kinds[i]].Name, g.Kinds[best.kinds[i]].Price})
	}
	number := func(n ScaledNode) int {
		return slices.IndexFunc(g.Kinds, func(k NodeKind) bool { return k.Name == n.Kind })
	}
	slices.SortStableFunc(out.Nodes, func(a, b ScaledNode) int { return cmp.Compare(number(a), number(b)) })
	return out, g.explain(best, out.Report)
}

var errNotCounted = errors.New("ScaleUp.Of does not count it")

// explain says of each capsule that still waits what is in the way, now and on a new node.
func (g *growth) explain(of *grown, r *Report) error {
	if len(r.Unplaced) == 0 {
		return nil
	}
	l, err := newLab(g.ctx, r.After, &g.work)
	if err != nil {
		return err
	}
	counted := map[orbit.CapsuleID]bool{}
	for _, u := range g.units {
		for _, c := range u.members {
			counted[c.ID] = true
		}
	}
	known := map[*orbit.Spec]error{}
	for i := range r.Unplaced {
		c := r.Unplaced[i].Capsule
		if !counted[c.ID] {
			r.Unplaced[i].Why = errNotCounted
			continue
		}
		if known[c.Spec] == nil || c.Gang() != "" {
			start := l.draft.Checkpoint()
			now := l.draft.PlaceBest(&l.engine, c)
			l.draft.Rollback(start)
			known[c.Spec] = g.whyWaits(of, c, now)
		}
		r.Unplaced[i].Why = known[c.Spec]
	}
	return nil
}

// whyWaits returns why neither a node that is there nor a new one takes a capsule.
func (g *growth) whyWaits(of *grown, c *orbit.Capsule, now error) error {
	var texts []string
	for k := range g.Kinds {
		n := &orbit.NodeState{Node: &g.Kinds[k].Node}
		switch {
		case aloneOn(n, &demand{c.Spec, 1}) == 0:
		case g.left(of, k) == 0:
			texts = append(texts, fmt.Sprintf("no more nodes of kind %q may join", g.Kinds[k].Name))
		default:
			texts = append(texts, fmt.Sprintf("a node of kind %q would be large enough, but a rule or a quota keeps it off", g.Kinds[k].Name))
		}
	}
	if texts == nil {
		texts = append(texts, "no kind of node would take it")
	}
	if c.Gang() != "" {
		texts = append(texts, fmt.Sprintf("the waiting members of gang %q are placed together or not at all", c.Gang()))
	}
	if text := strings.Join(texts, "; "); now != nil {
		return fmt.Errorf("%s; now: %w", text, now)
	}
	return errors.New(strings.Join(texts, "; "))
}
