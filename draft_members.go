package orbit

import (
	"maps"
	"slices"
)

// This file has a draft count the members of groups by domains, for what is no rule: Spec.Spread and Spec.PreferCompany.

// tally counts the placed members of a group by the domains of a level, as the plan leaves them. Without a group it counts the capsules of each spec that is
// spread over that level by itself.
type tally struct {
	group, level string
	// Position in the view's journal, and the Sync at which it was brought up to the view.
	cursor, syncs uint64
	// What is counted of each node of the view, by its index.
	nodes map[int32]tallied
	// How many there are of each spec in each domain that has some; those of a group are under nil.
	members map[*Spec]map[string]int
	version uint64
}

// tallied is what a node adds to a tally.
type tallied struct {
	domain string
	of     []tallySpec
}

type tallySpec struct {
	spec  *Spec
	count int
}

// keptTallies is how many tallies stay from one Sync to the next though nobody has asked for them in between.
const keptTallies = 64

// spreadsItself reports whether capsules of the spec are spread by how many there are of that spec itself.
func (s *Spec) spreadsItself() bool {
	return s.Spread.Level != "" && s.Group == "" && len(s.Spread.Names) == 0
}

// MembersBy returns how many members of a group are placed in each domain of a level that has some, as the plan leaves them; [NodeKey]: on each node. With an empty
// group it counts the capsules of the spec itself, which must be one that a ledger hands out and whose Spread names that level and nothing else. The map
// follows the plan, must not be written to, and is good until the next Sync. The version is another one whenever a count has changed. The first call for a group and a
// level looks at all its nodes, and without a group at all capsules; the first one after each Sync looks at what has changed.
func (d *Draft) MembersBy(spec *Spec, group, level string) (members map[string]int, version uint64) {
	if d.view == nil {
		return nil, 0
	}
	t := d.tallyOf(group, level)
	if t.syncs != d.syncs {
		t.follow(d)
	}
	if group != "" {
		spec = nil
	}
	return t.of(spec), t.version
}

// tallyOf returns the tally of a group by a level, which may be a new one.
func (d *Draft) tallyOf(group, level string) *tally {
	for _, t := range d.tallies[group] {
		if t.level == level {
			return t
		}
	}
	if d.tallies == nil {
		d.tallies = map[string][]*tally{}
	}
	t := &tally{group: group, level: level}
	d.tallies[group] = append(d.tallies[group], t)
	return t
}

// of returns the counts of a spec, nil for those of the group.
func (t *tally) of(spec *Spec) map[string]int {
	counts := t.members[spec]
	if counts == nil {
		counts = map[string]int{}
		t.members[spec] = counts
	}
	return counts
}

// follow brings the tally up to the draft's view.
func (t *tally) follow(d *Draft) {
	t.syncs = d.syncs
	changed, next, all := d.view.Changed(t.cursor)
	t.cursor = next
	s := d.view.state
	if len(t.members) > 2*len(t.nodes)+keptTallies {
		maps.DeleteFunc(t.members, func(_ *Spec, counts map[string]int) bool { return len(counts) == 0 })
	}
	if !all && (t.group == "" || len(changed) <= len(t.nodes)+64) {
		for _, i := range changed {
			t.recount(s, i)
		}
		return
	}
	t.nodes, t.members = map[int32]tallied{}, map[*Spec]map[string]int{}
	if t.group != "" {
		for n := range s.GroupNodes(t.group) {
			t.recount(s, int32(n.index))
		}
	} else {
		for i := range s.NodeBound() {
			t.recount(s, int32(i))
		}
	}
	for i := range d.steps {
		for k := range d.steps[i].moves {
			t.move(&d.steps[i].moves[k], 1)
		}
	}
}

// recount counts a node of the view anew.
func (t *tally) recount(s *State, i int32) {
	was, now := t.nodes[i], t.look(s, i)
	for _, m := range was.of {
		t.add(m.spec, was.domain, -m.count)
	}
	for _, m := range now.of {
		t.add(m.spec, now.domain, m.count)
	}
	if len(now.of) > 0 {
		t.nodes[i] = now
	} else {
		delete(t.nodes, i)
	}
}

// look counts what is on a node of the view.
func (t *tally) look(s *State, i int32) (out tallied) {
	n := s.NodeByIndex(int(i))
	if n == nil {
		return out
	}
	if out.domain = n.Node.domain(t.level); out.domain == "" {
		return out
	}
	if t.group != "" {
		if g, ok := s.groups.Get(groupCount{group: t.group, node: n.index}); ok {
			out.of = []tallySpec{{nil, g.count}}
		}
		return out
	}
	at := map[*Spec]int{}
	for c := range s.On(n.Node.ID) {
		if !t.counts(c.Spec) {
			continue
		}
		k, known := at[c.Spec]
		if !known {
			k = len(out.of)
			at[c.Spec] = k
			out.of = append(out.of, tallySpec{spec: c.Spec})
		}
		out.of[k].count++
	}
	return out
}

// counts reports whether the tally counts capsules of a spec.
func (t *tally) counts(spec *Spec) bool {
	if t.group == "" {
		return spec.spreadsItself() && spec.Spread.Level == t.level
	}
	return spec.IsIn(t.group)
}

// add changes a count.
func (t *tally) add(spec *Spec, domain string, by int) {
	counts := t.of(spec)
	if counts[domain] += by; counts[domain] == 0 {
		delete(counts, domain)
	}
	t.version++
}

// move counts a move of the plan, or takes it back.
func (t *tally) move(m *companyMove, sign int) {
	domain := m.node.domain(t.level)
	if m.kind != 0 || domain == "" || !t.counts(m.spec) {
		return
	}
	spec := m.spec
	if t.group != "" {
		spec = nil
	}
	t.add(spec, domain, sign*m.by)
}

// tallyMove counts a move in all tallies. One that was not asked for since the last Sync is brought up to the view when it is.
func (d *Draft) tallyMove(m *companyMove, sign int) {
	if len(d.tallies) == 0 {
		return
	}
	count := func(group string) {
		for _, t := range d.tallies[group] {
			t.move(m, sign)
		}
	}
	if m.spec.spreadsItself() {
		count("")
	}
	for group := range m.spec.MemberOf {
		count(group)
	}
}

// dropTallies forgets what nobody has asked for since the Sync before, if there are many.
func (d *Draft) dropTallies() {
	if len(d.tallies) <= keptTallies {
		return
	}
	maps.DeleteFunc(d.tallies, func(_ string, of []*tally) bool {
		return !slices.ContainsFunc(of, func(t *tally) bool { return t.syncs+1 >= d.syncs })
	})
}
