package fit

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// termSelector is a term of an affinity, read.
type termSelector struct {
	key              string
	names            []string
	namespaces, pods labels.Selector
}

// read reads a term of a pod's affinity; one that is not valid selects nothing.
func (w *world) read(p *corev1.Pod, term *corev1.PodAffinityTerm) *termSelector {
	if known := w.selectors[term]; known != nil {
		return known
	}
	t := &termSelector{key: term.TopologyKey, names: term.Namespaces, namespaces: labels.Nothing()}
	if term.NamespaceSelector != nil {
		t.namespaces = selectorOf(term.NamespaceSelector)
	} else if len(t.names) == 0 {
		t.names = []string{p.Namespace}
	}
	t.pods = selectorOf(term.LabelSelector)
	w.selectors[term] = t
	return t
}

func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// selects reports whether the term selects a pod.
func (t *termSelector) selects(p *corev1.Pod) bool {
	inNamespace := slices.Contains(t.names, p.Namespace) || t.namespaces.Matches(labels.Set{corev1.LabelMetadataName: p.Namespace})
	return inNamespace && t.pods.Matches(labels.Set(p.Labels))
}

// around returns the placed pods that are in one domain with a pod, itself included; none if its node has no label for it.
func (w *world) around(p *corev1.Pod, key string) []*corev1.Pod {
	domain, ok := w.nodeOf(p).Labels[key]
	if !ok {
		return nil
	}
	if w.domains[key] == nil {
		pods := map[string][]*corev1.Pod{}
		for _, q := range w.placed {
			if d, ok := w.nodeOf(q).Labels[key]; ok {
				pods[d] = append(pods[d], q)
			}
		}
		w.domains[key] = pods
	}
	return w.domains[key][domain]
}

// apart finds pods in a domain with one that excludes them.
func (w *world) apart() {
	for _, p := range w.placed {
		if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
			continue
		}
		terms := p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		for i := range terms {
			t := w.read(p, &terms[i])
			for _, q := range w.around(p, t.key) {
				if p != q && t.selects(q) {
					w.fail(Apart, name(p), "%s is in the same %s as well, on node %q", name(q), t.key, q.Spec.NodeName)
				}
			}
		}
	}
}

// near finds pods without the neighbours that they require. A pod that selects itself needs none as long as there is no
// other that it selects in any domain, because it is the first of its kind.
func (w *world) near() {
	for _, p := range w.placed {
		if p.Spec.Affinity == nil || p.Spec.Affinity.PodAffinity == nil {
			continue
		}
		terms := p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if lacks := w.lonely(p, terms); lacks != "" && !w.first(p, terms) {
			w.fail(Near, name(p), "node %q has no neighbour by %s as it requires", p.Spec.NodeName, lacks)
		}
	}
}

// first reports whether a placed pod may be the first of its kind.
func (w *world) first(p *corev1.Pod, terms []corev1.PodAffinityTerm) bool {
	return w.selectsAll(p, terms, p) && labelled(w.nodeOf(p), terms, true) && !slices.ContainsFunc(w.placed, func(q *corev1.Pod) bool {
		return p != q && w.selectsAll(p, terms, q) && labelled(w.nodeOf(q), terms, false)
	})
}

// lonely returns the first level by which a placed pod has no neighbour; empty: it has all that it requires.
func (w *world) lonely(p *corev1.Pod, terms []corev1.PodAffinityTerm) string {
	for i := range terms {
		if !slices.ContainsFunc(w.around(p, terms[i].TopologyKey), func(q *corev1.Pod) bool { return p != q && w.selectsAll(p, terms, q) }) {
			return terms[i].TopologyKey
		}
	}
	return ""
}

// selectsAll reports whether all terms of p select q; only such a pod counts as a neighbour.
func (w *world) selectsAll(p *corev1.Pod, terms []corev1.PodAffinityTerm, q *corev1.Pod) bool {
	for i := range terms {
		if !w.read(p, &terms[i]).selects(q) {
			return false
		}
	}
	return true
}

// labelled reports whether a node has the label of some term, or those of all.
func labelled(n *corev1.Node, terms []corev1.PodAffinityTerm, all bool) bool {
	for i := range terms {
		if _, ok := n.Labels[terms[i].TopologyKey]; ok != all {
			return !all
		}
	}
	return all
}

