package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// badHost is a Start that fails on the host "bad" while failing is set: by an error at once, or by hanging until it is given up. It counts the
// starts on each host.
type badHost struct {
	mu      sync.Mutex
	hangs   bool
	failing bool
	starts  map[orbit.NodeID]int
}

func (b *badHost) start(ctx context.Context, c sandbox.Created) (bool, error) {
	b.mu.Lock()
	b.starts[c.Node]++
	fails := b.failing && c.Node == "bad"
	b.mu.Unlock()
	if fails && b.hangs {
		<-ctx.Done()
		return false, ctx.Err()
	}
	if time.Sleep(80 * time.Millisecond); fails {
		return false, errors.New("503")
	}
	return c.Promised, nil
}

func (b *badHost) count(id orbit.NodeID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.starts[id]
}

// badFleet is a gateway with two good hosts and one that fails, which every score finds the best.
func badFleet(t *testing.T, hangs bool) (*fleet, *sandbox.Gateway, *badHost) {
	f := newFleet(t)
	f.host("bad", 1000, 500, 0)
	f.host("good-1", 1000, 5, 50)
	f.host("good-2", 1000, 5, 50)
	g, b := f.gateway(), &badHost{hangs: hangs, failing: true, starts: map[orbit.NodeID]int{}}
	g.Start = b.start
	return f, g, b
}

// reportAll has all hosts of badFleet report; the bad one is the best again.
func (f *fleet) reportAll() {
	f.report("bad", 1000, 500, 0)
	f.report("good-1", 500, 5, 50)
	f.report("good-2", 500, 5, 50)
}

// TestGatewayLeavesAFailingHost: of 300 creates within ten minutes, a dozen meet a host on which every start fails, though it reports and has the most warm
// slots. All succeed, at most one of them waits for the host at a time, and the host is tried again now and then.
func TestGatewayLeavesAFailingHost(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("hangs: ", hangs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, g, b := badFleet(t, hangs)
				var all sync.WaitGroup
				for i := range 300 {
					all.Go(func() {
						c := f.create(g, fmt.Sprint("c", i))
						require.NotEqual(t, orbit.NodeID("bad"), c.Node)
					})
					time.Sleep(2 * time.Second)
					if i%5 == 0 {
						f.reportAll()
					}
				}
				all.Wait()
				// At once, after 10 s, 20, 40, 80, 160 and 300 s, or later, with the next view; and a host that hangs draws five before it is known.
				require.LessOrEqual(t, b.count("bad"), 12)
				require.GreaterOrEqual(t, b.count("bad"), 4)
			})
		})
	}
}

// TestGatewayTriesAFailingHostAgain: when the host works again, the first create that tries it brings the others back.
func TestGatewayTriesAFailingHostAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, b := badFleet(t, false)
		require.True(t, f.create(g, "first").Retried)
		b.mu.Lock()
		b.failing = false
		b.mu.Unlock()
		time.Sleep(9 * time.Second)
		f.reportAll()
		require.NotEqual(t, orbit.NodeID("bad"), f.create(g, "second").Node)
		time.Sleep(time.Second)
		var all sync.WaitGroup
		for i := range 10 { // at the same time
			all.Go(func() { f.create(g, fmt.Sprint("c", i)) })
		}
		all.Wait()
		require.Equal(t, 2, b.count("bad"))
		require.Equal(t, orbit.NodeID("bad"), f.create(g, "last").Node)
	})
}

// TestGatewayUsesAFailingHostWhereThereIsNoOther: a create goes there rather than nowhere.
func TestGatewayUsesAFailingHostWhereThereIsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, b := badFleet(t, false)
		f.create(g, "first")
		b.mu.Lock()
		b.failing = false
		b.mu.Unlock()
		commit(t, f.ledger, orbit.PutNode{Node: orbit.Node{ID: "good-1", State: orbit.Cordoned, Capacity: orbit.Resources{orbit.Slots: 1000}}},
			orbit.PutNode{Node: orbit.Node{ID: "good-2", State: orbit.Cordoned, Capacity: orbit.Resources{orbit.Slots: 1000}}})
		g.Cache = -1
		require.Equal(t, orbit.NodeID("bad"), f.create(g, "second").Node)
	})
}

// TestGatewayFailuresByTemplate: a host on which starts of one template fail gets those of others, until those of a second one fail, too.
func TestGatewayFailuresByTemplate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, b := badFleet(t, false)
		create := func(id, template string) orbit.NodeID {
			c, err := g.Create(context.Background(), orbit.CapsuleID(id), bootSpec(template))
			require.NoError(t, err)
			return c.Node
		}
		f.create(g, "code-0")
		b.mu.Lock()
		b.failing = false
		b.mu.Unlock()
		require.NotEqual(t, orbit.NodeID("bad"), create("code-1", code))
		require.Equal(t, orbit.NodeID("bad"), create("none-0", ""))
		b.mu.Lock()
		b.failing = true
		b.mu.Unlock()
		create("none-1", "")
		require.Equal(t, 3, b.count("bad"))
		create("browser-0", "browser")
		require.Equal(t, 3, b.count("bad"), "starts of two templates have failed")
	})
}

// TestGatewayFailuresAreShared: other planners learn from the ledger where creates have failed.
func TestGatewayFailuresAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, b := badFleet(t, false)
		for i := range 3 {
			other := f.gateway() // each learns of the host's failures for itself
			other.Start, g = g.Start, other
			f.create(g, fmt.Sprint("c", i))
			f.reportAll()
		}
		failures := snapshot(t, f.ledger).Failures("c0")
		require.Equal(t, 1, failures.Attempts)
		require.Equal(t, orbit.NodeID("bad"), failures.Nodes[0].Node)
		require.Equal(t, 2, b.count("bad"), "two failures of the same spec are enough for the third gateway")
		submit(t, f.ledger, "queued", 4, bootSpec(code))
		require.Equal(t, 4, f.warmEngine().Pass(context.Background()).Committed)
		for i := range 4 {
			require.NotEqual(t, orbit.NodeID("bad"), snapshot(t, f.ledger).Capsule(orbit.CapsuleID(fmt.Sprint("queued-", i))).Node)
		}
	})
}

// TestGatewayOfOneAttempt: a create whose spec permits one attempt is not tried on a second host, and nothing is left of it.
func TestGatewayOfOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, b := badFleet(t, false)
		spec := bootSpec(code).Clone()
		spec.Attempts = 1
		_, err := g.Create(context.Background(), "once", spec)
		var failed *sandbox.StartError
		require.ErrorAs(t, err, &failed)
		require.ErrorContains(t, failed.RetryErr, "one attempt")
		require.Equal(t, []int{1, 0, 0}, []int{b.count("bad"), b.count("good-1"), b.count("good-2")})
		require.False(t, snapshot(t, f.ledger).Capsule("once").Placed())
	})
}
