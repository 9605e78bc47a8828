package kubeorbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-helpers/storage/ephemeral"
)

// kind is a kind of object that the mirror keeps a record of.
type kind uint8

const (
	ofNode kind = iota
	ofPod
	ofBudget
	// everything stands for all objects and all records.
	everything
)

// key names an object whose record is to be compared with it.
type key struct {
	kind kind
	name types.NamespacedName
}

// mirror keeps the ledger as the API server says. It is level-triggered: for a key it compares the newest object with the
// record, and proposes what is missing. One goroutine handles all keys in the order of their changes. It shares with
// others only the queue and the fields behind a lock.
type mirror struct {
	*run
	factory informers.SharedInformerFactory
	queue   workqueue.TypedRateLimitingInterface[key]
	pods    cache.Indexer
	nodes   cache.Store
	budgets cache.Store
	claims  cache.Store
	volumes cache.Store
	spaces  cache.Store
	contact contact
	// The store of pod groups; nil: the API server has none.
	groups cache.Store

	registry registry
	// What the mirror has recorded of a pod or a budget, by its name.
	known  map[key]*record
	gangs  map[types.NamespacedName]*gang
	leaves reasons
}

// record is what the mirror has made of an object.
type record struct {
	// The selections that the object names, by name.
	selections map[string]Selection
	// The capsule of a pod; empty: it has none.
	id orbit.CapsuleID
	// The gang in which the pod is counted; its name is empty if there is none.
	gang types.NamespacedName
}

// The indexes of pods.
const (
	byNode  = "node"
	byClaim = "claim"
	byGroup = "group"
)

// newMirror returns a mirror that has read nothing yet.
func newMirror(r *run) *mirror {
	m := &mirror{run: r, known: map[key]*record{}, gangs: map[types.NamespacedName]*gang{}}
	m.registry.namespaceLabels = m.namespaceLabels
	m.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](5*time.Millisecond, 30*time.Second))
	return m
}

// stop ends the queue and waits for the informers, whose context must have ended.
func (m *mirror) stop() {
	m.queue.ShutDown()
	if m.factory != nil {
		m.factory.Shutdown()
	}
}

// start reads all objects from the API server and follows them until the context ends.
func (m *mirror) start(ctx context.Context) error {
	f := informers.NewSharedInformerFactoryWithOptions(m.Client, 0, informers.WithTransform(withoutManagers))
	m.factory = f
	core := m.Client.CoreV1()
	pods := informer(m, "pods", &corev1.Pod{}, core.Pods(metav1.NamespaceAll))
	nodes := informer(m, "nodes", &corev1.Node{}, core.Nodes())
	budgets := informer(m, "poddisruptionbudgets", &policyv1.PodDisruptionBudget{}, m.Client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll))
	claims := informer(m, "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, core.PersistentVolumeClaims(metav1.NamespaceAll))
	volumes := informer(m, "persistentvolumes", &corev1.PersistentVolume{}, core.PersistentVolumes())
	spaces := informer(m, "namespaces", &corev1.Namespace{}, core.Namespaces())
	err := pods.AddIndexers(cache.Indexers{
		byNode: func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Spec.NodeName}, nil },
		byGroup: func(o any) (names []string, _ error) {
			p := o.(*corev1.Pod)
			if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
				names = append(names, p.Namespace+"/"+*g.PodGroupName)
			}
			return names, nil
		},
		byClaim: func(o any) (names []string, _ error) {
			p := o.(*corev1.Pod)
			for i := range p.Spec.Volumes {
				switch v := &p.Spec.Volumes[i]; {
				case v.PersistentVolumeClaim != nil:
					names = append(names, p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
				case v.Ephemeral != nil:
					names = append(names, p.Namespace+"/"+ephemeral.VolumeClaimName(p, v))
				}
			}
			return names, nil
		},
	})
	m.pods, m.nodes, m.budgets = pods.GetIndexer(), nodes.GetStore(), budgets.GetStore()
	m.claims, m.volumes, m.spaces = claims.GetStore(), volumes.GetStore(), spaces.GetStore()
	type watched struct {
		informer cache.SharedIndexInformer
		changed  func(name types.NamespacedName, was, is any)
	}
	all := []watched{
		{pods, func(name types.NamespacedName, _, _ any) { m.queue.Add(key{ofPod, name}) }},
		{nodes, func(name types.NamespacedName, _, _ any) { m.queue.Add(key{ofNode, name}) }},
		{budgets, func(name types.NamespacedName, _, _ any) { m.queue.Add(key{ofBudget, name}) }},
		{claims, func(name types.NamespacedName, _, _ any) { m.addPods(byClaim, name.String()) }},
		{volumes, m.volumeChanged},
		{spaces, m.namespaceChanged},
	}
	if served, e := m.servesGroups(); served {
		groups := informer(m, "podgroups", &schedulingv1alpha2.PodGroup{}, m.Client.SchedulingV1alpha2().PodGroups(metav1.NamespaceAll))
		m.groups = groups.GetStore()
		all = append(all, watched{groups, func(name types.NamespacedName, _, _ any) { m.addAll(name.Namespace) }})
	} else if e != nil {
		return fmt.Errorf("kubeorbit: ask the API server for its resources: %w", e)
	}
	var synced []cache.InformerSynced
	for _, w := range all {
		handler, e := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { w.changed(nameOf(o), nil, o) },
			UpdateFunc: func(was, is any) { w.changed(nameOf(is), was, is) },
			DeleteFunc: func(o any) {
				name := nameOf(o)
				if gone, ok := o.(cache.DeletedFinalStateUnknown); ok { // the watch has missed the deletion, and a list has shown it
					o = gone.Obj
				}
				w.changed(name, o, nil)
			},
		})
		if err = errors.Join(err, e); err != nil {
			return fmt.Errorf("kubeorbit: informers: %w", err)
		}
		synced = append(synced, handler.HasSynced)
	}
	f.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("kubeorbit: the API server was not read whole: %w", context.Cause(ctx))
	}
	return nil
}

