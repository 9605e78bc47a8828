package orbit

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// partOn is room on a node to be nominated.
func partOn(n NodeID, cpu int64) NominatedRoom {
	return NominatedRoom{Node: n, Room: Resources{CPU: cpu}}
}

// nominationOf nominates a capsule.
func nominationOf(c CapsuleID, parts ...NominatedRoom) Nominate {
	n := Nominate{Capsule: c, Parts: parts}
	if len(parts) > 0 {
		n.Ends = time.Unix(1e9, 0).UTC()
	}
	return n
}

// rankedSpec asks for so much at a priority.
func rankedSpec(priority int32, cpu int64) *Spec {
	s := cpuSpec(cpu)
	s.Priority = priority
	return s
}

// widely is a court whose nominations may claim all there is.
func widely(t *testing.T, do ...Commitment) court {
	c := court{t, &MemoryLedger{Bounds: Limits{NominatedShare: 100}}}
	c.commits(do...)
	return c
}

// TestNominationRanks: rank decides who is kept from room that is nominated.
func TestNominationRanks(t *testing.T) {
	c := widely(t, cpuNode("n", 8), submitOf(rankedSpec(5, 8), "a"),
		submitOf(rankedSpec(4, 1), "low"), submitOf(rankedSpec(5, 1), "equal"), submitOf(rankedSpec(6, 1), "high", "high2"))
	view := c.now().Revision()
	c.commits(nominationOf("a", partOn("n", 8)))
	r := c.mistakes(placeOn("low", "n"))
	require.Contains(t, r.Reason, `nominated for capsule a`)
	require.Equal(t, "cpu", r.Dimension)
	c.mistakes(placeOn("equal", "n"))
	c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{placeOn("low", "n")}})
	c.mistakes(holdOf("h", "n", 1))
	c.commits(placeOn("high", "n"))
	c.mistakes(placeOn("high2", "n"), placeOn("low", "n"))
	c.commits(Release{Capsule: "high", Stopped: true})
	c.commits(placeOn("a", "n"))
	require.Nil(t, c.now().Capsule("a").Nomination(), "a placed capsule is nominated for nothing")
	c.commits(Release{Capsule: "a", Stopped: true})
	c.commits(placeOn("low", "n"))
}

// TestLowNominationStopsNoHighCapsule: a nomination at priority 0 for 8 of 8 cores does not refuse a capsule of priority
// 1000 that needs one.
func TestLowNominationStopsNoHighCapsule(t *testing.T) {
	c := widely(t, cpuNode("n", 8), submitOf(rankedSpec(0, 8), "a"), submitOf(rankedSpec(1000, 1), "b"))
	c.commits(nominationOf("a", partOn("n", 8)))
	c.commits(placeOn("b", "n"))
}

