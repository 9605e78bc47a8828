package orbit

import (
	"maps"
	"slices"
)

// A draft keeps the rules of company (Apart, Even). It judges them on the view together with all steps of the plan,
// also those of earlier proposals. If the ledger refuses an earlier proposal, the proposals that rest on it are refused
// too, as conflicts.

// draftCompany holds the counts of the rules of company as the plan leaves them.
type draftCompany struct {
	companyTables
	// The tables are the draft's own copy, not the view's. Only then may they be written to, and only then do they
	// count rules of specs that the plan submits or is asked about.
	owned bool
	begun map[*Spec]bool
	// The moves of the step that is judged now: they are counted, but not in steps yet.
	pending []companyMove
	// Version changes whenever a rule may have opened or closed a domain of more than one node, and when rules are
	// added. Epoch changes when rules are added, and with each Sync.
	version, epoch uint64
	// The cached verdicts by spec, used for shared specs only ([Spec.Shared]); and for each group those verdicts that a
	// change of its counts may outdate.
	verdicts map[*Spec]*verdicts
	about    map[string][]*verdicts
}

// moved counts the moves of a step and keeps them in the step. If they make an earlier placement of the same proposal
// break a rule, moved undoes them and returns an error, because the ledger judges all steps of a proposal together.
func (d *Draft) moved(s *draftStep, c CapsuleID, moves ...companyMove) error {
	if len(moves) == 0 || !moves[0].spec.hasCompany() && !moves[0].spec.spreadsItself() {
		return nil
	}
	s.moves = d.moves.Slice(len(moves))
	copy(s.moves, moves)
	for i := range s.moves {
		if !s.moves[i].spec.Shared() { // it may name a group twice, and the caller may change it
			s.moves[i].spec = s.moves[i].spec.clone()
		}
		d.countMove(&s.moves[i], 1)
	}
	d.rules.pending = s.moves
	r := d.disturbed(moves[0].spec, moves[0].by > 0)
	if d.rules.pending = nil; r == nil {
		return nil
	}
	for i := range s.moves {
		d.countMove(&s.moves[i], -1)
	}
	r.Capsule, r.advice, r.Reason = c, "", "an earlier step would break a rule: "+r.Reason
	return d.refused(r)
}

// disturbed judges the earlier placements of the proposal in the making again, after a capsule of the spec by has been
// placed (more) or taken off its node. Only their rules Even and Near about groups of that spec can be affected.
// Placements of the same spec keep their rules Even if more is set: the new placement has been judged by the same rules.
func (d *Draft) disturbed(by *Spec, more bool) *Rejection {
	if !d.rules.rules.Made() || d.rules.rules.Len() == 0 {
		return nil
	}
	for i := len(d.steps) - 1; i >= 0 && d.steps[i].open == d.open && d.steps[i].log >= d.open; i-- {
		s := &d.steps[i]
		if s.spec == nil {
			continue
		}
		a := arrival{spec: s.spec, node: s.node.Node, counted: true}
		for e := range s.spec.Even {
			if !by.IsIn(s.spec.Even[e].Group) || more && s.spec == by {
				continue
			}
			if r := a.evenFault(draftCounts{d}, &s.spec.Even[e]); r != nil {
				return r
			}
		}
		for near := range s.spec.AllNear {
			if !by.IsIn(near.Group) {
				continue
			}
			if r := a.nearFault(draftCounts{d}, near); r != nil {
				return r
			}
		}
	}
	return nil
}

// leaving returns the moves of a capsule that leaves node n. If it has begun to run there, it counts as stopping from
// then on.
func (c *Capsule) leaving(n *Node) []companyMove {
	moves := []companyMove{{c.Spec, n, 0, -1}}
	if c.Begun && n.State != Lost {
		moves = append(moves, companyMove{c.Spec, n, stopping, 1})
	}
	return moves
}

// countMove counts a move with sign 1, and takes it back with sign -1. Cached verdicts on the groups concerned are
// updated.
func (d *Draft) countMove(m *companyMove, sign int) {
	c := &d.rules
	if !c.rules.Made() {
		c.companyTables = d.view.state.company
	}
	if _, known := c.verdicts[m.spec]; !known && m.spec.hasRules() {
		d.beginRules(m.spec)
	}
	d.tallyMove(m, sign)
	if c.rules.Len() == 0 {
		return
	}
	m.spec.companyOf(m.node, m.kind, c.ruled, func(k companyKey, n int) {
		d.ownRules()
		c.add(k, sign*m.by*n)
		if r := c.rule(k.group, k.level); k.level != NodeKey || r.even+r.near > 0 {
			c.version++
			for _, v := range c.about[k.group] {
				v.update(k, sign*m.by)
			}
		}
	})
}

