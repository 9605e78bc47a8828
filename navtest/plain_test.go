package navtest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
)

// plain is a navigator that keeps every rule in the plainest way: books of its own, first fit by node id,
// gangs by trying one domain after another. It shares no code with package nav. Each value of breaks makes it
// break one rule; broken_test.go says which.
type plain struct {
	singles, gangs bool
	breaks         string
	// Still right: it takes on all pending work that is its own, handed over or not; it keeps some room that is
	// left for the next pass; it wants a label on its nodes; it claims one module alone.
	wide, careful, picky bool
	module               string

	rooms []*room
	state *orbit.State
	now   time.Time
	// For breaks that remember what they should not, and count.
	first    *orbit.State
	done     map[orbit.CapsuleID]bool
	hopeless map[*orbit.Spec]bool
	leaked   map[orbit.NodeID]orbit.Resources
	asked    int64
}

// room is what a node has left in the course of a plan.
type room struct {
	node    *orbit.Node
	free    orbit.Resources
	devices [orbit.MaxDevices]int
}

var errNoRoom = errors.New("no node takes it")

func (p *plain) Claims(module string, class orbit.AppClass) bool {
	asked := atomic.AddInt64(&p.asked, 1) // asked from several goroutines
	switch {
	case p.breaks == "changes its mind" && asked%3 == 0:
		return false
	case p.breaks == "panics at odd names" && len(module) > 100:
		panic("what a name")
	case p.breaks == "claims nothing":
		return false
	}
	if p.module != "" && module != p.module {
		return false
	}
	return class == orbit.GangClass && p.gangs || class < orbit.GangClass && p.singles
}

func (p *plain) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	p.open(view)
	pending = p.handled(pending)
	tried := map[orbit.GangID]bool{}
	plan.Proposals = p.endHolds()
	for i, c := range pending {
		if err := p.ended(ctx, i); err != nil {
			if p.breaks == "ends without a word" {
				return plan, nil
			}
			return plan, err
		}
		switch {
		case c.Gang() != "" && p.gangs && p.breaks != "places members one by one":
			if !tried[c.Gang()] {
				tried[c.Gang()] = true
				plan.Proposals = append(plan.Proposals, p.gang(p.state.Gang(c.Gang()))...)
			}
			if !places(plan, c.ID) {
				plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: fmt.Errorf("gang %q has no room", c.Gang())})
			}
		case c.Gang() != "" && p.breaks != "places members one by one" && p.breaks != "takes gangs for capsules":
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: fmt.Errorf("a member of gang %q", c.Gang())})
		default:
			p.single(c, &plan)
		}
	}
	p.afterwards(&plan, pending)
	return plan, nil
}

// single places a capsule, or says why not.
func (p *plain) single(c *orbit.Capsule, plan *orbit.Plan) {
	place, err := p.place(c, p.rooms)
	if err != nil {
		why := error(&orbit.NoFit{})
		if c.Remains() != nil || c.Begun {
			why = errors.New("it has to stop elsewhere first") // which says nothing of its class
		}
		if p.breaks == "gives blank reasons" {
			why = errors.New(" ")
		}
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
		return
	}
	plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{place}, If: p.bets(c, place)})
}

// bets are what a placement rests on.
func (p *plain) bets(c *orbit.Capsule, place orbit.Place) []orbit.Precondition {
	bets := []orbit.Precondition{orbit.NodeFreeOf{Node: place.Node, AtLeast: c.Spec.Envelope.Reservation}}
	if near := c.Spec.Near; near.Group != "" && p.breaks != "forgets company" && !strings.HasPrefix(p.breaks, "begins groups") {
		bets = append(bets, orbit.GroupIn{Group: near.Group, Level: near.Level, Domain: p.state.Node(place.Node).Node.Labels[near.Level]})
	}
	return bets
}

