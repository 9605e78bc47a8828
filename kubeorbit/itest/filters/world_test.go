//go:build kube

package filters

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// world is a small cluster, and a pod that waits in it.
type world struct {
	nodes  []*corev1.Node
	placed []*corev1.Pod
	pod    *corev1.Pod
}

func drawWorld(t *rapid.T) *world {
	w := &world{}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		w.nodes = append(w.nodes, drawNode(t, fmt.Sprint("n", i)))
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "placed") {
		p := drawPod(t, fmt.Sprint("placed-", i))
		p.Spec.NodeName = rapid.SampledFrom(w.nodes).Draw(t, "on").Name
		p.Status.Phase = corev1.PodRunning
		w.placed = append(w.placed, p)
	}
	w.pod = drawPod(t, "pod")
	if rapid.Bool().Draw(t, "only spread") {
		w.onlySpread(t)
	}
	return w
}

// onlySpread leaves only what the spread of the pod depends on, because most worlds have no room for the pod before its spread counts.
func (w *world) onlySpread(t *rapid.T) {
	for _, p := range append(slices.Clone(w.placed), w.pod) {
		p.Namespace, p.Labels["app"] = "a", "web"
		p.Spec.Containers, p.Spec.InitContainers, p.Spec.Overhead = p.Spec.Containers[:1], nil, nil
		p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Ports = nil, nil
		if a := p.Spec.Affinity; a != nil {
			a.PodAffinity, a.PodAntiAffinity = nil, nil
		}
	}
	w.pod.Spec.TopologySpreadConstraints = nil
	for first := true; first || rapid.Bool().Draw(t, "another"); first = false {
		c := drawConstraint(t)
		c.WhenUnsatisfiable = corev1.DoNotSchedule
		w.pod.Spec.TopologySpreadConstraints = appendConstraint(w.pod.Spec.TopologySpreadConstraints, c)
	}
}

// rarely draws true once in 2^halvings times.
func rarely(t *rapid.T, halvings int, label string) bool {
	for range halvings {
		if !rapid.Bool().Draw(t, label) {
			return false
		}
	}
	return true
}

func drawNode(t *rapid.T, name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if !rarely(t, 3, "no hostname") {
		n.Labels[corev1.LabelHostname] = name
	}
	optional(t, n.Labels, corev1.LabelTopologyZone, "z1", "z2", "z3", "")
	optional(t, n.Labels, "disk", "ssd", "hdd", "")
	optional(t, n.Labels, "size", "1", "2", "10", "big")
	if n.Spec.Unschedulable = rarely(t, 4, "unschedulable"); n.Spec.Unschedulable && rapid.Bool().Draw(t, "its taint") {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
	}
	for rarely(t, 2, "taint") {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
			Key:    rapid.SampledFrom([]string{"dedicated", "spot", corev1.TaintNodeUnschedulable}).Draw(t, "taint"),
			Value:  rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "taint value"),
			Effect: rapid.SampledFrom([]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}).Draw(t, "effect"),
		})
	}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: *quantity(t, "cpu", 2_000, 4_000), corev1.ResourceMemory: resource.MustParse(rapid.SampledFrom([]string{"2Gi", "8Gi"}).Draw(t, "memory")),
		corev1.ResourcePods: *resource.NewQuantity(rapid.Int64Range(2, 8).Draw(t, "pods"), resource.DecimalSI), corev1.ResourceEphemeralStorage: resource.MustParse("10Gi"),
	}
	if rapid.Bool().Draw(t, "gpus") {
		n.Status.Allocatable["example.com/gpu"] = *resource.NewQuantity(rapid.Int64Range(0, 2).Draw(t, "gpu"), resource.DecimalSI)
	}
	if rarely(t, 2, "hugepages") {
		n.Status.Allocatable["hugepages-2Mi"] = resource.MustParse("4Mi")
	}
	n.Status.Capacity = n.Status.Allocatable
	return n
}

func quantity(t *rapid.T, label string, millis ...int64) *resource.Quantity {
	return resource.NewMilliQuantity(rapid.SampledFrom(millis).Draw(t, label), resource.DecimalSI)
}

// optional sets a label to one of the values, or does not.
func optional(t *rapid.T, set map[string]string, key string, values ...string) {
	if i := rapid.IntRange(0, len(values)).Draw(t, key); i < len(values) {
		set[key] = values[i]
	}
}

