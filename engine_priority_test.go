package orbit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// mixedPlan places capsules and whole gangs in the order in which they are handed over, each on the first node that fits.
type mixedPlan struct {
	firstFit
	view *State
	// What the last plan was handed.
	handed []CapsuleID
}

func (m *mixedPlan) Plan(_ context.Context, view *View, pending []*Capsule) (plan Plan, err error) {
	m.view, m.handed = view.State(), idsOf(pending)
	m.draft.Sync(view)
	gangs := map[GangID]error{}
	for _, c := range pending {
		why, known := gangs[c.Gang()]
		if c.Gang() == "" || !known {
			start, members := m.draft.Checkpoint(), []*Capsule{c}
			if why = nil; c.Gang() != "" {
				members = nil
				for member := range view.State().Members(c.Gang()) {
					members = append(members, member)
				}
			}
			for _, member := range members {
				if err := m.draft.PlaceBest(&m.firstFit, member); err != nil && why == nil {
					why = err
				}
			}
			if why != nil {
				m.draft.Rollback(start)
			} else {
				plan.Proposals = append(plan.Proposals, m.draft.Propose())
			}
			if gangs[c.Gang()] = nil; why != nil && c.Gang() != "" {
				why = errors.New("the gang does not fit whole")
			}
			gangs[c.Gang()] = why
		}
		if why != nil {
			plan.Unplaced = append(plan.Unplaced, Unplaced{c, why})
		}
	}
	return plan, nil
}

// priorityWorld is an engine on a small ledger, with rivals that take the room of some of its proposals.
type priorityWorld struct {
	*MemoryLedger
	engine *Engine
	nav    *mixedPlan
	serial int
	// How many of the next proposals lose their bets.
	beaten []bool
	lost   int
}

// ProposeBatch proposes one after the other; a rival comes first where that is due.
func (w *priorityWorld) ProposeBatch(ctx context.Context, batch []Proposal) []Outcome {
	out := make([]Outcome, len(batch))
	for i := range batch {
		if len(w.beaten) > 0 {
			if at, ok := batch[i].Do[0].(Place); ok && w.beaten[0] {
				w.rival(at.Node)
			}
			w.beaten = w.beaten[1:]
		}
		rev, err := w.Propose(ctx, batch[i])
		if out[i] = (Outcome{rev, err}); err != nil {
			w.lost++
		}
	}
	return out
}

// rival takes all that is free of a node.
func (w *priorityWorld) rival(id NodeID) {
	s, _ := w.Snapshot(context.Background())
	n := s.Node(id)
	free := n.Free()[CPU]
	if free <= 0 {
		return
	}
	w.serial++
	c := CapsuleID(fmt.Sprint("rival", w.serial))
	_, _ = w.Propose(context.Background(), Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{c}, Spec: wants(free), Owner: "rival"}, Place{Capsule: c, Node: id}}})
}

// overtaken says which capsule or gang of higher priority could have used the room of one that the last pass placed, by the view
// that this pass planned on; empty: none could.
func (w *priorityWorld) overtaken(before, after *State) string {
	view := w.nav.view
	for low := range after.Capsules() {
		was := before.Capsule(low.ID)
		if low.Owner() != "" || !low.Placed() || was != nil && was.Placed() {
			continue
		}
		for high := range view.Capsules() {
			now := after.Capsule(high.ID)
			if high.Owner() != "" || !high.Pending() || now == nil || !now.Pending() || high.Spec.Priority <= low.Spec.Priority {
				continue
			}
			if w.couldUse(view, before, after, high, low.Node) {
				return fmt.Sprintf("%s of priority %d on %s has overtaken %s of priority %d", low.ID, low.Spec.Priority, low.Node, high.ID, high.Spec.Priority)
			}
		}
	}
	return ""
}

