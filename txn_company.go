package orbit

import (
	"maps"
	"slices"
	"strings"
)

// This file judges what a proposal places by the rules of company (Apart, Even), by what they count after it.

// txCounts makes a tx the counts that its arrivals are judged by.
type txCounts struct{ *tx }

func (t txCounts) ruled(group string, yield func(string)) { t.company.ruled(group, yield) }
func (t txCounts) in(d companyDomain) kindCounts          { return t.company.in(d) }
func (t txCounts) before(k companyKey) int                { return t.company.before(t.tx, k) }
func (t txCounts) fewest(e *Even, scope companyScope, named bool) lowest {
	c := &t.company
	if !named && len(e.Domains) == 0 {
		for _, l := range c.lows {
			if l.group == e.Group && l.companyScope == scope {
				return l.lowest
			}
		}
	}
	low := c.fewest(e, scope, c.in)
	if !named {
		c.remember(e, scope, low)
	}
	return low
}

// settleCompany judges what the proposal places by the rules of company, on the state after it: several placements are one question. What it adopts
// is not judged, and in a history nothing is.
func (t *tx) settleCompany() error {
	if !t.countCompany() || t.replays {
		return nil
	}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.dirty || !e.arrives || e.adopted || !e.now.Placed() || !e.now.Spec.hasCompany() {
			continue
		}
		a := arrival{spec: e.now.Spec, node: t.nodeAfter(e), counted: true, awaits: t.awaits(e), nodeOf: t.describes}
		if r := a.fault(txCounts{t}); r != nil {
			return t.refuseCompany(e, r)
		}
	}
	return nil
}

// awaits returns the remains that end before a placed capsule begins.
func (t *tx) awaits(e *txCapsule) (out []*Remains) {
	if e.now.Remains != nil {
		out = append(out, e.now.Remains)
	}
	if e.now.Waits {
		for _, r := range t.nodes.find(e.now.Node).restsAfter() {
			if r != e.now.Remains {
				out = append(out, r)
			}
		}
	}
	return out
}

// refuseCompany refuses a proposal for a rule of company. Which of those that the rule counts came last is not looked for, so whatever was committed
// since the view may be the reason. An extra is the node's: only its changes, and those of the specs that ask for it, may be.
func (t *tx) refuseCompany(e *txCapsule, fault *Rejection) error {
	t.at = slices.IndexFunc(t.p.Do, func(c Commitment) bool {
		place, ok := c.(Place)
		return ok && place.Capsule == e.now.ID
	})
	r := *fault
	newest := t.s.rev
	r.Capsule, r.advice = e.now.ID, "choose another domain, or wait until others have left"
	if r.Dimension != "" {
		n := t.nodes.find(e.now.Node)
		newest, r.advice = max(n.newest(), n.asks), "choose another node, or wait until others have left"
	}
	return t.refuse(r, newest, "capsule %q on node %q: %s", e.now.ID, e.now.Node, r.Reason)
}

// settleLows makes of the fewest members that are known before the proposal those after it. It requires that all moves are counted.
func (c *txCompany) settleLows() {
	own := false
	for i, l := range c.lows {
		next := l
		for m := 0; m < len(c.moved) && next != nil; m++ {
			next = next.after(&c.companyTables, c.moved[m].key, c.moved[m].by)
		}
		if next == l {
			continue
		}
		if !own {
			c.lows, own = slices.Clone(c.lows), true
		}
		c.lows[i] = next
	}
	if own {
		c.lows = slices.DeleteFunc(c.lows, func(l *evenLow) bool { return l == nil })
	}
}

// fewDomains is how many domains it is faster to look through than to keep up what is known of them. Tests change it.
var fewDomains = 8

// remember keeps the fewest members that were looked for among many domains, unless there are more than were looked at.
func (c *txCompany) remember(e *Even, scope companyScope, low lowest) {
	if len(e.Domains) > 0 || low.domains <= fewDomains || low.domains > maxEvenDomains {
		return
	}
	from := max(0, len(c.lows)-mostLows+1)
	c.lows = append(slices.Clone(c.lows[from:]), &evenLow{e.Group, scope, low})
}

