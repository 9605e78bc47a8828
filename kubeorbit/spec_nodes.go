package kubeorbit

import (
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// nodes says which nodes the pod requires, and which it would rather have.
func (b *builder) nodes() {
	for _, key := range slices.Sorted(maps.Keys(b.pod.Spec.NodeSelector)) {
		in := orbit.Predicate{Key: key, Op: "In", Values: []string{b.pod.Spec.NodeSelector[key]}}
		b.spec.Require = append(b.spec.Require, b.predicate(in))
	}
	if os := b.pod.Spec.OS; os != nil && os.Name != "" { // or the kubelet refuses the pod
		b.spec.Require = append(b.spec.Require, anyOf([][]orbit.Predicate{
			{{Key: corev1.LabelOSStable, Op: "In", Values: []string{string(os.Name)}}}, {{Key: corev1.LabelOSStable, Op: "DoesNotExist"}},
		})...)
	}
	if b.pod.Spec.Affinity == nil || b.pod.Spec.Affinity.NodeAffinity == nil {
		return
	}
	affinity := b.pod.Spec.Affinity.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		b.require(required)
	}
	b.preferNodes(affinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if n := conditions(b.spec); n > mostPredicates {
		b.unsayable("spec.affinity.nodeAffinity", "there are %d conditions, and there can be %d", n, mostPredicates)
		b.spec.Require, b.spec.Prefer = nil, nil
	}
}

// mostPredicates is the most conditions of a spec, with room for those of volumes.
const mostPredicates = 200

// conditions counts the conditions of a spec as orbit does.
func conditions(s *orbit.Spec) (n int) {
	count := func(p *orbit.Predicate) {
		n++
		for _, term := range p.Terms {
			n += len(term)
		}
	}
	for i := range s.Require {
		count(&s.Require[i])
	}
	for i := range s.Prefer {
		count(&s.Prefer[i].Predicate)
	}
	return n
}

// require adds what a node selector requires: one of its terms.
func (b *builder) require(selector *corev1.NodeSelector) {
	var terms [][]orbit.Predicate
	for i := range selector.NodeSelectorTerms {
		if term, ok := b.term(&selector.NodeSelectorTerms[i]); ok {
			terms = append(terms, term)
		}
	}
	if len(terms) == 0 {
		b.nowhere()
		return
	}
	b.spec.Require = append(b.spec.Require, anyOf(terms)...)
}

// nowhere adds a requirement that no node meets.
func (b *builder) nowhere() {
	b.spec.Require = append(b.spec.Require, orbit.Predicate{Key: orbit.NodeKey, Op: "DoesNotExist"})
}

// anyOf returns predicates that all hold if one of the terms does.
func anyOf(terms [][]orbit.Predicate) []orbit.Predicate {
	if len(terms) == 1 {
		return terms[0]
	}
	return []orbit.Predicate{{Op: "AnyOf", Terms: terms}}
}

// preferNodes adds preferences. Every node has all their weight in advance, because the score does not go below 0: else
// all preferred nodes would be alike until their load outweighs the preference.
func (b *builder) preferNodes(preferred []corev1.PreferredSchedulingTerm) {
	sum := 0.0
	for i := range preferred {
		term, ok := b.term(&preferred[i].Preference)
		if !ok || preferred[i].Weight <= 0 {
			continue
		}
		weight := float64(preferred[i].Weight) * pointWeight
		p := orbit.Predicate{Op: "AnyOf", Terms: [][]orbit.Predicate{term}}
		if len(term) == 1 {
			p = term[0]
		}
		b.spec.Prefer, sum = append(b.spec.Prefer, orbit.Preference{Predicate: p, Weight: weight}), sum+weight
	}
	if sum > 0 {
		all := orbit.Predicate{Key: orbit.NodeKey, Op: "Exists"}
		b.spec.Prefer = append(b.spec.Prefer, orbit.Preference{Predicate: all, Weight: -sum})
	}
}

// operators are the operators of node selectors, with their names in selectors of labels.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

// term returns the predicates of a term, which must all hold. It reports false if the term matches no node: because it
// is empty, or because Kubernetes does not understand one of its conditions.
func (b *builder) term(t *corev1.NodeSelectorTerm) (all []orbit.Predicate, ok bool) {
	for _, r := range t.MatchExpressions {
		op, known := operators[r.Operator]
		if !known {
			return nil, false
		}
		if _, err := labels.NewRequirement(r.Key, op, r.Values); err != nil {
			return nil, false
		}
		all = append(all, b.predicate(orbit.Predicate{Key: r.Key, Op: string(r.Operator), Values: slices.Clone(r.Values)}))
	}
	for _, r := range t.MatchFields {
		if r.Key != nodeNameField || len(r.Values) != 1 || r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
			return nil, false
		}
		all = append(all, orbit.Predicate{Key: orbit.NodeKey, Op: string(r.Operator), Values: slices.Clone(r.Values)})
	}
	return all, len(all) > 0
}

// nodeNameField is the one field of a node by which a term can select it.
const nodeNameField = "metadata.name"

// predicate returns the predicate on a label as NodeOf writes labels.
func (b *builder) predicate(p orbit.Predicate) orbit.Predicate {
	p.Key = b.level("spec.affinity.nodeAffinity", p.Key)
	for i := range p.Values {
		p.Values[i] = labelValue(p.Values[i])
	}
	return p
}
