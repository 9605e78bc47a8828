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

// Confirm is what the agent of a node says of a capsule there: exactly one of Begun and Stopped is set. A proposal with one holds
// nothing but such, releases that are Final or Stopped, and placements of what the proposal says has Stopped; no plan holds one.
type Confirm struct {
	// Capsule is the capsule that is meant.
	Capsule CapsuleID `json:"capsule"`
	// Since is the revision of the placement that is meant ([Capsule.PlacedAt], [Remains.Since]).
	Since Revision `json:"since"`
	// Begun says that the capsule is about to run where it is placed. It is proposed before the start, which it allows: it is
	// refused while something runs that has to stop first, with ErrInfeasible if View is set. Then the agent tries again after a
	// later revision. Only a node that Confirms, and is not Lost, has capsules that begin.
	Begun bool `json:"begun,omitempty"`
	// Stopped says that nothing runs any more of what the placement has left: its [Remains] end. Of what has not been taken off
	// its node and runs no more the agent says [Release.Stopped], if it is to run again; if it is done, {Release Final, Confirm
	// Stopped} in one proposal.
	Stopped bool `json:"stopped,omitempty"`
}

func (Confirm) commitment() {}

// Remains is what is left on a node of a placement that had begun when it ended, until the agent of the node confirms that it
// has stopped, or the node is lost. It takes nothing of what is free; but what does not fit beside it waits to begin, and so does the
// capsule itself wherever it is placed next.
type Remains struct {
	// Capsule is the capsule that ran there. It may be pending, placed elsewhere, or released for good.
	Capsule CapsuleID `json:"-"`
	// Spec is what the capsule asks for.
	Spec *Spec `json:"-"`
	// Node is the node that it has left.
	Node NodeID `json:"node"`
	// Devices are the device instances that it had there.
	Devices DeviceSet `json:"devices,omitempty"`
	// Since is the revision at which it was placed there.
	Since Revision `json:"since"`
	// Left is the revision at which it was taken off.
	Left Revision `json:"left"`
}

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
