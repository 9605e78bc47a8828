package kubeorbit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
)

// A bind that comes late does not bind the pod that was made again under the name meanwhile.
func TestLateBindOfAPodThatWasMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a zone=a", "b zone=b")
		c.set(func(verb, _ string, after bool) error {
			if verb == "bind" && !after {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		p := podFrom(t, small)
		p.Spec.NodeSelector = map[string]string{"zone": "a"}
		c.add(p)
		c.run()
		c.pass(time.Second)
		c.delete("small")
		p.Spec.NodeSelector = map[string]string{"zone": "b"}
		c.add(p)
		c.until("the new pod is bound", func() bool { return c.bound("small") == 1 })
		c.pass(10 * time.Second)
		c.check()
		c.kill()
	})
}

// A bind that has failed is not tried again if the pod says that this is of no use.
func TestBindsThatAreNotTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(c *cluster) // while the first bind is under way
		lost      bool             // the bind succeeds, but its answer is lost
		requests  int
	}{
		"it is bound": {meanwhile: func(*cluster) {}, lost: true, requests: 1},
		"it is gone":  {meanwhile: func(c *cluster) { c.delete("small") }, requests: 1},
		"another pod has its name, and waits": {meanwhile: func(c *cluster) {
			c.delete("small")
			other := podFrom(c.t, small)
			other.Spec.NodeSelector = map[string]string{"zone": "none"}
			c.add(other)
		}, requests: 1},
		"it waits, so that a try is of use": {meanwhile: func(*cluster) {}, requests: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, requests := newCluster(t, "a"), 0
				c.set(func(verb, _ string, after bool) error {
					if verb != "bind" {
						return nil
					}
					c.mu.Lock()
					requests += int(btoi(!after))
					first := requests == 1
					c.mu.Unlock()
					if first && after == test.lost {
						time.Sleep(time.Second)
						return errors.New("refused")
					}
					return nil
				})
				c.add(podFrom(t, small))
				c.run()
				c.pass(500 * time.Millisecond)
				test.meanwhile(c)
				c.pass(time.Minute)
				c.check()
				c.kill()
				require.Equal(t, test.requests, requests)
			})
		})
	}
}

// A node goes and comes back while a bind to it fails, and the pod is placed there anew: that the former bind has failed in the end
// says nothing about the new placement.
func TestPlacedAnewWhileABindFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, requests := newCluster(t, "a"), 0
		c.set(func(verb, _ string, _ bool) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if verb != "bind" {
				return nil
			}
			if requests++; requests <= 4 {
				return errors.New("refused")
			}
			return nil
		})
		c.add(podFrom(t, small))
		c.run()
		c.pass(time.Second)
		require.Equal(t, 3, requests)
		require.NoError(t, c.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
		synctest.Wait()
		c.addNode("a")
		c.update("small", func(p *corev1.Pod) { p.Labels["app"] = "x" })
		c.pass(time.Second)
		require.Equal(t, map[string]string{"small": "a"}, c.on(""))
		state, err := c.ledger.Snapshot(t.Context())
		require.NoError(t, err)
		require.Empty(t, slices.Collect(maps.Keys(maps.Collect(state.Failed()))), "failures")
		c.pass(10 * time.Second)
		c.check()
		c.kill()
	})
}

// evicted returns a mirror of the API server with one node, a, and the capsule of the pod "small". The ledger has just evicted it for the
// pod "urgent"; its bind had begun, and has reached the API server if bound says so.
func evicted(t *testing.T, c *cluster, bound bool) (*mirror, orbit.CapsuleID) {
	m := still(t, "a +cpu=1")
	m.Client = troubled{c.Clientset, c}
	c.add(podFrom(t, small), podFrom(t, strings.NewReplacer("big", "urgent", "'4'", "'1'").Replace(big)))
	see := func() {
		for _, p := range c.pods() {
			require.NoError(t, m.pods.Update(p))
			require.NoError(t, m.compare(t.Context(), podKey(p)))
		}
	}
	see()
	id, urgent := capsuleOf(c.pod("small")), capsuleOf(c.pod("urgent"))
	since := func() orbit.Revision {
		state, err := m.ledger.Snapshot(t.Context())
		require.NoError(t, err)
		return state.Capsule(id).PlacedAt
	}
	commit(t, m.ledger, orbit.Place{Capsule: id, Node: "a"})
	commit(t, m.ledger, orbit.Confirm{Capsule: id, Since: since(), Begun: true})
	if bound {
		c.update("small", func(p *corev1.Pod) { p.Spec.NodeName = "a" })
		see()
	}
	commit(t, m.ledger, orbit.Evict{Capsule: id, From: "a", Since: since(), For: urgent}, orbit.Place{Capsule: urgent, Node: "a"})
	return m, id
}

