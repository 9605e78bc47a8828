package etcdledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// hammer has many callers propose for one node, or for none, until the context ends.
func hammer(ctx context.Context, wg *sync.WaitGroup, l *Ledger, callers int, on orbit.NodeID) {
	for i := range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				id := orbit.HoldID(fmt.Sprint(on, i))
				p := orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: string(id), Value: "x"}}}
				if p.ID = orbit.NewProposalID(); on != "" {
					hold := orbit.Hold{ID: id, Node: on, Room: orbit.Resources{1}, Ends: time.Unix(1e9, 0)}
					p.Do = []orbit.Commitment{hold, orbit.Release{Hold: id}}
				}
				_, _ = l.Propose(ctx, p)
			}
		})
	}
}

// More callers than fit into one transaction keep a few nodes busy. A caller that wants another node is still served, and so
// is one whose proposal brings the first rule about a group, which no other commit may come between.
func TestNoCallerStarves(t *testing.T) {
	first := place(1, "d", "cold")
	first.Do = append([]orbit.Commitment{member("d", orbit.Spec{Apart: []orbit.Apart{{Group: "g", Level: "rack"}}})}, first.Do...)
	for _, c := range []struct {
		name     string
		busy     []orbit.NodeID
		inFlight int
		p        orbit.Proposal
	}{
		{"nodes", []orbit.NodeID{"hot", "hotter"}, 1, place(1, "c", "cold")},
		{"none", []orbit.NodeID{""}, 1, place(1, "c", "cold")},
		{"first rule", []orbit.NodeID{"hot", "hotter"}, 1, first},
		{"first rule, many transactions", []orbit.NodeID{"hot", "hotter", ""}, 8, first},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 1, Options{InFlight: c.inFlight, GCInterval: -1}, func(d *desk) {
				l := d.ledgers[0]
				d.do(l, node("hot", 1e6), node("hotter", 1e6), in("r0", "cold"), submit("c"))
				d.plans[0].sendsNext(slices.Repeat([]fault{{slowAnswer, 10 * time.Millisecond}, {slow, 10 * time.Millisecond}}, 3000)...)
				ctx, cancel := context.WithTimeout(bg, 10*time.Second)
				var wg sync.WaitGroup
				for _, on := range c.busy {
					hammer(ctx, &wg, l, 300, on)
				}
				time.Sleep(time.Second)
				began := time.Now()
				_, err := l.Propose(ctx, c.p)
				took := time.Since(began)
				cancel()
				wg.Wait()
				synctest.Wait()
				require.NoError(d, err)
				require.Less(d, took, time.Second)
				require.Zero(d, l.Stats().Retries, "the ledger conflicts with itself")
			})
		})
	}
}
