package orbit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Apart keeps a capsule out of the domains in which members of a group are placed: where a member of Group is, a capsule with this rule is not
// placed, and where a capsule with this rule is, no member of Group is placed. A capsule that has left its node counts as placed
// there until it has stopped ([Remains]), except for a newcomer that waits for that. A group of which every member has {Group: own group, Level: NodeKey} has at
// most one member on each node. A thing of which a node has one of each name, such as a host port, is said so: every capsule that uses the port has
// Groups: {"port/8080"} and Apart: {{Group: "port/8080", Level: NodeKey}}, and no two of these share a node, whatever sets they are of.
//
// The ledger keeps the rule: it refuses a placement that breaks it. What is adopted, and what gets into a domain because its node gets another label,
// is a fact and refused by nothing.
type Apart struct {
	// Group is the group whose members are kept away.
	Group string `json:"group"`
	// Level is the label key of the domains; [NodeKey]: each node is a domain. A node without the label takes no capsule with this rule.
	Level string `json:"level"`
}

// Even spreads the members of a group over the domains of a level: a capsule with this rule is placed in a domain only if that has, after the
// proposal, at most MaxSkew members more than the eligible domain with the fewest. Capsules that have left their node do not count.
//
// The ledger keeps the rule: it refuses a placement that breaks it, and judges nothing else by it. What departures and lost nodes leave uneven is in
// [State.Skewed]; a move repairs it, because a proposal is taken that puts no more members into a domain than it had.
type Even struct {
	// Group is the group whose members are counted; it must be one of the groups of the capsule itself.
	Group string `json:"group"`
	// Level is the label key of the domains; [NodeKey]: each node is a domain. A node without the label takes no capsule with this rule.
	Level string `json:"level"`
	// MaxSkew is how many members more a domain may have than the one with the fewest; 0 means 1.
	MaxSkew int `json:"maxSkew,omitempty"`
	// MinDomains is how many eligible domains there have to be: while there are fewer, the fewest members of a domain are taken to be 0.
	MinDomains int `json:"minDomains,omitempty"`
	// Domains are the eligible domains, as far as they have a node that is not Lost; in other domains the capsule is not placed. Declare them if a new
	// domain with little room must not keep the others from growing. Empty: all domains are eligible that have a node which is not Lost and meets Require,
	// cordoned and tainted ones too. There can be 1,024 of them.
	Domains []string `json:"domains,omitempty"`
}

// Skew is how even a rule [Even] has left a group.
type Skew struct {
	// Spec is a spec with the rule of which a capsule is placed.
	Spec *Spec
	// Even is the rule.
	Even Even
	// Domain is the domain that has the most, or too many.
	Domain string
	// Members is how many members of the group are placed in it.
	Members int
	// Fewest is the fewest members in an eligible domain, 0 while there are fewer domains than MinDomains.
	Fewest int
}

// The most rules of a kind that a spec can have, and the most eligible domains of a level.
const (
	maxRules       = 16
	maxEvenDomains = 1024
	mostSkew       = 1 << 24
)

// companyFaults says what is wrong with the rules of company in a spec.
func (s *Spec) companyFaults() (out []string) {
	if len(s.Apart) > maxRules || len(s.Even) > maxRules || len(s.PreferCompany) > maxRules {
		return []string{fmt.Sprintf("%d rules Apart, %d rules Even and %d wishes for company; there can be %d of each", len(s.Apart), len(s.Even), len(s.PreferCompany), maxRules)}
	}
	out = append(out, extraFaults(s.Extras, 1)...)
	for _, c := range s.PreferCompany {
		if c.Group == "" || c.Level == "" || !(math.Abs(c.Weight) <= maxWeight) { // NaN is not
			out = append(out, fmt.Sprintf("company of group %.100q by level %.100q with weight %v; it needs a group, a level, and a weight within ±%g", c.Group, c.Level, c.Weight, maxWeight))
		}
	}
	for _, a := range s.Apart {
		if a.Group == "" || a.Level == "" {
			out = append(out, fmt.Sprintf("apart from group %.100q by level %.100q; it needs both", a.Group, a.Level))
		}
	}
	for _, e := range s.Even {
		if e.Level == "" || !s.IsIn(e.Group) {
			out = append(out, fmt.Sprintf("even by level %.100q among group %.100q; it needs a level, and a group that the capsule is in", e.Level, e.Group))
		}
		if e.MaxSkew < 0 || e.MaxSkew > mostSkew || e.MinDomains < 0 || e.MinDomains > maxEvenDomains || len(e.Domains) > maxEvenDomains || slices.Contains(e.Domains, "") {
			out = append(out, fmt.Sprintf("even among group %.100q with MaxSkew %d, MinDomains %d and %d domains; they must be from 0 to %d, %d and %d, and each domain have a name",
				e.Group, e.MaxSkew, e.MinDomains, len(e.Domains), mostSkew, maxEvenDomains, maxEvenDomains))
		}
	}
	return out
}

