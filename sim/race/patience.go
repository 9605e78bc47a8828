package race

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Patience is a [Scenario] that hunts for work that waits for ever. On a few nodes, small tasks come without end: each
// runs for 5 to 40 ms, and another one follows when it ends. Some of them declare how long they run, and some of these
// backfill. Large capsules and gangs of at least the same priority come too. One to eight engines place the work, each
// with a [nav.Patient]; in some worlds an engine without it replaces its own small tasks, each in one commit. In some
// worlds work of higher priority arrives, nodes are cordoned or shrink for a while, and in half of them all faults
// strike during the first part of the run, crashes of engines among them.
//
// The rules are Job.Within for large work, Config.Serve for nominations, and those of every race. With -tags stress and
// ORBIT_STRESS_SCALE=100 the tests run 100,000 seeds: go test -tags stress -timeout 2h -run 'TestPatience$' -v
// ./sim/race.
func Patience(seed uint64) *Config {
	p := &patience{Rand: rand.New(rand.NewPCG(seed, 0xa17)), Config: &Config{
		Serve: 400 * time.Millisecond, Check: 64, Sleep: time.Sleep, Command: "go test ./sim/race -run '^TestPatience$' -patience.seed %d -patience.seeds 1",
	}}
	bounds := orbit.Limits{NominatedShare: one(p.Rand, 10, 10, 50, 100), Renewals: one(p.Rand, 8, 1, 2), Terminal: 1024}
	p.Ledger = func() orbit.Ledger { return &orbit.MemoryLedger{Bounds: bounds} }
	p.drawNodes()
	p.drawSmall()
	p.drawLarge()
	p.drawEngines()
	p.drawTrouble()
	return p.Config
}

// patience is a scenario in the making.
type patience struct {
	*rand.Rand
	*Config
	// cores is the number of cores of all nodes together.
	cores int64
}

const (
	// patienceAfter is the time after which waiting work is nominated. An engine puts classes aside for 1 or 10 times
	// as long.
	patienceAfter = 30 * time.Millisecond
	// patienceTrouble is when faults and events end.
	patienceTrouble = 300 * time.Millisecond
)

func (p *patience) drawNodes() {
	cores := one[int64](p.Rand, 2, 2, 3, 4)
	for i := range one(p.Rand, 1, 2, 2, 3) {
		p.Nodes = append(p.Nodes, orbit.Node{
			ID: orbit.NodeID(fmt.Sprint("n", i+1)), Capacity: orbit.Resources{orbit.CPU: cores}, Labels: map[string]string{"rack": fmt.Sprint("r", i/2)},
		})
		p.cores += cores
	}
}

// job adds a job for an engine of a kind. Its Owner is the kind until drawEngines replaces it by the name of an engine.
func (p *patience) job(kind string, j Job, cores int64, priority int32) {
	class := map[string]orbit.AppClass{"services": orbit.LatencySensitive, "batch": orbit.Batch, "gang": orbit.GangClass, "swap": orbit.Batch}[kind]
	j.Owner = kind
	j.Spec = &orbit.Spec{Module: fmt.Sprint("m", len(p.Jobs)), Class: class, Priority: priority, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cores}}}
	p.Jobs = append(p.Jobs, j)
}

// drawSmall draws the small tasks, of which there are always more than there is room for.
func (p *patience) drawSmall() {
	streams := one(p.Rand, 1, 1, 2, 3)
	for range streams {
		lasts := one[time.Duration](p.Rand, 5, 10, 10, 20, 40) * time.Millisecond
		p.job(one(p.Rand, "batch", "batch", "batch", "services", "swap"), Job{Tasks: int(p.cores)/streams + 1 + p.IntN(3), Lasts: lasts, Again: true}, 1, 0)
		if spec := p.Jobs[len(p.Jobs)-1].Spec; lucky(p.Rand, 60) {
			spec.RunsAtMost, spec.Backfills = lasts, lucky(p.Rand, 70)
		}
	}
	if lucky(p.Rand, 30) {
		p.job("batch", Job{At: p.soon(), Tasks: 1 + p.IntN(6), Lasts: 20 * time.Millisecond}, 1, 2)
	}
}

// soon returns a time in the first part of the run.
func (p *patience) soon() time.Duration {
	return time.Duration(p.IntN(int(patienceTrouble/time.Millisecond))) * time.Millisecond
}

// drawLarge draws capsules and gangs, each of which fits on the nodes when they are empty.
func (p *patience) drawLarge() {
	node := p.Nodes[0].Capacity[orbit.CPU]
	for range 1 + p.IntN(4) {
		j := Job{At: p.soon() / 2, Tasks: 1, Lasts: time.Duration(5+p.IntN(60)) * time.Millisecond}
		kind, cores := one(p.Rand, "services", "batch", "gang", "gang"), 2+p.Int64N(node-1)
		if kind == "gang" {
			cores = 1 + p.Int64N(node)
			most := int(node/cores) * len(p.Nodes)
			if lucky(p.Rand, 30) {
				j.Levels, most = []string{"rack"}, int(node/cores)*min(2, len(p.Nodes))
			}
			j.Gang, j.Tasks = true, 1+p.IntN(most)
			if lucky(p.Rand, 30) {
				j.Min = 1 + p.IntN(j.Tasks)
			}
			p.drawJoins(&j)
		}
		p.job(kind, j, cores, one[int32](p.Rand, 0, 0, 1, 1, 2))
	}
	// A job waits for all jobs before it. Each takes the time until it is nominated, until the tasks that run then have
	// ended, and until it is served.
	each := 1200*time.Millisecond + p.Serve
	for i := range p.Jobs {
		if !p.Jobs[i].Again {
			p.Jobs[i].Within = time.Duration(len(p.Jobs)) * each
		}
	}
}

