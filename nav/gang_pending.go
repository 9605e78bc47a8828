package nav

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/victims"
)

// pendingGang is a gang and those of its members that wait, whether they were handed over or not.
type pendingGang struct {
	id    orbit.GangID
	gang  *orbit.Gang
	state *orbit.GangState
	// Handed over in this plan; none of a gang that was handed over before and is remembered.
	handed []*orbit.Capsule
	// Who owns the members that were handed over.
	owner string
	// Members that wait and that run, by role.
	waiting [][]*orbit.Capsule
	running []*orbit.Capsule
	total   int
	// Of the gang among gangs: highest priority of those that wait, and which was submitted first.
	priority int32
	// The priority to which one of those that wait has risen.
	aged  int32
	first uint64
	// Why it cannot be planned, whatever room there is.
	fault error
}

const (
	// mostSpecs is how many different specs of members one gang may have here.
	mostSpecs = 64
	// mostLevels is how many levels one gang may list here.
	mostLevels = 32
)

// loadGang collects the members of a gang; nil if there is no such gang.
func loadGang(state *orbit.State, id orbit.GangID) *pendingGang {
	g := state.Gang(id)
	if g == nil {
		return nil
	}
	m := &pendingGang{id: id, gang: g.Gang, state: g, waiting: make([][]*orbit.Capsule, len(g.Gang.Roles))}
	for role := range g.Gang.Roles {
		for _, member := range g.Gang.Roles[role].Members {
			c := state.Capsule(member)
			switch {
			case c == nil || c.Gang != id: // gone, and the id may be that of another capsule
			case c.Placed():
				m.running = append(m.running, c)
			case c.Pending():
				m.add(role, c)
			}
		}
	}
	return m
}

// add counts a member that waits.
func (m *pendingGang) add(role int, c *orbit.Capsule) {
	if m.total == 0 || c.Spec.Priority > m.priority {
		m.priority = c.Spec.Priority
	}
	if m.total == 0 || c.Submitted < m.first {
		m.first = c.Submitted
	}
	m.waiting[role] = append(m.waiting[role], c)
	m.total++
}

// age finds out the priority to which the gang has risen.
func (m *pendingGang) age(view *orbit.View) {
	m.aged = m.priority
	for _, waiting := range m.waiting {
		if len(waiting) > 0 { // the others of a role were submitted with it
			m.aged = max(m.aged, view.Aged(waiting[0]))
		}
	}
}

// before orders gangs: higher priority first, then whose first waiting member was submitted first.
func (m *pendingGang) before(o *pendingGang) int {
	return cmp.Or(cmp.Compare(o.aged, m.aged), cmp.Compare(m.first, o.first), cmp.Compare(m.id, o.id))
}

// Before is before for a heap.
func (m *pendingGang) Before(o *pendingGang) bool { return m.before(o) < 0 }

// fresh reports whether the gang has yet to be placed.
func (m *pendingGang) fresh() bool { return m.state.Total() == 0 }

// inspect finds what keeps the gang from being planned at all.
func (m *pendingGang) inspect() error {
	owner := m.owner
	specs := map[*orbit.Spec]bool{}
	for role, waiting := range m.waiting {
		r := &m.gang.Roles[role]
		for _, c := range waiting {
			specs[c.Spec] = true
			switch {
			case c.Owner != owner:
				return fmt.Errorf("gang %q: capsule %q is owned by %q, capsule %q by %q; a gang has one owner",
					m.id, m.example(), owner, c.ID, c.Owner)
			case owner == "" && c.Spec.Class != orbit.GangClass:
				return fmt.Errorf("gang %q: capsule %q has class %v, which another navigator may claim; give the specs of all roles the class Gang",
					m.id, c.ID, c.Spec.Class)
			}
		}
		if least := minimum(r); m.fresh() && len(waiting) < least {
			return fmt.Errorf("gang %q: role %q has %d of %d members left; at least %d must be placed at first",
				m.id, r.Name, len(waiting), len(r.Members), least)
		}
	}
	if len(specs) > mostSpecs || len(m.gang.Levels) > mostLevels {
		return fmt.Errorf("gang %q has %d specs and lists %d levels; this navigator plans up to %d and %d",
			m.id, len(specs), len(m.gang.Levels), mostSpecs, mostLevels)
	}
	return nil
}

// example returns a member that was handed over, if one was.
func (m *pendingGang) example() (id orbit.CapsuleID) {
	if len(m.handed) > 0 {
		id = m.handed[0].ID
	}
	return id
}

// pendingGangs groups capsules by gang, in the order in which gangs are planned. Orphans are members of no gang.
func pendingGangs(view *orbit.View, pending []*orbit.Capsule) (gangs []*pendingGang, orphans []*orbit.Capsule) {
	byID := map[orbit.GangID]*pendingGang{}
	for _, c := range pending {
		m := byID[c.Gang]
		if c.Gang != "" && m == nil {
			if m = loadGang(view.State(), c.Gang); m != nil {
				m.age(view)
				byID[c.Gang] = m
				gangs = append(gangs, m)
			}
		}
		if m == nil {
			orphans = append(orphans, c)
			continue
		}
		m.handed = append(m.handed, c)
	}
	for _, m := range gangs {
		m.owner = m.handed[0].Owner
		m.fault = m.inspect()
	}
	slices.SortFunc(gangs, (*pendingGang).before)
	return gangs, orphans
}

// memberAsk is how many members of one shape a gang asks for: all roles alike together.
type memberAsk struct {
	shape *memberShape
	askedBy
	want int
	// Fewest that must be placed.
	least int
	// Those that wait, in the order in which they get seats: every role's minimum, then the rest.
	members []*orbit.Capsule
}

// asks sums the waiting members up by shape, in the order of roles. If a member of a role still has to stop elsewhere, all of the
// role that wait go to nodes that confirm: which seat a member gets is not decided here.
func (m *pendingGang) asks(x *gangIndex) []memberAsk {
	var out []memberAsk
	var rest [][]*orbit.Capsule
	for role, waiting := range m.waiting {
		if len(waiting) == 0 {
			continue
		}
		r := &m.gang.Roles[role]
		by := askedBy{r.Spec, slices.ContainsFunc(waiting, victims.Stops)}
		shape := x.shape(by)
		at := slices.IndexFunc(out, func(a memberAsk) bool { return a.shape == shape })
		if at < 0 {
			at = len(out)
			out, rest = append(out, memberAsk{shape: shape, askedBy: by}), append(rest, nil)
		}
		least := 0
		if m.fresh() {
			least = minimum(r)
		}
		a := &out[at]
		a.want += len(waiting)
		a.least += least
		a.members = append(a.members, waiting[:least]...)
		rest[at] = append(rest[at], waiting[least:]...)
	}
	for i := range out {
		out[i].members = append(out[i].members, rest[i]...)
	}
	return out
}

// minimum is the fewest members of a role that may be placed at first.
func minimum(r *orbit.Role) int { return cmp.Or(r.Min, len(r.Members)) }

// leastOf is how many members must be placed at once.
func leastOf(asks []memberAsk) (n int) {
	for i := range asks {
		n += asks[i].least
	}
	return n
}

// wanted is how many members are asked for.
func wanted(asks []memberAsk) (n int) {
	for i := range asks {
		n += asks[i].want
	}
	return n
}
