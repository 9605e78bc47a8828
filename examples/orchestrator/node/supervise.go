package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/orbitsched/orbit/agent"
)

// Supervise is the supervisor of one instance: it runs the process and waits for its end, and stops the process when
// the agent says so or the node's time is over. Its arguments are those that [Processes] appends to Supervisor. It
// returns when its process has ended.
//
// Supervise has two limits. While the supervisor itself is suspended, it stops nothing. And if it is killed, its
// process is killed with it, but not the children of that process. A real runtime has control groups for both.
func Supervise(args []string) error {
	if len(args) != 3 {
		return errors.New("node: a supervisor has three arguments: the folder of the instance, the node and the grace")
	}
	grace, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("node: grace: %w", err)
	}
	s := &supervisor{folder: args[0], node: args[1], grace: time.Duration(grace)}
	end, err := s.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervisor:", err)
	}
	return write(filepath.Join(s.folder, "exit.json"), end)
}

// supervisor has one process.
type supervisor struct {
	folder, node string
	grace        time.Duration
}

// dir is the folder of the node.
func (s *supervisor) dir() string { return filepath.Dir(filepath.Dir(s.folder)) }

// run runs the process.
func (s *supervisor) run() (exit, error) {
	notRun := exit{Code: -1, Stopped: true}
	var task agent.Task
	if err := read(filepath.Join(s.folder, "task.json"), &task); err != nil {
		return notRun, err
	}
	var run []string
	if err := json.Unmarshal([]byte(task.Labels[LabelRun]), &run); err != nil || len(run) == 0 {
		return notRun, fmt.Errorf("label %q is no list of strings: %q", LabelRun, task.Labels[LabelRun])
	}
	cmd := exec.Command(run[0], run[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = s.folder, os.Stdout, os.Stderr, childOf()
	cmd.Env = append(os.Environ(), "ORBIT_CAPSULE="+string(task.Capsule), "ORBIT_NODE="+s.node, "ORBIT_GANG="+string(task.Gang),
		"ORBIT_READY="+filepath.Join(s.folder, "ready"))
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "lock")} // so that the lock is held as long as the process lives
	runtime.LockOSThread()                             // childOf ties the process to this thread
	if rest, err := left(s.dir()); err != nil || rest <= 0 {
		return notRun, errors.Join(errTooLate, err)
	}
	if err := cmd.Start(); err != nil {
		return exit{Code: -1}, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the state has its result
		close(ended)
	}()
	stopped := s.watch(cmd.Process.Pid, ended)
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // kill the children that the process has left behind
	return exit{cmd.ProcessState.ExitCode(), stopped}, nil
}

// watch returns when the process has ended, and reports whether it was stopped.
func (s *supervisor) watch(group int, ended <-chan struct{}) (stopped bool) {
	look := time.NewTicker(tick)
	defer look.Stop()
	var kill <-chan time.Time
	for {
		select {
		case <-ended:
			return stopped
		case <-kill:
			_ = syscall.Kill(-group, syscall.SIGKILL)
		case <-look.C:
			if rest, err := left(s.dir()); !stopped && (err != nil || rest <= 0 || exists(filepath.Join(s.folder, "stop"))) {
				stopped, kill = true, time.After(s.grace)
				_ = syscall.Kill(-group, syscall.SIGTERM)
			}
		}
	}
}