// ownRules copies the view's tables on the first write.
func (d *Draft) ownRules() {
	if !d.rules.owned {
		d.rules.companyTables, d.rules.owned = d.view.state.ownCompany(true), true
	}
}

// beginRules adds the rules of a spec to the draft's tables, with the moves of the plan so far, if the tables lack one
// of them. The spec may be one that the view does not hold, such as one that the plan submits.
func (d *Draft) beginRules(spec *Spec) {
	c := &d.rules
	known := func(group, level string, even bool) bool {
		r := c.rule(group, level)
		return even && r.even > 0 || !even && r.apart > 0
	}
	near := true
	spec.nearCounts(func(group, level string) { near = near && c.rule(group, level).near > 0 })
	knows := near && !slices.ContainsFunc(spec.Apart, func(a Apart) bool { return !known(a.Group, a.Level, false) })
	knows = knows && !slices.ContainsFunc(spec.Extras, func(x Extra) bool { return !known(extraGroup(x.Name), NodeKey, false) })
	for i := range spec.Even {
		e := &spec.Even[i]
		u, _ := c.scopes.Get(scopeUse{companyScope: spec.scope(e)})
		knows = knows && known(e.Group, e.Level, true) && u.rules > 0
	}
	if knows || c.begun[spec] && spec.Shared() {
		return
	}
	d.ownRules()
	if c.begun == nil {
		c.begun = map[*Spec]bool{}
	}
	c.begun[spec] = true
	c.version++
	c.epoch += 1 << 32
	clear(c.verdicts)
	clear(c.about)
	was := companyTables{rules: c.rules.Clone()}
	counted := func(group, level string) bool {
		r := was.rule(group, level)
		return !r.ended()
	}
	c.begin(d.view.state, spec, 1, func(companyKey, int) {})
	fresh := func(group string, yield func(level string)) {
		c.ruled(group, func(level string) {
			if !counted(group, level) {
				yield(level)
			}
		})
	}
	for i := range d.steps {
		for _, m := range d.steps[i].moves {
			m.spec.companyOf(m.node, m.kind, fresh, func(k companyKey, n int) {
				if !counted(k.group, k.level) {
					c.add(k, m.by*n)
				}
			})
		}
	}
}

// draftCounts lets arrival.fault and verdicts read a draft's counts: it implements companyCounts.
type draftCounts struct{ *Draft }

func (d draftCounts) ruled(group string, yield func(string)) { d.rules.ruled(group, yield) }
func (d draftCounts) in(c companyDomain) kindCounts          { return d.rules.in(c) }
func (d draftCounts) fewest(e *Even, scope companyScope, _ bool) lowest {
	return d.rules.fewest(e, scope, d.rules.in)
}

// before returns the count of a key as it was before the steps of the proposal in the making.
func (d draftCounts) before(k companyKey) int {
	n := d.rules.in(k.in())[k.kind] - counted(d.rules.pending, k, d.rules.ruled)
	for i := len(d.steps) - 1; i >= 0 && d.steps[i].open == d.open && d.steps[i].log >= d.open; i-- {
		n -= counted(d.steps[i].moves, k, d.rules.ruled)
	}
	return n
}

// verdictsOn returns which domains the rules of company close to a spec, as the plan leaves the nodes. Nil: no rule
// concerns the spec.
func (d *Draft) verdictsOn(spec *Spec) *verdicts {
	if d.view == nil || !spec.hasCompany() {
		return nil
	}
	c := &d.rules
	if v, known := c.verdicts[spec]; known && spec.Shared() {
		return v
	}
	if !c.rules.Made() {
		c.companyTables = d.view.state.company
	}
	if spec.hasRules() {
		d.beginRules(spec)
	}
	if c.rules.Len() == 0 {
		return nil
	}
	v := c.verdictsOn(spec, draftCounts{d})
	if c.verdicts == nil {
		c.verdicts, c.about = map[*Spec]*verdicts{}, map[string][]*verdicts{}
	}
	if c.verdicts[spec] = v; v != nil && v.wide && spec.Shared() {
		v.opened = map[string]uint64{}
		groups := map[string]bool{}
		for group := range spec.MemberOf {
			groups[group] = true
		}
		for _, a := range spec.Apart {
			groups[a.Group] = true
		}
		for i := range spec.Even {
			groups[spec.Even[i].Group] = true
		}
		for near := range spec.AllNear {
			groups[near.Group] = true
		}
		for group := range groups {
			c.about[group] = append(c.about[group], v)
		}
	}
	return v
}

