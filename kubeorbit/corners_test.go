package kubeorbit

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/kubeorbit/fit"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
)

// Queues that the ledger refuses end Run at once.
func TestQueuesThatAreRefused(t *testing.T) {
	c := newCluster(t, "a")
	s := &Scheduler{Client: troubled{c.Clientset, c}, Events: &events.FakeRecorder{}, Queues: []orbit.Queue{{ID: "a", Parent: "missing"}}}
	require.ErrorContains(t, s.Run(t.Context()), `there is no queue "missing"`)
	_, err := ReadConfiguration([]byte("apiVersion: kubeorbit.dev/v1alpha1\nkind: Configuration\nqueues: [{name: a, parent: missing}]"))
	require.ErrorContains(t, err, `there is no queue "missing"`)
}

// A pod that runs counts, also if its pod group is not known.
func TestBoundPodOfAnUnknownGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		group := "g"
		early := podFrom(t, big)
		early.Spec.SchedulerName, early.Spec.NodeName = "default-scheduler", "a"
		early.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		c.add(early)
		c.run()
		c.pass(time.Second)
		c.add(named(podFrom(t, small), 4)...)
		c.pass(20 * time.Second)
		require.Zero(t, c.bound("small"), "the node is full")
		c.kill()
	})
}

// A reason that could not be written is written later.
func TestReasonIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		began := time.Now()
		c.PrependReactor("patch", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
			if time.Since(began) < 10*time.Second {
				return true, nil, errors.New("away")
			}
			return false, nil, nil
		})
		c.add(podFrom(t, "metadata: {name: claims}\nspec: {resourceClaims: [{name: gpu, resourceClaimName: gpu}]}"))
		c.run()
		c.pass(30 * time.Minute)
		require.True(t, saysWhy(c.pod("claims"), "spec.resourceClaims"))
		c.kill()
	})
}

// A new pod is apart from pods that no selector has named before: these are counted before it is placed.
func TestApartFromPodsThatNobodyHasSelectedBefore(t *testing.T) {
	one := podFrom(t, "metadata: {name: one, labels: {app: one}}\nspec: {containers: [{name: m, resources: {requests: {cpu: '1m'}}}]}")
	one.Spec.SchedulerName, one.Spec.NodeName = "default-scheduler", "a"
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a +pods=5000 +cpu=64", "b cordoned")
		c.add(named(one, 800)...)
		c.run()
		c.pass(3 * time.Second)
		bad := 0
		for i := range 5 {
			c.add(podFrom(t, fmt.Sprintf("metadata: {name: hater%d}\nspec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchExpressions: [{key: app, operator: In, values: [one, x%d]}]}}]}}}", i, i)))
			c.pass(2 * time.Second)
			bad += c.bound(fmt.Sprintf("hater%d", i))
		}
		require.Zero(t, bad)
		c.kill()
	})
}

// A new pod is apart from one that terminates, also if no selector has named that before, and if it got its label only then.
func TestApartFromWhatTerminates(t *testing.T) {
	for what, labels := range map[string]map[string]string{"selected anew": {"app": "one"}, "relabelled": nil} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "a", "b cordoned")
				c.stops = 20 * time.Second
				one := podFrom(t, small)
				one.Labels = labels
				c.add(one)
				if labels == nil { // the ledger counts the selector already
					c.add(podFrom(t, "metadata: {name: first}\nspec: {nodeSelector: {no: such}, affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: one}}}]}}}"))
				}
				c.run()
				c.until("it runs", func() bool { return c.bound("small") == 1 })
				c.pass(5 * time.Second)
				c.delete("small")
				c.pass(time.Second)
				if labels == nil {
					c.update("small", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "one"} })
					c.pass(time.Second)
				}
				c.add(podFrom(t, "metadata: {name: hater}\nspec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: one}}}]}}}"))
				c.pass(5 * time.Second)
				require.Zero(t, c.bound("hater"), "it would run beside what still stops")
				c.pass(30 * time.Second)
				require.Equal(t, 1, c.bound("hater"))
				c.kill()
			})
		})
	}
}

