package sandbox

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// warmMisfit is why a node cannot take a capsule. It is comparable, so that misfits can be counted; the zero value is a
// node that fits.
type warmMisfit struct {
	kind warmMisfitKind
	// Which requirement, volume or dimension.
	arg int
}

type warmMisfitKind uint8

// In the order in which they are looked for, the most lasting first.
const (
	warmFits warmMisfitKind = iota
	warmGone
	warmUnschedulable
	warmRequirement
	warmModel
	warmParents
	warmFailed
	warmApart
	warmSilent
	warmTemplate
	warmVolume
	warmLease
	warmExpired
	warmStale
	warmNoNumber
	warmSlots
	warmRoom
	warmDevices
)

// misfit returns the first reason for which a node cannot take a capsule, and the zero value if it can. It is the one
// place that says what may be chosen; ranks only put nodes in order.
func (b *warmBooks) misfit(a *warmAsk, i int32) warmMisfit {
	n := &b.nodes[i]
	if n.node == nil {
		return warmMisfit{kind: warmGone}
	}
	if n.node.Node.Unschedulable && !b.over(a, n) {
		return warmMisfit{kind: warmUnschedulable}
	}
	if m := a.lasting(n.node.Node); m != (warmMisfit{}) {
		return m
	}
	if m := a.startable(n); m != (warmMisfit{}) {
		return m
	}
	if a.leases != nil && !b.leased(a, n) {
		return warmMisfit{kind: warmLease}
	}
	switch value, tie := n.rate(a.spec.Start.Template); {
	case n.report.Expired:
		return warmMisfit{kind: warmExpired}
	case n.report.Stale && !b.allowStale:
		return warmMisfit{kind: warmStale}
	case !finite(value) || !finite(tie):
		return warmMisfit{kind: warmNoNumber}
	}
	return a.roomy(n)
}

// over reports whether the node has no live lease. Who keeps the leases cordons it for that: it has died, and is no other
// node than before, so that what was there is unavailable and not unknown.
func (b *warmBooks) over(a *warmAsk, n *warmNode) bool {
	return n.report.Expired || a.leases != nil && !b.leased(a, n)
}

// leased reports whether the ledger has a live term for the node. It requires leases.
func (b *warmBooks) leased(a *warmAsk, n *warmNode) bool {
	_, live := a.leases.In(b.state, string(n.node.Node.ID))
	return live
}

// lasting looks at what a node is, whatever it reports and whatever is free.
func (a *warmAsk) lasting(n *orbit.Node) warmMisfit {
	for k := range a.spec.Require {
		if !a.spec.Require[k].Matches(n.Labels) {
			return warmMisfit{warmRequirement, k}
		}
	}
	switch {
	case !hasDevice(n, &a.spec.Devices):
		return warmMisfit{kind: warmModel}
	case a.not != "" && n.ID == a.not:
		return warmMisfit{kind: warmParents}
	case slices.Contains(a.failed, n.ID):
		return warmMisfit{kind: warmFailed}
	case !a.near.has(n):
		return warmMisfit{kind: warmApart}
	}
	return warmMisfit{}
}

// startable looks at whether what the capsule starts from is there.
func (a *warmAsk) startable(n *warmNode) warmMisfit {
	switch {
	case n.silent():
		return warmMisfit{kind: warmSilent}
	case !n.supports(a.spec.Start.Template):
		return warmMisfit{kind: warmTemplate}
	}
	for k, v := range a.spec.Start.Volumes {
		if !slices.Contains(n.report.Volumes, v) {
			return warmMisfit{warmVolume, k}
		}
	}
	return warmMisfit{}
}

// roomy looks at what is free.
func (a *warmAsk) roomy(n *warmNode) warmMisfit {
	want := &a.spec.Envelope.Reservation
	if n.slots < slotsWanted(want) {
		return warmMisfit{kind: warmSlots}
	}
	switch d := n.short(want); {
	case d == int(orbit.Slots):
		return warmMisfit{kind: warmSlots}
	case d >= 0:
		return warmMisfit{warmRoom, d}
	}
	if _, ok := n.tightest(&a.spec.Devices); !ok {
		return warmMisfit{kind: warmDevices}
	}
	return warmMisfit{}
}

// text completes "n nodes ...".
func (m warmMisfit) text(a *warmAsk, state *orbit.State) string {
	start := &a.spec.Start
	switch m.kind {
	case warmUnschedulable:
		return "are unschedulable"
	case warmRequirement:
		return "do not meet " + a.spec.Require[m.arg].String()
	case warmModel:
		return noModel(&a.spec.Devices)
	case warmParents:
		return "are its parent's"
	case warmFailed:
		return "failed to start it"
	case warmApart:
		return fmt.Sprintf("are in no %s of group %q", a.spec.Near.Level, a.spec.Near.Group)
	case warmSilent:
		return "have never reported"
	case warmTemplate:
		return fmt.Sprintf("do not support template %q", start.Template)
	case warmVolume:
		return fmt.Sprintf("do not have volume %q", start.Volumes[m.arg])
	case warmLease, warmExpired:
		return "have no live lease"
	case warmStale:
		return "have a stale report"
	case warmNoNumber:
		return "have a score that is no number"
	case warmSlots:
		return "have no free slot"
	case warmRoom:
		return "lack " + state.DimensionName(orbit.Dimension(m.arg))
	case warmDevices:
		return noDevices(&a.spec.Devices)
	case warmFits, warmGone:
	}
	return "fit"
}
