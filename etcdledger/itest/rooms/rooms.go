// Package rooms runs orbit's rooms in operating-system processes, several of which share one ledger in etcd. Each has a ledger, a
// board and rooms of its own, and serves what nodes and callers ask by HTTP.
//
// A program that uses it calls [process.Main] with [Role] and [Serve] first thing in main, or in TestMain.
package rooms

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
	"github.com/orbitsched/orbit/watch"
)

// Role is the name under which [process.Main] must know [Serve].
const Role = "rooms"

// Config is the configuration of a process.
type Config struct {
	// Endpoints are the addresses of etcd's members, Prefix is the prefix of the ledger.
	Endpoints []string
	Prefix    string
	// TTL and Gone are those of the nodes' leases.
	TTL, Gone time.Duration
}

// message is a report of a process: the address at which it serves.
type message struct {
	Address string `json:"address,omitempty"`
}

// Site is a running process.
type Site struct {
	*process.Process
	ready chan struct{}

	mu      sync.Mutex // guards address
	address string
}

// Start starts a process.
func Start(c Config) (*Site, error) {
	s := &Site{ready: make(chan struct{})}
	var err error
	if s.Process, err = process.Start(Role, c, s.heard); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Site) heard(line string) {
	var m message
	if json.Unmarshal([]byte(line), &m) != nil || m.Address == "" {
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
func (s *Site) Control() agent.Control { return &agent.Client{URL: s.URL() + "/agent"} }

// Serve is the role of a process: it runs its rooms until its context ends.
func Serve(ctx context.Context, self *process.Self) error {
	var c Config
	if err := self.Config(&c); err != nil {
		return err
	}
	client, err := clientv3.New(cluster.ClientConfig(c.Endpoints))
	if err != nil {
		return fmt.Errorf("rooms: %w", err)
	}
	defer func() { _ = client.Close() }()
	ledger, err := open(ctx, client, c.Prefix)
	if err != nil {
		return err
	}
	defer func() { _ = ledger.Close() }()
	keeper := &lease.Keeper{Ledger: ledger, Refreshes: ledger.Refreshes(), TTL: c.TTL, Terms: -1}
	local := &agent.Local{
		Ledger: ledger, Members: &lease.Members{Leases: keeper, Gone: c.Gone}, Board: &telemetry.Board{Leases: keeper}, Index: &watch.Index{Ledger: ledger},
	}
	mux := http.NewServeMux()
	mux.Handle("/agent/", http.StripPrefix("/agent", agent.Handler(local)))
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { _ = local.Members.Run(ctx) })
	all.Go(func() { _ = local.Index.Run(ctx) })
	return serve(ctx, self, mux)
}

// serve answers requests until ctx ends, and says where.
func serve(ctx context.Context, self *process.Self, handler http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("rooms: %w", err)
	}
	server := &http.Server{Handler: handler, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := self.Say(message{Address: listener.Addr().String()}); err != nil {
		return err
	}
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("rooms: %w", err)
	}
	return nil
}

// open opens a ledger as soon as etcd answers.
func open(ctx context.Context, client *clientv3.Client, prefix string) (ledger *etcdledger.Ledger, err error) {
	for {
		try, cancel := context.WithTimeout(ctx, 20*time.Second)
		ledger, err = etcdledger.Open(try, client, etcdledger.Options{Prefix: prefix, Timeout: time.Second, Patience: 5 * time.Second})
		cancel()
		if err == nil || ctx.Err() != nil {
			return ledger, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