// A gang that runs keeps its minimum when the scheduler restarts: it gives way as a whole.
func TestGangKeepsItsMinimumOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		c.add(named(podFrom(t, gangPod), 4)...)
		c.run()
		c.until("the gang is bound", func() bool { return c.bound("gang") == 4 })
		c.pass(5 * time.Second)
		c.kill()
		c.run()
		c.pass(5 * time.Second)
		p := podFrom(t, strings.Replace(big, "cpu: '4'", "cpu: '2'", 1))
		c.add(p)
		c.pass(60 * time.Second)
		require.Equal(t, 1, c.bound("big"))
		require.Zero(t, c.bound("gang"), "it has a minimum of 4, so it goes whole")
		c.kill()
	})
}

// Evictions that the API server refuses hold up no binds.
func TestRefusedEvictionsHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.schedule = &Scheduler{Binders: 4}
		c.set(func(verb, _ string, after bool) error {
			if verb == "delete" {
				return errors.New("denied by a webhook")
			}
			return nil
		})
		c.add(named(podFrom(t, small), 4)...)
		c.run()
		c.until("bound", func() bool { return c.bound("small") == 4 })
		c.pass(5 * time.Second)
		c.add(podFrom(t, big))
		c.pass(5 * time.Second)
		c.addNode("b")
		c.add(named(podFrom(t, strings.Replace(small, "name: small", "name: next", 1)), 4)...)
		c.pass(5 * time.Minute)
		require.Equal(t, 4, c.bound("next"), c.whyNot())
		c.kill()
	})
}

// A pod of a gang without a minimum says what it lacks.
func TestGangWithoutAMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		g := podFrom(t, gangPod)
		delete(g.Annotations, GangMinAnnotation)
		c.add(named(g, 4)...)
		c.run()
		c.pass(10 * time.Second)
		require.Zero(t, c.bound("gang"))
		require.True(t, saysWhy(c.pod("gang-0"), GangMinAnnotation))
		c.kill()
	})
}

// A label or an annotation that says nothing without another one, or in its place, is not passed over: the pod waits, and says why.
// Those that complete each other are no obstacle, and neither is Kueue's label where there are no queues.
func TestLabelsWithoutTheirPartner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a +cpu=100")
		made := func(name string, labels, annotations map[string]string) *corev1.Pod {
			p := podFrom(t, strings.Replace(small, "name: small", "name: "+name, 1))
			p.Labels, p.Annotations = labels, annotations
			return p
		}
		type keys = map[string]string
		whys := map[string]string{}
		refused := func(name string, labels, annotations keys, why string) {
			whys[name] = why
			c.add(made(name, labels, annotations))
		}
		refused("min", nil, keys{GangMinAnnotation: "1"}, GangMinAnnotation+"]: without the label "+GangLabel)
		refused("level", nil, keys{GangLevelAnnotation: "zone"}, GangLevelAnnotation+"]: without the label "+GangLabel)
		refused("unnamed", keys{GangLabel: ""}, keys{GangMinAnnotation: "1"}, GangLabel+"]: it is empty")
		refused("nameless", keys{GangLabel: ""}, nil, GangLabel+"]: it is empty")
		refused("gang-annotation", nil, keys{GangLabel: "train"}, GangLabel+"]: it has to be a label")
		refused("queue-annotation", nil, keys{QueueLabel: "red"}, QueueLabel+"]: it has to be a label")
		refused("min-label", keys{GangMinAnnotation: "1"}, nil, GangMinAnnotation+"]: it has to be an annotation")
		refused("level-label", keys{GangLabel: "l", GangLevelAnnotation: "zone"}, keys{GangMinAnnotation: "1"}, GangLevelAnnotation+"]: it has to be an annotation")
		refused("level-only", keys{GangLabel: "o"}, keys{GangLevelAnnotation: "zone"}, GangMinAnnotation)
		refused("queue", keys{QueueLabel: "red"}, nil, `metadata.labels[kubeorbit.dev/queue]: there is no queue "red"`)
		c.add(made("fine-gang", keys{GangLabel: "f"}, keys{GangMinAnnotation: "1"}), made("fine-kueue", keys{KueueLabel: "red"}, nil),
			made("fine-foreign", keys{"example.com/gang": "f"}, keys{"kubeorbit.dev/later": "x"}))
		c.run()
		c.pass(20 * time.Second)
		for name, why := range whys {
			require.True(t, saysWhy(c.pod(name), why), "%s: %q is not in %v", name, why, c.pod(name).Status.Conditions)
			require.Empty(t, c.on(name)[name])
		}
		require.Equal(t, 3, c.bound("fine"), c.whyNot())
		c.update("min", func(p *corev1.Pod) { p.Labels = keys{GangLabel: "mended"} })
		c.until("the mended pod is bound", func() bool { return c.pod("min").Spec.NodeName != "" })
		c.kill()
	})
}