// RuleLevels returns the topology levels at which rules of company may close a domain to capsules of the spec: the
// levels of its own rules [Apart] and [Even], and of other specs' rules about its groups. Nil: there are none. For each
// level [Draft.DomainOpen] says which domains are open. The version changes whenever a domain may have been opened or
// closed, except for domains of a single node whose rules do not depend on other nodes: these open and close only by
// steps that change the node itself.
func (d *Draft) RuleLevels(spec *Spec) (levels []string, version uint64) {
	v := d.verdictsOn(spec)
	switch {
	case v == nil:
		return nil, 0
	case !v.wide:
		return v.levels, 1
	}
	return v.levels, d.rules.version + 2
}

// DomainVersion returns a number that changes whenever a closed domain of the level may have been opened to capsules of the
// spec, by a Sync or by the plan. The level must be one that RuleLevels returns.
func (d *Draft) DomainVersion(spec *Spec, level string) uint64 {
	v := d.verdictsOn(spec)
	switch {
	case v == nil || level == NodeKey && !v.wide:
		return 0
	case v.opened == nil: // a spec that no ledger hands out
		return d.rules.version
	}
	return v.opened[level] + d.rules.epoch
}

// DomainOpen reports whether the rules of company at one level leave the domain of node n open to capsules of the spec, as
// the plan leaves the nodes. It may be false for a capsule that Place accepts: one that is closed out only by remains,
// its own or those of others, and has to wait until these have stopped.
func (d *Draft) DomainOpen(spec *Spec, level string, n *Node) bool {
	v := d.verdictsOn(spec)
	return v == nil || v.why(level, n) == ""
}

// counted returns the sum of what the moves add to the count of a key.
func counted(moves []companyMove, k companyKey, ruled func(string, func(string))) (n int) {
	for _, m := range moves {
		m.spec.companyOf(m.node, m.kind, ruled, func(o companyKey, amount int) { n += m.by * amount * btoi(o == k) })
	}
	return n
}

// keepsCompany judges the placement of c on n by the rules of company. After: the placement keeps them only if c starts
// after the capsules that have left n have stopped (Place.After).
func (d *Draft) keepsCompany(c *Capsule, n *NodeState) (after bool, err error) {
	v := d.verdictsOn(c.Spec)
	if v == nil && c.Spec.Near.Group == "" {
		return false, nil
	}
	a, at := arrival{spec: c.Spec, node: n.Node, nodeOf: d.describes, awaits: c.stops()}, companyCounts(v)
	if v == nil {
		at = draftCounts{d}
	}
	r := a.fault(at)
	if r == nil {
		return false, nil
	}
	if n.Node.Confirms {
		if a.awaits = d.stopping(c, n); a.fault(at) == nil {
			return true, nil
		}
	}
	r.Capsule, r.advice, r.Reason = c.ID, "", d.view.state.evenReason(r, c.Spec, len(d.log)-d.open+1)
	return false, d.refused(r)
}

// describes returns the description of a node of the view.
func (d *Draft) describes(id NodeID) *Node {
	if n := d.view.state.Node(id); n != nil {
		return n.Node
	}
	return nil
}

// stopping returns the remains of capsule c, and all remains on node n that are told to stop, including those that the plan
// has caused there.
func (d *Draft) stopping(c *Capsule, n *NodeState) []*Remains {
	out := c.stops()
	for r := range n.leaving {
		if r.Capsule != c.ID {
			out = append(out, r)
		}
	}
	return out
}

// Next: the company that capsules ask for (Spec.Near); and the capsules that would have to leave a node before the rules of
// company open it.

// betOnCompany appends a GroupIn bet for each domain in which the steps place a capsule near its own group. The ledger's
// rule Near does not refuse it there if all members have left since the view, because it would be the first one; but
// where a group starts is for its navigator to choose. Near another group, the rule is enough.
func (d *Draft) betOnCompany(bets []Precondition, steps []draftStep) []Precondition {
	from := len(bets)
	for i := range steps {
		spec := steps[i].spec
		if spec == nil || !spec.IsIn(spec.Near.Group) {
			continue
		}
		near := d.nearby(spec)
		if near == nil {
			continue
		}
		domain := steps[i].node.Node.Labels[spec.Near.Level]
		if !near.domains[domain] {
			continue
		}
		bet := Precondition(GroupIn{Group: spec.Near.Group, Level: spec.Near.Level, Domain: domain})
		if !slices.Contains(bets[from:], bet) {
			bets = append(bets, bet)
		}
	}
	return bets
}

