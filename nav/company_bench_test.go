package nav_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/nav"
)

// BenchmarkCompany places 500 replicas of a set in one pass: plain, with a rule of company, with a host name required of each, and with what is wished and no rule: spread
// over a level, or so much more or less for each member. The figures are per placement, from submission to commit. Another set has
// rules by the same levels all the time, so that the domains are known.
func BenchmarkCompany(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 50_000} {
		l := &orbit.MemoryLedger{}
		var do []orbit.Commitment
		for i := range nodes {
			n := node(fmt.Sprintf("n%05d", i), 32)
			n.Node.Extras = []orbit.Extra{{Name: "ip", Amount: 8}}
			n.Node.Labels = map[string]string{"zone": fmt.Sprint("z", i%3), "rack": fmt.Sprint("r", i/50), "host": fmt.Sprintf("n%05d", i)}
			do = append(do, n)
		}
		standing := &orbit.Spec{Module: "other", Group: "standing", Even: []orbit.Even{{Group: "standing", Level: "zone"}, {Group: "standing", Level: "rack"}}}
		commit(b, l, append(do, orbit.Submit{IDs: []orbit.CapsuleID{"standing"}, Spec: standing}, orbit.Place{Capsule: "standing", Node: "n00000"})...)
		e := &orbit.Engine{Name: "e", Ledger: l, MaxPlan: 1000, Navigator: &nav.Services{}}
		sets := 0
		for _, kind := range []string{"plain", "grouped", "even over zones", "even over racks", "even over hosts", "even over nodes", "apart by node", "apart by rack", "extra", "host", "spread over zones", "spread over racks", "itself over zones", "five more by zone", "five less by zone", "five more by rack"} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, kind), func(b *testing.B) {
				replicas := 500
				if kind == "apart by rack" {
					replicas = min(replicas, nodes/50)
				}
				var spent time.Duration
				for range b.N {
					b.StopTimer()
					sets++
					group := fmt.Sprint("set", sets)
					s := &orbit.Spec{Module: "m", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}
					switch kind {
					case "grouped":
						s.Group = group
					case "even over zones":
						s.Group, s.Even = group, []orbit.Even{{Group: group, Level: "zone"}}
					case "even over racks":
						s.Group, s.Even = group, []orbit.Even{{Group: group, Level: "rack"}}
					case "even over hosts":
						s.Group, s.Even = group, []orbit.Even{{Group: group, Level: "host"}}
					case "even over nodes":
						s.Group, s.Even = group, []orbit.Even{{Group: group, Level: orbit.NodeKey}}
					case "apart by node":
						s.Group, s.Apart = group, []orbit.Apart{{Group: group, Level: orbit.NodeKey}}
					case "spread over zones":
						s.Group, s.Spread.Level = group, "zone"
					case "spread over racks":
						s.Group, s.Spread.Level = group, "rack"
					case "itself over zones": // without a group
						s.Module, s.Spread.Level = group, "zone"
					case "five more by zone":
						s.Group, s.PreferCompany = group, []orbit.Company{{Group: group, Level: "zone", Weight: 5}}
					case "five less by zone":
						s.Group, s.PreferCompany = group, []orbit.Company{{Group: group, Level: "zone", Weight: -5}}
					case "five more by rack":
						s.Group, s.PreferCompany = group, []orbit.Company{{Group: group, Level: "rack", Weight: 5}}
					case "extra":
						s.Extras = []orbit.Extra{{Name: "ip", Amount: 1}}
					case "apart by rack":
						s.Group, s.Apart = group, []orbit.Apart{{Group: group, Level: "rack"}}
					}
					var ids []orbit.CapsuleID
					var release []orbit.Commitment
					for i := range replicas {
						ids = append(ids, orbit.CapsuleID(fmt.Sprintf("%s-%d", group, i)))
						release = append(release, orbit.Release{Capsule: ids[i], Final: true})
					}
					began := cputime.Process()
					b.StartTimer()
					if kind == "host" {
						for i, id := range ids {
							own := *s
							own.Require = []orbit.Predicate{{Key: "host", Op: "In", Values: []string{fmt.Sprintf("n%05d", i*(nodes/replicas))}}}
							commit(b, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &own})
						}
					} else {
						commit(b, l, orbit.Submit{IDs: ids, Spec: s})
					}
					r := e.Pass(b.Context())
					b.StopTimer()
					spent += cputime.Process() - began
					if r.Committed != replicas {
						b.Fatalf("%d of %d are placed: %v", r.Committed, replicas, r.Unplaced)
					}
					commit(b, l, release...)
					b.StartTimer()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*replicas), "ns/placement")
				b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N*replicas), "cpu-ns/placement")
			})
		}
	}
}
