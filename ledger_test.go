package orbit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// court is a ledger with what tests say again and again.
type court struct {
	*testing.T
	*MemoryLedger
}

func newCourt(t *testing.T, do ...Commitment) court {
	c := court{t, &MemoryLedger{}}
	if len(do) > 0 {
		c.commits(do...)
	}
	return c
}

// now is the state at this moment.
func (c court) now() *State {
	s, err := c.Snapshot(bg)
	require.NoError(c, err)
	return s
}

// commits proposes on the newest view and requires success.
func (c court) commits(do ...Commitment) Revision {
	c.Helper()
	rev, err := c.Propose(bg, Proposal{View: c.now().Revision(), Do: do})
	require.NoError(c, err)
	require.NoError(c, c.now().Verify())
	return rev
}

// refuses proposes and requires this kind of rejection, which changes nothing.
func (c court) refuses(kind error, p Proposal) *Rejection {
	c.Helper()
	before := textOf(c.live)
	rev, err := c.Propose(bg, p)
	require.ErrorIs(c, err, kind)
	require.Zero(c, rev)
	var r *Rejection
	require.ErrorAs(c, err, &r)
	require.Empty(c, diffLines(textOf(c.live), before), "a rejected proposal changes nothing")
	return r
}

// mistakes requires that the commitments are infeasible on the newest view.
func (c court) mistakes(do ...Commitment) *Rejection {
	c.Helper()
	return c.refuses(ErrInfeasible, Proposal{View: c.now().Revision(), Do: do})
}

func cpuSpec(n int64) *Spec { return &Spec{Envelope: Envelope{Reservation: Resources{CPU: n}}} }

// movable is cpuSpec with the consent to moves.
func movable(n int64) *Spec {
	s := cpuSpec(n)
	s.Movable = true
	return s
}

// evictionOf takes a capsule off the node that it is on.
func evictionOf(s *State, id CapsuleID) Evict {
	c := s.Capsule(id)
	return Evict{Capsule: id, From: c.Node, Since: c.PlacedAt}
}

// drainedNode is cpuNode, cordoned; lostNode is a node that is lost.
func drainedNode(id NodeID, room int64) PutNode {
	n := cpuNode(id, room)
	n.Node.State = Cordoned
	return n
}

func lostNode(id NodeID) PutNode { return PutNode{Node{ID: id, State: Lost}} }

func gpuSpec(count, each int) *Spec { return &Spec{Devices: DeviceRequest{Count: count, Milli: each}} }

func cpuNode(id NodeID, room int64) PutNode {
	return PutNode{Node{ID: id, Capacity: Resources{CPU: room}, Labels: map[string]string{"rack": "r-" + string(id)}}}
}

func gpuNode(id NodeID, devices int) PutNode {
	return PutNode{Node{ID: id, Devices: Devices{Model: "A100", Count: devices}}}
}

func submitOf(spec *Spec, ids ...CapsuleID) Submit { return Submit{IDs: ids, Spec: spec} }

func placeOn(c CapsuleID, n NodeID) Place { return Place{Capsule: c, Node: n} }

func holdOf(id HoldID, n NodeID, room int64) Hold {
	return Hold{ID: id, Node: n, Room: Resources{CPU: room}, Ends: time.Unix(1e9, 0).UTC()}
}

func gangOf(id GangID, least int, ids ...CapsuleID) Submit {
	return Submit{Gang: &Gang{ID: id, Roles: []Role{{Name: "crew", Spec: cpuSpec(1), Members: ids, Min: least}}}}
}

func idOf(n byte) ProposalID { return ProposalID{n} }

// ---- receipts ----

// TestReceiptOfConflict: which bet or rule, node and dimension, wanted against free, the state judged, which
// commit took it; and the text says what to do.
func TestReceiptOfConflict(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(3), "a", "b"))
	view := c.now().Revision()
	rev, err := c.Propose(bg, Proposal{ID: idOf(7), View: view, Do: []Commitment{placeOn("a", "n")}})
	require.NoError(t, err)
	c.commits(Mark{Key: "m", Value: "v"})

	r := c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{Mark{Key: "x"}, placeOn("b", "n")}})
	require.Equal(t, &Rejection{Kind: ErrConflict, Do: 1, Reason: r.Reason, Node: "n", Dimension: "cpu", dimension: 1,
		Want: 3, Free: 2, At: rev + 1, TakenAt: rev, TakenBy: idOf(7)}, r)
	require.Equal(t, `orbit: conflict: commitment 1: node "n" is short: wants 0.003 cores, 0.002 free; changed at revision 2; plan again on a view at 3 or later`, r.Error())

	bet := NodeFreeOf{"n", Resources{CPU: 4}}
	r = c.refuses(ErrConflict, Proposal{View: view, If: []Precondition{MarkAt{"m", rev + 1}, bet}, Do: []Commitment{Mark{Key: "x"}}})
	require.Equal(t, &Rejection{Kind: ErrConflict, Bet: bet, Do: -1, Reason: r.Reason, Node: "n", Dimension: "cpu", dimension: 1,
		Want: 4, Free: 2, At: rev + 1, TakenAt: rev, TakenBy: idOf(7)}, r)
	require.Contains(t, r.Error(), "bet orbit.NodeFreeOf")
}

// TestReceiptOfInfeasible: the same, nothing being newer than the view; and the text says so.
func TestReceiptOfInfeasible(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(3), "a", "b"))
	r := c.mistakes(placeOn("a", "n"), placeOn("b", "n"))
	require.Equal(t, &Rejection{Kind: ErrInfeasible, Do: 1, Reason: r.Reason, Node: "n", Dimension: "cpu", dimension: 1, Want: 6, Free: 5, At: 1, TakenAt: 1}, r)
	require.ErrorContains(t, r, "wants 0.006 cores, 0.005 free; nothing it rests on has changed since its view; correct the plan")
}

// TestReceiptOfBytes: amounts are in the units that people read, and rounded so that the difference is seen.
func TestReceiptOfBytes(t *testing.T) {
	node := PutNode{Node: Node{ID: "n", Capacity: Resources{Memory: 64 << 30}}}
	for bytes, text := range map[int64]string{
		80 << 30:   "wants 80 GiB of memory, 64 GiB free",
		64<<30 + 1: "wants 64.01 GiB of memory, 64 GiB free",
	} {
		c := newCourt(t, node, submitOf(&Spec{Envelope: Envelope{Reservation: Resources{Memory: bytes}}}, "a"))
		require.ErrorContains(t, c.mistakes(placeOn("a", "n")), text)
	}
	require.Contains(t, (&Rejection{Kind: ErrConflict, Dimension: "disk", dimension: Disk + 1, Want: 1 << 20, Free: 1<<20 - 1}).Error(), "wants 1 MiB of disk, 1023.99 KiB free")
}

// TestReceiptOfTakenIDs: planning again makes no id free, so the text says what does help, whatever the kind.
func TestReceiptOfTakenIDs(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(1), "a"), gangOf("g", 1, "b"), holdOf("h", "n", 1))
	for _, taken := range []Commitment{submitOf(cpuSpec(1), "a"), gangOf("g", 1, "c"), holdOf("h", "n", 1)} {
		r := c.refuses(ErrConflict, Proposal{Do: []Commitment{taken}})
		require.Regexp(t, `already.*; changed at revision \d; choose another id`, r.Error())
		require.Regexp(t, `already.*; nothing it rests on has changed since its view; choose another id`, c.mistakes(taken).Error())
	}
}

