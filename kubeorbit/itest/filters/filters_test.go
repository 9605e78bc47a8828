//go:build kube

package filters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/kubeorbit"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"pgregory.net/rapid"
)

// namespaces are the namespaces of the differential test and their labels.
var namespaces = map[string]labels.Set{
	"a": {"team": "x", corev1.LabelMetadataName: "a"},
	"b": {"team": "y", corev1.LabelMetadataName: "b"},
}

func namespaceLabels(name string) labels.Set { return namespaces[name] }

// kubeFilters is kube-scheduler's own judgement.
type kubeFilters struct {
	framework framework.Framework
	snapshot  *cache.Snapshot // of the world that is judged
}

// These let the plugins, which keep the lister that they are made with, see the snapshot of the moment.
func (k *kubeFilters) NodeInfos() fwk.NodeInfoLister       { return k.snapshot.NodeInfos() }
func (k *kubeFilters) StorageInfos() fwk.StorageInfoLister { return k.snapshot.StorageInfos() }
func (k *kubeFilters) PodGroupStates() fwk.PodGroupStateLister {
	return k.snapshot.PodGroupStates()
}

func newKubeFilters(t *testing.T) *kubeFilters {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	metrics.Register()
	client := fake.NewClientset()
	for name, set := range namespaces {
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	defaults, err := latest.Default()
	require.NoError(t, err)
	profile := &defaults.Profiles[0]
	profile.Plugins = &config.Plugins{}
	for _, name := range []string{
		names.PrioritySort, names.DefaultBinder, names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity, names.NodePorts,
		names.NodeResourcesFit, names.PodTopologySpread, names.InterPodAffinity,
	} {
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, config.Plugin{Name: name})
	}
	k := &kubeFilters{snapshot: cache.NewEmptySnapshot()}
	made, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile, frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(shared), frameworkruntime.WithSnapshotSharedLister(k))
	require.NoError(t, err)
	k.framework = made
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	return k
}

// refusal is what a plugin of kube-scheduler says against a node.
type refusal struct{ plugin, why string }

func (r *refusal) Error() string { return r.plugin + ": " + r.why }

// refusals returns for each node why the pod does not fit there; nil: it does.
func (k *kubeFilters) refusals(ctx context.Context, w *world) (map[string]error, error) {
	k.snapshot = cache.NewSnapshot(w.placed, w.nodes)
	refused, state := map[string]error{}, framework.NewCycleState()
	only, status, _ := k.framework.RunPreFilterPlugins(ctx, state, w.pod)
	if status.Code() == fwk.Error {
		return nil, status.AsError()
	}
	for _, n := range w.nodes {
		if !status.IsSuccess() {
			refused[n.Name] = &refusal{status.Plugin(), status.Message()}
			continue
		}
		if !only.AllNodes() && !only.NodeNames.Has(n.Name) {
			refused[n.Name] = &refusal{names.NodeAffinity, "not among the nodes of PreFilter"}
			continue
		}
		info, err := k.snapshot.NodeInfos().Get(n.Name)
		if err != nil {
			return nil, err
		}
		one := k.framework.RunFilterPlugins(ctx, state, w.pod, info)
		if one.Code() == fwk.Error {
			return nil, one.AsError()
		}
		if refused[n.Name] = nil; !one.IsSuccess() {
			refused[n.Name] = &refusal{one.Plugin(), one.Message()}
		}
	}
	return refused, nil
}

// selections is the kubeorbit.Cluster of the differential test: the selections of all its pods are registered.
type selections struct{ all []kubeorbit.Selection }

