package orbit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Apart is an anti-affinity rule between a capsule and a group. It holds in both directions: the capsule is not placed
// in a domain that has a member of Group, and no member of Group is placed in a domain that has a capsule with this
// rule. A capsule that has left its node counts as placed there until it has stopped ([Remains]). It does not count
// against a newcomer that waits for it to stop.
//
// If every member of a group has the rule {Group: own group, Level: NodeKey}, each node takes at most one member. The
// rule also models a resource that a node has once, such as a host port: give every capsule that uses the port
// Groups: {"port/8080"} and Apart: {{Group: "port/8080", Level: NodeKey}}. No two of these capsules then share a node.
//
// The ledger enforces the rule on placements: it refuses a placement that breaks it. It does not refuse an [Adopt], nor
// a change of a node's labels that brings capsules into a domain: both report facts.
type Apart struct {
	// Group is the group whose members are kept away.
	Group string `json:"group"`
	// Level is the label key of the domains; [NodeKey]: each node is a domain. A node without the label is in no domain,
	// so the rule forbids nothing there, as in Kubernetes.
	Level string `json:"level"`
	// Labelled makes the rule strict: a node without the label takes no capsule that has the rule.
	Labelled bool `json:"labelled,omitempty"`
}

// alike reports whether two rules keep members of the same group away by the same level.
func (a Apart) alike(b Apart) bool { return a.Group == b.Group && a.Level == b.Level }

// Even spreads the members of a group over the domains of a level. A capsule with this rule may be placed in a domain
// only if the domain then has at most MaxSkew members more than the eligible domain with the fewest, counted after the
// whole proposal. Capsules that have left their node do not count.
//
// The ledger enforces the rule on placements only. Departures and lost nodes can leave a group uneven; [State.Skewed]
// reports such groups, and moves repair them. A move of a member is never refused for a domain that has no more members
// after the proposal than before it, even while the group is still uneven.
type Even struct {
	// Group is the group whose members are counted. The capsule itself counts if it is a member; if it is not, it goes
	// only where the members are within MaxSkew already.
	Group string `json:"group"`
	// Level is the label key of the domains; [NodeKey]: each node is a domain. A node without the label takes no
	// capsule with this rule.
	Level string `json:"level"`
	// MaxSkew is how many members more a domain may have than the eligible domain with the fewest; 0 means 1.
	MaxSkew int `json:"maxSkew,omitempty"`
	// MinDomains is the number of eligible domains that the rule expects. While there are fewer, the rule compares with
	// 0 members instead of with the eligible domain that has the fewest.
	MinDomains int `json:"minDomains,omitempty"`
	// Domains lists the only domains in which the capsule may be placed, at most 1,024. A listed domain is eligible
	// while it has a node that is not Lost. List the domains if a new domain with little free capacity must not keep
	// the others from growing. Empty: a domain is eligible if it has a node that is not Lost and meets Require;
	// cordoned and tainted nodes count too.
	Domains []string `json:"domains,omitempty"`
	// HonorTaints leaves out nodes that are cordoned, or that have a taint which forbids the placement and which the
	// capsule does not tolerate: they make no domain eligible, not even one of Domains. It is nodeTaintsPolicy: Honor of
	// Kubernetes, where Ignore is the default, as here.
	HonorTaints bool `json:"honorTaints,omitempty"`
	// IgnoreRequire lets a node that does not meet Require make its domain eligible, too. It is nodeAffinityPolicy:
	// Ignore of Kubernetes, where Honor is the default, as here.
	IgnoreRequire bool `json:"ignoreRequire,omitempty"`
}

// Skew reports how unevenly a group with a rule [Even] is spread.
type Skew struct {
	// Spec is a spec that has the rule; at least one capsule of this spec is placed.
	Spec *Spec
	// Even is the rule.
	Even Even
	// Domain is the domain that has the most members, or too many.
	Domain string
	// Members is how many members of the group are placed in Domain.
	Members int
	// Fewest is the fewest members in an eligible domain, 0 while there are fewer domains than MinDomains.
	Fewest int
}

