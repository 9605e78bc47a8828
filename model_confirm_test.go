package orbit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// What the model says of agents: what begins, what has left and still runs, and who waits for that.

// modelRemains is what still runs of a placement that has ended.
type modelRemains struct {
	node        NodeID
	devices     DeviceSet
	since, left Revision
	spec        *Spec
	adopted     bool
}

func (r *modelRemains) String() string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprintf("on %s %b since %d left %d of %s, %v", r.node, r.devices, r.since, r.left, shape(r.spec), r.adopted)
}

// String says what there is in the words of the model.
func (r *Remains) String() string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprintf("on %s %b since %d left %d of %s, %v", r.Node, r.Devices, r.Since, r.Left, shape(r.Spec), r.Adopted)
}

// textOfRemains lists what has left a node and still runs.
func textOfRemains(n *NodeState) string {
	var b strings.Builder
	if n.remains != nil {
		for _, r := range *n.remains {
			fmt.Fprintf(&b, " %s of %p %s,", r.Capsule, r.Spec, r)
		}
	}
	return b.String()
}

// remainsOn are the capsules that have left a node and still run there, in the order of their ids.
func (m *model) remainsOn(id NodeID) (out []CapsuleID) {
	for c, k := range m.capsules {
		if k.remains != nil && k.remains.node == id {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b CapsuleID) int {
		return cmp.Or(cmp.Compare(m.capsules[a].remains.left, m.capsules[b].remains.left), cmp.Compare(a, b))
	})
	return out
}

// endRemains ends what still runs on a node that is lost.
func (m *model) endRemains(id NodeID) {
	for _, c := range m.remainsOn(id) {
		k := m.capsules[c]
		k.remains = nil
		m.capsules[c] = k
	}
}

// leave leaves what has begun on its node, which is not lost.
func (r *modelRound) leave(_ CapsuleID, c *modelCapsule) {
	if c.begun && r.now.nodes[c.node].State != Lost {
		c.remains = &modelRemains{c.node, c.devices, c.placedAt, r.now.rev, c.spec, c.adopted}
	}
	c.begun, c.ready, c.waits, c.adopted, c.protected, c.borrows = false, false, false, false, 0, modelNominee{}
}

func (r *modelRound) confirm(c Confirm) *refusal {
	k, ok := r.now.capsules[c.Capsule]
	if !ok {
		return lostTo(r.was.left.Capsules)
	}
	if no := r.unseen(c.Capsule); no != nil {
		return no
	}
	changed := r.was.capsules[c.Capsule].changed
	if c.Stopped {
		if k.remains == nil || k.remains.since != c.Since {
			return lostTo(max(changed, r.was.left.Remains))
		}
		k.remains = nil
		r.now.capsules[c.Capsule] = k
		return nil
	}
	if _, placed := r.wishes.placed[c.Capsule]; k.node == "" || k.placedAt != c.Since || placed {
		return lostTo(changed)
	}
	if c.Begun && k.begun || c.Ready && k.ready || c.NotReady && !k.ready {
		return lostTo(changed)
	}
	n := r.now.nodes[k.node]
	if !n.Confirms || n.State == Lost {
		return lostTo(max(r.was.nodes[k.node].spec, changed))
	}
	if seen := r.p.View; !k.begun && seen != 0 && k.respecified && changed > seen {
		return lostTo(changed)
	}
	if k.remains != nil {
		return lostTo(max(k.remains.left, changed))
	}
	for _, other := range r.now.remainsOn(k.node) {
		if left := r.now.capsules[other].remains.left; k.waits && left <= k.placedAt {
			return lostTo(max(left, changed))
		}
	}
	if !k.begun && r.overfull(c.Capsule) {
		return lostTo(max(r.was.nodes[k.node].newest(), changed))
	}
	k.begun, k.ready, k.waits, k.changed = true, c.Ready, false, r.now.rev
	r.now.capsules[c.Capsule] = k
	return nil
}

