package shard

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// failOn has every start on a node fail after a tenth of a second, until the context ends.
func (s *stage) failOn(ctx context.Context, bad orbit.NodeID) {
	for changes, err := range orbit.Follow(ctx, s.ledger, 0) {
		if err != nil {
			return
		}
		for _, c := range changes {
			if do, ok := c.Do.(orbit.Place); ok && do.Node == bad {
				time.AfterFunc(100*time.Millisecond, func() {
					_, _ = s.ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
						orbit.Release{Capsule: do.Capsule, From: do.Node, Stopped: true, At: orbit.Instant(time.Now().UnixNano())}}})
				})
			}
		}
	}
}

// Beside two good nodes, work leaves a node on which every start fails within three attempts, in all modes, also if the
// node is the only one in the group of a scheduler. A gang does, too.
func TestAFailingNodeBesideTwoGoodOnes(t *testing.T) {
	for _, mode := range []Mode{Strict, Soft, Shared} {
		for _, gangs := range []bool{false, true} {
			t.Run(fmt.Sprint(mode, ", gangs ", gangs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t)
					s.do(node("bad", 40), node("good-1", 40), node("good-2", 40))
					ctx, cancel := context.WithCancel(t.Context())
					go func() { _ = s.leases.Run(ctx) }()
					go func() { _ = (&Dispatcher{Ledger: s.ledger, Leases: s.leases, Strict: mode == Strict}).Run(ctx) }()
					if mode != Shared {
						go func() { _ = (&Groups{Ledger: s.ledger, Leases: s.leases}).Run(ctx) }()
					}
					for i := range 3 {
						name := fmt.Sprint("s", i)
						partition := &PartitionLedger{Ledger: s.ledger, Scheduler: name, Mode: mode}
						inner := func() orbit.Navigator { return &nav.Services{} }
						if gangs {
							inner = func() orbit.Navigator { return &nav.Gang{} }
						}
						sch := &Scheduler{Name: name, Navigator: partition.Navigator(inner), Leases: s.leases}
						go func() { _ = sch.Keep(ctx, nil) }()
						go func() { _ = (&orbit.Engine{Name: name, Ledger: partition, Navigator: sch}).Run(ctx) }()
					}
					go s.failOn(ctx, "bad")
					time.Sleep(5 * time.Second)
					for i := range 9 {
						spec := cpu(1)
						do := orbit.Submit{IDs: ids(fmt.Sprint("x", i), 1), Spec: spec}
						if spec.Module = fmt.Sprint("m", i%3); gangs {
							spec.Class = orbit.GangClass
							do = orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(fmt.Sprint("g", i)), Roles: []orbit.Role{{Name: "w", Spec: spec, Members: ids(fmt.Sprint("x", i), 2)}}}}
						}
						s.do(do)
						time.Sleep(3 * time.Second)
					}
					time.Sleep(time.Minute)
					for c := range s.state().Capsules() {
						require.True(t, c.Placed() && c.Node != "bad", "%s is on %q", c.ID, c.Node)
						require.LessOrEqual(t, s.state().Failures(c.ID).Attempts, 2, c.ID)
					}
					cancel()
					synctest.Wait()
				})
			})
		}
	}
}
