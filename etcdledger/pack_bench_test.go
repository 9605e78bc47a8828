package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/orbitsched/orbit"
)

// BenchmarkPack judges, packs and encodes placements on distinct nodes; it does not send the transactions.
func BenchmarkPack(b *testing.B) {
	const nodes = 4096
	var l orbit.MemoryLedger
	world := orbit.Proposal{}
	ids := make([]orbit.CapsuleID, nodes)
	for i := range nodes {
		world.Do = append(world.Do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("node-", i)), Capacity: orbit.Resources{orbit.CPU: 1000}}})
		ids[i] = orbit.CapsuleID(fmt.Sprint("capsule-", i))
	}
	world.Do = append(world.Do, orbit.Submit{IDs: ids, Spec: &orbit.Spec{Module: "web", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}})
	if _, err := l.Propose(context.Background(), world); err != nil {
		b.Fatal(err)
	}
	state, err := l.Snapshot(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	limits, k := packLimits{defaultMaxOps, defaultMaxBytes}, keys{"orbit/"}
	full, next := newPack(k, state, 1, limits), 0
	for b.Loop() {
		i := next % nodes
		p := orbit.Proposal{ID: orbit.NewProposalID(), View: state.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: ids[i], Node: orbit.NodeID(fmt.Sprint("node-", i))}}}
		err := full.judgeAndAdd(&p)
		if errors.Is(err, errFull) {
			if _, _, _, err := full.transaction("me", 1); err != nil {
				b.Fatal(err)
			}
			full = newPack(k, state, 1, limits)
			err = full.judgeAndAdd(&p)
		}
		if err != nil {
			b.Fatal(err)
		}
		next++
	}
	b.ReportMetric(float64(next)/b.Elapsed().Seconds(), "placements/s")
}

// judgeAndAdd adds a proposal that holds on the pack's state, as a round does.
func (b *pack) judgeAndAdd(p *orbit.Proposal) error {
	reading, writing, touched, err := b.state.Footprint(*p)
	if err != nil {
		return err
	}
	return b.add(p, touched, accessSetOf(&reading, &writing))
}
