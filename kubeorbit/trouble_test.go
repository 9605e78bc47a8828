package kubeorbit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/kubeorbit/fit"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// big takes all of a node; small takes a quarter.
const (
	big   = "metadata: {name: big}\nspec: {priority: 10, containers: [{name: m, resources: {requests: {cpu: '4'}}}]}"
	small = "metadata: {name: small, labels: {app: small}}\nspec: {containers: [{name: m, resources: {requests: {cpu: '1'}}}]}"
)

// set changes what a scheduler's requests meet.
func (c *cluster) set(trouble func(verb, pod string, after bool) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble = trouble
}

// update changes an object of the default namespace as another client does.
func (c *cluster) update(name string, change func(*corev1.Pod)) {
	p := c.pod(name).DeepCopy()
	change(p)
	require.NoError(c.t, c.Tracker().Update(pods, p, p.Namespace))
	synctest.Wait()
}

// delete deletes a pod as its controller does.
func (c *cluster) delete(name string) {
	require.NoError(c.t, c.CoreV1().Pods("default").Delete(c.t.Context(), name, metav1.DeleteOptions{}))
}

func TestTrouble(t *testing.T) {
	refused := errors.New("refused")
	for name, trouble := range map[string]func(verb, pod string, after bool) error{
		"every other bind fails": func() func(verb, pod string, after bool) error {
			n := 0
			return func(verb, _ string, after bool) error {
				if verb == "bind" && !after {
					if n++; n%2 == 0 {
						return refused
					}
				}
				return nil
			}
		}(),
		"answers to binds are lost": func(verb, _ string, after bool) error {
			if verb == "bind" && after {
				return refused
			}
			return nil
		},
		"binds of some pods never reach the server in their first minute": func() func(verb, pod string, after bool) error {
			began := time.Time{}
			return func(verb, pod string, after bool) error {
				if began.IsZero() {
					began = time.Now()
				}
				if verb == "bind" && !after && strings.HasSuffix(pod, "7") && time.Since(began) < time.Minute {
					return refused
				}
				return nil
			}
		}(),
		"requests are slow": func(verb, pod string, after bool) error {
			time.Sleep(time.Duration(len(pod)*37%5) * 700 * time.Millisecond)
			return nil
		},
		"the server is away from time to time": func(verb, _ string, after bool) error {
			if time.Now().Second()%20 < 10 {
				return refused
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, zoned(6)...)
				var mu = make(chan struct{}, 1)
				c.set(func(verb, pod string, after bool) error {
					mu <- struct{}{}
					defer func() { <-mu }()
					return trouble(verb, pod, after)
				})
				c.add(named(podFrom(t, spreadWeb), 20)...)
				c.run()
				c.pass(time.Second)
				c.delete("web-3")
				c.delete("web-4")
				c.until("the name is free", func() bool { return c.pod("web-3") == nil })
				c.add(named(podFrom(t, spreadWeb), 4)[3])
				c.until("all pods are bound", func() bool { return c.bound("web") == 19 })
				c.pass(30 * time.Second)
				c.same()
				for _, f := range c.faults() { // what was deleted has left the others uneven
					require.Equal(t, fit.Skew, f.Kind, f.String())
				}
				c.kill()
			})
		})
	}
}

// A pod that is made again under its name is another pod, also while the former one is being bound or stops.
func TestMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		c.add(podFrom(t, big))
		c.set(func(verb, _ string, after bool) error {
			if verb == "bind" && after {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		c.run()
		c.pass(500 * time.Millisecond)
		zero := int64(0)
		require.NoError(t, c.CoreV1().Pods("default").Delete(t.Context(), "big", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
		c.add(podFrom(t, big))
		c.until("the new pod is bound", func() bool { return c.bound("big") == 1 })
		c.pass(10 * time.Second)
		c.check()
		c.kill()
	})
}

func TestRestartsBindNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, zoned(9)...)
		c.set(func(string, string, bool) error { time.Sleep(30 * time.Millisecond); return nil })
		c.add(named(podFrom(t, spreadWeb), 60)...)
		for range 6 {
			c.run()
			c.pass(500 * time.Millisecond)
			c.kill()
		}
		require.Positive(t, c.bound("web"))
		c.run()
		c.until("all pods are bound", func() bool { return c.bound("web") == 60 })
		c.pass(10 * time.Second)
		c.check()
		c.kill()
	})
}

