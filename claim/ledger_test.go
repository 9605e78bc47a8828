package claim_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
)

// ledgerRig runs a pool on a ledger with n slots.
func ledgerRig(t *testing.T, src *claim.LedgerSource, n int) *rig {
	r := newRig(t, &claim.Pool{Source: src})
	require.NoError(t, src.Join(t.Context(), nodes(n)...))
	return r.run()
}

func nodes(n int) (out []orbit.NodeID) {
	for i := range n {
		out = append(out, orbit.NodeID(fmt.Sprintf("s%d", i)))
	}
	return out
}

func snapshot(t testing.TB, src *claim.LedgerSource) *orbit.State {
	s, err := src.Book().Snapshot(context.Background())
	require.NoError(t, err)
	require.NoError(t, s.Verify())
	return s
}

// A claim is one proposal: the capsule is submitted and placed in it, so it is never pending.
func TestLedgerClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{}
		r := ledgerRig(t, src, 2)
		c := make(chan claim.Result, 1)
		require.True(t, r.Enqueue(&claim.Request{Result: c, Options: claim.Capsule{ID: "mine", Note: "warm", Owner: "someone"}}))
		synctest.Wait()
		res := got(t, c)
		require.NoError(t, res.Err)
		assert.Equal(t, claim.Slot{Name: "s0", UID: "1", Capsule: "mine"}, res.Slot)
		capsule := snapshot(t, src).Capsule("mine")
		assert.Equal(t, orbit.NodeID("s0"), capsule.Node)
		assert.Equal(t, "warm", capsule.Note())
		assert.Equal(t, "someone", capsule.Owner())
		changes, err := src.Book().Changes(t.Context(), 1)
		require.NoError(t, err)
		require.Len(t, changes, 2)
		assert.Equal(t, changes[0].Revision, changes[1].Revision)
		assert.Equal(t, 1, r.Snapshot().IdleReady)
	})
}

// What a request changes is part of the claim: the capsule has it from the revision of its placement on, and the caller
// gets the slot as changed. The labels of the node stay as they are.
func TestLedgerClaimAppliesChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{}
		_, err := src.Book().Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: orbit.Node{
			ID: "a", Capacity: orbit.Resources{orbit.Slots: 2}, Labels: map[string]string{"phase": "warm", "image/main": "base:1", "rack": "r1"},
		}}}})
		require.NoError(t, err)
		r := newRig(t, &claim.Pool{Source: src}).run()
		images := map[string]string{"main": "user:7"}
		c := make(chan claim.Result, 1)
		require.True(t, r.Enqueue(&claim.Request{Result: c, Options: claim.Capsule{ID: "mine"}, Apply: &claim.Changes{
			Images: images, Labels: map[string]string{"session": "42"}, Annotations: map[string]string{"why": "a test"},
		}}))
		images["main"] = "changed after Enqueue"
		synctest.Wait()
		res := got(t, c)
		require.NoError(t, res.Err)
		applied := map[string]string{"phase": "Running", "image/main": "user:7", "session": "42", "annotation/why": "a test"}
		state := snapshot(t, src)
		assert.Equal(t, applied, state.Capsule("mine").Labels())
		assert.Equal(t, state.Capsule("mine").PlacedAt, orbit.Revision(state.Capsule("mine").Submitted>>20), "one commit")
		applied["rack"] = "r1"
		assert.Equal(t, applied, res.Slot.Labels)
		assert.Equal(t, "warm", state.Node("a").Node.Labels["phase"])

		slot, err := r.Claim(soon(t))
		require.NoError(t, err)
		assert.Empty(t, snapshot(t, src).Capsule(slot.Capsule).Labels(), "a request without changes applies nothing")
		assert.Equal(t, "warm", slot.Labels["phase"])
	})
}

// Changes that the ledger refuses, such as labels that are too long, are the mistake of this one request.
func TestLedgerRefusesChangesThatAreTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{}
		r := ledgerRig(t, src, 1)
		c := make(chan claim.Result, 1)
		require.True(t, r.Enqueue(&claim.Request{Result: c, Apply: &claim.Changes{Phase: strings.Repeat("x", 1<<20)}}))
		synctest.Wait()
		require.ErrorIs(t, got(t, c).Err, orbit.ErrInvalid)
		assert.Equal(t, 1, r.Snapshot().IdleReady)
	})
}

