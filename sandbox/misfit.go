package sandbox

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// misfit is why a node cannot take a capsule. It is comparable, so that misfits can be counted; the zero value
// is a node that fits.
type misfit struct {
	kind misfitKind
	// Which of the capsule's volumes is missing.
	volume int
	// The draft's reason, for the kinds lasting and short.
	ledger orbit.Misfit
}

type misfitKind uint8

// In the order in which they are checked, the most lasting first.
const (
	fits    misfitKind = iota
	lasting            // a rule on the node or on company
	parents
	failed
	silent
	noTemplate
	noVolume
	noLease
	expired
	stale
	noNumber
	noSlots
	short // of room or devices
	misfitKinds
)

// misfit returns the first reason why a node cannot take a capsule; the zero value if it can. Only misfit decides which
// nodes may be chosen; rankings only order them.
func (b *loads) misfit(a *ask, i int32) misfit {
	b.judged++
	node, n := b.draft.Node(int(i)), &b.nodes[i]
	m := b.ledgerMisfit(a, node)
	switch {
	case m != (orbit.Misfit{}) && !m.Short():
		return misfit{kind: lasting, ledger: m}
	case a.not != "" && n.id == a.not:
		return misfit{kind: parents}
	case slices.Contains(a.failed, n.id):
		return misfit{kind: failed}
	}
	if m := a.startable(n); m != (misfit{}) {
		return m
	}
	if a.leases != nil && !b.leased(a, n.id) {
		return misfit{kind: noLease}
	}
	switch value, tie := b.rate(i, a.spec.Start.Template); {
	case n.report.Expired:
		return misfit{kind: expired}
	case n.report.Stale && !b.allowStale:
		return misfit{kind: stale}
	case !finite(value) || !finite(tie):
		return misfit{kind: noNumber}
	}
	want := a.spec.Envelope.Reservation[orbit.Slots]
	switch {
	case n.slots < max(want, 1), want > 0 && node.Free()[orbit.Slots] < want:
		return misfit{kind: noSlots}
	case m.Short():
		return misfit{kind: short, ledger: m}
	}
	return misfit{}
}

// ledgerMisfit returns the draft's reason. A node without a live lease is dead. The keeper of the leases has cordoned
// it for that, but ledgerMisfit judges it as if it were open, so that the reason is the lease: its templates and
// volumes are unavailable, not unknown. A misfit of company comes before a lack of room, because it lasts longer.
func (b *loads) ledgerMisfit(a *ask, node *orbit.NodeState) orbit.Misfit {
	if !node.Node.Schedulable() && b.over(a, node) {
		open, as := *node, *node.Node
		as.State = orbit.Ready
		open.Node, node = &as, &open
	}
	m := b.draft.Misfit(node, a.spec)
	if a.company != nil && m.Short() {
		if apart := b.draft.Misfit(node, a.company); apart != (orbit.Misfit{}) {
			return apart
		}
	}
	return m
}

// over reports whether the node's lease has ended.
func (b *loads) over(a *ask, node *orbit.NodeState) bool {
	return b.nodes[node.Index()].report.Expired || a.leases != nil && !b.leased(a, node.Node.ID)
}

// leased reports whether the ledger has a live term for the node. a.leases must be set.
func (b *loads) leased(a *ask, id orbit.NodeID) bool {
	_, live := a.leases.In(b.state, string(id))
	return live
}

// startable checks that the node has the template and the volumes from which the capsule starts.
func (a *ask) startable(n *nodeLoad) misfit {
	switch {
	case n.neverReported():
		return misfit{kind: silent}
	case !n.supports(a.spec.Start.Template):
		return misfit{kind: noTemplate}
	}
	for k, v := range a.spec.Start.Volumes {
		if !slices.Contains(n.report.Volumes, v) {
			return misfit{kind: noVolume, volume: k}
		}
	}
	return misfit{}
}

// misfitTexts complete "n nodes ...", for misfits that the draft does not know.
var misfitTexts = [misfitKinds]string{
	parents: "are its parent's", failed: "failed to start it", silent: "have never reported",
	noTemplate: "do not support template %q", noVolume: "do not have volume %q",
	noLease: "have no live lease", expired: "have no live lease", stale: "have a stale report",
	noNumber: "have a score that is no number", noSlots: "have no free slot",
}

// forDraft converts the misfit to the draft's type, by which the draft counts nodes.
func (m misfit) forDraft(start *orbit.Start) orbit.Misfit {
	text := misfitTexts[m.kind]
	switch m.kind {
	case fits, lasting, short:
		return m.ledger
	case noTemplate:
		text = fmt.Sprintf(text, start.Template)
	case noVolume:
		text = fmt.Sprintf(text, start.Volumes[m.volume])
	default:
	}
	return orbit.Misfit{Why: text}
}
