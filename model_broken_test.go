package orbit

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// draftLose takes a member off its node as a loss, or ends it.
func draftLose(s *scribe) []Commitment {
	c := s.some(func(c *Capsule) bool { return c.Gang() != "" && !c.Released() })
	if c.Placed() && !s.chance(5) {
		return []Commitment{Release{Capsule: c.ID, Stopped: true}}
	}
	return []Commitment{Release{Capsule: c.ID, Final: true}}
}

// membersOf returns the members of a gang that are placed, and those that wait.
func membersOf(s *scribe, id GangID) (placed, waiting []*Capsule) {
	for c := range s.view.Members(id) {
		switch {
		case c.Placed():
			placed = append(placed, c)
		case c.Pending():
			waiting = append(waiting, c)
		}
	}
	return placed, waiting
}

// draftReplace evicts a gang, mostly whole, and places what another one lacks, mostly where victims have been.
func draftReplace(s *scribe) (out []Commitment) {
	ids := slices.Clone(modelGangs)
	if s.chance(2) {
		slices.Reverse(ids)
	}
	victims, _ := membersOf(s, ids[0])
	_, waiting := membersOf(s, ids[1])
	for _, v := range victims {
		if !s.chance(12) {
			out = append(out, Evict{Capsule: v.ID, From: v.Node, Since: v.PlacedAt, ForGang: ids[1]})
		}
	}
	for i, c := range waiting {
		place := s.put(c.ID, c.Spec)
		if len(victims) > 0 && !s.chance(4) {
			place.Node = victims[i%len(victims)].Node
		}
		if !s.chance(12) {
			out = append(out, place)
		}
	}
	if len(out) == 0 || s.chance(12) {
		return append(out, draftPlace(s)...)
	}
	return out
}

// draftRebuild takes the members of a gang off their nodes, by releases or moves, and mostly places all of it anew.
func draftRebuild(s *scribe) (out []Commitment) {
	placed, waiting := membersOf(s, pickOne(s, modelGangs))
	moves, lands := s.chance(2), !s.chance(4)
	for _, c := range placed {
		switch {
		case s.chance(16):
			continue
		case moves:
			out = append(out, Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt})
		default:
			out = append(out, Release{Capsule: c.ID, Final: s.chance(16)})
		}
		if lands {
			waiting = append(waiting, c)
		}
	}
	for _, c := range waiting {
		if lands && !s.chance(16) {
			out = append(out, s.put(c.ID, c.Spec))
		}
	}
	if len(out) == 0 {
		return draftGang(s)
	}
	if s.chance(2) { // places may come before the departures that make room for them, but not before those of the capsule itself
		slices.SortStableFunc(out, func(a, b Commitment) int { return cmp.Compare(byCapsule(a), byCapsule(b)) })
	}
	return out
}

func byCapsule(c Commitment) CapsuleID {
	switch c := c.(type) {
	case Place:
		return c.Capsule
	case Evict:
		return c.Capsule
	case Release:
		return c.Capsule
	}
	return ""
}

// TestBrokenGangsAgainstModel is TestLedgerAgainstModel with two gangs that lose members, end them, replace each other
// and start anew above all.
func TestBrokenGangsAgainstModel(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	for total := range scale.Reach(t, "replaced", "rebuilt", "ended", "committed", "conflict", "infeasible", "by a budget", "refused for protection") {
		rapid.Check(t, func(t *rapid.T) {
			d := newDuel(Limits{NeverEvictFrom: rapid.Int32Range(1, 3).Draw(t, "truce from"), NeverEvictTo: rapid.Int32Range(0, 2).Draw(t, "truce to")}, false)
			d.settleGangs(t)
			t.Repeat(d.actions())
			d.lookBack(t)
			total["replaced"] += d.model.replaced
			total["rebuilt"] += d.model.rebuilt
			for _, c := range d.model.capsules {
				total["ended"] += btoi(c.released && c.gang != "")
			}
			for k, n := range d.count {
				total[k] += n
			}
		})
	}
}

// settleGangs lets nodes join and two gangs begin on them, lets most of these lose a member, and chooses the drafts. The
// nodes have little more room than the gangs take.
func (d *duel) settleGangs(t *rapid.T) {
	d.drafts = []draft{
		draftLose, draftLose, draftGang, draftGang, draftGang, draftPlace, draftPlace,
		draftReplace, draftReplace, draftReplace, draftReplace, draftReplace, draftReplace,
		draftRebuild, draftRebuild, draftRebuild, draftRebuild, draftJoin,
		draftEvict, draftProtect, draftBudget, draftNominate, draftConfirm, draftMove, draftChange,
	}
	s := &scribe{T: t, view: d.snapshot()}
	for _, id := range modelNodes {
		d.send(t, Proposal{Do: []Commitment{PutNode{Node{ID: id, Capacity: Resources{CPU: 4 + int64(btoi(s.chance(3))), Memory: 8}, Labels: map[string]string{"rack": "r0"}, Confirms: s.chance(4)}}}})
	}
	ids, nodes := modelCapsules, modelNodes
	var lost []Commitment
	for k, id := range modelGangs {
		g, at := &Gang{ID: id}, []Commitment{}
		for i, n := range []int{1 + btoi(s.chance(2)), btoi(s.chance(2))} {
			if n == 0 {
				continue
			}
			spec := &Spec{Module: "m", Priority: int32(btoi(s.chance(4))), Movable: s.chance(4), Group: modelGroups[k]}
			spec.Envelope.Reservation[CPU] = int64(4 - 2*i)
			g.Roles = append(g.Roles, Role{Spec: spec, Members: ids[:n]})
			for j := range n {
				at = append(at, Place{Capsule: ids[j], Node: nodes[(i+j)%2]})
			}
			ids = ids[n:]
		}
		if s.chance(4) {
			g.Min = len(at)
			for i := range g.Roles {
				g.Roles[i].Min = 1
			}
		}
		d.send(t, Proposal{Do: append([]Commitment{Submit{Gang: g}}, at...)})
		nodes = nodes[2:]
		if place, _ := at[0].(Place); !s.chance(4) {
			lost = append(lost, Release{Capsule: place.Capsule, Stopped: true})
		}
	}
	for _, do := range lost {
		d.send(t, Proposal{Do: []Commitment{do}})
	}
	for _, draft := range []draft{draftBudget, draftProtect} {
		if s.view = d.snapshot(); s.chance(6) {
			d.send(t, Proposal{Do: draft(s)})
		}
	}
	for i := range d.views {
		d.views[i] = d.snapshot()
	}
	s.view = d.snapshot()
	d.send(t, Proposal{View: s.view.rev, Do: pickOne(s, []draft{draftReplace, draftReplace, draftRebuild})(s)})
}
