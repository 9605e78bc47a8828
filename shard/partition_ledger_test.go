package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// plain places each capsule on the node with the most free capacity. It knows nothing of groups.
func plain() orbit.Navigator {
	engine, draft := &place.Exhaustive{}, &orbit.Draft{}
	return nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
		draft.Sync(view)
		for _, c := range pending {
			if err := draft.PlaceBest(engine, c); err != nil {
				plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: err})
				continue
			}
			plan.Proposals = append(plan.Proposals, draft.Propose())
		}
		return plan, nil
	})
}

// engineOf returns an engine of a scheduler, and its partition ledger.
func engineOf(ledger orbit.Ledger, name string, mode Mode) (*orbit.Engine, *PartitionLedger) {
	partition := &PartitionLedger{Ledger: ledger, Scheduler: name, Mode: mode}
	return &orbit.Engine{Name: name, Ledger: partition, Navigator: partition.Navigator(plain)}, partition
}

// submit adds capsules of one core each for an owner.
func submit(t fataler, ledger orbit.Ledger, owner string, cores int64, ids ...orbit.CapsuleID) {
	t.Helper()
	spec := &orbit.Spec{Module: "m", Envelope: orbit.Envelope{Reservation: orbit.Resources{cores}}}
	commit(t, ledger, orbit.Submit{IDs: ids, Spec: spec, Owner: owner})
}

// give assigns nodes to a scheduler.
func give(t fataler, ledger orbit.Ledger, owner string, nodes ...orbit.NodeID) {
	t.Helper()
	for _, id := range nodes {
		commit(t, ledger, orbit.Mark{Key: groupMark.key(string(id)), Value: owner})
	}
}

// nodeOf returns where a capsule is.
func nodeOf(t fataler, ledger orbit.Ledger, id orbit.CapsuleID) orbit.NodeID {
	t.Helper()
	return snapshot(t, ledger).Capsule(id).Node
}

// TestPartitionLedgerShowsGroup: a strict scheduler places on its own nodes only, and its reasons have the size of the
// group.
func TestPartitionLedgerShowsGroup(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(4, orbit.Resources{2})...)
	give(t, ledger, "a", "n00", "n01")
	give(t, ledger, "b", "n02")
	submit(t, ledger, "b", 1, "x", "y", "z")
	engine, _ := engineOf(ledger, "b", Strict)
	r := engine.Pass(context.Background())
	assert.Equal(t, 2, r.Committed, "%v", r)
	assert.Equal(t, orbit.NodeID("n02"), nodeOf(t, ledger, "x"))
	assert.Equal(t, orbit.NodeID("n02"), nodeOf(t, ledger, "y"))
	require.Len(t, r.Unplaced, 1)
	why := r.Unplaced[0].Why
	assert.ErrorIs(t, why, ErrGroup)
	var group *GroupNoFit
	require.ErrorAs(t, why, &group)
	assert.Equal(t, GroupNoFit{Scheduler: "b", Group: 1, Nodes: 4, Why: group.Why}, *group)
	var noFit *orbit.NoFit
	require.ErrorAs(t, why, &noFit)
	assert.Equal(t, `0 of 4 nodes fit: 3 are unschedulable, 1 lacks cpu; the group of scheduler "b" has 1 of the 4 schedulable nodes; soft mode would use the others too`, why.Error())
	assert.Equal(t, 1, r.Parked, "a NoFit parks, wrapped or not")

	give(t, ledger, "b", "n03") // taken back at once
	r = engine.Pass(context.Background())
	assert.Equal(t, 1, r.Committed)
	assert.Equal(t, orbit.NodeID("n03"), nodeOf(t, ledger, "z"))
}

