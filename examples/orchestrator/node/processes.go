// Package node runs capsules as processes of the operating system.
//
//	agent.Agent ──► Processes ── task.json ──► supervisor ──► the process
//	                    │ Extend: until ──────────► │ reads it, and stops the process in time
//	                    └ List ◄── lock, exit.json ─┘
//
// Each capsule has a supervisor, a process that outlives the agent. So an agent can be replaced while all processes run
// on. And processes stop in time even if the agent is dead or suspended: a supervisor stops its process when the time
// in the file until has come.
//
// A lock shows whether an instance still runs. The supervisor and the process inherit the lock from the agent that has
// started them. The kernel holds the lock until the last of them is gone, so no process is overlooked, whichever of
// them was killed.
//
// A real orchestrator has containers here. It must keep three things: names that are unique to the instance, a list of
// instances that outlives the agent, and a time at which everything stops by itself.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/orbitsched/orbit/agent"
)

// Labels of a capsule that define its process.
const (
	// LabelRun is the program and its arguments, a JSON array of strings.
	LabelRun = "run"
	// LabelKeep, if set, says that the process should never end: if it ends it has failed, whatever its exit code.
	LabelKeep = "keep"
	// LabelReady, if set, says that the process serves once it has made the file that ORBIT_READY names.
	LabelReady = "ready"
)

// Processes is the runtime of a node. It is an [agent.Watchdog].
type Processes struct {
	// Dir is the folder of the node. Required.
	Dir string
	// Node is the id of the node, which processes find in ORBIT_NODE.
	Node string
	// Supervisor is the command that calls [Supervise], a program and its arguments; Processes appends the folder of
	// the instance and Grace. Required.
	Supervisor []string
	// Grace is how long a process has from SIGTERM to SIGKILL. It must be less than [agent.Agent.Stopping].
	Grace time.Duration

	// Keeps the folder locked.
	lock *os.File
}

var _ agent.Watchdog = (*Processes)(nil)

// tick is how often a supervisor checks whether it has to stop, and Stop whether everything has stopped.
const tick = 25 * time.Millisecond

// Open makes the folder of the node and locks it, because a node has one agent at a time. The lock ends with the
// process.
func (p *Processes) Open() (err error) {
	if p.Dir, err = filepath.Abs(p.Dir); err != nil { // processes run in folders of their own
		return err
	}
	if err := os.MkdirAll(filepath.Join(p.Dir, "run"), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(p.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("node: %s has another agent: %w", p.Dir, err)
	}
	p.lock = f
	return nil
}

// Start implements [agent.Runtime].
func (p *Processes) Start(ctx context.Context, task agent.Task) error {
	folder := p.folderOf(task.Instance)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	if err := write(filepath.Join(folder, "task.json"), task); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // the supervisor has it by then
	log, err := os.OpenFile(filepath.Join(folder, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // as above
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	args := slices.Concat(p.Supervisor[1:], []string{folder, p.Node, strconv.FormatInt(int64(p.Grace), 10)})
	cmd := exec.Command(p.Supervisor[0], args...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // exit.json says how it went
	return nil
}

// Stop implements [agent.Runtime].
func (p *Processes) Stop(ctx context.Context, i agent.Instance) error {
	folder := p.folderOf(i)
	if err := os.WriteFile(filepath.Join(folder, "stop"), nil, 0o600); err != nil {
		if os.IsNotExist(err) { // nothing was started
			return nil
		}
		return err
	}
	for {
		switch runs, err := locked(folder); {
		case err != nil:
			return err
		case !runs:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node: %s has not stopped: %w", i, ctx.Err())
		case <-time.After(tick):
		}
	}
}

// Forget implements [agent.Runtime].
func (p *Processes) Forget(_ context.Context, i agent.Instance) error {
	return os.RemoveAll(p.folderOf(i))
}

// List implements [agent.Runtime].
func (p *Processes) List(context.Context) (list []agent.Status, _ error) {
	entries, err := os.ReadDir(filepath.Join(p.Dir, "run"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		i, ok := instanceOf(e.Name())
		if !ok {
			continue
		}
		phase, err := phaseOf(p.folderOf(i))
		if err != nil {
			return nil, err
		}
		list = append(list, agent.Status{Instance: i, Phase: phase})
	}
	return list, nil
}

// phaseOf returns the phase of an instance.
func phaseOf(folder string) (agent.Phase, error) {
	var task agent.Task
	if err := read(filepath.Join(folder, "task.json"), &task); err != nil {
		return agent.Failed, nil //nolint:nilerr // the agent was killed before it had started a supervisor
	}
	runs, err := locked(folder)
	_, says := task.Labels[LabelReady]
	switch {
	case err != nil:
		return 0, err
	case runs && says && !exists(filepath.Join(folder, "ready")):
		return agent.Running, nil
	case runs:
		return agent.Ready, nil
	}
	var end exit
	err = read(filepath.Join(folder, "exit.json"), &end)
	_, keeps := task.Labels[LabelKeep]
	if err != nil || end.Stopped || end.Code != 0 || keeps {
		return agent.Failed, nil //nolint:nilerr // the supervisor was killed
	}
	return agent.Done, nil
}

// Extend implements [agent.Watchdog].
func (p *Processes) Extend(_ context.Context, until time.Time) error {
	now, boot, err := sinceBoot()
	if err != nil {
		return err
	}
	return write(filepath.Join(p.Dir, "until"), deadline{boot, now + time.Until(until)})
}

// errTooLate says that a supervisor was started after the node's deadline.
var errTooLate = errors.New("the node's time is over")
