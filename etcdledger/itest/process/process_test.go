package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/etcdledger/itest/process"
)

func TestMain(m *testing.M) {
	process.Main(map[string]process.Role{"echo": echo, "fail": fail, "busy": busy, "panic": func(context.Context, *process.Self) error { panic("as told") }})
	os.Exit(m.Run())
}

// echo says its configuration, and then what it is told.
func echo(ctx context.Context, self *process.Self) error {
	var greeting string
	if err := self.Config(&greeting); err != nil {
		return err
	}
	for line := greeting; ; {
		if err := self.Say(line); err != nil {
			return err
		}
		select {
		case line = <-self.Told:
		case <-ctx.Done():
			return nil
		}
	}
}

// busy says its number, and is then at work on several threads.
func busy(ctx context.Context, self *process.Self) error {
	for range 4 {
		go func() {
			for ctx.Err() == nil {
				runtime.Gosched()
			}
		}()
	}
	err := self.Say(strconv.Itoa(os.Getpid()))
	<-ctx.Done()
	return err
}

func fail(context.Context, *process.Self) error { return errors.New("as told") }

// ear keeps what is heard.
type ear struct {
	mu    sync.Mutex
	lines []string
}

func (e *ear) hear(line string) {
	var text string
	_ = json.Unmarshal([]byte(line), &text)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, text)
}

func (e *ear) heard() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.lines...)
}

func start(t *testing.T, role string) (*process.Process, *ear) {
	var e ear
	p, err := process.Start(role, "hello", e.hear)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Kill() })
	return p, &e
}

// A copy hears and says whole lines, holds still when it is paused, and is gone when it is stopped or killed.
func TestProcess(t *testing.T) {
	for _, end := range []func(*process.Process) error{(*process.Process).Kill, func(p *process.Process) error { return p.Stop(10 * time.Second) }} {
		p, e := start(t, "echo")
		require.Eventually(t, func() bool { return len(e.heard()) == 1 }, time.Minute, time.Millisecond)
		require.NoError(t, p.Pause())
		require.NoError(t, p.Tell("more"))
		require.Equal(t, []string{"hello"}, e.heard())
		require.NoError(t, p.Resume())
		require.Eventually(t, func() bool { return len(e.heard()) == 2 }, time.Minute, time.Millisecond)
		require.NoError(t, end(p))
		require.NoError(t, end(p)) // once more changes nothing
		<-p.Done()
		require.Equal(t, []string{"hello", "more"}, e.heard())
		require.Error(t, p.Tell("unknown"))
	}
}

// When Pause returns, no thread of the copy runs any more. A copy may be paused twice, and one that has ended cannot be.
func TestPausedIsStopped(t *testing.T) {
	p, e := start(t, "busy")
	require.Eventually(t, func() bool { return len(e.heard()) == 1 }, time.Minute, time.Millisecond)
	for range 100 {
		require.NoError(t, p.Pause())
		require.NoError(t, p.Pause())
		threads, err := filepath.Glob("/proc/" + e.heard()[0] + "/task/*/stat")
		require.NoError(t, err)
		require.NotEmpty(t, threads)
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			require.NoError(t, err)
			require.Contains(t, string(stat), ") T ")
		}
		require.NoError(t, p.Resume())
	}
	require.NoError(t, p.Kill())
	require.Error(t, p.Pause())
}

// A copy that ends by itself is reported, with what it wrote.
func TestEndsByItself(t *testing.T) {
	for _, role := range []string{"fail", "panic"} {
		p, _ := start(t, role)
		<-p.Done()
		require.ErrorContains(t, p.Err(), "as told")
	}
	p, _ := start(t, "nothing")
	<-p.Done()
	require.ErrorContains(t, p.Err(), `no role "nothing"`)
}
