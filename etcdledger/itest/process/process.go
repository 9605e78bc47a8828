// Package process lets a program start copies of itself in other roles, such as a member of an etcd or an engine. A
// copy is an operating-system process of its own, so it can be killed at once and loses its memory then.
//
// The program sends lines to the copy's standard input and reads lines from its standard output. A copy ends when its
// standard input ends, so it never outlives the program that started it.
package process

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// The environment variables in which a copy finds its role and its configuration.
const (
	roleVariable   = "ORBIT_ITEST_ROLE"
	configVariable = "ORBIT_ITEST_CONFIG"
)

// Process is a running copy of this program. Its methods may be called from any goroutine.
type Process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}

	mu sync.Mutex // guards the fields below
	// log is the end of what the copy has written to its standard error.
	log bytes.Buffer
	// ended says that Kill or Stop has been called.
	ended bool
	err   error
}

// Start starts a copy in a role, which must be among those that the program gives to [Main], with a configuration that can be
// encoded as JSON. It calls heard with each whole line that the copy writes, without the line's end; calls do not overlap.
func Start(role string, config any, heard func(line string)) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("process: configuration of %s: %w", role, err)
	}
	p := &Process{cmd: exec.Command(self), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role, configVariable+"="+string(text), "GORACE=halt_on_error=1")
	p.cmd.Stderr = (*logWriter)(p)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("process: start %s: %w", role, err)
	}
	go p.attend(role, stdout, heard)
	return p, nil
}

// attend passes on the lines of the copy until it has ended, and notes how it ended.
func (p *Process) attend(role string, stdout io.Reader, heard func(string)) {
	defer close(p.done)
	lines := bufio.NewReaderSize(stdout, 1<<16)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // a last line without an end was cut off by the end of the process
		}
		heard(strings.TrimSuffix(line, "\n"))
	}
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if text := p.log.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") || !p.ended {
		p.err = fmt.Errorf("process: %s ended by itself (%w): %s", role, cmp.Or(err, errEnd), text)
	}
}

// errEnd stands for the error of a process that has ended by itself without an error.
var errEnd = errors.New("exit status 0")

// Tell writes a line to the copy's standard input.
func (p *Process) Tell(line string) error {
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		return fmt.Errorf("process: tell %q: %w", line, err)
	}
	return nil
}

// Kill ends the copy at once with SIGKILL, and waits until it has ended and heard has been called with all its lines. It
// returns the error of [Process.Err].
func (p *Process) Kill() error {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("process: kill: %w", err)
	}
	<-p.done
	return p.Err()
}

// Stop closes the copy's standard input, waits as long as patience for it to end by itself, and then kills it.
func (p *Process) Stop(patience time.Duration) error {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	_ = p.stdin.Close()
	select {
	case <-p.done:
		return p.Err()
	case <-time.After(patience):
		return p.Kill()
	}
}

// Done is closed when the copy has ended and heard has been called with all its lines.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns an error, with what the copy wrote to its standard error, if it ended without being killed or stopped,
// panicked, or the race detector found something in it.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Pause stops the copy with SIGSTOP, as an overloaded machine may, and returns when all its threads have stopped. They do
// nothing until Resume is called.
func (p *Process) Pause() error {
	if err := p.signal(stop); err != nil {
		return err
	}
	return awaitStop(p.cmd.Process.Pid)
}

// Resume lets a copy go on that was paused.
func (p *Process) Resume() error { return p.signal(resume) }

func (p *Process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("process: %v: %w", s, err)
	}
	return nil
}

// logWriter keeps the end of what is written.
type logWriter Process

// maxLog is how much of a copy's standard error is kept.
const maxLog = 1 << 16

func (w *logWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log.Write(b)
	if extra := w.log.Len() - maxLog; extra > 0 {
		w.log.Next(extra)
	}
	return len(b), nil
}