// servesGroups reports whether the API server has pod groups.
func (m *mirror) servesGroups() (bool, error) {
	list, err := m.Client.Discovery().ServerResourcesForGroupVersion(schedulingv1alpha2.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == "podgroups" {
			return true, nil
		}
	}
	return false, nil
}

// withoutManagers drops what nobody here reads and what is often the larger part of an object.
func withoutManagers(o any) (any, error) {
	if a, ok := o.(metav1.Object); ok {
		a.SetManagedFields(nil)
	}
	return o, nil
}

// nameOf returns the name of an object that an informer hands out.
func nameOf(o any) types.NamespacedName {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		ns, name, _ := cache.SplitMetaNamespaceKey(gone.Key)
		return types.NamespacedName{Namespace: ns, Name: name}
	}
	a := o.(metav1.Object)
	return types.NamespacedName{Namespace: a.GetNamespace(), Name: a.GetName()}
}

// podKey returns the key of a pod.
func podKey(p *corev1.Pod) key { return key{ofPod, nameOf(p)} }

// addPods queues the pods that an index has under a value.
func (m *mirror) addPods(index, value string) {
	pods, _ := m.pods.ByIndex(index, value)
	for _, o := range pods {
		m.queue.Add(podKey(o.(*corev1.Pod)))
	}
}

// addAll queues the pods of a namespace.
func (m *mirror) addAll(namespace string) {
	pods, _ := m.pods.ByIndex(cache.NamespaceIndex, namespace)
	for _, o := range pods {
		m.queue.Add(podKey(o.(*corev1.Pod)))
	}
}

// volumeChanged queues the pods whose claim is bound to a volume.
func (m *mirror) volumeChanged(_ types.NamespacedName, was, is any) {
	for _, o := range []any{was, is} {
		if v, ok := o.(*corev1.PersistentVolume); ok && v.Spec.ClaimRef != nil {
			m.addPods(byClaim, v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name)
		}
	}
}

// namespaceChanged queues the pods of a namespace whose labels have changed: other selections may select them now.
func (m *mirror) namespaceChanged(name types.NamespacedName, was, is any) {
	before, _ := was.(*corev1.Namespace)
	after, _ := is.(*corev1.Namespace)
	if before != nil && after != nil && labels.Equals(before.Labels, after.Labels) {
		return
	}
	m.addAll(name.Name)
}

