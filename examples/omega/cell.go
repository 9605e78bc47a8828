package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
	"github.com/orbitsched/orbit/sim/race"
)

// The times of the paper: a decision takes 0.1 s for a job and 5 ms for each of its tasks, unless the experiment says
// otherwise.
const (
	jobTime  = 100 * time.Millisecond
	taskTime = 5 * time.Millisecond
)

// setup has the settings of one run.
type setup struct {
	options
	// serviceTime is how long the service scheduler takes to decide on a job.
	serviceTime time.Duration
	// batchTime is how long a batch scheduler takes; 0: 0.1 s.
	batchTime time.Duration
	// batches is the number of batch schedulers, rate the factor by which there are more batch jobs than usual.
	batches int
	rate    float64
	coarse  bool
	whole   bool
}

// cell returns the race. Most jobs are short batch jobs, and most of the capacity in use is used by services, which
// stay.
func (s setup) cell() *race.Config {
	r := &race.Config{Until: time.Duration(s.hours * float64(time.Hour)), Check: -1, Steps: math.MaxInt}
	rng := rand.New(rand.NewPCG(s.seed, 0))
	for i := range s.nodes {
		left := 2 + rng.Int64N(13) // free cores; running services use the others
		r.Nodes = append(r.Nodes, orbit.Node{ID: orbit.NodeID(fmt.Sprintf("m%05d", i)), Capacity: orbit.Resources{orbit.CPU: 1000 * left, orbit.Memory: 4 * left << 30}})
	}
	scheduler := func(name string, think time.Duration, seed uint64) {
		r.Schedulers = append(r.Schedulers, race.Scheduler{
			Name: name, JobTime: think, TaskTime: taskTime, Coarse: s.coarse, Whole: s.whole,
			Navigator: func() orbit.Navigator { // chooses any machine with room, as the paper's simulator does
				return &nav.Services{Placement: &place.Sampled{Score: score.Random{}, Seed: seed, Enough: 1}}
			},
		})
	}
	scheduler("service", s.serviceTime, 1)
	for i := range s.batches {
		scheduler(fmt.Sprintf("batch%d", i+1), cmp.Or(s.batchTime, jobTime), uint64(i)+2)
	}
	scale := float64(s.nodes) / 100
	services := arrivals{rng: rng, every: 120 / scale, tasks: 10, lasts: 3000, cores: 1000, memory: 3}
	for job := range services.until(r.Until) {
		job.Owner, job.Spec.Module = "service", fmt.Sprintf("service%d", len(r.Jobs))
		r.Jobs = append(r.Jobs, job)
	}
	batch := arrivals{rng: rng, every: 4 / s.rate / scale, tasks: 10, lasts: 120 / s.rate, cores: 1000, memory: 3}
	for job := range batch.until(r.Until) {
		job.Owner, job.Spec.Module = fmt.Sprintf("batch%d", len(r.Jobs)%s.batches+1), fmt.Sprintf("batch%d", len(r.Jobs))
		r.Jobs = append(r.Jobs, job)
	}
	return r
}

// arrivals are the jobs of one kind. Times are in seconds, memory is in GiB, and all values are averages.
type arrivals struct {
	rng    *rand.Rand
	every  float64
	tasks  float64
	lasts  float64
	cores  int64
	memory int64
}

// until yields jobs at random times up to end, at a constant rate.
func (a arrivals) until(end time.Duration) func(yield func(race.Job) bool) {
	return func(yield func(race.Job) bool) {
		for at := a.draw(a.every); at < end; at += a.draw(a.every) {
			spec := &orbit.Spec{Class: orbit.BestEffort, Envelope: orbit.Envelope{Reservation: orbit.Resources{
				orbit.CPU: a.cores/2 + a.rng.Int64N(a.cores), orbit.Memory: (a.memory<<30)/2 + a.rng.Int64N(a.memory<<30),
			}}}
			tasks := 1 + int(a.rng.ExpFloat64()*(a.tasks-1))
			if !yield(race.Job{At: at, Spec: spec, Tasks: min(tasks, 100), Lasts: a.draw(a.lasts)}) {
				return
			}
		}
	}
}

// draw returns a random time with this average.
func (a arrivals) draw(seconds float64) time.Duration {
	return time.Duration(a.rng.ExpFloat64() * seconds * float64(time.Second))
}

// figures are the results of the service scheduler and of all batch schedulers together.
type figures struct {
	service, batch race.Tally
	busiest        float64
}

// run runs the cell and adds up the results.
func (s setup) run() (f figures, err error) {
	res := s.cell().Run(s.seed)
	if res.Err != nil {
		return f, res.Err
	}
	f.service = res.Schedulers[0]
	for _, t := range res.Schedulers[1:] {
		b := &f.batch
		b.Decisions, b.Lost, b.Jobs = b.Decisions+t.Decisions, b.Lost+t.Lost, b.Jobs+t.Jobs
		b.Proposed, b.Committed, b.Conflicts = b.Proposed+t.Proposed, b.Committed+t.Committed, b.Conflicts+t.Conflicts
		b.Busy, b.Elapsed = b.Busy+t.Busy, b.Elapsed+t.Elapsed
		b.Waits = append(b.Waits, t.Waits...)
		f.busiest = max(f.busiest, t.Busyness())
	}
	return f, nil
}
