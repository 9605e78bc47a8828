package kubeorbit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A pod that terminates keeps its host port, and those that are apart from it stay apart, until it has stopped.
func TestTerminatingPodKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.stops = time.Minute
		c.add(podFrom(t, "{metadata: {name: first, labels: {app: web}}, spec: {"+hostPort("hostPort: 80")+"}}"))
		c.run()
		c.until("the first pod is bound", func() bool { return c.bound("first") == 1 })
		c.add(podFrom(t, "{metadata: {name: next-port}, spec: {"+hostPort("hostPort: 80")+"}}"),
			podFrom(t, "{metadata: {name: next-apart}, spec: {"+apart("topologyKey: kubernetes.io/hostname, "+ofWeb)+"}}"))
		c.pass(3 * time.Second)
		c.delete("first")
		c.pass(40 * time.Second)
		require.NotNil(t, c.pod("first"))
		require.Equal(t, map[string]string{"next-port": "", "next-apart": ""}, c.on("next"), c.whyNot())
		c.until("both are bound in its place", func() bool { return c.bound("next") == 2 })
		c.pass(5 * time.Second)
		c.check()
		c.kill()
	})
}

// For an extended resource that is no accelerator nothing is evicted: the pod says which it lacks, and is placed when some is free.
func TestExtendedResourceEvictsNothing(t *testing.T) {
	const asks = "spec: {priority: %d, containers: [{name: m, resources: {requests: {example.com/fpga: 1}, limits: {example.com/fpga: 1}}}]}"
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a +example.com/fpga=1", "b")
		c.add(podFrom(t, "metadata: {name: low}\n"+fmt.Sprintf(asks, 0)))
		c.run()
		c.until("the first pod is bound", func() bool { return c.bound("low") == 1 })
		c.pass(3 * time.Second)
		c.add(podFrom(t, "metadata: {name: urgent}\n"+fmt.Sprintf(asks, 100)))
		c.pass(2 * time.Minute)
		require.Empty(t, c.evicts)
		require.True(t, saysWhy(c.pod("urgent"), "example.com/fpga"), c.whyNot())
		c.delete("low")
		c.until("the urgent pod is bound", func() bool { return c.on("urgent")["urgent"] == "a" })
		c.check()
		c.kill()
	})
}

// A pod that is resized in place takes what it asks for now, also if that is more than the node has: then nothing else fits there.
func TestResizedInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.add(podFrom(t, strings.Replace(small, "name: small", "name: grows", 1)))
		c.run()
		c.until("the pod is bound", func() bool { return c.bound("grows") == 1 })
		c.pass(3 * time.Second)
		resize := func(cpu string) {
			c.update("grows", func(p *corev1.Pod) {
				list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
				p.Spec.Containers[0].Resources.Requests = list
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "m", AllocatedResources: list, Resources: &corev1.ResourceRequirements{Requests: list}}}
			})
			c.pass(2 * time.Second)
		}
		resize("2")
		c.add(named(podFrom(t, small), 3)...)
		c.pass(20 * time.Second)
		require.Equal(t, 2, c.bound("small"), c.whyNot())
		c.check()
		resize("9")
		c.delete("small-0")
		c.delete("small-1")
		c.delete("small-2")
		c.pass(5 * time.Second)
		c.same()
		c.add(podFrom(t, strings.Replace(small, "name: small", "name: later", 1)))
		c.pass(20 * time.Second)
		require.Zero(t, c.bound("later"))
		require.True(t, saysWhy(c.pod("later"), "cpu"), c.whyNot())
		resize("3")
		c.until("the later pod has room", func() bool { return c.bound("later") == 1 })
		c.pass(3 * time.Second)
		c.check()
		c.kill()
	})
}