// KeepsOff reports whether a rule [Apart] of one of two specs by a level forbids that capsules of both are in one domain of that level.
func (s *Spec) KeepsOff(other *Spec, level string) bool {
	off := func(a Apart, from *Spec) bool { return a.Level == level && from.IsIn(a.Group) }
	return slices.ContainsFunc(s.Apart, func(a Apart) bool { return off(a, other) }) || slices.ContainsFunc(other.Apart, func(a Apart) bool { return off(a, s) })
}

// keepsOff reports whether a capsule on a node and a newcomer on another, or the same, may not both be there, because one has to be apart from the other.
func (s *Spec) keepsOff(at *Node, newcomer *Spec, on *Node) bool {
	return slices.ContainsFunc(slices.Concat(s.Apart, newcomer.Apart), func(a Apart) bool {
		d := at.domain(a.Level)
		return d != "" && d == on.domain(a.Level) && s.KeepsOff(newcomer, a.Level)
	})
}

// keptOff returns the newcomers of higher priority than a victim that may not be where they are placed if the victim stays where it is.
func (s *sparing) keptOff(e *txCapsule, priority int32) (out []*txCapsule) {
	if !e.was.Spec.hasCompany() {
		return nil
	}
	at, short := s.t.describes(e.was.Node), s.shortWith(e, priority)
	for _, n := range s.nodes {
		for _, c := range n.newcomers {
			off := func(x string) bool { return n.n.now.Node == at && amountOf(c.of.now.Spec.Extras, x) > 0 }
			if c.priority > priority && (e.was.Spec.keepsOff(at, c.of.now.Spec, n.n.now.Node) || slices.ContainsFunc(short, off)) {
				out = append(out, c.of)
			}
		}
	}
	return out
}

// shortWith returns the extras that a victim takes of which its node does not have enough for it beside newcomers of higher priority.
func (s *sparing) shortWith(e *txCapsule, priority int32) (names []string) {
	if len(e.was.Spec.Extras) == 0 || !s.t.countCompany() {
		return nil
	}
	n := s.node(e.was.Node)
	for _, x := range e.was.Spec.Extras {
		free := amountOf(n.n.now.Node.Extras, x.Name) - int64(s.t.company.in(companyDomain{extraGroup(x.Name), NodeKey, string(e.was.Node)})[membersPlaced])
		for _, c := range n.newcomers {
			free += amountOf(c.of.now.Spec.Extras, x.Name) * int64(btoi(c.priority <= priority))
		}
		for i := range s.t.capsules.entries {
			if o := &s.t.capsules.entries[i]; o.stays && o.was.Node == e.was.Node {
				free -= amountOf(o.was.Spec.Extras, x.Name)
			}
		}
		for _, r := range s.stoppingBeside(n, e) {
			free -= amountOf(r.Spec.Extras, x.Name)
		}
		if x.Amount > free {
			names = append(names, x.Name)
		}
	}
	return names
}

// The fences of the rules of company. What arrives in a domain puts and compares that of the domain, except on its node, whose record it compares
// anyway; what leaves puts that of the level, which rules Even compare, and so do others' nodes (topology). What has the first rule about a group by a
// level puts that of the group, which all its members compare.
const fenceTopology = "topology"

func fenceUp(k companyKey) string          { return fence("up", k.group, k.level, k.domain) }
func fenceDown(group, level string) string { return fence("down", group, level) }
func fenceRules(group string) string       { return fence("rules", group) }
func fenceUnruled(group string) string     { return fence("unruled", group) }

// fence joins the parts of a fence's name, in which there may be slashes.
func fence(parts ...string) string { return strings.Join(parts, "\x00") }

// Fenced reports whether a fence with this name ([Footprint].Fences) can decide anything at this state. A ledger that keeps fences drops others now and
// then, if it makes sure that whoever has judged a proposal without knowing that judges it again.
func (s *State) Fenced(name string) bool {
	if name == fenceTopology {
		return true // one, put again and again
	}
	if parts := strings.Split(name, "\x00"); len(parts) > 1 {
		ruled := false
		s.company.ruled(parts[1], func(string) { ruled = true })
		return ruled
	}
	switch kind, of, _ := strings.Cut(name, "/"); kind {
	case "group", "module":
		return s.coverage(memberSet{kind == "module", of}) != nil
	}
	return s.budgets.Len() > 0
}

