package nav

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// waitingGangs is a ledger with racks of nodes of 4 cpu, and an engine for gangs that is handed few of them at a time.
type waitingGangs struct {
	*testing.T
	ledger orbit.MemoryLedger
	gangs  Gang
	engine orbit.Engine
}

func newWaitingGangs(t *testing.T, nodes int) *waitingGangs {
	w := &waitingGangs{T: t}
	for i := range nodes {
		w.commit(orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: orbit.Resources{orbit.CPU: 4},
			Labels: map[string]string{"rack": fmt.Sprint("r", i/4)}}})
	}
	w.engine = orbit.Engine{Ledger: &w.ledger, Navigator: &w.gangs, MaxPlan: 8}
	return w
}

func (w *waitingGangs) commit(do ...orbit.Commitment) {
	_, err := w.ledger.Propose(w.Context(), orbit.Proposal{Do: do})
	require.NoError(w, err)
}

// submit submits a gang of two, whose members require a label if one is given.
func (w *waitingGangs) submit(id string, cpu int64, label string) {
	spec := &orbit.Spec{Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
	if label != "" {
		spec.Require = []orbit.Predicate{{Key: label, Op: "Exists"}}
	}
	w.commit(orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Levels: []string{"rack"}, Roles: []orbit.Role{
		{Name: "w", Spec: spec, Members: []orbit.CapsuleID{orbit.CapsuleID(id + "/0"), orbit.CapsuleID(id + "/1")}}}}})
}

// pass passes n times, and returns how often seats were looked for.
func (w *waitingGangs) pass(n int) (tries int) {
	before := w.gangs.tries
	for range n {
		require.Empty(w, w.engine.Pass(w.Context()).Errors)
	}
	return w.gangs.tries - before
}

func (w *waitingGangs) placed(id string) bool {
	state, err := w.ledger.Snapshot(w.Context())
	require.NoError(w, err)
	return state.Gang(orbit.GangID(id)).Total() == 2
}

// A gang that has come to fit is placed in the next pass, though it is not its turn to be handed over.
func TestGangThatComesToFitIsPlannedAtOnce(t *testing.T) {
	w := newWaitingGangs(t, 40)
	for i := range 200 {
		w.submit(fmt.Sprint("g", i), 1, fmt.Sprint("label", i))
	}
	w.pass(60) // all have had their turn, which is that of some others now
	for _, i := range []int{3, 150, 77, 199} {
		w.commit(orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("new", i)), Capacity: orbit.Resources{orbit.CPU: 4},
			Labels: map[string]string{"rack": fmt.Sprint("new", i), fmt.Sprint("label", i): ""}}})
		w.pass(1)
		assert.True(t, w.placed(fmt.Sprint("g", i)), i)
	}
	assert.False(t, w.placed("g0"))
}

// Of many gangs that ask for the same, as many are placed in one pass as have come to fit, first come first served.
func TestGangsThatComeToFitTogether(t *testing.T) {
	w := newWaitingGangs(t, 4)
	for i := range 100 {
		w.submit(fmt.Sprint("g", i), 5, "")
	}
	w.pass(30)
	w.commit(orbit.PutNode{Node: orbit.Node{ID: "large", Capacity: orbit.Resources{orbit.CPU: 200}, Labels: map[string]string{"rack": "large"}}})
	w.pass(1)
	for i := range 100 {
		assert.Equal(t, i < 20, w.placed(fmt.Sprint("g", i)), i)
	}
}

// Gangs are forgotten once all their members are released, although the ledger keeps their records for long. Those that
// still wait are remembered.
func TestReleasedGangsAreForgotten(t *testing.T) {
	w := newWaitingGangs(t, 4)
	w.submit("waits", 5, "")
	for i := range 1_000 {
		id := fmt.Sprint("g", i)
		w.submit(id, 5, fmt.Sprint("label", i%7))
		w.pass(2)
		for _, member := range []string{"/0", "/1"} {
			w.commit(orbit.Release{Capsule: orbit.CapsuleID(id + member), Final: true})
		}
	}
	w.pass(50)
	assert.Less(t, len(w.gangs.waits), 100)
	assert.Contains(t, w.gangs.waits, orbit.GangID("waits"))
	state, err := w.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	assert.NotNil(t, state.Gang("g0"))
}

// A gang that lost its place to another commit is planned again, though it was not handed over.
func TestGangThatLosesItsPlaceIsRemembered(t *testing.T) {
	w := newWaitingGangs(t, 4)
	for i := range 100 {
		w.submit(fmt.Sprint("g", i), 5, "")
	}
	w.pass(30)
	w.commit(orbit.PutNode{Node: orbit.Node{ID: "large", Capacity: orbit.Resources{orbit.CPU: 10}, Labels: map[string]string{"rack": "large"}}})
	var view orbit.View
	require.NoError(t, view.Refresh(t.Context(), &w.ledger, nil, view.Now()))
	for range 3 { // what it proposes is never sent
		plan, err := w.gangs.Plan(t.Context(), &view, nil)
		require.NoError(t, err)
		require.Len(t, plan.Proposals, 1)
	}
	w.pass(1)
	assert.True(t, w.placed("g0"))
}

// A gang whose members have been given to another engine is left alone.
func TestGangOfAnotherOwnerIsNotRemembered(t *testing.T) {
	w := newWaitingGangs(t, 4)
	for i := range 20 {
		w.submit(fmt.Sprint("g", i), 5, "")
	}
	w.pass(10)
	w.commit(orbit.Assign{Capsule: "g0/0", Owner: "other"}, orbit.Assign{Capsule: "g0/1", Owner: "other"})
	w.commit(orbit.PutNode{Node: orbit.Node{ID: "large", Capacity: orbit.Resources{orbit.CPU: 10}, Labels: map[string]string{"rack": "large"}}})
	w.pass(1)
	assert.False(t, w.placed("g0"))
	assert.True(t, w.placed("g1"))
}

// When a node has come that is too small, seats are looked for once for all gangs that ask for the same; and not at all
// when nothing has come.
func TestGangEffortIsThatOfWhatHasChanged(t *testing.T) {
	effort := func(gangs int) (tries int) {
		w := newWaitingGangs(t, 40)
		for i := range gangs {
			w.submit(fmt.Sprint("g", i), 5, "")
		}
		for i := range 20 {
			w.submit(fmt.Sprint("other", i), 1, "nowhere")
		}
		w.pass((gangs + 20) / 2)
		for i := range 10 {
			w.commit(orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("new", i)), Capacity: orbit.Resources{orbit.CPU: 5},
				Labels: map[string]string{"rack": fmt.Sprint("new", i)}}})
			tries += w.pass(1)
			require.Zero(t, w.pass(3))
		}
		return tries
	}
	few, many := effort(10), effort(500)
	assert.Equal(t, 20, few, "there are two demands")
	assert.Equal(t, few, many)
}
