package orbit

import "slices"

// This file finds out what the rules of company count after a proposal.

// txCompany is what the rules of company count after a proposal.
type txCompany struct {
	// The tables before the proposal, or its own, after it.
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
	// The fewest members after the proposal that its own rules Even have asked for.
	found []*evenLow
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

// ownCompany returns tables that may be written to: all of them, or only the counts.
func (s *State) ownCompany(all bool) companyTables {
	s.fork.Lock()
	defer s.fork.Unlock()
	if all {
		return s.company.clone()
	}
	own := s.company
	own.counts, own.lows = own.counts.Clone(), nil
	return own
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

// rulesChange calls yield with each spec that has rules, and how many more capsules and remains have them from now on, several of one spec in a row at once.
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

// beginRules counts the rules of a spec that so many more have, and what they are about where that is not counted yet.
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

// endRules counts the rules of a spec that so many have no more, and drops what is counted for nobody.
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
	lows := c.lowsAfter()
	if c.owned {
		s.company = c.companyTables
	}
	for _, m := range c.moved {
		s.company.add(m.key, m.by)
	}
	s.company.lows = lows
}
