package orbit

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each test is a line of SCENARIOS that a ledger can break, in as few words as it takes.

// TestScenario1And3LoserConverges: two navigators want one capsule; the second gets a conflict, and a view at
// the revision that the receipt names shows it why. The failed commit left nothing behind. (I2 I4 I6 I8)
func TestScenario1And3LoserConverges(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), cpuNode("m", 5), submitOf(cpuSpec(3), "a"))
	view := c.now().Revision()
	won := c.commits(placeOn("a", "n"))
	r := c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{placeOn("a", "m")}})
	require.Equal(t, won, r.TakenAt)
	require.GreaterOrEqual(t, c.now().Revision(), r.At)
	require.EqualValues(t, "n", c.now().Capsule("a").Node)
	require.Zero(t, c.now().Node("m").Used())
}

// TestScenario4AnswerIsLost: the commit was applied, the answer was not seen; sent again, also after other
// commits, it has one effect. (I12)
func TestScenario4AnswerIsLost(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(1), "a", "b"))
	p := Proposal{ID: idOf(9), View: 1, If: []Precondition{NodeFreeOf{"n", Resources{CPU: 5}}}, Do: []Commitment{placeOn("a", "n"), placeOn("b", "n")}}
	rev, err := c.Propose(bg, p)
	require.NoError(t, err)
	c.commits(Release{Capsule: "b", Stopped: true})
	c.commits(holdOf("h", "n", 4))
	again, err := c.Propose(bg, p) // its bet no longer holds, and b is free again: neither matters
	require.NoError(t, err)
	require.Equal(t, rev, again)
	require.True(t, c.now().Capsule("b").Pending())
}

// TestScenario5NodeReturns: a node leaves and joins again under its id; an old bet never fits the new one,
// nor does a mark that was deleted and set again. (I7)
func TestScenario5NodeReturns(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), Mark{Key: "m", Value: "v"})
	old := c.now()
	n := old.Node("n")
	_, marked := old.Mark("m")
	c.commits(RemoveNode{Node: "n"}, Mark{Key: "m"})
	r := c.refuses(ErrConflict, Proposal{View: old.Revision(), If: []Precondition{NodeAt{"n", n.Usage, 0}}, Do: []Commitment{Mark{Key: "x"}}})
	require.Equal(t, c.now().Revision(), r.TakenAt)
	c.refuses(ErrConflict, Proposal{View: old.Revision(), If: []Precondition{MarkAt{"m", marked}}, Do: []Commitment{Mark{Key: "x"}}})
	c.commits(cpuNode("n", 5), Mark{Key: "m", Value: "v"})
	for _, bet := range []Precondition{NodeAt{"n", n.Usage, 0}, NodeAt{"n", 0, n.Specification}, MarkAt{"m", marked}} {
		c.refuses(ErrConflict, Proposal{View: old.Revision(), If: []Precondition{bet}, Do: []Commitment{Mark{Key: "x"}}})
	}
}

// TestScenario5SameProposal: the same within one proposal, where old and new node share a revision with
// nothing else.
func TestScenario5SameProposal(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(1), "a"), placeOn("a", "n"))
	n := c.now().Node("n")
	c.commits(lostNode("n"), Release{Capsule: "a"}, RemoveNode{Node: "n"}, cpuNode("n", 1), placeOn("a", "n"))
	now := c.now().Node("n")
	require.Equal(t, Resources{CPU: 1}, now.Used())
	require.Greater(t, now.Usage, n.Usage)
	require.Greater(t, now.Specification, n.Specification)
}

// TestScenario6NodeIsEmptied: refused while capsules or holds live there; emptied and removed in one proposal
// or in several; commits that race with it are conflicts; it comes back empty. (I2 I7)
func TestScenario6NodeIsEmptied(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), cpuNode("m", 5), submitOf(cpuSpec(1), "a", "b", "late"), placeOn("a", "n"), placeOn("b", "n"), holdOf("h", "n", 1))
	view := c.now().Revision()
	r := c.mistakes(RemoveNode{Node: "n"})
	require.ErrorContains(t, r, "2 capsules and 1 holds")
	c.mistakes(lostNode("n"), Release{Capsule: "a"}, Release{Capsule: "b"}, RemoveNode{Node: "n"})
	c.commits(lostNode("n"), Release{Capsule: "a"}, Release{Capsule: "b", Final: true}, Release{Hold: "h"}, RemoveNode{Node: "n"})
	require.Nil(t, c.now().Node("n"))
	c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{placeOn("late", "n")}})
	c.commits(cpuNode("n", 5))
	require.Zero(t, c.now().Node("n").Used())
	require.Zero(t, c.now().Node("n").Capsules)
	c.commits(placeOn("late", "n"), placeOn("a", "n"))
}

