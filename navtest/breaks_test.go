package navtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// What plain does wrong around its planning: with its context, before and after.

// ended looks at the context.
func (p *plain) ended(ctx context.Context, i int) error {
	switch p.breaks {
	case "ignores its context":
		return nil
	case "looks at its context and goes on":
		_ = ctx.Err()
		return nil
	case "looks at its context once":
		if i > 0 {
			return nil
		}
	case "hides that it was cut short":
		if ctx.Err() != nil {
			return errors.New("something")
		}
	case "never returns":
		time.Sleep(time.Hour)
	case "exits its goroutine":
		runtime.Goexit()
	}
	return ctx.Err()
}

// handled is the work that it takes on.
func (p *plain) handled(pending []*orbit.Capsule) []*orbit.Capsule {
	pending = slices.Clone(pending)
	if p.wide {
		pending = slices.DeleteFunc(p.state.Pending(), func(c *orbit.Capsule) bool {
			return c.Owner() != "navtest" && (c.Owner() != "" || !p.Claims(c.Spec.Module, c.Spec.Class))
		})
	}
	switch p.breaks {
	case "takes what is assigned to others":
		return slices.DeleteFunc(p.state.Pending(), func(c *orbit.Capsule) bool { return !p.Claims(c.Spec.Module, c.Spec.Class) })
	case "takes what it does not claim":
		return slices.DeleteFunc(p.state.Pending(), func(c *orbit.Capsule) bool { return c.Owner() != "" && c.Owner() != "navtest" })
	case "places nothing":
		return nil
	case "serves the last first":
		slices.Reverse(pending)
	case "remembers what is done":
		pending = slices.DeleteFunc(pending, func(c *orbit.Capsule) bool { return p.done[c.ID] })
	}
	return pending
}

// afterwards spoils the plan, or remembers what it should not.
func (p *plain) afterwards(plan *orbit.Plan, pending []*orbit.Capsule) {
	if p.careful {
		p.keep(plan)
	}
	switch p.breaks {
	case "places twice":
		if n := len(plan.Proposals); n > 0 {
			plan.Proposals = append(plan.Proposals, plan.Proposals[n-1])
		}
	case "places what is placed":
		for c := range p.state.Capsules() {
			if c.Placed() && c.Spec.Class != orbit.GangClass && c.Owner() == "" && len(p.rooms) > 0 {
				plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: c.ID, Node: p.rooms[0].node.ID}}})
				return
			}
		}
	case "explains nothing":
		plan.Unplaced = nil
	case "explains what it places":
		for _, c := range pending {
			if places(*plan, c.ID) {
				plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: errors.New("for once")})
				return
			}
		}
	case "explains twice":
		plan.Unplaced = append(plan.Unplaced, plan.Unplaced...)
	case "says an old revision":
		for i := range plan.Proposals {
			plan.Proposals[i].View = 1
		}
	case "ends holds of others":
		for h := range p.state.Holds() {
			plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Hold: h.ID}}})
		}
	case "evicts its equals":
		for c := range p.state.Capsules() {
			if c.Placed() && c.Owner() == "navtest-other" && len(plan.Proposals) > 0 {
				if place, ok := plan.Proposals[0].Do[0].(orbit.Place); ok {
					e := orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt, For: place.Capsule}
					plan.Proposals[0].Do = append([]orbit.Commitment{e}, plan.Proposals[0].Do...)
				}
				return
			}
		}
	case "says what has stopped":
		for c := range p.state.Capsules() {
			if c.Placed() && c.Owner() != "navtest-other" {
				plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: c.ID, Stopped: true}}})
				return
			}
		}
	case "nominates for others":
		for c := range p.state.Capsules() {
			if c.Pending() && c.Owner() == "navtest-other" && len(p.rooms) > 0 {
				plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.Nominate{Capsule: c.ID, Ends: time.Unix(1<<33, 0),
					Parts: []orbit.NominatedRoom{{Node: p.rooms[0].node.ID, Room: orbit.Resources{orbit.CPU: 1}}}}}})
				return
			}
		}
	case "holds for ever":
		for i, r := range p.rooms {
			if id := orbit.HoldID("plan/for ever " + r.node.ID); r.free[orbit.CPU] > 0 && r.node.Schedulable() && i == 0 {
				if _, there := p.state.Hold(id); !there {
					plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{
						orbit.Hold{ID: id, Node: r.node.ID, Room: orbit.Resources{orbit.CPU: 1}, Ends: time.Now().AddDate(100, 0, 0)}}})
				}
			}
		}
	case "has one id for all":
		for i := range plan.Proposals {
			plan.Proposals[i].ID = orbit.ProposalID{1}
		}
	case "makes one proposal of all":
		var all orbit.Proposal
		for _, one := range plan.Proposals {
			all.Do = append(all.Do, one.Do...)
		}
		if len(all.Do) > 0 {
			plan.Proposals = []orbit.Proposal{all}
		}
	case "drains nodes":
		for _, r := range p.rooms[:min(1, len(p.rooms))] {
			node := *r.node
			node.State = orbit.Cordoned
			plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: node}}})
		}
	case "remembers what is done":
		p.remember(*plan, pending)
	case "remembers what is hopeless":
		p.despair(plan)
	case "says NoFit of what it puts off":
		p.putOff(plan)
	}
}

