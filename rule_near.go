package orbit

// Groups are counted by node and domain, placed and waiting, for planners and for the bet GroupIn. The rule itself is
// judged with the rules of company, by the same counts (company.go nearFault).

// countWaiting counts a pending capsule in every group that its spec names.
func (v *verifier) countWaiting(c *Capsule) {
	if !c.Pending() {
		return
	}
	for group := range c.Spec.MemberOf {
		v.waiting[groupWaiting{group: group, spec: c.Spec}]++
	}
	for group := range c.Spec.nearOthers {
		v.waiting[groupWaiting{group: group, spec: c.Spec}]++
	}
}

// compareNear compares the counts of groups with the recount.
func (v *verifier) compareNear() {
	v.compareGroups()
	v.compareWaiting()
}

// compareGroups compares the counts of co-location groups with the recount, in both directions. Every count belongs to
// members that are there, under the right domain, and every node with members has a count on each level that the group
// is divided by.
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

// compareWaiting compares the counts of pending capsules that name a group with the recount.
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