// TestScenario6MovedAndRemoved: its capsules go elsewhere in the proposal that removes it.
func TestScenario6MovedAndRemoved(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), cpuNode("m", 5), submitOf(cpuSpec(1), "a", "b"), placeOn("a", "n"), placeOn("b", "n"))
	c.commits(drainedNode("n", 5))
	c.commits(evictionOf(c.now(), "a"), placeOn("a", "m"), Release{Capsule: "b"}, placeOn("b", "m"), RemoveNode{Node: "n"}, cpuNode("o", 1))
	require.Equal(t, 2, c.now().Node("m").Capsules)
}

// TestScenario8And23OldStatesStand: a plan reads one revision, whatever is committed meanwhile. (I8)
func TestScenario8And23OldStatesStand(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), cpuNode("m", 5), submitOf(cpuSpec(1), "a", "b"), placeOn("a", "n"))
	s := c.now()
	before := textOf(s)
	for c1 := range s.On("n") {
		c.commits(lostNode("n"), Release{Capsule: c1.ID}, RemoveNode{Node: "n"}, placeOn(c1.ID, "m"))
	}
	c.commits(cpuNode("k", 1), cpuNode("l", 1), Release{Capsule: "b", Final: true}, Mark{Key: "m", Value: "v"})
	require.Empty(t, diffLines(textOf(s), before))
}

// TestScenario9HoldsCountAtOnce: what is held is taken, for a place and for another hold, until it is
// released; who it is for swaps it for a place in one proposal. (I1 I13)
func TestScenario9HoldsCountAtOnce(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(3), "a"))
	view := c.now().Revision()
	c.commits(holdOf("h", "n", 3))
	c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{placeOn("a", "n")}})
	c.mistakes(holdOf("h2", "n", 3))
	c.mistakes(holdOf("h", "n", 1))
	c.commits(Release{Hold: "h"}, placeOn("a", "n"))
	require.Equal(t, Resources{CPU: 3}, c.now().Node("n").Used())
	c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{Release{Hold: "h"}, Mark{Key: "expired holder"}}})
}

// TestScenario10ReleaseThenCommit: room counts as free exactly from the revision that freed it. (I1)
func TestScenario10ReleaseThenCommit(t *testing.T) {
	c := newCourt(t, cpuNode("n", 3), submitOf(cpuSpec(3), "a", "b"), placeOn("a", "n"))
	for range 3 {
		c.mistakes(placeOn("b", "n"))
		c.commits(Release{Capsule: "a", Stopped: true})
		c.commits(placeOn("b", "n"))
		c.mistakes(placeOn("a", "n"))
		c.commits(Release{Capsule: "b", Stopped: true})
		c.commits(placeOn("a", "n"))
	}
	c.commits(Release{Capsule: "a", Final: true}, placeOn("b", "n"))
}

// TestScenario11Extremes: sums around MaxInt64, within one proposal and across them. (I14)
func TestScenario11Extremes(t *testing.T) {
	const most = math.MaxInt64
	c := newCourt(t, cpuNode("n", most), cpuNode("m", most-1), submitOf(cpuSpec(most), "huge", "huge2"), submitOf(cpuSpec(1), "one"))
	c.mistakes(placeOn("huge", "m"))
	c.mistakes(placeOn("huge", "n"), placeOn("huge2", "n"))
	c.mistakes(placeOn("huge", "n"), placeOn("huge2", "n"), placeOn("one", "n"))
	c.commits(placeOn("huge", "n"))
	for _, do := range [][]Commitment{{placeOn("one", "n")}, {placeOn("huge2", "n")}, {holdOf("h", "n", most)}} {
		r := c.mistakes(do...)
		require.Equal(t, "cpu", r.Dimension)
		require.Zero(t, r.Free)
	}
	c.refuses(ErrInfeasible, Proposal{View: 9, If: []Precondition{NodeFreeOf{"n", Resources{CPU: most}}}, Do: []Commitment{Mark{Key: "x"}}})
	c.commits(cpuNode("n", 0))
	require.EqualValues(t, -most, c.now().Node("n").Free()[CPU])
	c.commits(Release{Capsule: "huge", Final: true})
}

