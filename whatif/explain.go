package whatif

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Explanation says on how many nodes a spec fits, and why it does not fit on the others. It is read-only.
type Explanation struct {
	// Spec is the spec that was asked for: the one copy that all equal specs share.
	Spec *orbit.Spec
	// Nodes counts all nodes, and Fits those that take a capsule of the spec.
	Nodes, Fits int
	// TooLarge says that no node would take a capsule of the spec even if it were empty, and what the largest node has
	// ([orbit.State.TooLarge]). Empty: a node would, or no node suits the spec.
	TooLarge string
	// Idle says which domains take no work and count for the rules Even of the spec all the same
	// ([orbit.State.IdleDomains]). Empty: none do.
	Idle string
	// Lacks says which quota the queue of the spec has too little of for one more capsule, at which queue of the tree, and which
	// queues borrow it: then no node takes the capsule, although Fits counts the nodes that have room. Of devices only quota of a model
	// is known that the spec names alone. Empty: the quotas admit it, or the spec names no queue that there is.
	Lacks []string
	// Raise is the queue of the spec with as much more Nominal as is missing: with PutQueue of it the quotas admit one more capsule,
	// and with less they do not. Nil: nothing is missing, or so much fits in no queue.
	Raise *orbit.Queue
	// Kept says which capsules of lower priority would have to be evicted for one of the spec, and which disruption budget forbids
	// it. Empty: no evictions make room, or none that a budget forbids are needed.
	Kept string
	// Why groups the other nodes by the full set of reasons against them. Groups with the fewest reasons come first,
	// and among these the groups with the most nodes. The counts add up to Nodes less Fits.
	Why []Why
	// Failing lists the nodes that fit and on which most starts have failed within the five minutes before the call, those
	// with the most failures first, at most 8: `node "x": 14 of 15 starts failed`. Planners use such a node only if no
	// other fits ([orbit.State.Starts]).
	Failing []string
	// Fixes are alternative changes; after each single one a capsule of the spec fits. Those that leave the request and
	// the nodes as they are come first: something to wait for, then evictions, then moves. Changes of the request and uncordoned
	// nodes follow, the fewest changes first, and of equally many those that give up the smallest part of the request. A
	// node to add comes last. Empty if Fits is not 0, or if no change helps.
	Fixes []Fix

	// raises says what Raise changes.
	raises string
}

// Why is a set of reasons, and the nodes to which exactly these reasons apply.
type Why struct {
	// Reasons are all reasons against these nodes.
	Reasons []Reason
	// Nodes is the number of nodes.
	Nodes int
	// Example is the node of the group that lacks the least.
	Example orbit.NodeID
}

// found is the group of nodes with one set of reasons.
type found struct {
	set   reasonSet
	count int
	// best is the node that lacks the least, lack how much it lacks.
	best *orbit.NodeState
	lack float64
}

