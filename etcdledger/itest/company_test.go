package itest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/crew"
)

// Four operating-system processes place the members of one group by a rule of company. Each in domains of its own they never meet: no bet
// is lost. In the same domains they do, which is counted, and the rule holds all the same.
func TestCompanyFromFourProcesses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		apart []orbit.Apart
		even  []orbit.Even
		// Each process places in a zone of its own.
		parted bool
	}{
		{"apart by rack, each in its zone", []orbit.Apart{{Group: "set", Level: "rack"}}, nil, true},
		{"apart by node, each in its zone", []orbit.Apart{{Group: "set", Level: orbit.NodeKey}}, nil, true},
		{"even over zones, each in its zone", nil, []orbit.Even{{Group: "set", Level: "zone", Domains: []string{"z0", "z1", "z2", "z3"}, MaxSkew: 1000}}, true},
		{"apart by rack, all everywhere", []orbit.Apart{{Group: "set", Level: "rack"}}, nil, false},
		{"even over zones, all everywhere", nil, []orbit.Even{{Group: "set", Level: "zone", MaxSkew: 1}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			total, state := companyOfFour(t, scale(t, 25), c.parted, orbit.Spec{Group: "set", Apart: c.apart, Even: c.even})
			t.Logf("%d committed, %d bets lost, %d indices lost", total.Committed, total.Conflicts, total.Lost)
			for s := range state.Skewed() {
				t.Errorf("broken: %+v", s)
			}
			if c.parted {
				require.Zero(t, total.Conflicts)
			}
		})
	}
}

// companyOfFour lets four processes place so many capsules each, all members of the spec's group. It returns what they have counted, and the end.
func companyOfFour(t *testing.T, each int, parted bool, spec orbit.Spec) (total crew.Tally, end *orbit.State) {
	c := start(t, cluster.Options{})
	client := connect(t, c)
	l := &load{}
	l.ledger = &audit.Witness{Ledger: open(t, client, options()), Tell: func(_ *orbit.Proposal, a audit.Answer, _ error) { l.answers.Add(a) }}
	for i := range 4 * each { // a rack for each capsule
		require.Equal(t, audit.Committed, l.propose(t.Context(), orbit.PutNode{Node: orbit.Node{
			ID: orbit.NodeID(fmt.Sprintf("node-%03d", i)), Capacity: orbit.Resources{orbit.CPU: 1000},
			Labels: map[string]string{"zone": fmt.Sprint("z", i%4), "rack": fmt.Sprint("r", i)},
		}}))
	}
	spec.Envelope.Reservation = orbit.Resources{orbit.CPU: 100}
	for i := range 4 {
		own := spec
		own.Module = fmt.Sprint("m", i)
		if parted {
			own.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{fmt.Sprint("z", i)}}}
		}
		s := orbit.Submit{Spec: &own}
		for k := range each {
			s.IDs = append(s.IDs, orbit.CapsuleID(fmt.Sprintf("c%d-%03d", i, k)))
		}
		require.Equal(t, audit.Committed, l.propose(t.Context(), s))
	}
	var crews []*crew.Crew
	for i := range 4 {
		name := fmt.Sprint("m", i)
		one, err := crew.Start(crew.Config{Endpoints: c.Endpoints(), Prefix: "orbit/", MaxPlan: 5, Engines: []crew.Engine{{Name: name, Modules: []string{name}}}}, &l.answers)
		require.NoError(t, err)
		t.Cleanup(func() { _ = one.Kill() })
		crews = append(crews, one)
	}
	for _, one := range crews {
		receive(t, one.Ready())
	}
	l.settle(t, time.Minute)
	for _, one := range crews {
		require.NoError(t, one.Stop(10*time.Second))
		tally := one.Tally()
		require.Empty(t, tally.Errors)
		total.Add(tally)
	}
	require.Equal(t, 4*each, l.check(t, client).Placed())
	require.Equal(t, 4*each, total.Committed)
	end, err := l.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	return total, end
}
