package race

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Config is a race: it runs several engines, a ledger and the world around them as one deterministic sequence of steps:
// the same seed gives the same history, byte for byte, in any process. It finds, replays and shrinks bugs of ledgers
// and navigators that show only when steps interleave badly. Published experiments with many schedulers can be repeated
// with it. Fill in the fields and call Run, or Hunt for a seed that fails.
//
//	world ─ submits jobs, ends tasks, hears nodes ─┐
//	engine ─ view ─ plan ─ think ─ propose ─ rest ─┼─► gate ─► ledger    one step at a time, in an order that is
//	engine ─ view ─ plan ─ think ─ propose ─ rest ─┘                     a function of the seed
//
// The engines are real. Each runs [orbit.Engine.Pass] in a goroutine of its own, which stops at every call of the
// ledger, at every plan and wherever [Step] is called; exactly one goroutine moves at a time. A stop lasts for a
// drawn time and may end in a drawn fault, so that every interleaving is possible.
//
// Running a Config does not change it. It may be run in several goroutines at once if the ledgers and navigators that
// its functions return are not shared.
type Config struct {
	// Nodes are the nodes of the world at the start.
	Nodes []orbit.Node
	// Jobs are submitted during the run, each at its time.
	Jobs []Job
	// Schedulers are the engines that race.
	Schedulers []Scheduler
	// Ledger makes the empty ledger of a run; nil: an [orbit.MemoryLedger].
	Ledger func() orbit.Ledger
	// Faults are the faults to inject; the zero value injects none.
	Faults Faults
	// Events are changes of the world beside the jobs, such as nodes that are cordoned.
	Events []Event
	// Heartbeat is the interval at which every node reports; 0: there is no telemetry. The load in the reports is
	// generated, and the same in every run.
	Heartbeat time.Duration

	// Until is the virtual time at which the run ends; 0: it ends when every capsule that fits is placed and every task
	// with a limited duration has ended.
	Until time.Duration
	// Steps is the maximum number of steps; default 1,000,000. A run that reaches it ends without an error.
	Steps int
	// Bound is the liveness bound in steps: this many steps after the last event of the world and the last fault, every
	// capsule that fits must be placed, and until then at least one engine must be awake. 0, the default, checks no
	// liveness.
	Bound int
	// Starts and Stops are the times that the agent of a node that confirms ([orbit.Node] Confirms) takes to report.
	// After Starts it reports that a placed capsule has begun, and after the same time again that the capsule is ready.
	// After Stops it reports that a capsule that had to leave has stopped. If the ledger refuses a report, the agent
	// tries again.
	Starts, Stops time.Duration
	// Serve bounds nominations ([orbit.Nominate]): the nomination of the highest rank must be placed within this time
	// after its room has become free, and no nomination may live for longer than this after its Ends. Both are checked
	// only after a time of the same length without a fault, an event or the begin of an engine. 0: not checked.
	Serve time.Duration
	// Check is the number of steps with commits between two checks of the whole state; default 1, which suits small
	// worlds only. A negative number disables these checks, the replay of the history, and the check of each commit by
	// [orbit.State.Check].
	Check int
	// Sleep is called whenever virtual time advances, with the time by which it advances; nil: not called.
	Sleep func(time.Duration)
	// Command is the command that runs a seed again, with %d for the seed; a failure prints it.
	Command string

	// live is the draft of a world of [Liveness]; nil in other races.
	live *liveDraft
}

// Scheduler is an engine and how long it thinks.
type Scheduler struct {
	// Name identifies the scheduler: it must be unique and without spaces.
	Name string
	// Navigator makes the navigator, once for each run and again after each crash.
	Navigator func() orbit.Navigator
	// JobTime and TaskTime are the virtual time that a decision takes: JobTime for each of its jobs, and TaskTime for
	// each task.
	JobTime, TaskTime time.Duration
	// Together is the maximum number of jobs that one pass decides on; 0: one. Negative: all pending jobs.
	Together int
	// Coarse makes the scheduler bet that nothing on its nodes has changed ([orbit.NodeAt]), instead of betting on free
	// capacity. All placements on one node are then in one proposal, because a second one would lose to the first.
	Coarse bool
	// Whole puts all decisions of a pass into one proposal, which is committed whole or not at all.
	Whole bool
	// MaxPlan is the maximum number of capsules that one pass hands to the navigator; 0: the default of [orbit.Engine].
	MaxPlan int
	// ParkFor and Backoff are the fields of the engine. If ParkFor is 0, a class that was put aside never comes back
	// because of time alone, so that a lost wake-up shows.
	ParkFor time.Duration
	Backoff orbit.Backoff
	// careless allows the proposals to be infeasible, and to lose to each other.
	careless bool
	// In a world of [Liveness]: the draft of the engine, the deadline of its plans, and the function that makes its
	// navigator, in place of Navigator.
	live        *liveEngine
	planTimeout time.Duration
	make        func(*course) orbit.Navigator
}

