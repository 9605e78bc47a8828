package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
	"github.com/orbitsched/orbit/watch"
)

// Local is a [Control] in the process of the ledger. All fields are required; set them before first use. Members.Run
// and Index.Run must be running.
//
//	members := &lease.Members{Leases: &lease.Keeper{Ledger: ledger}}
//	local := &agent.Local{Ledger: ledger, Members: members, Board: &telemetry.Board{Leases: members.Leases}, Index: &watch.Index{Ledger: ledger}}
type Local struct {
	// Ledger is the ledger.
	Ledger orbit.Ledger
	// Members keeps the nodes under leases.
	Members *lease.Members
	// Board takes the reports. Its Leases must be those of Members.
	Board *telemetry.Board
	// Index wakes the calls of Watch whose node has changed. Its Ledger must be Ledger.
	Index *watch.Index
}

// check returns an error that wraps [orbit.ErrInvalid] if a field is missing, or if Board does not use the leases of
// Members.
func (l *Local) check() error {
	switch {
	case l.Ledger == nil || l.Members == nil || l.Members.Leases == nil || l.Board == nil || l.Index == nil:
		return fmt.Errorf("agent: %w: Local needs Ledger, Members with Leases, Board and Index", orbit.ErrInvalid)
	case l.Board.Leases != l.Members.Leases:
		return fmt.Errorf("agent: %w: Local.Board must have the Leases of Local.Members, or reports keep no term alive", orbit.ErrInvalid)
	}
	return nil
}

// Join implements [Control]: it is [lease.Members.Join].
func (l *Local) Join(ctx context.Context, node orbit.Node, holder string) (Lease, error) {
	if err := l.check(); err != nil {
		return Lease{}, err
	}
	term, err := l.Members.Join(ctx, node, holder)
	if running := (*lease.Error)(nil); errors.As(err, &running) && errors.Is(running.Kind, lease.ErrRunning) {
		wait, fence := l.Members.Waits(running)
		return Lease{Wait: wait, Fence: fence}, nil
	}
	return Lease{Term: term.Epoch, Fence: l.Members.Fence()}, err
}

// Leave implements [Control]: it is [lease.Keeper.Yield].
func (l *Local) Leave(_ context.Context, node orbit.NodeID, term orbit.Revision) error {
	if err := l.check(); err != nil {
		return err
	}
	return l.Members.Leases.Yield(lease.Term{Name: string(node), Epoch: term})
}

// Report implements [Control]: it is [telemetry.Board.Report]. If this process does not know yet that the term lives,
// Report waits for up to a second until the leases have read or shared more, because the agent may have reported to
// another process before.
func (l *Local) Report(ctx context.Context, report orbit.Report) error {
	if err := l.check(); err != nil {
		return err
	}
	for wait := firstUnheard; ; wait *= 2 {
		err := l.Board.Report(report)
		if !errors.Is(err, lease.ErrUnheard) || wait > lastUnheard || !send.Pause(ctx, wait) {
			return err
		}
	}
}

// firstUnheard and lastUnheard are the first and the last pause of Report before it tries again.
const firstUnheard, lastUnheard = 20 * time.Millisecond, 640 * time.Millisecond

// Watch implements [Control] by [watch.Index.Node]. If nothing has changed and the ledger can commit nothing
// ([orbit.HealthOf]), the error is [orbit.ErrUnavailable], so that a [Client] with several URLs asks another process.
func (l *Local) Watch(ctx context.Context, node orbit.NodeID, after orbit.Revision) (Work, error) {
	if err := l.check(); err != nil {
		return Work{}, err
	}
	if after != 0 { // a ledger to which nothing was ever committed has no change to wait for
		if _, err := l.Index.Node(ctx, node, after); err != nil {
			if sick := orbit.HealthOf(l.Ledger); sick != nil {
				return Work{}, fmt.Errorf("agent: %w: the ledger can commit nothing: %w", orbit.ErrUnavailable, sick)
			}
			return Work{}, err
		}
	}
	state, err := l.Ledger.Snapshot(ctx)
	if err != nil {
		return Work{}, fmt.Errorf("agent: %w", err)
	}
	return workOf(state, node), nil
}

