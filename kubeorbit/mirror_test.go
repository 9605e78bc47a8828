package kubeorbit

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// A pod on a node that is not known is no fault to be tried again: the node brings it.
func TestPodOnAnUnknownNode(t *testing.T) {
	m := still(t, "a")
	p := podFrom(t, small)
	p.Spec.SchedulerName = "orbit"
	require.NoError(t, m.pods.Add(p))
	require.NoError(t, m.compare(t.Context(), podKey(p)))
	p = p.DeepCopy()
	p.Spec.NodeName = "unknown"
	require.NoError(t, m.pods.Update(p))
	require.NoError(t, m.compare(t.Context(), podKey(p)))
	require.Empty(t, m.alive(t))
}

// A pod that was evicted while its bind was under way, and still waits, is left to what deletes it.
func TestEvictedAndNotBoundYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, id := evicted(t, newCluster(t), false)
		require.NoError(t, m.compare(t.Context(), key{ofPod, podOf(id)}))
		require.Empty(t, m.leaves.all())
		state, err := m.ledger.Snapshot(t.Context())
		require.NoError(t, err)
		require.NotNil(t, state.Capsule(id).Remains())
		require.True(t, state.Capsule(id).Released(), "it waits again only when it is known not to run")
	})
}

// The spec of a pod that is placed, and not bound yet, follows the pod: its labels, for example, count there at once.
func TestPlacedPodThatChanges(t *testing.T) {
	m := still(t, "a")
	p := podFrom(t, small)
	p.Spec.SchedulerName = "orbit"
	require.NoError(t, m.pods.Add(p))
	require.NoError(t, m.compare(t.Context(), podKey(p)))
	commit(t, m.ledger, orbit.Place{Capsule: capsuleOf(p), Node: "a"})
	p = p.DeepCopy()
	p.Spec.Priority = new(int32(7))
	require.NoError(t, m.pods.Update(p))
	require.NoError(t, m.compare(t.Context(), podKey(p)))
	state, err := m.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	require.Equal(t, orbit.NodeID("a"), state.Capsule(capsuleOf(p)).Node)
	require.Equal(t, int32(7), state.Capsule(capsuleOf(p)).Spec.Priority)
}

// A pod that was evicted before its bind came, and that another party has bound elsewhere, counts there, and nowhere else.
func TestEvictedAndBoundElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m, id := evicted(t, c, false)
		require.NoError(t, m.nodes.Add(nodeFrom(t, "b")))
		require.NoError(t, m.compare(t.Context(), key{ofNode, types.NamespacedName{Name: "b"}}))
		c.update("small", func(p *corev1.Pod) { p.Spec.NodeName = "b" })
		require.NoError(t, m.pods.Update(c.pod("small")))
		require.NoError(t, m.compare(t.Context(), podKey(c.pod("small"))))
		state, err := m.ledger.Snapshot(t.Context())
		require.NoError(t, err)
		require.Equal(t, orbit.NodeID("b"), state.Capsule(id).Node)
		require.Nil(t, state.Capsule(id).Remains())
	})
}

// Another party binds a pod that the ledger has placed: the pod counts where it is. Only if its bind had begun here and has not come
// through does that count as a failure of the node.
func TestAnotherPartyBindsFirst(t *testing.T) {
	for name, test := range map[string]struct {
		begun    bool
		on       string
		failures int
	}{
		"elsewhere":                         {on: "b"},
		"at the same node":                  {on: "a"},
		"elsewhere, while a bind was begun": {begun: true, on: "b", failures: 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := still(t, "a", "b")
			p := podFrom(t, small)
			p.Spec.SchedulerName = "orbit"
			id := capsuleOf(p)
			is := func() *orbit.State {
				state, err := m.ledger.Snapshot(t.Context())
				require.NoError(t, err)
				return state
			}
			require.NoError(t, m.pods.Add(p))
			require.NoError(t, m.compare(t.Context(), podKey(p)))
			commit(t, m.ledger, orbit.Place{Capsule: id, Node: "a"})
			if test.begun {
				commit(t, m.ledger, orbit.Confirm{Capsule: id, Since: is().Capsule(id).PlacedAt, Begun: true})
			}
			p = p.DeepCopy()
			p.Spec.NodeName = test.on
			require.NoError(t, m.pods.Update(p))
			require.NoError(t, m.compare(t.Context(), podKey(p)))
			require.Equal(t, orbit.NodeID(test.on), is().Capsule(id).Node)
			require.True(t, is().Capsule(id).Begun)
			require.Equal(t, test.failures, is().Failures(id).Attempts)
		})
	}
}

// drain compares all that is queued.
func (m *mirror) drain(t *testing.T) {
	for m.queue.Len() > 0 {
		k, _ := m.queue.Get()
		require.NoError(t, m.compare(t.Context(), k))
		m.queue.Done(k)
	}
}

