// Quickstart: three schedulers plan at the same moment for one small cluster. Each plan is right by itself; together they
// promise more than there is. A lock would let one scheduler think at a time, and the quick would wait for the slow. Here
// all think at once: the ledger decides, node by node, which proposal wins, tells the others why they lost, and those plan
// again.
//
//	go run ./examples/quickstart
//
// How to read it: each round lists what the schedulers plan, and then what the ledger answers. Below the first round is
// what would have happened without a ledger. The last line sums up.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

const cores = 1_000 // in milli-cores

const opening = `Three schedulers plan at the same moment for one small cluster. Each plan is right by itself; together they promise more than
there is. A lock would let one think at a time, and the quick would wait for the slow. Here all think at once: the ledger
decides, node by node, which proposal wins, tells the others why they lost, and those plan again.`

// team is one scheduler: a navigator that plans one module by a ready one, run by an engine of its own.
type team struct {
	module   string
	services nav.Services
	engine   orbit.Engine
	// together counts the navigators that plan in this round. Each waits for the others, so that no view shows a commit
	// of another navigator of the same round.
	together *sync.WaitGroup
	planned  []string
	outcomes []string
	lost     int // proposals, in all rounds
	promised map[orbit.NodeID]int64
}

// Claims divides the capsules between the schedulers by module, without a coordinator.
func (t *team) Claims(module string, _ orbit.AppClass) bool { return module == t.module }

// Plan is called by the engine with a view and the pending capsules.
func (t *team) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan, err := t.services.Plan(ctx, view, pending)
	for _, p := range plan.Proposals {
		place := p.Do[0].(orbit.Place)
		t.planned = append(t.planned, fmt.Sprintf("%s on %s", place.Capsule, place.Node))
		t.promised[place.Node] += 5
	}
	t.together.Done()
	t.together.Wait()
	return plan, err
}

// note keeps how the proposals of a round ended, for printing. An engine that runs by itself (Run) calls it after each round; Pass returns
// the round.
func (t *team) note(round orbit.Round) {
	for _, s := range round.Settled {
		place := s.Proposal.Do[0].(orbit.Place)
		said := fmt.Sprintf("%s on %s: committed", place.Capsule, place.Node)
		if s.Outcome.Err != nil {
			t.lost++
			said = fmt.Sprintf("%s on %s: lost\n             receipt: %v", place.Capsule, place.Node, s.Outcome.Err)
		}
		t.outcomes = append(t.outcomes, said)
	}
}

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Quickstart lets three schedulers race for one small cluster. It has no flags.")
	}
	if flag.Parse(); flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, ledger := context.Background(), &orbit.MemoryLedger{}
	fmt.Println(opening)
	fmt.Println("\nFour nodes of 12 cores. Three schedulers (web, search, ads) want 5 cores for each of 8 capsules, so two fit a node.")
	var setup orbit.Proposal
	for _, id := range []orbit.NodeID{"node-a", "node-b", "node-c", "node-d"} {
		setup.Do = append(setup.Do, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 12 * cores}}})
	}
	var teams []*team
	for module, capsules := range map[string]int{"web": 3, "search": 3, "ads": 2} {
		submit := orbit.Submit{Spec: &orbit.Spec{Module: module, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 5 * cores}}}}
		for i := range capsules {
			submit.IDs = append(submit.IDs, orbit.CapsuleID(fmt.Sprintf("%s-%d", module, i)))
		}
		setup.Do = append(setup.Do, submit)
		t := &team{module: module, promised: map[orbit.NodeID]int64{}}
		t.engine = orbit.Engine{Name: module, Ledger: ledger, Navigator: t, OnRound: t.note}
		teams = append(teams, t)
	}
	slices.SortFunc(teams, func(a, b *team) int { return strings.Compare(a.module, b.module) })
	if _, err := ledger.Propose(ctx, setup); err != nil {
		log.Fatal(err)
	}
	promised, rounds := map[orbit.NodeID]int64{}, 0
	for round := 1; snapshot(ledger).PendingCount() > 0; round++ {
		rounds = round
		race(ctx, round, ledger, teams)
		for _, t := range teams {
			for node, n := range t.promised {
				promised[node] += n
			}
			clear(t.promised)
		}
		if round == 1 {
			withoutReferee(promised)
		}
	}
	report(snapshot(ledger))
	lost := 0
	for _, t := range teams {
		lost += t.lost
	}
	fmt.Printf("All 8 capsules placed in %d rounds: %d proposals lost, and their capsules were planned again; no node is oversubscribed.\n", rounds, lost)
}

// race lets all schedulers that have work do one pass at the same time, and prints the results.
func race(ctx context.Context, round int, ledger orbit.Ledger, teams []*team) {
	var together, done sync.WaitGroup
	waiting := map[string]bool{}
	for _, c := range snapshot(ledger).Pending() {
		waiting[c.Spec.Module] = true
	}
	together.Add(len(waiting))
	for _, t := range teams {
		t.together, t.planned, t.outcomes = &together, nil, nil
		if waiting[t.module] {
			done.Go(func() { t.note(t.engine.Pass(ctx)) })
		}
	}
	done.Wait()
	if round == 1 {
		fmt.Printf("\nRound 1: %d schedulers plan on the same view, and none knows of another.\n", len(waiting))
	} else {
		fmt.Printf("\nRound %d: those who lost (%d) plan again, on a newer view.\n", round, len(waiting))
	}
	for _, t := range teams {
		if len(t.planned) > 0 {
			fmt.Printf("  %-7s plans    %s\n", t.module, strings.Join(t.planned, ", "))
		}
	}
	for _, t := range teams {
		for _, said := range t.outcomes {
			fmt.Printf("  %-7s proposes %s\n", t.module, said)
		}
	}
}

// withoutReferee prints how full the nodes would be if every plan of the first round had been carried out.
func withoutReferee(promised map[orbit.NodeID]int64) {
	fmt.Println("\nWithout the ledger all of these plans would be carried out:")
	for _, node := range []orbit.NodeID{"node-a", "node-b", "node-c", "node-d"} {
		verdict := "fits"
		if promised[node] > 12 {
			verdict = "OVERSUBSCRIBED"
		}
		fmt.Printf("  %s  %2d of 12 cores promised: %s\n", node, promised[node], verdict)
	}
	fmt.Println("A conflict is no error. Its scheduler plans again, on a view that has what came first.")
}

// report prints which capsule is on which node, and verifies the state.
func report(state *orbit.State) {
	fmt.Println("\nIn the end:")
	for n := range state.Nodes() {
		var on []string
		for c := range state.On(n.Node.ID) {
			on = append(on, string(c.ID))
		}
		slices.Sort(on)
		fmt.Printf("  %s  %2d of 12 cores: %s\n", n.Node.ID, n.Used()[orbit.CPU]/cores, strings.Join(on, ", "))
	}
	if err := state.Verify(); err != nil {
		fmt.Println("verify:", err)
		os.Exit(1)
	}
	fmt.Println("\nEverything was counted again from the ledger's records, and no node is over its capacity:")
	fmt.Println("verify: ok")
}

func snapshot(l orbit.Ledger) *orbit.State {
	state, err := l.Snapshot(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	return state
}
