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
// self-match, sets the mark and bets (MarkAt) that the mark is still at the revision that the navigator has seen.
// Members that must be near their group are otherwise placed with a GroupIn bet only, which needs a member that runs.
// So between the view of an Anchor, in which nothing of the group runs, and the commit of its proposal the group can
// only have been started by something that has set the mark, at a revision newer than the view; then the bet fails.
//
// It does not matter what became of that start. The group may have been placed, released, and submitted again
// under its name, so that the world looks as it did in the view: the mark's revision has risen, and revisions
// are never used again. That is also why marks are not deleted: one that is absent has revision 0, and a view
// from before the first start would be good again after the deletion. Nothing is left behind but the marks,
// therefore all groups share a fixed number of them: two groups with one mark cannot start in one plan, and now
// and then one loses its bet to the other and is planned again.
//
// Members that ask for no company, or for that of another group, are placed without setting the mark. One that is placed in the same
// moment starts the group too, but it is no anchor, and there is still only one of those.
//
// The anchor's node is bet on with both counters (NodeAt): nothing at all has come to it or left it since the
// view, hence it is still fresh, in the same domain, and has the room. Nodes with holds for the other members are
// bet on with their specification, so that they are still in the domain; whether they have room the ledger checks.

// anchorPrefix begins the ids of all holds and the keys of all marks of Anchors.
const anchorPrefix = "anchor/"

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

// start adds to a proposal what makes it the only one that starts g, with this member.
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

// The self-match rule: a group that is its own only target may start with any member anywhere.

// matchesItself reports whether the rule is on and holds for a group of which nothing runs: all that is pending and
// has to do with it are members that wait for it. It takes the group's epoch mark for this plan.
func (p *anchorPass) matchesItself(g *anchorGroup) bool {
	if !p.SelfMatch || p.epoch.taken(g) != "" {
		return false
	}
	for spec := range p.state.GroupPending(g.name) {
		if !g.waitsHere(spec) {
			return false
		}
	}
	p.epoch.used[g.mark()] = g.name
	return true
}

// maxAlone is how many specs of first members are remembered.
const maxAlone = 256

// standIn returns a capsule for the wrapped navigator to plan in the place of a first member: it wants to be
// in some domain, near no group, so that the others can follow. Equal specs stay one pointer from pass to pass.
func (p *anchorPass) standIn(c *orbit.Capsule) *orbit.Capsule {
	spec := p.alone[c.Spec]
	if spec == nil {
		if p.alone == nil || len(p.alone) >= maxAlone {
			p.alone = map[*orbit.Spec]*orbit.Spec{}
		}
		own, level := *c.Spec, c.Spec.Near.Level
		own.Near = orbit.Near{}
		own.Require = append([]orbit.Predicate{
			{Key: level, Op: "Exists"}, {Key: level, Op: "NotIn", Values: []string{""}},
		}, c.Spec.Require...)
		spec = &own
		if shared, err := own.Share(); err == nil { // an index keeps nothing for a spec that is not
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

// keepFirsts keeps of each group the first stand-in that the wrapped navigator has placed, and lets its proposal set the epoch mark. The
// places of the others are left out. It puts the capsules themselves for their stand-ins.
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

// keepFirst does so for one proposal. It reports whether the proposal still places anything, if it did.
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

// explainSelfStarts says what the members wait for that this plan leaves to follow a first one. They are put aside
// only if that is placed: otherwise any of them may be the next to start the group.
func (p *anchorPass) explainSelfStarts() {
	for _, g := range p.selfStarting {
		why := fmt.Errorf("group %q waits for its first member, and none has a place in this plan", g.name)
		if g.first != nil {
			why = p.waitsFor(g, fmt.Sprintf("its first member, capsule %q, which needs no anchor", g.first.ID))
		}
		p.noteAllUnplaced(g.waiting, why)
	}
}
