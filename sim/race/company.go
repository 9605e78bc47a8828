package race

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// Company is a [Scenario] that hunts for broken rules of company. Its three to eight nodes are in racks of up to three
// zones. Tasks of three groups come, most of which end after a while. Some have to be apart from members of their own
// group or of others, by node, rack or zone, where only one side or both have a rule. Some have to be even over zones,
// racks or nodes, with all fields that such a rule has. In some worlds tasks take extras of their node. One to three
// engines place them, each with a [nav.Services] over a [place.Indexed]. One more engine proposes random placements and
// moves, most of which the view allows. Meanwhile nodes join, leave, are relabelled, cordoned and lost. In some worlds
// agents confirm, and in half of them all faults strike.
//
// The rules are those of every race: a placement keeps all rules of company at its commit, which is checked by
// comparing all pairs and counting all members. With -tags stress the tests run 5,000 seeds, or 100,000 with:
// ORBIT_STRESS_SCALE=20 go test -tags stress -timeout 2h -run 'TestCompany$' -v ./sim/race.
func Company(seed uint64) *Config {
	p := &company{Rand: rand.New(rand.NewPCG(seed, 0xc0b)), Config: &Config{
		Until: 400 * time.Millisecond, Check: 32, Sleep: time.Sleep, Command: "go test ./sim/race -run '^TestCompany$' -company.seed %d -company.seeds 1",
	}}
	p.drawNodes()
	p.drawEngines(seed)
	for range 5 + p.IntN(10) {
		p.drawJob()
	}
	p.drawTrouble()
	if lucky(p.Rand, 40) {
		p.drawExtras()
	}
	return p.Config
}

// company is a scenario in the making.
type company struct {
	*rand.Rand
	*Config
	confirms bool
}

var companyGroups, companyLevels = []string{"g1", "g2", "g3"}, []string{orbit.NodeKey, "rack", "rack", "zone", "zone"}

func (p *company) drawNodes() {
	p.confirms = lucky(p.Rand, 50)
	p.Starts, p.Stops = time.Duration(p.IntN(5))*time.Millisecond, time.Duration(5+p.IntN(40))*time.Millisecond
	for i := range 3 + p.IntN(6) {
		p.Nodes = append(p.Nodes, p.node(i))
	}
}

// node draws a node with this number, in a random rack.
func (p *company) node(i int) orbit.Node {
	zone := p.IntN(3)
	n := orbit.Node{
		ID: orbit.NodeID(fmt.Sprint("n", i+1)), Capacity: orbit.Resources{orbit.CPU: 1 + p.Int64N(5)}, Confirms: p.confirms,
		Labels: map[string]string{"zone": fmt.Sprint("z", zone), "rack": fmt.Sprintf("r%d%d", zone, p.IntN(2))},
	}
	if lucky(p.Rand, 8) {
		delete(n.Labels, one(p.Rand, "zone", "rack"))
	}
	return n
}

// drawJob draws tasks and their rules.
func (p *company) drawJob() {
	spec := &orbit.Spec{
		Module: fmt.Sprint("m", len(p.Jobs)), Class: one(p.Rand, orbit.LatencySensitive, orbit.BestEffort), Movable: true, Group: one(p.Rand, companyGroups...),
		Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: one[int64](p.Rand, 1, 1, 1, 2)}},
	}
	if lucky(p.Rand, 25) {
		spec.Groups = []string{one(p.Rand, companyGroups...)}
	}
	for lucky(p.Rand, 25) {
		spec.Apart = append(spec.Apart, orbit.Apart{Group: one(p.Rand, append(companyGroups, spec.Group)...), Level: one(p.Rand, companyLevels...), Labelled: lucky(p.Rand, 50)})
	}
	for lucky(p.Rand, 40) {
		e := orbit.Even{Group: spec.Group, Level: one(p.Rand, companyLevels...), MaxSkew: one(p.Rand, 0, 0, 1, 2), MinDomains: one(p.Rand, 0, 0, 0, 2, 3), HonorTaints: lucky(p.Rand, 30), IgnoreRequire: lucky(p.Rand, 30)}
		if lucky(p.Rand, 15) {
			e.Group = one(p.Rand, companyGroups...)
		}
		if lucky(p.Rand, 25) && e.Level == "zone" {
			e.Domains = one(p.Rand, []string{"z0", "z1"}, []string{"z0", "z1", "z2"}, []string{"z2"})
		}
		spec.Even = append(spec.Even, e)
	}
	for lucky(p.Rand, 15) {
		spec.Nears = append(spec.Nears, orbit.Near{Group: one(p.Rand, append(companyGroups, spec.Group, spec.Group)...), Level: one(p.Rand, companyLevels...)})
	}
	if lucky(p.Rand, 20) {
		spec.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: one(p.Rand, []string{"z0", "z1"}, []string{"z1", "z2"})}}
	}
	p.Jobs = append(p.Jobs, Job{
		At: p.soon(), Owner: one(p.Rand, p.Schedulers...).Name, Spec: spec, Tasks: 1 + p.IntN(5), Lasts: one[time.Duration](p.Rand, 0, 10, 20, 40, 80, 160) * time.Millisecond,
	})
}

// soon returns a time in the first half of the run.
func (p *company) soon() time.Duration { return time.Duration(p.IntN(200)) * time.Millisecond }

