package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/moves"
	"github.com/orbitsched/orbit/internal/send"
)

// drainPass is the state of one pass of a Drain.
type drainPass struct {
	*Drain
	state *orbit.State
	round *DrainRound
	// The most proposals that the pass makes.
	most int
	// The proposals; of has, at the same index, the step of each.
	batch []orbit.Proposal
	of    []drainStep
	// Gangs that the pass has tried to release whole, with the reason why that is not possible; nil: the gang is
	// released.
	tried map[orbit.GangID]error
	// Gangs of which the pass releases a single member. The next pass, which sees the gang without that member, decides
	// about the others.
	thinned map[orbit.GangID]bool
	// Specs that fit nowhere, and why. They are not tried again in this pass, because within it free room only shrinks.
	full map[*orbit.Spec]error
}

// drainStep says what one proposal of a pass does.
type drainStep struct {
	// The capsule for which it was planned, and the position of that capsule's node in round.Nodes.
	of   *orbit.Capsule
	node int
	// Whether it moves the capsule; else it releases capsules back to pending.
	moves bool
	// All capsules that the step takes off their nodes: the capsule that it moves, or all that it releases.
	capsules []orbit.CapsuleID
}

// plan decides for every capsule that has to leave its node whether it moves, is released or stays, until the pass has
// its most proposals.
func (p *drainPass) plan(ctx context.Context) {
	drained := map[orbit.NodeID]bool{}
	for _, n := range p.drained(p.round) {
		drained[n.Node.ID] = true
		if !p.empty(ctx, DrainNode{Node: n.Node.ID, Left: n.Capsules, Holds: n.Holds(), Stopping: p.stopping(n)}, p.on(n)) {
			return
		}
	}
	for _, i := range slices.Sorted(maps.Keys(p.tainted)) {
		n := p.state.NodeByIndex(int(i))
		if drained[n.Node.ID] {
			continue
		}
		leave := slices.DeleteFunc(p.on(n), func(c *orbit.Capsule) bool { return !p.isExpelled(c, p.tainted[i]) })
		if len(leave) > 0 && !p.empty(ctx, DrainNode{Node: n.Node.ID, Left: len(leave)}, leave) {
			return
		}
	}
}

// empty decides for each capsule that has to leave one node. It reports false if the pass must end.
func (p *drainPass) empty(ctx context.Context, n DrainNode, leave []*orbit.Capsule) bool {
	at := len(p.round.Nodes)
	p.round.Nodes = append(p.round.Nodes, n)
	for _, c := range leave {
		switch {
		case ctx.Err() != nil:
			return false
		case len(p.batch) >= p.most:
			p.round.full = true
			return false
		}
		if why := p.take(c, at); why != nil {
			p.blocked(c, at, why)
		}
	}
	return true
}

// isExpelled reports whether a capsule has been on a tainted node for as long as it tolerates one of the taints.
func (p *drainPass) isExpelled(c *orbit.Capsule, n *taintedNode) bool {
	for t, since := range n.since {
		if placed := c.PlaceTime.Time(); placed.After(since) {
			since = placed
		}
		if lasts, forever := c.Spec.Withstands(&t); !forever && p.view.Now().Sub(since) >= lasts {
			return true
		}
	}
	return false
}