// keyOf returns a text that is the same for equal values.
func keyOf(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// skews finds pods in domains that have more pods than their constraints allow. Pods that constrain alike are counted
// once.
func (w *world) skews() {
	counts := map[string]*spreadCount{}
	for _, p := range w.placed {
		if p.DeletionTimestamp != nil {
			continue
		}
		var hard []corev1.TopologySpreadConstraint
		for _, c := range p.Spec.TopologySpreadConstraints {
			if c.WhenUnsatisfiable == corev1.DoNotSchedule {
				hard = append(hard, c)
			}
		}
		for i := range hard {
			selector := spreadSelector(p, &hard[i])
			key := keyOf(p.Namespace, i, hard, selector.String(), p.Spec.NodeSelector, p.Spec.Affinity, p.Spec.Tolerations)
			if counts[key] == nil {
				counts[key] = w.spread(p, &hard[i], hard, selector)
			}
			w.skew(p, &hard[i], counts[key])
		}
	}
}

// spreadCount counts the pods of a constraint.
type spreadCount struct {
	// The pods in each eligible domain, and the fewest in one of them.
	pods   map[string]int
	fewest int
	// The domains that are reported.
	reported map[string]bool
}

// skew judges the domain of one pod by one of its constraints.
func (w *world) skew(p *corev1.Pod, c *corev1.TopologySpreadConstraint, count *spreadCount) {
	domain, ok := w.nodeOf(p).Labels[c.TopologyKey]
	if !ok {
		w.fail(Skew, name(p), "node %q has no label %s, by which it is spread", p.Spec.NodeName, c.TopologyKey)
		return
	}
	if n := count.pods[domain]; n-count.fewest > int(c.MaxSkew) && !count.reported[domain] {
		count.reported[domain] = true
		w.fail(Skew, name(p), "%s %q has %d of its kind, and another has %d; maxSkew is %d",
			c.TopologyKey, domain, n, count.fewest, c.MaxSkew)
	}
}

// spreadSelector returns the selector of a constraint of a pod; one that is empty selects nothing.
func spreadSelector(p *corev1.Pod, c *corev1.TopologySpreadConstraint) labels.Selector {
	selector := selectorOf(c.LabelSelector)
	if _, selectable := selector.Requirements(); !selectable {
		return labels.Nothing()
	}
	for _, key := range c.MatchLabelKeys {
		if value, ok := p.Labels[key]; ok {
			requirements, _ := labels.SelectorFromSet(labels.Set{key: value}).Requirements()
			selector = selector.Add(requirements...)
		}
	}
	if selector.Empty() {
		return labels.Nothing()
	}
	return selector
}

// spread counts pods by domain on the nodes that count for a constraint: those that have the labels of all constraints of
// the pod and that its policies include.
func (w *world) spread(p *corev1.Pod, c *corev1.TopologySpreadConstraint, all []corev1.TopologySpreadConstraint, selector labels.Selector) *spreadCount {
	count := &spreadCount{pods: map[string]int{}, reported: map[string]bool{}}
	for _, n := range w.nodes {
		if !included(p, n, c, all) {
			continue
		}
		domain := n.Labels[c.TopologyKey]
		count.pods[domain] += 0
		for _, q := range w.on[n.Name] {
			if q.DeletionTimestamp == nil && q.Namespace == p.Namespace && selector.Matches(labels.Set(q.Labels)) {
				count.pods[domain]++
			}
		}
	}
	count.fewest = math.MaxInt32
	for _, n := range count.pods {
		count.fewest = min(count.fewest, n)
	}
	if c.MinDomains != nil && len(count.pods) < int(*c.MinDomains) || len(count.pods) == 0 {
		count.fewest = 0
	}
	return count
}

// included reports whether a node counts for a constraint.
func included(p *corev1.Pod, n *corev1.Node, c *corev1.TopologySpreadConstraint, all []corev1.TopologySpreadConstraint) bool {
	for _, other := range all {
		if _, ok := n.Labels[other.TopologyKey]; !ok {
			return false
		}
	}
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
		if matches, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n); err != nil || !matches {
			return false
		}
	}
	if c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor {
		return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return forbids(&t) && !tolerates(p, &t) }) &&
			(!unschedulable(n) || tolerates(p, &cordon))
	}
	return true
}

// gangs finds the gangs that have fewer members placed than their minimum, but not none. A member that has ended counts as placed.
// A pod that terminates without a node does not count as waiting.
func (w *world) gangs(pods []*corev1.Pod) {
	type gang struct{ placed, ended, waiting, least int }
	all := map[string]*gang{}
	for _, p := range pods {
		if p.Labels[gangLabel] == "" {
			continue
		}
		id := p.Namespace + "/" + p.Labels[gangLabel]
		if all[id] == nil {
			all[id] = &gang{}
		}
		switch {
		case ended(p):
			all[id].ended++
		case p.Spec.NodeName != "":
			all[id].placed++
		case p.DeletionTimestamp == nil:
			all[id].waiting++
		}
		for _, text := range []string{p.Annotations[gangMin], p.Labels[gangMin]} {
			if least, err := strconv.Atoi(text); err == nil {
				all[id].least = max(all[id].least, least)
			}
		}
	}
	for id, g := range all {
		if g.placed == 0 || g.placed+g.ended >= g.least {
			continue
		}
		kind := Gang
		if g.waiting == 0 {
			kind = Short
		}
		w.fail(kind, id, "%d members are placed, %d have ended and %d wait; the least is %d", g.placed, g.ended, g.waiting, g.least)
	}
}

// budgets finds the budgets that have fewer healthy pods than they demand.
func (w *world) budgets(pods []*corev1.Pod, budgets []*policyv1.PodDisruptionBudget) {
	for _, b := range budgets {
		selector, healthy := selectorOf(b.Spec.Selector), int32(0)
		for _, p := range pods {
			if p.Namespace == b.Namespace && p.DeletionTimestamp == nil && !ended(p) && ready(p) && selector.Matches(labels.Set(p.Labels)) {
				healthy++
			}
		}
		if healthy < b.Status.DesiredHealthy {
			w.fail(Budget, b.Namespace+"/"+b.Name, "%d pods are healthy, and %d are desired", healthy, b.Status.DesiredHealthy)
		}
	}
}

// ready reports whether a pod says that it is ready.
func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
