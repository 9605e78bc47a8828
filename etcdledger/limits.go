package etcdledger

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/orbitsched/orbit"
)

// The defaults of etcd's server.
const (
	defaultMaxOps   = 128
	defaultMaxBytes = 3 << 19 // 1.5 MiB
	// Fewer operations do not hold one placement with its bets.
	leastOps = 32
)

// bounds returns the limits of a ledger over a server that takes so many operations in one transaction. The log
// and gc take one, a few are left for bets, and a commitment has to do with three records at most, if it is no
// Submit: a member's capsule, its gang and its node. So whatever keeps to Commitments fits, wherever it goes, with
// bets on the same nodes and a few on others, each of which takes one record.
func bounds(asked orbit.Limits, ops int) orbit.Limits {
	l := asked
	l.Commitments = within(l.Commitments, (ops-8)/3)
	l.Preconditions = within(l.Preconditions, ops-8)
	l.Capsules = within(l.Capsules, ops-8)
	l.GangMembers = within(l.GangMembers, (ops-8)/3)
	l.SpecBytes = cmp.Or(l.SpecBytes, 8192)
	l.ValueBytes = cmp.Or(l.ValueBytes, 4096)
	l.PlacementIDs = cmp.Or(l.PlacementIDs, 8)
	return (&orbit.MemoryLedger{Bounds: l}).Limits() // fills in the rest
}

// within returns what is asked for, at most most; nothing asked for: most.
func within(asked, most int) int {
	if asked <= 0 {
		return most
	}
	return min(asked, most)
}

// agrees reports how the limits of an existing ledger differ from those that are asked for; zero fields ask for
// nothing.
func agrees(asked, there orbit.Limits, ops int) error {
	wanted, got := bounds(asked, ops), reflect.ValueOf(there)
	for i := range got.NumField() {
		want := reflect.ValueOf(wanted).Field(i).Int()
		if reflect.ValueOf(asked).Field(i).Int() > 0 && want != got.Field(i).Int() {
			return fmt.Errorf("etcdledger: %w: limit %s is %d there, %d here; leave it 0 to take what is there",
				ErrMismatch, got.Type().Field(i).Name, got.Field(i).Int(), want)
		}
	}
	return nil
}