// maxRules is the most rules of one kind that a spec can have, maxEvenDomains the most domains that a rule Even can list,
// and mostSkew the largest MaxSkew and MinDomains.
const (
	maxRules       = 16
	maxEvenDomains = 1024
	mostSkew       = 1 << 24
)

// companyKey identifies one count: how many capsules of a kind, with respect to a group, are in a domain.
type companyKey struct {
	group, level string
	kind         companyKind
	domain       string
}

// companyKind says which capsules are counted. Members are in the group; keepers have a rule Apart that names it.
// Either kind is counted twice: the capsules that are placed, and those that have left their node and still run there.
type companyKind uint8

const (
	membersPlaced companyKind = iota
	keepersPlaced
	membersStopping
	keepersStopping
	companyKinds = iota
)

// stopping is the offset from the kind of placed capsules to the same kind of capsules that have left and still run.
const stopping = membersStopping - membersPlaced

// companyDomain is a domain in which a group is counted.
type companyDomain struct{ group, level, domain string }

// kindCounts holds the number of capsules of each kind in one domain.
type kindCounts [companyKinds]int

// anyDomain begins the name of a pseudo-level by which all nodes that are in a domain of a level are in one domain,
// inSome. No real level begins with it, because it is not valid UTF-8.
const (
	anyDomain = 0xff
	inSome    = "*"
)

// anyDomainOf returns the pseudo-level by which the members in all domains of a level are counted together.
func anyDomainOf(level string) string { return string([]byte{anyDomain}) + level }

// in returns the domain that the key counts in.
func (k *companyKey) in() companyDomain { return companyDomain{k.group, k.level, k.domain} }

// less orders by group, level and domain, so that the domains of a group on one level are neighbours.
func (a companyDomain) less(b companyDomain) bool {
	switch {
	case a.group != b.group:
		return a.group < b.group
	case a.level != b.level:
		return a.level < b.level
	}
	return a.domain < b.domain
}

// companyScope determines which domains are eligible for a rule Even: the level, and what a node must meet, as a text of
// the spec's requirements and, for HonorTaints, of its tolerations. Rules with the same scope share the eligible domains.
type companyScope struct{ level, require, tolerate string }

func (s companyScope) less(o companyScope) bool {
	return cmp.Or(cmp.Compare(s.level, o.level), cmp.Compare(s.require, o.require), cmp.Compare(s.tolerate, o.tolerate)) < 0
}

// eligibility is what a node must meet to make its domain eligible for a rule Even, apart from not being Lost.
type eligibility struct {
	require []Predicate
	// The rule has HonorTaints: the node must be Ready, and the tolerations must cover its taints that forbid placements.
	honors   bool
	tolerate []Toleration
}

// by reports whether a node that is not Lost makes its domain eligible.
func (y eligibility) by(n *Node) bool {
	return n.meetsAll(y.require) && (!y.honors || n.Schedulable() && n.Admits(&Spec{Tolerate: y.tolerate}))
}

// companyCounts gives the counts by which the rules of company are judged: those after the proposal or the plan.
type companyCounts interface {
	// ruled calls yield with each level by which there is a rule about the group.
	ruled(group string, yield func(level string))
	// in returns the counts of a domain.
	in(d companyDomain) kindCounts
	// before returns the count of the key before the proposal or the plan.
	before(k companyKey) int
	// fewest returns the eligible domain with the fewest members. Without named, the answer may come from a cache: its
	// numbers hold, but the domain that it names may have more members by now. With named, the domain is right too.
	fewest(e *Even, scope companyScope, named bool) lowest
}

