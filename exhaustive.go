package orbit

// Exhaustive is the reference [PlacementEngine]: one call of the score for each feasible node. It is what
// faster engines must agree with, choice by choice, and fast enough for some hundreds of nodes. The zero
// value works. Give each of several navigators another Seed: with the same one they all prefer the same among
// equal nodes, and lose half of their bets there.
type Exhaustive struct {
	// Nil: SpreadScore.
	Score  Score
	Filter Filter
	// Breaks ties; 0: by node id.
	Seed uint64

	books workset
}

// Filter takes nodes out of the choice for what the ledger does not know: it returns why, completing
// "n nodes ..." as in "have a stale report", or "" to keep the node. Like a [Score] it must be a pure
// function of what it sees.
type Filter func(node *NodeState, report *Report, spec *Spec) string

// Sync implements [PlacementEngine].
func (e *Exhaustive) Sync(view *View) { e.books.sync(view, e.Seed) }

// Mark implements [PlacementEngine].
func (e *Exhaustive) Mark() int { return len(e.books.undo) }

// Rollback implements [PlacementEngine].
func (e *Exhaustive) Rollback(mark int) { e.books.rollback(mark) }

// Reserve implements [PlacementEngine].
func (e *Exhaustive) Reserve(c *Capsule, choice Choice) Proposal { return e.books.reserve(c, choice) }

// Best implements [PlacementEngine].
func (e *Exhaustive) Best(spec *Spec) (Choice, error) {
	if e.books.view == nil {
		return Choice{}, notSynced()
	}
	r := newRater(&e.books, e.Score, e.Filter)
	r.draw()
	return r.scan(spec, e.books.peers(spec))
}
