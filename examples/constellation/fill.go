package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

// batch is the most capsules or nodes in one proposal, if the ledger has no lower limit.
const batch = 10_000

// fill adds the nodes and submits all capsules. It returns the classes, and how long the submission took.
func fill(ctx context.Context, ledger orbit.Ledger, o options) ([]sim.Class, time.Duration, error) {
	most := min(batch, ledger.Limits().Commitments, ledger.Limits().Capsules)
	for nodes := range slices.Chunk(sim.Constellation(sim.Fleet{Seed: o.seed, Nodes: o.nodes}), most) {
		var p orbit.Proposal
		for i := range nodes {
			p.Do = append(p.Do, orbit.PutNode{Node: nodes[i]})
		}
		if _, err := ledger.Propose(context.WithoutCancel(ctx), p); err != nil {
			return nil, 0, err
		}
	}
	classes := sim.Workload(sim.Mix{Seed: o.seed, Capsules: o.capsules, Classes: o.classes})
	capsules := sim.Expand(classes)
	if o.order == "shuffled" {
		sim.Shuffle(capsules, o.seed)
	}
	start := time.Now()
	for some := range slices.Chunk(capsules, most) {
		if ctx.Err() != nil {
			return nil, 0, errors.New("interrupted before all was submitted; nothing is placed")
		}
		if _, err := ledger.Propose(context.WithoutCancel(ctx), submission(some)); err != nil {
			return nil, 0, err
		}
	}
	return classes, time.Since(start), nil
}

// submission returns a proposal with one Submit for each run of capsules of the same class.
func submission(capsules []sim.Capsule) (p orbit.Proposal) {
	for len(capsules) > 0 {
		submit := orbit.Submit{Spec: capsules[0].Spec}
		for len(capsules) > 0 && capsules[0].Spec == submit.Spec {
			submit.IDs = append(submit.IDs, capsules[0].ID)
			capsules = capsules[1:]
		}
		p.Do = append(p.Do, submit)
	}
	return p
}
