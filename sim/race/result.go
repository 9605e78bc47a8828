package race

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Result is the result of one run of a [Config].
type Result struct {
	// Config is the race that was run; in the results of Hunt and Shrink it is smaller than the original one.
	Config Config
	// Seed is the seed of the run; for a replay, the seed of the recorded run, if it is known.
	Seed uint64
	// Decisions lists the random draws that had an effect: which actor was delayed or failed at which step, as in
	// "batch/12 delay 40ms" or "service/3 conflict". [Config.Replay] takes them.
	Decisions []string
	// Err is the first violation, which begins with the name of the rule; nil: none.
	Err error
	// History has one line for each event, with its time and actor. The same seed gives the same history; in a race
	// with Sleep, only if Sleep keeps package time at the virtual time.
	History string
	// Schedulers has the results of each scheduler, in the order of Config.Schedulers.
	Schedulers []Tally
	// Elapsed is the virtual duration of the run.
	Elapsed time.Duration
	// Evictions counts the evictions to make way for other work. Repeats counts those of them in which the capsule, or
	// one that it has replaced, had made way for the same work before.
	Evictions, Repeats int
	// Steps counts the steps, and Waiting the tasks that are not placed at the end.
	Steps, Waiting int
}

// Tally is what one scheduler did.
type Tally struct {
	// Name is the name of the scheduler.
	Name string
	// Decisions counts the plans, Lost the passes that lost at least one proposal to another commit, and Jobs the jobs
	// whose last task the scheduler placed.
	Decisions, Lost, Jobs int
	// Proposed counts the proposals that were sent, Committed the committed ones, and Conflicts those that lost to
	// another commit.
	Proposed, Committed, Conflicts int
	// Busy is the virtual time spent on decisions, of the Elapsed time of the run.
	Busy, Elapsed time.Duration
	// Waits has, for each job, the time from its submission until its last task was placed, shortest first.
	Waits []time.Duration
}

// ConflictFraction is the number of conflicts per placed job. All proposals that one decision loses count as one
// conflict. At 3 the average job is decided on four times. This is the measure of the paper on Omega.
func (t *Tally) ConflictFraction() float64 { return ratio(t.Lost, t.Jobs) }

// ConflictsPerCommit is the number of lost proposals per committed one.
func (t *Tally) ConflictsPerCommit() float64 { return ratio(t.Conflicts, t.Committed) }

// Busyness is the share of the time in which the scheduler was deciding, from 0 to 1.
func (t *Tally) Busyness() float64 {
	if t.Elapsed <= 0 {
		return 0
	}
	return float64(t.Busy) / float64(t.Elapsed)
}

// Wait returns a quantile of the waits: the wait that this share of the jobs, from 0 to 1, did not exceed; 0 if no job
// was placed.
func (t *Tally) Wait(share float64) time.Duration {
	if len(t.Waits) == 0 {
		return 0
	}
	return t.Waits[min(int(share*float64(len(t.Waits))), len(t.Waits)-1)]
}

func ratio(a, b int) float64 { return float64(a) / float64(max(b, 1)) }

// result returns the result of a run.
func (c *course) result() *Result {
	elapsed := c.now
	if c.over > 0 {
		elapsed = c.ended
	}
	res := &Result{
		Config: *c.Config, Decisions: c.decider.made, Err: c.err, History: c.history.String(),
		Elapsed: elapsed, Steps: c.step, Waiting: c.audit.pending,
		Evictions: c.audit.evicted, Repeats: c.audit.repeated,
	}
	for _, a := range c.actors {
		a.tally.Elapsed = elapsed
		slices.Sort(a.tally.Waits)
		res.Schedulers = append(res.Schedulers, a.tally)
	}
	return res
}

