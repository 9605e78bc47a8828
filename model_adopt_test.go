package orbit

import (
	"cmp"
	"maps"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// What the model says of what runs already.

// sameSpec reports whether two specs ask for the same.
func sameSpec(a, b *Spec) bool {
	return string(a.clone().appendKey(nil)) == string(b.clone().appendKey(nil))
}

// specAt is when a capsule got its spec, as far as its record tells.
func (m *model) specAt(id CapsuleID) Revision {
	if c := m.capsules[id]; c.respecified {
		return c.changed
	}
	return m.capsules[id].specified
}

// adopt places what runs.
func (r *modelRound) adopt(a Adopt) *refusal {
	if _, ok := r.now.capsules[a.Capsule]; !ok {
		if a.Spec == nil {
			return lostTo(r.was.left.Capsules)
		}
		if no := r.submitAll(Submit{}, []CapsuleID{a.Capsule}, modelCapsule{spec: a.Spec}); no != nil {
			return no
		}
	}
	if no := r.unseen(a.Capsule); no != nil {
		return no
	}
	c, changed := r.now.capsules[a.Capsule], r.was.capsules[a.Capsule].changed
	switch {
	case c.released:
		return lostTo(changed)
	case r.wishes.evicted[a.Capsule] || r.ends[a.Capsule]:
		return lostTo(0)
	case c.node != "":
		return lostTo(changed)
	case c.remains != nil && c.remains.left > r.was.rev:
		return lostTo(changed)
	case c.remains != nil:
		return lostTo(max(c.remains.left, changed))
	}
	n, ok := r.now.nodes[a.Node]
	spec := cmp.Or(a.Spec, c.spec)
	switch {
	case !ok:
		return lostTo(r.was.left.Nodes)
	case n.State == Lost:
		return lostTo(r.was.nodes[a.Node].spec)
	case a.Devices.Len() != spec.Devices.Count, spec.Backfills && c.gang != "":
		return lostTo(r.was.specAt(a.Capsule))
	}
	for i := range MaxDevices {
		if a.Devices.Has(i) && i >= n.Devices.Count {
			return lostTo(r.was.nodes[a.Node].spec)
		}
	}
	used, _ := r.now.used(a.Node)
	asked := modelAsk{}
	if ask := r.asked[a.Node]; ask != nil {
		asked = *ask
	}
	for d, want := range spec.Envelope.Reservation {
		if max(used[d], asked.room[d])+uint64(want) > math.MaxInt64 {
			return lostTo(max(r.was.nodes[a.Node].newest(), asked.spec))
		}
	}
	r.now.touchNode(a.Node)
	r.now.unnominate(modelNominee{capsule: a.Capsule}, false)
	r.now.unnominate(modelNominee{gang: c.gang}, false)
	c.remember(r.now.limits.PlacementIDs)
	r.arrived[a.Capsule], r.adopts[c.gang], r.found[a.Capsule] = true, true, true
	c.respecified = c.respecified || !sameSpec(spec, c.spec)
	c.spec, c.node, c.devices, c.note, c.at = spec, a.Node, a.Devices, a.Note, a.At
	c.changed, c.placedAt, c.placedBy = r.now.rev, r.now.rev, r.p.ID
	c.adopted, c.begun = true, n.Confirms
	r.now.capsules[a.Capsule] = c
	r.now.touchGang(c.gang)
	return nil
}

// overcommitted are the nodes on which more is taken than there is.
func (m *model) overcommitted() (out []NodeID) {
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		if m.over(m.nodes[id], &modelAsk{room: [Dimensions]uint64{1, 1, 1, 1, 1, 1, 1, 1}, devices: math.MaxUint16}) || m.extrasOver(m.nodes[id]) {
			out = append(out, id)
		}
	}
	return out
}

