// Package cluster runs etcd for tests and demonstrations, with any number of members on loopback. Each member is a copy
// of the running program with the embedded server, in an operating-system process of its own. A member can be killed at
// once, started again from its data directory, and cut off from the other members.
//
// A program that uses it calls [process.Main] with [Role] and [Serve] first thing in main, or in TestMain.
package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/orbitsched/orbit/etcdledger/itest/process"
)

// Options are the settings of a cluster. The zero value is one member with etcd's defaults.
type Options struct {
	// Members is the number of members; default 1.
	Members int
	// Dir is the directory of the members' data and logs, which Close does not remove. Default: a temporary directory, which it
	// removes.
	Dir string
	// Heartbeat is the time from one heartbeat to the next; default 100 ms, as in etcd. After ten heartbeats that did not come
	// an election begins.
	Heartbeat time.Duration
	// NoSync leaves out fsync, which makes commits faster. What a member has acknowledged is then lost if the machine loses
	// its power.
	NoSync bool
	// Login is how long a login lasts that is not used, in whole seconds; default 5 min, as in etcd.
	Login time.Duration
}

// Cluster is a running etcd. Its methods may be called from any goroutine.
type Cluster struct {
	members []*member
	// temporary is the directory that Close removes; empty: none.
	temporary string
}

// member is one member of a cluster.
type member struct {
	config memberConfig

	mu sync.Mutex // guards the fields below
	// process is nil if the member has been killed.
	process *process.Process
	id      types.ID
	// told are the commands that the member has not carried out yet. Each channel is closed when it has.
	told map[string]chan struct{}
}

// Start starts a cluster, and returns when all members serve. If ctx ends before, no member is left running.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o.Members, o.Heartbeat = cmp.Or(o.Members, 1), cmp.Or(o.Heartbeat, 100*time.Millisecond)
	ports, err := freePorts(2 * o.Members)
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "orbit-etcd-"); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
		c.temporary = o.Dir
	}
	var initial []string
	for i := range o.Members {
		m := &member{told: map[string]chan struct{}{}, config: memberConfig{
			Name: fmt.Sprintf("member-%d", i), Dir: filepath.Join(o.Dir, fmt.Sprintf("member-%d", i)),
			Client: ports[2*i], Peer: ports[2*i+1], Heartbeat: o.Heartbeat, NoSync: o.NoSync, Login: o.Login,
			Log: filepath.Join(o.Dir, fmt.Sprintf("member-%d.log", i)),
		}}
		c.members = append(c.members, m)
		initial = append(initial, m.config.Name+"=http://"+m.config.Peer)
	}
	for _, m := range c.members {
		m.config.Initial = strings.Join(initial, ",")
	}
	if err := c.each(func(m *member) error { return m.start(ctx) }); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// each calls a function for every member, all at the same time.
func (c *Cluster) each(do func(*member) error) error {
	errs := make([]error, len(c.members))
	var all sync.WaitGroup
	for i, m := range c.members {
		all.Go(func() { errs[i] = do(m) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Size returns how many members there are, running or not.
func (c *Cluster) Size() int { return len(c.members) }

// Endpoints returns the client addresses of these members, or of all if none is named.
func (c *Cluster) Endpoints(members ...int) (out []string) {
	for i, m := range c.members {
		if len(members) == 0 || slices.Contains(members, i) {
			out = append(out, "http://"+m.config.Client)
		}
	}
	return out
}

// Kill kills a member at once, without a chance to finish anything.
func (c *Cluster) Kill(i int) error { return c.members[i].kill() }

// Restart starts a killed member again from its data directory, and returns when it serves, which requires that a
// majority of the members runs.
func (c *Cluster) Restart(ctx context.Context, i int) error { return c.members[i].start(ctx) }

// Pause stops a member that runs, with all its threads, until Resume is called.
func (c *Cluster) Pause(i int) error { return c.members[i].running().Pause() }

// Resume lets a member go on that was paused.
func (c *Cluster) Resume(i int) error { return c.members[i].running().Resume() }

// Cut stops all messages between a member and the others, both ways. Clients still reach it.
func (c *Cluster) Cut(ctx context.Context, i int) error { return c.separate(ctx, "cut", i) }

// Mend undoes a Cut.
func (c *Cluster) Mend(ctx context.Context, i int) error { return c.separate(ctx, "mend", i) }

// separate cuts a member off from all others, or connects it again. Members that do not run are left out, because a
// restarted member is connected.
func (c *Cluster) separate(ctx context.Context, what string, i int) error {
	one := c.members[i]
	var errs []error
	for j, other := range c.members {
		if j != i {
			errs = append(errs, one.tell(ctx, what, other.name()), other.tell(ctx, what, one.name()))
		}
	}
	return errors.Join(errs...)
}

// Close kills all members, and returns the errors of members that ended before they were killed.
func (c *Cluster) Close() error {
	err := c.each((*member).kill)
	if c.temporary != "" {
		err = errors.Join(err, os.RemoveAll(c.temporary))
	}
	return err
}

func (m *member) name() types.ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

// startTries is how often a member is started if another process has taken its address meanwhile.
const startTries = 5

// start starts the member and waits until it serves.
func (m *member) start(ctx context.Context) (err error) {
	for range startTries {
		if err = m.tryStart(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

func (m *member) tryStart(ctx context.Context) error {
	m.mu.Lock()
	if m.process != nil {
		m.mu.Unlock()
		return fmt.Errorf("cluster: %s runs already", m.config.Name)
	}
	_, err := os.Stat(filepath.Join(m.config.Dir, "member"))
	m.config.Joined = err == nil
	ready := make(chan types.ID, 1)
	p, err := process.Start(Role, m.config, func(line string) { m.heard(line, ready) })
	m.process = p
	m.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case id := <-ready:
		m.mu.Lock()
		m.id = id
		m.mu.Unlock()
		return nil
	case <-p.Done():
		err = fmt.Errorf("cluster: %s did not start: %w; its log: %s", m.config.Name, p.Err(), m.log())
	case <-ctx.Done():
		err = fmt.Errorf("cluster: start %s: %w; its log: %s", m.config.Name, ctx.Err(), m.log())
	}
	_ = m.kill()
	return err
}

// log returns the last part of the server's log.
func (m *member) log() string {
	text, err := os.ReadFile(m.config.Log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}

// heard handles a report of the member.
func (m *member) heard(line string, ready chan<- types.ID) {
	var r report
	if json.Unmarshal([]byte(line), &r) != nil {
		return
	}
	if r.Ready != 0 {
		ready <- r.Ready
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if done := m.told[r.Done]; done != nil {
		delete(m.told, r.Done)
		close(done)
	}
}

// tell sends a command about another member to the member, if it runs, and waits until it is done.
func (m *member) tell(ctx context.Context, what string, other types.ID) error {
	line, done := what+" "+other.String(), make(chan struct{})
	m.mu.Lock()
	p := m.process
	m.told[line] = done
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := p.Tell(line); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-p.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cluster: %s %s: %w", m.config.Name, line, ctx.Err())
	}
}

func (m *member) kill() error {
	m.mu.Lock()
	p := m.process
	m.process = nil
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Kill()
}

// running returns the member's process; nil: it was killed.
func (m *member) running() *process.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}
