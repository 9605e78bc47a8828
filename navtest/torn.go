package navtest

import (
	"errors"
	"strings"

	"github.com/orbitsched/orbit"
)

// torn returns an error if the plan begins a gang with too few members, or places members of a gang that then share no
// domain.
func (c *call) torn() error {
	end, err := c.replay()
	if err != nil {
		var r *orbit.Rejection
		if errors.As(err, &r) && strings.HasPrefix(r.Reason, "gang ") {
			return err
		}
		return nil // the rule "capacity" reports that
	}
	for g := range end.Gangs() {
		if err := c.scattered(end, g); err != nil {
			return err
		}
	}
	return nil
}

// scattered returns an error if the plan places members of a gang that requires a common domain and has none after the
// plan. A gang whose placed members had no common domain before is not judged.
func (c *call) scattered(end *orbit.State, g *orbit.GangState) error {
	if g.Gang.Loose || len(g.Gang.Levels) == 0 || !c.only(g.Gang.ID) {
		return nil
	}
	had := false
	for _, level := range g.Gang.Levels {
		if _, one := shared(g, level, onState(end)); one {
			return nil
		}
		begun, one := shared(g, level, onState(c.state))
		had = had || begun && one
	}
	if c.state.Gang(g.Gang.ID).Total() > 0 && !had {
		return nil // labels have changed since it began, so no common domain is left to keep to
	}
	return c.fault("the members of gang %q would share no domain of the levels %q that it requires", g.Gang.ID, g.Gang.Levels)
}

// only reports whether the plan places members of a gang and releases none. A plan that moves members is not judged,
// because the positions of the others mean nothing then.
func (c *call) only(gang orbit.GangID) (places bool) {
	for _, p := range c.plan.Proposals {
		for _, do := range p.Do {
			switch do := do.(type) {
			case orbit.Place:
				places = places || c.state.Capsule(do.Capsule).Gang() == gang
			case orbit.Evict:
				if member := c.state.Capsule(do.Capsule); member != nil && member.Gang() == gang {
					return false
				}
			case orbit.Release:
				if member := c.state.Capsule(do.Capsule); member != nil && member.Gang() == gang && member.Placed() {
					return false
				}
			}
		}
	}
	return places
}

// onState returns a function that returns the node of a capsule in a state; nil: the capsule is not placed.
func onState(s *orbit.State) func(orbit.CapsuleID) *orbit.NodeState {
	return func(id orbit.CapsuleID) *orbit.NodeState {
		if c := s.Capsule(id); c != nil && c.Placed() {
			return s.Node(c.Node)
		}
		return nil
	}
}

// shared reports whether any member of a gang is placed, and whether all placed members share one domain of a level.
func shared(g *orbit.GangState, level string, on func(orbit.CapsuleID) *orbit.NodeState) (begun, one bool) {
	domain := ""
	for i := range g.Gang.Roles {
		for _, id := range g.Gang.Roles[i].Members {
			n := on(id)
			if n == nil {
				continue
			}
			is := n.Node.Labels[level]
			if is == "" || begun && is != domain {
				return true, false
			}
			begun, domain = true, is
		}
	}
	return begun, true
}