// A comparison of everything finds what the mirror was never told: what the ledger has and the API server has not ends, and what the
// API server has and the ledger has not begins.
func TestComparesEverything(t *testing.T) {
	m := still(t, "a")
	for _, stray := range []orbit.CapsuleID{"default/stray/uid", "default/p/older"} {
		commit(t, m.ledger, orbit.Submit{IDs: []orbit.CapsuleID{stray}, Spec: &orbit.Spec{Ends: true}}, orbit.Adopt{Capsule: stray, Node: "a"})
	}
	commit(t, m.ledger,
		orbit.PutNode{Node: orbit.Node{ID: "gone", Confirms: true}}, orbit.PutBudget{Budget: orbit.Budget{ID: "default/gone", Group: "g", Expected: 1}})
	gone, again, waits := podFrom(t, small), podFrom(t, web(apart(zonal+", "+ofWeb))), podFrom(t, big)
	for _, p := range []*corev1.Pod{gone, again, waits} {
		p.Spec.SchedulerName = "orbit"
	}
	for _, p := range []*corev1.Pod{gone, again} {
		require.NoError(t, m.pods.Add(p))
		require.NoError(t, m.compare(t.Context(), podKey(p)))
	}
	// From here on it is told nothing.
	require.NoError(t, m.pods.Delete(gone))
	require.NoError(t, m.pods.Delete(again))
	again = again.DeepCopy()
	again.UID = "again"
	for _, p := range []*corev1.Pod{again, waits} {
		require.NoError(t, m.pods.Add(p))
	}
	require.NoError(t, m.nodes.Add(nodeFrom(t, "b")))
	require.NoError(t, m.budgets.Add(guard(t)))
	require.NoError(t, m.compare(t.Context(), key{kind: everything}))
	m.drain(t)
	state, err := m.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	require.Nil(t, state.Node("gone"))
	require.NotNil(t, state.Node("b"))
	_, has := state.Budget("default/gone")
	require.False(t, has)
	_, has = state.Budget("default/guard")
	require.True(t, has)
	require.ElementsMatch(t, []orbit.CapsuleID{capsuleOf(again), capsuleOf(waits)}, m.alive(t))
	require.NotContains(t, m.known, podKey(gone))
}

// guard is a disruption budget of all pods of the namespace default.
func guard(t *testing.T) *policyv1.PodDisruptionBudget {
	return read[policyv1.PodDisruptionBudget](t, "{metadata: {name: guard, namespace: default}, spec: {minAvailable: 1, selector: {}}}")
}

// Everything is compared from time to time, and not only once.
func TestComparesAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := still(t, "a")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.follow(ctx) }()
		for i, p := range named(podFrom(t, small), 3) {
			p.UID, p.Spec.SchedulerName = types.UID(p.Name), "orbit"
			require.NoError(t, m.pods.Add(p))
			time.Sleep(m.every() + time.Second)
			synctest.Wait()
			require.Len(t, m.alive(t), i+1)
		}
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

// An object that could not be compared is compared again after a while, with growing delays, also if it does not change.
func TestTriesAgainWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := still(t, "a")
		broken := guard(t)
		broken.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "k", Operator: "no such"}}
		k := key{ofBudget, types.NamespacedName{Namespace: "default", Name: "guard"}}
		has := func() bool {
			synctest.Wait()
			state, err := m.ledger.Snapshot(t.Context())
			require.NoError(t, err)
			_, has := state.Budget("default/guard")
			return has
		}
		require.NoError(t, m.budgets.Add(broken))
		_, err := m.load(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.follow(ctx) }()
		for range 2 { // when all is read, and later
			time.Sleep(time.Second)
			require.False(t, has())
			require.Positive(t, m.queue.NumRequeues(k))
			require.NoError(t, m.budgets.Update(guard(t)))
			time.Sleep(2 * time.Second)
			require.True(t, has())
			require.Zero(t, m.queue.NumRequeues(k))
			require.NoError(t, m.budgets.Delete(broken))
			m.queue.Add(k)
			require.False(t, has())
			require.NoError(t, m.budgets.Add(broken))
			m.queue.Add(k)
		}
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
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

// When all pods are read, each has its groups at once, also those that are named by pods that are read later: an engine would
// place it without them.
func TestReadsAllSelectionsFirst(t *testing.T) {
	m := still(t, "a zone=a", "b zone=b")
	bound := podFrom(t, web(apart(zonal+", "+ofWeb)))
	bound.Spec.NodeName = "a"
	require.NoError(t, m.pods.Add(bound))
	waits := named(podFrom(t, small), 16) // the store yields pods in any order
	for _, p := range waits {
		p.UID, p.Labels, p.Spec.SchedulerName = types.UID(p.Name), map[string]string{"app": "web"}, "orbit"
		require.NoError(t, m.pods.Add(p))
	}
	_, err := m.load(t.Context())
	require.NoError(t, err)
	state, err := m.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	for _, p := range waits {
		require.NotEmpty(t, state.Capsule(capsuleOf(p)).Spec.Group, p.Name)
	}
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