// draftAdopt finds something that runs: what waits, what is unknown, and now and then what is known or has ended. It finds members of
// a gang that waits together.
func draftAdopt(s *scribe) (out []Commitment) {
	adopt := func(id CapsuleID) {
		c, a := s.view.Capsule(id), Adopt{Capsule: id, Node: pickOne(s, modelNodes), At: s.instant(), Note: pickOne(s, []string{"", "found"})}
		if nodes := slices.Collect(s.view.Nodes()); len(nodes) > 0 && !s.chance(6) {
			a.Node = pickOne(s, nodes).Node.ID
		}
		spec := s.spec()
		if c != nil && c.Spec != nil && s.chance(2) {
			spec = c.Spec
		}
		if c == nil || spec != c.Spec || s.chance(3) {
			a.Spec = spec
		}
		if a.Devices = DeviceSet(1<<spec.Devices.Count - 1); s.chance(3) {
			a.Devices <<= 1
		}
		if c != nil && c.Placed() && !s.chance(3) {
			out = append(out, Release{Capsule: id, Stopped: s.chance(2)})
		}
		out = append(out, a)
		if s.chance(8) { // it ends at once, and another takes its id
			out = append(out, Release{Capsule: id, Final: true}, Submit{IDs: []CapsuleID{id}, Spec: s.spec()})
		}
	}
	if g := s.view.Gang(pickOne(s, modelGangs)); g != nil && s.chance(3) {
		for m := range s.view.Members(g.Gang.ID) {
			if m.Pending() && s.chance(2) {
				adopt(m.ID)
			}
		}
	}
	if c := s.some((*Capsule).Pending); len(out) == 0 && s.chance(2) {
		adopt(c.ID)
	} else if len(out) == 0 {
		adopt(pickOne(s, modelCapsules))
	}
	if s.chance(4) {
		out = append(out, draftPlace(s)...)
	}
	return out
}

// TestLedgerAgainstModelAdopt: the ledger does what the model does where most of what happens is that something is found running or
// changes its size; and at every revision the state is sound, whatever was found ([State.Verify]).
func TestLedgerAgainstModelAdopt(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	for total := range scale.Reach(t, "adopted", "with another spec", "overcommitted", "regrouped", "evicted for a growth", "regrouped while it stops") {
		rapid.Check(t, func(t *rapid.T) {
			d := newDuel(Limits{NominatedShare: shares(t)}, rapid.Bool().Draw(t, "wild"))
			d.employ(t)
			d.drafts = slices.Concat(drafts, adoptDrafts, adoptDrafts, adoptDrafts, adoptDrafts)
			t.Repeat(d.actions())
			d.lookBack(t)
			for k, n := range d.count {
				total[k] += n
			}
			total["regrouped"] += d.model.regrouped
			total["evicted for a growth"] += d.model.outgrown
			total["regrouped while it stops"] += d.model.restopped
		})
	}
}

// adoptDrafts are what is found, and what happens to it.
var adoptDrafts = []draft{
	draftAdopt, draftAdopt, draftAdopt, draftRespec, draftRespec, draftRespec, draftRespec, draftOutgrow, draftOutgrow, draftSubmit, draftPlace, draftPlace, draftConfirm, draftRelease, draftMove, draftEvict, draftChange,
}

