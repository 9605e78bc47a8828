package race

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Hunt runs up to this number of seeds, from first on, until one fails. It returns that failure after [Config.Shrink];
// nil if no seed fails. Print its Story.
func (r *Config) Hunt(first uint64, seeds int) *Result {
	return Scenario(func(uint64) *Config { return r }).Hunt(first, seeds)
}

// Scenario draws the race of a seed.
type Scenario func(seed uint64) *Config

// Hunt draws and runs the races of up to this number of seeds, from first on, until one fails. It returns that failure
// after [Config.Shrink]; nil if no seed fails.
func (s Scenario) Hunt(first uint64, seeds int) *Result {
	for i := range uint64(seeds) {
		seed := first + i
		r := s(seed)
		if res := r.run(&decider{seed: seed, faults: r.Faults}, true); res.Err != nil {
			return r.Shrink(r.Run(seed)) // run again with a history, which the first run did not write
		}
	}
	return nil
}

// The limits of shrinking one failure: runs, steps, and other seeds that are tried on each smaller world.
const (
	shrinkRuns  = 3000
	shrinkSteps = 2_000_000
	shrinkSeeds = 40
)

// Shrink looks for smaller failures by the same rule, with fewer schedulers, jobs, tasks, nodes, faults and delays, and
// in fewer steps. It returns the smallest one that it finds. The result keeps the Seed of the given failure, with which
// the original race fails; to repeat the small failure, Replay the result's Config with its Decisions.
func (r *Config) Shrink(failed *Result) *Result {
	s := &shrinker{best: failed, rule: ruleOf(failed.Err), left: shrinkRuns, steps: shrinkSteps}
	if s.rule == "" {
		return failed
	}
	if failed.Config.live != nil {
		s.try(failed.Config, nil) // most failures of Liveness need no fault
	}
	for size := -1; s.left > 0 && s.steps > 0 && size != s.size(); {
		size = s.size()
		s.world()
		s.decisions()
		s.delays()
	}
	s.best.Seed = failed.Seed
	return s.best
}

// shrinker looks for a smaller failure.
type shrinker struct {
	best *Result
	rule string
	// left and steps are the numbers of runs and steps that may still be taken.
	left, steps int
}

// size returns the number that shrinking makes small. The parts of the world weigh most, then the decisions, then the
// length of the history.
func (s *shrinker) size() int {
	r, tasks := &s.best.Config, 0
	for i := range r.Jobs {
		tasks += r.Jobs[i].Tasks
	}
	return 10_000*(len(r.Schedulers)+len(r.Jobs)+tasks+len(r.Nodes)+len(r.Events)) + 1000*len(s.best.Decisions) + 20*strings.Count(s.best.History, "\n") + s.lengths()
}

// lengths returns the sum of the sizes of all drawn times, such as delays: 0 for a millisecond, and 1 more for each
// doubling.
func (s *shrinker) lengths() (sum int) {
	for _, text := range s.best.Decisions {
		if words := strings.Fields(text); len(words) == 3 {
			d, _ := time.ParseDuration(words[2])
			sum += max(0, bits.Len64(uint64(d/time.Millisecond))-1)
		}
	}
	return sum
}

// try replays decisions in a world. A smaller failure by the same rule becomes the best one; try reports whether there
// was one.
func (s *shrinker) try(r Config, decisions []string) bool {
	return s.take(r, func(r *Config) *Result { return r.Replay(decisions) })
}

// take runs a race, and makes a smaller failure by the same rule the best one. It gives the race about twice the steps
// of the best one at most, because a longer run is hardly smaller and may never end.
func (s *shrinker) take(r Config, run func(*Config) *Result) bool {
	if s.left <= 0 || s.steps <= 0 {
		return false
	}
	s.left--
	steps := r.Steps
	r.Steps = 2*s.best.Steps + 100
	res, was := run(&r), s.best
	res.Config.Steps = steps
	s.steps -= res.Steps
	if ruleOf(res.Err) != s.rule {
		return false
	}
	before := s.size()
	if s.best = res; s.size() >= before {
		s.best = was
		return false
	}
	return true
}

