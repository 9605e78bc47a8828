//go:build kube

package filters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
			refused[n.Name] = errors.New(status.Message())
			continue
		}
		if !only.AllNodes() && !only.NodeNames.Has(n.Name) {
			refused[n.Name] = errors.New("not among the nodes of PreFilter")
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
			refused[n.Name] = fmt.Errorf("%s: %s", one.Plugin(), one.Message())
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

func (selections) Claim(string, string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) { return nil, nil }

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
// the ledger accepts it. They differ only in the ways that stricter lists.
func TestFitsAsKubeScheduler(t *testing.T) {
	k := newKubeFilters(t)
	var fits, not, strict, unsayable int
	rapid.Check(t, func(t *rapid.T) {
		ctx, w := context.Background(), drawWorld(t)
		kube, err := k.refusals(ctx, w)
		require.NoError(t, err)
		ours, err := orbitRefusals(ctx, w)
		if cannot := (*kubeorbit.Unsayable)(nil); errors.As(err, &cannot) {
			unsayable++
			return
		}
		require.NoError(t, err, "%s", w)
		for _, n := range w.nodes {
			switch theirs, our := kube[n.Name], ours[n.Name]; {
			case theirs == nil && our == nil:
				fits++
			case theirs != nil && our != nil:
				not++
			case theirs == nil && w.stricter(our):
				strict++
			default:
				t.Fatalf("node %s: kube-scheduler: %v; orbit: %v\n%s", n.Name, theirs, our, w)
			}
		}
	})
	t.Logf("%d nodes fit by both, %d by neither, %d only by kube-scheduler as stated; %d worlds cannot be said", fits, not, strict, unsayable)
	require.Greater(t, min(fits, not), 100, "the worlds are too easy or too hard to tell anything")
}

// stricter reports whether a refusal is one of those that kubeorbit states to be stricter than kube-scheduler.
func (w *world) stricter(refusal error) bool { return false }

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