// A pod group whose constraint holds only for gangs, and which is none, says so.
func TestPodGroupWithALevelAndNoMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a zone=z")
		c.serveGroups()
		for name, constraints := range map[string]*schedulingv1alpha2.PodGroupSchedulingConstraints{
			"level": {Topology: []schedulingv1alpha2.TopologyConstraint{{Key: "zone"}}}, "plain": nil,
		} {
			_, err := c.SchedulingV1alpha2().PodGroups("default").Create(t.Context(), &schedulingv1alpha2.PodGroup{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec: schedulingv1alpha2.PodGroupSpec{
					SchedulingPolicy:      schedulingv1alpha2.PodGroupSchedulingPolicy{Basic: &schedulingv1alpha2.BasicSchedulingPolicy{}},
					SchedulingConstraints: constraints,
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			p := podFrom(t, strings.Replace(small, "name: small", "name: "+name, 1))
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
			c.add(p)
		}
		c.run()
		c.pass(20 * time.Second)
		require.True(t, saysWhy(c.pod("level"), "without a gang policy"), c.whyNot())
		require.Equal(t, map[string]string{"level": "", "plain": "a"}, c.on(""))
		c.kill()
	})
}

// The last member of a gang is replaced when the others are done.
func TestLastMemberIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		all := named(podFrom(t, gangPod), 4)
		c.add(all...)
		c.run()
		c.until("bound", func() bool { return c.bound("gang") == 4 })
		c.pass(5 * time.Second)
		for i := range 3 {
			c.update(fmt.Sprintf("gang-%d", i), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		}
		c.update("gang-3", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		c.pass(time.Second)
		again := all[3].DeepCopy()
		again.Name = "gang-3-again"
		c.add(again)
		c.pass(20 * time.Minute)
		require.NotEmpty(t, c.on("gang-3-again")["gang-3-again"], c.whyNot())
		c.kill()
	})
}

// What the ledger refuses to submit says so.
func TestRefusalsAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b", "c")
		g := podFrom(t, strings.Replace(gangPod, "spec: {", "spec: {priority: 10, ", 1))
		c.add(named(g, 4)...)
		c.run()
		c.until("bound", func() bool { return c.bound("gang") == 4 })
		c.pass(5 * time.Second)
		low := podFrom(t, gangPod)
		low.Name = "low"
		c.add(low)
		c.pass(20 * time.Minute)
		require.True(t, saysWhy(c.pod("low"), "priority"), "%v", c.pod("low").Status.Conditions)
		c.kill()
	})
}

// A pod that leaves its gang by its label counts in it no more.
func TestGangLabelChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		all := named(podFrom(t, gangPod), 4)
		c.add(all...)
		c.run()
		c.until("bound", func() bool { return c.bound("gang") == 4 })
		c.pass(5 * time.Second)
		c.update("gang-0", func(p *corev1.Pod) { p.Labels[GangLabel] = "other" })
		c.pass(time.Second)
		for i := range 4 {
			c.delete(fmt.Sprintf("gang-%d", i))
		}
		c.pass(10 * time.Second)
		c.add(all[1])
		c.pass(30 * time.Second)
		require.Equal(t, map[string]string{"gang-1": ""}, c.on("gang"))
		c.kill()
	})
}

// A gang that loses a member while it is being bound takes its room until that is over.
func TestGangThatLosesAMemberWhileItIsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		c.set(func(verb, pod string, after bool) error {
			if verb == "bind" && !after && strings.HasPrefix(pod, "gang") {
				time.Sleep(8 * time.Second)
			}
			return nil
		})
		c.add(named(podFrom(t, gangPod), 4)...)
		c.run()
		c.pass(2 * time.Second)
		c.delete("gang-0")
		c.pass(time.Second)
		c.add(named(podFrom(t, small), 8)...)
		for range 60 {
			c.pass(500 * time.Millisecond)
			for _, f := range c.faults() {
				require.NotEqual(t, fit.Over, f.Kind, f.String())
			}
		}
		require.Equal(t, 3, c.bound("gang"))
		c.kill()
	})
}

