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
	// The domains in one of which the members of a gang have to be, as requirements; nil: anywhere.
	domains []*orbit.Predicate
	// It has to be in a domain of a level, and there is none.
	nowhere bool
}

// unitsOf returns the units of what waits, in the order in which it waits.
func unitsOf(state *orbit.State, of func(*orbit.Capsule) bool, kinds []NodeKind) (out []*unit) {
	gangs, left := map[orbit.GangID]*unit{}, map[orbit.GangID]bool{}
	for _, c := range state.Pending() {
		id := c.Gang()
		if of != nil && !of(c) {
			left[id] = true
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
	out = slices.DeleteFunc(out, func(u *unit) bool { id := u.members[0].Gang(); return id != "" && left[id] })
	for id, u := range gangs {
		if g := state.Gang(id); g != nil {
			u.gang(state, g, kinds)
		}
	}
	return out
}

// gang prepares the unit of a gang. Members of a gang that runs have to be where it runs.
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
	// Newcomers of one spec follow each other in a search.
	number := map[*orbit.Spec]int{}
	for _, c := range u.members {
		if _, ok := number[c.Spec]; !ok {
			number[c.Spec] = len(number)
		}
	}
	slices.SortStableFunc(u.members, func(a, b *orbit.Capsule) int { return cmp.Compare(number[a.Spec], number[b.Spec]) })
}

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

// where returns the domains to try.
func (u *unit) where() []*orbit.Predicate {
	if len(u.domains) > 0 || u.nowhere {
		return u.domains
	}
	return []*orbit.Predicate{nil}
}

// in returns the members with specs that keep them in a domain. All has the specs that were made before.
func (u *unit) in(domain *orbit.Predicate, all map[domainSpec]*orbit.Spec) []*orbit.Capsule {
	if domain == nil {
		return u.members
	}
	out := make([]*orbit.Capsule, len(u.members))
	for i, c := range u.members {
		key := domainSpec{c.Spec, domain.Key, domain.Values[0]}
		spec := all[key]
		if spec == nil {
			bound := *c.Spec
			bound.Require = append(slices.Clone(bound.Require), *domain)
			var err error
			if spec, err = bound.Share(); err != nil { // too many requirements
				return nil
			}
			all[key] = spec
		}
		own := *c
		own.Spec = spec
		out[i] = &own
	}
	return out
}

type domainSpec struct {
	spec          *orbit.Spec
	level, domain string
}

// lab is a constellation to plan on, and the plan.
type lab struct {
	ctx    context.Context
	ledger orbit.MemoryLedger
	view   orbit.View
	draft  orbit.Draft
	engine place.Indexed
	stays  func(*orbit.Capsule) bool
	specs  map[domainSpec]*orbit.Spec
	// What has got a place or another one, in this order.
	placed []orbit.CapsuleID
	// How many more capsules may move, and how many steps the search for moves may take.
	moves, steps int
	// Searches for moves that have found nothing.
	stuck map[*orbit.Spec]bool
	work  *int
}

func newLab(ctx context.Context, state *orbit.State, work *int) (*lab, error) {
	l := &lab{ctx: ctx, specs: map[domainSpec]*orbit.Spec{}, stuck: map[*orbit.Spec]bool{}, work: work}
	l.ledger.Start, l.engine.Score = state, score.MostAllocated{}
	return l, l.sync()
}

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

// settle commits the plan in the lab.
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

// place gives a unit a place, without moves. It reports false, and leaves the draft as it was, if there is none.
func (l *lab) place(u *unit) bool {
	for _, domain := range u.where() {
		if l.placeAll(u.in(domain, l.specs)) {
			return true
		}
	}
	return false
}

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

// makeRoom gives a unit a place by moves of others.
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

func (l *lab) search(steps int) *moves.Search {
	return &moves.Search{Draft: &l.draft, Engine: &l.engine, Stays: l.stays, Most: min(l.moves, 16), Steps: steps, Note: "scaled"}
}