func drawPod(t *rapid.T, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"), Name: name, UID: types.UID(name), Labels: map[string]string{},
	}}
	optional(t, p.Labels, "app", "web", "db")
	optional(t, p.Labels, "tier", "1", "2")
	p.Spec.Containers = []corev1.Container{drawContainer(t, "main")}
	if rarely(t, 2, "second container") {
		p.Spec.Containers = append(p.Spec.Containers, drawContainer(t, "second"))
	}
	if rarely(t, 2, "init container") {
		init := drawContainer(t, "init")
		if rapid.Bool().Draw(t, "sidecar") {
			always := corev1.ContainerRestartPolicyAlways
			init.RestartPolicy = &always
		}
		p.Spec.InitContainers = []corev1.Container{init}
	}
	if rarely(t, 3, "overhead") {
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
	}
	if rarely(t, 2, "node selector") {
		p.Spec.NodeSelector = map[string]string{"disk": rapid.SampledFrom([]string{"ssd", "hdd"}).Draw(t, "disk")}
	}
	for rarely(t, 1, "toleration") {
		p.Spec.Tolerations = append(p.Spec.Tolerations, drawToleration(t))
	}
	drawAffinity(t, p)
	for rarely(t, 1, "spread constraint") {
		p.Spec.TopologySpreadConstraints = appendConstraint(p.Spec.TopologySpreadConstraints, drawConstraint(t))
	}
	return p
}

func drawContainer(t *rapid.T, name string) corev1.Container {
	c := corev1.Container{Name: name, Image: "pause"}
	requests := corev1.ResourceList{}
	if rapid.Bool().Draw(t, "requests cpu") {
		requests[corev1.ResourceCPU] = *quantity(t, "cpu", 0, 250, 500, 1_000)
	}
	if rapid.Bool().Draw(t, "requests memory") {
		requests[corev1.ResourceMemory] = resource.MustParse(rapid.SampledFrom([]string{"64Mi", "512Mi", "1Gi"}).Draw(t, "memory"))
	}
	if rarely(t, 3, "requests a gpu") {
		requests["example.com/gpu"] = *resource.NewQuantity(rapid.Int64Range(0, 2).Draw(t, "gpu"), resource.DecimalSI)
	}
	if rarely(t, 4, "requests hugepages") {
		requests["hugepages-2Mi"] = resource.MustParse("2Mi")
	}
	if rarely(t, 2, "requests storage") {
		requests[corev1.ResourceEphemeralStorage] = resource.MustParse(rapid.SampledFrom([]string{"1Gi", "8Gi"}).Draw(t, "storage"))
	}
	c.Resources.Requests = requests
	if name != "second" && rarely(t, 2, "host port") {
		c.Ports = []corev1.ContainerPort{{
			ContainerPort: 80, HostPort: rapid.SampledFrom([]int32{80, 81}).Draw(t, "port"),
			Protocol: rapid.SampledFrom([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}).Draw(t, "protocol"),
			HostIP:   rapid.SampledFrom([]string{"", "0.0.0.0", "10.0.0.1", "10.0.0.2"}).Draw(t, "ip"),
		}}
	}
	return c
}

func drawToleration(t *rapid.T) corev1.Toleration {
	l := corev1.Toleration{
		Key:      rapid.SampledFrom([]string{"", "dedicated", "spot", corev1.TaintNodeUnschedulable}).Draw(t, "tolerates"),
		Operator: rapid.SampledFrom([]corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists}).Draw(t, "operator"),
		Effect:   rapid.SampledFrom([]corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}).Draw(t, "effect"),
	}
	if l.Key == "" {
		l.Operator = corev1.TolerationOpExists // the API server demands it
	}
	if l.Operator != corev1.TolerationOpExists {
		l.Value = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value")
	}
	return l
}

func drawAffinity(t *rapid.T, p *corev1.Pod) {
	a := &corev1.Affinity{}
	if rarely(t, 2, "node affinity") {
		required := &corev1.NodeSelector{}
		for range rapid.IntRange(1, 2).Draw(t, "node terms") {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, drawNodeTerm(t))
		}
		a.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	}
	if terms := drawPodTerms(t, "affinity"); terms != nil {
		a.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
	}
	if terms := drawPodTerms(t, "anti-affinity"); terms != nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
	}
	if *a != (corev1.Affinity{}) {
		p.Spec.Affinity = a
	}
}