// Two replicas schedule at once, as for a moment when the lease passes from one to the other: no pod is bound twice, and both
// ledgers say in the end what the API server says.
func TestTwoReplicasAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, zoned(9)...)
		c.set(func(string, string, bool) error { time.Sleep(30 * time.Millisecond); return nil })
		c.add(named(podFrom(t, spreadWeb), 60)...)
		c.run()
		c.pass(250 * time.Millisecond)
		ledger, cancel, ended := c.ledger, c.cancel, c.ended
		c.run()
		c.pass(250 * time.Millisecond)
		require.NotSame(t, ledger, c.ledger)
		c.add(named(podFrom(t, small), 10)...)
		c.pass(time.Second)
		c.delete("web-3")
		c.until("all pods are bound", func() bool { return c.bound("web") == 59 && c.bound("small") == 10 })
		c.pass(10 * time.Second)
		for _, f := range c.faults() { // each spreads what it has not seen the other bind
			require.Equal(t, fit.Skew, f.Kind, f.String())
		}
		c.same()
		second := c.ledger
		c.ledger = ledger
		c.same()
		c.ledger = second
		c.kill()
		c.cancel, c.ended = cancel, ended
		c.kill()
	})
}

func TestPreemptsWithinBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b", "c")
		c.add(named(podFrom(t, small), 12)...)
		c.run()
		c.until("the small pods are bound", func() bool { return c.bound("small") == 12 })
		c.pass(5 * time.Second)
		_, err := c.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(intstr.FromInt32(8)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "small"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{ExpectedPods: 12, DesiredHealthy: 8, CurrentHealthy: 12, DisruptionsAllowed: 4},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		c.pass(time.Second)
		c.add(named(podFrom(t, big), 2)...)
		c.until("one urgent pod is bound", func() bool { return c.bound("big") == 1 })
		c.pass(3 * time.Minute)
		require.Equal(t, 1, c.bound("big"), "the budget lets four go, so one node becomes free")
		require.Len(t, c.evicts, 4)
		waits := c.pod(slices.Collect(unbound(c.on("big")))[0])
		require.Contains(t, waits.Status.Conditions[0].Message, "budget", "the pod says what it waits for: %v", waits.Status.Conditions)
		c.check()
		c.kill()
	})
}

// For GPUs pods of lower priority are evicted, too, and what has waited for many GPUs is nominated those that become free.
func TestPreemptsForGPUs(t *testing.T) {
	const asks = "spec: {priority: %d, containers: [{name: m, resources: {requests: {nvidia.com/gpu: %d}, limits: {nvidia.com/gpu: %[2]d}}}]}"
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a +nvidia.com/gpu=8", "b")
		one := podFrom(t, "metadata: {name: one}\n"+fmt.Sprintf(asks, 0, 1))
		c.add(named(one, 8)...)
		c.run()
		c.until("the pods with one GPU are bound", func() bool { return c.bound("one") == 8 })
		c.pass(5 * time.Second)
		c.add(podFrom(t, "metadata: {name: urgent}\n"+fmt.Sprintf(asks, 100, 2)))
		c.until("the urgent pod is bound", func() bool { return c.bound("urgent") == 1 })
		require.Len(t, c.evicts, 2)
		c.add(podFrom(t, "metadata: {name: all}\n"+fmt.Sprintf(asks, 100, 7)))
		c.pass(time.Minute)
		all := c.pod("all")
		require.Zero(t, c.bound("all"), "the urgent pod has its priority")
		require.Contains(t, all.Status.Conditions[0].Message, "nvidia.com/gpu")
		require.Len(t, c.evicts, 2, "nothing is evicted in vain")
		c.check()
		c.kill()
	})
}

// unbound yields the pods that have no node.
func unbound(on map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name, node := range on {
			if node == "" && !yield(name) {
				return
			}
		}
	}
}

func ptr[T any](v T) *T { return &v }

