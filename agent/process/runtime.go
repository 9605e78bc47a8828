//go:build unix

package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
)

// Runtime runs capsules as processes. Set the fields before Open. It is an [agent.Watchdog], and used as one from several
// goroutines.
type Runtime struct {
	// Dir is the folder of the node; Open makes it. A node keeps it: another agent with the same folder takes over what
	// runs. Required.
	Dir string
	// Node is the id of the node, which processes find in ORBIT_NODE.
	Node orbit.NodeID
	// Grace is how long a process has from SIGTERM to SIGKILL; default 10 s. It must be less than [agent.Agent.Stopping].
	Grace time.Duration
	// Command says what process a capsule is. A capsule for which it returns an error has failed, and its log has the
	// error. Default: [FromLabels].
	Command func(task agent.Task) (Command, error)
	// Program is the program of the supervisors, which must call [Init]. Default: the present one.
	Program string

	// Keeps the folder locked.
	lock *os.File
}

var _ agent.Watchdog = (*Runtime)(nil)

// tick is how often a supervisor checks whether it has to stop, and Stop whether everything has stopped.
const tick = 25 * time.Millisecond

// Open makes the folder of the node and locks it, because a node has one agent at a time. The lock ends with [Runtime.Close]
// or the program.
func (r *Runtime) Open() (err error) {
	if r.Dir == "" {
		return errors.New("process: a Runtime needs Dir")
	}
	if r.Dir, err = filepath.Abs(r.Dir); err != nil { // processes run in folders of their own
		return err
	}
	if r.Program == "" {
		if r.Program, err = os.Executable(); err != nil {
			return err
		}
	}
	r.Grace = cmp.Or(r.Grace, 10*time.Second)
	if r.Command == nil {
		r.Command = FromLabels
	}
	if err := os.MkdirAll(filepath.Join(r.Dir, "run"), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(r.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("process: %s has another agent: %w", r.Dir, err), f.Close())
	}
	r.lock = f
	return nil
}

// Close unlocks the folder, so that another Runtime may open it. What runs goes on until the time that Extend has set.
func (r *Runtime) Close() error { return r.lock.Close() }

// Start implements [agent.Runtime].
func (r *Runtime) Start(ctx context.Context, task agent.Task) error {
	folder := r.folderOf(task.Instance)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(folder, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the supervisor has it by then
	command, err := r.Command(task)
	if err != nil { // without a command the instance has failed
		_, err = fmt.Fprintln(log, "process:", err)
		return err
	}
	command.Env = append(slices.Clip(command.Env), "ORBIT_CAPSULE="+string(task.Capsule), "ORBIT_NODE="+string(r.Node), "ORBIT_GANG="+string(task.Gang),
		"ORBIT_READY="+filepath.Join(folder, "ready"))
	if err := write(filepath.Join(folder, "command.json"), command); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // the supervisor has it by then
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	cmd := exec.Command(r.Program)
	cmd.Args = []string{supervisorName, folder, r.Grace.String()}
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
func (r *Runtime) Stop(ctx context.Context, i agent.Instance) error {
	folder := r.folderOf(i)
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
			return fmt.Errorf("process: %s has not stopped: %w", i, ctx.Err())
		case <-time.After(tick):
		}
	}
}

// Forget implements [agent.Runtime].
func (r *Runtime) Forget(_ context.Context, i agent.Instance) error {
	return os.RemoveAll(r.folderOf(i))
}

// List implements [agent.Runtime].
func (r *Runtime) List(context.Context) (list []agent.Status, _ error) {
	entries, err := os.ReadDir(filepath.Join(r.Dir, "run"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		i, ok := instanceOf(e.Name())
		if !ok {
			continue
		}
		phase, err := phaseOf(r.folderOf(i))
		if err != nil {
			return nil, err
		}
		list = append(list, agent.Status{Instance: i, Phase: phase})
	}
	return list, nil
}

// phaseOf returns the phase of an instance.
func phaseOf(folder string) (agent.Phase, error) {
	var command Command
	if err := read(filepath.Join(folder, "command.json"), &command); err != nil {
		return agent.Failed, nil //nolint:nilerr // it has none, or the agent was killed before it had started a supervisor
	}
	runs, err := locked(folder)
	switch {
	case err != nil:
		return 0, err
	case runs && command.SaysReady && !exists(filepath.Join(folder, "ready")):
		return agent.Running, nil
	case runs:
		return agent.Ready, nil
	}
	var end exit
	err = read(filepath.Join(folder, "exit.json"), &end)
	if err != nil || end.Stopped || end.Code != 0 || command.Keeps {
		return agent.Failed, nil //nolint:nilerr // the supervisor was killed
	}
	return agent.Done, nil
}

// Extend implements [agent.Watchdog].
func (r *Runtime) Extend(_ context.Context, until time.Time) error {
	now, boot, err := sinceBoot()
	if err != nil {
		return err
	}
	return write(filepath.Join(r.Dir, "until"), deadline{boot, now + time.Until(until)})
}
