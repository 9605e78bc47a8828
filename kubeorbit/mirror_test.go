package kubeorbit

import (
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// still is a mirror whose objects the test puts, so that it sees only their last form.
func still(t *testing.T, nodes ...string) *mirror {
	m := (&Scheduler{}).newRun().mirror
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
