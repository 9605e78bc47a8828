package itest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/rooms"
	sample "github.com/orbitsched/orbit/internal/scale"
)

// house is a fleet whose processes have all rooms, and callers of them.
type house struct {
	*fleet
	lasts time.Duration

	mu       sync.Mutex                       // guards the fields below
	created  map[orbit.CapsuleID]orbit.NodeID // what callers were told
	claimed  map[string]int
	refusals int
	far      int // created by a process to which the host had never reported
}

const (
	roomHosts = 10
	roomSlots = 1000
)

func newHouse(t *testing.T, config rooms.Config, sites int) *house {
	config.TTL, config.Gone, config.Slots = 4*time.Second, 4*time.Second, roomSlots
	h := &house{
		fleet: newFleet(t, config, sites), lasts: time.Duration(scale(t, sample.Of(6, 120))) * time.Second,
		created: map[orbit.CapsuleID]orbit.NodeID{}, claimed: map[string]int{},
	}
	h.feed()
	return h
}

// feed connects the boards of all processes with each other; those that are connected already learn nothing new from it.
func (h *house) feed() {
	for i := range h.sites {
		for j := range h.sites {
			if i != j {
				_ = h.site(i).Follow(h.site(j))
			}
		}
	}
}

// call asks a process for something, and returns what it answers; false: it has refused, or has not answered.
func (h *house) call(ctx context.Context, at int, path string) (string, bool) {
	url := h.site(at).URL()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		return "", false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", false
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return string(text), err == nil && answer.StatusCode == http.StatusOK
}

// create has sandboxes created. Every third is asked for at two processes at once, and every one again where it was refused.
func (h *house) create(ctx context.Context, caller int) {
	for i := 0; ctx.Err() == nil; i++ {
		id := orbit.CapsuleID(fmt.Sprintf("box-%d-%d", caller, i))
		var both sync.WaitGroup
		for k := range 1 + min(1, i%3) {
			both.Go(func() {
				node, ok := h.call(ctx, caller+i+k, "/create/"+string(id))
				h.mu.Lock()
				defer h.mu.Unlock()
				if !ok {
					h.refusals++
				} else if other, twice := h.created[id]; twice {
					h.fault("%s was created on %s and on %s", id, other, node)
				} else {
					h.created[id] = orbit.NodeID(node)
					h.far += h.fedOnly(node, caller+i+k)
				}
			})
		}
		both.Wait()
		wait(ctx, 10*time.Millisecond)
	}
}

// fedOnly returns 1 if a process can know of a host by the boards of others alone.
func (h *house) fedOnly(host string, site int) int {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	if h.reported[host][site%len(h.sites)] {
		return 0
	}
	return 1
}

// claim claims slots.
func (h *house) claim(ctx context.Context, caller int) {
	for i := 0; ctx.Err() == nil; i++ {
		slot, ok := h.call(ctx, caller+i, "/claim/any")
		h.mu.Lock()
		if !ok {
			h.refusals++
		} else if h.claimed[slot]++; h.claimed[slot] > 1 {
			h.fault("%s was claimed twice", slot)
		}
		h.mu.Unlock()
		wait(ctx, 10*time.Millisecond)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// work lets hosts live and callers call while disturb does its work, and then checks what callers were told against the ledgers.
func (h *house) work(t *testing.T, disturb func(i int), open func(name string) orbit.Ledger) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range roomHosts {
		all.Go(func() { h.live(ctx, fmt.Sprintf("host-%02d", i), i, time.Hour) })
	}
	for i := range 3 {
		all.Go(func() { h.create(ctx, i) })
		all.Go(func() { h.claim(ctx, i) })
	}
	disturbances := 0
	for began := time.Now(); time.Since(began) < h.lasts; disturbances++ {
		disturb(disturbances)
		h.feed()
		time.Sleep(500 * time.Millisecond)
	}
	cancel()
	all.Wait()
	errs := make([]error, len(h.sites))
	for i, s := range h.sites {
		all.Go(func() { errs[i] = s.Stop(10 * time.Second) })
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	for _, name := range []string{rooms.Fleet, rooms.Shard, rooms.Claims} {
		state, err := open(name).Snapshot(t.Context())
		require.NoError(t, err)
		require.NoError(t, state.Verify())
		h.compare(t, name, state)
	}
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	require.Empty(t, h.faults)
	t.Logf("%v, %d disturbances: %d created (%d far from their reports), %d claimed, %d refused or not answered; %d joins, %d terms of living hosts ended",
		h.lasts, disturbances, len(h.created), h.far, len(h.claimed), h.refusals, h.joins, h.ends)
}

// compare checks that a ledger has what callers were told.
func (h *house) compare(t *testing.T, name string, state *orbit.State) {
	switch name {
	case rooms.Fleet:
		require.NotEmpty(t, h.created)
		for id := range h.created {
			c := state.Capsule(id)
			require.True(t, c != nil && !c.Released(), "%s was created and is gone", id)
		}
	case rooms.Claims:
		require.NotEmpty(t, h.claimed)
		for slot := range h.claimed {
			n := state.Node(orbit.NodeID(slot))
			require.True(t, n != nil && n.Capsules == 1, "%s was claimed and is idle", slot)
		}
	default:
		owned := 0
		for range state.Marks("group/") {
			owned++
		}
		require.Positive(t, owned)
	}
}

// Three processes have all rooms over one etcd: leases of nodes, boards that feed each other, gateways, schedulers with groups of nodes,
// and pools of claims. They are suspended, killed and started again. No term of a host or of a scheduler ends too early, nothing is placed on a node
// by a scheduler that does not own it, no sandbox is created twice, and no slot claimed twice.
func TestRoomsOverEtcd(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{Heartbeat: fast.Heartbeat})
	client := connect(t, c)
	h := newHouse(t, rooms.Config{Endpoints: c.Endpoints(), Scheduler: "scheduler"}, 3)
	h.work(t, func(i int) {
		if i%2 == 0 {
			h.replace(i / 2)
			receive(t, h.site(i/2).Ready())
			return
		}
		h.suspend(i / 2)
	}, func(name string) orbit.Ledger { return open(t, client, etcdledger.Options{Prefix: name}) })
	require.Positive(t, h.far, "no process has created anything on a host that reports to another one")
	for _, prefix := range []string{rooms.Fleet, rooms.Shard, rooms.Claims} {
		var book audit.Book
		require.NoError(t, book.Read(within(t, time.Minute), client, prefix))
		require.Zero(t, book.Doubled+book.Over, prefix)
		require.Positive(t, book.Places, prefix)
	}
}

// One process has all rooms over ledgers on disk, and is killed and started again. The same holds.
func TestRoomsOverDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newHouse(t, rooms.Config{Dir: dir, Scheduler: "scheduler"}, 1)
	h.work(t, func(int) {
		time.Sleep(time.Second)
		h.replace(0)
		receive(t, h.site(0).Ready())
	}, func(name string) orbit.Ledger {
		l, err := diskledger.Open(dir+"/"+name, diskledger.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		return l
	})
}