// NearDomains returns the domains of spec.Near.Level that hold a placed member of the group spec.Near.Group. Members
// that earlier proposals of the plan take off their nodes do not count. Nil means that the spec does not ask to be near
// a group by a label. [Draft.DomainOpen] answers for Spec.Nears, and for a Near by node. The map must not be written to. The version changes whenever the domains may have changed.
func (d *Draft) NearDomains(spec *Spec) (domains map[string]bool, version uint64) {
	if p := d.nearby(spec); p != nil {
		return p.domains, d.company
	}
	return nil, 0
}

// nearby returns the domains of NearDomains from the draft's cache, which it fills. Nil if the spec does not ask to be
// near a group.
func (d *Draft) nearby(spec *Spec) *nearby {
	if spec.Near.Group == "" || spec.Near.Level == NodeKey || d.view == nil {
		return nil
	}
	if p := d.near[spec.Near]; p != nil {
		return p
	}
	p, limit := &nearby{near: spec.Near, domains: map[string]bool{}}, d.view.state.Limits().IDBytes
	left := d.leavers(spec.Near.Group)
	for n, members := range d.view.state.GroupNodes(spec.Near.Group) {
		domain := n.Node.Labels[spec.Near.Level]
		if domain != "" && len(domain) <= limit && members > left[n.Node.ID] { // else no bet can name it
			p.domains[domain] = true
		}
	}
	if d.near == nil {
		d.near = map[Near]*nearby{}
	}
	d.near[spec.Near] = p
	return p
}

// forgetCompany empties the cache of nearby if one of the commitments takes a capsule off its node.
func (d *Draft) forgetCompany(do []Commitment) {
	if len(d.near) == 0 {
		return
	}
	for _, c := range do {
		if c.effect().leaves != "" {
			d.forgetNear()
			return
		}
	}
}

// leavers counts, by node, the members of a group that earlier proposals of the plan take off their nodes: they are no
// company.
func (d *Draft) leavers(group string) map[NodeID]int {
	var left map[NodeID]int
	for _, do := range d.log[:d.open] {
		id := do.effect().leaves
		if id == "" {
			continue
		}
		if c := d.view.state.Capsule(id); c.Spec.IsIn(group) && c.Placed() {
			if left == nil {
				left = map[NodeID]int{}
			}
			left[c.Node]++
		}
	}
	return left
}

// forgetNear empties the cache of nearby and changes the version that NearDomains returns.
func (d *Draft) forgetNear() {
	d.company++
	clear(d.near)
}

// unruled is [Draft.Misfit] without the rules of company: it says which other reason keeps capsules of the spec off the
// node.
func (d *Draft) unruled(n *NodeState, spec *Spec) Misfit {
	m := n.misfit(spec)
	if m.kind == unschedulable && d.view.leaseOver(n) {
		m.kind = leaseOver
	}
	if m == (Misfit{}) {
		m = d.nearby(spec).misfit(n)
	}
	return m
}

// ClosedBy returns the levels at which rules [Apart] close a node to capsules of the spec, as the plan leaves the
// nodes. It serves a search for victims: in the node's domains of these levels, all capsules must leave whose specs the
// spec keeps off, or that keep it off ([Spec.KeepsOff]). No levels and true: no rule closes the node. False: evictions
// under rules Apart are not enough, because the node does not fit for another reason ([Draft.Misfit]), such as a rule
// [Even] or a label that the node lacks.
func (d *Draft) ClosedBy(n *NodeState, spec *Spec) (levels []string, ok bool) {
	if d.unruled(n, spec) != (Misfit{}) {
		return nil, false
	}
	v := d.verdictsOn(spec)
	if v == nil {
		return nil, true
	}
	for _, level := range v.levels {
		if v.why(level, n.Node) == "" {
			continue
		}
		if n.Node.domain(level) == "" {
			return nil, false
		}
		for near, planned := range spec.nears {
			if !planned && near.Level == level && (&arrival{spec: spec, node: n.Node, brief: true}).nearFault(v, near) != nil {
				return nil, false
			}
		}
		for i := range spec.Even {
			if e := &spec.Even[i]; e.Level == level && (&arrival{spec: spec, node: n.Node, brief: true}).evenFault(v, e) != nil {
				return nil, false
			}
		}
		levels = append(levels, level)
	}
	return levels, true
}

