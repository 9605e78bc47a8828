//go:build kube

package itest

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// scenario is a set of pods that all have room, so a scheduler has to bind all of them.
type scenario struct {
	name string
	// gangs says that only schedulers that know gangs can do it.
	gangs bool
	// pods returns n pods, or as many as the scenario has on the cluster.
	pods func(c *cluster, namespace string, n int) []*corev1.Pod
	// prepare makes what is there before the pods; it may be nil.
	prepare func(c *cluster, namespace string, n int)
}

var scenarios = []scenario{
	{name: "plain", pods: func(c *cluster, namespace string, n int) []*corev1.Pod {
		return podsOf(namespace, "plain", n, func(int, *corev1.Pod) {})
	}},
	{name: "spread", pods: func(c *cluster, namespace string, n int) []*corev1.Pod {
		return podsOf(namespace, "spread", n, func(_ int, p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: same(p, "app"),
			}}
		})
	}},
	{name: "anti-affinity", pods: func(c *cluster, namespace string, n int) []*corev1.Pod {
		size := max(1, c.nodes/4) // of an application, whose pods are on different nodes
		return podsOf(namespace, "apart", n, func(i int, p *corev1.Pod) {
			p.Labels["set"] = fmt.Sprint("set-", i/size)
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: corev1.LabelHostname, LabelSelector: same(p, "set")},
			}}}
		})
	}},
	{name: "affinity", pods: func(c *cluster, namespace string, n int) []*corev1.Pod {
		return podsOf(namespace, "near", n, func(i int, p *corev1.Pod) {
			p.Labels["set"] = fmt.Sprint("set-", i/4)
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: corev1.LabelTopologyZone, LabelSelector: same(p, "set")},
			}}}
		})
	}},
	{name: "gangs", gangs: true, prepare: makePodGroups, pods: func(c *cluster, namespace string, n int) []*corev1.Pod {
		return podsOf(namespace, "gang", n/gangSize*gangSize, func(i int, p *corev1.Pod) {
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new(gangName(i / gangSize))}
		})
	}},
	{name: "preemption", prepare: fill, pods: func(c *cluster, namespace string, n int) []*corev1.Pod {
		return podsOf(namespace, "urgent", min(n, 2*c.full()), func(_ int, p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.NodeSelector = "high", map[string]string{poolLabel: fullPool}
			request(p, largeCores*1_000)
		})
	}},
}

// podsOf returns n pods of an application, each as with changes it.
func podsOf(namespace, app string, n int, with func(i int, p *corev1.Pod)) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", app, i), Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "pause"}}},
		}
		request(p, 100)
		with(i, p)
		pods[i] = p
	}
	return pods
}

func request(p *corev1.Pod, milliCores int64) {
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(milliCores, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("128Mi"),
	}
}

// same selects the pods that have the same value of a label as a pod.
func same(p *corev1.Pod, label string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{label: p.Labels[label]}}
}

const gangSize = 8

func gangName(i int) string { return fmt.Sprint("gang-", i) }

func makePodGroups(c *cluster, namespace string, n int) {
	c.each(n/gangSize, func(ctx context.Context, i int) error {
		group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: gangName(i)}}
		group.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: gangSize}
		_, err := c.client.SchedulingV1alpha2().PodGroups(namespace).Create(ctx, group, metav1.CreateOptions{})
		return err
	})
}

// largeCores is the size of the pods that fill the nodes, and of those that preempt them.
const largeCores = 4

// full is how many nodes are in the pool that is filled.
func (c *cluster) full() int { return min(c.nodes, fullNodes) }

// fill fills the nodes of a pool with running pods of low priority. A budget guards every second one; the others are free to be preempted.
func fill(c *cluster, namespace string, _ int) {
	const perNode = nodeCores / largeCores
	pods := podsOf(namespace, "low", c.full()*perNode, func(i int, p *corev1.Pod) {
		p.Labels["guarded"] = fmt.Sprint(i%2 == 0)
		p.Spec.NodeName = node(i / perNode).Name
		request(p, largeCores*1_000)
	})
	guarded := intstr.FromInt32(int32(len(pods) / 2))
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &guarded, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"guarded": "true"}},
	}}
	_, err := c.client.PolicyV1().PodDisruptionBudgets(namespace).Create(context.Background(), budget, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.create(pods)
}
