package kubeorbit

import (
	"github.com/orbitsched/orbit"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unknownExpected is the Expected of a budget whose newest form the disruption controller has not seen yet. It is more than any
// group has members, so nothing is evicted.
const unknownExpected = 1 << 24

// BudgetOf returns the budget that a disruption budget sets, and which pods it covers. The group of the budget has the
// name of the selection. The numbers are those of the status, which the disruption controller computes from the
// controllers of the pods; until it has seen the newest spec, nothing may be evicted, as by the eviction API. The error
// is an *Unsayable.
func BudgetOf(p *policyv1.PodDisruptionBudget) (orbit.Budget, Selection, error) {
	pods, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
	if err != nil {
		return orbit.Budget{}, Selection{}, &Unsayable{"spec.selector", err.Error()}
	}
	covered := Selection{Namespaces: []string{p.Namespace}, Pods: pods}
	desired := int(max(0, p.Status.DesiredHealthy))
	expected := max(desired, int(p.Status.ExpectedPods))
	budget := orbit.Budget{ID: orbit.BudgetID(p.Namespace + "/" + p.Name), Group: covered.String(), Expected: expected, Missing: expected - desired}
	if p.Status.ObservedGeneration < p.Generation {
		budget.Expected, budget.Missing = unknownExpected, 0
	}
	if policy := p.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		budget.FreeUnready = true
	}
	return budget, covered, nil
}
