package orbit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// modelGrowth counts the submissions that joined a gang: all, those with an id of a member that is done, those that made a
// role, and those of a gang that runs.
type modelGrowth struct{ joined, again, roles, running int }

// join adds members to a gang: it lists what it has a record of, and what joins.
func (r *modelRound) join(c Submit) *refusal {
	id := c.Gang.ID
	old, ok := r.now.gangs[id]
	if !ok {
		return lostTo(r.was.left.Gangs)
	}
	first := r.now.rev
	for _, k := range r.was.capsules {
		if k.gang == id {
			first = min(first, k.specified)
		}
	}
	if r.p.View != 0 && !r.begun[id] && first < r.now.rev && first > r.p.View {
		return lostTo(first)
	}
	newest := lostTo(r.was.gangs[id].changed)
	if sumOf(r.now.undone(id)) == 0 || c.Gang.Min != 0 && c.Gang.Min != old.Min || len(c.Gang.Levels) > 0 && !slices.Equal(c.Gang.Levels, old.Levels) || c.Gang.Loose && !old.Loose {
		return newest
	}
	again := map[CapsuleID]bool{}
	for _, role := range c.Gang.Roles {
		for _, member := range role.Members {
			again[member] = true
		}
	}
	lowest := r.evicts(modelNominee{gang: id})
	g := *old.Gang
	g.Roles = nil
	for _, role := range old.Roles {
		role.Members = slices.DeleteFunc(slices.Clone(role.Members), func(member CapsuleID) bool {
			k, kept := r.now.capsules[member]
			return !kept || k.gang != id || again[member] && k.released
		})
		g.Roles = append(g.Roles, role)
	}
	joins := 0
	for _, role := range c.Gang.Roles {
		joins += len(role.Members)
		at := roleLike(g.Roles, role)
		switch {
		case at >= len(old.Roles): // of this submission
		case at < 0 && slices.ContainsFunc(old.Roles, func(own Role) bool { return own.Name == role.Name }):
			return newest
		case at >= 0 && role.Min != 0 && role.Min != g.Roles[at].Min:
			return newest
		case at < 0 && (role.Min > len(role.Members) || role.Spec.Priority < lowest):
			return newest
		case at < 0:
			at = len(g.Roles)
			g.Roles = append(g.Roles, Role{Name: role.Name, Spec: role.Spec, Min: role.Min})
		}
		g.Roles[at].Members = append(slices.Clone(g.Roles[at].Members), role.Members...)
	}
	if sumOf(r.now.undone(id))+joins > r.now.limits.GangMembers {
		return newest
	}
	if owners := r.now.ownersOf(old.Gang); c.Owner == "" && len(owners) > 0 {
		c.Owner = owners[0]
	}
	r.now.gangs[id] = modelGang{&g, r.now.rev}
	r.now.unnominate(modelNominee{gang: id}, true)
	for _, role := range c.Gang.Roles {
		at := roleLike(g.Roles, role)
		like := modelCapsule{spec: role.Spec, owner: c.Owner, since: c.At, labels: c.Labels, gang: id, role: at}
		if no := r.submitAll(c, role.Members, like); no != nil {
			return no
		}
	}
	r.now.grew.joined++
	r.now.grew.roles += btoi(len(g.Roles) > len(old.Roles))
	r.now.grew.running += btoi(sumOf(r.now.placed(id)) > 0)
	for member := range again {
		if r.was.capsules[member].gang == id {
			r.now.grew.again++
			break
		}
	}
	return nil
}

// ownersOf are the owners of the members of a gang that have not ended.
func (m *model) ownersOf(g *Gang) (out []string) {
	for _, role := range g.Roles {
		for _, id := range role.Members {
			if k, known := m.capsules[id]; known && k.gang == g.ID && !k.released {
				out = append(out, k.owner)
			}
		}
	}
	return out
}

// roleLike finds the role of the same name and spec.
func roleLike(in []Role, role Role) int {
	shared := func(s *Spec) *Spec {
		s, _ = s.Share()
		return s
	}
	return slices.IndexFunc(in, func(own Role) bool { return own.Name == role.Name && shared(own.Spec) == shared(role.Spec) })
}

// rolesOf writes the roles of a gang with their members.
func rolesOf(g *Gang) string {
	var out []string
	for _, r := range g.Roles {
		out = append(out, fmt.Sprintf("%q of %d/%s %v, at least %d", r.Name, r.Spec.Priority, shape(r.Spec), r.Members, r.Min))
	}
	return strings.Join(out, "; ")
}

// badLabelsOf knows the faults in labels of single capsules that the generator makes.
func badLabelsOf(c Submit) bool {
	for id, labels := range c.LabelsOf {
		if _, nameless := labels[""]; nameless || !slices.Contains(append(membersIn(c), c.IDs...), id) {
			return true
		}
	}
	return false
}

// membersIn are all members of a gang in a submission.
func membersIn(c Submit) (out []CapsuleID) {
	if c.Gang != nil {
		for _, r := range c.Gang.Roles {
			out = append(out, r.Members...)
		}
	}
	return out
}

