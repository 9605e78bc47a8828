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
	"github.com/orbitsched/orbit/internal/seats"
	"github.com/orbitsched/orbit/place"
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
	// Lacks says which quota is missing for the members that have to be placed, together, as [Explanation].Lacks does for one capsule.
	// Empty: the quotas admit them, or they name no queue that there is.
	Lacks []string
	// Raise are the queues of these members, each with as much more Nominal as is missing: with PutQueue of all of them the quotas admit
	// the members together. If it is one queue, they do not with less. Empty: nothing is missing, or so much fits in no queue.
	Raise []orbit.Queue
	// Specs have, for each spec of the members that are not done, the nodes on which one more member fits, and the
	// reasons against the others, as [Count] returns them.
	Specs []*Explanation
	// Failing lists, as [Explanation].Failing does, the nodes on which a member fits and most starts have failed lately.
	Failing []string
	// Fixes are alternative changes; after each single one the gang fits. Those that leave the gang's request as it is
	// come first. Empty if the gang fits now, or if no change helps.
	Fixes []GangFix

	// Whose specs the Specs are, for the text.
	whose    []string
	seatings int
	// How many members are placed, and how many are left in all.
	placed, left int
	// raises says what Raise changes.
	raises []string
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
// in this state. It searches for their seats as nav.Gang does, so a gang fits exactly where a nav.Gang places what it
// needs: that is exact, with the exceptions that nav.Gang names. For a gang that runs below its minimum it considers only
// the domains in which the gang runs. The cost is a search for seats in each domain.
//
// If the gang fits nowhere, ExplainGang searches for changes that would help ([GangFix]): in the eight domains in which
// the most members fit, for one change at a time, and at most one fix of each kind. If a member of the gang runs or has
// ended, no fix changes the gang's request, because then the whole gang would have to be submitted anew. Fixes are
// minimal for gangs of one role without rules Apart, Even or Near and without parts of devices. For other gangs the
// order in which changes are tried matters, and a smaller change may help too. The cost is bounded: ExplainGang tries at
// most 256 placements of the whole gang for each kind of change.
func ExplainGang(ctx context.Context, state *orbit.State, id orbit.GangID) (*GangExplanation, error) {
	if state == nil {
		return nil, errors.New("whatif: state is nil; pass the snapshot of a ledger")
	}
	g := state.Gang(id)
	if g == nil {
		return nil, fmt.Errorf("whatif: there is no gang %q in the state; submit it, or ask about one that is there", id)
	}
	e := &GangExplanation{Gang: g.Gang, Broken: g.Shortfall(), Wants: g.LacksInAll()}
	index, err := indexOf(ctx, state)
	if err != nil {
		return nil, err
	}
	a := &gangAsker{ctx: ctx, state: state, gang: g, index: index}
	a.needs = needsOf(state, g, g.Gang)
	for _, p := range a.domains() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e.Domains = append(e.Domains, a.fit(&p, e.Wants))
	}
	e.Lacks, e.Raise, e.raises = lacking(state, a.asked()...)
	for i, r := range g.Gang.Roles {
		if r.Spec.Class != orbit.GangClass {
			e.raises = append(e.raises, fmt.Sprintf("role %q has the class %v: nav.Gang places only specs of the class Gang", r.Name, r.Spec.Class))
		}
		e.left += g.Left(i)
	}
	e.placed = g.Total()
	if err := e.countSpecs(state, g); err != nil {
		return nil, err
	}
	slices.SortStableFunc(e.Domains, func(x, y DomainFit) int { return cmp.Compare(y.Fits, x.Fits) })
	if !slices.ContainsFunc(e.Domains, func(d DomainFit) bool { return d.Why == nil }) {
		e.Fixes = a.fixes(e.Domains)
		e.seatings = a.seatings
	}
	return e, ctx.Err()
}

// asked returns the members that have to be placed, by spec.
func (a *gangAsker) asked() (all []asked) {
	for _, c := range a.needs.Members() {
		i := slices.IndexFunc(all, func(k asked) bool { return k.spec == c.Spec })
		if i < 0 {
			i, all = len(all), append(all, asked{c.Spec, 0})
		}
		all[i].n++
	}
	return all
}

// domains returns the domains that the gang can use, by level and name. If members of the gang run, only those are left
// in which they run.
func (a *gangAsker) domains() (out []gangPlace) {
	var on []orbit.NodeID
	for c := range a.state.Members(a.gang.Gang.ID) {
		if c.Placed() {
			on = append(on, c.Node)
		}
	}
	for _, level := range a.gang.Gang.Levels {
		t := a.index.Table(level)
		only, from := t.Shared(a.state, on), len(out)
		for i := range t.Domains {
			if d := &t.Domains[i]; len(d.Nodes) > 0 && (len(on) == 0 || int32(i) == only) {
				out = append(out, gangPlace{level: level, domain: d.Name, nodes: d.Nodes})
			}
		}
		slices.SortFunc(out[from:], func(a, b gangPlace) int { return strings.Compare(a.domain, b.domain) })
	}
	if len(a.gang.Gang.Levels) == 0 || a.gang.Gang.Loose {
		p := gangPlace{}
		p.nodes = p.in(&a.index.Draft, nil)
		out = append(out, p)
	}
	return out
}

