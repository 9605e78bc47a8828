package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/examples/orchestrator/control"
)

// Cluster is one or more control processes and agents on this machine, each a process of its own. One goroutine uses it.
type Cluster struct {
	// Dir has the folders of the control process and all agents.
	Dir string
	// Program is the path of the orchestrator's binary.
	Program string
	// Control are further arguments of the control processes.
	Control []string
	// Controls is how many control processes there are; default 1. Several need a ledger in etcd or Postgres.
	Controls int
	// TTL is the TTL of the control processes; default 2 s, so that a demonstration is short.
	TTL time.Duration

	urls     []string
	controls []*exec.Cmd // nil: it was killed
	agents   map[string]*exec.Cmd
}

// stopping is how long everything on a node may take to stop.
const stopping = time.Second

func (c *Cluster) ttl() time.Duration { return cmp.Or(c.TTL, 2*time.Second) }

// Start starts the control processes that are not at work.
func (c *Cluster) Start(ctx context.Context) error {
	if c.agents == nil {
		c.agents, c.controls = map[string]*exec.Cmd{}, make([]*exec.Cmd, cmp.Or(c.Controls, 1))
		for range c.controls {
			address, err := freeAddress()
			if err != nil {
				return err
			}
			c.urls = append(c.urls, "http://"+address)
		}
	}
	for n, url := range c.urls {
		if c.controls[n] != nil {
			continue
		}
		args := []string{"control", "-ledger", "file:" + filepath.Join(c.Dir, "control"), "-listen", strings.TrimPrefix(url, "http://"), "-ttl", c.ttl().String()}
		if len(c.urls) > 1 {
			args = append(args, "-peers", strings.Join(c.urls, ","))
		}
		var err error
		if c.controls[n], err = c.spawn(fmt.Sprint("control-", n), append(args, c.Control...)); err != nil {
			return err
		}
		if err = c.Await(ctx, "the API", func() (bool, error) { return c.call(ctx, url, http.MethodGet, "/jobs", nil, nil) == nil, nil }); err != nil {
			return err
		}
	}
	return nil
}

// freeAddress returns an address on loopback whose port was free a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Books returns the records that the processes of jobs write.
func (c *Cluster) Books() Books { return Books{filepath.Join(c.Dir, "shared")} }