// What another party evicts counts against a disruption budget at once, and as long as it is missing.
func TestEvictionsByOthersCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.stops = time.Minute
		c.add(named(podFrom(t, small), 4)...)
		c.run()
		c.until("the small pods are bound", func() bool { return c.bound("small") == 4 })
		c.pass(5 * time.Second)
		budgets := c.PolicyV1().PodDisruptionBudgets("default")
		budget, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "small"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{ExpectedPods: 4, DesiredHealthy: 3, CurrentHealthy: 4, DisruptionsAllowed: 1},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		c.delete("small-0")
		c.update("small-0", func(p *corev1.Pod) { setCondition(p, corev1.PodReady, corev1.ConditionTrue) }) // it serves on for a while
		c.pass(time.Second)
		urgent := named(podFrom(t, strings.Replace(big, "'4'", "'1'", 1)), 2)
		c.add(urgent[0])
		c.pass(40 * time.Second)
		require.NotNil(t, c.pod("small-0"))
		require.Empty(t, c.evicts, "the urgent pod takes the place of what terminates")
		c.until("it is bound there", func() bool { return c.bound("big") == 1 })
		c.add(urgent[1])
		c.pass(40 * time.Second)
		require.Empty(t, c.evicts, "one pod is missing")
		require.True(t, saysWhy(c.pod("big-1"), "budget"), c.whyNot())
		budget.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 3, DesiredHealthy: 2, CurrentHealthy: 3, DisruptionsAllowed: 1}
		_, err = budgets.UpdateStatus(t.Context(), budget, metav1.UpdateOptions{})
		require.NoError(t, err)
		c.until("both urgent pods are bound", func() bool { return c.bound("big") == 2 })
		require.Len(t, c.evicts, 1)
		c.kill()
	})
}

// Every pod that waits says why, also those that come when equal ones have waited for long.
func TestAllOfAKindSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		large := named(podFrom(t, strings.Replace(small, "'1'", "'64'", 1)), 9)
		c.add(large[:5]...)
		c.run()
		c.pass(2 * time.Minute)
		c.add(large[5:]...)
		c.pass(10 * time.Second)
		for _, p := range large {
			require.True(t, saysWhy(c.pod(p.Name), "cpu"), "%s\n%s", p.Name, c.whyNot())
		}
		c.kill()
	})
}

// There is one order of priorities for all engines: a gang that came first waits for a pod of higher priority, and the other way round.
func TestOneOrderOfPriorities(t *testing.T) {
	gang := strings.Replace(gangPod, "cpu: '2'", "cpu: '1'", 1)
	for name, priorities := range map[string][2]int32{"the pod is first": {1, 100}, "the gang is first": {100, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "a +cpu=1")
				members, alone := named(podFrom(t, gang), 4), podFrom(t, big)
				for _, p := range members {
					p.Spec.Priority = &priorities[0]
				}
				alone.Spec.Priority = &priorities[1]
				for _, p := range append(members, alone) { // so that no eviction mends a wrong order
					p.Spec.PreemptionPolicy = ptr(corev1.PreemptNever)
				}
				c.add(members...)
				c.add(alone)
				c.run()
				c.pass(10 * time.Second)
				require.Zero(t, c.bound(""))
				c.addNode("b")
				c.pass(30 * time.Second)
				if priorities[0] < priorities[1] {
					require.Equal(t, []int{1, 0}, []int{c.bound("big"), c.bound("gang")}, c.whyNot())
				} else {
					require.Equal(t, []int{0, 4}, []int{c.bound("big"), c.bound("gang")}, c.whyNot())
				}
				c.kill()
			})
		})
	}
}

// Room for which a pod of another scheduler is nominated is not kept, as kube-scheduler keeps none for pods of this one.
func TestNominationsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		other := podFrom(t, strings.Replace(big, "name: big", "name: other", 1))
		other.Spec.SchedulerName, other.Status.NominatedNodeName = "default-scheduler", "a"
		c.add(other)
		c.run()
		c.add(podFrom(t, small))
		c.until("the pod is bound", func() bool { return c.bound("small") == 1 })
		require.Equal(t, "a", c.pod("other").Status.NominatedNodeName)
		c.kill()
	})
}

