package shard

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// run adds 16 nodes with so many cores, and lets eight schedulers work on them in a mode, with a dispatcher, groups and
// leases, until the context ends.
func (s *stage) run(ctx context.Context, mode Mode, cores int64) {
	for i := range 16 {
		s.do(node(orbit.NodeID(fmt.Sprint("n", i)), cores))
	}
	go func() { _ = s.leases.Run(ctx) }()
	go func() { _ = (&Dispatcher{Ledger: s.ledger, Leases: s.leases, Strict: mode == Strict}).Run(ctx) }()
	if mode != Shared {
		go func() { _ = (&Groups{Ledger: s.ledger, Leases: s.leases}).Run(ctx) }()
	}
	for i := range 8 {
		name := fmt.Sprint("s", i)
		partition := &PartitionLedger{Ledger: s.ledger, Scheduler: name, Mode: mode}
		sch := &Scheduler{Name: name, Navigator: partition.Navigator(func() orbit.Navigator { return &nav.Services{} }), Leases: s.leases}
		go func() { _ = sch.Keep(ctx, nil) }()
		go func() { _ = (&orbit.Engine{Name: name, Ledger: partition, Navigator: sch}).Run(ctx) }()
	}
}
