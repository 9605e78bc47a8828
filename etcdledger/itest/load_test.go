package itest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
)

// load is a constellation at work: capsules are submitted, placed by processes of navigators, and released.
type load struct {
	ledger  orbit.Ledger
	answers audit.Answers
	rng     *rand.Rand
	// The numbers of submitted and released capsules.
	submitted, ended atomic.Int64
}

// The load's modules, and the number of capsules at a time; the nodes have capacity for half as many again.
var loadModules = []string{"web", "api"}

const (
	loadNodes = 30
	loadAlive = 300
)

// options returns options for tests with faults: short times, so that failures are noticed soon.
func options() etcdledger.Options {
	return etcdledger.Options{
		Timeout: time.Second, Patience: 5 * time.Second,
		Bounds: orbit.Limits{Terminal: 500, ProposalIDs: 5000},
	}
}

// newLoad adds the nodes.
func newLoad(t *testing.T, client *clientv3.Client, seed uint64) *load {
	l := &load{rng: rand.New(rand.NewPCG(seed, 1))}
	l.ledger = &audit.Witness{Ledger: open(t, client, options()), Tell: func(_ *orbit.Proposal, a audit.Answer, _ error) { l.answers.Add(a) }}
	var join []orbit.Commitment
	for i := range loadNodes {
		join = append(join, orbit.PutNode{Node: orbit.Node{
			ID: orbit.NodeID(fmt.Sprintf("node-%02d", i)), Capacity: orbit.Resources{orbit.CPU: loadAlive * 3 / 2 / loadNodes * 100},
		}})
	}
	l.propose(t.Context(), join...)
	return l
}

// propose proposes until the outcome is known.
func (l *load) propose(ctx context.Context, do ...orbit.Commitment) audit.Kind {
	p := orbit.Proposal{ID: orbit.NewProposalID(), Do: do}
	for {
		_, err := l.ledger.Propose(ctx, p)
		if k := audit.KindOf(err); k != audit.Unknown && k != audit.Unavailable || ctx.Err() != nil {
			return k
		}
	}
}

// run submits and releases capsules until ctx ends.
func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		for l.submitted.Load()-l.ended.Load() < loadAlive && ctx.Err() == nil {
			l.submit(ctx, 20)
		}
		l.end(ctx, 20)
	}
}

// submit submits n capsules of one module.
func (l *load) submit(ctx context.Context, n int) {
	ids := make([]orbit.CapsuleID, n)
	for i := range ids {
		ids[i] = orbit.CapsuleID(fmt.Sprintf("capsule-%06d", l.submitted.Load()+int64(i)))
	}
	spec := &orbit.Spec{Module: loadModules[l.rng.IntN(len(loadModules))], Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 100}}}
	if l.propose(ctx, orbit.Submit{IDs: ids, Spec: spec}) == audit.Committed {
		l.submitted.Add(int64(n))
	}
}

// end releases up to n placed capsules.
func (l *load) end(ctx context.Context, n int) {
	state, err := l.ledger.Snapshot(ctx)
	if err != nil {
		return
	}
	var placed []orbit.CapsuleID
	for c := range state.Capsules() {
		if c.Placed() {
			placed = append(placed, c.ID)
		}
	}
	l.rng.Shuffle(len(placed), func(i, j int) { placed[i], placed[j] = placed[j], placed[i] })
	var all sync.WaitGroup
	for _, id := range placed[:min(n, len(placed))] {
		all.Go(func() {
			if l.propose(ctx, orbit.Release{Capsule: id, Final: true}) == audit.Committed {
				l.ended.Add(1)
			}
		})
	}
	all.Wait()
	if len(placed) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
}

// advance waits until n more commits have been acknowledged, and reports whether they were in time.
func (l *load) advance(n int, patience time.Duration) bool {
	target, end := l.answers.Count(audit.Committed)+n, time.Now().Add(patience)
	for l.answers.Count(audit.Committed) < target {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}

// settle waits until every submitted capsule is placed.
func (l *load) settle(t *testing.T, patience time.Duration) {
	require.Eventually(t, func() bool {
		state, err := l.ledger.Snapshot(t.Context())
		return err == nil && state.PendingCount() == 0
	}, patience, 100*time.Millisecond, "everything fits, and not everything is placed")
}

// check counts everything again: from all entries of the log, from the state as a new process opens it, and from
// the answers.
func (l *load) check(t *testing.T, client *clientv3.Client) *audit.Book {
	var book audit.Book
	require.NoError(t, book.Read(within(t, time.Minute), client, "orbit/"))
	state, err := open(t, client, etcdledger.Options{}).Snapshot(t.Context())
	require.NoError(t, err)
	require.NoError(t, state.Verify())
	require.Zero(t, book.Judge(&l.answers), "acknowledged and not in the history: %v", book.Faults)
	require.Zero(t, book.Compare(state), "in the history and not in the end: %v", book.Faults)
	require.Zero(t, book.Doubled+book.Over+book.Repeated+book.InVain+book.Broken, "%v", book.Faults)
	require.Empty(t, book.Faults)
	t.Logf("%d commits: %d placements, %d releases; %d capsules placed in the end; doubled 0, lost 0, over capacity 0, committed twice 0",
		book.Commits, book.Places, book.Releases, book.Placed())
	t.Logf("answers: %d committed, %d conflicts, %d infeasible, %d unknown, %d unavailable", l.answers.Count(audit.Committed), l.answers.Count(audit.Conflict),
		l.answers.Count(audit.Infeasible), l.answers.Count(audit.Unknown), l.answers.Count(audit.Unavailable))
	require.Zero(t, l.answers.Count(audit.Invalid)+l.answers.Count(audit.Other))
	return &book
}

// fill submits, places and releases capsules without a navigator until ctx ends and all its proposals have been
// answered.
func (l *load) fill(until context.Context) {
	ctx := context.WithoutCancel(until)
	for until.Err() == nil {
		if l.submitted.Load()-l.ended.Load() < loadAlive {
			l.submit(ctx, 20)
		}
		state, err := l.ledger.Snapshot(ctx)
		if err != nil {
			continue
		}
		for c := range state.Capsules() {
			switch {
			case until.Err() != nil:
				return
			case c.Pending():
				l.propose(ctx, orbit.Place{Capsule: c.ID, Node: orbit.NodeID(fmt.Sprintf("node-%02d", l.rng.IntN(loadNodes)))})
			case c.Placed() && l.rng.IntN(4) == 0:
				final := l.rng.IntN(2) == 0
				if l.propose(ctx, orbit.Release{Capsule: c.ID, Final: final, Stopped: !final}) == audit.Committed && final {
					l.ended.Add(1)
				}
			}
		}
	}
}