// Explain says of each node why a capsule of the spec fits or does not fit there in this state. It applies the ledger's
// rules and the spec's co-locations ([orbit.Near]), but no filters, reports or scores of a navigator. If no node takes
// the capsule, it searches for changes that would help ([Fix]).
//
// The counts visit each node once. The search for fixes costs more if evictions or moves may help. Errors are those of
// [orbit.Spec.Share].
func Explain(ctx context.Context, state *orbit.State, spec *orbit.Spec) (*Explanation, error) {
	a, err := newAsker(state, spec)
	if err != nil {
		return nil, err
	}
	e, sets := a.count()
	if e.Fits == 0 {
		e.Fixes = a.fixes(sets)
		e.Kept = a.kept(e.Fixes)
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
	return askerOf(state, spec), nil
}

// count visits each node and groups the nodes by their reasons.
func (a *asker) count() (*Explanation, []*found) {
	e := &Explanation{Spec: a.spec}
	bySet := map[reasonSet]*found{}
	var sets []*found
	var failing failingNodes
	starts := startsOf(a.state)
	for n := range a.state.Nodes() {
		e.Nodes++
		r := roomOf(n)
		set := a.of(n, &r)
		if set == (reasonSet{}) {
			e.Fits++
			failing.add(n, starts)
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
	if e.Fits == 0 {
		e.TooLarge, e.Idle = a.state.TooLarge(a.spec), a.state.IdleDomains(a.spec, 1)
	}
	a.failing, e.Failing = failing, failing.texts()
	lacks, raise, says := lacking(a.state, asked{a.spec, 1})
	if e.Lacks, e.raises = lacks, strings.Join(says, ""); len(raise) > 0 {
		e.Raise = &raise[0]
	}
	return e, sets
}

// asked is a number of capsules of a spec that come together with others.
type asked struct {
	spec *orbit.Spec
	n    int
}

// lacking says which quota is missing for capsules that come together, returns their queues with so much that none is, and says in
// words what is raised. No queues: nothing is missing, or so much fits in none.
func lacking(state *orbit.State, all ...asked) (lacks []string, raise []orbit.Queue, says []string) {
	was := state
	var quotas orbit.Quotas
	quotas.Begin(state)
	for i, a := range all {
		model := a.spec.Devices.Model()
		if why := quotas.Why(a.spec, model, a.n); len(why) > 0 {
			lacks = append(lacks, why...)
			of, _ := state.Queue(a.spec.Queue)
			to, fits := raised(&of.Queue, quotas.Short(a.spec, model, a.n))
			next, err := state.With(orbit.Proposal{View: state.Revision(), Do: []orbit.Commitment{orbit.PutQueue{Queue: to}}})
			if !fits || err != nil {
				return lacks, nil, nil
			}
			state = next
			raise = append(slices.DeleteFunc(raise, func(q orbit.Queue) bool { return q.ID == to.ID }), to)
			quotas.Begin(state)
			for _, before := range all[:i] {
				quotas.Charge(before.spec, before.spec.Devices.Model(), before.n)
			}
		}
		quotas.Charge(a.spec, model, a.n)
	}
	for i := range raise {
		of, _ := was.Queue(raise[i].ID)
		says = append(says, raiseText(&of.Queue, &raise[i]))
	}
	return lacks, raise, says
}

// raised returns a queue with so much more Nominal; false: some of that does not fit in 64 bits.
func raised(q *orbit.Queue, by map[string]int64) (to orbit.Queue, fits bool) {
	to = *q
	to.Nominal, to.Borrow, to.Lend = map[string]int64{}, maps.Clone(q.Borrow), maps.Clone(q.Lend)
	maps.Copy(to.Nominal, q.Nominal)
	for name, missing := range by {
		if missing > math.MaxInt64-to.Nominal[name] {
			return to, false
		}
		to.Nominal[name] += missing
	}
	return to, true
}

// raiseText says which amounts of a queue are raised.
func raiseText(q, to *orbit.Queue) string {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(to.Nominal)) {
		if to.Nominal[name] != q.Nominal[name] {
			text = append(text, fmt.Sprintf("%s from %d to %d", name, q.Nominal[name], to.Nominal[name]))
		}
	}
	return fmt.Sprintf("it would be enough to raise the quota of queue %q: %s", to.ID, strings.Join(text, ", "))
}

// failingNodes are nodes on which most starts have failed lately.
type failingNodes []failingNode

type failingNode struct {
	id     orbit.NodeID
	starts orbit.NodeStarts
}

// mostFailing is how many failing nodes an explanation lists.
const mostFailing = 8

// startsOf returns the starts on the nodes on which some have failed lately.
func startsOf(state *orbit.State) map[*orbit.NodeState]orbit.NodeStarts {
	return maps.Collect(state.Starts(time.Now()))
}

// add adds the node if most starts there have failed.
func (f *failingNodes) add(n *orbit.NodeState, of map[*orbit.NodeState]orbit.NodeStarts) {
	if starts, failed := of[n]; failed && 2*starts.Failed > starts.Of {
		*f = append(*f, failingNode{n.Node.ID, starts})
	}
}

// listFailing prints failing nodes as a list.
func listFailing(b *strings.Builder, texts []string) {
	if len(texts) > 0 {
		b.WriteString("\nused only if nothing else fits")
		list(b, texts, func(text string) string { return "* " + text })
	}
}

// texts returns the nodes with the most failures as texts.
func (f failingNodes) texts() (out []string) {
	slices.SortFunc(f, func(a, b failingNode) int {
		return cmp.Or(cmp.Compare(b.starts.Failed, a.starts.Failed), cmp.Compare(a.id, b.id))
	})
	for _, n := range f[:min(len(f), mostFailing)] {
		out = append(out, fmt.Sprintf("node %q: %d of %d starts failed", n.id, n.starts.Failed, n.starts.Of))
	}
	return out
}

// lack returns how much a node lacks of the request: the sum of the missing fractions of each dimension, each extra and
// the devices.
func (a *asker) lack(r *room) (sum float64) {
	for d, want := range a.spec.Envelope.Reservation {
		if want > 0 && want > r.Resources[d] {
			sum += float64(want-r.Resources[d]) / float64(want)
		}
	}
	for _, x := range a.spec.Extras {
		sum += float64(max(0, x.Amount-a.extraFree(r, x.Name))) / float64(x.Amount)
	}
	if ask := &a.spec.Devices; ask.Count > 0 {
		sum += float64(max(0, ask.Count-r.With(ask.Milli))) / float64(ask.Count)
	}
	return sum
}

// Says puts TooLarge, Idle, Lacks, Raise and Kept in words: what is true of the spec whichever node it is tried on. Empty: there is none of
// these.
func (e *Explanation) Says() []string {
	says := append(append([]string{e.TooLarge, e.Idle}, e.Lacks...), e.raises, e.Kept)
	return slices.DeleteFunc(says, func(text string) bool { return text == "" })
}

// String prints the explanation for an operator.
func (e *Explanation) String() string {
	var b strings.Builder
	if e.Nodes == 0 {
		return "there are no nodes"
	}
	fmt.Fprintf(&b, "%d of %d nodes fit", e.Fits, e.Nodes)
	for _, more := range e.Says() {
		b.WriteString("; " + more)
	}
	list(&b, e.Why, func(w Why) string {
		texts := make([]string, len(w.Reasons))
		for i, r := range w.Reasons {
			texts[i] = r.Text
		}
		return fmt.Sprintf("%6d: %s, as %s", w.Nodes, strings.Join(texts, "; "), w.Example)
	})
	listFailing(&b, e.Failing)
	if len(e.Fixes) > 0 {
		b.WriteString("\nit would fit if you")
		list(&b, e.Fixes, func(f Fix) string { return "* " + f.String() })
	}
	return b.String()
}