// addCompanyFences adds what rules of company are about.
func (t *tx) addCompanyFences(r, w *Footprint) {
	t.countCompany()
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if e.redescribed() && (e.was == nil || e.gone || (e.was.Node.State == Lost) != (e.now.Node.State == Lost) || !maps.Equal(e.was.Node.Labels, e.now.Node.Labels)) {
			w.Fences = append(w.Fences, fenceTopology)
		}
	}
	for _, rule := range t.company.begun {
		w.Fences = append(w.Fences, fenceRules(rule.group))
	}
	for _, rule := range t.company.ended {
		w.Fences = append(w.Fences, fenceUnruled(rule.group))
	}
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.dirty {
			t.addArrival(e, r, w)
			t.addDeparture(e, w)
		}
	}
}

// addArrival adds what a capsule that is placed, or has rules that it had not before, reads and writes.
func (t *tx) addArrival(e *txCapsule, r, w *Footprint) {
	begins := func(spec *Spec) {
		if spec == nil || spec == e.was.alive() {
			return
		}
		for _, a := range spec.Apart {
			r.Fences = append(r.Fences, fenceUnruled(a.Group))
		}
		for i := range spec.Even {
			r.Fences = append(r.Fences, fenceUnruled(spec.Even[i].Group))
		}
	}
	begins(e.now.alive())
	if rest := e.now.Remains; rest != nil && (e.was == nil || e.was.Remains != rest) { // of what was adopted and has ended
		begins(rest.Spec)
	}
	n := t.nodeAfter(e)
	if n == nil || !e.arrives && !e.adopted {
		return
	}
	for group := range e.now.Spec.MemberOf {
		r.Fences = append(r.Fences, fenceRules(group))
	}
	e.now.Spec.companyOf(n, 0, t.company.ruled, func(k companyKey, _ int) {
		if k.level != NodeKey {
			r.Fences = append(r.Fences, fenceUp(k), fenceTopology)
			w.Fences = append(w.Fences, fenceUp(k))
		}
	})
	for i := range e.now.Spec.Even {
		even := &e.now.Spec.Even[i]
		r.Fences = append(r.Fences, fenceDown(even.Group, even.Level), fenceTopology)
	}
}

// addDeparture adds what a capsule that leaves its node writes.
func (t *tx) addDeparture(e *txCapsule, w *Footprint) {
	n := t.nodeBefore(e)
	if n == nil || !e.anew && !moves(e.was, &e.now) {
		return
	}
	for group := range e.was.Spec.MemberOf {
		t.s.company.ruled(group, func(level string) {
			if t.s.company.rule(group, level).even > 0 {
				w.Fences = append(w.Fences, fenceDown(group, level))
			}
		})
	}
}

// From here on the file finds out what the rules of company count after a proposal.

// txCompany is what the rules of company count after a proposal.
type txCompany struct {
	// The tables before the proposal, or its own, after it. Lows are those after it in either case.
	companyTables
	owned bool
	// What the tables before count otherwise after it: few, because each count looks at all of them.
	moved []companyMoved
	// It is known, and differs from what they count before.
	known, differs bool
	// What there was before under keys that are counted only from this proposal on.
	surveyed map[companyKey]int
	// Rules about a group by a level, of a kind of which there was none, and of which there is none any more.
	begun, ended []companyRule
}

// companyMoved says how many more there are of a key.
type companyMoved struct {
	key companyKey
	by  int
}

// mostMoved is how many keys a proposal counts without tables of its own. A placement has one or two for each rule about its groups. Tests change it.
var mostMoved = 16

// in returns how many there are in a domain after the proposal.
func (c *txCompany) in(d companyDomain) kindCounts {
	counts := c.companyTables.in(d)
	for i := range c.moved {
		if m := &c.moved[i]; m.key.in() == d {
			counts[m.key.kind] += m.by
		}
	}
	return counts
}

// move counts more of a key.
func (c *txCompany) move(s *State, k companyKey, by int) {
	i := slices.IndexFunc(c.moved, func(m companyMoved) bool { return m.key == k })
	switch {
	case c.owned:
		c.add(k, by)
	case i >= 0:
		c.moved[i].by += by
	case len(c.moved) < mostMoved:
		c.moved = append(c.moved, companyMoved{k, by})
	default:
		c.own(s, false)
		c.add(k, by)
	}
}