// TestNominationsAreBoundedByTheAsk: a nomination claims no more than its nominee asks for, and on no more nodes than it
// has capsules. Else one core may be nominated for a whole cluster.
func TestNominationsAreBoundedByTheAsk(t *testing.T) {
	ends := time.Unix(1e9, 0)
	gpu := gpuSpec(2, 500)
	gpu.Envelope.Reservation = Resources{CPU: 3}
	gpu.Require = []Predicate{{Key: "gpu", Op: "Exists"}}
	node := func(id NodeID, labels map[string]string) PutNode {
		return PutNode{Node{ID: id, Labels: labels, Capacity: Resources{CPU: 100, Memory: 100}, Devices: Devices{Model: "A100", Count: 8}}}
	}
	gang := &Gang{ID: "g", Roles: []Role{
		{Name: "r", Spec: cpuSpec(4), Members: []CapsuleID{"m1", "m2"}, Min: 1}, {Name: "gpu", Spec: gpu, Members: []CapsuleID{"m3"}},
	}}
	c := widely(t, node("n", nil), node("m", nil), node("gpu", map[string]string{"gpu": ""}), node("x", nil), node("y", nil),
		submitOf(cpuSpec(4), "a"), submitOf(gpu, "b"), Submit{Gang: gang},
		Submit{Gang: &Gang{ID: "huge", Roles: []Role{{Name: "r", Spec: cpuSpec(math.MaxInt64), Members: []CapsuleID{"h1", "h2"}}}}})
	with := func(n NodeID, cpu int64, devices DeviceSet, milli int) NominatedRoom {
		return NominatedRoom{Node: n, Room: Resources{CPU: cpu}, Devices: devices, Milli: milli}
	}
	for name, o := range map[string]struct {
		do   Nominate
		says string
	}{
		"more room":                            {Nominate{Capsule: "a", Parts: []NominatedRoom{partOn("n", 5)}}, `claims 5 of cpu on node "n"; capsule a asks for 4`},
		"other room":                           {Nominate{Capsule: "a", Parts: []NominatedRoom{{Node: "n", Room: Resources{CPU: 4, Memory: 1}}}}, `claims 1 of memory on node "n"; capsule a asks for 0`},
		"two nodes":                            {Nominate{Capsule: "a", Parts: []NominatedRoom{partOn("n", 2), partOn("m", 2)}}, `capsule a is nominated on 2 nodes; it can be placed on 1`},
		"devices":                              {Nominate{Capsule: "a", Parts: []NominatedRoom{with("n", 4, 1, 1)}}, `claims 1 devices on node "n"; capsule a asks for 0`},
		"more devices":                         {Nominate{Capsule: "b", Parts: []NominatedRoom{with("gpu", 3, 7, 500)}}, `claims 3 devices on node "gpu"; capsule b asks for 2`},
		"more of devices":                      {Nominate{Capsule: "b", Parts: []NominatedRoom{with("gpu", 3, 3, 501)}}, `claims 501 milli of each device on node "gpu"; capsule b asks for 500`},
		"more nodes than a gang":               {Nominate{Gang: "g", Parts: []NominatedRoom{partOn("n", 1), partOn("m", 1), partOn("x", 1), partOn("y", 1)}}, `gang g is nominated on 4 nodes; it can be placed on 3`},
		"more than a gang":                     {Nominate{Gang: "g", Parts: []NominatedRoom{partOn("gpu", 12)}}, `claims 12 of cpu on node "gpu"; gang g asks for 11`},
		"more than may be there":               {Nominate{Gang: "g", Parts: []NominatedRoom{partOn("n", 9)}}, `claims 9 of cpu on node "n"; gang g asks for 8`},
		"more in all":                          {Nominate{Gang: "g", Parts: []NominatedRoom{partOn("n", 8), partOn("gpu", 4)}}, `claims 12 of cpu in all; gang g asks for 11`},
		"devices of a gang":                    {Nominate{Gang: "g", Parts: []NominatedRoom{with("gpu", 3, 7, 500)}}, `claims 3 devices on node "gpu"; gang g asks for 2`},
		"milli of a gang":                      {Nominate{Gang: "g", Parts: []NominatedRoom{with("gpu", 3, 3, 501)}}, `claims 501 milli of each device on node "gpu"; gang g asks for 500`},
		"devices where no member may have any": {Nominate{Gang: "g", Parts: []NominatedRoom{with("n", 3, 3, 500)}}, `claims 2 devices on node "n"; gang g asks for 0`},
	} {
		t.Run(name, func(t *testing.T) {
			o.do.Ends = ends
			c := court{t, c.MemoryLedger}
			r := c.mistakes(o.do)
			require.Contains(t, r.Reason, o.says)
			require.ErrorContains(t, r, "nominate no more than the nominee needs")
			view := c.now()
			v, refresh := viewOf(t, c.MemoryLedger, nil)
			refresh()
			var d Draft
			d.Sync(v)
			require.ErrorIs(t, d.Nominate(o.do), ErrInfeasible)
			require.Equal(t, view.Revision(), c.now().Revision())
		})
	}
	for name, do := range map[string]Nominate{
		"all of it":    {Capsule: "a", Parts: []NominatedRoom{partOn("n", 4)}},
		"less":         {Capsule: "b", Parts: []NominatedRoom{with("gpu", 1, 1, 1)}},
		"its devices":  {Capsule: "b", Parts: []NominatedRoom{with("gpu", 3, 6, 500)}},
		"on each node": {Gang: "g", Parts: []NominatedRoom{partOn("n", 4), partOn("m", 4), with("gpu", 3, 3, 500)}},
		"in one place": {Gang: "g", Parts: []NominatedRoom{with("gpu", 11, 3, 500)}},
		"a large gang": {Gang: "huge", Parts: []NominatedRoom{partOn("n", 100), partOn("m", 100)}},
	} {
		t.Run(name, func(t *testing.T) {
			do.Ends = ends
			c := court{t, c.MemoryLedger}
			c.commits(do)
			c.commits(Nominate{Capsule: do.Capsule, Gang: do.Gang})
		})
	}
}