// The pod of an evicted capsule is deleted, once and with its reason, if it runs; no other pod is.
func TestDeletesWhatIsEvicted(t *testing.T) {
	again := func(c *cluster) {
		other := c.pod("small").DeepCopy()
		other.UID = "another"
		require.NoError(c.t, c.Tracker().Update(pods, other, other.Namespace))
	}
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		unbound  bool
		before   func(c *cluster)                    // before the binder looks
		trouble  func(c *cluster, verb string) error // at its requests
		requests int                                 // to delete the pod
		looks    int                                 // of the mirror are asked for
	}{
		"it runs":                  {requests: 1},
		"it was not bound":         {unbound: true, looks: 1},
		"it has ended":             {before: func(c *cluster) { c.update("small", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }) }, looks: 1},
		"it is being deleted":      {before: func(c *cluster) { c.delete("small") }, looks: 1},
		"it is gone":               {before: func(c *cluster) { require.NoError(c.t, c.Tracker().Delete(pods, "default", "small")) }, looks: 1},
		"another pod has its name": {before: again, looks: 1},
		"another pod gets its name meanwhile": {trouble: func(c *cluster, verb string) error {
			if verb == "delete" {
				again(c)
			}
			return nil
		}, requests: 1, looks: 1},
		"its reason is not written at first": {trouble: func(c *cluster, verb string) error {
			if verb == "patch" {
				return refused
			}
			return nil
		}, requests: 1},
		"its deletion is refused at first": {trouble: func(c *cluster, verb string) error {
			if verb == "delete" {
				return refused
			}
			return nil
		}, requests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				m, id := evicted(t, c, !test.unbound)
				if test.before != nil {
					test.before(c)
				}
				was := c.pod("small")
				for m.queue.Len() > 0 {
					k, _ := m.queue.Get()
					m.queue.Done(k)
				}
				troubled := map[string]bool{} // once for each verb
				meet := func(verb string) error {
					if test.trouble == nil || troubled[verb] {
						return nil
					}
					troubled[verb] = true
					return test.trouble(c, verb)
				}
				c.set(func(verb, _ string, _ bool) error { return meet(verb) })
				c.PrependReactor("patch", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
					err := meet("patch")
					return err != nil, nil, err
				})
				m.binder.do(func() { m.binder.evict(t.Context(), id, "urgent") })
				m.binder.tasks.Wait()
				require.Len(t, c.evicts, test.requests)
				require.Equal(t, test.looks, m.queue.Len())
				state, err := m.ledger.Snapshot(t.Context())
				require.NoError(t, err)
				require.Equal(t, test.unbound, state.Capsule(id).Remains() == nil, "nothing runs")
				is := c.pod("small")
				switch {
				case test.requests == 0:
					require.Equal(t, was, is)
				case is.UID == was.UID:
					require.NotNil(t, is.DeletionTimestamp)
					require.True(t, slices.ContainsFunc(is.Status.Conditions, func(k corev1.PodCondition) bool { return k.Type == corev1.DisruptionTarget }))
				default:
					require.Nil(t, is.DeletionTimestamp)
				}
			})
		})
	}
}

// Where the history of the ledger does not reach back, the binder begins with what the ledger says: it binds what is placed, and deletes
// what is evicted.
func TestBindsAndDeletesWithoutHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m, _ := evicted(t, c, true)
		c.add(podFrom(t, strings.Replace(small, "name: small", "name: next", 1)))
		next := c.pod("next")
		require.NoError(t, m.pods.Add(next))
		require.NoError(t, m.compare(t.Context(), podKey(next)))
		node, err := NodeOf(nodeFrom(t, "b"))
		require.NoError(t, err)
		commit(t, m.ledger, orbit.PutNode{Node: node}, orbit.Place{Capsule: capsuleOf(next), Node: "b"})
		state, err := m.ledger.Snapshot(t.Context())
		require.NoError(t, err)
		m.ledger = &orbit.MemoryLedger{Start: state, Bounds: m.ledger.Bounds, Dimensions: dimensions}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.act(ctx, 1) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, []string{"small"}, c.evicts)
		require.Equal(t, "b", c.on("next")["next"])
	})
}

// What waits on a node until others have stopped there is forgotten when the node goes.
func TestForgetsWhatWaitsOnANodeThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m, _ := evicted(t, c, true)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.act(ctx, 0) }()
		synctest.Wait()
		require.Len(t, m.binder.waiting["a"], 1)
		commit(t, m.ledger, orbit.RemoveNode{Node: "a", Gone: true})
		synctest.Wait()
		require.Empty(t, m.binder.waiting)
		require.Empty(t, c.on("urgent")["urgent"])
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}