// TestPartitionLedgerNominations: a scheduler nominates its own nodes only, and sees at once what others have nominated and
// ended there.
func TestPartitionLedgerNominations(t *testing.T) {
	ctx := context.Background()
	ledger := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	commit(t, ledger, fleet(3, orbit.Resources{4})...)
	give(t, ledger, "a", "n00", "n01")
	give(t, ledger, "b", "n02")
	submit(t, ledger, "a", 4, "big")
	submit(t, ledger, "a", 1, "small")
	partition := &PartitionLedger{Ledger: ledger, Scheduler: "a", Mode: Strict}
	var view orbit.View
	look := func(nominated bool) {
		t.Helper()
		require.NoError(t, view.Refresh(ctx, partition, nil, time.Now()))
		require.NoError(t, view.State().Verify())
		assert.Equal(t, !nominated, view.State().Node("n00").Fits(view.State().Capsule("small").Spec))
	}
	look(false)
	nominate := func(nodes ...orbit.NodeID) error {
		do := orbit.Nominate{Capsule: "big", Ends: time.Now().Add(time.Hour)}
		for _, id := range nodes {
			do.Parts = append(do.Parts, orbit.NominatedRoom{Node: id, Room: orbit.Resources{4}})
		}
		_, err := partition.Propose(ctx, orbit.Proposal{View: view.Revision(), Do: []orbit.Commitment{do}})
		return err
	}
	err := nominate("n00", "n02")
	require.ErrorIs(t, err, orbit.ErrInfeasible)
	assert.ErrorContains(t, err, `node "n02" is not in the group of scheduler "a"`)
	require.NoError(t, nominate("n00"))
	look(true)
	commit(t, ledger, orbit.Place{Capsule: "big", Node: "n01"})
	look(false)
	commit(t, ledger, orbit.Release{Capsule: "big", Stopped: true})
	look(false)
	give(t, ledger, "b", "n01")
	require.ErrorIs(t, nominate("n01"), orbit.ErrConflict)
}

// TestPartitionLedgerEndsOwnNominations: a scheduler to which a node is closed ends no nomination of others there, and ends
// its own once the node is given away.
func TestPartitionLedgerEndsOwnNominations(t *testing.T) {
	ledger := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	commit(t, ledger, fleet(2, orbit.Resources{4})...)
	give(t, ledger, "a", "n00")
	give(t, ledger, "b", "n01")
	submit(t, ledger, "a", 5, "big")
	commit(t, ledger, orbit.Nominate{Capsule: "big", Ends: time.Now().Add(time.Hour), Parts: []orbit.NominatedRoom{{Node: "n00", Room: orbit.Resources{4}}}})
	commit(t, ledger, orbit.PutNode{Node: orbit.Node{ID: "n00", Capacity: orbit.Resources{4}, Labels: map[string]string{"new": "label"}}})
	lives := func() bool { return snapshot(t, ledger).Capsule("big").Nomination().Lives() }
	a, _ := engineOf(ledger, "a", Strict)
	b, _ := engineOf(ledger, "b", Strict)
	b.Pass(context.Background())
	a.Pass(context.Background())
	require.True(t, lives())
	give(t, ledger, "b", "n00")
	b.Pass(context.Background())
	require.True(t, lives(), "it is for the work of a")
	a.Pass(context.Background())
	require.False(t, lives())
}

// TestPartitionLedgerWithoutAGroup: a scheduler without any node is told that Groups must run.
func TestPartitionLedgerWithoutAGroup(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(2, orbit.Resources{1})...)
	submit(t, ledger, "a", 1, "x")
	engine, _ := engineOf(ledger, "a", Strict)
	r := engine.Pass(context.Background())
	require.Len(t, r.Unplaced, 1)
	assert.ErrorContains(t, r.Unplaced[0].Why, `scheduler "a" has none of the 2 schedulable nodes: see that a Groups runs`)
}

// TestPartitionLedgerWholeConstellation: the reasons of a scheduler that owns all nodes do not mention the group.
func TestPartitionLedgerWholeConstellation(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(1, orbit.Resources{1})...)
	give(t, ledger, "a", "n00")
	submit(t, ledger, "a", 2, "x")
	engine, _ := engineOf(ledger, "a", Strict)
	r := engine.Pass(context.Background())
	require.Len(t, r.Unplaced, 1)
	assert.NotErrorIs(t, r.Unplaced[0].Why, ErrGroup)
}

