package orbit

// Evict takes a capsule off its node, either to make way for other work or to be moved. If it is a member of a gang, the gang must
// keep the minimum of every role, or no placed member at all.
//
// With For or ForGang it is an eviction to make way. The capsule, the victim, returns to pending. The same proposal must place the
// capsule or gang named there, which must have a strictly higher priority and need room that the victim takes. The ledger spares
// victims that need not leave: it goes through them in the order of the proposal and puts each one back that fits beside what
// is still on the node and the newcomers that outrank it. A gang that is evicted whole is put back as one. A victim that has
// left by itself is skipped. The history holds only the evictions that remain ([State.Judge]). Therefore no proposal is
// refused because there is more room than it expected, and nobody is evicted in vain. A gang that is evicted whole counts with the
// priority of its highest role; members of a gang evict with the priority of its lowest.
//
// With neither it is a move: the same proposal must place the capsule again. A move needs one of three: the capsule is
// [Spec.Movable]; a [Budget] covered it before the proposal; or its node takes no new work, before the proposal and all through
// it. A gang of which a part is moved keeps as many placed members as it had.
type Evict struct {
	// Capsule is the capsule to take off its node.
	Capsule CapsuleID `json:"capsule"`
	// From is the node on which the capsule must be placed.
	From NodeID `json:"from"`
	// Since is the revision at which it must have been placed there ([Capsule.PlacedAt]).
	Since Revision `json:"since"`
	// For is the capsule for which the victim makes way; empty if ForGang is set, or for a move.
	For CapsuleID `json:"for,omitempty"`
	// ForGang is the gang for whose members the victim makes way; empty if For is set, or for a move.
	ForGang GangID `json:"forGang,omitempty"`
}

func (Evict) commitment() {}

// Confirm is what the agent of a node reports of a capsule there: that it is about to run, or that it runs no more. Exactly one
// of Begun and Stopped must be set. Besides Confirms, such a proposal may hold only releases that are Final or Stopped, and
// placements of capsules that the proposal says have stopped. A navigator's plan may not hold a Confirm.
type Confirm struct {
	// Capsule is the capsule that is meant.
	Capsule CapsuleID `json:"capsule"`
	// Since is the revision at which the capsule was placed there ([Capsule.PlacedAt], [Remains.Since]).
	Since Revision `json:"since"`
	// Begun says that the capsule is about to run where it is placed. The agent proposes it before it starts the capsule, and
	// starts it only once this is committed. The ledger refuses it while something still runs that has to stop first, with
	// ErrInfeasible if View is set; then the agent tries again after a later revision. The node must be one that Confirms and is
	// not Lost.
	Begun bool `json:"begun,omitempty"`
	// Stopped says that a capsule which was taken off its node runs there no more: its [Remains] end. For a capsule that is still
	// placed and runs no more, use [Release.Stopped] if it is to run again; if it is done, propose {Release Final, Confirm
	// Stopped} together.
	Stopped bool `json:"stopped,omitempty"`
}

func (Confirm) commitment() {}

// Remains is a capsule that was taken off its node after it had begun, and may still run there. It ends when the agent of the
// node confirms that the capsule has stopped, or when the node is lost. Remains do not reduce what is free on the node, so
// others may be placed there; but one that does not fit beside them waits to begin until they end. The capsule itself, wherever
// it is placed next, waits too.
type Remains struct {
	// Capsule is the capsule that ran there. It may be pending, placed elsewhere, or released for good.
	Capsule CapsuleID `json:"-"`
	// Spec is the spec of the capsule.
	Spec *Spec `json:"-"`
	// Node is the node that the capsule was taken off.
	Node NodeID `json:"node"`
	// Devices are the device instances that it had there.
	Devices DeviceSet `json:"devices,omitempty"`
	// Since is the revision at which it was placed there.
	Since Revision `json:"since"`
	// Left is the revision at which it was taken off.
	Left Revision `json:"left"`
}

// leaves returns the capsule that a commitment takes off its node, empty if it takes none.
func leaves(c Commitment) CapsuleID {
	switch c := c.(type) {
	case Release:
		return c.Capsule
	case Evict:
		return c.Capsule
	}
	return ""
}
