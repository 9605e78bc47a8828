package kubeorbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/orbitsched/orbit"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// capsuleOf returns the id of a pod's capsule, "namespace/name/uid". Because of the UID, a pod that is made again under its
// name is another capsule.
func capsuleOf(p *corev1.Pod) orbit.CapsuleID {
	return orbit.CapsuleID(p.Namespace + "/" + p.Name + "/" + string(p.UID))
}

// Find returns the ID of the capsule of a pod that is named "namespace/name"; empty: the state has none. Of pods that have had one
// name it is the last. Give it to inspect.Handler.Find.
func Find(state *orbit.State, name string) orbit.CapsuleID {
	var last *orbit.Capsule
	for c := range state.Capsules() {
		if podOf(c.ID).String() == name && (last == nil || c.Submitted > last.Submitted) {
			last = c
		}
	}
	if last == nil {
		return ""
	}
	return last.ID
}

// podOf returns the name of the pod of a capsule.
func podOf(id orbit.CapsuleID) types.NamespacedName {
	namespace, rest, _ := strings.Cut(string(id), "/")
	name, _, _ := strings.Cut(rest, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// uidOf returns the UID of the pod of a capsule.
func uidOf(id orbit.CapsuleID) types.UID {
	return types.UID(id[strings.LastIndexByte(string(id), '/')+1:])
}

// phase is what a pod is for the ledger.
type phase uint8

const (
	// gone: nothing of it runs, and it will not run.
	gone phase = iota
	// waiting: it waits to be placed by this scheduler.
	waiting
	// bound: it has a node.
	bound
	// stopping: it has a node, and is to stop there.
	stopping
)

// foreign is the owner of pods that other schedulers place. No engine has this name.
const foreign = "kubernetes"

// over reports whether a pod has ended.
func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// phaseOf returns what a pod is for a scheduler of this name.
func phaseOf(p *corev1.Pod, scheduler string) phase {
	switch {
	case p == nil || over(p):
		return gone
	case p.Spec.NodeName != "" && p.DeletionTimestamp != nil:
		return stopping
	case p.Spec.NodeName != "":
		return bound
	case p.DeletionTimestamp != nil || p.Spec.SchedulerName != scheduler || len(p.Spec.SchedulingGates) > 0:
		return gone
	}
	return waiting
}

// ready reports whether a pod says that it serves.
func ready(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// want is what the record of a pod should say.
type want struct {
	id    orbit.CapsuleID
	phase phase
	node  orbit.NodeID
	ready bool
	spec  *orbit.Spec
	owner string
	// When the pod was made.
	at orbit.Instant
	// The gang that the capsule is submitted in; nil: none. And what the pod says of it.
	gang      *gang
	gangLeast int
	gangLevel string
	// The pod has preemptionPolicy Never.
	never bool
}

// comparePod makes the record of a pod as the pod is now.
func (m *mirror) comparePod(ctx context.Context, k key) error {
	p := get[corev1.Pod](m.pods, k.name)
	if r := m.known[k]; r != nil && r.id != "" && (p == nil || capsuleOf(p) != r.id) {
		if err := m.settle(ctx, &want{id: r.id}); err != nil {
			return err
		}
		m.leave(k, r)
	}
	others := m.register(k, p)
	if p == nil {
		m.leaves.say(k.name, nil)
		return nil
	}
	if others && phaseOf(p, m.name) == waiting { // what it is apart from has to be counted first
		m.queue.Add(k)
		return nil
	}
	state, err := m.ledger.Snapshot(ctx)
	if err != nil {
		return err
	}
	w, why := m.wanted(state, k, p)
	if w.phase == waiting && why != nil {
		m.leaves.say(k.name, why)
		if c := state.Capsule(w.id); c != nil && c.Placed() && c.Begun {
			return nil // it is being bound; the outcome has it compared again
		}
		return m.settle(ctx, &want{id: w.id})
	}
	err = m.settle(ctx, w)
	if w.phase == waiting && !errors.Is(err, orbit.ErrConflict) {
		m.leaves.say(k.name, err)
	} else {
		m.leaves.say(k.name, nil)
	}
	return err
}

// wanted returns what the record of a pod should say, and counts the pod in its gang. The error says why this scheduler does not
// place the pod now; what is wanted still holds if it runs already.
func (m *mirror) wanted(state *orbit.State, k key, p *corev1.Pod) (w *want, why error) {
	w = &want{id: capsuleOf(p), phase: phaseOf(p, m.name), node: orbit.NodeID(p.Spec.NodeName), ready: ready(p)}
	if made := p.CreationTimestamp.Time; !made.IsZero() {
		w.at = orbit.Instant(made.UnixNano())
	}
	r := m.known[k]
	if w.phase == gone {
		if r != nil {
			m.leave(k, r)
		}
		return w, nil
	}
	if r == nil {
		r = &record{}
		m.known[k] = r
	}
	r.id = w.id
	if why = m.describe(p, w); why != nil && w.phase == waiting {
		m.quit(r)
		return w, why
	}
	return w, m.join(state, p, r, w)
}

// describe fills in what a pod asks for. The error says why this scheduler does not place it; the spec is then what the
// pod takes if it runs.
func (m *mirror) describe(p *corev1.Pod, w *want) error {
	spec, why := SpecOf(p, m)
	if name, _, _, err := m.gangOf(p); err == nil && name.Name == "" && spec.Class == orbit.GangClass { // a group without a minimum
		spec.Class = alone(p)
	}
	why = cmp.Or(why, partners(p), m.groupLacks(p), m.charge(p, spec))
	shared, err := spec.Share()
	if err != nil { // what it takes counts if it runs, whatever else it says
		why = errors.Join(why, err)
		least := &orbit.Spec{Envelope: spec.Envelope, Extras: spec.Extras, Class: spec.Class, Priority: spec.Priority, Ends: true}
		if shared, err = least.Share(); err != nil {
			return errors.Join(why, err)
		}
	}
	w.spec, w.never = shared, preemptsNever(p)
	switch {
	case p.Spec.SchedulerName != m.name:
		w.owner = foreign
	case m.EngineOf != nil:
		w.owner = m.EngineOf(p, m.namespaceLabels(p.Namespace))
	}
	return why
}

// leave takes the capsule out of the record and out of its gang, because the capsule has ended.
func (m *mirror) leave(k key, r *record) {
	m.quit(r)
	r.id = ""
	m.forget(k)
}

// settle proposes until the record says what is wanted. Others may commit meanwhile, and some changes need two commits.
func (m *mirror) settle(ctx context.Context, w *want) error {
	var last error
	for range 8 {
		state, err := m.ledger.Snapshot(ctx)
		if err != nil {
			return err
		}
		do := w.next(state)
		if len(do) == 0 {
			return nil
		}
		if last = m.propose(ctx, state, do...); last != nil && !errors.Is(last, orbit.ErrConflict) {
			break
		}
	}
	if last == nil {
		last = fmt.Errorf("others change the record all the time")
	}
	return fmt.Errorf("pod %s: %w", w.id, last)
}

// next returns what to commit next on a state so that the record says what is wanted; nothing: it does.
func (w *want) next(state *orbit.State) []orbit.Commitment {
	c := state.Capsule(w.id)
	alive := c != nil && !c.Released()
	switch {
	case c == nil && w.phase == gone:
		return nil
	case w.phase == gone || (w.phase == bound || w.phase == stopping) && state.Node(w.node) == nil:
		return end(c)
	case w.phase == waiting:
		return w.wait(state, c, alive)
	case !alive && c != nil && c.Remains() != nil && c.Remains().Node == w.node:
		return w.stops(c.Remains()) // it was evicted or is being deleted, and still runs
	case !alive:
		if c != nil && c.Remains() != nil {
			return []orbit.Commitment{stopped(c)}
		}
		return w.adopt(state)
	case c.Pending():
		return []orbit.Commitment{orbit.Adopt{Capsule: w.id, Spec: w.spec, Node: w.node, At: w.at}}
	case !c.Begun: // another party was first
		return []orbit.Commitment{orbit.Release{Capsule: w.id, Final: true}}
	case c.Node != w.node:
		return []orbit.Commitment{orbit.Release{Capsule: w.id, From: c.Node, Stopped: true, At: now()}}
	case w.phase == stopping:
		return []orbit.Commitment{orbit.Release{Capsule: w.id, From: w.node, Final: true}}
	case c.Spec != w.spec:
		return []orbit.Commitment{orbit.Respec{Capsule: w.id, Since: c.PlacedAt, Spec: w.spec, Applied: true}}
	case c.Ready != w.ready:
		return []orbit.Commitment{orbit.Confirm{Capsule: w.id, Since: c.PlacedAt, Ready: w.ready, NotReady: !w.ready}}
	}
	return nil
}

// wait returns what to commit so that a capsule waits, or is about to be bound.
func (w *want) wait(state *orbit.State, c *orbit.Capsule, alive bool) []orbit.Commitment {
	switch {
	case !alive && c != nil && c.Remains() != nil:
		return nil // it was evicted while it was bound; what evicts it finds out whether it runs
	case !alive:
		return w.submit(state)
	case c.Spec == w.spec:
		return nil
	case c.Pending():
		return []orbit.Commitment{orbit.Respec{Capsule: w.id, Spec: w.spec}}
	}
	return []orbit.Commitment{orbit.Respec{Capsule: w.id, Since: c.PlacedAt, Spec: w.spec, Applied: true}}
}

// stops returns what to commit so that a pod that terminates has the groups and rules that it should have now. It may have got other
// labels since it was told to stop, or another pod may be the first to name a selector that selects it. What it takes of the
// node does not change.
func (w *want) stops(r *orbit.Remains) []orbit.Commitment {
	if r.Spec == w.spec {
		return nil
	}
	spec := w.spec.Clone()
	spec.Envelope, spec.Devices, spec.Extras = r.Spec.Envelope, r.Spec.Devices, r.Spec.Extras
	if now, err := spec.Share(); err != nil || now == r.Spec {
		return nil // it keeps what it had if what it says now is not valid
	}
	return []orbit.Commitment{orbit.Respec{Capsule: w.id, Since: r.Since, Spec: spec, Stopping: true}}
}

// end returns what to commit next for a capsule of which nothing runs.
func end(c *orbit.Capsule) []orbit.Commitment {
	switch {
	case c == nil:
		return nil
	case c.Remains() != nil:
		return []orbit.Commitment{stopped(c)}
	case c.Released():
		return nil
	}
	return []orbit.Commitment{orbit.Release{Capsule: c.ID, Final: true}}
}

// stopped says that what remains of a capsule no longer runs.
func stopped(c *orbit.Capsule) orbit.Commitment {
	return orbit.Confirm{Capsule: c.ID, Since: c.Remains().Since, Stopped: true}
}

// submit returns what submits a capsule that waits.
func (w *want) submit(state *orbit.State) []orbit.Commitment {
	if w.gang != nil {
		return w.gang.submit(state, w)
	}
	return []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{w.id}, Spec: w.spec, Owner: w.owner, At: w.at}}
}

// adopt returns what submits a capsule that runs already.
func (w *want) adopt(state *orbit.State) []orbit.Commitment {
	if w.gang != nil {
		return w.gang.submit(state, w)
	}
	return append(w.submit(state), w.runs())
}

// runs says that the capsule runs on its node.
func (w *want) runs() orbit.Commitment {
	return orbit.Adopt{Capsule: w.id, Node: w.node, At: w.at}
}