// endHolds gives back what has been kept.
func (p *plain) endHolds() (out []orbit.Proposal) {
	for h := range p.state.Holds() {
		if p.careful && h.For == "careful" {
			out = append(out, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Hold: h.ID}}})
		}
	}
	return out
}

// keep keeps some of what is left after placing something, under a name that is random.
func (p *plain) keep(plan *orbit.Plan) {
	if !slices.ContainsFunc(plan.Proposals, func(p orbit.Proposal) bool { _, is := p.Do[0].(orbit.Place); return is }) {
		return
	}
	for _, r := range p.rooms {
		if r.node.Schedulable() && r.free[orbit.CPU] > 0 {
			h := orbit.Hold{ID: orbit.HoldID(fmt.Sprint("plan/hold-", rand.Int64())), Node: r.node.ID, Room: orbit.Resources{orbit.CPU: 1}, For: "careful", Ends: p.now.Add(time.Hour)}
			plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{h}})
			return
		}
	}
}

// leak remembers what was reserved, whatever becomes of it.
func (p *plain) leak(r *room, spec *orbit.Spec) {
	if p.leaked == nil {
		p.leaked = map[orbit.NodeID]orbit.Resources{}
	}
	sum, _ := p.leaked[r.node.ID].Add(spec.Envelope.Reservation)
	p.leaked[r.node.ID] = sum
}

// remember takes what it proposes for placed, for good.
func (p *plain) remember(plan orbit.Plan, pending []*orbit.Capsule) {
	if p.done == nil {
		p.done = map[orbit.CapsuleID]bool{}
	}
	for _, c := range pending {
		if places(plan, c.ID) {
			p.done[c.ID] = true
		}
	}
}

// despair gives a class up for good that has not fitted once.
func (p *plain) despair(plan *orbit.Plan) {
	if p.hopeless == nil {
		p.hopeless = map[*orbit.Spec]bool{}
	}
	for _, u := range plan.Unplaced {
		p.hopeless[u.Capsule.Spec] = true
	}
	p.strike(plan, errors.New("it did not fit before"), func(c *orbit.Capsule) bool { return p.hopeless[c.Spec] })
}

// putOff leaves the last capsule of a plan for later, and says that it fits nowhere.
func (p *plain) putOff(plan *orbit.Plan) {
	if n := len(plan.Proposals); n > 1 {
		last := plan.Proposals[n-1].Do[0].(orbit.Place).Capsule
		p.strike(plan, &orbit.NoFit{}, func(c *orbit.Capsule) bool { return c.ID == last })
	}
}

// strike takes placements of capsules out of a plan.
func (p *plain) strike(plan *orbit.Plan, why error, gone func(*orbit.Capsule) bool) {
	plan.Proposals = slices.DeleteFunc(plan.Proposals, func(proposal orbit.Proposal) bool {
		c := p.state.Capsule(proposal.Do[0].(orbit.Place).Capsule)
		if !gone(c) {
			return false
		}
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
		return true
	})
}

// scribbler writes into what it is given, and plans well.
type scribbler struct {
	plain
	into string
}

func (s *scribbler) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := s.plain.Plan(ctx, view, pending)
	if len(pending) == 0 {
		return plan, err
	}
	switch c := pending[0]; s.into {
	case "the slice":
		slices.Reverse(pending)
	case "a capsule":
		c.Ready = true
	case "a spec":
		c.Spec.Priority++
	case "a requirement":
		for _, c := range pending {
			for i := range c.Spec.Require {
				c.Spec.Require[i].Key += "?"
			}
		}
	case "a label":
		for n := range view.State().Nodes() {
			if n.Node.Labels != nil {
				n.Node.Labels["mine"] = "yes"
			}
		}
	case "a node's count":
		for n := range view.State().Nodes() {
			n.Capsules++
		}
	case "a gang":
		for g := range view.State().Gangs() {
			g.Placed[0]++
		}
	}
	return plan, err
}
