package whatif

import (
	"cmp"
	"context"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/moves"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// unit is what is placed together or not at all: a capsule, or all waiting members of a gang.
type unit struct {
	members []*orbit.Capsule
	// The domains for the members of a gang, as requirements: all members have to be in the same one of them. Nil: anywhere.
	domains []*orbit.Predicate
	// The members have to be in one domain, and no node is in any.
	nowhere bool
}

// unitsOf returns the units of those waiting capsules for which of is true, in the order in which they wait; nil: of all. A gang is
// left out whole if of is false for one of its waiting members.
func unitsOf(state *orbit.State, of func(*orbit.Capsule) bool, kinds []NodeKind) (out []*unit) {
	gangs, leftOut := map[orbit.GangID]*unit{}, map[orbit.GangID]bool{} // the empty id stands for capsules in no gang
	for _, c := range state.Pending() {
		id := c.Gang()
		if of != nil && !of(c) {
			leftOut[id] = true
			continue
		}
		if u := gangs[id]; u != nil && id != "" {
			u.members = append(u.members, c)
			continue
		}
		u := &unit{members: []*orbit.Capsule{c}}
		gangs[id] = u
		out = append(out, u)
	}
	out = slices.DeleteFunc(out, func(u *unit) bool { id := u.members[0].Gang(); return id != "" && leftOut[id] })
	for id, u := range gangs {
		if g := state.Gang(id); g != nil {
			u.gang(state, g, kinds)
		}
	}
	return out
}

// gang prepares the unit of a gang. If some members are placed already, the specs of the others keep them in the domain of those;
// otherwise the unit gets the domains from which to choose.
func (u *unit) gang(state *orbit.State, g *orbit.GangState, kinds []NodeKind) {
	if g.Total() > 0 {
		for i, c := range u.members {
			if spec, _, err := moves.SpecOf(state, c); err == nil {
				own := *c
				own.Spec = spec
				u.members[i] = &own
			}
		}
	} else if len(g.Gang.Levels) > 0 && !g.Gang.Loose {
		for _, level := range g.Gang.Levels {
			u.addDomains(state, level, kinds)
		}
		u.nowhere = u.domains == nil
	}
	// moves.Search.Room wants newcomers of one spec next to each other.
	number := map[*orbit.Spec]int{}
	for _, c := range u.members {
		if _, ok := number[c.Spec]; !ok {
			number[c.Spec] = len(number)
		}
	}
	slices.SortStableFunc(u.members, func(a, b *orbit.Capsule) int { return cmp.Compare(number[a.Spec], number[b.Spec]) })
}

// addDomains adds the domains of a level in which there are nodes, or will be if a node of one of the kinds joins.
func (u *unit) addDomains(state *orbit.State, level string, kinds []NodeKind) {
	seen := map[string]bool{"": true}
	add := func(n *orbit.Node) {
		if name := n.Labels[level]; !seen[name] {
			seen[name] = true
			u.domains = append(u.domains, &orbit.Predicate{Key: level, Op: "In", Values: []string{name}})
		}
	}
	for n := range state.Nodes() {
		add(n.Node)
	}
	for i := range kinds {
		add(&kinds[i].Node)
	}
}

// where returns the domains to try. A nil domain in the result means anywhere.
func (u *unit) where() []*orbit.Predicate {
	if len(u.domains) > 0 || u.nowhere {
		return u.domains
	}
	return []*orbit.Predicate{nil}
}

// in returns the members with specs that keep them in a domain; nil: such a spec would have too many requirements. Made has the specs
// that were made before, and gets the new ones.
func (u *unit) in(domain *orbit.Predicate, made map[domainSpec]*orbit.Spec) []*orbit.Capsule {
	if domain == nil {
		return u.members
	}
	out := make([]*orbit.Capsule, len(u.members))
	for i, c := range u.members {
		key := domainSpec{c.Spec, domain.Key, domain.Values[0]}
		spec := made[key]
		if spec == nil {
			bound := *c.Spec
			bound.Require = append(slices.Clone(bound.Require), *domain)
			var err error
			if spec, err = bound.Share(); err != nil {
				return nil
			}
			made[key] = spec
		}
		own := *c
		own.Spec = spec
		out[i] = &own
	}
	return out
}

// domainSpec is the key of a spec that was made from another to keep capsules in a domain.
type domainSpec struct {
	spec          *orbit.Spec
	level, domain string
}

// lab is a ledger of its own to try a plan on, and the plan.
type lab struct {
	ctx    context.Context
	ledger orbit.MemoryLedger
	view   orbit.View
	draft  orbit.Draft
	engine place.Indexed
	stays  func(*orbit.Capsule) bool // as moves.Search.Stays
	specs  map[domainSpec]*orbit.Spec
	// The capsules that were placed or moved, in this order. One that is moved later is in it again.
	placed []orbit.CapsuleID
	// How many more capsules may move, and how many steps the search for moves may take.
	moves, steps int
	// The specs for which there is no room, so that nobody looks again: of a unit's first member, even by moves (makeRoom); or of a
	// capsule that leaves a node, without others' moves (isFull).
	stuck map[*orbit.Spec]bool
	// Counts the work of all labs that serve one question.
	work *int
}

// newLab returns a lab that begins with a state.
func newLab(ctx context.Context, state *orbit.State, work *int) (*lab, error) {
	l := &lab{ctx: ctx, specs: map[domainSpec]*orbit.Spec{}, stuck: map[*orbit.Spec]bool{}, work: work}
	l.ledger.Start, l.engine.Score = state, score.MostAllocated{}
	return l, l.sync()
}

// sync makes the view and the draft show the newest state of the lab's ledger.
func (l *lab) sync() error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	now := l.view.Now()
	if now.IsZero() {
		now = clock()
	}
	if err := l.view.Refresh(l.ctx, &l.ledger, nil, now); err != nil {
		return err
	}
	l.draft.Sync(&l.view)
	return nil
}

