package orbit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// IdleDomains says which domains keep rules Even of the spec from admitting so many more capsules of it together
// elsewhere, although no node in them takes a capsule of the spec, because all are cordoned or tainted: "rule Even of
// group web counts zone c, where no node takes such work; with HonorTaints it leaves out what is cordoned or tainted".
// Another way to let the rule leave them out is to name the other domains in Even.Domains. It returns "" if there are
// none. It looks at each node.
func (s *State) IdleDomains(spec *Spec, more int) string {
	return s.idle(spec, more, func(e *Even, domains map[string]*evenDomain) {
		for n, members := range s.GroupNodes(e.Group) {
			if d := domains[n.Node.domain(e.Level)]; d != nil {
				d.members += members
			}
		}
	})
}

// idleBy is IdleDomains by the counts of a plan.
func (s *State) idleBy(v *verdicts) string {
	return s.idle(v.spec, 1, func(e *Even, domains map[string]*evenDomain) {
		for name, d := range domains {
			d.members = v.in(companyDomain{e.Group, e.Level, name})[membersPlaced]
		}
	})
}

// idle is IdleDomains with the members that count fills in.
func (s *State) idle(spec *Spec, more int, count func(*Even, map[string]*evenDomain)) string {
	if spec == nil {
		return ""
	}
	var texts []string
	for i := range spec.Even {
		e := &spec.Even[i]
		domains := s.evenDomains(spec, e)
		count(e, domains)
		if idle := e.idle(domains, more); len(idle) > 0 {
			text := fmt.Sprintf("rule Even of group %s counts %s %s, where no node takes such work", quoteWord(e.Group), levelName(e.Level), joinWords(idle))
			if !e.HonorTaints && slices.ContainsFunc(idle, func(domain string) bool { return !domains[domain].open }) {
				text += "; with HonorTaints it leaves out what is cordoned or tainted"
			}
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}

// evenDomain is a domain that is eligible for a rule Even: its members, whether a node there is Ready and has no taint
// that keeps the spec off (open), and whether one takes the spec when it has room.
type evenDomain struct {
	members     int
	open, takes bool
}

// idle returns those of the eligible domains, in order, that take nothing and have so few members that the others may not
// have so many more together.
func (e *Even) idle(domains map[string]*evenDomain, more int) (idle []string) {
	if len(domains) < e.MinDomains {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(domains)) {
		if d := domains[name]; !d.takes {
			open, left := 0, 0
			for _, other := range domains {
				if other.takes {
					open++
					left += max(0, d.members+max(e.MaxSkew, 1)-other.members)
				}
			}
			if open > 0 && left < more {
				idle = append(idle, name)
			}
		}
	}
	return idle
}

// evenReason returns the reason of a refusal by a rule of company. If no node of the domain that has the fewest members
// for a rule Even takes the spec, it adds IdleDomains. That is rare, and else it stops at the first node that does.
func (s *State) evenReason(r *Rejection, spec *Spec, more int) string {
	level, fewest := r.level, r.fewest
	r.level, r.fewest = "", ""
	if fewest == "" {
		return r.Reason
	}
	for n := range s.Nodes() {
		if n.Node.domain(level) == fewest && n.Node.Schedulable() && n.meets(spec) {
			return r.Reason
		}
	}
	if idle := s.IdleDomains(spec, more); idle != "" {
		return r.Reason + "; " + idle
	}
	return r.Reason
}

// evenDomains returns the domains that are eligible for a rule Even of the spec, without their members.
func (s *State) evenDomains(spec *Spec, e *Even) map[string]*evenDomain {
	domains, must := map[string]*evenDomain{}, spec.eligibility(e)
	for n := range s.Nodes() {
		name := n.Node.eligibleIn(e.Level, must)
		if name == "" || len(e.Domains) > 0 && !slices.Contains(e.Domains, name) {
			continue
		}
		d := domains[name]
		if d == nil {
			d = &evenDomain{}
			domains[name] = d
		}
		d.open = d.open || n.Node.Schedulable() && n.Node.Admits(spec)
		d.takes = d.takes || n.Node.Schedulable() && n.meets(spec)
	}
	return domains
}
