package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// The steps by which a node goes from scheduler a to scheduler b:
//
//	           Groups            partition ledger of a           Groups
//	group=a ─► leaving=b ─► (a plans nothing there) left=a ─► group=b, leaving and left deleted
//	           bets group    when no proposal of a is under     in one proposal that bets on all three
//	           and leaving   way to the node; bets both
//
// At every revision one scheduler owns the node: the one that the group mark names. Every placement of a bets on the
// group mark that a has read, so the ledger commits no placement of a after the last step, and none of b before it.
// Proposals that a has under way when it is asked can still be committed, because the last step waits for the answer of
// a.
//
// If the lease of a is over, Groups does not wait: it does the last step at once, with a bet that the lease is still
// over, and the fence refuses proposals that a may still send. It does the same if a lives but does not answer within
// Groups.Patience: a scheduler that hangs gets conflicts for its last proposals, and cannot keep the node. If b dies
// before it owns the node, leaving and left are deleted, and the node stays with a or goes to another scheduler.

// answers returns a proposal with the answer for each leaving node to which no proposal is under way. The caller must
// hold the lock.
func (l *PartitionLedger) answers(s *partitionView) []orbit.Proposal {
	if len(s.asked) == 0 || l.flights.sending > 0 {
		return nil
	}
	nodes := make([]orbit.NodeID, 0, len(s.asked))
	for node := range s.asked {
		if !l.flights.goes(node) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	out := make([]orbit.Proposal, len(nodes))
	for i, node := range nodes {
		h := s.own[node]
		out[i] = orbit.Proposal{
			View: s.state.Revision(),
			Do:   []orbit.Commitment{orbit.Mark{Key: leftMark.key(string(node)), Value: l.Scheduler}},
			If:   []orbit.Precondition{h.bet, orbit.MarkAt{Key: leavingMark.key(string(node)), Revision: h.leaving}},
		}
	}
	return out
}

// answer sends answers. An answer that fails, or whose outcome is not known, is sent again after the next refresh
// unless the ledger has it by then.
func (l *PartitionLedger) answer(ctx context.Context, answers []orbit.Proposal) {
	if len(answers) == 0 {
		return
	}
	for i, o := range send.All(ctx, l.Ledger, answers) {
		if o.Err != nil && !errors.Is(o.Err, orbit.ErrConflict) && ctx.Err() == nil && l.Hook != nil {
			l.Hook(fmt.Errorf("shard: scheduler %q: %v: %w", l.Scheduler, answers[i].Do[0], o.Err))
		}
	}
}