// While victims stop, nothing is bound in their place, and the pod says on which node it waits.
func TestWaitsForVictims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.stops = 20 * time.Second
		c.add(named(podFrom(t, small), 4)...)
		c.run()
		c.until("the small pods are bound", func() bool { return c.bound("small") == 4 })
		c.pass(5 * time.Second)
		c.add(podFrom(t, big))
		c.until("the small pods are deleted", func() bool { return c.bound("small") == 0 })
		c.pass(2 * time.Second)
		require.Empty(t, c.on("big")["big"])
		require.Equal(t, "a", c.pod("big").Status.NominatedNodeName)
		condition := c.pod("small-0").Status.Conditions
		require.True(t, slices.ContainsFunc(condition, func(k corev1.PodCondition) bool {
			return k.Type == corev1.DisruptionTarget && k.Reason == corev1.PodReasonPreemptionByScheduler
		}), "%v", condition)
		c.until("the urgent pod is bound", func() bool { return c.bound("big") == 1 })
		c.pass(5 * time.Second)
		c.check()
		c.kill()
	})
}

const gangPod = `
metadata: {name: gang, labels: {kubeorbit.dev/gang: train}, annotations: {kubeorbit.dev/gang-min: "4"}}
spec: {containers: [{name: m, resources: {requests: {cpu: '2'}}}]}
`

func TestGangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		all := named(podFrom(t, gangPod), 5)
		c.add(all[:3]...)
		c.run()
		c.pass(5 * time.Second)
		require.Zero(t, c.bound("gang"))
		require.Contains(t, c.whyNot(), "3 of the 4 pods")
		c.add(all[3])
		c.pass(10 * time.Second)
		require.Zero(t, c.bound("gang"), "there is room for two")
		c.addNode("b")
		c.until("the gang is bound", func() bool { return c.bound("gang") == 4 })
		c.pass(5 * time.Second)
		c.check()
		c.addNode("c")
		c.add(all[4])
		c.until("the fifth member joins", func() bool { return c.bound("gang") == 5 })
		c.pass(5 * time.Second)
		c.check()
		c.kill()
		c.delete("gang-1")
		c.pass(5 * time.Second)
		c.run()
		c.add(all[1])
		c.until("a member is replaced after a restart", func() bool { return c.bound("gang") == 5 })
		c.pass(5 * time.Second)
		c.check()
		for i := range all { // it ends, and is made again
			c.delete(fmt.Sprintf("gang-%d", i))
		}
		c.pass(5 * time.Second)
		require.Empty(t, c.on("gang"))
		c.add(all...)
		c.until("the gang runs again", func() bool { return c.bound("gang") == 5 })
		c.pass(5 * time.Second)
		c.check()
		c.kill()
	})
}

// All pods of a gang that lacks pods say how many are there, not how many were there when they came.
func TestGangSaysHowManyAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, zoned(3)...)
		p := podFrom(t, gangPod)
		c.run()
		c.pass(5 * time.Second)
		c.add(named(p, 2)...)
		c.pass(3 * time.Second)
		for _, p := range c.pods() {
			require.True(t, saysWhy(p, "has 2 of the 4 pods"), "%v", p.Status.Conditions)
		}
		c.kill()
	})
}

