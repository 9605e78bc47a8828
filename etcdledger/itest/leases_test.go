package itest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/rooms"
	sample "github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/shard"
)

// fleet is some hosts that report to some processes, and what happens to their leases.
type fleet struct {
	t      *testing.T
	config rooms.Config
	beat   time.Duration

	mu       sync.Mutex // guards the fields below
	sites    []*rooms.Site
	accepted map[string]time.Time // when a host last sent a report that was accepted
	died     map[string]time.Time
	found    map[string]time.Duration
	faults   []string
	ends     int // of terms of hosts that live
	joins    int
	// reported says to which processes a host has reported, by their numbers.
	reported map[string]map[int]bool
	// disturbed is when each process was last killed or suspended, by the name of its scheduler.
	disturbed map[string]time.Time
}

func newFleet(t *testing.T, config rooms.Config, sites int) *fleet {
	f := &fleet{
		t: t, config: config, beat: 300 * time.Millisecond,
		accepted: map[string]time.Time{}, died: map[string]time.Time{}, found: map[string]time.Duration{},
		reported:  map[string]map[int]bool{},
		disturbed: map[string]time.Time{},
	}
	for i := range sites {
		f.sites = append(f.sites, f.start(i))
	}
	for _, s := range f.sites {
		receive(t, s.Ready())
	}
	return f
}

func (f *fleet) start(i int) *rooms.Site {
	config := f.config
	if config.Scheduler != "" {
		config.Scheduler += fmt.Sprint(i)
	}
	s, err := rooms.Start(config, f.ended, func(text string) { f.fault("%s", text) })
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = s.Kill() })
	return s
}

func (f *fleet) site(i int) *rooms.Site {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sites[i%len(f.sites)]
}

// disturb notes that a process is killed or suspended now.
func (f *fleet) disturb(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disturbed[fmt.Sprint(shard.LeasePrefix, f.config.Scheduler, i%len(f.sites))] = time.Now()
}

// suspend suspends a process for half a TTL.
func (f *fleet) suspend(i int) {
	s := f.site(i)
	f.disturb(i)
	require.NoError(f.t, s.Pause())
	time.Sleep(f.config.TTL / 2)
	require.NoError(f.t, s.Resume())
	f.disturb(i)
}

// replace kills a process and starts another one in its place.
func (f *fleet) replace(i int) {
	f.disturb(i)
	require.NoError(f.t, f.site(i).Kill())
	s := f.start(i % len(f.sites))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sites[i%len(f.sites)] = s
}

// live is the life of a host: it joins and reports until it dies, at another process if one does not answer.
func (f *fleet) live(ctx context.Context, name string, at int, dies time.Duration) {
	death := time.Now().Add(dies)
	var term orbit.Revision
	for ctx.Err() == nil && time.Now().Before(death) {
		sent, wait := time.Now(), f.beat/3
		err := f.report(ctx, at, name, &term)
		switch {
		case err == nil:
			wait = f.beat
			f.mu.Lock()
			f.accepted[name] = sent
			if f.reported[name] == nil {
				f.reported[name] = map[int]bool{}
			}
			f.reported[name][at%len(f.sites)] = true
			f.mu.Unlock()
		case errors.Is(err, lease.ErrExpired):
			term = 0
		case !errors.Is(err, lease.ErrUnheard):
			at++
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil {
		f.died[name] = time.Now()
	}
}

// report sends one report to a process, or joins if there is no term.
func (f *fleet) report(ctx context.Context, at int, name string, term *orbit.Revision) error {
	site := f.site(at)
	if site.URL() == "" {
		return orbit.ErrUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, 750*time.Millisecond)
	defer cancel()
	if *term != 0 {
		return site.Control().Report(ctx, orbit.Report{
			Node: orbit.NodeID(name), Term: *term, At: time.Now(), FreeSlots: lease.DefaultSlots, Warm: map[string]int{rooms.Template: 5}, Templates: []string{rooms.Template},
		})
	}
	got, err := site.Control().Join(ctx, orbit.Node{ID: orbit.NodeID(name), Capacity: orbit.Resources{orbit.CPU: 1000}}, name)
	*term = got.Term
	f.mu.Lock()
	defer f.mu.Unlock()
	f.joins++
	return err
}

func (f *fleet) fault(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
}

// ended is called some time after the end of a term was committed. That of a scheduler ends when its process was killed or suspended. If that is within half a TTL of an accepted report, it was
// committed too early.
func (f *fleet) ended(host string) {
	if strings.HasPrefix(host, shard.LeasePrefix) {
		f.mu.Lock()
		at := f.disturbed[host]
		f.mu.Unlock()
		if undisturbed := time.Since(at); undisturbed > f.config.TTL+5*time.Second {
			f.fault("the term of %s ended after %v without trouble", host, undisturbed)
		}
		return
	}
	f.mu.Lock()
	accepted, died := f.accepted[host], f.died[host]
	if !died.IsZero() {
		f.found[host] = time.Since(died)
	} else {
		f.ends++
	}
	f.mu.Unlock()
	if early := f.config.TTL/2 - time.Since(accepted); early > 0 {
		f.fault("the term of %s ended %v too early", host, early)
	}
}

// Three processes keep the leases of 50 hosts, while each of them is suspended, killed and started again. No term ends within half a
// TTL of a report that was accepted; hosts that die are found within the stated bound. In ten
// minutes with -tags stress no term of a host that lives ends at all.
func TestThreeProcessesKeepLeases(t *testing.T) {
	t.Parallel()
	const hosts, deaths = 50, 3
	c := start(t, cluster.Options{Heartbeat: fast.Heartbeat})
	f := newFleet(t, rooms.Config{Endpoints: c.Endpoints(), TTL: 4 * time.Second, Gone: 4 * time.Second}, 3)
	lasts := time.Duration(scale(t, sample.Of(9, 600))) * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for h := range hosts {
		dies := time.Hour
		if h < deaths {
			dies = lasts * time.Duration(h+1) / 5
		}
		all.Go(func() { f.live(ctx, fmt.Sprintf("host-%02d", h), h, dies) })
	}
	var pauses, kills int
	for began := time.Now(); time.Since(began) < lasts; pauses++ {
		f.suspend(pauses)
		if pauses%3 == 1 {
			f.replace(pauses + 1)
			kills++
		}
		time.Sleep(f.beat)
	}
	bound := f.beat + f.config.TTL + f.config.TTL/4 + 5*time.Second
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.found) == deaths
	}, 2*bound, 10*time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Empty(t, f.faults)
	for host, took := range f.found {
		require.Less(t, took, bound, host)
	}
	if sample.Of(0, 1000) > 0 {
		require.Zero(t, f.ends)
	}
	t.Logf("%d hosts for %v, %d pauses, %d kills; %d joins, %d terms of living hosts ended; dead ones found after %v, of at most %v",
		hosts, lasts, pauses, kills, f.joins, f.ends, f.found, bound)
}