// overfull reports whether a node has too little for a capsule there beside what runs, what stops, and what came before it.
func (r *modelRound) overfull(id CapsuleID) bool {
	own := r.now.capsules[id]
	if own.begun || own.adopted {
		return false
	}
	n, devices, extras := r.now.nodes[own.node], map[int]int{}, map[string]uint64{}
	var room [Dimensions]uint64
	add := func(spec *Spec, set DeviceSet) {
		for d, x := range spec.Envelope.Reservation {
			room[d] = min(room[d]+uint64(x), 1<<63-1)
		}
		for i := range MaxDevices {
			devices[i] += btoi(set.Has(i)) * spec.Devices.Milli
		}
	}
	for _, c := range r.now.capsules {
		if c.node == own.node && (c.begun || c.adopted || c.placedAt < own.placedAt || c.placedAt == own.placedAt && c.submitted <= own.submitted) {
			add(c.spec, c.devices)
			for _, x := range c.spec.Extras {
				extras[x.Name] = min(extras[x.Name]+uint64(x.Amount), 1<<63-1)
			}
		}
	}
	for _, other := range r.now.remainsOn(own.node) {
		left := r.now.capsules[other].remains
		add(left.spec, left.devices)
	}
	for d, x := range own.spec.Envelope.Reservation {
		if x > 0 && room[d] > uint64(n.Capacity[d]) {
			return true
		}
	}
	for i := range MaxDevices {
		if own.devices.Has(i) && devices[i] > 1000 {
			return true
		}
	}
	for _, x := range own.spec.Extras {
		if x.Amount > 0 && extras[x.Name] > uint64(amountOf(n.Extras, x.Name)) {
			return true
		}
	}
	return false
}

// impatient decides who has to wait, and refuses that where nobody waits.
func (r *modelRound) impatient() (out []*refusal) {
	for id, after := range r.wishes.placed {
		c := r.now.capsules[id]
		if c.node == "" {
			continue
		}
		n, remains := r.now.nodes[c.node], r.now.remainsOn(c.node)
		c.waits = len(remains) > 0 && (after || !r.now.fitsBeside(n, &c, remains))
		r.now.capsules[id] = c
		if n.Confirms || !c.waits && c.remains == nil {
			continue
		}
		var left Revision
		if c.remains != nil {
			left = c.remains.left
		} else {
			left = r.now.capsules[remains[0]].remains.left
		}
		if left > r.was.rev {
			left = 0 // it leaves by this proposal
		}
		out = append(out, lostTo(max(left, r.was.capsules[id].changed, r.was.nodes[c.node].newest())))
	}
	return out
}

// fitsBeside reports whether a capsule fits on its node, in what it asks for, beside all that is placed and all that remains.
func (m *model) fitsBeside(n modelNode, c *modelCapsule, remains []CapsuleID) bool {
	used, devices := m.used(n.ID)
	for _, id := range remains {
		other := m.capsules[id]
		for d, x := range other.remains.spec.Envelope.Reservation {
			if used[d] += uint64(x); used[d] > 1<<63 { // so much is too much, whatever is added
				used[d] = 1 << 63
			}
		}
		for i := range devices {
			if other.remains.devices.Has(i) {
				devices[i] += other.remains.spec.Devices.Milli
			}
		}
	}
	for d, want := range c.spec.Envelope.Reservation {
		if want > 0 && used[d] > uint64(n.Capacity[d]) {
			return false
		}
	}
	for i, milli := range devices {
		if c.devices.Has(i) && milli > 1000 {
			return false
		}
	}
	return true
}

