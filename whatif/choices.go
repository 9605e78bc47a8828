package whatif

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// Tally compares the placements of a shadow with the real ones, capsule by capsule.
type Tally struct {
	// Same counts the capsules that both have placed on the same node, and Elsewhere those that they have placed on two.
	Same, Elsewhere int
	// OnlyReal and OnlyShadow count the capsules that one of the two has placed and the other has not.
	OnlyReal, OnlyShadow int
	// Evicted and ShadowEvicted count the capsules that were evicted for other work; moves do not count.
	Evicted, ShadowEvicted int
	// Scores has, by the name of each score, how it rates the placements of both.
	Scores map[string]ScoreTally
}

// ScoreTally compares the ratings of one score for the capsules that both have placed. A node is rated as it was before
// the commit that placed the capsule. A lower rating is better.
type ScoreTally struct {
	// Better, Worse and Equal count the capsules that are Elsewhere, by the rating of the shadow's node compared with
	// that of the real node: lower, higher, or the same.
	Better, Worse, Equal int
	// Real and Shadow are the sums of the ratings of all capsules that both have placed. All five fields leave out
	// capsules for which one of the two ratings is missing or not a finite number.
	Real, Shadow float64
}

// String returns the counts in one line, and then one line for each score.
func (t *Tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d placed alike, %d elsewhere, %d by the real one only, %d by the shadow only; evicted %d, shadow %d",
		t.Same, t.Elsewhere, t.OnlyReal, t.OnlyShadow, t.Evicted, t.ShadowEvicted)
	for _, name := range slices.Sorted(maps.Keys(t.Scores)) {
		s := t.Scores[name]
		fmt.Fprintf(&b, "\n  by %s: %d better, %d worse, %d equal; sum %.6g, shadow %.6g", name, s.Better, s.Worse, s.Equal, s.Real, s.Shadow)
	}
	return b.String()
}

// add adds another tally.
func (t *Tally) add(o *Tally) {
	t.Same += o.Same
	t.Elsewhere += o.Elsewhere
	t.OnlyReal += o.OnlyReal
	t.OnlyShadow += o.OnlyShadow
	t.Evicted += o.Evicted
	t.ShadowEvicted += o.ShadowEvicted
	for name, s := range o.Scores {
		sum := t.Scores[name]
		t.score(name, ScoreTally{sum.Better + s.Better, sum.Worse + s.Worse, sum.Equal + s.Equal, sum.Real + s.Real, sum.Shadow + s.Shadow})
	}
}

func (t *Tally) score(name string, s ScoreTally) {
	if t.Scores == nil {
		t.Scores = map[string]ScoreTally{}
	}
	t.Scores[name] = s
}

// clone returns a copy that shares nothing with t.
func (t *Tally) clone() Tally {
	c := *t
	c.Scores = maps.Clone(t.Scores)
	return c
}

// choice is a placement, and how the scores rate it.
type choice struct {
	node    orbit.NodeID
	ratings map[string]float64
	// waited is how long the capsule has waited for its first placement; negative: unknown, or this is a later
	// placement.
	waited time.Duration
}

// waited returns how long a capsule has waited for the placement that led from its record before to its record after.
// It is negative if that is unknown, or if the placement is not the capsule's first one.
func waited(before, after *orbit.Capsule) time.Duration {
	again := before != nil && before.Submitted == after.Submitted && before.PlacedAt != 0
	if again || after.SubmitTime() == 0 || after.PlaceTime == 0 {
		return -1
	}
	return max(0, time.Duration(after.PlaceTime-after.SubmitTime()))
}

// both counts a capsule that both have placed: theirs is the real placement, mine the shadow's.
func (t *Tally) both(theirs, mine choice) {
	if theirs.node == mine.node {
		t.Same++
	} else {
		t.Elsewhere++
	}
	for name, rating := range mine.ratings {
		other, ok := theirs.ratings[name]
		if !ok || !finite(rating) || !finite(other) {
			continue
		}
		s := t.Scores[name]
		s.Real += other
		s.Shadow += rating
		switch {
		case theirs.node == mine.node:
		case rating < other:
			s.Better++
		case rating > other:
			s.Worse++
		default:
			s.Equal++
		}
		t.score(name, s)
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// raters are the scores by which placements are compared.
type raters struct {
	scores    map[string]orbit.Score
	telemetry orbit.Telemetry
}

// rate returns the ratings of a node for a spec, by score. If a score panics, only its rating is missing. If the call of
// Telemetry.Latest panics, all are.
func (r *raters) rate(n *orbit.NodeState, spec *orbit.Spec) map[string]float64 {
	if len(r.scores) == 0 || n == nil || spec == nil {
		return nil
	}
	out := make(map[string]float64, len(r.scores))
	guard.Call(func() error {
		var report orbit.Report
		if r.telemetry != nil {
			report, _ = r.telemetry.Latest(n.Node.ID)
		}
		for name, score := range r.scores {
			guard.Call(func() error {
				out[name], _ = score.Score(n, &report, spec)
				return nil
			}, func(error) {})
		}
		return nil
	}, func(error) {})
	return out
}

// choices calls placed for each placement of a commit, and returns the number of capsules that it evicts for other
// work. The commit has led from the state before to the state after.
func (r *raters) choices(changes []orbit.Change, before, after *orbit.State, placed func(*orbit.Capsule, choice)) (evicted int) {
	for i := range changes {
		switch do := changes[i].Do.(type) {
		case orbit.Place:
			n, c := before.Node(do.Node), after.Capsule(do.Capsule)
			if n == nil { // the node joins in the same commit
				n = after.Node(do.Node)
			}
			if c != nil {
				placed(c, choice{do.Node, r.rate(n, c.Spec), waited(before.Capsule(c.ID), c)})
			}
		case orbit.Evict:
			if do.For != "" || do.ForGang != "" {
				evicted++
			}
		}
	}
	return evicted
}

// recorder is a fork that records the placements and evictions that are committed on it.
type recorder struct {
	orbit.MemoryLedger
	raters

	mu      sync.Mutex
	placed  map[orbit.CapsuleID]choice
	evicted int
	commits int // number of committed proposals
}

func newRecorder(state *orbit.State, by raters) *recorder {
	return &recorder{MemoryLedger: orbit.MemoryLedger{Start: state}, raters: by, placed: map[orbit.CapsuleID]choice{}}
}

// Propose implements [orbit.Ledger].
func (r *recorder) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, err := r.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	at, err := r.MemoryLedger.Propose(ctx, p)
	if err != nil || at <= before.Revision() { // not newer: the proposal was committed before
		return at, err
	}
	after, err := r.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	changes, err := r.Changes(ctx, before.Revision()) // unlike p.Do, without the evictions of spared victims
	if err != nil {
		return 0, err
	}
	r.commits++
	r.evicted += r.choices(changes, before, after, func(c *orbit.Capsule, to choice) { r.placed[c.ID] = to })
	return at, nil
}

// ProposeBatch implements [orbit.Batcher].
func (r *recorder) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	for i := range batch {
		out[i].Revision, out[i].Err = r.Propose(ctx, batch[i])
	}
	return out
}
