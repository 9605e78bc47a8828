package kubeorbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// binder binds pods to the nodes on which the engines have placed them, and deletes those that they have evicted.
type binder struct {
	*run
	// slots bounds how many requests are under way.
	slots chan struct{}
	tasks sync.WaitGroup

	mu sync.Mutex
	// The placements that wait until others have stopped on their node.
	waiting map[orbit.NodeID]map[orbit.CapsuleID]bool
	// Closed when the bind of a capsule that is under way has ended.
	binding map[orbit.CapsuleID]chan struct{}
}

func newBinder(r *run) binder {
	return binder{run: r, slots: make(chan struct{}, cmp.Or(r.Binders, 64)), waiting: map[orbit.NodeID]map[orbit.CapsuleID]bool{}, binding: map[orbit.CapsuleID]chan struct{}{}}
}

// act does in the API server what the engines commit, until the context ends.
func (r *run) act(ctx context.Context, from orbit.Revision) error {
	b := &r.binder
	defer b.tasks.Wait()
	for {
		for changes, err := range orbit.Follow(ctx, r.ledger, from) {
			if err == nil {
				for i := range changes {
					b.follow(ctx, &changes[i])
					from = changes[i].Revision
				}
				continue
			}
			if !errors.Is(err, orbit.ErrCompacted) {
				return err
			}
			state, err := r.ledger.Snapshot(ctx)
			if err != nil {
				return err
			}
			from = state.Revision()
			b.catchUp(ctx, state)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// catchUp begins all that a state asks for. It stands in for follow when the changes up to that state are no longer to be had.
func (b *binder) catchUp(ctx context.Context, state *orbit.State) {
	for c := range state.Capsules() {
		switch {
		case c.Placed() && !c.Begun:
			b.do(func() { b.begin(ctx, c.ID) })
		case c.Released() && c.Remains() != nil:
			b.do(func() { b.evict(ctx, c.ID, "another pod") })
		}
	}
}

// follow begins what a change asks for.
func (b *binder) follow(ctx context.Context, ch *orbit.Change) {
	switch do := ch.Do.(type) {
	case orbit.Place:
		b.do(func() { b.begin(ctx, do.Capsule) })
	case orbit.Evict:
		b.do(func() { b.evict(ctx, do.Capsule, cmp.Or(string(do.For), string(do.ForGang))) })
	case orbit.Confirm, orbit.RemoveNode: // a placement waits for others to stop on its node, and only these say that they have
		b.wake(ctx, ch.Node)
	}
}

// do runs a task in a goroutine of its own. Act waits for it.
func (b *binder) do(task func()) {
	b.tasks.Go(func() {
		b.slots <- struct{}{}
		defer func() { <-b.slots }()
		task()
	})
}

// idle gives the slot of a task to another while the task waits. Otherwise requests that are refused for long would hold all slots,
// and nothing else would be bound.
func (b *binder) idle(wait func() bool) bool {
	<-b.slots
	defer func() { b.slots <- struct{}{} }()
	return wait()
}

// wake tries again what waits on a node.
func (b *binder) wake(ctx context.Context, node orbit.NodeID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.waiting[node] {
		b.do(func() { b.begin(ctx, id) })
	}
	delete(b.waiting, node)
}

// wait notes that a placement waits on a node.
func (b *binder) wait(node orbit.NodeID, id orbit.CapsuleID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[node] == nil {
		b.waiting[node] = map[orbit.CapsuleID]bool{}
	}
	b.waiting[node][id] = true
}

// begin says that a placed capsule is about to run, and binds its pod. If others have to stop on the node first, begin leaves it
// waiting, and wake tries again; if others have overfilled the node, the capsule is released, to be placed anew.
func (b *binder) begin(ctx context.Context, id orbit.CapsuleID) {
	for ctx.Err() == nil {
		state, err := b.ledger.Snapshot(ctx)
		if err != nil {
			return
		}
		c := state.Capsule(id)
		if c == nil || !c.Placed() || c.Begun {
			return
		}
		b.wait(c.Node, id) // before it tries, so that it misses no change
		err = b.claim(ctx, state, c)
		rejection := (*orbit.Rejection)(nil)
		switch errors.As(err, &rejection); {
		case err == nil:
			b.bind(ctx, c)
			return
		case errors.Is(err, errBound):
			return
		case errors.Is(err, orbit.ErrConflict):
		case rejection != nil && rejection.Dimension != "": // the node is overfilled
			err := b.propose(ctx, state, orbit.Release{Capsule: id, From: c.Node, At: now()})
			if err == nil || !errors.Is(err, orbit.ErrConflict) {
				return
			}
		default: // others have to stop first
			b.nominate(ctx, id, c.Node)
			return
		}
	}
}

// errBound says that a capsule is being bound already.
var errBound = errors.New("it is being bound")

// claim confirms in the ledger that a capsule begins, and then notes that its bind is under way. The error is errBound if it is already.
func (b *binder) claim(ctx context.Context, state *orbit.State, c *orbit.Capsule) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.binding[c.ID] != nil {
		return errBound
	}
	err := b.propose(ctx, state, orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Begun: true})
	if err == nil {
		b.binding[c.ID] = make(chan struct{})
		delete(b.waiting[c.Node], c.ID)
	}
	return err
}

// bound notes that the bind of a capsule has ended, and begins the capsule again: after a failure it may have been placed anew
// already, and the begin of that placement was refused with errBound.
func (b *binder) bound(ctx context.Context, id orbit.CapsuleID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.binding[id])
	delete(b.binding, id)
	b.do(func() { b.begin(ctx, id) })
}