// TestOldNominationsAreAppliedAgain: a history from before nominations were bounded by the ask is a fact.
func TestOldNominationsAreAppliedAgain(t *testing.T) {
	c := widely(t, cpuNode("n", 8), cpuNode("m", 8), submitOf(cpuSpec(1), "a"))
	old := nominationOf("a", partOn("n", 8), partOn("m", 8))
	c.mistakes(old)
	s, err := c.now().Apply([]Change{{Revision: c.now().Revision() + 1, Do: old}})
	require.NoError(t, err)
	require.NoError(t, s.Verify())
	require.Len(t, s.Capsule("a").Nomination().Parts, 2)
	var text bytes.Buffer
	require.NoError(t, s.Dump(&text))
	require.NoError(t, new(State).Restore(&text))
}

// TestNominationsDoNotWaitForEachOther: nominations are no use. A has n1 and waits for n2, B the reverse; the first in
// rank is placed as soon as what runs there has ended.
func TestNominationsDoNotWaitForEachOther(t *testing.T) {
	gang := func(id GangID, members ...CapsuleID) Submit {
		return Submit{Gang: &Gang{ID: id, Roles: []Role{{Name: "r", Spec: cpuSpec(4), Members: members}}}}
	}
	c := widely(t, cpuNode("n1", 4), cpuNode("n2", 4), gang("a", "a1", "a2"), gang("b", "b1", "b2"))
	both := func(g GangID) Nominate {
		return Nominate{Gang: g, Parts: []NominatedRoom{partOn("n1", 4), partOn("n2", 4)}, Ends: time.Unix(1e9, 0)}
	}
	c.Bounds.NominatedShare = 100
	c.commits(both("a"))
	c.mistakes(both("b")) // more than all there is
	c.commits(Nominate{Gang: "a"}, Nominate{Gang: "b", Parts: []NominatedRoom{partOn("n1", 4)}, Ends: time.Unix(1e9, 0)},
		Nominate{Gang: "a", Parts: []NominatedRoom{partOn("n2", 4)}, Ends: time.Unix(1e9, 0)})
	a, b := c.now().Gang("a").Nomination, c.now().Gang("b").Nomination
	require.True(t, a.Outranks(b), "a was first")
	c.mistakes(placeOn("b1", "n1"), placeOn("b2", "n2"))
	c.commits(placeOn("a1", "n1"), placeOn("a2", "n2"))
	require.Nil(t, c.now().Gang("a").Nomination)
	require.True(t, c.now().Gang("b").Nomination.Lives())
}

