package itest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/pgledger"
)

// The roles of processes with a ledger of their own: a client does deeds and reports every call before it is sent and every
// answer; a racer commits as fast as it can and counts.
const (
	clientRole = "client"
	racerRole  = "racer"
)

// site says where a ledger is stored: in etcd, or in Postgres.
type site struct {
	// Etcd are the addresses of etcd's members; nil: the ledger is in Postgres. Postgres is the address of the server.
	Etcd     []string
	Postgres string
	// Name is the prefix of the ledger, or its schema.
	Name              string
	Timeout, Patience time.Duration
	CheckpointEvery   int
}

// url is how a process connects to Postgres.
func (s site) url() string { return "postgres://postgres@" + s.Postgres + "/postgres?sslmode=disable" }

// client returns a client of etcd.
func (s site) client() (*clientv3.Client, error) {
	var endpoints []string
	for _, address := range s.Etcd {
		endpoints = append(endpoints, "http://"+address)
	}
	return clientv3.New(cluster.ClientConfig(endpoints))
}

// open opens the ledger as soon as the store answers. Call closes after the last use.
func (s site) open(ctx context.Context) (l *logledger.Ledger, closes func() error, err error) {
	closes = func() error { return nil }
	try := func(ctx context.Context) (*logledger.Ledger, error) {
		return pgledger.Open(ctx, s.url(), pgledger.Options{Schema: s.Name, Timeout: s.Timeout, Patience: s.Patience, CheckpointEvery: s.CheckpointEvery, OnError: func(error) {}})
	}
	if s.Etcd != nil {
		client, err := s.client()
		if err != nil {
			return nil, nil, err
		}
		closes = client.Close
		try = func(ctx context.Context) (*logledger.Ledger, error) {
			return etcdledger.Open(ctx, client, etcdledger.Options{Prefix: s.Name, Timeout: s.Timeout, Patience: s.Patience, CheckpointEvery: s.CheckpointEvery, OnError: func(error) {}})
		}
	}
	for {
		within, cancel := context.WithTimeout(ctx, 20*time.Second)
		l, err = try(within)
		cancel()
		if err == nil || audit.KindOf(err) != audit.Unavailable || ctx.Err() != nil {
			return l, closes, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// openLog opens the log of a ledger that is there.
func (s site) openLog(ctx context.Context) (log logledger.Log, closes func() error, err error) {
	if s.Etcd == nil {
		log, err = pgledger.OpenLog(ctx, s.url(), pgledger.LogOptions{Schema: s.Name, Existing: true})
		return log, func() error { return nil }, err
	}
	client, err := s.client()
	if err != nil {
		return nil, nil, err
	}
	log, err = etcdledger.OpenLog(ctx, client, etcdledger.LogOptions{Prefix: s.Name, Existing: true})
	return log, client.Close, err
}

// clientConfig is the configuration of a client or a racer.
type clientConfig struct {
	Site    site
	Seed    uint64
	Workers int
}

// event is a line that a client reports.
type event struct {
	// Ready says that it has opened its ledger, Rested that all its calls have been answered.
	Ready  bool `json:",omitempty"`
	Rested bool `json:",omitempty"`
	// Call is the number of a call in this process, which begins or ends at At, in ns of the machine's monotonic clock. It
	// begins if there is a deed, with the id of its proposal.
	Call   int64 `json:",omitempty"`
	At     int64 `json:",omitempty"`
	Deed   *deed `json:",omitempty"`
	ID     orbit.ProposalID
	Answer *answer `json:",omitempty"`
	// Sight is the state that its ledger shows.
	Sight *sight `json:",omitempty"`
	// Count is how many commits a racer has made.
	Count *int64 `json:",omitempty"`
}

// sight is a state that a ledger shows, by the hash of its dump. Fault says why there is none, or why it is not sound.
type sight struct {
	Revision orbit.Revision
	Sum      string
	Fault    string
	Stats    logledger.Stats
}

// look returns what a ledger shows.
func look(ctx context.Context, l *logledger.Ledger) *sight {
	state, err := l.Snapshot(ctx)
	if err == nil {
		err = state.Verify()
	}
	sum := sha256.New()
	if err == nil {
		err = state.Dump(sum)
	}
	if err != nil {
		return &sight{Fault: err.Error()}
	}
	return &sight{Revision: state.Revision(), Sum: hex.EncodeToString(sum.Sum(nil)), Stats: l.Stats()}
}

// monotonic returns the time of a clock that all processes of a machine share.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// client does deeds through a ledger of its own.
type client struct {
	clientConfig
	self    *process.Self
	ledger  *logledger.Ledger
	calls   atomic.Int64
	resting atomic.Bool
}

// serveClient is the role of a client. It works until it is told to rest, and shows its state when it is told to look.
func serveClient(ctx context.Context, self *process.Self) error {
	c := &client{self: self}
	if err := self.Config(&c.clientConfig); err != nil {
		return err
	}
	l, closes, err := c.Site.open(ctx)
	if err != nil {
		return fmt.Errorf("client: open: %w", err)
	}
	defer func() { _, _ = l.Close(), closes() }()
	c.ledger = l
	if err := self.Say(event{Ready: true}); err != nil {
		return err
	}
	var working sync.WaitGroup
	defer working.Wait()
	for i := range c.Workers {
		working.Go(func() { c.work(ctx, rand.New(rand.NewPCG(c.Seed, uint64(i)))) })
	}
	for {
		select {
		case line := <-self.Told:
			said := event{Rested: true}
			if line == "look" {
				said = event{Sight: look(ctx, l)}
			} else {
				c.resting.Store(true)
				working.Wait()
			}
			if err := self.Say(said); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// work does deeds until the client rests.
func (c *client) work(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil && !c.resting.Load() {
		d := drawDeed(rng)
		p, number := d.proposal(), c.calls.Add(1)
		if c.self.Say(event{Call: number, Deed: &d, ID: p.ID, At: monotonic()}) != nil {
			return // the program has ended
		}
		var a answer
		if d.reads() {
			a = readNode(ctx, rng, c.ledger, d)
		} else {
			a, _ = propose(ctx, rng, c.ledger, p)
		}
		if c.self.Say(event{Call: number, Answer: &a, At: monotonic()}) != nil {
			return
		}
		pause := 10
		if a.Kind == audit.Unavailable {
			pause = 100
		}
		time.Sleep(time.Duration(rng.IntN(pause)) * time.Millisecond)
	}
}

// serveRacer is the role of a racer. It begins when it is told anything, and says its count each time that it is told something.
func serveRacer(ctx context.Context, self *process.Self) error {
	var c clientConfig
	if err := self.Config(&c); err != nil {
		return err
	}
	l, closes, err := c.Site.open(ctx)
	if err != nil {
		return fmt.Errorf("racer: open: %w", err)
	}
	defer func() { _, _ = l.Close(), closes() }()
	if err := self.Say(event{Ready: true}); err != nil {
		return err
	}
	var count atomic.Int64
	var working sync.WaitGroup
	defer working.Wait()
	begun := false
	for {
		select {
		case <-self.Told:
		case <-ctx.Done():
			return nil
		}
		for i := range c.Workers {
			if !begun {
				working.Go(func() { race(ctx, l, fmt.Sprintf("racer-%d-%d", c.Seed, i), &count) })
			}
		}
		begun = true
		n := count.Load()
		if err := self.Say(event{Count: &n}); err != nil {
			return err
		}
	}
}

// race sets a mark of its own over and over, and counts the commits.
func race(ctx context.Context, l orbit.Ledger, key string, count *atomic.Int64) {
	for i := 0; ctx.Err() == nil; i++ {
		p := orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Mark{Key: key, Value: strconv.Itoa(i)}}}
		if _, err := l.Propose(ctx, p); err == nil {
			count.Add(1)
		}
	}
}