// fit returns how many of the needed members fit in a domain, and why the next one does not.
func (a *gangAsker) fit(in *gangPlace, wants int) (d DomainFit) {
	d.Level, d.Domain = in.level, in.domain
	draft := &a.index.Draft
	start := draft.Checkpoint()
	defer draft.Rollback(start)
	p, done := a.packer(a.index, &a.needs)
	defer done()
	if d.Why = p.TooMany(a.gang.Gang.ID); d.Why != nil && a.gang.Total() == 0 {
		d.Lacks = a.gang.Gang.Roles[0].Name
		return d
	}
	d.Why = nil
	if a.needs.Rest() > 0 { // the most members need not be those that the roles need
		if f, _ := p.Seat(func() *seats.Fit { return p.Just(in.nodes) }); f != nil {
			d.Fits = wants
			return d
		}
	}
	p = p.WithLeast(seats.NoneOf)
	f, _ := p.Seat(func() *seats.Fit { return p.On(in.nodes) })
	if f == nil {
		f = p.None()
	}
	if d.Fits = max(0, wants-a.needs.Missing(f)); d.Fits < wants {
		ask, next := f.Needy()
		d.Lacks, d.Why = a.roleOf(next), a.misses(in, p, ask, next)
	}
	return d
}

// misses returns why a domain does not take one more member of an ask, as the draft is.
func (a *gangAsker) misses(in *gangPlace, p *seats.Packer, ask int, next *orbit.Capsule) error {
	if next == nil {
		return errors.New("too few members wait")
	}
	spec := *next.Spec
	if in.level != "" {
		spec.Require = append(slices.Clone(spec.Require), orbit.Predicate{Key: in.level, Op: "In", Values: []string{in.domain}})
	}
	if shared, err := spec.Share(); err == nil {
		a.index.Draft.LookAs(next) // it lets the draft use capacity that is nominated for the gang
		defer a.index.Draft.LookAs(nil)
		if _, err := (&place.Indexed{}).Best(&a.index.Draft, shared); err != nil {
			return err
		}
	}
	return p.Lacks(in.nodes, ask)
}

// roleOf returns the name of a member's role; "" for nil.
func (a *gangAsker) roleOf(c *orbit.Capsule) string {
	for _, r := range a.gang.Gang.Roles {
		if c != nil && slices.Contains(r.Members, c.ID) {
			return r.Name
		}
	}
	return ""
}

// countSpecs counts the nodes for each spec of the gang's members. The gang's own nomination is no reason against them.
func (e *GangExplanation) countSpecs(state *orbit.State, g *orbit.GangState) error {
	failing := map[orbit.NodeID]failingNode{}
	for c := range state.Members(g.Gang.ID) {
		if c.Released() || slices.ContainsFunc(e.Specs, func(known *Explanation) bool { return known.Spec == c.Spec }) {
			continue
		}
		a, err := newAsker(state, c.Spec)
		if err != nil {
			return err
		}
		a.own = g.Nomination
		counts, _ := a.count()
		for _, n := range a.failing {
			failing[n.id] = n
		}
		e.Specs, e.whose = append(e.Specs, counts), append(e.whose, whose(g.Gang, c))
	}
	e.Failing = failingNodes(slices.Collect(maps.Values(failing))).texts()
	return nil
}

// whose says in words whose spec that of a member is: that of its role, or its own.
func whose(g *orbit.Gang, c *orbit.Capsule) string {
	role := g.Roles[slices.IndexFunc(g.Roles, func(r orbit.Role) bool { return slices.Contains(r.Members, c.ID) })]
	if role.Spec == c.Spec {
		return fmt.Sprintf("one member of role %q", role.Name)
	}
	return fmt.Sprintf("capsule %q of role %q", c.ID, role.Name)
}

// wanted returns how many members of a role must be placed when the gang starts: its minimum, by default all.
func wanted(r *orbit.Role) int {
	if r.Min > 0 {
		return r.Min
	}
	return len(r.Members)
}

// String prints the explanation for an operator.
func (e *GangExplanation) String() string {
	var b strings.Builder
	if e.Wants == 0 {
		return fmt.Sprintf("gang %q needs no more members: %d of %d are placed", e.Gang.ID, e.placed, e.left)
	}
	if e.Broken == nil {
		fmt.Fprintf(&b, "gang %q needs %d members placed at once", e.Gang.ID, e.Wants)
	} else {
		var lacks []string
		for _, role := range slices.Sorted(maps.Keys(e.Broken)) {
			lacks = append(lacks, seats.Lacking(e.Broken[role], role))
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
	for _, text := range append(slices.Clip(e.Lacks), e.raises...) {
		b.WriteString("\n" + text)
	}
	for i, counts := range e.Specs {
		alone := *counts
		alone.Lacks, alone.raises = nil, "" // said for all members together
		alone.Failing = nil                 // they are listed once for all
		fmt.Fprintf(&b, "\n%s: %s", e.whose[i], strings.ReplaceAll(alone.String(), "\n", "\n  "))
	}
	listFailing(&b, e.Failing)
	if len(e.Fixes) > 0 {
		b.WriteString("\nit would fit if you")
		list(&b, e.Fixes, func(f GangFix) string { return "* " + f.String() })
	}
	return b.String()
}