// group makes a pod group with a minimum, and returns pods of that group, each of one core.
func (c *cluster) group(name string, spec schedulingv1alpha2.PodGroupSpec, n int) []*corev1.Pod {
	spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: int32(n)}
	_, err := c.SchedulingV1alpha2().PodGroups("default").Create(c.t.Context(), &schedulingv1alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec,
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return named(ofGroup(c.t, name), n)
}

// ofGroup returns a pod of a pod group.
func ofGroup(t testing.TB, name string) *corev1.Pod {
	p := podFrom(t, strings.Replace(small, "name: small", "name: "+name, 1))
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	return p
}

// The pods of a gang with a level share a domain of it, whether a pod group or an annotation says so: they wait until one domain has room
// for all.
func TestGangsInOneDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a zone=a +cpu=3", "b zone=b +cpu=2", "none +cpu=9")
		c.serveGroups()
		zone := &schedulingv1alpha2.PodGroupSchedulingConstraints{Topology: []schedulingv1alpha2.TopologyConstraint{{Key: "zone"}}}
		c.add(c.group("group", schedulingv1alpha2.PodGroupSpec{SchedulingConstraints: zone}, 4)...)
		label := podFrom(t, strings.NewReplacer("gang-min", "gang-level: zone, kubeorbit.dev/gang-min", "name: gang,", "name: label,", "cpu: '2'", "cpu: '1'").Replace(gangPod))
		c.add(named(label, 4)...)
		c.run()
		c.pass(20 * time.Second)
		require.Zero(t, c.bound(""), "no zone has four cores")
		c.addNode("b2 zone=b +cpu=2")
		c.addNode("c zone=c +cpu=4")
		c.until("both gangs are bound", func() bool { return c.bound("group") == 4 && c.bound("label") == 4 })
		zoneOf := map[string]string{"a": "a", "b": "b", "b2": "b", "c": "c"}
		for _, name := range []string{"group", "label"} {
			zones := map[string]bool{}
			for _, node := range c.on(name) {
				zones[zoneOf[node]] = true
			}
			require.Len(t, zones, 1, "%v", c.on(name))
			require.NotContains(t, zones, "")
		}
		c.pass(3 * time.Second)
		c.check()
		c.kill()
	})
}

// A pod whose pod group is missing says so, and is placed when it is there.
func TestPodGroupThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a")
		c.serveGroups()
		c.add(named(ofGroup(t, "late"), 2)...)
		c.run()
		c.pass(5 * time.Second)
		for name, node := range c.on("late") {
			require.Empty(t, node)
			require.True(t, saysWhy(c.pod(name), `pod group "late" does not exist`), c.whyNot())
		}
		c.group("late", schedulingv1alpha2.PodGroupSpec{}, 2)
		c.until("the gang is bound", func() bool { return c.bound("late") == 2 })
		c.kill()
	})
}

// Pods of a pod group that asks for what a gang cannot have wait, and say what it is; so do pods with claims of their group. If another
// scheduler has bound them, they count, and are still a gang.
func TestPodGroupsThatCannotBeSaid(t *testing.T) {
	mode := func(m schedulingv1alpha2.DisruptionMode) schedulingv1alpha2.PodGroupSpec {
		return schedulingv1alpha2.PodGroupSpec{DisruptionMode: &m}
	}
	priority := func(n int32) schedulingv1alpha2.PodGroupSpec { return schedulingv1alpha2.PodGroupSpec{Priority: &n} }
	claim := "claim"
	claims := schedulingv1alpha2.PodGroupSpec{ResourceClaims: []schedulingv1alpha2.PodGroupResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}}
	for name, test := range map[string]struct {
		group schedulingv1alpha2.PodGroupSpec
		pod   func(p *corev1.Pod)
		why   string
	}{
		"pods go one by one":         {group: mode(schedulingv1alpha2.DisruptionModePod)},
		"pods go together":           {group: mode(schedulingv1alpha2.DisruptionModePodGroup), why: "disruptionMode PodGroup"},
		"the priority of the pods":   {group: priority(7), pod: func(p *corev1.Pod) { p.Spec.Priority = ptr[int32](7) }},
		"another priority":           {group: priority(8), pod: func(p *corev1.Pod) { p.Spec.Priority = ptr[int32](7) }, why: "priority 8"},
		"priority 0 of pods without": {group: priority(0)},
		"claims of nobody":           {group: claims},
		"claims": {group: claims, pod: func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
		}, why: "spec.resourceClaims"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "a")
				c.serveGroups()
				all := c.group("group", test.group, 2)
				for _, p := range all {
					if test.pod != nil {
						test.pod(p)
					}
				}
				c.add(all...)
				c.run()
				c.pass(10 * time.Second)
				if test.why == "" {
					require.Equal(t, 2, c.bound("group"), c.whyNot())
					c.kill()
					return
				}
				for _, p := range all {
					require.Empty(t, c.on(p.Name)[p.Name])
					require.True(t, saysWhy(c.pod(p.Name), test.why), c.whyNot())
					c.update(p.Name, func(p *corev1.Pod) { p.Spec.NodeName = "a" })
				}
				c.pass(time.Second)
				state, err := c.ledger.Snapshot(t.Context())
				require.NoError(t, err)
				for _, p := range all {
					capsule := state.Capsule(capsuleOf(c.pod(p.Name)))
					require.EqualValues(t, "a", capsule.Node)
					require.NotEmpty(t, capsule.Gang())
				}
				c.kill()
			})
		})
	}
}

