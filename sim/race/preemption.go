package race

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Preemption is a [Scenario] that hunts for evictions in vain. Its nodes are full of tasks of one core and low
// priority. Then urgent work comes to one to three engines, each with a [nav.Preempting] over [nav.Services] or
// [nav.Batch]. Some of these engines name more victims than they need. An evicted task becomes pending again, or a
// controller ends it and submits a new one in its place. One more engine places tasks of low priority in any free
// capacity. In half of the worlds tasks of low priority also end by themselves all the time, 5 to 40 ms after they were
// placed, and others follow, while an urgent plan takes up to 20 ms to be proposed. In some worlds agents confirm which
// capsules begin and stop, or a budget bounds how many may be missing. In half of them all faults strike during the
// first part of the run.
//
// The rules are those of every race: no capsule is evicted for work that the same commit does not place, or although it
// would still fit, or against a budget. Job.Within applies to urgent work, unless a budget may forbid the evictions.
// All urgent tasks of a world have the same size and priority and fit on the nodes together, so exactly as many tasks
// have to leave as the urgent ones have cores: Job.Victims.
//
// With -tags stress the tests run more of them: go test -tags stress -run 'TestPreemption$' -v ./sim/race.
func Preemption(seed uint64) *Config {
	p := &preemption{Rand: rand.New(rand.NewPCG(seed, 0xe71c)), Config: &Config{
		Check: 16, Sleep: time.Sleep, Command: "go test ./sim/race -run '^TestPreemption$' -preemption.seed %d -preemption.seeds 1",
	}}
	p.Ledger = func() orbit.Ledger { return &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}} }
	p.drawNodes()
	p.drawLow()
	p.drawUrgent()
	p.drawTrouble()
	return p.Config
}

// preemption is a scenario in the making.
type preemption struct {
	*rand.Rand
	*Config
	// churns says that tasks of low priority end by themselves.
	churns bool
}

const (
	// preemptionTrouble is when faults end.
	preemptionTrouble = 300 * time.Millisecond
	// preemptionWithin is how long urgent work may wait for each urgent task before it.
	preemptionWithin = 400 * time.Millisecond
)

func (p *preemption) drawNodes() {
	cores := one[int64](p.Rand, 1, 2, 2, 3, 4, 4)
	confirms := lucky(p.Rand, 30)
	for i := range one(p.Rand, 1, 2, 3, 4) {
		p.Nodes = append(p.Nodes, orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i+1)), Capacity: orbit.Resources{orbit.CPU: cores}, Confirms: confirms})
	}
	p.Starts, p.Stops = time.Duration(p.IntN(5))*time.Millisecond, time.Duration(5+p.IntN(40))*time.Millisecond
}

// spec returns a spec with this number of cores.
func (p *preemption) spec(kind string, cores int64, priority int32) *orbit.Spec {
	class := map[string]orbit.AppClass{"services": orbit.LatencySensitive, "batch": orbit.Batch}[kind]
	return &orbit.Spec{Module: fmt.Sprint("m", len(p.Jobs)), Class: class, Priority: priority, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cores}}}
}

// drawLow fills the nodes with tasks of low priority, and lets some more wait.
func (p *preemption) drawLow() {
	var on []orbit.NodeID
	for i := range p.Nodes {
		for range p.Nodes[i].Capacity[orbit.CPU] {
			on = append(on, p.Nodes[i].ID)
		}
	}
	kind := one(p.Rand, "services", "batch")
	spec := p.spec(kind, 1, 0)
	spec.Group, spec.Groups = "low", []string{"all"}
	j := Job{Owner: "low", Spec: spec, On: on, Tasks: len(on) + one(p.Rand, 0, 0, 1, 3)}
	if p.churns = lucky(p.Rand, 50); p.churns {
		j.Lasts, j.Again = one[time.Duration](p.Rand, 5, 10, 10, 20, 40)*time.Millisecond, true
	} else {
		j.Replaced = lucky(p.Rand, 50)
	}
	p.Jobs = append(p.Jobs, j)
	p.Schedulers = append(p.Schedulers, Scheduler{Name: "low", Together: -1, Navigator: func() orbit.Navigator { return plainly(kind) }})
}

