//go:build kube

package itest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/orbitsched/orbit/kubeorbit/fit"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/disruption"
)

// zoneOf is the zone of a node. The zones have sizes that differ, so that pods that are spread over the nodes are not spread over the
// zones, too: half of all nodes are in the first zone, a fifth in the second, and a tenth in each other one.
var zoneOf = [...]string{"a", "a", "a", "a", "a", "b", "b", "c", "d", "e"}

// The nodes of a cluster all have the same size.
const (
	nodeCores = 32
	nodePods  = 110

	// The first nodes are in a pool of their own, which is filled before pods of high priority come.
	fullNodes = 200
	poolLabel = "pool"
	fullPool  = "full"
)

// cluster is a set of nodes in the API server, with kubelets and the disruption controller, which keeps the status of budgets.
type cluster struct {
	t          *testing.T
	client     kubernetes.Interface
	kubeconfig string
	nodes      int

	mu      sync.Mutex
	bound   map[string]int // bound pods, by namespace and application
	changed chan struct{}  // closed at the next change of bound
}

// newCluster makes nodes. They and the kubelets are gone when the test ends.
func newCluster(t *testing.T, nodes int) *cluster {
	config := Start(t)
	config.AcceptContentTypes, config.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	c := &cluster{t: t, client: client, kubeconfig: kubeconfig(t, config), nodes: nodes, bound: map[string]int{}, changed: make(chan struct{})}
	c.priorityClass("high", 1_000)
	c.each(nodes, func(ctx context.Context, i int) error {
		_, err := client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() {
		require.NoError(t, client.CoreV1().Nodes().DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
	c.start(config)
	return c
}

func node(i int) *corev1.Node {
	name := fmt.Sprintf("node-%04d", i)
	size := corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(nodeCores, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("128Gi"),
		corev1.ResourcePods: *resource.NewQuantity(nodePods, resource.DecimalSI),
	}
	labels := map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: zoneOf[i%len(zoneOf)]}
	if i < fullNodes {
		labels[poolLabel] = fullPool
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: size, Allocatable: size,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
}

// start runs what a cluster has beside its scheduler, until the test ends.
func (c *cluster) start(config *rest.Config) {
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	shared := informers.NewSharedInformerFactory(c.client, 0)
	pods := shared.Core().V1().Pods()
	pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { c.count(nil, now.(*corev1.Pod)) },
		UpdateFunc: func(was, now any) { c.count(was.(*corev1.Pod), now.(*corev1.Pod)) },
		DeleteFunc: func(was any) {
			if unknown, ok := was.(cache.DeletedFinalStateUnknown); ok {
				was = unknown.Obj
			}
			c.count(was.(*corev1.Pod), nil)
		},
	})
	k := &kubelets{client: c.client, pods: pods.Lister(), stops: 50 * time.Millisecond}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	scales, err := scale.NewForConfig(rest.CopyConfig(config), mapper, dynamic.LegacyAPIPathResolverFunc,
		scale.NewDiscoveryScaleKindResolver(c.client.Discovery()))
	require.NoError(c.t, err)
	budgets := disruption.NewDisruptionController(ctx, pods, shared.Policy().V1().PodDisruptionBudgets(), shared.Core().V1().ReplicationControllers(),
		shared.Apps().V1().ReplicaSets(), shared.Apps().V1().Deployments(), shared.Apps().V1().StatefulSets(),
		c.client, mapper, scales, c.client.Discovery())
	go k.run(ctx, pods.Informer())
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	go budgets.Run(ctx)
}

// count notes that a pod has changed; nil: it was not there, or is gone.
func (c *cluster) count(was, now *corev1.Pod) {
	bound := func(p *corev1.Pod) bool { return p != nil && p.Spec.NodeName != "" }
	if bound(was) == bound(now) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bound(now) {
		c.bound[application(now)]++
	} else {
		c.bound[application(was)]--
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// application names the pods that are counted together.
func application(p *corev1.Pod) string { return p.Namespace + "/" + p.Labels["app"] }

// awaitBound waits until want pods of an application are bound, but no longer than within. It returns the number of bound pods, and
// ends the test if the scheduler ends.
func (c *cluster) awaitBound(application string, want int, within time.Duration, of ...*child) (bound int) {
	c.await(within, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		bound = c.bound[application]
		return bound == want // pods that are being deleted count until they have gone
	}, of...)
	return bound
}

// await returns when done says so, or time is over. It asks whenever a pod is bound or has gone.
func (c *cluster) await(within time.Duration, done func() bool, of ...*child) {
	end, look := time.After(within), time.NewTicker(time.Second)
	defer look.Stop()
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if done() {
			return
		}
		select {
		case <-changed:
		case <-end:
			return
		case <-look.C:
			for _, p := range of {
				require.NoError(c.t, p.alive())
			}
		}
	}
}

// each calls do for the numbers below n, sixteen at a time.
func (c *cluster) each(n int, do func(ctx context.Context, i int) error) {
	c.t.Helper()
	var mu sync.Mutex
	var first error
	workqueue.ParallelizeUntil(context.Background(), 16, n, func(i int) {
		if err := do(context.Background(), i); err != nil {
			mu.Lock()
			defer mu.Unlock()
			first = err
		}
	})
	require.NoError(c.t, first)
}

func (c *cluster) priorityClass(name string, value int32) {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	if _, err := c.client.SchedulingV1().PriorityClasses().Create(context.Background(), class, metav1.CreateOptions{}); !errors.IsAlreadyExists(err) {
		require.NoError(c.t, err)
	}
}

// namespace makes a namespace. The function that it returns removes all pods and budgets there.
func (c *cluster) namespace(prefix string) (name string, empty func()) {
	made, err := c.client.CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	empty = func() {
		ctx, all := context.Background(), metav1.ListOptions{}
		require.NoError(c.t, c.client.PolicyV1().PodDisruptionBudgets(made.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
		require.NoError(c.t, c.client.CoreV1().Pods(made.Name).DeleteCollection(ctx, *metav1.NewDeleteOptions(0), all))
		require.NoError(c.t, c.client.SchedulingV1alpha2().PodGroups(made.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	}
	return made.Name, empty
}

// create makes pods.
func (c *cluster) create(pods []*corev1.Pod) {
	c.t.Helper()
	c.each(len(pods), func(ctx context.Context, i int) error {
		_, err := c.client.CoreV1().Pods(pods[i].Namespace).Create(ctx, pods[i], metav1.CreateOptions{})
		return err
	})
}

// faults returns the rules that are broken in the API server.
func (c *cluster) faults() []fit.Fault {
	ctx, all := context.Background(), metav1.ListOptions{}
	nodes, err := c.client.CoreV1().Nodes().List(ctx, all)
	require.NoError(c.t, err)
	pods, err := c.client.CoreV1().Pods("").List(ctx, all)
	require.NoError(c.t, err)
	budgets, err := c.client.PolicyV1().PodDisruptionBudgets("").List(ctx, all)
	require.NoError(c.t, err)
	return fit.Recount(pointers(pods.Items), pointers(nodes.Items), pointers(budgets.Items))
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}
