package itest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/crew"
)

// Two operating-system processes with navigators share one etcd. Some work is assigned to one of them by name or
// claimed by module, and some is claimed by both. They conflict (both plan the first of that work before either
// proposes it), the ledger decides, and everything is placed once, by its owner.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{})
	client := connect(t, c)
	l := newLoad(t, client, 6)
	var crews []*crew.Crew
	for _, name := range []string{"left", "right"} {
		one, err := crew.Start(crew.Config{Endpoints: c.Endpoints(), Prefix: "orbit/", MaxPlan: 50, HoldBack: name + "-both", Engines: []crew.Engine{
			{Name: name, Modules: []string{name}}, {Name: name + "-both", Modules: []string{"both"}},
		}}, &l.answers)
		require.NoError(t, err)
		t.Cleanup(func() { _ = one.Kill() })
		crews = append(crews, one)
	}
	for _, one := range crews {
		receive(t, one.Ready())
	}
	began, n := time.Now(), scale(t, 100)
	for i := range n / 20 {
		if i == 1 { // now both have planned the same work
			for _, one := range crews {
				receive(t, one.Plans())
			}
			for _, one := range crews {
				require.NoError(t, one.GoOn())
			}
		}
		for _, s := range []orbit.Submit{
			{Owner: "left", Spec: &orbit.Spec{Module: "right"}}, // assigned by name, whatever the navigators claim
			{Owner: "right", Spec: &orbit.Spec{Module: "left"}},
			{Spec: &orbit.Spec{Module: "left"}},
			{Spec: &orbit.Spec{Module: "right"}},
			{Spec: &orbit.Spec{Module: "both"}},
		} {
			for j := range 20 {
				s.IDs = append(s.IDs, orbit.CapsuleID(fmt.Sprintf("%s-%s-%03d", s.Owner, s.Spec.Module, 20*i+j)))
			}
			s.Spec.Envelope.Reservation = orbit.Resources{orbit.CPU: 50}
			l.propose(t.Context(), s)
		}
	}
	l.settle(t, time.Minute)
	took := time.Since(began)
	for _, one := range crews {
		require.NoError(t, one.Stop(10*time.Second))
	}
	book := l.check(t, client)
	require.Equal(t, 5*n, book.Placed())
	require.Equal(t, 5*n, book.Places)
	var total crew.Tally
	for i, one := range crews {
		tally := one.Tally() // on a busy machine a process may be stopped while a proposal is on its way
		require.Empty(t, slices.DeleteFunc(tally.Errors, endedOnTheWay))
		require.GreaterOrEqual(t, tally.Committed, 2*n, "process %d placed what only it may", i)
		total.Add(tally)
	}
	require.Equal(t, 5*n, total.Committed)
	require.Positive(t, total.Conflicts, "two processes that claim the same work never met")
	t.Logf("%d placed in %v by %v; %d conflicts", 5*n, took.Round(time.Millisecond), crews[0].Tally().Committed, total.Conflicts)
}

// endedOnTheWay reports whether an error says only that a process was stopped before it learned what became of a proposal.
func endedOnTheWay(text string) bool { return strings.HasSuffix(text, context.Canceled.Error()) }
