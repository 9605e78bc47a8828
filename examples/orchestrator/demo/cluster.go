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
	"syscall"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/examples/orchestrator/control"
)

// Cluster is a control process and agents on this machine, each a process of its own. One goroutine uses it.
type Cluster struct {
	// Dir has the folders of the control process and all agents.
	Dir string
	// Program is the path of the orchestrator's binary.
	Program string
	// Control are further arguments of the control process.
	Control []string
	// TTL is the TTL of the control process; default 2 s, so that a demonstration is short.
	TTL time.Duration
	// URL is where the control process listens; set by Start.
	URL string

	address string
	control *exec.Cmd
	agents  map[string]*exec.Cmd
}

// stopping is how long everything on a node may take to stop.
const stopping = time.Second

func (c *Cluster) ttl() time.Duration { return cmp.Or(c.TTL, 2*time.Second) }

// Start starts the control process.
func (c *Cluster) Start(ctx context.Context) error {
	if c.address == "" { // chooses a port that was free a moment ago
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		c.address, c.agents = l.Addr().String(), map[string]*exec.Cmd{}
		c.URL = "http://" + c.address
		if err := l.Close(); err != nil {
			return err
		}
	}
	args := append([]string{"control", "-ledger", "file:" + filepath.Join(c.Dir, "control"), "-listen", c.address, "-ttl", c.ttl().String()}, c.Control...)
	var err error
	if c.control, err = c.spawn("control", args); err != nil {
		return err
	}
	return c.Await(ctx, "the API", func() (bool, error) {
		return c.Call(ctx, http.MethodGet, "/jobs", nil, nil) == nil, nil
	})
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

// KillControl ends the control process by SIGKILL.
func (c *Cluster) KillControl() error {
	if err := c.control.Process.Kill(); err != nil {
		return err
	}
	_ = c.control.Wait() // it was killed
	return nil
}

// Agent starts the agent of a node with two cores.
func (c *Cluster) Agent(node, zone string) error {
	cmd, err := c.spawn(node, []string{"agent", "-dir", filepath.Join(c.Dir, node), "-node", node, "-control", c.URL, "-cpu", "2000",
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
	if c.control != nil {
		_ = c.KillControl()
	}
	time.Sleep(stopping)
}

// Call calls the API.
func (c *Cluster) Call(ctx context.Context, method, path string, request, answer any) error {
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
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
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
