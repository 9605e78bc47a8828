// Package rooms runs orbit's rooms in operating-system processes: leases of nodes, a board and a gateway on one ledger, schedulers with
// groups of nodes on another, and a pool of claims on a third. The ledgers are in etcd, for several processes, or on disk, for one.
//
// A program that uses it calls [process.Main] with [Role] and [Serve] first thing in main, or in TestMain.
package rooms

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/lease"
)

// Role is the name under which [process.Main] must know [Serve].
const Role = "rooms"

// The prefixes of the ledgers in etcd, or their folders.
const (
	Fleet  = "fleet/"
	Shard  = "shard/"
	Claims = "claims/"
)

// Config is the configuration of a process.
type Config struct {
	// Endpoints are the addresses of etcd's members. Empty: the ledgers are on disk, in Dir.
	Endpoints []string
	Dir       string
	// TTL is that of all leases, Gone is how long after the end of its lease a node is lost.
	TTL, Gone time.Duration
	// Scheduler is the name of the scheduler that the process runs; empty: it runs none, and no pool of claims.
	Scheduler string
	// Slots is how many slots there are to claim.
	Slots int
}

// message is a report of a process.
type message struct {
	// Address is where it serves.
	Address string `json:"address,omitempty"`
	// Ended are the names of leases whose end it has committed.
	Ended []string `json:"ended,omitempty"`
	// Fault is what it has seen in a ledger and must not be.
	Fault string `json:"fault,omitempty"`
}

// Site is a running process.
type Site struct {
	*process.Process
	ready chan struct{}
	tell  func(message)

	mu      sync.Mutex // guards address
	address string
}

// Start starts a process. It calls ended with the name of each lease whose end the process has committed, and fault with what the
// process has seen in a ledger and must not be.
func Start(c Config, ended, fault func(string)) (*Site, error) {
	s := &Site{ready: make(chan struct{}), tell: func(m message) {
		for _, name := range m.Ended {
			ended(name)
		}
		if m.Fault != "" {
			fault(m.Fault)
		}
	}}
	var err error
	if s.Process, err = process.Start(Role, c, s.heard); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Site) heard(line string) {
	var m message
	if json.Unmarshal([]byte(line), &m) != nil {
		return
	}
	s.tell(m)
	if m.Address == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address = m.Address
	close(s.ready)
}

// Ready is closed when the process serves.
func (s *Site) Ready() <-chan struct{} { return s.ready }

// URL is where the process serves; empty: it does not yet.
func (s *Site) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.address == "" {
		return ""
	}
	return "http://" + s.address
}

// Control returns a client for the agents of nodes.
func (s *Site) Control() agent.Control { return &agent.Client{URLs: []string{s.URL() + "/agent"}} }

// Follow has the process follow the board of another one.
func (s *Site) Follow(other *Site) error { return s.Tell(other.URL() + "/feed") }

// site is what a process runs.
type site struct {
	Config
	self   *process.Self
	client *clientv3.Client // nil: the ledgers are on disk
	mux    *http.ServeMux
	all    sync.WaitGroup
}

// Serve is the role of a process: it runs its rooms until its context ends.
func Serve(ctx context.Context, self *process.Self) error {
	s := &site{self: self, mux: http.NewServeMux()}
	if err := self.Config(&s.Config); err != nil {
		return err
	}
	if len(s.Endpoints) > 0 {
		client, err := clientv3.New(cluster.ClientConfig(s.Endpoints))
		if err != nil {
			return fmt.Errorf("rooms: %w", err)
		}
		defer func() { _ = client.Close() }()
		s.client = client
	}
	rooms := []func(context.Context) (stop func(), err error){s.fleet}
	if s.Scheduler != "" {
		rooms = append(rooms, s.shard, s.claims)
	}
	for _, run := range rooms {
		stop, err := run(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	defer s.all.Wait()
	return s.serve(ctx)
}

// serve answers requests until ctx ends, and says where.
func (s *site) serve(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("rooms: %w", err)
	}
	server := &http.Server{Handler: s.mux, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := s.self.Say(message{Address: listener.Addr().String()}); err != nil {
		return err
	}
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("rooms: %w", err)
	}
	return nil
}

// open opens a ledger as soon as that is possible, with the refreshes of its leases; nil: they are in memory.
func (s *site) open(ctx context.Context, name string) (orbit.Ledger, lease.Refreshes, func(), error) {
	if s.client == nil {
		ledger, err := diskledger.Open(filepath.Join(s.Dir, name), diskledger.Options{})
		if err != nil {
			return nil, nil, nil, err
		}
		return ledger, nil, func() { _ = ledger.Close() }, nil
	}
	o := etcdledger.Options{Prefix: name, Timeout: time.Second, Patience: 5 * time.Second}
	for {
		try, cancel := context.WithTimeout(ctx, 20*time.Second)
		ledger, err := etcdledger.Open(try, s.client, o)
		cancel()
		if err == nil {
			return ledger, etcdledger.Refreshes(s.client, o), func() { _ = ledger.Close() }, nil
		}
		if ctx.Err() != nil {
			return nil, nil, nil, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// fault reports what must not be.
func (s *site) fault(format string, args ...any) {
	_ = s.self.Say(message{Fault: fmt.Sprintf(format, args...)})
}
