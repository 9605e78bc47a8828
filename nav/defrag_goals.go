package nav

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/moves"
)

// DefragGoal is what a [Defrag] moves capsules for: a [RoomFor], [EmptyNodes], [EvenSpread] or [OffDevices].
type DefragGoal interface {
	// plan adds proposals to the pass.
	plan(ctx context.Context, p *defragPass)
	check() error
}

// RoomFor is the goal that work of a shape has room: as many gangs of Members capsules of one Spec as can be, each in one
// domain. A step is room for one more of them. It counts what fits already first, so that no move takes that room.
type RoomFor struct {
	// Spec is the spec of the work, such as one that asks for 8 devices. Required.
	Spec *orbit.Spec
	// Members is how many capsules have to have room together; 0: one.
	Members int
	// Level is the label of nodes that divides them into the domains in one of which all members have room; empty: they
	// may be anywhere.
	Level string
	// Count is how many of these gangs have to have room in all; 0: as many as possible.
	Count int
}

func (g RoomFor) check() error {
	if g.Spec == nil || g.Members < 0 || g.Count < 0 {
		return fmt.Errorf("nav: %w: RoomFor needs a Spec, and Members and Count must not be negative", orbit.ErrInvalid)
	}
	if _, err := g.Spec.Share(); err != nil {
		return fmt.Errorf("nav: RoomFor.Spec: %w", err)
	}
	return nil
}

// plan first takes the room that there is, and then makes room by moves.
func (g RoomFor) plan(ctx context.Context, p *defragPass) {
	s, there := p.searching(nil), 0
	spec, _ := g.Spec.Share() // no error: check has shared it
	domains := p.domains(g.Level)
	for _, moving := range []bool{false, true} {
		for i := 0; i < len(domains) && !p.full(ctx) && (g.Count == 0 || there < g.Count); {
			if s.Most = 0; moving {
				s.Most = min(p.left, mostMovedFor)
			}
			if p.roomIn(s, g.probes(p, spec), domains[i], moving) {
				there++
			} else {
				i++
			}
		}
	}
}

// probes returns capsules that stand for one gang. The ledger never hears of them.
func (g RoomFor) probes(p *defragPass, spec *orbit.Spec) (out []*orbit.Capsule) {
	for k := 0; len(out) < max(1, g.Members); k++ {
		if id := orbit.CapsuleID(fmt.Sprint("defrag-", k)); p.state.Capsule(id) == nil && !p.draft.Uses(id) {
			out = append(out, &orbit.Capsule{ID: id, Spec: spec})
		}
	}
	return out
}

// roomIn gives probes a place in a domain, and proposes the moves that they need. It reports false if there is no room, or
// moves are needed and not worth it.
func (p *defragPass) roomIn(s *moves.Search, probes []*orbit.Capsule, domain []int32, moving bool) bool {
	start, ids := p.draft.Checkpoint(), make([]orbit.CapsuleID, len(probes))
	for i, c := range probes {
		ids[i] = c.ID
	}
	if p.draft.Add(orbit.Submit{IDs: ids, Spec: probes[0].Spec}) != nil {
		return false
	}
	f := s.Room(probes, domain)
	gain := 0.0
	if f != nil {
		for i := range f.Seats[:len(probes)] {
			gain += moves.Size(&orbit.Capsule{Spec: probes[i].Spec, Devices: f.Seats[i].Devices}, p.draft.Node(f.Seats[i].Node).Node)
		}
	}
	switch {
	case f == nil, len(f.Moved) > 0 && (!moving || !p.worth(f, gain)), f.On(&p.draft) != nil:
		p.draft.Rollback(start)
		return false
	case len(f.Moved) == 0:
		p.draft.Propose() // takes the room from what follows
		return true
	}
	p.propose(f, defragStep{gain: gain}, ids)
	return true
}

// domains returns the nodes of each domain of a level, in order of the names; without a level all nodes are one domain.
func (p *defragPass) domains(level string) (out [][]int32) {
	if level == "" {
		return [][]int32{nil}
	}
	byName, names := map[string][]int32{}, []string(nil)
	for n := range p.state.Nodes() {
		name := n.Node.Labels[level]
		if name != "" && byName[name] == nil {
			names = append(names, name)
		}
		byName[name] = append(byName[name], int32(n.Index()))
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, byName[name])
	}
	return out
}

// EmptyNodes is the goal that nodes become empty, so that they can be switched off or serve whole: all capsules of a node
// move to nodes that are in use. A step is a node. The nodes come first from which the least work has to move.
type EmptyNodes struct {
	// Of reports whether a node may be emptied; nil: any node that is ready may.
	Of func(*orbit.Node) bool
	// Cordon says that the commit that empties a node cordons it, too.
	Cordon bool
}

