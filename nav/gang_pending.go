package nav

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// pendingGang is a gang with all its waiting members, whether they are in the plan's batch or not.
type pendingGang struct {
	id    orbit.GangID
	gang  *orbit.Gang
	state *orbit.GangState
	// The members in the plan's batch; none if the gang is only remembered from an earlier plan.
	handed []*orbit.Capsule
	// The owner of the members in the batch.
	owner string
	// The waiting members by role, the running members, and how many wait.
	waiting [][]*orbit.Capsule
	running []*orbit.Capsule
	total   int
	// The gang's place among gangs: the highest priority of its waiting members.
	priority int32
	// The highest priority to which a waiting member has risen by Aging, and when the first waiting member was
	// submitted.
	aged  int32
	first uint64
	// Why the gang cannot be planned, however much is free.
	fault error
	// What it asks for, as a key of its demand, and by shape; empty until that is needed.
	demandKey string
	asked     []seats.Ask
	// The plan has found out whether it may search for the gang (due), and the last search that has failed.
	examined, due bool
	// Counts of what is free are too high for some members, because they have several priorities.
	mixed bool
	// Seats count only if they are enough for all members that the gang lacks.
	needsAll bool
	last     *gangTry
}

const (
	// mostSpecs is how many different specs the waiting members of one gang may have.
	mostSpecs = 64
	// mostLevels is how many levels one gang may list.
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
			case c == nil || c.Gang() != id: // the member is gone, and its id may have been given to another capsule
			case c.Placed():
				m.running = append(m.running, c)
			case c.Pending():
				m.add(role, c)
			}
		}
		seats.EasiestFirst(m.waiting[role])
	}
	return m
}

// add adds a waiting member.
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

// delay leaves out the waiting members that the engine does not plan yet, because their last starts have failed
// ([orbit.View.Delayed]). A gang of which no member is placed starts whole, so it waits for the last of them.
func (m *pendingGang) delay(view *orbit.View) {
	until, who := time.Time{}, orbit.CapsuleID("")
	for role, waiting := range m.waiting {
		due := slices.DeleteFunc(slices.Clone(waiting), func(c *orbit.Capsule) bool {
			at := view.Delayed(c)
			if at.After(until) {
				until, who = at, c.ID
			}
			return !at.IsZero()
		})
		if !m.fresh() {
			m.total -= len(waiting) - len(due)
			m.waiting[role] = due
		}
	}
	if m.fresh() && who != "" {
		m.fault = fmt.Errorf("gang %q waits until %s: the last starts of capsule %q have failed", m.id, until.UTC().Format(time.RFC3339), who)
	}
}

// age sets the priority to which the gang has risen by the engine's Aging.
func (m *pendingGang) age(view *orbit.View) {
	m.aged = m.priority
	for _, waiting := range m.waiting {
		for i, c := range waiting { // the others of a role were submitted with the first, with its spec
			if i == 0 || c.Spec != waiting[0].Spec {
				m.aged = max(m.aged, view.Turn(c))
			}
		}
	}
}

// before orders gangs: the higher risen priority first, then broken gangs, then the one whose first waiting member was
// submitted first.
func (m *pendingGang) before(o *pendingGang) int {
	return cmp.Or(cmp.Compare(o.aged, m.aged), btoi(o.state.Broken())-btoi(m.state.Broken()),
		cmp.Compare(m.first, o.first), cmp.Compare(m.id, o.id))
}

// Before orders gangs in a heap, as before does.
func (m *pendingGang) Before(o *pendingGang) bool { return m.before(o) < 0 }

// fresh reports whether no member of the gang is placed.
func (m *pendingGang) fresh() bool { return m.state.Total() == 0 }

// inspect returns why the gang cannot be planned, however much is free; nil if it can.
func (m *pendingGang) inspect() error {
	owner := m.owner
	specs := map[*orbit.Spec]bool{}
	for _, waiting := range m.waiting {
		for _, c := range waiting {
			specs[c.Spec] = true
			switch {
			case c.Owner() != owner:
				return fmt.Errorf("gang %q: capsule %q is owned by %q, capsule %q by %q; a gang has one owner",
					m.id, m.example(), owner, c.ID, c.Owner())
			case owner == "" && c.Spec.Class != orbit.GangClass:
				return fmt.Errorf("gang %q: capsule %q has class %v, which another navigator may claim; give the specs of all roles the class Gang",
					m.id, c.ID, c.Spec.Class)
			}
		}
	}
	if len(specs) > mostSpecs || len(m.gang.Levels) > mostLevels {
		return fmt.Errorf("gang %q has %d specs and lists %d levels; this navigator plans up to %d and %d",
			m.id, len(specs), len(m.gang.Levels), mostSpecs, mostLevels)
	}
	return nil
}

// example returns the id of a member in the plan's batch, for texts; "" if there is none.
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
		m := byID[c.Gang()]
		if c.Gang() != "" && m == nil {
			if m = loadGang(view.State(), c.Gang()); m != nil {
				m.age(view)
				m.delay(view)
				byID[c.Gang()] = m
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
		m.owner = m.handed[0].Owner()
		m.fault = cmp.Or(m.fault, m.inspect())
	}
	slices.SortFunc(gangs, (*pendingGang).before)
	return gangs, orphans
}

// least returns the fewest members that must be placed in all, beside those of each role; 0 for a gang that runs, which
// may be topped up member by member.
func (m *pendingGang) least() int {
	if m.fresh() {
		return m.state.LacksInAll()
	}
	return 0
}

// asks groups the waiting members by shape, in the order of roles.
func (m *pendingGang) asks(x *seats.Index) []seats.Ask {
	for i := range m.asked {
		m.asked[i].Shape.Follow(x)
	}
	if len(m.asked) == 0 {
		m.asked = m.asksAnew(x)
	}
	return m.asked
}

func (m *pendingGang) asksAnew(x *seats.Index) []seats.Ask {
	var few [8]seats.Role // most gangs have few roles
	roles := few[:0]
	for role, waiting := range m.waiting {
		roles = append(roles, seats.Role{Members: waiting, Needed: m.state.Lacks(role)})
	}
	asks := x.Asks(roles)
	for a := range asks {
		if !m.fresh() {
			asks[a].Least = 0
		}
	}
	return asks
}

// domain returns the domain of a table that all running members are in; -1 if there is none.
func (m *pendingGang) domain(t *seats.Table, state *orbit.State) int32 {
	return t.Shared(state, m.nodes())
}

// nodes returns the nodes of the running members.
func (m *pendingGang) nodes() []orbit.NodeID {
	nodes := make([]orbit.NodeID, len(m.running))
	for i, c := range m.running {
		nodes[i] = c.Node
	}
	return nodes
}