func drawNodeTerm(t *rapid.T) (term corev1.NodeSelectorTerm) {
	for range rapid.IntRange(0, 2).Draw(t, "expressions") {
		r := corev1.NodeSelectorRequirement{Key: rapid.SampledFrom([]string{corev1.LabelTopologyZone, "disk", "size"}).Draw(t, "key")}
		r.Operator = rapid.SampledFrom([]corev1.NodeSelectorOperator{corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
			corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt}).Draw(t, "operator")
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"z1", "z2", "ssd", "2"}), 1, 2, rapid.ID).Draw(t, "values")
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			r.Values = []string{rapid.SampledFrom([]string{"1", "2", "9"}).Draw(t, "bound")}
		}
		term.MatchExpressions = append(term.MatchExpressions, r)
	}
	if rarely(t, 2, "fields") {
		term.MatchFields = []corev1.NodeSelectorRequirement{{
			Key:      metav1.ObjectNameField,
			Operator: rapid.SampledFrom([]corev1.NodeSelectorOperator{corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn}).Draw(t, "field operator"),
			Values:   []string{rapid.SampledFrom([]string{"n0", "n1", "n2"}).Draw(t, "name")},
		}}
	}
	return term
}

func drawPodTerms(t *rapid.T, label string) (terms []corev1.PodAffinityTerm) {
	for rarely(t, 2, label) {
		term := corev1.PodAffinityTerm{
			TopologyKey:   rapid.SampledFrom([]string{corev1.LabelTopologyZone, corev1.LabelHostname}).Draw(t, "topology"),
			LabelSelector: drawSelector(t),
		}
		if rarely(t, 2, "namespaces") {
			term.Namespaces = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b"}), 1, 2, rapid.ID).Draw(t, "of")
		}
		if rarely(t, 2, "namespace selector") {
			term.NamespaceSelector = &metav1.LabelSelector{}
			optional(t, setOf(term.NamespaceSelector), "team", "x", "y")
		}
		terms = append(terms, term)
	}
	return terms
}

func setOf(s *metav1.LabelSelector) map[string]string {
	s.MatchLabels = map[string]string{}
	return s.MatchLabels
}

// drawSelector draws a selector of pods: nil selects none, one without requirements selects all.
func drawSelector(t *rapid.T) *metav1.LabelSelector {
	if rarely(t, 4, "nil selector") {
		return nil
	}
	s := &metav1.LabelSelector{}
	optional(t, setOf(s), "app", "web", "db")
	if rarely(t, 2, "expression") {
		r := metav1.LabelSelectorRequirement{Key: rapid.SampledFrom([]string{"app", "tier"}).Draw(t, "key")}
		r.Operator = rapid.SampledFrom([]metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
			metav1.LabelSelectorOpDoesNotExist}).Draw(t, "operator")
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"web", "db", "1"}), 1, 2, rapid.ID).Draw(t, "values")
		}
		s.MatchExpressions = []metav1.LabelSelectorRequirement{r}
	}
	return s
}

func drawConstraint(t *rapid.T) corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{
		MaxSkew:           rapid.Int32Range(1, 2).Draw(t, "skew"),
		TopologyKey:       rapid.SampledFrom([]string{corev1.LabelTopologyZone, corev1.LabelHostname}).Draw(t, "topology"),
		WhenUnsatisfiable: rapid.SampledFrom([]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.DoNotSchedule, corev1.ScheduleAnyway}).Draw(t, "when"),
		LabelSelector:     drawSelector(t),
	}
	if c.WhenUnsatisfiable == corev1.DoNotSchedule && rarely(t, 2, "minimum") {
		c.MinDomains = new(rapid.Int32Range(1, 4).Draw(t, "domains"))
	}
	if s := c.LabelSelector; s != nil && len(s.MatchExpressions) == 0 && rarely(t, 2, "match label keys") {
		c.MatchLabelKeys = []string{"tier"}
	}
	policies := []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore}
	if rapid.Bool().Draw(t, "affinity policy") {
		c.NodeAffinityPolicy = new(rapid.SampledFrom(policies).Draw(t, "policy"))
	}
	if rapid.Bool().Draw(t, "taints policy") {
		c.NodeTaintsPolicy = new(rapid.SampledFrom(policies).Draw(t, "policy"))
	}
	return c
}

// appendConstraint leaves out a constraint of the same topology and action as another one, which the API server refuses.
func appendConstraint(all []corev1.TopologySpreadConstraint, c corev1.TopologySpreadConstraint) []corev1.TopologySpreadConstraint {
	for _, one := range all {
		if one.TopologyKey == c.TopologyKey && one.WhenUnsatisfiable == c.WhenUnsatisfiable {
			return all
		}
	}
	return append(all, c)
}
