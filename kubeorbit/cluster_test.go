package kubeorbit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
)

// cluster is an API server in memory with kubelets, in a synctest bubble. Of the real one it has what a scheduler relies
// on: a pod is bound once, to the UID of the binding, unless it is being deleted; one that is bound is deleted when its
// kubelet has stopped it.
type cluster struct {
	*fake.Clientset
	t        testing.TB
	schedule *Scheduler
	// Trouble is called before each request of a scheduler about pods, with its verb and the name of the pod, and once more
	// after it. An error is the answer.
	trouble func(verb, pod string, after bool) error
	// How long kubelets take to start and to stop a pod.
	starts, stops time.Duration

	// How many watches were begun.
	watches atomic.Int64

	mu sync.Mutex
	// The nodes of pods that were bound, in order; and the pods that were deleted by a scheduler.
	binds  map[types.UID][]string
	evicts []string
	made   int

	ledger *orbit.MemoryLedger
	ended  chan error
	cancel context.CancelFunc
}

// newCluster returns a cluster with nodes as nodeFrom reads them.
func newCluster(t testing.TB, nodes ...string) *cluster {
	c := &cluster{Clientset: fake.NewClientset(), t: t, starts: time.Second, stops: 2 * time.Second, binds: map[types.UID][]string{}}
	c.PrependReactor("create", "pods", c.bindsPod)
	c.PrependReactor("delete", "pods", c.deletesPod)
	c.PrependWatchReactor("*", func(ktesting.Action) (bool, watch.Interface, error) {
		c.watches.Add(1)
		return false, nil, nil
	})
	for _, n := range nodes {
		c.addNode(n)
	}
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{corev1.LabelMetadataName: "default"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return c
}

// serveGroups has the API server serve pod groups.
func (c *cluster) serveGroups() {
	c.Resources = append(c.Resources, &metav1.APIResourceList{
		GroupVersion: schedulingv1alpha2.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "podgroups"}},
	})
}

func (c *cluster) addNode(text string) {
	_, err := c.CoreV1().Nodes().Create(c.t.Context(), nodeFrom(c.t, text), metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// add makes pods that name the scheduler. Each has a UID of its own, also if it is made again under its name.
func (c *cluster) add(pods ...*corev1.Pod) {
	for i, p := range pods {
		p = p.DeepCopy()
		if c.made++; p.Spec.SchedulerName == "" {
			p.Spec.SchedulerName = "orbit"
		}
		p.UID, p.CreationTimestamp = types.UID(fmt.Sprintf("uid-%d", c.made)), metav1.Now()
		_, err := c.CoreV1().Pods(p.Namespace).Create(c.t.Context(), p, metav1.CreateOptions{})
		require.NoError(c.t, err)
		if i%40 == 39 { // a watcher of the fake takes 100 events
			synctest.Wait()
		}
	}
}

// claimed makes a volume that is bound to the claim "data".
func (c *cluster) claimed() {
	ctx := c.t.Context()
	_, err := c.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data"}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	_, err = c.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "default"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v"},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// named makes copies of a pod, each with a name of its own.
func named(p *corev1.Pod, n int) (out []*corev1.Pod) {
	for i := range n {
		one := p.DeepCopy()
		one.Name = fmt.Sprintf("%s-%d", p.Name, i)
		out = append(out, one)
	}
	return out
}

// bindsPod is what a binding does.
func (c *cluster) bindsPod(action ktesting.Action) (bool, runtime.Object, error) {
	create := action.(ktesting.CreateAction)
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	binding := create.GetObject().(*corev1.Binding)
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	o, err := c.Tracker().Get(gvr, binding.Namespace, binding.Name)
	if err != nil {
		return true, nil, err
	}
	p := o.(*corev1.Pod).DeepCopy()
	conflict := func(why string) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(gvr.GroupResource(), p.Name, fmt.Errorf("%s", why))
	}
	switch {
	case binding.UID != "" && p.UID != binding.UID:
		return conflict("the UID in the precondition is not that of the pod")
	case p.DeletionTimestamp != nil:
		return conflict("the pod is being deleted")
	case p.Spec.NodeName != "":
		return conflict("the pod is assigned to a node already")
	}
	p.Spec.NodeName = binding.Target.Name
	setCondition(p, corev1.PodScheduled, corev1.ConditionTrue)
	c.mu.Lock()
	c.binds[p.UID] = append(c.binds[p.UID], p.Spec.NodeName)
	c.mu.Unlock()
	return true, binding, c.Tracker().Update(gvr, p, p.Namespace)
}

// deletesPod is what a deletion does: a pod that is bound terminates first.
func (c *cluster) deletesPod(action ktesting.Action) (bool, runtime.Object, error) {
	del := action.(ktesting.DeleteActionImpl)
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	o, err := c.Tracker().Get(gvr, del.Namespace, del.Name)
	if err != nil {
		return true, nil, err
	}
	p := o.(*corev1.Pod).DeepCopy()
	if pre := del.DeleteOptions.Preconditions; pre != nil && pre.UID != nil && *pre.UID != p.UID {
		return true, nil, apierrors.NewConflict(gvr.GroupResource(), p.Name, fmt.Errorf("the UID in the precondition is not that of the pod"))
	}
	if p.Spec.NodeName == "" || del.DeleteOptions.GracePeriodSeconds != nil && *del.DeleteOptions.GracePeriodSeconds == 0 {
		return false, nil, nil
	}
	if p.DeletionTimestamp == nil {
		at := metav1.Now()
		p.DeletionTimestamp = &at
		setCondition(p, corev1.PodReady, corev1.ConditionFalse)
	}
	return true, nil, c.Tracker().Update(gvr, p, p.Namespace)
}

func setCondition(p *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) {
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(o corev1.PodCondition) bool { return o.Type == kind })
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.Now()})
}