// TestReceiptOfFaults: each commitment and each bet is named once, before its faults, and no consequence of a fault is listed.
func TestReceiptOfFaults(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5))
	r := c.refuses(ErrInvalid, Proposal{If: []Precondition{GroupIn{}}, Do: []Commitment{Place{}, Mark{Key: "m"}, Place{}}})
	require.EqualError(t, r, "orbit: invalid: bet 0: empty group; empty level; empty domain; "+
		"commitment 0: empty capsule id; empty node id; commitment 2: empty capsule id; empty node id")
	both := submitOf(cpuSpec(1), "a")
	both.Gang = &Gang{ID: "g"}
	r = c.refuses(ErrInvalid, Proposal{Do: []Commitment{both}})
	require.EqualError(t, r, "orbit: invalid: commitment 0: submit names a gang and also capsules; it needs exactly one of them")
}

// TestReceiptOfGang: no single commitment is at fault.
func TestReceiptOfGang(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), gangOf("g", 2, "a", "b"))
	r := c.mistakes(placeOn("a", "n"), Mark{Key: "m", Value: "v"})
	require.Equal(t, -1, r.Do, "-1: all together")
	require.ErrorContains(t, r, `gang "g": role "crew" would have 1 members placed, at least 2 must be at first`)
}

// TestReceiptOfDevice: the instance is named.
func TestReceiptOfDevice(t *testing.T) {
	c := newCourt(t, gpuNode("n", 2), submitOf(gpuSpec(1, 600), "a", "b"))
	r := c.mistakes(Place{Capsule: "a", Node: "n", Devices: 2}, Place{Capsule: "b", Node: "n", Devices: 2})
	require.Equal(t, "device 1", r.Dimension)
	require.EqualValues(t, 1200, r.Want)
	require.EqualValues(t, 1000, r.Free)
}

// TestReceiptNames: dimensions are called what the importer calls them.
func TestReceiptNames(t *testing.T) {
	l := &MemoryLedger{Dimensions: [Dimensions]string{4: "licences"}}
	spec := &Spec{Envelope: Envelope{Reservation: Resources{4: 1}}}
	_, err := l.Propose(bg, Proposal{Do: []Commitment{cpuNode("n", 1), submitOf(spec, "a"), placeOn("a", "n")}})
	require.ErrorContains(t, err, "wants 1 of licences, 0 free")
}

// ---- ids ----

// TestSameProposalTwice: one effect, the same revision, with a Place and without, in a batch too.
func TestSameProposalTwice(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(1), "a"))
	for _, p := range []Proposal{
		{ID: idOf(1), Do: []Commitment{placeOn("a", "n")}},
		{ID: idOf(2), Do: []Commitment{Mark{Key: "m", Value: "v"}}},
	} {
		rev, err := c.Propose(bg, p)
		require.NoError(t, err)
		c.commits(Mark{Key: "between", Value: "v"})
		before := textOf(c.live)
		again, err := c.Propose(bg, p)
		require.NoError(t, err)
		require.Equal(t, rev, again)
		require.Equal(t, []Outcome{{Revision: rev}, {Revision: rev}}, c.ProposeBatch(bg, []Proposal{p, p}))
		require.NoError(t, c.now().Check(p))
		require.Empty(t, diffLines(textOf(c.live), before))
	}
}

// TestSameProposalAfterRelease: the id stays in the record, so what was undone is not done again.
func TestSameProposalAfterRelease(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(1), "a"))
	p := Proposal{ID: idOf(1), Do: []Commitment{placeOn("a", "n")}}
	rev, err := c.Propose(bg, p)
	require.NoError(t, err)
	c.commits(Release{Capsule: "a", Stopped: true})
	again, err := c.Propose(bg, p)
	require.NoError(t, err)
	require.Equal(t, rev, again)
	require.True(t, c.now().Capsule("a").Pending())
}

// TestZeroIDOptsOut: without an id nothing is recognised.
func TestZeroIDOptsOut(t *testing.T) {
	c := newCourt(t)
	require.Less(t, c.commits(Mark{Key: "m", Value: "v"}), c.commits(Mark{Key: "m", Value: "v"}))
}

// TestWindowOfIDs: ids are kept for as long as the limits say.
func TestWindowOfIDs(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{ProposalIDs: 2}}
	mark := func(n byte) Revision {
		rev, err := l.Propose(bg, Proposal{ID: idOf(n), Do: []Commitment{Mark{Key: "m", Value: "v"}}})
		require.NoError(t, err)
		return rev
	}
	require.Equal(t, []Revision{1, 2, 1, 2, 3, 2, 4}, []Revision{mark(1), mark(2), mark(1), mark(2), mark(3), mark(2), mark(1)})
	require.Equal(t, 2, l.live.recent.Len(), "what is forgotten takes no room")
}

// TestIDsAreUsedAgain: when the record of a released capsule is dropped, the id of its gang is free for a gang of others.
func TestIDsAreUsedAgain(t *testing.T) {
	c := newCourt(t)
	c.Bounds = Limits{Terminal: 1}
	c.commits(gangOf("g", 0, "a"), submitOf(cpuSpec(1), "b"))
	c.mistakes(submitOf(cpuSpec(1), "a"))
	c.commits(Release{Capsule: "a", Final: true})
	c.mistakes(gangOf("g", 0, "x"))
	c.commits(Release{Capsule: "b", Final: true})
	require.Nil(t, c.now().Capsule("a"))
	require.Nil(t, c.now().Gang("g"))
	c.commits(gangOf("g", 0, "a"))
	require.True(t, c.now().Capsule("a").Pending())
}

// TestPlacementOfAnIDUsedAgain: what was feasible in its view, and is not because another capsule has the id by now, is
// a conflict; what is not feasible for what the id was in the view either is a mistake.
func TestPlacementOfAnIDUsedAgain(t *testing.T) {
	for what, spec := range map[string]*Spec{
		"devices":  {Devices: DeviceRequest{Count: 1, Milli: 1}},
		"a model":  {Devices: DeviceRequest{Count: 1, Milli: 1, Models: []string{"other"}}},
		"room":     cpuSpec(11),
		"far more": cpuSpec(math.MaxInt64),
		"a label":  {Require: []Predicate{{Key: "k", Op: "Exists"}}},
	} {
		l := &MemoryLedger{Bounds: Limits{Terminal: 1}}
		n := cpuNode("n", 10)
		n.Node.Devices = Devices{Model: "m", Count: 2}
		commit(t, l, n, submitOf(cpuSpec(1), "x", "y", "z"), Place{Capsule: "z", Node: "n"})
		p := Proposal{View: snapshotOf(t, l).Revision(), Do: []Commitment{Place{Capsule: "x", Node: "n", Devices: DeviceSet(btoi(what == "a model"))}}}
		commit(t, l, Release{Capsule: "x", Final: true})
		commit(t, l, Release{Capsule: "y", Final: true})
		again := commit(t, l, submitOf(spec, "x"))
		_, err := l.Propose(bg, p)
		require.ErrorIs(t, err, ErrConflict, what)
		var r *Rejection
		require.ErrorAs(t, err, &r)
		require.Equal(t, again, r.TakenAt, what)
		commit(t, l, Assign{Capsule: "x", Owner: "me"}) // changes the record, and nothing that the placement rests on
		p.View = again
		_, err = l.Propose(bg, p)
		require.ErrorIs(t, err, ErrInfeasible, what)
	}
}