// tryWorld tries a smaller world with the present decisions, and then with the decisions of other seeds.
func (s *shrinker) tryWorld(r Config) bool {
	if s.try(r, s.best.Decisions) {
		return true
	}
	for seed := range uint64(shrinkSeeds) {
		if s.left > shrinkRuns/3 && s.steps > shrinkSteps/3 && s.take(r, func(r *Config) *Result { return r.Run(seed) }) {
			return true
		}
	}
	return false
}

// world takes away schedulers with their jobs, jobs, tasks and nodes.
func (s *shrinker) world() {
	for i := len(s.best.Config.Schedulers) - 1; i >= 0; i-- {
		r := s.best.Config
		name := r.Schedulers[i].Name
		r.Schedulers = without(r.Schedulers, i, i+1)
		r.Jobs = slices.DeleteFunc(slices.Clone(r.Jobs), func(j Job) bool { return j.Owner == name })
		s.tryWorld(r)
	}
	chunks(func() int { return len(s.best.Config.Jobs) }, func(from, to int) bool {
		r := s.best.Config
		r.Jobs = without(r.Jobs, from, to)
		return s.tryWorld(r)
	})
	for i := range s.best.Config.Jobs {
		for _, n := range []int{1, s.best.Config.Jobs[i].Tasks / 2, s.best.Config.Jobs[i].Tasks - 1} {
			if i < len(s.best.Config.Jobs) && n >= max(1, s.best.Config.Jobs[i].Min)+s.best.Config.Jobs[i].Joins && n < s.best.Config.Jobs[i].Tasks {
				r := s.best.Config
				r.Jobs = slices.Clone(r.Jobs)
				r.Jobs[i].Tasks, r.Jobs[i].On = n, r.Jobs[i].On[:min(n, len(r.Jobs[i].On))]
				s.tryWorld(r)
			}
		}
	}
	chunks(func() int { return len(s.best.Config.Events) }, func(from, to int) bool {
		r := s.best.Config
		r.Events = without(r.Events, from, to)
		return s.tryWorld(r)
	})
	chunks(func() int { return len(s.best.Config.Nodes) }, func(from, to int) bool {
		r := s.best.Config
		r.Jobs = notOn(r.Jobs, r.Nodes[from:to])
		r.Nodes = without(r.Nodes, from, to)
		return s.tryWorld(r)
	})
}

// notOn returns the jobs without the tasks that their submission places on one of these nodes.
func notOn(jobs []Job, nodes []orbit.Node) []Job {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		j := &jobs[i]
		left := slices.DeleteFunc(slices.Clone(j.On), func(id orbit.NodeID) bool {
			return slices.ContainsFunc(nodes, func(n orbit.Node) bool { return n.ID == id })
		})
		j.Tasks, j.On = j.Tasks-len(j.On)+len(left), left
	}
	return slices.DeleteFunc(jobs, func(j Job) bool { return j.Tasks == 0 })
}

// decisions takes away decisions.
func (s *shrinker) decisions() {
	chunks(func() int { return len(s.best.Decisions) }, func(from, to int) bool {
		return s.try(s.best.Config, without(s.best.Decisions, from, to))
	})
}

// delays makes delays and other times that were drawn as short as they may be.
func (s *shrinker) delays() {
	for i := range s.best.Decisions {
		words := strings.Fields(s.best.Decisions[i])
		if len(words) < 3 {
			continue
		}
		was, _ := time.ParseDuration(words[2])
		for d := time.Millisecond; d < was; d *= 2 { // a replay draws nothing, so the number of decisions does not grow
			shorter := slices.Clone(s.best.Decisions)
			shorter[i] = words[0] + " " + words[1] + " " + d.String()
			if s.try(s.best.Config, shorter) {
				break
			}
		}
	}
}

// chunks calls away with runs of a list that it may remove, large runs first and from the end of the list. Size returns
// the present length of the list.
func chunks(size func() int, away func(from, to int) bool) {
	for n := size(); n > 0; n /= 2 {
		for at := size() - n; at > -n; at -= n {
			if from, to := max(at, 0), min(at+n, size()); from < to {
				away(from, to)
			}
		}
	}
}

// without returns a copy of a list without the elements from (inclusive) to (exclusive).
func without[T any](list []T, from, to int) []T {
	return slices.Delete(slices.Clone(list), from, to)
}
