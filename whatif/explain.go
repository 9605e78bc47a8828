package whatif

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// Explanation says why a spec fits where it does, and nowhere else. Read it, never write it.
type Explanation struct {
	// Spec is the spec that was asked for: the one copy that all equal specs share.
	Spec *orbit.Spec
	// Nodes counts all nodes, and Fits those that take a capsule of the spec.
	Nodes, Fits int
	// Why counts the other nodes by everything that is in the way there, the fewest reasons first, then most nodes first. Its counts
	// add up to Nodes less Fits.
	Why []Why
	// Fixes are changes after each of which a capsule of the spec fits, the smallest first; none if Fits is not 0, or nothing helps.
	Fixes []Fix
}

// Why is a set of reasons, and the nodes that they all apply to, and no other reason.
type Why struct {
	// Reasons are all reasons.
	Reasons []Reason
	// Nodes counts the nodes.
	Nodes int
	// Example is the one of the nodes that lacks least.
	Example orbit.NodeID
}

// found is what is known of the nodes with one set of reasons.
type found struct {
	set   reasonSet
	count int
	// The one that lacks least.
	best *orbit.NodeState
	lack float64
}

// Explain looks at each node and says why a capsule of the spec fits or does not fit there as things are. It asks the ledger's rules
// and the company that the spec wants ([orbit.Near]), not filters, reports or scores of a navigator. If no node takes the
// capsule it looks for changes that would help ([Fix]).
//
// The counts cost a look at each node; the fixes cost more where evictions are looked for. Errors are those of [orbit.Spec.Share].
func Explain(ctx context.Context, state *orbit.State, spec *orbit.Spec) (*Explanation, error) {
	a, err := newAsker(state, spec)
	if err != nil {
		return nil, err
	}
	e, sets := a.count()
	if e.Fits == 0 {
		e.Fixes = a.fixes(sets)
	}
	return e, ctx.Err()
}

// Count is Explain without the fixes.
func Count(ctx context.Context, state *orbit.State, spec *orbit.Spec) (*Explanation, error) {
	a, err := newAsker(state, spec)
	if err != nil {
		return nil, err
	}
	e, _ := a.count()
	return e, ctx.Err()
}

func newAsker(state *orbit.State, spec *orbit.Spec) (*asker, error) {
	spec, err := shareOf(state, spec)
	if err != nil {
		return nil, err
	}
	return &asker{state: state, spec: spec, near: nearDomains(state, spec.Near), closes: closesOf(state, spec)}, nil
}

// nearDomains returns the domains in which a spec finds the company that it asks for, as [orbit.Draft.NearDomains] does of a draft without
// a plan; a draft would cost a look at each node and each capsule first.
func nearDomains(state *orbit.State, near orbit.Near) map[string]bool {
	if near.Group == "" {
		return nil
	}
	domains, limit := map[string]bool{}, state.Limits().IDBytes
	for n, members := range state.GroupNodes(near.Group) {
		if domain := n.Node.Labels[near.Level]; domain != "" && len(domain) <= limit && members > 0 {
			domains[domain] = true
		}
	}
	return domains
}

// count looks at each node.
func (a *asker) count() (*Explanation, []*found) {
	e := &Explanation{Spec: a.spec}
	bySet := map[reasonSet]*found{}
	var sets []*found
	for n := range a.state.Nodes() {
		e.Nodes++
		r := roomOf(n)
		set := a.of(n, &r)
		if set == (reasonSet{}) {
			e.Fits++
			continue
		}
		f := bySet[set]
		if f == nil {
			f = &found{set: set}
			bySet[set] = f
			sets = append(sets, f)
		}
		f.count++
		if lack := a.lack(&r); f.best == nil || lack < f.lack {
			f.best, f.lack = n, lack
		}
	}
	slices.SortStableFunc(sets, func(x, y *found) int {
		return cmp.Or(cmp.Compare(x.set.len(), y.set.len()), cmp.Compare(y.count, x.count), cmp.Compare(x.best.Node.ID, y.best.Node.ID))
	})
	for _, f := range sets {
		e.Why = append(e.Why, Why{Reasons: a.list(&f.set), Nodes: f.count, Example: f.best.Node.ID})
	}
	return e, sets
}

// lack is how much a node lacks of what is asked for: the sum of the parts of each dimension, and of the devices.
func (a *asker) lack(r *room) (sum float64) {
	for d, want := range a.spec.Envelope.Reservation {
		if want > 0 && want > r.free[d] {
			sum += float64(want-r.free[d]) / float64(want)
		}
	}
	for _, x := range a.spec.Extras {
		sum += float64(max(0, x.Amount-a.extraFree(r, x.Name))) / float64(x.Amount)
	}
	if ask := &a.spec.Devices; ask.Count > 0 {
		sum += float64(max(0, ask.Count-r.instances(ask.Milli))) / float64(ask.Count)
	}
	return sum
}

// String prints the explanation for an operator.
func (e *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d nodes fit", e.Fits, e.Nodes)
	list(&b, e.Why, func(w Why) string {
		texts := make([]string, len(w.Reasons))
		for i, r := range w.Reasons {
			texts[i] = r.Text
		}
		return fmt.Sprintf("%6d: %s, as %s", w.Nodes, strings.Join(texts, "; "), w.Example)
	})
	if len(e.Fixes) > 0 {
		b.WriteString("\nit would fit if you")
		list(&b, e.Fixes, func(f Fix) string { return "* " + f.String() })
	}
	return b.String()
}