func TestChanges(t *testing.T) {
	was := map[string]string{"phase": "Idle", "a": "1"}
	for _, x := range []struct {
		changes *claim.Changes
		want    map[string]string
	}{
		{nil, was},
		{&claim.Changes{}, map[string]string{"phase": "Running", "a": "1"}},
		{&claim.Changes{Phase: "Starting", Labels: map[string]string{"a": "2", "phase": "x"}}, map[string]string{"phase": "Starting", "a": "2"}},
		{&claim.Changes{Labels: map[string]string{"phase": "x"}}, map[string]string{"phase": "x", "a": "1"}},
	} {
		assert.Equal(t, x.want, x.changes.Apply(was))
		assert.Equal(t, map[string]string{"phase": "Idle", "a": "1"}, was)
	}
}

// Nodes that join or whose capsules are released become slots at once, without NotifyIdle and without waiting.
func TestLedgerWakesThePool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{}
		r := ledgerRig(t, src, 0)
		a, b := r.ask(), r.ask()
		synctest.Wait()
		require.NoError(t, src.Join(t.Context(), "s0"))
		synctest.Wait()
		first := got(t, a)
		require.NoError(t, first.Err)
		none(t, b)
		require.NoError(t, src.Return(t.Context(), first.Slot))
		synctest.Wait()
		second := got(t, b)
		require.NoError(t, second.Err)
		assert.Equal(t, "s0", second.Slot.Name, "at once, though it was reserved until just now")
		assert.NotEqual(t, first.Slot.Capsule, second.Slot.Capsule)
		assert.Zero(t, time.Since(r.start))
		assert.Len(t, r.seen(), 1)

		require.NoError(t, src.Return(t.Context(), first.Slot), "a second return is no error")
		assert.Equal(t, orbit.NodeID("s0"), snapshot(t, src).Capsule(second.Slot.Capsule).Node, "and takes no slot that is in use")
		require.NoError(t, src.Return(t.Context(), claim.Slot{Name: "s0", Capsule: "never heard of"}))
	})
}

// A process that starts again joins its nodes again: what has been said of them meanwhile stays.
func TestLedgerJoinLeavesKnownNodesAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{}
		require.NoError(t, src.Join(t.Context(), "a", "b"))
		cordoned := *snapshot(t, src).Node("a").Node
		cordoned.State, cordoned.Labels = orbit.Cordoned, map[string]string{"rack": "r1"}
		propose(t, src.Book(), orbit.PutNode{Node: cordoned})
		require.NoError(t, src.Join(t.Context(), "a", "b", "c"))
		assert.Equal(t, cordoned, *snapshot(t, src).Node("a").Node)
		assert.EqualValues(t, 1, snapshot(t, src).Node("b").Specification)
		l, err := src.Idle(t.Context())
		require.NoError(t, err)
		assert.Len(t, l.Slots, 2, "b and c")
	})
}

// A node whose specification changes is another slot: a claim of the old slot is a conflict, and the request gets the
// new one.
func TestLedgerUIDIsTheSpecification(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{}
		require.NoError(t, src.Join(t.Context(), "a"))
		l, err := src.Idle(t.Context())
		require.NoError(t, err)
		old := l.Slots[0]
		propose(t, src.Book(), orbit.RemoveNode{Node: "a"})
		require.NoError(t, src.Join(t.Context(), "a"))
		_, at, err := src.Claim(t.Context(), claim.Attempt{ID: orbit.NewProposalID(), Slot: old})
		require.ErrorIs(t, err, orbit.ErrConflict)
		assert.Equal(t, uint64(3), at)
		_, _, err = src.Claim(t.Context(), claim.Attempt{ID: orbit.NewProposalID(), Slot: claim.Slot{Name: "a", UID: "x"}})
		require.ErrorIs(t, err, orbit.ErrInvalid)
		l, err = src.Idle(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []claim.Slot{{Name: "a", UID: "3"}}, l.Slots)
	})
}

func propose(t testing.TB, l orbit.Ledger, do ...orbit.Commitment) {
	t.Helper()
	_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
}

