package orbit

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/quotas"
	"github.com/orbitsched/orbit/internal/scale"
)

// What the model says of queues: everything is worked out anew with rational numbers from the list of queues and the list of
// capsules, whenever it is asked for.

// modelQueue is a queue, and when it was put.
type modelQueue struct {
	Queue
	changed Revision
}

// modelDimensions are the names of the dimensions in quotas.
var modelDimensions = [Dimensions]string{"cpu", "memory", "disk", "slots", "dim4", "dim5", "dim6", "dim7"}

// takes is how much a spec takes of each resource of which queues have amounts, with devices of a model.
func takes(s *Spec, model string) map[string]int64 {
	out := map[string]int64{}
	for d, name := range modelDimensions {
		out[name] = s.Envelope.Reservation[d]
	}
	if model != "" {
		out["device/"+model] = int64(s.Devices.Count * s.Devices.Milli)
	}
	for _, x := range s.Extras {
		out["extra/"+x.Name] += x.Amount
	}
	maps.DeleteFunc(out, func(_ string, x int64) bool { return x == 0 })
	return out
}

// takesNow is what a placed capsule takes.
func (m *model) takesNow(c modelCapsule) map[string]int64 {
	return takes(c.spec, m.nodes[c.node].Devices.Model)
}

// ownUse is what the capsules use that name a queue.
func (m *model) ownUse(id QueueID, resource string) *big.Rat {
	sum := new(big.Rat)
	for _, c := range m.capsules {
		if c.node != "" && c.spec.Queue == id {
			sum = quotas.Plus(sum, new(big.Rat).SetInt64(m.takesNow(c)[resource]))
		}
	}
	return sum
}

// recount is what package quotas says of the model's queues.
func (m *model) recount() *quotas.Queues[QueueID] {
	out := &quotas.Queues[QueueID]{All: map[QueueID]quotas.Queue[QueueID]{}, Own: m.ownUse}
	for id, q := range m.queues {
		out.All[id] = quotas.Queue[QueueID]{Parent: q.Parent, Nominal: q.Nominal, Borrow: q.Borrow, Lend: q.Lend, Weight: q.Weight}
	}
	return out
}

// describeQueues lists the queues in the words of queuesOf.
func (m *model) describeQueues() (out []string) {
	sums := m.recount()
	for _, id := range slices.Sorted(maps.Keys(m.queues)) {
		q := m.queues[id]
		living, waiting := 0, 0
		for _, c := range m.capsules {
			living += btoi(c.spec.Queue == id && !c.released)
			waiting += btoi(c.spec.Queue == id && !c.released && c.node == "")
		}
		out = append(out, fmt.Sprintf("queue %+v put at %d, %d living, %d waiting, share %s", q.Queue, q.changed, living, waiting, sums.Share(id)))
		for _, r := range sums.Divided(id) {
			out = append(out, fmt.Sprintf("queue %s has of %s: subtree %s local %s used %s own %s available %s borrowed %s most %s", id, r, inWord(sums.Subtree(id, r)), inWord(sums.Local(id, r)), inWord(sums.Used(id, r)),
				inWord(m.ownUse(id, r)), inWord(sums.Available(id, r)), inWord(sums.Borrowed(id, r)), inWord(sums.Most(id, r))))
		}
	}
	return out
}

// inWord is a whole number in 64 bits, or the nearest that fits.
func inWord(x *big.Rat) string {
	if !x.IsInt() {
		return "broken: " + x.String()
	}
	n := x.Num()
	switch {
	case n.IsInt64():
		return n.String()
	case n.Sign() < 0:
		return fmt.Sprint(math.MinInt64)
	}
	return fmt.Sprint(math.MaxInt64)
}

// queuesOf lists the queues of a state through its public methods.
func queuesOf(s *State) (out []string) {
	for q := range s.Queues() {
		share := s.Share(q.Queue.ID).String()
		if share != q.Share().String() {
			share += " or " + q.Share().String()
		}
		out = append(out, fmt.Sprintf("queue %+v put at %d, %d living, %d waiting, share %s", q.Queue, q.Changed, q.Living, q.Waiting, share))
		subtree, local, used, own, available, borrowed, most := q.Subtree(), q.Local(), q.Used(), q.Own(), q.Available(), q.Borrowed(), q.Most()
		for _, r := range slices.Sorted(maps.Keys(subtree)) {
			out = append(out, fmt.Sprintf("queue %s has of %s: subtree %d local %d used %d own %d available %d borrowed %d most %d", q.Queue.ID, r, subtree[r], local[r], used[r], own[r], available[r], borrowed[r], most[r]))
		}
	}
	return out
}