// TestManyDropped: more records than the window has room for leave in one proposal.
func TestManyDropped(t *testing.T) {
	c := newCourt(t)
	c.Bounds = Limits{Terminal: 2}
	var ids []CapsuleID
	var releases []Commitment
	for i := range 20 {
		ids = append(ids, CapsuleID(fmt.Sprint("c", i)))
		releases = append(releases, Release{Capsule: ids[i], Final: true})
	}
	c.commits(gangOf("g", 0, ids[:10]...), submitOf(cpuSpec(1), ids[10:]...))
	c.commits(releases...)
	require.Equal(t, 2, c.now().CapsuleCount())
	c.commits(submitOf(cpuSpec(1), ids[:18]...))
	require.Equal(t, 18, c.now().PendingCount())
}

// ---- history ----

// TestChangesAreBounded: past the limit Changes says ErrCompacted, exactly then.
func TestChangesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &MemoryLedger{Bounds: Limits{History: rapid.IntRange(1, 6).Draw(t, "history")}}
		var all []Change
		for range rapid.IntRange(0, 12).Draw(t, "commits") {
			var do []Commitment
			for range rapid.IntRange(1, 3).Draw(t, "size") {
				do = append(do, Mark{Key: "m", Value: "v"})
			}
			rev, err := l.Propose(bg, Proposal{Do: do})
			require.NoError(t, err)
			for i := range do {
				all = append(all, Change{Revision: rev, Seq: i, Do: do[i]})
			}
		}
		var floor Revision
		if lost := len(all) - l.Limits().History; lost > 0 {
			floor = all[lost-1].Revision
		}
		for after := range Revision(14) {
			got, err := l.Changes(bg, after)
			if after < floor {
				require.ErrorIs(t, err, ErrCompacted)
				continue
			}
			require.NoError(t, err)
			at := slices.IndexFunc(all, func(c Change) bool { return c.Revision > after })
			if at < 0 {
				require.Nil(t, got, "nil: nothing new")
				continue
			}
			require.Equal(t, all[at:], got)
		}
	})
}

// TestChangesNameNodes: a change says which node it touched, a release the one that was left.
func TestChangesNameNodes(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(1), "a"))
	after := c.commits(placeOn("a", "n"), holdOf("h", "n", 1), Mark{Key: "m", Value: "v"}, Release{Capsule: "a"}, Release{Hold: "h"},
		Release{Capsule: "a", Final: true}, RemoveNode{Node: "n"}) - 1
	changes, err := c.Changes(bg, after)
	require.NoError(t, err)
	var nodes []NodeID
	for i, ch := range changes {
		nodes = append(nodes, ch.Node)
		require.Equal(t, i, ch.Seq)
	}
	require.Equal(t, []NodeID{"n", "n", "", "n", "n", "", "n"}, nodes)
}

// TestApplyJudgesNothing: a history may have been judged by rules that were not as strict as those of today. It is applied as it is, and the state is sound.
func TestApplyJudgesNothing(t *testing.T) {
	gang := Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: cpuSpec(1), Members: []CapsuleID{"g1", "g2"}}}}}
	apart := cpuSpec(1)
	apart.Group, apart.Apart = "g", []Apart{{Group: "g", Level: "rack"}}
	lost, cordoned, tainted := cpuNode("n", 3), cpuNode("n", 3), cpuNode("n", 3)
	lost.Node.State, cordoned.Node.State = Lost, Cordoned
	tainted.Node.Taints = []Taint{{Key: "k", Effect: "NoSchedule"}}
	end := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		there []Commitment
		// What is committed in one proposal; its Since is filled in where it is 0.
		do []Commitment
	}{
		"a node is short":                {[]Commitment{submitOf(cpuSpec(9), "a")}, []Commitment{placeOn("a", "n")}},
		"a node is unschedulable":        {[]Commitment{cordoned, submitOf(cpuSpec(1), "a")}, []Commitment{placeOn("a", "n")}},
		"a taint":                        {[]Commitment{tainted, submitOf(cpuSpec(1), "a")}, []Commitment{placeOn("a", "n")}},
		"a hold on a cordoned node":      {[]Commitment{cordoned}, []Commitment{holdOf("h", "n", 1)}},
		"a lost node is back":            {[]Commitment{lost}, []Commitment{cpuNode("n", 3)}},
		"a rule of company":              {[]Commitment{submitOf(apart, "a", "b")}, []Commitment{placeOn("a", "n"), placeOn("b", "n")}},
		"a gang below its minimum":       {[]Commitment{gang}, []Commitment{placeOn("g1", "n")}},
		"another owner":                  {[]Commitment{submitOf(cpuSpec(1), "a")}, []Commitment{Assign{Capsule: "a", From: "x", Owner: "y"}}},
		"a move without consent":         {[]Commitment{submitOf(cpuSpec(1), "a"), placeOn("a", "n")}, []Commitment{Evict{Capsule: "a", From: "n"}, placeOn("a", "m")}},
		"a move that names its revision": {[]Commitment{submitOf(cpuSpec(1), "a")}, []Commitment{placeOn("a", "n"), Evict{Capsule: "a", From: "n"}, placeOn("a", "m")}},
		"a move without a new place":     {[]Commitment{submitOf(cpuSpec(1), "a"), placeOn("a", "n")}, []Commitment{Evict{Capsule: "a", From: "n"}}},
		"a return from a ready node":     {[]Commitment{submitOf(cpuSpec(1), "a"), placeOn("a", "n")}, []Commitment{Release{Capsule: "a"}}},
		"a budget":                       {[]Commitment{submitOf(apart, "a"), placeOn("a", "n"), PutBudget{Budget{ID: "b", Group: "g", Expected: 1}}, cordoned}, []Commitment{Release{Capsule: "a"}}},
		"a nomination of a gang that ended": {[]Commitment{gang, Release{Capsule: "g1", Final: true}, Release{Capsule: "g2", Final: true}},
			[]Commitment{Nominate{Gang: "g", Parts: []NominatedRoom{partOn("n", 1)}, Ends: end}}},
		"a nomination that asks for more": {[]Commitment{submitOf(cpuSpec(1), "a")}, []Commitment{Nominate{Capsule: "a", Parts: []NominatedRoom{partOn("n", 3), partOn("m", 3)}, Ends: end, Aged: 1 << 20}}},
		"a long id":                       {nil, []Commitment{submitOf(cpuSpec(1), CapsuleID(strings.Repeat("x", 1<<10)))}},
		"a long value":                    {nil, []Commitment{Mark{Key: "k", Value: strings.Repeat("x", 1<<16)}}},
	} {
		t.Run(name, func(t *testing.T) {
			court := newCourt(t, append([]Commitment{cpuNode("n", 3), cpuNode("m", 3)}, c.there...)...)
			state := court.now()
			changes := []Change{}
			for i, do := range c.do {
				if e, is := do.(Evict); is {
					if e.Since = state.Revision() + 1; state.Capsule(e.Capsule).Placed() {
						e.Since = state.Capsule(e.Capsule).PlacedAt
					}
					do = e
				}
				changes = append(changes, Change{Revision: state.Revision() + 1, Seq: i, Do: do})
			}
			next, err := state.Apply(changes)
			require.NoError(t, err)
			if name == "a node is short" { // opens, but is reported
				require.ErrorContains(t, next.Verify(), "oversubscribed")
			} else {
				require.NoError(t, next.Verify())
			}
			if g := next.Gang("g"); g != nil && g.ended() {
				require.False(t, g.Nomination.Lives(), "it would claim room for good")
			}
			follower := &MemoryLedger{Bounds: court.Bounds}
			all, err := court.Changes(bg, 0)
			require.NoError(t, err)
			require.NoError(t, follower.Apply(append(all, changes...)))
			require.Empty(t, diffStates(next, follower.live))
			proposed := Proposal{}
			for _, change := range changes {
				proposed.Do = append(proposed.Do, change.Do)
			}
			_, err = court.Propose(bg, proposed)
			require.Error(t, err, "the rules of today")
		})
	}
}

