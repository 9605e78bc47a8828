package nav_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
	"github.com/orbitsched/orbit/sim"
)

// openbFlow is the work of the openb trace coming to its nodes and leaving them again.
type openbFlow struct {
	// What part of the devices is asked for at a time, if all could be placed at once.
	load float64
	// How long capsules run, on average; 0: for ever, and they come until so much has been asked for.
	lasts time.Duration
	// What waits is nominated.
	patient bool
	seed    uint64
	ticks   int
}

const openbTick = 10 * time.Second

// openbUse is what came of it: the part of the devices that was in use, and how long capsules waited that ask for whole
// machines of eight devices.
type openbUse struct {
	devices                float64
	waiting, large, placed int
	nominated              float64
}

func (f openbFlow) run(t *testing.T, nodes []orbit.Node, pods []sim.Capsule) (u openbUse) {
	synctest.Test(t, func(t *testing.T) {
		l, rng := &orbit.MemoryLedger{}, rand.New(rand.NewPCG(f.seed, 3))
		for i := range nodes {
			commit(t, l, orbit.PutNode{Node: nodes[i]})
		}
		e := &orbit.Engine{Name: "openb", Ledger: l, MaxPlan: 20_000, Navigator: &nav.Services{Placement: &place.Indexed{Score: score.BestFit{}}}}
		if f.patient {
			e.Navigator = &nav.Patient{Navigator: e.Navigator}
		}
		capacity := sim.DeviceCapacity(nodes)
		lasts := f.lasts
		if lasts == 0 {
			lasts = time.Duration(f.ticks/2) * openbTick
		}
		rate := f.load * float64(capacity) * openbTick.Seconds() / lasts.Seconds() // of device demand, for each tick
		due, n, seen := 0.0, 0, orbit.Revision(0)
		ends := map[int][]orbit.Commitment{}
		for tick := range f.ticks {
			if len(ends[tick]) > 0 {
				commit(t, l, ends[tick]...)
			}
			var comes []orbit.Commitment
			if f.lasts > 0 || tick < f.ticks/2 {
				due += rate
			}
			for ; due > 0; n++ {
				spec := pods[rng.IntN(len(pods))].Spec
				due -= float64(sim.DeviceDemand(spec))
				comes = append(comes, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", n))}, Spec: spec, Owner: e.Name})
			}
			if len(comes) > 0 {
				commit(t, l, comes...)
			}
			for range 2 {
				r := e.Pass(t.Context())
				require.Empty(t, r.Errors)
				require.Zero(t, r.Infeasible+r.Invalid)
			}
			changes, err := l.Changes(t.Context(), seen)
			require.NoError(t, err)
			for i := range changes {
				seen = changes[i].Revision
				if c, ok := changes[i].Do.(orbit.Place); ok && f.lasts > 0 {
					at := tick + 1 + int(rng.ExpFloat64()*f.lasts.Seconds()/openbTick.Seconds())
					ends[at] = append(ends[at], orbit.Release{Capsule: c.Capsule, Final: true})
				}
			}
			delete(ends, tick)
			if tick >= f.ticks/2 {
				u.add(snapshot(t, l), capacity, f.ticks-f.ticks/2)
			}
			time.Sleep(openbTick)
		}
		require.NoError(t, snapshot(t, l).Verify())
	})
	return u
}

func (u *openbUse) add(s *orbit.State, capacity int64, ticks int) {
	used, part := int64(0), 1/float64(ticks)
	u.waiting, u.large, u.placed = s.PendingCount(), 0, 0
	for c := range s.Capsules() {
		switch {
		case c.Placed():
			used += sim.DeviceDemand(c.Spec)
			u.placed++
		case c.Pending() && c.Spec.Devices.Count == 8:
			u.large++
		}
	}
	u.devices += part * float64(used) / float64(capacity)
	for n := range s.Nominations() {
		for i := range n.Parts {
			u.nominated += part * float64(n.Parts[i].Devices.Len()*n.Parts[i].Milli) / float64(capacity)
		}
	}
}

// What is nominated, and lies idle until all of it is free, costs less than a third of a point of the devices of the openb trace: nothing
// where nothing ends, because what does not fit then leaves no room that others could use, and little where capsules run for
// ten minutes on average.
func TestClaimsCostLittleOfTheOpenbTrace(t *testing.T) {
	scale.Sweep(t)
	scale.Sequential(t)
	nodes, pods := openbBatch(t)
	for _, lasts := range []time.Duration{0, 10 * time.Minute} {
		for _, load := range []float64{1.3, 1} {
			f := openbFlow{load: load, lasts: lasts, ticks: 300}
			if lasts == 0 {
				f.ticks = 100
			}
			for f.seed = 44; f.seed < 44+uint64(scale.Of(0, 4)); f.seed++ {
				f.patient = false
				without := f.run(t, nodes, pods)
				f.patient = true
				with := f.run(t, nodes, pods)
				figures := fmt.Sprintf("load %.0f%%, lasting %v, seed %d: devices in use %.2f%% without Patient, %.2f%% with; nominated %.2f%%; waiting at the end %d, %d, for eight devices %d, %d",
					100*load, lasts, f.seed, 100*without.devices, 100*with.devices, 100*with.nominated, without.waiting, with.waiting, without.large, with.large)
				t.Log(figures)
				require.LessOrEqual(t, without.devices-with.devices, 0.003, figures)
			}
		}
	}
}