// String returns a table of the schedulers, and the violation if there is one.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s %9s %9s %9s %7s %9s %9s %6s %8s %8s %8s\n",
		"scheduler", "decisions", "proposed", "committed", "jobs", "conflicts", "per job", "busy", "wait p50", "p90", "p99")
	for i := range r.Schedulers {
		t := &r.Schedulers[i]
		fmt.Fprintf(&b, "%-10s %9d %9d %9d %7d %9d %9.3f %5.1f%% %8s %8s %8s\n", t.Name, t.Decisions, t.Proposed, t.Committed, t.Jobs,
			t.Conflicts, t.ConflictFraction(), 100*t.Busyness(), brief(t.Wait(0.5)), brief(t.Wait(0.9)), brief(t.Wait(0.99)))
	}
	fmt.Fprintf(&b, "%d steps, %v of virtual time, %d tasks wait\n", r.Steps, r.Elapsed, r.Waiting)
	if r.Err != nil {
		fmt.Fprintf(&b, "%v\n", r.Err)
	}
	return b.String()
}

// brief formats a time, rounded so that it fits into the table.
func brief(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.String()
}

// Rule returns the name of the rule that was broken, as in "left"; empty: none was.
func (r *Result) Rule() string { return ruleOf(r.Err) }

// Story describes a failure: the promise that was broken, the command that runs it again, the world, the decisions that
// were drawn, and the history step by step.
func (r *Result) Story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %v\n", r.Seed, r.Err)
	fmt.Fprintf(&b, "run it again with: %s\n", command(r.Config.Command, r.Seed))
	tasks := 0
	for i := range r.Config.Jobs {
		tasks += r.Config.Jobs[i].Tasks
	}
	fmt.Fprintf(&b, "world: %d nodes, %d schedulers, %d jobs of %d tasks in all\n", len(r.Config.Nodes), len(r.Config.Schedulers), len(r.Config.Jobs), tasks)
	for i := range r.Config.Schedulers {
		if e := r.Config.Schedulers[i].live; e != nil {
			fmt.Fprintf(&b, "engine %v\n", e)
		}
	}
	for i := range r.Config.Jobs {
		fmt.Fprintf(&b, "job %d: %v\n", i+1, &r.Config.Jobs[i])
	}
	fmt.Fprintf(&b, "drawn: %s\n", cmp.Or(strings.Join(r.Decisions, ", "), "nothing"))
	fold(&b, r.History)
	if r.Err != nil {
		fmt.Fprintf(&b, "%10v  broken   %v\n", r.Elapsed, r.Err)
	}
	return b.String()
}

// String describes a job for a story.
func (j *Job) String() string {
	text := fmt.Sprintf("%d tasks of %q at %v: %s", j.Tasks, j.Owner, j.At, wishes(j.Spec))
	if j.Lasts > 0 {
		text += fmt.Sprintf(", each for %v", j.Lasts)
	}
	if j.Again {
		text += ", again and again"
	}
	if j.Gang {
		text += fmt.Sprintf(", a gang, at least %d, levels %v", cmp.Or(j.Min, j.Tasks), j.Levels)
	}
	if j.Joins > 0 {
		text += fmt.Sprintf(", %d of them join later, each after %v", j.Joins, j.Later)
	}
	return text
}

// fold writes a history. If lines that differ only in their time follow one another, it writes the first two and a
// note.
func fold(b *strings.Builder, history string) {
	last, times := "", 0
	for line := range strings.Lines(history) {
		what := line
		if words := strings.Fields(line); len(words) > 0 {
			_, what, _ = strings.Cut(line, words[0])
		}
		if times++; what != last {
			last, times = what, 0
		}
		switch times {
		case 0, 1:
			b.WriteString(line)
		case 2:
			fmt.Fprintf(b, "%10s  and so on\n", "...")
		}
	}
}

// command returns the command that runs a seed again.
func command(format string, seed uint64) string {
	if format == "" {
		return fmt.Sprintf("Config.Run(%d)", seed)
	}
	if !strings.Contains(format, "%d") {
		return format
	}
	return fmt.Sprintf(format, seed)
}
