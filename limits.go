package orbit

import "cmp"

// Limits are the numbers that a ledger keeps to. A zero field means the default beside it, which is that of
// the in-memory ledger; [Ledger.Limits] returns them filled in, so that a navigator can plan within them.
type Limits struct {
	// Commitments in one proposal: 65,536.
	Commitments int `json:"commitments"`
	// Bets in one proposal: 65,536.
	Preconditions int `json:"preconditions"`
	// Capsules in one Submit: 1,048,576.
	Capsules int `json:"capsules"`
	// Members of one gang, placed in one proposal: 65,536.
	GangMembers int `json:"gangMembers"`
	// Bytes in one id, module, owner, label or mark key: 253.
	IDBytes int `json:"idBytes"`
	// Bytes of text in one spec or in one node's labels: 65,536.
	SpecBytes int `json:"specBytes"`
	// Bytes in one mark's value or placement's note: 4,096.
	ValueBytes int `json:"valueBytes"`
	// Changes that Changes can look back on: 65,536.
	History int `json:"history"`
	// Records of released capsules that are kept, newest first: 65,536.
	Terminal int `json:"terminal"`
	// Remembered ids of proposals without a Place, newest first: 65,536.
	ProposalIDs int `json:"proposalIDs"`
	// Remembered ids of one capsule's placements, newest first: 32.
	PlacementIDs int `json:"placementIDs"`
}

// withDefaults returns a copy in which every field says what holds.
func (l Limits) withDefaults() Limits {
	l.Commitments = min(limit(l.Commitments, 1<<16), 1<<20) // sums of device milli stay within 32 bits
	l.Preconditions = limit(l.Preconditions, 1<<16)
	l.Capsules = limit(l.Capsules, 1<<20)
	l.GangMembers = min(limit(l.GangMembers, 1<<16), l.Commitments) // one Place each, in one proposal
	l.IDBytes = limit(l.IDBytes, 253)
	l.SpecBytes = limit(l.SpecBytes, 1<<16)
	l.ValueBytes = limit(l.ValueBytes, 4096)
	l.History = limit(l.History, 1<<16)
	l.Terminal = limit(l.Terminal, 1<<16)
	l.ProposalIDs = limit(l.ProposalIDs, 1<<16)
	l.PlacementIDs = limit(l.PlacementIDs, 32)
	return l
}

// maxLimit keeps sums of limits and counts of records within 32 bits.
const maxLimit = 1 << 30

// limit returns n, or the default where n is not positive, and never more than maxLimit.
func limit(n, otherwise int) int { return min(cmp.Or(max(n, 0), otherwise), maxLimit) }