// respec gives a capsule another spec.
func (r *modelRound) respec(z Respec) *refusal {
	c, ok := r.now.capsules[z.Capsule]
	if !ok {
		return lostTo(r.was.left.Capsules)
	}
	if no := r.unseen(z.Capsule); no != nil {
		return no
	}
	if z.Stopping {
		return r.respecStopping(z, c)
	}
	changed, specified := r.was.capsules[z.Capsule].changed, r.was.specAt(z.Capsule)
	grow, shrinks := *c.growth(z.Spec), c.spec.shrinks(z.Spec)
	r.facts[z.Capsule], r.respecs[z.Capsule] = z.Applied && c.node != "", r.respecs[z.Capsule] || !sameSpec(z.Spec, c.spec)
	switch {
	case c.released, (z.Since == 0) != (c.node == ""), z.Since != 0 && z.Since != c.placedAt, z.Spec.Backfills && c.gang != "":
		return lostTo(changed)
	case c.node == "":
	case z.Spec.Devices.Count != c.spec.Devices.Count || z.Spec.Devices.Milli != c.spec.Devices.Milli:
		return lostTo(specified)
	case c.borrows != modelNominee{} && !z.Spec.Backfills, z.Spec.Backfills && c.protected > 0, c.begun && shrinks && !z.Applied:
		return lostTo(changed)
	case r.now.nodes[c.node].State == Lost:
		return lostTo(r.was.nodes[c.node].spec)
	}
	was := c.spec
	c.spec, c.respecified, c.changed = z.Spec, true, r.now.rev
	if c.node == "" {
		r.now.unnominate(modelNominee{capsule: z.Capsule}, true)
		if c.gang != "" {
			r.now.unnominate(modelNominee{gang: c.gang}, true)
			r.now.touchGang(c.gang)
		}
		r.now.capsules[z.Capsule] = c
		return nil
	}
	if no := r.take(c.node, grow.Envelope.Reservation, 0, specified); no != nil {
		return no
	}
	r.now.respecified++
	r.now.regrouped += btoi(!slices.Equal(modelGroupsOf(was), modelGroupsOf(z.Spec)))
	c.adopted = c.adopted || z.Applied && c.grows(&grow)
	r.now.capsules[z.Capsule] = c
	if z.Applied {
		for d, x := range grow.Envelope.Reservation { // a fact asks for nothing
			r.asked[c.node].room[d] -= uint64(x)
		}
		return nil
	}
	a := r.asker(z.Capsule, z.Spec, c.gang, 0)
	a.room, a.milli, a.ranked = grow.Envelope.Reservation, 0, modelNomination{}
	a.newest = changed
	r.ask(c.node, a)
	if c.grows(&grow) {
		r.grows[z.Capsule] = grow
	}
	return nil
}

// respecStopping gives another spec to what still runs of a capsule.
func (r *modelRound) respecStopping(z Respec, c modelCapsule) *refusal {
	if c.remains == nil || c.remains.since != z.Since {
		return lostTo(max(r.was.capsules[z.Capsule].changed, r.was.left.Remains))
	}
	was := &modelCapsule{spec: c.remains.spec}
	if grow := was.growth(z.Spec); was.grows(grow) || was.spec.shrinks(z.Spec) || z.Spec.Devices.Count != was.spec.Devices.Count || z.Spec.Devices.Milli != was.spec.Devices.Milli {
		return lostTo(c.remains.left)
	}
	now := *c.remains
	now.spec = z.Spec
	c.remains = &now
	r.now.capsules[z.Capsule] = c
	r.now.restopped += btoi(!slices.Equal(modelGroupsOf(was.spec), modelGroupsOf(z.Spec)))
	return nil
}

// growth is what a capsule takes more with another spec.
func (c *modelCapsule) growth(to *Spec) *Spec {
	out := &Spec{}
	for d, x := range to.Envelope.Reservation {
		out.Envelope.Reservation[d] = max(0, x-c.spec.Envelope.Reservation[d])
	}
	for _, name := range []string{"ip", "key"} {
		if more := modelAmount(to.Extras, name) - modelAmount(c.spec.Extras, name); more > 0 {
			out.Extras = append(out.Extras, Extra{name, more})
		}
	}
	return out
}

// grows reports whether there is something in a growth.
func (c *modelCapsule) grows(by *Spec) bool {
	return len(by.Extras) > 0 || by.Envelope.Reservation != Resources{}
}

// shrinks reports whether another spec takes less of something.
func (s *Spec) shrinks(to *Spec) bool {
	back := (&modelCapsule{spec: to}).growth(s)
	return len(back.Extras) > 0 || back.Envelope.Reservation != Resources{}
}

