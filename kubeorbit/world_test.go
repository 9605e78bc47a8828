package kubeorbit

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/kubeorbit/fit"
	"github.com/orbitsched/orbit/nav"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// world is a cluster in a test: it registers the selections of its pods and budgets.
type world struct {
	pods       []*corev1.Pod
	nodes      []*corev1.Node
	budgets    []*policyv1.PodDisruptionBudget
	namespaces map[string]labels.Set
	claims     map[string]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume // by the name of the claim
}

func (w *world) labelsOf(namespace string) labels.Set {
	all := labels.Set{corev1.LabelMetadataName: namespace}
	return labels.Merge(all, w.namespaces[namespace])
}

// Groups implements Cluster by asking every selection of the cluster.
func (w *world) Groups(pod *corev1.Pod) []string {
	var all []Selection
	for _, p := range w.pods {
		all = append(all, Selections(p)...)
	}
	for _, b := range w.budgets {
		_, covered, _ := BudgetOf(b)
		all = append(all, covered)
	}
	var names []string
	for _, s := range all {
		if s.Selects(pod, w.labelsOf) {
			names = append(names, s.String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Claim implements Cluster.
func (w *world) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	return w.claims[namespace+"/"+name], w.volumes[namespace+"/"+name]
}

// read reads an object from YAML.
func read[T any](t testing.TB, text string) *T {
	t.Helper()
	out := new(T)
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), out), text)
	return out
}

// podFrom reads a pod. Its namespace is default, and its container takes 100m.
func podFrom(t testing.TB, text string) *corev1.Pod {
	p := read[corev1.Pod](t, text)
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	p.UID = types.UID(p.Namespace + "-" + p.Name)
	if len(p.Spec.Containers) == 0 {
		p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
		}}}
	}
	return p
}

// nodeFrom reads a node from words: its name, and then "key=value" for a label, "+name=amount" for a resource,
// "!key=value:Effect" for a taint, "cordoned". Every node has its name as hostname, 4 cores, 8Gi and 110 pods.
func nodeFrom(t testing.TB, text string) *corev1.Node {
	words := strings.Fields(text)
	n := &corev1.Node{}
	n.Name, n.Labels = words[0], map[string]string{corev1.LabelHostname: words[0]}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case word == "cordoned":
			n.Spec.Unschedulable = true
		case strings.HasPrefix(word, "-"):
			delete(n.Labels, word[1:])
		case strings.HasPrefix(word, "+"):
			n.Status.Allocatable[corev1.ResourceName(key[1:])] = resource.MustParse(value)
		case strings.HasPrefix(word, "!"):
			at := strings.LastIndex(word, ":")
			key, value, _ = strings.Cut(word[1:at], "=")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(word[at+1:])})
		default:
			n.Labels[key] = value
		}
	}
	return n
}

func idOf(p *corev1.Pod) orbit.CapsuleID {
	return orbit.CapsuleID(p.Namespace + "/" + p.Name + "/" + string(p.UID))
}

// ledger returns a ledger with the nodes, and the pods that have one of them.
func (w *world) ledger(t require.TestingT) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{IDBytes: 512}}
	for _, n := range w.nodes {
		node, err := NodeOf(n)
		require.NoError(t, err)
		commit(t, l, orbit.PutNode{Node: node})
	}
	for _, p := range w.pods {
		if p.Spec.NodeName != "" {
			spec, _ := SpecOf(p, w)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{idOf(p)}, Spec: spec}, orbit.Adopt{Capsule: idOf(p), Node: orbit.NodeID(p.Spec.NodeName)})
		}
	}
	return l
}

func commit(t require.TestingT, l orbit.Ledger, do ...orbit.Commitment) {
	_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
}

// fits returns the nodes on which the ledger accepts the pod, each judged by itself. The pod is one of the world.
func (w *world) fits(t testing.TB, pod *corev1.Pod) (names []string) {
	t.Helper()
	spec, err := SpecOf(pod, w)
	require.NoError(t, err)
	l := w.ledger(t)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{idOf(pod)}, Spec: spec})
	start, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	for _, n := range w.nodes {
		fork := &orbit.MemoryLedger{Start: start}
		_, err := fork.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: idOf(pod), Node: orbit.NodeID(n.Name)}}})
		if err == nil {
			names = append(names, n.Name)
			continue
		}
		var refused *orbit.Rejection
		require.ErrorAs(t, err, &refused)
	}
	return names
}

// judged returns the nodes on which Recount finds no fault with the pod that it does not find without it.
func (w *world) judged(pod *corev1.Pod) (names []string) {
	before := fit.Recount(w.pods, w.nodes, w.budgets)
	defer func() { pod.Spec.NodeName = "" }()
	for _, n := range w.nodes {
		pod.Spec.NodeName = n.Name
		if !slices.ContainsFunc(fit.Recount(w.pods, w.nodes, w.budgets), func(f fit.Fault) bool { return !slices.Contains(before, f) }) {
			names = append(names, n.Name)
		}
	}
	return names
}

// chosen returns the node that an engine chooses for the pod; empty: none.
func (w *world) chosen(t testing.TB, pod *corev1.Pod) string {
	t.Helper()
	spec, err := SpecOf(pod, w)
	require.NoError(t, err)
	l := w.ledger(t)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{idOf(pod)}, Spec: spec})
	round := (&orbit.Engine{Name: "services", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}).Pass(context.Background())
	require.Empty(t, round.Errors)
	state, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	return string(state.Capsule(idOf(pod)).Node)
}
