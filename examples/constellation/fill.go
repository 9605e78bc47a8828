package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

// work is what was submitted. The capsules themselves are in the ledger, and nowhere else.
type work struct {
	classes   []sim.Class // with the ledger's own specs
	submitted int
	took      time.Duration
}

// Most capsules or nodes in one proposal, if the ledger has no lower limit.
const batch = 10_000

// fill lets the nodes join and submits all capsules.
func fill(ctx context.Context, ledger orbit.Ledger, o options) (work, error) {
	most := min(batch, ledger.Limits().Commitments, ledger.Limits().Capsules)
	for nodes := range slices.Chunk(sim.Constellation(sim.Fleet{Seed: o.seed, Nodes: o.nodes}), most) {
		var p orbit.Proposal
		for i := range nodes {
			p.Do = append(p.Do, orbit.PutNode{Node: nodes[i]})
		}
		if _, err := ledger.Propose(context.WithoutCancel(ctx), p); err != nil {
			return work{}, err
		}
	}
	classes := sim.Workload(sim.Mix{Seed: o.seed, Capsules: o.capsules, Classes: o.classes})
	capsules := sim.Expand(classes)
	if o.order == "shuffled" {
		sim.Shuffle(capsules, o.seed)
	}
	s := submitter{ledger: ledger, own: map[*orbit.Spec]*orbit.Spec{}}
	start := time.Now()
	for some := range slices.Chunk(capsules, most) {
		if ctx.Err() != nil {
			return work{}, errors.New("interrupted before all was submitted; nothing is placed")
		}
		if err := s.submit(context.WithoutCancel(ctx), some); err != nil {
			return work{}, err
		}
	}
	w := work{submitted: len(capsules), took: time.Since(start)}
	for _, c := range classes {
		w.classes = append(w.classes, sim.Class{Spec: s.own[c.Spec], Count: c.Count})
	}
	return w, nil
}

// submitter submits capsules. It uses the ledger's own copy of a spec as soon as there is one, which the
// ledger need not compare with those that it knows.
type submitter struct {
	ledger orbit.Ledger
	own    map[*orbit.Spec]*orbit.Spec
}

// submit is one proposal: a Submit for each run of capsules alike.
func (s *submitter) submit(ctx context.Context, capsules []sim.Capsule) error {
	var p orbit.Proposal
	first := map[*orbit.Spec]orbit.CapsuleID{} // of specs that the ledger has not seen
	for len(capsules) > 0 {
		spec := capsules[0].Spec
		var ids []orbit.CapsuleID
		for len(capsules) > 0 && capsules[0].Spec == spec {
			ids = append(ids, capsules[0].ID)
			capsules = capsules[1:]
		}
		submit := orbit.Submit{IDs: ids, Spec: spec}
		if own := s.own[spec]; own != nil {
			submit.Spec = own
		} else {
			first[spec] = ids[0]
		}
		p.Do = append(p.Do, submit)
	}
	if _, err := s.ledger.Propose(ctx, p); err != nil {
		return err
	}
	if len(first) == 0 {
		return nil
	}
	state, err := s.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	for spec, id := range first {
		s.own[spec] = state.Capsule(id).Spec
	}
	return nil
}
