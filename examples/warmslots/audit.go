package main

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
)

// audit has figures that come from the ledger's history alone. The history is replayed twice: by State.Apply, which
// judges each change by the ledger's rules, and by a recount that uses only the fields below.
type audit struct {
	commits int
	// doubled counts, at all revisions, the placements of capsules that were placed already and the nodes that had more capsules
	// than slots.
	doubled int
	// returned counts the capsules that returned to pending because their host was gone; replaced counts those of them
	// that were placed again later. If a start fails and the gateway chooses another host, that does not count as a
	// return.
	returned, replaced int

	on    map[orbit.CapsuleID]orbit.NodeID
	waits map[orbit.CapsuleID]bool // capsules that wait for another node, because their node was gone
	used  map[orbit.NodeID]int64
	slots map[orbit.NodeID]int64
}

func newAudit() *audit {
	return &audit{on: map[orbit.CapsuleID]orbit.NodeID{}, waits: map[orbit.CapsuleID]bool{}, used: map[orbit.NodeID]int64{}, slots: map[orbit.NodeID]int64{}}
}

// audit replays the history from the empty ledger to the state.
func (p *platform) audit(ctx context.Context, end *orbit.State) (*audit, error) {
	changes, err := p.ledger.Changes(ctx, p.empty.Revision())
	if err != nil {
		return nil, err
	}
	a, state := newAudit(), p.empty
	for len(changes) > 0 && changes[0].Revision <= end.Revision() {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		if state, err = state.Apply(changes[:n]); err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		a.recount(changes[:n])
		changes = changes[n:]
	}
	if err := state.Verify(); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	return a, sameUse(state, end, a)
}

// recount applies one commit. Every sandbox takes one slot.
func (a *audit) recount(commit []orbit.Change) {
	a.commits++
	for i := range commit {
		switch do := commit[i].Do.(type) {
		case orbit.PutNode:
			a.slots[do.Node.ID] = do.Node.Capacity[orbit.Slots]
		case orbit.Release:
			if from := a.on[do.Capsule]; from != "" {
				a.used[from]--
			}
			delete(a.on, do.Capsule)
			if !do.Final && !do.Stopped {
				a.waits[do.Capsule] = true
				a.returned++
			}
		case orbit.Place:
			a.place(do)
		}
	}
	over := map[orbit.NodeID]bool{}
	for i := range commit {
		if n := commit[i].Node; a.used[n] > a.slots[n] && !over[n] {
			over[n] = true
			a.doubled++
		}
	}
}

// place counts a placement.
func (a *audit) place(do orbit.Place) {
	if a.on[do.Capsule] != "" {
		a.doubled++
	}
	if a.waits[do.Capsule] {
		a.replaced++
	}
	delete(a.waits, do.Capsule)
	a.on[do.Capsule] = do.Node
	a.used[do.Node]++
}

// sameUse returns an error if the replayed state, the recount and the ledger differ.
func sameUse(replayed, ledger *orbit.State, a *audit) error {
	for n := range ledger.Nodes() {
		id, used := n.Node.ID, n.Used()[orbit.Slots]
		again := replayed.Node(id)
		if again == nil || again.Used()[orbit.Slots] != used || a.used[id] != used || int64(n.Capsules) != used {
			return fmt.Errorf("replay: %s has %d slots in use by the ledger, %d by the recount", id, used, a.used[id])
		}
	}
	return nil
}
