package kubeorbit

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reasons says why pods are not submitted, by their names.
type reasons struct {
	mu sync.Mutex
	of map[types.NamespacedName]error
}

// say keeps why a pod is not submitted; nil: it is.
func (r *reasons) say(pod types.NamespacedName, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why == nil {
		delete(r.of, pod)
		return
	}
	if r.of == nil {
		r.of = map[types.NamespacedName]error{}
	}
	r.of[pod] = why
}

// all returns a copy.
func (r *reasons) all() map[types.NamespacedName]error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.of)
}

// Limits: one look at what waits per lookEvery, mostWrites pods per look, and a changed reason of one pod once per sayAgain.
const (
	lookEvery  = time.Second
	mostWrites = 200
	sayAgain   = 30 * time.Second
)

// said is what was written on a pod last.
type said struct {
	text string
	at   time.Time
	left bool // the mirror has left the pod out of the ledger
}

// Why the mirror leaves a pod out of the ledger, in a word.
const (
	leftUnsayable = "unsayable"
	leftGang      = "gang"
	leftRejected  = "rejected"
)

// waitReasons are the keys of Status.Waiting.
var waitReasons = [...]string{
	string(orbit.WaitUnplanned), string(orbit.WaitParked), string(orbit.WaitLeftOut), string(orbit.WaitWithheld), string(orbit.WaitRefused), string(orbit.WaitUnowned),
	leftUnsayable, leftGang, leftRejected,
}

// leftReason says in a word why the mirror leaves a pod out of the ledger.
func leftReason(p *corev1.Pod, why error) string {
	switch lacks := (*Unsayable)(nil); {
	case errors.As(why, &lacks):
		return leftUnsayable
	case gangName(p) != "":
		return leftGang
	}
	return leftRejected
}

// report writes on each pod that waits why it does, until the context ends: in the condition PodScheduled, which
// autoscalers read, and in an event.
func (r *run) report(ctx context.Context) error {
	last := map[orbit.CapsuleID]said{}
	for send.Pause(ctx, lookEvery) {
		state, err := r.ledger.Snapshot(ctx)
		if err != nil {
			return err
		}
		now := map[orbit.CapsuleID]said{}
		writes := 0
		// Why the mirror has left a pod out is out of date as soon as the pod is in the ledger.
		say := func(id orbit.CapsuleID, why error, left bool) {
			was, known := last[id]
			if known {
				now[id] = was
			}
			if text := why.Error(); text != was.text && writes < mostWrites && (!known || was.left && !left || time.Since(was.at) >= sayAgain) {
				if writes++; r.refuse(ctx, id, text) {
					now[id] = said{text, time.Now(), left}
				}
			}
		}
		waits := map[string]int{}
		for _, reason := range waitReasons {
			waits[reason] = 0
		}
		for name, why := range r.mirror.leaves.all() {
			if p := get[corev1.Pod](r.mirror.pods, name); p != nil {
				say(capsuleOf(p), why, true)
				waits[leftReason(p, why)]++
			}
		}
		for _, row := range orbit.Backlog(state, r.population.Engines...) {
			waits[string(row.Kind)] += len(row.Capsules)
			if row.Kind == orbit.WaitUnplanned { // it has not been tried yet
				continue
			}
			for _, c := range row.Capsules {
				say(c.ID, row.Why, false)
			}
		}
		r.reportGroups(ctx, now, mostWrites-writes)
		last = now
		r.waiting.Store(&waits)
	}
	return context.Cause(ctx)
}

// refuse writes on a pod that it is not scheduled, and why, unless it says so already. It reports whether the pod says so now,
// or need not.
func (r *run) refuse(ctx context.Context, id orbit.CapsuleID, text string) bool {
	p := r.pod(id)
	if p == nil || phaseOf(p, r.name) != waiting {
		return true
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message == text && p.Status.NominatedNodeName == "" {
			return true
		}
	}
	err := r.patch(ctx, p, "", corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: text, ObservedGeneration: p.Generation,
	})
	if err != nil {
		if ctx.Err() == nil && !apierrors.IsNotFound(err) {
			r.log.Warn("kubeorbit: why a pod waits is not written", "pod", id, "error", err)
		}
		return false
	}
	r.events.Eventf(p, nil, corev1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", text)
	return true
}

// nominate writes on a pod on which node it is placed, while others have to stop there first.
func (r *run) nominate(ctx context.Context, id orbit.CapsuleID, node orbit.NodeID) {
	p := r.pod(id)
	if p == nil || p.Status.NominatedNodeName == string(node) {
		return
	}
	if err := r.patch(ctx, p, string(node)); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
		r.log.Warn("kubeorbit: the node of a pod that waits there is not written", "pod", id, "error", err)
	}
}

// patch writes the nominated node of a pod, and conditions that replace those of the same type.
func (r *run) patch(ctx context.Context, p *corev1.Pod, nominated string, conditions ...corev1.PodCondition) error {
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.Now()
	}
	status := map[string]any{}
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	if nominated != p.Status.NominatedNodeName {
		status["nominatedNodeName"] = nominated
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = r.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status")
	return err
}