// ownCompany gives a copy of a spec rules of its own, in canonical form.
func (s *Spec) ownCompany() {
	s.Apart = slices.Clone(s.Apart)
	slices.SortFunc(s.Apart, func(a, b Apart) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Level, b.Level)) })
	s.Apart = slices.Compact(s.Apart)
	s.Even = slices.Clone(s.Even)
	for i := range s.Even {
		s.Even[i].MaxSkew = cmp.Or(s.Even[i].MaxSkew, 1)
		s.Even[i].Domains = sorted(s.Even[i].Domains)
	}
	slices.SortStableFunc(s.Even, func(a, b Even) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Level, b.Level)) })
	s.Extras = sortedExtras(s.Extras)
	s.PreferCompany = slices.Clone(s.PreferCompany)
	slices.SortFunc(s.PreferCompany, func(a, b Company) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Level, b.Level), cmp.Compare(a.Weight, b.Weight))
	})
}

// companyWords returns the text in the rules of company.
func (s *Spec) companyWords() (out []string) {
	for _, a := range s.Apart {
		out = append(out, a.Group, a.Level)
	}
	for _, e := range s.Even {
		out = append(append(out, e.Group, e.Level), e.Domains...)
	}
	for _, c := range s.PreferCompany {
		out = append(out, c.Group, c.Level)
	}
	for _, x := range s.Extras {
		out = append(out, x.Name)
	}
	return out
}

// hasCompany reports whether rules of company may be about a capsule: it has some itself, or is in a group.
func (s *Spec) hasCompany() bool { return s.hasRules() || s.Group != "" || len(s.Groups) > 0 }

// hasRules reports whether a spec has rules of company, among which are the extras that it takes.
func (s *Spec) hasRules() bool { return len(s.Apart) > 0 || len(s.Even) > 0 || len(s.Extras) > 0 }

// domain returns the domain of a node on a level, empty if it is in none.
func (n *Node) domain(level string) string {
	if level == NodeKey {
		return string(n.ID)
	}
	return n.Labels[level]
}

// companyKey names those in a domain that a rule of company may count.
type companyKey struct {
	group, level string
	kind         companyKind
	domain       string
}

// companyKind says who is counted: members of the group, or capsules that have to be Apart from it (keepers); those that are placed, or
// those that have left and still run.
type companyKind uint8

const (
	membersPlaced companyKind = iota
	keepersPlaced
	membersStopping
	keepersStopping
	companyKinds = iota
)

// stopping is added to a kind of what is placed for the same of what still runs.
const stopping = membersStopping - membersPlaced

// companyDomain is a domain in which a group is counted.
type companyDomain struct{ group, level, domain string }

// kindCounts says how many there are of each kind in a domain.
type kindCounts [companyKinds]int

// in returns the domain of the key.
func (k *companyKey) in() companyDomain { return companyDomain{k.group, k.level, k.domain} }

// less orders the domains of a group by a level one after the other.
func (a companyDomain) less(b companyDomain) bool {
	switch {
	case a.group != b.group:
		return a.group < b.group
	case a.level != b.level:
		return a.level < b.level
	}
	return a.domain < b.domain
}

// companyScope is what decides which domains are eligible: the level, and the requirements of the spec as text.
type companyScope struct{ level, require string }

// scope returns the scope of a rule of the spec.
func (s *Spec) scope(e *Even) companyScope {
	if len(e.Domains) > 0 || len(s.Require) == 0 {
		return companyScope{level: e.Level}
	}
	return companyScope{e.Level, s.requirements()}
}

// companyCounts is what the rules of company are judged by: the counts after what is planned.
type companyCounts interface {
	// ruled calls yield with each level of a rule about the group.
	ruled(group string, yield func(level string))
	// in returns how many there are in a domain.
	in(d companyDomain) kindCounts
	// before returns how many members were placed before.
	before(k companyKey) int
	// fewest looks for the eligible domain with the fewest members. Unless named, the number may come from what was found before, and the domain may have
	// more members by now.
	fewest(e *Even, scope companyScope, named bool) lowest
}

// arrival is a capsule that a proposal places, or may place, on a node.
type arrival struct {
	spec *Spec
	node *Node
	// The only level by which it is judged; empty: all.
	only string
	// The caller reads the advice and no reason, so none is written.
	brief bool
	// It is among the members that are counted.
	counted bool
	// What still runs and stops before it begins: the remains of its own, and those on its node if it waits for them.
	awaits []*Remains
	nodeOf func(NodeID) *Node
	// The domain that was looked up last, and how many there are in it: several rules ask about one domain.
	domain companyDomain
	counts kindCounts
}