// couldUse reports whether a capsule, or its gang, fits in the view, on the node too, beside what the pass has placed of at least its
// priority; but not if there is enough room for it on nodes on which the pass has placed nothing.
func (w *priorityWorld) couldUse(view, before, after *State, high *Capsule, on NodeID) bool {
	need, size := 1, high.Spec.Envelope.Reservation[CPU]
	if high.Gang() != "" {
		need = 0
		for range view.Members(high.Gang()) {
			need++
		}
	}
	seats, there, elsewhere := 0, 0, 0
	for n := range view.Nodes() {
		free, touched := n.Free()[CPU], false
		for c := range after.On(n.Node.ID) {
			was := before.Capsule(c.ID)
			if c.Owner() == "" && (was == nil || !was.Placed()) {
				touched = true
				if c.Spec.Priority >= high.Spec.Priority {
					free -= c.Spec.Envelope.Reservation[CPU]
				}
			}
		}
		fit := int(max(0, free) / size)
		if n.Node.State != Ready {
			fit = 0
		}
		seats += fit
		if n.Node.ID == on {
			there = fit
		}
		if !touched && fit > 0 {
			elsewhere++
		}
	}
	return there > 0 && seats >= need && elsewhere < need
}

// TestNobodyIsOvertaken: a capsule or a gang that waits is not overtaken by one of lower priority on room that it could use, however
// few a pass plans, whatever bets are lost, and whatever room comes and goes between passes.
func TestNobodyIsOvertaken(t *testing.T) {
	placed, lost, waits := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := &priorityWorld{MemoryLedger: &MemoryLedger{}, nav: &mixedPlan{}}
		most := rapid.IntRange(1, 5).Draw(t, "MaxPlan")
		w.engine = &Engine{Name: "e", Ledger: w, Navigator: w.nav, MaxPlan: most, ParkFor: 24 * time.Hour, Backoff: Backoff{Jitter: -1}}
		for i := range 4 {
			commit(t, w.MemoryLedger, PutNode{machine(NodeID(fmt.Sprint("n", i)), 4)})
		}
		for range rapid.IntRange(1, 25).Draw(t, "passes") {
			for range rapid.IntRange(0, 4).Draw(t, "events") {
				w.happen(t)
			}
			w.beaten = rapid.SliceOfN(rapid.Bool(), 0, 3).Draw(t, "beaten")
			w.nav.view, w.nav.handed = nil, nil
			before := snapshotOf(t, w.MemoryLedger)
			round := w.engine.Pass(context.Background())
			w.engine.Pause(round)
			require.Empty(t, round.Errors)
			after := snapshotOf(t, w.MemoryLedger)
			placed, waits = placed+round.Committed, waits+len(round.Unplaced)
			if w.nav.view != nil {
				if why := w.overtaken(before, after); why != "" {
					t.Fatalf("%s; handed over were %v", why, w.nav.handed)
				}
			}
		}
		lost += w.lost
	})
	t.Logf("%d placed, %d lost, %d left out", placed, lost, waits)
}

// happen submits, releases or changes a node.
func (w *priorityWorld) happen(t *rapid.T) {
	s := snapshotOf(t, w.MemoryLedger)
	spec := wants(rapid.Int64Range(1, 4).Draw(t, "size"))
	spec.Priority = rapid.Int32Range(0, 2).Draw(t, "priority")
	var do Commitment
	switch w.serial++; rapid.IntRange(0, 6).Draw(t, "what") {
	case 0, 1:
		do = Submit{IDs: names(fmt.Sprint("c", w.serial, "-"), rapid.IntRange(1, 2).Draw(t, "capsules")), Spec: spec}
	case 2:
		spec.Class = GangClass
		do = Submit{Gang: &Gang{ID: GangID(fmt.Sprint("g", w.serial)), Roles: []Role{{Name: "r", Spec: spec, Members: names(fmt.Sprint("m", w.serial, "-"), rapid.IntRange(2, 4).Draw(t, "members"))}}}}
	case 3, 4, 5:
		var ids []CapsuleID
		for c := range s.Capsules() {
			if c.Placed() {
				ids = append(ids, c.ID)
			}
		}
		if len(ids) == 0 {
			return
		}
		do = Release{Capsule: rapid.SampledFrom(ids).Draw(t, "ends"), Final: true}
	case 6:
		n := machine(NodeID(fmt.Sprint("n", rapid.IntRange(0, 3).Draw(t, "node"))), rapid.Int64Range(2, 5).Draw(t, "cpu"))
		if rapid.IntRange(0, 3).Draw(t, "cordon") == 0 {
			n.State = Cordoned
		}
		do = PutNode{n}
	}
	_, _ = w.Propose(context.Background(), Proposal{Do: []Commitment{do}})
}

