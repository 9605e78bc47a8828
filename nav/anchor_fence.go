package nav

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/orbitsched/orbit"
)

// Why a group never gets two anchors
//
// A group's fence is a mark. Whoever starts the group, with an anchor or by self-match, sets the mark and bets
// that it is still at the revision seen (MarkAt), in the proposal that places the first member. Members that must
// be near their group are otherwise placed with a GroupIn bet only, which needs a member that runs. So between
// the view of an Anchor, in which nothing of the group runs, and the commit of its proposal the group can only
// have been started by something that has set the mark, at a revision newer than the view; then the bet fails.
//
// It does not matter what became of that start. The group may have been placed, released, and submitted again
// under its name, so that the world looks as it did in the view: the mark's revision has risen, and revisions
// are never used again. That is also why marks are not deleted: one that is absent has revision 0, and a view
// from before the first start would be good again after the deletion. Nothing is left behind but the marks,
// therefore all groups share a fixed number of them: two groups with one mark cannot start in one plan, and now
// and then one loses its bet to the other and is planned again.
//
// Members that wait for nobody, or for another group, are placed without a fence. One that is placed in the same
// moment starts the group too, but it is no anchor, and there is still only one of those.
//
// The anchor's node is bet on with both counters (NodeAt): nothing at all has come to it or left it since the
// view, hence it is still fresh, in the same domain, and has the room. Nodes with holds for the other members are
// bet on with their specification, so that they are still in the domain; whether they have room the ledger checks.

// anchorPrefix begins the ids of all holds and the keys of all marks of Anchors.
const anchorPrefix = "anchor/"

// anchorBuckets is how many hexadecimal digits of a group's hash name its mark: 4,096 marks.
const anchorBuckets = 3

// anchorHash identifies a group where its name may be too long.
func anchorHash(group string) string {
	sum := sha256.Sum256([]byte(group))
	return hex.EncodeToString(sum[:16])
}

// anchorFence hands out the bets that only one start of a group can win.
type anchorFence struct {
	state *orbit.State
	// Marks set by this plan, and the group they are set for.
	used map[string]string
}

// taken returns the group for which this plan sets the mark of g already, "" if it does not.
func (f *anchorFence) taken(g *anchorGroup) string { return f.used[g.mark()] }

// start adds to a proposal what makes it the only one that starts g, with this member.
func (f *anchorFence) start(p *orbit.Proposal, g *anchorGroup, first orbit.CapsuleID) {
	key := g.mark()
	_, at := f.state.Mark(key)
	value := clip(g.name+" "+string(first), f.state.Limits().ValueBytes)
	p.Do = append([]orbit.Commitment{orbit.Mark{Key: key, Value: value}}, p.Do...)
	p.If = append([]orbit.Precondition{orbit.MarkAt{Key: key, Revision: at}}, p.If...)
}

// mark returns the key of the group's fence.
func (g *anchorGroup) mark() string { return anchorPrefix + anchorHash(g.name)[:anchorBuckets] }

// clip cuts a text to so many bytes of valid UTF-8.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