func (EmptyNodes) check() error { return nil }

func (g EmptyNodes) plan(ctx context.Context, p *defragPass) {
	s := p.searching(func(n *orbit.NodeState, _ *orbit.Spec) bool { return n.Capsules+n.Holds() == 0 })
	for _, n := range g.candidates(p) {
		if p.full(ctx) {
			return
		}
		step, more := defragStep{emptied: n.Node.ID}, []orbit.Commitment(nil)
		if g.Cordon {
			cordoned := *n.Node
			cordoned.State = orbit.Cordoned
			more = append(more, orbit.PutNode{Node: cordoned})
		}
		p.away(s, 1, step, more, slices.Collect(p.state.On(n.Node.ID))...)
	}
}

// candidates returns the nodes that could be empty, the least work first.
func (g EmptyNodes) candidates(p *defragPass) (out []*orbit.NodeState) {
	work := map[*orbit.NodeState]float64{}
	for n := range p.state.Nodes() {
		if n.Node.State != orbit.Ready || n.Capsules == 0 || n.Holds() > 0 || g.Of != nil && !g.Of(n.Node) {
			continue
		}
		for c := range p.state.On(n.Node.ID) {
			work[n] += moves.Size(c, n.Node)
		}
		out = append(out, n)
	}
	slices.SortStableFunc(out, func(a, b *orbit.NodeState) int { return cmp.Compare(work[a], work[b]) })
	return out
}

// EvenSpread is the goal that rules [orbit.Even] hold again that departures, lost nodes and new domains have broken
// ([orbit.State.Skewed]). A step is a member that moves from a domain with too many, or a swap with another capsule.
type EvenSpread struct{}

func (EvenSpread) check() error { return nil }

func (g EvenSpread) plan(ctx context.Context, p *defragPass) {
	state, stuck := p.state, map[skewed]bool{}
	for !p.full(ctx) {
		skew, broken := worst(state, stuck)
		if !broken {
			return
		}
		if !g.repair(p, state, &skew) {
			stuck[skewed{skew.Spec, skew.Even.Group, skew.Even.Level, skew.Domain}] = true
			continue
		}
		next, err := state.With(p.batch[len(p.batch)-1])
		if err != nil { // cannot be: the proposals of a pass do not depend on each other
			return
		}
		state = next
	}
}

// skewed names a domain with too many members by a rule of a spec.
type skewed struct {
	spec                 *orbit.Spec
	group, level, domain string
}

// worst returns the domain that is furthest above its fewest, of those where a repair is not stuck.
func worst(state *orbit.State, stuck map[skewed]bool) (worst orbit.Skew, broken bool) {
	most := 0
	for s := range state.Skewed() {
		excess := s.Members - s.Fewest - s.Even.MaxSkew
		if excess > most && !stuck[skewed{s.Spec, s.Even.Group, s.Even.Level, s.Domain}] {
			worst, most = s, excess
		}
	}
	return worst, most > 0
}

// repair moves one member out of a domain with too many.
func (EvenSpread) repair(p *defragPass, state *orbit.State, skew *orbit.Skew) bool {
	in := func(n *orbit.NodeState) bool { return n.Node.Labels[skew.Even.Level] == skew.Domain }
	search := p.searching(func(n *orbit.NodeState, spec *orbit.Spec) bool { return in(n) && spec.IsIn(skew.Even.Group) })
	for n := range state.GroupNodes(skew.Even.Group) {
		if !in(n) {
			continue
		}
		for c := range state.On(n.Node.ID) {
			if c.Spec == skew.Spec && p.away(search, 1, defragStep{}, nil, c) {
				return true
			}
		}
	}
	return false
}

// OffDevices is the goal that work without devices leaves nodes with devices while it fits on others. A step is a
// capsule.
type OffDevices struct{}

func (OffDevices) check() error { return nil }

func (OffDevices) plan(ctx context.Context, p *defragPass) {
	s := p.searching(func(n *orbit.NodeState, _ *orbit.Spec) bool { return n.Node.Devices.Count > 0 })
	for n := range p.state.Nodes() {
		if n.Node.Devices.Count == 0 {
			continue
		}
		for c := range p.state.On(n.Node.ID) {
			if p.full(ctx) {
				return
			}
			if c.Spec.Devices.Count == 0 {
				p.away(s, moves.Size(c, n.Node), defragStep{}, nil, c)
			}
		}
	}
}
