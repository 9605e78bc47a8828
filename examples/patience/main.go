// Patience: large work waits beside small work that never ends. Three nodes of four cores are full of one-core tasks; each
// time one ends, the next one takes its core at once. So work of four cores, or a gang, finds no room for ever, even at the highest
// priority: priority decides who plans first, and room appears one core at a time. Evicting would lose what the tasks have
// done. nav.Patient nominates room on one node: the other schedulers leave what becomes free there to the work that waits.
//
//	go run ./examples/patience
//
// How to read it: each story is told twice with the same tasks, with the plain navigators and with the same navigators in a
// nav.Patient. A line says how many tasks ended before the large work was placed, and how many tasks overtook it although
// they were submitted later. The last line counts the stories in which the large work was never placed. A seed decides the
// events. Only the measured times, and so the moment when work has waited long enough, differ a little from run to run.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/program"
	"github.com/orbitsched/orbit/nav"
)

//go:embed main.go
var source string // the program prints its first paragraph first

const cores = 1_000 // in milli-cores

// story is one kind of large work that waits.
type story struct {
	title  string
	class  orbit.AppClass
	engine string
	// members is the number of members of a gang; 0: the story is about a single capsule.
	members  int
	cores    int64
	priority int32
}

var stories = []story{
	{title: "a service of 4 cores", class: orbit.LatencySensitive, engine: "services", cores: 4, priority: 1000},
	{title: "a service of 2 cores", class: orbit.LatencySensitive, engine: "services", cores: 2, priority: 1000},
	{title: "a task of 4 cores, in the navigator of the small ones", class: orbit.Batch, engine: "tasks-0", cores: 4, priority: 1000},
	{title: "a gang of 4 x 1 core", class: orbit.GangClass, engine: "gangs", members: 4, cores: 1, priority: 1000},
	{title: "a gang of 2 x 2 cores", class: orbit.GangClass, engine: "gangs", members: 2, cores: 2, priority: 1000},
	{title: "a gang of 1 x 4 cores", class: orbit.GangClass, engine: "gangs", members: 1, cores: 4, priority: 1000},
	{title: "a service of 4 cores, of the tasks' own priority", class: orbit.LatencySensitive, engine: "services", cores: 4},
}

// world is the state of one run of a story.
type world struct {
	story
	ledger  *orbit.MemoryLedger
	engines []*orbit.Engine
	rng     *rand.Rand
	next    int
}

func main() {
	ends := flag.Int("ends", 500, "tasks that end before a story is given up")
	seed := flag.Uint64("seed", 1, "seed of the order of events")
	verbose := flag.Bool("v", false, "tell what is nominated, and when")
	if flag.Parse(); flag.NArg() > 0 || *ends < 1 {
		flag.Usage()
		os.Exit(2)
	}
	fmt.Println(program.Opening(source))
	fmt.Println("3 nodes of 4 cores are full of one-core tasks of priority 0. One ends after the other, and others come.")
	starved := map[bool]int{}
	for _, s := range stories {
		fmt.Printf("\n%s, priority %d\n", s.title, s.priority)
		for _, patient := range []bool{false, true} {
			w := open(s, patient, *seed)
			after, overtaken := w.tell(*ends, *verbose)
			switch {
			case after < 0:
				starved[patient]++
				fmt.Printf("  nominations %s: waits for ever: %d tasks ended, %d that came later overtook it\n", onOff(patient), *ends, overtaken)
			default:
				fmt.Printf("  nominations %s: placed after %d tasks ended, %d that came later overtook it\n", onOff(patient), after, overtaken)
			}
		}
	}
	fmt.Println("\nA nomination is no use: what runs there goes on, and nothing waits for two nodes of which it has one.")
	fmt.Printf("starved off %d, on %d\n", starved[false], starved[true])
}

func onOff(patient bool) string {
	if patient {
		return "on "
	}
	return "off"
}