// get returns an object of a store, as a pointer to T; nil: it is not there.
func get[T any](store cache.Store, name types.NamespacedName) *T {
	o, found, err := store.GetByKey(cache.ObjectName{Namespace: name.Namespace, Name: name.Name}.String())
	if err != nil || !found {
		return nil
	}
	t, _ := o.(*T)
	return t
}

// namespaceLabels returns the labels of a namespace.
func (m *mirror) namespaceLabels(name string) labels.Set {
	if ns := get[corev1.Namespace](m.spaces, types.NamespacedName{Name: name}); ns != nil {
		return ns.Labels
	}
	return nil
}

// Groups implements [Cluster].
func (m *mirror) Groups(pod *corev1.Pod) []string { return m.registry.groups(pod) }

// Claim implements [Cluster].
func (m *mirror) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	claim := get[corev1.PersistentVolumeClaim](m.claims, types.NamespacedName{Namespace: namespace, Name: name})
	if claim == nil || claim.Spec.VolumeName == "" {
		return claim, nil
	}
	return claim, get[corev1.PersistentVolume](m.volumes, types.NamespacedName{Name: claim.Spec.VolumeName})
}

// load fills the empty ledger, with nodes and budgets first, and then with pods. Before the first pod it knows the selections of all,
// so that each pod gets its groups at once. It returns the revision after which the engines begin.
func (m *mirror) load(ctx context.Context) (orbit.Revision, error) {
	var known, pods []key
	for _, o := range m.nodes.List() {
		known = append(known, key{ofNode, nameOf(o)})
	}
	for _, o := range m.budgets.List() {
		known = append(known, key{ofBudget, nameOf(o)})
	}
	for _, o := range m.pods.List() {
		p := o.(*corev1.Pod)
		m.register(podKey(p), p)
		pods = append(pods, podKey(p))
	}
	for _, keys := range [][]key{known, pods} {
		state, err := m.ledger.Snapshot(ctx)
		if err != nil {
			return 0, err
		}
		for _, k := range keys { // the pods of a gang are counted before the first of them is submitted
			if p := get[corev1.Pod](m.pods, k.name); k.kind == ofPod && p != nil {
				_, _ = m.wanted(state, k, p)
			}
		}
		for _, k := range keys {
			if err := m.compare(ctx, k); err != nil {
				if ctx.Err() != nil {
					return 0, context.Cause(ctx)
				}
				m.retry(k, err)
			}
		}
	}
	state, err := m.ledger.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	return state.Revision(), nil
}

// follow compares what changes until the context ends, and from time to time everything.
func (m *mirror) follow(ctx context.Context) error {
	stop := context.AfterFunc(ctx, m.queue.ShutDown)
	defer stop()
	m.queue.AddAfter(key{kind: everything}, m.every())
	for {
		k, ended := m.queue.Get()
		if ended {
			return context.Cause(ctx)
		}
		if err := m.compare(ctx, k); err != nil && ctx.Err() == nil {
			m.retry(k, err)
		} else {
			m.queue.Forget(k)
		}
		m.queue.Done(k)
	}
}

// retry compares the object of a key again after a while.
func (m *mirror) retry(k key, err error) {
	if m.queue.NumRequeues(k) > 5 {
		m.log.Warn("kubeorbit: an object and its record differ", "object", k.name, "error", err)
	}
	m.queue.AddRateLimited(k)
}

// every returns the time between two comparisons of everything.
func (m *mirror) every() time.Duration { return cmp.Or(m.Compare, 5*time.Minute) }

// compareAll queues all objects of the API server, all that the mirror knows, and all nodes and budgets in the ledger. It ends the
// capsules that belong to no known pod.
func (m *mirror) compareAll(ctx context.Context) error {
	m.queue.AddAfter(key{kind: everything}, m.every())
	for kind, store := range map[kind]cache.Store{ofNode: m.nodes, ofBudget: m.budgets, ofPod: m.pods} {
		for _, o := range store.List() {
			m.queue.Add(key{kind, nameOf(o)})
		}
	}
	for k := range m.known {
		m.queue.Add(k)
	}
	state, err := m.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	for n := range state.Nodes() {
		m.queue.Add(key{ofNode, types.NamespacedName{Name: string(n.Node.ID)}})
	}
	for b := range state.Budgets() {
		ns, name, _ := strings.Cut(string(b.Budget.ID), "/")
		m.queue.Add(key{ofBudget, types.NamespacedName{Namespace: ns, Name: name}})
	}
	for c := range state.Capsules() {
		if r := m.known[key{ofPod, podOf(c.ID)}]; r == nil || r.id != c.ID {
			err = errors.Join(err, m.settle(ctx, &want{id: c.ID}))
		}
	}
	return err
}