// draftJoin adds members to a gang that the view shows, or now and then to none: to roles of it, or to a new one. Some
// join under the id of a member that is done, or that the same proposal ends.
func draftJoin(s *scribe) (out []Commitment) {
	g := &GangState{Gang: &Gang{ID: pickOne(s, modelGangs)}}
	if known := s.view.Gang(g.Gang.ID); known != nil {
		g = known
	}
	c := Submit{Join: true, Gang: &Gang{ID: g.Gang.ID}, Owner: pickOne(s, modelOwners), At: s.instant(), Labels: s.labels()}
	if !s.chance(3) {
		c.Gang.Min, c.Gang.Levels = g.Gang.Min, g.Gang.Levels
	}
	if s.chance(16) {
		c.Gang.Min++
	}
	ids := s.fresh(rapid.IntRange(1, 3).Draw(s.T, "members"))
	for k := range s.view.Members(g.Gang.ID) {
		if slices.Contains(ids, k.ID) {
			continue
		}
		switch {
		case k.Released() && !s.chance(3):
			ids = append(ids, k.ID)
		case !k.Released() && s.chance(4):
			out = append(out, Release{Capsule: k.ID, Final: true})
			ids = append(ids, k.ID)
		}
	}
	for len(ids) > 0 {
		n := rapid.IntRange(1, len(ids)).Draw(s.T, "role")
		role := Role{Name: fmt.Sprint(len(g.Gang.Roles) + len(c.Gang.Roles)), Members: ids[:n]}
		if len(g.Gang.Roles) > 0 && !s.chance(4) {
			own := pickOne(s, g.Gang.Roles)
			role.Name, role.Spec = own.Name, own.Spec
			role.Min = pickOne(s, []int{0, own.Min, own.Min})
		}
		if role.Spec == nil || s.chance(24) {
			role.Spec = s.spec()
			role.Spec.Backfills = false
			role.Min = rapid.IntRange(0, n).Draw(s.T, "min")
		}
		if s.chance(24) {
			role.Min++
		}
		c.Gang.Roles, ids = append(c.Gang.Roles, role), ids[n:]
	}
	if s.chance(3) {
		c.LabelsOf = s.labelsOf(&c)
	}
	out = append(out, c)
	if s.chance(3) {
		for _, role := range c.Gang.Roles {
			for _, id := range role.Members {
				if s.chance(2) {
					out = append(out, s.put(id, role.Spec))
				}
			}
		}
	}
	return out
}

// labelsOf are further labels of some of the capsules, and now and then of one that is not submitted.
func (s *scribe) labelsOf(c *Submit) map[CapsuleID]map[string]string {
	out := map[CapsuleID]map[string]string{}
	for _, ids := range c.work {
		for _, id := range ids {
			if s.chance(2) {
				out[id] = s.labels()
				maps.DeleteFunc(out[id], func(key, _ string) bool { return key == "" })
			}
		}
	}
	if s.chance(24) {
		out["c9"] = map[string]string{"uid": "9"}
	}
	return out
}

// draftFounded submits a gang.
func draftFounded(s *scribe) []Commitment {
	return []Commitment{Submit{Gang: s.gang(), Owner: pickOne(s, modelOwners)}}
}

// draftTooFew submits a gang of small members, and places one less than the gang's own minimum.
func draftTooFew(s *scribe) (out []Commitment) {
	g := s.gang()
	g.Min = 0
	out = append(out, Submit{Gang: g, Owner: pickOne(s, modelOwners)})
	for i := range g.Roles {
		role := &g.Roles[i]
		role.Spec, role.Min, g.Min = cpuSpec(1), len(role.Members)-1, g.Min+len(role.Members)
		for _, id := range role.Members[:role.Min] {
			out = append(out, s.put(id, role.Spec))
		}
	}
	return out
}

// TestGrowingGangsAgainstModel is TestLedgerAgainstModel with two gangs whose members are replaced, and that grow, above
// all.
func TestGrowingGangsAgainstModel(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	for total := range scale.Reach(t, "joined", "joined again", "new role", "joined a running gang", "by the minimum of a gang", "committed", "conflict", "infeasible") {
		rapid.Check(t, func(t *rapid.T) {
			d := newDuel(Limits{GangMembers: rapid.IntRange(4, 8).Draw(t, "most"), Terminal: rapid.IntRange(1, 3).Draw(t, "kept")}, false)
			d.settleGangs(t)
			d.drafts = []draft{
				draftJoin, draftJoin, draftJoin, draftJoin, draftJoin, draftLose, draftLose, draftGang, draftGang, draftGang, draftPlace,
				draftFounded, draftFounded, draftTooFew, draftTooFew, draftReplace, draftRebuild, draftEvict, draftNominate, draftConfirm, draftMove, draftChange, draftRelease, draftSubmit,
			}
			t.Repeat(d.actions())
			d.lookBack(t)
			total["joined"] += d.model.grew.joined
			total["joined again"] += d.model.grew.again
			total["new role"] += d.model.grew.roles
			total["joined a running gang"] += d.model.grew.running
			for k, n := range d.count {
				total[k] += n
			}
		})
	}
}
