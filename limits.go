package orbit

import "cmp"

// Limits are the numbers that a ledger keeps to. A zero field means the default beside it, which is that of
// the in-memory ledger; [Ledger.Limits] returns them filled in, so that a navigator can plan within them.
type Limits struct {
	Commitments   int // commitments in one proposal: 65,536
	Preconditions int // bets in one proposal: 65,536
	Capsules      int // capsules in one Submit: 1,048,576
	GangMembers   int // members of one gang, placed in one proposal: 65,536
	IDBytes       int // bytes in one id, module, owner, label or mark key: 253
	SpecBytes     int // bytes of text in one spec or in one node's labels: 65,536
	ValueBytes    int // bytes in one mark's value or placement's note: 4,096
	History       int // changes that Changes can look back on: 65,536
	Terminal      int // records of released capsules that are kept, newest first: 65,536
	ProposalIDs   int // remembered ids of proposals without a Place, newest first: 65,536
	PlacementIDs  int // remembered ids of one capsule's placements, newest first: 32
}

// withDefaults returns a copy in which every field says what holds.
func (l Limits) withDefaults() Limits {
	l.Commitments = cmp.Or(max(l.Commitments, 0), 1<<16)
	l.Preconditions = cmp.Or(max(l.Preconditions, 0), 1<<16)
	l.Capsules = cmp.Or(max(l.Capsules, 0), 1<<20)
	l.GangMembers = cmp.Or(max(l.GangMembers, 0), 1<<16)
	l.IDBytes = cmp.Or(max(l.IDBytes, 0), 253)
	l.SpecBytes = cmp.Or(max(l.SpecBytes, 0), 1<<16)
	l.ValueBytes = cmp.Or(max(l.ValueBytes, 0), 4096)
	l.History = cmp.Or(max(l.History, 0), 1<<16)
	l.Terminal = cmp.Or(max(l.Terminal, 0), 1<<16)
	l.ProposalIDs = cmp.Or(max(l.ProposalIDs, 0), 1<<16)
	l.PlacementIDs = cmp.Or(max(l.PlacementIDs, 0), 32)
	return l
}