// TestReleaseEarnsNothing: {Release small, Place small} does not overtake for ever.
func TestReleaseEarnsNothing(t *testing.T) {
	c := widely(t, cpuNode("n", 8), submitOf(cpuSpec(8), "a"), submitOf(cpuSpec(1), "s1", "s2"))
	c.commits(placeOn("s1", "n"))
	c.commits(nominationOf("a", partOn("n", 8)))
	c.mistakes(Release{Capsule: "s1", Final: true}, placeOn("s2", "n"))
	c.mistakes(placeOn("s2", "n"), Release{Capsule: "s1", Final: true})
	c.commits(Release{Capsule: "s1", Final: true})
	c.mistakes(placeOn("s2", "n"))
	c.commits(placeOn("a", "n"))
}

// TestHoldServesItsPlacement: what a hold made before the nomination kept is still its own, for placements within it, and
// for no other hold.
func TestHoldServesItsPlacement(t *testing.T) {
	c := widely(t, cpuNode("n", 8), submitOf(cpuSpec(8), "a"), submitOf(cpuSpec(2), "s1", "s2", "s3"), holdOf("h", "n", 4))
	c.commits(nominationOf("a", partOn("n", 8)))
	c.mistakes(Release{Hold: "h"}, placeOn("s1", "n"), placeOn("s2", "n"), placeOn("s3", "n"))
	c.mistakes(Release{Hold: "h"}, holdOf("h", "n", 4))
	c.mistakes(Release{Hold: "h"}, placeOn("s1", "n"), holdOf("h", "n", 2))
	c.mistakes(placeOn("s1", "n"), placeOn("s2", "n"))
	c.commits(Release{Hold: "h"}, placeOn("s1", "n"), placeOn("s2", "n"))
	c.mistakes(placeOn("s3", "n"))
}

// TestNominationKeepsOtherDimensions: only what is asked for is judged.
func TestNominationKeepsOtherDimensions(t *testing.T) {
	memory, asks := &Spec{Envelope: Envelope{Reservation: Resources{Memory: 4}}}, gpuSpec(1, 600)
	asks.Envelope.Reservation[CPU] = 4
	c := widely(t, PutNode{Node{ID: "n", Capacity: Resources{CPU: 4, Memory: 4}, Devices: Devices{Model: "A100", Count: 2}}},
		submitOf(asks, "a"), submitOf(memory, "b"), submitOf(gpuSpec(1, 500), "g1", "g2", "g3", "g4"))
	c.commits(Nominate{Capsule: "a", Ends: time.Unix(1e9, 0), Parts: []NominatedRoom{{Node: "n", Room: Resources{CPU: 4}, Devices: 0b01, Milli: 600}}})
	c.commits(placeOn("b", "n"))
	r := c.mistakes(Place{Capsule: "g1", Node: "n", Devices: 0b01})
	require.Equal(t, "device 0", r.Dimension)
	c.commits(Place{Capsule: "g1", Node: "n", Devices: 0b10})
	set, ok := c.now().Node("n").PickDevices(gpuSpec(1, 500))
	require.True(t, ok)
	require.Equal(t, DeviceSet(0b10), set)
	require.Equal(t, DeviceSet(0b11), c.now().Node("n").DevicesFor(gpuSpec(1, 400)))
}

// TestNominationLives: renewals keep the place among equals until there are too many, and what has ended never comes back.
func TestNominationLives(t *testing.T) {
	c := court{t, &MemoryLedger{Bounds: Limits{NominatedShare: 100, Renewals: 2}}}
	c.commits(cpuNode("n", 8), submitOf(cpuSpec(3), "a", "b"))
	first := c.commits(nominationOf("a", partOn("n", 2)))
	c.commits(nominationOf("b", partOn("n", 2)))
	of := func(id CapsuleID) *Nomination { return c.now().Capsule(id).Nomination() }
	c.mistakes(Nominate{Capsule: "a", Since: first + 1})
	c.commits(Nominate{Capsule: "a", Since: first})
	require.False(t, of("a").Lives())
	c.mistakes(Nominate{Capsule: "a"})
	c.mistakes(Nominate{Capsule: "a", Since: first})
	require.Equal(t, first, of("a").First)
	c.commits(nominationOf("a", partOn("n", 1)))
	c.commits(nominationOf("a", partOn("n", 3)))
	require.Equal(t, first, of("a").First)
	require.True(t, of("a").Outranks(of("b")))
	lost := c.commits(nominationOf("a", partOn("n", 2)))
	require.Equal(t, lost, of("a").First)
	require.True(t, of("b").Outranks(of("a")))
	c.commits(Release{Capsule: "a", Final: true})
	require.Nil(t, of("a"))
	require.Equal(t, 1, c.now().nominations.Len())
}