// compare makes the record of an object as the object is now.
func (m *mirror) compare(ctx context.Context, k key) error {
	switch k.kind {
	case everything:
		return m.compareAll(ctx)
	case ofNode:
		return m.compareNode(ctx, k)
	case ofBudget:
		return m.compareBudget(ctx, k)
	}
	return m.comparePod(ctx, k)
}

// compareNode puts a node, or removes it with all that was on it.
func (m *mirror) compareNode(ctx context.Context, k key) error {
	state, err := m.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	id := orbit.NodeID(k.name.Name)
	was, n := state.Node(id), get[corev1.Node](m.nodes, k.name)
	if n == nil {
		if was == nil {
			return nil
		}
		return m.propose(ctx, state, orbit.RemoveNode{Node: id, Gone: true})
	}
	node, err := NodeOf(n)
	if err != nil { // what it says now is not known, so it takes no pods
		m.log.Error("kubeorbit: a node takes no pods", "node", k.name.Name, "error", err)
		if was == nil || was.Node.State == orbit.Cordoned {
			return nil
		}
		node = was.Node.Clone()
		node.State = orbit.Cordoned
	}
	if err := m.propose(ctx, state, orbit.PutNode{Node: node}); err != nil {
		return err
	}
	if was == nil { // pods that were seen before their node
		m.addPods(byNode, k.name.Name)
	}
	return nil
}

// compareBudget puts the budget of a disruption budget, or removes it.
func (m *mirror) compareBudget(ctx context.Context, k key) error {
	p := get[policyv1.PodDisruptionBudget](m.budgets, k.name)
	m.register(k, p)
	state, err := m.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	id := orbit.BudgetID(k.name.String())
	was, has := state.Budget(id)
	if p == nil {
		if !has {
			return nil
		}
		return m.propose(ctx, state, orbit.RemoveBudget{Budget: id})
	}
	budget, _, err := BudgetOf(p)
	if err != nil || has && was.Budget == budget {
		return err
	}
	return m.propose(ctx, state, orbit.PutBudget{Budget: budget})
}

// register counts the selections that a pod or a disruption budget names. A nil object names none. Other pods whose groups
// change by this are queued, and then the result is true.
func (m *mirror) register(k key, o runtime.Object) (others bool) {
	var are []Selection
	switch o := o.(type) {
	case *corev1.Pod:
		if o != nil && !over(o) {
			are = Selections(o)
		}
	case *policyv1.PodDisruptionBudget:
		if o != nil {
			if _, s, err := BudgetOf(o); err == nil {
				are = []Selection{s}
			}
		}
	}
	r := m.known[k]
	if r == nil {
		if len(are) == 0 {
			return false
		}
		r = &record{}
		m.known[k] = r
	}
	now, changed := m.registry.use(r.selections, are)
	r.selections = now
	for i := range changed {
		s := &changed[i]
		namespaces := s.Namespaces
		if s.NamespaceSelector != nil {
			namespaces = m.pods.ListIndexFuncValues(cache.NamespaceIndex)
		}
		for _, ns := range namespaces {
			pods, _ := m.pods.ByIndex(cache.NamespaceIndex, ns)
			for _, o := range pods {
				if p := o.(*corev1.Pod); podKey(p) != k && s.Selects(p, m.namespaceLabels) {
					m.queue.Add(podKey(p))
					others = true
				}
			}
		}
	}
	m.forget(k)
	return others
}

// forget drops a record that says nothing.
func (m *mirror) forget(k key) {
	if r := m.known[k]; r != nil && len(r.selections) == 0 && r.id == "" && r.gang.Name == "" {
		delete(m.known, k)
	}
}