// TestPartitionLedgerFence: a proposal planned before its node left the group is refused as a conflict, even by a
// partition ledger that has not read the change. A proposal on a node of another group is refused at once.
func TestPartitionLedgerFence(t *testing.T) {
	ctx := context.Background()
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(2, orbit.Resources{4})...)
	give(t, ledger, "a", "n00")
	give(t, ledger, "b", "n01")
	submit(t, ledger, "a", 1, "x", "y")
	partition := &PartitionLedger{Ledger: ledger, Scheduler: "a"}
	view := snapshot(t, partition).Revision()
	place := func(id orbit.CapsuleID, node orbit.NodeID) orbit.Proposal {
		return orbit.Proposal{ID: orbit.NewProposalID(), View: view, Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: node}}}
	}
	_, err := partition.Propose(ctx, place("x", "n01"))
	assert.ErrorIs(t, err, orbit.ErrInfeasible)
	assert.ErrorContains(t, err, `node "n01" is not in the group of scheduler "a"`)
	_, err = partition.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{use("h", "n01", orbit.Resources{1})}})
	assert.ErrorIs(t, err, orbit.ErrConflict, "a hold is room too; without a view it is bad luck")
	_, err = partition.Propose(ctx, place("x", "n00"))
	assert.NoError(t, err)

	give(t, ledger, "b", "n00")
	_, err = partition.Propose(ctx, place("y", "n00"))
	assert.ErrorIs(t, err, orbit.ErrConflict)
	var r *orbit.Rejection
	require.ErrorAs(t, err, &r)
	assert.IsType(t, orbit.MarkAt{}, r.Bet)
	give(t, ledger, "a", "n00") // the node is back, but an older plan is still refused
	_, err = partition.Propose(ctx, place("y", "n00"))
	assert.ErrorIs(t, err, orbit.ErrConflict)
	snapshot(t, partition)
	_, err = partition.Propose(ctx, place("y", "n00"))
	assert.NoError(t, err, "the bet is on what the partition has seen last")

	commit(t, ledger, orbit.Mark{Key: "leaving/n00", Value: "b"})
	snapshot(t, partition)
	submit(t, ledger, "a", 1, "z")
	_, err = partition.Propose(ctx, place("z", "n00"))
	assert.ErrorIs(t, err, orbit.ErrConflict, "an answer has been given")
	assert.ErrorContains(t, err, `node "n00" is leaving the group of scheduler "a"`)
	commit(t, ledger, orbit.Mark{Key: "leaving/n00"}, orbit.Mark{Key: "left/n00"})

	snapshot(t, partition)
	give(t, ledger, "b", "n00")
	snapshot(t, partition)
	_, err = partition.Propose(ctx, place("y", "n00"))
	require.ErrorAs(t, err, &r)
	assert.ErrorIs(t, err, orbit.ErrConflict, "it was there in the view")
	assert.GreaterOrEqual(t, r.At, r.TakenAt)
	assert.Greater(t, r.TakenAt, view)
}

