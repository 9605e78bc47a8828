package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
)

// books count what really runs, whatever ledger and agents say: a capsule that runs twice at a time, and nodes that run more than they
// have.
type books struct {
	mu       sync.Mutex // guards what is below, and all machines
	machines []*machine
	faults   []string
	starts   map[orbit.CapsuleID]int
	done     map[orbit.CapsuleID]int
}

// started notes that a process begins, and what is wrong with that. The lock is held.
func (b *books) started(m *machine, p *process, now time.Time) {
	b.starts[p.task.Capsule]++
	twice := 0
	used := p.task.Spec.Envelope.Reservation[orbit.CPU]
	for _, other := range b.machines {
		other.sweep(now)
		for _, q := range other.procs {
			switch {
			case !q.runs(now):
			case q.task.Capsule == p.task.Capsule && p.task.Spec.Surge && twice == 0: // two may run, and not three
				twice++
			case q.task.Capsule == p.task.Capsule:
				b.faults = append(b.faults, fmt.Sprintf("%s starts on %s while %s runs on %s", p.task.Instance, m.id, q.task.Instance, other.id))
			case other == m:
				used += q.task.Spec.Envelope.Reservation[orbit.CPU]
			}
		}
	}
	if used > m.cpu {
		b.faults = append(b.faults, fmt.Sprintf("%s runs %d of %d when %s starts", m.id, used, m.cpu, p.task.Instance))
	}
}

// process is one instance. It ends at a time that is known when it starts, unless it is ended before.
type process struct {
	task         agent.Task
	began, ends  time.Time
	fails, ended bool
}

func (p *process) runs(now time.Time) bool { return now.Before(p.ends) }

// readyAfter is how long after its start a process serves.
const readyAfter = 300 * time.Millisecond

// machine is a runtime of processes that outlive the agent. The label "for" of a capsule says how long it runs, "fails" that it
// ends without being done.
type machine struct {
	*books
	id    orbit.NodeID
	cpu   int64
	procs map[agent.Instance]*process
	// How long a process takes to stop.
	stops time.Duration
	// Of a watchdog: when everything ends.
	until time.Time
	// What Start and Stop return instead of doing something, nil: nothing; whether they panic.
	broken error
	panics bool
	// Until when the agent's process is suspended: what it has decided to do has no effect before.
	resumes time.Time
	// Half of all starts fail by it; nil: none does.
	flaky *rand.Rand
}

// guarded is a machine with a watchdog.
type guarded struct{ *machine }

func (m *machine) enter() func() {
	m.mu.Lock()
	m.sweep(time.Now())
	return m.mu.Unlock
}

// sweep ends what the watchdog has ended by now, and counts what is done. The lock is held.
func (m *machine) sweep(now time.Time) {
	for _, p := range m.procs {
		if dead := m.until.Add(m.stops); !m.until.IsZero() && !now.Before(dead) && p.ends.After(dead) {
			p.ends, p.fails = dead, true
		}
		if !p.runs(now) && !p.ended {
			if p.ended = true; !p.fails {
				m.done[p.task.Capsule]++
			}
		}
	}
}

// suspend returns when the agent goes on. No context ends that.
func (m *machine) suspend() {
	for {
		leave := m.enter()
		wait := time.Until(m.resumes)
		leave()
		if wait <= 0 {
			return
		}
		time.Sleep(wait)
	}
}

func (m *machine) fault() error {
	if m.panics {
		panic("as told")
	}
	return m.broken
}

func (m *machine) Start(_ context.Context, task agent.Task) error {
	m.suspend()
	defer m.enter()()
	if err := m.fault(); err != nil {
		return err
	}
	now := time.Now()
	switch {
	case m.procs[task.Instance] != nil:
		m.faults = append(m.faults, fmt.Sprintf("%s starts again on %s", task.Instance, m.id))
		return errors.New("it is there")
	case !m.until.IsZero() && !now.Before(m.until):
		return errors.New("its time is over")
	}
	p := &process{task: task, began: now, ends: now.Add(1000 * time.Hour)}
	if text := task.Labels["for"]; text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		p.ends = now.Add(d)
	}
	_, p.fails = task.Labels["fails"]
	if m.flaky != nil && m.flaky.IntN(2) == 0 {
		p.ends, p.fails = now.Add(readyAfter/2), true
	}
	m.started(m, p, now)
	m.procs[task.Instance] = p
	return nil
}

func (m *machine) Stop(ctx context.Context, i agent.Instance) error {
	m.suspend()
	leave := m.enter()
	p, now := m.procs[i], time.Now()
	if err := m.fault(); err != nil || p == nil || !p.runs(now) {
		leave()
		return err
	}
	if end := now.Add(m.stops); p.ends.After(end) {
		p.ends, p.fails = end, true
	}
	wait := time.Until(p.ends)
	leave()
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *machine) Forget(_ context.Context, i agent.Instance) error {
	defer m.enter()()
	if p := m.procs[i]; p != nil && p.runs(time.Now()) {
		m.faults = append(m.faults, fmt.Sprintf("%s is forgotten on %s while it runs", i, m.id))
	}
	delete(m.procs, i)
	return nil
}

// List answers a while after it has looked, so that the answer may be out of date.
func (m *machine) List(context.Context) (list []agent.Status, _ error) {
	defer time.Sleep(50 * time.Millisecond)
	defer m.enter()()
	now := time.Now()
	for i, p := range m.procs {
		phase := agent.Running
		switch {
		case !p.runs(now) && p.fails:
			phase = agent.Failed
		case !p.runs(now):
			phase = agent.Done
		case !now.Before(p.began.Add(readyAfter)):
			phase = agent.Ready
		}
		list = append(list, agent.Status{Instance: i, Phase: phase})
	}
	return list, nil
}

func (g guarded) Extend(_ context.Context, until time.Time) error {
	g.suspend()
	defer g.enter()()
	g.until = until
	return nil
}

// reboot ends everything at once and forgets it.
func (m *machine) reboot() {
	defer m.enter()()
	clear(m.procs)
}

// running lists what runs now.
func (m *machine) running() (out []orbit.CapsuleID) {
	defer m.enter()()
	for i, p := range m.procs {
		if p.runs(time.Now()) {
			out = append(out, i.Capsule)
		}
	}
	slices.Sort(out)
	return out
}

// list returns the faults, and copies of the counts.
func (b *books) read() (faults []string, starts, done map[orbit.CapsuleID]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.machines {
		m.sweep(time.Now())
	}
	return slices.Clone(b.faults), maps.Clone(b.starts), maps.Clone(b.done)
}
