package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
	"github.com/orbitsched/orbit/internal/victims"
)

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
	if w.tried == 0 && r.moveForGang(ctx, c, members, levels) { // else a search for victims goes on that was cut off
		w.failed = 0
		return nil
	}
	r.draft.LookAs(c)
	r.draft.Avoid(members...)
	defer r.draft.LookAs(nil)
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
	if len(best.Leave) == 0 && !withheld && !r.mustSeat(best) {
		return limited{"there is room for it without evicting"}
	}
	if why := cmp.Or(r.exceeds(best.Leave, best.Priority()), r.defers(c, best.Leave)); why != nil {
		return why
	}
	if (withheld || w.lost > 0) && r.nominateGang(of, best) {
		return errNominated
	}
	start, limits := r.draft.Checkpoint(), r.state.Limits()
	if r.evicting().Seat(best.Nodes, members) == nil {
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
	if err := r.judge(c, made); err != nil {
		r.draft.Rollback(start)
		return limited{reasonOf(err)}
	}
	r.propose(of, made, best.Leave)
	return nil
}

// nominateGang nominates the room of a seating, unless the gang is nominated there already. It reports false if it has
// nominated nothing.
func (r *preemptPass) nominateGang(of waiter, s *seats.Eviction) bool {
	if r.home != nil {
		return r.nominateMember(of, s.Rooms[0])
	}
	return !isNominated(r.state.Gang(of.gang).Nomination, s.Parts...) && r.nominate(of, s.Parts)
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
func (r *preemptPass) bestDomain(ctx context.Context, n *orbit.Nomination, members []*orbit.Capsule, levels [][]string, skip int, refusal **orbit.Rejection) (best *seats.Eviction, tried int, all bool) {
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
				s := r.evicting().Try(t.Domains[d].Name, t.Domains[d].Nodes, members)
				if s == nil {
					*refusal = victims.First(*refusal, r.search.Refusal)
					continue
				}
				if best == nil || s.Before(best) {
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
func (r *preemptPass) nominatedDomain(n *orbit.Nomination, members []*orbit.Capsule, levels [][]string) *seats.Eviction {
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
			if s := r.evicting().Try(t.Domains[t.Of[nodes[0]]].Name, nodes, members); s != nil {
				return s
			}
		}
	}
	return nil
}

// evicting returns the search for seats that victims leave.
func (r *preemptPass) evicting() *seats.Evicting {
	return &seats.Evicting{Draft: &r.draft, Search: &r.search, Excluded: r.filtered, Singly: r.home != nil}
}

// quantity returns a number with its noun, as in "3 victims".
func quantity(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