// TestScenario11PlacedAndReleased: what a proposal puts on a node and takes away again never wraps either.
func TestScenario11PlacedAndReleased(t *testing.T) {
	const most = math.MaxInt64
	c := newCourt(t, cpuNode("n", most), submitOf(cpuSpec(most), "huge"))
	c.commits(placeOn("huge", "n"), Release{Capsule: "huge"})
	require.Zero(t, c.now().Node("n").Used())
}

// TestScenario12HostileInput: a malformed proposal is ErrInvalid before any bet is checked. It changes no record and no
// account. (I14)
func TestScenario12HostileInput(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(cpuSpec(1), "a", "b"), placeOn("a", "n"))
	ends := time.Unix(1e9, 0)
	long := strings.Repeat("x", 254)
	spec := func(change func(s *Spec)) Commitment {
		s := cpuSpec(1)
		change(s)
		return submitOf(s, "z")
	}
	weight := func(w float64) Commitment {
		return spec(func(s *Spec) { s.Prefer = []Preference{{Predicate{Key: "k", Op: "Exists"}, w}} })
	}
	for i, bad := range []Commitment{
		nil, &Place{Capsule: "b", Node: "n"}, (*Mark)(nil), &Submit{},
		Place{}, placeOn("b", ""), placeOn("", "n"), placeOn(CapsuleID(long), "n"), Place{Capsule: "b", Node: "n", Note: "\xff"},
		Release{}, Release{Capsule: "a", Hold: "h"}, Release{Hold: "h", Final: true}, Release{Hold: "h", From: "n"},
		Submit{Spec: cpuSpec(-1)}, submitOf(nil, "z"), submitOf(cpuSpec(1), ""), submitOf(cpuSpec(1), "z", "z"), submitOf(cpuSpec(-1), "z"), submitOf(cpuSpec(math.MinInt64), "z"),
		Submit{Gang: &Gang{ID: "g"}}, Submit{Gang: &Gang{}}, gangOf("", 0, "z"), gangOf("g", -1, "z"), gangOf("g", 2, "z"), gangOf("g", 0), gangOf("g", 0, "z", "z"),
		Submit{Gang: &Gang{ID: "g", Roles: []Role{{Members: []CapsuleID{"z"}}}}}, Submit{Gang: gangOf("g", 0, "z").Gang, Spec: cpuSpec(1), IDs: []CapsuleID{"y"}},
		weight(math.NaN()), weight(math.Inf(1)), weight(math.Inf(-1)),
		spec(func(s *Spec) { s.Envelope.Limit[Memory] = -1 }), spec(func(s *Spec) { s.Class = 9 }), spec(func(s *Spec) { s.Module = "\xff" }),
		spec(func(s *Spec) { s.Require = []Predicate{{Key: "k", Op: "Equals"}} }), spec(func(s *Spec) { s.Near.Group = "g" }),
		spec(func(s *Spec) { s.Devices.Milli = 5 }), spec(func(s *Spec) { s.Devices = DeviceRequest{Count: 17, Milli: 1} }),
		spec(func(s *Spec) { s.Devices = DeviceRequest{Count: 1, Milli: 1001} }), spec(func(s *Spec) { s.Devices = DeviceRequest{Count: 1, Milli: -1} }),
		PutNode{}, cpuNode("n", -1), gpuNode("n", 17), gpuNode("n", -1), PutNode{Node{ID: "n", Devices: Devices{Count: 1}}},
		PutNode{Node{ID: "n", Labels: map[string]string{"": "x"}}}, PutNode{Node{ID: "n", Labels: map[string]string{"k": "\xff"}}},
		PutNode{Node{ID: "n", Devices: Devices{Model: "A", Count: 1, Unhealthy: 2}}}, RemoveNode{},
		holdOf("", "n", 1), holdOf("h", "", 1), holdOf("h", "n", -1), holdOf("h", "n", 0), Hold{ID: "h", Node: "n", Room: Resources{1}},
		Hold{ID: "h", Node: "n", Devices: 1, Ends: ends}, Hold{ID: "h", Node: "n", Devices: 1, Milli: 1001, Ends: ends}, Hold{ID: "h", Node: "n", Room: Resources{1}, Milli: 5, Ends: ends},
		Hold{ID: "h", Node: "n", Room: Resources{1}, Ends: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		Assign{}, Assign{Capsule: "a", Owner: long}, Mark{}, Mark{Key: long}, Mark{Key: "k", Value: strings.Repeat("x", 4097)}, Mark{Key: "\xff"},
	} {
		t.Run(fmt.Sprintf("%d %T", i, bad), func(t *testing.T) {
			c := court{t, c.MemoryLedger}
			c.refuses(ErrInvalid, Proposal{Do: []Commitment{bad}})
			r := c.refuses(ErrInvalid, Proposal{View: math.MaxUint64, Do: []Commitment{placeOn("b", "n"), bad}})
			require.Equal(t, 1, r.Do)
			require.ErrorContains(t, r, "commitment 1: ")
		})
	}
	// A name that only refers is not read as text; it names nothing.
	c.mistakes(placeOn("b", "\xff"))
	c.mistakes(placeOn("\xff", "n"))
	c.mistakes(RemoveNode{Node: "\xff"})
	c.commits(placeOn("b", "n"))
}