// in returns how many there are in a domain.
func (a *arrival) in(d companyDomain, at companyCounts) kindCounts {
	if a.domain != d {
		a.domain, a.counts = d, at.in(d)
	}
	return a.counts
}

// fault returns which rule forbids the arrival, nil if none does. The rejection has no kind yet; its advice completes "nodes ...".
func (a *arrival) fault(at companyCounts) (r *Rejection) {
	for i := range a.spec.Apart {
		if rule := a.spec.Apart[i]; r == nil && (a.only == "" || a.only == rule.Level) {
			r = a.apartFault(at, rule, membersPlaced)
		}
	}
	for group := range a.spec.MemberOf { // who is there keeps it away
		at.ruled(group, func(level string) {
			if r == nil && (a.only == "" || a.only == level) {
				r = a.apartFault(at, Apart{group, level}, keepersPlaced)
			}
		})
	}
	for i := range a.spec.Even {
		if e := &a.spec.Even[i]; r == nil && (a.only == "" || a.only == e.Level) {
			r = a.evenFault(at, e)
		}
	}
	for i := range a.spec.Extras {
		if r == nil && (a.only == "" || a.only == NodeKey) {
			r = a.extraFault(at, &a.spec.Extras[i])
		}
	}
	return r
}

// apartFault judges one rule Apart: that of those who are there already, or one of the newcomer, against the members that are there.
func (a *arrival) apartFault(at companyCounts, rule Apart, kind companyKind) *Rejection {
	domain, own := a.node.domain(rule.Level), kind == membersPlaced
	switch {
	case domain == "" && own:
		return a.unlabelled(rule.Group, rule.Level)
	case domain == "":
		return nil
	}
	counts := a.in(companyDomain{rule.Group, rule.Level, domain}, at)
	there := counts[kind] + counts[kind+stopping]
	if a.counted && a.spec.isOf(rule, kind) { // it is not kept away from itself
		there--
	}
	for _, rest := range a.awaits {
		if n := a.nodeOf(rest.Node); n != nil && n.domain(rule.Level) == domain && rest.Spec.isOf(rule, kind) {
			there--
		}
	}
	if there <= 0 {
		return nil
	}
	r := &Rejection{Node: a.node.ID, Group: rule.Group, Domain: domain, Want: int64(there)}
	if own {
		r.Reason = a.reason("%s %q has %d of group %q, from which it has to be apart", levelName(rule.Level), domain, there, rule.Group)
		r.advice = "have, or share their " + levelName(rule.Level) + " with, members of group " + quoteWord(rule.Group) + ", from which it has to be apart"
	} else {
		r.Reason = a.reason("%s %q has %d that have to be apart from group %q", levelName(rule.Level), domain, there, rule.Group)
		r.advice = "have, or share their " + levelName(rule.Level) + " with, capsules that have to be apart from group " + quoteWord(rule.Group)
	}
	return r
}

// isOf reports whether capsules of the spec are counted under a kind for a rule: as members of its group, or because they have that rule.
func (s *Spec) isOf(rule Apart, kind companyKind) bool {
	if kind == membersPlaced {
		return s.IsIn(rule.Group)
	}
	return slices.Contains(s.Apart, rule)
}

// evenFault judges one rule Even of the newcomer.
func (a *arrival) evenFault(at companyCounts, e *Even) *Rejection {
	k := companyKey{e.Group, e.Level, membersPlaced, a.node.domain(e.Level)}
	if k.domain == "" {
		return a.unlabelled(e.Group, e.Level)
	}
	if len(e.Domains) > 0 && !slices.Contains(e.Domains, k.domain) {
		return &Rejection{Node: a.node.ID, Group: e.Group, Domain: k.domain, advice: "are in no " + levelName(e.Level) + " that its rule Even names",
			Reason: fmt.Sprintf("%s %q is none of the domains among which group %q is to be even", levelName(e.Level), k.domain, e.Group)}
	}
	there := a.in(k.in(), at)[membersPlaced] + btoi(!a.counted)
	low := at.fewest(e, a.spec.scope(e), false)
	if low.domains < e.MinDomains {
		low.least = 0
	}
	most := low.least + max(e.MaxSkew, 1)
	if there <= most && low.domains <= maxEvenDomains || there <= at.before(k) {
		return nil
	}
	r := &Rejection{Node: a.node.ID, Group: e.Group, Domain: k.domain, Want: int64(there), Free: int64(most)}
	r.advice = "are in a " + levelName(e.Level) + " that has its share of group " + quoteWord(e.Group)
	if a.brief {
		return r
	}
	var why string
	switch {
	case low.domains > maxEvenDomains:
		r.Want, r.Free = 0, 0
		r.Reason = fmt.Sprintf("there are more than %d domains by %s among which group %q would have to be even", maxEvenDomains, levelName(e.Level), e.Group)
		return r
	case low.domains == 0:
		why = "no domain is eligible"
	case low.domains < e.MinDomains:
		why = fmt.Sprintf("there are %d domains of the %d that there have to be, so 0 is the fewest", low.domains, e.MinDomains)
	default:
		why = fmt.Sprintf("%q has the fewest, %d", at.fewest(e, a.spec.scope(e), true).domain, low.least)
	}
	r.Reason = fmt.Sprintf("%s %q would have %d of group %q; %s, and at most %d more are allowed", levelName(e.Level), k.domain, there, e.Group, why, max(e.MaxSkew, 1))
	return r
}

