package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// How a node changes hands, from scheduler a to b:
//
//	           Groups            partition ledger of a           Groups
//	group=a ─► leaving=b ─► (a plans nothing there) left=a ─► group=b, leaving and left deleted
//	           bets group    when nothing of a is on its        in one proposal that bets on all three
//	           and leaving   way to the node; bets both
//
// What holds: at every revision one scheduler has the node, the one that the group mark names. What a places bets on
// that mark as a saw it, so nothing of a is committed after the last step, whatever it believes; and nothing of b
// before it. What a has under way when it is asked is committed, since that step waits for the answer.
//
// If the lease of a is over nobody waits: the last step is done at once, with a bet that the lease is still over, and
// the fence refuses what a may have left behind. The same if a is alive and does not answer within Groups.Patience:
// a scheduler that hangs loses its last proposals, which are conflicts to it, and keeps no node. If b is gone before
// it has the node, leaving and left are deleted: it stays with a, or goes to another.

// answers returns a proposal for each node that is to be answered for and to which nothing is on its way. It requires
// the lock.
func (l *PartitionLedger) answers(s *partitionView) []orbit.Proposal {
	if len(s.asked) == 0 || l.sending > 0 {
		return nil
	}
	nodes := make([]orbit.NodeID, 0, len(s.asked))
	for node := range s.asked {
		if !l.goes(node) {
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

// answer sends answers. One that is lost, or of which the outcome is not known, is given again on the next look, unless
// it is there by then.
func (l *PartitionLedger) answer(ctx context.Context, answers []orbit.Proposal) {
	if len(answers) == 0 {
		return
	}
	for i, o := range proposeAll(ctx, l.Ledger, answers) {
		if o.Err != nil && !errors.Is(o.Err, orbit.ErrConflict) && ctx.Err() == nil && l.Hook != nil {
			l.Hook(fmt.Errorf("shard: scheduler %q: %v: %w", l.Scheduler, answers[i].Do[0], o.Err))
		}
	}
}