// bind binds a pod. After an error it reads from the pod whether the bind has failed, and then tries again. After Tries failures the
// capsule is given back, and the node has the blame. An error without an answer about the pod is no failure. The API
// server binds a pod once only, so a bind that comes late harms nothing: the mirror finds out where the pod is.
func (b *binder) bind(ctx context.Context, c *orbit.Capsule) {
	defer b.bound(ctx, c.ID)
	name := podOf(c.ID)
	pods := b.Client.CoreV1().Pods(name.Namespace)
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: uidOf(c.ID)},
		Target:     corev1.ObjectReference{Kind: "Node", Name: string(c.Node)},
	}
	delay := 250 * time.Millisecond
	for try := 1; ; delay = min(2*delay, 15*time.Second) {
		err := pods.Bind(ctx, binding, metav1.CreateOptions{})
		if err == nil {
			b.event(c.ID, corev1.EventTypeNormal, "Scheduled", "Binding", "placed on node %s", c.Node)
			return
		}
		p, unknown := pods.Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case ctx.Err() != nil:
			return
		case apierrors.IsNotFound(unknown), unknown == nil && (p.UID != uidOf(c.ID) || phaseOf(p, b.name) != waiting):
			b.mirror.queue.Add(key{ofPod, name}) // it is bound, or ends
			return
		case unknown != nil: // the API server answers nothing, so nothing is known
		case try >= cmp.Or(b.Tries, 4):
			b.event(c.ID, corev1.EventTypeWarning, "FailedBinding", "Binding", "cannot be bound to node %s: %v", c.Node, err)
			b.giveBack(ctx, c)
			b.mirror.queue.Add(key{ofPod, name})
			return
		default:
			try++
		}
		if !b.idle(func() bool { return send.Pause(ctx, delay) }) {
			return
		}
	}
}

// giveBack releases a capsule whose bind has failed: it is pending again, and its node is avoided for a while.
func (b *binder) giveBack(ctx context.Context, c *orbit.Capsule) {
	state, err := b.ledger.Snapshot(ctx)
	if err != nil {
		return
	}
	if is := state.Capsule(c.ID); is == nil || !is.Placed() || is.PlacedAt != c.PlacedAt {
		return
	}
	err = b.propose(ctx, state, orbit.Release{Capsule: c.ID, From: c.Node, Stopped: true, At: now()})
	if err != nil && !errors.Is(err, orbit.ErrConflict) { // a conflict: it has left the node meanwhile
		b.log.Error("kubeorbit: a failed bind is not recorded", "pod", c.ID, "error", err)
	}
}

// evict deletes the pod of a capsule that was taken off its node, after a bind that is under way has ended. If the pod turns out not
// to be bound, nothing runs: evict then confirms that the capsule has stopped, and the pod waits again.
func (b *binder) evict(ctx context.Context, id orbit.CapsuleID, cause string) {
	b.mu.Lock()
	underWay := b.binding[id]
	b.mu.Unlock()
	if underWay != nil {
		over := b.idle(func() bool {
			select {
			case <-underWay:
				return true
			case <-ctx.Done():
				return false
			}
		})
		if !over {
			return
		}
	}
	name := podOf(id)
	pods := b.Client.CoreV1().Pods(name.Namespace)
	for wait := 250 * time.Millisecond; ; wait = min(2*wait, 30*time.Second) {
		state, err := b.ledger.Snapshot(ctx)
		if err != nil {
			return
		}
		if c := state.Capsule(id); c == nil || c.Remains() == nil { // it had not begun, or has stopped
			return
		}
		p, err := pods.Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && (p.UID != uidOf(id) || over(p) || p.DeletionTimestamp != nil):
			b.mirror.queue.Add(key{ofPod, name})
			return
		case err == nil && p.Spec.NodeName == "":
			if err = b.propose(ctx, state, stopped(state.Capsule(id))); err == nil {
				b.mirror.queue.Add(key{ofPod, name})
				return
			}
		case err == nil:
			if err = b.remove(ctx, p, cause); err == nil {
				b.event(id, corev1.EventTypeNormal, "Preempted", "Preempting", "makes way for %s on node %s", cause, p.Spec.NodeName)
				return
			}
		}
		if ctx.Err() == nil && !apierrors.IsNotFound(err) { // a pod that is gone: the next Get says so
			b.log.Warn("kubeorbit: an evicted pod is not deleted yet", "pod", id, "error", err)
		}
		if !b.idle(func() bool { return send.Pause(ctx, wait) }) {
			return
		}
	}
}

// remove says on a pod why it is deleted, and deletes it.
func (b *binder) remove(ctx context.Context, p *corev1.Pod, cause string) error {
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		Message: fmt.Sprintf("%s: makes way for %s", b.name, cause), ObservedGeneration: p.Generation,
	}
	if err := b.patch(ctx, p, p.Status.NominatedNodeName, condition); err != nil {
		return err
	}
	return b.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
}

// pod returns the pod of a capsule as it was last seen; nil: it is gone.
func (r *run) pod(id orbit.CapsuleID) *corev1.Pod {
	p := get[corev1.Pod](r.mirror.pods, podOf(id))
	if p == nil || p.UID != uidOf(id) {
		return nil
	}
	return p
}

// event writes an event about the pod of a capsule.
func (r *run) event(id orbit.CapsuleID, kind, reason, action, format string, args ...any) {
	if p := r.pod(id); p != nil {
		r.events.Eventf(p, nil, kind, reason, action, format, args...)
	}
}
