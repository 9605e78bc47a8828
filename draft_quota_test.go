package orbit

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// drawQueues is a ledger with a tree of queues on two nodes, with work in them, placed and pending, and perhaps more used than there is.
func drawQueues(t *rapid.T) court {
	c := court{nil, &MemoryLedger{}}
	commit(t, c, cpuNode("n", 40), cpuNode("m", 40))
	ids := []QueueID{"all", "a", "b", "c"}
	for i, id := range ids {
		q := Queue{ID: id, Nominal: map[string]int64{"cpu": rapid.Int64Range(0, 8).Draw(t, "nominal")}, Weight: rapid.Int64Range(0, 2).Draw(t, "weight")}
		if i > 0 {
			q.Parent = rapid.SampledFrom(ids[:i]).Draw(t, "parent")
		}
		if rapid.Bool().Draw(t, "bound") {
			q.Borrow = map[string]int64{"cpu": rapid.Int64Range(0, 4).Draw(t, "borrow")}
		}
		if rapid.Bool().Draw(t, "keeps") {
			q.Lend = map[string]int64{"cpu": rapid.Int64Range(0, 4).Draw(t, "lend")}
		}
		commit(t, c, PutQueue{q})
	}
	for i := range 10 {
		spec := queued(rapid.SampledFrom(append(ids, "")).Draw(t, "queue"), rapid.Int64Range(0, 6).Draw(t, "size"))
		spec.Priority, spec.Movable = rapid.Int32Range(0, 1).Draw(t, "priority"), true
		id := CapsuleID(fmt.Sprint("c", i))
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			commit(t, c, Adopt{Capsule: id, Node: "n", Spec: spec})
		case 1:
			commit(t, c, submitOf(spec, id))
			_, _ = c.Propose(bg, Proposal{Do: []Commitment{placeOn(id, "m")}})
		default:
			commit(t, c, submitOf(spec, id))
		}
	}
	return c
}

// TestDraftKeepsQuotas: what a draft takes is refused by no quota, and what it refuses because of one the ledger refuses with the same words.
func TestDraftKeepsQuotas(t *testing.T) {
	for reached := range scale.Reach(t, "taken", "refused") {
		rapid.Check(t, func(t *rapid.T) {
			c := drawQueues(t)
			s := snapshotOf(t, c)
			require.NoError(t, s.Verify())
			v, _ := viewOf(t, c, nil)
			var d Draft
			d.Sync(v)
			var do []Commitment
			for range rapid.IntRange(1, 8).Draw(t, "steps") {
				from := d.Checkpoint()
				id := CapsuleID(fmt.Sprint("c", rapid.IntRange(0, 9).Draw(t, "who")))
				known := s.Capsule(id)
				var step []Commitment
				var err error
				switch rapid.IntRange(0, 4).Draw(t, "step") {
				case 0:
					step = []Commitment{Release{Capsule: id, Final: true}}
					err = d.Release(Release{Capsule: id, Final: true})
				case 1:
					grown := known.Spec.Clone()
					grown.Envelope.Reservation[CPU] = rapid.Int64Range(0, 6).Draw(t, "resized")
					step = []Commitment{Respec{Capsule: id, Since: known.PlacedAt, Spec: grown}}
					err = d.Respec(Respec{Capsule: id, Spec: grown})
				case 2:
					if d.Checkpoint() > 0 && rapid.Bool().Draw(t, "back") { // what was undone leaves no trace
						d.Rollback(from - 1)
						do = do[:len(d.log)]
					}
					continue
				default:
					step = []Commitment{placeOn(id, "n")}
					err = d.Place(known, Choice{Node: s.Node("n")})
				}
				var r *Rejection
				if errors.As(err, &r) && r.Queue != "" {
					reached["refused"]++
					var theirs *Rejection
					require.ErrorAs(t, s.Check(Proposal{View: s.Revision(), Do: append(append([]Commitment{}, do...), step...)}), &theirs, "a draft refuses with: %v", err)
					require.NotEmpty(t, theirs.Queue)
					if theirs.Capsule != r.Capsule { // an earlier arrival has too little by the sum, too, and the ledger names the first
						continue
					}
					require.Equal(t, []any{r.Queue, r.Level, r.Borrowers, r.Reason}, []any{theirs.Queue, theirs.Level, theirs.Borrowers, theirs.Reason})
					continue
				}
				if err == nil {
					do = append(do, step...)
					reached["taken"]++
				}
			}
			for _, id := range []QueueID{"all", "a", "b", "c"} {
				require.NoError(t, checkStanding(s, &d, do, id))
			}
			if p := d.Propose(); len(p.Do) > 0 {
				require.NoError(t, s.Check(p))
			}
		})
	}
}

