package ledgertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// What cases say again and again: small worlds, and what a proposal must lead to.

// now is the state at this moment.
func (t *trial) now() *orbit.State { return t.seenBy(t.ledger) }

// seenBy is the state at this moment, through a handle.
func (t *trial) seenBy(l orbit.Ledger) *orbit.State {
	s, err := l.Snapshot(t.ctx)
	t.Must(err, "snapshot")
	if s == nil {
		t.Failf("snapshot: neither a state nor an error")
	}
	return s
}

// view is the newest revision.
func (t *trial) view() orbit.Revision { return t.now().Revision() }

// commits proposes on the newest view and requires success; it returns the revision.
func (t *trial) commits(do ...orbit.Commitment) orbit.Revision {
	return t.admits(planned(t.view(), do...))
}

// admits requires that the proposal is committed, and that the state is sound and at that revision afterwards.
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

// refuses requires this kind of rejection, with a receipt, and that nothing changes.
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

// either is one handle and then the other: a verdict may not depend on who is asked.
func (t *trial) either() orbit.Ledger {
	t.asked++
	return t.handles()[t.asked%len(t.handles())]
}

// receipt requires that an error is a rejection of this kind.
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

// unchanged requires that the state is as it was.
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

// bets makes a proposal that sets a mark, if the bet holds.
func bets(view orbit.Revision, bet ...orbit.Precondition) orbit.Proposal {
	return orbit.Proposal{ID: orbit.NewProposalID(), View: view, If: bet, Do: []orbit.Commitment{mark("bet", "won")}}
}

// submitted adds capsules of a spec, in as many proposals as the limits make of it.
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

// cpu is a spec that asks for so much CPU.
func cpu(n int64) *orbit.Spec {
	return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: n}}}
}

// gpu is a spec that asks for devices.
func gpu(count, each int) *orbit.Spec {
	return &orbit.Spec{Devices: orbit.DeviceRequest{Count: count, Milli: each}}
}

// node has so much CPU and a rack of its own.
func node(id orbit.NodeID, room int64) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: room},
		Labels: map[string]string{"rack": "r-" + string(id)}}}
}

// gpuNode has so many devices.
func gpuNode(id orbit.NodeID, devices int) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, Devices: orbit.Devices{Model: "m1", Count: devices}}}
}

func submit(spec *orbit.Spec, ids ...orbit.CapsuleID) orbit.Submit {
	return orbit.Submit{IDs: ids, Spec: spec}
}

func place(c orbit.CapsuleID, n orbit.NodeID) orbit.Place { return orbit.Place{Capsule: c, Node: n} }

// placeOn places on these device instances.
func placeOn(c orbit.CapsuleID, n orbit.NodeID, set orbit.DeviceSet) orbit.Place {
	return orbit.Place{Capsule: c, Node: n, Devices: set}
}

// release returns to pending, where that may be; stopped does so from any node, because the agent says so.
func release(c orbit.CapsuleID) orbit.Release { return orbit.Release{Capsule: c} }

func stopped(c orbit.CapsuleID) orbit.Release { return orbit.Release{Capsule: c, Stopped: true} }

// evict takes a capsule off the node that it is on now.
func (t *trial) evict(id orbit.CapsuleID) orbit.Evict {
	c := t.capsule(id)
	return orbit.Evict{Capsule: id, From: c.Node, Since: c.PlacedAt}
}

// lost is a node that is gone with all that is on it.
func lost(id orbit.NodeID) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, State: orbit.Lost}}
}

// movable consents to moves.
func movable(spec *orbit.Spec) *orbit.Spec {
	spec.Movable = true
	return spec
}

// cancel releases for good.
func cancel(c orbit.CapsuleID) orbit.Release { return orbit.Release{Capsule: c, Final: true} }

func unhold(id orbit.HoldID) orbit.Release { return orbit.Release{Hold: id} }

// hold keeps so much CPU.
func hold(id orbit.HoldID, n orbit.NodeID, room int64) orbit.Hold {
	return orbit.Hold{ID: id, Node: n, Room: orbit.Resources{orbit.CPU: room}, For: "holder", Ends: someday}
}

// someday is when holds end.
var someday = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

func mark(key, value string) orbit.Mark { return orbit.Mark{Key: key, Value: value} }

// gang has one role, of which so many must be placed first; 0: all.
func gang(id orbit.GangID, least int, ids ...orbit.CapsuleID) orbit.Submit {
	return orbit.Submit{Gang: &orbit.Gang{ID: id, Roles: []orbit.Role{{Name: "crew", Spec: cpu(1), Members: ids, Min: least}}}}
}

// ids are n names with a prefix.
func ids[ID ~string](prefix string, n int) []ID {
	out := make([]ID, n)
	for i := range out {
		out[i] = ID(fmt.Sprintf("%s%04d", prefix, i))
	}
	return out
}

// free is what a node has left of CPU.
func (t *trial) free(id orbit.NodeID) int64 { return t.member(id).Free()[orbit.CPU] }

// member is a node, which must be there.
func (t *trial) member(id orbit.NodeID) *orbit.NodeState {
	n := t.now().Node(id)
	if n == nil {
		t.Failf("node %q is not a member", id)
	}
	return n
}

// capsule is a record, which must be there.
func (t *trial) capsule(id orbit.CapsuleID) *orbit.Capsule {
	c := t.now().Capsule(id)
	if c == nil {
		t.Failf("there is no capsule %q", id)
	}
	return c
}

// isOn requires that the capsule is on the node; "": on none.
func (t *trial) isOn(id orbit.CapsuleID, want orbit.NodeID) {
	if c := t.capsule(id); c.Node != want {
		t.Failf("capsule %q is on node %q; it must be on %q", id, c.Node, want)
	}
}
