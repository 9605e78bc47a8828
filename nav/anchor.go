package nav

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
	"github.com/orbitsched/orbit/place"
)

// AnchorNote is the note of an anchor's placement (Place.Note, Capsule.Note). [GroupWatch] counts the anchors, and the
// members that were placed after them.
const AnchorNote = "anchor"

// Anchor helps an ordinary navigator to start co-location groups. Capsules that must be near their own group (Spec.Near
// names Spec.Group) wait until a member of the group runs. If the whole group is submitted at once, no member ever
// does. For each such group Anchor places exactly one member, the anchor, as if it asked for no company; the other
// members then follow it. All other work is left to the wrapped navigator. Anchor claims what the wrapped navigator
// claims: give the engine one of the two, not both.
//
//	pending ─┬─ members of a running group with room held for them ─► Release the hold, Place       (GroupIn)
//	         ├─ members of a group of which nothing runs ───► one anchor, and holds for the others   (MarkAt, NodeAt)
//	         ├─ capsules that wait for a group that cannot start ─► a [*Deadlock] says why
//	         └─ all others ─────────────────────────────────► the wrapped navigator
//
// [Anchor.Plan] says which member is the anchor, and what holds beside other planners. An Anchor belongs to one engine and is not safe for
// concurrent use.
type Anchor struct {
	// Navigator is the wrapped navigator, as in &Services{}. Required.
	Navigator orbit.Navigator
	// HoldFor is how long room is held for a group after its anchor has been placed; default 30 s. Negative: no room is
	// held, and the members compete for free capacity like other work.
	HoldFor time.Duration
	// SelfMatch lets a group start without an anchor if only its own members wait for it and they wait for no other
	// group. The wrapped navigator then plans one member of each spec as if it asked for no company. The first of them
	// that finds a node starts the group, wherever that is, and no room is held.
	SelfMatch bool
	// Filter excludes nodes from the choice of anchors and holds, as the filter of a placement engine does; nil: no
	// node is excluded. If the wrapped navigator's placement engine has a filter, set the same one here.
	Filter place.Filter

	draft   orbit.Draft
	domains seats.Topology
	// The specs of stand-ins, by the specs of the members that they stand in for.
	alone map[*orbit.Spec]*orbit.Spec
}

// Claims returns the wrapped navigator's answer.
func (a *Anchor) Claims(module string, class orbit.AppClass) bool {
	return a.Navigator == nil || a.Navigator.Claims(module, class) // without one, Plan says so
}

// errNoNavigator is the error of a Plan without Anchor.Navigator.
var errNoNavigator = errors.New("nav: Anchor.Navigator is nil; set it to the navigator that it helps, as in &nav.Services{}")

// Plan starts groups, places members where room is held for them, and hands all other work to the wrapped navigator,
// whose error it returns. Its notes are: "anchors" and "fromHolds" (members placed as anchors and in held room),
// "groupsWaiting" (groups that need an anchor and got none; those of a [Deadlock] do not count), "holds" (holds made),
// "released" (holds released because no member needs them any more), "leftOut" (proposals of the wrapped navigator left
// out in whole or in part), and one "short" for each group that no domain takes whole, which says how many members it
// takes. The wrapped navigator's notes follow, if it was asked.
//
// The anchor is the member that lets the most other members follow, each at the level that its spec names. It goes to
// the tightest domain that takes all waiting members, or else to the domain that takes the most, which the notes then
// say. Where members name several levels, the domain is one from which the most members stay together at all levels. In
// the domain the anchor goes to a fresh node: one that hosts no capsule of any group and on which no Anchor holds room
// for one. The same proposal holds room in that domain for the other members, until they have come or HoldFor has
// passed. Members that come later, or that find no room left, are ordinary work.
//
// Anchor holds room on as few nodes as possible, the anchor's node first: six replicas that fit on one node are all
// placed on it. The wrapped navigator's score and filter, Spec.Prefer and Spec.Spread do not affect the choice. A group
// that should be spread within its domain needs HoldFor: -1, with which the wrapped navigator places the other members.
//
// Anchor guarantees the following beside any other planner, even another Anchor with a stale view. A group has at most one anchor
// while any member runs (see anchor_epoch.go), the anchor's node was fresh when it was placed, every hold ends, and one
// plan never asks for more than a node has. A member that asks for no company, or for the company of another group, may
// be placed by its navigator at the same moment as the anchor, in another domain; members may then follow either.
// Members of gangs are left to the navigator of gangs: Anchor makes none of them an anchor, and holds no room for
// capsules of class Gang.
//
// Anchor learns of changes from the view and keeps tables of domains. A plan without a group to start costs a look at
// each pending capsule and at the holds of groups. Within one priority, anchors come first: a proposal of the wrapped
// navigator that no longer fits beside them is left out, with the later proposals that depend on it. Their capsules are
// planned again in the next pass, and then so are all capsules for which the plan has found no node. Room that the plan
// releases is not used for anchors of the same plan.
func (a *Anchor) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	if a.Navigator == nil {
		return orbit.Plan{}, errNoNavigator
	}
	p := newAnchorPass(a, view, len(pending))
	for _, c := range pending {
		if err := ctx.Err(); err != nil {
			return p.finish(orbit.Plan{}), err
		}
		p.route(c)
	}
	p.releaseLeftovers()
	theirs, err := orbit.Plan{}, error(nil)
	if len(p.rest) > 0 {
		theirs, err = a.Navigator.Plan(ctx, view, p.rest)
	}
	p.keepFirsts(&theirs)
	if len(p.starting) > 0 || p.charged && len(theirs.Proposals) > 0 {
		err = errors.Join(err, p.start(ctx, &theirs))
	}
	p.explainSelfStarts()
	return p.finish(theirs), err
}