// TestDraftKeepsQuotasOfEarlierSteps: a step by which a root is as full as before the proposal, and too full, leaves nothing to what an earlier
// step has let grow.
func TestDraftKeepsQuotasOfEarlierSteps(t *testing.T) {
	c := newCourt(t, cpuNode("n", 40), cpuQueue("all", "", 0), cpuQueue("a", "all", 2), cpuQueue("b", "all", 6))
	for id, spec := range map[CapsuleID]*Spec{"done": queued("all", 3), "other": queued("all", 2), "mine": queued("a", 4)} {
		c.commits(Adopt{Capsule: id, Node: "n", Spec: spec})
	}
	v, _ := viewOf(t, c, nil)
	s := v.State()
	grow := func(id CapsuleID, cpu int64) Respec {
		spec := s.Capsule(id).Spec.Clone()
		spec.Envelope.Reservation[CPU] = cpu
		return Respec{Capsule: id, Since: s.Capsule(id).PlacedAt, Spec: spec}
	}
	var d Draft
	d.Sync(v)
	do := []Commitment{Release{Capsule: "done", Final: true}, grow("mine", 6), grow("other", 3)}
	require.ErrorContains(t, s.Check(Proposal{View: s.Revision(), Do: do}), `queue "a" lacks`)
	require.NoError(t, d.Release(do[0].(Release)))
	require.NoError(t, d.Respec(do[1].(Respec)))
	require.ErrorContains(t, d.Respec(do[2].(Respec)), `queue "a" lacks`)
	require.NoError(t, s.Check(d.Propose()))
}

// TestDraftSaysWhatAQueueLacks: a draft names the amount that the ledger names, also for growth in a queue that keeps all its own.
func TestDraftSaysWhatAQueueLacks(t *testing.T) {
	keeps := Queue{ID: "keeps", Parent: "all", Nominal: map[string]int64{"cpu": 6}, Lend: map[string]int64{"cpu": 0}}
	c := newCourt(t, cpuNode("n", 40), cpuQueue("all", "", 0), PutQueue{keeps}, Adopt{Capsule: "other", Node: "n", Spec: queued("all", 6)},
		Adopt{Capsule: "mine", Node: "n", Spec: queued("keeps", 2)})
	v, _ := viewOf(t, c, nil)
	mine := v.State().Capsule("mine")
	spec := mine.Spec.Clone()
	spec.Envelope.Reservation[CPU] = 5
	grow := Respec{Capsule: "mine", Since: mine.PlacedAt, Spec: spec}
	var d Draft
	d.Sync(v)
	require.ErrorContains(t, v.State().Check(Proposal{Do: []Commitment{grow}}), "lacks 0.005 cores")
	require.ErrorContains(t, d.Respec(grow), "lacks 0.005 cores")
}

// The same beside an earlier step of the proposal. Without that step the work in the middle queue would need the root, which the plan
// does not change.
func TestDraftSaysWhatAQueueLacksBesideOtherSteps(t *testing.T) {
	middle := Queue{ID: "middle", Parent: "all", Nominal: map[string]int64{"cpu": 3}, Lend: map[string]int64{"cpu": 0}}
	keeps := Queue{ID: "keeps", Parent: "middle", Nominal: map[string]int64{"cpu": 6}, Lend: map[string]int64{"cpu": 0}, Borrow: map[string]int64{"cpu": 0}}
	c := newCourt(t, cpuNode("n", 40), cpuQueue("all", "", 20), PutQueue{middle}, PutQueue{keeps},
		Adopt{Capsule: "done", Node: "n", Spec: queued("keeps", 4)}, Adopt{Capsule: "mine", Node: "n", Spec: queued("keeps", 2)})
	v, _ := viewOf(t, c, nil)
	mine := v.State().Capsule("mine")
	spec := mine.Spec.Clone()
	spec.Envelope.Reservation[CPU] = 8
	do := []Commitment{Release{Capsule: "done", Final: true}, Respec{Capsule: "mine", Since: mine.PlacedAt, Spec: spec}}
	var d Draft
	d.Sync(v)
	require.NoError(t, d.Release(do[0].(Release)))
	var ledger, draft *Rejection
	require.ErrorAs(t, v.State().Check(Proposal{Do: do}), &ledger)
	require.ErrorAs(t, d.Respec(do[1].(Respec)), &draft)
	require.Contains(t, ledger.Reason, "lacks 0.002 cores")
	require.Contains(t, draft.Reason, "lacks 0.002 cores")
}

// checkStanding compares a queue as the draft shows it with what it is once the steps are committed.
func checkStanding(s *State, d *Draft, do []Commitment, id QueueID) error {
	var p tx
	if len(do) == 0 {
		return nil
	}
	proposal := Proposal{View: s.Revision(), Do: do}.Clone()
	if err := proposal.check(&s.limits); err != nil {
		return err
	}
	if _, err := p.run(s, s.rev+1, &proposal); err != nil {
		return err
	}
	next := s.thaw()
	next.publish(&p)
	want, _ := next.Queue(id)
	if got, _ := d.Queue(id); got.Used()["cpu"] != want.Used()["cpu"] || got.Share() != want.Share() || got.Available()["cpu"] != want.Available()["cpu"] {
		return fmt.Errorf("queue %q: the draft uses %v, the ledger %v", id, got.Used(), want.Used())
	}
	return next.Verify()
}