// ---- the commitments ----

func badQueue(q Queue) bool {
	for _, list := range []map[string]int64{q.Nominal, q.Borrow, q.Lend} {
		for name, x := range list {
			if x < 0 || name == "device/" || name == "cores" {
				return true
			}
		}
	}
	return q.ID == "" || q.ID == q.Parent || q.Weight < 0 || q.Weight > 1<<20
}

// putQueue puts a queue, below one that there is.
func (r *modelRound) putQueue(q Queue) *refusal {
	if _, ok := r.now.queues[q.Parent]; q.Parent != "" && !ok {
		return anyKind
	}
	r.now.queues[q.ID] = modelQueue{q, r.now.rev}
	delete(r.dropped, q.ID)
	if r.now.misshapen() {
		return badKind
	}
	return nil
}

// removeQueue ends a queue that is nobody's parent.
func (r *modelRound) removeQueue(id QueueID) *refusal {
	if _, ok := r.now.queues[id]; !ok || len(r.now.recount().Children(id)) > 0 {
		return anyKind
	}
	r.dropped[id] = true
	delete(r.now.queues, id)
	return nil
}

// anyKind is a refusal of which the model does not say whether it is a conflict: it is infeasible if the view is not older than
// the state. The form of what badKind refuses is wrong.
var anyKind, badKind = &refusal{math.MaxUint64}, &refusal{math.MaxUint64}

// misshapen reports whether the queues form no trees: a cycle, more than 8 levels, or sums beyond 63 bits.
func (m *model) misshapen() bool {
	sums := m.recount()
	for id := range m.queues {
		if path := sums.Path(id); len(path) > 8 || m.queues[path[len(path)-1]].Parent != "" {
			return true
		}
	}
	for id := range m.queues {
		for _, name := range sums.Divided(id) {
			if sums.Subtree(id, name).Cmp(new(big.Rat).SetInt64(math.MaxInt64)) > 0 {
				return true
			}
		}
	}
	return false
}

// orphaned judges that capsules name queues that there are.
func (r *modelRound) orphaned() (out []*refusal) {
	for id, c := range r.now.capsules {
		if _, ok := r.now.queues[c.spec.Queue]; ok || c.spec.Queue == "" || c.released || r.ends[id] {
			continue
		}
		if r.dropped[c.spec.Queue] || r.respecs[id] && !r.found[id] {
			out = append(out, anyKind)
		}
	}
	return out
}

// asksOf is what a capsule takes of its queue that it did not take before, as far as that is judged.
func (r *modelRound) asksOf(id CapsuleID) map[string]int64 {
	c, was := r.now.capsules[id], r.was.capsules[id]
	if c.node == "" || r.found[id] || r.facts[id] {
		return nil
	}
	if c.placedAt != r.now.rev && sameSpec(was.spec, c.spec) {
		return nil
	}
	asks := r.now.takesNow(c)
	if was.node != "" && was.spec.Queue == c.spec.Queue {
		before := r.was.takesNow(was)
		maps.DeleteFunc(asks, func(name string, x int64) bool { return x <= before[name] })
	}
	return asks
}

// overdrawn refuses what a queue has no quota for: judged on the sum of the proposal, for what comes, grows, or moves to
// another queue.
func (r *modelRound) overdrawn() (out []*refusal) {
	was, now := r.was.recount(), r.now.recount()
	for id, c := range r.now.capsules {
		if queue, _ := now.Overdrawn(was, c.spec.Queue, r.asksOf(id)); queue != "" {
			out = append(out, anyKind)
		}
	}
	return out
}

// reclaims reports whether an eviction is judged by the queues of the two, which differ.
func (r *modelRound) reclaims(newcomer, victim CapsuleID) bool {
	a, b := r.now.capsules[newcomer].spec.Queue, r.was.capsules[victim].spec.Queue
	_, first := r.now.queues[a]
	_, second := r.now.queues[b]
	return a != b && first && second
}

