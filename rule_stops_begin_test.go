package orbit

import (
	"context"
	"errors"
	"testing"
)

// TestBegunOnOverfullNode begins work on a node on which another party has put some, too: what came last does not begin,
// in what it asks for, and its placement can be given back.
func TestBegunOnOverfullNode(t *testing.T) {
	e := newEndings(t, 10)
	spec := func(r Resources) *Spec { return &Spec{Envelope: Envelope{Reservation: r}} }
	e.commits(PutNode{Node{ID: "n", Capacity: Resources{CPU: 10, Memory: 10}, Confirms: true, Devices: Devices{Model: "m", Count: 2}, Extras: []Extra{{Name: "ip", Amount: 2}}}})
	gpu, ip := spec(Resources{}), spec(Resources{})
	gpu.Devices, ip.Extras = DeviceRequest{Count: 1, Milli: 600}, []Extra{{Name: "ip", Amount: 1}}
	e.commits(Submit{IDs: []CapsuleID{"first", "last"}, Spec: spec(Resources{CPU: 4})}, Submit{IDs: []CapsuleID{"other"}, Spec: spec(Resources{Memory: 9})},
		Submit{IDs: []CapsuleID{"gpu"}, Spec: gpu}, Submit{IDs: []CapsuleID{"ip"}, Spec: ip}, Submit{IDs: []CapsuleID{"late"}, Spec: spec(Resources{CPU: 1})})
	for _, do := range []Place{{Capsule: "first", Node: "n"}, {Capsule: "last", Node: "n"}, {Capsule: "other", Node: "n"}, {Capsule: "gpu", Node: "n", Devices: 1}, {Capsule: "ip", Node: "n"}} {
		e.commits(do)
	}
	theirGPU, theirIP := gpu.Clone(), ip.Clone()
	theirIP.Extras[0].Amount = 2
	e.commits(Adopt{Capsule: "theirs", Spec: spec(Resources{CPU: 6}), Node: "n"}, Adopt{Capsule: "their gpu", Spec: theirGPU, Node: "n", Devices: 1}, Adopt{Capsule: "their ip", Spec: theirIP, Node: "n"})

	refused := func(id CapsuleID, want Rejection) {
		t.Helper()
		var r *Rejection
		_, err := e.l.Propose(context.Background(), Proposal{View: e.now().rev, Do: e.begun(id)})
		if !errors.As(err, &r) || !errors.Is(err, ErrInfeasible) || r.Capsule != id || r.Node != "n" || r.Dimension != want.Dimension || r.dimension != want.dimension || r.Want != want.Want || r.Free != want.Free {
			t.Errorf("capsule %q begins: %v; it must lack %s, want %d, free %d", id, err, want.Dimension, want.Want, want.Free)
		}
		_, err = e.l.Propose(context.Background(), Proposal{View: e.now().rev - 1, Do: e.begun(id)})
		if !errors.Is(err, ErrConflict) {
			t.Errorf("on an older view: %v; it must be a conflict", err)
		}
	}
	refused("last", Rejection{Dimension: "cpu", dimension: CPU + 1, Want: 4})
	refused("gpu", Rejection{Dimension: "device 0", Want: 600, Free: 400})
	refused("ip", Rejection{Dimension: "ip", Want: 1})
	e.commits(e.begun("first")...) // it was there before, and fits beside them
	e.commits(e.begun("other")...) // the memory is not short
	e.refuses("which is ready", Release{Capsule: "first"})
	e.commits(Release{Capsule: "last", From: "n"})
	e.is("pending", "last")
	if f := e.now().Failures("last"); f.Attempts != 0 || len(f.Nodes) != 1 {
		t.Errorf("the placement was given back; the record is %+v, and must have no attempt", f)
	}
	if d := e.now().Node("n").Free()[CPU]; d != 0 {
		t.Fatalf("%d of cpu are free", d)
	}
	e.commits(Release{Capsule: "theirs", Final: true})
	e.commits(Place{Capsule: "late", Node: "n"})
	e.commits(Adopt{Capsule: "more", Spec: spec(Resources{CPU: 5}), Node: "n"})
	e.commits(Confirm{Capsule: "theirs", Since: e.now().Capsule("theirs").Remains().Since, Stopped: true})
	e.commits(e.begun("late")...) // 4 + 5 + 1 of 10
	e.commits(Submit{IDs: []CapsuleID{"shrinks"}, Spec: spec(Resources{Memory: 1})})
	e.commits(Place{Capsule: "shrinks", Node: "n"})
	less := e.now().Node("n").Node.Clone()
	less.Capacity[Memory] = 9
	e.commits(PutNode{less})
	refused("shrinks", Rejection{Dimension: "memory", dimension: Memory + 1, Want: 1})
}