// own takes tables of the proposal's own, all of them or only the counts, into which goes what it has moved.
func (c *txCompany) own(s *State, all bool) {
	c.owned, c.companyTables = true, s.ownCompany(all)
	for _, m := range c.moved {
		c.add(m.key, m.by)
	}
	c.moved = c.moved[:0]
}

// countCompany finds out what the rules of company count after the proposal, and reports whether there are any that it has to do with.
func (t *tx) countCompany() bool {
	c := &t.company
	if c.known {
		return c.differs
	}
	c.known, c.companyTables = true, t.s.company
	if !t.hasCompany() {
		return false
	}
	all := false
	t.rulesChange(func(*Spec, int) { all = true })
	for i := range t.nodes.entries {
		all = all || t.nodes.entries[i].redescribed()
	}
	c.differs = true
	if all {
		c.own(t.s, true)
	}
	t.rulesChange(func(spec *Spec, by int) {
		if by > 0 {
			t.beginRules(spec, by)
		}
	})
	t.companyChange(c.ruled, func(k companyKey, by int) { c.move(t.s, k, by) })
	t.countEligible()
	t.rulesChange(func(spec *Spec, by int) {
		if by < 0 {
			t.endRules(spec, -by)
		}
	})
	c.settleLows()
	return true
}

// hasCompany reports whether the proposal may change what rules of company count.
func (t *tx) hasCompany() bool {
	rules := t.s.company.rules.Len() > 0
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if e.dirty && (e.now.Spec.hasRules() || rules && (e.now.Spec.hasCompany() || e.was != nil && e.was.Spec.hasCompany())) {
			return true
		}
	}
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if rules && (e.stops || e.redescribed()) || e.stops && slices.ContainsFunc(e.restsAfter(), func(r *Remains) bool { return r.Spec.hasRules() }) {
			return true
		}
	}
	return false
}

// redescribed reports whether the node joins, leaves or is described anew.
func (n *txNode) redescribed() bool {
	return n.dirty && (n.was == nil || n.gone || n.was.Node != n.now.Node)
}

// alive returns the spec of a record that has not been released for good, else nil.
func (c *Capsule) alive() *Spec {
	if c == nil || c.released {
		return nil
	}
	return c.Spec
}

// rulesChange calls yield with each spec that has rules and by how many capsules and remains more, or less, have it after the proposal. Several of one spec
// in a row are one call.
func (t *tx) rulesChange(yield func(spec *Spec, by int)) {
	var last *Spec
	sum := 0
	note := func(spec *Spec, by int) {
		if spec == nil || !spec.hasRules() {
			return
		}
		if spec != last || (by > 0) != (sum > 0) {
			if last != nil {
				yield(last, sum)
			}
			last, sum = spec, 0
		}
		sum += by
	}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.dirty {
			continue
		}
		if was, now := e.was.alive(), e.now.alive(); was != now {
			note(was, -1)
			note(now, 1)
		}
	}
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		was, now := e.restsBefore(), e.restsAfter()
		for _, r := range was {
			if !slices.Contains(now, r) {
				note(r.Spec, -1)
			}
		}
		for _, r := range now {
			if !slices.Contains(was, r) {
				note(r.Spec, 1)
			}
		}
	}
	if last != nil {
		yield(last, sum)
	}
}

// restsBefore and restsAfter return the remains on a node.
func (n *txNode) restsBefore() []*Remains {
	if n.was == nil || n.was.remains == nil {
		return nil
	}
	return *n.was.remains
}

func (n *txNode) restsAfter() []*Remains {
	if n.gone || n.now.remains == nil {
		return nil
	}
	return *n.now.remains
}

// beginRules counts the rules of a spec for so many capsules more, and what the rules are about where that is not counted yet.
func (t *tx) beginRules(spec *Spec, more int) {
	c := &t.company
	c.begin(t.s, spec, more, func(group, level string) {
		c.begun = append(c.begun, companyRule{group: group, level: level})
	}, func(k companyKey, count int) {
		if c.surveyed == nil {
			c.surveyed = map[companyKey]int{}
		}
		c.surveyed[k] += count
	})
}