// on returns the capsules on a node, the highest priority first, and in order of submission within a priority.
func (p *drainPass) on(n *orbit.NodeState) []*orbit.Capsule {
	on := slices.SortedFunc(p.state.On(n.Node.ID), func(a, b *orbit.Capsule) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Submitted, b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	p.round.Looked += len(on)
	return on
}

// take plans to move a capsule. If it cannot be moved and MayWait allows it, take plans to release it to pending. It
// returns why the capsule stays, or nil if it leaves or the next pass decides about it.
func (p *drainPass) take(c *orbit.Capsule, node int) error {
	if err, tried := p.tried[c.Gang()]; tried && err == nil {
		return nil // it is released with its gang
	}
	start, why := p.draft.Checkpoint(), error(nil)
	for _, surge := range [...]bool{true, false} { // without a surge only if it cannot move by one
		if surge && (!c.Spec.Surge || !c.Begun) {
			continue
		}
		if why = p.move(c, surge); why == nil {
			why = p.propose(start, drainStep{of: c, node: node, moves: true, capsules: []orbit.CapsuleID{c.ID}})
		}
		if why == nil {
			return nil
		}
		p.draft.Rollback(start)
	}
	if p.state.Node(c.Node).Node.Schedulable() { // no rule allows a release from a tainted node
		return why
	}
	if !p.mayWait(c) {
		if errors.As(why, new(*orbit.NoFit)) && !c.Spec.Ends {
			return mustMove{why}
		}
		return why
	}
	if p.thinned[c.Gang()] { // the state still shows the member that leaves, so it cannot tell whether a second one may leave
		p.round.full = true
		return nil
	}
	err := p.draft.Release(orbit.Release{Capsule: c.ID, From: c.Node})
	if err == nil {
		err = p.propose(start, drainStep{of: c, node: node, capsules: []orbit.CapsuleID{c.ID}})
	}
	switch {
	case c.Gang() == "":
	case err != nil:
		err = p.releaseGang(c, node)
	default:
		p.thinned[c.Gang()] = true
	}
	return err
}

// mayWait reports whether a capsule may be released to pending. What ends when it leaves its node ([orbit.Spec.Ends]) would
// not be pending: to end it is for its controller.
func (p *drainPass) mayWait(c *orbit.Capsule) bool {
	return p.MayWait != nil && !c.Spec.Ends && p.MayWait(c)
}

// propose makes a proposal of the draft's steps since the last one, and adds it to the batch. If the state refuses it,
// propose rolls the draft back to start and returns why.
func (p *drainPass) propose(start int, step drainStep) error {
	proposal := p.draft.Propose()
	proposal.ID = orbit.NewProposalID()
	if err := p.state.Check(proposal); err != nil {
		p.draft.Rollback(start)
		return err
	}
	p.batch, p.of = append(p.batch, proposal), append(p.of, step)
	return nil
}

// move evicts a capsule on the draft, by a surge if asked, and places it on the best other node. The caller rolls the draft back
// after an error.
func (p *drainPass) move(c *orbit.Capsule, surge bool) error {
	if err := p.draft.Evict(orbit.Evict{Capsule: c.ID, Surge: surge}); err != nil {
		return err
	}
	spec, looked, err := moves.SpecOf(p.state, c)
	if p.round.Looked += looked; err != nil {
		return err
	}
	if why := p.full[spec]; why != nil {
		return why
	}
	own := *c
	own.Spec = spec
	err = p.draft.PlaceBest(noting{p.Placement}, &own)
	if nofit := (*orbit.NoFit)(nil); errors.As(err, &nofit) {
		p.full[spec] = err
	}
	return err
}

// noting is a placement engine that gives each choice the note "drained", which the placed capsule then carries.
type noting struct{ orbit.PlacementEngine }

// Best returns the choice of the engine, with the note.
func (e noting) Best(draft *orbit.Draft, spec *orbit.Spec) (orbit.Choice, error) {
	choice, err := e.PlacementEngine.Best(draft, spec)
	choice.Note = "drained"
	return choice, err
}

// releaseGang plans to release all placed members of a gang if MayWait allows it for each. A pass tries that once for
// each gang.
func (p *drainPass) releaseGang(c *orbit.Capsule, node int) error {
	if err, tried := p.tried[c.Gang()]; tried {
		return err
	}
	start, step := p.draft.Checkpoint(), drainStep{of: c, node: node}
	err := func() error {
		for m := range p.state.Members(c.Gang()) {
			if p.round.Looked++; !m.Placed() {
				continue
			}
			if !p.mayWait(m) {
				return fmt.Errorf("gang %q would run below a minimum, and its member %q may not wait", c.Gang(), m.ID)
			}
			if err := p.draft.Release(orbit.Release{Capsule: m.ID, From: m.Node}); err != nil {
				return err
			}
			step.capsules = append(step.capsules, m.ID)
		}
		return nil
	}()
	if err != nil {
		p.draft.Rollback(start)
	} else {
		err = p.propose(start, step)
	}
	p.tried[c.Gang()] = err
	return err
}

// blocked records in the round why a capsule stays.
func (p *drainPass) blocked(c *orbit.Capsule, node int, why error) {
	var nofit *orbit.NoFit
	p.round.ruled = p.round.ruled || !errors.As(why, &nofit)
	n := &p.round.Nodes[node]
	n.Blocked = append(n.Blocked, orbit.Unplaced{Capsule: c, Why: why})
}

// send proposes the batch to the ledger and records the outcomes in the round.
func (p *drainPass) send(ctx context.Context) {
	index := map[orbit.NodeID]int{}
	for i := range p.round.Nodes {
		index[p.round.Nodes[i].Node] = i
	}
	for i, o := range send.All(ctx, p.Ledger, p.batch) {
		step := &p.of[i]
		switch {
		case o.Err == nil:
			for _, id := range step.capsules {
				if at, here := index[p.state.Capsule(id).Node]; here {
					p.round.Nodes[at].Left--
				}
			}
			if step.moves {
				p.round.Moved = append(p.round.Moved, step.capsules...)
			} else {
				p.round.Released = append(p.round.Released, step.capsules...)
			}
		case errors.Is(o.Err, orbit.ErrConflict):
			p.round.Conflicts++
			p.round.ruled = true
		case errors.Is(o.Err, orbit.ErrInfeasible):
			p.blocked(step.of, step.node, o.Err)
		default:
			p.round.fail(fmt.Errorf("nav: drain: capsule %q: %w", step.of.ID, o.Err))
		}
	}
}