// agentDrafts are what fills nodes, and what begins, leaves and stops there.
var agentDrafts = []draft{
	draftConfirm, draftConfirm, draftConfirm, draftConfirm, draftConfirm, draftConfirm, draftFail, draftProtect, draftProtect, draftProtect, draftFailing, draftFailing, draftFailing,
	draftPlace, draftPlace, draftPlace, draftPlace, draftEvict, draftEvict, draftMove, draftMove, draftRelease, draftSubmit, draftRoll, draftQuiet, draftQuiet,
	func(s *scribe) []Commitment { return []Commitment{Release{Capsule: s.some((*Capsule).Placed).ID}} },
	func(s *scribe) []Commitment {
		return []Commitment{Release{Capsule: s.some((*Capsule).Placed).ID, Final: true}}
	},
	func(s *scribe) []Commitment {
		n := s.view.Node(pickOne(s, modelNodes))
		if n == nil || n.Node.State == Lost && !s.chance(4) {
			return draftEmpty(s)
		}
		now := *n.Node
		now.State = pickOne(s, []Condition{Ready, Ready, Cordoned, Cordoned, Lost})
		return []Commitment{PutNode{now}}
	},
}

// draftQuiet takes the agent away from a node where something has begun or still stops, or evicts what is there for something that waits.
func draftQuiet(s *scribe) []Commitment {
	c := s.some(func(c *Capsule) bool { return c.Begun || c.Remains() != nil })
	id := c.Node
	if c.Remains() != nil {
		id = c.Remains().Node
	}
	n := s.view.Node(id)
	if n == nil {
		return draftEvict(s)
	}
	if n.Node.Confirms {
		quiet := *n.Node
		quiet.Confirms = false
		return []Commitment{PutNode{quiet}}
	}
	next := s.some(func(c *Capsule) bool { return c.Pending() && c.Spec.Priority > 0 && c.Gang() == "" })
	if next.Spec == nil {
		return draftSubmit(s)
	}
	var out []Commitment
	for _, v := range slices.SortedFunc(s.view.On(id), func(a, b *Capsule) int { return cmp.Compare(a.ID, b.ID) }) {
		if v.Spec.Priority < next.Spec.Priority {
			out = append(out, Evict{Capsule: v.ID, From: id, Since: v.PlacedAt, For: next.ID})
		}
	}
	return append(out, Place{Capsule: next.ID, Node: id, Devices: DeviceSet(1<<next.Spec.Devices.Count - 1)})
}

// draftRoll ends what is placed and places another in its stead, after it.
func draftRoll(s *scribe) []Commitment {
	old, next := s.some((*Capsule).Placed), s.some((*Capsule).Pending)
	if old.Node == "" || next.Spec == nil {
		return draftConfirm(s)
	}
	return []Commitment{Release{Capsule: old.ID, Final: true}, Place{Capsule: next.ID, Node: old.Node, Devices: DeviceSet(1<<next.Spec.Devices.Count - 1), After: !s.chance(3)}}
}

// employ lets nodes with agents join, and work begin there, so that the duel begins where something is to be ended.
func (d *duel) employ(t *rapid.T) {
	d.drafts = slices.Concat(drafts, agentDrafts, agentDrafts, agentDrafts, agentDrafts, agentDrafts)
	s := &scribe{T: t, view: d.snapshot(), social: d.company}
	for _, id := range modelNodes[:2] {
		n := s.node(id)
		n.Confirms, n.State, n.Capacity = true, Ready, Resources{CPU: 3, Memory: 4, Dimensions - 1: 4}
		d.send(t, Proposal{Do: []Commitment{PutNode{n}}})
	}
	for i, id := range modelCapsules[:6] {
		spec := s.spec()
		spec.Require, spec.Near = nil, Near{}
		d.send(t, Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{id}, Spec: spec}}})
		s.view = d.snapshot()
		place := s.put(id, s.view.Capsule(id).Spec)
		d.send(t, Proposal{View: s.view.rev, Do: []Commitment{place}})
		if c := d.snapshot().Capsule(id); i < 4 && c.Placed() {
			d.send(t, Proposal{Do: []Commitment{Confirm{Capsule: id, Since: c.PlacedAt, Begun: i < 2, Ready: i >= 2}}})
		}
	}
	for i := range d.views {
		d.views[i] = d.snapshot()
	}
}

