package shard

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// A dispatcher refuses the leases of nodes, because each node would count as a scheduler, and a setting without any
// scheduler.
func TestLeasesOfNodesAreRefused(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	for _, prefix := range []string{"", "lease/"} {
		leases := &lease.Keeper{Ledger: ledger, Prefix: prefix}
		for what, errs := range map[string][]error{
			"Dispatcher": (&Dispatcher{Ledger: ledger, Leases: leases}).Step(t.Context()).Errors,
			"Groups":     (&Groups{Ledger: ledger, Leases: leases}).Step(t.Context()).Errors,
		} {
			if assert.Len(t, errs, 1, what) {
				assert.ErrorIs(t, errs[0], orbit.ErrInvalid, what)
				assert.ErrorContains(t, errs[0], "shard.LeasePrefix", what)
			}
		}
	}
	errs := (&Dispatcher{Ledger: ledger}).Step(t.Context()).Errors
	if assert.Len(t, errs, 1) {
		assert.ErrorIs(t, errs[0], orbit.ErrInvalid)
		assert.ErrorContains(t, errs[0], "set Leases or Schedulers")
	}
}
