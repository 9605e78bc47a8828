package ledgertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// This file has helpers that most cases use: for specs and commitments, and for the required outcome of a proposal.

// now returns the present state.
func (t *trial) now() *orbit.State { return t.seenBy(t.ledger) }

// seenBy returns the present state as a handle shows it.
func (t *trial) seenBy(l orbit.Ledger) *orbit.State {
	s, err := l.Snapshot(t.ctx)
	t.Must(err, "snapshot")
	if s == nil {
		t.Failf("snapshot: neither a state nor an error")
	}
	return s
}

// view returns the present revision.
func (t *trial) view() orbit.Revision { return t.now().Revision() }

// commits proposes on the newest view, requires that the proposal is committed, and returns the revision.
func (t *trial) commits(do ...orbit.Commitment) orbit.Revision {
	return t.admits(planned(t.view(), do...))
}

// admits requires that a proposal is committed and that the state afterwards is sound and has reached the revision.
func (t *trial) admits(p orbit.Proposal) orbit.Revision {
	rev, err := t.ledger.Propose(t.ctx, p)
	if err != nil {
		t.Failf("%s must be committed: %w", harness.Describe(p), err)
	}
	s := t.now()
	if rev == 0 || s.Revision() < rev {
		t.Failf("%s was committed at revision %d; a snapshot taken afterwards is at %d", harness.Describe(p), rev, s.Revision())
	}
	t.Must(s.Verify(), "the state after "+harness.Describe(p))
	return rev
}

// refuses requires a rejection of this kind with a receipt, and that nothing changes.
func (t *trial) refuses(kind error, p orbit.Proposal) orbit.Rejection {
	if p.ID.IsZero() {
		p.ID = orbit.NewProposalID()
	}
	before := t.now()
	rev, err := t.either().Propose(t.ctx, p)
	if err == nil {
		t.Failf("%s was committed at revision %d; it must be refused: %v", harness.Describe(p), rev, kind)
	}
	r := t.receipt(kind, p, err)
	if rev != 0 {
		t.Failf("%s was refused, and with revision %d, which must be 0", harness.Describe(p), rev)
	}
	t.unchanged(before, harness.Describe(p)+", which was refused,")
	return r
}

// either returns the handles in turn, because a judgement must not depend on the handle.
func (t *trial) either() orbit.Ledger {
	t.asked++
	return t.handles()[t.asked%len(t.handles())]
}

// receipt requires that an error is a rejection of this kind, and returns it.
func (t *trial) receipt(kind error, p orbit.Proposal, err error) orbit.Rejection {
	var r *orbit.Rejection
	if !errors.Is(err, kind) {
		if err == nil {
			t.Failf("%s must be refused as %q; it was committed", harness.Describe(p), kind)
		}
		t.Failf("%s must be refused as %q; it was refused with: %w", harness.Describe(p), kind, err)
	}
	if !errors.As(err, &r) || r == nil {
		t.Failf("%s was refused without a *orbit.Rejection: %w", harness.Describe(p), err)
	}
	return *r
}

// unchanged requires that the state has not changed.
func (t *trial) unchanged(before *orbit.State, by string) {
	if d := difference(before, t.now()); d != "" {
		t.Failf("%s has changed the state:\n%s", by, d)
	}
}

// mistakes requires that the commitments are infeasible on the newest view.
func (t *trial) mistakes(do ...orbit.Commitment) orbit.Rejection {
	return t.refuses(orbit.ErrInfeasible, planned(t.view(), do...))
}

// invalid requires that the commitments are malformed.
func (t *trial) invalid(do ...orbit.Commitment) {
	t.refuses(orbit.ErrInvalid, orbit.Proposal{View: t.view(), Do: do})
}

// loses requires that the commitments, planned on an older view, are a conflict.
func (t *trial) loses(view orbit.Revision, do ...orbit.Commitment) orbit.Rejection {
	return t.refuses(orbit.ErrConflict, planned(view, do...))
}

// planned returns a proposal that was planned at a revision, with an id of its own.
func planned(view orbit.Revision, do ...orbit.Commitment) orbit.Proposal {
	return orbit.Proposal{ID: orbit.NewProposalID(), View: view, Do: do}
}

// bets returns a proposal that sets a mark if the bets hold.
func bets(view orbit.Revision, bet ...orbit.Precondition) orbit.Proposal {
	return orbit.Proposal{ID: orbit.NewProposalID(), View: view, If: bet, Do: []orbit.Commitment{mark("bet", "won")}}
}

// submitted submits capsules of a spec, in as many proposals as the limits require.
func (t *trial) submitted(spec *orbit.Spec, ids ...orbit.CapsuleID) {
	for len(ids) > 0 {
		n := min(len(ids), t.limits.Capsules)
		t.commits(submit(spec, ids[:n]...))
		ids = ids[n:]
	}
}