// arrival is one question to the rules of company: may a capsule of this spec be placed on this node?
type arrival struct {
	spec *Spec
	node *Node
	// Judge only rules of this level; empty: of all levels.
	only string
	// Leave Rejection.Reason empty, because the caller reads only the advice.
	brief bool
	// The counts include the capsule itself already.
	counted bool
	// The remains that end before the capsule begins: those of the capsule itself, and those on its node if it waits
	// for them. They do not count against the capsule.
	awaits []*Remains
	nodeOf func(NodeID) *Node
	// A cache of the last domain that was looked up and of its counts, because several rules ask about one domain.
	domain companyDomain
	counts kindCounts
}

// in returns the counts of a domain.
func (a *arrival) in(d companyDomain, at companyCounts) kindCounts {
	if a.domain != d {
		a.domain, a.counts = d, at.in(d)
	}
	return a.counts
}

// fault returns a rejection that names the first rule which forbids the arrival, nil if none does. The caller sets the
// kind of the rejection. The advice completes the sentence "nodes ...".
func (a *arrival) fault(at companyCounts) (r *Rejection) {
	for i := range a.spec.Apart {
		if rule := a.spec.Apart[i]; r == nil && (a.only == "" || a.only == rule.Level) {
			r = a.apartFault(at, rule, membersPlaced)
		}
	}
	for group := range a.spec.MemberOf { // rules Apart of the capsules that are already in the domain
		at.ruled(group, func(level string) {
			if r == nil && (a.only == "" || a.only == level) {
				r = a.apartFault(at, Apart{Group: group, Level: level}, keepersPlaced)
			}
		})
	}
	for i := range a.spec.Even {
		if e := &a.spec.Even[i]; r == nil && (a.only == "" || a.only == e.Level) {
			r = a.evenFault(at, e)
		}
	}
	for near, planned := range a.spec.nears { // that of Spec.Near planners look up by themselves, see Draft.NearDomains
		if r == nil && (a.only == "" || a.only == near.Level && !planned) {
			r = a.nearFault(at, near)
		}
	}
	for i := range a.spec.Extras {
		if r == nil && (a.only == "" || a.only == NodeKey) {
			r = a.extraFault(at, &a.spec.Extras[i])
		}
	}
	return r
}

