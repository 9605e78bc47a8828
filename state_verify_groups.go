package orbit

import (
	"slices"

	"github.com/google/btree"
)

// This file recounts what a state counts of groups, for [State.Verify].

// countWaiting counts a pending capsule in every group that its spec names.
func (v *verifier) countWaiting(c *Capsule) {
	if !c.Pending() {
		return
	}
	for group := range c.Spec.MemberOf {
		v.waiting[groupWaiting{group: group, spec: c.Spec}]++
	}
	if near := c.Spec.Near.Group; near != "" && !c.Spec.IsIn(near) {
		v.waiting[groupWaiting{group: near, spec: c.Spec}]++
	}
}

// compareGroups compares the counts of co-location groups with the recount: what is counted is there, under the right domain, and all nodes with
// members are counted, on each level that the group is divided by.
func (v *verifier) compareGroups() {
	type division struct{ group, level string }
	counted, nodes := map[division]int{}, map[string]int{}
	for g := range v.groups {
		nodes[g.group]++
		counted[division{group: g.group}] = 0
	}
	v.s.groups.Ascend(func(g groupCount) bool {
		n := v.s.NodeByIndex(int(g.node))
		switch placed := v.groups[groupCount{group: g.group, node: g.node}]; {
		case placed != g.count || n == nil:
			v.fail("group %q counts %d capsules on slot %d; there are %d", g.group, g.count, g.node, placed)
		case g.level != "" && g.domain != n.Node.Labels[g.level]:
			v.fail("group %q counts node %q in %s %q, which it is not in", g.group, n.Node.ID, g.level, g.domain)
		}
		counted[division{g.group, g.level}]++
		return true
	})
	for d, n := range counted {
		if n != nodes[d.group] {
			v.fail("group %q counts %d nodes by level %q; there are %d", d.group, n, d.level, nodes[d.group])
		}
	}
}

// compareWaiting does so for capsules that wait and name a group.
func (v *verifier) compareWaiting() {
	v.s.waiting.Ascend(func(w groupWaiting) bool {
		key := groupWaiting{group: w.group, spec: w.spec}
		if v.waiting[key] != w.count {
			v.fail("group %q counts %d pending capsules of module %q; there are %d", w.group, w.count, w.spec.Module, v.waiting[key])
		}
		delete(v.waiting, key)
		return true
	})
	for w, n := range v.waiting {
		v.fail("group %q has %d pending capsules of module %q, which are not counted", w.group, n, w.spec.Module)
	}
}

// company recounts what the rules of company are judged by.
func (v *verifier) company() {
	want := newCompanyTables()
	add := func(spec *Spec) { want.addRules(spec, 1) }
	for c := range v.s.Capsules() {
		if !c.released {
			add(c.Spec)
		}
	}
	for n := range v.s.Nodes() {
		for r := range v.s.Remains(n.Node.ID) {
			add(r.Spec)
		}
	}
	for n := range v.s.Nodes() {
		for c := range v.s.On(n.Node.ID) {
			c.Spec.companyOf(n.Node, 0, want.ruled, want.add)
		}
		for r := range v.s.Remains(n.Node.ID) {
			r.Spec.companyOf(n.Node, stopping, want.ruled, want.add)
		}
	}
	want.scopes.Ascend(func(u scopeUse) bool {
		v.s.surveyScope(u.companyScope, u.require, func(domain string) { want.addEligible(u.companyScope, domain, 1) })
		return true
	})
	have := &v.s.company
	if !sameTable(have.rules, want.rules, func(a, b groupRules) bool { return slices.Equal(a.byLevel, b.byLevel) }) ||
		!sameTable(have.counts, want.counts, func(a, b companyCount) bool { return a == b }) {
		v.fail("what rules Apart and Even count is not what there is")
	}
	if !sameTable(have.eligible, want.eligible, func(a, b eligibleNodes) bool { return a == b }) ||
		!sameTable(have.scopes, want.scopes, func(a, b scopeUse) bool { return a.companyScope == b.companyScope && a.rules == b.rules }) {
		v.fail("the domains that rules Even count as eligible are not those that there are")
	}
	for _, l := range have.lows {
		if low := have.fewest(&Even{Group: l.group, Level: l.level}, l.companyScope, have.in); low.least != l.least || low.ties != l.ties || low.domains != l.domains {
			v.fail("%d of %d domains have the fewest of group %q by %q, %d, not %d with %d", low.ties, low.domains, l.group, l.level, low.least, l.ties, l.least)
		}
	}
}

// sameTable reports whether two tables have equal entries.
func sameTable[T any](a, b *btree.BTreeG[T], same func(a, b T) bool) bool {
	if a.Len() != b.Len() {
		return false
	}
	equal := true
	a.Ascend(func(x T) bool {
		y, ok := b.Get(x)
		equal = ok && same(x, y)
		return equal
	})
	return equal
}