func (s selections) Groups(pod *corev1.Pod) (groups []string) {
	for _, one := range s.all {
		if one.Selects(pod, namespaceLabels) {
			groups = append(groups, one.String())
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

func (selections) Claim(string, string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	return nil, nil
}

// orbitRefusals returns for each node why a ledger refuses to place the pod there; nil: it does not.
func orbitRefusals(ctx context.Context, w *world) (map[string]error, error) {
	var known selections
	for _, p := range append(slices.Clone(w.placed), w.pod) {
		known.all = append(known.all, kubeorbit.Selections(p)...)
	}
	base, facts := &orbit.MemoryLedger{Bounds: orbit.Limits{IDBytes: 512}}, []orbit.Commitment(nil)
	for _, n := range w.nodes {
		node, err := kubeorbit.NodeOf(n)
		if err != nil {
			return nil, err
		}
		facts = append(facts, orbit.PutNode{Node: node})
	}
	for _, p := range w.placed {
		spec, err := kubeorbit.SpecOf(p, known)
		if err != nil {
			return nil, err
		}
		facts = append(facts, orbit.Adopt{Capsule: orbit.CapsuleID(p.Name), Spec: spec, Node: orbit.NodeID(p.Spec.NodeName)})
	}
	spec, err := kubeorbit.SpecOf(w.pod, known)
	if err != nil {
		return nil, err
	}
	facts = append(facts, orbit.Submit{IDs: []orbit.CapsuleID{"pod"}, Spec: spec})
	if _, err := base.Propose(ctx, orbit.Proposal{Do: facts}); err != nil {
		return nil, err
	}
	state, err := base.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	refused := map[string]error{}
	for _, n := range w.nodes {
		tried := &orbit.MemoryLedger{Bounds: orbit.Limits{IDBytes: 512}, Start: state}
		_, refused[n.Name] = tried.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: "pod", Node: orbit.NodeID(n.Name)}}})
	}
	return refused, nil
}

// TestFitsAsKubeScheduler compares on random clusters the nodes on which a pod fits by kube-scheduler's filters with those on which
// the ledger accepts it. They differ only in the ways that kubeorbit.SpecOf states.
func TestFitsAsKubeScheduler(t *testing.T) {
	k, seen := newKubeFilters(t), map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		ctx, w := context.Background(), drawWorld(t)
		kube, err := k.refusals(ctx, w)
		require.NoError(t, err)
		ours, err := orbitRefusals(ctx, w)
		if cannot := (*kubeorbit.Unsayable)(nil); errors.As(err, &cannot) {
			seen["cannot be said: "+cannot.Field]++
			return
		}
		require.NoError(t, err, "%s", w)
		for _, n := range w.nodes {
			theirs, our := kube[n.Name], ours[n.Name]
			if refused := (*refusal)(nil); errors.As(theirs, &refused) {
				seen["refused by "+refused.plugin]++
			}
			switch {
			case theirs == nil && our == nil:
				seen["fits"]++
			case theirs != nil && our != nil:
			default:
				stated := w.stated(theirs, our)
				if stated == "" {
					t.Fatalf("node %s: kube-scheduler: %v; orbit: %v\n%s", n.Name, theirs, our, w)
				}
				seen["stated: "+stated]++
			}
		}
	})
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%7d %s", seen[what], what)
	}
	for _, name := range append([]string{"fits"}, refusedBy...) {
		require.GreaterOrEqual(t, seen[name], 10, "%s: the worlds are too easy or too hard to tell anything", name)
	}
}

// refusedBy are the plugins that have to refuse some nodes, for the test to mean something.
var refusedBy = []string{
	"refused by " + names.NodeUnschedulable, "refused by " + names.TaintToleration, "refused by " + names.NodeAffinity, "refused by " + names.NodePorts,
	"refused by " + names.NodeResourcesFit, "refused by " + names.PodTopologySpread, "refused by " + names.InterPodAffinity,
}

// stated returns which of the differences that kubeorbit.SpecOf states explains that only one of the two refuses; empty: none.
func (w *world) stated(theirs, our error) string {
	var refused *refusal
	var rejected *orbit.Rejection
	plugin, group := "", ""
	if errors.As(theirs, &refused) {
		plugin = refused.plugin
	}
	if errors.As(our, &rejected) {
		group = rejected.Group
	}
	switch {
	case (plugin == names.PodTopologySpread || group != "") && w.countsExcluded():
		return "spread counts pods on nodes that are excluded"
	case (plugin == names.PodTopologySpread || group != "") && w.cordonsUntainted():
		return "a cordoned node has its taint at once"
	case group != "" && w.ignoresAffinityBesideKeys():
		return "nodeAffinityPolicy Ignore counts domains of nodes without the key of another constraint"
	case plugin == names.InterPodAffinity && our == nil && w.startsBesideUnlabelled():
		return "the first pod of a group ignores members on nodes without a label"
	}
	return ""
}