// reason formats the reason of a rejection. With brief it is empty, because formatting takes long and the caller does not show it.
func (a *arrival) reason(format string, args ...any) string {
	if a.brief {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// unlabelled refuses a node that is in no domain of the level of a rule.
func (a *arrival) unlabelled(group, level string) *Rejection {
	return &Rejection{Node: a.node.ID, Group: group, advice: "have no label " + quoteWord(level) + ", by which its rules go",
		Reason: a.reason("node %q has no label %q, by which a rule about group %q goes", a.node.ID, level, group)}
}

// levelName names a level in a text.
func levelName(level string) string {
	if level == NodeKey {
		return "node"
	}
	return level
}

// lowest is an eligible domain with the fewest members, how many these are, how many domains have so few, and how many are eligible, but at most
// maxEvenDomains+1. None is: no domain.
type lowest struct {
	domain               string
	least, ties, domains int
}

// Extra is an amount of something that is none of the eight dimensions of [Resources]: of licences, addresses or huge pages, say. A node has it
// ([Node.Extras]), and a capsule takes it there ([Spec.Extras]). A ledger refuses a placement after which the node would have given more of a name than it has;
// a node without the name has 0. As for [Apart], what has left the node and still runs there ([Remains]) counts, except for a newcomer that waits for that. What is
// adopted, or is there when a node's amount falls, is a fact and refused by nothing ([State.Overcommitted]).
//
// Put what most capsules ask for into Resources instead: scores, holds, nominations and bets do not see extras, a Resize cannot change them, and no
// planner evicts for them.
type Extra struct {
	// Name says what it is.
	Name string `json:"name"`
	// Amount is how much of it a node has, or a capsule takes: 1 at least for a capsule, 549,755,813,887 at most (127 where an int has 32 bits).
	Amount int64 `json:"amount"`
}

// mostExtra is the largest amount: what 16,777,216 capsules take of it is an int.
const mostExtra = math.MaxInt >> 24

// extraFaults says what is wrong with a list of extras. Least is the smallest amount that is allowed.
func extraFaults(extras []Extra, least int64) (out []string) {
	if len(extras) > maxRules {
		return []string{fmt.Sprintf("%d extras; there can be %d", len(extras), maxRules)}
	}
	names := map[string]bool{}
	for _, x := range extras {
		if x.Name == "" || names[x.Name] || x.Amount < least || x.Amount > mostExtra {
			out = append(out, fmt.Sprintf("extra %.100q with amount %d; each needs a name of its own, and an amount from %d to %d", x.Name, x.Amount, least, mostExtra))
		}
		names[x.Name] = true
	}
	return out
}

// sortedExtras returns a copy in the order of the names.
func sortedExtras(extras []Extra) []Extra {
	extras = slices.Clone(extras)
	slices.SortStableFunc(extras, func(a, b Extra) int { return cmp.Compare(a.Name, b.Name) })
	return extras
}

// amountOf returns how much there is of a name.
func amountOf(extras []Extra, name string) int64 {
	for i := range extras {
		if extras[i].Name == name {
			return extras[i].Amount
		}
	}
	return 0
}

// extraGroup is the group under which an extra is counted, by nodes. No group has such a name, which is not valid UTF-8.
func extraGroup(name string) string { return "\xff" + name }

// extraFault judges whether the node has enough of an extra.
func (a *arrival) extraFault(at companyCounts, x *Extra) *Rejection {
	taken := at.in(companyDomain{extraGroup(x.Name), NodeKey, string(a.node.ID)})
	free := amountOf(a.node.Extras, x.Name) - int64(taken[membersPlaced]) - int64(taken[membersStopping])
	if a.counted {
		free += x.Amount
	}
	for _, rest := range a.awaits {
		if rest.Node == a.node.ID {
			free += amountOf(rest.Spec.Extras, x.Name)
		}
	}
	if x.Amount <= free {
		return nil
	}
	return &Rejection{Node: a.node.ID, Dimension: x.Name, Want: x.Amount, Free: max(0, free), advice: "lack " + quoteWord(x.Name),
		Reason: a.reason("node %q has too little of %q", a.node.ID, x.Name)}
}
