package nav

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// GangNoFit says why a gang, or the members that a running gang lacks, cannot be placed: for each level, how far the
// best domain gets. It counts what is free now. TooLarge tells a gang that only has to wait from one of which a member is
// too large for any node; one that is too large for any domain reads like the first. It does not wrap an [orbit.NoFit], which would park
// other gangs of the same spec too.
type GangNoFit struct {
	// Gang is the gang that cannot be placed.
	Gang orbit.GangID
	// Waiting and Running are how many members wait and how many run.
	Waiting, Running int
	// Least is the smallest number of members that may be placed now.
	Least int
	// Shortfall is how many members each role lacks, by its name, and under "*" how many further ones of any role, if the gang is
	// broken; nil: it is not.
	Shortfall map[string]int
	// Levels has one entry for each level that was tried.
	Levels []DomainFit
	// TooLarge says that a waiting member would fit on no node even if all were empty, and what the largest node has
	// ([orbit.State.TooLarge]); "" if each would.
	TooLarge string
	// Idle says which domains take no work and keep rules Even from admitting the members elsewhere
	// ([orbit.State.IdleDomains]); "" if none do.
	Idle string
	// Quota says what queues lack for the fewest members that the gang may start with, as [orbit.Quotas.Why] does; "" if
	// nothing.
	Quota string
	// NominatedUntil is when the gang's nomination ends unless it is renewed; zero if the gang has none.
	NominatedUntil time.Time
	// Inexact reports that the search was cut short: more members may fit than the entries of Levels say.
	Inexact bool
}

// DomainFit is how far the best domain of a level got.
type DomainFit struct {
	// Level is the label key of the domains; empty if all nodes are one domain.
	Level string
	// Domains is the number of domains of the level.
	Domains int
	// Best is the domain that takes the most members; empty if the level has no domain.
	Best string
	// Fits is how many of the Of waiting members fit the best domain.
	Fits, Of int
	// Lacks counts the nodes of the best domain by the reason why they do not take one more member, worded as in
	// orbit.NoFit.Reasons.
	Lacks map[string]int
}

// Error reads like `gang "g": best rack r17 fits 6 of 8 (3 nodes lack cpu, 1 is unschedulable); no node is in a
// block`. For a broken gang it begins like `gang "g": runs below its minimum, lacks 1 of role "w": 3 run, 1 wait: `.
func (e *GangNoFit) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "gang %q: ", e.Gang)
	for i, role := range slices.Sorted(maps.Keys(e.Shortfall)) {
		fmt.Fprintf(&b, "%s %s", []string{"runs below its minimum, lacks", ","}[min(i, 1)], seats.Lacking(e.Shortfall[role], role))
	}
	if len(e.Shortfall) > 0 {
		b.WriteString(": ")
	}
	if e.Running > 0 {
		fmt.Fprintf(&b, "%d run, %d wait: ", e.Running, e.Waiting)
	}
	for i := range e.Levels {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(e.Levels[i].text())
	}
	if len(e.Levels) == 0 {
		b.WriteString("those that run share no domain of its levels")
	}
	for _, more := range []string{e.TooLarge, e.Idle, e.Quota} {
		if more != "" {
			b.WriteString("; " + more)
		}
	}
	if e.Running == 0 && e.Least < e.Waiting {
		fmt.Fprintf(&b, "; it needs at least %d", e.Least)
	}
	if !e.NominatedUntil.IsZero() {
		fmt.Fprintf(&b, "; room is nominated for it until %s", e.NominatedUntil.UTC().Format(time.RFC3339))
	}
	if e.Inexact {
		b.WriteString("; more may fit: the search was cut short")
	}
	return b.String()
}

// text returns the part of the text for one level.
func (f *DomainFit) text() string {
	if f.Domains == 0 {
		if f.Level == "" {
			return "there are no nodes"
		}
		return "no node is in a " + plain(f.Level)
	}
	where := "anywhere"
	if f.Level != "" {
		where = "best " + plain(f.Level) + " " + plain(f.Best)
	}
	text := fmt.Sprintf("%s fits %d of %d", where, f.Fits, f.Of)
	reasons := noFitOf(f.Lacks).Texts()
	if len(reasons) == 0 {
		return text
	}
	count, why, _ := strings.Cut(reasons[0], " ")
	nodes := " nodes "
	if count == "1" {
		nodes = " node "
	}
	reasons[0] = count + nodes + why
	if more := len(reasons) - mostReasons; more > 0 {
		reasons = append(reasons[:mostReasons:mostReasons], fmt.Sprintf("and %d reasons more", more))
	}
	return text + " (" + strings.Join(reasons, ", ") + ")"
}