// apartFault judges the arrival by one rule Apart. With kind membersPlaced it is a rule of the newcomer, which the
// members in the domain break. With keepersPlaced it is a rule of capsules in the domain, which the newcomer, a member,
// breaks.
func (a *arrival) apartFault(at companyCounts, rule Apart, kind companyKind) *Rejection {
	domain, own := a.node.domain(rule.Level), kind == membersPlaced
	switch {
	case domain == "" && own && rule.Labelled:
		return a.unlabelled(rule.Group, rule.Level)
	case domain == "":
		return nil
	}
	counts := a.in(companyDomain{rule.Group, rule.Level, domain}, at)
	there := counts[kind] + counts[kind+stopping]
	if a.counted && a.spec.isOf(rule, kind) { // the newcomer itself is no reason to refuse it
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
	self := a.spec.IsIn(e.Group)
	there := a.in(k.in(), at)[membersPlaced] + btoi(self && !a.counted)
	low := at.fewest(e, a.spec.scope(e), false)
	if low.domains < e.MinDomains {
		low.least = 0
	}
	most := low.least + max(e.MaxSkew, 1)
	if there <= most || self && there <= at.before(k) {
		return nil
	}
	r := &Rejection{Node: a.node.ID, Group: e.Group, Domain: k.domain, Want: int64(there), Free: int64(most)}
	r.advice = "are in a " + levelName(e.Level) + " that has its share of group " + quoteWord(e.Group)
	if a.brief {
		return r
	}
	var why string
	switch {
	case low.domains == 0:
		why = "no domain is eligible"
	case low.domains < e.MinDomains:
		why = fmt.Sprintf("there are %d domains of the %d that there have to be, so 0 is the fewest", low.domains, e.MinDomains)
	default:
		r.level, r.fewest = e.Level, at.fewest(e, a.spec.scope(e), true).domain
		why = fmt.Sprintf("%q has the fewest, %d", r.fewest, low.least)
	}
	has := "would have"
	if !self {
		has = "has"
	}
	r.Reason = fmt.Sprintf("%s %q %s %d of group %q; %s, and at most %d more are allowed", levelName(e.Level), k.domain, has, there, e.Group, why, max(e.MaxSkew, 1))
	return r
}

// nearFault judges one rule Near of the newcomer.
func (a *arrival) nearFault(at companyCounts, rule Near) *Rejection {
	here, anywhere := rule.in(a.node)
	if here.domain == "" {
		return a.unlabelled(rule.Group, rule.Level)
	}
	self := a.spec.IsIn(rule.Group)
	if a.in(here, at)[membersPlaced] > btoi(self && a.counted) || self && at.in(anywhere)[membersPlaced] <= btoi(a.counted) {
		return nil
	}
	return &Rejection{Node: a.node.ID, Group: rule.Group, Domain: here.domain, advice: "are in no " + levelName(rule.Level) + " of group " + quoteWord(rule.Group),
		Reason: a.reason("%s %q has no member of group %q, near which it has to be", levelName(rule.Level), here.domain, rule.Group)}
}

// reason formats the reason of a rejection. With brief it is empty, because formatting takes long and the caller does
// not show it.
func (a *arrival) reason(format string, args ...any) string {
	if a.brief {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// unlabelled rejects the node because it has no label for the level of a rule.
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

// lowest describes the fewest members in an eligible domain: domain is a domain with that number, least is the number,
// ties is how many eligible domains have it, and domains is how many are eligible. If no domain is eligible, domain is
// empty and domains is 0.
type lowest struct {
	domain               string
	least, ties, domains int
}

// Extra is an amount of a named resource that is not one of the eight dimensions of [Resources], such as licences,
// addresses or huge pages. A node offers amounts ([Node.Extras]) and a capsule takes them ([Spec.Extras]). The ledger
// refuses a placement after which the capsules on a node would take more of a name than the node has; a node without
// the name has 0. As for [Apart], a capsule that has left the node and still runs there ([Remains]) counts, but not
// against a newcomer that waits for it to stop. The ledger does not refuse an [Adopt], nor a node whose amount falls
// below what its capsules take: both report facts ([State.Overcommitted]).
//
// Use Resources instead for what most capsules need. Scores, holds, nominations and bets do not consider extras, no plan
// changes those of a placed capsule, and no planner evicts for them.
type Extra struct {
	// Name identifies the resource.
	Name string `json:"name"`
	// Amount is how much of the resource a node has, or a capsule takes. A capsule takes at least 1. The largest amount
	// is 549,755,813,887 (127 where an int has 32 bits).
	Amount int64 `json:"amount"`
}

// mostExtra is the largest amount of an extra. It is chosen so that the sum over 16,777,216 capsules does not overflow
// an int.
const mostExtra = math.MaxInt >> 24

// extraFaults lists everything that is wrong with a list of extras. Least is the smallest amount that is allowed.
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

// sortedExtras returns a copy of the extras, ordered by name.
func sortedExtras(extras []Extra) []Extra {
	extras = cloned(extras)
	slices.SortStableFunc(extras, func(a, b Extra) int { return cmp.Compare(a.Name, b.Name) })
	return extras
}

// amountOf returns the amount of the extra with this name, 0 if the list does not have it.
func amountOf(extras []Extra, name string) int64 {
	for i := range extras {
		if extras[i].Name == name {
			return extras[i].Amount
		}
	}
	return 0
}

// extraGroup returns the name of the pseudo-group under which the company counts keep an extra, per node. The name is
// not valid UTF-8, so no real group has it.
func extraGroup(name string) string { return "\xff" + name }

// extraFault returns a rejection if the node has too little of an extra for the arrival, otherwise nil.
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