// TestApplyPlacesWhereNothingWaits: the history of a ledger that did not yet know remains may place a capsule on a node without an agent while it still runs elsewhere.
func TestApplyPlacesWhereNothingWaits(t *testing.T) {
	agent := cpuNode("e", 2)
	agent.Node.Confirms = true
	c := newCourt(t, agent, cpuNode("n", 2), Adopt{Capsule: "a", Spec: cpuSpec(1), Node: "e"})
	agent.Node.State = Cordoned
	c.commits(agent)
	c.commits(Release{Capsule: "a"})
	require.NotNil(t, c.now().Capsule("a").Remains())
	c.refuses(ErrConflict, Proposal{Do: []Commitment{placeOn("a", "n")}})
	next, err := c.now().Apply([]Change{{Revision: c.now().Revision() + 1, Do: placeOn("a", "n")}})
	require.NoError(t, err)
	require.NoError(t, next.Verify())
	require.True(t, next.Capsule("a").Placed())
}

// TestApplyRefusesGaps: a mirror takes its ledger's history in order, and refuses what cannot be part of it.
func TestApplyRefusesGaps(t *testing.T) {
	c := newCourt(t, cpuNode("n", 1), submitOf(cpuSpec(1), "a", "b"))
	start := c.now()
	c.commits(placeOn("a", "n"))
	changes, err := c.Changes(bg, 0)
	require.NoError(t, err)
	_, err = start.Apply(changes)
	require.ErrorIs(t, err, ErrInvalid, "what is in the state already")
	mirror, err := start.Apply(changes[2:])
	require.NoError(t, err)
	require.Empty(t, diffStates(mirror, c.live))
	_, err = mirror.Apply([]Change{{Revision: 9, Do: placeOn("x", "n")}})
	require.ErrorContains(t, err, "no capsule")
	_, err = mirror.Apply([]Change{{Revision: 9, Do: Place{}}})
	require.ErrorIs(t, err, ErrInvalid)
	same, err := mirror.Apply(nil)
	require.NoError(t, err)
	require.Empty(t, diffStates(same, mirror))
}

// TestReplayHandsOutTheSameSlots: bets are not in the history, so the order in which they are judged must not
// show in what replay rebuilds.
func TestReplayHandsOutTheSameSlots(t *testing.T) {
	c := newCourt(t, cpuNode("a", 1), cpuNode("b", 1), cpuNode("c", 1))
	_, err := c.Propose(bg, Proposal{If: []Precondition{NodeFreeOf{Node: "c"}, NodeFreeOf{Node: "b"}}, Do: []Commitment{RemoveNode{Node: "a"}, RemoveNode{Node: "b"}, RemoveNode{Node: "c"}}})
	require.NoError(t, err)
	c.commits(cpuNode("x", 1))
	changes, err := c.Changes(bg, 0)
	require.NoError(t, err)
	mirror, err := newState(Limits{}, [Dimensions]string{}).Apply(changes)
	require.NoError(t, err)
	require.Empty(t, diffStates(mirror, c.live))
}

// ---- waiting ----

// TestWait: it answers at once when there is something newer, sleeps through rejections and is woken by the
// next commit; all who wait are. SCENARIOS 19 (I11).
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCourt(t, cpuNode("n", 1))
		rev, err := c.Wait(bg, 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, rev)

		woken := make(chan Revision, 4)
		for _, after := range []Revision{1, 1, 1, 2} {
			go func() {
				rev, err := c.Wait(bg, after)
				assert.NoError(t, err)
				woken <- rev
			}()
		}
		synctest.Wait()
		c.refuses(ErrInfeasible, Proposal{View: 9, Do: []Commitment{RemoveNode{Node: "gone"}}})
		synctest.Wait()
		require.Empty(t, woken, "a rejection wakes no waiter")
		c.commits(Mark{Key: "m", Value: "v"})
		synctest.Wait()
		require.Len(t, woken, 3, "who waits for more sleeps on")
		c.ProposeBatch(bg, []Proposal{{Do: []Commitment{Mark{Key: "m"}}}})
		synctest.Wait()
		require.Len(t, woken, 4)
	})
}

// TestWaitEnds: with its context.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l MemoryLedger
		short, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		began := time.Now()
		_, err := l.Wait(short, 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began))
		_, err = l.Wait(short, 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// TestNoWakeUpIsLost: waiters that always ask for the next revision see the last one, however commits and
// waits interleave; also when commits come in batches. I11.
func TestNoWakeUpIsLost(t *testing.T) {
	var l MemoryLedger
	const commits, waiters = 300, 4
	done := make(chan error, waiters)
	limit, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	for range waiters {
		go func() {
			var rev Revision
			var err error
			for rev < commits && err == nil {
				rev, err = l.Wait(limit, rev)
			}
			done <- err
		}()
	}
	p := Proposal{Do: []Commitment{Mark{Key: "m", Value: "v"}}}
	for i := range commits {
		if i%3 == 0 {
			l.ProposeBatch(bg, []Proposal{p})
		} else if _, err := l.Propose(bg, p); err != nil {
			t.Fatal(err)
		}
	}
	for range waiters {
		require.NoError(t, <-done)
	}
}

// tardy is a ledger whose changes come some calls after Wait has told of them.
type tardy struct {
	Ledger
	calls, by int
}

func (l *tardy) Changes(ctx context.Context, after Revision) ([]Change, error) {
	if l.calls++; l.calls%(l.by+1) != 0 {
		return nil, ctx.Err()
	}
	return l.Ledger.Changes(ctx, after)
}

// TestFollow: a follower sees every change once, in order, also where changes come late; it waits for more, and ends in
// silence with its context.
func TestFollow(t *testing.T) {
	for _, by := range []int{0, 5} {
		synctest.Test(t, func(t *testing.T) {
			c := newCourt(t, cpuNode("n", 1))
			c.commits(Mark{Key: "m", Value: "before"})
			l := &tardy{Ledger: c.MemoryLedger, by: by}
			ctx, cancel := context.WithCancel(bg)
			var got []Change
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for changes, err := range Follow(ctx, l, 1) {
					assert.NoError(t, err)
					got = append(got, changes...)
				}
			}()
			for i := range 10 {
				c.commits(Mark{Key: "m", Value: fmt.Sprint(i)}, Mark{Key: "n", Value: "v"})
				if i%3 == 0 {
					time.Sleep(time.Second)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			want, err := c.Changes(bg, 1)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.LessOrEqual(t, l.calls, 11*(by+1), "it asks only when there is something new")
			select {
			case <-ended:
				t.Fatal("it has not waited for more")
			default:
			}
			cancel()
			<-ended
			for range Follow(ctx, l, 0) {
				t.Fatal("something after the end of its context")
			}
		})
	}
}

// TestFollowEnds: Follow ends with the error, which it yields once, or when the reader stops.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{Bounds: Limits{History: 2}}
		for range 5 {
			_, err := l.Propose(bg, Proposal{Do: []Commitment{Mark{Key: "m", Value: "v"}}})
			require.NoError(t, err)
		}
		said := 0
		for changes, err := range Follow(bg, l, 1) {
			require.Empty(t, changes)
			require.ErrorIs(t, err, ErrCompacted)
			said++
		}
		require.Equal(t, 1, said)
		for changes, err := range Follow(bg, l, 3) {
			require.NoError(t, err)
			require.Len(t, changes, 2)
			break
		}
	})
}

