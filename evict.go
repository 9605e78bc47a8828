package orbit

// Evict takes a capsule off its node because somebody wants that. A gang of which it is a member keeps every role's minimum,
// or nothing.
//
// With For or ForGang it says: leave if you must. The capsule returns to pending, to make way for one of strictly higher
// priority that the same proposal places, and that it stands in the way of. The ledger spares whom it can: in the order of the
// proposal each victim is put back that fits beside what else is left and what outranks it, a gang that is evicted whole as one; a
// victim that has left by itself is passed over. What remains is what the history holds ([State.Judge]). So more
// room never refuses a proposal, and nobody is evicted in vain. A gang that is evicted whole has the priority of its highest role, and
// members of a gang evict with that of its lowest.
//
// With neither it is a move: the same proposal places the capsule again. That needs consent: [Spec.Movable], a [Budget] that covers
// the capsule before the proposal, or a node that takes no new work, before the proposal and all through it. A gang that is moved in part keeps as many members as it had.
type Evict struct {
	// Capsule is the capsule to take off its node.
	Capsule CapsuleID `json:"capsule"`
	// From is the node that the capsule must be on.
	From NodeID `json:"from"`
	// Since is the revision at which it must have been placed there ([Capsule.PlacedAt]).
	Since Revision `json:"since"`
	// For is the capsule that it makes way for; empty if ForGang is set, or for a move.
	For CapsuleID `json:"for,omitempty"`
	// ForGang is the gang of which the proposal places members that it makes way for; empty if For is set, or for a move.
	ForGang GangID `json:"forGang,omitempty"`
}

func (Evict) commitment() {}

// leaves returns the capsule that a commitment takes off its node; empty: none.
func leaves(c Commitment) CapsuleID {
	switch c := c.(type) {
	case Release:
		return c.Capsule
	case Evict:
		return c.Capsule
	}
	return ""
}
