package place

import (
	"cmp"
	"log/slog"
	"math/rand/v2"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/slots"
)

// Sampled is the [orbit.PlacementEngine] of relaxed randomization: it rates nodes in random order, none twice, until
// enough of them fit, and takes the best of these. The cost depends on the share of nodes that fit, not on the number
// of nodes. Where few nodes fit it rates more, and where none fits it rates all, so the answer that nothing fits is
// exact. It serves any score and maintains no index, but its choices are not the best.
//
// The zero value works. The same calls with the same Seed make the same choices; give each of several navigators
// another Seed. Do not change the fields after the first Best. The idea is Borg's ("Large-scale cluster management at
// Google with Borg", EuroSys 2015, §3.4).
type Sampled struct {
	// Score rates the nodes; nil: [score.Spread].
	Score orbit.Score
	// Filter excludes nodes from the choice; nil: none.
	Filter Filter
	// FilterVersion returns the version of a Filter that reads more than its arguments; nil: the Filter reads nothing
	// else.
	FilterVersion FilterVersion
	// Seed decides the order in which nodes are drawn, and breaks ties; 0: the lowest node id wins.
	Seed uint64
	// Enough is the number of fitting nodes to choose among, last resorts ([orbit.Draft.LastResort]) not counted; 0: 32.
	Enough int
	// Remember is the number of runners-up that are kept for each spec, and rated again with the next sample; 0: none.
	Remember int
	// MostParts is the largest number of parts into which the nodes are divided while many proposals lose to others
	// ([orbit.View.Part]); 0: 8. With 1 the engine always chooses among all nodes.
	MostParts int

	rater rater
	rng   *rand.Rand
	// All nodes, in the order in which they were last drawn; and for each node index, its position in order plus 1, or
	// 0 if there is no such node.
	order []int32
	place []int32
	// The position in the journal of the draft.
	cursor uint64
	// The best nodes of earlier samples, by spec, the best first.
	runnersUp map[*orbit.Spec][]int32
	seen      slots.Set
	best      []pick
	rated     int
}

// sync brings the order up to the nodes of the draft. It does so once after each Sync, because a plan adds no nodes.
func (e *Sampled) sync(draft *orbit.Draft) {
	synced, other := e.rater.sync(draft, e.Score, e.Filter, e.Seed, e.MostParts)
	if !synced {
		return
	}
	if e.rng == nil {
		e.rng = rand.New(rand.NewPCG(e.Seed, uint64(len("sampled"))))
	}
	if e.rated = 0; other {
		e.cursor = 0
	}
	touched, next, all := draft.Changed(e.cursor)
	e.cursor = next
	if all {
		touched = nil
		e.order, e.place = e.order[:0], e.place[:0]
		clear(e.runnersUp) // their indices may be those of another ledger
	}
	for len(e.place) < draft.Bound() {
		e.place = append(e.place, 0)
		touched = append(touched[:len(touched):len(touched)], int32(len(e.place)-1))
	}
	for _, slot := range touched {
		e.list(slot)
	}
}

// list adds a node to the order, or removes it if it has left.
func (e *Sampled) list(slot int32) {
	at := e.place[slot] - 1
	switch there := e.rater.node(slot) != nil; {
	case there && at < 0:
		e.order = append(e.order, slot)
		e.place[slot] = int32(len(e.order))
	case !there && at >= 0:
		e.swap(int(at), len(e.order)-1)
		e.order = e.order[:len(e.order)-1]
		e.place[slot] = 0
	}
}

// swap exchanges two nodes in the order.
func (e *Sampled) swap(i, j int) {
	a, b := e.order[i], e.order[j]
	e.order[i], e.order[j] = b, a
	e.place[a], e.place[b] = int32(j+1), int32(i+1)
}

// Best implements [orbit.PlacementEngine].
func (e *Sampled) Best(draft *orbit.Draft, spec *orbit.Spec) (orbit.Choice, error) {
	if err := unready(draft, spec); err != nil {
		return orbit.Choice{}, err
	}
	e.sync(draft)
	e.rater.readVersion(&e.FilterVersion)
	near, draws := choiceIn(draft, spec), e.rater.draw()
	e.best = e.best[:0]
	e.seen.Clear(draft.Bound())
	if !draws { // else earlier ratings mean nothing, and runners-up are no better than any other node
		for _, slot := range e.runnersUp[spec] {
			e.consider(slot, spec, &near)
		}
	}
	enough := min(cmp.Or(max(e.Enough, 0), 32), len(e.order)) + len(e.best)
	fit := len(e.best)
	for i := 0; i < len(e.order) && fit < enough; i++ {
		e.swap(i, i+e.rng.IntN(len(e.order)-i))
		if e.consider(e.order[i], spec, &near) {
			fit++
		}
	}
	if len(e.best) == 0 {
		return orbit.Choice{}, e.rater.why(spec)
	}
	e.remember(spec)
	return e.rater.choice(&e.best[0], spec)
}

// consider rates a node, unless it has been rated for this choice, and files it among the best. It reports whether the node
// is new, takes the spec and is no last resort.
func (e *Sampled) consider(slot int32, spec *orbit.Spec, near *near) bool {
	if !e.seen.Add(slot) {
		return false
	}
	e.rated++
	p, ok := e.rater.rate(e.rater.node(slot), spec, near)
	if !ok {
		return false
	}
	at := len(e.best)
	for at > 0 && e.rater.better(&p, &e.best[at-1]) {
		at--
	}
	if keep := 1 + min(max(e.Remember, 0), len(e.order)); at < keep {
		if len(e.best) < keep {
			e.best = append(e.best, pick{})
		}
		copy(e.best[at+1:], e.best[at:])
		e.best[at] = p
	}
	return !p.last
}

// maxRemembered is the number of specs for which runners-up are kept. Beyond it all are dropped.
const maxRemembered = 1 << 14

// remember keeps the best nodes of this sample for the next one. The winner is among them: it may be good again.
func (e *Sampled) remember(spec *orbit.Spec) {
	if e.Remember <= 0 || !spec.Shared() {
		return
	}
	if len(e.runnersUp) >= maxRemembered || e.runnersUp == nil {
		e.runnersUp = map[*orbit.Spec][]int32{}
	}
	kept := e.runnersUp[spec][:0]
	for i := range e.best {
		kept = append(kept, int32(e.best[i].node.Index()))
	}
	e.runnersUp[spec] = kept
}

// Notes returns the number of nodes rated since the last Sync, for [orbit.Plan.Notes].
func (e *Sampled) Notes() []slog.Attr {
	return []slog.Attr{slog.Int("rated", e.rated), slog.Int("unspread", e.rater.unspread)}
}