// TestContextEnded: nothing is sent, and the error says so; it is no conflict.
func TestContextEnded(t *testing.T) {
	var l MemoryLedger
	ended, cancel := context.WithCancel(bg)
	cancel()
	p := Proposal{Do: []Commitment{cpuNode("n", 1)}}
	_, err := l.Propose(ended, p)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	for _, o := range l.ProposeBatch(ended, []Proposal{p, p}) {
		require.ErrorIs(t, o.Err, ErrUnavailable)
	}
	_, err = l.Snapshot(ended)
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.Changes(ended, 0)
	require.ErrorIs(t, err, context.Canceled)
	s, err := l.Snapshot(bg)
	require.NoError(t, err)
	require.Zero(t, s.Revision())
}

// ---- batches, copies, continuation ----

// TestBatch: outcomes come in order, a failing proposal does not fail the others, and each proposal sees those before
// it. The same is true of batches that take the lock more than once.
func TestBatch(t *testing.T) {
	c := newCourt(t, cpuNode("n", 100))
	var batch []Proposal
	for i := range 2*batchRun + 3 {
		id := CapsuleID(fmt.Sprint("c", i))
		switch i % 3 {
		case 0:
			batch = append(batch, Proposal{Do: []Commitment{submitOf(cpuSpec(1), id), placeOn(id, "n")}})
		case 1:
			batch = append(batch, Proposal{Do: []Commitment{Place{}}})
		case 2:
			batch = append(batch, Proposal{View: math.MaxInt64, Do: []Commitment{placeOn("absent", "n")}})
		}
	}
	rev := c.now().Revision()
	for i, o := range c.ProposeBatch(bg, batch) {
		switch i % 3 {
		case 0:
			rev++
			require.Equal(t, Outcome{Revision: rev}, o)
		case 1:
			require.ErrorIs(t, o.Err, ErrInvalid)
		case 2:
			require.ErrorIs(t, o.Err, ErrInfeasible)
		}
	}
	require.Equal(t, 44, c.now().Node("n").Capsules)
	require.NoError(t, c.now().Verify())
	require.Empty(t, c.ProposeBatch(bg, nil))
}

// TestLedgerKeepsNothingOfTheCaller: what the caller does to slices, maps and pointers afterwards changes
// neither state nor history; what it passed in is not written to.
func TestLedgerKeepsNothingOfTheCaller(t *testing.T) {
	c := newCourt(t)
	node := cpuNode("n", 5)
	spec := &Spec{Require: []Predicate{{Key: "rack", Op: "In", Values: []string{"z", "r-n"}}}, Spread: Domains{"rack", []string{"b", "a"}}, Devices: DeviceRequest{}}
	gang := &Gang{ID: "g", Levels: []string{"rack"}, Roles: []Role{{Spec: spec, Members: []CapsuleID{"x", "y"}}}}
	ids := []CapsuleID{"a", "b"}
	do := []Commitment{node, Submit{IDs: ids, Spec: spec}, Submit{Gang: gang}}
	_, err := c.Propose(bg, Proposal{Do: do})
	require.NoError(t, err)
	require.Equal(t, []string{"z", "r-n"}, spec.Require[0].Values, "the caller's spec is as it was")
	require.Same(t, gang, do[2].(Submit).Gang, "the caller's commitments are as they were")
	before := textOf(c.live)
	history, err := c.Changes(bg, 0)
	require.NoError(t, err)
	said := fmt.Sprintf("%v %v", history[1].Do.(Submit).IDs, history[2].Do.(Submit).Gang)

	node.Node.Labels["rack"] = "moved"
	spec.Envelope.Reservation[CPU], spec.Require[0].Values[0], spec.Spread.Names[0] = 9, "w", "w"
	gang.Levels[0], gang.Roles[0].Members[0], gang.Roles[0].Min = "w", "w", 1
	ids[0], do[0] = "w", nil
	require.Empty(t, diffLines(textOf(c.live), before))
	require.Equal(t, said, fmt.Sprintf("%v %v", history[1].Do.(Submit).IDs, history[2].Do.(Submit).Gang))
	history[0] = Change{}
	again, err := c.Changes(bg, 0)
	require.NoError(t, err)
	require.NotZero(t, again[0], "each reader has its own copy of the history")
}

// meddler is a context that lets the caller meddle while a ledger is at work: a ledger asks it before each proposal.
type meddler struct {
	context.Context
	asked  int
	meddle func(asked int)
}

func (m *meddler) Err() error {
	m.asked++
	m.meddle(m.asked)
	return m.Context.Err()
}

// TestWhatWasCheckedIsWhatIsCommitted: a caller who changes a proposal that has been checked, and is not committed yet,
// changes nothing: neither its commitments and bets, nor what they refer to.
func TestWhatWasCheckedIsWhatIsCommitted(t *testing.T) {
	node := cpuNode("m", 1)
	spec := &Spec{Require: []Predicate{{Key: "rack", Op: "In", Values: []string{"r-n"}}}}
	gang := &Gang{ID: "g", Roles: []Role{{Spec: spec, Members: []CapsuleID{"x", "y"}}}}
	ids := []CapsuleID{"a", "b"}
	do := []Commitment{Mark{Key: "k", Value: "v"}, node, Submit{IDs: ids, Spec: spec}, Submit{Gang: gang}, Mark{Key: "l", Value: "v"}}
	bets := []Precondition{MarkAt{Key: "none"}}
	ctx := &meddler{Context: bg, meddle: func(asked int) {
		if asked != 2 {
			return
		}
		do[0] = Hold{ID: "h", Node: "n", Room: Resources{CPU: -1_000_000}, Ends: time.Now()}
		do[4] = Place{Capsule: "big", Node: "n"}
		bets[0] = MarkAt{Key: "none", Revision: 7}
		node.Node.Labels["rack"] = strings.Repeat("long", 1<<16)
		spec.Envelope.Reservation[CPU], spec.Require[0].Values[0] = -1, ""
		gang.ID, gang.Roles[0].Members[0] = "", ""
		ids[0] = "b"
	}}
	c := newCourt(t)
	c.commits(cpuNode("n", 10), submitOf(cpuSpec(1000), "big"))
	out := c.ProposeBatch(ctx, []Proposal{{Do: do, If: bets}, {Do: []Commitment{Mark{Key: "last", Value: "v"}}}})
	require.NoError(t, errors.Join(out[0].Err, out[1].Err))
	s := c.now()
	require.NoError(t, s.Verify())
	require.Zero(t, s.Node("n").Used())
	require.True(t, s.Capsule("big").Pending())
	require.Equal(t, "r-m", s.Node("m").Node.Labels["rack"])
	for _, id := range []CapsuleID{"a", "b", "x", "y"} {
		require.NotNil(t, s.Capsule(id), id)
		require.Zero(t, s.Capsule(id).Spec.Envelope.Reservation, id)
	}
	require.NotNil(t, s.Gang("g"))
}

// TestSpecsAreShared: equal specs are one pointer, in whatever order their sets were written.
func TestSpecsAreShared(t *testing.T) {
	c := newCourt(t)
	one := &Spec{Devices: DeviceRequest{1, 500, []string{"b", "a", "b"}}}
	two := &Spec{Devices: DeviceRequest{1, 500, []string{"a", "b"}}}
	c.commits(submitOf(one, "a"), submitOf(two, "b"), submitOf(cpuSpec(1), "c"))
	s := c.now()
	require.Same(t, s.Capsule("a").Spec, s.Capsule("b").Spec)
	require.NotSame(t, s.Capsule("a").Spec, s.Capsule("c").Spec)
	c.commits(submitOf(s.Capsule("a").Spec, "d"))
	require.Same(t, s.Capsule("a").Spec, c.now().Capsule("d").Spec)
}