// DomainOpenWithout reports whether the rules of company let capsule c onto node n once the others have left their nodes, as
// the plan leaves the nodes. The others must be placed in the view, and the plan must not have moved them. Others that
// have begun to run count until they have stopped. If n confirms, c waits there for those on n itself.
func (d *Draft) DomainOpenWithout(c *Capsule, n *NodeState, others []*Capsule) bool {
	if n.Node == nil {
		return false
	}
	a := arrival{spec: c.Spec, node: n.Node, nodeOf: d.describes, awaits: c.stops()}
	if n.Node.Confirms {
		a.awaits = d.stopping(c, n)
	}
	at := countsWithout{draftCounts: draftCounts{d}}
	for _, o := range others {
		at.left = append(at.left, o.leaving(d.describes(o.Node))...)
		if o.Begun && o.Node == n.Node.ID && n.Node.Confirms {
			a.awaits = append(a.awaits, &Remains{Capsule: o.ID, Spec: o.Spec, Node: o.Node})
		}
	}
	return a.fault(at) == nil
}

// countsWithout are the counts of a draft after the additional moves in left.
type countsWithout struct {
	draftCounts
	left []companyMove
}

func (w countsWithout) in(d companyDomain) kindCounts {
	counts := w.rules.in(d)
	for _, m := range w.left {
		m.spec.companyOf(m.node, m.kind, w.rules.ruled, func(k companyKey, amount int) { counts[k.kind] += m.by * amount * btoi(k.in() == d) })
	}
	return counts
}

func (w countsWithout) fewest(e *Even, scope companyScope, _ bool) lowest {
	return w.rules.fewest(e, scope, w.in)
}

// Next: the members of groups by domain, for preferences that are no rules: Spec.Spread and Spec.PreferCompany.

// tally counts the placed members of a group in each domain of a level, as the plan leaves them. A tally without a
// group counts the capsules of each spec that is spread over the level by its own count (spreadsItself).
type tally struct {
	group, level string
	// Position in the view's journal, and the number of the Sync at which the tally last followed the view.
	cursor, syncs uint64
	// The counts that each node of the view contributes, by node index.
	nodes map[int32]tallied
	// The counts of each spec by domain, without zeros. A tally of a group has one entry, under the nil spec.
	members map[*Spec]map[string]int
	version uint64
}

// tallied is the contribution of one node to a tally.
type tallied struct {
	domain string
	of     []tallySpec
}

type tallySpec struct {
	spec  *Spec
	count int
}

// keptTallies is how many tallies a draft may have before a Sync drops the unused ones.
const keptTallies = 64

// MembersBy returns the number of placed members of a group in each domain of a level, as the plan leaves them; domains
// without members are absent. The level [NodeKey] counts by node. With an empty group MembersBy counts the capsules of
// the spec itself, which must be a spec that a ledger hands out and whose Spread names that level. The map follows the
// plan, must not be written to, and is good until the next Sync. The version changes whenever a count has changed. The
// first call for a group and a level visits all nodes of the group, or without a group all capsules; the first call
// after each Sync visits the nodes that have changed.
func (d *Draft) MembersBy(spec *Spec, group, level string) (members map[string]int, version uint64) {
	if d.view == nil {
		return nil, 0
	}
	t := d.tallyOf(group, level)
	if t.syncs != d.syncs {
		t.sync(d)
	}
	if group != "" {
		spec = nil
	}
	return t.of(spec), t.version
}

// tallyOf returns the tally of a group by a level, and makes an empty one if there is none.
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

// of returns the counts of a spec by domain. The counts of a group are under the nil spec.
func (t *tally) of(spec *Spec) map[string]int {
	counts := t.members[spec]
	if counts == nil {
		counts = map[string]int{}
		t.members[spec] = counts
	}
	return counts
}

// sync brings the tally up to date with the draft's view: it recounts the changed nodes, or all of them if too many
// have changed.
func (t *tally) sync(d *Draft) {
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

// recount replaces the contribution of a node by what the view shows now.
func (t *tally) recount(s *State, i int32) {
	was, now := t.nodes[i], t.count(s, i)
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

// count returns the contribution of a node as the view shows it.
func (t *tally) count(s *State, i int32) (out tallied) {
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

// move counts a move of the plan with sign 1, and takes it back with sign -1. Capsules that are stopping do not count.
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

// tallyMove counts a move in all tallies that it concerns. A tally that was not used since the last Sync stays behind
// the view until MembersBy asks for it.
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

// dropTallies drops the tallies that were not used since the previous Sync. It keeps all if there are at most
// keptTallies.
func (d *Draft) dropTallies() {
	if len(d.tallies) <= keptTallies {
		return
	}
	maps.DeleteFunc(d.tallies, func(_ string, of []*tally) bool {
		return !slices.ContainsFunc(of, func(t *tally) bool { return t.syncs+1 >= d.syncs })
	})
}
