package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

const cores = 1_000 // in milli-cores

// world is the cluster, the engines and the drain that act on it, and the state of the story.
type world struct {
	ledger  *orbit.MemoryLedger
	engines []*orbit.Engine
	drain   *nav.Drain
	rng     *rand.Rand
	groups  []string
	// The state when the story began, and how many services and tasks there were then.
	base            *orbit.State
	services, tasks int
	// How many nodes there are, and the number of the next task.
	nodes, next int
	// The revision at which each round ended.
	ends []orbit.Revision
	// Nodes that reboot as soon as they are empty, and spot nodes with the round in which the cloud takes them back.
	rebooting map[orbit.NodeID]bool
	reclaimed map[orbit.NodeID]int
}

// service is the spec of a service.
func service(group string) *orbit.Spec {
	s := &orbit.Spec{Module: "service", Group: group, Priority: 5}
	s.Envelope.Reservation[orbit.CPU] = 2 * cores
	return s
}

// task is the spec of a task.
func task() *orbit.Spec {
	s := &orbit.Spec{Module: "task", Class: orbit.Batch}
	s.Envelope.Reservation[orbit.CPU] = cores
	return s
}

// urgent is the spec of urgent work.
func urgent() *orbit.Spec {
	s := &orbit.Spec{Module: "urgent", Priority: 10}
	s.Envelope.Reservation[orbit.CPU] = 4 * cores
	return s
}

// open makes a cluster and fills it: half of the cores with services, half with tasks. Then it sets up the engines and
// the drain.
func open(nodes int, seed uint64) *world {
	w := &world{ledger: &orbit.MemoryLedger{Bounds: orbit.Limits{History: 1 << 22}}, rng: rand.New(rand.NewPCG(seed, 0)),
		nodes: nodes, rebooting: map[orbit.NodeID]bool{}, reclaimed: map[orbit.NodeID]int{}}
	for i := range nodes {
		w.propose(orbit.PutNode{Node: w.node(i)})
	}
	w.groups = []string{"api", "cart", "login", "mail", "search"}
	each := 2 * nodes / len(w.groups) // two services of 2 cores on each node
	for _, group := range w.groups {
		spec, ids := service(group), []orbit.CapsuleID(nil)
		for i := range each {
			ids = append(ids, orbit.CapsuleID(fmt.Sprint(group, "-", i)))
		}
		w.propose(orbit.Submit{IDs: ids, Spec: spec}, orbit.PutBudget{Budget: orbit.Budget{ID: orbit.BudgetID(group), Group: group, Expected: each, Missing: 2}})
	}
	w.services, w.tasks = each*len(w.groups), 8*nodes-2*each*len(w.groups)
	w.submitTasks(w.tasks)
	quick := orbit.Backoff{Initial: time.Microsecond, Max: time.Millisecond}
	engine := func(name, module string, n orbit.Navigator) {
		w.engines = append(w.engines, &orbit.Engine{Name: name, Ledger: w.ledger, Navigator: only{n, module}, ParkFor: time.Nanosecond, Backoff: quick})
	}
	engine("services", "service", &nav.Services{})
	engine("tasks", "task", &nav.Batch{})
	for range 10 {
		w.pass(w.engines...)
	}
	w.engines = w.engines[1:]
	engine("services", "service", &nav.Preempting{Navigator: &nav.Services{}})
	engine("urgent-0", "urgent", &nav.Preempting{Navigator: &nav.Services{}})
	engine("urgent-1", "nothing without an owner", &nav.Preempting{Navigator: &nav.Services{}})
	w.drain = &nav.Drain{Ledger: w.ledger, MayWait: func(c *orbit.Capsule) bool { return c.Spec.Module == "task" }}
	w.base = w.state()
	return w
}

// only is a navigator that claims capsules of one module only.
type only struct {
	orbit.Navigator
	module string
}

func (o only) Claims(module string, class orbit.AppClass) bool {
	return module == o.module && o.Navigator.Claims(module, class)
}

// node describes a node. Ten nodes are a rack; every tenth rack consists of spot nodes.
func (w *world) node(i int) orbit.Node {
	kind := "own"
	if i/10%10 == 9 {
		kind = "spot"
	}
	return orbit.Node{ID: orbit.NodeID(fmt.Sprintf("node-%03d", i)), Capacity: orbit.Resources{orbit.CPU: 8 * cores}, Labels: map[string]string{"kind": kind}}
}