// glutted refuses what takes more of an extra than there is beside all that is there, and still runs there.
func (r *modelRound) glutted() (out []*refusal) {
	for id, grow := range r.grows {
		c := r.now.capsules[id]
		for _, x := range grow.Extras {
			if r.now.taken(c.node, x.Name, func(CapsuleID, bool) bool { return true }) > modelAmount(r.now.nodes[c.node].Extras, x.Name) {
				out = append(out, lostTo(max(r.was.nodes[c.node].newest(), r.asked[c.node].spec)))
			}
		}
	}
	return out
}

// bloated refuses what grows and does not fit beside what still stops.
func (r *modelRound) bloated() (out []*refusal) {
	for id, grow := range r.grows {
		c := r.now.capsules[id]
		used, _ := r.now.used(c.node)
		for d, want := range grow.Envelope.Reservation {
			sum, stops := new(big.Int).SetUint64(used[d]), false
			for _, other := range r.now.remainsOn(c.node) {
				x := r.now.capsules[other].remains.spec.Envelope.Reservation[d]
				sum.Add(sum, big.NewInt(x))
				stops = stops || x > 0
			}
			if want > 0 && stops && sum.Cmp(big.NewInt(r.now.nodes[c.node].Capacity[d])) > 0 {
				out = append(out, lostTo(max(r.was.nodes[c.node].newest(), r.was.capsules[id].changed)))
			}
		}
	}
	return out
}

// respecsElse reports whether a proposal names a capsule a second time that gets another spec.
func respecsElse(do []Commitment) bool {
	named, respecified := map[CapsuleID]int{}, map[CapsuleID]bool{}
	for _, c := range do {
		switch c := c.(type) {
		case Respec:
			named[c.Capsule]++
			respecified[c.Capsule] = true
		case Submit:
			for _, id := range c.IDs {
				named[id]++
			}
			if c.Gang != nil {
				for _, role := range c.Gang.Roles {
					for _, id := range role.Members {
						named[id]++
					}
				}
			}
		case Place:
			named[c.Capsule]++
		case Adopt:
			named[c.Capsule]++
		case Release:
			named[c.Capsule]++
		case Evict:
			named[c.Capsule]++
		case Confirm:
			named[c.Capsule]++
		case Protect:
			named[c.Capsule]++
		case Assign:
			named[c.Capsule]++
		case Nominate:
			named[c.Capsule]++
		}
	}
	for id := range respecified {
		if named[id] > 1 {
			return true
		}
	}
	return false
}

// draftRespecStopping gives other groups and rules to a capsule that stops; nil: none does.
func draftRespecStopping(s *scribe) []Commitment {
	c := s.some(func(c *Capsule) bool { return c.Remains() != nil })
	if c.Spec == nil {
		return nil
	}
	spec, other := *c.Remains().Spec.Clone(), s.spec()
	spec.Group, spec.Groups, spec.Even, spec.Apart, spec.Near = other.Group, other.Groups, other.Even, other.Apart, other.Near
	if s.chance(4) {
		spec.Extras, spec.Devices = other.Extras, other.Devices
	}
	if s.chance(4) {
		spec.Envelope.Reservation[CPU]++
	}
	z := Respec{Capsule: c.ID, Since: c.Remains().Since, Spec: &spec, Stopping: true, Applied: s.chance(12)}
	if s.chance(12) {
		z.Since = c.PlacedAt
	}
	return []Commitment{z}
}

