package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

const (
	cores      = 1_000 // in milli-cores
	racks      = 40
	navigators = 8
)

// world is the cluster, the navigators that act on it, and the state of the story.
type world struct {
	ledger  *orbit.MemoryLedger
	engines []*orbit.Engine
	sets    []*set
	rng     *rand.Rand
	out     io.Writer
	// How many nodes a rack has.
	perRack int
	// The recount of the history, and the moments of the story.
	account *account
	moments []*moment
	// How many proposals were committed, and lost to others.
	committed, conflicts atomic.Int64
	// How many capsules lost their node when the zone failed, and how many moves repaired the skew.
	lost, moves int
}

// open makes a cluster with empty nodes, and eight navigators.
func open(nodes int, seed uint64, out io.Writer) *world {
	w := &world{ledger: &orbit.MemoryLedger{Bounds: orbit.Limits{History: 1 << 22}}, rng: rand.New(rand.NewPCG(seed, 0)), out: out,
		sets: makeSets(nodes), perRack: nodes / racks}
	w.account = newAccount(w.ledger, w.sets)
	for i := range racks {
		w.join(rackOf(i))
	}
	for i := range navigators {
		w.engines = append(w.engines, &orbit.Engine{Name: fmt.Sprint("navigator-", i), Ledger: w.ledger,
			Navigator: &nav.Services{Placement: &place.Indexed{Seed: seed*navigators + uint64(i) + 1}}})
	}
	return w
}

// site is a rack, and the zone in which it is.
type site struct{ zone, rack string }

// rackOf returns the i-th rack: zones a, b and c have one after the other.
func rackOf(i int) site {
	z := string("abc"[i%3])
	return site{z, fmt.Sprintf("%s-%02d", z, i/3)}
}

// node describes a node of a rack.
func (s site) node(i int) orbit.Node {
	return orbit.Node{ID: orbit.NodeID(fmt.Sprintf("%s-%03d", s.rack, i)), Capacity: orbit.Resources{orbit.CPU: 8 * cores},
		Labels: map[string]string{zone: s.zone, rack: s.rack}}
}

// join lets all nodes of a rack join.
func (w *world) join(s site) {
	var do []orbit.Commitment
	for i := range w.perRack {
		do = append(do, orbit.PutNode{Node: s.node(i)})
	}
	w.propose(do...)
}

// submit submits more replicas of each set; a random navigator owns each replica.
func (w *world) submit(more func(*set) int) {
	for _, s := range w.sets {
		for range more(s) {
			id := orbit.CapsuleID(fmt.Sprintf("%s-%d", s.name, s.submitted))
			w.propose(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s.spec, Owner: fmt.Sprint("navigator-", w.rng.IntN(navigators))})
			s.submitted++
		}
	}
}

// act lets all navigators plan at the same time, while beside runs, until beside has returned and no navigator has
// placed anything in three rounds.
func (w *world) act(beside func()) {
	var over atomic.Bool
	var other, all sync.WaitGroup
	other.Go(func() {
		defer over.Store(true)
		beside()
	})
	for quiet := 0; quiet < 3; quiet++ {
		if !over.Load() {
			quiet = 0
		}
		before := w.committed.Load()
		for _, e := range w.engines {
			all.Go(func() { w.pass(e) })
		}
		all.Wait()
		if w.committed.Load() > before {
			quiet = 0
		}
	}
	other.Wait()
}

// pass lets an engine plan once.
func (w *world) pass(e *orbit.Engine) {
	round := e.Pass(context.Background())
	if len(round.Errors) > 0 {
		log.Fatal(errors.Join(round.Errors...))
	}
	w.committed.Add(int64(round.Committed))
	w.conflicts.Add(int64(round.Conflicts))
}

// fail lets a zone fail, one rack after the other, while the navigators work: its nodes are lost, and their capsules
// wait again.
func (w *world) fail(name string) {
	for i := range racks {
		if s := rackOf(i); s.zone == name {
			w.failRack(s)
		}
	}
}

// failRack declares all nodes of a rack lost. If a navigator places a capsule there meanwhile, failRack tries again.
func (w *world) failRack(s site) {
	for {
		state := w.state()
		var do []orbit.Commitment
		released := 0
		for i := range w.perRack {
			n := state.Node(s.node(i).ID).Node.Clone()
			if n.State != orbit.Lost {
				n.State = orbit.Lost
				do = append(do, orbit.PutNode{Node: n})
			}
			for c := range state.On(n.ID) {
				do = append(do, orbit.Release{Capsule: c.ID, From: n.ID})
				released++
			}
		}
		if len(do) == 0 {
			return
		}
		_, err := w.ledger.Propose(context.Background(), orbit.Proposal{View: state.Revision(), Do: do})
		switch {
		case err == nil:
			w.lost += released
		case !errors.Is(err, orbit.ErrConflict):
			log.Fatal(err)
		}
	}
}

// comeBack lets the lost nodes of a zone leave, and join again as they were before.
func (w *world) comeBack(name string) {
	for i := range racks {
		s := rackOf(i)
		if s.zone != name {
			continue
		}
		var do []orbit.Commitment
		for i := range w.perRack {
			do = append(do, orbit.RemoveNode{Node: s.node(i).ID}, orbit.PutNode{Node: s.node(i)})
		}
		w.propose(do...)
	}
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
