package kubeorbit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/kubeorbit/fit"
	"github.com/orbitsched/orbit/nav"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestRecountAgrees generates clusters. An engine places some of the pods by their specs, and Recount finds no fault with
// any of these placements as it was made. Then a ledger is asked about each of the other pods on each node: it refuses
// the placement if and only if Recount finds a fault with it.
func TestRecountAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		first := rapid.IntRange(0, len(w.pods)).Draw(t, "placed by the engine")
		l := w.ledger(t)
		for _, p := range w.pods {
			spec, err := SpecOf(p, w)
			require.NoError(t, err)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{idOf(p)}, Spec: spec, Owner: owner(slices.Index(w.pods, p) < first)})
		}
		state := rest(t, l)
		order := slices.Clone(w.pods[:first])
		slices.SortFunc(order, func(a, b *corev1.Pod) int {
			return cmp.Compare(state.Capsule(idOf(a)).PlacedAt, state.Capsule(idOf(b)).PlacedAt)
		})
		for _, p := range order {
			if node := state.Capsule(idOf(p)).Node; node != "" {
				if w.differs(p) {
					p.Spec.NodeName = string(node)
					continue
				}
				p.Spec.NodeName = string(node)
				require.Empty(t, w.faults(p), "%s is placed on %s", p.Name, node)
			}
		}
		for _, p := range w.pods {
			if p.Spec.NodeName != "" || w.differs(p) {
				continue
			}
			for _, n := range w.nodes {
				fork := &orbit.MemoryLedger{Start: state}
				_, err := fork.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: idOf(p), Node: orbit.NodeID(n.Name)}}})
				p.Spec.NodeName = n.Name
				faults := w.faults(p)
				p.Spec.NodeName = ""
				if err == nil {
					assert.Empty(t, faults, "the ledger takes %s on %s", p.Name, n.Name)
				} else {
					var refused *orbit.Rejection
					require.ErrorAs(t, err, &refused)
					assert.NotEmpty(t, faults, "the ledger refuses %s on %s: %v", p.Name, n.Name, err)
				}
			}
		}
	})
}

func owner(engine bool) string {
	if engine {
		return "services"
	}
	return "nobody"
}

// rest lets an engine plan until it places no more, and returns the state then.
func rest(t require.TestingT, l orbit.Ledger) *orbit.State {
	engine := &orbit.Engine{Name: "services", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, HoldFor: -1}}
	for round := engine.Pass(context.Background()); round.Committed > 0; round = engine.Pass(context.Background()) {
		require.Empty(t, round.Errors)
	}
	state, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	return state
}

// faults returns what Recount finds while the pod is where it is. Affinity and spread are rules about placements, so
// those of the other pods, which have been judged when they were placed, are left out.
func (w *world) faults(p *corev1.Pod) []fit.Fault {
	var pods []*corev1.Pod
	for _, q := range w.pods {
		if q != p {
			q = q.DeepCopy()
			if q.Spec.TopologySpreadConstraints = nil; q.Spec.Affinity != nil {
				q.Spec.Affinity.PodAffinity = nil
			}
		}
		pods = append(pods, q)
	}
	return fit.Recount(pods, w.nodes, nil)
}

// differs reports whether the pod is one of those that SpecOf says otherwise: a pod that its spread counts is on a node
// that it excludes, a domain counts by nodeAffinityPolicy Ignore although its node has no label of another constraint, or
// one near which it has to be is on a node without the label of a level.
func (w *world) differs(p *corev1.Pod) bool {
	required, _ := affinityOf(p)
	for _, c := range p.Spec.TopologySpreadConstraints {
		for _, other := range p.Spec.TopologySpreadConstraints {
			ignores := c.NodeAffinityPolicy != nil && *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore
			lacks := func(n *corev1.Node) bool { _, ok := n.Labels[other.TopologyKey]; return !ok }
			if ignores && c.TopologyKey != other.TopologyKey && slices.ContainsFunc(w.nodes, lacks) {
				return true
			}
		}
	}
	for _, q := range w.pods {
		if q.Spec.NodeName == "" || q == p {
			continue
		}
		n := w.nodes[slices.IndexFunc(w.nodes, func(n *corev1.Node) bool { return n.Name == q.Spec.NodeName })]
		for i := range p.Spec.TopologySpreadConstraints {
			if s, counts, _ := spreadSelection(p, &p.Spec.TopologySpreadConstraints[i]); counts && s.Selects(q, w.labelsOf) && w.excludes(p, n) {
				return true
			}
		}
		for i := range required {
			if _, ok := n.Labels[required[i].TopologyKey]; !ok && len(required) > 1 {
				return true
			}
		}
	}
	return false
}