// draftRespec gives a capsule another spec: another size most often, or other groups, rules, rank or extras.
func draftRespec(s *scribe) []Commitment {
	if s.chance(3) {
		if do := draftRespecStopping(s); do != nil {
			return do
		}
	}
	c := s.some(func(c *Capsule) bool { return c.Placed() || c.Pending() && s.chance(2) })
	if c.Spec == nil {
		return draftSubmit(s)
	}
	spec := *c.Spec.Clone()
	for _, d := range []int{CPU, Memory, Dimensions - 1} {
		if now := spec.Envelope.Reservation[d]; s.chance(2) {
			spec.Envelope.Reservation[d] = max(0, now+pickOne(s, []int64{-2, -1, 1, 1, 1, 2}))
			if s.wild && s.chance(6) {
				spec.Envelope.Reservation[d] = s.quantity(9)
			}
		}
	}
	other := s.spec()
	if s.chance(2) {
		spec.Priority = rapid.Int32Range(0, 2).Draw(s.T, "priority")
	}
	if s.chance(3) {
		spec.Group, spec.Groups, spec.Even, spec.Apart, spec.Near = other.Group, other.Groups, other.Even, other.Apart, other.Near
	}
	if s.chance(4) {
		spec.Module, spec.Movable, spec.Require, spec.Tolerate = other.Module, other.Movable, other.Require, other.Tolerate
	}
	if s.chance(4) {
		spec.Extras = other.Extras
	}
	if s.chance(6) {
		spec.Backfills, spec.RunsAtMost = other.Backfills, other.RunsAtMost
	}
	if s.chance(12) || c.Pending() && s.chance(3) {
		spec = *other
	}
	z := Respec{Capsule: c.ID, Spec: &spec, Applied: s.chance(2)}
	if c.Placed() != s.chance(12) {
		z.Since = c.PlacedAt
	}
	out := []Commitment{z}
	for v := range s.view.On(c.Node) { // one that is in its way
		if v.ID != c.ID && c.Placed() && s.chance(4) {
			out = append(out, Evict{Capsule: v.ID, From: v.Node, Since: v.PlacedAt, For: c.ID})
		}
	}
	return out
}

// draftOutgrow lets what is placed grow beyond what is free, and evicts others on the node for it.
func draftOutgrow(s *scribe) []Commitment {
	c := s.some(func(c *Capsule) bool {
		n := s.view.Node(c.Node)
		return n != nil && n.Capsules > 1
	})
	if c.Spec == nil {
		return draftPlace(s)
	}
	n, spec := s.view.Node(c.Node), c.Spec.Clone()
	d := pickOne(s, []int{CPU, Memory})
	spec.Envelope.Reservation[d] += max(0, n.Free()[d]) + 1
	spec.Priority = rapid.Int32Range(1, 3).Draw(s.T, "priority")
	out := []Commitment{Respec{Capsule: c.ID, Since: c.PlacedAt, Spec: spec}}
	for v := range s.view.On(c.Node) {
		if v.ID != c.ID && v.Spec.Priority < spec.Priority && !v.Begun {
			out = append(out, Evict{Capsule: v.ID, From: v.Node, Since: v.PlacedAt, For: c.ID})
		}
	}
	return out
}

// modelMeets knows the requirements that the generator makes.
func modelMeets(n Node, p Predicate) bool {
	if p.Op == "AnyOf" {
		for _, term := range p.Terms {
			all := true
			for _, q := range term {
				all = all && modelMeets(n, q)
			}
			if all {
				return true
			}
		}
		return false
	}
	value := n.Labels[p.Key]
	if p.Key == NodeKey {
		value = string(n.ID)
	}
	return slices.Contains(p.Values, value)
}

// modelKeptOff reports whether a taint with one of these effects keeps a spec off a node.
func modelKeptOff(n Node, s *Spec, effects ...string) bool {
	for _, t := range n.Taints {
		tolerated := false
		for _, o := range s.Tolerate {
			key, effect := o.Key == "" || o.Key == t.Key, o.Effect == "" || o.Effect == t.Effect
			tolerated = tolerated || key && effect && (o.Op == "Exists" || o.Value == t.Value)
		}
		if slices.Contains(effects, t.Effect) && !tolerated {
			return true
		}
	}
	return false
}

// modelExpels reports whether a capsule of a spec that runs on a node may be moved away because of its taints.
func modelExpels(n Node, s *Spec) bool {
	stays := *s
	stays.Tolerate = slices.DeleteFunc(slices.Clone(s.Tolerate), func(o Toleration) bool { return o.For > 0 })
	return modelKeptOff(n, &stays, "NoExecute")
}
