package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// A pass that returns before its Plan does counts as arrived. Its Plan, which comes later, is not counted again, and no
// other pass waits for it.
func TestWhoComesLateIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: &orbit.Spec{}}}})
		require.NoError(t, err)
		m := &meeting{}
		late := &racer{name: "late", meeting: m, Navigator: nav.Func(
			func(context.Context, *orbit.View, []*orbit.Capsule) (orbit.Plan, error) {
				time.Sleep(time.Minute)
				return orbit.Plan{}, nil
			})}
		m.begin(2)
		waiting := make(chan struct{})
		go func() {
			defer close(waiting)
			(&racer{meeting: m}).arrive(true)
		}()
		engine := &orbit.Engine{Name: "late", Ledger: l, Navigator: late, PlanTimeout: time.Second}
		require.ErrorIs(t, late.pass(t.Context(), engine, 1), orbit.ErrNavigator)
		<-waiting
		time.Sleep(time.Hour)
		m.mu.Lock()
		defer m.mu.Unlock()
		require.Zero(t, m.missing)
	})
}