// podGroup makes a pod group with a minimum, and returns a pod of it.
func (c *cluster) podGroup(name string, least int32) *corev1.Pod {
	_, err := c.SchedulingV1alpha2().PodGroups("default").Create(c.t.Context(), &schedulingv1alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Generation: 3},
		Spec:       schedulingv1alpha2.PodGroupSpec{SchedulingPolicy: schedulingv1alpha2.PodGroupSchedulingPolicy{Gang: &schedulingv1alpha2.GangSchedulingPolicy{MinCount: least}}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	p := podFrom(c.t, strings.Replace(small, "name: small", "name: "+name, 1))
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	return p
}

// groupSays returns the condition PodGroupScheduled of a pod group; nil: it has none.
func (c *cluster) groupSays(name string) *metav1.Condition {
	g, err := c.SchedulingV1alpha2().PodGroups("default").Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return apimeta.FindStatusCondition(g.Status.Conditions, schedulingv1alpha2.PodGroupScheduled)
}

// A pod group says that it is not scheduled, and why, and then that it is. It goes on saying so when it loses pods. Pod groups of
// other schedulers are left alone.
func TestPodGroupScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a +cpu=2")
		c.serveGroups()
		all, other := named(c.podGroup("train", 4), 4), c.podGroup("other", 1)
		other.Spec.SchedulerName, other.Spec.NodeName = "other", "a"
		c.add(append(all[:3:3], other)...)
		c.run()
		c.pass(5 * time.Second)
		says := c.groupSays("train")
		require.NotNil(t, says)
		require.Equal(t, metav1.ConditionFalse, says.Status)
		require.Equal(t, schedulingv1alpha2.PodGroupReasonUnschedulable, says.Reason)
		require.Equal(t, "gang train has 3 of the 4 pods that are placed together", says.Message)
		require.Equal(t, int64(3), says.ObservedGeneration)
		since := says.LastTransitionTime
		require.False(t, since.IsZero())
		c.add(all[3])
		c.pass(2 * time.Minute)
		says = c.groupSays("train")
		require.Equal(t, metav1.ConditionFalse, says.Status)
		require.Contains(t, says.Message, "cpu")
		require.Equal(t, since, says.LastTransitionTime, "only the message has changed")
		c.addNode("b")
		c.until("the pod group is bound", func() bool { return c.bound("train") == 4 })
		c.pass(5 * time.Second)
		says = c.groupSays("train")
		require.Equal(t, metav1.ConditionTrue, says.Status)
		require.Equal(t, "Scheduled", says.Reason)
		c.delete("train-0")
		c.pass(5 * time.Second)
		large := all[0].DeepCopy()
		large.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("64")
		c.add(large)
		c.pass(2 * time.Minute)
		require.Equal(t, corev1.ConditionFalse, c.pod("train-0").Status.Conditions[0].Status)
		require.Equal(t, says, c.groupSays("train"))
		require.Nil(t, c.groupSays("other"))
		writes := 0
		for _, a := range c.Actions() {
			writes += int(btoi(a.GetVerb() == "patch" && a.GetResource().Resource == "podgroups"))
		}
		require.LessOrEqual(t, writes, 5)
		c.check()
		c.kill()
	})
}

// Another scheduler binds pods at the same nodes. What it binds counts at once, and no node gets more than it has by this one.
func TestBesideAnotherScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b", "c")
		c.run()
		other := podFrom(t, strings.Replace(small, "name: small", "name: other", 1))
		other.Spec.SchedulerName = "default-scheduler"
		c.add(named(other, 6)...)
		for i := range 6 {
			c.add(named(podFrom(t, small), 6)[i])
			c.update(fmt.Sprintf("other-%d", i), func(p *corev1.Pod) {
				p.Spec.NodeName = string("abc"[i%3])
				setCondition(p, corev1.PodScheduled, corev1.ConditionTrue)
			})
			c.pass(300 * time.Millisecond)
		}
		c.until("all pods are bound", func() bool { return c.bound("") == 12 })
		c.pass(5 * time.Second)
		c.check()
		c.add(podFrom(t, small))
		c.pass(10 * time.Second)
		require.Equal(t, 12, c.bound(""), "all nodes are full")
		c.kill()
	})
}

// A selector that comes after the pods that it selects, and labels that change, change the groups of placed pods.
func TestLabelsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		c.add(podFrom(t, "metadata: {name: one, labels: {app: one}}"))
		c.run()
		c.until("the pod is bound", func() bool { return c.bound("one") == 1 })
		c.pass(5 * time.Second)
		at := c.on("one")["one"]
		hates := func(name, app string) *corev1.Pod {
			return podFrom(t, fmt.Sprintf("metadata: {name: %s}\nspec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: %s}}}]}}}", name, app))
		}
		c.add(hates("hater", "one"))
		c.until("the pod apart is bound", func() bool { return c.bound("hater") == 1 })
		require.NotEqual(t, at, c.on("hater")["hater"])
		c.update("one", func(p *corev1.Pod) { p.Labels["app"] = "two" })
		c.pass(time.Second)
		c.add(named(hates("second", "two"), 3)...)
		c.until("the others are bound", func() bool { return c.bound("second") == 3 })
		for name, node := range c.on("second") {
			require.NotEqual(t, at, node, name)
		}
		c.pass(5 * time.Second)
		c.check()
		c.kill()
	})
}

