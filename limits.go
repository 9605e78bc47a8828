package orbit

import (
	"cmp"
	"fmt"
	"time"
)

// Limits are the limits that a ledger enforces. A zero field means the default that is given with it, which is that of
// the in-memory ledger. [Ledger.Limits] returns the fields filled in, so that a navigator can plan within them, except
// Protect and Nominate: these stay 0 where they have their default.
type Limits struct {
	// Commitments is the maximum number of commitments in one proposal; default 65,536.
	Commitments int `json:"commitments"`
	// Preconditions is the maximum number of bets in one proposal; default 65,536.
	Preconditions int `json:"preconditions"`
	// Capsules is the maximum number of capsules in one Submit; default 1,048,576.
	Capsules int `json:"capsules"`
	// GangMembers is the maximum number of members of one gang, placed in one proposal; default 65,536.
	GangMembers int `json:"gangMembers"`
	// IDBytes is the maximum number of bytes in one id, module, owner, label or mark key; default 253.
	IDBytes int `json:"idBytes"`
	// SpecBytes is the maximum number of bytes of text in one spec or in one node's labels; default 65,536.
	SpecBytes int `json:"specBytes"`
	// ValueBytes is the maximum number of bytes in one mark's value or placement's note; default 4,096.
	ValueBytes int `json:"valueBytes"`
	// History is the number of changes that Changes can look back on; default 65,536.
	History int `json:"history"`
	// Terminal is the number of records of released capsules that are kept, newest first; default 65,536.
	Terminal int `json:"terminal"`
	// ProposalIDs is how many ids of proposals that place nothing are remembered, so that a repeated one is recognised. The
	// newest are kept; default 65,536.
	ProposalIDs int `json:"proposalIDs"`
	// PlacementIDs is the number of remembered ids of one capsule's placements, newest first; default 32.
	PlacementIDs int `json:"placementIDs"`
	// NominatedShare limits, for each resource, the room that a nomination and all nominations of higher rank claim together,
	// in percent of all nodes. It limits a nomination only in resources that one of higher rank claims, too. So the
	// nomination that is first in rank is never refused. Default 10.
	NominatedShare int `json:"nominatedShare"`
	// NominationAging is the maximum by which a nomination may rank above the priority of its capsule; default 10.
	NominationAging int `json:"nominationAging"`
	// Renewals is how often a nomination can be renewed and keep its age ([Nomination].First); of nominations of equal rank
	// the oldest wins. Default 8.
	Renewals int `json:"renewals"`
	// Protect is the longest time for which a capsule may be protected ([Protect]); 0: 10 minutes.
	Protect time.Duration `json:"protect,omitempty"`
	// Nominate is the longest time for which engines let a nomination claim its room, counted from when they first see
	// it, however late its end is ([Nominate.Ends]); 0: 1 hour. LongestNomination returns it.
	Nominate time.Duration `json:"nominate,omitempty"`
	// NeverEvictFrom and NeverEvictTo bound a range of priorities, both ends included. A capsule with a priority in the range is
	// never evicted for another capsule with a priority in the range, unless its gang is broken and gives way to another
	// broken gang ([State.Precedes]). They are equal by default, and then forbid nothing.
	NeverEvictFrom int32 `json:"truceFrom,omitempty"`
	NeverEvictTo   int32 `json:"truceTo,omitempty"`
}

// withDefaults returns a copy with the effective values. Protect and Nominate stay 0, because older ledgers have no such fields in
// their records.
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
	l.NominatedShare = min(limit(l.NominatedShare, 10), 100)
	l.NominationAging = limit(l.NominationAging, 10)
	l.Renewals = limit(l.Renewals, 8)
	l.Protect = min(max(l.Protect, 0), maxDuration)
	l.Nominate = min(max(l.Nominate, 0), maxDuration)
	l.NeverEvictTo = max(l.NeverEvictFrom, l.NeverEvictTo)
	return l
}

// keeps returns the reason why a capsule of one priority is not evicted for one of another; empty: it may be evicted.
func (l *Limits) keeps(victim, priority int32) string {
	switch {
	case priority <= victim:
		return fmt.Sprintf("priority %d is not higher than %d", priority, victim)
	case l.NeverEvictFrom <= victim && priority <= l.NeverEvictTo:
		return fmt.Sprintf("from priority %d to %d no capsule is evicted for another", l.NeverEvictFrom, l.NeverEvictTo)
	}
	return ""
}

// ceiling returns the lowest priority that is safe from eviction for work of the given priority. The range without evictions
// (NeverEvictFrom, NeverEvictTo) lowers it.
func (l *Limits) ceiling(priority int32) int32 {
	if priority <= l.NeverEvictTo {
		return min(priority, l.NeverEvictFrom)
	}
	return priority
}

// longestProtection returns the longest time for which a capsule may be protected.
func (l *Limits) longestProtection() time.Duration { return cmp.Or(l.Protect, 10*time.Minute) }

// LongestNomination returns the longest time for which engines let a nomination claim its room.
func (l Limits) LongestNomination() time.Duration { return cmp.Or(l.Nominate, time.Hour) }

// maxLimit keeps sums of limits and counts of records within 32 bits.
const maxLimit = 1 << 30

// maxDuration keeps the ends of protections and nominations within what a time can hold.
const maxDuration = 366 * 24 * time.Hour

// limit returns n, or the default where n is not positive, and never more than maxLimit.
func limit(n, otherwise int) int { return min(cmp.Or(max(n, 0), otherwise), maxLimit) }