// drawEngines draws engines. The first one is unruly.
func (p *company) drawEngines(seed uint64) {
	for i := range 2 + p.IntN(3) {
		s := Scheduler{
			Name: fmt.Sprint("e", i), Together: one(p.Rand, -1, -1, 1), ParkFor: 20 * time.Millisecond, Backoff: orbit.Backoff{Initial: 2 * time.Millisecond, Max: 20 * time.Millisecond},
			JobTime: one[time.Duration](p.Rand, 0, 2, 10, 20) * time.Millisecond,
			Navigator: func() orbit.Navigator {
				return &nav.Services{Placement: &place.Indexed{Seed: seed + uint64(i)}}
			},
		}
		if i == 0 {
			s.Name, s.careless = "raw", true
			s.Navigator = func() orbit.Navigator { return &unruly{Rand: rand.New(rand.NewPCG(seed, 0xbad))} }
		}
		p.Schedulers = append(p.Schedulers, s)
	}
}

// drawTrouble draws faults, and events of the nodes.
func (p *company) drawTrouble() {
	p.Faults = Faults{Delay: one(p.Rand, 0, 0.2, 0.5), Longest: 16 * time.Millisecond}
	if lucky(p.Rand, 50) {
		f := &p.Faults
		f.Crash, f.Conflict, f.Unavailable, f.Unknown, f.Dropped, f.Late, f.Stale = 0.01, 0.03, 0.02, 0.03, 0.02, 0.03, 0.1
		for i := range p.Schedulers { // if one proposal of a plan fails, later ones may be infeasible: only together they are even
			p.Schedulers[i].careless = true
		}
	}
	for range p.IntN(10) {
		n := p.node(p.IntN(len(p.Nodes) + 2)) // a new node, or an existing one in another rack
		at := 2 * p.soon()
		p.Events = append(p.Events, Event{At: at, Do: []orbit.Commitment{orbit.PutNode{Node: n}}})
		if !lucky(p.Rand, 40) {
			continue
		}
		// The node goes out of service. Four times it is then tried to remove the node, which succeeds when the node is
		// empty. In most cases the same commit adds it again in another rack.
		shut := n
		shut.State = orbit.Cordoned
		if lucky(p.Rand, 50) && !p.confirms {
			shut.State = orbit.Lost
		}
		anew := n
		anew.Labels = p.node(0).Labels
		p.Events = append(p.Events, Event{At: at, Do: []orbit.Commitment{orbit.PutNode{Node: shut}}})
		for range 4 {
			at += time.Duration(10+p.IntN(20)) * time.Millisecond
			leave := []orbit.Commitment{orbit.RemoveNode{Node: n.ID}}
			if !lucky(p.Rand, 20) {
				leave = append(leave, orbit.PutNode{Node: anew})
			}
			p.Events = append(p.Events, Event{At: at, Do: leave})
		}
	}
}

// drawExtras gives most nodes an amount of an extra, which changes when an event puts the node again. Some tasks take
// the extra.
func (p *company) drawExtras() {
	has := func(n *orbit.Node) {
		if lucky(p.Rand, 80) {
			n.Extras = []orbit.Extra{{Name: "ip", Amount: p.Int64N(4)}}
		}
	}
	for i := range p.Nodes {
		has(&p.Nodes[i])
	}
	for i := range p.Events {
		for k, do := range p.Events[i].Do {
			if put, ok := do.(orbit.PutNode); ok {
				has(&put.Node)
				p.Events[i].Do[k] = put
			}
		}
	}
	for i := range p.Jobs {
		if lucky(p.Rand, 30) {
			p.Jobs[i].Spec.Extras = []orbit.Extra{{Name: "ip", Amount: one[int64](p.Rand, 1, 1, 2)}}
		}
	}
}

// unruly is a navigator that makes random proposals, most of which the view allows. A proposal places and moves several
// capsules, also onto the room of others that it takes off their nodes. It releases the capsules on cordoned and lost
// nodes.
type unruly struct{ *rand.Rand }

// Claims reports true: the navigator takes any work.
func (u *unruly) Claims(string, orbit.AppClass) bool { return true }

// Plan makes up to three proposals, all on the same view.
func (u *unruly) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	var nodes []*orbit.NodeState
	for n := range view.State().Nodes() {
		nodes = append(nodes, n)
	}
	if len(nodes) == 0 {
		return plan, nil
	}
	for range 1 + u.IntN(3) {
		for range 6 { // six tries to draw a proposal that the view allows
			p := orbit.Proposal{View: view.Revision(), Do: u.draw(view.State(), nodes, pending)}
			if len(p.Do) > 0 && (lucky(u.Rand, 20) || view.State().Check(p) == nil) {
				plan.Proposals = append(plan.Proposals, p)
				break
			}
		}
	}
	return plan, nil
}

// draw draws a proposal.
func (u *unruly) draw(s *orbit.State, nodes []*orbit.NodeState, pending []*orbit.Capsule) (do []orbit.Commitment) {
	on := func() orbit.NodeID { return nodes[u.IntN(len(nodes))].Node.ID }
	placed := slices.Collect(s.On(on()))
	if n := nodes[u.IntN(len(nodes))].Node; !n.Schedulable() && lucky(u.Rand, 60) {
		for c := range s.On(n.ID) {
			do = append(do, orbit.Release{Capsule: c.ID, From: n.ID})
		}
		return do
	}
	for _, c := range placed {
		if lucky(u.Rand, 25) {
			do = append(do, orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt}, orbit.Place{Capsule: c.ID, Node: on(), After: lucky(u.Rand, 20)})
		}
	}
	for _, c := range pending {
		if lucky(u.Rand, 40) {
			do = append(do, orbit.Place{Capsule: c.ID, Node: on(), After: lucky(u.Rand, 20)})
		}
	}
	return do
}
