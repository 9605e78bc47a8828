package kubeorbit

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// registry has the selections that constraints of pods and disruption budgets name. It is not safe for concurrent use.
type registry struct {
	// NamespaceLabels returns the labels of a namespace.
	namespaceLabels func(namespace string) labels.Set
	byName          map[string]*registered
	// The same by the namespaces in which they select pods; under the empty name those that select namespaces by labels.
	byNamespace map[string]map[string]*registered
}

// registered is a selection, and how many pods and budgets name it.
type registered struct {
	Selection
	users int
}

// namespacesOf returns the keys of a selection in byNamespace.
func namespacesOf(s *Selection) []string {
	if s.NamespaceSelector != nil {
		return []string{""}
	}
	return s.Namespaces
}

// hold counts one more user of a selection, and reports whether it is the first.
func (r *registry) hold(s Selection) bool {
	name := s.String()
	if known := r.byName[name]; known != nil {
		known.users++
		return false
	}
	if r.byName == nil {
		r.byName, r.byNamespace = map[string]*registered{}, map[string]map[string]*registered{}
	}
	added := &registered{Selection: s, users: 1}
	r.byName[name] = added
	for _, ns := range namespacesOf(&s) {
		if r.byNamespace[ns] == nil {
			r.byNamespace[ns] = map[string]*registered{}
		}
		r.byNamespace[ns][name] = added
	}
	return true
}

// drop counts one user less, and returns the selection if that was the last one.
func (r *registry) drop(name string) *Selection {
	known := r.byName[name]
	if known == nil {
		return nil
	}
	if known.users--; known.users > 0 {
		return nil
	}
	delete(r.byName, name)
	for _, ns := range namespacesOf(&known.Selection) {
		if delete(r.byNamespace[ns], name); len(r.byNamespace[ns]) == 0 {
			delete(r.byNamespace, ns)
		}
	}
	return &known.Selection
}

// groups returns the names of the selections that select a pod, sorted.
func (r *registry) groups(pod *corev1.Pod) (names []string) {
	for _, ns := range []string{pod.Namespace, ""} {
		for name, s := range r.byNamespace[ns] {
			if s.Selects(pod, r.namespaceLabels) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// use replaces the selections that a user names by others. It returns the selections that have got their first user or lost
// their last. The groups of the pods that they select have changed.
func (r *registry) use(were map[string]Selection, are []Selection) (now map[string]Selection, changed []Selection) {
	now = map[string]Selection{}
	for _, s := range are {
		now[s.String()] = s
	}
	for name, s := range now {
		if _, had := were[name]; !had && r.hold(s) {
			changed = append(changed, s)
		}
	}
	for name := range maps.Keys(were) {
		if _, has := now[name]; has {
			continue
		}
		if s := r.drop(name); s != nil {
			changed = append(changed, *s)
		}
	}
	return now, changed
}
