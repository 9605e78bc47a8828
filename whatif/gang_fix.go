package whatif

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// GangFix is a change after which a gang fits that does not fit now: as many of its members as it lacks to its minimum are placed together, in one
// domain. It is minimal: no part of it is enough, and no smaller amount, as far as the planner of [ExplainGang] goes. Each has been tried:
// the proposal of [GangFix.Proposal] commits on the state that was explained. Read it, never write it.
type GangFix struct {
	// Role is the role whose request changes; empty: the request stays as it is.
	Role string
	// Less is how much less of one dimension each member of Role must ask for.
	Less orbit.Resources
	// LessExtra is how much less of an extra each member of Role must ask for; its Amount is 0 if that is not changed.
	LessExtra orbit.Extra
	// FewerDevices is how many device instances less each member of Role must ask for.
	FewerDevices int
	// Drop are the requirements, one or none, that the spec of Role must do without.
	Drop []orbit.Predicate
	// FewerMembers is by how much the minimum of Role must be lower: so many members may follow later.
	FewerMembers int
	// Uncordon are nodes that must take new work again.
	Uncordon []orbit.NodeID
	// Await are holds that have to end first, soonest first, and Until is when the last of them ends; zero: there are none.
	Await []orbit.Hold
	// Until is when the last of Await ends.
	Until time.Time
	// Evict are capsules that make way. It is legal: they have a lower priority, and no budget or gang is broken.
	Evict []orbit.CapsuleID
	// Add are nodes that have to join: each one like Like, which is empty, and in Domain.
	Add []*orbit.Node
	// Like is a member that those of Add are copies of, but for the id and the label of Level; empty if there are none.
	Like orbit.NodeID
	// Level and Domain are where the gang fits then; both are empty for all nodes together.
	Level, Domain string
	// New says that no node is in Domain: another name serves as well.
	New bool
	// Gang is the gang as it is then: the one that was explained, unless its request changes.
	Gang *orbit.Gang

	before []orbit.Commitment
	evicts []orbit.Commitment
	places []orbit.Commitment
	at     *gangPlace
	names  func(d int) string
}

// Proposal returns a proposal that carries the fix out and places the members. A gang whose request changes is released for good and submitted
// again under the same ids, which loses its turn in the queue. What is waited for (Await) it ends at once, so propose that only if nothing is to wait.
func (f *GangFix) Proposal() orbit.Proposal {
	return orbit.Proposal{Do: slices.Concat(f.before, f.evicts, f.places)}
}

// String completes "it would fit if you ...".
func (f *GangFix) String() string {
	role := fmt.Sprintf("role %q", f.Role)
	var text string
	switch {
	case len(f.Uncordon) > 0:
		text = "uncordon " + nodesText(f.Uncordon)
	case len(f.Await) > 0:
		text = fmt.Sprintf("wait for %d holds until %s, %q the last of them", len(f.Await), f.Until.UTC().Format(time.RFC3339), f.Await[len(f.Await)-1].ID)
		if len(f.Await) == 1 {
			text = fmt.Sprintf("wait for hold %q until %s", f.Await[0].ID, f.Until.UTC().Format(time.RFC3339))
		}
	case len(f.Evict) == 1:
		text = fmt.Sprintf("evict %q, which has a lower priority", f.Evict[0])
	case len(f.Evict) > 1:
		text = fmt.Sprintf("evict %d capsules of lower priority, %q among them", len(f.Evict), f.Evict[0])
	case len(f.Add) == 1:
		text = fmt.Sprintf("add a node like %s", f.Like)
	case len(f.Add) > 1:
		text = fmt.Sprintf("add %d nodes like %s", len(f.Add), f.Like)
	case f.LessExtra.Amount > 0:
		text = fmt.Sprintf("ask for %d less of %q in %s", f.LessExtra.Amount, f.LessExtra.Name, role)
	case f.FewerDevices > 0:
		text = fmt.Sprintf("ask for %d fewer devices in %s", f.FewerDevices, role)
	case len(f.Drop) > 0:
		text = fmt.Sprintf("drop the requirement %s of %s", f.Drop[0], role)
	case f.FewerMembers > 0:
		text = fmt.Sprintf("begin with %d fewer members of %s", f.FewerMembers, role)
	}
	for d, less := range f.Less {
		if less > 0 {
			text = fmt.Sprintf("ask for %d less of %s in %s", less, f.names(d), role)
		}
	}
	switch {
	case f.Level == "":
		return text
	case f.New:
		return fmt.Sprintf("%s in a new %s", text, f.Level)
	}
	return fmt.Sprintf("%s: then it fits in %s %s", text, f.Level, f.Domain)
}

// nodesText names some nodes.
func nodesText(ids []orbit.NodeID) string {
	if len(ids) == 1 {
		return "node " + string(ids[0])
	}
	names := make([]string, min(len(ids), listed))
	for i := range names {
		names[i] = string(ids[i])
	}
	text := fmt.Sprintf("%d nodes: %s", len(ids), strings.Join(names, ", "))
	if more := len(ids) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
