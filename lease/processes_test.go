package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// home is a dumb [lease.Refreshes]: a table of when each token ends, which nothing keeps after its end. Its calls take time, before
// and after they take effect, and some of them fail.
type home struct {
	mu    sync.Mutex
	rng   *rand.Rand
	until map[string]time.Time
	ttl   map[string]time.Duration
	takes time.Duration // the longest that a call takes
	fails float64       // the share of calls that fail
	down  bool
}

func newHome() *home {
	return &home{rng: rand.New(rand.NewPCG(1, 1)), until: map[string]time.Time{}, ttl: map[string]time.Duration{}}
}

// call lets some time pass, has an effect, perhaps, and lets some more time pass.
func (h *home) call(effect func()) error {
	h.mu.Lock()
	before, after, fails := h.some(), h.some(), h.down || h.rng.Float64() < h.fails
	works := !h.down && (!fails || h.rng.IntN(2) == 0)
	h.mu.Unlock()
	time.Sleep(before)
	h.mu.Lock()
	if works {
		effect()
	}
	h.mu.Unlock()
	time.Sleep(after)
	if fails {
		return orbit.ErrUnavailable
	}
	return nil
}

func (h *home) some() time.Duration {
	if h.takes == 0 {
		return 0
	}
	return time.Duration(h.rng.Int64N(int64(h.takes / 2)))
}

func (h *home) Begin(_ context.Context, ttl time.Duration) (token string, err error) {
	err = h.call(func() {
		token = fmt.Sprint("token-", len(h.until))
		h.until[token], h.ttl[token] = time.Now().Add(ttl), ttl
	})
	return token, err
}

func (h *home) Keep(_ context.Context, tokens []string) ([]time.Duration, error) {
	out := make([]time.Duration, len(tokens))
	return out, h.call(func() {
		for i, t := range tokens {
			if time.Now().Before(h.until[t]) {
				h.until[t], out[i] = time.Now().Add(h.ttl[t]), h.ttl[t]
			}
		}
	})
}

func (h *home) Left(_ context.Context, tokens []string) ([]time.Duration, error) {
	out := make([]time.Duration, len(tokens))
	return out, h.call(func() {
		for i, t := range tokens {
			out[i] = max(0, time.Until(h.until[t]))
		}
	})
}

// process is one that keeps leases. While it is paused it stands still at its next call of the home or the ledger.
type process struct {
	orbit.Ledger
	home *home
	m    *lease.Members
	// committed is called after each commit of the process.
	committed func(orbit.Proposal)

	mu      sync.Mutex
	resumed chan struct{} // nil: it is not paused
}

func (p *process) paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resumed != nil
}

func (p *process) pause(d time.Duration) {
	p.mu.Lock()
	p.resumed = make(chan struct{})
	p.mu.Unlock()
	time.Sleep(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.resumed)
	p.resumed = nil
}

// pass waits while the process is paused.
func (p *process) pass() {
	for p.paused() {
		p.mu.Lock()
		resumed := p.resumed
		p.mu.Unlock()
		if resumed != nil {
			<-resumed
		}
	}
}

func (p *process) Begin(ctx context.Context, ttl time.Duration) (string, error) {
	p.pass()
	defer p.pass()
	return p.home.Begin(ctx, ttl)
}

func (p *process) Keep(ctx context.Context, tokens []string) ([]time.Duration, error) {
	p.pass()
	defer p.pass()
	return p.home.Keep(ctx, tokens)
}

func (p *process) Left(ctx context.Context, tokens []string) ([]time.Duration, error) {
	p.pass()
	defer p.pass()
	return p.home.Left(ctx, tokens)
}

func (p *process) Propose(ctx context.Context, proposal orbit.Proposal) (orbit.Revision, error) {
	p.pass()
	defer p.pass()
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", orbit.ErrUnavailable, err)
	}
	rev, err := p.Ledger.Propose(ctx, proposal)
	if err == nil {
		p.committed(proposal)
	}
	return rev, err
}

// company is some processes that keep the leases of some hosts together, and what has happened to them.
type company struct {
	ledger    orbit.Ledger
	home      *home
	ttl, gone time.Duration
	processes []*process

	mu       sync.Mutex
	accepted map[string]time.Time // when a host last sent a refresh that was accepted
	died     map[string]time.Time
	found    map[string]time.Duration // how long after its death the end of a host's term was committed
	faults   []string
}