// TestScenario12HostileBets: the same for bets, and for what is not even a list.
func TestScenario12HostileBets(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5))
	for _, bad := range []Precondition{
		nil, &NodeFreeOf{Node: "n"}, (*MarkAt)(nil), NodeFreeOf{}, NodeFreeOf{"n", Resources{7: -1}}, GroupIn{"\xff", "l", "d"},
		GangUnplaced{}, NodeAt{}, GroupIn{}, GroupIn{"g", "", "d"}, GroupIn{"g", "l", ""}, MarkAt{},
	} {
		r := c.refuses(ErrInvalid, Proposal{Do: []Commitment{Mark{Key: "x"}}, If: []Precondition{bad}})
		require.Equal(t, -1, r.Do)
		require.ErrorContains(t, r, "bet 0: ")
	}
	c.refuses(ErrInvalid, Proposal{})
	r := c.refuses(ErrInvalid, Proposal{Do: []Commitment{submitOf(cpuSpec(1), "z"), submitOf(cpuSpec(1), "z")}})
	require.ErrorContains(t, r, "submitted twice")
	many := make([]Commitment, 500)
	r = c.refuses(ErrInvalid, Proposal{Do: many})
	require.Less(t, len(r.Error()), 5000, "faults are not listed without end")
}

// TestScenario12WindowOfIDs: a window as wide as a number can be does not stop the ledger.
func TestScenario12WindowOfIDs(t *testing.T) {
	const huge = math.MaxInt
	l := &MemoryLedger{Bounds: Limits{huge, huge, huge, huge, huge, huge, huge, huge, huge, huge, huge, huge, huge, huge, huge, huge, 0, 0}}
	for i := range byte(3) {
		_, err := l.Propose(bg, Proposal{ID: idOf(i + 1), Do: []Commitment{cpuNode("n", 5)}})
		require.NoError(t, err)
	}
}

// TestScenario13CapacityShrinks: below what is used, to nothing and back: nothing new is admitted, nothing
// panics, what runs keeps running. (I1)
func TestScenario13CapacityShrinks(t *testing.T) {
	c := newCourt(t, cpuNode("n", 5), submitOf(movable(2), "a", "b", "c"), submitOf(&Spec{}, "free"), placeOn("a", "n"), placeOn("b", "n"))
	for _, room := range []int64{3, 0} {
		c.commits(cpuNode("n", room))
		require.Equal(t, room-4, c.now().Node("n").Free()[CPU])
		c.mistakes(placeOn("c", "n"))
		c.mistakes(holdOf("h", "n", 1))
		require.False(t, c.now().Node("n").Fits(c.now().Capsule("c").Spec))
		require.False(t, c.now().Node("n").hasRoom(&Resources{CPU: 1}))
	}
	c.mistakes(evictionOf(c.now(), "a"), placeOn("a", "n"))
	c.commits(placeOn("free", "n")) // asks for nothing of what is short
	c.commits(cpuNode("n", 6))
	c.commits(placeOn("c", "n"))
	c.mistakes(evictionOf(c.now(), "c"), placeOn("c", "n"), cpuNode("n", 5))
}