// A node is a slot if it is schedulable, meets the requirements and has free capacity for one capsule. It stops being
// one when another client places something there, drains it or takes its label away.
func TestLedgerSlots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var web orbit.Predicate
		err := web.Set("pool in (web)")
		require.NoError(t, err)
		spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 100}}, Require: []orbit.Predicate{web}}
		ledger := &orbit.MemoryLedger{}
		src := &claim.LedgerSource{Ledger: ledger, Spec: spec}
		node := func(id orbit.NodeID, pool string, cpu int64) orbit.PutNode {
			return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: cpu}, Labels: map[string]string{"pool": pool}}}
		}
		propose(t, ledger, node("a", "web", 100), node("b", "db", 100), node("c", "web", 99), node("d", "web", 100), node("e", "web", 250))
		r := newRig(t, &claim.Pool{Source: src}).run()
		assert.Equal(t, 3, r.Snapshot().IdleReady, "a, d, e")
		drained := node("d", "web", 100)
		drained.Node.State = orbit.Cordoned
		propose(t, ledger, drained, orbit.Hold{ID: "h", Node: "a", Room: orbit.Resources{orbit.CPU: 1}, Ends: time.Now().Add(time.Hour)})
		synctest.Wait()
		assert.Equal(t, 1, r.Snapshot().IdleReady)
		a, b, c := r.ask(), r.ask(), r.ask()
		synctest.Wait()
		assert.Equal(t, "e", got(t, a).Slot.Name)
		assert.Equal(t, "e", got(t, b).Slot.Name, "it has room for two")
		none(t, c)
		propose(t, ledger, orbit.Release{Hold: "h"})
		synctest.Wait()
		assert.Equal(t, "a", got(t, c).Slot.Name)
		assert.Zero(t, r.Stats().Conflicts)
		assert.Zero(t, snapshot(t, src).PendingCount())
	})
}

// Two pools, or a pool and another client, on one ledger: the second claim of a node is a conflict, and no node is
// claimed twice.
func TestLedgerIsShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger := &orbit.MemoryLedger{}
		one, two := &claim.LedgerSource{Ledger: ledger}, &claim.LedgerSource{Ledger: ledger}
		a, b := ledgerRig(t, one, 40), newRig(t, &claim.Pool{Source: two}).run()
		var asked []<-chan claim.Result
		for range 25 {
			asked = append(asked, a.ask(), b.ask())
		}
		synctest.Wait()
		users := map[string]bool{}
		for _, c := range asked {
			select {
			case res := <-c:
				require.NoError(t, res.Err)
				require.False(t, users[res.Slot.Name])
				users[res.Slot.Name] = true
			default:
			}
		}
		assert.Len(t, users, 40)
		assert.Equal(t, 10, a.Snapshot().QueueLen+b.Snapshot().QueueLen)
		snapshot(t, one)
	})
}

// A capsule id that is in use is an error of the request. The request is answered, and is not tried on other slots.
func TestLedgerCapsuleInUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{}
		r := ledgerRig(t, src, 3)
		var asked []chan claim.Result
		for _, o := range []any{claim.Capsule{ID: "x"}, claim.Capsule{ID: "x"}, "x"} {
			c := make(chan claim.Result, 1)
			require.True(t, r.Enqueue(&claim.Request{Result: c, Options: o}))
			synctest.Wait()
			asked = append(asked, c)
		}
		require.NoError(t, (<-asked[0]).Err)
		err := (<-asked[1]).Err
		require.ErrorIs(t, err, orbit.ErrInvalid)
		require.NotErrorIs(t, err, orbit.ErrConflict)
		assert.ErrorContains(t, err, "choose another id")
		assert.ErrorContains(t, (<-asked[2]).Err, "want a claim.Capsule")
		assert.Zero(t, r.Stats().Conflicts)
		assert.Equal(t, 2, r.Snapshot().IdleReady)
	})
}

