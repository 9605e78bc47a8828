package nav

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// Why a group never gets two anchors
//
// A group's epoch mark is an orbit.Mark. The proposal that places the group's first member, as an anchor or by
// self-match, sets the mark. It also bets (MarkAt) that the mark is still at the revision that the navigator has seen.
// Other members that must be near their group are placed with a GroupIn bet only, which needs a member that runs. In an
// Anchor's view nothing of the group runs. So if the group is started between that view and the commit of the Anchor's
// proposal, the start has set the mark at a newer revision, and the Anchor's bet fails.
//
// It does not matter what became of that other start. The group may have been placed, released, and submitted again
// under its name, so that the ledger looks as it did in the view: the mark's revision has risen, and revisions are
// never used again. That is also why marks are not deleted: an absent mark has revision 0, so a view from before the
// first start would be valid again after the deletion. Marks are therefore never cleaned up, and all groups share a
// fixed number of them. Two groups with one mark cannot start in one plan, and now and then one of them loses its bet
// to the other and is planned again.
//
// Members that ask for no company, or for the company of another group, are placed without setting the mark. Such a
// member may be placed at the same moment as the anchor. It starts the group too, but it is no anchor, so there is
// still only one anchor.
//
// The proposal bets on both counters of the anchor's node (NodeAt): nothing has come to the node or left it since the
// view. Hence it is still fresh, in the same domain, and has the room. Of nodes with holds for the other members it
// bets on the specification only: they are still in the domain, and the ledger itself checks whether they have room.

// anchorPrefix begins the ids of all holds and the keys of all marks of Anchors.
const anchorPrefix = orbit.PlanPrefix + "anchor/"

// anchorBuckets is how many hexadecimal digits of a group's hash name its mark: 4,096 marks.
const anchorBuckets = 3

// groupHash identifies a group where its name may be too long.
func groupHash(group string) string {
	sum := sha256.Sum256([]byte(group))
	return hex.EncodeToString(sum[:16])
}

// epochMarks hands out the bets that only one start of a group can win.
type epochMarks struct {
	state *orbit.State
	// Marks set by this plan, and the group they are set for.
	used map[string]string
}

// taken returns the group for which this plan sets the mark of g already, "" if it does not.
func (e *epochMarks) taken(g *anchorGroup) string { return e.used[g.mark()] }

// start adds the epoch mark and its bet to a proposal that starts g with this member, so that no other start of g can
// be committed too.
func (e *epochMarks) start(p *orbit.Proposal, g *anchorGroup, first orbit.CapsuleID) {
	key := g.mark()
	_, at := e.state.Mark(key)
	value := clip(g.name+" "+string(first), e.state.Limits().ValueBytes)
	p.Do = append([]orbit.Commitment{orbit.Mark{Key: key, Value: value}}, p.Do...)
	p.If = append([]orbit.Precondition{orbit.MarkAt{Key: key, Revision: at}}, p.If...)
}

// mark returns the key of the group's epoch mark.
func (g *anchorGroup) mark() string { return anchorPrefix + groupHash(g.name)[:anchorBuckets] }

// clip cuts a text to so many bytes of valid UTF-8.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}

// The self-match rule: a group for which only its own members wait may start with any member anywhere.

// matchesItself reports whether SelfMatch is set and applies to a group of which nothing runs: all pending capsules
// that name the group are members that wait for it, and for no other group. If so, it reserves the group's epoch mark for this plan.
func (p *anchorPass) matchesItself(g *anchorGroup) bool {
	if !p.SelfMatch || p.epoch.taken(g) != "" {
		return false
	}
	for spec := range p.state.GroupPending(g.name) {
		for near := range spec.AllNear {
			if near.Group != g.name {
				return false
			}
		}
		if !g.waitsHere(spec) {
			return false
		}
	}
	p.epoch.used[g.mark()] = g.name
	return true
}

// maxAlone is how many specs of first members are remembered.
const maxAlone = 256

// standIn returns a copy of a first member for the wrapped navigator to plan. Its spec asks to be in some domain of each
// of its levels, so that others can follow, and near no group. Equal specs keep one pointer from pass to pass.
func (p *anchorPass) standIn(c *orbit.Capsule) *orbit.Capsule {
	spec := p.alone[c.Spec]
	if spec == nil {
		if p.alone == nil || len(p.alone) >= maxAlone {
			p.alone = map[*orbit.Spec]*orbit.Spec{}
		}
		own := *c.Spec
		own.Near, own.Nears, own.Require = orbit.Near{}, nil, slices.Clone(c.Spec.Require) // all of them are near its own group
		for near := range c.Spec.AllNear {
			if near.Level != orbit.NodeKey {
				own.Require = append(own.Require, orbit.Predicate{Key: near.Level, Op: "Exists"}, orbit.Predicate{Key: near.Level, Op: "NotIn", Values: []string{""}})
			}
		}
		spec = &own
		if shared, err := own.Share(); err == nil { // a placement index caches nothing for a spec that is not shared
			spec = shared
		}
		p.alone[c.Spec] = spec
	}
	if p.standIns == nil {
		p.standIns, p.standsIn = map[orbit.CapsuleID]*orbit.Capsule{}, map[*orbit.Spec]bool{}
	}
	p.standIns[c.ID], p.standsIn[c.Spec] = c, true
	stand := *c
	stand.Spec = spec
	return &stand
}

// keepFirsts keeps, for each group, the first stand-in that the wrapped navigator has placed, and makes its proposal
// set the epoch mark. Placements of the group's other stand-ins are removed. In Unplaced it replaces each stand-in with
// its original.
func (p *anchorPass) keepFirsts(theirs *orbit.Plan) {
	if len(p.standIns) == 0 {
		return
	}
	kept := theirs.Proposals[:0:0]
	for _, proposal := range theirs.Proposals {
		if p.keepFirst(&proposal) {
			kept = append(kept, proposal)
		}
	}
	theirs.Proposals = kept
	for i, u := range theirs.Unplaced {
		if u.Capsule != nil && p.standIns[u.Capsule.ID] != nil {
			theirs.Unplaced[i].Capsule = p.standIns[u.Capsule.ID]
		}
	}
}

// keepFirst does what keepFirsts says for one proposal. It reports whether to keep the proposal: false if all its
// placements were removed.
func (p *anchorPass) keepFirst(proposal *orbit.Proposal) bool {
	var first []*anchorGroup
	places, left := 0, 0
	do := slices.DeleteFunc(slices.Clone(proposal.Do), func(do orbit.Commitment) bool {
		place, ok := do.(orbit.Place)
		places += btoi(ok)
		c := p.standIns[place.Capsule]
		if !ok || c == nil {
			return false
		}
		g := p.group(c.Spec.Group)
		if g.first == nil {
			g.first = c
			first = append(first, g)
		}
		if g.first == c {
			return false
		}
		g.waiting = append(g.waiting, c)
		left++
		return true
	})
	p.leftOut += btoi(left > 0)
	proposal.Do = do
	for _, g := range first {
		p.epoch.start(proposal, g, g.first.ID)
	}
	return left == 0 || left < places
}

// explainSelfStarts records why this plan does not place the members of groups that start by self-match. They are
// parked only if a first member is placed: otherwise any of them may be the next to start the group.
func (p *anchorPass) explainSelfStarts() {
	for _, g := range p.selfStarting {
		why := fmt.Errorf("group %q waits for its first member, and none has a place in this plan", g.name)
		if g.first != nil {
			why = p.waitsFor(g, fmt.Sprintf("its first member, capsule %q, which needs no anchor", g.first.ID))
		}
		p.noteAllUnplaced(g.waiting, why)
	}
}
