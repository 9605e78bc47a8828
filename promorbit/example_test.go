package promorbit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/promorbit"
)

// An engine and its ledger in a registry of Prometheus. A server would show it by promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).
func Example() {
	ctx, ledger := context.Background(), &orbit.MemoryLedger{}
	engines := &promorbit.Engines{}
	engine := &orbit.Engine{Name: "web", Ledger: ledger, Navigator: &nav.Services{}, OnRound: engines.Round}
	registry := prometheus.NewRegistry()
	registry.MustRegister(engines, &promorbit.Ledger{Ledger: ledger})

	half := orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 500}}
	_, err := ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "node-a", Capacity: orbit.Resources{orbit.CPU: 1000}}},
		orbit.Submit{IDs: []orbit.CapsuleID{"web-1", "web-2", "web-3"}, Spec: &orbit.Spec{Module: "web", Envelope: half}, At: orbit.Instant(time.Now().UnixNano())},
	}})
	if err != nil {
		log.Fatal(err)
	}
	engine.OnRound(engine.Pass(ctx)) // engine.Run(ctx) calls OnRound by itself

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch {
			case f.GetName() == "orbit_placed_capsules":
				fmt.Println(f.GetName(), m.GetGauge().GetValue())
			case f.GetName() == "orbit_pending_capsules" && m.GetGauge().GetValue() > 0:
				fmt.Println(f.GetName(), m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
			case f.GetName() == "orbit_engine_placements_total":
				fmt.Println(f.GetName(), m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// orbit_engine_placements_total web 2
	// orbit_pending_capsules LatencySensitive 1
	// orbit_placed_capsules 2
}
