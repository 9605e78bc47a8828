//go:build unix

package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/agent/process"
)

// TestMain makes of the test's program the supervisor, too.
func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // or each process takes a second to end
	process.Init()
	os.Exit(m.Run())
}

// machine is a runtime of real processes.
type machine struct {
	*testing.T
	*process.Runtime
}

func open(t *testing.T) *machine {
	m := &machine{t, &process.Runtime{Dir: t.TempDir(), Node: "n", Grace: 300 * time.Millisecond}}
	require.NoError(t, m.Open())
	m.extend(time.Minute)
	t.Cleanup(func() {
		m.extend(0)
		m.await("the end of everything", func() bool {
			list, err := m.List(context.Background())
			require.NoError(t, err)
			for _, s := range list {
				if s.Phase == agent.Ready || s.Phase == agent.Running {
					return false
				}
			}
			return true
		})
	})
	return m
}

func (m *machine) extend(d time.Duration) {
	require.NoError(m, m.Extend(context.Background(), time.Now().Add(d)))
}

// start starts a shell script as a capsule.
func (m *machine) start(id, script string, labels ...string) agent.Instance {
	run, err := json.Marshal([]string{"sh", "-c", script})
	require.NoError(m, err)
	task := agent.Task{Instance: agent.Instance{Capsule: orbit.CapsuleID(id), Since: 7}, Labels: map[string]string{process.LabelRun: string(run)}}
	for _, label := range labels {
		task.Labels[label] = "yes"
	}
	require.NoError(m, m.Start(m.Context(), task))
	return task.Instance
}

func (m *machine) phase(i agent.Instance) agent.Phase {
	list, err := m.List(context.Background())
	require.NoError(m, err)
	for _, s := range list {
		if s.Instance == i {
			return s.Phase
		}
	}
	return 0
}

func (m *machine) await(what string, holds func() bool) {
	m.Helper()
	require.Eventually(m, holds, time.Minute, 5*time.Millisecond, what)
}

func (m *machine) becomes(i agent.Instance, want agent.Phase) {
	m.Helper()
	m.await(fmt.Sprint(i, " becomes ", want), func() bool { return m.phase(i) == want })
}

// file reads a file that a script has written in its folder.
func (m *machine) file(i agent.Instance, name string) string {
	text, _ := os.ReadFile(filepath.Join(m.Dir, "run", i.String(), name))
	return strings.TrimSpace(string(text))
}

// alive reports whether the process with the id in a file runs.
func (m *machine) alive(i agent.Instance, name string) bool {
	id, err := strconv.Atoi(m.file(i, name))
	require.NoError(m, err)
	stat, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(id)).Output()
	return err == nil && !strings.HasPrefix(string(stat), "Z") // a zombie has ended
}

// The phases of a process follow from how it ends, and from what it is.
func TestPhases(t *testing.T) {
	m := open(t)
	m.becomes(m.start("done", "exit 0"), agent.Done)
	m.becomes(m.start("failed", "exit 3"), agent.Failed)
	m.becomes(m.start("service", "exit 0", process.LabelKeep), agent.Failed)
	says := m.start("says", `while [ ! -e go ]; do sleep 0.01; done; touch "$ORBIT_READY"; sleep 100`, process.LabelReady)
	m.becomes(says, agent.Running)
	require.NoError(t, os.WriteFile(filepath.Join(m.Dir, "run", says.String(), "go"), nil, 0o600))
	m.becomes(says, agent.Ready)
	named := m.start("a/b c", `echo "$ORBIT_CAPSULE on $ORBIT_NODE"; exit 0`)
	m.becomes(named, agent.Done)
	require.NoError(t, m.Forget(t.Context(), named))
	require.Zero(t, m.phase(named))
	require.Error(t, m.Start(t.Context(), agent.Task{Instance: says}), "it is there")
	var none agent.Task
	none.Capsule = "nothing"
	require.NoError(t, m.Start(t.Context(), none))
	m.becomes(none.Instance, agent.Failed)
}

