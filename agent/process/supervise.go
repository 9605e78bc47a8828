//go:build unix

package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// supervisorName is the name under which a supervisor is started, in place of its program's.
const supervisorName = "orbit-supervisor"

// errTooLate says that a supervisor was started after the node's deadline.
var errTooLate = errors.New("the node's time is over")

// Init does the work of a supervisor and ends the program, if a Runtime has started the program as a supervisor. Otherwise
// it returns at once. Call it first in the main function of the agent's program, and in TestMain of tests that use a
// Runtime.
func Init() {
	if len(os.Args) != 3 || os.Args[0] != supervisorName {
		return
	}
	grace, err := time.ParseDuration(os.Args[2])
	if err == nil {
		err = (&supervisor{folder: os.Args[1], grace: grace}).supervise()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// supervisor runs the process of one instance, and stops it when the agent says so or the node's time is over.
type supervisor struct {
	folder string
	grace  time.Duration
}

// supervise runs the process to its end, and writes how it has ended.
func (s *supervisor) supervise() error {
	end, err := s.run()
	return errors.Join(err, write(filepath.Join(s.folder, "exit.json"), end))
}

// dir is the folder of the node.
func (s *supervisor) dir() string { return filepath.Dir(filepath.Dir(s.folder)) }

// run runs the process.
func (s *supervisor) run() (exit, error) {
	notRun := exit{Code: -1, Stopped: true}
	var command Command
	if err := read(filepath.Join(s.folder, "command.json"), &command); err != nil {
		return notRun, err
	}
	if len(command.Args) == 0 {
		return notRun, errors.New("the command has no program")
	}
	cmd := exec.Command(command.Args[0], command.Args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = cmp.Or(command.Dir, s.folder), os.Stdout, os.Stderr, childOf()
	cmd.Env = append(os.Environ(), command.Env...)
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
