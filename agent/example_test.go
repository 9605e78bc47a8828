package agent_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/telemetry"
	"github.com/orbitsched/orbit/watch"
)

// printer is a runtime that prints what a real one would do.
type printer struct {
	mu    sync.Mutex
	list  map[agent.Instance]agent.Phase
	ended chan struct{}
}

func (p *printer) set(i agent.Instance, to agent.Phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list[i] = to
}

func (p *printer) Start(_ context.Context, task agent.Task) error {
	fmt.Println("start", task.Capsule)
	p.set(task.Instance, agent.Ready)
	return nil
}

func (p *printer) Stop(_ context.Context, i agent.Instance) error {
	fmt.Println("stop", i.Capsule)
	p.set(i, agent.Failed)
	return nil
}

func (p *printer) Forget(_ context.Context, i agent.Instance) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.list, i)
	close(p.ended)
	return nil
}

func (p *printer) List(context.Context) (out []agent.Status, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, phase := range p.list {
		out = append(out, agent.Status{Instance: i, Phase: phase})
	}
	return out, nil
}

// One process has the ledger and serves agents; here the agent is in the same one, and needs no Client.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	ledger := &orbit.MemoryLedger{}
	members := &lease.Members{Leases: &lease.Keeper{Ledger: ledger}}
	control := &agent.Local{
		Ledger: ledger, Members: members,
		Board: &telemetry.Board{Leases: members.Leases}, Index: &watch.Index{Ledger: ledger},
	}
	engine := &orbit.Engine{Name: "services", Ledger: ledger, Navigator: &nav.Services{}, Telemetry: control.Board}
	runtime := &printer{list: map[agent.Instance]agent.Phase{}, ended: make(chan struct{})}
	node := &agent.Agent{
		Control: control, Runtime: runtime, Node: orbit.Node{ID: "node-a", Capacity: orbit.Resources{orbit.CPU: 4_000}},
		Unguarded: true, // what the printer runs ends with this process
	}
	for _, run := range []func(context.Context) error{members.Run, control.Index.Run, engine.Run, node.Run} {
		group.Go(func() { _ = run(ctx) })
	}

	if _, err := ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
		orbit.Submit{IDs: []orbit.CapsuleID{"web"}, Spec: &orbit.Spec{Module: "web"}},
	}}); err != nil {
		fmt.Println(err)
	}
	for rev := orbit.Revision(0); ; { // until the ledger knows that it serves
		state, _ := ledger.Snapshot(ctx)
		if c := state.Capsule("web"); c.Ready {
			break
		}
		rev, _ = control.Index.Module(ctx, "web", max(rev, state.Revision()))
	}
	if _, err := ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: "web", Final: true}}}); err != nil {
		fmt.Println(err)
	}
	<-runtime.ended
	// Output:
	// start web
	// stop web
}
