package ledgertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/ledgertest"
)

// Each implementation of orbit.Ledger has a test like this one. A ledger that processes share gives the suite two
// handles.
func ExampleSuite() {
	_ = func(t *testing.T) { // TestLedger
		suite := ledgertest.Suite{Skip: map[string]string{"compaction": "the history is kept elsewhere"}}
		suite.Run(t, func(t *testing.T) orbit.Ledger { return &orbit.MemoryLedger{} })
	}
}

// An answer is lost on its way. The caller sends the same proposal again, and it has one effect.
func ExampleFaults() {
	ledger := &orbit.MemoryLedger{}
	faults := &ledgertest.Faults{Choose: func(n int, _ orbit.Proposal) ledgertest.Fault {
		if n == 0 {
			return ledgertest.Applied
		}
		return ledgertest.None
	}}
	faulty, ctx := faults.Around(ledger), context.Background()
	p := orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}}}

	_, err := faulty.Propose(ctx, p)
	fmt.Println(errors.Is(err, orbit.ErrUnknown), err)
	rev, err := faulty.Propose(ctx, p)
	fmt.Println(rev, err)
	// Output:
	// true outcome unknown: injected fault
	// 1 <nil>
}

// A recorder finds out what no caller can: this ledger says that it has committed what it has forgotten.
func ExampleRecorder() {
	ledger, ctx := &orbit.MemoryLedger{}, context.Background()
	recorder, _ := ledgertest.NewRecorder(ctx, ledger)
	liar := recorder.Handle(forgetful{ledger})

	_, _ = liar.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: "v"}}})

	history, _ := recorder.History(ctx)
	fmt.Println(history.Check())
	// Output: proposal (Mark{"key":"k","value":"v"}): the answer is that it was committed at 1; the history has it at 0
}

type forgetful struct{ orbit.Ledger }

func (forgetful) Propose(context.Context, orbit.Proposal) (orbit.Revision, error) { return 1, nil }

// A load is a test that can be run for as long as one likes, also while servers are stopped and started.
func ExampleLoad() {
	ledger := &orbit.MemoryLedger{}
	figures, err := ledgertest.Load{Operations: 1000, Workers: 4}.Run(context.Background(), ledger)
	fmt.Println(figures.Operations, figures.Committed > 100, err)
	// Output: 1000 true <nil>
}
