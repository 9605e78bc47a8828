package nav

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// drainPass is one pass of a Drain.
type drainPass struct {
	*Drain
	state *orbit.State
	round *DrainRound
	most  int
	// What is proposed, and for which capsules of which of round.Nodes.
	batch []orbit.Proposal
	of    []drainStep
	// Gangs that are released whole, with a nil error, or cannot be.
	tried map[orbit.GangID]error
	// Gangs of which a member is released: the others have their turn in the next pass.
	thinned map[orbit.GangID]bool
	// Why specs fit nowhere: while a plan is made room only shrinks.
	full map[*orbit.Spec]error
}

// drainStep is what a proposal does.
type drainStep struct {
	// The capsule that it is about, and the position of its node in round.Nodes.
	of   *orbit.Capsule
	node int
	// All that leave their nodes for good: released back to pending, or the one that is moved.
	moves    bool
	capsules []orbit.CapsuleID
}

// plan decides about every capsule on the nodes that are drained.
func (p *drainPass) plan(ctx context.Context) {
	for _, n := range p.drained(p.round) {
		at := len(p.round.Nodes)
		p.round.Nodes = append(p.round.Nodes, DrainNode{Node: n.Node.ID, Left: n.Capsules, Holds: n.Holds(), Stopping: p.stopping(n)})
		for _, c := range p.on(n) {
			switch {
			case ctx.Err() != nil:
				return
			case len(p.batch) >= p.most:
				p.round.full = true
				return
			}
			if why := p.take(c, at); why != nil {
				p.blocked(c, at, why)
			}
		}
	}
}

// on returns the capsules on a node, the highest priority first, and then in order of submission.
func (p *drainPass) on(n *orbit.NodeState) []*orbit.Capsule {
	on := slices.SortedFunc(p.state.On(n.Node.ID), func(a, b *orbit.Capsule) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Submitted, b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	p.round.Looked += len(on)
	return on
}

// take moves a capsule, or else releases it if it may wait. It returns why it stays; nil: it leaves.
func (p *drainPass) take(c *orbit.Capsule, node int) error {
	if err, tried := p.tried[c.Gang]; tried && err == nil {
		return nil // it is released with its gang
	}
	start := p.draft.Checkpoint()
	why := p.move(c)
	if why == nil {
		why = p.propose(start, drainStep{of: c, node: node, moves: true, capsules: []orbit.CapsuleID{c.ID}})
	}
	if why == nil {
		return nil
	}
	p.draft.Rollback(start)
	if p.MayWait == nil || !p.MayWait(c) {
		return why
	}
	if p.thinned[c.Gang] { // what the state shows of the gang is not what the ledger will judge
		p.round.full = true
		return nil
	}
	err := p.draft.Release(orbit.Release{Capsule: c.ID, From: c.Node})
	if err == nil {
		err = p.propose(start, drainStep{of: c, node: node, capsules: []orbit.CapsuleID{c.ID}})
	}
	switch {
	case c.Gang == "":
	case err != nil:
		err = p.releaseGang(c, node)
	default:
		p.thinned[c.Gang] = true
	}
	return err
}

// propose adds the steps since a checkpoint to the batch, unless the state refuses them.
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

// move takes a capsule off its node and puts it onto the best other one.
func (p *drainPass) move(c *orbit.Capsule) error {
	if err := p.draft.Evict(orbit.Evict{Capsule: c.ID}); err != nil {
		return err
	}
	spec, err := p.near(c)
	if err != nil {
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

// noting notes on placements why they are made.
type noting struct{ orbit.PlacementEngine }

// Best returns the choice of the engine.
func (e noting) Best(draft *orbit.Draft, spec *orbit.Spec) (orbit.Choice, error) {
	choice, err := e.PlacementEngine.Best(draft, spec)
	choice.Note = "drained"
	return choice, err
}

// near returns what a capsule asks for; a member of a gang asks also for the narrowest domain that the other members share.
func (p *drainPass) near(c *orbit.Capsule) (*orbit.Spec, error) {
	g := p.state.Gang(c.Gang)
	if g == nil || g.Gang.Loose {
		return c.Spec, nil
	}
	for _, level := range g.Gang.Levels {
		domains := map[string]bool{}
		for m := range p.state.Members(c.Gang) {
			if p.round.Looked++; m.Placed() && m.ID != c.ID {
				domains[p.state.Node(m.Node).Node.Labels[level]] = true
			}
		}
		for name := range domains {
			if len(domains) == 1 && name != "" {
				spec := *c.Spec
				spec.Require = append(slices.Clone(spec.Require), orbit.Predicate{Key: level, Op: "In", Values: []string{name}})
				return spec.Share()
			}
		}
	}
	return c.Spec, nil
}

// releaseGang releases all members of a gang that are placed, if all of them may wait.
func (p *drainPass) releaseGang(c *orbit.Capsule, node int) error {
	if err, tried := p.tried[c.Gang]; tried {
		return err
	}
	start, step := p.draft.Checkpoint(), drainStep{of: c, node: node}
	err := func() error {
		for m := range p.state.Members(c.Gang) {
			if p.round.Looked++; !m.Placed() {
				continue
			}
			if !p.MayWait(m) {
				return fmt.Errorf("gang %q would run below a minimum, and its member %q may not wait", c.Gang, m.ID)
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
	p.tried[c.Gang] = err
	return err
}

// blocked notes why a capsule stays.
func (p *drainPass) blocked(c *orbit.Capsule, node int, why error) {
	var nofit *orbit.NoFit
	p.round.ruled = p.round.ruled || !errors.As(why, &nofit)
	n := &p.round.Nodes[node]
	n.Blocked = append(n.Blocked, orbit.Unplaced{Capsule: c, Why: why})
}

// send proposes the batch and sorts the outcomes.
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