// What a node says anew wakes what waits for it: labels, taints, a cordon that ends, and room. If it says nothing new, nothing is recorded.
func TestNodeChanges(t *testing.T) {
	for name, test := range map[string]struct {
		node, pod string
		change    func(n *corev1.Node)
	}{
		"a label":    {"a", "nodeSelector: {disk: ssd}", func(n *corev1.Node) { n.Labels["disk"] = "ssd" }},
		"a taint":    {"a !k=v:NoSchedule", "", func(n *corev1.Node) { n.Spec.Taints = nil }},
		"a cordon":   {"a cordoned", "", func(n *corev1.Node) { n.Spec.Unschedulable = false }},
		"its size":   {"a +cpu=0", "", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1") }},
		"an amount":  {"a", "containers: [{name: c, resources: {requests: {example.com/fpga: 1}}}]", func(n *corev1.Node) { n.Status.Allocatable["example.com/fpga"] = resource.MustParse("1") }},
		"an address": {"a cordoned", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, test.node)
				c.add(podFrom(t, spec(test.pod)))
				c.run()
				c.pass(20 * time.Second)
				require.Empty(t, c.on("p")["p"])
				before, err := c.ledger.Snapshot(t.Context())
				require.NoError(t, err)
				n, err := c.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
				require.NoError(t, err)
				n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
				if test.change != nil {
					test.change(n)
				}
				_, err = c.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
				require.NoError(t, err)
				if test.change != nil {
					c.until("the pod is bound", func() bool { return c.bound("p") == 1 })
				} else {
					c.pass(5 * time.Second)
					after, err := c.ledger.Snapshot(t.Context())
					require.NoError(t, err)
					require.Equal(t, before.Revision(), after.Revision())
				}
				c.kill()
			})
		})
	}
}

// A gang whose pods have several specs starts with its minimum, and with one pod of each spec.
func TestGangOfSeveralSpecs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a +cpu=3")
		c.serveGroups()
		all := c.group("group", schedulingv1alpha2.PodGroupSpec{}, 3)
		leader := podFrom(t, strings.NewReplacer("name: small", "name: leader", "'1'", "'2'").Replace(small))
		leader.Spec.SchedulingGroup = all[0].Spec.SchedulingGroup
		c.add(append(all, leader)...)
		c.run()
		c.pass(20 * time.Second)
		require.Zero(t, c.bound(""), "there is room for three pods, but not with the leader: %v", c.on(""))
		c.addNode("b +cpu=1")
		c.until("the minimum is bound", func() bool { return c.bound("") == 3 })
		require.Equal(t, 1, c.bound("leader"))
		c.pass(5 * time.Second)
		c.addNode("c +cpu=1")
		c.until("the rest is bound", func() bool { return c.bound("") == 4 })
		c.kill()
	})
}
