package etcdledger

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/orbitsched/orbit"
)

const (
	// defaultMaxOps and defaultMaxBytes are the defaults of etcd's server.
	defaultMaxOps   = 128
	defaultMaxBytes = 3 << 19 // 1.5 MiB
	// leastOps is enough for one placement with its bets.
	leastOps = 32
)

// bounds returns the limits of a ledger over a server that accepts ops operations in one transaction. Eight operations
// are reserved for the log, the key gc and a few bets on other records. Every commitment except Submit has at most
// three records: a capsule, its gang and its node. So a proposal within Commitments fits into a transaction together
// with bets on the same nodes. The reserve must cover the rest: one operation for each bet on another record, one
// for each group whose members the proposal places or takes off their nodes, and one for each group or module with a
// budget whose members it takes off.
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

// within returns the smaller of asked and most. If asked is not positive, within returns most.
func within(asked, most int) int {
	if asked <= 0 {
		return most
	}
	return min(asked, most)
}

// agrees returns an error if a field of asked that is not zero differs from the limits of an existing ledger.
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