// TestScenario14DeviceIsLost: a place and a hold on it are refused, as a conflict when the loss came later;
// what runs there keeps its share, which counts when the device heals. (I1)
func TestScenario14DeviceIsLost(t *testing.T) {
	c := newCourt(t, gpuNode("n", 2), submitOf(gpuSpec(1, 600), "a", "b"), Mark{Key: "m", Value: "v"})
	c.commits(Place{Capsule: "a", Node: "n", Devices: 1})
	view := c.now().Revision()
	sick := gpuNode("n", 2)
	sick.Node.Devices.Unhealthy = 1
	c.commits(sick)
	c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{Place{Capsule: "b", Node: "n", Devices: 1}}})
	c.mistakes(Hold{ID: "h", Node: "n", Devices: 1, Milli: 1, Ends: time.Unix(1, 0)})
	require.Zero(t, c.now().Node("n").DeviceFree(0))
	c.mistakes(Place{Capsule: "b", Node: "n", Devices: 4}) // there never was one
	c.commits(gpuNode("n", 2))
	c.mistakes(Place{Capsule: "b", Node: "n", Devices: 1})
	c.commits(Place{Capsule: "b", Node: "n", Devices: 2})
}

// TestScenario14DeviceIsLostInTheSameProposal: what is placed on an instance that the same proposal takes
// away is over its capacity, as it would be in any dimension.
func TestScenario14DeviceIsLostInTheSameProposal(t *testing.T) {
	c := newCourt(t, gpuNode("n", 4), submitOf(gpuSpec(1, 600), "a", "b"))
	on := func(id CapsuleID) Place { return Place{Capsule: id, Node: "n", Devices: 8} }
	c.mistakes(on("a"), on("b"), gpuNode("n", 2))
	c.mistakes(on("a"), gpuNode("n", 2))
}

// TestScenario15Gangs: with roles and minimums; a first placement is whole or at least the minimum of every
// role; later it may fall short, and be topped up; from nothing it must be whole again. (I3)
func TestScenario15Gangs(t *testing.T) {
	c := newCourt(t, cpuNode("n", 9), Submit{Gang: &Gang{ID: "g", Roles: []Role{
		{Name: "boss", Spec: cpuSpec(1), Members: []CapsuleID{"b"}},
		{Name: "crew", Spec: cpuSpec(1), Members: []CapsuleID{"x", "y", "z"}, Min: 2},
	}}})
	free := []Precondition{GangUnplaced{"g"}}
	for _, few := range [][]CapsuleID{{"b"}, {"b", "x"}, {"x", "y", "z"}} {
		var do []Commitment
		for _, id := range few {
			do = append(do, placeOn(id, "n"))
		}
		c.mistakes(do...)
	}
	c.mistakes(placeOn("b", "n"), placeOn("x", "n"), placeOn("y", "n"), Release{Capsule: "y"})
	view := c.now().Revision()
	c.commits(placeOn("b", "n"), placeOn("x", "n"), placeOn("y", "n"))
	g := c.now().Gang("g")
	require.True(t, g.Short())
	c.refuses(ErrConflict, Proposal{View: view, If: free, Do: []Commitment{placeOn("z", "n")}})
	c.commits(placeOn("z", "n"))
	require.False(t, c.now().Gang("g").Short())
	c.commits(Release{Capsule: "x", Stopped: true}, Release{Capsule: "y", Stopped: true}, Release{Capsule: "z", Stopped: true})
	c.commits(Release{Capsule: "b", Stopped: true})
	c.mistakes(placeOn("b", "n"), placeOn("x", "n"))
	c.commits(placeOn("b", "n"), placeOn("x", "n"), placeOn("z", "n"))
}

// TestScenario15SubmitAndPlace: a gang may be submitted and placed in one proposal, by the same rule.
func TestScenario15SubmitAndPlace(t *testing.T) {
	c := newCourt(t, cpuNode("n", 9))
	c.mistakes(gangOf("g", 2, "x", "y"), placeOn("x", "n"))
	require.Nil(t, c.now().Capsule("x"))
	c.commits(gangOf("g", 2, "x", "y"), placeOn("x", "n"), placeOn("y", "n"))
}