// TestNominationOfAnEndedGang: a gang of which no member waits is not nominated. Its record goes with that of its last member, and what it was nominated for
// would stay claimed.
func TestNominationOfAnEndedGang(t *testing.T) {
	c := court{t, &MemoryLedger{Bounds: Limits{NominatedShare: 100, Terminal: 1}}}
	gang := &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: cpuSpec(1), Members: []CapsuleID{"m1", "m2"}, Min: 1}}}
	c.commits(cpuNode("n", 8), Submit{Gang: gang}, submitOf(cpuSpec(1), "x"))
	view := c.now().Revision()
	nominate := Nominate{Gang: "g", Ends: time.Unix(1e9, 0), Parts: []NominatedRoom{partOn("n", 2)}}
	c.commits(Release{Capsule: "m1", Final: true})
	c.mistakes(nominate) // it claims more than the member that is left asks for
	nominate.Parts = []NominatedRoom{partOn("n", 1)}
	c.commits(nominate)
	c.commits(Release{Capsule: "m2", Final: true})
	require.False(t, c.now().Gang("g").Nomination.Lives())
	c.mistakes(nominate)
	_, err := c.Propose(t.Context(), Proposal{View: view, Do: []Commitment{nominate}})
	require.ErrorIs(t, err, ErrConflict, "it waited when that was planned")
	c.commits(Release{Capsule: "x", Final: true})
	require.Nil(t, c.now().Gang("g"))
	require.NoError(t, c.now().Verify())
}

// TestNominationBounds: capacity, the share, how many there are on a node, and that its node stays.
func TestNominationBounds(t *testing.T) {
	c := newCourt(t, cpuNode("n", 100), cpuNode("m", 100), submitOf(rankedSpec(0, 200), "a", "b"), submitOf(rankedSpec(9, 10), "top"))
	c.mistakes(nominationOf("a", partOn("n", 101)))
	c.mistakes(nominationOf("a", partOn("x", 1)))
	c.mistakes(nominationOf("x", partOn("n", 1)))
	c.commits(nominationOf("a", partOn("n", 90))) // the only one may claim more than the share
	c.mistakes(nominationOf("b", partOn("n", 1)))
	c.commits(nominationOf("top", partOn("n", 10))) // what it outranks has to make way
	r := c.mistakes(nominationOf("a", partOn("m", 11)))
	require.Contains(t, r.Reason, "10 percent of cpu")
	c.commits(Nominate{Capsule: "a"}, nominationOf("a", partOn("m", 10)))
	r = c.mistakes(nominationOf("b", partOn("m", 1)))
	require.Contains(t, r.Reason, "10 percent of cpu")
	c.mistakes(RemoveNode{Node: "m"})
	c.mistakes(PutNode{Node{ID: "m", Capacity: Resources{CPU: 100}, State: Cordoned}}, nominationOf("a", partOn("m", 1)))
	c.commits(Nominate{Capsule: "a"}, RemoveNode{Node: "m"})
	c.refuses(ErrInvalid, Proposal{Do: []Commitment{Nominate{Capsule: "a", Aged: 11, Parts: []NominatedRoom{partOn("n", 1)}, Ends: time.Unix(1, 0)}}})

	w := widely(t, cpuNode("n", 100), submitOf(cpuSpec(1), "1", "2", "3", "4", "5", "6", "7", "8", "9"))
	for _, id := range []CapsuleID{"1", "2", "3", "4", "5", "6", "7", "8"} {
		w.commits(nominationOf(id, partOn("n", 1)))
	}
	require.Contains(t, w.mistakes(nominationOf("9", partOn("n", 1))).Reason, "there can be 8")
	w.commits(Nominate{Capsule: "8"}, nominationOf("9", partOn("n", 1)))
}

