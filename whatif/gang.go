package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// Wants is how many members have to be placed at once: the minimums of all roles.
	Wants int
	// Domains are the domains of the gang's levels, those in which most members fit first. A gang without levels, or one that is
	// Loose, has all nodes together as one more domain, without a level.
	Domains []DomainFit
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
// than it says. It costs a search for each member in each domain.
func ExplainGang(ctx context.Context, state *orbit.State, id orbit.GangID) (*GangExplanation, error) {
	if state == nil {
		return nil, errors.New("whatif: state is nil; pass the snapshot of a ledger")
	}
	g := state.Gang(id)
	if g == nil {
		return nil, fmt.Errorf("whatif: there is no gang %q in the state; submit it, or ask about one that is there", id)
	}
	e := &GangExplanation{Gang: g.Gang}
	var roles []*orbit.Role
	for i := range g.Gang.Roles {
		roles = append(roles, &g.Gang.Roles[i])
		e.Wants += wanted(&g.Gang.Roles[i])
	}
	slices.SortStableFunc(roles, func(x, y *orbit.Role) int { return largerFirst(x.Spec, y.Spec) })
	draft, _, err := draftOf(ctx, state, roles[0].Spec)
	if err != nil {
		return nil, err
	}
	engine := &place.Indexed{Score: score.MostAllocated{}}
	fit := func(level, domain string) error {
		start := draft.Checkpoint()
		defer draft.Rollback(start)
		d := DomainFit{Level: level, Domain: domain}
		for _, role := range roles {
			if err := d.fill(ctx, draft, engine, role); err != nil {
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
		for _, domain := range domainsOf(state, level) {
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
	slices.SortStableFunc(e.Domains, func(x, y DomainFit) int { return cmp.Compare(y.Fits, x.Fits) })
	return e, nil
}

// fill places the members of a role that are wanted.
func (d *DomainFit) fill(ctx context.Context, draft *orbit.Draft, engine *place.Indexed, role *orbit.Role) error {
	spec := *role.Spec
	if d.Level != "" {
		spec.Require = append(slices.Clone(spec.Require), orbit.Predicate{Key: d.Level, Op: "In", Values: []string{d.Domain}})
	}
	shared, err := spec.Share()
	if err != nil {
		return err
	}
	for range wanted(role) {
		if err := ctx.Err(); err != nil {
			return err
		}
		choice, err := engine.Best(draft, shared)
		if err != nil {
			d.Lacks, d.Why = role.Name, err
			return nil //nolint:nilerr // it is the answer
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

// domainsOf returns the values of a label, sorted.
func domainsOf(state *orbit.State, level string) []string {
	seen := map[string]bool{}
	var out []string
	for n := range state.Nodes() {
		if domain, ok := n.Node.Labels[level]; ok && !seen[domain] {
			seen[domain] = true
			out = append(out, domain)
		}
	}
	slices.Sort(out)
	return out
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
	return b.String()
}