// open adds the nodes, fills them with tasks, and submits the large work.
func open(s story, patient bool, seed uint64) *world {
	w := &world{story: s, ledger: &orbit.MemoryLedger{}, rng: rand.New(rand.NewPCG(seed, 0))}
	for i, n := range []orbit.Navigator{&nav.Batch{}, &nav.Batch{}, &nav.Services{}, &nav.Gang{}} {
		if patient {
			n = &nav.Patient{Navigator: n, After: 10 * time.Millisecond}
		}
		name := []string{"tasks-0", "tasks-1", "services", "gangs"}[i]
		w.engines = append(w.engines, &orbit.Engine{Name: name, Ledger: w.ledger, Navigator: n, ParkFor: time.Nanosecond})
	}
	for i := range 3 {
		w.propose(orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("node-", i)), Capacity: orbit.Resources{orbit.CPU: 4 * cores}}})
	}
	w.submitTasks(24)
	w.pass()
	spec := &orbit.Spec{Class: s.class, Module: "large", Priority: s.priority}
	spec.Envelope.Reservation[orbit.CPU] = s.cores * cores
	if s.members == 0 {
		w.propose(orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec, Owner: s.engine})
		return w
	}
	role := orbit.Role{Name: "worker", Spec: spec}
	for i := range s.members {
		role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint("large-", i)))
	}
	w.propose(orbit.Submit{Owner: s.engine, Gang: &orbit.Gang{ID: "large", Roles: []orbit.Role{role}}})
	return w
}

// tell ends tasks and submits others, with a pass of every engine after each, until the large work is placed. It
// returns after how many ends the work was placed, -1 for never, and how many tasks overtook it.
func (w *world) tell(ends int, verbose bool) (after, overtaken int) {
	first, told := w.next, orbit.Revision(0)
	after = -1
	for i := range ends {
		w.submitTasks(1)
		w.pass()
		placed, nomination := w.large()
		if nomination.Lives() && nomination.Made != told && verbose {
			told = nomination.Made
			for _, part := range nomination.Parts {
				fmt.Printf("    after %d ends: nominated for %d cores of %s\n", i, part.Room[orbit.CPU]/cores, part.Node)
			}
		}
		if placed {
			after = i
			break
		}
		w.endOne()
	}
	for c := range w.state().Capsules() {
		n := 0
		if _, err := fmt.Sscanf(string(c.ID), "task-%d", &n); err == nil && n >= first && c.PlacedAt > 0 {
			overtaken++
		}
	}
	return after, overtaken
}

// large reports whether the large work is placed, and returns its nomination.
func (w *world) large() (bool, *orbit.Nomination) {
	if w.members == 0 {
		c := w.state().Capsule("large")
		return c.Placed(), c.Nomination()
	}
	g := w.state().Gang("large")
	return g.Total() > 0, g.Nomination
}

// pass lets every engine pass a few times, in random order.
func (w *world) pass() {
	for range 3 {
		for _, i := range w.rng.Perm(len(w.engines)) {
			if round := w.engines[i].Pass(context.Background()); len(round.Errors) > 0 {
				log.Fatal(round)
			}
		}
	}
}

// submitTasks submits n one-core tasks, in equal parts to the two engines for tasks.
func (w *world) submitTasks(n int) {
	spec := &orbit.Spec{Class: orbit.Batch, Module: "task"}
	spec.Envelope.Reservation[orbit.CPU] = cores
	for range n {
		w.propose(orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("task-", w.next))}, Spec: spec, Owner: fmt.Sprint("tasks-", w.next%2)})
		w.next++
	}
}

// endOne ends a random task that runs.
func (w *world) endOne() {
	var running []orbit.CapsuleID
	for c := range w.state().Capsules() {
		if c.Placed() && c.Spec.Module == "task" {
			running = append(running, c.ID)
		}
	}
	w.propose(orbit.Release{Capsule: running[w.rng.IntN(len(running))], Final: true})
}

func (w *world) propose(do ...orbit.Commitment) {
	if _, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: do}); err != nil {
		log.Fatal(err)
	}
}

func (w *world) state() *orbit.State {
	s, err := w.ledger.Snapshot(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	return s
}