// TestNominationThatMakesWayMayHaveEnded: a proposal that nominates is not lost because what it ends for that has ended by
// itself; one that only ends is, and so is one that has not said which.
func TestNominationThatMakesWayMayHaveEnded(t *testing.T) {
	c := newCourt(t, cpuNode("n", 100), submitOf(rankedSpec(0, 5), "a", "b"), submitOf(rankedSpec(9, 10), "top"))
	made := c.commits(nominationOf("a", partOn("n", 5)))
	c.commits(placeOn("a", "n"), nominationOf("b", partOn("n", 5)))
	c.mistakes(Nominate{Capsule: "a", Since: made})
	c.mistakes(Nominate{Capsule: "b", Since: made})
	c.mistakes(Nominate{Capsule: "a"}, nominationOf("top", partOn("n", 10)))
	c.commits(Nominate{Capsule: "a", Since: made}, Nominate{Capsule: "b", Since: made}, Nominate{Capsule: "x", Since: made},
		nominationOf("top", partOn("n", 10)))
	require.True(t, c.now().Capsule("b").Nomination().Lives(), "it is another one")
	require.True(t, c.now().Capsule("top").Nomination().Lives())
}

// TestNominationOfGang: its first placement ends the nomination, and so does the end of a member.
func TestNominationOfGang(t *testing.T) {
	g := &Gang{ID: "g", Roles: []Role{
		{Name: "r", Spec: rankedSpec(7, 3), Members: []CapsuleID{"g1", "g2"}, Min: 1},
		{Name: "s", Spec: rankedSpec(3, 2), Members: []CapsuleID{"g3"}},
	}}
	c := widely(t, cpuNode("n", 8), Submit{Gang: g}, submitOf(rankedSpec(5, 1), "b"))
	whole := Nominate{Gang: "g", Aged: 1, Parts: []NominatedRoom{partOn("n", 8)}, Ends: time.Unix(1e9, 0)}
	c.commits(whole)
	require.EqualValues(t, 4, c.now().Gang("g").Nomination.Rank, "the lowest role's")
	c.commits(placeOn("b", "n"))
	c.commits(Release{Capsule: "g2", Final: true})
	require.False(t, c.now().Gang("g").Nomination.Lives())
	c.mistakes(whole) // it claims what the member that is done asked for
	whole.Parts = []NominatedRoom{partOn("n", 5)}
	c.commits(whole)
	c.commits(placeOn("g1", "n"), placeOn("g3", "n"))
	require.Nil(t, c.now().Gang("g").Nomination)
	c.mistakes(whole)
}

// TestNominationSurvivesDump: dump, restore and replay agree.
func TestNominationSurvivesDump(t *testing.T) {
	c := widely(t, cpuNode("n", 8), cpuNode("m", 8), submitOf(cpuSpec(2), "a", "b", "x"),
		Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: cpuSpec(7), Members: []CapsuleID{"g1"}}}}})
	c.commits(nominationOf("a", partOn("n", 2)))
	c.commits(nominationOf("b", partOn("n", 2)))
	c.commits(nominationOf("b"), Nominate{Gang: "g", Parts: []NominatedRoom{partOn("m", 7)}, Ends: time.Unix(1e9, 0)})
	var text, again bytes.Buffer
	require.NoError(t, c.now().Dump(&text))
	restored := &State{}
	require.NoError(t, restored.Restore(bytes.NewReader(text.Bytes())))
	require.NoError(t, restored.Dump(&again))
	require.Equal(t, text.String(), again.String())
	l := &MemoryLedger{Start: restored}
	s, err := l.Snapshot(bg)
	require.NoError(t, err)
	require.Error(t, s.Check(Proposal{View: s.Revision(), Do: []Commitment{placeOn("x", "m")}}))
	require.NoError(t, s.Check(Proposal{View: s.Revision(), Do: []Commitment{placeOn("x", "n")}}))
	changes, err := c.Changes(bg, 0)
	require.NoError(t, err)
	replayed, err := newState(c.now().Limits(), c.now().names).Apply(changes)
	require.NoError(t, err)
	again.Reset()
	require.NoError(t, replayed.Dump(&again))
	require.Equal(t, text.String(), again.String())
}