// TestStart: a ledger goes on from a state: revisions continue above, history begins there, counters of a node
// that leaves and returns do not repeat (I7).
func TestStart(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(1), "a"))
	from := c.now()
	next := court{t, &MemoryLedger{Start: from}}
	rev, err := next.Wait(bg, 0)
	require.NoError(t, err)
	require.Equal(t, from.Revision(), rev)
	_, err = next.Changes(bg, 0)
	require.ErrorIs(t, err, ErrCompacted)
	changes, err := next.Changes(bg, from.Revision())
	require.NoError(t, err)
	require.Nil(t, changes)
	next.commits(RemoveNode{Node: "n"})
	next.commits(cpuNode("n", 5))
	require.Greater(t, next.now().Node("n").Usage, from.Node("n").Usage)
	require.Empty(t, diffStates(c.now(), from))
	require.Equal(t, c.Limits(), next.Limits())
}

// TestForksDoNotDisturbEachOther: two mirrors and two ledgers that go on from one snapshot, and the ledger that
// it was taken of, put different capsules into the same list; none sees another's, however long the list was
// when they parted. I6 I8
func TestForksDoNotDisturbEachOther(t *testing.T) {
	for already := range 9 {
		c := newCourt(t, cpuNode("n", 99))
		var extra []CapsuleID
		for i := range already + 8 {
			extra = append(extra, CapsuleID(fmt.Sprint("c", i)))
			c.commits(submitOf(cpuSpec(1), extra[i]))
			if i < already {
				c.commits(placeOn(extra[i], "n"))
			}
		}
		from, extra := c.now(), extra[already:]
		before := textOf(from)
		change := func(i int) []Change { return []Change{{Revision: from.rev + 1, Do: placeOn(extra[i], "n")}} }
		one, err := from.Apply(change(0))
		require.NoError(t, err)
		two, err := from.Apply(change(1))
		require.NoError(t, err)
		led, fork := court{t, &MemoryLedger{Start: from}}, court{t, &MemoryLedger{Start: from}}
		for i, l := range []court{led, fork, c} {
			l.commits(placeOn(extra[2+i], "n"))
		}
		for i, s := range []*State{one, two, led.now(), fork.now(), c.now()} {
			require.NoError(t, s.Verify())
			require.Equal(t, already+1, s.Node("n").Capsules)
			require.True(t, s.Capsule(extra[i]).Placed())
		}
		require.Empty(t, diffLines(textOf(from), before))
	}
}

// TestSnapshotIsShared: while nothing is committed every call returns the same state.
func TestSnapshotIsShared(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5))
	s := c.now()
	require.Same(t, s, c.now())
	c.mistakes(RemoveNode{Node: "x"})
	require.Same(t, s, c.now())
	c.commits(RemoveNode{Node: "n"})
	require.NotSame(t, s, c.now())
	require.NotNil(t, s.Node("n"))
}

// TestLimits: zero means the default, and the numbers are kept.
func TestLimits(t *testing.T) {
	var l MemoryLedger
	require.Equal(t, Limits{1 << 16, 1 << 16, 1 << 20, 1 << 16, 253, 1 << 16, 4096, 1 << 16, 1 << 16, 1 << 16, 32, 10, 10, 8, 0, 0, 0, 0}, l.Limits())
	c := newCourt(t)
	c.Bounds = Limits{Commitments: 2, Preconditions: 1, Capsules: 3, GangMembers: 2, IDBytes: 4, SpecBytes: 8, ValueBytes: 2}
	mark := Mark{Key: "k", Value: "v"}
	c.commits(mark, mark)
	for name, p := range map[string]Proposal{
		"commitments":  {Do: []Commitment{mark, mark, mark}},
		"bets":         {Do: []Commitment{mark}, If: []Precondition{MarkAt{"k", 1}, MarkAt{"k", 1}}},
		"capsules":     {Do: []Commitment{submitOf(cpuSpec(1), "1", "2", "3", "4")}},
		"gang":         {Do: []Commitment{gangOf("g", 0, "1", "2", "3")}},
		"id":           {Do: []Commitment{submitOf(cpuSpec(1), "12345")}},
		"node id":      {Do: []Commitment{PutNode{Node{ID: "12345"}}}},
		"label key":    {Do: []Commitment{PutNode{Node{ID: "n", Labels: map[string]string{"12345": ""}}}}},
		"labels":       {Do: []Commitment{PutNode{Node{ID: "n", Labels: map[string]string{"1234": "12345"}}}}},
		"module":       {Do: []Commitment{submitOf(&Spec{Module: "12345"}, "1")}},
		"spec":         {Do: []Commitment{submitOf(&Spec{Spread: Domains{"zone", []string{"1", "2", "3"}}}, "1")}},
		"value":        {Do: []Commitment{Mark{Key: "k", Value: "123"}}},
		"note":         {Do: []Commitment{Place{Capsule: "c", Node: "n", Note: "123"}}},
		"owner":        {Do: []Commitment{Assign{Capsule: "c", Owner: "12345"}}},
		"hold for":     {Do: []Commitment{Hold{ID: "h", Node: "n", Room: Resources{1}, For: "12345", Ends: time.Unix(1, 0)}}},
		"bet's domain": {Do: []Commitment{mark}, If: []Precondition{GroupIn{"g", "l", "12345"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := court{t, c.MemoryLedger}.refuses(ErrInvalid, p)
			require.ErrorContains(t, r, "this ledger takes")
		})
	}
}

// Two specs share one copy if and only if they are equal in every field, also in those of fields and in the elements of
// lists.
func TestSpecKeyTellsEveryField(t *testing.T) {
	seen := map[string]string{}
	var full Spec
	fill := func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Int, reflect.Int32, reflect.Int64:
			v.SetInt(v.Int() + 1)
		case reflect.Uint8:
			v.SetUint(v.Uint() + 1)
		case reflect.Float64:
			v.SetFloat(v.Float() + 1)
		case reflect.Bool:
			v.SetBool(!v.Bool())
		default:
			t.Fatalf("no case for %v", v.Type())
		}
	}
	note := func(path string) {
		key := string(full.appendKey(nil))
		require.Empty(t, seen[key], "%s has the key of", path)
		seen[key] = path
	}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Type().Field(i)
				within := f.Name == "Terms" && strings.Contains(path, ".Terms") // terms hold no terms, though their type could
				if f.IsExported() && !within {
					walk(v.Field(i), path+"."+f.Name)
				}
			}
		case reflect.Array:
			for i := range v.Len() {
				walk(v.Index(i), fmt.Sprint(path, i))
			}
		case reflect.Slice:
			for i := range 2 {
				v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
				note(fmt.Sprint(path, " with ", i+1))
				walk(v.Index(i), fmt.Sprint(path, i))
			}
		default:
			fill(v)
			note(path)
		}
	}
	note("zero")
	walk(reflect.ValueOf(&full).Elem(), "Spec")
	assert.Greater(t, len(seen), 50)
}

// A submission of no capsules is no error: who computes what is missing may find that nothing is. It is a commit like any
// other, and its change has a spec, as all others have.
func TestSubmitOfNothing(t *testing.T) {
	c := newCourt(t)
	for _, none := range []Submit{{}, {Spec: cpuSpec(1)}, {IDs: []CapsuleID{}, Owner: "x"}} {
		c.commits(none)
	}
	changes, err := c.Changes(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, changes, 3)
	require.NotNil(t, changes[0].Do.(Submit).Spec)
	require.Zero(t, c.now().CapsuleCount())
	_, err = c.Propose(t.Context(), Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{"a"}}}})
	require.ErrorIs(t, err, ErrInvalid)
}

