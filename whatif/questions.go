package whatif

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// Loss is what becomes of a constellation that loses one domain.
type Loss struct {
	// Domain is the value of the label, such as the name of a rack.
	Domain string
	// Nodes is how many nodes are lost with it.
	Nodes int
	// Homeless are the capsules that were placed in the domain and find no room elsewhere, in order of their ids.
	Homeless []orbit.CapsuleID
	// Report is what happens then.
	Report *Report
}

// Without loses each domain of a label in turn, all else being as it is in the state: its nodes are lost, what was on them returns to
// pending, and the engines of the trial place it again. With the label of racks it answers whether the work survives the loss of any one
// rack: it does if no loss leaves a capsule homeless. Losses come in order of their domains. Errors are those of Plan.
func (t *Trial) Without(ctx context.Context, state *orbit.State, level string) ([]Loss, error) {
	if state == nil {
		return nil, errors.New("whatif: state is nil; pass the snapshot of a ledger")
	}
	domains := map[string][]*orbit.NodeState{}
	for n := range state.Nodes() {
		if domain, ok := n.Node.Labels[level]; ok {
			domains[domain] = append(domains[domain], n)
		}
	}
	if len(domains) == 0 {
		return nil, fmt.Errorf("whatif: no node has the label %q; name the label of the domains that are to be lost", level)
	}
	var out []Loss
	for _, domain := range slices.Sorted(maps.Keys(domains)) {
		loss, err := t.lose(ctx, state, domains[domain])
		if err != nil {
			return out, fmt.Errorf("whatif: without %s %q: %w", level, domain, err)
		}
		loss.Domain = domain
		out = append(out, loss)
	}
	return out, nil
}

// lose loses nodes.
func (t *Trial) lose(ctx context.Context, state *orbit.State, nodes []*orbit.NodeState) (loss Loss, err error) {
	var do, release []orbit.Commitment
	var placed []orbit.CapsuleID
	for _, n := range nodes {
		if n.Node.State != orbit.Lost {
			lost := *n.Node
			lost.State = orbit.Lost
			do = append(do, orbit.PutNode{Node: lost})
		}
		for c := range state.On(n.Node.ID) {
			placed = append(placed, c.ID)
			release = append(release, orbit.Release{Capsule: c.ID, From: n.Node.ID})
		}
	}
	loss.Nodes = len(nodes)
	if loss.Report, err = t.Plan(ctx, state, append(do, release...)...); err != nil {
		return loss, err
	}
	slices.Sort(placed)
	for _, id := range placed {
		if c := loss.Report.After.Capsule(id); c != nil && c.Pending() {
			loss.Homeless = append(loss.Homeless, id)
		}
	}
	return loss, nil
}

// HowMany returns how many more capsules of the spec fit beside everything that is placed and held, but at most so many, and why
// not one more; the reason is nil if most is reached. It places one after the other on the node with the least room that takes it. The
// spec must be one that a ledger takes.
func HowMany(ctx context.Context, state *orbit.State, spec *orbit.Spec, most int) (n int, why error, err error) {
	draft, spec, err := draftOf(ctx, state, spec)
	if err != nil {
		return 0, nil, err
	}
	engine := &place.Indexed{Score: score.MostAllocated{}}
	for n < most {
		if err := ctx.Err(); err != nil {
			return n, nil, err
		}
		choice, err := engine.Best(draft, spec)
		if err != nil {
			return n, err, nil
		}
		if err := draft.Reserve(spec, choice); err != nil {
			return n, nil, err
		}
		n++
	}
	return n, nil, nil
}

// draftOf returns a draft of a state, and the shared copy of a spec.
func draftOf(ctx context.Context, state *orbit.State, spec *orbit.Spec) (*orbit.Draft, *orbit.Spec, error) {
	shared, err := shareOf(state, spec)
	if err != nil {
		return nil, nil, err
	}
	draft, err := draftAt(ctx, state)
	return draft, shared, err
}

// draftAt returns a draft of a state.
func draftAt(ctx context.Context, state *orbit.State) (*orbit.Draft, error) {
	view := &orbit.View{}
	if err := view.Refresh(ctx, &orbit.MemoryLedger{Start: state}, nil, time.Now()); err != nil {
		return nil, err
	}
	draft := &orbit.Draft{}
	draft.Sync(view)
	return draft, nil
}

// shareOf returns the shared copy of a spec that something is asked about.
func shareOf(state *orbit.State, spec *orbit.Spec) (*orbit.Spec, error) {
	switch {
	case state == nil:
		return nil, errors.New("whatif: state is nil; pass the snapshot of a ledger")
	case spec == nil:
		return nil, errors.New("whatif: spec is nil; pass the spec of a capsule")
	}
	return spec.Share()
}