// Job is a number of identical tasks that are submitted together. The tasks of the third job in the list are the
// capsules "j3-1", "j3-2" and so on.
type Job struct {
	// At is the virtual time of the submission.
	At time.Duration
	// Owner is the scheduler that the job is assigned to; empty: all schedulers that claim it may place it.
	Owner string
	// Spec is the spec of each task.
	Spec *orbit.Spec
	// Tasks is the number of tasks, each of which is one capsule.
	Tasks int
	// Lasts is how long a task runs after it is placed; 0: for ever.
	Lasts time.Duration
	// Again submits a new task of the job whenever one ends, for whatever reason, so that the job never ends. A race
	// with such a job ends when all tasks of all other jobs have been placed. Not for gangs.
	Again bool
	// On lists the nodes on which the first tasks are placed by the commit that submits them; schedulers place the
	// others.
	On []orbit.NodeID
	// Replaced says that a controller ends each task that was evicted to make way, and submits a new one in its place,
	// unless the task was placed again before.
	Replaced bool
	// Victims is how many capsules have to make way for each task. The whole run may evict no more capsules than the
	// sum over the tasks of all jobs; if that sum is 0, this is not checked.
	Victims int
	// Within bounds the time until all tasks are placed or, for a gang, its minimum is. The time counts from the
	// submission or from the last disturbance, whichever is later; 0: no bound. Disturbances are events, faults other
	// than delays, and the begin of an engine.
	Within time.Duration
	// Gang makes the tasks a gang, whose first placement holds at least Min of them. The gang of the third job has the
	// id "j3".
	Gang bool
	// Min is the smallest number of members in a gang's first placement; 0: all.
	Min int
	// Levels are the topology levels of the gang, narrowest first; empty: none.
	Levels []string
	// Joins is how many of the gang's tasks are not submitted with it, but join it one after the other ([orbit.Submit]
	// Join), each Later after the one before. At least Min tasks, and one, must be submitted with the gang.
	Joins int
	// Later is the virtual time between two tasks that join, and before the first.
	Later time.Duration
}

// Event is a change of the world at a time.
type Event struct {
	// At is the virtual time of the event.
	At time.Duration
	// Do are the commitments that the world then proposes to the ledger, which may refuse them.
	Do []orbit.Commitment

	// In a world of [Liveness]: the kind of the event, and the number from which its details are drawn at the time of
	// the event, because they depend on the state at that time.
	kind string
	id   int
}

// Faults are the chances, from 0 to 1, with which a step goes wrong. With the zero value nothing goes wrong or is
// delayed, and an engine runs until it waits. A step has at most one fault beside a delay.
type Faults struct {
	// Delay is the chance that a step waits from 1 ms to Longest before it is taken, which interleaves the steps. Until
	// does not end delays.
	Delay float64
	// Longest is about the longest time of a delay, and by which a proposal is late; 0: 4 s.
	Longest time.Duration
	// Crash is the chance that the engine crashes before the step; a new engine takes its place a while later.
	Crash float64
	// Conflict, Unavailable, Unknown, Dropped and Late are the chances of faults of a proposal. Conflict refuses the
	// proposal for no reason. Unavailable does not send it. Unknown sends it and loses the answer. Dropped does not
	// send it, and the outcome is unknown to the engine. Late does the same and delivers the proposal a while later.
	// Unavailable also applies to snapshots, changes and waits; Dropped and Late also apply to reports of nodes.
	Conflict, Unavailable, Unknown, Dropped, Late float64
	// Slow is the chance that the answer to a proposal comes late, by up to half a second.
	Slow float64
	// Stale is the chance that the engine gets, instead of a new snapshot, the last one that it has seen.
	Stale float64
	// Holds is the chance that a proposal with a hold is refused for no reason. Reports is the chance that reports are
	// unavailable. Plan is the chance that a plan fails, panics or overruns its deadline.
	Holds, Reports, Plan float64
	// Until is the virtual time at which faults end; 0: never.
	Until time.Duration
}