// TestEndedIDsAreUsedAgain: the id of a capsule that has been released for good is free at once, also within one proposal.
func TestEndedIDsAreUsedAgain(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5))
	old := cpuSpec(1)
	old.Group = "db"
	c.commits(submitOf(old, "db-0"), placeOn("db-0", "n"))
	before := c.now().Capsule("db-0")
	c.commits(Release{Capsule: "db-0", Final: true})
	fresh := submitOf(cpuSpec(3), "db-0")
	fresh.Owner, fresh.At, fresh.Labels = "o", 7, map[string]string{"k": "v"}
	at := c.commits(fresh)
	got := c.now().Capsule("db-0")
	require.True(t, got.Pending())
	require.Greater(t, got.Submitted, before.Submitted)
	require.Equal(t, []any{"o", Instant(7), fresh.Labels, Revision(0), ProposalID{}, Instant(0), at}, []any{got.Owner(), got.SubmitTime(), got.Labels(), got.PlacedAt, got.PlacedBy, got.PlaceTime, got.Changed})
	require.Equal(t, 1, c.now().CapsuleCount())
	c.commits(placeOn("db-0", "n"))
	next := cpuSpec(2)
	next.Group = "web"
	c.commits(Release{Capsule: "db-0", Final: true}, submitOf(next, "db-0"), placeOn("db-0", "n"))
	s := c.now()
	require.Equal(t, int64(2), s.Node("n").Used()[CPU])
	require.Len(t, maps.Collect(s.GroupNodes("web")), 1)
	require.Empty(t, maps.Collect(s.GroupNodes("db")))
	require.Equal(t, 1, s.CapsuleCount())
}

// TestGangsUnderTheSameID: a gang takes the id of one that has ended if it names all members of that again.
func TestGangsUnderTheSameID(t *testing.T) {
	c := newCourt(t, cpuNode("n", 9), gangOf("g", 0, "a", "b", "c"))
	c.commits(placeOn("a", "n"), placeOn("b", "n"), placeOn("c", "n"))
	c.commits(Release{Capsule: "a", Final: true}, Release{Capsule: "b", Final: true})
	r := c.mistakes(gangOf("g", 0, "a", "b", "c"))
	require.Equal(t, CapsuleID("c"), r.Capsule)
	c.commits(Release{Capsule: "c", Final: true})
	r = c.mistakes(gangOf("g", 0, "a", "b"))
	require.Equal(t, CapsuleID("c"), r.Capsule, "its record speaks of the gang that was")
	require.ErrorContains(t, r, "name them all again")
	c.commits(gangOf("g", 0, "c", "b", "a", "d"))
	require.Equal(t, 4, c.now().PendingCount())
	c.commits(submitOf(cpuSpec(1), "other"))
	c.commits(Release{Capsule: "a", Final: true})
	c.commits(submitOf(cpuSpec(1), "a"))
	require.Empty(t, c.now().Capsule("a").Gang(), "it is a capsule of its own now")
	members := 0
	for range c.now().Members("g") {
		members++
	}
	require.Equal(t, 3, members)
	for _, id := range []CapsuleID{"b", "c", "d"} {
		c.commits(Release{Capsule: id, Final: true})
		c.commits(submitOf(cpuSpec(1), id))
	}
	require.Nil(t, c.now().Gang("g"), "no record of a member is left")
	c.commits(gangOf("g", 0, "x"))
}

// TestAnIDUsedAgainRunsOnce: what still runs of the former capsule is waited for, so db-0 does not run twice.
func TestAnIDUsedAgainRunsOnce(t *testing.T) {
	agents := func(id NodeID) PutNode {
		return PutNode{Node{ID: id, Capacity: Resources{CPU: 4}, Confirms: true}}
	}
	c := newCourt(t, agents("n1"), agents("n2"), submitOf(cpuSpec(1), "db-0"), placeOn("db-0", "n1"))
	since := c.now().Capsule("db-0").PlacedAt
	c.commits(Confirm{Capsule: "db-0", Since: since, Begun: true})
	c.commits(Release{Capsule: "db-0", Final: true})
	old := c.now().Capsule("db-0").Spec
	c.commits(submitOf(cpuSpec(2), "db-0"), placeOn("db-0", "n2"))
	begins := Confirm{Capsule: "db-0", Since: c.now().Capsule("db-0").PlacedAt, Begun: true}
	c.mistakes(begins)
	require.Same(t, old, c.now().Capsule("db-0").Remains().Spec, "what runs is what was")
	again, text := new(State), dumpOf(t, c.now())
	require.NoError(t, again.Restore(strings.NewReader(text)))
	require.Equal(t, text, dumpOf(t, again))
	require.Same(t, old, again.Capsule("db-0").Remains().Spec)
	c.commits(Confirm{Capsule: "db-0", Since: since, Stopped: true})
	c.commits(begins)
}

// TestLateWordsMeetTheNewCapsule: what was planned for the former bearer of an id is a conflict, a proposal that placed it is
// known, and one that was planned on no view takes the new one.
func TestLateWordsMeetTheNewCapsule(t *testing.T) {
	c := newCourt(t, cpuNode("n", 9), submitOf(cpuSpec(1), "x"))
	view := c.now().Revision()
	placed := Proposal{ID: NewProposalID(), View: view, Do: []Commitment{placeOn("x", "n")}}
	at, err := c.Propose(bg, placed)
	require.NoError(t, err)
	c.commits(Release{Capsule: "x", Final: true})
	anew := c.commits(submitOf(cpuSpec(1), "x"))
	known, err := c.Propose(bg, placed)
	require.NoError(t, err)
	require.Equal(t, at, known, "sent again, it is known")
	require.True(t, c.now().Capsule("x").Pending())
	c.commits(placeOn("x", "n"))
	for _, late := range []Commitment{
		Release{Capsule: "x", Final: true}, Release{Capsule: "x", Stopped: true}, Assign{Capsule: "x", Owner: "o"}, placeOn("x", "n"),
		Confirm{Capsule: "x", Since: at, Ready: true}, Evict{Capsule: "x", From: "n", Since: at}, Nominate{Capsule: "x", Parts: []NominatedRoom{{Node: "n", Room: Resources{1}}}, Ends: time.Unix(1e9, 0)},
	} {
		r := c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{late}})
		require.Equal(t, anew, r.TakenAt, "%T", late)
	}
	c.commits(Release{Capsule: "x", Final: true})
	r := c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{submitOf(cpuSpec(1), "x")}})
	require.ErrorContains(t, r, "submitted after the view")
	r = c.mistakes(placeOn("x", "n"))
	require.ErrorContains(t, r, "submit it again if it is to run again")
	require.ErrorContains(t, c.mistakes(Release{Capsule: "x", Final: true}), "nothing is left to release")
	_, err = c.Propose(bg, Proposal{Do: []Commitment{submitOf(cpuSpec(1), "x")}})
	require.NoError(t, err)
	_, err = c.Propose(bg, Proposal{Do: []Commitment{Release{Capsule: "x", Final: true}}})
	require.NoError(t, err)
}

