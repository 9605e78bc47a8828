package whatif

import (
	"slices"
	"sort"

	"github.com/orbitsched/orbit"
)

// gangCut is one way to reduce the request of one role of a gang, by an amount up to most.
type gangCut struct {
	*gangAsker
	role int
	most int64
	// change reduces the role's request by an amount, and notes the reduction in the fix.
	change func(f *GangFix, r *orbit.Role, by int64)
	// amount returns the amount that a fix of this cut has.
	amount func(f *GangFix) int64
}

// cuts lists the ways to reduce the request of a gang: in one role, less of one resource, fewer devices, one
// requirement less, or a lower minimum. It returns none unless all members of the gang wait.
func (a *gangAsker) cuts() (out []gangCut) {
	gang := a.gang.Gang
	for i := range gang.Roles {
		for _, id := range gang.Roles[i].Members {
			if c := a.state.Capsule(id); c == nil || c.Gang() != gang.ID || !c.Pending() || c.Spec != gang.Roles[i].Spec {
				return nil
			}
		}
	}
	for i := range gang.Roles {
		role := &gang.Roles[i]
		cut := func(most int64, amount func(f *GangFix) int64, change func(f *GangFix, r *orbit.Role, by int64)) {
			if most > 0 {
				out = append(out, gangCut{a, i, most, change, amount})
			}
		}
		for d, want := range role.Spec.Envelope.Reservation {
			cut(want, func(f *GangFix) int64 { return f.Less[d] }, func(f *GangFix, r *orbit.Role, by int64) {
				f.Less[d], r.Spec.Envelope.Reservation[d] = by, want-by
			})
		}
		for k, x := range role.Spec.Extras {
			cut(x.Amount, func(f *GangFix) int64 { return f.LessExtra.Amount }, func(f *GangFix, r *orbit.Role, by int64) {
				f.LessExtra, r.Spec.Extras = orbit.Extra{Name: x.Name, Amount: by}, slices.Clone(r.Spec.Extras)
				if r.Spec.Extras[k].Amount -= by; by == x.Amount {
					r.Spec.Extras = slices.Delete(r.Spec.Extras, k, k+1)
				}
			})
		}
		cut(int64(role.Spec.Devices.Count), func(f *GangFix) int64 { return int64(f.FewerDevices) }, func(f *GangFix, r *orbit.Role, by int64) {
			if f.FewerDevices, r.Spec.Devices.Count = int(by), r.Spec.Devices.Count-int(by); r.Spec.Devices.Count == 0 {
				r.Spec.Devices = orbit.DeviceRequest{}
			}
		})
		for k, p := range role.Spec.Require {
			cut(1, func(f *GangFix) int64 { return int64(len(f.Drop)) }, func(f *GangFix, r *orbit.Role, _ int64) {
				f.Drop, r.Spec.Require = []orbit.Predicate{p}, slices.Delete(slices.Clone(r.Spec.Require), k, k+1)
			})
		}
		cut(int64(wanted(role))-1, func(f *GangFix) int64 { return int64(f.FewerMembers) }, func(f *GangFix, r *orbit.Role, by int64) {
			f.FewerMembers, r.Min = int(by), wanted(r)-int(by)
		})
	}
	if gang.Min > 0 {
		out = append(out, gangCut{a, 0, int64(gang.Min) - 1, func(f *GangFix, _ *orbit.Role, by int64) {
			f.FewerMembers, f.Role = int(by), ""
			f.Gang.Min -= int(by)
		}, func(f *GangFix) int64 { return int64(f.FewerMembers) }})
	}
	return out[:min(len(out), mostCuts)]
}

// find searches for the smallest amount of the cut that makes the gang fit in a domain. It must be smaller than the
// amount of best; nil: there is none.
func (c gangCut) find(p *gangPlace, best *GangFix) *GangFix {
	most := c.most
	if best != nil {
		most = c.amount(best) - 1
	}
	if most < 1 {
		return nil
	}
	last := c.by(p, most)
	if last == nil {
		return nil
	}
	n := 1 + sort.Search(int(most-1), func(i int) bool { return c.by(p, int64(i)+1) != nil })
	return c.by(p, int64(n))
}

// by returns the fix that reduces the request by an amount; nil: the gang does not fit then.
func (c gangCut) by(p *gangPlace, amount int64) *GangFix {
	gang := c.gang.Gang.Clone()
	role := &gang.Roles[c.role]
	spec := role.Spec.Clone()
	role.Spec = spec
	f := &GangFix{Role: role.Name, Gang: gang}
	c.change(f, role, amount)
	shared, err := spec.Share()
	if err != nil {
		return nil
	}
	role.Spec = shared
	needs := needsOf(c.state, c.gang, gang)
	if !needs.Enough(used(c.gang, gang)) {
		return nil
	}
	if f.places = c.seat(c.index, p.nodes, &needs, nil); f.places == nil {
		return nil
	}
	again := orbit.Submit{Gang: gang, LabelsOf: map[orbit.CapsuleID]map[string]string{}}
	for i := range gang.Roles {
		for _, id := range gang.Roles[i].Members {
			like := c.state.Capsule(id)
			again.Owner, again.At = like.Owner(), like.SubmitTime()
			if labels := like.Labels(); len(labels) > 0 {
				again.LabelsOf[id] = labels
			}
			f.before = append(f.before, orbit.Release{Capsule: id, Final: true})
		}
	}
	f.before = append(f.before, again)
	return f
}
