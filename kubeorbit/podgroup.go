package kubeorbit

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/orbitsched/orbit"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reportGroups writes the condition PodGroupScheduled on pod groups that have a minimum, at most on so many of them. The condition
// becomes true when that many pods of the group are bound, and stays true, as kube-scheduler's does. Before, it is false and has the
// reason of the first pod of the group that has one.
func (r *run) reportGroups(ctx context.Context, said map[orbit.CapsuleID]said, most int) {
	if r.mirror.groups == nil {
		return
	}
	for _, o := range r.mirror.groups.List() {
		g := o.(*schedulingv1alpha2.PodGroup)
		if g.Spec.SchedulingPolicy.Gang == nil || apimeta.IsStatusConditionTrue(g.Status.Conditions, schedulingv1alpha2.PodGroupScheduled) {
			continue
		}
		c := metav1.Condition{Type: schedulingv1alpha2.PodGroupScheduled, ObservedGeneration: g.Generation}
		switch bound, why := r.groupOf(g, said); {
		case bound >= int(g.Spec.SchedulingPolicy.Gang.MinCount):
			c.Status, c.Reason = metav1.ConditionTrue, "Scheduled"
		case why != "":
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, schedulingv1alpha2.PodGroupReasonUnschedulable, why
		default:
			continue
		}
		conditions := slices.Clone(g.Status.Conditions)
		if !apimeta.SetStatusCondition(&conditions, c) { // it says so already
			continue
		}
		if most--; most < 0 {
			return
		}
		c = *apimeta.FindStatusCondition(conditions, c.Type) // with the time of the last transition
		if err := r.patchGroup(ctx, g, c); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			r.log.Warn("kubeorbit: whether a pod group is scheduled is not written", "group", g.Namespace+"/"+g.Name, "error", err)
		}
	}
}

// groupOf counts the pods of this scheduler in a group that are bound or done, and returns what the first of the others says about why it waits.
func (r *run) groupOf(g *schedulingv1alpha2.PodGroup, said map[orbit.CapsuleID]said) (bound int, why string) {
	pods, _ := r.mirror.pods.ByIndex(byGroup, g.Namespace+"/"+g.Name)
	slices.SortFunc(pods, func(a, b any) int { return cmp.Compare(a.(*corev1.Pod).Name, b.(*corev1.Pod).Name) })
	for _, o := range pods {
		switch p := o.(*corev1.Pod); {
		case p.Spec.SchedulerName != r.name || p.Status.Phase == corev1.PodFailed:
		case p.Spec.NodeName != "" || p.Status.Phase == corev1.PodSucceeded:
			bound++
		default:
			why = cmp.Or(why, said[capsuleOf(p)].text)
		}
	}
	return bound, why
}

// patchGroup writes a condition of a pod group.
func (r *run) patchGroup(ctx context.Context, g *schedulingv1alpha2.PodGroup, c metav1.Condition) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": g.UID}, "status": map[string]any{"conditions": []metav1.Condition{c}}})
	if err != nil {
		return err
	}
	_, err = r.Client.SchedulingV1alpha2().PodGroups(g.Namespace).Patch(ctx, g.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status")
	return err
}