// Invalid specs are refused.
func TestLedgerSpecs(t *testing.T) {
	slot := orbit.Envelope{Reservation: orbit.Resources{orbit.Slots: 1}}
	for _, spec := range []*orbit.Spec{
		{}, {Envelope: slot, Class: 99}, {Devices: orbit.DeviceRequest{Count: 1, Milli: 1001}}, {Envelope: slot, Devices: orbit.DeviceRequest{Milli: 1}},
	} {
		_, err := (&claim.LedgerSource{Spec: spec}).Idle(t.Context())
		require.ErrorIs(t, err, orbit.ErrInvalid)
	}
}

// A follower that has fallen behind the history takes a snapshot.
func TestLedgerHistoryIsCompacted(t *testing.T) {
	src := &claim.LedgerSource{Ledger: &orbit.MemoryLedger{Bounds: orbit.Limits{History: 4}}}
	for i := range 10 {
		require.NoError(t, src.Join(t.Context(), orbit.NodeID(fmt.Sprint("s", i))))
	}
	l, err := src.Follow(t.Context(), 1)
	require.NoError(t, err)
	assert.False(t, l.Partial)
	assert.Equal(t, uint64(10), l.Version)
	assert.Len(t, l.Slots, 10)
	l, err = src.Follow(t.Context(), 8)
	require.NoError(t, err)
	assert.True(t, l.Partial)
	assert.Len(t, l.Slots, 2)
	assert.Equal(t, uint64(10), l.Version)
}

// lossy is a ledger that loses answers, and sometimes the proposal itself.
type lossy struct {
	orbit.Ledger
	n atomic.Int64
}

func (l *lossy) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	switch l.n.Add(1) % 5 {
	case 0:
		return 0, fmt.Errorf("no answer: %w", orbit.ErrUnknown)
	case 1, 2:
		if _, err := l.Ledger.Propose(ctx, p); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("the answer is lost: %w", orbit.ErrUnknown)
	}
	return l.Ledger.Propose(ctx, p)
}

// On a ledger that loses three answers of five, every claim and every return has one effect. It covers SCENARIOS 4
// (I12).
func TestLedgerUnknownOutcomes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := &orbit.MemoryLedger{}
		src := &claim.LedgerSource{Ledger: &lossy{Ledger: inner}}
		r := ledgerRig(t, src, 10)
		var crowd sync.WaitGroup
		for range 20 {
			crowd.Go(func() {
				for range 10 {
					slot, err := r.Claim(soon(t))
					assert.NoError(t, err)
					time.Sleep(ms)
					assert.NoError(t, src.Return(t.Context(), slot))
				}
			})
		}
		crowd.Wait()
		synctest.Wait()
		state := snapshot(t, src)
		assert.Equal(t, 200, state.CapsuleCount())
		for n := range state.Nodes() {
			assert.Zero(t, n.Capsules)
		}
		stats := r.Stats()
		assert.Equal(t, uint64(200), stats.Claimed)
		assert.NotZero(t, stats.Unknown)
		assert.Zero(t, stats.Conflicts, "no outcome was taken for a conflict")
	})
}

// answering is a ledger whose next answers the test decides; nil stands for the ledger's own answer.
type answering struct {
	orbit.Ledger
	next []error
}

func (l *answering) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if len(l.next) == 0 || l.next[0] == nil {
		return l.Ledger.Propose(ctx, p)
	}
	err := l.next[0]
	l.next = l.next[1:]
	return 0, err
}

// ErrUnavailable after ErrUnknown does not make the outcome known.
func TestLedgerUnknownThenUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &answering{Ledger: &orbit.MemoryLedger{}}
		src := &claim.LedgerSource{Ledger: l}
		l.next = []error{orbit.ErrUnknown, orbit.ErrUnavailable}
		require.NoError(t, src.Join(t.Context(), "a"))
		assert.NotNil(t, snapshot(t, src).Node("a"))
		l.next = []error{orbit.ErrUnknown, orbit.ErrUnavailable}
		ctx, cancel := context.WithTimeout(t.Context(), 15*ms)
		defer cancel()
		assert.ErrorIs(t, src.Join(ctx, "b"), orbit.ErrUnknown)
	})
}

