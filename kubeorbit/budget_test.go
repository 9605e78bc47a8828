package kubeorbit

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// TestBudgets asks a ledger whether one of three pods may be evicted for work of higher priority. One of the pods is not
// ready where unready is set, and it is the one that is evicted.
func TestBudgets(t *testing.T) {
	ofWeb := "spec: {selector: {matchLabels: {app: web}}"
	always := ofWeb + ", unhealthyPodEvictionPolicy: AlwaysAllow"
	for _, row := range []struct {
		name, budget string
		unready, may bool
	}{
		{"no pod may be missing", "{" + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 3}}", false, false},
		{"one pod may be missing", "{" + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 2}}", false, true},
		{"more are desired than there are", "{" + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 5}}", false, false},
		{"more are desired than are expected", "{" + ofWeb + "}, status: {expectedPods: 2, desiredHealthy: 3}}", false, false},
		{"more are expected than there are", "{" + ofWeb + "}, status: {expectedPods: 5, desiredHealthy: 3}}", false, false},
		{"other pods", "{spec: {selector: {matchLabels: {app: db}}}, status: {expectedPods: 3, desiredHealthy: 3}}", false, true},
		{"no selector covers nothing", "{spec: {}, status: {expectedPods: 3, desiredHealthy: 3}}", false, true},
		{"an empty selector covers all", "{spec: {selector: {}}, status: {expectedPods: 3, desiredHealthy: 3}}", false, false},
		{"another namespace", "{metadata: {namespace: other}, " + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 3}}", false, true},
		{"a spec that the controller has not seen", "{metadata: {generation: 2}, " + ofWeb + "}, status: {observedGeneration: 1, expectedPods: 3}}", false, false},
		{"a spec that the controller has seen", "{metadata: {generation: 2}, " + ofWeb + "}, status: {observedGeneration: 2, expectedPods: 3}}", false, true},
		{"an unready pod while enough are healthy", "{" + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 2}}", true, true},
		{"an unready pod while too few are healthy", "{" + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 3}}", true, false},
		{"an unready pod, always allowed", "{" + always + "}, status: {expectedPods: 3, desiredHealthy: 3}}", true, true},
		{"a ready pod, always allowed if unready", "{" + always + "}, status: {expectedPods: 3, desiredHealthy: 3}}", false, false},
		{"two budgets, of which the first is the stricter", "{" + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 3}}---{" + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 2}}", false, false},
		{"two budgets, of which the second is the stricter", "{" + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 2}}---{" + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 3}}", false, false},
		{"two budgets that both allow it", "{" + ofWeb + "}, status: {expectedPods: 3, desiredHealthy: 2}}---{spec: {selector: {}}, status: {expectedPods: 3, desiredHealthy: 1}}", false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := &world{nodes: []*corev1.Node{nodeFrom(t, "a +pods=3")}}
			for i, text := range strings.Split(row.budget, "---") {
				b := read[policyv1.PodDisruptionBudget](t, text)
				if b.Name = fmt.Sprint("b", i); b.Namespace == "" {
					b.Namespace = "default"
				}
				w.budgets = append(w.budgets, b)
			}
			for _, name := range []string{"x", "y", "z"} {
				w.pods = append(w.pods, podFrom(t, "{metadata: {name: "+name+", labels: {app: web}}, spec: {nodeName: a}}"))
			}
			urgent := podFrom(t, spec("priority: 9"))
			w.pods = append(w.pods, urgent)
			l := w.ledger(t)
			strictest := ""
			for i, b := range w.budgets {
				budget, _, err := BudgetOf(b)
				require.NoError(t, err)
				commit(t, l, orbit.PutBudget{Budget: budget})
				if i == 0 || budget.Missing == 0 {
					strictest = string(budget.ID)
				}
			}
			for i, p := range w.pods[:3] {
				if !row.unready || i > 0 {
					state, err := l.Snapshot(context.Background())
					require.NoError(t, err)
					commit(t, l, orbit.Confirm{Capsule: idOf(p), Since: state.Capsule(idOf(p)).PlacedAt, Ready: true})
				}
			}
			s, err := SpecOf(urgent, w)
			require.NoError(t, err)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{idOf(urgent)}, Spec: s})
			state, err := l.Snapshot(context.Background())
			require.NoError(t, err)
			victim := state.Capsule(idOf(w.pods[0]))
			_, err = l.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
				orbit.Evict{Capsule: idOf(w.pods[0]), From: "a", Since: victim.PlacedAt, For: idOf(urgent)}, orbit.Place{Capsule: idOf(urgent), Node: "a"},
			}})
			if row.may {
				require.NoError(t, err)
				return
			}
			var refused *orbit.Rejection
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, strictest, string(refused.Budget))
		})
	}
}

// TestBudgetOf has a selector that is not valid, and the selection that a budget registers.
func TestBudgetOf(t *testing.T) {
	bad := read[policyv1.PodDisruptionBudget](t, "{spec: {selector: {matchExpressions: [{key: k, operator: Nope}]}}}")
	_, _, err := BudgetOf(bad)
	var lacks *Unsayable
	require.ErrorAs(t, err, &lacks)
	assert.Equal(t, "spec.selector", lacks.Field)

	good := read[policyv1.PodDisruptionBudget](t, "{metadata: {name: b, namespace: ns}, spec: {selector: {matchLabels: {app: web}}}}")
	budget, covered, err := BudgetOf(good)
	require.NoError(t, err)
	assert.Equal(t, "ns: app=web", covered.String())
	assert.Equal(t, covered.String(), budget.Group)
	assert.Equal(t, orbit.BudgetID("ns/b"), budget.ID)
}
