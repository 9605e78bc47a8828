package race

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// This file judges by the books of the audit whether placements keep the rules of company ([orbit.Apart], [orbit.Even],
// [orbit.Extra]). It compares all pairs of capsules, and counts members anew each time.

// neighbour is a placed capsule and its node.
type neighbour struct {
	id   orbit.CapsuleID
	spec *orbit.Spec
	on   *auditNode
}

// domainOf returns the domain of a node at a level; empty: none.
func (n *auditNode) domainOf(level string) string {
	if level == orbit.NodeKey {
		return string(n.ID)
	}
	return n.Labels[level]
}

// ruled reports whether work of the race may have rules of company: a job has some, or events of [Liveness] submit the
// work.
func (c *course) ruled() bool {
	return c.live != nil || slices.ContainsFunc(c.Jobs, func(j Job) bool { return len(j.Spec.Apart)+len(j.Spec.Even)+len(j.Spec.Nears)+len(j.Spec.Extras) > 0 })
}

// neighbours returns all placed capsules, each with a copy of its node, which later changes leave as it is; nil if no
// work has rules of company.
func (a *audit) neighbours() (out []neighbour) {
	if !a.ruled() {
		return nil
	}
	nodes := make(map[orbit.NodeID]*auditNode, len(a.nodes))
	for id, n := range a.nodes {
		was := *n
		nodes[id] = &was
	}
	for _, m := range a.capsules {
		if n := nodes[m.node]; n != nil {
			out = append(out, neighbour{m.id, m.spec, n})
		}
	}
	return out
}

// members counts the members of the group of a rule that are in a domain.
func members(all []neighbour, e *orbit.Even, domain string) (sum int) {
	for _, c := range all {
		if c.spec.IsIn(e.Group) && c.on.domainOf(e.Level) == domain {
			sum++
		}
	}
	return sum
}

// judgeCompany checks that the capsules that a commit has placed keep the rules of company, both their own and those of
// others. It is called after the changes are entered; before has the neighbours before them.
func (a *audit) judgeCompany(changes []orbit.Change, before []neighbour, rev orbit.Revision) {
	all := a.neighbours()
	if len(all) == 0 {
		return
	}
	for _, c := range changes {
		do, places := c.Do.(orbit.Place)
		m := a.capsules[do.Capsule]
		if !places || m == nil || a.nodes[m.node] == nil || m.placedAt != rev {
			continue
		}
		self := neighbour{m.id, m.spec, a.nodes[m.node]}
		a.judgeApart(all, self, rev)
		a.judgeNear(all, self, rev)
		a.judgeRemains(self, m, &do, rev)
		a.judgeExtras(all, self, m, &do, rev)
		for i := range m.spec.Even {
			e := &m.spec.Even[i]
			a.judgeEven(all, self, e, members(before, e, self.on.domainOf(e.Level)), rev)
		}
	}
}

// keeps returns the level by which c has to be apart from the other capsule and is not; empty: c breaks no rule of its
// own.
func (c neighbour) keeps(other neighbour) string {
	for _, rule := range c.spec.Apart {
		if d := c.on.domainOf(rule.Level); d != "" && d == other.on.domainOf(rule.Level) && other.spec.IsIn(rule.Group) {
			return rule.Level
		}
	}
	return ""
}

// judgeApart checks a placed capsule against all others, by its rules and by theirs.
func (a *audit) judgeApart(all []neighbour, self neighbour, rev orbit.Revision) {
	for _, rule := range self.spec.Apart {
		if rule.Labelled && self.on.domainOf(rule.Level) == "" {
			a.fail("not apart", "%s is placed on %s at revision %d, which has no label %q, by which it has to be apart from group %q", self.id, self.on.ID, rev, rule.Level, rule.Group)
		}
	}
	for _, other := range all {
		if other.id == self.id {
			continue
		}
		if level := self.keeps(other); level != "" {
			a.fail("not apart", "%s is placed on %s at revision %d, and has to be apart by %s from %s on %s", self.id, self.on.ID, rev, level, other.id, other.on.ID)
		}
		if level := other.keeps(self); level != "" {
			a.fail("not apart", "%s is placed on %s at revision %d, and %s on %s has to be apart from it by %s", self.id, self.on.ID, rev, other.id, other.on.ID, level)
		}
	}
}

// judgeNear checks that each group that a placed capsule has to be near has another member in its domain, or, if the
// capsule is the first member, none in any domain.
func (a *audit) judgeNear(all []neighbour, self neighbour, rev orbit.Revision) {
	for near := range self.spec.AllNear {
		d, here, anywhere := self.on.domainOf(near.Level), 0, 0
		for _, other := range all {
			if at := other.on.domainOf(near.Level); other.id != self.id && at != "" && other.spec.IsIn(near.Group) {
				anywhere++
				if at == d {
					here++
				}
			}
		}
		if d == "" || here == 0 && (anywhere > 0 || !self.spec.IsIn(near.Group)) {
			a.fail("not near", "%s is placed on %s at revision %d, in %s %q, where no other member of group %q is, and %d are elsewhere", self.id, self.on.ID, rev, near.Level, d, near.Group, anywhere)
		}
	}
}