// excludes reports whether a pod that spreads does not count a node.
func (w *world) excludes(p *corev1.Pod, n *corev1.Node) bool {
	alone := p.DeepCopy()
	alone.Spec.NodeName = n.Name
	return slices.ContainsFunc(fit.Recount([]*corev1.Pod{alone}, []*corev1.Node{n}, nil), func(f fit.Fault) bool {
		return f.Kind == fit.Node || f.Kind == fit.Taint || f.Kind == fit.Cordon || f.Kind == fit.Skew
	})
}

// Next: clusters.

func drawWorld(t *rapid.T) *world {
	w := &world{namespaces: map[string]labels.Set{"other": {"team": "x"}}}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		w.nodes = append(w.nodes, drawNode(t, fmt.Sprintf("n%d", i)))
	}
	for i := range rapid.IntRange(2, 9).Draw(t, "pods") {
		w.pods = append(w.pods, drawPod(t, fmt.Sprintf("p%d", i)))
	}
	return w
}

// one draws one of some values.
func one[T any](t *rapid.T, what string, values ...T) T {
	return values[rapid.IntRange(0, len(values)-1).Draw(t, what)]
}

// sometimes is true once in n times.
func sometimes(t *rapid.T, n int, what string) bool {
	return rapid.IntRange(1, n).Draw(t, what) == n
}

func drawNode(t *rapid.T, name string) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Labels = name, map[string]string{corev1.LabelHostname: name}
	for _, label := range [][]string{{"zone", "a", "b", "", "none"}, {"rack", "1", "2", "none"}, {"disk", "ssd", "", "none"}, {"gen", "3", "7", "x", "none"}} {
		if value := one(t, label[0], label[1:]...); value != "none" {
			n.Labels[label[0]] = value
		}
	}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(one(t, "cpu", "500m", "1", "2", "4")), corev1.ResourcePods: resource.MustParse(one(t, "slots", "1", "4", "110")),
		"example.com/gpu": resource.MustParse(one(t, "gpu", "0", "1", "2")),
	}
	if sometimes(t, 4, "tainted") {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "k", Value: one(t, "taint", "v", ""),
			Effect: one(t, "effect", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule)})
	}
	n.Spec.Unschedulable = sometimes(t, 8, "cordoned")
	return n
}

func drawPod(t *rapid.T, name string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.UID = name, types.UID(name)
	p.Namespace = one(t, "namespace", "default", "default", "default", "other")
	p.Labels = map[string]string{"app": one(t, "app", "x", "y")}
	if rapid.Bool().Draw(t, "has tier") {
		p.Labels["tier"] = one(t, "tier", "1", "2")
	}
	c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(one(t, "cpu", "0", "100m", "300m", "1")), "example.com/gpu": resource.MustParse(one(t, "gpu", "0", "0", "1")),
	}}}
	if sometimes(t, 3, "has port") {
		c.Ports = []corev1.ContainerPort{{
			HostPort: one[int32](t, "port", 80, 81), HostIP: one(t, "ip", "", "0.0.0.0", "10.0.0.1"),
			Protocol: one(t, "protocol", "", corev1.ProtocolTCP, corev1.ProtocolUDP),
		}}
	}
	p.Spec.Containers = []corev1.Container{c}
	p.Spec.Affinity = &corev1.Affinity{}
	drawNodes(t, p)
	if sometimes(t, 3, "is apart") {
		p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: drawTerms(t)}
	}
	if sometimes(t, 3, "is near") {
		p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: drawTerms(t)}
	}
	if sometimes(t, 2, "is spread") {
		for range rapid.IntRange(1, 2).Draw(t, "constraints") {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, drawSpread(t))
		}
	}
	return p
}

