package inspect_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/inspect"
	"github.com/orbitsched/orbit/nav"
)

// The page is mounted on a mux, and gets the rounds of the engines. It also answers programs, in JSON.
func ExampleHandler() {
	ctx, ledger := context.Background(), &orbit.MemoryLedger{}
	page := &inspect.Handler{Ledger: ledger}
	mux := http.NewServeMux()
	mux.Handle("/debug/orbit/", page)
	server := httptest.NewServer(mux)
	defer server.Close()
	defer page.Close()

	web := &orbit.Spec{Module: "web", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 3_000}}}
	if _, err := ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "node-a", Capacity: orbit.Resources{orbit.CPU: 4_000}}},
		orbit.Submit{IDs: []orbit.CapsuleID{"web-1", "web-2"}, Spec: web},
	}}); err != nil {
		log.Fatal(err)
	}
	engine := &orbit.Engine{Name: "web", Ledger: ledger, Navigator: &nav.Services{}, OnRound: page.Round} // Run calls OnRound
	page.Round(engine.Pass(ctx))

	answer, err := http.Get(server.URL + "/debug/orbit/api/state")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	var all struct {
		Overview struct{ Placed, Pending int }
		Waiting  struct{ Rows []struct{ Why string } }
	}
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		log.Fatal(err)
	}
	fmt.Println("placed", all.Overview.Placed, "waiting", all.Overview.Pending)
	fmt.Println(all.Waiting.Rows[0].Why)
	// Output:
	// placed 1 waiting 1
	// 0 of 1 nodes fit: 1 lacks cpu
}