// plainly returns a navigator that evicts no capsule.
func plainly(kind string) orbit.Navigator {
	if kind == "batch" {
		return &nav.Batch{}
	}
	return &nav.Services{}
}

// drawUrgent draws the engines for urgent work, and urgent work that fits on the empty nodes together.
func (p *preemption) drawUrgent() {
	engines := one(p.Rand, 1, 2, 2, 3)
	kinds := make([]string, engines)
	for i := range engines {
		kind, greedy := one(p.Rand, "services", "batch"), lucky(p.Rand, 30)
		kinds[i] = kind
		p.Schedulers = append(p.Schedulers, Scheduler{
			Name: fmt.Sprint("e", i+1), Together: one(p.Rand, -1, -1, 1), JobTime: one[time.Duration](p.Rand, 0, 5, 20, 20) * time.Millisecond,
			ParkFor: 20 * time.Millisecond, Backoff: orbit.Backoff{Initial: 2 * time.Millisecond, Max: 20 * time.Millisecond},
			Navigator: func() orbit.Navigator { return &urging{nav.Preempting{Navigator: plainly(kind)}, greedy} },
		})
	}
	node := p.Nodes[0].Capacity[orbit.CPU]
	size := 1 + p.Int64N(node)
	room, at := int(node/size)*len(p.Nodes), time.Duration(0)
	left := 1 + p.IntN(room)
	for left > 0 {
		tasks := 1 + p.IntN(left)
		left -= tasks
		e := p.IntN(engines)
		at += one[time.Duration](p.Rand, 0, 1, 7, 50) * time.Millisecond
		p.Jobs = append(p.Jobs, Job{
			At: at, Owner: fmt.Sprint("e", e+1), Tasks: tasks, Spec: p.spec(kinds[e], size, 10), Victims: int(size), Within: time.Duration(room+1) * preemptionWithin,
		})
	}
}

// urging is a navigator that, if greedy, names all capsules of lower priority on a node as victims, although fewer
// would do.
type urging struct {
	nav.Preempting
	greedy bool
}

// Plan adds victims to a plan.
func (u *urging) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := u.Preempting.Plan(ctx, view, pending)
	if !u.greedy {
		return plan, err
	}
	named := map[orbit.CapsuleID]bool{}
	for i := range plan.Proposals {
		for _, do := range plan.Proposals[i].Do {
			if e, ok := do.(orbit.Evict); ok {
				named[e.Capsule] = true
			}
		}
	}
	for i := range plan.Proposals {
		p := &plan.Proposals[i]
		for _, do := range p.Do {
			e, ok := do.(orbit.Evict)
			if !ok {
				continue
			}
			for c := range view.State().On(e.From) {
				if !named[c.ID] && c.Spec.Priority < 10 {
					named[c.ID] = true
					p.Do = append(p.Do, orbit.Evict{Capsule: c.ID, From: e.From, Since: c.PlacedAt, For: e.For})
				}
			}
		}
	}
	return plan, err
}

// drawTrouble draws faults, and in some worlds a budget, which may forbid some of the needed evictions.
func (p *preemption) drawTrouble() {
	p.Faults = Faults{Delay: one(p.Rand, 0, 0.2, 0.5), Longest: 32 * time.Millisecond, Until: preemptionTrouble}
	if lucky(p.Rand, 50) {
		f := &p.Faults
		f.Crash, f.Conflict, f.Unavailable, f.Unknown, f.Dropped, f.Late, f.Stale = 0.01, 0.03, 0.02, 0.03, 0.02, 0.03, 0.1
	}
	if !lucky(p.Rand, 30) {
		return
	}
	needed := p.victims()
	b := orbit.Budget{ID: "b", Group: one(p.Rand, "low", "all"), Expected: len(p.Jobs[0].On), Missing: needed}
	if lucky(p.Rand, 50) || p.churns { // where tasks end by themselves, some members are always missing
		b.Missing, p.Until = p.IntN(needed+1), time.Second
		for i := range p.Jobs {
			p.Jobs[i].Within = 0
		}
	}
	b.IgnoreReady, b.FreeUnready = lucky(p.Rand, 20), lucky(p.Rand, 20)
	p.Events = append(p.Events, Event{Do: []orbit.Commitment{orbit.PutBudget{Budget: b}}})
}
