package kubeorbit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Selection selects pods by their labels, in some namespaces. The constraints of pods and the disruption budgets count
// the pods that a selection selects; in the ledger, these are the members of the group that has its String as name.
type Selection struct {
	// Namespaces are the names of namespaces, sorted. They may be nil if there is a NamespaceSelector.
	Namespaces []string
	// NamespaceSelector selects further namespaces by their labels. Nil: there are only Namespaces.
	NamespaceSelector labels.Selector
	// Pods selects pods in these namespaces by their labels.
	Pods labels.Selector
	// And are selections that must all select the pod too. A pod that requires the company of several selections has
	// it only of pods that all of them select, as in kube-scheduler.
	And []Selection
}

// longestName is the most bytes of a selection's name; longer ones end in a hash. Ledgers take 253 by default.
const longestName = 240

// String returns the canonical name of the selection: equal selections have one name. It reads like
// "default: app=web" or "a,{team=x}: !canary,tier in (db,web)", where {} encloses the selector of the namespaces. As
// namespaces "*" means all, as pods it means all, and "-" means none.
func (s Selection) String() string {
	own := s.namespaces() + ": " + selectorText(s.Pods)
	if len(s.And) > 0 {
		all := []string{own}
		for _, o := range s.And {
			all = append(all, o.String())
		}
		slices.Sort(all)
		own = strings.Join(slices.Compact(all), " & ")
	}
	if len(own) <= longestName {
		return own
	}
	sum := sha256.Sum256([]byte(own))
	tail := "…#" + hex.EncodeToString(sum[:8])
	return strings.ToValidUTF8(own[:longestName-len(tail)], "") + tail
}

// namespaces returns the part of the name that says which namespaces are meant.
func (s Selection) namespaces() string {
	if s.NamespaceSelector == nil {
		return strings.Join(s.Namespaces, ",")
	}
	if s.NamespaceSelector.Empty() {
		return "*"
	}
	return strings.Join(append(slices.Clone(s.Namespaces), "{"+selectorText(s.NamespaceSelector)+"}"), ",")
}

// Selects reports whether the selection selects the pod. NamespaceLabels returns the labels of a namespace; it is called
// only if the selection has a NamespaceSelector.
func (s Selection) Selects(pod *corev1.Pod, namespaceLabels func(namespace string) labels.Set) bool {
	if s.Pods == nil || !s.Pods.Matches(labels.Set(pod.Labels)) {
		return false
	}
	if !slices.Contains(s.Namespaces, pod.Namespace) &&
		(s.NamespaceSelector == nil || !s.NamespaceSelector.Empty() && !s.NamespaceSelector.Matches(namespaceLabels(pod.Namespace))) {
		return false
	}
	return !slices.ContainsFunc(s.And, func(o Selection) bool { return !o.Selects(pod, namespaceLabels) })
}

