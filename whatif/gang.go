package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// GangExplanation says how much of a gang fits in each domain. Read it, never write it.
type GangExplanation struct {
	// Gang is the gang.
	Gang *orbit.Gang
	// Wants is how many members have to be placed at once: the minimums of all roles, less what is placed of each.
	Wants int
	// Domains are the domains of the gang's levels, those in which most members fit first. A gang without levels, or one that is
	// Loose, has all nodes together as one more domain, without a level.
	Domains []DomainFit
	// Specs count the nodes for one more member of each spec of the gang, as [Count] does, in the order of the roles: what is in the way where none fits.
	Specs []*Explanation
	// Fixes are changes after each of which the gang fits, those that change nothing of its request first; none if it fits now, or nothing helps.
	Fixes []GangFix

	seatings int
}

// DomainFit is how much of a gang fits in one domain.
type DomainFit struct {
	// Level is the label, and Domain its value; both are empty for all nodes together.
	Level, Domain string
	// Fits is how many members find room there together, of those that are wanted.
	Fits int
	// Lacks names the role of the first member that finds none; empty: all do.
	Lacks string
	// Why is the reason that the last member found no room, counted over all nodes; nil: all do.
	Why error
}

// ExplainGang finds out how many of the members that a gang needs at once fit together in each domain of its levels, as things are. It
// places largest members first, each on the fullest node that takes it, so where members of several roles compete for nodes more may fit
// than it says. A gang that runs, and has fallen below its minimum, is looked at in the domains where it runs. It costs a search for each member
// in each domain.
//
// If the gang fits nowhere it looks for changes that would help ([GangFix]), of each kind one: in the eight domains where most members fit, one change
// at a time. Where a member of the gang runs or has ended, nothing of its request is changed, because that would take submitting all of it anew. A
// fix is minimal as far as a planner goes that is exact for one role, but for rules of company and parts of devices. The cost is bounded: it seats the
// gang 256 times at most for each change that it looks for.
func ExplainGang(ctx context.Context, state *orbit.State, id orbit.GangID) (*GangExplanation, error) {
	if state == nil {
		return nil, errors.New("whatif: state is nil; pass the snapshot of a ledger")
	}
	g := state.Gang(id)
	if g == nil {
		return nil, fmt.Errorf("whatif: there is no gang %q in the state; submit it, or ask about one that is there", id)
	}
	e := &GangExplanation{Gang: g.Gang}
	var roles []int
	for i := range g.Gang.Roles {
		roles = append(roles, i)
		e.Wants += lacking(g, g.Gang, i)
	}
	slices.SortStableFunc(roles, func(x, y int) int { return largerFirst(g.Gang.Roles[x].Spec, g.Gang.Roles[y].Spec) })
	draft, err := draftAt(ctx, state)
	if err != nil {
		return nil, err
	}
	engine := &place.Indexed{Score: score.MostAllocated{}}
	fit := func(level, domain string) error {
		start := draft.Checkpoint()
		defer draft.Rollback(start)
		d := DomainFit{Level: level, Domain: domain}
		for _, role := range roles {
			if err := d.fill(ctx, draft, engine, &g.Gang.Roles[role], lacking(g, g.Gang, role)); err != nil {
				return err
			}
			if d.Why != nil {
				break
			}
		}
		e.Domains = append(e.Domains, d)
		return nil
	}
	for _, level := range g.Gang.Levels {
		for _, domain := range domainsOf(state, g, level) {
			if err := fit(level, domain); err != nil {
				return nil, err
			}
		}
	}
	if len(g.Gang.Levels) == 0 || g.Gang.Loose {
		if err := fit("", ""); err != nil {
			return nil, err
		}
	}
	if err := e.countSpecs(state, g); err != nil {
		return nil, err
	}
	slices.SortStableFunc(e.Domains, func(x, y DomainFit) int { return cmp.Compare(y.Fits, x.Fits) })
	if !slices.ContainsFunc(e.Domains, func(d DomainFit) bool { return d.Why == nil }) {
		a := &gangAsker{ctx: ctx, state: state, gang: g, draft: draft}
		e.Fixes = a.fixes(e.Domains)
		e.seatings = a.seatings
	}
	return e, ctx.Err()
}