// A namespace whose labels change is selected by other pods than before.
func TestNamespaceLabelsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a zone=a")
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{corev1.LabelMetadataName: "other"}}}
		_, err := c.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{})
		require.NoError(t, err)
		theirs, ours := podFrom(t, small), podFrom(t, spec(apart(zonal+", namespaceSelector: {matchLabels: {team: x}}, labelSelector: {matchLabels: {app: small}}")))
		theirs.Namespace, ours.Spec.SchedulingGates = "other", []corev1.PodSchedulingGate{{Name: "later"}}
		c.run()
		c.add(theirs, ours)
		c.until("the other pod is bound", func() bool { return c.bound("small") == 1 })
		space.Labels["team"] = "x"
		_, err = c.CoreV1().Namespaces().Update(t.Context(), space, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		c.update("p", func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
		c.pass(10 * time.Second)
		require.Empty(t, c.on("p")["p"])
		delete(space.Labels, "team")
		_, err = c.CoreV1().Namespaces().Update(t.Context(), space, metav1.UpdateOptions{})
		require.NoError(t, err)
		c.pass(10 * time.Second)
		require.Equal(t, "a", c.on("p")["p"])
		c.same()
		c.kill()
	})
}

func TestNodesVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		c.add(named(podFrom(t, small), 8)...)
		c.run()
		c.until("all pods are bound", func() bool { return c.bound("small") == 8 })
		c.pass(5 * time.Second)
		require.NoError(t, c.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}))
		c.pass(time.Second)
		for name, node := range c.on("small") { // as the garbage collector of pods does
			if node == "b" {
				require.NoError(t, c.Tracker().Delete(pods, "default", name))
			}
		}
		c.add(named(podFrom(t, strings.Replace(small, "name: small", "name: next", 1)), 4)...)
		c.pass(5 * time.Second)
		require.Zero(t, c.bound("next"))
		c.addNode("b")
		c.until("the node takes pods again", func() bool { return c.bound("next") == 4 })
		c.pass(5 * time.Second)
		c.check()
		c.kill()
	})
}

// A pod that cannot be placed, or not by this scheduler, says why in its condition.
func TestSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.add(podFrom(t, "metadata: {name: large}\nspec: {containers: [{name: m, resources: {requests: {cpu: '64'}}}]}"),
			podFrom(t, "metadata: {name: claims}\nspec: {resourceClaims: [{name: gpu, resourceClaimName: gpu}]}"),
			podFrom(t, "metadata: {name: volume}\nspec: {volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}"))
		c.run()
		c.pass(20 * time.Second)
		for name, text := range map[string]string{"large": "cpu", "claims": "spec.resourceClaims", "volume": `there is no claim "data"`} {
			k := c.pod(name).Status.Conditions
			require.Len(t, k, 1, name)
			require.Equal(t, corev1.PodScheduled, k[0].Type)
			require.Equal(t, corev1.ConditionFalse, k[0].Status)
			require.Equal(t, corev1.PodReasonUnschedulable, k[0].Reason)
			require.Contains(t, k[0].Message, text)
		}
		c.claimed()
		c.until("the pod with the claim is bound", func() bool { return c.bound("volume") == 1 })
		c.kill()
	})
}

// A node that binds nothing keeps no pod for long.
func TestNodeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b", "c")
		c.PrependReactor("create", "pods", refuseBindsTo("b"))
		c.add(named(podFrom(t, small), 8)...)
		c.run()
		c.until("all pods are bound elsewhere", func() bool { return c.bound("small") == 8 })
		c.pass(10 * time.Second)
		c.check()
		c.kill()
	})
}

// Deployments roll, nodes come and go, labels change and the scheduler restarts, all at random; at rest everything is right.
func TestRollingCluster(t *testing.T) {
	rolling(t, 12*time.Minute, 2, func(*testing.T, *cluster, time.Duration) {})
}