// settle commits the plan in the lab's ledger.
func (l *lab) settle() error {
	p := l.draft.Propose()
	if len(p.Do) == 0 {
		return nil
	}
	if _, err := l.ledger.Propose(l.ctx, p); err != nil {
		return err
	}
	return l.sync()
}

// place gives a unit a place, without moves. If there is none, it reports false and leaves the draft as it was.
func (l *lab) place(u *unit) bool {
	for _, domain := range u.where() {
		if l.placeAll(u.in(domain, l.specs)) {
			return true
		}
	}
	return false
}

// placeAll places all of these capsules, or none. It reports false if one has no place, or if there are no capsules (unit.in).
func (l *lab) placeAll(members []*orbit.Capsule) bool {
	start, placed := l.draft.Checkpoint(), len(l.placed)
	for _, c := range members {
		*l.work++
		if l.draft.PlaceBest(&l.engine, c) != nil {
			l.draft.Rollback(start)
			l.placed = l.placed[:placed]
			return false
		}
		l.placed = append(l.placed, c.ID)
	}
	return len(members) > 0
}

// makeRoom gives a unit a place by moves of others. It reports false if it finds no moves, or may not search or move any more.
func (l *lab) makeRoom(u *unit) bool {
	for _, domain := range u.where() {
		members := u.in(domain, l.specs)
		if len(members) == 0 || l.moves <= 0 || l.steps <= 0 || l.stuck[members[0].Spec] {
			continue
		}
		s := l.search(min(l.steps, 20_000))
		f := s.Room(members, nil)
		l.steps -= s.Taken()
		*l.work += s.Taken()
		if f == nil || f.On(&l.draft) != nil {
			l.stuck[members[0].Spec] = true
			continue
		}
		l.moves -= len(f.Moved)
		for i := range f.Seats {
			l.placed = append(l.placed, f.Seats[i].Of.ID)
		}
		return true
	}
	return false
}

// search returns a search for moves on the draft that may take so many steps.
func (l *lab) search(steps int) *moves.Search {
	return &moves.Search{Draft: &l.draft, Engine: &l.engine, Stays: l.stays, Most: min(l.moves, 16), Steps: steps, Note: "scaled"}
}