// countSpecs counts the nodes for each spec of the gang. What is nominated for the gang itself is in nobody's way.
func (e *GangExplanation) countSpecs(state *orbit.State, g *orbit.GangState) error {
	for i := range g.Gang.Roles {
		spec := g.Gang.Roles[i].Spec
		if slices.ContainsFunc(e.Specs, func(known *Explanation) bool { return known.Spec == spec }) {
			continue
		}
		a, err := newAsker(state, spec)
		if err != nil {
			return err
		}
		a.own = g.Nomination
		counts, _ := a.count()
		e.Specs = append(e.Specs, counts)
	}
	return nil
}

// fill places so many members of a role.
func (d *DomainFit) fill(ctx context.Context, draft *orbit.Draft, engine *place.Indexed, role *orbit.Role, count int) error {
	spec := *role.Spec
	if d.Level != "" {
		spec.Require = append(slices.Clone(spec.Require), orbit.Predicate{Key: d.Level, Op: "In", Values: []string{d.Domain}})
	}
	shared, err := spec.Share()
	if err != nil {
		return err
	}
	for _, id := range role.Members {
		if c := draft.View().State().Capsule(id); c != nil && c.Pending() { // for room that is nominated for the gang
			draft.Ask(c)
			defer draft.Ask(nil)
			break
		}
	}
	for range count {
		if err := ctx.Err(); err != nil {
			return err
		}
		choice, err := engine.Best(draft, shared)
		if err != nil {
			d.Lacks, d.Why = role.Name, err
			return nil // it is the answer
		}
		if err := draft.Reserve(shared, choice); err != nil {
			return err
		}
		d.Fits++
	}
	return nil
}

// wanted is how many members of a role the first placement must hold.
func wanted(r *orbit.Role) int {
	if r.Min > 0 {
		return r.Min
	}
	return len(r.Members)
}

// largerFirst orders specs by what they ask for, dimension by dimension after devices.
func largerFirst(x, y *orbit.Spec) int {
	order := cmp.Compare(y.Devices.Count*y.Devices.Milli, x.Devices.Count*x.Devices.Milli)
	for d := range x.Envelope.Reservation {
		order = cmp.Or(order, cmp.Compare(y.Envelope.Reservation[d], x.Envelope.Reservation[d]))
	}
	return order
}

// domainsOf returns the values of a label that are domains for a gang, sorted: all but empty ones and such as no proposal may name, and only the one where it
// runs if members of it do.
func domainsOf(state *orbit.State, g *orbit.GangState, level string) []string {
	seen, longest := map[string]bool{}, state.Limits().IDBytes
	for n := range state.Nodes() {
		if domain := n.Node.Labels[level]; domain != "" && len(domain) <= longest {
			seen[domain] = true
		}
	}
	for c := range state.Members(g.Gang.ID) {
		if c.Placed() {
			here := state.Node(c.Node).Node.Labels[level]
			maps.DeleteFunc(seen, func(domain string, _ bool) bool { return domain != here })
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// String prints the explanation for an operator.
func (e *GangExplanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "gang %q needs %d members placed at once", e.Gang.ID, e.Wants)
	list(&b, e.Domains, func(d DomainFit) string {
		where := "all nodes"
		if d.Level != "" {
			where = d.Level + " " + d.Domain
		}
		if d.Why == nil {
			return fmt.Sprintf("%s: all %d fit", where, d.Fits)
		}
		return fmt.Sprintf("%s: %d fit, then none of role %q: %v", where, d.Fits, d.Lacks, d.Why)
	})
	for _, counts := range e.Specs {
		fmt.Fprintf(&b, "\none member of role %q: %s", e.roleOf(counts.Spec), strings.ReplaceAll(counts.String(), "\n", "\n  "))
	}
	if len(e.Fixes) > 0 {
		b.WriteString("\nit would fit if you")
		list(&b, e.Fixes, func(f GangFix) string { return "* " + f.String() })
	}
	return b.String()
}

// roleOf names the first role whose members have a spec.
func (e *GangExplanation) roleOf(spec *orbit.Spec) string {
	i := slices.IndexFunc(e.Gang.Roles, func(r orbit.Role) bool { return r.Spec == spec })
	return e.Gang.Roles[i].Name
}