func drawNodes(t *rapid.T, p *corev1.Pod) {
	if sometimes(t, 5, "selects nodes") {
		p.Spec.NodeSelector = map[string]string{one(t, "key", "zone", "disk"): one(t, "value", "a", "ssd", "")}
	}
	if sometimes(t, 3, "has affinity to nodes") {
		required := &corev1.NodeSelector{}
		for range rapid.IntRange(1, 2).Draw(t, "terms") {
			term := corev1.NodeSelectorTerm{}
			for range rapid.IntRange(0, 2).Draw(t, "expressions") {
				term.MatchExpressions = append(term.MatchExpressions, one(t, "expression",
					corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", ""}},
					corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"b"}},
					corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpExists},
					corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpDoesNotExist},
					corev1.NodeSelectorRequirement{Key: "gen", Operator: corev1.NodeSelectorOpGt, Values: []string{"3"}},
					corev1.NodeSelectorRequirement{Key: "gen", Operator: corev1.NodeSelectorOpLt, Values: []string{"7"}},
				))
			}
			if sometimes(t, 3, "names nodes") {
				operator := one(t, "operator", corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn)
				term.MatchFields = []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: operator, Values: []string{"n0"}}}
			}
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, term)
		}
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	}
	if sometimes(t, 2, "tolerates") {
		p.Spec.Tolerations = []corev1.Toleration{one(t, "toleration",
			corev1.Toleration{Operator: corev1.TolerationOpExists}, corev1.Toleration{Key: "k", Value: "v"},
			corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists},
		)}
	}
}

func drawSelector(t *rapid.T) *metav1.LabelSelector {
	return one(t, "selector",
		&metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
		&metav1.LabelSelector{MatchLabels: map[string]string{"app": "y"}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpExists}}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"1"}}}},
		&metav1.LabelSelector{}, nil)
}

func drawKey(t *rapid.T) string { return one(t, "key", "zone", "zone", "rack", corev1.LabelHostname) }

func drawTerms(t *rapid.T) (all []corev1.PodAffinityTerm) {
	for range rapid.IntRange(1, 2).Draw(t, "terms") {
		term := corev1.PodAffinityTerm{TopologyKey: drawKey(t), LabelSelector: drawSelector(t)}
		switch one(t, "namespaces", "own", "own", "named", "all", "selected") {
		case "named":
			term.Namespaces = []string{"other", "third"}
		case "all":
			term.NamespaceSelector = &metav1.LabelSelector{}
		case "selected":
			term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "other"}}
		}
		all = append(all, term)
	}
	return all
}

func drawSpread(t *rapid.T) corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{
		TopologyKey: drawKey(t), LabelSelector: drawSelector(t), MaxSkew: one[int32](t, "skew", 1, 1, 2), WhenUnsatisfiable: corev1.DoNotSchedule,
	}
	c.MinDomains = one(t, "domains", nil, nil, new(int32(1)), new(int32(2)), new(int32(3)))
	c.NodeAffinityPolicy = one(t, "affinity policy", nil, nil, new(corev1.NodeInclusionPolicyHonor), new(corev1.NodeInclusionPolicyIgnore))
	c.NodeTaintsPolicy = one(t, "taints policy", nil, nil, new(corev1.NodeInclusionPolicyHonor), new(corev1.NodeInclusionPolicyIgnore))
	if sometimes(t, 3, "has keys") {
		c.MatchLabelKeys = []string{"tier"}
	}
	return c
}
