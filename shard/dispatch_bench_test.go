package shard

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// BenchmarkDispatch assigns 1,000 new capsules to schedulers and reports the cost of one: following the submission,
// deciding and committing. The floor is the cost of the commits alone.
func BenchmarkDispatch(b *testing.B) {
	policies := map[string]func() Policy{
		"roundrobin": func() Policy { return &RoundRobin{} }, "random": func() Policy { return &Random{} },
		"least": func() Policy { return LeastLoaded{} }, "hash": func() Policy { return Hash{} },
	}
	for _, size := range []struct{ schedulers, nodes int }{{10, 1000}, {1000, 1000}, {10, 50000}, {1000, 50000}} {
		for _, name := range []string{"roundrobin", "random", "least", "hash", "floor"} {
			b.Run(fmt.Sprintf("schedulers=%d/nodes=%d/%s", size.schedulers, size.nodes, name), func(b *testing.B) {
				s := large(b, size.schedulers, size.nodes)
				d := &Dispatcher{Ledger: s.ledger, Leases: s.leases}
				if name != "floor" {
					d.Policy = policies[name]()
				}
				d.Step(context.Background())
				spec := &orbit.Spec{Module: "m", Envelope: cpu(1).Envelope}
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					fresh := ids(fmt.Sprint("x", i, "/"), 1000)
					s.do(orbit.Submit{IDs: fresh, Spec: spec})
					b.StartTimer()
					if name == "floor" {
						floor(b, s, fresh)
					} else if r := d.Step(context.Background()); len(r.Dispatched) == 0 {
						b.Fatal(r)
					}
					b.StopTimer()
					var done []orbit.Commitment
					for _, id := range fresh {
						done = append(done, orbit.Release{Capsule: id, Final: true})
					}
					s.do(done...)
					d.Step(context.Background())
					b.StartTimer()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/capsule")
			})
		}
	}
}

// floor commits the same assignments without a dispatcher.
func floor(b *testing.B, s *stage, fresh []orbit.CapsuleID) {
	view := s.state().Revision()
	bet := []orbit.Precondition{orbit.MarkAt{Key: "scheduler/s0", Revision: s.terms["s0"].Epoch}}
	batch := make([]orbit.Proposal, len(fresh))
	for i, id := range fresh {
		batch[i] = orbit.Proposal{View: view, Do: []orbit.Commitment{orbit.Assign{Capsule: id, Owner: "s0"}}, If: bet}
	}
	for _, o := range s.ledger.ProposeBatch(context.Background(), batch) {
		if o.Err != nil {
			b.Fatal(o.Err)
		}
	}
}

// large returns a constellation with groups and leases.
func large(b *testing.B, schedulers, nodes int) *stage {
	s := newStage(b)
	s.ledger.Bounds.Terminal = 1000
	for i := range schedulers {
		s.live(fmt.Sprint("s", i))
	}
	var do []orbit.Commitment
	for i := range nodes {
		id := fmt.Sprint("n", i)
		do = append(do, node(orbit.NodeID(id), 100), orbit.Mark{Key: groupMark.key(id), Value: fmt.Sprint("s", i%schedulers)})
		if len(do) > 10000 {
			s.do(do...)
			do = nil
		}
	}
	if len(do) > 0 {
		s.do(do...)
	}
	return s
}

// BenchmarkHelp reports the cost of a step after nodes have changed while capsules wait that all schedulers have
// failed. It is proportional to the changed nodes times the failing classes, however many capsules wait.
func BenchmarkHelp(b *testing.B) {
	for _, waiting := range []int{100, 10000} {
		for _, classes := range []int{1, 10} {
			b.Run(fmt.Sprintf("waiting=%d/classes=%d", waiting, classes), func(b *testing.B) {
				s := large(b, 1, 1000)
				for k := range classes {
					fresh := ids(fmt.Sprint("x", k, "/"), waiting/classes)
					s.do(orbit.Submit{IDs: fresh, Spec: cpu(int64(1000 + k)), Owner: "s0"})
					s.giveBack("s0", fresh...)
				}
				d := &Dispatcher{Ledger: s.ledger, Leases: s.leases, Retry: orbit.Backoff{Initial: 1e15, Max: 1e15}}
				require.Len(b, d.Step(context.Background()).Failed, waiting)
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					var do []orbit.Commitment
					for n := range 100 {
						do = append(do, node(orbit.NodeID(fmt.Sprint("n", n)), int64(100+i%2)))
					}
					s.do(do...)
					b.StartTimer()
					if r := d.Step(context.Background()); r.Cleared > 0 {
						b.Fatal(r)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100/float64(classes), "ns/node/class")
			})
		}
	}
}