// TestOneProposalUsesAnIDAgain: what one proposal ends and submits again is counted once, in the queue of pending work, in that of ended
// records, and among the healthy members of a budget.
func TestOneProposalUsesAnIDAgain(t *testing.T) {
	c := newCourt(t, cpuNode("n", 9))
	c.Bounds = Limits{}
	waits := cpuSpec(1)
	waits.Group = "waiting"
	c.commits(submitOf(waits, "x"))
	c.commits(Release{Capsule: "x", Final: true}, submitOf(cpuSpec(1), "x"))
	require.Equal(t, 1, c.now().PendingCount())
	for range c.now().GroupPending("waiting") {
		require.Fail(t, "nothing of the group waits any more")
	}
	c.commits(Release{Capsule: "x", Final: true}, submitOf(cpuSpec(1), "x"), Release{Capsule: "x", Final: true})
	require.Equal(t, []int{1, 0}, []int{c.now().CapsuleCount(), c.now().PendingCount()})
	c.commits(submitOf(cpuSpec(1), "x"), Release{Capsule: "x", Final: true})
	c.commits(submitOf(cpuSpec(1), "x"))

	member := movable(1)
	member.Group = "db"
	c.commits(submitOf(member, "m1", "m2"), placeOn("m1", "n"), placeOn("m2", "n"), PutBudget{Budget{ID: "b", Group: "db", Expected: 2, Missing: 1}})
	c.commits(Release{Capsule: "m1", Final: true}, submitOf(cpuSpec(1), "m1"), placeOn("m1", "n"))
	b, _ := c.now().Budget("b")
	require.Equal(t, 1, b.Healthy, "it is no member any more")
	c.mistakes(evictionOf(c.now(), "m2"), placeOn("m2", "n"))
}

// TestIDsUsedAgainAreNumberedInOrder: an id that is used again is behind what the same proposal submits before it, whatever names it earlier. The
// states that are made of a dump and of the changes have the same numbers.
func TestIDsUsedAgainAreNumberedInOrder(t *testing.T) {
	spec := movable(1)
	above := movable(1)
	above.Priority = 1
	adopts := Adopt{Capsule: "x", Spec: spec, Node: "n"}
	for name, do := range map[string][]Commitment{
		"released by it":      {Release{Capsule: "live", Final: true}, submitOf(spec, "a", "b"), submitOf(spec, "live"), submitOf(spec, "c")},
		"placed by it":        {submitOf(spec, "a", "b"), submitOf(spec, "old"), submitOf(spec, "c"), placeOn("old", "n")},
		"adopted by it":       {submitOf(spec, "a"), adopts, submitOf(spec, "b")},
		"a gang":              {Release{Capsule: "live", Final: true}, submitOf(spec, "a"), gangOf("g", 0, "b", "old", "live"), submitOf(spec, "c")},
		"a victim is spared":  {Release{Capsule: "live", Final: true}, submitOf(above, "a", "b"), submitOf(spec, "live"), placeOn("a", "n"), Evict{Capsule: "victim", From: "n", Since: 1, For: "a"}},
		"adopted and ended":   {submitOf(spec, "a"), adopts, submitOf(spec, "b"), Release{Capsule: "x", Final: true}, submitOf(spec, "x")},
		"several, and others": {Release{Capsule: "live", Final: true}, submitOf(spec, "old", "a"), submitOf(spec, "b", "live", "c"), placeOn("live", "n"), placeOn("c", "n")},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCourt(t, cpuNode("n", 9), submitOf(spec, "old", "live", "victim"), placeOn("live", "n"), placeOn("victim", "n"))
			c.commits(Release{Capsule: "old", Final: true})
			var want []CapsuleID
			for _, d := range do {
				switch d := d.(type) {
				case Submit:
					want = append(want, d.IDs...)
					for i := 0; d.Gang != nil && i < len(d.Gang.Roles); i++ {
						want = append(want, d.Gang.Roles[i].Members...)
					}
				case Adopt:
					want = append(want, d.Capsule)
				}
			}
			before, dump := c.now(), dumpOf(t, c.now())
			p := Proposal{ID: idOf(1), View: before.Revision(), Do: do}
			at, err := c.Propose(bg, p)
			require.NoError(t, err)
			restored := new(State)
			require.NoError(t, restored.Restore(strings.NewReader(dump)))
			changes, err := c.Changes(bg, before.Revision())
			require.NoError(t, err)
			applied, err := restored.Apply(changes)
			require.NoError(t, err)
			with, err := before.With(p)
			require.NoError(t, err)
			again := new(State)
			require.NoError(t, again.Restore(strings.NewReader(dumpOf(t, c.now()))))
			for from, s := range map[string]*State{"ledger": c.now(), "changes": applied, "with": with, "dump": again} {
				for i, id := range want {
					if slices.Contains(want[i+1:], id) {
						continue
					}
					require.Equal(t, uint64(at)<<submissionBits+uint64(i), s.Capsule(id).Submitted, "%s: %s", from, id)
				}
				require.Equal(t, submission(uint64(at)<<submissionBits)+submission(len(want)-1), s.order, "%s", from)
			}
		})
	}
}

// TestRemainsLeaveTheQueue: records that are kept beyond the window because something runs are dropped in their order when one of them is
// used again.
func TestRemainsLeaveTheQueue(t *testing.T) {
	l := confirmed(t, Limits{Terminal: 1})
	commit(t, l, Release{Capsule: "db-0", Final: true})
	end := func(ids ...CapsuleID) {
		for _, id := range ids {
			commit(t, l, submitOf(cpuSpec(1), id), Release{Capsule: id, Final: true})
		}
	}
	end("a", "b")
	require.Equal(t, 2, snapshotOf(t, l).CapsuleCount(), "b, and what runs")
	commit(t, l, submitOf(cpuSpec(1), "db-0"))
	end("c", "d")
	s := snapshotOf(t, l)
	require.NoError(t, s.Verify())
	require.Nil(t, s.Capsule("b"))
	require.Nil(t, s.Capsule("c"))
	require.Equal(t, 2, s.CapsuleCount(), "d, and the new db-0")
}

// TestRankOfAFormerCapsule: what was nominated for a capsule that has ended is not for the one that has its id.
func TestRankOfAFormerCapsule(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{NominatedShare: 100}}
	high := cpuSpec(4)
	high.Priority = 9
	commit(t, l, cpuNode("n", 4), cpuNode("m", 4), submitOf(high, "x"), submitOf(high, "other"))
	claim := func(id CapsuleID) Nominate {
		return Nominate{Capsule: id, Parts: []NominatedRoom{{Node: "n", Room: Resources{CPU: 4}}}, Ends: time.Unix(1e9, 0)}
	}
	commit(t, l, claim("x"))
	commit(t, l, claim("other"))
	s := snapshotOf(t, l)
	err := s.Check(Proposal{View: s.Revision(), Do: []Commitment{Release{Capsule: "x", Final: true}, submitOf(high, "x"), placeOn("x", "n")}})
	require.ErrorIs(t, err, ErrInfeasible, "the other is nominated, and it is not")
	require.NoError(t, s.Check(Proposal{View: s.Revision(), Do: []Commitment{placeOn("x", "n")}}))
}

// What Apply has taken although today's limits would refuse it is read back from a dump, or a folder of an older version
// would not open any more after its next checkpoint.
func TestRestoreJudgesNoLimits(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a", "b"}, Spec: wants(1)})
	s, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	var changes []Change
	for i, do := range []Commitment{
		Place{Capsule: "a", Node: "n"}, Protect{Capsule: "a", For: 1000 * time.Hour},
		Nominate{Capsule: "b", Parts: []NominatedRoom{{Node: "n", Room: Resources{CPU: 1}}}, Aged: 1000, Ends: time.Unix(1, 0)},
	} {
		changes = append(changes, Change{Revision: s.Revision() + 1, Seq: i, Do: do})
	}
	s, err = s.Apply(changes)
	require.NoError(t, err)
	require.NoError(t, s.Verify())
	var dump bytes.Buffer
	require.NoError(t, s.Dump(&dump))
	back := new(State)
	require.NoError(t, back.Restore(&dump))
	lasts := back.Protected("a")
	require.Equal(t, 1000*time.Hour, lasts)
	require.EqualValues(t, 1000, back.Capsule("b").Nomination().Rank)
}
