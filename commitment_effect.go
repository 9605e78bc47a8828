package orbit

import "cmp"

// effect is what a commitment may change for what is planned elsewhere. Queues, engines and drafts decide by it what they look
// at again, so that they need not know the kinds of commitments. It is read off the commitment alone, so it may say that
// something changes which does not. An empty field says that the commitment changes nothing of that kind.
type effect struct {
	// The capsules that come to a node (arrives) and that are taken off theirs (leaves).
	arrives, leaves CapsuleID
	// The capsule that waits again, for another owner, or in another class.
	waits CapsuleID
	// The capsule that has stopped on a node that it left before.
	stops CapsuleID
	// The capsule that may count as a healthy member of its groups.
	heals CapsuleID
	// The capsule that gets another size.
	resizes CapsuleID
	// The capsule or gang whose nomination may begin or end.
	nominee Nominee
	// The node whose free room or description changes, if the commitment names it. Of others only the [Change] names it.
	node NodeID
	// The commitment takes room on the node and gives none back; it may give some back; it changes which nodes there are or
	// their labels; it may allow more evictions.
	takes, gives, describes, victims bool
}

// effectOf returns the effect of what may not be a commitment, such as a nil in a plan or in the history of a foreign ledger: that
// has none.
func effectOf(c Commitment) effect {
	if !isCommitment(c) {
		return effect{}
	}
	return c.effect()
}

// changes returns the capsule that comes to a node, leaves its node, or gets another size; empty: there is none.
func (f effect) changes() CapsuleID { return cmp.Or(f.arrives, f.leaves, f.resizes) }