// TestDraftReclaims: a draft judges evictions between queues as the ledger does, and what an earlier proposal frees serves no later one.
func TestDraftReclaims(t *testing.T) {
	c := newCourt(t, cpuNode("n", 10), cpuNode("m", 10), cpuQueue("all", "", 0), cpuQueue("a", "all", 4), cpuQueue("b", "all", 6),
		submitOf(queued("b", 5), "b1", "b2"), submitOf(queued("a", 4), "a1", "a2"), submitOf(queued("a", 1), "a3"))
	c.commits(placeOn("b1", "n"), placeOn("b2", "n"))
	v, _ := viewOf(t, c, nil)
	var d Draft
	d.Sync(v)
	s := c.now()
	var r *Rejection
	require.ErrorAs(t, d.Place(s.Capsule("a3"), Choice{Node: s.Node("m")}), &r)
	require.Equal(t, `queue "a" lacks 0.001 cores at queue "all"; borrowed by "b"`, r.Reason)
	require.NoError(t, d.Evict(Evict{Capsule: "b1", For: "a1"}))
	require.NoError(t, d.Place(s.Capsule("a1"), Choice{Node: s.Node("n")}))
	q, _ := d.Queue("all")
	require.Equal(t, int64(9), q.Used()["cpu"])
	p := d.Propose()
	require.ErrorAs(t, d.Place(s.Capsule("a3"), Choice{Node: s.Node("m")}), &r, "the proposal may be refused")
	require.NoError(t, d.Evict(Evict{Capsule: "b2", For: "a3"}))
	require.ErrorAs(t, d.Place(s.Capsule("a3"), Choice{Node: s.Node("n")}), &r)
	require.Contains(t, r.Reason, "does not make way")
	_, err := c.Propose(bg, p)
	require.NoError(t, err)
}

// TestDraftReservesBesideMoves: a move takes nothing back for the capsule for which room is reserved beside it.
func TestDraftReservesBesideMoves(t *testing.T) {
	moves := queued("b", 5)
	moves.Movable = true
	c := newCourt(t, cpuNode("n", 10), cpuNode("m", 10), cpuQueue("all", "", 0), cpuQueue("a", "all", 4), cpuQueue("b", "all", 6), submitOf(moves, "b1"))
	c.commits(placeOn("b1", "n"))
	v, _ := viewOf(t, c, nil)
	var d Draft
	d.Sync(v)
	require.NoError(t, d.Evict(Evict{Capsule: "b1"}))
	require.NoError(t, d.Reserve(queued("a", 1), Choice{Node: v.State().Node("m")}))
}

// TestQueuesPark: what lacks quota is parked, costs nothing while other trees change, and comes back when its own tree has enough.
func TestQueuesPark(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, cpuNode("n", 1_000_000))
	const trees, each = 100, 10
	for i := range trees {
		id := QueueID(fmt.Sprint("q", i))
		commit(t, l, cpuQueue(id, "", 1), submitOf(queued(id, 1), CapsuleID(fmt.Sprint("first", i))), placeOn(CapsuleID(fmt.Sprint("first", i)), "n"),
			Submit{IDs: append(names(fmt.Sprint(id, "-"), each), CapsuleID(id)), Spec: queued(id, 1)})
	}
	v, _ := viewOf(t, l, nil)
	var d Draft
	d.Sync(v)
	q := &queue{}
	q.clear(v.state)
	for slot, c := range v.state.capsuleSlots() {
		q.push(slot, c)
	}
	for i := range trees {
		_, _, err := d.withinQuota(v.state.Capsule(CapsuleID(fmt.Sprint("q", i))).Spec)
		var nofit *NoFit
		require.ErrorAs(t, err, &nofit)
		require.Equal(t, QueueID(fmt.Sprint("q", i)), nofit.Quota().Level)
		require.True(t, q.park(&misfitting{spec: v.state.Capsule(CapsuleID(fmt.Sprint("q", i))).Spec, nowhere: true, quota: true}, time.Unix(1<<40, 0)))
	}
	refresh := func(do ...Commitment) (woken bool) {
		commit(t, l, do...)
		was := v.state
		v.state = snapshotOf(t, l)
		q.state, q.former = v.state, was
		for i := range do {
			woken = q.reconsider(&Change{Revision: v.state.rev, Do: do[i], Node: "n"}, false) || woken
		}
		return woken
	}
	require.False(t, refresh(submitOf(cpuSpec(1), "x"), placeOn("x", "n")))
	require.False(t, refresh(Release{Capsule: "x", Final: true}))
	require.Zero(t, q.parked.weighed)
	require.True(t, refresh(Release{Capsule: "first7", Final: true}))
	require.Equal(t, 1, q.parked.weighed)
	require.Len(t, q.parked.spots, trees-1)
	require.True(t, refresh(cpuQueue("q8", "", 2)))
	require.Len(t, q.parked.spots, trees-2)
	require.Equal(t, trees, q.parked.weighed)
}
