package whatif

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// Loss is the result of losing one topology domain.
type Loss struct {
	// Domain is the value of the label, such as the name of a rack.
	Domain string
	// Nodes is the number of nodes in the domain.
	Nodes int
	// Homeless are the capsules that were placed in the domain and are pending at the end of the trial, sorted by id.
	Homeless []orbit.CapsuleID
	// Report is the report of the trial.
	Report *Report
}

// Without tries, for each domain of a label, what happens if that domain alone is lost: its nodes become Lost, their
// capsules return to pending, and the engines of the trial place them again. With the label of racks it tells whether
// the work survives the loss of any one rack: it does if no Loss has a homeless capsule. The losses are sorted by
// domain. Errors are those of Plan.
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

// lose runs the trial for the loss of some nodes.
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

// HowMany returns how many more capsules of the spec fit besides everything that is placed and held, at most most of
// them, and why one more does not fit; the reason is nil if most is reached. It places one capsule after the other,
// each on the node with the least free capacity that takes it. The spec must be one that a ledger accepts.
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
	view, err := viewOf(ctx, state)
	if err != nil {
		return nil, err
	}
	draft := &orbit.Draft{}
	draft.Sync(view)
	return draft, nil
}

// indexOf returns an index of a state, to search for the seats of gangs.
func indexOf(ctx context.Context, state *orbit.State) (*seats.Index, error) {
	view, err := viewOf(ctx, state)
	if err != nil {
		return nil, err
	}
	index := &seats.Index{}
	index.Sync(view)
	return index, nil
}

// viewOf returns a view of a state.
func viewOf(ctx context.Context, state *orbit.State) (*orbit.View, error) {
	view := &orbit.View{}
	return view, view.Refresh(ctx, &orbit.MemoryLedger{Start: state}, nil, time.Now())
}

// shareOf returns the shared copy of a spec, or an error if the state or the spec is nil or the spec is invalid.
func shareOf(state *orbit.State, spec *orbit.Spec) (*orbit.Spec, error) {
	switch {
	case state == nil:
		return nil, errors.New("whatif: state is nil; pass the snapshot of a ledger")
	case spec == nil:
		return nil, errors.New("whatif: spec is nil; pass the spec of a capsule")
	}
	return spec.Share()
}