// happens plays the outside events of a round. In the first 12 rounds urgent work is submitted. In each round tasks end
// and others are submitted. In every third round a rack is cordoned to be rebooted. In every fourth round one spot node
// of each hundred nodes is cordoned, and the cloud takes it back two rounds later.
func (w *world) happens(round int) {
	if round < 12 {
		var ids [2][]orbit.CapsuleID
		for i := range max(2, w.nodes/50) {
			ids[i%2] = append(ids[i%2], orbit.CapsuleID(fmt.Sprintf("urgent-%d-%d", round, i)))
		}
		for i := range ids {
			w.propose(orbit.Submit{IDs: ids[i], Spec: urgent(), Owner: fmt.Sprint("urgent-", i)})
		}
	}
	w.endTasks(w.nodes / 10)
	if round%3 == 1 {
		for i := range 10 {
			n := w.node(round/3*10%(w.nodes/2) + i)
			if w.state().Node(n.ID).Node.Schedulable() {
				n.Cordon(true)
				w.propose(orbit.PutNode{Node: n})
				w.rebooting[n.ID] = true
			}
		}
	}
	if round%4 == 2 {
		for i := 90 + round/4; i < w.nodes; i += 100 {
			n := w.node(i)
			n.Cordon(true)
			w.propose(orbit.PutNode{Node: n})
			w.reclaimed[n.ID] = round + 2
		}
	}
	for id, at := range w.reclaimed {
		if at == round {
			w.reclaim(id)
		}
	}
}

// reclaim declares a spot node lost, which returns all capsules on it to pending, and puts an empty node in its place.
func (w *world) reclaim(id orbit.NodeID) {
	n := w.state().Node(id).Node.Clone()
	n.State = orbit.Ready
	w.propose(orbit.RemoveNode{Node: id, Gone: true}, orbit.PutNode{Node: n})
	delete(w.reclaimed, id)
}

// act lets all engines and the drain do a few passes, at the same time. Then nodes that are to be rebooted and are
// empty take work again.
func (w *world) act() {
	var all sync.WaitGroup
	for _, e := range w.engines {
		all.Go(func() {
			for range 4 {
				w.pass(e)
			}
		})
	}
	var emptied []orbit.NodeID
	all.Go(func() {
		for range 6 {
			round := w.drain.Pass(context.Background())
			if len(round.Errors) > 0 {
				log.Fatal(errors.Join(round.Errors...))
			}
			emptied = append(emptied, round.Emptied...)
		}
	})
	all.Wait()
	for _, id := range emptied {
		if w.rebooting[id] {
			n := w.state().Node(id).Node.Clone()
			n.Cordon(false)
			w.propose(orbit.PutNode{Node: n})
			delete(w.rebooting, id)
		}
	}
	w.ends = append(w.ends, w.state().Revision())
}

// settle plays a few more rounds in which only tasks end, so that waiting work finds room.
func (w *world) settle() {
	for range 3 {
		w.endTasks(w.nodes / 10)
		w.act()
	}
}

// pass lets engines do one pass each, one after the other.
func (w *world) pass(engines ...*orbit.Engine) {
	for _, e := range engines {
		if round := e.Pass(context.Background()); len(round.Errors) > 0 {
			log.Fatal(round)
		}
	}
}

// submitTasks submits n tasks.
func (w *world) submitTasks(n int) {
	var ids []orbit.CapsuleID
	for range n {
		ids = append(ids, orbit.CapsuleID(fmt.Sprint("task-", w.next)))
		w.next++
	}
	w.propose(orbit.Submit{IDs: ids, Spec: task()})
}

// endTasks ends n random running tasks, and submits half as many, so that room for waiting work grows.
func (w *world) endTasks(n int) {
	var running []orbit.CapsuleID
	for c := range w.state().Capsules() {
		if c.Placed() && c.Spec.Module == "task" {
			running = append(running, c.ID)
		}
	}
	for _, i := range w.rng.Perm(len(running))[:min(n, len(running))] {
		w.propose(orbit.Release{Capsule: running[i], Final: true})
	}
	w.submitTasks(n / 2)
}

// propose commits commitments, or ends the program.
func (w *world) propose(do ...orbit.Commitment) {
	if _, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: do}); err != nil {
		log.Fatal(err)
	}
}

// state returns the state of the ledger.
func (w *world) state() *orbit.State {
	s, err := w.ledger.Snapshot(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	return s
}
