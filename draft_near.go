package orbit

import "slices"

// This file has a draft find the company that capsules ask for (Near), which is no rule, but a bet.

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
