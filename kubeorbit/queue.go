package kubeorbit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
	corev1 "k8s.io/api/core/v1"
)

// QueueLabel is the label that names the queue that a pod is charged to. KueueLabel counts where it is missing, so the pods of
// a LocalQueue of Kueue are charged to the queue of that name.
const (
	QueueLabel = "kubeorbit.dev/queue"
	KueueLabel = "kueue.x-k8s.io/queue-name"
)

// queueOf returns the queue that a pod names; empty: none.
func queueOf(p *corev1.Pod) orbit.QueueID {
	return orbit.QueueID(cmp.Or(p.Labels[QueueLabel], p.Labels[KueueLabel]))
}

// charge says to which queue a pod is charged. Without queues the label of Kueue says nothing: it is not for this scheduler.
func (m *mirror) charge(p *corev1.Pod, spec *orbit.Spec) error {
	name := queueOf(p)
	if name == "" || len(m.Queues) == 0 && p.Labels[QueueLabel] == "" {
		return nil
	}
	for i := range m.Queues {
		if m.Queues[i].ID == name {
			spec.Queue = name
			return nil
		}
	}
	key := QueueLabel
	if p.Labels[key] == "" {
		key = KueueLabel
	}
	return &Unsayable{"metadata.labels[" + key + "]", fmt.Sprintf("there is no queue %q", name)}
}

// putQueues puts the queues into the empty ledger.
func (r *run) putQueues(ctx context.Context) error {
	do := make([]orbit.Commitment, len(r.Queues))
	for i, q := range r.Queues {
		do[i] = orbit.PutQueue{Queue: q}
	}
	if len(do) == 0 {
		return nil
	}
	if _, err := r.ledger.Propose(ctx, orbit.Proposal{Do: do}); err != nil {
		return fmt.Errorf("kubeorbit: queues: %w", err)
	}
	return nil
}

// QueueConfiguration is a queue ([orbit.Queue]), with amounts as Kubernetes writes them.
type QueueConfiguration struct {
	// Name is the name of the queue, which pods name in the label [QueueLabel].
	Name string `json:"name"`
	// Parent is the name of the queue, earlier in the list, with which this one shares; empty: it is the root of a tree.
	Parent string `json:"parent,omitempty"`
	// Nominal is what the queue may use at any time. A tree divides the resources that one of its queues names here.
	Nominal corev1.ResourceList `json:"nominal,omitempty"`
	// Borrow is how much more it may use of what the others leave. Of a resource that is missing there is no limit.
	Borrow corev1.ResourceList `json:"borrow,omitempty"`
	// Lend is how much it lends at most. Of a resource that is missing there is no limit.
	Lend corev1.ResourceList `json:"lend,omitempty"`
	// Weight divides the queue's share; 0 is 1.
	Weight int64 `json:"weight,omitempty"`
}

// quotaNames are the names of the dimensions in an [orbit.Queue].
var quotaNames = [orbit.Dimensions]string{"cpu", "memory", "disk", "slots", "dim4", "dim5", "dim6", "dim7"}

// queue returns the queue in orbit's words.
func (c *QueueConfiguration) queue() (q orbit.Queue, err error) {
	q = orbit.Queue{ID: orbit.QueueID(c.Name), Parent: orbit.QueueID(c.Parent), Weight: c.Weight}
	for _, part := range []struct {
		from corev1.ResourceList
		to   *map[string]int64
	}{{c.Nominal, &q.Nominal}, {c.Borrow, &q.Borrow}, {c.Lend, &q.Lend}} {
		main, extras, err := amounts("queues", part.from)
		if err != nil {
			return q, err
		}
		for name := range part.from {
			if *part.to == nil {
				*part.to = map[string]int64{}
			}
			if d := slices.Index(dimensions[:], string(name)); d >= 0 {
				(*part.to)[quotaNames[d]] = main[d]
			} else { // also the amount 0, because it divides the resource
				(*part.to)["extra/"+string(name)] = 0
			}
		}
		for _, x := range extras {
			(*part.to)["extra/"+x.Name] = x.Amount
		}
	}
	return q, nil
}