// kubelets lets all kubelets do what is due.
func (c *cluster) kubelets() {
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	for i, p := range c.pods() {
		since := func(at time.Time) time.Duration { return time.Since(at) }
		switch p = p.DeepCopy(); {
		case p.Spec.NodeName == "":
		case p.DeletionTimestamp != nil:
			if since(p.DeletionTimestamp.Time) >= c.stops {
				require.NoError(c.t, c.Tracker().Delete(gvr, p.Namespace, p.Name))
			}
		case p.Status.Phase == "" || p.Status.Phase == corev1.PodPending:
			for i := range p.Status.Conditions {
				if at := &p.Status.Conditions[i]; at.Type == corev1.PodScheduled && since(at.LastTransitionTime.Time) >= c.starts {
					p.Status.Phase = corev1.PodRunning
					setCondition(p, corev1.PodReady, corev1.ConditionTrue)
					require.NoError(c.t, c.Tracker().Update(gvr, p, p.Namespace))
					break
				}
			}
		}
		if i%40 == 39 {
			synctest.Wait()
		}
	}
}

// pods returns all pods, by name.
func (c *cluster) pods() (out []*corev1.Pod) {
	list, err := c.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), "")
	require.NoError(c.t, err)
	for i := range list.(*corev1.PodList).Items {
		out = append(out, &list.(*corev1.PodList).Items[i])
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return out
}

// pod returns a pod of the default namespace; nil: it is gone.
func (c *cluster) pod(name string) *corev1.Pod {
	for _, p := range c.pods() {
		if p.Name == name && p.Namespace == metav1.NamespaceDefault {
			return p
		}
	}
	return nil
}

// on returns the node of each pod whose name has a prefix; empty: it waits.
func (c *cluster) on(prefix string) map[string]string {
	out := map[string]string{}
	for _, p := range c.pods() {
		if strings.HasPrefix(p.Name, prefix) {
			out[p.Name] = p.Spec.NodeName
		}
	}
	return out
}

// bound counts the pods that have a node and do not terminate.
func (c *cluster) bound(prefix string) (n int) {
	for _, p := range c.pods() {
		n += int(btoi(strings.HasPrefix(p.Name, prefix) && p.Spec.NodeName != "" && p.DeletionTimestamp == nil))
	}
	return n
}

// run starts a scheduler.
func (c *cluster) run() {
	if c.schedule == nil {
		c.schedule = &Scheduler{Binders: 8}
	}
	s := *c.schedule
	s.Client, s.Events = troubled{c.Clientset, c}, &events.FakeRecorder{}
	s.Logger = cmp.Or(s.Logger, slog.New(slog.DiscardHandler))
	s.OnStart = func(ledger *orbit.MemoryLedger, _ *orbit.Population) { c.ledger = ledger }
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	c.cancel, c.ended = cancel, ended
	go func() { ended <- s.Run(ctx) }()
}

// kill ends the scheduler.
func (c *cluster) kill() {
	c.cancel()
	require.ErrorIs(c.t, <-c.ended, context.Canceled)
}

// pass lets time pass, in which kubelets work.
func (c *cluster) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		c.kubelets()
	}
	synctest.Wait()
}

// until lets time pass until something holds, for ten minutes at most.
func (c *cluster) until(what string, holds func() bool) {
	c.t.Helper()
	for range 2400 {
		if holds() {
			return
		}
		c.pass(250 * time.Millisecond)
	}
	require.Fail(c.t, "ten minutes have passed without: "+what, "%v\n%s", c.on(""), c.whyNot())
}