// Changes that concern no node are ignored. Follow waits for the next one that does.
func TestLedgerFollowsNodesOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{}
		told := make(chan claim.Listing, 1)
		go func() {
			l, err := src.Follow(context.Background(), 0)
			assert.NoError(t, err)
			told <- l
		}()
		for range 5 {
			propose(t, src.Book(), orbit.Mark{Key: "k", Value: "v"})
			synctest.Wait()
			assert.Empty(t, told)
		}
		require.NoError(t, src.Join(t.Context(), "a"))
		assert.Equal(t, claim.Listing{Slots: []claim.Slot{{Name: "a", UID: "6"}}, Partial: true, Version: 6}, <-told)
	})
}

// tardy is a ledger whose Changes has new changes only one call after Wait has returned their revision.
type tardy struct {
	orbit.Ledger
	asked bool
}

func (l *tardy) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if l.asked = !l.asked; l.asked {
		return nil, nil
	}
	return l.Ledger.Changes(ctx, after)
}

// Changes that come only after Wait has returned their revision are not missed.
func TestLedgerFollowsChangesThatComeLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{Ledger: &tardy{Ledger: &orbit.MemoryLedger{}}}
		require.NoError(t, src.Join(t.Context(), "a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l, err := src.Follow(ctx, 0)
		require.NoError(t, err)
		assert.Equal(t, claim.Listing{Slots: []claim.Slot{{Name: "a", UID: "1"}}, Partial: true, Version: 1}, l)
		_, err = src.Follow(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// Join adds more nodes than the ledger takes in one proposal.
func TestLedgerJoinsMany(t *testing.T) {
	src := &claim.LedgerSource{Ledger: &orbit.MemoryLedger{Bounds: orbit.Limits{Commitments: 40}}}
	require.NoError(t, src.Join(t.Context()))
	require.NoError(t, src.Join(t.Context(), nodes(101)...))
	listing, err := src.Idle(t.Context())
	require.NoError(t, err)
	require.Len(t, listing.Slots, 101)
}

// labelled returns a node with capacity for one claim and these labels, given as key, value, key, value.
func labelled(id orbit.NodeID, labels ...string) orbit.PutNode {
	n := orbit.Node{ID: id, Capacity: orbit.Resources{orbit.Slots: 1}, Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return orbit.PutNode{Node: n}
}

// want enqueues a request with a Want; a deadline of 0 is none.
func (r *rig) want(w claim.Want, deadline time.Duration) <-chan claim.Result {
	c := make(chan claim.Result, 2)
	req := &claim.Request{Want: w, Result: c}
	if deadline != 0 {
		req.Deadline = time.Now().Add(deadline)
	}
	require.True(r.t, r.Enqueue(req))
	clear(w.Labels) // the caller may change the request now
	clear(w.Images)
	return c
}

// A request that wants images, labels or a phase gets the slot that has been idle longest among those that have all of
// them. A request without a matching slot lets later ones pass, and its error has the wanted labels.
func TestLedgerWants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{}
		propose(t, src.Book(),
			labelled("a", "image/main", "web:1", "phase", "cold"),
			labelled("b", "image/main", "web:2", "image/log", "fluent", "phase", "warm", "zone", "x"),
			labelled("c", "image/main", "web:2", "phase", "warm", "zone", "y"),
			labelled("d", "image/main", "web:2", "phase", "warm", "zone", "x", "gpu", ""))
		r := newRig(t, &claim.Pool{Name: "web", Source: src}).run()
		images := func(kv ...string) map[string]string { return labelled("", kv...).Node.Labels }
		never := r.want(claim.Want{Images: images("main", "web:3"), Phase: "warm"}, 5*sec)
		noSuch := r.want(claim.Want{Labels: images("gpu", "none")}, 0)
		warm := r.want(claim.Want{Phase: "warm", Labels: images("zone", "y")}, 0)
		both := r.want(claim.Want{Images: images("main", "web:2", "log", "fluent")}, 0)
		gpu := r.want(claim.Want{Labels: images("gpu", "")}, 0)
		any := r.ask()
		synctest.Wait()
		for c, name := range map[<-chan claim.Result]string{warm: "c", both: "b", gpu: "d", any: "a"} {
			res := got(t, c)
			require.NoError(t, res.Err)
			assert.Equal(t, name, res.Slot.Name)
		}
		for _, a := range r.tried() {
			assert.Equal(t, a.slot == "d", len(a.req.Want.Labels) == 1 && a.req.Want.Phase == "", "what the source reads is the pool's own")
		}
		none(t, never)
		assert.Equal(t, 2, r.Snapshot().QueueLen)
		r.until(5 * sec)
		err := got(t, never).Err
		require.ErrorIs(t, err, claim.ErrEnded)
		require.ErrorIs(t, err, claim.ErrUnmatched)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, `claim: pool "web": request ended after 5s and 0 conflicts: `+
			`no idle slot has "image/main": "web:3", "phase": "warm": context deadline exceeded`, err.Error())
		r.Shutdown()
		err = got(t, noSuch).Err
		require.ErrorIs(t, err, claim.ErrShutdown)
		require.NotErrorIs(t, err, claim.ErrUnmatched)
	})
}