// judgeRemains checks a placed capsule against the capsules that have left their nodes and still run there. A capsule
// that has to be apart from one of them must wait for it to stop, and can do so only on the same node.
func (a *audit) judgeRemains(self neighbour, m *auditCapsule, do *orbit.Place, rev orbit.Revision) {
	for _, n := range a.nodes {
		for _, r := range n.remains {
			rest := neighbour{r.of.id, r.of.spec, n}
			if r.of.id == m.id || self.keeps(rest) == "" && rest.keeps(self) == "" || n == self.on && (do.After || !n.fitsBeside(self.spec)) {
				continue
			}
			a.fail("not apart", "%s is placed on %s at revision %d, and does not wait for %s, which still runs on %s, and from which it has to be apart", self.id, self.on.ID, rev, rest.id, n.ID)
		}
	}
}

// judgeExtras checks that the node has enough of each extra that the newcomer takes. Capsules that have left and still
// run there count if the newcomer does not wait for them to stop.
func (a *audit) judgeExtras(all []neighbour, self neighbour, m *auditCapsule, do *orbit.Place, rev orbit.Revision) {
	for _, x := range self.spec.Extras {
		taken := int64(0)
		for _, other := range all {
			if other.on.ID == self.on.ID {
				taken += amountOf(other.spec.Extras, x.Name)
			}
		}
		for _, r := range self.on.remains {
			if r.of != m && !do.After && self.on.fitsBeside(self.spec) {
				taken += amountOf(r.of.spec.Extras, x.Name)
			}
		}
		if has := amountOf(self.on.Extras, x.Name); taken > has {
			a.fail("lacks an extra", "%s is placed on %s at revision %d, where %d of %q is taken then, of %d", self.id, self.on.ID, rev, taken, x.Name, has)
		}
	}
}

// amountOf returns the sum of the amounts of the extras with a name.
func amountOf(extras []orbit.Extra, name string) (sum int64) {
	for _, x := range extras {
		if x.Name == name {
			sum += x.Amount
		}
	}
	return sum
}

// fitsBeside reports whether everything placed on the node fits beside the capsules that have left and still run there.
// Only the dimensions for which the spec asks count.
func (n *auditNode) fitsBeside(spec *orbit.Spec) bool {
	sum := n.used
	for _, r := range n.remains {
		for d, x := range r.of.spec.Envelope.Reservation {
			sum[d] += x
		}
	}
	for d, want := range spec.Envelope.Reservation {
		if want > 0 && sum[d] > n.Capacity[d] {
			return false
		}
	}
	return true
}

// judgeEven checks one even rule of a placed capsule, by counting the members in all domains. It fails if the placement
// has increased the count of its domain beyond the allowed skew.
func (a *audit) judgeEven(all []neighbour, self neighbour, e *orbit.Even, before int, rev orbit.Revision) {
	d := self.on.domainOf(e.Level)
	if d == "" || len(e.Domains) > 0 && !slices.Contains(e.Domains, d) {
		a.fail("not even", "%s is placed on %s at revision %d, in %s %q, which its rule does not name", self.id, self.on.ID, rev, e.Level, d)
		return
	}
	domains := map[string]bool{}
	for _, n := range a.nodes {
		meets := e.IgnoreRequire || !slices.ContainsFunc(self.spec.Require, func(p orbit.Predicate) bool { return !p.On(&n.Node) })
		if len(e.Domains) > 0 {
			meets = slices.Contains(e.Domains, n.domainOf(e.Level))
		}
		if e.HonorTaints {
			meets = meets && n.State == orbit.Ready && n.Admits(self.spec)
		}
		if meets && n.State != orbit.Lost && n.domainOf(e.Level) != "" {
			domains[n.domainOf(e.Level)] = true
		}
	}
	least := 0
	if len(domains) >= max(1, e.MinDomains) {
		least = len(all)
		for domain := range domains {
			least = min(least, members(all, e, domain))
		}
	}
	if count := members(all, e, d); (count > before || !self.spec.IsIn(e.Group)) && count > least+max(1, e.MaxSkew) {
		a.fail("not even", "%s is placed on %s at revision %d, where %s %q has %d of group %q then, and had %d; of %d domains the fewest has %d, and %d more are allowed",
			self.id, self.on.ID, rev, e.Level, d, count, e.Group, before, len(domains), least, max(1, e.MaxSkew))
	}
}