// A rollback to a checkpoint that was made while the draft showed its nodes to one who is nominated shows them to nobody who did
// not ask: else an engine chooses room that Place refuses.
func TestRollbackForgetsWhoAsked(t *testing.T) {
	c := newCourt(t, cpuNode("n", 4), submitOf(cpuSpec(4), "large", "small"))
	c.commits(nominationOf("large", partOn("n", 4)))
	view, _ := viewOf(t, c, nil)
	s, d := view.State(), &Draft{}
	d.Sync(view)
	d.LookAs(s.Capsule("large"))
	asked := d.Checkpoint()
	require.True(t, d.Node(0).Fits(s.Capsule("large").Spec))
	d.LookAs(nil)
	require.False(t, d.Node(0).Fits(s.Capsule("small").Spec))
	d.Rollback(asked)
	require.False(t, d.Node(0).Fits(s.Capsule("small").Spec))
	d.LookAs(s.Capsule("large"))
	require.True(t, d.Node(0).Fits(s.Capsule("large").Spec))
}

// TestWhatKeepsANode: the refusal of a RemoveNode names what is left on the node, who ends it, and what can be done.
func TestWhatKeepsANode(t *testing.T) {
	gang := &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: cpuSpec(1), Members: []CapsuleID{"m"}}}}
	c := widely(t, cpuNode("n", 4), cpuNode("m", 4), submitOf(cpuSpec(1), "a", "b"), Submit{Gang: gang})
	leave := RemoveNode{Node: "n"}
	made := c.commits(nominationOf("a", partOn("n", 1)))
	c.commits(Nominate{Gang: "g", Ends: time.Unix(1e9, 0), Parts: []NominatedRoom{partOn("m", 1)}})
	r := c.mistakes(leave)
	require.ErrorContains(t, r, fmt.Sprintf(`node "n" is nominated for capsule a since revision %d; nothing it rests on has changed since its view; cordon the node; then the engine of capsule a ends the nomination, `, made))
	require.ErrorContains(t, r, "or any engine does after 2001-09-09T01:46:40Z; or end it before the node leaves, by a Nominate of capsule a without Parts")
	require.ErrorContains(t, c.mistakes(RemoveNode{Node: "m"}), "then the engine of gang g ends")
	conflict := c.refuses(ErrConflict, Proposal{Do: []Commitment{leave}})
	require.ErrorContains(t, conflict, "cordon the node", "planning again helps nobody")
	cordoned := c.now().Node("n").Node.Clone()
	cordoned.State = Cordoned
	c.commits(PutNode{cordoned})
	require.ErrorContains(t, c.mistakes(leave), "wait until the engine of capsule a ends the nomination, because the node can no longer serve it")
	c.commits(Nominate{Capsule: "a"}, leave) // as it says

	c.commits(PutNode{Node{ID: "n", Capacity: Resources{CPU: 4}, Confirms: true}})
	c.commits(placeOn("b", "n"))
	require.ErrorContains(t, c.mistakes(leave), "move or release the capsules")
	c.commits(c.says("b", Confirm{Begun: true}))
	c.commits(Release{Capsule: "b", Final: true})
	require.ErrorContains(t, c.mistakes(leave), "wait until its agent confirms that it has stopped; if the node is gone, put it as Lost first")
	c.commits(PutNode{Node{ID: "n", State: Lost}}, leave) // as it says
}