// Stop ends a process that does not want to, and all that it has started.
func TestStop(t *testing.T) {
	m := open(t)
	i := m.start("stubborn", `trap "" TERM; sleep 100 & echo $! > child; echo $$ > self; while true; do sleep 0.1; done`)
	m.await("its child", func() bool { return m.file(i, "self") != "" })
	require.NoError(t, m.Stop(t.Context(), i))
	require.Equal(t, agent.Failed, m.phase(i))
	require.False(t, m.alive(i, "self"))
	require.False(t, m.alive(i, "child"))
	require.NoError(t, m.Stop(t.Context(), i), "again")
	require.NoError(t, m.Stop(t.Context(), agent.Instance{Capsule: "unknown"}))
}

// What has ended but has left something behind runs as long as that.
func TestLeftBehind(t *testing.T) {
	m := open(t)
	i := m.start("parent", `echo $$ > self; setsid sh -c 'touch away; until [ -e go ]; do sleep 0.01; done' & until [ -e away ]; do sleep 0.01; done; exit 0`)
	m.await("its end", func() bool { return m.file(i, "self") != "" && !m.alive(i, "self") })
	require.Equal(t, agent.Ready, m.phase(i))
	require.NoError(t, os.WriteFile(filepath.Join(m.Dir, "run", i.String(), "go"), nil, 0o600))
	m.becomes(i, agent.Done)
}

// When the node's time is over everything stops although no agent says so, and nothing begins.
func TestFence(t *testing.T) {
	m := open(t)
	i := m.start("web", `echo $$ > self; sleep 100`)
	m.await("its process", func() bool { return m.file(i, "self") != "" })
	m.extend(100 * time.Millisecond)
	m.becomes(i, agent.Failed)
	require.False(t, m.alive(i, "self"))
	late := m.start("late", `echo $$ > self`)
	m.becomes(late, agent.Failed)
	require.Empty(t, m.file(late, "self"))
	m.extend(time.Minute)
	require.Equal(t, agent.Failed, m.phase(late))
}

// A process does not outlive its supervisor, and what was killed has failed.
func TestSupervisorKilled(t *testing.T) {
	m := open(t)
	i := m.start("web", `echo $PPID > parent; echo $$ > self; exec sleep 100`)
	m.await("its process", func() bool { return m.file(i, "self") != "" })
	id, err := strconv.Atoi(m.file(i, "parent"))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(id, syscall.SIGKILL))
	m.becomes(i, agent.Failed)
	require.False(t, m.alive(i, "self"))
}

// A node has one agent at a time. The next one takes over what runs.
func TestOneAgent(t *testing.T) {
	m := open(t)
	i := m.start("web", `sleep 100`)
	m.becomes(i, agent.Ready)
	second := &process.Runtime{Dir: m.Dir}
	require.ErrorContains(t, second.Open(), "another agent")
	require.NoError(t, m.Close())
	require.NoError(t, second.Open())
	m.Runtime = second
	require.Equal(t, agent.Ready, m.phase(i))
	require.NoError(t, m.Stop(t.Context(), i))
	require.Equal(t, agent.Failed, m.phase(i))
}

// An importer may say in words of its own what process a capsule is.
func TestCommand(t *testing.T) {
	m := open(t)
	dir := t.TempDir()
	m.Command = func(task agent.Task) (process.Command, error) {
		if task.Note == "" {
			return process.Command{}, errors.New("no note says what to run")
		}
		return process.Command{Args: []string{"sh", "-c", task.Note}, Env: []string{"COLOR=blue"}, Dir: dir}, nil
	}
	paints := agent.Instance{Capsule: "paints", Since: 3}
	require.NoError(t, m.Start(t.Context(), agent.Task{Instance: paints, Gang: "g", Note: `echo $COLOR $ORBIT_GANG > painted`}))
	m.becomes(paints, agent.Done)
	text, err := os.ReadFile(filepath.Join(dir, "painted"))
	require.NoError(t, err)
	require.Equal(t, "blue g\n", string(text))
	lost := agent.Instance{Capsule: "lost", Since: 4}
	require.NoError(t, m.Start(t.Context(), agent.Task{Instance: lost}))
	require.Equal(t, agent.Failed, m.phase(lost))
	require.Equal(t, "process: no note says what to run", m.file(lost, "log"))
}

// What is missing is said before anything is started.
func TestNoFolder(t *testing.T) {
	require.ErrorContains(t, (&process.Runtime{}).Open(), "needs Dir")
}