// TestLedgerAgainstModelAgents: the ledger does what the model does where most of what happens is that work begins, has to leave and stops; and
// at every revision what runs fits ([State.Verify]). In half of the worlds records are dropped all the time.
func TestLedgerAgainstModelAgents(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	for total := range scale.Reach(t, "begun", "ready", "not ready", "waits", "placed beside its remains", "ended with remains", "protected",
		"failed three times in a row", "failed first after a long time", "failed on a node again", "has not begun") {
		rapid.Check(t, func(t *rapid.T) {
			l := Limits{NominatedShare: shares(t)}
			if rapid.Bool().Draw(t, "tiny") {
				l.Terminal = rapid.IntRange(1, 2).Draw(t, "terminal")
			}
			d := newDuel(l, false)
			d.employ(t)
			t.Repeat(d.actions())
			d.lookBack(t)
			for k, n := range d.count {
				total[k] += n
			}
		})
	}
}

// protect protects what the proposal places, or ends that of an older placement.
func (r *modelRound) protect(c Protect) *refusal {
	k, ok := r.now.capsules[c.Capsule]
	switch was := r.was.capsules[c.Capsule]; {
	case !ok:
		return lostTo(r.was.left.Capsules)
	case r.unseen(c.Capsule) != nil:
		return r.unseen(c.Capsule)
	case c.For > 0 && k.spec.Backfills:
		return lostTo(r.was.specAt(c.Capsule))
	case c.For > 0:
		if r.protects == nil {
			r.protects = map[CapsuleID]time.Duration{}
		}
		r.protects[c.Capsule] = c.For
		return nil
	case k.node == "" || k.placedAt != c.Since || k.protected == 0:
		return lostTo(was.changed)
	}
	k.protected, k.changed = 0, r.now.rev
	r.now.capsules[c.Capsule] = k
	return nil
}

// insolent refuses wishes that take off what was protected.
func (r *modelRound) insolent() (out []*refusal) {
	for id := range r.wishes.wished {
		if was := r.was.capsules[id]; was.protected > 0 && r.was.nodes[was.node].State != Lost {
			out = append(out, lostTo(was.changed))
		}
	}
	return out
}

// protectsElse reports whether a proposal protects what it does not place, or anything twice.
func protectsElse(do []Commitment) bool {
	places, protects := map[CapsuleID]bool{}, map[CapsuleID]int{}
	for _, c := range do {
		switch c := c.(type) {
		case Place:
			places[c.Capsule] = true
		case Protect:
			protects[c.Capsule] += btoi(c.For != 0)
		}
	}
	for id, n := range protects {
		if n > 1 || n == 1 && !places[id] {
			return true
		}
	}
	return false
}

// draftProtect places something that is protected, or ends a protection.
func draftProtect(s *scribe) []Commitment {
	if c := s.some(func(c *Capsule) bool { return s.view.Protected(c.ID) > 0 }); c.Placed() && s.chance(2) {
		if s.chance(3) {
			return []Commitment{Protect{Capsule: c.ID, Since: c.PlacedAt}}
		}
		n := s.view.Node(c.Node).Node
		drained := *n
		drained.State = Cordoned
		return pickOne(s, [][]Commitment{{PutNode{drained}}, {Release{Capsule: c.ID}}, {Release{Capsule: c.ID}}, {Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt}, s.put(c.ID, c.Spec)}})
	}
	c := s.some((*Capsule).Pending)
	if c.Spec == nil {
		c = s.some((*Capsule).Placed)
		return []Commitment{Protect{Capsule: c.ID, Since: max(c.PlacedAt, 1)}}
	}
	out := []Commitment{s.put(c.ID, c.Spec), Protect{Capsule: c.ID, For: pickOne(s, []time.Duration{1, time.Second, time.Minute, time.Minute, 10 * time.Minute})}}
	if s.chance(12) {
		slices.Reverse(out)
	}
	return out
}
