package orbit

import "slices"

// This file has a draft find the company that capsules ask for (Near), which is no rule, but a bet, and say whom the rules of company would have leave.

// betOnCompany appends a bet for each domain in which placed capsules find the group that they want to be near.
func (d *Draft) betOnCompany(bets []Precondition, steps []draftStep) []Precondition {
	from := len(bets)
	for i := range steps {
		spec := steps[i].spec
		if spec == nil || spec.Near.Group == "" {
			continue
		}
		near := d.nearby(spec)
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

// NearDomains returns the domains of spec.Near.Level in which a member of the group is that the spec wants to be near,
// less those whose last member the plan has proposed to release. Nil means that the spec asks for no company; the map
// must not be written to. The version is another one whenever the domains may have changed.
func (d *Draft) NearDomains(spec *Spec) (domains map[string]bool, version uint64) {
	if spec.Near.Group == "" || d.view == nil {
		return nil, 0
	}
	return d.nearby(spec).domains, d.company
}

// nearby looks up the domains; nil if the spec asks for no company.
func (d *Draft) nearby(spec *Spec) *nearby {
	if spec.Near.Group == "" || d.view == nil {
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

// forgetCompany forgets where groups are, if one of the commitments may have changed that.
func (d *Draft) forgetCompany(do []Commitment) {
	if len(d.near) == 0 {
		return
	}
	for _, c := range do {
		if leaves(c) != "" {
			d.forgetNear()
			return
		}
	}
}

// leavers counts the members of a group that earlier proposals of the plan release, by node: they are no company.
func (d *Draft) leavers(group string) map[NodeID]int {
	var left map[NodeID]int
	for _, do := range d.log[:d.open] {
		id := leaves(do)
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

// forgetNear forgets where groups are.
func (d *Draft) forgetNear() {
	d.company++
	clear(d.near)
}

// unruled is Misfit but for the rules of company.
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

// ClosedBy returns the levels by which rules [Apart] close a node to capsules of the spec, as the plan leaves the nodes. It is for a search for victims: in
// the node's domains of these levels, those have to leave whose specs the spec keeps off or that keep it off ([Spec.KeepsOff]). No levels: rules do not
// close the node. False: something else is against it ([Draft.Misfit]), such as a rule [Even], or a label that the node lacks.
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
		for i := range spec.Even {
			if e := &spec.Even[i]; e.Level == level && (&arrival{spec: spec, node: n.Node, brief: true}).evenFault(v, e) != nil {
				return nil, false
			}
		}
		levels = append(levels, level)
	}
	return levels, true
}

// OpensWithout reports whether the rules of company let a capsule onto a node once others have left theirs, as the plan leaves the nodes. The others are
// placed in the view, and the plan has not moved them. Those that have begun stop first: the capsule waits for that on its own node, if that confirms.
func (d *Draft) OpensWithout(c *Capsule, n *NodeState, others []*Capsule) bool {
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

// countsWithout are the counts of a draft once others have left too.
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