// TestScenario16FailureAtOperationK: a long proposal fails at each of its commitments in turn; the state is
// equal, and the whole goes through afterwards. (I6)
func TestScenario16FailureAtOperationK(t *testing.T) {
	c := newCourt(t, cpuNode("n", 9), cpuNode("old", 1), submitOf(cpuSpec(1), "a", "b"), placeOn("a", "n"), holdOf("h", "n", 1), Mark{Key: "m", Value: "v"})
	whole := []Commitment{
		cpuNode("new", 3), submitOf(cpuSpec(1), "c"), placeOn("c", "new"), Release{Capsule: "a", Final: true}, placeOn("b", "new"), Release{Hold: "h"},
		holdOf("h", "new", 1), Assign{Capsule: "b", Owner: "o"}, Mark{Key: "m"}, gangOf("g", 0, "x"), placeOn("x", "n"), RemoveNode{Node: "old"}, Release{Capsule: "c"},
	}
	for k := range len(whole) + 1 {
		for _, wrong := range []Commitment{placeOn("absent", "n"), RemoveNode{Node: "n"}, Release{Hold: "none"}, Assign{Capsule: "b", From: "not me"}} {
			do := append(append(append([]Commitment{}, whole[:k]...), wrong), whole[k:]...)
			if _, empty := wrong.(RemoveNode); empty && k > 5 && k <= 10 {
				continue // n is empty by then
			}
			r := c.mistakes(do...)
			require.Equal(t, k, r.Do)
			require.Error(t, c.now().Check(Proposal{View: 1, Do: do}))
		}
	}
	c.commits(whole...)
}

// TestScenario18And21Replan: what Check admits is committed; room that a proposal frees is there for its own
// places: no false exhaustion. (I10)
func TestScenario18And21Replan(t *testing.T) {
	c := newCourt(t, cpuNode("n", 3), gpuNode("d", 1), submitOf(cpuSpec(3), "low", "mid", "last", "high"), submitOf(gpuSpec(1, 1000), "p", "q"), placeOn("low", "n"), Place{Capsule: "p", Node: "d", Devices: 1})
	for _, do := range [][]Commitment{
		{Release{Capsule: "low", Final: true}, placeOn("mid", "n")},
		{placeOn("last", "n"), Release{Capsule: "mid", Final: true}}, // in whatever order
		{Release{Capsule: "p", Final: true}, Place{Capsule: "q", Node: "d", Devices: 1}},
		{holdOf("h", "n", 3), Release{Capsule: "last", From: "n", Final: true}},
		{Release{Hold: "h"}, placeOn("high", "n")},
	} {
		require.NoError(t, c.now().Check(Proposal{View: c.now().Revision(), Do: do}))
		c.commits(do...)
	}
}

// TestScenario20TerminalAbsorbs: a cancel races with a commit: what is released for good stays so. (I15)
func TestScenario20TerminalAbsorbs(t *testing.T) {
	c := newCourt(t, cpuNode("n", 3), submitOf(cpuSpec(1), "a"))
	view := c.now().Revision()
	c.commits(Release{Capsule: "a", Final: true})
	for _, late := range []Commitment{placeOn("a", "n"), Release{Capsule: "a", Stopped: true}, Release{Capsule: "a", Final: true}, Assign{Capsule: "a", Owner: "o"}} {
		c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{late}})
		c.mistakes(late)
	}
	require.True(t, c.now().Capsule("a").Released())
	require.False(t, c.now().Capsule("a").Pending())
}

// TestScenario22SecondRelease: a release races with an expiry: the second changes nothing. (I5)
func TestScenario22SecondRelease(t *testing.T) {
	c := newCourt(t, cpuNode("n", 3), submitOf(cpuSpec(1), "a"), placeOn("a", "n"), holdOf("h", "n", 1))
	view := c.now().Revision()
	for _, end := range []Commitment{Release{Hold: "h"}, Release{Capsule: "a", From: "n", Stopped: true}} {
		c.mistakes(end, end)
		c.commits(end)
		c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{end}})
	}
	require.Zero(t, c.now().Node("n").Used())
	c.commits(cpuNode("m", 1), placeOn("a", "m"))
	c.refuses(ErrConflict, Proposal{View: view, Do: []Commitment{Release{Capsule: "a", From: "n", Stopped: true}}})
}