// selectorText returns the canonical text of a selector: requirements in order and without repetition, and one text for
// the forms that mean the same.
func selectorText(selector labels.Selector) string {
	if selector == nil {
		return "-"
	}
	requirements, selectable := selector.Requirements()
	if !selectable {
		return "-"
	}
	var all []string
	for i := range requirements {
		all = append(all, requirementText(&requirements[i]))
	}
	if len(all) == 0 {
		return "*"
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// requirementText returns the canonical text of one requirement.
func requirementText(r *labels.Requirement) string {
	values := r.Values().List()
	switch r.Operator() {
	case selection.Exists:
		return r.Key()
	case selection.DoesNotExist:
		return "!" + r.Key()
	case selection.Equals, selection.DoubleEquals, selection.In:
		if len(values) == 1 {
			return r.Key() + "=" + values[0]
		}
		return fmt.Sprintf("%s in (%s)", r.Key(), strings.Join(values, ","))
	case selection.NotEquals, selection.NotIn:
		if len(values) == 1 {
			return r.Key() + "!=" + values[0]
		}
		return fmt.Sprintf("%s notin (%s)", r.Key(), strings.Join(values, ","))
	}
	return r.String()
}

// Selections returns all selections that the constraints of the pod name: required and preferred affinity and
// anti-affinity, and topology spread. Each has to be registered before SpecOf is called for a pod that it may select. A
// selector that is not valid selects nothing and is left out. Host ports and claims need no selections: the pod itself
// says in which groups it is because of them.
func Selections(pod *corev1.Pod) []Selection {
	var all []Selection
	known := map[string]bool{}
	add := func(s Selection, err error) {
		if err != nil {
			return
		}
		if name := s.String(); !known[name] {
			known[name] = true
			all = append(all, s)
		}
	}
	required, preferred := affinityOf(pod)
	if len(required) > 0 {
		add(termSelections(pod, required))
	}
	for i := range preferred {
		add(termSelection(pod, &preferred[i].PodAffinityTerm))
	}
	required, preferred = antiAffinityOf(pod)
	for i := range required {
		add(termSelection(pod, &required[i]))
	}
	for i := range preferred {
		add(termSelection(pod, &preferred[i].PodAffinityTerm))
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		s, counts, err := spreadSelection(pod, &pod.Spec.TopologySpreadConstraints[i])
		if counts {
			add(s, err)
		}
	}
	return all
}

// affinityOf returns the terms of the pod's affinity to pods.
func affinityOf(pod *corev1.Pod) ([]corev1.PodAffinityTerm, []corev1.WeightedPodAffinityTerm) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return nil, nil
	}
	a := pod.Spec.Affinity.PodAffinity
	return a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution
}

// antiAffinityOf returns the terms of the pod's anti-affinity to pods.
func antiAffinityOf(pod *corev1.Pod) ([]corev1.PodAffinityTerm, []corev1.WeightedPodAffinityTerm) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil, nil
	}
	a := pod.Spec.Affinity.PodAntiAffinity
	return a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution
}

// termSelections returns what all the required terms of an affinity select together. A selection that depends on the labels
// of namespaces comes first.
func termSelections(pod *corev1.Pod, terms []corev1.PodAffinityTerm) (Selection, error) {
	var all []Selection
	for i := range terms {
		s, err := termSelection(pod, &terms[i])
		if err != nil {
			return Selection{}, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Selection) int {
		return cmp.Or(int(btoi(a.NamespaceSelector == nil))-int(btoi(b.NamespaceSelector == nil)), strings.Compare(a.String(), b.String()))
	})
	all = slices.CompactFunc(all, func(a, b Selection) bool { return a.String() == b.String() })
	first := all[0]
	first.And = all[1:len(all):len(all)]
	return first, nil
}

// termSelection returns what a term of an affinity selects. The API server has merged matchLabelKeys and
// mismatchLabelKeys into its selector.
func termSelection(pod *corev1.Pod, term *corev1.PodAffinityTerm) (Selection, error) {
	s := Selection{Namespaces: slices.Clone(term.Namespaces)}
	if term.NamespaceSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(term.NamespaceSelector)
		if err != nil {
			return Selection{}, err
		}
		s.NamespaceSelector = selector
	} else if len(s.Namespaces) == 0 {
		s.Namespaces = []string{pod.Namespace}
	}
	slices.Sort(s.Namespaces)
	s.Namespaces = slices.Compact(s.Namespaces)
	var err error
	s.Pods, err = metav1.LabelSelectorAsSelector(term.LabelSelector)
	return s, err
}

// spreadSelection returns what a topology spread constraint counts, matchLabelKeys included. Counts is false if it
// counts no pod at all: without a selector, or by one that is empty.
func spreadSelection(pod *corev1.Pod, c *corev1.TopologySpreadConstraint) (s Selection, counts bool, err error) {
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return Selection{}, true, err
	}
	if _, selectable := selector.Requirements(); !selectable {
		return Selection{}, false, nil
	}
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			r, err := labels.NewRequirement(key, selection.Equals, []string{value})
			if err != nil {
				return Selection{}, true, err
			}
			selector = selector.Add(*r)
		}
	}
	return Selection{Namespaces: []string{pod.Namespace}, Pods: selector}, !selector.Empty(), nil
}