// whyNot returns why pods wait.
func (c *cluster) whyNot() (out string) {
	for _, p := range c.pods() {
		for _, k := range p.Status.Conditions {
			if p.Spec.NodeName == "" {
				out += fmt.Sprintf("%s: %s %s: %s\n", p.Name, k.Type, k.Status, k.Message)
			}
		}
	}
	return out
}

// check judges the cluster at rest: by Recount, and by comparing the ledger with the API server.
func (c *cluster) check() {
	c.t.Helper()
	require.Empty(c.t, c.faults())
	c.same()
}

// faults recounts the cluster.
func (c *cluster) faults() []fit.Fault {
	var nodes []*corev1.Node
	list, err := c.CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	return fit.Recount(c.pods(), nodes, c.budgets())
}

// refuseBindsTo is a reactor that refuses all binds to a node.
func refuseBindsTo(node string) ktesting.ReactionFunc {
	return func(action ktesting.Action) (bool, runtime.Object, error) {
		binding, ok := action.(ktesting.CreateAction).GetObject().(*corev1.Binding)
		if !ok || binding.Target.Name != node {
			return false, nil, nil
		}
		return true, nil, apierrors.NewInternalError(fmt.Errorf("node %s binds nothing", node))
	}
}

func (c *cluster) budgets() (out []*policyv1.PodDisruptionBudget) {
	list, err := c.PolicyV1().PodDisruptionBudgets("").List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// same compares the ledger with the API server.
func (c *cluster) same() {
	c.t.Helper()
	state, err := c.ledger.Snapshot(c.t.Context())
	require.NoError(c.t, err)
	require.NoError(c.t, state.Verify())
	server, ledger := map[orbit.CapsuleID]string{}, map[orbit.CapsuleID]string{}
	say := func(node string, stopping, ready bool) string {
		return fmt.Sprintf("on %q, stopping %v, ready %v", node, stopping, ready)
	}
	for _, p := range c.pods() {
		if over(p) || p.Spec.NodeName == "" && (p.Spec.SchedulerName != "orbit" || saysWhy(p, "that are placed together")) {
			continue
		}
		stopping := p.DeletionTimestamp != nil
		server[capsuleOf(p)] = say(p.Spec.NodeName, stopping, ready(p) && !stopping)
	}
	for cap := range state.Capsules() {
		switch {
		case !cap.Released():
			ledger[cap.ID] = say(string(cap.Node), false, cap.Ready)
		case cap.Remains() != nil:
			ledger[cap.ID] = say(string(cap.Remains().Node), true, false)
		}
	}
	require.Equal(c.t, server, ledger)
	for _, nodes := range c.binds {
		require.Len(c.t, nodes, 1, "a pod was bound more than once")
	}
}

// saysWhy reports whether a pod says that it is not scheduled, with this text.
func saysWhy(p *corev1.Pod, text string) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(k corev1.PodCondition) bool {
		return k.Type == corev1.PodScheduled && k.Status == corev1.ConditionFalse && strings.Contains(k.Message, text)
	})
}

// troubled is the client of a scheduler, whose requests about pods can fail, take time or lose their answers.
type troubled struct {
	kubernetes.Interface
	c *cluster
}

func (t troubled) CoreV1() typedcorev1.CoreV1Interface {
	return troubledCore{t.Interface.CoreV1(), t.c}
}

type troubledCore struct {
	typedcorev1.CoreV1Interface
	c *cluster
}

func (t troubledCore) Pods(namespace string) typedcorev1.PodInterface {
	return troubledPods{t.CoreV1Interface.Pods(namespace), t.c}
}

type troubledPods struct {
	typedcorev1.PodInterface
	c *cluster
}

// ask asks for trouble, before or after a request.
func (t troubledPods) ask(verb, pod string, after bool) error {
	t.c.mu.Lock()
	trouble := t.c.trouble
	t.c.mu.Unlock()
	if trouble == nil {
		return nil
	}
	return trouble(verb, pod, after)
}

func (t troubledPods) Bind(ctx context.Context, b *corev1.Binding, o metav1.CreateOptions) error {
	if err := t.ask("bind", b.Name, false); err != nil {
		return err
	}
	if err := t.PodInterface.Bind(ctx, b, o); err != nil {
		return err
	}
	return t.ask("bind", b.Name, true)
}

func (t troubledPods) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Pod, error) {
	if err := t.ask("get", name, false); err != nil {
		return nil, err
	}
	return t.PodInterface.Get(ctx, name, o)
}

func (t troubledPods) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	if err := t.ask("delete", name, false); err != nil {
		return err
	}
	t.c.mu.Lock()
	t.c.evicts = append(t.c.evicts, name)
	t.c.mu.Unlock()
	return t.PodInterface.Delete(ctx, name, o)
}

// IsWatchListSemanticsUnSupported tells informers that the API server in memory sends no list as a watch.
func (troubled) IsWatchListSemanticsUnSupported() bool { return true }