// open reads the view.
func (p *plain) open(view *orbit.View) {
	p.state, p.now = view.State(), view.Now()
	if p.breaks == "keeps its first view" {
		p.first = cmp.Or(p.first, p.state)
		p.state = p.first
	}
	nodes := p.state
	if p.breaks == "keeps its first nodes" {
		p.first = cmp.Or(p.first, p.state)
		nodes = p.first
	}
	p.rooms = nil
	for n := range nodes.Nodes() {
		if now := p.state.Node(n.Node.ID); nodes != p.state && now != nil && !now.Node.Schedulable() {
			continue
		}
		r := &room{node: n.Node, free: n.Free()}
		if p.breaks == "never forgets what it reserved" {
			for d := range r.free {
				r.free[d] -= p.leaked[n.Node.ID][d]
			}
		}
		for i := range r.devices {
			r.devices[i] = n.DeviceFree(i)
		}
		p.rooms = append(p.rooms, r)
	}
	if p.breaks == "overlooks holds" || p.careful {
		for h := range p.state.Holds() {
			for _, r := range p.rooms {
				if r.node.ID == h.Node && (p.breaks != "" || h.For == "careful") {
					r.free, _ = r.free.Add(h.Room)
				}
			}
		}
	}
	if p.breaks == "panics without nodes" {
		_ = p.rooms[0]
	}
	if p.breaks == "goes by map order" {
		random := map[*room]bool{}
		for _, r := range p.rooms {
			random[r] = true
		}
		p.rooms = p.rooms[:0]
		for r := range random {
			p.rooms = append(p.rooms, r)
		}
	}
}

// place finds room for a capsule and takes it.
func (p *plain) place(c *orbit.Capsule, rooms []*room) (orbit.Place, error) {
	company := p.company(c.Spec.Near)
	anchors := c.Spec.Near.Group == c.Spec.Group && p.breaks == "begins groups anywhere"
	if len(company) == 0 && (anchors || p.breaks == "begins groups of others") {
		company = []string{"r0", "r1", "r2"}
	}
	for _, r := range rooms {
		if (c.Remains() != nil || c.Begun) && !r.node.Confirms {
			continue // nothing waits there until it has stopped
		}
		domain, there := r.node.Labels[c.Spec.Near.Level]
		if c.Spec.Near.Group != "" && p.breaks != "forgets company" && (!there || !slices.Contains(company, domain)) {
			continue
		}
		set, fits := p.fits(r, c.Spec)
		if !fits || !p.befriended(r, c.Spec) {
			continue
		}
		if p.breaks != "does not reserve" {
			if p.breaks == "does not reserve devices" {
				r.take(c.Spec, 0)
			} else {
				r.take(c.Spec, set)
			}
			p.leak(r, c.Spec)
		}
		return orbit.Place{Capsule: c.ID, Node: r.node.ID, Devices: set}, nil
	}
	return orbit.Place{}, errNoRoom
}

// befriended reports whether members of all groups run in the domain of a node that a spec has to be near further.
func (p *plain) befriended(r *room, spec *orbit.Spec) bool {
	for _, near := range spec.Nears {
		domain := func(n *orbit.Node) string {
			if near.Level == orbit.NodeKey {
				return string(n.ID)
			}
			return n.Labels[near.Level]
		}
		there := domain(r.node) != "" && slices.ContainsFunc(p.rooms, func(o *room) bool {
			return p.hosts(o, near.Group) && domain(o.node) == domain(r.node)
		})
		if !there && p.breaks != "forgets company" {
			return false
		}
	}
	return true
}

// hosts reports whether a member of a group runs on a node.
func (p *plain) hosts(r *room, group string) bool {
	for n := range p.state.GroupNodes(group) {
		if n.Node.ID == r.node.ID {
			return true
		}
	}
	return false
}

// company returns the domains of a group.
func (p *plain) company(near orbit.Near) (in []string) {
	for n := range p.state.GroupNodes(near.Group) {
		if domain := n.Node.Labels[near.Level]; domain != "" {
			in = append(in, domain)
		}
	}
	return in
}

// fits reports whether there is room, and on which devices.
func (p *plain) fits(r *room, spec *orbit.Spec) (set orbit.DeviceSet, ok bool) {
	if p.picky && r.node.Labels["picked"] == "" {
		return 0, false
	}
	if !r.node.Schedulable() && p.breaks != "ignores drains" {
		return 0, false
	}
	for _, demand := range spec.Require {
		if _, there := r.node.Labels[demand.Key]; !there && p.breaks == "takes no label for any label" {
			continue
		}
		if !demand.On(r.node) && p.breaks != "ignores requirements" {
			return 0, false
		}
	}
	if !r.node.Admits(spec) && p.breaks != "ignores taints" {
		return 0, false
	}
	for d, want := range spec.Envelope.Reservation {
		short := want > r.free[d]
		if p.breaks == "lets sums wrap" {
			short = r.node.Capacity[d]-r.free[d]+want > r.node.Capacity[d]
		}
		if d > 1 && p.breaks == "counts CPU and memory alone" {
			continue
		}
		if want > 0 && short {
			return 0, false
		}
	}
	return p.devices(r, spec.Devices)
}

