package nav

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
)

// AnchorNote is the note of an anchor's placement (Place.Note, Capsule.Note). [GroupWatch] counts the anchors, and the
// members that were placed after them.
const AnchorNote = "anchor"

// Anchor helps an ordinary navigator to start co-location groups. Capsules that must be near their own group
// (Spec.Near names Spec.Group) wait for a member that runs, and if the whole group is submitted at once nothing
// of it ever does. For each such group Anchor places exactly one member, the anchor, as if it asked for no company;
// the others then follow it, and all other work is the wrapped navigator's. It claims what that one claims, so it
// runs instead of it, not beside it.
//
//	pending ─┬─ members of a running group with room held for them ─► Release the hold, Place       (GroupIn)
//	         ├─ members of a group of which nothing runs ───► one anchor, and holds for the others   (MarkAt, NodeAt)
//	         ├─ capsules that wait for a group that cannot start ─► a [*Deadlock] says why
//	         └─ all others ─────────────────────────────────► the wrapped navigator
//
// The anchor is the member that lets most others follow, each at the level that it names. It goes to the tightest
// domain that takes all members that wait, or to the one that takes most, which the notes then say; where members name
// several levels, to one from which most stay together at all of them. There it goes to a fresh node: one that hosts no
// capsule of any group and on which no Anchor holds room for one. Room for the other members is held in that domain, in
// the same proposal, until they have come or HoldFor has passed. Members that come later, or that find no room left,
// are ordinary work.
//
// Anchor holds room on as few nodes as possible, the anchor's node first: six replicas that fit on one node are all
// placed on it. The wrapped navigator's score and filter, Spec.Prefer and Spec.Spread do not affect the choice. A group
// that should be spread within its domain needs HoldFor: -1, with which the others are placed by the wrapped navigator.
//
// What holds, whatever else runs on the ledger, other Anchors with stale views among it: a group has at most one anchor
// while anything of it runs (see anchor_epoch.go), its node was fresh when it was placed, every hold ends, and one plan
// never asks for more than a node has. A member that asks for no company, or for that of another group, may be placed by
// its navigator at the same moment as the anchor, in another domain; members may then follow either. Members of gangs are
// left to the navigator of gangs: no anchor, and no hold if their class is Gang.
//
// Anchor learns of changes from the view and keeps tables of domains; a plan without a group to start costs
// what is in its batch and the holds of groups. Among what is of one priority, anchors come first: a proposal of
// the wrapped navigator that no longer fits beside them is left out, with those behind it that rest on it. Their
// capsules are planned again in the next pass, and so are all those that this plan has found no node for. What it
// releases is no room for anchors of the same plan. It belongs to one engine and is not safe for concurrent use.
type Anchor struct {
	// Navigator is the one that it helps, as in &Services{}. Required.
	Navigator orbit.Navigator
	// HoldFor is how long room is held for a group after its anchor has been placed; default 30 s. Negative: no
	// room is held, and members compete for what there is.
	HoldFor time.Duration
	// SelfMatch lets a group start without an anchor if all that waits for it are its own members and they wait
	// for no other: one member of each spec is planned by the wrapped navigator as if it asked for no company, the first
	// of them that has a place starts the group, wherever that is, and no room is held.
	SelfMatch bool
	// Filter takes nodes out of the choice of anchors and holds, as that of a placement engine does. Nil: none. If
	// the wrapped navigator's placement engine has a filter, set it here too.
	Filter place.Filter

	draft   orbit.Draft
	domains topology
	// Specs of first members, without what they want to be near.
	alone map[*orbit.Spec]*orbit.Spec
}

// Claims returns the wrapped navigator's answer.
func (a *Anchor) Claims(module string, class orbit.AppClass) bool {
	return a.Navigator != nil && a.Navigator.Claims(module, class)
}

// errNoNavigator is the error of a Plan without Anchor.Navigator.
var errNoNavigator = errors.New("nav: Anchor.Navigator is nil; set it to the navigator that it helps, as in &nav.Services{}")

// Plan starts groups, places members where room is held for them, and hands the rest to the wrapped navigator,
// whose error it returns. Its notes: "anchors" and "fromHolds" placed, "groupsWaiting" that were handed over,
// need an anchor and got none (those of a [Deadlock] are not among them), "holds" taken, and "released" because
// no member needs them any more, wrapped proposals "leftOut" in whole or in part, a "short" for each group of which no
// domain takes all, which says how many it takes; then the wrapped navigator's, if it was asked.
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
	if len(p.starting) > 0 {
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
	// Groups of which nothing runs and members have been handed over, in the order of their first: those that need an
	// anchor, and those that start by self-match.
	starting, selfStarting []*anchorGroup
	waits                  anchorWaits
	epoch                  epochMarks
	// The capsules that the wrapped navigator plans, the original of each stand-in among them, and the specs that have
	// a stand-in.
	rest     []*orbit.Capsule
	standIns map[orbit.CapsuleID]*orbit.Capsule
	standsIn map[*orbit.Spec]bool
	holds    anchorHolds
	// Specs of the capsules that have been handed over.
	handed map[*orbit.Spec]bool

	// By node index, whether a group has a part in the node.
	claims []anchorClaim

	releases, anchors, members []orbit.Proposal
	// Capsules without a place, and those without one only because of the wrapped navigator's plan.
	unplaced, crowdedOut []orbit.Unplaced
	short                []slog.Attr
	held, leftOut        int
}

// newAnchorPass syncs the draft with the view, and reads the holds.
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
	case c.Gang != "" || near == "":
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

// noteUnplaced notes why a capsule has no place.
func (p *anchorPass) noteUnplaced(c *orbit.Capsule, why error) {
	p.unplaced = append(p.unplaced, orbit.Unplaced{Capsule: c, Why: why})
}

// finish puts the plan together. Releases come first, for they make room; then anchors, whose bets on nodes
// would be lost to anything that this plan puts there.
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
	// Decided: how the group starts is decided. Alone: it starts by self-match.
	decided, alone bool
	// Pending members that were handed over while nothing of the group runs, in order, without those that have a stand-in.
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

// waitsHere reports whether capsules of the spec start with the group and follow its anchor: members that must be
// near it and are in no gang.
func (g *anchorGroup) waitsHere(spec *orbit.Spec) bool {
	return spec.Group == g.name && spec.Near.Group == g.name && spec.Class != orbit.GangClass
}

// anchorDomainOf returns the domain of the level that a node is in, "" if it is in none: it has no such label, or
// one that is empty or too long to be named in a bet.
func anchorDomainOf(state *orbit.State, n *orbit.Node, level string) string {
	if name := n.Labels[level]; len(name) <= state.Limits().IDBytes {
		return name
	}
	return ""
}

// anchorDomainsOf returns the domains of several levels.
func anchorDomainsOf(state *orbit.State, n *orbit.Node, levels []string) []string {
	names := make([]string, len(levels))
	for i, level := range levels {
		names[i] = anchorDomainOf(state, n, level)
	}
	return names
}

// inDomains returns in which domains of a level members of a group run; a node without a name for its domain is in
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

// filtered returns why the filter takes a node out of the choice, "" if it does not.
func (p *anchorPass) filtered(n *orbit.NodeState, spec *orbit.Spec) string {
	if p.Filter == nil {
		return ""
	}
	return p.Filter(n, p.view.Report(n), spec)
}