// unjust refuses evictions between queues that take back nothing that was borrowed, or leave the newcomer with more than its share.
func (r *modelRound) unjust() (out []*refusal) {
	for _, at := range r.wishes.victims {
		e := r.p.Do[at].(Evict)
		if r.was.capsules[e.Capsule].borrows == (modelNominee{e.ForGang, e.For}) {
			continue
		}
		for _, id := range r.causes(e) {
			if r.reclaims(id, e.Capsule) && !r.just(id, e.Capsule) {
				out = append(out, anyKind)
			} else if r.reclaims(id, e.Capsule) {
				r.now.reclaimed++
			}
		}
	}
	return out
}

// leavesWith are a victim, and the rest of its gang if that goes whole.
func (r *modelRound) leavesWith(victim CapsuleID) (out []CapsuleID) {
	gang := r.was.capsules[victim].gang
	if gang == "" || !r.goneWhole(gang) {
		return []CapsuleID{victim}
	}
	for _, at := range r.wishes.victims {
		if id := r.p.Do[at].(Evict).Capsule; r.was.capsules[id].gang == gang {
			out = append(out, id)
		}
	}
	return out
}

func (r *modelRound) just(newcomer, victim CapsuleID) bool {
	with := r.now.clone()
	for _, id := range r.leavesWith(victim) {
		with.capsules[id] = r.was.capsules[id]
	}
	e := quotas.Reclaim[QueueID]{Was: r.was.recount(), Now: r.now.recount(), With: with.recount(), By: r.now.capsules[newcomer].spec.Queue, From: r.was.capsules[victim].spec.Queue, Asks: r.asksOf(newcomer)}
	return e.Just()
}

// withoutQuota are the newcomers above a victim that have no quota if it stays, beside the victims that stay already.
func (r *modelRound) withoutQuota(e Evict, over func(CapsuleID) bool, back map[CapsuleID]bool) (out []CapsuleID) {
	if _, ok := r.now.queues[r.was.capsules[e.Capsule].spec.Queue]; !ok {
		return nil
	}
	world := func(stays bool) *quotas.Queues[QueueID] {
		m, newcomers := r.now.clone(), r.newcomers()
		for id := range r.now.capsules {
			_, comes := newcomers[id]
			_, grows := r.grows[id]
			switch {
			case back[id], grows && !over(id), stays && id == e.Capsule:
				m.capsules[id] = r.was.capsules[id]
			case comes && !over(id):
				c := m.capsules[id]
				c.node = ""
				m.capsules[id] = c
			}
		}
		return m.recount()
	}
	with, without := world(true), world(false)
	for id := range r.newcomers() {
		if !over(id) {
			continue
		}
		short := false
		for _, q := range with.Path(r.now.capsules[id].spec.Queue) {
			for name := range r.asksOf(id) {
				short = short || slices.Contains(with.Divided(q), name) && with.Available(q, name).Sign() < 0 && without.Available(q, name).Cmp(with.Available(q, name)) > 0
			}
		}
		if short {
			out = append(out, id)
		}
	}
	return out
}

// ---- random queues ----

var modelQueues = []QueueID{"q0", "q1", "q2", "q3", "q4"}