// TestScenario24CallsFromWithin: a reader may call the ledger from within an iterator or a wake-up, because neither
// holds the lock. (I16)
func TestScenario24CallsFromWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCourt(t, cpuNode("n", 9), submitOf(cpuSpec(1), "a", "b", "c"), holdOf("h", "n", 1), gangOf("g", 0, "x"), Mark{Key: "m", Value: "v"})
		s := c.now()
		for p := range s.Capsules() {
			c.commits(placeOn(p.ID, "n"))
		}
		for range s.Nodes() {
			for range s.Holds() {
				for range s.Gangs() {
					for range s.Marks("") {
						c.commits(Mark{Key: "inner", Value: "v"})
					}
				}
			}
		}
		go func() {
			rev, err := c.Wait(bg, c.now().Revision())
			assert.NoError(t, err)
			_, err = c.Propose(bg, Proposal{View: rev, Do: []Commitment{Mark{Key: "woken", Value: "v"}}})
			assert.NoError(t, err)
		}()
		synctest.Wait()
		c.commits(Mark{Key: "wake", Value: "v"})
		synctest.Wait()
		value, _ := c.now().Mark("woken")
		require.Equal(t, "v", value)
	})
}

// TestScenario25HoldsEnd: every hold has an end, one that can be written down. (I11)
func TestScenario25HoldsEnd(t *testing.T) {
	c := newCourt(t, cpuNode("n", 9))
	h := holdOf("h", "n", 1)
	h.Ends = time.Time{}
	c.refuses(ErrInvalid, Proposal{Do: []Commitment{h}})
	west := time.FixedZone("west", -12*3600)
	for _, ends := range []time.Time{
		time.Date(9999, 12, 31, 23, 0, 0, 0, west), // the year 10000 in UTC
		time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		h.Ends = ends
		c.refuses(ErrInvalid, Proposal{Do: []Commitment{h}})
	}
	h.Ends = time.Now().In(west)
	c.commits(h)
	kept, ok := c.now().Hold("h")
	require.True(t, ok)
	require.True(t, kept.Ends.Equal(h.Ends))
	_, err := json.Marshal(kept)
	require.NoError(t, err)
}

// TestScenario26SixteenHalves: on eight devices at once, from sixteen goroutines: all fit, and a seventeenth
// does not. (I1 I11)
func TestScenario26SixteenHalves(t *testing.T) {
	c := newCourt(t, gpuNode("n", 8), submitOf(gpuSpec(1, 500), "c17"))
	done := make(chan error)
	for i := range 16 {
		go func() { done <- placeHalf(c.MemoryLedger, CapsuleID(fmt.Sprint("c", i))) }()
	}
	for range 16 {
		require.NoError(t, <-done)
	}
	n := c.now().Node("n")
	for i := range 8 {
		require.Zero(t, n.DeviceFree(i))
	}
	for i := range 8 {
		c.mistakes(Place{Capsule: "c17", Node: "n", Devices: 1 << i})
	}
	require.NoError(t, c.now().Verify())
}

