// Roadef: moves on the instances of the ROADEF/EURO challenge 2012, in which processes of services move between machines until
// the challenge's cost is low. Nothing in this library was tuned to them. The search is the plainest one: the best move of
// one process, or of two that change places, until none lowers the cost. The ledger judges every step: what machines have
// beside what transient moves still take on their first machine, and that no two processes of a service share one.
//
//	go run ./examples/defrag/roadef -model model_a1_1.txt -assignment assignment_a1_1.txt -best 44306501
//
// Spread over locations and dependencies between services are judged by this program, because no rule of a spec says them.
// The instances are not part of this project: roadef.org/challenge/2012 has them, with up to 8 resources they can be used here.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string // the program prints its first paragraph first

type options struct {
	model, assignment string
	moves             int
	best              int64
}

func main() { program.Main("roadef", parse, run) }

// parse reads the flags, and writes what is wrong with them to w.
func parse(args []string, w io.Writer) (o options, err error) {
	f := program.Flags("roadef", "Roadef lowers the cost of an instance of the ROADEF/EURO challenge 2012 by moves.", w)
	f.StringVar(&o.model, "model", "", "the instance's model")
	f.StringVar(&o.assignment, "assignment", "", "its first assignment")
	f.IntVar(&o.moves, "moves", 1000, "moves of processes at most")
	f.Int64Var(&o.best, "best", 0, "the best published cost, or a lower bound")
	err = program.Parse(f, args, func() error {
		if o.model == "" || o.assignment == "" || o.moves < 0 || o.best < 0 {
			return errors.New("-model and -assignment are needed, and -moves and -best must not be negative")
		}
		return nil
	})
	return o, err
}

func run(ctx context.Context, o options, out io.Writer) error {
	model, err := os.Open(o.model)
	if err != nil {
		return err
	}
	defer func() { _ = model.Close() }() // only read from
	assignment, err := os.Open(o.assignment)
	if err != nil {
		return err
	}
	defer func() { _ = assignment.Close() }() // only read from
	in, err := read(model, assignment)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n%d processes of %d services on %d machines\n", program.Opening(source), len(in.processes), len(in.services), len(in.machines))
	s, moves, err := in.lower(ctx, o.moves)
	if err != nil {
		return err
	}
	before, after := in.begin().cost(), s.cost()
	fmt.Fprintf(out, "moves %d, cost: before %d, after %d", moves, before, after)
	if o.best > 0 {
		fmt.Fprintf(out, ", %.2f%% above %d (before: %.2f%%)", 100*float64(after-o.best)/float64(o.best), o.best, 100*float64(before-o.best)/float64(o.best))
	}
	fmt.Fprintln(out)
	return nil
}

// lower makes steps while one lowers the cost, and as long as moves last. The ledger judges each.
func (in *instance) lower(ctx context.Context, most int) (s *solution, moves int, err error) {
	l := &orbit.MemoryLedger{}
	if err := in.enter(ctx, l); err != nil {
		return nil, 0, err
	}
	for s = in.begin(); ctx.Err() == nil; {
		st, found := s.best()
		cost := 1
		if st.q >= 0 {
			cost = 2
		}
		if !found || moves+cost > most {
			return s, moves, nil
		}
		back := s.do(st)
		moved := map[int]int{st.p: back.to}
		if st.q >= 0 {
			moved[st.q] = st.to
		}
		if err := s.commit(ctx, l, moved); err != nil {
			return nil, moves, err
		}
		moves += cost
	}
	return s, moves, ctx.Err()
}

func nodeOf(m int) orbit.NodeID       { return orbit.NodeID(fmt.Sprint("machine-", m)) }
func capsuleOf(p int) orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprint("process-", p)) }
func holdOf(p int) orbit.HoldID       { return orbit.HoldID(fmt.Sprint("transient-", p)) }

// enter writes the instance into a ledger.
func (in *instance) enter(ctx context.Context, l orbit.Ledger) error {
	if len(in.resources) > orbit.Dimensions {
		return fmt.Errorf("%w: it has %d resources, and a node has at most %d", errInstance, len(in.resources), orbit.Dimensions)
	}
	for m := range in.machines {
		n := orbit.Node{ID: nodeOf(m)}
		copy(n.Capacity[:], in.machines[m].hard)
		if err := propose(ctx, l, orbit.PutNode{Node: n}); err != nil {
			return err
		}
	}
	for p := range in.processes {
		group := fmt.Sprint("service-", in.processes[p].service)
		spec := &orbit.Spec{Group: group, Movable: true, Apart: []orbit.Apart{{Group: group, Level: orbit.NodeKey}}}
		copy(spec.Envelope.Reservation[:], in.processes[p].needs)
		if err := propose(ctx, l, orbit.Submit{IDs: []orbit.CapsuleID{capsuleOf(p)}, Spec: spec},
			orbit.Place{Capsule: capsuleOf(p), Node: nodeOf(in.first[p])}); err != nil {
			return err
		}
	}
	return nil
}

// commit moves processes to where the solution has them, from these machines. A process that is not on its first machine holds
// there what it takes of transient resources.
func (s *solution) commit(ctx context.Context, l *orbit.MemoryLedger, from map[int]int) error {
	state, err := l.Snapshot(ctx)
	if err != nil {
		return err
	}
	var leave, come []orbit.Commitment
	for p, m := range from {
		leave = append(leave, orbit.Evict{Capsule: capsuleOf(p), From: nodeOf(m), Since: state.Capsule(capsuleOf(p)).PlacedAt})
		if m != s.first[p] && s.at[p] == s.first[p] && s.transient(p) != (orbit.Resources{}) {
			leave = append(leave, orbit.Release{Hold: holdOf(p)})
		}
	}
	for p, m := range from {
		come = append(come, orbit.Place{Capsule: capsuleOf(p), Node: nodeOf(s.at[p])})
		if held := s.transient(p); m == s.first[p] && held != (orbit.Resources{}) {
			come = append(come, orbit.Hold{ID: holdOf(p), Node: nodeOf(m), Room: held, Ends: time.Now().Add(time.Hour)})
		}
	}
	return propose(ctx, l, append(leave, come...)...)
}

// transient returns what a process that has moved still takes on its first machine.
func (in *instance) transient(p int) (held orbit.Resources) {
	for r, x := range in.processes[p].needs {
		if in.resources[r].transient {
			held[r] = x
		}
	}
	return held
}

func propose(ctx context.Context, l orbit.Ledger, do ...orbit.Commitment) error {
	_, err := l.Propose(ctx, orbit.Proposal{Do: do})
	return err
}