// hard returns the spread constraints that the filters judge.
func (w *world) hard() []corev1.TopologySpreadConstraint {
	return slices.DeleteFunc(slices.Clone(w.pod.Spec.TopologySpreadConstraints), func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable != corev1.DoNotSchedule
	})
}

// lacksKey reports whether the node lacks the label of one of the constraints.
func lacksKey(n *corev1.Node, constraints []corev1.TopologySpreadConstraint) bool {
	return slices.ContainsFunc(constraints, func(c corev1.TopologySpreadConstraint) bool {
		_, has := n.Labels[c.TopologyKey]
		return !has
	})
}

// ignoresAffinityBesideKeys reports whether a constraint has the policy Ignore, and a node lacks the label of another constraint.
func (w *world) ignoresAffinityBesideKeys() bool {
	ignores := func(c corev1.TopologySpreadConstraint) bool {
		return c.NodeAffinityPolicy != nil && *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore
	}
	return slices.ContainsFunc(w.hard(), ignores) && slices.ContainsFunc(w.nodes, func(n *corev1.Node) bool { return lacksKey(n, w.hard()) })
}

// countsExcluded reports whether a placed pod that a spread constraint of the pod selects is on a node that the constraint leaves out.
func (w *world) countsExcluded() bool {
	constraints := w.hard()
	leavesOut := func(c *corev1.TopologySpreadConstraint, n *corev1.Node) bool {
		if lacksKey(n, constraints) {
			return true
		}
		if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
			if match, _ := nodeaffinity.GetRequiredNodeAffinity(w.pod).Match(n); !match {
				return true
			}
		}
		return c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectPreferNoSchedule && !helper.TolerationsTolerateTaint(klog.Background(), w.pod.Spec.Tolerations, &t, false)
		})
	}
	for i := range constraints {
		c := &constraints[i]
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err == nil && slices.ContainsFunc(w.placed, func(p *corev1.Pod) bool {
			return p.Namespace == w.pod.Namespace && selector.Matches(labels.Set(p.Labels)) && leavesOut(c, w.node(p.Spec.NodeName))
		}) {
			return true
		}
	}
	return false
}

// cordonsUntainted reports whether a node is cordoned and has no taint for it yet, and a spread constraint leaves out tainted nodes.
func (w *world) cordonsUntainted() bool {
	honors := func(c corev1.TopologySpreadConstraint) bool {
		return c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	}
	return slices.ContainsFunc(w.pod.Spec.TopologySpreadConstraints, honors) && slices.ContainsFunc(w.nodes, func(n *corev1.Node) bool {
		return n.Spec.Unschedulable && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
	})
}

// startsBesideUnlabelled reports whether the pod requires the company of a group by several labels, and a placed pod is on a node that
// lacks one of them.
func (w *world) startsBesideUnlabelled() bool {
	a := w.pod.Spec.Affinity
	if a == nil || a.PodAffinity == nil {
		return false
	}
	terms := a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return len(terms) > 1 && slices.ContainsFunc(terms, func(term corev1.PodAffinityTerm) bool {
		return slices.ContainsFunc(w.placed, func(p *corev1.Pod) bool {
			_, has := w.node(p.Spec.NodeName).Labels[term.TopologyKey]
			return !has
		})
	})
}

func (w *world) node(name string) *corev1.Node {
	return w.nodes[slices.IndexFunc(w.nodes, func(n *corev1.Node) bool { return n.Name == name })]
}

// String returns what counts of the world, in a line for each object.
func (w *world) String() string {
	var text strings.Builder
	show := func(what, name string, parts ...any) {
		line, err := json.Marshal(parts)
		if err != nil {
			line = []byte(err.Error())
		}
		fmt.Fprintf(&text, "%s %s: %s\n", what, name, line)
	}
	for _, n := range w.nodes {
		show("node", n.Name, n.Labels, n.Spec, n.Status.Allocatable)
	}
	for _, p := range w.placed {
		show("placed", p.Namespace+"/"+p.Name, p.Labels, p.Spec)
	}
	show("pod", w.pod.Namespace+"/"+w.pod.Name, w.pod.Labels, w.pod.Spec)
	return text.String()
}