// A slot whose labels change while requests wait is compared with them again. A slot that loses its labels between its
// listing and its claim is a conflict, and the request gets another one.
func TestLedgerWantsFollowLabels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{Ledger: &orbit.MemoryLedger{}}
		r := ledgerRig(t, src, 3)
		c := r.want(claim.Want{Phase: "warm"}, 0)
		synctest.Wait()
		none(t, c)
		propose(t, src.Book(), labelled("s1", "phase", "warm"))
		synctest.Wait()
		assert.Equal(t, "s1", got(t, c).Slot.Name)

		propose(t, src.Book(), labelled("s0", "phase", "warm"), labelled("s2", "phase", "warm"))
		synctest.Wait()
		l, err := src.Idle(t.Context())
		require.NoError(t, err)
		propose(t, src.Book(), labelled("s0", "phase", "cold"))
		_, _, err = src.Claim(t.Context(), claim.Attempt{ID: orbit.NewProposalID(), Slot: l.Slots[0]})
		require.ErrorIs(t, err, orbit.ErrConflict, "the slot is not what it was listed as")
		assert.Equal(t, "s2", got(t, settled(r.want(claim.Want{Phase: "warm"}, 0))).Slot.Name)
		ended := r.want(claim.Want{Phase: "warm"}, ms)
		r.until(ms)
		require.ErrorIs(t, got(t, ended).Err, claim.ErrUnmatched)
		assert.Equal(t, 1, r.Snapshot().IdleReady)
	})
}

// settled returns c after everything that is due now has happened.
func settled(c <-chan claim.Result) <-chan claim.Result {
	synctest.Wait()
	return c
}

// A shortage counts only requests that no idle slot matches. ScaleUp is told their number, and slots that come for one
// want are not given to another. There can be more different wants than the pool keeps lines.
func TestLedgerWantsThatNoNodeHas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &claim.LedgerSource{}
		told := make(chan claim.Shortage, 9)
		r := newRig(t, &claim.Pool{Source: src, ScaleUp: func(_ context.Context, s claim.Shortage) error { told <- s; return nil }})
		require.NoError(t, src.Join(t.Context(), nodes(300)...))
		served := r.ask()
		for round := range 2 {
			var asked []<-chan claim.Result
			for i := range 200 {
				asked = append(asked, r.want(claim.Want{Phase: fmt.Sprint(i)}, sec))
			}
			if round == 0 {
				r.run()
				assert.Equal(t, 200, (<-told).Deficit, "the request that is served does not count")
			} else {
				synctest.Wait()
				assert.Positive(t, (<-told).Deficit, "those of the burst that came before the pool looked")
			}
			assert.Equal(t, 299, r.Snapshot().IdleReady)
			for _, i := range []int{7, 199} {
				propose(t, src.Book(), labelled(orbit.NodeID(fmt.Sprint("s", i)), "phase", fmt.Sprint(i)))
				synctest.Wait()
				slot := got(t, asked[i]).Slot
				require.Equal(t, fmt.Sprint("s", i), slot.Name)
				require.NoError(t, src.Return(t.Context(), slot))
				propose(t, src.Book(), labelled(orbit.NodeID(slot.Name)))
			}
			time.Sleep(sec)
			synctest.Wait()
			for i, c := range asked {
				if i != 7 && i != 199 {
					require.ErrorIs(t, got(t, c).Err, claim.ErrUnmatched)
				}
			}
		}
		require.NoError(t, got(t, served).Err)
		assert.Empty(t, told)
	})
}
