package sandbox

import (
	"errors"
	"fmt"
	"maps"

	"github.com/orbitsched/orbit"
)

// Reasons why no node takes a capsule that starts from a template, to be tested with errors.Is. The error is a
// [*WarmNoFit], to be read with errors.As.
var (
	// ErrAllStale: the nodes that could take the capsule do not report, or have no live lease, whether they are
	// cordoned for that already or not. An API would say "unavailable". Bring up a host, or find out why heartbeats do
	// not arrive.
	ErrAllStale = errors.New("all nodes are stale")
	// ErrNoSlot: the nodes that could take the capsule have no free slot, or no room. Bring up a host, or wait.
	ErrNoSlot = errors.New("no free slot")
	// ErrNoVolume: no node has the volumes on its disk. Create them, or bring up the host that has them.
	ErrNoVolume = errors.New("no such volume")
	// ErrNoTemplate: no node supports the template. Build it, or bring up a host that has it.
	ErrNoTemplate = errors.New("no such template")
	// ErrNoParent: the parent of the fork is not placed; if the fork was placed before: its parent is pending. Fork a
	// capsule that runs.
	ErrNoParent = errors.New("parent is not placed")
	// ErrNoOther: the node that failed to start the capsule is the only one that could take it. Bring up another host,
	// or try again. It occurs only in a [StartError].
	ErrNoOther = errors.New("no other node")
	// ErrNoNode: no node that takes new work meets the capsule's requirements on labels and devices, or there is no
	// node at all. Change the requirements, or bring up such a host.
	ErrNoNode = errors.New("no suitable node")
)

// WarmNoFit says why no node takes a capsule. It wraps its kind and, unless the parent is the reason, an [orbit.NoFit]
// with counts of nodes, so that an engine parks the class until a node changes or reports.
type WarmNoFit struct {
	// Kind is one of the sentinels above, such as ErrNoNode; errors.Is finds it.
	Kind error
	// Start is the Spec.Start of the capsule.
	Start orbit.Start
	// Only is the node that a fork is bound to; empty for all other capsules.
	Only orbit.NodeID
	// Fit counts the nodes that were evaluated, by the reason why they do not fit.
	Fit orbit.NoFit
}

// Error reads like `template "code": all nodes are stale: 0 of 3 nodes fit: 3 have a stale report; bring up a
// host, or see why heartbeats do not arrive`.
func (e *WarmNoFit) Error() string {
	what := fmt.Sprintf("template %q", e.Start.Template)
	switch {
	case errors.Is(e.Kind, ErrNoParent):
		return fmt.Sprintf("%s, fork of %q: %v; fork one that runs", what, e.Start.Parent, e.Kind)
	case e.Only != "":
		what = fmt.Sprintf("%s, fork of %q on node %q", what, e.Start.Parent, e.Only)
	case errors.Is(e.Kind, ErrNoVolume):
		what = fmt.Sprintf("%s, volumes %q", what, e.Start.Volumes)
	}
	return fmt.Sprintf("%s: %v: %v; %s", what, e.Kind, &e.Fit, remedies[e.Kind])
}

// remedies say what the reader of an error can do.
var remedies = map[error]string{
	ErrAllStale:   "bring up a host, or see why heartbeats do not arrive",
	ErrNoSlot:     "bring up a host, or wait",
	ErrNoVolume:   "create them, or bring up the host that has them",
	ErrNoTemplate: "build it, or bring up a host that has it",
	ErrNoOther:    "bring up another host, or try again",
	ErrNoNode:     "change what it requires, or bring up such a host",
}

// Unwrap makes errors.Is find the kind, and errors.As the counts.
func (e *WarmNoFit) Unwrap() []error {
	if errors.Is(e.Kind, ErrNoParent) {
		return []error{e.Kind}
	}
	return []error{e.Kind, &e.Fit}
}

// noParent returns the reason for a fork whose parent does not run. It does not park the class: the parent may be
// placed at any time, and no change of a node would bring the class back.
func noParent(spec *orbit.Spec) error { return &WarmNoFit{Kind: ErrNoParent, Start: spec.Start} }

// class is the key by which refusals of plain capsules are cached.
type class struct {
	template string
	room     orbit.Resources
}

// refusal is the cached reason for a class, with the version of the loads and the revision of the ledger for which it
// holds.
type refusal struct {
	why     *WarmNoFit
	version uint64
	at      orbit.Revision
}

// mostRefusals is how many refusals are cached.
const mostRefusals = 1024

// refusal returns why no node takes a capsule. It evaluates all nodes, and caches the result for the class while the
// loads do not change, because often many creates fail at a time. A template that no node supports needs no look at all
// nodes, because the nodes are already counted by kind.
func (b *loads) refusal(a *ask) error {
	key, plain := class{a.spec.Start.Template, a.spec.Envelope.Reservation}, a.plain()
	unknown := plain && b.unsupported(key.template)
	if r := b.refusals[key]; plain && !unknown && r.why != nil && r.version == b.version && r.at == b.state.Revision() {
		return r.why
	}
	counts := map[misfit]int{}
	if unknown {
		counts[misfit{kind: silent}], counts[misfit{kind: noTemplate}] = b.kinds[neverReported], b.kinds[withoutTemplate]
		maps.DeleteFunc(counts, func(_ misfit, n int) bool { return n == 0 })
		for i := range b.cordoned {
			counts[b.misfit(a, i)]++
		}
		return b.explain(a, counts)
	}
	for i := range b.nodes {
		if b.nodes[i].id != "" {
			counts[b.misfit(a, int32(i))]++
		}
	}
	e := b.explain(a, counts)
	if plain {
		if len(b.refusals) >= mostRefusals {
			clear(b.refusals)
		}
		b.refusals[key] = refusal{e, b.version, b.state.Revision()}
	}
	return e
}

// plain reports whether the class alone decides the refusal.
func (a *ask) plain() bool {
	s := a.spec
	return len(a.failed) == 0 && a.company == nil && s.Queue == "" && len(s.Require) == 0 && len(s.Tolerate) == 0 && s.Devices.Count == 0 && s.Start.Parent == "" && len(s.Start.Volumes) == 0
}

// refusalOf returns why the only allowed node does not take a capsule.
func (b *loads) refusalOf(a *ask, node orbit.NodeID) error {
	counts := map[misfit]int{}
	if n := b.state.Node(node); n != nil {
		counts[b.misfit(a, int32(n.Index()))]++
	}
	e := b.explain(a, counts)
	e.Only = node
	return e
}

// explain makes an error of counted misfits. Its kind is the misfit of the nodes that come closest to taking the
// capsule, in this order: nodes that lack only a slot or room, stale ones, nodes that failed to start it, nodes without
// a volume, nodes without the template.
func (b *loads) explain(a *ask, counts map[misfit]int) *WarmNoFit {
	e, said, by := &WarmNoFit{Kind: ErrNoNode, Start: a.spec.Start}, map[orbit.Misfit]int{}, [misfitKinds]int{}
	for m, n := range counts {
		said[m.forDraft(&a.spec.Start)] += n
		by[m.kind] += n
	}
	e.Fit = *b.draft.NoFit(a.spec, said)
	switch {
	case by[noSlots]+by[short] > 0:
		e.Kind = ErrNoSlot
	case by[silent]+by[noLease]+by[expired]+by[stale]+by[noNumber] > 0:
		e.Kind = ErrAllStale
	case by[failed] > 0:
		e.Kind = ErrNoOther
	case by[noVolume] > 0:
		e.Kind = ErrNoVolume
	case by[noTemplate] > 0:
		e.Kind = ErrNoTemplate
	}
	return e
}