// The budget of a pod holds, however many selectors select the pod.
func TestBudgetOfAPodInManyGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "z +cpu=0")
		s := podFrom(t, "metadata: {name: small, labels: {app: small, zz: '1'}}\nspec: {containers: [{name: m, resources: {requests: {cpu: '1'}}}]}")
		c.add(named(s, 4)...)
		c.run()
		c.until("bound", func() bool { return c.bound("small") == 4 })
		for i := range 17 {
			c.add(podFrom(t, fmt.Sprintf("metadata: {name: sel%d}\nspec: {containers: [{name: m, resources: {requests: {cpu: '0'}}}], affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchExpressions: [{key: app, operator: In, values: [small, x%d]}]}}}]}}}", i, i)))
		}
		_, err := c.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(intstr.FromInt32(4)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"zz": "1"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{ExpectedPods: 4, DesiredHealthy: 4, CurrentHealthy: 4},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		c.pass(5 * time.Second)
		c.add(podFrom(t, big))
		c.pass(2 * time.Minute)
		require.Empty(t, c.evicts)
		c.kill()
	})
}

// The members of a gang on a node that comes back count, also while another node is away.
func TestGangOnANodeThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		c.add(named(podFrom(t, gangPod), 4)...)
		c.run()
		c.until("bound", func() bool { return c.bound("gang") == 4 })
		c.pass(5 * time.Second)
		for _, n := range []string{"a", "b"} {
			_ = c.CoreV1().Nodes().Delete(t.Context(), n, metav1.DeleteOptions{})
		}
		c.pass(time.Second)
		c.addNode("a")
		c.pass(time.Second)
		c.add(named(podFrom(t, small), 4)...)
		c.pass(20 * time.Second)
		require.Zero(t, c.bound("small"), "the node is full")
		c.kill()
		c.run()
		c.pass(20 * time.Second)
		c.kill()
	})
}

// A node that orbit cannot describe any more takes nothing.
func TestNodeThatCannotBeSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.run()
		c.pass(time.Second)
		n, _ := c.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		for i := range 17 {
			n.Status.Allocatable[corev1.ResourceName(fmt.Sprintf("example.com/x%d", i))] = resource.MustParse("1")
		}
		n.Spec.Unschedulable = true
		_, err := c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		require.NoError(t, err)
		c.pass(time.Second)
		c.add(named(podFrom(t, small), 2)...)
		c.pass(20 * time.Second)
		require.Zero(t, c.bound("small"))
		c.kill()
	})
}

// A member that asked for more counts no more when it has gone.
func TestGangMinimumOfAReplacedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		all := named(podFrom(t, gangPod), 4)
		all[0].Annotations = map[string]string{GangMinAnnotation: "8"}
		c.add(all...)
		c.run()
		c.pass(5 * time.Second)
		c.delete("gang-0")
		all[0].Annotations = map[string]string{GangMinAnnotation: "4"}
		c.pass(time.Second)
		c.add(all[0])
		c.pass(20 * time.Minute)
		require.Equal(t, 4, c.bound("gang"), c.whyNot())
		c.kill()
	})
}

// A pod that cannot be said any more takes its room until it is known whether it was bound.
func TestUnsayableWhileItIsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.claimed()
		c.set(func(verb, pod string, after bool) error {
			if verb == "bind" && !after && strings.HasPrefix(pod, "big") {
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		p := podFrom(t, big)
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		c.add(p)
		c.run()
		c.pass(time.Second)
		_ = c.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), "data", metav1.DeleteOptions{})
		c.pass(time.Second)
		c.add(named(podFrom(t, small), 4)...)
		c.pass(10 * time.Second)
		require.Empty(t, c.faults())
		require.Zero(t, c.bound("small"))
		c.kill()
	})
}

// While the API server answers nothing, it is asked ever more rarely.
func TestServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a +cpu=100", "b +cpu=100")
		c.schedule = &Scheduler{}
		var n atomic.Int64
		began := time.Now()
		c.set(func(verb, _ string, after bool) error {
			if !after && time.Since(began) < 2*time.Minute {
				n.Add(1)
				return errors.New("away")
			}
			return nil
		})
		c.add(named(podFrom(t, small), 80)...)
		c.run()
		c.pass(2 * time.Minute)
		require.Less(t, n.Load(), int64(3_000))
		c.pass(time.Minute)
		require.Equal(t, 80, c.bound("small"))
		c.kill()
	})
}

// A pod in flight becomes unsayable.