// anchorPass is the state of one call of Plan.
type anchorPass struct {
	*Anchor
	view   *orbit.View
	state  *orbit.State
	groups map[string]*anchorGroup
	// Groups of which nothing runs and a member is pending, in the order of their first pending member: those that need
	// an anchor, and those that start by self-match.
	starting, selfStarting []*anchorGroup
	waits                  anchorWaits
	epoch                  epochMarks
	// The capsules for the wrapped navigator (rest, with stand-ins), the original of each stand-in, and the specs that
	// have a stand-in.
	rest     []*orbit.Capsule
	standIns map[orbit.CapsuleID]*orbit.Capsule
	standsIn map[*orbit.Spec]bool
	holds    anchorHolds
	// The specs of the plan's pending capsules.
	handed map[*orbit.Spec]bool

	// By node index, whether a group has a part in the node.
	claims []anchorClaim
	// Nodes that are a last resort are left out for now.
	strict bool

	releases, anchors, members []orbit.Proposal
	// Capsules without a node, and those that have none only because the wrapped navigator's plan takes the room.
	unplaced, crowdedOut []orbit.Unplaced
	short                []slog.Attr
	held, leftOut        int
	// A member that this plan places in held room names a queue. The wrapped navigator does not see that its quota is taken.
	charged bool
}

// newAnchorPass starts a pass: it syncs the draft with the view, and reads the holds.
func newAnchorPass(a *Anchor, view *orbit.View, size int) *anchorPass {
	state := view.State()
	a.draft.Sync(view)
	return &anchorPass{
		Anchor: a, view: view, state: state, groups: map[string]*anchorGroup{}, rest: make([]*orbit.Capsule, 0, size),
		waits: anchorWaits{state: state, starts: map[string]bool{}, said: map[*orbit.Spec]*Deadlock{}},
		epoch: epochMarks{state: state, used: map[string]string{}}, holds: readHolds(state),
		handed: map[*orbit.Spec]bool{},
	}
}

// route decides who plans a capsule, and places it if room is held for it.
func (p *anchorPass) route(c *orbit.Capsule) {
	p.handed[c.Spec] = true
	near := c.Spec.Near.Group
	switch {
	case c.Gang() != "" || near == "" || c.Spec.Near.Level == orbit.NodeKey:
		p.rest = append(p.rest, c)
	case near == c.Spec.Group:
		p.routeMember(c)
	case !p.waits.startable(near):
		p.noteUnplaced(c, p.waits.deadlock(c.Spec))
	default:
		p.rest = append(p.rest, c)
	}
}

// routeMember routes a capsule that must be near its own group.
func (p *anchorPass) routeMember(c *orbit.Capsule) {
	g := p.group(c.Spec.Group)
	switch {
	case g.running:
		if !p.placeFromHold(g, c) {
			p.rest = append(p.rest, c)
		}
	case p.startsAlone(g) && !p.standsIn[c.Spec]:
		p.rest = append(p.rest, p.standIn(c))
	default:
		g.waiting = append(g.waiting, c)
	}
}