const heartbeat = 10 * time.Second

func newCompany(n int, ttl, gone time.Duration) *company {
	c := &company{
		ledger: &orbit.MemoryLedger{}, home: newHome(), ttl: ttl, gone: gone, processes: make([]*process, n),
		accepted: map[string]time.Time{}, died: map[string]time.Time{}, found: map[string]time.Duration{},
	}
	for i := range c.processes {
		c.processes[i] = &process{Ledger: c.ledger, home: c.home, committed: c.judge}
		c.restart(i, 0)
	}
	return c
}

// restart replaces what a process knows, and sets its clock.
func (c *company) restart(i int, ahead time.Duration) {
	p := c.processes[i]
	p.m = &lease.Members{Gone: c.gone, MaxLoss: 1, Leases: &lease.Keeper{
		Ledger: p, Refreshes: p, TTL: c.ttl, Terms: -1, Now: func() time.Time { return time.Now().Add(ahead) },
	}}
}

// fence is how long others stay off a host after a refresh that was accepted.
func (c *company) fence() time.Duration { return c.processes[0].m.Fence() }

// fault notes what must not happen.
func (c *company) fault(format string, args ...any) {
	if len(c.faults) < 5 {
		c.faults = append(c.faults, fmt.Sprintf(format, args...))
	}
}

// judge checks that no end was committed within half a TTL of an accepted refresh, and that no node was declared lost before its fence.
func (c *company) judge(p orbit.Proposal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, do := range p.Do {
		switch do := do.(type) {
		case orbit.Mark:
			host, _ := strings.CutPrefix(do.Key, "lease/")
			if !strings.HasPrefix(do.Value, "1 over") {
				continue
			}
			if left := c.ttl/2 - time.Since(c.accepted[host]); left > 0 {
				c.fault("the term of %s was ended %v too early", host, left)
			}
			if died, dead := c.died[host]; dead && c.found[host] == 0 {
				c.found[host] = time.Since(died)
			} else if !dead {
				c.found[host] = -1
			}
		case orbit.PutNode:
			if left := c.fence() - time.Since(c.accepted[string(do.Node.ID)]); do.Node.State == orbit.Lost && left > 0 {
				c.fault("%s was lost %v too early", do.Node.ID, left)
			}
		}
	}
}

// keep steps as [lease.Members.Run] does.
func (c *company) keep(ctx context.Context, i int) {
	for p := c.processes[i]; ctx.Err() == nil; {
		p.pass()
		c.mu.Lock()
		m := p.m
		c.mu.Unlock()
		round, err := m.Step(ctx)
		wait := time.Second
		if !round.Next.IsZero() && err == nil && round.Conflicts == 0 {
			wait = min(wait, max(0, round.Next.Sub(m.Leases.Now())))
		}
		pause(ctx, wait)
	}
}

// live is the life of a host, which has a capsule: it joins, and refreshes its term until it dies. It goes to the next process if one does not answer.
func (c *company) live(ctx context.Context, name string, at int, dies time.Duration) {
	var term lease.Term
	death := time.Now().Add(dies)
	for ctx.Err() == nil && time.Now().Before(death) {
		p := c.processes[at%len(c.processes)]
		if p.paused() {
			at++
			pause(ctx, time.Second)
			continue
		}
		c.mu.Lock()
		m := p.m
		c.mu.Unlock()
		sent, wait := time.Now(), time.Second
		var err error
		if term.Name == "" {
			term, err = join(ctx, m, name)
		} else if err = m.Leases.Refresh(term); errors.Is(err, lease.ErrExpired) {
			term = lease.Term{}
		} else if err == nil {
			wait = heartbeat
		}
		if err == nil {
			c.mu.Lock()
			c.accepted[name] = sent
			c.mu.Unlock()
		}
		pause(ctx, min(wait, time.Until(death)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil {
		c.died[name] = time.Now()
	}
}

// join joins as a client does who does not wait for a process that has been paused.
func join(ctx context.Context, m *lease.Members, name string) (lease.Term, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	joined := make(chan lease.Term, 1)
	go func() {
		if term, err := m.Join(ctx, orbit.Node{ID: orbit.NodeID(name)}, name); err == nil {
			joined <- term
		}
	}()
	select {
	case term := <-joined:
		return term, nil
	case <-ctx.Done():
		return lease.Term{}, ctx.Err()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