// TestPartitionLedgerBatch: in a batch each proposal has its own outcome, and refused ones do not affect the others.
func TestPartitionLedgerBatch(t *testing.T) {
	for name, ledger := range map[string]orbit.Ledger{"batcher": &orbit.MemoryLedger{}, "one by one": struct{ orbit.Ledger }{&orbit.MemoryLedger{}}} {
		t.Run(name, func(t *testing.T) {
			commit(t, ledger, fleet(3, orbit.Resources{4})...)
			give(t, ledger, "a", "n00", "n02")
			submit(t, ledger, "a", 1, "u", "v", "w", "x")
			partition := &PartitionLedger{Ledger: ledger, Scheduler: "a"}
			state := snapshot(t, partition)
			var batch []orbit.Proposal
			for id, node := range map[orbit.CapsuleID]orbit.NodeID{"u": "n00", "v": "n01", "w": "n02", "x": "n02"} {
				batch = append(batch, orbit.Proposal{View: state.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: node}},
					If: []orbit.Precondition{orbit.NodeFreeOf{Node: node, AtLeast: orbit.Resources{1}}}})
			}
			slices.SortFunc(batch, func(a, b orbit.Proposal) int {
				return len(a.Do[0].(orbit.Place).Capsule) - len(b.Do[0].(orbit.Place).Capsule)
			})
			give(t, ledger, "b", "n02")
			for i, o := range partition.ProposeBatch(context.Background(), batch) {
				place := batch[i].Do[0].(orbit.Place)
				switch place.Node {
				case "n00":
					assert.NoError(t, o.Err)
					assert.NotZero(t, o.Revision)
				case "n01":
					assert.ErrorIs(t, o.Err, orbit.ErrInfeasible)
				case "n02":
					assert.ErrorIs(t, o.Err, orbit.ErrConflict)
				}
				assert.Len(t, batch[i].If, 1, "a proposal is the navigator's")
			}
		})
	}
}

// TestPartitionLedgerFields: every method returns an error for a missing field.
func TestPartitionLedgerFields(t *testing.T) {
	ctx := context.Background()
	for _, l := range []*PartitionLedger{{}, {Ledger: &orbit.MemoryLedger{}}, {Scheduler: "a"}, {Ledger: &orbit.MemoryLedger{}, Scheduler: "a", Mode: 3}} {
		_, err := l.Snapshot(ctx)
		assert.ErrorIs(t, err, orbit.ErrInvalid)
		_, err = l.Changes(ctx, 0)
		assert.ErrorIs(t, err, orbit.ErrInvalid)
		_, err = l.Wait(ctx, 0)
		assert.ErrorIs(t, err, orbit.ErrInvalid)
		_, err = l.Propose(ctx, orbit.Proposal{})
		assert.ErrorIs(t, err, orbit.ErrInvalid)
		assert.ErrorIs(t, l.ProposeBatch(ctx, make([]orbit.Proposal, 1))[0].Err, orbit.ErrInvalid)
	}
	assert.Equal(t, "strict soft shared mode 3", fmt.Sprint(Strict, Soft, Shared, Mode(3)))
}

// TestPartitionLedgerProperty: after any changes a partition ledger shows what a new one shows, which is the ledger's
// state with all nodes closed that are not in the group or are leaving it. Its counts are right, and its changes name
// every node whose shown description has changed.
func TestPartitionLedgerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newShardWorld(t, rapid.SampledFrom([]string{"alike", "mixed"}).Draw(t, "machines"))
		partition := &PartitionLedger{Ledger: w.ledger, Scheduler: "b/c"}
		was := snapshot(t, partition)
		for range rapid.IntRange(1, 30).Draw(t, "actions") {
			w.act(rapid.SampledFrom([]string{"put", "put", "use", "free", "leave", "die", "come", "come", "answer", "scribble", "scribble", "step"}).Draw(t, "action"))
			if rapid.Bool().Draw(t, "look") {
				was = checkPartitionLedger(t, partition, was)
			}
		}
		checkPartitionLedger(t, partition, was)
	})
}