// rolling runs random clusters. Each is told every hour how much time has passed.
func rolling(t *testing.T, lasts time.Duration, seeds uint64, hourly func(t *testing.T, c *cluster, elapsed time.Duration)) {
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				c := newCluster(t, zoned(8)...)
				c.schedule = &Scheduler{Binders: 8, Limits: orbit.Limits{History: 2_000, Terminal: 100}}
				c.run()
				made, nodes := 0, 8
				kinds := []string{spreadWeb, small, big, gangPod}
				hours := time.Duration(0)
				for began := time.Now(); time.Since(began) < lasts; {
					if passed := time.Since(began); passed > (hours+1)*time.Hour {
						hours++
						c.ClearActions() // the fake keeps them all
						c.mu.Lock()
						c.binds, c.evicts = map[types.UID][]string{}, nil
						c.mu.Unlock()
						hourly(t, c, passed)
					}
					switch roll := random.IntN(20); {
					case roll < 8:
						p := podFrom(t, kinds[random.IntN(len(kinds))])
						n := 1 + random.IntN(4)
						if made++; p.Labels[GangLabel] != "" {
							p.Labels[GangLabel] = fmt.Sprint("g", made)
							n = 4
						}
						p.Name = fmt.Sprintf("%s-%d", p.Name, made)
						c.add(named(p, n)...)
					case roll < 15:
						for all := c.pods(); len(all) > 30; {
							i := random.IntN(len(all))
							c.delete(all[i].Name)
							all = slices.Delete(all, i, i+1)
						}
					case roll < 16:
						c.addNode(fmt.Sprintf("n-%d zone=z%d", nodes, nodes%3))
						nodes++
					case roll < 17:
						list, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
						require.NoError(t, err)
						if len(list.Items) > 5 {
							gone := list.Items[random.IntN(len(list.Items))].Name
							require.NoError(t, c.CoreV1().Nodes().Delete(t.Context(), gone, metav1.DeleteOptions{}))
							c.pass(time.Second)
							for _, p := range c.pods() {
								if p.Spec.NodeName == gone {
									require.NoError(t, c.Tracker().Delete(pods, "default", p.Name))
								}
							}
						}
					case roll < 18:
						c.kill()
						c.pass(time.Second)
						c.run()
					default:
						if all := c.pods(); len(all) > 0 {
							c.update(all[random.IntN(len(all))].Name, func(p *corev1.Pod) {
								if p.Labels == nil {
									p.Labels = map[string]string{}
								}
								p.Labels["app"] = []string{"web", "small", "x"}[random.IntN(3)]
							})
						}
					}
					c.pass(time.Duration(random.IntN(8000)) * time.Millisecond)
				}
				c.pass(time.Minute)
				c.same()
				for _, f := range c.faults() {
					require.NotContains(t, []fit.Kind{fit.Over, fit.Gang, fit.Node, fit.Taint, fit.Port}, f.Kind, f.String())
				}
				c.kill()
			})
		})
	}
}

// A pod that is evicted while its bind is under way is deleted once it is bound, and not counted as gone before.
func TestEvictsWhatIsBeingBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.set(func(verb, pod string, after bool) error {
			if verb == "bind" && !after && strings.HasPrefix(pod, "small") {
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		c.add(named(podFrom(t, small), 4)...)
		c.run()
		c.pass(time.Second)
		c.add(podFrom(t, big))
		for range 60 {
			c.pass(500 * time.Millisecond)
			require.Empty(t, c.faults())
		}
		require.Equal(t, 1, c.bound("big"))
		require.ElementsMatch(t, []string{"small-0", "small-1", "small-2", "small-3"}, c.evicts)
		c.check()
		c.kill()
	})
}

// A pod that is bound to a node which is not known yet counts as soon as the node is.
func TestPodsBeforeTheirNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a +cpu=1")
		c.run()
		early := podFrom(t, big)
		early.Spec.SchedulerName, early.Spec.NodeName = "default-scheduler", "b"
		c.add(early)
		c.pass(time.Second)
		c.addNode("b")
		c.add(named(podFrom(t, small), 4)...)
		c.pass(20 * time.Second)
		require.Equal(t, 1, c.bound("small"))
		c.check()
		c.kill()
	})
}