// each commits commitments that need not be in one proposal.
func (t *trial) each(do ...orbit.Commitment) {
	most := max(1, t.limits.Commitments/2) // some commitments write two records
	for len(do) > 0 {
		n := min(len(do), most)
		t.commits(do[:n]...)
		do = do[n:]
	}
}

// cpu returns a spec that asks for n of CPU.
func cpu(n int64) *orbit.Spec {
	return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: n}}}
}

// gpu returns a spec that asks for count device instances with this many milli of each.
func gpu(count, each int) *orbit.Spec {
	return &orbit.Spec{Devices: orbit.DeviceRequest{Count: count, Milli: each}}
}

// node describes a node with this much CPU, in a rack of its own.
func node(id orbit.NodeID, room int64) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: room},
		Labels: map[string]string{"rack": "r-" + string(id)}}}
}

// gpuNode describes a node with devices.
func gpuNode(id orbit.NodeID, devices int) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, Devices: orbit.Devices{Model: "m1", Count: devices}}}
}

func submit(spec *orbit.Spec, ids ...orbit.CapsuleID) orbit.Submit {
	return orbit.Submit{IDs: ids, Spec: spec}
}

func place(c orbit.CapsuleID, n orbit.NodeID) orbit.Place { return orbit.Place{Capsule: c, Node: n} }

// placeOn places a capsule on device instances of a node.
func placeOn(c orbit.CapsuleID, n orbit.NodeID, set orbit.DeviceSet) orbit.Place {
	return orbit.Place{Capsule: c, Node: n, Devices: set}
}

// release returns a capsule to pending, which is allowed only on a cordoned or lost node. The function stopped says
// that the capsule has stopped, which is allowed on any node.
func release(c orbit.CapsuleID) orbit.Release { return orbit.Release{Capsule: c} }

func stopped(c orbit.CapsuleID) orbit.Release { return orbit.Release{Capsule: c, Stopped: true} }

// evict takes a capsule off the node that it is on now.
func (t *trial) evict(id orbit.CapsuleID) orbit.Evict {
	c := t.capsule(id)
	return orbit.Evict{Capsule: id, From: c.Node, Since: c.PlacedAt}
}

// lost declares a node lost, with everything that runs on it.
func lost(id orbit.NodeID) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, State: orbit.Lost}}
}

// movable makes a spec consent to moves, and returns it.
func movable(spec *orbit.Spec) *orbit.Spec {
	spec.Movable = true
	return spec
}

// cancel releases a capsule for good.
func cancel(c orbit.CapsuleID) orbit.Release { return orbit.Release{Capsule: c, Final: true} }

func unhold(id orbit.HoldID) orbit.Release { return orbit.Release{Hold: id} }

// hold holds this much CPU on a node.
func hold(id orbit.HoldID, n orbit.NodeID, room int64) orbit.Hold {
	return orbit.Hold{ID: id, Node: n, Room: orbit.Resources{orbit.CPU: room}, For: "holder", Ends: someday}
}

// someday is the end of holds and nominations.
var someday = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

func mark(key, value string) orbit.Mark { return orbit.Mark{Key: key, Value: value} }

// gang submits a gang of one role, of which least members must be placed first; 0: all.
func gang(id orbit.GangID, least int, ids ...orbit.CapsuleID) orbit.Submit {
	return orbit.Submit{Gang: &orbit.Gang{ID: id, Roles: []orbit.Role{{Name: "crew", Spec: cpu(1), Members: ids, Min: least}}}}
}

// ids returns n names with a prefix.
func ids[ID ~string](prefix string, n int) []ID {
	out := make([]ID, n)
	for i := range out {
		out[i] = ID(fmt.Sprintf("%s%04d", prefix, i))
	}
	return out
}

// free returns the free CPU of a node.
func (t *trial) free(id orbit.NodeID) int64 { return t.member(id).Free()[orbit.CPU] }

// member returns a node, which must exist.
func (t *trial) member(id orbit.NodeID) *orbit.NodeState {
	n := t.now().Node(id)
	if n == nil {
		t.Failf("node %q is not a member", id)
	}
	return n
}

// capsule returns a capsule, which must have a record.
func (t *trial) capsule(id orbit.CapsuleID) *orbit.Capsule {
	c := t.now().Capsule(id)
	if c == nil {
		t.Failf("there is no capsule %q", id)
	}
	return c
}

// isOn requires that a capsule is on a node; "": on none.
func (t *trial) isOn(id orbit.CapsuleID, want orbit.NodeID) {
	if c := t.capsule(id); c.Node != want {
		t.Failf("capsule %q is on node %q; it must be on %q", id, c.Node, want)
	}
}