// Confirm implements [Control]. A statement about an instance that is neither placed on the node nor leaving it is a
// conflict, so that no agent can speak for another node.
func (l *Local) Confirm(ctx context.Context, node orbit.NodeID, term orbit.Revision, said []Statement) []orbit.Outcome {
	out := make([]orbit.Outcome, len(said))
	err := l.check()
	var state *orbit.State
	if err == nil {
		state, err = l.Ledger.Snapshot(ctx)
	}
	var batch []orbit.Proposal
	var at []int
	for i, s := range said {
		if out[i].Err = err; err != nil {
			continue
		}
		p := orbit.Proposal{ID: s.ID, View: state.Revision(), If: []orbit.Precondition{
			orbit.MarkAt{Key: l.Members.Leases.Key(string(node)), Revision: term},
		}}
		if rev := state.Committed(p); rev != 0 { // the statement was committed before, and its instance may be gone by now
			out[i].Revision = rev
		} else if p.Do, out[i].Err = s.commitments(state, node); out[i].Err == nil {
			if s.Fact == Begun && s.Seen != 0 { // the agent starts the task as it was in that Work, so the ledger must refuse a newer spec
				p.View = min(p.View, s.Seen)
			}
			batch, at = append(batch, p), append(at, i)
		}
	}
	for i, o := range send.All(ctx, l.Ledger, batch) {
		if out[at[i]] = o; said[at[i]].Fact == Begun {
			l.giveBack(ctx, &batch[i], o.Err)
		}
	}
	return out
}

// giveBack releases a placement to pending that may not begin because others have overfilled the node. If the release
// fails, the agent says Begun again, and then the release is tried again.
func (l *Local) giveBack(ctx context.Context, begun *orbit.Proposal, why error) {
	r := (*orbit.Rejection)(nil)
	if !errors.As(why, &r) || r.Dimension == "" || r.Node == "" {
		return
	}
	_, _ = l.Ledger.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), View: r.At, If: begun.If, Do: []orbit.Commitment{
		orbit.Release{Capsule: r.Capsule, From: r.Node, At: orbit.Instant(time.Now().UnixNano())},
	}})
}

// commitments returns the commitments of a statement by the agent of a node, or why the statement is refused.
func (s *Statement) commitments(state *orbit.State, node orbit.NodeID) ([]orbit.Commitment, error) {
	c := state.Capsule(s.Capsule)
	placed := c != nil && c.Node == node && c.PlacedAt == s.Since
	leaving := c != nil && (s.isOf(c.Remains(), node) || s.isOf(c.Surge(), node)) // what surges runs on, and is not placed there
	stopped := orbit.Confirm{Capsule: s.Capsule, Since: s.Since, Stopped: true}
	switch {
	case !placed && !leaving:
		return nil, s.refuse(orbit.ErrConflict, state, fmt.Sprintf("%s is neither placed on node %q nor leaves it", s.Instance, node))
	case s.Fact == Begun:
		return []orbit.Commitment{orbit.Confirm{Capsule: s.Capsule, Since: s.Since, Begun: true}}, nil
	case s.Fact == Serves:
		return []orbit.Commitment{orbit.Confirm{Capsule: s.Capsule, Since: s.Since, Ready: true}}, nil
	case s.Fact == NotReady:
		return []orbit.Commitment{orbit.Confirm{Capsule: s.Capsule, Since: s.Since, NotReady: true}}, nil
	case s.Fact == Stopped && placed:
		now := orbit.Instant(time.Now().UnixNano()) // not by the clock of the node, which may be wrong
		return []orbit.Commitment{orbit.Release{Capsule: s.Capsule, From: node, Stopped: true, At: now}}, nil
	case s.Fact == Stopped:
		return []orbit.Commitment{stopped}, nil
	case s.Fact != Finished:
		return nil, s.refuse(orbit.ErrInvalid, state, fmt.Sprintf("there is no fact %.40q", s.Fact))
	case placed && !c.Begun:
		return []orbit.Commitment{orbit.Release{Capsule: s.Capsule, From: node, Final: true}}, nil
	case placed, leaving && !c.Released() && submitted(c) <= s.Since: // otherwise the record is of a new capsule with the same id
		return []orbit.Commitment{orbit.Release{Capsule: s.Capsule, Final: true}, stopped}, nil
	}
	return []orbit.Commitment{stopped}, nil
}

// isOf reports whether the statement is about remains on a node; nil: there are none.
func (s *Statement) isOf(r *orbit.Remains, node orbit.NodeID) bool {
	return r != nil && r.Node == node && r.Since == s.Since
}

// submitted returns the revision at which a capsule was submitted, or a little more if more than 2^20 capsules were
// submitted at one revision.
func submitted(c *orbit.Capsule) orbit.Revision { return orbit.Revision(c.Submitted >> 20) }

func (s *Statement) refuse(kind error, state *orbit.State, why string) error {
	return &orbit.Rejection{Kind: kind, Do: -1, Reason: why, Capsule: s.Capsule, At: state.Revision(), TakenAt: state.Revision()}
}

// compare orders instances by the revision at which they were placed, and then by id.
func (i Instance) compare(o Instance) int {
	return cmp.Or(cmp.Compare(i.Since, o.Since), cmp.Compare(i.Capsule, o.Capsule))
}