// amounts are of the resources that the specs ask for; with most, none is above it.
func (s *scribe) amounts(chance int, most int64) map[string]int64 {
	out := map[string]int64{}
	for _, name := range []string{"cpu", "memory", "dim7", "device/A100", "device/T4", "extra/ip"} {
		if !s.chance(chance) {
			continue
		}
		if out[name] = rapid.Int64Range(0, most).Draw(s.T, "amount"); name[0] == 'd' && name[3] != '7' {
			out[name] *= 500
		}
		if s.wild && s.chance(8) {
			out[name] = pickOne(s, []int64{math.MaxInt64, math.MaxInt64 / 2, math.MaxInt64 / 3})
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// draftQueue puts or ends a queue.
func draftQueue(s *scribe) []Commitment {
	id := pickOne(s, modelQueues)
	if s.chance(8) {
		return []Commitment{RemoveQueue{id}}
	}
	q := Queue{ID: id, Nominal: s.amounts(2, 5), Weight: pickOne(s, []int64{0, 1, 2, 3})}
	if s.chance(2) {
		q.Borrow = s.amounts(2, 4)
	}
	if s.chance(2) {
		q.Lend = s.amounts(2, 4)
	}
	var parents []QueueID
	for o := range s.view.Queues() {
		if o.Queue.ID < id || s.chance(12) {
			parents = append(parents, o.Queue.ID)
		}
	}
	if len(parents) > 0 && !s.chance(4) {
		q.Parent = pickOne(s, parents)
	} else if s.chance(12) {
		q.Parent = pickOne(s, modelQueues)
	}
	return []Commitment{PutQueue{q}}
}

// draftRequeue moves a capsule to another queue, or resizes it there.
func draftRequeue(s *scribe) []Commitment {
	c := s.some(func(c *Capsule) bool { return c.Placed() || c.Pending() })
	if c.Spec == nil {
		return draftSubmit(s)
	}
	spec := *c.Spec.Clone()
	if spec.Queue = pickOne(s, modelQueues); s.chance(4) {
		spec.Queue = ""
	}
	if s.chance(3) {
		spec.Envelope.Reservation[CPU] = max(0, spec.Envelope.Reservation[CPU]+pickOne(s, []int64{-1, 1, 2}))
	}
	return []Commitment{Respec{Capsule: c.ID, Since: c.PlacedAt, Spec: &spec, Applied: s.chance(6)}}
}

// draftReclaim places a capsule, and evicts capsules of any queue for it, wherever these are.
func draftReclaim(s *scribe) []Commitment {
	c := s.some((*Capsule).Pending)
	if c.Spec == nil {
		return draftSubmit(s)
	}
	put := s.put(c.ID, c.Spec)
	var out []Commitment
	for v := range s.view.Capsules() {
		if v.Placed() && !s.chance(1+btoi(v.Node != put.Node && v.Spec.Queue == "")) == s.chance(2) && (v.Gang() == "" || v.Gang() != c.Gang()) {
			out = append(out, Evict{Capsule: v.ID, From: v.Node, Since: v.PlacedAt, For: c.ID})
		}
	}
	return append(out, put)
}

// draftTakeBack evicts one capsule of another queue and places a capsule there that waits, as the quotas permit it; if none may leave, it is
// draftReclaim.
func draftTakeBack(s *scribe) []Commitment {
	var just [][]Commitment
	for c := range s.view.Capsules() {
		for v := range s.view.Capsules() {
			if !c.Pending() || !v.Placed() || c.Gang() != "" || c.Spec.Queue == v.Spec.Queue || c.Spec.Queue == "" || v.Spec.Queue == "" {
				continue
			}
			do := []Commitment{Evict{Capsule: v.ID, From: v.Node, Since: v.PlacedAt, For: c.ID}, Place{Capsule: c.ID, Node: v.Node}}
			if reduced, err := s.view.Judge(Proposal{Do: do}); err == nil && len(reduced.Do) == len(do) {
				just = append(just, do)
			}
		}
	}
	if len(just) == 0 {
		return draftReclaim(s)
	}
	return pickOne(s, just)
}

// draftExchange gives the room of one capsule to another that waits.
func draftExchange(s *scribe) []Commitment {
	c := s.some((*Capsule).Placed)
	return append([]Commitment{Release{Capsule: c.ID, Final: s.chance(2), Stopped: true}}, draftPlace(s)...)
}

// quotaDrafts are of what queues decide about, and of what changes them.
var quotaDrafts = []draft{
	draftQueue, draftQueue, draftQueue, draftSubmit, draftSubmit, draftSubmit, draftPlace, draftPlace, draftPlace, draftPlace, draftGang, draftGang, draftAdopt, draftAdopt,
	draftRequeue, draftRequeue, draftRequeue, draftOutgrow, draftRelease, draftExchange, draftExchange, draftReclaim, draftTakeBack, draftTakeBack, draftEvict, draftMove, draftChange, draftConfirm,
}

// draftTree puts some queues at once.
func draftTree(s *scribe) (out []Commitment) {
	for i, id := range modelQueues {
		q := Queue{ID: id, Nominal: s.amounts(2, 6), Weight: pickOne(s, []int64{0, 1, 2, 3})}
		if q.Borrow = s.amounts(4, 4); s.chance(2) {
			q.Borrow = nil
		}
		if q.Lend = s.amounts(4, 4); s.chance(2) {
			q.Lend = nil
		}
		if i > 0 && !s.chance(4) {
			q.Parent = pickOne(s, modelQueues[:i])
		}
		out = append(out, PutQueue{q})
	}
	return out
}

// lineUp is settle for worlds with queues.
func (d *duel) lineUp(t *rapid.T) {
	d.queues = true
	s := &scribe{T: t, view: d.snapshot(), wild: d.wild, queues: true}
	d.send(t, Proposal{Do: draftTree(s)})
	d.settle(t)
	if s.view = d.snapshot(); s.chance(2) {
		d.lend(t, s)
	}
}

// lend fills a node with the work of one queue, which borrows there what a sibling has, and lets work of the sibling wait.
func (d *duel) lend(t *rapid.T, s *scribe) {
	do := []Commitment{PutQueue{Queue{ID: "q0"}}, PutNode{Node{ID: "n3", Capacity: Resources{CPU: 3}}}}
	for _, id := range modelQueues[1:3] {
		do = append(do, PutQueue{Queue{ID: id, Parent: "q0", Nominal: map[string]int64{"cpu": 3}}})
	}
	spec := func(q QueueID) *Spec { return &Spec{Queue: q, Envelope: Envelope{Reservation: Resources{CPU: 1}}} }
	do = append(do, Submit{IDs: []CapsuleID{"c0", "c1", "c2"}, Spec: spec("q1")}, Submit{IDs: []CapsuleID{"c3"}, Spec: spec("q2")})
	d.send(t, Proposal{Do: do})
	for _, id := range []CapsuleID{"c0", "c1", "c2"} {
		d.send(t, Proposal{Do: []Commitment{Place{Capsule: id, Node: "n3"}}})
	}
	d.send(t, Proposal{Do: []Commitment{PutQueue{Queue{ID: "q1", Parent: "q0", Nominal: map[string]int64{"cpu": rapid.Int64Range(0, 3).Draw(t, "own")}}}}})
	if c := d.snapshot().Capsule("c0"); c != nil {
		d.send(t, Proposal{Do: []Commitment{Evict{Capsule: "c0", From: "n3", Since: c.PlacedAt, For: "c3"}, Place{Capsule: "c3", Node: "n3"}}})
	}
}

// TestLedgerAgainstModelQuota: the ledger does what the model does where most specs name a queue: it commits and refuses the
// same, and all amounts of all queues are what the model works out anew, while queues and capsules are put, ended, placed, evicted, found, moved and resized.
func TestLedgerAgainstModelQuota(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	for total := range scale.Reach(t, "committed", "repeated", "conflict", "infeasible", "invalid", "in queues", "borrows", "above the quota", "reclaimed") {
		rapid.Check(t, func(t *rapid.T) {
			d := newDuel(Limits{NominatedShare: shares(t)}, false)
			d.drafts = quotaDrafts
			d.lineUp(t)
			t.Repeat(d.actions())
			d.lookBack(t)
			for k, n := range d.count {
				total[k] += n
			}
		})
	}
}

// TestLedgerAgainstModelQuotaExtremes is the same with quantities around MaxInt64.
func TestLedgerAgainstModelQuotaExtremes(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := newDuel(Limits{NominatedShare: shares(t)}, true)
		d.drafts = quotaDrafts
		d.lineUp(t)
		t.Repeat(d.actions())
		d.lookBack(t)
	})
}

// countQueues counts what happens in queues.
func (d *duel) countQueues() {
	sums := d.model.recount()
	for id := range d.model.queues {
		for _, r := range sums.Divided(id) {
			d.count["in queues"] += btoi(d.model.ownUse(id, r).Sign() > 0)
			d.count["borrows"] += btoi(d.model.queues[id].Parent != "" && sums.Borrowed(id, r).Sign() > 0)
			d.count["above the quota"] += btoi(sums.Available(id, r).Sign() < 0)
		}
	}
}