// mostReasons is how many reasons a text spells out.
const mostReasons = 3

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/:-]+$`)

// plain quotes a string unless it is a plain word.
func plain(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// fewDomains is how many domains of a level a diagnosis tries to fill.
const fewDomains = 4

// diagnose finds the best domain of each level.
func (m *pendingGang) diagnose(p *seats.Packer, levels []*seats.Table) *GangNoFit {
	e := &GangNoFit{Gang: m.id, Waiting: m.total, Running: len(m.running), Least: p.Least(), Shortfall: m.state.Shortfall()}
	free := p.WithLeast(seats.NoneOf)
	for _, t := range levels {
		fit, exact := m.bestOf(free, t)
		e.Levels = append(e.Levels, fit)
		e.Inexact = e.Inexact || !exact
	}
	e.Inexact = e.Inexact || p.Steps.Spent
	e.TooLarge, e.Idle, e.Quota = tooLarge(p), idle(p), quotaOf(p)
	return e
}

// idle says which domains keep rules Even of the asks from admitting the fewest members that the gang may start with.
func idle(p *seats.Packer) string {
	var texts []string
	for a := range p.Asks {
		text := p.Index.Draft.View().State().IdleDomains(p.Asks[a].Spec, max(p.Asks[a].Least, 1))
		if text != "" && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}

// quotaOf says what queues lack for the fewest members of each ask together.
func quotaOf(p *seats.Packer) string {
	var quotas orbit.Quotas
	var texts []string
	quotas.Begin(p.Index.Draft.View().State())
	quotas.Follow(&p.Index.Draft)
	for a := range p.Asks {
		spec, n := p.Asks[a].Spec, max(p.Asks[a].Least, 1)
		texts = append(texts, quotas.Why(spec, spec.Devices.Model(), n)...)
		quotas.Charge(spec, spec.Devices.Model(), n)
	}
	return strings.Join(texts, ", ")
}

// tooLarge says why the members of the first ask for which that holds fit on no node even if all are empty.
func tooLarge(p *seats.Packer) (why string) {
	for a := range p.Asks {
		fits := slices.ContainsFunc(p.Asks[a].Shape.Counts, func(n seats.MemberCount) bool { return n > 0 })
		if why == "" && !fits { // a look at all nodes is needed only if none takes a member now
			why = p.Index.Draft.View().State().TooLarge(p.Asks[a].Spec)
		}
	}
	return why
}

// bestOf returns how far the best domain of a level gets; for a running gang, how far the domain gets in which it runs.
// exact is false if more members may fit in a domain that was not tried.
func (m *pendingGang) bestOf(p *seats.Packer, t *seats.Table) (f DomainFit, exact bool) {
	f, only := DomainFit{Level: t.Level(), Domains: t.Live, Of: seats.Wanted(p.Asks)}, int32(-1)
	if !m.fresh() {
		only = m.domain(t, p.Index.Draft.View().State())
	}
	best, exact := p.Fullest(t, fewDomains, func(c *seats.Candidate) bool { return only < 0 || c.Number == only })
	if best != nil {
		f.Best, f.Fits = best.Domain, best.Total
		f.Lacks = lacks(p, t.Domains[t.Number[best.Domain]].Nodes, best)
	}
	return f, exact
}

// lacks counts the nodes of a domain by the reason why they do not take one more member beside those that have seats.
func lacks(p *seats.Packer, nodes []int32, f *seats.Fit) map[string]int {
	ask, next := f.Next()
	d := &p.Index.Draft
	start := d.Checkpoint()
	defer d.Rollback(start)
	if next == nil || p.Index.Place(p.Asks, f.Seating) != nil {
		return nil
	}
	return p.Lacks(nodes, ask).Reasons()
}

// noFitOf returns a NoFit of nodes that are already counted by reason.
func noFitOf(reasons map[string]int) *orbit.NoFit {
	counts := make(map[orbit.Misfit]int, len(reasons))
	for why, n := range reasons {
		counts[orbit.Misfit{Why: why}] = n
	}
	return new(orbit.Draft).NoFit(&orbit.Spec{}, counts)
}