// checkPartitionLedger compares a partition ledger with the ledger, and returns its state.
func checkPartitionLedger(t *rapid.T, partition *PartitionLedger, was *orbit.State) *orbit.State {
	ctx := context.Background()
	shown, err := partition.Snapshot(ctx)
	require.NoError(t, err)
	state := snapshot(t, partition.Ledger)
	require.NoError(t, shown.Verify())
	changes, err := partition.Changes(ctx, was.Revision())
	named := map[orbit.NodeID]bool{}
	for _, c := range changes {
		named[c.Node] = true
	}
	open := 0
	for n := range shown.Nodes() {
		owner, _ := state.Mark("group/" + string(n.Node.ID))
		leaving, _ := state.Mark("leaving/" + string(n.Node.ID))
		want := *state.Node(n.Node.ID).Node
		want.Cordon(!want.Schedulable() || owner != partition.Scheduler || leaving != "")
		require.Equal(t, want, *n.Node)
		require.Equal(t, state.Node(n.Node.ID).Used(), n.Used())
		require.Equal(t, state.Node(n.Node.ID).Specification, n.Specification)
		require.Equal(t, state.Node(n.Node.ID).Usage, n.Usage)
		require.Equal(t, state.Node(n.Node.ID).Index(), n.Index())
		open += count(n)
		before := was.Node(n.Node.ID)
		if err == nil && shown.Revision() > was.Revision() && (before == nil || before.Node.Schedulable() != n.Node.Schedulable()) {
			require.True(t, named[n.Node.ID], "node %q has changed without a change that says so", n.Node.ID)
		}
	}
	gotOpen, gotNodes := partition.size()
	require.Equal(t, open, gotOpen)
	schedulable := 0
	for n := range state.Nodes() {
		schedulable += count(n)
	}
	require.Equal(t, schedulable, gotNodes)
	require.Equal(t, state.NodeCount(), shown.NodeCount())
	return shown
}

// TestStrictNeverConflicts: strict schedulers on real goroutines never conflict with each other while Groups changes
// their groups; all conflicts are with Groups. It covers SCENARIOS 3.
func TestStrictNeverConflicts(t *testing.T) {
	const schedulers, nodes, each = 4, 48, 300
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(nodes, orbit.Resources{40, 40})...)
	names := []string{"a", "b", "c", "d"}
	g := &Groups{Ledger: ledger, Schedulers: names, Every: time.Millisecond}
	require.Empty(t, g.Step(context.Background()).Errors)
	for _, name := range names {
		var ids []orbit.CapsuleID
		for i := range each {
			ids = append(ids, orbit.CapsuleID(fmt.Sprintf("%s-%d", name, i)))
		}
		submit(t, ledger, name, 1, ids...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	byGroups := 0
	for _, name := range names {
		engine, partition := engineOf(ledger, name, Strict)
		engine.MaxPlan = 16
		engine.Ledger = &auditor{PartitionLedger: partition, lost: func(r *orbit.Rejection) {
			mu.Lock()
			defer mu.Unlock()
			if !r.TakenBy.IsZero() || !errors.Is(r, orbit.ErrConflict) { // only engines give their proposals ids here
				t.Errorf("scheduler %s lost to another one: %v", name, r)
			}
			byGroups++
		}}
		wg.Go(func() { assert.NoError(t, engine.Run(ctx)) })
	}
	wg.Go(func() { assert.NoError(t, g.Run(ctx)) })
	for i := 0; ctx.Err() == nil && snapshot(t, ledger).PendingCount() > 0; i++ { // nodes join, leave, are drained and grow
		id := orbit.NodeID(fmt.Sprintf("n%02d", i%nodes))
		n := *snapshot(t, ledger).Node(id).Node
		n.Cordon(i%3 == 0)
		n.Capacity[0] = int64(40 + i%2*40)
		_, _ = ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: n}}})
		time.Sleep(200 * time.Microsecond)
	}
	assert.Zero(t, snapshot(t, ledger).PendingCount())
	cancel()
	wg.Wait()
	require.NoError(t, snapshot(t, ledger).Verify())
	t.Logf("%d lost to a change of group", byGroups)
}

// auditor records every rejection.
type auditor struct {
	*PartitionLedger
	lost func(*orbit.Rejection)
}

func (a *auditor) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := a.PartitionLedger.ProposeBatch(ctx, batch)
	for _, o := range out {
		if r, ok := o.Err.(*orbit.Rejection); ok { //nolint:errorlint // what a ledger returns
			a.lost(r)
		}
	}
	return out
}
