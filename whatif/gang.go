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

// GangExplanation says how many members of a gang fit together in each domain. It is read-only.
type GangExplanation struct {
	// Gang is the gang.
	Gang *orbit.Gang
	// Wants is how many members have to be placed: the sum of the minimums of all roles, less the placed members. If the
	// gang does not run, they have to be placed at once.
	Wants int
	// Broken is how many members each role lacks, by its name, if the gang runs below its minimum; nil: it does not
	// ([orbit.GangState.Shortfall]).
	Broken map[string]int
	// Domains are the topology domains of the gang's levels; those in which the most members fit come first. For a gang
	// without levels, or one that is Loose, all nodes together are one more domain, without a level.
	Domains []DomainFit
	// Specs have, for each spec of the roles with members left, the nodes on which one more member fits, and the
	// reasons against the others, as [Count] returns them.
	Specs []*Explanation
	// Fixes are alternative changes; after each single one the gang fits. Those that leave the gang's request as it is
	// come first. Empty if the gang fits now, or if no change helps.
	Fixes []GangFix

	seatings int
}

// DomainFit says how many members of a gang fit together in one domain.
type DomainFit struct {
	// Level is the label key, and Domain its value; both are empty for all nodes together.
	Level, Domain string
	// Fits is how many of the wanted members fit there together.
	Fits int
	// Lacks is the role of the first member that does not fit; empty: all members fit.
	Lacks string
	// Why is the reason for which that member does not fit, counted over all nodes; nil: all members fit.
	Why error
}

// ExplainGang determines how many of the members that a gang needs at once fit together in each domain of its levels,
// in this state. It places the largest members first, each on the fullest node that takes it. So if members of several
// roles compete for the same nodes, more members may fit than it says. For a gang that runs below its minimum it
// considers only the domains in which the gang runs. The cost is a search for a node for each member in each domain.
//
// If the gang fits nowhere, ExplainGang searches for changes that would help ([GangFix]): in the eight domains in which
// the most members fit, for one change at a time, and at most one fix of each kind. If a member of the gang runs or has
// ended, no fix changes the gang's request, because then the whole gang would have to be submitted anew. Fixes are
// minimal for gangs of one role without rules Apart, Even or Near and without parts of devices. For other gangs the
// planner is not exact, and a smaller change may help too. The cost is bounded: ExplainGang tries at most 256
// placements of the whole gang for each kind of change.
func ExplainGang(ctx context.Context, state *orbit.State, id orbit.GangID) (*GangExplanation, error) {
	if state == nil {
		return nil, errors.New("whatif: state is nil; pass the snapshot of a ledger")
	}
	g := state.Gang(id)
	if g == nil {
		return nil, fmt.Errorf("whatif: there is no gang %q in the state; submit it, or ask about one that is there", id)
	}
	e := &GangExplanation{Gang: g.Gang, Broken: g.Shortfall()}
	var roles []int
	for i := range g.Gang.Roles {
		roles = append(roles, i)
		e.Wants += g.Lacks(i)
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
			if err := d.fill(ctx, draft, engine, &g.Gang.Roles[role], g.Lacks(role)); err != nil {
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

// countSpecs counts the nodes for each spec of the gang. The gang's own nomination is no reason against its members.
func (e *GangExplanation) countSpecs(state *orbit.State, g *orbit.GangState) error {
	for i := range g.Gang.Roles {
		spec := g.Gang.Roles[i].Spec
		if g.Left(i) == 0 || slices.ContainsFunc(e.Specs, func(known *Explanation) bool { return known.Spec == spec }) {
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

// fill places count members of a role in the domain, and notes how many fit and why the next one does not.
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
		if c := draft.View().State().Capsule(id); c != nil && c.Pending() { // Ask lets the draft use capacity that is nominated for the gang
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
			return nil // the reason is part of the answer, and not an error of ExplainGang
		}
		if err := draft.Reserve(shared, choice); err != nil {
			return err
		}
		d.Fits++
	}
	return nil
}

// wanted returns how many members of a role must be placed when the gang starts: its minimum, by default all.
func wanted(r *orbit.Role) int {
	if r.Min > 0 {
		return r.Min
	}
	return len(r.Members)
}

// largerFirst orders specs by their requests, the largest first: by devices, and then dimension by dimension.
func largerFirst(x, y *orbit.Spec) int {
	order := cmp.Compare(y.Devices.Count*y.Devices.Milli, x.Devices.Count*x.Devices.Milli)
	for d := range x.Envelope.Reservation {
		order = cmp.Or(order, cmp.Compare(y.Envelope.Reservation[d], x.Envelope.Reservation[d]))
	}
	return order
}

// domainsOf returns the domains of a level that a gang can use, sorted. It leaves out values that are longer than a
// proposal may name. If members of the gang run, only the domain in which they run is left.
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
	if e.Broken == nil {
		fmt.Fprintf(&b, "gang %q needs %d members placed at once", e.Gang.ID, e.Wants)
	} else {
		var lacks []string
		for _, role := range slices.Sorted(maps.Keys(e.Broken)) {
			lacks = append(lacks, fmt.Sprintf("%d of role %q", e.Broken[role], role))
		}
		fmt.Fprintf(&b, "gang %q runs below its minimum: it lacks %s", e.Gang.ID, strings.Join(lacks, ", "))
	}
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

// roleOf returns the name of the first role that has the spec.
func (e *GangExplanation) roleOf(spec *orbit.Spec) string {
	i := slices.IndexFunc(e.Gang.Roles, func(r orbit.Role) bool { return r.Spec == spec })
	return e.Gang.Roles[i].Name
}