// spawn starts a process, whose output goes into a file.
func (c *Cluster) spawn(name string, args []string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(c.Dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has it
	cmd := exec.Command(c.Program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, cmd.Start()
}

// KillControl ends a control process by SIGKILL.
func (c *Cluster) KillControl(n int) error {
	if err := c.controls[n].Process.Kill(); err != nil {
		return err
	}
	_ = c.controls[n].Wait() // it was killed
	c.controls[n] = nil
	return nil
}

// SignalControl sends a signal that does not end a control process.
func (c *Cluster) SignalControl(n int, s syscall.Signal) error {
	return c.controls[n].Process.Signal(s)
}

// Agent starts the agent of a node with two cores.
func (c *Cluster) Agent(node, zone string) error {
	cmd, err := c.spawn(node, []string{"agent", "-dir", filepath.Join(c.Dir, node), "-node", node, "-control", strings.Join(c.urls, ","), "-cpu", "2000",
		"-labels", "zone=" + zone, "-every", (c.ttl() / 5).String(), "-stopping", stopping.String()})
	c.agents[node] = cmd
	return err
}

// Signal sends a signal to an agent, and waits for its end if that ends it.
func (c *Cluster) Signal(node string, s syscall.Signal) error {
	if err := c.agents[node].Process.Signal(s); err != nil || s == syscall.SIGSTOP || s == syscall.SIGCONT {
		return err
	}
	_ = c.agents[node].Wait() // it was told to end
	return nil
}

// Close ends everything, and returns when no process runs any more.
func (c *Cluster) Close() {
	for node, agent := range c.agents {
		_ = agent.Process.Kill()
		_ = agent.Wait()
		_ = os.Remove(filepath.Join(c.Dir, node, "until")) // so that supervisors stop their processes
	}
	for n, control := range c.controls {
		if control != nil {
			_ = c.KillControl(n)
		}
	}
	time.Sleep(stopping)
}

// Call calls the API of the first control process that is at work.
func (c *Cluster) Call(ctx context.Context, method, path string, request, answer any) error {
	n := max(0, slices.IndexFunc(c.controls, func(control *exec.Cmd) bool { return control != nil }))
	return c.CallControl(ctx, n, method, path, request, answer)
}

// URL returns the URL of a control process.
func (c *Cluster) URL(n int) string { return c.urls[n] }

// CallControl calls the API of a control process.
func (c *Cluster) CallControl(ctx context.Context, n int, method, path string, request, answer any) error {
	return c.call(ctx, c.urls[n], method, path, request, answer)
}

func (c *Cluster) call(ctx context.Context, url, method, path string, request, answer any) error {
	var body io.Reader
	if request != nil {
		text, err := json.Marshal(request)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url+path, body)
	if err != nil {
		return err
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(got.Body)
	if err = errors.Join(err, got.Body.Close()); err != nil {
		return err
	}
	if got.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, got.Status, bytes.TrimSpace(text))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// Put puts a job that runs Work.
func (c *Cluster) Put(ctx context.Context, j control.Job, work ...string) error {
	j.Run = c.work(work...)
	return c.Call(ctx, http.MethodPut, "/jobs/"+j.Name, j, nil)
}

func (c *Cluster) work(args ...string) []string {
	return append([]string{c.Program, "work", "-books", c.Books().Dir}, args...)
}

// Job reads a job.
func (c *Cluster) Job(ctx context.Context, name string) (s control.Status, err error) {
	return s, c.Call(ctx, http.MethodGet, "/jobs/"+name, nil, &s)
}

// StartAll starts the control process and agents, whose zones are the first letters of their names, and returns when all have joined.
func (c *Cluster) StartAll(ctx context.Context, nodes ...string) error {
	if err := errors.Join(c.Books().Open(), c.Start(ctx)); err != nil {
		return err
	}
	for _, node := range nodes {
		if err := c.Agent(node, node[:1]); err != nil {
			return err
		}
	}
	for _, node := range nodes {
		if err := c.AwaitNode(ctx, node, func(n control.Node) bool { return n.State == orbit.Ready }); err != nil {
			return err
		}
	}
	return nil
}

// AwaitNode returns when the node meets the condition.
func (c *Cluster) AwaitNode(ctx context.Context, id string, holds func(control.Node) bool) error {
	return c.Await(ctx, "node "+id, func() (bool, error) {
		var all []control.Node
		err := c.Call(ctx, http.MethodGet, "/nodes", nil, &all)
		for _, n := range all {
			if string(n.ID) == id {
				return holds(n), err
			}
		}
		return false, err
	})
}

// Await returns when a condition holds. It fails after half a minute.
func (c *Cluster) Await(ctx context.Context, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		ok, err := holds()
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// AwaitJob returns when the job meets the condition. If the API does not answer, AwaitJob asks again.
func (c *Cluster) AwaitJob(ctx context.Context, name, what string, holds func(control.Status) bool) error {
	return c.Await(ctx, name+" "+what, func() (bool, error) {
		s, err := c.Job(ctx, name)
		if err != nil {
			return false, err
		}
		if !holds(s) {
			return false, fmt.Errorf("%+v", s)
		}
		return true, nil
	})
}

// Serving says that all members of a service serve, and are of the newest generation.
func Serving(s control.Status) bool { return s.Ready == s.Count && s.Newest == s.Count }

// Done says that all members of a batch or a gang have ended.
func Done(s control.Status) bool { return s.Submitted == s.Count && s.Done == s.Count }
