package telemetry

import (
	"errors"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// checkTerm returns a refusal if a report does not name the current term of its node.
func (b *Board) checkTerm(r *orbit.Report) *Refusal {
	if b.Leases == nil {
		return nil
	}
	return refusalOf(r, b.Leases.Check(termOf(r)))
}

// refreshTerm refreshes the term that a report names. It returns a refusal if the term has run out since checkTerm.
func (b *Board) refreshTerm(r *orbit.Report) *Refusal {
	if b.Leases == nil {
		return nil
	}
	return refusalOf(r, b.Leases.Refresh(termOf(r)))
}

func termOf(r *orbit.Report) lease.Term { return lease.Term{Name: string(r.Node), Epoch: r.Term} }

// refusalOf returns the refusal of a report for an error of its term; nil: there is none.
func refusalOf(r *orbit.Report, err error) *Refusal {
	var wrong *lease.Error
	if !errors.As(err, &wrong) {
		return nil
	}
	return &Refusal{Kind: wrong.Kind, Node: r.Node, At: r.At, Reason: wrong.Reason, Term: r.Term, Current: wrong.Held.Epoch}
}

// hasTerm reports whether a term of a node's lease is live now.
func (b *Board) hasTerm(node orbit.NodeID, term orbit.Revision) bool {
	live, ok := b.Leases.Live(string(node))
	return ok && live.Epoch == term
}

// followLeases marks each node as changed whose lease has begun, run out or ended since the last call, so that readers
// update Expired. It forgets the nodes whose row has been deleted. The caller must hold the lock.
func (b *Board) followLeases() {
	if b.Leases == nil {
		return
	}
	changed, next, all := b.Leases.Changed(b.leaseCursor)
	b.leaseCursor = next
	if all {
		for e := b.ring.prev; e != nil && e != &b.ring; e = e.prev {
			changed = append(changed, string(e.report.Node))
		}
	}
	for _, name := range changed {
		e := b.nodes[orbit.NodeID(name)]
		switch {
		case e == nil:
		case b.Leases.Known(name):
			b.markChanged(e)
		default:
			b.forget(e.report.Node)
		}
	}
}