// startsAlone decides once how a group starts of which nothing runs, and reports whether that is by self-match.
func (p *anchorPass) startsAlone(g *anchorGroup) bool {
	if !g.decided {
		g.decided, g.alone = true, p.matchesItself(g)
		if g.alone {
			p.selfStarting = append(p.selfStarting, g)
		} else {
			p.starting = append(p.starting, g)
		}
	}
	return g.alone
}

// noteUnplaced records why the plan does not place a capsule.
func (p *anchorPass) noteUnplaced(c *orbit.Capsule, why error) {
	p.unplaced = append(p.unplaced, orbit.Unplaced{Capsule: c, Why: why})
}

// finish assembles the plan. Releases come first, because they free room. Anchors come next: they bet that nothing has
// come to their node, so a proposal of this plan for the same node would make them lose.
func (p *anchorPass) finish(theirs orbit.Plan) orbit.Plan {
	plan := orbit.Plan{Unplaced: slices.Concat(p.unplaced, p.crowdedOut, theirs.Unplaced)}
	if p.leftOut > 0 || len(p.releases) > 0 {
		unpark(plan.Unplaced[len(p.unplaced):])
	}
	for _, part := range [][]orbit.Proposal{p.releases, p.anchors, p.members, theirs.Proposals} {
		plan.Proposals = append(plan.Proposals, part...)
	}
	waiting := len(p.starting) - len(p.anchors)
	plan.Notes = append([]slog.Attr{
		slog.Int("anchors", len(p.anchors)), slog.Int("fromHolds", len(p.members)), slog.Int("groupsWaiting", waiting),
		slog.Int("holds", p.held), slog.Int("released", len(p.releases)), slog.Int("leftOut", p.leftOut),
	}, p.short...)
	plan.Notes = append(plan.Notes, theirs.Notes...)
	return plan
}

// anchorGroup is a co-location group as a plan sees it.
type anchorGroup struct {
	name    string
	running bool
	// The group has a hold that this plan has not replaced with a member.
	held bool
	// How many members of each spec this plan has placed in place of holds.
	came map[*orbit.Spec]int
	// Whether it is decided how the group starts, and whether that is by self-match.
	decided, alone bool
	// The plan's pending members of a group of which nothing runs, in order, without those that have a stand-in.
	waiting []*orbit.Capsule
	// The member that starts the group by self-match, if one does.
	first *orbit.Capsule
}

// group returns the plan's record of a group, which it creates on first use.
func (p *anchorPass) group(name string) *anchorGroup {
	g := p.groups[name]
	if g == nil {
		g = &anchorGroup{name: name, running: anchorRuns(p.state, name), came: map[*orbit.Spec]int{}}
		p.groups[name] = g
	}
	return g
}

// anchorRuns reports whether anything of the group is placed.
func anchorRuns(state *orbit.State, group string) bool {
	for range state.GroupNodes(group) {
		return true
	}
	return false
}

// waitsHere reports whether capsules of the spec wait for this group's anchor: members that must be near their own
// group and are in no gang.
func (g *anchorGroup) waitsHere(spec *orbit.Spec) bool {
	return spec.Group == g.name && spec.Near.Group == g.name && spec.Near.Level != orbit.NodeKey && spec.Class != orbit.GangClass
}

// anchorDomainOf returns a node's domain of a level, or "" if the node is in none: it has no such label, or one that is
// empty or too long to be named in a bet.
func anchorDomainOf(state *orbit.State, n *orbit.Node, level string) string {
	if name := n.Labels[level]; len(name) <= state.Limits().IDBytes {
		return name
	}
	return ""
}

// anchorDomainsOf returns a node's domain of each level.
func anchorDomainsOf(state *orbit.State, n *orbit.Node, levels []string) []string {
	names := make([]string, len(levels))
	for i, level := range levels {
		names[i] = anchorDomainOf(state, n, level)
	}
	return names
}

// inDomains returns the domains of a level in which members of a group run. A node without a name for its domain is in
// none.
func inDomains(state *orbit.State, group, level string) map[string]bool {
	in := map[string]bool{}
	for n := range state.GroupNodes(group) {
		if name := anchorDomainOf(state, n.Node, level); name != "" {
			in[name] = true
		}
	}
	return in
}

// filtered returns why the filter excludes a node; "" if it does not.
func (p *anchorPass) filtered(n *orbit.NodeState, spec *orbit.Spec) string {
	if p.Filter == nil {
		return ""
	}
	return p.Filter(n, p.view.Report(n), spec)
}
