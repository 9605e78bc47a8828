// Navigator: a scheduler of your own beside the ready ones. A database costs a licence for each machine that it runs on, so its
// replicas should fill one machine after the other, while all else should be spread. No score of the ready navigators knows
// licences. So a navigator of fifty lines plans the databases, and the ready ones plan the rest, at the same moment and for the
// same machines. Neither waits for the other or knows of it: the ledger settles who gets a core.
//
//	go run ./examples/navigator
//
// How to read it: the same work is placed twice, by the ready navigators alone, and with the navigator for databases before
// them in the population. A row lists what runs on a machine: D is a database, w a web server, each of one core. The
// schedulers race, so the rows differ a little from run to run. The last line compares the licences.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/program"
	"github.com/orbitsched/orbit/nav"
)

//go:embed main.go
var source string // the program prints its first paragraph first

const (
	machines  = 12
	cores     = 8
	databases = 20
	servers   = 40
)

// licensed is the navigator for databases. It takes the machine on which most databases run among those that have room, so a
// new licence is needed only when the machines that have one are full.
type licensed struct {
	draft orbit.Draft
	// databases counts the databases on each machine: those that the view shows, and those that the plan places.
	databases map[orbit.NodeID]int
}

// Claims implements [orbit.Navigator]: it plans the work of one module, but leaves gangs to the navigator of gangs.
func (l *licensed) Claims(module string, class orbit.AppClass) bool {
	return module == "database" && class != orbit.GangClass
}

// Plan implements [orbit.Navigator].
func (l *licensed) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, _ error) {
	l.draft.Sync(view) // the draft shows the nodes as the plan leaves them
	l.databases = map[orbit.NodeID]int{}
	for c := range view.State().Capsules() {
		if c.Spec.Module == "database" && c.Placed() {
			l.databases[c.Node]++
		}
	}
	for _, c := range pending {
		if err := ctx.Err(); err != nil { // the engine wants the plan so far
			return plan, err
		}
		if err := l.place(c); err != nil {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: err})
			continue
		}
		plan.Proposals = append(plan.Proposals, l.draft.Propose()) // with the bet that the room is still there
	}
	return plan, nil
}

// place puts one database on the best machine.
func (l *licensed) place(c *orbit.Capsule) error {
	if c.Gang() != "" {
		return fmt.Errorf("capsule %q is a member of gang %q, and databases are placed one by one", c.ID, c.Gang())
	}
	var fits []*orbit.NodeState
	misfits := map[orbit.Misfit]int{}
	for n := range l.draft.Nodes() {
		if why := l.draft.Misfit(n, c.Spec); why != (orbit.Misfit{}) {
			misfits[why]++
		} else {
			fits = append(fits, n)
		}
	}
	if len(fits) == 0 {
		return l.draft.NoFit(c.Spec, misfits) // "0 of 12 nodes fit: 12 lack cpu"; the engine asks again when there is room
	}
	// The most databases; of equal machines the one with the most free cores.
	best := slices.MaxFunc(fits, func(a, b *orbit.NodeState) int {
		return cmp.Or(cmp.Compare(l.databases[a.Node.ID], l.databases[b.Node.ID]), cmp.Compare(a.Free()[orbit.CPU], b.Free()[orbit.CPU]))
	})
	devices, _ := best.PickDevices(c.Spec) // there are enough: the machine fits
	if err := l.draft.Place(c, orbit.Choice{Node: best, Devices: devices}); err != nil {
		return err
	}
	l.databases[best.Node.ID]++
	return nil
}

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "navigator takes no arguments")
		os.Exit(2)
	}
	fmt.Println(program.Opening(source))
	ready := run("the ready navigators alone", func(*orbit.Population) {})
	own := run("a navigator for databases before them", func(p *orbit.Population) {
		own := &orbit.Engine{Name: "databases", Ledger: p.Engines[0].Ledger, Navigator: &licensed{}}
		p.Engines = slices.Insert(p.Engines, 0, own) // the first in the list gets the work that others claim, too
	})
	fmt.Printf("licences: %d with the ready navigators, %d with one of our own\n", ready, own)
}

// run places all work with a population, prints where it is, and returns on how many machines databases run.
func run(title string, change func(*orbit.Population)) (licences int) {
	ledger := &orbit.MemoryLedger{}
	if _, err := ledger.Propose(context.Background(), orbit.Proposal{Do: work()}); err != nil {
		log.Fatal(err)
	}
	population := nav.Default(ledger)
	change(population)
	ctx, cancel := context.WithCancel(context.Background())
	for _, engine := range population.Engines {
		engine.OnRound = func(round orbit.Round) {
			for _, u := range round.Unplaced {
				log.Printf("%s: %v", u.Capsule.ID, u.Why)
			}
			if state, err := ledger.Snapshot(ctx); err == nil && state.PendingCount() == 0 {
				cancel() // all is placed
			}
		}
	}
	err := population.Run(ctx)
	cancel()
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
	state, err := ledger.Snapshot(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s:\n", title)
	for n := range state.Nodes() {
		var row strings.Builder
		for c := range state.On(n.Node.ID) {
			row.WriteString(map[string]string{"database": "D", "web": "w"}[c.Spec.Module])
		}
		text := row.String()
		if strings.Contains(text, "D") {
			licences++
		}
		fmt.Printf("  %-10s %s\n", n.Node.ID, text+strings.Repeat(".", cores-len(text)))
	}
	fmt.Printf("  licences: %d\n\n", licences)
	return licences
}

// work returns the machines and the capsules that wait.
func work() (do []orbit.Commitment) {
	for i := range machines {
		do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("machine-%d", i)), Capacity: orbit.Resources{orbit.CPU: cores * 1_000}}})
	}
	for module, n := range map[string]int{"database": databases, "web": servers} {
		var ids []orbit.CapsuleID
		for i := range n {
			ids = append(ids, orbit.CapsuleID(fmt.Sprintf("%s-%d", module, i)))
		}
		do = append(do, orbit.Submit{IDs: ids, Spec: &orbit.Spec{Module: module, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1_000}}}})
	}
	return do
}
