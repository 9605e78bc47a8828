package kubeorbit

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/orbitsched/orbit"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
)

// still is a mirror whose objects the test puts, so that it sees only their last form.
func still(t *testing.T, nodes ...string) *mirror {
	m := (&Scheduler{Events: &events.FakeRecorder{}, Logger: slog.New(slog.DiscardHandler)}).newRun().mirror
	t.Cleanup(m.stop)
	stores := func() cache.Store { return cache.NewStore(cache.MetaNamespaceKeyFunc) }
	m.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	m.nodes, m.budgets, m.claims, m.volumes, m.spaces = stores(), stores(), stores(), stores(), stores()
	for _, n := range nodes {
		require.NoError(t, m.nodes.Add(nodeFrom(t, n)))
	}
	_, err := m.load(t.Context())
	require.NoError(t, err)
	return m
}

// alive returns the capsules that have not ended.
func (m *mirror) alive(t *testing.T) (ids []orbit.CapsuleID) {
	state, err := m.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	for c := range state.Capsules() {
		if !c.Released() || c.Remains() != nil {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Between two looks a pod was deleted and made again under its name, here on a node.
func TestMadeAgainBetweenTwoLooks(t *testing.T) {
	m := still(t, "a")
	p := podFrom(t, small)
	p.Spec.NodeName = "a"
	require.NoError(t, m.pods.Add(p))
	require.NoError(t, m.compare(t.Context(), podKey(p)))
	require.Equal(t, []orbit.CapsuleID{capsuleOf(p)}, m.alive(t))
	again := p.DeepCopy()
	again.UID = types.UID("again")
	require.NoError(t, m.pods.Update(again))
	require.NoError(t, m.compare(t.Context(), podKey(p)))
	require.Equal(t, []orbit.CapsuleID{capsuleOf(again)}, m.alive(t))
	require.Nil(t, m.pod(capsuleOf(p)), "what is said of the former pod is not said of this one")
	require.Equal(t, again, m.pod(capsuleOf(again)))
}

// What the ledger has and the API server has not, a comparison of everything ends.
func TestComparesEverything(t *testing.T) {
	m := still(t, "a")
	stray := orbit.CapsuleID("default/stray/uid")
	spec := &orbit.Spec{Ends: true}
	_, err := m.ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
		orbit.Submit{IDs: []orbit.CapsuleID{stray}, Spec: spec}, orbit.Adopt{Capsule: stray, Node: "a"},
		orbit.PutNode{Node: orbit.Node{ID: "gone", Confirms: true}}, orbit.PutBudget{Budget: orbit.Budget{ID: "default/gone", Group: "g", Expected: 1}},
	}})
	require.NoError(t, err)
	p := podFrom(t, small)
	require.NoError(t, m.pods.Add(p)) // it was never told of the pod
	require.NoError(t, m.compare(t.Context(), key{kind: everything}))
	for m.queue.Len() > 0 {
		k, _ := m.queue.Get()
		require.NoError(t, m.compare(t.Context(), k))
		m.queue.Done(k)
	}
	state, err := m.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	require.Nil(t, state.Node("gone"))
	_, has := state.Budget("default/gone")
	require.False(t, has)
	p.Spec.SchedulerName = "orbit"
	require.NotContains(t, m.alive(t), stray)
}

// A pod is placed anew before the bind of its former placement has ended: it is bound afterwards.
func TestPlacedAnewWhileItIsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.add(podFrom(t, small))
		m := still(t, "a")
		m.Client = c
		p := c.pod("small")
		require.NoError(t, m.pods.Add(p))
		require.NoError(t, m.compare(t.Context(), podKey(p)))
		m.binder.binding[capsuleOf(p)] = make(chan struct{})
		_, err := m.ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: capsuleOf(p), Node: "a"}}})
		require.NoError(t, err)
		m.binder.begin(t.Context(), capsuleOf(p))
		require.Empty(t, c.on("small")["small"])
		m.binder.bound(t.Context(), capsuleOf(p))
		m.binder.tasks.Wait()
		require.Equal(t, "a", c.on("small")["small"])
	})
}

// Another scheduler fills the node before a placed pod begins there: the placement is given back, and the pod waits again.
func TestGivesBackWhereOthersHaveFilledTheNode(t *testing.T) {
	m := still(t, "a")
	ours, theirs := podFrom(t, big), podFrom(t, small)
	ours.Spec.SchedulerName, theirs.Spec.NodeName = "orbit", "a"
	require.NoError(t, m.pods.Add(ours))
	require.NoError(t, m.compare(t.Context(), podKey(ours)))
	id := capsuleOf(ours)
	_, err := m.ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: "a"}}})
	require.NoError(t, err)
	require.NoError(t, m.pods.Add(theirs))
	require.NoError(t, m.compare(t.Context(), podKey(theirs)))
	m.binder.begin(t.Context(), id)
	state, err := m.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	require.True(t, state.Capsule(id).Pending())
}

// vanishing is a store whose pods are gone when they are looked up after they were listed.
type vanishing struct{ cache.Indexer }

func (vanishing) GetByKey(string) (any, bool, error) { return nil, false, nil }

func TestPodsThatVanishWhileAllAreRead(t *testing.T) {
	m := still(t, "a")
	waits, runs := podFrom(t, small), podFrom(t, big)
	waits.Spec.SchedulerName, runs.Spec.NodeName = "orbit", "a"
	require.NoError(t, m.pods.Add(waits))
	require.NoError(t, m.pods.Add(runs))
	m.pods = vanishing{m.pods}
	_, err := m.load(t.Context())
	require.NoError(t, err)
	require.Empty(t, m.alive(t))
	require.Empty(t, m.known)
}