// Run runs a race with the decisions that are drawn from a seed.
//
// Time is virtual and costs nothing. Engines read the time of day only to put classes aside and to end holds. In a race
// a class stays aside for ever by default (Scheduler.ParkFor). For navigators that hold room, run the race in a
// synctest bubble with Sleep set to [time.Sleep], so that package time keeps to the virtual time; without Sleep no hold
// ends.
//
// Safety is checked after every step against a model that is told all answers and reads the history, and at the end by
// replaying the history. The rules are: no node is oversubscribed; no capsule is placed twice; no proposal is committed
// in part or twice; a commit that was acknowledged is in the history, and a proposal that was refused is not; no answer
// is older than the newest acknowledged commit; no wait misses a newer revision; no engine plans on a view older than
// an answer in one of its earlier passes; and no engine loses to its own commit. Liveness is checked if Bound is set.
// One run can check both, but separate runs are better: faults that never end find the most safety violations, and
// under such faults no capsule has to be placed.
func (r *Config) Run(seed uint64) *Result {
	res := r.run(&decider{seed: seed, faults: r.Faults}, false)
	res.Seed = seed
	return res
}

// Replay runs a race with the decisions of an earlier run ([Result.Decisions]), or some of them, and draws nothing.
func (r *Config) Replay(decisions []string) *Result {
	d, err := replayed(decisions)
	if err != nil {
		return &Result{Config: *r, Err: err}
	}
	return r.run(d, false)
}

// run runs a race to its end. If silent is set, no history is written.
func (r *Config) run(d *decider, silent bool) *Result {
	if err := r.faults(); err != nil {
		return &Result{Config: *r, Err: err}
	}
	c := newCourse(r, d)
	c.silent = silent
	c.drive()
	return c.result()
}

// faults reports everything that is wrong with the fields.
func (r *Config) faults() error {
	var faults []string
	names := map[string]bool{"": true, worldName: true}
	for i := range r.Schedulers {
		s := &r.Schedulers[i]
		if names[s.Name] || strings.ContainsAny(s.Name, " /\n\t") {
			faults = append(faults, fmt.Sprintf("scheduler %d is named %q; want a name of its own, not %q, without spaces and slashes", i, s.Name, worldName))
		}
		names[s.Name] = true
		if s.Navigator == nil && s.make == nil {
			faults = append(faults, fmt.Sprintf("scheduler %q has no Navigator", s.Name))
		}
		if min(s.JobTime, s.TaskTime) < 0 {
			faults = append(faults, fmt.Sprintf("scheduler %q thinks for a negative time", s.Name))
		}
	}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if j.Owner == worldName || !names[j.Owner] {
			faults = append(faults, fmt.Sprintf("job %d is for %q, which is none of the schedulers", i+1, j.Owner))
		}
		if j.Again && (j.Gang || j.Lasts == 0) {
			faults = append(faults, fmt.Sprintf("job %d comes again, and so must end and be no gang", i+1))
		}
		if len(j.On) > j.Tasks || len(j.On) > 0 && j.Gang || j.Replaced && (j.Gang || j.Again) {
			faults = append(faults, fmt.Sprintf("job %d has %d tasks and %d nodes to place them on; at most one each, for a gang none; and what is Replaced is no gang and does not come Again", i+1, j.Tasks, len(j.On)))
		}
		if j.Joins != 0 && (!j.Gang || j.Joins < 0 || j.Tasks-j.Joins < max(1, j.Min) || j.Later < 0) {
			faults = append(faults, fmt.Sprintf("job %d has %d tasks, of which %d join a gang later; a gang needs at least one at first, and its Min", i+1, j.Tasks, j.Joins))
		}
		if j.Spec == nil || j.Tasks < 1 || min(j.At, j.Lasts) < 0 {
			faults = append(faults, fmt.Sprintf("job %d needs a Spec and at least one task, and times that are not negative", i+1))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("race: %w: %s", orbit.ErrInvalid, strings.Join(faults, "; "))
	}
	return nil
}

// Step marks a place where a ledger or a navigator under test may be interrupted; where names the place in failures. A
// ledger or navigator that runs in a race passes the context of the call that it is in. Step then lets other engines
// run, and does not return if its engine crashes there (deferred functions run). Outside a race it does nothing. Do not
// call it while holding a lock that other engines need.
func Step(ctx context.Context, where string) {
	if a, ok := ctx.Value(actorKey{}).(*actor); ok {
		a.note(a, "stops: %s", where)
		a.stop(stepInside, "%s", where)
	}
}

// violation is the error of a promise that was broken: the name of the rule, and what happened.
type violation struct{ rule, text string }

// Error names the rule first.
func (v *violation) Error() string { return v.rule + ": " + v.text }

// ruleOf returns the name of the rule that was broken according to an error; empty: the error is no violation.
func ruleOf(err error) string {
	if v := (*violation)(nil); errors.As(err, &v) {
		return v.rule
	}
	return ""
}