// drawJoins lets some tasks of a gang join it later, in a third of the gangs. It has random numbers of its own, so that
// each seed has kept the rest of its world.
func (p *patience) drawJoins(j *Job) {
	r := rand.New(rand.NewPCG(uint64(len(p.Jobs)), uint64(j.At)^0x101))
	if few := j.Tasks - max(1, j.Min); few > 0 && lucky(r, 33) {
		j.Joins, j.Later = 1+r.IntN(few), time.Duration(r.IntN(80))*time.Millisecond
	}
}

// drawEngines draws engines for the kinds of work in the world, several for some kinds, and assigns each job to one of
// them.
func (p *patience) drawEngines() {
	var kinds []string
	for i := range p.Jobs {
		if kind := p.Jobs[i].Owner; !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	owners := map[string][]string{}
	for i := range max(len(kinds), one(p.Rand, 1, 2, 4, 8)) {
		kind := kinds[i%len(kinds)]
		s := Scheduler{
			Name: fmt.Sprint("e", i+1), Together: -1, ParkFor: one[time.Duration](p.Rand, 1, 1, 1, 10) * patienceAfter,
			Backoff: orbit.Backoff{Initial: 2 * time.Millisecond, Max: 20 * time.Millisecond}, careless: kind == "swap",
			Navigator: func() orbit.Navigator { return patient(kind) }, JobTime: one[time.Duration](p.Rand, 0, 0, 2, 20) * time.Millisecond,
		}
		p.Schedulers = append(p.Schedulers, s)
		owners[kind] = append(owners[kind], s.Name)
	}
	for i := range p.Jobs {
		p.Jobs[i].Owner = one(p.Rand, owners[p.Jobs[i].Owner]...)
	}
}

// patient makes the navigator of an engine.
func patient(kind string) orbit.Navigator {
	p := &nav.Patient{After: patienceAfter, For: 10 * patienceAfter}
	switch kind {
	case "services":
		p.Navigator = &nav.Services{}
	case "batch":
		p.Navigator = &nav.Batch{}
	case "gang":
		p.Navigator = &nav.Gang{}
	case "swap":
		return &swapping{}
	}
	return p
}

// drawTrouble draws faults, and events of the nodes.
func (p *patience) drawTrouble() {
	p.Faults = Faults{Delay: one(p.Rand, 0, 0.1, 0.3), Longest: 16 * time.Millisecond, Until: patienceTrouble}
	if lucky(p.Rand, 50) {
		f := &p.Faults
		f.Crash, f.Conflict, f.Unavailable, f.Unknown, f.Dropped, f.Late, f.Stale = 0.01, 0.03, 0.02, 0.03, 0.02, 0.03, 0.1
	}
	for range one(p.Rand, 0, 0, 1, 3) {
		i, from := p.IntN(len(p.Nodes)), p.soon()
		n := p.Nodes[i]
		if lucky(p.Rand, 50) {
			n.State = orbit.Cordoned
		} else {
			n.Capacity[orbit.CPU] = p.Int64N(n.Capacity[orbit.CPU])
		}
		p.Events = append(p.Events, Event{At: from, Do: []orbit.Commitment{orbit.PutNode{Node: n}}})
		back := from + time.Duration(p.Int64N(int64(patienceTrouble-from)+1))
		p.Events = append(p.Events, Event{At: back, Do: []orbit.Commitment{orbit.PutNode{Node: p.Nodes[i]}}})
	}
}

// swapping is a navigator that ends its own tasks in the commit that places the next ones in their stead. The room that
// it frees does not belong to it, just as if the tasks had ended by themselves: it must not overtake a nomination with
// that room.
type swapping struct{ nav.Batch }

// Plan places the capsules that fit. For one of the others it proposes to take the place of a running task with the
// same spec.
func (s *swapping) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := s.Batch.Plan(ctx, view, pending)
	placed := map[orbit.CapsuleID]bool{}
	for i := range plan.Proposals {
		for _, do := range plan.Proposals[i].Do {
			if do, ok := do.(orbit.Place); ok {
				placed[do.Capsule] = true
			}
		}
	}
	for _, c := range pending {
		if placed[c.ID] {
			continue
		}
		for n := range view.State().Nodes() {
			for old := range view.State().On(n.Node.ID) {
				if old.Spec == c.Spec && !placed[old.ID] {
					placed[old.ID] = true
					plan.Proposals = append(plan.Proposals, orbit.Proposal{View: view.Revision(), Do: []orbit.Commitment{
						orbit.Release{Capsule: old.ID, Final: true}, orbit.Place{Capsule: c.ID, Node: n.Node.ID},
					}})
					return plan, err // one in each plan
				}
			}
		}
	}
	return plan, err
}
