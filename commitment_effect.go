package orbit

import "cmp"

// effect lists what a commitment may change. Queues, engines and drafts read it to decide what to look at again, so
// that they need no case for each type of commitment. It is computed from the commitment alone, without the state. So
// it may list a change that does not happen. An empty field says that the commitment changes nothing of that kind.
type effect struct {
	// The capsule that comes to a node, and the one that is taken off its node.
	arrives, leaves CapsuleID
	// The capsule that waits again, for another owner, or in another class.
	waits CapsuleID
	// The capsule that had left a node and has now stopped there, or whose remains there count with another spec now.
	stops CapsuleID
	// The capsule that may count as a healthy member of its groups.
	heals CapsuleID
	// The capsule that gets another spec.
	respecs CapsuleID
	// The capsule or gang whose nomination may begin or end.
	nominee Nominee
	// The node of a commitment that places or adopts a capsule, makes a hold, or puts or removes a node. For all others
	// it is empty: their node is in [Change.Node] once they are committed.
	node NodeID
	// takes: the commitment takes room on its node and gives none back. gives: it may give room back.
	takes, gives bool
	// describes: it puts or removes a node, so labels may change. victims: it changes a budget or ends a protection, so
	// more victims may be evicted.
	describes, victims bool
	// quotas: it puts or removes a queue.
	quotas bool
	// regroups: a placed capsule may get into other groups, or get other rules of company.
	regroups bool
}

// effectOf returns c.effect(), or the empty effect if c is not a commitment of this package. Plans, and histories of
// ledgers of others, may hold such values, for example nil, on which c.effect() would panic.
func effectOf(c Commitment) effect {
	if !isCommitment(c) {
		return effect{}
	}
	return c.effect()
}

// changes returns the capsule that comes to a node, leaves its node, or gets another spec; empty: there is none.
func (f effect) changes() CapsuleID { return cmp.Or(f.arrives, f.leaves, f.respecs) }