// devices picks the first that do.
func (p *plain) devices(r *room, want orbit.DeviceRequest) (set orbit.DeviceSet, ok bool) {
	if p.breaks == "ignores devices" || want.Count == 0 {
		return 0, true
	}
	if len(want.Models) > 0 && !slices.Contains(want.Models, r.node.Devices.Model) && p.breaks != "ignores models" {
		return 0, false
	}
	for i := range r.node.Devices.Count {
		healthy := r.devices[i] >= want.Milli || p.breaks == "ignores health"
		if set.Len() < want.Count && healthy {
			set |= 1 << i
		}
	}
	return set, set.Len() == want.Count
}

// take takes room.
func (r *room) take(spec *orbit.Spec, set orbit.DeviceSet) {
	for d, want := range spec.Envelope.Reservation {
		r.free[d] -= want
	}
	for i := range r.devices {
		if set.Has(i) {
			r.devices[i] -= spec.Devices.Milli
		}
	}
}

// gang places what is missing of a gang: all of it if that fits on one domain of a level, else as much as
// fits on the first that takes the minimums.
func (p *plain) gang(g *orbit.GangState) []orbit.Proposal {
	if p.breaks == "never tops up" && g.Total() > 0 {
		return nil
	}
	levels := append(slices.Clone(g.Gang.Levels), "")
	if len(g.Gang.Levels) > 0 && !g.Gang.Loose && p.breaks != "scatters gangs" {
		levels = g.Gang.Levels
	}
	if p.breaks == "scatters gangs" {
		levels = []string{""}
	}
	if p.breaks == "tries wide levels first" {
		levels = slices.Clone(levels)
		slices.Reverse(levels)
	}
	for _, whole := range []bool{true, false} {
		for _, level := range levels {
			for _, rooms := range p.domains(g, level) {
				if do := p.members(g, rooms, whole); do != nil {
					return p.split(do)
				}
			}
		}
	}
	return nil
}

// split makes proposals of a gang's placements: one.
func (p *plain) split(do []orbit.Commitment) []orbit.Proposal {
	if p.breaks == "splits gangs" && len(do) > 1 {
		return []orbit.Proposal{{Do: do[:len(do)/2]}, {Do: do[len(do)/2:]}}
	}
	return []orbit.Proposal{{Do: do}}
}

// domains returns the rooms of each domain of a level on which the gang may be: the one where it has begun.
func (p *plain) domains(g *orbit.GangState, level string) (out [][]*room) {
	byName := map[string][]*room{}
	var names []string
	for _, r := range p.rooms {
		name, there := r.node.Labels[level]
		if level != "" && (!there || name == "") {
			continue
		}
		if byName[name] == nil {
			names = append(names, name)
		}
		byName[name] = append(byName[name], r)
	}
	for _, name := range names {
		if p.begunElsewhere(g, level, name) {
			continue
		}
		out = append(out, byName[name])
	}
	return out
}

// begunElsewhere reports whether a member is placed outside of a domain.
func (p *plain) begunElsewhere(g *orbit.GangState, level, name string) bool {
	for _, role := range g.Gang.Roles {
		for _, id := range role.Members {
			if c := p.state.Capsule(id); level != "" && c != nil && c.Placed() && p.state.Node(c.Node).Node.Labels[level] != name {
				return true
			}
		}
	}
	return false
}

// members places a gang's pending members on these rooms, or undoes what it has taken.
func (p *plain) members(g *orbit.GangState, rooms []*room, whole bool) (do []orbit.Commitment) {
	before := make([]room, len(rooms))
	for i, r := range rooms {
		before[i] = *r
	}
	enough, all := true, g.Total()
	for i, role := range g.Gang.Roles {
		placed := g.Placed[i]
		for _, id := range role.Members {
			c := p.state.Capsule(id)
			if c == nil || !c.Pending() {
				continue
			}
			if place, err := p.place(c, rooms); err == nil {
				placed, all = placed+1, all+1
				do = append(do, place)
			} else if whole {
				enough = false
			}
		}
		least := role.Min
		if least == 0 {
			least = len(role.Members)
		}
		enough = enough && (g.Total() > 0 || placed >= least || p.breaks == "begins below the minimum")
	}
	if enough && (g.Total() > 0 || all >= g.Gang.Min || p.breaks == "begins below the minimum") {
		return do
	}
	for i, r := range rooms {
		*r = before[i]
	}
	return nil
}

// places reports whether a plan places a capsule.
func places(plan orbit.Plan, id orbit.CapsuleID) bool {
	for _, p := range plan.Proposals {
		for _, do := range p.Do {
			if place, ok := do.(orbit.Place); ok && place.Capsule == id {
				return true
			}
		}
	}
	return false
}