// endRules counts the rules of a spec for so many capsules less, and drops what is counted for nobody any more.
func (t *tx) endRules(spec *Spec, fewer int) {
	c := &t.company
	c.addRules(spec, -fewer)
	end := func(group, level string) {
		r := c.rule(group, level)
		if r.apart == 0 || r.even == 0 {
			c.ended = append(c.ended, companyRule{group: group, level: level})
		}
		if r.apart+r.even == 0 {
			c.forget(group, level)
		}
	}
	for _, a := range spec.Apart {
		end(a.Group, a.Level)
	}
	for i := range spec.Even {
		e := &spec.Even[i]
		end(e.Group, e.Level)
		if u, _ := c.scopes.Get(scopeUse{companyScope: spec.scope(e)}); u.rules == 0 {
			c.forgetScope(spec.scope(e))
		}
	}
}

// companyChange calls add with all that is counted otherwise after the proposal than before.
func (t *tx) companyChange(ruled func(string, func(string)), add func(companyKey, int)) {
	count := func(spec *Spec, n *Node, kind companyKind, by int) {
		spec.companyOf(n, kind, ruled, func(k companyKey, n int) { add(k, by*n) })
	}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.dirty {
			continue
		}
		was, now := t.nodeBefore(e), t.nodeAfter(e)
		if was == now && (now == nil || e.was.Spec == e.now.Spec) {
			continue
		}
		if was != nil {
			count(e.was.Spec, was, 0, -1)
		}
		if now != nil {
			count(e.now.Spec, now, 0, 1)
		}
	}
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if !e.stops && !e.redescribed() {
			continue
		}
		for _, r := range e.restsBefore() {
			count(r.Spec, e.was.Node, stopping, -1)
		}
		for _, r := range e.restsAfter() {
			count(r.Spec, e.now.Node, stopping, 1)
		}
		if e.was == nil || e.gone || !e.redescribed() {
			continue
		}
		for c := range t.s.On(e.now.Node.ID) {
			if x := t.capsules.find(c.ID); x == nil || !x.dirty {
				count(c.Spec, e.was.Node, 0, -1)
				count(c.Spec, e.now.Node, 0, 1)
			}
		}
	}
}

// nodeBefore returns the description of the node on which a capsule was placed before the proposal; nil: on none.
func (t *tx) nodeBefore(e *txCapsule) *Node {
	if e.was == nil || !e.was.Placed() {
		return nil
	}
	return t.s.Node(e.was.Node).Node
}

// nodeAfter returns the description of the node on which a capsule is placed after the proposal; nil: on none.
func (t *tx) nodeAfter(e *txCapsule) *Node {
	if !e.now.Placed() {
		return nil
	}
	return t.describes(e.now.Node)
}

// describes returns the description of a node after the proposal, nil if there is no such node.
func (t *tx) describes(id NodeID) *Node {
	if n := t.nodes.find(id); n != nil {
		if n.gone {
			return nil
		}
		return n.now.Node
	}
	if n := t.s.Node(id); n != nil {
		return n.Node
	}
	return nil
}

// countEligible takes over what the proposal says of nodes into the domains that are eligible.
func (t *tx) countEligible() {
	c := &t.company
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if !e.redescribed() {
			continue
		}
		c.scopes.Ascend(func(u scopeUse) bool {
			var was, now string
			if e.was != nil {
				was = e.was.Node.eligibleIn(u.companyScope, u.require)
			}
			if !e.gone {
				now = e.now.Node.eligibleIn(u.companyScope, u.require)
			}
			if was != now && was != "" {
				c.addEligible(u.companyScope, was, -1)
			}
			if was != now && now != "" {
				c.addEligible(u.companyScope, now, 1)
			}
			return true
		})
	}
}

// before returns how many there were of a key before the proposal.
func (c *txCompany) before(t *tx, k companyKey) int {
	if n, ok := c.surveyed[k]; ok {
		return n
	}
	return t.s.company.in(k.in())[k.kind]
}

// publishCompany takes over what the rules of company count after the proposal. It requires that nothing of it is published yet.
func (s *State) publishCompany(t *tx) {
	c := &t.company
	if !t.countCompany() {
		return
	}
	if c.owned {
		s.company = c.companyTables
	}
	for _, m := range c.moved {
		s.company.add(m.key, m.by)
	}
	s.company.lows = c.lows
}