// What a broken gang lacks is planned before all other work of its priority, also work that was submitted earlier, of the
// same spec too; but not before work of a higher one. Once the gang is whole again, the rest waits in its turn.
func TestMembersOfBrokenGangsAreFirst(t *testing.T) {
	l := &MemoryLedger{}
	spec := &Spec{Class: GangClass, Priority: 1, Envelope: Envelope{Reservation: Resources{CPU: 4}}}
	other := &Spec{Class: GangClass, Priority: 1, Module: "other"}
	commit(t, l, Submit{IDs: []CapsuleID{"same-0", "same-1"}, Spec: spec}, Submit{IDs: []CapsuleID{"older"}, Spec: other},
		Submit{Gang: &Gang{ID: "g", Roles: []Role{{Spec: spec, Members: []CapsuleID{"a", "b", "c"}, Min: 2}}}},
		Submit{IDs: []CapsuleID{"high"}, Spec: &Spec{Class: GangClass, Priority: 2}}, PutNode{Node{ID: "n", Capacity: Resources{CPU: 8}}})
	commit(t, l, Place{Capsule: "a", Node: "n"}, Place{Capsule: "b", Node: "n"})
	var handed []CapsuleID
	plan := func(_ context.Context, _ *View, pending []*Capsule) (Plan, error) {
		handed = idsOf(pending)
		return Plan{}, nil
	}
	e := &Engine{Name: "e", Ledger: l, Navigator: planFunc(plan)}
	pass := func() []CapsuleID {
		require.Empty(t, e.Pass(t.Context()).Errors)
		return handed
	}
	require.Equal(t, []CapsuleID{"high", "same-0", "same-1", "older", "c"}, pass())
	commit(t, l, Release{Capsule: "b", Stopped: true})
	require.Equal(t, CapsuleID("high"), pass()[0])
	require.Equal(t, []CapsuleID{"b"}, handed[1:2])
	e.MaxPlan = 2
	require.Equal(t, []CapsuleID{"high", "b"}, pass())
	e = &Engine{Name: "another", Ledger: l, Navigator: planFunc(plan)}
	commit(t, l, Place{Capsule: "b", Node: "n"}, Release{Capsule: "c", Final: true})
	require.Equal(t, []CapsuleID{"high", "same-0", "same-1", "older"}, pass())
}

// Which proposals are withheld depends on the order in which others have lost, and on nothing else: each loser takes the first node
// that nothing else takes, the first loser of those of one priority first.
func TestWithheldInTheOrderOfLosers(t *testing.T) {
	l := &MemoryLedger{}
	picky, any, low := wants(1), wants(1), wants(1)
	picky.Priority, any.Priority = 5, 5
	picky.Require = []Predicate{{Key: "ssd", Op: "Exists"}}
	for _, id := range []NodeID{"a", "b", "c"} {
		n := machine(id, 10)
		if id != "b" {
			n.Labels = map[string]string{"ssd": "yes"}
		}
		commit(t, l, PutNode{n})
	}
	commit(t, l, Submit{IDs: []CapsuleID{"picky"}, Spec: picky}, Submit{IDs: []CapsuleID{"any"}, Spec: any}, Submit{IDs: []CapsuleID{"low"}, Spec: low})
	for range 100 {
		e := &Engine{Name: "e", Ledger: l}
		require.NoError(t, e.view.Refresh(t.Context(), l, nil, time.Now()))
		rest := []Proposal{{Do: []Commitment{Place{Capsule: "low", Node: "c"}}}}
		one, other := e.loserOf(e.view.state.Capsule("picky")), e.loserOf(e.view.state.Capsule("any"))
		e.losers = []loser{one, other}
		require.Len(t, e.withhold(rest, rest, &Round{}), 1, "one takes a, the other one b")
		e.losers = []loser{other, one}
		require.Empty(t, e.withhold(rest, rest, &Round{}), "one takes a, and the other one cannot use b")
	}
}