// placeHalf plans on fresh views until it gets in.
func placeHalf(l *MemoryLedger, id CapsuleID) error {
	if _, err := l.Propose(bg, Proposal{Do: []Commitment{submitOf(gpuSpec(1, 500), id)}}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	for {
		s, err := l.Snapshot(ctx)
		if err != nil {
			return err
		}
		set, ok := s.Node("n").PickDevices(&Spec{Devices: DeviceRequest{Count: 1, Milli: 500}})
		if !ok {
			return fmt.Errorf("no room for %s", id)
		}
		if _, err := l.Propose(ctx, Proposal{View: s.Revision(), Do: []Commitment{Place{Capsule: id, Node: "n", Devices: set}}}); err == nil {
			return nil
		}
	}
}

// TestTwiceInOneProposal: a second gang, hold or capsule of one id in the same proposal can never be committed. It is
// the proposer's mistake, not a conflict that another proposal won, and no receipt names a future revision.
func TestTwiceInOneProposal(t *testing.T) {
	c := newCourt(t, cpuNode("n", 9), gangOf("old", 0, "o"), submitOf(cpuSpec(1), "a"))
	for name, do := range map[string][]Commitment{
		"hold":              {holdOf("h", "n", 1), holdOf("h", "n", 1)},
		"hold, ended, held": {holdOf("h", "n", 1), Release{Hold: "h"}, holdOf("h", "n", 1), holdOf("h", "n", 1)},
		"gang":              {gangOf("g", 0, "x"), gangOf("g", 0, "y")},
		"gang just placed":  {placeOn("o", "n"), gangOf("old", 0, "y")},
		"place":             {placeOn("a", "n"), placeOn("a", "n")},
		"remove":            {RemoveNode{Node: "n"}, RemoveNode{Node: "n"}},
		"release":           {placeOn("a", "n"), Release{Capsule: "a"}, Release{Capsule: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := court{t, c.MemoryLedger}.mistakes(do...)
			require.LessOrEqual(t, r.TakenAt, r.At)
			require.Equal(t, len(do)-1, r.Do)
		})
	}
}

// TestBets: each kind of bet once holds, once is lost to another proposal (conflict), and once could never hold
// (infeasible).
func TestBets(t *testing.T) {
	group := &Spec{Group: "db"}
	c := newCourt(t, cpuNode("n", 5), submitOf(group, "a", "b"), placeOn("a", "n"), gangOf("g", 0, "x"), Mark{Key: "m", Value: "v"})
	n, view := c.now().Node("n"), c.now().Revision()
	_, set := c.now().Mark("m")
	good := []Precondition{
		NodeFreeOf{"n", Resources{CPU: 5}}, NodeAt{"n", n.Usage, n.Specification}, NodeAt{"n", 0, 0}, GangUnplaced{"g"},
		GroupIn{"db", "rack", "r-n"}, MarkAt{"m", set}, MarkAt{"none", 0},
	}
	bad := []Precondition{
		NodeFreeOf{"n", Resources{CPU: 6}}, NodeFreeOf{"x", Resources{}}, NodeAt{"n", 99, 0}, NodeAt{"n", 0, 99}, NodeAt{"x", 0, 0},
		GangUnplaced{"none"}, GroupIn{"db", "rack", "r-x"}, GroupIn{"none", "rack", "r-n"}, GroupIn{"db", "zone", "r-n"}, MarkAt{"m", 99}, MarkAt{"none", 1},
	}
	x := []Commitment{Mark{Key: "x", Value: "v"}}
	for _, bet := range bad {
		r := c.refuses(ErrInfeasible, Proposal{View: view, If: []Precondition{bet}, Do: x})
		require.Equal(t, bet, r.Bet)
	}
	require.NoError(t, c.now().Check(Proposal{View: view, If: good, Do: x}))
	c.commits(placeOn("x", "n"), Release{Capsule: "a", Final: true}, Mark{Key: "m"}, Mark{Key: "none", Value: "v"}, Release{Capsule: "x"}, cpuNode("n", 4))
	for _, bet := range []Precondition{good[0], good[1], good[4], good[5], good[6]} {
		c.refuses(ErrConflict, Proposal{View: view, If: []Precondition{bet}, Do: x})
	}
	c.commits(placeOn("x", "n"))
	c.refuses(ErrConflict, Proposal{View: view, If: []Precondition{GangUnplaced{"g"}}, Do: x})
}

// TestBetsAreJudgedBefore: what the proposal itself changes does not help its bets.
func TestBetsAreJudgedBefore(t *testing.T) {
	c := newCourt(t, cpuNode("n", 3), submitOf(movable(3), "a"), placeOn("a", "n"))
	c.refuses(ErrInfeasible, Proposal{View: 1, If: []Precondition{NodeFreeOf{"n", Resources{CPU: 3}}}, Do: []Commitment{Release{Capsule: "a", Stopped: true}}})
	rev, err := c.Propose(bg, Proposal{View: 1, If: []Precondition{NodeFreeOf{"n", Resources{}}}, Do: []Commitment{evictionOf(c.now(), "a"), cpuNode("m", 3), placeOn("a", "m")}})
	require.NoError(t, err)
	require.NotZero(t, rev)
}
